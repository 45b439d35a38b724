"""Reductions: over axes with any function (`reduce`), and over moving windows (`reduce_window`).

pooled = reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fxad.core import pytree
from fxad.core.errors import BadArgument, ShapeError
from fxad.ir.program import OPS
from fxad.lax.computations import Computation, halved
from fxad.numpy.core import axes_tuple, cast, spread_to, value_of
from fxad.trace.array import Array
from fxad.trace.tracer import type_of

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "max_reduce", "min": "min_reduce"}


def _operands(what: str, operand: Any, init: Any) -> tuple[list[Array], list[Array], Any]:
    leaves, tree = pytree.flatten(operand)
    inits, init_tree = pytree.flatten(init)
    pytree.same_structure_or_raise(tree, init_tree, f"{what}: operands and initial values")
    values = [value_of(v, what) for v in leaves]
    starts = [cast(value_of(i, what), v.dtype) for i, v in zip(inits, values, strict=True)]
    if not values or any(s.shape for s in starts):
        raise ShapeError(f"{what}: needs operands, and one number as each initial value")
    if any(v.shape != values[0].shape for v in values):
        seen = ", ".join(str(v.type) for v in values)
        raise ShapeError(f"{what}: operands must have one shape, got {seen}")
    return values, starts, tree


def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable[..., Any],
    dimensions: Sequence[int],
) -> Any:
    """Fold axes with computation(a, b), an associative function of scalars, from init_values.

    operands: an array, or a pytree of arrays of one shape, with a pytree of initial values; then
    computation takes and gives pytrees of scalars. Known functions (sums, products, largest,
    smallest, and, or) run as the reductions they are; others in logarithmic depth.

    >>> x = jnp.array([[1, 2, 3], [4, 5, 6]])
    >>> fxad.lax.reduce(x, 1, fxad.lax.mul, (1,))
    Array([  6, 120], dtype=int32)
    >>> def larger(a, b):  # of pairs (score, place)
    ...     return tuple(jnp.where(b[0] > a[0], new, old) for old, new in zip(a, b, strict=True))
    >>> fxad.lax.reduce((x, x % 4), (0, 0), larger, (0, 1))
    (Array(6, dtype=int32), Array(2, dtype=int32))
    """
    values, starts, tree = _operands("reduce", operands, init_values)
    axes = axes_tuple(tuple(dimensions), values[0].ndim, "reduce")
    combine = Computation(computation, [v.type for v in values], "reduce", tree)
    rest = tuple(a for a in range(values[0].ndim) if a not in axes)
    count = math.prod(values[0].shape[a] for a in axes)
    kept = tuple(values[0].shape[a] for a in rest)
    starts = [spread_to(s, kept) for s in starts]
    if not count:
        return tree.unflatten(starts)
    if combine.monoid in _REDUCTIONS and axes:
        folded = [OPS[_REDUCTIONS[combine.monoid]](values[0], axes=axes)]
    else:
        moved = [OPS["transpose"](v, permutation=(*axes, *rest)) for v in values]
        folded = halved(combine, [OPS["reshape"](v, shape=(count, *kept)) for v in moved], count)
    return tree.unflatten(combine(starts, folded))


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[..., Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Fold every window of the operands with computation(a, b), from init_value.

    One entry per axis in window_dimensions, strides and dilations; padding: "VALID", "SAME",
    "SAME_LOWER", or (low, high) per axis. What is padded holds init_value. computation must be
    associative: windows are folded axis by axis.

    >>> x = jnp.arange(16).reshape(4, 4)
    >>> fxad.lax.reduce_window(x, -1, fxad.lax.max, (2, 2), (2, 2))  # max pooling
    Array([[ 5,  7],
           [13, 15]], dtype=int32)
    >>> fxad.lax.reduce_window(jnp.ones(5), 0.0, fxad.lax.add, (3,), padding="SAME")  # neighbours
    Array([2., 3., 3., 3., 2.], dtype=float32)
    """
    values, starts, tree = _operands("reduce_window", operand, init_value)
    combine = Computation(computation, [v.type for v in values], "reduce_window", tree)
    rank = values[0].ndim

    def per_axis(given: Sequence[int] | None, name: str) -> tuple[int, ...]:
        entries = (1,) * rank if given is None else tuple(n.__index__() for n in given)
        if len(entries) != rank or min(entries, default=1) < 1:
            raise ShapeError(f"reduce_window: {name}={entries} for {values[0].type}")
        return entries

    window = per_axis(window_dimensions, "window_dimensions")
    strides = per_axis(window_strides, "window_strides")
    base = per_axis(base_dilation, "base_dilation")
    holes = per_axis(window_dilation, "window_dilation")
    sizes = [max(0, (s - 1) * b + 1) for s, b in zip(values[0].shape, base, strict=True)]
    spans = [(w - 1) * h + 1 for w, h in zip(window, holes, strict=True)]
    pads = padding
    if isinstance(padding, str):
        pads = padtype_to_pads(sizes, spans, strides, padding)
    low, high = (tuple(p[i] for p in pads) for i in range(2))
    if len(low) != rank:
        raise ShapeError(f"reduce_window: padding {pads} for {values[0].type}")
    interior = tuple(b - 1 for b in base)
    parts = [
        OPS["pad"](v, s, low=low, high=high, interior=interior)
        for v, s in zip(values, starts, strict=True)
    ]
    for axis in range(rank):
        parts = _fold_axis(combine, parts, axis, window[axis], strides[axis], holes[axis])
    shape = type_of(parts[0]).shape
    return tree.unflatten(combine([spread_to(s, shape) for s in starts], parts))


def _fold_axis(
    combine: Computation, parts: list[Any], axis: int, window: int, stride: int, hole: int
) -> list[Any]:
    size = type_of(parts[0]).shape[axis]
    count = max(0, (size - (window - 1) * hole - 1) // stride + 1)
    if window == 1 and stride == 1:
        return parts

    def shifted(x: Any, number: int) -> Any:
        shape = type_of(x).shape
        start, stop, step = [0] * len(shape), list(shape), [1] * len(shape)
        start[axis], step[axis] = number * hole if count else 0, stride
        stop[axis] = start[axis] + (count - 1) * stride + 1 if count else 0
        return OPS["slice"](x, start=tuple(start), stop=tuple(stop), step=tuple(step))

    folded = [shifted(x, 0) for x in parts]
    for number in range(1, window if count else 1):
        folded = combine(folded, [shifted(x, number) for x in parts])
    return folded


def padtype_to_pads(
    in_shape: Sequence[int],
    window_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str,
) -> list[tuple[int, int]]:
    """(low, high) per axis of "VALID", "SAME" (as many windows as strides fit) or "SAME_LOWER".

    >>> fxad.lax.padtype_to_pads((5, 6), (3, 2), (1, 2), "SAME")
    [(1, 1), (0, 0)]
    """
    if padding.upper() == "VALID":
        return [(0, 0)] * len(tuple(in_shape))
    if padding.upper() not in ("SAME", "SAME_LOWER"):
        raise BadArgument(f"padding must be VALID, SAME, SAME_LOWER or pairs, not {padding!r}")
    pads = []
    for size, window, stride in zip(in_shape, window_shape, window_strides, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + window - size)
        less, more = total // 2, total - total // 2
        pads.append((less, more) if padding.upper() == "SAME" else (more, less))
    return pads
