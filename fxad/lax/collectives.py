"""Sums and exchanges between the lanes of a vmap that has a name.

fxad.vmap(lambda x: x - lax.pmean(x, "batch"), axis_name="batch")(xs)
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from fxad.api.axes import axis as named_axis
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import BadArgument, ShapeError
from fxad.core.promotion import is_python_scalar
from fxad.ir.program import OPS
from fxad.numpy import reductions
from fxad.numpy.core import axis_index as place_of
from fxad.numpy.core import cast, value_of
from fxad.numpy.elementwise import where
from fxad.numpy.picking import take
from fxad.numpy.shaping import moveaxis
from fxad.trace.array import Array

Names = Hashable | Sequence[Hashable]


def _each(names: Names) -> tuple[Hashable, ...]:
    return tuple(names) if isinstance(names, tuple | list) else (names,)


def axis_index(axis_name: Names) -> Array:
    """The number of this lane (int32); of several names, as if their lanes were numbered in one
    go, the last name fastest. Raises BadArgument for a name that no vmap around has."""
    found, *rest = [named_axis(n, "axis_index") for n in _each(axis_name)]
    number = found.lane
    for inner in rest:
        number = number * inner.size + inner.lane
    return number


def axis_size(axis_name: Names) -> int:
    """How many lanes there are."""
    size = 1
    for name in _each(axis_name):
        size *= named_axis(name, "axis_size").size
    return size


def psum(x: Any, axis_name: Names) -> Any:
    """The sum over lanes of a tree's leaves, equal in all lanes. A Python number gives a number."""
    lanes = [named_axis(n, "psum") for n in _each(axis_name)]

    def total(leaf: Any) -> Any:
        if is_python_scalar(leaf):
            return leaf * axis_size(axis_name)
        value = value_of(leaf, "psum")
        if value.dtype == dt.bool_:
            value = cast(value, dt.default_int())
        for lane in lanes:
            value = OPS["psum"](value, lane.lane)
        return value

    return pytree.map(total, x)


def pmean(x: Any, axis_name: Names) -> Any:
    """The mean over lanes of a tree's leaves."""
    size = axis_size(axis_name)
    return pytree.map(lambda total: total / size, psum(x, axis_name))


def _extreme(name: str, reduce: Callable[..., Array]) -> Callable[..., Any]:
    def function(x: Any, axis_name: Names) -> Any:
        def one(leaf: Any) -> Any:
            value = value_of(leaf, name)
            for n in _each(axis_name):
                value = reduce(all_gather(value, n), 0)
            return value

        return pytree.map(one, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {name[1:]}imum over lanes of a tree's leaves."
    return function


pmax = _extreme("pmax", reductions.max)
pmin = _extreme("pmin", reductions.min)


def all_gather(x: Any, axis_name: Hashable, *, axis: int = 0, tiled: bool = False) -> Any:
    """The values of all lanes along a new axis, or with `tiled` joined along an axis there is."""
    found = named_axis(axis_name, "all_gather")

    def one(leaf: Any) -> Array:
        value = value_of(leaf, "all_gather")
        rank = value.ndim if tiled else value.ndim + 1
        at = place_of(axis, rank, "all_gather")
        lanes = moveaxis(OPS["all_gather"](value, found.lane, lanes=found.size), 0, at)
        if not tiled:
            return lanes
        shape = value.shape
        joined = (*shape[:at], found.size * shape[at], *shape[at + 1 :])
        return OPS["reshape"](lanes, shape=joined)

    return pytree.map(one, x)


def ppermute(x: Any, axis_name: Hashable, perm: Sequence[tuple[int, int]]) -> Any:
    """The value of another lane: perm holds pairs (source, destination). Lanes that are nobody's
    destination get zeros. Raises BadArgument for a lane that is used twice or does not exist."""
    found = named_axis(axis_name, "ppermute")
    pairs = [(operator.index(a), operator.index(b)) for a, b in perm]
    for side in zip(*pairs, strict=True):
        if len(set(side)) < len(side) or builtins.min(side) < 0 or builtins.max(side) >= found.size:
            raise BadArgument(f"ppermute: {pairs} are not pairs of different lanes of {found.size}")
    source = np.full(found.size, -1, np.int32)
    for a, b in pairs:
        source[b] = a
    mine = take(source, found.lane, mode="clip")

    def one(leaf: Any) -> Array:
        lanes = all_gather(leaf, axis_name)
        return where(mine >= 0, take(lanes, mine, 0, mode="clip"), 0)

    return pytree.map(one, x)


def pshuffle(x: Any, axis_name: Hashable, perm: Sequence[int]) -> Any:
    """Lane i gets the value of lane perm[i]."""
    return ppermute(x, axis_name, [(source, at) for at, source in enumerate(perm)])


def psum_scatter(x: Any, axis_name: Hashable, *, scatter_dimension: int = 0) -> Any:
    """Row i of the sum over lanes, in lane i. The rows are along scatter_dimension, which must
    have one entry per lane."""
    found = named_axis(axis_name, "psum_scatter")

    def one(leaf: Any) -> Array:
        value = value_of(leaf, "psum_scatter")
        at = place_of(scatter_dimension, value.ndim, "psum_scatter")
        if value.shape[at] != found.size:
            raise ShapeError(f"psum_scatter: axis {at} of {value.type} for {found.size} lanes")
        return take(psum(value, axis_name), found.lane, at, mode="clip")

    return pytree.map(one, x)
