"""Eigenvalues, singular values and orthogonal factors, by LAPACK through NumPy where executors
have no code of their own (backend/llvm/factors).

    w, v = eigh(a)          # f32[..., n, n], symmetric -> f32[..., n], f32[..., n, n]
    u, s, vh = svd(a)       # f32[..., m, n] -> f32[..., m, k], f32[..., k], f32[..., k, n]
    q, r = qr(a)            # f32[..., m, n] -> f32[..., m, k], f32[..., k, n]; k = min(m, n)

    p = pinv(a, rtol=1e-6)  # f32[..., m, n] -> f32[..., n, m]

Derivatives: M. Giles, "Collected matrix derivative results" (2008); of pinv, G. Golub and
V. Pereyra (1973). Vectors of equal eigenvalues or singular values have no derivative: the terms
that couple them are left out, so tangents stay finite, and those of sums over the equal values
stay right. Complex vectors are determined up to a phase; their tangents are those of one choice.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError
from fxad.core.types import ArrayType
from fxad.ir.loops import Factoring
from fxad.ops.base import Sample, case, fails, only, zeros
from fxad.ops.base import full as filled
from fxad.ops.matrices.base import (
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
from fxad.ops.matrices.factor import triangular_solve
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Draws, Tangents, Value, Values


def _safe_inverse(x: Value) -> Value:
    """1 / x, and 0 where x is 0, without an infinity that a derivative could meet."""
    type_ = type_of(x)
    zero = op("eq", x, zeros(type_))
    one = filled(1, type_)
    return op("select", zero, zeros(type_), op("div", one, op("select", zero, one, x)))


def gaps(values: Value, like: ArrayType) -> Value:
    """1 / (v_j - v_i) at [i, j]; 0 for equal values."""
    return _safe_inverse(op("sub", over_rows(values, like), over_columns(values, like)))


# ---------------------------------------------------------------- eigh


def _eigh_type(a: ArrayType) -> tuple[ArrayType, ArrayType]:
    check_matrix("eigh", a, square=True)
    return ArrayType(real_dtype(a.dtype), a.shape[:-1]), a


def _eigh(a: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.linalg.eigh((a + np.conj(np.swapaxes(a, -1, -2))) / 2))


def _eigh_jvp(primals: Values, tangents: Tangents, outs: Values) -> Tangents:
    """dw = diag(M), dV = V (F * M) with M = V^H dA V and F_ij = 1 / (w_j - w_i)."""
    w, v = outs
    inner = mm(adjoint(v), mm(hermitian_part(only(tangents)), v))
    turn = op("mul", gaps(w, type_of(v)), inner)
    return real_part(diagonal(inner)), mm(v, turn)


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


def _svd_type(a: ArrayType, *, full: bool) -> tuple[ArrayType, ArrayType, ArrayType]:
    check_matrix("svd", a)
    *lead, m, n = a.shape
    k = min(m, n)
    return (
        ArrayType(a.dtype, (*lead, m, m if full else k)),
        ArrayType(real_dtype(a.dtype), (*lead, k)),
        ArrayType(a.dtype, (*lead, n if full else k, n)),
    )


def _no_completion(name: str, type_: ArrayType, completed: bool, instead: str) -> None:
    """The vectors that complete a basis are arbitrary: no derivative."""
    if completed and type_.shape[-1] != type_.shape[-2]:
        raise ShapeError(f"{name}: a completed basis of {type_} has no derivative; use {instead}")


def _outside(da: Value, basis: Value, along: Value, s: Value) -> Value:
    """(I - B B^H) dA W / s: what moves the columns of B out of their span."""
    moved = mm(da, along)
    rest = op("sub", moved, mm(basis, mm(adjoint(basis), moved)))
    return op("mul", rest, _safe_inverse(over_rows(s, type_of(rest))))


def _svd_jvp(primals: Values, tangents: Tangents, outs: Values, *, full: bool) -> Tangents:
    """With D = U^H dA V: dU = U (F * (D s + s D^H)), dV = V (F * (s D + D^H s)),
    F_ij = 1 / (s_j^2 - s_i^2), plus the parts outside the spans of U and V."""
    _no_completion("svd", type_of(primals[0]), full, "full_matrices=False")
    u, s, vh = outs
    da, v = only(tangents), adjoint(vh)
    inner = mm(mm(adjoint(u), da), v)
    like = type_of(inner)
    apart = gaps(op("mul", s, s), like)
    right, left = op("mul", inner, over_rows(s, like)), op("mul", inner, over_columns(s, like))
    turn_u = op("mul", apart, op("add", right, adjoint(right)))
    turn_v = op("mul", apart, op("add", left, adjoint(left)))
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


def _svd_cases(r: Draws) -> list[Sample]:
    a = positive(r, 2, 3, 3)
    thin = [case(m, full=False) for m in (a, a[..., :2], a[0, :2])]
    return [*thin, case(a[0], full=True)]


svd = host_op(
    "svd",
    lambda a, *, full: tuple(np.linalg.svd(a, full_matrices=full)),
    _svd_type,
    doc="Singular value decomposition a = (u * s) @ vh, s descending; `full`: square u and vh.",
    jvp=_svd_jvp,
    samples=lambda r: [
        *([] if dt.is_complex(r.dtype) else _svd_cases(r)),  # phases: as for eigh
        fails(r.x(3), full=False, saying="expects matrices"),
    ],
)

# ---------------------------------------------------------------- qr


def _qr_type(a: ArrayType, *, complete: bool) -> tuple[ArrayType, ArrayType]:
    check_matrix("qr", a)
    *lead, m, n = a.shape
    k = m if complete else min(m, n)
    return ArrayType(a.dtype, (*lead, m, k)), ArrayType(a.dtype, (*lead, k, n))


def _qr_jvp(primals: Values, tangents: Tangents, outs: Values, *, complete: bool) -> Tangents:
    """With C = Q^H dA R^-1 and its skew part W, of which R keeps a real diagonal:
    dQ = dA R^-1 + Q (W - C), dR = (C - W) R."""
    _no_completion("qr", type_of(primals[0]), complete, 'mode="reduced"')
    q, r = outs
    da = only(tangents)
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


def _qr_factoring(a: ArrayType, *, complete: bool) -> Factoring:
    m, n = a.shape[-2:]
    basis = m if complete else min(m, n)
    return Factoring("qr", a.dtype, math.prod(a.shape[:-2]), m, n, basis=basis)


qr = host_op(
    "qr",
    lambda a, *, complete: tuple(np.linalg.qr(a, "complete" if complete else "reduced")),
    _qr_type,
    _qr_factoring,
    doc="a = q @ r: orthonormal columns q, upper triangle r; `complete`: a square q.",
    jvp=_qr_jvp,
    samples=lambda r: [
        case(regular(r, 3, 3), complete=False),
        case(regular(r, 2, 4, 2), complete=False),
        case(regular(r, 3, 3), complete=True),
        fails(r.x(3), complete=False, saying="expects matrices"),
    ],
)

# ---------------------------------------------------------------- pinv


def _pinv_type(a: ArrayType, *, rtol: float) -> ArrayType:
    check_matrix("pinv", a)
    return ArrayType(a.dtype, (*a.shape[:-2], a.shape[-1], a.shape[-2]))


def _pinv_jvp(primals: Values, tangents: Tangents, p: Value, *, rtol: float) -> Value:
    """dP = -P dA P + P P^H dA^H (I - A P) + (I - P A) dA^H P^H P, at constant rank."""
    a, da = primals[0], only(tangents)
    inner = op("neg", mm(mm(p, da), p))
    ph, dah = adjoint(p), adjoint(da)
    left = mm(mm(p, ph), dah)
    right = mm(mm(dah, ph), p)
    left = op("sub", left, mm(mm(left, a), p))
    right = op("sub", right, mm(p, mm(a, right)))
    return op("add", inner, op("add", left, right))


pinv = host_op(
    "pinv",
    lambda a, *, rtol: np.linalg.pinv(a, rtol),
    _pinv_type,
    doc="Moore-Penrose inverse; singular values up to rtol times the largest count as 0.",
    jvp=_pinv_jvp,
    samples=lambda r: [
        case(regular(r, 3, 3), rtol=1e-6),
        case(regular(r, 2, 4, 2), rtol=1e-6),
        case(regular(r, 2, 3), rtol=1e-6),
        fails(r.x(3), rtol=1e-6, saying="expects matrices"),
    ],
)
