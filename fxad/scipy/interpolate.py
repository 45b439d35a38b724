"""`fxad.scipy.interpolate`: functions through values on a grid (RegularGridInterpolator)."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.core.node_types import register_node
from fxad.numpy import asarray, broadcast_arrays, clip, searchsorted, stack, where
from fxad.numpy.core import promoted
from fxad.trace.array import Array

__all__ = ["RegularGridInterpolator"]

METHODS = ("linear", "nearest")


class RegularGridInterpolator:
    """A function through values on a grid of lines that need not be evenly apart.

    points: for each dimension of the grid its increasing coordinates [n]. values: of shape
    [n0, n1, ..., rest...], one (or an array of `rest`) for each point. method: "linear" or
    "nearest". fill_value: the result beyond the grid; None goes on as at its edge. `bounds_error`
    must be False: a compiled function cannot raise for a point. A pytree of its arrays: it
    passes through `jit` and `grad`, with derivatives in the values, the grid and the places.

    >>> from fxad.scipy.interpolate import RegularGridInterpolator
    >>> x, y = jnp.array([0.0, 1.0, 4.0]), jnp.array([0.0, 2.0])
    >>> f = RegularGridInterpolator((x, y), x[:, None] * y)
    >>> f(jnp.array([[2.0, 1.0], [5.0, 1.0]]))
    Array([ 2., nan], dtype=float32)
    """

    def __init__(
        self,
        points: Sequence[Any],
        values: Any,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: Any = math.nan,
    ) -> None:
        _check_method(method)
        if bounds_error:
            raise BadArgument(
                "RegularGridInterpolator: bounds_error=True cannot raise where a compiled function "
                "runs; leave it out and look for fill_value in the result"
            )
        self.method, self.bounds_error = method, False
        (self.values,) = promoted("RegularGridInterpolator", values, inexact=True, numbers=False)
        self.grid = tuple(asarray(p) for p in points)
        shape = self.values.shape
        if len(self.grid) > len(shape):
            raise ShapeError(
                f"RegularGridInterpolator: there are points of {len(self.grid)} dimensions, but "
                f"values have {len(shape)}"
            )
        for axis, (p, size) in enumerate(zip(self.grid, shape, strict=False)):
            if p.shape != (size,) or size < 2:
                raise ShapeError(
                    f"RegularGridInterpolator: dimension {axis} of the values has {size} entries, "
                    f"and needs a vector of as many points, at least 2; got shape {p.shape}"
                )
        self.fill_value = None if fill_value is None else asarray(fill_value)
        if self.fill_value is not None and _above(self.fill_value, self.values):
            raise TypeMismatch(
                f"RegularGridInterpolator: fill_value of {self.fill_value.dtype} does not fit "
                f"values of {self.values.dtype}"
            )

    def __call__(self, xi: Any, method: str | None = None) -> Array:
        """The values at places xi, [..., dimensions] or a tuple of coordinates; [..., rest...]."""
        method = self.method if method is None else method
        _check_method(method)
        places = _places(xi, len(self.grid))
        shape = places.shape[:-1]
        axes: list[list[tuple[Array, Any]]] = []
        outside: Any = False
        for axis, grid in enumerate(self.grid):
            x = places[..., axis].reshape(-1)
            index = clip(searchsorted(grid, x, side="right") - 1, 0, grid.size - 2)
            share = (x - grid[index]) / (grid[index + 1] - grid[index])
            outside = outside | (x < grid[0]) | (x > grid[-1])
            if method == "nearest":
                axes.append([(where(share <= 0.5, index, index + 1), None)])
            else:
                axes.append([(index, 1 - share), (index + 1, share)])
        rest = self.values.shape[len(self.grid) :]
        wide = (-1, *(1 for _ in rest))
        result = functools.reduce(
            lambda total, more: total + more,
            [self._corner(corner, wide) for corner in itertools.product(*axes)],
        )
        if self.fill_value is not None:
            result = where(outside.reshape(wide), self.fill_value.astype(result.dtype), result)
        return result.reshape(*shape, *rest)

    def _corner(self, corner: Sequence[tuple[Array, Any]], wide: tuple[int, ...]) -> Array:
        """The part of one corner of the cells that the places lie in."""
        value = self.values[tuple(index for index, _ in corner)]
        weights = [weight for _, weight in corner if weight is not None]
        if not weights:
            return value
        return value * functools.reduce(lambda a, b: a * b, weights).reshape(wide)


def _check_method(method: Any) -> None:
    if method not in METHODS:
        raise BadArgument(
            f"RegularGridInterpolator: method must be one of {', '.join(METHODS)}; got {method!r}"
        )


def _above(fill: Array, values: Array) -> bool:
    return fill.dtype.kind == "c" and values.dtype.kind != "c"


def _places(xi: Any, dimensions: int) -> Array:
    """Places as one array [..., dimensions]."""
    if isinstance(xi, tuple):
        found = stack(broadcast_arrays(*map(asarray, xi)), -1)
    else:
        found = asarray(xi)
        if found.ndim == 1:
            found = found.reshape(-1, 1) if dimensions == 1 else found.reshape(1, -1)
    if found.ndim == 0 or found.shape[-1] != dimensions:
        raise ShapeError(
            f"RegularGridInterpolator: places must have {dimensions} coordinates along their last "
            f"axis, got shape {found.shape}"
        )
    return found


def _unflatten(aux: tuple, children: Sequence[Any]) -> RegularGridInterpolator:
    made = object.__new__(RegularGridInterpolator)
    made.grid, made.values, made.fill_value = children
    made.method, made.bounds_error = aux
    return made


register_node(
    RegularGridInterpolator,
    lambda f: ((f.grid, f.values, f.fill_value), (f.method, f.bounds_error)),
    _unflatten,
)
