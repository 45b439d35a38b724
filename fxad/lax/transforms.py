"""`fft` with `jax.lax`'s arguments: a kind, and the lengths of the last axes.

spectrum = fft(x, FftType.RFFT, (64,))
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from fxad.core.errors import BadArgument, ShapeError
from fxad.numpy import fft as transforms
from fxad.numpy.core import value_of
from fxad.trace.array import Array


class FftType(enum.IntEnum):
    """Which transform.

    >>> [kind.name for kind in fxad.lax.FftType]
    ['FFT', 'IFFT', 'RFFT', 'IRFFT']
    """

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


_FUNCTIONS = {
    FftType.FFT: transforms.fftn,
    FftType.IFFT: transforms.ifftn,
    FftType.RFFT: transforms.rfftn,
    FftType.IRFFT: transforms.irfftn,
}


def fft(x: Any, fft_type: FftType | str | int, fft_lengths: Sequence[int]) -> Array:
    """The transform of the last axes of x, whose lengths are given; of IRFFT, those of the result.

    fft_type: an FftType, its number, or its name in any case. Raises BadArgument for another,
    ShapeError for lengths that x does not have.

    >>> fxad.lax.fft(jnp.array([1.0, 0.0, -1.0, 0.0]), "RFFT", (4,))  # all in frequency 1
    Array([0.+0.j, 2.+0.j, 0.+0.j], dtype=complex64)
    """
    value = value_of(x, "fft")
    kinds = {kind.name.lower(): kind for kind in FftType} | {int(kind): kind for kind in FftType}
    kind = kinds.get(fft_type.lower() if isinstance(fft_type, str) else fft_type)
    if kind is None:
        raise BadArgument(f"fft: fft_type must be one of {', '.join(FftType.__members__)}")
    lengths = tuple(fft_lengths)
    seen = value.shape[value.ndim - len(lengths) :]
    wanted = lengths
    if kind is FftType.IRFFT and lengths:
        wanted = (*lengths[:-1], lengths[-1] // 2 + 1)
    if seen != wanted or len(lengths) > value.ndim:
        raise ShapeError(f"fft: {kind.name} of lengths {lengths} needs {wanted}, got {value.type}")
    if not lengths:
        return value
    return _FUNCTIONS[kind](value, lengths, tuple(range(-len(lengths), 0)))
