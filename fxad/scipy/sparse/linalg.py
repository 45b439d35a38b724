"""`fxad.scipy.sparse.linalg`: cg, bicgstab and gmres, which need products with the matrix only.

x, _ = cg(lambda v: a @ v, b, tol=1e-6)

The matrix is an array or a linear function of a pytree like b. Derivatives are those of the
solution (one more solve), not of the steps, so they are as accurate as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.flatten_util import ravel_pytree
from fxad.ir.program import OPS
from fxad.lax.implicit import custom_linear_solve
from fxad.lax.loops import fori_loop, while_loop
from fxad.numpy import conj, isnan, linalg, matmul, real, sqrt, sum, where, zeros, zeros_like
from fxad.numpy.core import is_array_like, value_of
from fxad.trace.array import Array

Product = Callable[[Array], Array]


def _dot(x: Array, y: Array) -> Array:
    return sum(conj(x) * y if dt.is_complex(x.dtype) else x * y)


def _size(x: Array) -> Array:
    """|x|**2."""
    return real(_dot(x, x))


def _ratio(x: Array, y: Array) -> Array:
    """x / y, 0 where y is 0."""
    return where(y == 0, 0, x / where(y == 0, 1, y))


def _linear(name: str, operator: Any, unravel: Callable[[Array], Any]) -> Product:
    """A matrix or a function of pytrees, as a function of vectors."""
    if callable(operator):
        return lambda v: ravel_pytree(operator(unravel(v)))[0]
    if not is_array_like(operator) or value_of(operator).ndim != 2:
        raise BadArgument(f"{name}: the operator must be a matrix or a function")
    matrix = value_of(operator)
    return lambda v: matmul(matrix, v)


def _solve(
    name: str,
    steps: Callable[..., Array],
    operators: tuple[Any, Any],
    b: Any,
    x0: Any,
    limits: tuple[float, float, int | None],
    symmetric: bool = False,
) -> tuple[Any, None]:
    """Run `steps(product, precondition, b, x0, size of the error, count)` inside a linear solve."""
    right, unravel = ravel_pytree(b)
    product = _linear(name, operators[0], unravel)
    precondition = (lambda v: v) if operators[1] is None else _linear(name, operators[1], unravel)
    tol, atol, count = limits
    most = 10 * right.size if count is None else count
    start = zeros_like(right) if x0 is None else OPS["stop_gradient"](ravel_pytree(x0)[0])
    if start.shape != right.shape:
        raise ShapeError(f"{name}: x0 has {start.size} numbers, b has {right.size}")

    def run(matvec: Product, rhs: Array, guess: Array) -> Array:
        relative, absolute = tol * tol * _size(rhs), atol * atol
        enough = where(relative > absolute, relative, absolute)
        return steps(matvec, precondition, rhs, guess, enough, most)

    def solver(matvec: Product, rhs: Array) -> Array:
        return run(matvec, rhs, start)

    def transposed(matvec: Product, rhs: Array) -> Array:
        return run(matvec, rhs, zeros_like(rhs))

    x = custom_linear_solve(
        product,
        right,
        solver,
        transpose_solve=transposed,
        symmetric=symmetric and not dt.is_complex(right.dtype),
    )
    return unravel(x), None


def _cg_steps(matvec: Product, m: Product, b: Array, x: Array, enough: Array, most: int) -> Array:
    """Hestenes and Stiefel (1952), preconditioned."""

    def going(state: Any) -> Array:
        count, _, r, _, _ = state
        return (count < most) & (_size(r) > enough)

    def body(state: Any) -> Any:
        count, x, r, p, gamma = state
        q = matvec(p)
        alpha = _ratio(gamma, _dot(p, q))
        x, r = x + alpha * p, r - alpha * q
        z = m(r)
        new = _dot(r, z)
        return count + 1, x, r, z + _ratio(new, gamma) * p, new

    r = b - matvec(x)
    z = m(r)
    return while_loop(going, body, (0, x, r, z, _dot(r, z)))[1]


def cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, None]:
    """x with A x = b for Hermitian positive definite A, by conjugate gradients, and None.

    Stops when |b - A x| <= max(tol |b|, atol), or after `maxiter` steps (10 times the size of b).
    M approximates the inverse of A. In reverse mode a real A is taken to be symmetric.
    """
    return _solve("cg", _cg_steps, (A, M), b, x0, (tol, atol, maxiter), symmetric=True)


def _bicgstab_steps(
    matvec: Product, m: Product, b: Array, x: Array, enough: Array, most: int
) -> Array:
    """H. van der Vorst (1992), preconditioned from the right."""

    def going(state: Any) -> Array:
        count, _, r, *_ = state
        return (count < most) & (_size(r) > enough)

    def body(state: Any) -> Any:
        count, x, r, p, v, rho, alpha, omega = state
        new = _dot(shadow, r)
        beta = _ratio(new, rho) * _ratio(alpha, omega)
        p = r + beta * (p - omega * v)
        towards = m(p)
        v = matvec(towards)
        alpha = _ratio(new, _dot(shadow, v))
        half = r - alpha * v
        across = m(half)
        t = matvec(across)
        omega = _ratio(_dot(t, half), _dot(t, t))
        x = x + alpha * towards + omega * across
        return count + 1, x, half - omega * t, p, v, new, alpha, omega

    shadow = r = b - matvec(x)
    one = zeros((), b.dtype) + 1
    start = (0, x, r, zeros_like(b), zeros_like(b), one, one, one)
    return while_loop(going, body, start)[1]


def bicgstab(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, None]:
    """x with A x = b for any regular A, by stabilised biconjugate gradients; as cg otherwise."""
    return _solve("bicgstab", _bicgstab_steps, (A, M), b, x0, (tol, atol, maxiter))


def _gmres_steps(restart: int) -> Callable[..., Array]:
    """Saad and Schultz (1986), restarted, preconditioned from the right."""

    def cycle(matvec: Product, m: Product, b: Array, x: Array) -> Array:
        r = b - matvec(x)
        length = sqrt(_size(r)).astype(b.dtype)
        basis = zeros((restart + 1, b.size), b.dtype).at[0].set(_ratio(r, length))
        upper = zeros((restart + 1, restart), b.dtype)

        def arnoldi(k: Array, state: Any) -> Any:
            basis, upper = state
            v = matvec(m(basis[k]))
            column = matmul(_adjoint(basis), v)
            v = v - matmul(column, basis)
            again = matmul(_adjoint(basis), v)  # twice is enough for orthogonality
            v = v - matmul(again, basis)
            size = sqrt(_size(v)).astype(b.dtype)
            basis = basis.at[k + 1].set(_ratio(v, size))
            return basis, upper.at[:, k].set((column + again).at[k + 1].add(size))

        basis, upper = fori_loop(0, restart, arnoldi, (basis, upper))
        first = zeros((restart + 1,), b.dtype).at[0].set(length)
        weights = matmul(linalg.pinv(upper), first)
        return x + m(matmul(weights, basis[:-1]))

    def steps(matvec: Product, m: Product, b: Array, x: Array, enough: Array, most: int) -> Array:
        def going(state: Any) -> Array:
            count, x = state
            return (count < most) & (_size(b - matvec(x)) > enough)

        def body(state: Any) -> Any:
            count, x = state
            return count + 1, cycle(matvec, m, b, x)

        return while_loop(going, body, (0, x))[1]

    return steps


def _adjoint(rows: Array) -> Array:
    return conj(rows) if dt.is_complex(rows.dtype) else rows


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Any = None,
    solve_method: str = "batched",
) -> tuple[Any, Array]:
    """x with A x = b for any regular A, by minimal residuals over spaces of dimension `restart`,
    and a number: -1 if x has a NaN, else 0.

    `maxiter` counts restarts; `solve_method` is a hint. As cg otherwise.
    """
    if restart < 1:
        raise BadArgument(f"gmres: restart must be positive, got {restart}")
    size = ravel_pytree(b)[0].size
    steps = _gmres_steps(restart if restart < size else max(size, 1))
    x, _ = _solve("gmres", steps, (A, M), b, x0, (tol, atol, maxiter))
    return x, where(isnan(ravel_pytree(x)[0]).any(), -1, 0)
