"""Functions of matrices, and the Sylvester equation.

expm(a)     sqrtm(a)     funm(a, func)     expm_frechet(a, e)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import fxad.numpy as jnp
from fxad.api.autodiff import jvp
from fxad.api.custom import custom_jvp
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.ir.program import OPS
from fxad.lax.loops import fori_loop
from fxad.numpy.core import promoted
from fxad.scipy.linalg.checks import matrix
from fxad.scipy.linalg.schur_forms import schur
from fxad.trace.array import Array

# Numerator of exp's diagonal Pade approximant of order 13 (Higham 2005)
_PADE = [
    math.comb(13, k) * math.factorial(26 - k) // math.factorial(13) for k in range(14)
]  # over 26! / 13!, cleared of denominators
_PADE_NORM = 5.371920351148152  # up to this 1-norm the approximant is exact to f64


def _pade(a: Array) -> Array:
    """exp of matrices with small norm."""
    scale = float(_PADE[0])
    c = [k / scale for k in _PADE]
    unit = jnp.eye(a.shape[-1], dtype=a.dtype)
    a2 = jnp.matmul(a, a)
    a4 = jnp.matmul(a2, a2)
    a6 = jnp.matmul(a4, a2)
    odd = jnp.matmul(a6, c[13] * a6 + c[11] * a4 + c[9] * a2) + c[7] * a6 + c[5] * a4 + c[3] * a2
    odd = jnp.matmul(a, odd + c[1] * unit)
    even = jnp.matmul(a6, c[12] * a6 + c[10] * a4 + c[8] * a2) + c[6] * a6 + c[4] * a4 + c[2] * a2
    even = even + c[0] * unit
    return jnp.linalg.solve(even - odd, even + odd)


def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """Matrix exponential, by scaling and squaring (Higham 2005).

    Norms up to 5.4 * 2**max_squarings; NaN beyond. upper_triangular: only that triangle is read.
    """
    value = matrix("expm", A)
    value = jnp.triu(value) if upper_triangular else value
    size = jnp.max(jnp.sum(jnp.abs(value), -2), -1, initial=0.0)
    steps = jnp.ceil(jnp.log2(jnp.where(size > _PADE_NORM, size / _PADE_NORM, 1.0)))
    steps = OPS["stop_gradient"](steps)[..., None, None]
    start = _pade(value * (0.5**steps).astype(value.dtype))

    def squared(k: Array, power: Array) -> Array:
        return jnp.where(k < steps, jnp.matmul(power, power), power)

    out = fori_loop(0, max_squarings, squared, start)
    return jnp.where(steps <= max_squarings, out, math.nan)


def solve_sylvester(A: Any, B: Any, C: Any, *, method: str = "schur", tol: float = 1e-8) -> Array:
    """x with A @ x + x @ B = C. Costs (m * n)**3 for A [m, m] and B [n, n]: for small matrices.

    One direct method, whatever `method` and `tol` say.
    """
    values = promoted("solve_sylvester", A, B, C, inexact=True, numbers=False, broadcast=False)
    return OPS["sylvester"](*values)


def _by_columns(column: Callable[..., Array], t: Array, main: Array) -> Array:
    """The triangle f with the diagonal `main`: column(j, f, t) is its column j above the diagonal,
    from the columns before it."""
    size = t.shape[0]
    at = jnp.arange(size)

    def step(j: Array, f: Array) -> Array:
        above = jnp.where(at < j, column(j, f, t), 0)
        return jnp.where((at == j) & (at[:, None] < j), above[:, None], f)

    return fori_loop(0, size, step, jnp.diag(main))


def _column(a: Array, j: Array) -> Array:
    return jnp.sum(jnp.where(jnp.arange(a.shape[1]) == j, a, 0), axis=1)


def _solved(j: Array, system: Array, right: Array) -> tuple[Array, Array]:
    """x [n] with system[:j, :j] x[:j] = right[:j], of a triangle; and where its diagonal is 0, for
    which 1 is taken."""
    at = jnp.arange(len(right))
    inside = (at < j) & (at[:, None] < j)
    singular = jnp.diagonal(system) == 0
    unit = at == at[:, None]
    system = jnp.where(inside, system, 0) + jnp.where(unit & ((at >= j) | singular), 1, 0)
    return _triangular(system, jnp.where(at < j, right, 0)), singular & (at < j)


def _triangular(system: Array, right: Array) -> Array:
    return OPS["triangular_solve"](system, right[:, None], lower=False, unit=False)[:, 0]


# ---------------------------------------------------------------- square roots


@partial(jnp.vectorize, signature="(n,n)->(n,n)")
def _root_of_triangle(t: Array) -> Array:
    """A. Bjorck and S. Hammarling (1983): R R = T, a column after the other."""
    main = jnp.sqrt(jnp.diagonal(t))
    at = jnp.arange(t.shape[0])

    def column(j: Array, f: Array, t: Array) -> Array:
        own = jnp.sum(jnp.where(at == j, main, 0))
        system = f + jnp.where(at == at[:, None], own, 0)
        found, singular = _solved(j, system, _column(t, j))
        return jnp.where(singular & (found != 0), math.nan, found)  # there is no root

    return _by_columns(column, t, main)


@custom_jvp
def _sqrtm(a: Array) -> Array:
    t, q = schur(a, "complex")
    root = _root_of_triangle(t)
    return jnp.matmul(jnp.matmul(q, root), jnp.conj(jnp.matrix_transpose(q)))


@_sqrtm.defjvp
def _sqrtm_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """X dX + dX X = dA."""
    root = _sqrtm(primals[0])
    return root, OPS["sylvester"](root, root, tangents[0].astype(root.dtype))


def sqrtm(A: Any, blocksize: int = 1) -> Array:
    """The principal square root, complex: through the Schur form. NaN for a singular matrix that
    has none.

    >>> sqrtm(jnp.array([[4.0, 1.0], [0.0, 4.0]]))
    Array([[2.  +0.j, 0.25+0.j],
           [0.  +0.j, 2.  +0.j]], dtype=complex64)
    """
    if blocksize != 1:
        raise BadArgument(f"sqrtm: blocksize must be 1, got {blocksize!r}")
    return _sqrtm(matrix("sqrtm", A))


# ---------------------------------------------------------------- any function


@partial(jnp.vectorize, signature="(n,n),(n)->(n,n)")
def _of_triangle(t: Array, main: Array) -> Array:
    """B. Parlett (1976): F T = T F, a column after the other. Golub and Van Loan, 9.1.1."""
    at = jnp.arange(t.shape[0])

    def column(j: Array, f: Array, t: Array) -> Array:
        own, value = (jnp.sum(jnp.where(at == j, v, 0)) for v in (jnp.diagonal(t), main))
        above = jnp.where(at < j, _column(t, j), 0)
        right = jnp.matmul(f, above) - value * above
        return _solved(j, t - jnp.where(at == at[:, None], own, 0), right)[0]

    return _by_columns(column, t, main)


def funm(A: Any, func: Callable[[Array], Array], disp: bool = True) -> Any:
    """func of one matrix, complex, where func takes the vector of eigenvalues: through the Schur
    form. Inaccurate where eigenvalues are nearly equal; without `disp` an estimate of the relative
    error comes beside it.

    >>> funm(jnp.array([[4.0, 1.0], [0.0, 9.0]]), jnp.sqrt)
    Array([[2. +0.j, 0.2+0.j],
           [0. +0.j, 3. +0.j]], dtype=complex64)
    """
    value = matrix("funm", A)
    if value.ndim != 2:
        raise ShapeError(f"funm: takes one matrix, got {value.type}")
    t, q = schur(value, "complex")
    main = jnp.diagonal(t)
    triangle = _of_triangle(t, jnp.asarray(func(main)).astype(t.dtype))
    found = jnp.matmul(jnp.matmul(q, triangle), jnp.conj(q.T))
    if disp:
        return found
    eps = dt.finfo(t.dtype).eps
    pairs = jnp.triu(jnp.ones(t.shape, bool), 1)
    gap = jnp.min(jnp.where(pairs, jnp.abs(main[:, None] - main), jnp.inf), initial=jnp.inf)
    gap = jnp.where(gap == 0, eps, gap)
    size = jnp.max(jnp.sum(jnp.abs(jnp.triu(t, 1)), 0), initial=0.0)
    error = jnp.clip(eps / gap * size, eps, 1)
    return found, jnp.where(jnp.any(jnp.isfinite(found)), error, jnp.inf)


def expm_frechet(A: Any, E: Any, *, method: str | None = None, compute_expm: bool = True) -> Any:
    """(expm(A), its derivative at A in the direction E), or the derivative alone. One method,
    whichever of "SPS" and "blockEnlarge" is named: `expm`'s steps are differentiated, which is SPS
    (A. Al-Mohy and N. Higham 2009)."""
    if method not in (None, "SPS", "blockEnlarge"):
        raise BadArgument(f"expm_frechet: method must be SPS or blockEnlarge, got {method!r}")
    at, way = promoted("expm_frechet", A, E, inexact=True, numbers=False, broadcast=False)
    if at.shape != way.shape:
        raise ShapeError(f"expm_frechet: A and E must have one shape, got {at.type} and {way.type}")
    value, slope = jvp(expm, (at,), (way,))
    return (value, slope) if compute_expm else slope
