"""Ops that hold Programs: call, custom derivatives, checkpoint, cond.

Loops are in `fxad.ops.scan` and `fxad.ops.while_loop`. Sub-programs are closed: what they capture
is passed as operands.
Every rule takes the transforms `t` first (see `fxad.transform.context`); results are tuples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.loops import Alias, Structured
from fxad.ir.program import OPS, Eqn, Program, Symbol, Var, subprograms
from fxad.ir.rewrite import dce, evaluate, used_inputs
from fxad.ops.base import Batched, Primitive, define, known, spread, tangent_type, type_of, zeros
from fxad.ops.captures import closing, opened, values_in

Mask = tuple[bool, ...]


def check_operands(name: str, program: Program, types: Sequence[ArrayType]) -> None:
    """Operands must have exactly the sub-program's input types."""
    if tuple(types) != program.in_types:
        seen = ", ".join(map(str, types))
        wanted = ", ".join(map(str, program.in_types))
        raise TypeMismatch(f"{name}: its program takes ({wanted}) but was given ({seen})")


def pick(items: Sequence[Any], mask: Sequence[bool], wanted: bool = True) -> list[Any]:
    """The items whose mask entry equals `wanted`."""
    return [item for item, m in zip(items, mask, strict=True) if bool(m) is wanted]


def weave(mask: Sequence[bool], if_true: Sequence[Any], if_false: Sequence[Any]) -> list[Any]:
    """The inverse of picking by a mask and by its opposite."""
    yes, no = iter(if_true), iter(if_false)
    return [next(yes) if m else next(no) for m in mask]


def present(values: Sequence[Any]) -> Mask:
    return tuple(v is not None for v in values)


def filled(mask: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    """`values` at the marked places, None elsewhere."""
    return weave(mask, values, [None] * (len(mask) - sum(mask)))


def instantiate(primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """Tangents with zeros for the missing ones."""
    return [
        zeros(tangent_type(type_of(p))) if t is None else t
        for p, t in zip(primals, tangents, strict=True)
    ]


def subprogram_effects(**params: Any) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for value in params.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Program):
                found |= item.effects
    return found


# ---------------------------------------------------------------- call and checkpoint


def _call_type(*types: ArrayType, program: Program, **params: Any) -> tuple:
    check_operands("call", program, types)
    return program.out_types


def _run_program(*arrays: np.ndarray, program: Program, **params: Any) -> tuple:
    return tuple(evaluate(program, arrays))


def _call_like(name: str, split: Any = None) -> Primitive:
    """`call` and `checkpoint` differ only in how they are split."""

    def rebind(args: Sequence[Any], program: Program, params: dict[str, Any]) -> list[Any]:
        return list(OPS[name](*args, program=program, **params))

    def jvp(t, primals, tangents, *, program, **params):
        active = present(tangents)
        derived, out_active = t.jvp(program, active)
        results = rebind([*primals, *pick(tangents, active)], derived, params)
        count = len(program.outputs)
        return results[:count], filled(out_active, results[count:])

    def default_split(t, record, unknown, args, *, program, **params):
        s = t.split(program, unknown)
        outs = rebind(pick(args, unknown, False), s.known, params)
        count = len(outs) - s.residuals
        operands = [*outs[count:], *pick(args, unknown)]
        rest = record(OPS[name], *operands, program=s.rest, **params)
        return weave(s.unknown, rest, outs[:count])

    def transpose(t, cotangents, args, *, program, **params):
        linear = tuple(not known(a) for a in args)
        active = present(cotangents)
        derived, flags = t.transpose(program, linear, active)
        operands = [*pick(args, linear, False), *pick(cotangents, active)]
        if name == "checkpoint":
            results = t.run(derived, operands)
        else:
            results = rebind(operands, derived, params)
        return weave(linear, filled(flags, results), [None] * (len(args) - sum(linear)))

    def batch(t, size, batched, args, *, program, **params):
        derived, flags = t.batch(program, size, tuple(batched))
        return Batched(tuple(rebind(args, derived, params)), flags)

    return define(
        name,
        higher=True,
        type=_call_type,
        numpy=_run_program,
        jvp=jvp,
        split=split or default_split,
        transpose=transpose,
        batch=batch,
        close=closing(["program"], 0),
        effects=subprogram_effects,
        loops=lambda types, **params: Structured(name),
        dtypes="",
    )


call = _call_like("call")


def _checkpoint_split(t, record, unknown, args, *, program, policy):
    """Keep the known operands (and what the policy saves); the rest recomputes behind a barrier."""
    s = t.split(program, unknown)
    outs_count = len(s.known.outputs) - s.residuals
    saved = _saved(s.known, policy)
    forward = _with_outputs(s.known, [*s.known.outputs[:outs_count], *saved])
    results = list(checkpoint(*pick(args, unknown, False), program=forward, policy=policy))
    again = Program(
        [*s.known.inputs, *saved],
        [e for e in s.known.eqns if not set(e.outputs) & set(saved)],
        s.known.outputs[outs_count:],
        s.known.name,
    )
    again = dce(again)
    fixed_count = len(again.inputs)

    def recompute(*values: Any) -> list[Any]:
        fixed = OPS["barrier"](*values[:fixed_count]) if fixed_count else ()
        return t.run(s.rest, [*t.run(again, fixed), *values[fixed_count:]])

    fixed = [*pick(args, unknown, False), *results[outs_count:]]
    operands = [*fixed, *pick(args, unknown)]
    rest = t.stage(recompute, [type_of(a) for a in operands], program.name)
    rest_outs = record(checkpoint, *operands, program=rest, policy=policy)
    return weave(s.unknown, rest_outs, results[:outs_count])


def _with_outputs(program: Program, outputs: Sequence[Any]) -> Program:
    return dce(Program(program.inputs, program.eqns, outputs, program.name))


POLICIES: dict[str, Any] = {
    "nothing_saveable": lambda eqn: False,
    "everything_saveable": lambda eqn: True,
    "dots_saveable": lambda eqn: eqn.op.name == "dot",
    "dots_with_no_batch_dims_saveable": lambda eqn: (
        eqn.op.name == "dot" and not eqn.params["batch"][0]
    ),
}


def _saved(program: Program, policy: str) -> list[Var]:
    if policy.startswith("save_only_these_names:"):
        names = set(policy.partition(":")[2].split(","))

        def saves(eqn: Eqn) -> bool:
            return eqn.op.name == "name" and eqn.params["name"] in names
    else:
        saves = POLICIES[policy]
    return [v for eqn in program.eqns if saves(eqn) for v in eqn.outputs]


checkpoint = _call_like("checkpoint", _checkpoint_split)


# ---------------------------------------------------------------- custom derivatives
#
# Rules are Symbols: Python functions from flat values to flat values, called when (and only if) a
# derivative is taken. A rule may call the very function it belongs to.


def _lanes(t, symbol: Symbol, size: int, batched: Sequence[bool]) -> Symbol:
    """The rule over lanes; all its results are batched."""

    def rule(*args: Any) -> list[Any]:
        types = [
            type_of(a).with_shape(type_of(a).shape[1:]) if b else type_of(a)
            for a, b in zip(args, batched, strict=True)
        ]
        program = t.stage(symbol.value, types, symbol.name)
        derived, _ = t.batch(program, size, tuple(batched), (True,) * len(program.outputs))
        return t.run(derived, args)

    return Symbol(symbol.name, rule)


def _custom_close(*rules: str):
    """Captured values become operands that the rules never see."""

    def close(args, params):
        values = values_in(params["program"])
        if not values:
            return args, params
        skip, types = len(values), [type_of(v) for v in values]

        def shifted(name: str) -> Symbol:
            rule = params[name]
            if name == "fwd":
                return Symbol(rule.name, lambda *a: rule.value(*a[skip:]))
            if name == "bwd":
                return Symbol(rule.name, lambda *a: [*map(zeros, types), *rule.value(*a)])
            half = len(args) + skip
            return Symbol(rule.name, lambda *a: rule.value(*a[skip:half], *a[half + skip :]))

        program = opened(params["program"], values)
        symbols = {name: shifted(name) for name in rules}
        return (*values, *args), {**params, "program": program, **symbols}

    return close


def _custom_jvp_rule(t, primals, tangents, *, program, rule):
    results = rule.value(*primals, *instantiate(primals, tangents))
    count = len(program.outputs)
    return results[:count], results[count:]


def _custom_jvp_batch(t, size, batched, args, *, program, rule):
    everything = (True,) * len(program.outputs)
    derived, flags = t.batch(program, size, tuple(batched), everything)
    lanes_rule = _lanes(t, rule, size, [True] * 2 * len(args))

    def spread_rule(*values: Any) -> list[Any]:
        flags_twice = [*batched, *batched]
        return lanes_rule.value(
            *(v if b else spread(v, size) for v, b in zip(values, flags_twice, strict=True))
        )

    outs = custom_jvp(*args, program=derived, rule=Symbol(rule.name, spread_rule))
    return Batched(tuple(outs), flags)


custom_jvp = define(
    "custom_jvp",
    higher=True,
    doc="program(args), whose jvp is rule(args, tangents) -> (results, tangents of results).",
    type=lambda *types, program, rule: program.out_types,
    numpy=_run_program,
    jvp=_custom_jvp_rule,
    batch=_custom_jvp_batch,
    close=_custom_close("rule"),
    effects=subprogram_effects,
    loops=lambda types, **params: Structured("call"),
    dtypes="",
)


def _custom_vjp_jvp(t, primals, tangents, *, program, fwd, bwd):
    count = len(program.outputs)
    results = fwd.value(*primals)
    outs, residuals = results[:count], results[count:]
    mask = tuple(dt.is_differentiable(type_of(p).dtype) for p in primals)
    dense = pick(instantiate(primals, tangents), mask)
    back = t.stage(bwd.value, [*map(type_of, residuals), *program.out_types], bwd.name)
    fixed = list(residuals)
    apply = _linearised(t, program, mask, [type_of(f) for f in fixed])
    ignored = [Var(type_of(p)) for p in primals]
    inputs = [*back.inputs[: len(fixed)], *ignored, *back.inputs[len(fixed) :]]
    transpose = dce(Program(inputs, back.eqns, pick(back.outputs, mask), bwd.name))
    tangents_out = linear_call(
        *fixed,
        *primals,
        *dense,
        count=len(fixed) + len(primals),
        apply=apply,
        transpose=transpose,
    )
    return outs, list(tangents_out)


def _linearised(t, program: Program, mask: Mask, unused: Sequence[ArrayType]) -> Program:
    """(unused, primals, tangents) -> tangents of all results, from the primal program."""
    derived, _ = t.jvp(program, mask, (True,) * len(program.outputs))
    outs = derived.outputs[len(program.outputs) :]
    inputs = [*(Var(u) for u in unused), *derived.inputs]
    return dce(Program(inputs, derived.eqns, outs, program.name))


def _custom_vjp_batch(t, size, batched, args, *, program, fwd, bwd):
    count = len(program.outputs)
    derived, flags = t.batch(program, size, tuple(batched), (True,) * count)
    lanes_fwd = _lanes(t, fwd, size, batched)

    def lanes_bwd(*values: Any) -> list[Any]:
        outs = _lanes(t, bwd, size, [True] * len(values)).value(*values)
        return [o if b else OPS["sum"](o, axes=(0,)) for o, b in zip(outs, batched, strict=True)]

    outs = custom_vjp(*args, program=derived, fwd=lanes_fwd, bwd=Symbol(bwd.name, lanes_bwd))
    return Batched(tuple(outs), flags)


custom_vjp = define(
    "custom_vjp",
    higher=True,
    doc="program(args); reverse mode uses fwd(args) -> (results, residuals) and "
    "bwd(residuals, cotangents) -> cotangents of args.",
    type=lambda *types, program, fwd, bwd: program.out_types,
    numpy=_run_program,
    jvp=_custom_vjp_jvp,
    batch=_custom_vjp_batch,
    close=_custom_close("fwd", "bwd"),
    effects=subprogram_effects,
    loops=lambda types, **params: Structured("call"),
    dtypes="",
)


def _linear_type(*types: ArrayType, count: int, apply: Any, transpose: Any, outs: Any = None):
    return outs if outs is not None else apply.out_types


def _linear_numpy(*arrays: np.ndarray, count: int, apply: Any, transpose: Any, outs: Any = None):
    if isinstance(apply, Symbol):
        return tuple(np.asarray(r) for r in apply.value(*arrays))
    return tuple(evaluate(apply, arrays))


def _linear_jvp(t, primals, tangents, *, count, apply, transpose, outs=None):
    if isinstance(apply, Symbol):
        raise TypeMismatch(f"linear_call @{apply.name}: no second forward derivative outside jit")
    derived, out_active = t.jvp(apply, present(tangents))
    results = t.run(derived, [*primals, *pick(tangents, present(tangents))])
    n = len(apply.outputs)
    return results[:n], filled(out_active, results[n:])


def _linear_transpose(t, cotangents, args, *, count, apply, transpose, outs=None):
    types = outs if outs is not None else apply.out_types
    dense = [zeros(type_) if c is None else c for c, type_ in zip(cotangents, types, strict=True)]
    operands = [*args[:count], *dense]
    if isinstance(transpose, Symbol):
        results = list(transpose.value(*operands))
    else:
        results = t.run(transpose, operands)
    return [None] * count + results


def _linear_batch(t, size, batched, args, *, count, apply, transpose, outs=None):
    if isinstance(apply, Symbol) or isinstance(transpose, Symbol):
        raise TypeMismatch("linear_call made outside jit cannot be batched")
    tangents = [
        a if b else spread(a, size) for a, b in zip(args[count:], batched[count:], strict=True)
    ]
    fixed = tuple(batched[:count])
    all_outs = (True,) * len(apply.outputs)
    lanes, flags = t.batch(apply, size, fixed + (True,) * len(tangents), all_outs)
    back, _ = t.batch(transpose, size, fixed + all_outs, (True,) * len(tangents))
    results = linear_call(*args[:count], *tangents, count=count, apply=lanes, transpose=back)
    return Batched(tuple(results), flags)


def _linear_close(args, params):
    if isinstance(params["apply"], Symbol):
        return args, params
    return closing(["apply", "transpose"], 0, "count")(args, params)


linear_call = define(
    "linear_call",
    higher=True,
    doc="apply(fixed, x), linear in x, with a given transpose(fixed, cotangents). The first "
    "`count` operands are fixed. apply and transpose are Programs, or Symbols outside jit, which "
    "then give the result types as `outs`.",
    type=_linear_type,
    numpy=_linear_numpy,
    jvp=_linear_jvp,
    transpose=_linear_transpose,
    batch=_linear_batch,
    close=_linear_close,
    loops=lambda types, **params: Structured("linear_call"),
    dtypes="",
)


stop_gradient = define(
    "stop_gradient",
    doc="The value itself; its derivative is zero.",
    type=lambda x: x,
    numpy=lambda x: x,
    batch=lambda size, batched, args: stop_gradient(args[0]),
    loops=lambda types: Alias(),
    exact=True,
    dtypes="",
)


# ---------------------------------------------------------------- cond


def _cond_type(index: ArrayType, *types: ArrayType, branches: tuple[Program, ...]) -> tuple:
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


def _cond_numpy(index: np.ndarray, *arrays: np.ndarray, branches: tuple[Program, ...]) -> tuple:
    chosen = min(max(int(index), 0), len(branches) - 1)
    return tuple(evaluate(branches[chosen], arrays))


def _cond_jvp(t, primals, tangents, *, branches):
    active = present(tangents[1:])
    flags = [t.jvp(b, active)[1] for b in branches]
    union = tuple(any(column) for column in zip(*flags, strict=True))
    derived = tuple(t.jvp(b, active, union)[0] for b in branches)
    results = cond(*primals, *pick(tangents[1:], active), branches=derived)
    count = len(branches[0].outputs)
    return results[:count], filled(union, results[count:])


def _cond_split(t, record, unknown, args, *, branches):
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
    results = cond(index, *pick(operands, mask, False), branches=known_branches)
    rest_branches = tuple(
        _pick_inputs(p.rest, slots, place, p.residuals)
        for p, place in zip(parts, places, strict=True)
    )
    rest = record(cond, index, *results[count:], *pick(operands, mask), branches=rest_branches)
    return weave(union, rest, results[:count])


def _coalesce(parts: Sequence[Any]) -> tuple[list[ArrayType], list[list[int]]]:
    """Residual slots shared by the branches: one branch's residuals of a type reuse another's."""
    slots: list[ArrayType] = []
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


def _pad_outputs(t, program: Program, count: int, slots: Sequence[ArrayType], place: Sequence[int]):
    def padded(*args: Any) -> list[Any]:
        outs = t.run(program, args)
        mine = dict(zip(place, outs[count:], strict=True))
        extra = [mine[i] if i in mine else zeros(s) for i, s in enumerate(slots)]
        return [*outs[:count], *extra]

    return t.stage(padded, program.in_types, program.name)


def _pick_inputs(rest: Program, slots: Sequence[ArrayType], place: Sequence[int], residuals: int):
    inputs = [Var(s) for s in slots]
    for i, var in zip(place, rest.inputs[:residuals], strict=True):
        inputs[i] = var
    return Program([*inputs, *rest.inputs[residuals:]], rest.eqns, rest.outputs, rest.name)


def _cond_transpose(t, cotangents, args, *, branches):
    linear = tuple(not known(a) for a in args[1:])
    active = present(cotangents)
    wanted = pick([a.type for a in args[1:] if not known(a)], [True] * sum(linear))
    derived = tuple(_dense_transpose(t, b, linear, active, wanted) for b in branches)
    operands = [*pick(args[1:], linear, False), *pick(cotangents, active)]
    results = cond(args[0], *operands, branches=derived)
    return [None, *weave(linear, results, [None] * (len(linear) - sum(linear)))]


def _dense_transpose(t, program: Program, linear: Mask, active: Mask, wanted: Sequence[ArrayType]):
    """The transpose of a Program with zeros for cotangents that are missing."""
    derived, flags = t.transpose(program, linear, active)

    def dense(*args: Any) -> list[Any]:
        results = filled(flags, t.run(derived, args))
        return [zeros(w) if r is None else r for r, w in zip(results, wanted, strict=True)]

    return t.stage(dense, derived.in_types, program.name)


def _cond_batch(t, size, batched, args, *, branches):
    mask = tuple(batched[1:])
    if not batched[0]:
        flags = [t.batch(b, size, mask)[1] for b in branches]
        union = tuple(any(column) for column in zip(*flags, strict=True))
        derived = tuple(t.batch(b, size, mask, union)[0] for b in branches)
        return Batched(tuple(cond(*args, branches=derived)), union)
    if any(_holds_loop(b) for b in branches):
        return _cond_lane_by_lane(t, size, batched, args, branches)
    everything = (True,) * len(branches[0].outputs)
    lanes = [t.batch(b, size, mask, everything)[0] for b in branches]
    index = args[0]
    results = t.run(lanes[-1], args[1:])
    if dt.is_bool(type_of(index).dtype):
        index = OPS["convert"](index, dtype=dt.int32)
    for number in reversed(range(len(lanes) - 1)):
        here = OPS["le"](index, number)
        results = [
            OPS["select"](along_lanes(here, type_of(r)), new, r)
            for new, r in zip(t.run(lanes[number], args[1:]), results, strict=True)
        ]
    return results


def _holds_loop(program: Program) -> bool:
    """Whether running a branch that was not chosen may be costly, endless or visible."""
    return bool(program.effects) or any(
        eqn.op.name in ("scan", "while", "while_linear") or any(map(_holds_loop, inner))
        for eqn in program.eqns
        for inner in [[p for _, p in subprograms(eqn)]]
    )


def _cond_lane_by_lane(t, size, batched, args, branches):
    """A loop over lanes, each running its own branch alone."""
    shared, lanes = pick(args, batched, False), pick(args, batched)

    def one(*values: Any) -> list[Any]:
        fixed, own = values[: len(shared)], values[len(shared) :]
        return list(cond(*weave(batched, own, fixed), branches=branches))

    types = [type_of(v).with_shape(type_of(v).shape[1:]) for v in lanes]
    body = t.stage(one, [*map(type_of, shared), *types], branches[0].name)
    return OPS["scan"](
        *shared, *lanes, body=body, consts=len(shared), carry=0, length=size, reverse=False
    )


def along_lanes(flag: Any, type: ArrayType) -> Any:
    """A flag per lane, repeated over the other axes of `type`."""
    return OPS["broadcast"](flag, shape=type.shape, axes=(0,)) if type.ndim > 1 else flag


def _cond_dce(eqn: Eqn, live: Mask) -> Eqn:
    """Drop results nobody reads and operands no branch reads."""
    branches = [dce(b, live) for b in eqn.params["branches"]]
    keep = tuple(map(any, zip(*map(used_inputs, branches), strict=True)))
    smaller = tuple(Program(pick(b.inputs, keep), b.eqns, b.outputs, b.name) for b in branches)
    inputs = (eqn.inputs[0], *pick(eqn.inputs[1:], keep))
    outputs = tuple(pick(eqn.outputs, live))
    return Eqn(eqn.op, inputs, {"branches": smaller}, outputs, eqn.where, eqn.tag)


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
