"""`checkpoint`: a call whose values are recomputed in the backward pass, save what a policy keeps.

    ys = checkpoint(*xs; program=p, policy=(("keep", "dots"),))

Its split rule cuts the forward half once more: `saved` crosses to the backward half, everything
else is recomputed there, behind a barrier that no pass looks through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fxad.core import dtypes as dt
from fxad.core.masks import merge, select
from fxad.core.record import valued
from fxad.core.types import ArrayType, Type
from fxad.ir.program import OPS, Atom, Eqn, Program, Var
from fxad.ir.rewrite import dce, flattened, used_inputs
from fxad.ops.base import Primitive, type_of
from fxad.ops.programs.control import call_like
from fxad.ops.programs.policies import (
    PRODUCTS,
    Rows,
    byte_budget,
    compressed,
    decide,
    input_how,
    memory,
    names_of,
    place,
)

if TYPE_CHECKING:
    from fxad.ir.rules import AnyValue, AnyValues, Record, Transforms
    from fxad.trace.array import Array


@valued
class Recipe:
    """How the backward half gets its residuals.

    `recompute`: kept inputs and saved values -> residuals. `inputs`: which inputs of the forward
    half it reads. `saved`: values of the forward half, each with how to keep it.
    """

    recompute: Program
    inputs: tuple[bool, ...]
    saved: dict[Var, str]


def recipe(program: Program, residuals: Sequence[Atom], policy: Rows) -> Recipe:
    """What to keep of a flat program to recompute `residuals`, and the program that does.

    A value goes by all names it was given. Results of equations with effects are always kept:
    nothing that a user can see happens twice.
    """
    root: dict[Var, Atom] = {}
    for eqn in program.eqns:
        if eqn.op.name == "name":
            root[eqn.outputs[0]] = _rooted(eqn.inputs[0], root)
    names = names_of(program.eqns, root)
    wanted = [_rooted(a, root) for a in residuals]
    live = {a for a in wanted if isinstance(a, Var)}
    saved: dict[Var, str] = {}
    kept: list[Eqn] = []
    for eqn in reversed(program.eqns):
        recomputed = []
        for var in live.intersection(eqn.outputs):
            how = decide(policy, eqn, names.get(var, frozenset()))
            if how is None and not eqn.effects:
                recomputed.append(var)
            else:
                saved[var] = how or "keep"
        if recomputed:
            inputs = tuple([_rooted(a, root) for a in eqn.inputs])
            outputs = tuple([v if v in recomputed else Var(v.type) for v in eqn.outputs])
            kept.append(eqn.copy(inputs=inputs, outputs=outputs))
            live.update(a for a in inputs if isinstance(a, Var))
    order = [v for eqn in program.eqns for v in eqn.outputs if v in saved]
    saved = {v: saved[v] for v in order}
    whole = Program([*program.inputs, *saved], kept[::-1], wanted, program.name)
    used = used_inputs(whole)[: len(program.inputs)]
    kept_inputs: list[Var] = [*select(program.inputs, used), *saved]
    return Recipe(Program(kept_inputs, whole.eqns, wanted, program.name), used, saved)


def _rooted(atom: Atom, root: dict[Var, Atom]) -> Atom:
    return root.get(atom, atom) if isinstance(atom, Var) else atom


def _split(
    t: Transforms,
    record: Record,
    unknown: tuple[bool, ...],
    args: AnyValues,
    *,
    program: Program,
    policy: Rows,
) -> AnyValues:
    s = t.split(program, unknown)
    known = flattened(s.known)
    count = len(known.outputs) - s.residuals
    plan = recipe(known, known.outputs[count:], policy)
    given = select(args, unknown, False)
    budget = byte_budget(policy)
    dear = [] if budget is None else _dear(known, plan.saved)
    wanted = [*known.outputs[:count], *plan.saved, *dear]
    forward = dce(Program(known.inputs, known.eqns, wanted, known.name))
    results = list(checkpoint(*given, program=forward, policy=policy))
    inputs, end = select(given, plan.inputs), count + len(plan.saved)
    values = [*inputs, *results[count:end]]
    hows = [*[input_how(policy)] * len(inputs), *plan.saved.values()]
    fixed = [_stored(v, how) for v, how in zip(values, hows, strict=True)]
    spare = [] if budget is None else [*results[end:], *given]
    types = [type_of(v) for v in values]

    def backward(*operands: AnyValue) -> list[AnyValue]:
        held, others = operands[: len(fixed)], operands[len(fixed) : len(fixed) + len(spare)]
        if budget is not None:
            free, rest = (*others[len(dear) :], *held[: len(inputs)]), held[len(inputs) :]
            limits = {"budget": budget.nbytes, "ways": budget.ways, "free": len(free)}
            whole = OPS["within"](*free, *rest, *others[: len(dear)], **limits)
            held = (*held[: len(inputs)], *whole[len(free) : len(free) + len(rest)])
        elif held and (plan.recompute.eqns or any(map(compressed, hows))):
            # What is recomputed must not join the forward half, what is rounded not its readers.
            held = OPS["barrier"](*held)
        read = [_restored(v, how, type_) for v, how, type_ in zip(held, hows, types, strict=True)]
        return t.run(s.rest, [*t.run(plan.recompute, read), *operands[len(fixed) + len(spare) :]])

    operands = [*fixed, *spare, *select(args, unknown)]
    rest = t.stage(backward, [type_of(a) for a in operands], program.name)
    rest_outs = record(checkpoint, *operands, program=rest, policy=policy)
    return merge(s.unknown, rest_outs, results[:count])


def _dear(program: Program, saved: Mapping[Var, str]) -> list[Var]:
    """Results that cost much to recompute, beside those already saved: with one of them kept,
    what follows from it is cheap."""
    eqns = [e for e in program.eqns if e.op.name in PRODUCTS or (e.op.higher and not e.effects)]
    return [v for e in eqns for v in e.outputs if v not in saved]


def _stored(value: AnyValue, how: str) -> AnyValue:
    """A saved value in the form in which it is kept for the backward half."""
    type_ = type_of(value)
    if compressed(how) and isinstance(type_, ArrayType) and _compressible(type_):
        return OPS["convert"](value, dtype=dt.bfloat16)
    return value


def _restored(value: AnyValue, how: str, type_: Type) -> AnyValue:
    """A saved value as the backward half reads it."""
    if place(how) != "keep":
        value = OPS["offload"](value, place=place(how), memory=memory(how))
    return value if type_of(value) == type_ else OPS["convert"](value, dtype=type_.dtype)


def _compressible(type_: ArrayType) -> bool:
    return dt.is_float(type_.dtype) and type_.dtype.itemsize > 2


checkpoint: Primitive[tuple[Array, ...]] = call_like("checkpoint", _split, back="inside")
