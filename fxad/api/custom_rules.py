"""Calling a user's jvp rule: symbolic zeros in and out, and what is checked of its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.api.flat import flatten_args
from fxad.api.linear import zero_tangent
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import ShapeError, TreeError, TypeMismatch
from fxad.core.record import record
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.ops.base import zeros
from fxad.trace.tracer import bind, type_of
from fxad.transform.context import differentiable


class SymbolicZero:
    """A tangent that is zero because nothing it belongs to is differentiated: no array exists.

    Rules get one instead of an array of zeros if they ask for it:

    >>> f = fxad.custom_jvp(lambda x, y: x * y)
    >>> def rule(primals, tangents):
    ...     print([type(t).__name__ for t in tangents])
    ...     return f(*primals), tangents[0] * primals[1]
    >>> _ = f.defjvp(rule, symbolic_zeros=True)
    >>> fxad.jvp(lambda x: f(x, 4.0), (2.0,), (1.0,))
    ['Array', 'SymbolicZero']
    (Array(8., dtype=float32), Array(4., dtype=float32))
    """

    __slots__ = ("type",)

    def __init__(self, aval: ArrayType) -> None:
        self.type = aval

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        return self.type.dtype

    def instantiate(self) -> Any:
        """The zeros as an array."""
        return zeros(self.type)

    def __repr__(self) -> str:
        return f"SymbolicZero({self.type})"


@record
class Perturbed:
    """A value, and whether it is differentiated: what a custom_vjp's fwd is given for a leaf.

    With symbolic_zeros alone. It is a leaf of pytrees. A rule can leave out work for what nobody
    asked for:

    >>> @fxad.custom_vjp
    ... def scale(a, x):
    ...     return a * x
    >>> def fwd(a, x):
    ...     print("wants a:", a.perturbed, " wants x:", x.perturbed)
    ...     return a.value * x.value, (a.value, x.value)
    >>> scale.defvjp(fwd, lambda saved, ct: (ct * saved[1], ct * saved[0]), symbolic_zeros=True)
    >>> fxad.grad(scale)(2.0, 5.0)
    wants a: True  wants x: False
    Array(5., dtype=float32)
    """

    value: Any
    perturbed: bool


def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """The zero tangents of a pytree of values: arrays of zeros, or SymbolicZeros."""
    zero = SymbolicZero if symbolic_zeros else zero_tangent
    return pytree.map(lambda leaf: zero(type_of(leaf)), val)


def primal_values(tree: Any) -> Any:
    """A pytree that holds `Perturbed` leaves with their values instead."""
    return pytree.map(
        lambda leaf: leaf.value if isinstance(leaf, Perturbed) else leaf,
        tree,
        is_leaf=lambda node: isinstance(node, Perturbed),
    )


def run_rule(
    rule: Callable[..., Any],
    tree: Any,
    values: Sequence[Any],
    name: str,
    expected: tuple[Any, Sequence[Any]] | None = None,
) -> tuple[list[Any], Any]:
    """A jvp rule called on flat primals and tangents (None: zero). Flat results and tangents, None
    for those that are symbolic zeros, and the structure of the result. `expected` is the structure
    and the types of what the function itself gives, where they are known."""
    count = len(values) // 2
    tangents = [
        SymbolicZero(type_of(p)) if t is None else t
        for p, t in zip(values[:count], values[count:], strict=True)
    ]
    result = rule(tree.unflatten(values[:count])[0], tree.unflatten(tangents)[0])
    results, out_tree = _checked_rule(result, name)
    if expected is not None:
        _check_result(results, out_tree, expected, name)
    return results, out_tree


def _check_result(results: list[Any], tree: Any, expected: tuple[Any, Any], name: str) -> None:
    """The rule must give what the function gives."""
    if tree != expected[0]:
        raise TreeError(
            f"{name}: the jvp rule's result has structure {tree}, the function's {expected[0]}"
        )
    seen = tuple(type_of(r) for r in results[: len(results) // 2])
    if seen != tuple(expected[1]):
        raise ShapeError(
            f"{name}: the jvp rule's results have types {list(map(str, seen))}, the function's "
            f"{list(map(str, expected[1]))}"
        )


def instantiated(results: list[Any]) -> list[Any]:
    """Results and tangents with zeros for the symbolic ones."""
    half = len(results) // 2
    return [zeros(type_of(results[i % half])) if r is None else r for i, r in enumerate(results)]


def _checked_rule(result: Any, name: str) -> tuple[list[Any], Any]:
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise TypeMismatch(f"{name}: a jvp rule must return (result, tangent)")
    outs, tree = flatten_args(result[0], f"jvp rule of {name}")
    tangents, tangent_tree = pytree.flatten(result[1])
    tangents = [
        None
        if isinstance(t, SymbolicZero) or dt.is_float0(t)
        else flatten_args(t, f"jvp rule of {name}")[0][0]
        for t in tangents
    ]
    if tree != tangent_tree:
        raise TreeError(
            f"{name}: the jvp rule's tangent has structure {tangent_tree}, its result has {tree}"
        )
    for out, tangent in zip(outs, tangents, strict=True):
        if tangent is not None and type_of(out).shape != type_of(tangent).shape:
            raise ShapeError(
                f"{name}: the jvp rule gave a tangent {type_of(tangent)} for a result "
                f"{type_of(out)}"
            )
    tangents = [
        bind(OPS["convert"], t, dtype=type_of(o).dtype)
        if t is not None and type_of(t).dtype != type_of(o).dtype and differentiable(o)
        else t
        for o, t in zip(outs, tangents, strict=True)
    ]
    return [*outs, *tangents], tree
