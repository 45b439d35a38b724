"""The linear half of a derivative as a value: what `vjp` and `linearize` return.

Results of both are pytrees, whose leaves are the residuals: they pass through `jit`, `vmap` and
`scan` like arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fxad.api.flat import FlatFunction, Float0, flatten_args, with_float0_nodes
from fxad.compiler import recognise
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.depth import told_when_too_deep
from fxad.core.errors import TangentError, TreeError
from fxad.core.masks import merge, select
from fxad.core.node_types import register_node
from fxad.core.promotion import is_python_scalar
from fxad.core.pytree import TreeDef
from fxad.core.record import replace, valued
from fxad.core.types import ArrayType
from fxad.ir.program import Program
from fxad.ops.base import zeros
from fxad.trace.array import Concrete, kept
from fxad.trace.tracer import StagedTracer, stage, staging, type_of
from fxad.transform.context import differentiable, run
from fxad.transform.jvp import Dual, Forward
from fxad.transform.jvp import jvp as jvp_program
from fxad.transform.split import Deferred, split
from fxad.transform.transpose import transpose, transpose_eval


@valued
class Linear:
    """The derivative at a point: `program`(fixed values, tangents of active inputs) -> tangents
    of active outputs."""

    program: Program
    fixed: Sequence[Any]
    active_in: tuple[bool, ...]
    active_out: tuple[bool, ...]

    def stored(self) -> Linear:
        """The same, fit to outlive the call: memory of NumPy arguments is copied."""
        return replace(self, fixed=[kept(v) for v in self.fixed])

    def push(self, tangents: Sequence[Any], types: Sequence[ArrayType]) -> list[Any]:
        """Tangents of all outputs (zeros where there is no dependence)."""
        results = run(self.program, [*self.fixed, *select(tangents, self.active_in)])
        given = iter(results)
        return [next(given) if a else zeros(t) for a, t in zip(self.active_out, types, strict=True)]

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """A cotangent or None for every input."""
        given = select(cotangents, self.active_out)
        linear = (*([False] * len(self.fixed)), *([True] * sum(self.active_in)))
        if staging():
            closed = self.program.closed()
            derived, flags = transpose(closed, linear, (True,) * len(given))
            results = iter(run(derived, [*self.fixed, *given]))
            found = [next(results) if f else None for f in flags]
        else:
            flat = self.program.closed()
            values = [*self.fixed, *([None] * sum(self.active_in))]
            found = transpose_eval(flat, linear, values, given)
        return merge(self.active_in, found, [None] * (len(self.active_in) - sum(self.active_in)))


def linearise(function: Callable[..., list[Any]], primals: Sequence[Any], name: str):
    """Results of a flat function and its derivative there, running the function once."""
    active = tuple(differentiable(p) for p in primals)
    if staging():
        return _linearise_staged(function, primals, active, name)
    deferred = Deferred()
    with told_when_too_deep(name), deferred:
        pending = [deferred.input(type_of(p)) for p in select(primals, active)]
        given = iter(pending)
        with Forward() as level:
            duals = [
                level.dual(p, next(given)) if a else p for p, a in zip(primals, active, strict=True)
            ]
            pairs = [level.lower(o) for o in function(*duals)]
        outs = [p for p, _ in pairs]
        tangents = [t for _, t in pairs]
        program, fixed = deferred.finish(pending, [t for t in tangents if t is not None], name)
    active_out = tuple(t is not None for t in tangents)
    return outs, Linear(program.closed(), fixed, active, active_out)


def _linearise_staged(
    function: Callable[..., list[Any]], primals: Sequence[Any], active: tuple, name: str
):
    program, captured = stage(function, [type_of(p) for p in primals], name, weakness(primals))
    program, captured = recognise(program, captured)
    closed = program.closed()
    mask = (*([False] * len(captured)), *active)
    # Values captured from an enclosing trace are constants here: they carry no tangent of ours.
    derived, active_out = jvp_program(closed, mask)
    count = len(closed.outputs)
    unknown = (*([False] * len(mask)), *([True] * sum(mask)))
    force = (*([False] * count), *([True] * sum(active_out)))
    s = split(derived, unknown, force)
    results = run(s.known, [*captured, *primals])
    return results[:count], Linear(s.rest, results[count:], active, active_out)


def weakness(values: Sequence[Any]) -> list[bool]:
    return [bool(getattr(v, "weak", False)) for v in values]


# ---------------------------------------------------------------- tangents and cotangents


def zero_tangent(type_: ArrayType) -> Any:
    """The zero tangent of a type: zeros, or for integers and bools an array of `float0`."""
    return zeros(type_) if differentiable(type_) else np.zeros(type_.shape, dt.float0)


def tangent_like(type_: ArrayType, given: Any, what: str, plain: bool = False) -> Any:
    """A tangent (or cotangent) given by the user as an Array of exactly this type; Python floats
    take its dtype. None for integers and bools, whose tangents are `float0` unless `plain`.

    Raises TangentError for another shape or dtype.
    """
    empty = isinstance(given, Float0)
    if empty:
        fits = given.shape == type_.shape and not differentiable(type_)
        seen: Any = f"float0{list(given.shape)}"
    else:
        if not pytree.structure(given).is_leaf:
            raise TreeError(
                f"{what} has structure {pytree.structure(given)}, but what it belongs to is one "
                f"array {type_}"
            )
        value = flatten_args(given, what)[0][0]
        seen = value.type
        if isinstance(value, Concrete) and value.weak and _stands_for(seen, type_):
            return Concrete(np.asarray(value, type_.dtype))
        fits = seen == type_ and (plain or differentiable(type_))
    if not fits:
        hint = "" if differentiable(type_) else "; integers take np.zeros(shape, fxad.float0)"
        raise TangentError(f"{what} is {seen}, but what it belongs to is {type_}{hint}")
    return None if empty else value


def _cotangent(type_: ArrayType, given: Any, what: str, plain: bool) -> Any:
    """`tangent_like`; for a result of integers any array of its shape will do, as in JAX: a
    result may be handed in as its own cotangent."""
    if not plain and not differentiable(type_) and getattr(given, "shape", None) == type_.shape:
        return None
    return tangent_like(type_, given, what, plain)


def _stands_for(weak: ArrayType, wanted: ArrayType) -> bool:
    """Whether a Python number of the first type may stand for the second."""
    kind = "c" if dt.is_complex(wanted.dtype) else "f"
    same = weak.shape == wanted.shape
    return same and dt.is_inexact(wanted.dtype) and weak.dtype.kind == kind


def as_weak(value: Any, weak: bool) -> Any:
    """The value, weakly typed if `weak`, else not."""
    if getattr(value, "weak", weak) == weak:
        return value
    if isinstance(value, Concrete):
        return Concrete.of(value.data, value.type, weak)
    if isinstance(value, StagedTracer):
        value = StagedTracer(value.level, value.atom, value.where)
        value.weak = weak
    elif isinstance(value, Dual):
        value = Dual(value.level, as_weak(value.primal, weak), value.tangent)
    return value


def as_weak_as(outs: Sequence[Any], flat: FlatFunction) -> list[Any]:
    """Results of a transformed function, weak where the function's own are, and with memory of
    their own: NumPy's may be written to by others."""
    return [as_weak(kept(o), weak) for o, weak in zip(outs, flat.weak, strict=True)]


# ---------------------------------------------------------------- what vjp and linearize return


@valued
class Signature:
    """What a derivative is of: the structure of (arguments, {}) and their types, the structure
    of the result and its types (with those of aux behind), and which are weakly typed."""

    name: str
    in_tree: TreeDef
    in_types: tuple[ArrayType, ...]
    out_tree: TreeDef
    out_types: tuple[ArrayType, ...]
    in_weak: tuple[bool, ...]
    out_weak: tuple[bool, ...]
    plain: bool = False  # of a linear function: its arguments and results are the tangents

    @classmethod
    def of(
        cls, name: str, leaves: Sequence[Any], flat: FlatFunction, outs: Sequence[Any]
    ) -> Signature:
        types = tuple(type_of(v) for v in leaves), tuple(type_of(o) for o in outs)
        return cls(
            name, flat.in_tree, types[0], flat.tree, types[1], tuple(weakness(leaves)), flat.weak
        )


class _Map:
    """A derivative at a point, ready to be applied many times."""

    __slots__ = ("linear", "signature")

    def __init__(self, linear: Linear, signature: Signature) -> None:
        self.linear = linear
        self.signature = signature

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.signature.name})"


class Pullback(_Map):
    """From cotangents of a function's result to those of its arguments (one, or a tuple)."""

    def __call__(self, cotangent: Any) -> tuple:
        s = self.signature
        given = along(s.out_tree, cotangent, "the cotangent", "the result")
        types = s.out_types[: len(given)]
        what = f"the cotangent of {s.name}"
        checked = [_cotangent(t, c, what, s.plain) for t, c in zip(types, given, strict=True)]
        of_numbers = all(getattr(c, "weak", is_python_scalar(c)) for c in given)
        padded = [*checked, *(zeros(t) for t in s.out_types[len(given) :])]
        found = self.linear.pull(padded)
        zero = zeros if s.plain else zero_tangent
        filled = [
            zero(t) if c is None else as_weak(kept(c), weak and of_numbers)
            for c, t, weak in zip(found, s.in_types, s.in_weak, strict=True)
        ]
        return s.in_tree.unflatten(filled)[0]


class Pushforward(_Map):
    """From tangents of a function's arguments to that of its result."""

    def __call__(self, *tangents: Any) -> Any:
        s = self.signature
        given = along(s.in_tree, (tangents, {}), "tangents", "the arguments")
        what = f"a tangent of {s.name}"
        checked = [tangent_like(t, v, what) for t, v in zip(s.in_types, given, strict=True)]
        found = self.linear.push(checked, s.out_types)[: s.out_tree.num_leaves]
        filled = [
            as_weak(kept(v), weak) if differentiable(t) else zero_tangent(t)
            for v, t, weak in zip(found, s.out_types, s.out_weak, strict=False)
        ]
        return s.out_tree.unflatten(filled)


def along(tree: TreeDef, given: Any, what: str, whose: str) -> list[Any]:
    """What stands in `given` where the structure has leaves, for `tangent_like`."""
    try:
        return tree.flatten_up_to(with_float0_nodes(given))
    except TreeError:
        raise TreeError(
            f"{what} must have the structure of {whose}, {tree}, not {pytree.structure(given)}"
        ) from None


def _parts(map_: _Map) -> tuple[Any, Any]:
    linear = map_.linear
    return tuple(linear.fixed), (replace(linear, fixed=()), map_.signature)


def _joined(cls: type[_Map], data: Any, fixed: Sequence[Any]) -> _Map:
    return cls(replace(data[0], fixed=fixed), data[1])


register_node(Pullback, _parts, partial(_joined, Pullback))
register_node(Pushforward, _parts, partial(_joined, Pushforward))
