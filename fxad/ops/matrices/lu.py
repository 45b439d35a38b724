"""LU factors with partial pivoting, and solutions of Sylvester equations.

    lu, pivots, perm = lu(a)    # f32[..., n, n] -> f32[..., n, n], i32[..., n], i32[..., n]
    x = sylvester(a, b, q)      # a @ x + x @ b = q

NumPy has neither; both are written in its terms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.loops import Factoring
from fxad.ops.base import Primitive, case, fails, only
from fxad.ops.matrices.base import check_matrix, flip, host_op, mm, op, places, regular, triangle
from fxad.ops.matrices.factor import triangular_solve
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Tangents, Value, Values
    from fxad.trace.array import Array

# ---------------------------------------------------------------- lu


def _lu_type(a: ArrayType) -> tuple[ArrayType, ...]:
    check_matrix("lu", a, square=True)
    rows = ArrayType(dt.int32, a.shape[:-1])
    return a, rows, rows


def _lu(a: np.ndarray) -> tuple[np.ndarray, ...]:
    """Column by column, all matrices of a batch at once (Golub and Van Loan, 3.4.1)."""
    size = a.shape[-1]
    work = a.reshape(math.prod(a.shape[:-2]), size, size).copy()
    perm = np.tile(np.arange(size, dtype=np.int32), (len(work), 1))
    pivots = np.zeros_like(perm)
    lanes = np.arange(len(work))
    for k in range(size):
        row = k + np.abs(work[:, k:, k]).argmax(axis=1)
        pivots[:, k] = row
        for table in (work, perm):
            kept = table[lanes, k].copy()
            table[lanes, k] = table[lanes, row]
            table[lanes, row] = kept
        pivot = work[:, k, k]
        scale = np.where(pivot == 0, 0, 1 / np.where(pivot == 0, 1, pivot))
        work[:, k + 1 :, k] *= scale[:, None]
        work[:, k + 1 :, k + 1 :] -= work[:, k + 1 :, k, None] * work[:, k, None, k + 1 :]
    rows = a.shape[:-1]
    return work.reshape(a.shape), pivots.reshape(rows), perm.reshape(rows)


def _permuted(a: Value, perm: Value) -> Value:
    """Rows in the order of perm, by a product with the permutation matrix."""
    like = type_of(a)
    _, columns = places(like)
    wanted = op("broadcast", perm, shape=like.shape, axes=tuple(range(like.ndim - 1)))
    return mm(op("convert", op("eq", wanted, columns), dtype=like.dtype), a)


def _lu_jvp(primals: Values, tangents: Tangents, outs: Values) -> Tangents:
    """With F = L^-1 P dA U^-1: dL = L tril(F, -1), dU = triu(F) U."""
    lu_, _, perm = outs
    moved = triangular_solve(lu_, _permuted(only(tangents), perm), lower=True, unit=True)
    inner = flip(triangular_solve(flip(lu_), flip(moved), lower=True, unit=False))
    strict = triangle(lu_, lower=True, strict=True)
    below = triangle(inner, lower=True, strict=True)
    left = op("add", below, mm(strict, below))  # L tril(F, -1), L of unit diagonal
    right = mm(triangle(inner, lower=False), triangle(lu_, lower=False))
    return op("add", left, right), None, None


lu = host_op(
    "lu",
    _lu,
    _lu_type,
    lambda a: Factoring("lu", a.dtype, math.prod(a.shape[:-2]), *a.shape[-2:]),
    divided=False,
    doc="Factors of a[perm] = L @ U in one matrix (L has a unit diagonal), row swaps, and perm.",
    jvp=_lu_jvp,
    samples=lambda r: [
        case(regular(r, 3, 3)),
        case(regular(r, 2, 4, 4)),
        fails(r.x(3, 2), saying="square"),
    ],
)

# ---------------------------------------------------------------- sylvester


def _sylvester_type(a: ArrayType, b: ArrayType, q: ArrayType) -> ArrayType:
    check_matrix("sylvester", a, square=True)
    check_matrix("sylvester", b, square=True)
    check_matrix("sylvester", q)
    if not a.dtype == b.dtype == q.dtype:
        raise TypeMismatch(f"sylvester: operands differ in dtype: {a}, {b}, {q}; convert them")
    if q.shape != (*a.shape[:-1], b.shape[-1]) or a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(f"sylvester: {a} @ x + x @ {b} = {q} does not fit")
    return q


def _sylvester(a: np.ndarray, b: np.ndarray, q: np.ndarray) -> np.ndarray:
    """As one linear system of the Kronecker sum: for matrices of moderate size."""
    m, n = q.shape[-2:]
    left = a[..., :, None, :, None] * np.eye(n, dtype=a.dtype)[:, None, :]
    right = (
        np.eye(m, dtype=a.dtype)[:, None, :, None] * np.swapaxes(b, -1, -2)[..., None, :, None, :]
    )
    system = (left + right).reshape(*q.shape[:-2], m * n, m * n)
    return np.linalg.solve(system, q.reshape(*q.shape[:-2], m * n, 1)).reshape(q.shape)


def _sylvester_jvp(primals: Values, tangents: Tangents, x: Value) -> Value | None:
    """a dx + dx b = dq - da x - x db."""
    da, db, dq = tangents
    moved: list[Value] = [op("neg", mm(da, x))] if da is not None else []
    moved += [op("neg", mm(x, db))] if db is not None else []
    moved += [dq] if dq is not None else []
    total = moved[0]
    for term in moved[1:]:
        total = op("add", total, term)
    return sylvester(primals[0], primals[1], total)


sylvester: Primitive[Array] = host_op(
    "sylvester",
    _sylvester,
    _sylvester_type,
    divided=False,  # nor one thread of LAPACK: the system has as many rows as q has elements
    doc="x with a @ x + x @ b = q; NaN where a and -b have an eigenvalue in common.",
    jvp=_sylvester_jvp,
    transpose=lambda ct, args: [None, None, sylvester(flip(args[0]), flip(args[1]), ct)],
    samples=lambda r: [
        case(regular(r, 3, 3), regular(r, 2, 2), r.x(3, 2)),
        case(regular(r, 2, 2, 2), regular(r, 2, 3, 3), r.x(2, 2, 3)),
        fails(r.x(3, 3), r.x(2, 2), r.x(2, 3), saying="does not fit"),
    ],
)
