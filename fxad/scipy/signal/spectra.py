"""Spectra of signals, from windowed segments that overlap: stft and its inverse, csd, welch.

frequencies, times, spectra = stft(signal, fs=8000.0, nperseg=256)      # [129, frames]
times, signal = istft(spectra, fs=8000.0)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.lax import complex as complex_
from fxad.numpy import (
    asarray,
    broadcast_to,
    concatenate,
    conj,
    fft,
    flip,
    imag,
    mean,
    median,
    moveaxis,
    pad,
    real,
    sqrt,
    sum,
    where,
    zeros,
)
from fxad.numpy.core import axis_index, promoted, value_of
from fxad.scipy.signal.trends import detrend as without_trend
from fxad.scipy.signal.windows import window as named_window
from fxad.trace.array import Array

Trend = Callable[[Array], Array]


class _Segments(NamedTuple):
    """A window [size], how far apart segments begin, and how long their transforms are."""

    window: Array
    size: int
    step: int
    transform: int


def _segments(
    name: str,
    window: Any,
    nperseg: int | None,
    noverlap: int | None,
    nfft: int | None,
    length: int | None,
    dtype: np.dtype,
) -> _Segments:
    """The segments of a signal of this length (None: any)."""
    if nperseg is not None and nperseg < 1:
        raise BadArgument(f"{name}: nperseg must be a positive integer, got {nperseg}")
    if isinstance(window, str | tuple):
        size = length if nperseg is None else int(nperseg)
        assert size is not None
        if length is not None and size > length:
            warnings.warn(
                f"{name}: nperseg={size} is more than the signal's length; using {length}",
                stacklevel=4,
            )
            size = length
        weights = asarray(named_window(window, size).astype(dtype))
    else:
        weights = asarray(window, dtype=dtype)
        size = weights.size if nperseg is None else int(nperseg)
        if weights.shape != (size,):
            raise ShapeError(f"{name}: window must be a vector of {size}, got {weights.type}")
        if length is not None and size > length:
            raise ShapeError(f"{name}: the window of {size} is longer than the signal of {length}")
    overlap = size // 2 if noverlap is None else int(noverlap)
    if not 0 <= overlap < size:
        raise BadArgument(f"{name}: noverlap={overlap} must be less than the segments' {size}")
    transform = size if nfft is None else int(nfft)
    if transform < size:
        raise BadArgument(f"{name}: nfft={transform} must not be less than the segments' {size}")
    return _Segments(weights, size, size - overlap, transform)


def _trend(name: str, detrend: Any) -> Trend:
    """What is done to segments [..., size] before they are weighted."""
    if callable(detrend):
        return detrend
    if isinstance(detrend, str):
        return lambda segments: without_trend(segments, type=detrend)
    if detrend:
        raise BadArgument(
            f"{name}: detrend must be False, 'constant', 'linear' or a function, not {detrend!r}"
        )
    return lambda segments: segments


def _places(frames: int, part: _Segments) -> np.ndarray:
    """The positions [frames, size] of the elements of each segment."""
    return part.step * np.arange(frames)[:, None] + np.arange(part.size)


def _extended(name: str, x: Array, boundary: str | None, width: int) -> Array:
    """The last axis, longer at both ends."""
    widths = [(0, 0)] * (x.ndim - 1) + [(width, width)]
    modes = {"zeros": "constant", "constant": "edge", "even": "reflect"}
    if boundary is None or not width:
        return x
    if boundary in modes:
        return pad(x, widths, modes[boundary])
    if boundary != "odd":
        raise BadArgument(
            f"{name}: boundary must be 'zeros', 'constant', 'even', 'odd' or None, not {boundary!r}"
        )
    before = 2 * x[..., :1] - flip(x[..., 1 : width + 1], -1)
    after = 2 * x[..., -1:] - flip(x[..., -width - 1 : -1], -1)
    return concatenate([before, x, after], -1)


def _lengthened(x: Array, count: int) -> Array:
    """The last axis with zeros after it."""
    return pad(x, [(0, 0)] * (x.ndim - 1) + [(0, count)]) if count else x


def _spectra(x: Array, part: _Segments, trend: Trend, one_sided: bool) -> Array:
    """Of a signal [..., time], the spectra of its segments [..., frames, frequencies]."""
    frames = 1 + (x.shape[-1] - part.size) // part.step
    weighted = trend(x[..., _places(frames, part)]) * part.window
    return (fft.rfft if one_sided else fft.fft)(weighted, part.transform)


def _frequencies(part: _Segments, fs: Any, one_sided: bool, dtype: np.dtype) -> Array:
    find = np.fft.rfftfreq if one_sided else np.fft.fftfreq
    return asarray(find(part.transform).astype(dtype)) * fs


def _one_sided(name: str, wanted: bool, *signals: Array) -> bool:
    """Whether half of the spectrum says all: of real signals."""
    if wanted and any(dt.is_complex(x.dtype) for x in signals):
        warnings.warn(f"{name}: complex signals have two-sided spectra", stacklevel=4)
        return False
    return wanted


def _real_dtype(x: Array) -> np.dtype:
    return dt.float64 if x.dtype in (dt.float64, dt.complex128) else dt.float32


def _float(name: str, *signals: Any) -> list[Array]:
    """Signals in one dtype, at least float32."""
    given = [value_of(x, name) for x in signals]
    values = promoted(name, *given, inexact=True, numbers=False, broadcast=False)
    return [x if dt.is_complex(x.dtype) else x.astype(_real_dtype(x)) for x in values]


def stft(
    x: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> tuple[Array, Array, Array]:
    """Short-time Fourier transform along an axis: frequencies, times, and spectra, in which
    frequencies take the axis' place and times come last.

    Segments of `nperseg` elements overlap by `noverlap` (half of one by default) and are weighted
    with a window: a name, a name and its parameter, or an array. Transforms have `nfft` elements,
    those beyond a segment zeros. The signal is extended at both ends as `boundary` says ("zeros",
    "constant", "even", "odd" or None) and, if `padded`, to whole segments. `detrend` is the type of
    `detrend`, or a function of segments [..., time]. Spectra are divided by the window's sum.
    """
    (value,) = _float("stft", x)
    at = axis_index(axis, value.ndim, "stft")
    dtype = _real_dtype(value)
    part = _segments("stft", window, nperseg, noverlap, nfft, value.shape[at], dtype)
    one_sided = _one_sided("stft", return_onesided, value)
    value = _extended("stft", moveaxis(value, at, -1), boundary, part.size // 2)
    if padded:
        value = _lengthened(value, (part.size - value.shape[-1]) % part.step % part.size)
    found = _spectra(value, part, _trend("stft", detrend), one_sided)
    found = moveaxis(found / sqrt(sum(part.window) ** 2), -1, at)
    first = 0 if boundary is not None else part.size / 2
    times = asarray((first + part.step * np.arange(found.shape[-1])).astype(dtype)) / fs
    return _frequencies(part, fs, one_sided, dtype), times, found


def istft(
    Zxx: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Array, Array]:
    """Inverse of `stft` with the same window and overlap: times, and the signal, whose axis takes
    the place of `time_axis` once `freq_axis` is gone.

    The signal with the least squared difference from the segments: their sum, each weighted with
    the window once more, divided by that of the squared windows (Griffin and Lim, "Signal
    estimation from modified short-time Fourier transform", 1984). `boundary` says that `stft`
    extended the signal.
    """
    (spectra,) = _float("istft", Zxx)
    time, frequency = (axis_index(axis, spectra.ndim, "istft") for axis in (time_axis, freq_axis))
    if time == frequency:
        raise BadArgument(f"istft: times and frequencies must be different axes, not both {time}")
    terms, dtype = spectra.shape[frequency], _real_dtype(spectra)
    usual = 2 * (terms - 1) if input_onesided else terms
    if nfft is None:
        nfft = usual + int(input_onesided and nperseg == usual + 1)
    part = _segments("istft", window, nperseg or usual, noverlap, nfft, None, dtype)
    spectra = moveaxis(spectra, (time, frequency), (-2, -1))
    segments = (fft.irfft if input_onesided else fft.ifft)(spectra, part.transform)
    segments = segments[..., : part.size] * (sum(part.window) * part.window)
    frames = segments.shape[-2]
    places = _places(frames, part)
    length = part.step * (frames - 1) + part.size
    joined = zeros((*segments.shape[:-2], length), segments.dtype).at[..., places].add(segments)
    squares = broadcast_to(part.window**2, (frames, part.size))
    weights = zeros(length, dtype).at[places].add(squares)
    if boundary:
        half = part.size // 2
        joined, weights = joined[..., half : length - half], weights[half : length - half]
    joined = joined / where(weights > 1e-10, weights, 1)
    times = asarray(np.arange(joined.shape[-1]).astype(dtype)) / fs
    return times, moveaxis(joined, -1, time - (frequency < time))


def _scale(name: str, scaling: str, fs: Any, weights: Array) -> Array:
    if scaling == "density":
        return 1 / (fs * sum(weights**2))
    if scaling == "spectrum":
        return 1 / sum(weights) ** 2
    raise BadArgument(f"{name}: scaling must be 'density' or 'spectrum', not {scaling!r}")


def _average(name: str, values: Array, average: str) -> Array:
    """Over the last axis but one. A median is divided by its bias, that of samples with the
    exponential distribution: Allen et al., "FINDCHIRP", 2012, appendix B."""
    if average == "mean":
        return mean(values, -2)
    if average != "median":
        raise BadArgument(f"{name}: average must be 'mean' or 'median', not {average!r}")
    even = 2.0 * np.arange(1, (values.shape[-2] - 1) // 2 + 1)
    bias = 1 + np.sum(1 / (even + 1) - 1 / even)
    if not dt.is_complex(values.dtype):
        return median(values, -2) / bias
    return complex_(median(real(values), -2) / bias, median(imag(values), -2) / bias)


def csd(
    x: Any,
    y: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """Cross power spectral density of two signals by Welch's method: frequencies, and the averages
    of conj(X) Y over segments; real if y is None, which stands for x.

    The shorter signal is lengthened with zeros, other axes broadcast. `nperseg` is the whole signal
    by default, as in JAX (SciPy's is 256); the other parameters are those of `stft`. "density": per
    unit of frequency; "spectrum": for each frequency. One-sided spectra hold the power of negative
    frequencies too. `average` is "mean" or "median".
    """
    return _welch("csd", x, y, fs, window, nperseg, noverlap, nfft, detrend, return_onesided,
                  scaling, axis, average)  # fmt: skip


def _welch(
    name: str, x: Any, y: Any, fs: Any, window: Any, nperseg: Any, noverlap: Any, nfft: Any,
    detrend: Any, return_onesided: bool, scaling: str, axis: int, average: str,
) -> tuple[Array, Array]:  # fmt: skip
    signals = _float(name, x) if y is None else _float(name, x, y)
    if len({signal.ndim for signal in signals}) > 1:
        raise ShapeError(f"{name}: {signals[0].type} and {signals[1].type} differ in their axes")
    at, dtype = axis_index(axis, signals[0].ndim, name), _real_dtype(signals[0])
    part = _segments(name, window, nperseg, noverlap, nfft, signals[0].shape[at], dtype)
    one_sided = _one_sided(name, return_onesided, *signals)
    trend = _trend(name, detrend)
    length = max(signal.shape[at] for signal in signals)
    signals = [moveaxis(signal, at, -1) for signal in signals]
    signals = [_lengthened(signal, length - signal.shape[-1]) for signal in signals]
    spectra = [_spectra(signal, part, trend, one_sided) for signal in signals]
    power = conj(spectra[0]) * spectra[-1] * _scale(name, scaling, fs, part.window)
    power = real(power) if y is None else power
    if one_sided:  # 0 has no negative counterpart, nor has the last one of an even number
        twice = np.full(power.shape[-1], 2, dtype)
        twice[0] = 1
        twice[-1] = 1 if part.transform % 2 == 0 else twice[-1]
        power = power * twice
    found = moveaxis(_average(name, power, average), -1, at)
    return _frequencies(part, fs, one_sided, dtype), found


def welch(
    x: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """Power spectral density by Welch's method: frequencies, and averages of |X|**2 over segments
    ("The use of fast Fourier transform for the estimation of power spectra", 1967). See `csd`."""
    return _welch("welch", x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided,
                  scaling, axis, average)  # fmt: skip
