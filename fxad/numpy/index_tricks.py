"""Indices as arrays: grids, ranges in brackets, diagonals and triangles, flat positions.

x, y = mgrid[0:3, 0:4]
r_[1.0, 2.0:3.0:5j]
a[tril_indices(3)]
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.api.indices import reaching
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, UnsupportedError
from fxad.numpy.core import asarray, cast, known_values, no_inplace, promoted, shape_tuple, value_of
from fxad.numpy.creation import arange, linspace
from fxad.numpy.elementwise import clip, where
from fxad.numpy.joining import concatenate, resize
from fxad.numpy.manipulation import expand_dims, ravel, reshape, transpose
from fxad.numpy.selection import nonzero
from fxad.numpy.updates import At
from fxad.trace.array import Array, Concrete
from fxad.trace.replay import replayed

__all__ = [
    "c_", "diag_indices", "diag_indices_from", "fill_diagonal", "index_exp", "ix_",
    "mask_indices", "mgrid", "ogrid", "r_", "ravel_multi_index", "s_", "tril_indices",
    "tril_indices_from", "triu_indices", "triu_indices_from", "unravel_index",
]  # fmt: skip

s_, index_exp = np.s_, np.index_exp


def _range(item: slice) -> Array:
    """start:stop:step; an imaginary step counts points and includes the end."""
    start = 0 if item.start is None else item.start
    if isinstance(item.step, complex):
        return linspace(start, item.stop, int(builtins.abs(item.step)))
    return arange(start, item.stop, 1 if item.step is None else item.step)


class _Grid:
    """mgrid and ogrid: slices to coordinate arrays."""

    def __init__(self, full: bool) -> None:
        self.full = full

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _range(key)
        axes = promoted("mgrid", *map(_range, key), broadcast=False)
        count = len(axes)
        columns = [
            reshape(axis, tuple(-1 if i == j else 1 for j in range(count)))
            for i, axis in enumerate(axes)
        ]
        if not self.full:
            return columns
        shape = tuple(axis.shape[0] for axis in axes)
        spread = [column + 0 * sum(columns[1:], columns[0]) for column in columns]
        return concatenate([reshape(c, (1, *shape)) for c in spread])


mgrid, ogrid = _Grid(True), _Grid(False)


class _Joined:
    """r_ and c_: arrays, numbers and ranges joined along one axis.

    Defaults of the directive "axis,ndim,place" that may come first: the axis to join along, how
    many axes each part has at least, and which of them is the first of a part that has fewer (-1:
    its own are the last). The directives "r" and "c" make a row or a column of a vector.
    """

    def __init__(self, axis: int, ndim: int, place: int) -> None:
        self.defaults = (axis, ndim, place)

    def __getitem__(self, key: Any) -> Array:
        items = list(key) if isinstance(key, tuple) else [key]
        axis, ndim, place = self.defaults
        matrix = None
        if items and isinstance(items[0], str):
            directive = items.pop(0)
            if directive in ("r", "c"):
                matrix = "rc".index(directive)
            else:
                axis, ndim, place = self._directive(directive)
        if any(isinstance(item, str) for item in items):
            raise BadArgument("r_ and c_: a directive comes first, and there is one")
        parts = []
        for item in items:
            part = _range(item) if isinstance(item, slice) else asarray(item)
            wide = reshape(part, (1,) * (ndim - part.ndim) + part.shape)
            if part.ndim < ndim and place != -1:
                by = ndim - builtins.abs(ndim + place + 1) % ndim
                order = range(ndim)
                wide = transpose(wide, (*order[by:], *order[:by]))
            parts.append(wide)
        joined = concatenate(parts, axis)
        return joined if matrix is None or joined.ndim > 1 else expand_dims(joined, matrix)

    def _directive(self, text: str) -> tuple[int, int, int]:
        try:
            given = [int(number) for number in text.split(",")][:3]
        except ValueError:
            raise BadArgument(
                f"r_ and c_: a directive is up to three integers, 'r' or 'c', not {text!r}"
            ) from None
        axis, ndim, place = (*given, *self.defaults[len(given) :])
        return axis, ndim, place


r_, c_ = _Joined(0, 1, -1), _Joined(-1, 2, 0)


def ix_(*sequences: Any) -> tuple[Array, ...]:
    """Index arrays for the cross product of 1-d index sequences (or masks).

    Empty sequences are integers, as `[]` is an array of floats.

    >>> jnp.arange(9).reshape(3, 3)[jnp.ix_(jnp.array([0, 2]), jnp.array([1, 2]))]
    Array([[1, 2],
           [7, 8]], dtype=int32)
    """
    columns = []
    for number, given in enumerate(sequences):
        values = np.asarray(given) if isinstance(given, list | tuple) else value_of(given)
        if values.ndim != 1:
            raise ShapeError(f"ix_: every sequence must be a vector, not of shape {values.shape}")
        if values.dtype == np.bool_:
            values = np.nonzero(np.asarray(values))[0].astype(dt.index_dtype(values.size))
        if not values.size:
            values = np.zeros(0, dt.default_int())
        shape = tuple(-1 if i == number else 1 for i in range(len(sequences)))
        columns.append(reshape(asarray(values), shape))
    return tuple(columns)


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """Indices of the main diagonal of an array with `ndim` axes of length n.

    >>> jnp.diag_indices(2)
    (Array([0, 1], dtype=int32), Array([0, 1], dtype=int32))
    >>> jnp.zeros((2, 2)).at[jnp.diag_indices(2)].set(5)
    Array([[5., 0.],
           [0., 5.]], dtype=float32)
    """
    return (arange(n),) * ndim


def diag_indices_from(arr: Any) -> tuple[Array, ...]:
    """Indices of the main diagonal of a square array.

    >>> jnp.diag_indices_from(jnp.zeros((2, 2)))
    (Array([0, 1], dtype=int32), Array([0, 1], dtype=int32))
    """
    value = value_of(arr)
    if value.ndim < 2 or len(set(value.shape)) != 1:
        raise ShapeError(f"diag_indices_from: needs axes of one length, not {value.type}")
    return diag_indices(value.shape[0], value.ndim)


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = True) -> Array:
    """The array with its main diagonal replaced: a new one, which needs inplace=False, as in JAX.

    val: a number, or elements in order, cut off or repeated to the diagonal's length.

    >>> jnp.fill_diagonal(jnp.zeros((2, 2)), 5.0, inplace=False)
    Array([[5., 0.],
           [0., 5.]], dtype=float32)
    """
    no_inplace("fill_diagonal", inplace)
    if wrap:
        raise UnsupportedError("fill_diagonal: the diagonal ends at the last column: wrap is False")
    value = value_of(a)
    count = builtins.min(value.shape)
    if np.ndim(val):
        elements = ravel(value_of(val, "fill_diagonal"))
        if not elements.size:
            raise ShapeError("fill_diagonal: no elements to fill it with")
        val = resize(elements, count)
    return At(value)[(arange(count),) * value.ndim].set(val)


def _from(name: str, arr: Any) -> tuple[int, int]:
    shape = np.shape(arr)
    if len(shape) != 2:
        raise ShapeError(f"{name}: needs a matrix, got shape {shape}")
    return shape


def _indices(mask: np.ndarray) -> tuple[Array, ...]:
    pairs = zip(np.nonzero(mask), mask.shape, strict=True)
    return tuple(value_of(places.astype(dt.index_dtype(size))) for places, size in pairs)


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Array, ...]:
    """Rows and columns of a matrix's lower triangle, from its diagonal k down.

    >>> jnp.tril_indices_from(jnp.zeros((2, 2)))
    (Array([0, 1, 1], dtype=int32), Array([0, 0, 1], dtype=int32))
    """
    rows, columns = _from("tril_indices_from", arr)
    return _indices(np.tri(rows, columns, k, bool))


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Array, ...]:
    """Rows and columns of a matrix's upper triangle, from its diagonal k up.

    >>> jnp.triu_indices_from(jnp.zeros((2, 2)))
    (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """
    rows, columns = _from("triu_indices_from", arr)
    return _indices(~np.tri(rows, columns, k - 1, bool))


def mask_indices(
    n: int, mask_func: Callable[..., Any], k: Any = 0, *, size: int | None = None
) -> tuple[Array, ...]:
    """Rows and columns where mask_func(ones of (n, n), k) is not zero.

    size: how many there are; needed under jit.

    >>> jnp.mask_indices(2, jnp.triu)
    (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """
    kept = mask_func(value_of(np.ones((n, n), np.float32)), k)
    if size is not None:
        return nonzero(kept, size=size)
    hint = "pass size="
    return _indices(known_values(kept, "mask_indices", hint) != 0)


@replayed
def unravel_index(indices: Any, shape: Any) -> tuple[Array, ...]:
    """Positions along each axis of flat positions; negative ones count from the end. Out of range
    they are those of the nearest element.

    >>> jnp.unravel_index(jnp.array([5, 1]), (2, 3))
    (Array([1, 0], dtype=int32), Array([2, 1], dtype=int32))
    """
    index, out = value_of(indices), []
    sizes = shape_tuple(shape, "unravel_index")
    for size in reversed(sizes):
        index, rest = index // size, index % size
        out.append(rest)
    above, below = index > 0, index < -1
    return tuple(
        where(above, size - 1, where(below, 0, place))
        for size, place in zip(sizes, reversed(out), strict=True)
    )


def ravel_multi_index(
    multi_index: Any,
    dims: tuple[int, ...],
    mode: str = "raise",
    order: str = "C",
    *,
    dtype: Any = None,
) -> Array:
    """Flat positions of positions along each axis, the last (order "F": the first) running fastest.

    mode: positions out of range are errors ("raise": BadArgument where values are known, unchecked
    where they are traced), those of the nearest element ("clip"), or count on from the start
    ("wrap").

    >>> jnp.ravel_multi_index((jnp.array([1, 0]), jnp.array([2, 1])), (2, 3))
    Array([5, 1], dtype=int32)
    """
    if mode not in _PLACES or order not in ("C", "F"):
        raise BadArgument(
            f"ravel_multi_index: mode is one of {', '.join(_PLACES)} and order 'C' or 'F', not "
            f"{mode!r} and {order!r}"
        )
    places = [value_of(index, "ravel_multi_index") for index in multi_index]
    if mode == "raise":
        for index, size in zip(places, dims, strict=True):
            _check_places(index, size)
    out = _ravelled(places, dims, mode, order)
    return out if dtype is None else cast(out, dt.canonicalize(dtype, explicit=True))


@replayed
def _ravelled(places: list[Array], dims: tuple[int, ...], mode: str, order: str) -> Array:
    out: Any = 0
    places = [reaching(v, math.prod(dims)) if dt.is_integer(v.dtype) else v for v in places]
    pairs = list(zip(places, dims, strict=True))
    for index, size in pairs if order == "C" else reversed(pairs):
        out = out * size + _PLACES[mode](index, size)
    return out


def _check_places(index: Array, size: int) -> None:
    if isinstance(index, Concrete):
        places = index.data
        if places.size and (places.min() < 0 or places.max() >= size):
            raise BadArgument(
                f"ravel_multi_index: positions from {places.min()} to {places.max()} for an axis "
                f"of length {size}; mode='clip' or 'wrap' brings them into range"
            )


_PLACES: dict[str, Callable[[Array, int], Array]] = {
    "raise": lambda index, size: index,
    "clip": lambda index, size: clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
}


@replayed
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, ...]:
    """Row and column numbers of the lower triangle.

    >>> jnp.tril_indices(2)
    (Array([0, 1, 1], dtype=int32), Array([0, 0, 1], dtype=int32))
    """
    return tuple(Concrete(i.astype(dt.default_int())) for i in np.tril_indices(n, k, m))


@replayed
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, ...]:
    """Row and column numbers of the upper triangle.

    >>> jnp.triu_indices(3, k=1)
    (Array([0, 0, 1], dtype=int32), Array([1, 2, 2], dtype=int32))
    """
    return tuple(Concrete(i.astype(dt.default_int())) for i in np.triu_indices(n, k, m))
