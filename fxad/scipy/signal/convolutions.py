"""Convolution and correlation: along any number of axes, of matrices, by Fourier transforms.

convolve(image, kernel, mode="same")
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, UnsupportedError
from fxad.lax.convolution import conv_general_dilated
from fxad.numpy import conj, fft, flip, reshape
from fxad.numpy.core import axes_tuple, promoted
from fxad.numpy.manipulation import slice_axis
from fxad.trace.array import Array


def _pair(name: str, first: Any, second: Any, mode: str) -> tuple[Array, Array]:
    if mode not in ("full", "same", "valid"):
        raise BadArgument(f"{name}: mode must be full, same or valid, got {mode!r}")
    x, y = promoted(name, first, second, numbers=False, broadcast=False)
    if x.ndim != y.ndim or 0 in (*x.shape, *y.shape):
        raise ShapeError(
            f"{name}: expects two arrays with elements and equally many axes, got {x.type} and "
            f"{y.type}"
        )
    return x, y


def _correlated(x: Array, kernel: Array, padding: Any, precision: Any) -> Array:
    """Products of the kernel with the windows of x."""
    if not x.ndim:
        return x * kernel
    out = conv_general_dilated(
        reshape(x, (1, 1, *x.shape)),
        reshape(kernel, (1, 1, *kernel.shape)),
        (1,) * x.ndim,
        padding,
        precision=precision,
    )
    return reshape(out, out.shape[2:])


def _check_method(name: str, method: str) -> None:
    if method not in ("auto", "direct", "fft"):
        raise BadArgument(f"{name}: method must be auto, direct or fft, not {method!r}")


def convolve(
    in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None
) -> Array:
    """Convolution along all axes. "full": wherever the arrays overlap; "same": the middle, of
    in1's shape; "valid": where one lies within the other. method: "auto", "direct" or "fft", which
    changes nothing.

    Raises ShapeError if "valid" arrays are not nested, BadArgument for another mode or method.
    """
    _check_method("convolve", method)
    x, y = _pair("convolve", in1, in2, mode)
    pairs = list(zip(x.shape, y.shape, strict=True))
    if mode == "valid" and all(n <= m for n, m in pairs):
        x, y, pairs = y, x, [(m, n) for n, m in pairs]
    if mode == "valid" and not all(n >= m for n, m in pairs):
        raise ShapeError(f"convolve: neither of {x.type} and {y.type} lies within the other")
    pads = {
        "full": [(m - 1, m - 1) for _, m in pairs],
        "same": [(m - 1 - (m - 1) // 2, (m - 1) // 2) for _, m in pairs],
        "valid": [(0, 0)] * len(pairs),
    }[mode]
    if mode == "full" and x.size < y.size:  # the windows are of the larger one
        x, y, pads = y, x, [(n - 1, n - 1) for n, _ in pairs]
    return _correlated(x, flip(y), pads, precision)


def fftconvolve(
    in1: Any, in2: Any, mode: str = "full", axes: int | Sequence[int] | None = None
) -> Array:
    """`convolve` by Fourier transforms, along `axes` (one or several; default: all); the others
    broadcast.

    Fewer operations for long kernels; rounding errors are those of the largest results.
    """
    x, y = _pair("fftconvolve", in1, in2, mode)
    places = axes_tuple(axes, x.ndim, "fftconvolve")
    (x, y) = promoted("fftconvolve", x, y, inexact=True, numbers=False, broadcast=False)
    for i, (n, m) in enumerate(zip(x.shape, y.shape, strict=True)):
        if i not in places and n != m and 1 not in (n, m):
            raise ShapeError(f"fftconvolve: {x.type} and {y.type} differ along axis {i}")
    if mode == "valid" and all(x.shape[i] <= y.shape[i] for i in places):
        x, y = y, x
    if mode == "valid" and not all(x.shape[i] >= y.shape[i] for i in places):
        raise ShapeError(f"fftconvolve: neither of {x.type} and {y.type} lies within the other")
    if not places:
        return x * y
    sizes = [_fast_length(x.shape[i] + y.shape[i] - 1) for i in places]
    if dt.is_complex(x.dtype):
        out = fft.ifftn(fft.fftn(x, sizes, places) * fft.fftn(y, sizes, places), sizes, places)
    else:
        out = fft.irfftn(fft.rfftn(x, sizes, places) * fft.rfftn(y, sizes, places), sizes, places)
    for i in places:
        low = {"full": 0, "same": (y.shape[i] - 1) // 2, "valid": y.shape[i] - 1}[mode]
        length = {
            "full": x.shape[i] + y.shape[i] - 1,
            "same": x.shape[i],
            "valid": x.shape[i] - y.shape[i] + 1,
        }[mode]
        out = slice_axis(out, i, low, low + length)
    return out


_ODD = [3**i * 5**j for i in range(21) for j in range(14)]  # beyond 2**32


@functools.cache
def _fast_length(n: int) -> int:
    """The least length from n on that has no prime factor above 5: its transform is a fast one."""
    return min(f << max((n - 1) // f, 0).bit_length() for f in _ODD)


def correlate(
    in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None
) -> Array:
    """Cross-correlation along all axes: of in1 with the conjugate of in2."""
    _check_method("correlate", method)
    x, y = _pair("correlate", in1, in2, mode)
    y = conj(y) if dt.is_complex(y.dtype) else y
    return convolve(x, flip(y), mode, precision=precision)


def _flat(name: str, in1: Any, in2: Any, mode: str) -> tuple[Array, Array]:
    x, y = _pair(name, in1, in2, mode)
    if x.ndim != 2:
        raise ShapeError(f"{name}: takes matrices, got {x.type} and {y.type}")
    return x, y


def convolve2d(
    in1: Any,
    in2: Any,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: Any = None,
) -> Array:
    """Convolution of two matrices, zeros outside. Raises BadArgument for another boundary."""
    _zeros_outside("convolve2d", boundary, fillvalue)
    return convolve(*_flat("convolve2d", in1, in2, mode), mode, precision=precision)


def correlate2d(
    in1: Any,
    in2: Any,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: Any = None,
) -> Array:
    """Cross-correlation of two matrices, zeros outside. Raises BadArgument for another boundary.

    As in SciPy and JAX, "same" is the full result less its first m // 2 and last (m - 1) // 2 rows,
    for m rows of in2, and as many columns: for even m it begins one later than `correlate` does.
    "valid" of an in1 that lies within in2 conjugates in1, not in2.
    """
    _zeros_outside("correlate2d", boundary, fillvalue)
    x, y = _flat("correlate2d", in1, in2, mode)
    if mode == "same":
        y = conj(y) if dt.is_complex(y.dtype) else y
        pads = [((m - 1) // 2, m - 1 - (m - 1) // 2) for m in y.shape]
        return _correlated(x, y, pads, precision)
    out = correlate(x, y, mode, precision=precision)
    within = x.shape != y.shape and all(n <= m for n, m in zip(x.shape, y.shape, strict=True))
    return conj(out) if mode == "valid" and within and dt.is_complex(out.dtype) else out


def _zeros_outside(name: str, boundary: str, fillvalue: float) -> None:
    if boundary != "fill" or fillvalue != 0:
        raise UnsupportedError(
            f"{name}: outside there are zeros; boundary={boundary!r} with fillvalue={fillvalue!r} "
            "needs fxad.numpy.pad and mode='valid'"
        )
