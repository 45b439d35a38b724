"""`fxad.scipy.ndimage`: values of an array between its points (map_coordinates).

map_coordinates(image, [rows, columns], order=1)      # image[rows[i], columns[i]], interpolated
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from fxad.core.errors import BadArgument, ShapeError
from fxad.numpy import abs, asarray, broadcast_arrays, clip, floor, int32, sign, where
from fxad.trace.array import Array

__all__ = ["map_coordinates"]


def _mirrored(index: Array, size: int) -> Array:
    """Back and forth between the first point and the last, neither of them twice."""
    last = size - 1
    return abs((index + last) % (2 * last) - last) if last else 0 * index


def _reflected(index: Array, size: int) -> Array:
    """Back and forth with the first point and the last twice: mirrored between half points."""
    return (_mirrored(2 * index + 1, 2 * size + 1) - 1) // 2


# by mode: the point of the array that stands for any index ("constant": where there is one)
_INSIDE: dict[str, Callable[[Array, int], Array]] = {
    "constant": lambda index, size: clip(index, 0, size - 1),
    "nearest": lambda index, size: clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
    "mirror": _mirrored,
    "reflect": _reflected,
}


def map_coordinates(
    input: Any, coordinates: Sequence[Any], order: int, mode: str = "constant", cval: Any = 0.0
) -> Array:
    """Values of an array at points that need not be whole numbers.

    coordinates: for each axis of `input` where along it, of shapes that broadcast to that of the
    result. order: 0 takes the nearest point, 1 interpolates linearly; others are not written.
    mode: what stands beyond the ends: `cval` ("constant"), the last point ("nearest"), the array
    again ("wrap"), or turned around at its ends without ("mirror") or with ("reflect") the last
    point twice. The result has `input`'s dtype; integers are rounded. Both `input` and the
    coordinates have derivatives.

    >>> from fxad.scipy.ndimage import map_coordinates
    >>> map_coordinates(jnp.array([0.0, 10.0, 40.0]), [jnp.array([0.5, 1.9, 3.0])], order=1)
    Array([ 5., 37.,  0.], dtype=float32)
    """
    array = asarray(input)
    if len(coordinates) != array.ndim:
        raise ShapeError(
            f"map_coordinates: there must be coordinates for each of the {array.ndim} axes of the "
            f"input, got {len(coordinates)}"
        )
    if order not in (0, 1):
        raise BadArgument(f"map_coordinates: order must be 0 or 1, got {order!r}")
    if mode not in _INSIDE:
        raise BadArgument(
            f"map_coordinates: mode must be one of {', '.join(_INSIDE)}; got {mode!r}"
        )
    places = broadcast_arrays(*map(asarray, coordinates)) if array.ndim else []
    axes = [
        [(_INSIDE[mode](index, size), _valid(index, size, mode), weight) for index, weight in found]
        for found, size in zip((_neighbours(p, order) for p in places), array.shape, strict=True)
    ]
    total: Any = None
    for corner in itertools.product(*axes):
        value = array[tuple(index for index, _, _ in corner)]
        if mode == "constant":
            whole = functools.reduce(operator.and_, [valid for _, valid, _ in corner], True)
            value = where(whole, value, cval)
        for _, _, weight in corner:
            value = value * weight if weight is not None else value
        total = value if total is None else total + value
    if array.dtype.kind in "iu" and total.dtype != array.dtype:
        total = _rounded(total)
    return total.astype(array.dtype)


def _neighbours(place: Array, order: int) -> list[tuple[Array, Any]]:
    """The points of an axis that count at `place`, each with its weight (None: 1)."""
    if order == 0:
        return [(_rounded(place).astype(int32), None)]
    low = floor(place)
    above = place - low
    index = low.astype(int32)
    return [(index, 1 - above), (index + 1, above)]


def _valid(index: Array, size: int, mode: str) -> Any:
    return (index >= 0) & (index < size) if mode == "constant" else True


def _rounded(x: Array) -> Array:
    """To the nearest whole number, halves away from 0."""
    return x if x.dtype.kind in "iu" else sign(x) * floor(abs(x) + 0.5)
