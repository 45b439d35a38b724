"""All prefixes of an associative function.

sums = associative_scan(jnp.add, x)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxad.api.flat import flatten_args
from fxad.core import pytree
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.ir.program import OPS
from fxad.lax.carry import (
    check_callable,
    described,
)
from fxad.numpy.core import axis_index
from fxad.numpy.manipulation import slice_axis
from fxad.numpy.weak import gives_strong
from fxad.trace.tracer import type_of


@gives_strong
def associative_scan(
    fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """All prefixes x0, x0*x1, x0*x1*x2... of an associative function, in logarithmic depth.

    fn takes and gives pytrees like elems, elementwise along `axis`; what it gives may have another
    structure, a tuple for a NamedTuple, around the same leaves. With `reverse` it runs from
    the end: x2, x2*x1, x2*x1*x0.

    >>> fxad.lax.associative_scan(jnp.maximum, jnp.array([3, 1, 4, 1, 5]))
    Array([3, 3, 4, 4, 5], dtype=int32)
    >>> def after(f, g):  # x -> a x + b, followed by another
    ...     return g[0] * f[0], g[0] * f[1] + g[1]
    >>> a, b = jnp.array([0.5, 0.5, 2.0]), jnp.array([1.0, 1.0, 0.0])
    >>> fxad.lax.associative_scan(after, (a, b))[1]  # x = a x + b from 0, all steps at once
    Array([1. , 1.5, 3. ], dtype=float32)
    """
    check_callable("associative_scan", fn=fn)
    leaves, tree = flatten_args(elems, "associative_scan: elems")
    if not leaves:
        return elems
    axes = [axis_index(axis, x.ndim, "associative_scan") for x in leaves]
    sizes = {x.shape[a] for x, a in zip(leaves, axes, strict=True)}
    if len(sizes) > 1:
        raise ShapeError(f"associative_scan: lengths along axis {axis} differ: {sorted(sizes)}")
    (length,) = sizes

    def combine(a: list[Any], b: list[Any]) -> list[Any]:
        out, out_tree = flatten_args(
            fn(tree.unflatten(a), tree.unflatten(b)),
            f"associative_scan: result of {described(fn)}",
        )
        if len(out) != len(a):
            pytree.same_structure_or_raise(tree, out_tree, "associative_scan: elements and results")
        for given, made in zip(map(type_of, a), map(type_of, out), strict=True):
            if given != made:
                error = ShapeError if given.shape != made.shape else TypeMismatch
                raise error(
                    f"associative_scan: {described(fn)} gives {made} for elements {given}; it must "
                    "give what it takes"
                )
        return out

    flipped = [_flipped(x, a) if reverse else x for x, a in zip(leaves, axes, strict=True)]
    outs = _prefixes(combine, flipped, axes, length)
    return tree.unflatten(
        [_flipped(x, a) if reverse else x for x, a in zip(outs, axes, strict=True)]
    )


def _flipped(x: Any, axis: int) -> Any:
    return OPS["reverse"](x, axes=(axis,))


def _prefixes(
    combine: Callable[[list, list], list], values: list[Any], axes: list[int], length: int
) -> list[Any]:
    """Combine neighbours, solve for the pairs (prefixes ending at odd places), fill in the even."""
    if length < 2:
        return values

    def cut(arrays: list[Any], start: int, stop: int, step: int = 1) -> list[Any]:
        pairs = zip(arrays, axes, strict=True)
        return [slice_axis(x, a, start, stop, step) for x, a in pairs]

    half = length // 2
    pairs = combine(cut(values, 0, length - 1, 2), cut(values, 1, length, 2))
    odd = _prefixes(combine, pairs, axes, half)
    rest = cut(values, 2, length, 2)
    ahead = odd if length % 2 else cut(odd, 0, half - 1)
    later = combine(ahead, rest) if length > 2 else rest
    even = [
        OPS["concatenate"](x, y, axis=a)
        for x, y, a in zip(cut(values, 0, 1), later, axes, strict=True)
    ]
    return [_interleaved(e, o, a, half) for e, o, a in zip(even, odd, axes, strict=True)]


def _interleaved(even: Any, odd: Any, axis: int, half: int) -> Any:
    """even[0], odd[0], even[1], ... ; even may be one longer."""
    shape = type_of(odd).shape
    column = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    parts = [OPS["reshape"](x, shape=column) for x in (slice_axis(even, axis, 0, half), odd)]
    woven = OPS["concatenate"](*parts, axis=axis + 1)
    woven = OPS["reshape"](woven, shape=(*shape[:axis], 2 * half, *shape[axis + 1 :]))
    total = type_of(even).shape[axis]
    if total == half:
        return woven
    return OPS["concatenate"](woven, slice_axis(even, axis, half, total), axis=axis)
