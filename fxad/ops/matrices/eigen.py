"""Eigenvalues and eigenvectors of general matrices, by LAPACK through NumPy.

    w, v = eig(a)           # f32[..., n, n] -> c64[..., n], c64[..., n, n]

Vectors have norm 1 and a real largest component, which fixes them up to a sign; the derivative
keeps both. Derivatives: C. Bishop, "Pattern Recognition and Machine Learning"; M. Giles (2008).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.types import ArrayType
from fxad.ops.base import case, fails, only, zeros
from fxad.ops.matrices.base import (
    check_matrix,
    diagonal,
    host_op,
    mm,
    op,
    over_rows,
)
from fxad.ops.matrices.factor import solve
from fxad.ops.matrices.spectral import gaps
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Draws, Tangents, Value, Values


def _complex_dtype(dtype: np.dtype) -> np.dtype:
    if dt.is_complex(dtype):
        return dtype
    return dt.complex_of(dtype if dtype.itemsize >= 4 else dt.float32)


def _eig_type(a: ArrayType) -> tuple[ArrayType, ArrayType]:
    check_matrix("eig", a, square=True)
    dtype = _complex_dtype(a.dtype)
    return ArrayType(dtype, a.shape[:-1]), ArrayType(dtype, a.shape)


def _eig(a: np.ndarray) -> tuple[np.ndarray, ...]:
    dtype = _complex_dtype(a.dtype)
    values, vectors = np.linalg.eig(a)
    return values.astype(dtype), vectors.astype(dtype)


def _turn_back(v: Value, turn: Value) -> Value:
    """Im(turn) / v of every column, where v is largest and so real (over rows)."""
    rank = type_of(v).ndim
    size = op("abs", v)
    if not type_of(v).size:
        return size
    peak = op("max_reduce", size, axes=(rank - 2,))
    chosen = op("eq", size, over_rows(peak, type_of(size)))
    # The first of equals, as LAPACK takes.
    so_far = op("cumsum", op("convert", chosen, dtype=dt.int32), axis=rank - 2, reverse=False)
    chosen = op("and", chosen, op("eq", so_far, 1))

    def at_largest(parts: Value) -> Value:
        return op("sum", op("select", chosen, parts, zeros(type_of(parts))), axes=(rank - 2,))

    ratio = op("div", at_largest(op("imag", turn)), at_largest(op("real", v)))
    return over_rows(ratio, type_of(size))


def _eig_jvp(primals: Values, tangents: Tangents, outs: Values) -> Tangents:
    """With M = V^-1 dA V: dw = diag(M) and dV = V (F * M) + V C, F_ij = 1 / (w_j - w_i), where the
    diagonal C keeps norms at 1 and the largest components real."""
    w, v = outs
    like = type_of(v)
    da = only(tangents)
    if type_of(da).dtype != like.dtype:
        da = op("convert", da, dtype=like.dtype)
    inner = solve(v, mm(da, v))
    turn = mm(v, op("mul", gaps(w, like), inner))
    along = op("real", op("mul", op("conj", v), turn))
    length = over_rows(op("sum", along, axes=(like.ndim - 2,)), type_of(along))
    correction = op("neg", op("complex", length, _turn_back(v, turn)))
    return diagonal(inner), op("add", turn, op("mul", v, correction))


def _apart(r: Draws, *shape: int) -> np.ndarray:
    """Sample: matrices with well separated eigenvalues, real for real dtypes."""
    x = r.x(*shape)
    return np.asarray(0.2 * x + np.diag(np.arange(1, shape[-1] + 1) * 2.0)).astype(x.dtype)


eig = host_op(
    "eig",
    _eig,
    _eig_type,
    doc="Eigenvalues, in no order, and eigenvectors in columns; complex.",
    jvp=_eig_jvp,
    samples=lambda r: [
        case(_apart(r, 3, 3)),
        case(_apart(r, 2, 2, 2)),
        fails(r.x(3, 2), saying="square"),
    ],
)
