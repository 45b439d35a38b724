"""`fxad.numpy.fft`: discrete Fourier transforms, with NumPy's names, norms and sizes.

spectrum = fft.rfft(signal)                 filtered = fft.irfft(spectrum * mask, n=signal.size)

float32 gives complex64, float64 complex128; narrower dtypes are computed in float32. `n` (or `s`)
cuts an axis or lengthens it with zeros. `norm` says which direction divides by the number of
elements: "backward" (the inverse, by default), "forward", or "ortho": both, by its square root.
All functions differentiate, batch and compile. Compiled, lengths whose prime factors are at most 13
run in native code, others in NumPy's pocketfft; so do eager calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.core.lazy import lazy as _lazy
from fxad.ir.program import OPS
from fxad.numpy.core import axes_tuple, axis_index, cast, check_device, full_of, promoted, value_of
from fxad.numpy.creation import iota
from fxad.numpy.elementwise import conj
from fxad.numpy.manipulation import roll, slice_axis
from fxad.numpy.weak import gives_strong
from fxad.trace.array import Array

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

_SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}

# ---------------------------------------------------------------- arguments


def _real(name: str, a: Any) -> Array:
    (value,) = promoted(name, a, inexact=True, numbers=False)
    if dt.is_complex(value.dtype):
        raise BadArgument(f"{name}: expects real numbers, got {value.type}; take .real, or use fft")
    return cast(value, dt.float64 if value.dtype == dt.float64 else dt.float32)


def _complex(name: str, a: Any) -> Array:
    (value,) = promoted(name, a, inexact=True, numbers=False)
    return cast(value, dt.complex_of(value.dtype))


def _resized(value: Array, axis: int, size: int, name: str) -> Array:
    """An axis cut, or lengthened with zeros at its end."""
    if size < 1:
        raise BadArgument(f"{name}: an axis must have at least one element, got size {size}")
    length = value.shape[axis]
    if size <= length:
        return value if size == length else slice_axis(value, axis, 0, size)
    high = tuple(size - length if i == axis else 0 for i in range(value.ndim))
    none = (0,) * value.ndim
    zero = full_of(0, value.type.with_shape(()))
    return OPS["pad"](value, zero, low=none, high=high, interior=none)


def _length(name: str, n: int | None) -> tuple[int] | None:
    """The `s` of one axis; -1 keeps no size there."""
    if n is not None and n < 1:
        raise BadArgument(f"{name}: an axis must have at least one element, got n={n}")
    return None if n is None else (n,)


def _scaled(value: Array, count: int, norm: str | None, inverse: bool, name: str) -> Array:
    if norm not in _SWAPPED:
        raise BadArgument(f"{name}: norm must be 'backward', 'ortho' or 'forward', not {norm!r}")
    if norm == "ortho":
        return value * (1 / math.sqrt(count))
    return value * (1 / count) if inverse == (norm != "forward") else value


def _from_end(axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    return tuple(a - ndim for a in axes)


def _sizes_and_axes(
    value: Array, s: Sequence[int] | None, axes: Sequence[int] | None, name: str
) -> tuple[list[int], list[int]]:
    """Sizes and non-negative axes, in the order given; -1 keeps a size."""
    if axes is None:
        count = value.ndim if s is None else len(s)
        axes = range(-count, 0)
    at = [axis_index(a, value.ndim, name) for a in axes]
    if len(set(at)) != len(at):
        raise ShapeError(f"{name}: axes {tuple(axes)} name one axis twice")
    sizes = [value.shape[a] for a in at] if s is None else [int(size) for size in s]
    if len(sizes) != len(at):
        raise ShapeError(f"{name}: {len(sizes)} sizes for {len(at)} axes")
    kept = [value.shape[a] if n == -1 else n for n, a in zip(sizes, at, strict=True)]
    return kept, at


# ---------------------------------------------------------------- any axes


def _transform(a: Any, s: Any, axes: Any, norm: str | None, inverse: bool, name: str) -> Array:
    value = _complex(name, a)
    sizes, at = _sizes_and_axes(value, s, axes, name)
    for size, axis in zip(sizes, at, strict=True):
        value = _resized(value, axis, size, name)
    if not at:
        return value
    out = OPS["fft"](value, axes=_from_end(at, value.ndim), inverse=inverse)
    return _scaled(out, math.prod(sizes), norm, inverse, name)


def fftn(
    a: Any, s: Sequence[int] | None = None, axes: Any = None, norm: str | None = None
) -> Array:
    """Transform over several axes: all, or the last ones if `s` alone is given."""
    return _transform(a, s, axes, norm, False, "fftn")


def ifftn(
    a: Any, s: Sequence[int] | None = None, axes: Any = None, norm: str | None = None
) -> Array:
    """Inverse of `fftn`."""
    return _transform(a, s, axes, norm, True, "ifftn")


def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Transform over one axis: y_k = sum over j of a_j exp(-2 pi i j k / n)."""
    return _transform(a, _length("fft", n), (axis,), norm, False, "fft")


def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Inverse of `fft`."""
    return _transform(a, _length("ifft", n), (axis,), norm, True, "ifft")


def fft2(
    a: Any, s: Sequence[int] | None = None, axes: Any = (-2, -1), norm: str | None = None
) -> Array:
    """Transform over two axes."""
    return _transform(a, s, axes, norm, False, "fft2")


def ifft2(
    a: Any, s: Sequence[int] | None = None, axes: Any = (-2, -1), norm: str | None = None
) -> Array:
    """Inverse of `fft2`."""
    return _transform(a, s, axes, norm, True, "ifft2")


# ---------------------------------------------------------------- real signals


def _to_half(a: Any, s: Any, axes: Any, norm: str | None, name: str) -> Array:
    """The half spectrum of real numbers along the last of the axes, whole ones along the rest."""
    value = _real(name, a)
    sizes, at = _sizes_and_axes(value, s, axes, name)
    if not at:
        raise BadArgument(f"{name}: needs at least one axis")
    for size, axis in zip(sizes, at, strict=True):
        value = _resized(value, axis, size, name)
    *rest, last = _from_end(at, value.ndim)
    out = OPS["rfft"](value, axis=last)
    out = OPS["fft"](out, axes=tuple(rest), inverse=False) if rest else out
    return _scaled(out, math.prod(sizes), norm, False, name)


def _from_half(a: Any, s: Any, axes: Any, norm: str | None, name: str) -> Array:
    """Real numbers of a spectrum halved along the last of the axes."""
    value = _complex(name, a)
    sizes, at = _sizes_and_axes(value, s, axes, name)
    if not at:
        raise BadArgument(f"{name}: needs at least one axis")
    if s is None:
        sizes[-1] = 2 * (value.shape[at[-1]] - 1)
    terms = [*sizes[:-1], sizes[-1] // 2 + 1 if sizes[-1] > 0 else 0]
    for size, axis in zip(terms, at, strict=True):
        value = _resized(value, axis, size, name)
    *rest, last = _from_end(at, value.ndim)
    out = OPS["fft"](value, axes=tuple(rest), inverse=True) if rest else value
    out = OPS["irfft"](out, axis=last, n=sizes[-1])
    return _scaled(out, math.prod(sizes), norm, True, name)


@gives_strong
def rfftn(
    a: Any, s: Sequence[int] | None = None, axes: Any = None, norm: str | None = None
) -> Array:
    """`fftn` of real numbers: of the last axis, only the first half of the spectrum."""
    return _to_half(a, s, axes, norm, "rfftn")


def irfftn(
    a: Any, s: Sequence[int] | None = None, axes: Any = None, norm: str | None = None
) -> Array:
    """Inverse of `rfftn`; the last axis gets an even length unless `s` says otherwise."""
    return _from_half(a, s, axes, norm, "irfftn")


@gives_strong
def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The first n // 2 + 1 terms of `fft` of real numbers; the others are their conjugates."""
    return _to_half(a, _length("rfft", n), (axis,), norm, "rfft")


def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Inverse of `rfft`: n real numbers, 2 (m - 1) by default."""
    return _from_half(a, _length("irfft", n), (axis,), norm, "irfft")


@gives_strong
def rfft2(
    a: Any, s: Sequence[int] | None = None, axes: Any = (-2, -1), norm: str | None = None
) -> Array:
    """`rfftn` over two axes."""
    return _to_half(a, s, axes, norm, "rfft2")


def irfft2(
    a: Any, s: Sequence[int] | None = None, axes: Any = (-2, -1), norm: str | None = None
) -> Array:
    """`irfftn` over two axes."""
    return _from_half(a, s, axes, norm, "irfft2")


def _opposite(norm: str | None) -> str:
    return _SWAPPED.get(norm, str(norm))


def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The real spectrum of a signal that mirrors itself, of which the first half is given."""
    return _from_half(conj(a), _length("hfft", n), (axis,), _opposite(norm), "hfft")


@gives_strong
def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """Inverse of `hfft`."""
    return conj(_to_half(a, _length("ihfft", n), (axis,), _opposite(norm), "ihfft"))


# ---------------------------------------------------------------- frequencies


def _frequencies(places: Array, n: int, d: float, dtype: Any, device: Any, name: str) -> Array:
    check_device(device, name)
    if n < 1:
        raise BadArgument(f"{name}: needs at least one sample, got n={n}")
    wanted = dt.default_float() if dtype is None else dt.canonicalize(dtype, explicit=True)
    return cast(places, wanted) * (1 / (n * d))


def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """The frequency of each term of `fft`, for n samples d apart: 0, 1, ..., -2, -1 over n d."""
    at = iota(dt.int32, (n,), 0)
    wrapped = OPS["select"](at < (n + 1) // 2, at, at - n)
    return _frequencies(wrapped, n, d, dtype, device, "fftfreq")


def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """The frequency of each term of `rfft`, for n samples d apart."""
    return _frequencies(iota(dt.int32, (n // 2 + 1,), 0), n, d, dtype, device, "rfftfreq")


def _shifted(name: str, doc: str, amount: Callable[[int], int]) -> Callable[..., Array]:
    def function(x: Any, axes: Any = None) -> Array:
        value = value_of(x, name)
        at = axes_tuple(axes, value.ndim, name)
        return roll(value, tuple(amount(value.shape[i]) for i in at), at)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


fftshift = _shifted("fftshift", "Frequency 0 moved to the middle of each axis.", lambda n: n // 2)
ifftshift = _shifted("ifftshift", "Inverse of `fftshift`.", lambda n: -(n // 2))


if not TYPE_CHECKING:  # TAB completion shows what is public
    __getattr__, __dir__ = _lazy(globals())
