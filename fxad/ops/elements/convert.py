"""Ops between element types: convert, bitcast, and the parts of complex numbers.

convert(x, dtype=np.dtype("int8"))   # 300.7 -> 127, NaN -> 0
complex(re, im)                      # f32[3], f32[3] -> c64[3]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.kernel import Prim
from fxad.ir.loops import Pointwise
from fxad.ir.prims_numpy import complex_of_parts
from fxad.ops.base import ANY, case, check_kind, define, fails, known, narrow, only, operand_type
from fxad.ops.elements.arithmetic import neg
from fxad.ops.elements.pointwise import (
    Elementwise,
    common_shape,
    convert_loops,
    elementwise_batch,
    fit,
    prim,
    unary,
)

if TYPE_CHECKING:
    from fxad.ir.rules import Cotangents, Operands, Tangents, Value, Values

INTEGERS = (dt.bool_, dt.int8, dt.uint8, dt.int32, dt.uint32, dt.int64, dt.uint64)
FLOATS = (dt.float16, dt.bfloat16, dt.float32, dt.float64, dt.complex64, dt.complex128)
TARGETS = (*INTEGERS, *FLOATS)

# ---------------------------------------------------------------- convert


# Floats of a smaller size are in an integer's range (if they are not negative, where none is).
_BELOW = {d: np.array(float(dt.iinfo(d).max)) for d in dt.all_dtypes if dt.is_integer(d)}


def _convert_reference(x: np.ndarray, *, dtype: np.dtype) -> np.ndarray:
    if dt.is_complex(x.dtype) and not dt.is_complex(dtype):
        if dt.is_bool(dtype):
            return np.asarray(x != 0)
        x = x.real
    if dt.is_float(x.dtype) and dt.is_integer(dtype):
        return _saturate(x, dtype)
    if x.dtype.itemsize > 4 and dt.is_float(dtype) and dtype.itemsize < 4:
        x = x.astype(dt.float32)  # half-width floats are always reached through f32
    return narrow(x, dtype) if dt.is_inexact(x.dtype) else np.array(x).astype(dtype)


def _saturate(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Towards 0, clamped into the integer's range; NaN gives 0."""
    wide = x.astype(dt.float64)
    inside = np.count_nonzero(np.abs(wide) < _BELOW[dtype]) == wide.size  # so there is no NaN
    if inside and (dtype.kind == "i" or not np.count_nonzero(wide < 0)):
        return wide.astype(dtype)
    limits = dt.iinfo(dtype)
    wide = np.trunc(wide)
    low, high = wide <= limits.min, wide >= limits.max
    inside = np.where(low | high | np.isnan(wide), 0, wide).astype(dtype)
    return np.where(high, limits.max, np.where(low, limits.min, inside)).astype(dtype)


def _convert_type(x: ArrayType, *, dtype: np.dtype) -> ArrayType:
    if dtype not in dt.all_dtypes:
        raise TypeMismatch(f"convert: {dtype!r} is not a supported dtype")
    if x.dtype == dt.key:
        raise TypeMismatch(f"convert: typed random keys, {x}, are no numbers; take their key_data")
    return x.with_dtype(dtype)


def _convert_jvp(
    primals: Values, tangents: Tangents, out: Value, *, dtype: np.dtype
) -> Value | None:
    return convert(only(tangents), dtype=dtype) if dt.is_differentiable(dtype) else None


def _convert_transpose(ct: Value, args: Operands, *, dtype: np.dtype) -> Cotangents:
    return [convert(ct, dtype=operand_type(args[0]).dtype)]


convert = define(
    "convert",
    kind=Elementwise,
    doc="The nearest value of another dtype; float to int saturates towards 0, NaN gives 0; "
    "complex to real drops the imaginary part; integers wrap; to bool: x != 0.",
    type=_convert_type,
    numpy=_convert_reference,
    jvp=_convert_jvp,
    transpose=_convert_transpose,
    batch=elementwise_batch("convert"),
    loops=convert_loops,
    weak=(),
    exact=True,
    dtypes=ANY,
    samples=lambda r: [
        *(case(r.x(3, 4), dtype=dtype) for dtype in TARGETS),
        case(r.x(), dtype=dt.float32),
        *(
            [case(r.lit(v), dtype=dtype) for v in (6e4, -6e4, 2.7) for dtype in TARGETS]
            if dt.is_float(r.dtype)
            else []
        ),
        fails(r.x(2), dtype=np.dtype("M8[s]"), saying="not a supported dtype"),
    ],
)

# ---------------------------------------------------------------- bitcast


def _bitcast_type(x: ArrayType, *, dtype: np.dtype) -> ArrayType:
    check_kind("bitcast", x, "int float")
    check_kind("bitcast", x.with_dtype(dtype), "int float")
    if dtype.itemsize != x.dtype.itemsize:
        raise TypeMismatch(f"bitcast: {x} and {dtype} differ in width")
    return x.with_dtype(dtype)


def _bitcast_loops(types: Sequence[ArrayType], *, dtype: np.dtype) -> Pointwise:
    return Pointwise(lambda x: Prim("bitcast", (x,), dtype))


bitcast = unary(
    "bitcast",
    doc="The same bits read as another dtype of the same width.",
    numpy=np.asarray,
    reference=lambda x, *, dtype: np.array(x).view(dtype),
    type=_bitcast_type,
    loops=_bitcast_loops,
    weak=(),
    exact=True,
    dtypes="int float",
    samples=lambda r: [
        case(r.x(3, 4), dtype=np.dtype(f"u{r.dtype.itemsize}")),
        case(r.x(), dtype=np.dtype(f"i{r.dtype.itemsize}")),
        fails(r.x(2), dtype=np.dtype("u1" if r.dtype.itemsize > 1 else "u2"), saying="in width"),
        fails(r.x(2), dtype=dt.bool_, saying="does not take"),
    ],
)

# ---------------------------------------------------------------- complex numbers


real = unary(
    "real",
    doc="Real part of a complex array.",
    jvp="linear",
    transpose=lambda ct, args: [complex(ct, 0.0)],
    exact=True,
    dtypes="complex",
)
imag = unary(
    "imag",
    doc="Imaginary part of a complex array.",
    jvp="linear",
    transpose=lambda ct, args: [complex(0.0, neg(ct))],
    exact=True,
    dtypes="complex",
)
conj = unary(
    "conj",
    doc="Complex conjugate.",
    jvp="linear",
    transpose=lambda ct, args: [conj(ct)],
    exact=True,
    dtypes="complex",
)


def _complex_type(x: ArrayType, y: ArrayType) -> ArrayType:
    if x.dtype != y.dtype or x.dtype not in (dt.float32, dt.float64):
        raise TypeMismatch(f"complex: parts must both be f32 or both f64, got {x} and {y}")
    return ArrayType(dt.complex_of(x.dtype), common_shape("complex", (x, y)))


def _complex_transpose(ct: Value, args: Operands) -> Cotangents:
    x, y = args
    return [
        None if known(x) else fit(real(ct), x),
        None if known(y) else fit(neg(imag(ct)), y),
    ]


complex = define(
    "complex",
    kind=Elementwise,
    doc="x + i*y of two real arrays.",
    type=_complex_type,
    numpy=complex_of_parts,
    jvp=lambda primals, tangents, out: complex(*(0.0 if t is None else t for t in tangents)),
    transpose=_complex_transpose,
    batch=elementwise_batch("complex"),
    loops=prim("complex"),
    exact=True,
    dtypes="float",
    samples=lambda r: [
        *(
            [case(r.x(3, 4), r.x(3, 4)), case(r.x(5), r.lit(0)), case(r.x(), r.x())]
            if r.dtype.itemsize >= 4
            else [fails(r.x(3), r.x(3), saying="both be f32")]
        ),
        fails(r.x(3), r.i32(3), saying="complex: parts"),
    ],
)
