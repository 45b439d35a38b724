"""Resampling of images, under the names of `jax.image`.

>>> import fxad.numpy as jnp
>>> from fxad import image
>>> image.resize(jnp.arange(4.0), (8,), "linear")
Array([0.  , 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.  ], dtype=float32)

Pixel i covers the interval from i to i + 1. One product with a matrix [old, new] for each axis.
"""

from __future__ import annotations

import builtins
import enum
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.core.lazy import lazy as _lazy
from fxad.lax import Precision
from fxad.numpy import (
    abs,
    arange,
    asarray,
    maximum,
    minimum,
    moveaxis,
    sin,
    sum,
    take,
    tensordot,
    where,
    zeros,
)
from fxad.numpy.core import axis_index, promoted, shape_tuple, value_of
from fxad.trace.array import Array
from fxad.trace.tracer import ensure_compile_time_eval

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]


class ResizeMethod(enum.Enum):
    """How pixels between pixels are found.

    >>> fxad.image.resize(jnp.array([0.0, 4.0]), (4,), fxad.image.ResizeMethod.NEAREST)
    Array([0., 0., 4., 4.], dtype=float32)
    """

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method that a name means. Raises BadArgument."""
        if s not in _NAMES:
            raise BadArgument(f"image: no method {s!r}; there are {', '.join(_NAMES)}")
        return _NAMES[s]


_NAMES = {
    "nearest": ResizeMethod.NEAREST,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5,
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
    "area": ResizeMethod.AREA,
}


# ---------------------------------------------------------------- kernels of a distance x >= 0


def _triangle(x: Array) -> Array:
    return maximum(0, 1 - x)


def _cubic(a: float) -> Callable[[Array], Array]:
    """Keys, "Cubic convolution interpolation for digital image processing", 1981."""

    def kernel(x: Array) -> Array:
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return where(x >= 2, 0, where(x >= 1, far, near))

    return kernel


def _lanczos(radius: float) -> Callable[[Array], Array]:
    """sinc(x) sinc(x / radius): Duchon, "Lanczos filtering in one and two dimensions", 1979."""

    def kernel(x: Array) -> Array:
        waves = radius * sin(math.pi * x) * sin(math.pi * x / radius)
        inside = where(x > 1e-3, waves / (math.pi * where(x > 1e-3, x, 1)) ** 2, 1)
        return where(x > radius, 0, inside)

    return kernel


_KERNELS = {  # and how far each reaches
    ResizeMethod.LINEAR: (_triangle, 1),
    ResizeMethod.LANCZOS3: (_lanczos(3), 3),
    ResizeMethod.LANCZOS5: (_lanczos(5), 5),
    ResizeMethod.CUBIC: (_cubic(-0.5), 2),
    ResizeMethod.CUBIC_PYTORCH: (_cubic(-0.75), 2),
}


# ---------------------------------------------------------------- weights


def _overlaps(old: int, new: int, scale: Array, translation: Array) -> Array:
    """How much of each old pixel a new one covers [old, new]."""
    left = (arange(new, dtype=scale.dtype) - translation) / scale
    right = left + 1 / scale
    pixels = arange(old, dtype=scale.dtype)[:, None]
    return maximum(0, minimum(right, pixels + 1) - maximum(left, pixels))


def _weights(
    old: int, new: int, scale: Array, translation: Array, method: ResizeMethod, antialias: bool
) -> Array:
    """What each old pixel contributes to each new one [old, new]; columns add up to 1, or to 0
    where a new pixel's centre lies outside the image."""
    # New centres in units of old pixels, whose centres are 0, 1, ...
    at = (arange(new, dtype=scale.dtype) + 0.5) / scale - translation / scale - 0.5
    edges = method is ResizeMethod.CUBIC_PYTORCH  # pixels beyond the edge are like those at it
    if method is ResizeMethod.AREA:
        weights = _overlaps(old, new, scale, translation)
    else:
        kernel, reach = _KERNELS[method]
        beyond = reach if edges else 0
        pixels = arange(-beyond, old + beyond, dtype=scale.dtype)
        # A kernel as wide as new pixels is a low-pass filter; a narrower one would miss pixels.
        width = maximum(1 / scale, 1) if antialias else 1
        weights = kernel(abs(at - pixels[:, None]) / width)
        if edges:
            places = np.clip(np.arange(-beyond, old + beyond), 0, old - 1)
            weights = zeros((old, new), weights.dtype).at[places].add(weights)
    total = sum(weights, 0, keepdims=True)
    some = abs(total) > 1000 * float(np.finfo(np.float32).eps)
    weights = where(some, weights / where(some, total, 1), 0)
    return weights if edges else where((at >= -0.5) & (at <= old - 0.5), weights, 0)


def _method(name: str, method: Any, antialias: bool) -> ResizeMethod:
    found = ResizeMethod.from_string(method) if isinstance(method, str) else method
    if not isinstance(found, ResizeMethod):
        raise BadArgument(f"{name}: method must be a name or a ResizeMethod, not {method!r}")
    # PyTorch's kernel is another where it does not filter.
    return ResizeMethod.CUBIC if found is ResizeMethod.CUBIC_PYTORCH and antialias else found


def _shape(name: str, image: Array, shape: Any) -> tuple[int, ...]:
    sizes = shape_tuple(shape, name)
    if len(sizes) != image.ndim:
        raise ShapeError(f"{name}: shape {sizes} has {len(sizes)} axes, the image {image.type}")
    return sizes


# ---------------------------------------------------------------- images


def resize(
    image: Any,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = Precision.HIGHEST,
) -> Array:
    """The image with another shape, of as many axes; those whose size stays are left alone.

    method: "nearest" (which keeps the dtype; others give floats), "linear", "cubic", "lanczos3",
    "lanczos5", "cubic-pytorch" or "area", or a ResizeMethod. `antialias` filters what is made
    smaller. Raises BadArgument for another method, ShapeError for another number of axes.

    >>> fxad.image.resize(jnp.array([[0.0, 4.0]]), (1, 4), "linear")
    Array([[0., 1., 3., 4.]], dtype=float32)
    """
    value = value_of(image, "resize")
    sizes = _shape("resize", value, shape)
    how = _method("resize", method, antialias)
    axes = [i for i in range(value.ndim) if value.shape[i] != sizes[i]]
    if how is ResizeMethod.NEAREST:
        for axis in axes:
            centres = np.arange(sizes[axis], dtype=np.float32) + np.float32(0.5)
            places = centres * np.float32(value.shape[axis]) / np.float32(sizes[axis])
            value = take(value, np.floor(places).astype(np.int32), axis)
        return value
    (value,) = promoted("resize", value, inexact=True, numbers=False)
    for axis in sorted(axes, key=lambda i: sizes[i] / builtins.max(value.shape[i], 1)):
        old, new = value.shape[axis], sizes[axis]
        with ensure_compile_time_eval():
            scale = asarray(new / old if new and old else 1.0, dtype=_real(value))
            weights = _weights(old, new, scale, asarray(0, dtype=scale.dtype), how, antialias)
        value = _contracted(value, axis, weights, precision)
    return value


def scale_and_translate(
    image: Any,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: Any,
    translation: Any,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = Precision.HIGHEST,
) -> Array:
    """The image moved along `spatial_dims`: what was at x is at x * scale + translation.

    scale, translation: a number for each of these axes [k], which may be traced and have
    derivatives. New pixels whose centres come from outside the image are 0. Methods are those of
    `resize` but "nearest".

    >>> x = jnp.array([0.0, 1.0, 2.0, 3.0])
    >>> fxad.image.scale_and_translate(x, (4,), (0,), jnp.ones(1), jnp.array([1.0]), "linear")
    Array([0., 0., 1., 2.], dtype=float32)
    """
    name = "scale_and_translate"
    value = value_of(image, name)
    sizes = _shape(name, value, shape)
    how = _method(name, method, antialias)
    if how is ResizeMethod.NEAREST:
        raise BadArgument(f"{name}: method 'nearest' is for resize alone")
    (value,) = promoted(name, value, inexact=True, numbers=False)
    given = [asarray(scale), asarray(translation)]
    scales, translations = promoted(name, *given, inexact=True, numbers=False, broadcast=False)
    axes = [axis_index(axis, value.ndim, name) for axis in spatial_dims]
    if scales.shape != (len(axes),) or translations.shape != (len(axes),):
        raise ShapeError(
            f"{name}: needs a scale and a translation for each of {len(axes)} axes, got "
            f"{scales.type} and {translations.type}"
        )
    if kept := [i for i in range(value.ndim) if i not in axes and value.shape[i] != sizes[i]]:
        raise ShapeError(f"{name}: axis {kept[0]} is no spatial one, so its size cannot change")
    for i, axis in enumerate(axes):
        weights = _weights(
            value.shape[axis], sizes[axis], scales[i], translations[i], how, antialias
        )
        value = _contracted(value, axis, weights, precision)
    return value


def _real(value: Array) -> np.dtype:
    return dt.float64 if value.dtype in (dt.float64, dt.complex128) else dt.float32


def _contracted(value: Array, axis: int, weights: Array, precision: Any) -> Array:
    product = tensordot(value, weights.astype(value.dtype), ((axis,), (0,)), precision=precision)
    return moveaxis(product, -1, axis)


if not TYPE_CHECKING:  # TAB completion shows what is public
    __getattr__, __dir__ = _lazy(globals())
