"""fxad.numpy.linalg against numpy.linalg, finite differences, Python loops and JAX (peers)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch

L = jnp.linalg
R = np.random.default_rng(7)
N = 4
A = R.standard_normal((3, N, N)) + 4 * np.eye(N)
B = R.standard_normal((3, N, 2))
S = A @ A.swapaxes(-1, -2) / N + np.diag(np.arange(N) * 2.0)
T = R.standard_normal((3, 5, N))
Z = A + 1j * R.standard_normal((3, N, N))
H = Z @ Z.conj().swapaxes(-1, -2)


def adjoint(a: Any) -> Any:
    return np.conj(np.swapaxes(np.asarray(a), -1, -2))


def near(got: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    got = np.asarray(got)
    assert got.shape == np.shape(wanted)
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@pytest.fixture(autouse=True)
def wide():
    """64-bit throughout, so that tolerances test the formulas."""
    with fxad.enable_x64():
        yield


AS_NUMPY = functools.partial(L.lstsq, numpy_resid=True)

# name, fxad's function, NumPy's function, operands
SAME: list[tuple[str, Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = [
    ("cholesky", L.cholesky, np.linalg.cholesky, (S,)),
    ("cholesky complex", L.cholesky, np.linalg.cholesky, (H,)),
    ("solve", L.solve, np.linalg.solve, (A, B)),
    ("solve vector", L.solve, np.linalg.solve, (A, B[0, :, 0])),
    ("solve one matrix", L.solve, np.linalg.solve, (A[0], B)),
    ("inv", L.inv, np.linalg.inv, (Z,)),
    ("det", L.det, np.linalg.det, (A,)),
    ("det complex", L.det, np.linalg.det, (Z,)),
    ("slogdet", L.slogdet, np.linalg.slogdet, (-A[:, :3, :3],)),
    ("eigvalsh", L.eigvalsh, np.linalg.eigvalsh, (H,)),
    ("eigvalsh U", lambda a: L.eigvalsh(a, "U"), lambda a: np.linalg.eigvalsh(a, "U"), (A,)),
    ("eigvalsh L", lambda a: L.eigvalsh(a, "L"), lambda a: np.linalg.eigvalsh(a, "L"), (A,)),
    ("svdvals", L.svdvals, lambda a: np.linalg.svd(a)[1], (T,)),
    ("pinv", L.pinv, np.linalg.pinv, (T,)),
    ("pinv rank 1", L.pinv, np.linalg.pinv, (np.outer(T[0, 0], T[0, 1]),)),
    ("matrix_rank", L.matrix_rank, np.linalg.matrix_rank, (T @ T.swapaxes(-1, -2),)),
    ("cond", L.cond, np.linalg.cond, (A,)),
    ("cond 1", lambda a: L.cond(a, 1), lambda a: np.linalg.cond(a, 1), (A,)),
    ("power", lambda a: L.matrix_power(a, 5), lambda a: np.linalg.matrix_power(a, 5), (A,)),
    ("power 0", lambda a: L.matrix_power(a, 0), lambda a: np.linalg.matrix_power(a, 0), (A,)),
    ("power -3", lambda a: L.matrix_power(a, -3), lambda a: np.linalg.matrix_power(a, -3), (A,)),
    (
        "lstsq",
        AS_NUMPY,
        lambda a, b: np.linalg.lstsq(a, b, None),
        (T[0], R.standard_normal((5, 2))),
    ),
    ("lstsq wide", AS_NUMPY, lambda a, b: np.linalg.lstsq(a, b, None), (T[0].T, B[0, :, 0])),
    ("lstsq empty", AS_NUMPY, lambda a, b: np.linalg.lstsq(a, b, None), (T[0][:0], B[0][:0])),
    (
        "multi_dot",
        lambda *m: L.multi_dot(m),
        lambda *m: np.linalg.multi_dot(m),
        (B[0, :, 0], A[0], T[0].T, T[1]),
    ),
    ("norm 2", lambda a: L.norm(a, 2), lambda a: np.linalg.norm(a, 2), (T[0],)),
    (
        "norm nuc",
        lambda a: L.norm(a, "nuc", (0, 2), True),
        lambda a: np.linalg.norm(a, "nuc", (0, 2), True),
        (T,),
    ),
    ("norm -2", lambda a: L.norm(a, -2, (1, 2)), lambda a: np.linalg.norm(a, -2, (1, 2)), (T,)),
    ("norm of nothing", L.matrix_norm, np.linalg.matrix_norm, (T[:, :0],)),
    ("largest of nothing", lambda x: L.vector_norm(x, ord=np.inf), lambda x: 0.0, (T[:0, 0, 0],)),
    ("eig", lambda a: tuple(L.eig(a)), lambda a: tuple(np.linalg.eig(a)), (A,)),
    ("eigvals complex", L.eigvals, np.linalg.eigvals, (Z,)),
    ("trace", lambda a: L.trace(a, offset=-1), lambda a: np.linalg.trace(a, offset=-1), (T,)),
    (
        "tolerance each",
        lambda a, r: (L.pinv(a, rtol=r), L.matrix_rank(a, rtol=r)),
        lambda a, r: (np.linalg.pinv(a, rtol=r), np.linalg.matrix_rank(a, rtol=r)),
        (T, np.asarray([0.9, 0.5, 1e-9])),
    ),
    ("diagonal", L.diagonal, np.linalg.diagonal, (T,)),
]


def test_results_are_numpys_eagerly_and_compiled() -> None:
    """All cases in one compiled function."""

    def everything(operands: list[Any]) -> list[Any]:
        return [function(*given) for (_, function, _, _), given in zip(SAME, operands, strict=True)]

    operands = [tuple(map(jnp.asarray, case[3])) for case in SAME]
    eager, compiled = everything(operands), fxad.jit(everything)(operands)
    for (name, _, reference, given), one, other in zip(SAME, eager, compiled, strict=True):
        wanted = reference(*given)
        for got in (one, other):
            parts = zip(got, wanted, strict=True) if isinstance(wanted, tuple) else [(got, wanted)]
            for g, w in parts:
                np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-9, err_msg=name)
                assert np.shape(g) == np.shape(w), name


def test_norms_that_are_none() -> None:
    for x, order, message in (
        *((T, "fro", "over 3 axes"), (T, "nuc", "over 3 axes"), (T[0], "two", "over 2 axes")),
        *((T[0, 0], order, "no norm of vectors") for order in ("fro", "nuc", "two")),
    ):
        with pytest.raises(ValueError, match=f"ord='{order}' .*{message}"):
            L.norm(x, order)


@pytest.mark.parametrize("a", [S, H, T, T.swapaxes(1, 2), Z], ids=["S", "H", "tall", "flat", "Z"])
def test_factors_multiply_to_the_matrix(a: np.ndarray) -> None:
    k = min(a.shape[-2:])

    @fxad.jit
    def factors(a: Any) -> Any:
        return L.svd(a, full_matrices=False), L.svd(a), L.qr(a), L.qr(a, mode="complete")

    (u, s, vh), (full_u, _, full_vh), *pairs = factors(a)
    near((np.asarray(u) * np.asarray(s)[..., None, :]) @ np.asarray(vh), a)
    assert full_u.shape[-1] == a.shape[-2]
    assert full_vh.shape[-2] == a.shape[-1]
    for basis in (u, adjoint(vh), full_u, full_vh):
        columns = np.asarray(basis)
        eye = np.eye(columns.shape[-1])
        near(adjoint(columns) @ columns, np.broadcast_to(eye, (3, *eye.shape)))
    for q, r in pairs:
        near(np.asarray(q) @ np.asarray(r), a)
        near(np.tril(r, -1)[..., :k], np.zeros((*np.shape(r)[:-1], k)))


def test_eigenvectors_diagonalise() -> None:
    for a in (S, H):
        w, v = (np.asarray(x) for x in fxad.jit(L.eigh)(a))
        near(v * w[:, None, :] @ adjoint(v), a, 1e-8)
    for a in (A, Z):
        w, v = (np.asarray(x) for x in fxad.jit(L.eig)(a))
        near(a @ v, v * w[:, None, :], 1e-8)
        near(np.linalg.norm(v, axis=-2), np.ones((3, N)))


# ---------------------------------------------------------------- derivatives


def halves(a: Any) -> Any:
    return a @ jnp.swapaxes(a, -1, -2) / N + jnp.diag(jnp.arange(N) * 2.0)


W = R.standard_normal((5, 5))

# Scalars of one real matrix, through every op.
SCALARS: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "cholesky": (lambda a: jnp.sum(jnp.sin(L.cholesky(halves(a)))), A[0]),
    "cholesky upper": (
        lambda a: jnp.sum(jnp.sin(L.cholesky(a @ a.T, upper=True, symmetrize_input=False))),
        A[0],
    ),
    "solve": (lambda a: jnp.sum(jnp.sin(L.solve(a, a[:, :2] ** 2))), A[0]),
    "inv": (lambda a: jnp.sum(L.inv(a) * W[:N, :N]), A[0]),
    "det": (lambda a: jnp.sin(L.det(a) / 100), A[0]),
    "slogdet": (lambda a: L.slogdet(a)[1] ** 2, A[0]),
    "eigh": (lambda a: sum(jnp.sum(jnp.sin(x) * W[0, :N]) for x in L.eigh(halves(a))), A[0]),
    "eig": (lambda a: sum(jnp.sum(jnp.real(jnp.sin(x) * W[0, :N])) for x in L.eig(a)), A[0]),
    "eigvals": (lambda a: jnp.sum(jnp.abs(L.eigvals(a) - 1j)), R.standard_normal((N, N))),
    "svd tall": (lambda a: sum(jnp.sum(jnp.sin(x)) for x in L.svd(a, False)), T[0]),
    "svd flat": (lambda a: sum(jnp.sum(jnp.sin(x)) for x in L.svd(a, False)), T[0].T),
    "qr": (lambda a: sum(jnp.sum(jnp.sin(x)) for x in L.qr(a)), T[0]),
    "pinv": (lambda a: jnp.sum(L.pinv(a) * W[:N]), T[0]),
    "pinv rank": (lambda a: jnp.sum(L.pinv(a[:, :2] @ a[:, :2].T) * W), T[0]),
    "lstsq": (lambda a: jnp.sum(jnp.sin(L.lstsq(a[:, :2], a[:, 2])[0])), T[0]),
    "nuclear": (lambda a: L.norm(a, "nuc") * L.norm(a, 2), T[0]),
    "power": (lambda a: jnp.sum(L.matrix_power(a / 4, -2)), A[0]),
}


def difference(function: Callable[[np.ndarray], Any], at: np.ndarray, along: np.ndarray) -> Any:
    """Central difference; errors of step^2 and eps / step are both near 1e-10."""
    step = 1e-5
    high, low = (np.asarray(function(at + sign * step * along)) for sign in (1, -1))
    return (high - low) / (2 * step)


@pytest.mark.parametrize("name", SCALARS)
def test_first_and_second_derivatives_are_finite_differences(name: str) -> None:
    function, at = SCALARS[name]
    along = R.standard_normal(at.shape)
    value, grad = fxad.jit(function), fxad.jit(fxad.grad(function))
    slope = difference(value, at, along)
    size = 1e-6 * max(1, float(np.abs(slope).max()))
    assert abs(np.vdot(grad(at), along) - slope) < size
    assert abs(np.asarray(fxad.jvp(function, (at,), (along,))[1]) - slope) < size
    near(fxad.grad(value)(at), np.asarray(grad(at)), 1e-9)
    change = difference(grad, at, along)
    turned = fxad.jit(lambda a, v: fxad.jvp(fxad.grad(function), (a,), (v,))[1])(at, along)
    np.testing.assert_allclose(turned, change, rtol=1e-5, atol=1e-5 * np.abs(change).max())


def test_complex_gradients_are_finite_differences() -> None:
    """For real f of complex a: df = Re(sum(grad * da)), JAX's pairing, for gauge-free f."""

    def function(a: Any) -> Any:
        h = a @ jnp.conj(a.T)
        w, v = L.eigh(h)
        u, s, vh = L.svd(a)
        q, r = L.qr(a)
        parts = [
            *(L.cholesky(h), L.solve(a, h), L.det(a) / 100, L.pinv(a), q, r),
            *((v * jnp.sin(w / 9)) @ jnp.conj(v.T), (u * s**2) @ vh, L.slogdet(a)[0]),
        ]
        return sum(jnp.sum(jnp.real(p * p * (1 + 2j))) for p in parts)

    at = Z[0]
    along = R.standard_normal(at.shape) + 1j * R.standard_normal(at.shape)
    slope = difference(fxad.jit(function), at, along)
    found = np.sum(np.asarray(fxad.jit(fxad.grad(function))(at)) * along).real
    assert abs(found - slope) < 1e-6 * abs(slope)


@pytest.mark.parametrize("n", range(1, 6))
def test_gradients_of_determinants_are_cofactors_at_singular_matrices_too(n: int) -> None:
    """Of every rank; a column of zeros stops LU's pivots before the last."""
    factors = R.integers(-3, 4, (n + 1, n, n)).astype(float)
    a = np.stack([m[:, :rank] @ m.T[:rank] for rank, m in enumerate(factors)] + [factors[0]])
    a[-1, :, 0] = 0
    near(L.det(a), np.linalg.det(a), 1e-8)
    minors = [[np.delete(np.delete(a, i, 1), j, 2) for j in range(n)] for i in range(n)]
    signs = (-1) ** np.add.outer(np.arange(n), np.arange(n))
    wanted = np.moveaxis(np.linalg.det(np.array(minors)), 2, 0) * signs
    near(fxad.grad(lambda a: L.det(a).sum())(a), wanted, 1e-8)
    near(
        fxad.vmap(lambda a: fxad.jvp(L.det, (a,), (a + 1,))[1])(a),
        (wanted * (a + 1)).sum((1, 2)),
        1e-7,
    )
    rows = a * (1 + 2j)  # the cofactors are of degree n - 1
    near(
        fxad.grad(lambda a: L.det(a).sum(), holomorphic=True)(rows),
        wanted * (1 + 2j) ** (n - 1),
        1e-6,
    )


def test_second_derivatives_of_small_determinants_exist_at_singular_matrices() -> None:
    near(fxad.hessian(L.det)(np.zeros((2, 2))).reshape(4, 4), np.diag([1, -1, -1, 1])[::-1])
    swaps = np.linalg.det(np.eye(3)[list(np.ndindex(3, 3, 3))]).reshape(3, 3, 3)
    a = np.outer([1.0, 2, 3], [1, 0, 2])
    wanted = np.einsum("ikm,jln,mn->ijkl", swaps, swaps, a)
    near(fxad.jit(fxad.hessian(L.det))(a), wanted)


def test_equal_eigenvalues_leave_gradients_of_their_sums_finite_and_right() -> None:
    near(fxad.grad(lambda a: jnp.sum(L.eigvalsh(a)))(np.eye(3)), np.eye(3))
    second = fxad.hessian(lambda a: jnp.sum(L.eigh(a)[0]))(np.eye(3))
    near(second, np.zeros((3, 3, 3, 3)))


# ---------------------------------------------------------------- transforms


@pytest.mark.parametrize(
    "name", ["cholesky", "solve", "inv", "slogdet", "eigh", "eig", "qr", "pinv"]
)
def test_vmap_is_a_loop(name: str) -> None:
    function, at = SCALARS[name]
    lanes = np.stack([at, at + 0.1, at - 0.2 * np.eye(*at.shape)])
    for f in (function, fxad.grad(function)):
        wanted = np.stack([np.asarray(f(lane)) for lane in lanes])
        near(fxad.vmap(f)(lanes), wanted)
        near(fxad.jit(fxad.vmap(f))(lanes), wanted)


def test_vmap_over_one_operand_of_solve() -> None:
    near(fxad.vmap(L.solve, (None, 0))(A[0], B), np.linalg.solve(A[0], B))
    near(fxad.vmap(L.solve, (0, None))(A, B[0]), np.linalg.solve(A, B[0]))


def test_inside_loops_and_branches() -> None:
    def step(a: Any) -> Any:
        return L.cholesky(0.5 * jnp.eye(N) + a @ a.T / 9)

    def scanned(a: Any) -> Any:
        return lax.scan(lambda c, _: (step(c), L.det(c)), a, None, length=3)

    def looped(a: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, c: step(c), a)

    wanted = step(step(step(A[0])))
    near(fxad.jit(scanned)(A[0])[0], np.asarray(wanted))
    near(fxad.jit(looped)(A[0]), np.asarray(wanted))
    plain = fxad.grad(lambda a: jnp.sum(step(step(step(a)))))(A[0])
    near(fxad.jit(fxad.grad(lambda a: jnp.sum(scanned(a)[0])))(A[0]), np.asarray(plain))
    branch = fxad.jit(lambda p, a: lax.cond(p, L.inv, lambda a: -a, a))
    near(branch(True, A[0]), np.linalg.inv(A[0]))
    near(branch(False, A[0]), -A[0])
    both = fxad.vmap(branch)(np.array([True, False]), A[:2])
    near(both, np.stack([np.linalg.inv(A[0]), -A[1]]))


# ---------------------------------------------------------------- edges


def test_a_lane_without_a_solution_is_nan_and_leaves_the_others_alone() -> None:
    lanes = np.stack([S[0], -S[0], S[1]])
    got = np.asarray(fxad.jit(L.cholesky)(lanes))
    assert np.isnan(got[1]).all()
    near(got[::2], np.linalg.cholesky(lanes[::2]))
    singular = np.asarray(L.inv(np.stack([np.ones((N, N)), A[0]])))
    assert np.isnan(singular[0]).all()
    near(singular[1], np.linalg.inv(A[0]))


def test_integers_and_narrow_floats() -> None:
    assert L.inv(np.array([[2, 0], [0, 4]])).dtype == np.float64
    with fxad.enable_x64(False):
        half = L.cholesky(jnp.asarray(S[0], dtype=jnp.bfloat16))
        assert half.dtype == jnp.bfloat16
        # One rounding of the operand (condition about 10) and one of the result, each 2^-9.
        near(half.astype(jnp.float32), np.linalg.cholesky(S[0]), 0.05)


def test_wrong_uses_say_what_was_seen() -> None:
    for function in (L.cholesky, L.inv, L.det, L.slogdet, L.eigh, L.eig):
        with pytest.raises(ShapeError, match=r"square.*\(5, 4\)"):
            function(T[0])
    with pytest.raises(ShapeError, match="square"):
        L.matrix_power(T[0], 2)
    with pytest.raises(ShapeError, match="b must have 4 rows"):
        L.solve(A[0], np.ones(3))
    with pytest.raises(ShapeError, match="expects matrices"):
        L.svd(np.ones(3))
    with pytest.raises(TypeMismatch, match="expected an array"):
        L.inv("no")
    with pytest.raises(BadArgument, match="mode must be"):
        L.qr(T[0], mode="full")
    with pytest.raises(BadArgument, match="UPLO"):
        L.eigh(S[0], "X")
    with pytest.raises(ShapeError, match="fewer rows than columns"):
        fxad.grad(lambda a: jnp.sum(L.qr(a)[1]))(T[0].T)
    with pytest.raises(ShapeError, match="full_matrices=False"):
        fxad.grad(lambda a: jnp.sum(L.svd(a)[0]))(T[0])


@pytest.mark.peers
def test_gradients_are_jaxs() -> None:
    jax = pytest.importorskip("jax")
    theirs = jax.numpy.linalg
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        for name, a in (("cholesky", S[0]), ("inv", A[0]), ("det", A[0]), ("pinv", T[0])):
            ours, peer = getattr(L, name), getattr(theirs, name)
            mine = fxad.grad(lambda a, f=ours: jnp.sum(jnp.sin(f(a))))(a)
            other = jax.grad(lambda a, f=peer: jax.numpy.sum(jax.numpy.sin(f(a))))(a)
            near(mine, np.asarray(other), 1e-8)


def test_tridiagonal_solve():
    n, rng = 5, np.random.default_rng(4)
    low, up, b = (
        rng.standard_normal((2, n)),
        rng.standard_normal((2, n)),
        rng.standard_normal((2, n, 3)),
    )
    middle = 4.0 + rng.random((2, n))
    full = np.stack(
        [np.diag(middle[i]) + np.diag(low[i, 1:], -1) + np.diag(up[i, :-1], 1) for i in range(2)]
    )
    solve = fxad.lax.linalg.tridiagonal_solve
    with fxad.enable_x64():
        np.testing.assert_allclose(solve(low, middle, up, b), np.linalg.solve(full, b), rtol=1e-12)
        by_lane = fxad.jit(fxad.vmap(solve))(low, middle, up, b)
        np.testing.assert_allclose(by_lane, np.linalg.solve(full, b), rtol=1e-12)
        fxad.check_grads(solve, (low[0], middle[0], up[0], b[0]), order=1)
    with pytest.raises(ShapeError, match=r"\[..., n, k\], got"):
        solve(low, middle, up, b[:, :, 0])


def test_tensors_as_matrices() -> None:
    a = np.random.default_rng(3).standard_normal((2, 3, 6)).astype(np.float32)
    b = np.random.default_rng(4).standard_normal((2, 3)).astype(np.float32)
    turned = np.moveaxis(a, -1, 0)
    found = [jnp.linalg.tensorsolve(a, b), jnp.linalg.tensorsolve(turned, b, axes=(0,))]
    for x, wanted in zip(found, [np.linalg.tensorsolve(a, b)] * 2, strict=True):
        np.testing.assert_allclose(np.asarray(x), wanted, rtol=2e-3, atol=1e-4)
    inverse = np.asarray(jnp.linalg.tensorinv(a, 2))
    np.testing.assert_allclose(inverse, np.linalg.tensorinv(a, 2), rtol=2e-3, atol=1e-4)
    with pytest.raises(ValueError, match="no square system"):
        jnp.linalg.tensorsolve(a[..., :5], b)
    with pytest.raises(ValueError, match="not square after 1 axes"):
        jnp.linalg.tensorinv(a, 1)


def test_least_squares_has_a_residual_for_each_column():
    for a, b in ((A[0], B[0]), (T[0].T, B[0, :, 0])):  # square, and with fewer rows than columns
        residuals = L.lstsq(a, b)[1]
        assert residuals.shape == (*b.shape, 1)[1:2]
        near(residuals, np.zeros(residuals.shape))
    singular = np.outer(T[0, 0], T[0, 1])[:, :3]
    assert L.lstsq(singular, T[0, 0])[1].shape == (1,)
    assert AS_NUMPY(singular, T[0, 0])[1].shape == (0,)
