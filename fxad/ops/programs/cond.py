"""cond: one of several Programs, chosen by an index.

    y = cond(index, *operands, branches=(program, program))   # index is clamped

Rules take the transforms `t` first, as all of `fxad.ops.programs.control` do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.masks import Mask, merge, select
from fxad.core.types import ArrayType, Type
from fxad.ir.loops import Structured
from fxad.ir.program import OPS, Eqn, Program, Var, subprograms
from fxad.ir.rewrite import dce, evaluate, used_inputs
from fxad.ops.base import Batched, define, known, known_values, nonzero, type_of, value_of, zeros
from fxad.ops.programs.captures import closing
from fxad.ops.programs.control import (
    along_lanes,
    check_operands,
    filled,
    present,
    subprogram_effects,
)

if TYPE_CHECKING:
    from fxad.ir.rules import (
        AnyCotangents,
        AnyOperands,
        AnyTangents,
        AnyValue,
        AnyValues,
        Record,
        Split,
        Transforms,
        Value,
        WithTangents,
    )
    from fxad.ir.tape import NumpyValue


def _cond_type(index: ArrayType, *types: Type, branches: tuple[Program, ...]) -> tuple[Type, ...]:
    if index.shape or dt.is_inexact(index.dtype):
        raise ShapeError(f"cond: the index must be one int32 or bool, not {index}")
    for branch in branches:
        check_operands("cond", branch, types)
        if branch.out_types != branches[0].out_types:
            raise TypeMismatch(
                f"cond: branches give different types: {branches[0].out_types} and "
                f"{branch.out_types}"
            )
    return branches[0].out_types


def _cond_numpy(
    index: np.ndarray, *arrays: NumpyValue, branches: tuple[Program, ...]
) -> tuple[NumpyValue, ...]:
    chosen = min(max(int(index), 0), len(branches) - 1)
    return tuple(evaluate(branches[chosen], arrays))


def _cond_jvp(
    t: Transforms, primals: AnyValues, tangents: AnyTangents, *, branches: Sequence[Program]
) -> WithTangents:
    active = present(tangents[1:])
    flags = [t.jvp(b, active)[1] for b in branches]
    union = tuple(any(column) for column in zip(*flags, strict=True))
    derived = tuple(t.jvp(b, active, union)[0] for b in branches)
    results = cond(*primals, *nonzero(tangents[1:]), branches=derived)
    count = len(branches[0].outputs)
    return results[:count], filled(union, results[count:])


def _cond_split(
    t: Transforms,
    record: Record,
    unknown: tuple[bool, ...],
    args: AnyValues,
    *,
    branches: Sequence[Program],
) -> AnyValues:
    index, operands, mask = args[0], args[1:], tuple(unknown[1:])
    if unknown[0]:
        raise TypeMismatch("cond: the index cannot depend on a tangent")
    flags = [t.split(b, mask).unknown for b in branches]
    union = tuple(any(column) for column in zip(*flags, strict=True))
    parts = [t.split(b, mask, union) for b in branches]
    slots, places = _coalesce(parts)
    count = len(union) - sum(union)
    known_branches = tuple(
        _pad_outputs(t, p.known, count, slots, place)
        for p, place in zip(parts, places, strict=True)
    )
    results = cond(index, *select(operands, mask, False), branches=known_branches)
    rest_branches = tuple(
        _pick_inputs(p.rest, slots, place, p.residuals)
        for p, place in zip(parts, places, strict=True)
    )
    rest = record(cond, index, *results[count:], *select(operands, mask), branches=rest_branches)
    return merge(union, rest, results[:count])


def _coalesce(parts: Sequence[Split]) -> tuple[list[Type], list[list[int]]]:
    """Residual slots shared by the branches: one branch's residuals of a type reuse another's."""
    slots: list[Type] = []
    places: list[list[int]] = []
    for part in parts:
        free = dict(enumerate(slots))
        mine = []
        for residual in part.rest.in_types[: part.residuals]:
            found = next((i for i, s in free.items() if s == residual), None)
            if found is None:
                found = len(slots)
                slots.append(residual)
            else:
                del free[found]
            mine.append(found)
        places.append(mine)
    return slots, places


def _pad_outputs(
    t: Transforms, program: Program, count: int, slots: Sequence[Type], place: Sequence[int]
) -> Program:
    def padded(*args: AnyValue) -> list[AnyValue]:
        outs = t.run(program, args)
        mine = dict(zip(place, outs[count:], strict=True))
        extra = [mine[i] if i in mine else zeros(s) for i, s in enumerate(slots)]
        return [*outs[:count], *extra]

    return t.stage(padded, program.in_types, program.name)


def _pick_inputs(
    rest: Program, slots: Sequence[Type], place: Sequence[int], residuals: int
) -> Program:
    inputs = [Var(s) for s in slots]
    for i, var in zip(place, rest.inputs[:residuals], strict=True):
        inputs[i] = var
    return Program([*inputs, *rest.inputs[residuals:]], rest.eqns, rest.outputs, rest.name)


def _cond_transpose(
    t: Transforms, cotangents: AnyCotangents, args: AnyOperands, *, branches: Sequence[Program]
) -> AnyCotangents:
    linear = tuple(not known(a) for a in args[1:])
    active = present(cotangents)
    wanted = [a.type for a in args[1:] if not known(a)]
    derived = tuple(_dense_transpose(t, b, linear, active, wanted) for b in branches)
    operands = [*known_values(args[1:]), *nonzero(cotangents)]
    results = cond(value_of(args[0]), *operands, branches=derived)
    return [None, *merge(linear, results, [None] * (len(linear) - sum(linear)))]


def _dense_transpose(
    t: Transforms, program: Program, linear: Mask, active: Mask, wanted: Sequence[Type]
) -> Program:
    """The transpose of a Program with zeros for cotangents that are missing."""
    derived, flags = t.transpose(program, linear, active)

    def dense(*args: AnyValue) -> list[AnyValue]:
        results = filled(flags, t.run(derived, args))
        return [zeros(w) if r is None else r for r, w in zip(results, wanted, strict=True)]

    return t.stage(dense, derived.in_types, program.name)


def _cond_batch(
    t: Transforms,
    size: int,
    batched: Sequence[bool],
    args: AnyValues,
    *,
    branches: Sequence[Program],
) -> AnyValues | Batched:
    mask = tuple(batched[1:])
    if not batched[0]:
        flags = [t.batch(b, size, mask)[1] for b in branches]
        union = tuple(any(column) for column in zip(*flags, strict=True))
        derived = tuple(t.batch(b, size, mask, union)[0] for b in branches)
        return Batched(tuple(cond(*args, branches=derived)), union)
    if any(map(_must_not_run_in_vain, branches)):
        return _cond_lane_by_lane(t, size, batched, args, branches)
    return _cond_select(t, size, batched, args, branches)


def _cond_select(
    t: Transforms, size: int, batched: Sequence[bool], args: AnyValues, branches: Sequence[Program]
) -> AnyValues:
    """Every branch on all lanes, and a select. It stays a call until it is compiled, so that a
    printed Program says what became of the cond."""
    mask = tuple(batched[1:])
    everything = (True,) * len(branches[0].outputs)
    lanes = [t.batch(b, size, mask, everything)[0] for b in branches]

    def chosen(index: Value, *operands: AnyValue) -> list[AnyValue]:
        if dt.is_bool(type_of(index).dtype):
            index = OPS["convert"](index, dtype=dt.int32)
        last = len(lanes) - 1
        results = t.run(lanes[-1], _only_where(OPS["ge"](index, last), operands, mask))
        for number in reversed(range(last)):
            own = OPS["eq"](index, number) if number else OPS["le"](index, 0)
            new = t.run(lanes[number], _only_where(own, operands, mask))
            here = OPS["le"](index, number)
            results = [
                OPS["select"](along_lanes(here, type_of(r)), n, r)
                for n, r in zip(new, results, strict=True)
            ]
        return results

    program = t.stage(chosen, [type_of(a) for a in args], "cond_by_select")
    return list(OPS["call"](*args, program=program))


def _only_where(own: Value, operands: AnyValues, batched: Mask) -> list[AnyValue]:
    """The operands, without derivatives in lanes that take another branch: there they may be
    infinite or NaN, and 0 times that would spoil the gradient."""
    return [
        OPS["select"](along_lanes(own, type_of(x)), x, OPS["stop_gradient"](x))
        if b and dt.is_differentiable(type_of(x).dtype)
        else x
        for x, b in zip(operands, batched, strict=True)
    ]


def _must_not_run_in_vain(program: Program) -> bool:
    """Whether running a branch that was not chosen may be costly, endless or visible."""
    return bool(program.effects) or any(
        eqn.op.name in ("scan", "while", "while_linear", "host")
        or any(_must_not_run_in_vain(inner) for _, inner in subprograms(eqn))
        for eqn in program.eqns
    )


def _cond_lane_by_lane(
    t: Transforms, size: int, batched: Sequence[bool], args: AnyValues, branches: Sequence[Program]
) -> AnyValues:
    """A loop over lanes, each running its own branch alone."""
    shared, lanes = select(args, batched, False), select(args, batched)

    def one(*values: AnyValue) -> list[AnyValue]:
        fixed, own = values[: len(shared)], values[len(shared) :]
        return list(cond(*merge(batched, own, fixed), branches=branches))

    types = [type_of(v).with_shape(type_of(v).shape[1:]) for v in lanes]
    body = t.stage(one, [*map(type_of, shared), *types], "cond_lane_by_lane")
    return OPS["scan"](
        *shared, *lanes, body=body, consts=len(shared), carry=0, length=size, reverse=False
    )


def _cond_dce(eqn: Eqn, live: Mask) -> Eqn:
    """Drop results nobody reads and operands no branch reads."""
    branches = [dce(b, live) for b in eqn.params["branches"]]
    keep = tuple(map(any, zip(*map(used_inputs, branches), strict=True)))
    smaller = tuple(Program(select(b.inputs, keep), b.eqns, b.outputs, b.name) for b in branches)
    inputs = (eqn.inputs[0], *select(eqn.inputs[1:], keep))
    outputs = tuple(select(eqn.outputs, live))
    return eqn.copy(inputs=inputs, params={"branches": smaller}, outputs=outputs)


cond = define(
    "cond",
    higher=True,
    doc="Run one of several branches, chosen by an int32 (clamped) or a bool.",
    type=_cond_type,
    numpy=_cond_numpy,
    jvp=_cond_jvp,
    split=_cond_split,
    transpose=_cond_transpose,
    batch=_cond_batch,
    close=closing(["branches"], 1),
    dce=_cond_dce,
    effects=subprogram_effects,
    loops=lambda types, **params: Structured("cond"),
    dtypes="",
)
