"""Where rounding happens in a Program, and how much of it reaches the results, to first order.

p            (x) -> (exp(x) * y)
perturbed    (x, d1, d2) -> ((exp(x) + d1) * y + d2, |exp(x)|, |exp(x) * y|)

An error d in one equation's result moves the outputs by adjoint * d, so a Program with a d beside
every rounding, split and transposed with respect to them, gives all adjoints in one backward sweep.
Bodies of scans and branches are followed (their d are stacked over the trips), and so are loops
whose trips are known for the operands at hand (`fxad.api.known_trips`); other loops and custom
rules count as one equation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.dtypes import short_name
from fxad.core.masks import select
from fxad.core.types import ArrayType, Type
from fxad.ir.program import OPS, Atom, Eqn, Lit, Program, Var
from fxad.ir.rewrite import dce, inline_into, literal, map_subprograms
from fxad.transform.jvp import jvp
from fxad.transform.split import split
from fxad.transform.transpose import transpose

FOLLOWED = ("scan", "cond")
_INLINED = ("call", "checkpoint")
_SUMS = ("sum", "dot", "dot_by_parts", "cumsum")  # of products of the sizes of their operands
_ROUNDED = ("add", "sub", "scatter")  # exact as references go: one rounding of the true result


@dataclass(frozen=True, slots=True)
class Site:
    """One equation that rounds. `type` is its result in one run; `trips` counts the runs of the
    loop bodies around it. `terms`: how many numbers one element adds up, in dtype `sums_in`.

    `operand`: None for the rounding of the result; else the place of an operand whose rounding on
    entry is meant (for equations that may run in fewer bits).
    """

    eqn: Eqn
    type: Type
    trips: int
    terms: int
    operand: int | None = None

    @property
    def op(self) -> str:
        return self.eqn.op.name

    @property
    def where(self) -> str:
        return self.eqn.where

    @property
    def sums_in(self) -> np.dtype:
        narrow = dt.is_float(self.type.dtype) and self.type.dtype.itemsize < 4
        return dt.float32 if narrow else self.type.dtype


def rounds(eqn: Eqn) -> bool:
    """Whether some result of an equation is not exactly what its operands' bits say."""
    name, found = eqn.op.name, [v.type for v in eqn.outputs if _inexact(v.type)]
    if not found:
        return False
    if name in ("abs", "sign"):
        return dt.is_complex(eqn.inputs[0].type.dtype)
    if name == "convert":
        before = eqn.inputs[0].type.dtype
        return dt.is_inexact(before) and dt.finfo(before).eps < dt.finfo(found[0].dtype).eps
    if name in ("mul", "div"):
        return not any(isinstance(a, Lit) and _power_of_two(a.value) for a in eqn.inputs)
    return name in _ROUNDED or not (eqn.op.exact or name in FOLLOWED or name in _INLINED)


def _power_of_two(value: Any) -> bool:
    return isinstance(value, float) and value != 0 and math.frexp(value)[0] in (0.5, -0.5)


def perturbed(program: Program, operands: bool = False) -> tuple[Program, list[Site]]:
    """(inputs, a d per site) -> (outputs, the magnitude at each site).

    With `operands` also every operand of a rounding equation may be moved on its way in.
    """
    walk = _Perturb(operands)
    body = walk.program(program, 1)
    return body, walk.sites


class _Perturb:
    """Rebuilds programs; `sites` lists the roundings in the order of the added inputs."""

    def __init__(self, operands: bool) -> None:
        self.operands = operands
        self.sites: list[Site] = []

    def program(self, program: Program, trips: int) -> Program:
        moves: list[Var] = []
        sizes: list[Atom] = []
        eqns: list[Eqn] = []
        outputs = self._walk(program.eqns, program.outputs, trips, eqns, moves, sizes)
        inputs = [*program.inputs, *moves]
        return Program(inputs, eqns, [*outputs, *sizes], program.name)

    def _walk(
        self,
        eqns: Sequence[Eqn],
        outputs: Sequence[Atom],
        trips: int,
        kept: list[Eqn],
        moves: list[Var],
        sizes: list[Atom],
    ) -> list[Atom]:
        env: dict[Atom, Atom] = {}
        for eqn in eqns:
            if not env.keys().isdisjoint(eqn.inputs):
                eqn = eqn.with_inputs(tuple([env.get(a, a) for a in eqn.inputs]))
            name = eqn.op.name
            if name in _INLINED:
                body, outs = inline_into(eqn.params["program"], eqn.inputs, eqn.where)
                outs = tuple(self._walk(body, outs, trips, kept, moves, sizes))
                env.update(zip(eqn.outputs, outs, strict=True))
            elif name == "scan":
                self._scan(eqn, trips, kept, moves, sizes)
            elif name == "cond":
                self._cond(eqn, trips, kept, moves, sizes)
            elif rounds(eqn):
                self._rounding(eqn, trips, kept, moves, sizes)
            else:
                kept.append(eqn)
        return [env.get(a, a) for a in outputs]

    def _rounding(
        self, eqn: Eqn, trips: int, kept: list[Eqn], moves: list[Var], sizes: list[Atom]
    ) -> None:
        source = eqn
        if self.operands:
            inputs = list(eqn.inputs)
            for place, atom in enumerate(eqn.inputs):
                if isinstance(atom, Var) and _inexact(atom.type):
                    self.sites.append(Site(source, atom.type, trips, 1, place))
                    inputs[place] = _moved(atom, source, kept, moves)
                    sizes.append(_bound(OPS["abs"], (atom,), {}, source, kept))
            eqn = eqn.with_inputs(tuple(inputs))
        raw = tuple([Var(v.type) if _inexact(v.type) else v for v in eqn.outputs])
        kept.append(eqn.copy(outputs=raw))
        for out, var in zip(eqn.outputs, raw, strict=True):
            if var is out:
                continue
            self.sites.append(Site(source, out.type, trips, _terms(eqn)))
            move = Var(out.type)
            moves.append(move)
            kept.append(Eqn(OPS["add"], (var, move), {}, (out,), eqn.where))
            sizes.append(_magnitude(eqn, var, kept))

    def _scan(
        self, eqn: Eqn, trips: int, kept: list[Eqn], moves: list[Var], sizes: list[Atom]
    ) -> None:
        """The d of the body become further slices, its magnitudes further stacked results."""
        length, body = eqn.params["length"], eqn.params["body"]
        inner = self.program(body, trips * length)
        new = [_stack(v.type, length) for v in inner.inputs[len(body.inputs) :]]
        stacked = [_stack(a.type, length) for a in inner.outputs[len(body.outputs) :]]
        params = {**eqn.params, "body": inner}
        kept.append(
            eqn.copy(inputs=(*eqn.inputs, *new), params=params, outputs=(*eqn.outputs, *stacked))
        )
        moves += new
        sizes += stacked

    def _cond(
        self, eqn: Eqn, trips: int, kept: list[Eqn], moves: list[Var], sizes: list[Atom]
    ) -> None:
        """Every branch takes the d of all branches; magnitudes of those not taken are zero."""
        branches = eqn.params["branches"]
        inner = [self.program(b, trips) for b in branches]
        added = [p.inputs[len(b.inputs) :] for p, b in zip(inner, branches, strict=True)]
        found = [p.outputs[len(b.outputs) :] for p, b in zip(inner, branches, strict=True)]
        new = [Var(v.type) for group in added for v in group]
        results = [Var(a.type) for group in found for a in group]
        wide = []
        for number, program in enumerate(inner):
            ins = list(program.inputs[: len(branches[number].inputs)])
            outs = list(program.outputs[: len(branches[number].outputs)])
            eqns = list(program.eqns)
            for other, group in enumerate(added):
                ins += group if other == number else [Var(v.type) for v in group]
                outs += found[other] if other == number else [_zeros(a, eqns) for a in found[other]]
            wide.append(Program(ins, eqns, outs, program.name))
        params = {**eqn.params, "branches": tuple(wide)}
        kept.append(
            eqn.copy(inputs=(*eqn.inputs, *new), params=params, outputs=(*eqn.outputs, *results))
        )
        moves += new
        sizes += results


def _inexact(type: Any) -> bool:
    return isinstance(type, ArrayType) and dt.is_inexact(type.dtype)


def _stack(type: Type, length: int) -> Var:
    return Var(ArrayType(type.dtype, (length, *type.shape)))


def _moved(atom: Var, eqn: Eqn, kept: list[Eqn], moves: list[Var]) -> Var:
    move, result = Var(atom.type), Var(atom.type)
    moves.append(move)
    kept.append(Eqn(OPS["add"], (atom, move), {}, (result,), eqn.where))
    return result


def _zeros(like: Atom, eqns: list[Eqn]) -> Var:
    var = Var(like.type)
    params = {"shape": like.type.shape, "axes": ()}
    eqns.append(Eqn(OPS["broadcast"], (literal(0, like.type.dtype),), params, (var,)))
    return var


def _bound(
    op: Any, inputs: tuple[Atom, ...], params: dict[str, Any], eqn: Eqn, kept: list[Eqn]
) -> Var:
    var = Var(op.type(*[a.type for a in inputs], **params))
    kept.append(Eqn(op, inputs, params, (var,), eqn.where))
    return var


def _magnitude(eqn: Eqn, result: Var, kept: list[Eqn]) -> Var:
    """The size of what is rounded: of a sum, the sum of the sizes of its terms."""
    if eqn.op.name not in _SUMS:
        return _bound(OPS["abs"], (result,), {}, eqn, kept)
    sizes = tuple([_bound(OPS["abs"], (a,), {}, eqn, kept) for a in eqn.inputs])
    params = dict(eqn.params)
    if "dtype" in params:
        params["dtype"] = dt.real_of(params["dtype"])
    return _bound(eqn.op, sizes, params, eqn, kept)


def _terms(eqn: Eqn) -> int:
    """How many terms one element of a sum or product adds up or multiplies."""
    shape = eqn.inputs[0].type.shape if eqn.inputs else ()
    axes: tuple[int, ...]
    match eqn.op.name:
        case "sum" | "prod":
            axes = eqn.params["axes"]
        case "dot" | "dot_by_parts":
            axes = eqn.params["contract"][0]
        case "cumsum" | "cumprod":
            axes = (eqn.params["axis"],)
        case _:
            return 1
    return max(1, math.prod([shape[a] for a in axes]))


class Sensitivity(NamedTuple):
    """`forward`(inputs, zeros) -> outputs, magnitudes, residuals; `backward`(residuals, cotangents
    of the outputs marked `active`) -> adjoints of the sites marked `reached`."""

    forward: Program
    backward: Program
    sites: list[Site]
    active: tuple[bool, ...]
    reached: tuple[bool, ...]


def sensitivity(program: Program, operands: bool = False) -> Sensitivity:
    """The forward and the backward Program of an error estimate (a closed Program)."""
    body, sites = perturbed(program, operands)
    count, outs, inner = len(program.inputs), len(program.outputs), len(body.outputs)
    derived, active = jvp(body, (False,) * count + (True,) * len(sites))
    tangents = derived.outputs[inner:]
    of_outputs = [t for t, o in zip(tangents, _places(active), strict=True) if o < outs]
    wanted = [*derived.outputs[:inner], *of_outputs]
    derived = dce(Program(derived.inputs, derived.eqns, wanted, program.name))
    known = len(body.inputs)
    s = split(
        derived,
        (False,) * known + (True,) * len(sites),
        (False,) * inner + (True,) * len(of_outputs),
    )
    linear = (False,) * s.residuals + (True,) * len(sites)
    backward, reached = transpose(s.rest, linear, (True,) * len(of_outputs))
    return Sensitivity(s.known, backward, sites, active[:outs], reached)


def narrowed(program: Program, chosen: Set[Eqn], dtype: np.dtype) -> Program:
    """The Program with some equations (of loop bodies and branches too) computed in `dtype`.

    before   c: f32[3] = exp(a)
    after    d: bf16[3] = convert(a; dtype=bf16); e: bf16[3] = exp(d); c: f32[3] = convert(e; ...)
    """
    kept: list[Eqn] = []
    for eqn in map_subprograms(program, lambda inner: narrowed(inner, chosen, dtype)).eqns:
        if eqn in chosen:
            _narrow(eqn, dtype, kept)
        else:
            kept.append(eqn)
    return Program(program.inputs, kept, program.outputs, program.name, program.consts)


def _narrow(eqn: Eqn, dtype: np.dtype, kept: list[Eqn]) -> None:
    inputs = tuple([_in_dtype(a, dtype, eqn, kept) for a in eqn.inputs])
    types = eqn.op.type(*[a.type for a in inputs], **eqn.params)
    raw = tuple([Var(t) for t in (types if isinstance(types, tuple) else (types,))])
    kept.append(eqn.copy(inputs=inputs, outputs=raw))
    for var, out in zip(raw, eqn.outputs, strict=True):
        op, params = OPS["copy"], {}
        if var.type != out.type:
            op, params = OPS["convert"], {"dtype": out.type.dtype}
        kept.append(Eqn(op, (var,), params, (out,), eqn.where))


def _in_dtype(atom: Atom, dtype: np.dtype, eqn: Eqn, kept: list[Eqn]) -> Atom:
    if not dt.is_float(atom.type.dtype):
        return atom
    if isinstance(atom, Lit):
        return Lit(float(dtype.type(atom.value)), dtype)
    return _bound(OPS["convert"], (atom,), {"dtype": dtype}, eqn, kept)


def runs_in(eqn: Eqn, dtype: np.dtype) -> bool:
    """Whether an equation of wider floats has a version in a narrower float dtype."""
    types = [a.type for a in eqn.inputs]
    op, name = eqn.op, short_name(dtype)
    if op.higher or not (op.name in ("add", "sub") or (op.ulp and name in op.ulp)):
        return False
    return all(
        isinstance(t, ArrayType) and (not dt.is_inexact(t.dtype) or _wider(t.dtype, dtype))
        for t in [*types, *(v.type for v in eqn.outputs)]
    )


def _wider(wide: np.dtype, narrow: np.dtype) -> bool:
    return dt.is_float(wide) and wide.itemsize > narrow.itemsize


def _places(mask: Sequence[bool]) -> list[int]:
    return select(list(range(len(mask))), list(mask))
