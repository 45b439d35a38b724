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
from fxad.numpy.manipulation import moveaxis
from fxad.numpy.selection import take
from fxad.trace.array import Array

Names = Hashable | Sequence[Hashable]


def _each(names: Names) -> tuple[Hashable, ...]:
    return tuple(names) if isinstance(names, tuple | list) else (names,)


def axis_index(axis_name: Names) -> Array:
    """The number of this lane (int32); of several names, as if their lanes were numbered in one
    go, the last name fastest. Raises BadArgument for a name that no vmap around has.

    >>> one = lambda x: 10 * fxad.lax.axis_index("lane") + x
    >>> fxad.vmap(one, axis_name="lane")(jnp.array([1, 1, 1]))
    Array([ 1, 11, 21], dtype=int32)
    """
    found, *rest = [named_axis(n, "axis_index") for n in _each(axis_name)]
    number = found.lane
    for inner in rest:
        number = number * inner.size + inner.lane
    return number


def axis_size(axis_name: Names) -> int:
    """How many lanes there are.

    >>> fxad.vmap(lambda x: x / fxad.lax.axis_size("lane"), axis_name="lane")(jnp.ones(4))
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """
    size = 1
    for name in _each(axis_name):
        size *= named_axis(name, "axis_size").size
    return size


def psum(x: Any, axis_name: Names) -> Any:
    """The sum over lanes of a tree's leaves, equal in all lanes. A Python number gives a number.

    >>> one = lambda x: x / fxad.lax.psum(x, "lane")
    >>> fxad.vmap(one, axis_name="lane")(jnp.array([1.0, 2.0, 1.0]))
    Array([0.25, 0.5 , 0.25], dtype=float32)
    """
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
    """The mean over lanes of a tree's leaves.

    >>> one = lambda x: x - fxad.lax.pmean(x, "lane")
    >>> fxad.vmap(one, axis_name="lane")(jnp.array([1.0, 4.0, 1.0]))
    Array([-1.,  2., -1.], dtype=float32)
    """
    size = axis_size(axis_name)
    return pytree.map(lambda total: total / size, psum(x, axis_name))


def _extreme(name: str, reduce: Callable[..., Array], example: str) -> Callable[..., Any]:
    """example: what three lanes of 1, 5, 3 get."""

    def function(x: Any, axis_name: Names) -> Any:
        def one(leaf: Any) -> Any:
            value = value_of(leaf, name)
            for n in _each(axis_name):
                value = reduce(all_gather(value, n), 0)
            return value

        return pytree.map(one, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The {name[1:]}imum over lanes of a tree's leaves.

    >>> of_lanes = fxad.vmap(lambda x: fxad.lax.{name}(x, "lane"), axis_name="lane")
    >>> of_lanes(jnp.array([1, 5, 3]))
    Array({example}, dtype=int32)
    """
    return function


pmax = _extreme("pmax", reductions.max, "[5, 5, 5]")
pmin = _extreme("pmin", reductions.min, "[1, 1, 1]")


def _gathered(value: Any, names: Names, what: str) -> Any:
    """The values of all lanes along a new leading axis, numbered as `axis_index` does."""
    out = value
    for name in reversed(_each(names)):
        found = named_axis(name, what)
        out = OPS["all_gather"](out, found.lane, lanes=found.size)
    return OPS["reshape"](out, shape=(axis_size(names), *value.shape))


def _joined(lanes: Any, at: int) -> Any:
    """The leading axis moved before axis `at` of the rest, and merged with it."""
    shape = lanes.shape[1:]
    moved = moveaxis(lanes, 0, at)
    wide = (*shape[:at], lanes.shape[0] * shape[at], *shape[at + 1 :])
    return OPS["reshape"](moved, shape=wide)


def _chunks(value: Any, at: int, count: int, what: str) -> Any:
    """Axis `at` cut into `count` parts: (..., count, length / count, ...)."""
    shape = value.shape
    if shape[at] % count:
        raise ShapeError(f"{what}: axis {at} of {value.type} cannot be cut for {count} lanes")
    parts = (*shape[:at], count, shape[at] // count, *shape[at + 1 :])
    return OPS["reshape"](value, shape=parts)


def all_gather(x: Any, axis_name: Names, *, axis: int = 0, tiled: bool = False) -> Any:
    """The values of all lanes along a new axis, or with `tiled` joined along an axis there is.

    >>> share = lambda x: fxad.lax.all_gather(x, "lane")
    >>> fxad.vmap(share, axis_name="lane")(jnp.array([1, 2]))  # every lane has all values
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """

    def one(leaf: Any) -> Array:
        value = value_of(leaf, "all_gather")
        at = place_of(axis, value.ndim if tiled else value.ndim + 1, "all_gather")
        lanes = _gathered(value, axis_name, "all_gather")
        return _joined(lanes, at) if tiled else moveaxis(lanes, 0, at)

    return pytree.map(one, x)


def all_to_all(
    x: Any, axis_name: Names, split_axis: int, concat_axis: int, *, tiled: bool = False
) -> Any:
    """Part i of every lane's value, in lane i: the values are split along one axis and what the
    lanes send is put together along another.

    The split axis has one entry per lane and vanishes, and a new axis at concat_axis numbers the
    senders; with `tiled` it is cut into equal parts and these are joined along concat_axis.
    Raises ShapeError for a split axis that does not go round.

    >>> swap = lambda row: fxad.lax.all_to_all(row, "lane", 0, 0)
    >>> fxad.vmap(swap, axis_name="lane")(jnp.array([[1, 2], [3, 4]]))  # lanes and rows exchanged
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    count = axis_size(axis_name)

    def one(leaf: Any) -> Array:
        value = value_of(leaf, "all_to_all")
        cut, at = (place_of(a, value.ndim, "all_to_all") for a in (split_axis, concat_axis))
        if not tiled and value.shape[cut] != count:
            raise ShapeError(f"all_to_all: axis {cut} of {value.type} for {count} lanes")
        value = _chunks(value, cut, count, "all_to_all") if tiled else value
        lanes = _gathered(value, axis_name, "all_to_all")
        own = take(lanes, axis_index(axis_name), cut + 1, mode="clip")
        return _joined(own, at) if tiled else moveaxis(own, 0, at)

    return pytree.map(one, x)


def pswapaxes(x: Any, axis_name: Names, axis: int) -> Any:
    """Exchange an axis of x, of one entry per lane, with the axis of the lanes.

    >>> x = jnp.array([[1, 2], [3, 4]])
    >>> fxad.vmap(lambda row: fxad.lax.pswapaxes(row, "lane", 0), axis_name="lane")(x)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    return all_to_all(x, axis_name, axis, axis)


def ppermute(x: Any, axis_name: Hashable, perm: Sequence[tuple[int, int]]) -> Any:
    """The value of another lane: perm holds pairs (source, destination). Lanes that are nobody's
    destination get zeros. Raises BadArgument for a lane that is used twice or does not exist.

    >>> ring = [(0, 1), (1, 2), (2, 0)]
    >>> one = lambda x: fxad.lax.ppermute(x, "lane", ring)
    >>> fxad.vmap(one, axis_name="lane")(jnp.array([1, 2, 3]))
    Array([3, 1, 2], dtype=int32)
    """
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
    """Lane i gets the value of lane perm[i].

    >>> order = [2, 0, 1]
    >>> one = lambda x: fxad.lax.pshuffle(x, "lane", order)
    >>> fxad.vmap(one, axis_name="lane")(jnp.array([1, 2, 3]))
    Array([3, 1, 2], dtype=int32)
    """
    return ppermute(x, axis_name, [(source, at) for at, source in enumerate(perm)])


def psum_scatter(
    x: Any, axis_name: Names, *, scatter_dimension: int = 0, tiled: bool = False
) -> Any:
    """Row i of the sum over lanes, in lane i. The rows are along scatter_dimension, which must
    have one entry per lane; with `tiled` it is cut into one part per lane.

    >>> x = jnp.array([[1, 2], [30, 40]])
    >>> fxad.vmap(lambda row: fxad.lax.psum_scatter(row, "lane"), axis_name="lane")(x)
    Array([31, 42], dtype=int32)
    """
    count = axis_size(axis_name)

    def one(leaf: Any) -> Array:
        value = value_of(leaf, "psum_scatter")
        at = place_of(scatter_dimension, value.ndim, "psum_scatter")
        if not tiled and value.shape[at] != count:
            raise ShapeError(f"psum_scatter: axis {at} of {value.type} for {count} lanes")
        value = _chunks(value, at, count, "psum_scatter") if tiled else value
        return take(psum(value, axis_name), axis_index(axis_name), at, mode="clip")

    return pytree.map(one, x)
