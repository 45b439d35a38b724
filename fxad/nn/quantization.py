"""Matrices in 4 or 8 bits: blocks of 64 neighbours in a row share a float32 scale.

codes, scales = quantize(w, "nf4")                     # w [rows, columns]: 4.5 bits a number
y = x @ dequantize(codes, scales, w.shape[1], "nf4").T     # compiled, w is nowhere in memory
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from fxad.api.closures import linear_call
from fxad.api.custom import custom_jvp
from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.packed import BLOCK, CODES, NF4_LEVELS, blocks_of
from fxad.ir.program import OPS
from fxad.lax.ragged import by_groups
from fxad.lax.reductions import dot_general
from fxad.lax.shapes import dynamic_index_in_dim
from fxad.numpy.core import cast, full_of, value_of
from fxad.numpy.elementwise import abs, where
from fxad.numpy.manipulation import reshape
from fxad.numpy.padding import pad
from fxad.numpy.reductions import max
from fxad.numpy.rounding import rint
from fxad.trace.array import Array


def quantize(x: Any, format: str = "nf4") -> tuple[Array, Array]:
    """Codes and scales of a matrix [rows, columns] of floats: see `dequantize`.

    "nf4": the nearest of the 16 levels of NormalFloat4 (Dettmers et al., 2023), which are -1 ... 1,
    of x by its block's largest magnitude. codes: uint8 [rows, blocks * 32]; of a block, byte j
    holds the codes of elements j (low half) and j + 32. "int8": the nearest integer of x by its
    block's largest magnitude / 127. codes: int8 [rows, blocks * 64]. scales: float32 [rows,
    blocks]. Rows are padded with zeros to whole blocks of 64.

    Not differentiable. Raises TypeMismatch for another format and for x that are no floats,
    ShapeError for one that is no matrix.

    >>> w = fxad.random.normal(fxad.random.key(0), (4, 64))
    >>> codes, scales = fxad.nn.quantize(w)
    >>> codes.dtype, codes.shape, scales.shape
    (dtype('uint8'), (4, 32), (4, 1))
    """
    x = value_of(x, "quantize")
    _check_format("quantize", format)
    if not dt.is_float(x.dtype):
        raise TypeMismatch(f"quantize: takes floats, not {x.type}")
    if x.ndim != 2:
        raise ShapeError(f"quantize: takes a matrix, not {x.type}")
    x = cast(OPS["stop_gradient"](x), dt.float32)
    rows, blocks = x.shape[0], blocks_of(x.shape[1])
    missing = blocks * BLOCK - x.shape[1]
    x = pad(x, ((0, 0), (0, missing))) if missing else x
    x = reshape(x, (rows, blocks, BLOCK))
    largest = max(abs(x), axis=2) if x.size else reshape(x, (rows, blocks))
    scales = largest if format == "nf4" else largest / np.float32(127)
    normal = x / where(scales == 0, np.float32(1), scales)[:, :, None]
    if format == "int8":
        return reshape(cast(rint(normal), dt.int8), (rows, blocks * BLOCK)), scales
    codes = _nearest_level(normal)
    low, high = codes[:, :, : BLOCK // 2], codes[:, :, BLOCK // 2 :]
    return reshape(low | high << 4, (rows, blocks * BLOCK // 2)), scales


def _nearest_level(x: Any) -> Any:
    """How many midpoints between levels lie below each element."""
    found: Any = 0
    for low, high in pairwise(NF4_LEVELS):
        found = found + cast(x > np.float32((low + high) / 2), dt.uint8)
    return found


def dequantize(
    codes: Any, scales: Any, columns: int, format: str = "nf4", dtype: Any = None
) -> Array:
    """The matrix [rows, columns] that `quantize` made codes and scales of, up to rounding.

    Elements are level * scale in float32, rounded once to `dtype` (float32 by default). In
    compiled code a matrix that only products read is nowhere in memory: each product
    unpacks a panel of it at a time, and so do the products of their derivatives. Linear in scales.

    Raises TypeMismatch and ShapeError where codes, scales and columns do not go together.

    >>> w = fxad.random.normal(fxad.random.key(0), (4, 64))
    >>> again = fxad.nn.dequantize(*fxad.nn.quantize(w, "int8"), 64, "int8")
    >>> again.shape, abs(again - w).max() < 0.02
    ((4, 64), Array(True, dtype=bool))
    """
    codes, scales = value_of(codes, "dequantize"), value_of(scales, "dequantize")
    _check_format("dequantize", format)
    wanted = dt.float32 if dtype is None else dt.canonicalize(dtype, explicit=True)
    near = dt.float32 if wanted == dt.float64 else wanted
    found = OPS["dequantize"](codes, scales, format=format, columns=columns, dtype=near)
    return cast(found, wanted)


def quantized_ragged_dot(
    lhs: Any,
    codes: Any,
    scales: Any,
    group_sizes: Any,
    columns: int,
    format: str = "nf4",
    *,
    axis: int = 1,
    preferred_element_type: Any = None,
) -> Array:
    """`fxad.lax.ragged_dot` with matrices in few bits: the first group_sizes[0] rows of lhs times
    the first matrix, the next group_sizes[1] times the second, ...

    codes, scales: [g, rows, ...], of g matrices [rows, columns] as `quantize` gives them of each.
    lhs: [m, k]. axis: 1 multiplies with their transposes, as linear layers do with weights
    [out, in], so that k is `columns` and the result [m, rows]; 0 with the matrices, [m, columns]
    of k rows. They are unpacked to the dtype of lhs, a panel at a time: no matrix is in memory.
    Of codes and scales there is no derivative.

    Raises TypeMismatch and ShapeError where operands do not go together.

    >>> codes, scales = quantize(np.eye(2, dtype=np.float32), "int8")
    >>> rows = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    >>> two = np.stack([codes, codes]), np.stack([scales, 10 * scales])
    >>> print(quantized_ragged_dot(rows, *two, np.array([1, 2]), 2, "int8").round(3))
    [[ 1.  2.]
     [30. 40.]
     [50. 60.]]
    """
    lhs, codes, scales, sizes = (
        value_of(a, "quantized_ragged_dot") for a in (lhs, codes, scales, group_sizes)
    )
    _check_format("quantized_ragged_dot", format)
    if not (dt.is_float(lhs.dtype) and dt.is_integer(sizes.dtype)):
        raise TypeMismatch(
            f"quantized_ragged_dot: takes floats and integer sizes, not {lhs.type} and {sizes.type}"
        )
    good = lhs.ndim == 2 and codes.ndim == scales.ndim == 3 and axis in (0, 1)
    if not good or lhs.shape[1] != (codes.shape[1], columns)[axis] or sizes.shape != (len(codes),):
        raise ShapeError(
            f"quantized_ragged_dot: {lhs.type}, codes {codes.type}, scales {scales.type} and sizes "
            f"{sizes.type} do not go together over axis {axis} of matrices with {columns} columns"
        )
    wanted = lhs.dtype if preferred_element_type is None else preferred_element_type
    wanted = dt.canonicalize(wanted, explicit=True)
    constants = OPS["stop_gradient"](codes), OPS["stop_gradient"](scales), cast(sizes, dt.int32)
    return _ragged(columns, format, axis, wanted)(lhs, *constants)


def _ragged(columns: int, format: str, axis: int, dtype: Any) -> Any:
    """`quantized_ragged_dot` of lhs, codes, scales and sizes: linear in lhs."""

    def product(lhs: Array, codes: Array, scales: Array, sizes: Array) -> Array:
        rows = codes.shape[1]
        n = (columns, rows)[axis]
        if 0 in (*lhs.shape, *codes.shape):
            return full_of(0, ArrayType(dtype, (lhs.shape[0], n)))

        def times(some: Array, group: Array) -> Array:
            bits, each = (dynamic_index_in_dim(a, group, keepdims=False) for a in (codes, scales))
            matrix = dequantize(bits, each, columns, format, lhs.dtype)
            axes = (((1,), (axis,)), ((), ()))
            return dot_general(some, matrix, axes, preferred_element_type=dtype)

        return by_groups(times, lhs, n, sizes, dtype)

    @custom_jvp
    def linear(lhs: Array, *constants: Array) -> Array:
        return product(lhs, *constants)

    @linear.defjvp
    def rule(primals: Any, tangents: Any) -> tuple[Array, Array]:
        lhs, *constants = primals

        def forward(fixed: Any, x: Array) -> Array:
            return _ragged(columns, format, axis, dtype)(x, *fixed)

        def backward(fixed: Any, ct: Array) -> Array:
            narrow = cast(ct, lhs.dtype)
            return _ragged(columns, format, 1 - axis, lhs.dtype)(narrow, *fixed)

        slope = linear_call(forward, backward, tuple(constants), tangents[0])
        return linear(lhs, *constants), slope

    return linear


def _check_format(name: str, format: str) -> None:
    if format not in CODES:
        raise TypeMismatch(f"{name}: format must be one of {', '.join(CODES)}, not {format!r}")
