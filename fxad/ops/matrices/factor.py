"""Linear systems, determinants and Cholesky factors, by LAPACK through NumPy where executors have
no code of their own (backend/llvm/factors).

    x = solve(a, b)                       # f32[..., n, n], f32[..., n, k] -> f32[..., n, k]
    x = triangular_solve(a, b, lower=True, unit=False)
    sign, logdet = slogdet(a)             # f32[..., n, n] -> f32[...], f32[...]
    L = cholesky(a)                       # f32[..., n, n], symmetric -> lower triangle

All work on the last two axes; leading axes are batches and must be equal. A matrix that cannot be
factored gives NaNs, not an exception, so that one bad lane of a batch leaves the others alone.
Derivatives: M. Giles, "Collected matrix derivative results" (2008); I. Murray, "Differentiation
of the Cholesky decomposition" (2016).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.loops import Factoring
from fxad.ops.base import Primitive, case, fails, only, value_of, zeros
from fxad.ops.matrices.base import (
    adjoint,
    check_matrix,
    diagonal,
    flip,
    hermitian_part,
    host_op,
    mm,
    op,
    positive,
    real_dtype,
    regular,
    square_type,
    triangle,
)
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Cotangents, Operands, Tangents, Value, Values
    from fxad.trace.array import Array

# ---------------------------------------------------------------- linear systems


def _system_type(name: str) -> Callable[..., ArrayType]:
    def rule(a: ArrayType, b: ArrayType, **params: Any) -> ArrayType:
        check_matrix(name, a, square=True)
        check_matrix(name, b)
        if a.dtype != b.dtype:
            raise TypeMismatch(f"{name}: operands differ in dtype: {a}, {b}; convert one side")
        if a.shape[:-1] != b.shape[:-1]:
            raise ShapeError(f"{name}: {a} and {b} must agree in all axes but the last")
        return b

    return rule


def _system_jvp(again: Callable[..., Any], used: Callable[..., Any]) -> Callable[..., Any]:
    """dx = A^-1 (db - dA x), where only the entries of dA that `used` keeps count."""

    def rule(primals: Values, tangents: Tangents, x: Value, **params: Any) -> Value:
        da, db = tangents
        if da is not None:
            moved = mm(used(da, **params), x)
            db = op("neg", moved) if db is None else op("sub", db, moved)
        return again(primals[0], db, **params)

    return rule


solve: Primitive[Array] = host_op(
    "solve",
    np.linalg.solve,
    _system_type("solve"),
    lambda a, b: Factoring("solve", a.dtype, math.prod(a.shape[:-2]), *b.shape[-2:]),
    doc="x with a @ x = b; NaN where a is singular.",
    jvp=_system_jvp(lambda a, b: solve(a, b), lambda da: da),
    transpose=lambda ct, args: [None, solve(flip(args[0]), ct)],
    samples=lambda r: [
        case(regular(r, 3, 3), r.x(3, 2)),
        case(regular(r, 2, 4, 4), r.x(2, 4, 1)),
        case(r.x(0, 0), r.x(0, 2)),
        fails(r.x(3, 2), r.x(3, 2), saying="square"),
        fails(r.x(3, 3), r.x(2, 2), saying="must agree"),
    ],
)


def _triangular_solve(a: np.ndarray, b: np.ndarray, *, lower: bool, unit: bool) -> np.ndarray:
    kept = np.tril(a) if lower else np.triu(a)
    if unit:
        numbers = np.arange(a.shape[-1])
        kept[..., numbers, numbers] = 1
    return np.linalg.solve(kept, b)


def _triangular_transpose(ct: Value, args: Operands, *, lower: bool, unit: bool) -> Cotangents:
    return [None, triangular_solve(flip(value_of(args[0])), ct, lower=not lower, unit=unit)]


triangular_solve: Primitive[Array] = host_op(
    "triangular_solve",
    _triangular_solve,
    _system_type("triangular_solve"),
    lambda a, b, **params: Factoring(
        "triangular_solve", a.dtype, math.prod(a.shape[:-2]), *b.shape[-2:], **params
    ),
    doc="x with T @ x = b, T one triangle of a; `unit`: with ones on its diagonal.",
    jvp=_system_jvp(
        lambda a, b, **params: triangular_solve(a, b, **params),
        lambda da, *, lower, unit: triangle(da, lower, strict=unit),
    ),
    transpose=_triangular_transpose,
    samples=lambda r: [
        case(regular(r, 3, 3), r.x(3, 2), lower=True, unit=False),
        case(regular(r, 2, 3, 3), r.x(2, 3, 1), lower=False, unit=False),
        case(regular(r, 3, 3), r.x(3, 2), lower=True, unit=True),
        fails(r.x(3, 2), r.x(3, 2), lower=True, unit=False, saying="square"),
    ],
)

# ---------------------------------------------------------------- determinants


def _slogdet_type(a: ArrayType) -> tuple[ArrayType, ArrayType]:
    check_matrix("slogdet", a, square=True)
    return ArrayType(a.dtype, a.shape[:-2]), ArrayType(real_dtype(a.dtype), a.shape[:-2])


def _slogdet_jvp(primals: Values, tangents: Tangents, outs: Values) -> Tangents:
    """d log det A = tr(A^-1 dA): its real part moves the size, the other one the phase."""
    relative = diagonal(solve(primals[0], only(tangents)))
    trace = op("sum", relative, axes=(type_of(relative).ndim - 1,))
    if not dt.is_complex(type_of(trace).dtype):
        return None, trace
    size = op("real", trace)
    turn = op("sub", trace, op("complex", size, zeros(type_of(size))))
    return op("mul", outs[0], turn), size


slogdet = host_op(
    "slogdet",
    lambda a: tuple(np.linalg.slogdet(a)),
    _slogdet_type,
    lambda a: Factoring("slogdet", a.dtype, math.prod(a.shape[:-2]), *a.shape[-2:]),
    doc="Sign (or phase) of the determinant, and the log of its absolute value.",
    jvp=_slogdet_jvp,
    samples=lambda r: [
        case(regular(r, 3, 3)),
        case(regular(r, 2, 2, 2)),
        fails(r.x(3, 2), saying="square"),
    ],
)

# ---------------------------------------------------------------- cholesky


def _cholesky(a: np.ndarray) -> np.ndarray:
    return np.linalg.cholesky((a + np.conj(np.swapaxes(a, -1, -2))) / 2)


def _cholesky_jvp(primals: Values, tangents: Tangents, low: Value) -> Value:
    """dL = L Phi(L^-1 dA L^-H); Phi keeps the lower triangle and half the diagonal."""
    half = triangular_solve(low, hermitian_part(only(tangents)), lower=True, unit=False)
    inner = triangular_solve(low, adjoint(half), lower=True, unit=False)
    twice = op("add", triangle(inner, True), triangle(inner, True, strict=True))
    return mm(low, op("mul", twice, 0.5))


cholesky = host_op(
    "cholesky",
    _cholesky,
    square_type("cholesky"),
    lambda a: Factoring("cholesky", a.dtype, math.prod(a.shape[:-2]), *a.shape[-2:]),
    doc="Lower L with L @ L^H = (a + a^H) / 2; NaN where that is not positive definite.",
    jvp=_cholesky_jvp,
    samples=lambda r: [
        case(positive(r, 3, 3)),
        case(positive(r, 2, 2, 2)),
        case(r.x(0, 0)),
        fails(r.x(3, 2), saying="square"),
    ],
)
