"""`fxad.scipy.fft`: discrete cosine transforms (type 2) and their inverses.

coefficients = dct(signal, norm="ortho")        signal = idct(coefficients, norm="ortho")

y_k = 2 sum over j of x_j cos(pi k (2 j + 1) / (2 n)). One Fourier transform of n real numbers:
those with even j, then those with odd j from the last (Makhoul, "A fast cosine transform in one and
two dimensions", 1980).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.lax import complex as complex_
from fxad.numpy import concatenate, fft, flip, imag, moveaxis, pad, real, reshape, stack, zeros_like
from fxad.numpy.core import axis_index, promoted, value_of
from fxad.trace.array import Array

__all__ = ["dct", "dctn", "idct", "idctn"]


def _check(name: str, type: int, norm: str | None) -> None:
    if type != 2:
        raise BadArgument(f"{name}: transforms are of type 2, not {type!r}")
    if norm not in (None, "backward", "ortho", "forward"):
        raise BadArgument(f"{name}: norm must be 'backward', 'ortho' or 'forward', not {norm!r}")


def _resized(value: Array, n: int | None, name: str) -> Array:
    """The last axis cut, or lengthened with zeros, to n elements."""
    length = value.shape[-1]
    if n is None or n == length:
        n = length
    if n < 1:
        raise BadArgument(f"{name}: an axis must have at least one element, got size {n}")
    if n <= length:
        return value[..., :n]
    return pad(value, [(0, 0)] * (value.ndim - 1) + [(0, n - length)])


def _scale(n: int, norm: str | None, dtype: np.dtype) -> np.ndarray:
    """What the terms of the plain sum are multiplied with."""
    if norm == "ortho":
        scale = np.full(n, math.sqrt(1 / (2 * n)))
        scale[0] /= math.sqrt(2)
    else:
        scale = np.full(n, 1 / (2 * n) if norm == "forward" else 1.0)
    return scale.astype(dtype)


def _rotation(n: int, dtype: np.dtype) -> np.ndarray:
    """exp(-i pi k / (2 n)) for k up to n // 2."""
    return np.exp(-0.5j * np.pi * np.arange(n // 2 + 1) / n).astype(dt.complex_of(dtype))


def _forward(x: Array, norm: str | None) -> Array:
    """Along the last axis, of real numbers."""
    n = x.shape[-1]
    spectrum = fft.rfft(concatenate([x[..., ::2], flip(x[..., 1::2], -1)], -1))
    rotated = spectrum * _rotation(n, spectrum.real.dtype)
    # The term n - k of the spectrum is the conjugate of the term k, rotated by i more.
    first, rest = real(rotated), -imag(rotated)[..., 1 : (n + 1) // 2]
    out = 2 * concatenate([first, flip(rest, -1)], -1)
    return out if norm in (None, "backward") else out * _scale(n, norm, out.dtype)


def _inverse(y: Array, norm: str | None) -> Array:
    """Along the last axis, of real numbers."""
    n = y.shape[-1]
    if norm not in (None, "backward"):
        y = y * (1 / _scale(n, norm, y.dtype))
    half = n // 2 + 1
    mirrored = concatenate([zeros_like(y[..., :1]), flip(y[..., 1:], -1)], -1)
    rotated = 0.5 * complex_(y[..., :half], -mirrored[..., :half])
    v = fft.irfft(rotated * _rotation(n, y.dtype).conj(), n)
    even, odd = v[..., : (n + 1) // 2], flip(v[..., (n + 1) // 2 :], -1)
    if n % 2:
        odd = concatenate([odd, zeros_like(odd, shape=(*odd.shape[:-1], 1))], -1)
    return reshape(stack([even, odd], -1), (*v.shape[:-1], -1))[..., :n]


def _along(
    name: str,
    rule: Callable[[Array, str | None], Array],
    x: Any,
    n: int | None,
    axis: int,
    norm: Any,
) -> Array:
    (value,) = promoted(name, value_of(x, name), inexact=True, numbers=False)
    if dt.is_complex(value.dtype):
        parts = (_along(name, rule, part, n, axis, norm) for part in (real(value), imag(value)))
        return complex_(*parts)
    at = axis_index(axis, value.ndim, name)
    value = value.astype(dt.float64 if value.dtype == dt.float64 else dt.float32)
    return moveaxis(rule(_resized(moveaxis(value, at, -1), n, name), norm), -1, at)


def _over(
    name: str, rule: Callable[[Array, str | None], Array], x: Any, s: Any, axes: Any, norm: Any
) -> Array:
    value = value_of(x, name)
    sizes = None if s is None else [s] if isinstance(s, int) else list(s)
    if axes is None:
        axes = range(-(value.ndim if sizes is None else len(sizes)), 0)
    places = [axes] if isinstance(axes, int) else list(axes)
    at = [axis_index(axis, value.ndim, name) for axis in places]
    if len(set(at)) != len(at):
        raise ShapeError(f"{name}: axes {tuple(places)} name one axis twice")
    if sizes is not None and len(sizes) != len(at):
        raise ShapeError(f"{name}: {len(sizes)} sizes for {len(at)} axes")
    for axis, n in zip(at, sizes or [None] * len(at), strict=True):
        value = _along(name, rule, value, n, axis, norm)
    return value


def dct(
    x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """The cosine transform along an axis, cut or lengthened with zeros to n.

    norm: "backward" (None) leaves the sum as it is, "forward" divides it by 2 n, "ortho" makes the
    transform orthogonal. Of complex numbers both parts are transformed. Raises BadArgument for
    another type or norm.
    """
    _check("dct", type, norm)
    return _along("dct", _forward, x, n, axis, norm)


def idct(
    x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """Inverse of `dct` with the same norm."""
    _check("idct", type, norm)
    return _along("idct", _inverse, x, n, axis, norm)


def dctn(
    x: Any,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """`dct` along several axes: all, or the last ones if the sizes `s` alone are given."""
    _check("dctn", type, norm)
    return _over("dctn", _forward, x, s, axes, norm)


def idctn(
    x: Any,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """Inverse of `dctn`."""
    _check("idctn", type, norm)
    return _over("idctn", _inverse, x, s, axes, norm)
