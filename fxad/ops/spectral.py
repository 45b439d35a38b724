"""Eigenvalues, singular values and orthogonal factors, by LAPACK through NumPy.

    w, v = eigh(a)          # f32[..., n, n], symmetric -> f32[..., n], f32[..., n, n]
    u, s, vh = svd(a)       # f32[..., m, n] -> f32[..., m, k], f32[..., k], f32[..., k, n]
    q, r = qr(a)            # f32[..., m, n] -> f32[..., m, k], f32[..., k, n]; k = min(m, n)

Derivatives: M. Giles, "Collected matrix derivative results" (2008). Vectors of equal eigenvalues
or singular values have no derivative: the terms that couple them are taken as 0, which is right
for every function that does not depend on the choice of those vectors. Complex vectors are
determined up to a phase; their tangents keep the phase that LAPACK chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError
from fxad.core.types import ArrayType
from fxad.ops.base import Sample, case, fails, full, zeros
from fxad.ops.factor import triangular_solve
from fxad.ops.matrices import (
    adjoint,
    check_matrix,
    diagonal,
    flip,
    hermitian_part,
    host_op,
    mm,
    op,
    over_columns,
    over_rows,
    places,
    positive,
    real_dtype,
    real_part,
    regular,
    triangle,
)
from fxad.trace.tracer import type_of


def _safe_inverse(x: Any) -> Any:
    """1 / x, and 0 where x is 0, without an infinity that a derivative could meet."""
    type_ = type_of(x)
    zero = op("eq", x, zeros(type_))
    one = full(1, type_)
    return op("select", zero, zeros(type_), op("div", one, op("select", zero, one, x)))


def _gaps(values: Any, like: ArrayType) -> Any:
    """1 / (v_j - v_i) at [i, j]; 0 for equal values."""
    return _safe_inverse(op("sub", over_rows(values, like), over_columns(values, like)))


# ---------------------------------------------------------------- eigh


def _eigh_type(a: ArrayType) -> tuple[ArrayType, ArrayType]:
    check_matrix("eigh", a, square=True)
    return ArrayType(real_dtype(a.dtype), a.shape[:-1]), a


def _eigh(a: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.linalg.eigh((a + np.conj(np.swapaxes(a, -1, -2))) / 2))


def _eigh_jvp(primals: Sequence[Any], tangents: Sequence[Any], outs: Any) -> Any:
    """dw = diag(M), dV = V (F * M) with M = V^H dA V and F_ij = 1 / (w_j - w_i)."""
    w, v = outs
    inner = mm(adjoint(v), mm(hermitian_part(tangents[0]), v))
    gaps = _gaps(w, type_of(v))
    return real_part(diagonal(inner)), mm(v, op("mul", gaps, inner))


eigh = host_op(
    "eigh",
    _eigh,
    _eigh_type,
    doc="Ascending eigenvalues of (a + a^H) / 2, and eigenvectors in columns.",
    jvp=_eigh_jvp,
    samples=lambda r: [
        # Phases of complex vectors are LAPACK's choice: only one by one matrices are comparable.
        *([] if dt.is_complex(r.dtype) else [case(positive(r, 3, 3)), case(positive(r, 2, 2, 2))]),
        case(positive(r, 1, 1)),
        fails(r.x(3, 2), saying="square"),
    ],
)

# ---------------------------------------------------------------- svd


def _svd_type(a: ArrayType) -> tuple[ArrayType, ArrayType, ArrayType]:
    check_matrix("svd", a)
    *lead, m, n = a.shape
    k = min(m, n)
    return (
        ArrayType(a.dtype, (*lead, m, k)),
        ArrayType(real_dtype(a.dtype), (*lead, k)),
        ArrayType(a.dtype, (*lead, k, n)),
    )


def _outside(da: Any, basis: Any, along: Any, s: Any) -> Any:
    """(I - B B^H) dA W / s: what moves the columns of B out of their span."""
    moved = mm(da, along)
    rest = op("sub", moved, mm(basis, mm(adjoint(basis), moved)))
    return op("mul", rest, _safe_inverse(over_rows(s, type_of(rest))))


def _svd_jvp(primals: Sequence[Any], tangents: Sequence[Any], outs: Any) -> Any:
    """With D = U^H dA V, s_i s_j known: dU = U (F * (D s + s D^H)), dV = V (F * (s D + D^H s)),
    F_ij = 1 / (s_j^2 - s_i^2), plus the parts outside the spans of U and V."""
    u, s, vh = outs
    da, v = tangents[0], adjoint(vh)
    inner = mm(mm(adjoint(u), da), v)
    like = type_of(inner)
    gaps = _gaps(op("mul", s, s), like)
    right, left = op("mul", inner, over_rows(s, like)), op("mul", inner, over_columns(s, like))
    turn_u = op("mul", gaps, op("add", right, adjoint(right)))
    turn_v = op("mul", gaps, op("add", left, adjoint(left)))
    if dt.is_complex(like.dtype):
        # The phase of D_ii goes to U; V keeps its own.
        skew = op("mul", op("sub", inner, adjoint(inner)), 0.5)
        phase = op("select", op("eq", *places(like)), skew, zeros(like))
        turn_u = op("add", turn_u, op("mul", phase, _safe_inverse(over_rows(s, like))))
    du, dv = mm(u, turn_u), mm(v, turn_v)
    m, n = type_of(da).shape[-2:]
    if m > n:
        du = op("add", du, _outside(da, u, v, s))
    if n > m:
        dv = op("add", dv, _outside(adjoint(da), v, u, s))
    return du, real_part(diagonal(inner)), adjoint(dv)


def _svd_cases(r: Any) -> list[Sample]:
    a = positive(r, 2, 3, 3)
    return [case(a), case(a[..., :2]), case(a[0, :2])]


svd = host_op(
    "svd",
    lambda a: tuple(np.linalg.svd(a, full_matrices=False)),
    _svd_type,
    doc="Thin singular value decomposition: a = (u * s) @ vh, s descending.",
    jvp=_svd_jvp,
    samples=lambda r: [
        *([] if dt.is_complex(r.dtype) else _svd_cases(r)),  # phases: as for eigh
        fails(r.x(3), saying="expects matrices"),
    ],
)

# ---------------------------------------------------------------- qr


def _qr_type(a: ArrayType) -> tuple[ArrayType, ArrayType]:
    check_matrix("qr", a)
    *lead, m, n = a.shape
    k = min(m, n)
    return ArrayType(a.dtype, (*lead, m, k)), ArrayType(a.dtype, (*lead, k, n))


def _qr_jvp(primals: Sequence[Any], tangents: Sequence[Any], outs: Any) -> Any:
    """With C = Q^H dA R^-1 and its skew part W, of which R keeps a real diagonal:
    dQ = dA R^-1 + Q (W - C), dR = (C - W) R."""
    q, r = outs
    da = tangents[0]
    m, n = type_of(da).shape[-2:]
    if m < n:
        raise ShapeError(
            f"qr: matrices with fewer rows than columns have no derivative rule, got {type_of(da)};"
            " factor the first columns alone"
        )
    slope = flip(triangular_solve(flip(r), flip(da), lower=True, unit=False))
    inner = mm(adjoint(q), slope)
    below = triangle(inner, lower=True, strict=True)
    turn = op("sub", below, adjoint(below))
    like = type_of(inner)
    if dt.is_complex(like.dtype):
        skew = op("mul", op("sub", inner, adjoint(inner)), 0.5)
        turn = op("add", turn, op("select", op("eq", *places(like)), skew, zeros(like)))
    return op("add", slope, mm(q, op("sub", turn, inner))), mm(op("sub", inner, turn), r)


qr = host_op(
    "qr",
    lambda a: tuple(np.linalg.qr(a)),
    _qr_type,
    doc="Reduced QR: orthonormal columns q and upper triangle r with a = q @ r.",
    jvp=_qr_jvp,
    samples=lambda r: [
        case(regular(r, 3, 3)),
        case(regular(r, 2, 4, 2)),
        fails(r.x(3), saying="expects matrices"),
    ],
)
