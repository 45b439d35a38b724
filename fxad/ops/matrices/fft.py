"""Discrete Fourier transforms: of lengths without large prime factors natively, where compiled.

    y = fft(x, axes=(-2, -1), inverse=False)   # c64[..., m, n] -> c64[..., m, n]
    y = rfft(x, axis=-1)                       # f32[..., n] -> c64[..., n // 2 + 1]
    x = irfft(y, axis=-1, n=8)                 # c64[..., 5] -> f32[..., 8]

None of them scales: y_k = sum over j of x_j exp(-2 pi i j k / n), with + where `inverse`. Axes are
counted from the end, so that a batch axis in front changes nothing. All are linear, and the matrix
of a transform is symmetric: `fft` is its own transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.loops import Fourier
from fxad.ops.arrays.movement import iota
from fxad.ops.base import Primitive, Sample, case, check_kind, fails, operand_type
from fxad.ops.matrices.base import host_op, op
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Cotangents, Draws, Operands, Value
    from fxad.trace.array import Array


def _check_axes(name: str, x: ArrayType, axes: Sequence[int]) -> None:
    if len(set(axes)) != len(axes) or not all(-x.ndim <= a < 0 for a in axes):
        raise ShapeError(
            f"{name}: axes must be distinct and counted from the end (-1 is the last), got "
            f"{tuple(axes)} for {x}"
        )


def _fft_type(x: ArrayType, *, axes: tuple[int, ...], inverse: bool) -> ArrayType:
    check_kind("fft", x, "complex")
    _check_axes("fft", x, axes)
    return x


def _fft(x: np.ndarray, *, axes: tuple[int, ...], inverse: bool) -> np.ndarray:
    if not x.size:
        return x.copy()
    norm: Any = "forward" if inverse else "backward"  # no factor
    for axis in reversed(
        axes
    ):  # as `fftn` does, which takes longer to begin than a short transform
        x = (np.fft.ifft if inverse else np.fft.fft)(x, axis=axis, norm=norm)
    return x


fft: Primitive[Array] = host_op(
    "fft",
    _fft,
    _fft_type,
    lambda x, *, axes, inverse: Fourier("fft", dt.real_of(x.dtype), x.shape, axes, inverse),
    doc="Unscaled discrete Fourier transform over axes counted from the end.",
    jvp="linear",
    transpose=lambda ct, args, **params: [fft(ct, **params)],
    dtypes="complex",
    samples=lambda r: [
        case(r.x(5), axes=(-1,), inverse=False),
        case(r.x(3, 4), axes=(-2,), inverse=True),
        case(r.x(2, 3, 4), axes=(-3, -1), inverse=False),
        case(r.x(0, 4), axes=(-1,), inverse=False),
        fails(r.x(3), axes=(0,), inverse=False, saying="counted from the end"),
    ],
)


def _folded(value: Value, axis: int, n: int, weight: float) -> Value:
    """Terms of a half spectrum times `weight`, but those that are their own mirror image."""
    type_ = type_of(value)
    place = iota(dtype=dt.int32, shape=type_.shape, axis=type_.ndim + axis)
    alone = op("eq", place, 0)
    if n % 2 == 0:
        alone = op("or", alone, op("eq", place, n // 2))
    return op("select", alone, value, op("mul", value, weight))


def _resized(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    at = len(shape) + axis
    return (*shape[:at], size, *shape[at + 1 :])


def _rfft_type(x: ArrayType, *, axis: int) -> ArrayType:
    _check_axes("rfft", x, (axis,))
    if x.dtype not in (dt.float32, dt.float64):
        raise TypeMismatch(f"rfft: takes float32 or float64, got {x}")
    return ArrayType(dt.complex_of(x.dtype), _resized(x.shape, axis, x.shape[axis] // 2 + 1))


def _rfft(x: np.ndarray, *, axis: int) -> np.ndarray:
    wanted = _rfft_type(ArrayType(x.dtype, x.shape), axis=axis)
    if not x.size:
        return np.zeros(wanted.shape, wanted.dtype)
    return np.fft.rfft(x, axis=axis).astype(wanted.dtype, copy=False)


def _rfft_transpose(ct: Value, args: Operands, *, axis: int) -> Cotangents:
    """x_j = Re sum_k ct_k exp(-i ...) is the sum of conj(ct), whose terms `irfft` counts twice."""
    n = operand_type(args[0]).shape[axis]
    return [irfft(_folded(op("conj", ct), axis, n, 0.5), axis=axis, n=n)]


def _wide(r: Draws, samples: list[Sample]) -> list[Sample]:
    return samples if r.dtype.itemsize >= 4 else []


rfft = host_op(
    "rfft",
    _rfft,
    _rfft_type,
    lambda x, *, axis: Fourier("rfft", x.dtype, x.shape, (axis,), n=x.shape[axis]),
    doc="Unscaled transform of real numbers: the first half of a spectrum that mirrors itself.",
    jvp="linear",
    transpose=_rfft_transpose,
    dtypes="float",
    samples=lambda r: _wide(
        r,
        [
            case(r.x(5), axis=-1),
            case(r.x(4), axis=-1),
            case(r.x(3, 6, 2), axis=-2),
            case(r.x(1), axis=-1),
            fails(r.x(3), axis=0, saying="counted from the end"),
        ],
    ),
)


def _irfft_type(y: ArrayType, *, axis: int, n: int) -> ArrayType:
    check_kind("irfft", y, "complex")
    _check_axes("irfft", y, (axis,))
    if n < 1 or y.shape[axis] != n // 2 + 1:
        raise ShapeError(
            f"irfft: {n} numbers have {n // 2 + 1} terms, but axis {axis} of {y} has "
            f"{y.shape[axis]}"
        )
    return ArrayType(dt.real_of(y.dtype), _resized(y.shape, axis, n))


def _irfft(y: np.ndarray, *, axis: int, n: int) -> np.ndarray:
    wanted = _irfft_type(ArrayType(y.dtype, y.shape), axis=axis, n=n)
    if not y.size:
        return np.zeros(wanted.shape, wanted.dtype)
    return np.fft.irfft(y, n, axis, norm="forward").astype(wanted.dtype, copy=False)


def _irfft_transpose(ct: Value, args: Operands, *, axis: int, n: int) -> Cotangents:
    return [_folded(op("conj", rfft(ct, axis=axis)), axis, n, 2.0)]


irfft = host_op(
    "irfft",
    _irfft,
    _irfft_type,
    lambda y, *, axis, n: Fourier("irfft", dt.real_of(y.dtype), y.shape, (axis,), True, n),
    doc="The unscaled inverse transform of a half spectrum: n real numbers.",
    jvp="linear",
    transpose=_irfft_transpose,
    dtypes="complex",
    samples=lambda r: [
        case(r.x(3), axis=-1, n=5),
        case(r.x(3), axis=-1, n=4),
        case(r.x(2, 4, 2), axis=-2, n=6),
        case(r.x(1), axis=-1, n=1),
        fails(r.x(3), axis=-1, n=8, saying="terms"),
    ],
)
