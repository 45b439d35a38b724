"""fxad.scipy.linalg against products, NumPy, finite differences and SciPy (peers)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, ShapeError
from fxad.scipy import linalg

R = np.random.default_rng(9)
A = R.standard_normal((4, 4))
B = R.standard_normal((3, 3))
Q = R.standard_normal((4, 3))
S = A @ A.T + np.eye(4)
STACK = R.standard_normal((2, 4, 4))


@pytest.fixture(autouse=True)
def wide():
    with fxad.enable_x64():
        yield


def near(got: Any, wanted: Any, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=tolerance, atol=tolerance)


def slopes(function: Callable[..., Any], *args: np.ndarray) -> None:
    """jvp and gradient of a weighted sum of all results, against central differences."""
    ways = [R.standard_normal(a.shape) for a in args]
    outs = jnp.concatenate([jnp.ravel(v) for v in fxad.tree.leaves(function(*args))])
    weights = R.standard_normal(outs.shape)

    def total(*values: Any) -> Any:
        leaves = fxad.tree.leaves(function(*values))
        return jnp.sum(jnp.real(jnp.concatenate([jnp.ravel(v) for v in leaves])) * weights)

    up, down = (total(*(a + s * w for a, w in zip(args, ways, strict=True))) for s in (1e-6, -1e-6))
    wanted = float(up - down) / 2e-6
    assert float(fxad.jvp(total, args, tuple(ways))[1]) == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    back = fxad.jit(fxad.grad(total, argnums=tuple(range(len(args)))))(*args)
    got = sum(float(jnp.vdot(b, w)) for b, w in zip(back, ways, strict=True))
    assert got == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def test_lu() -> None:
    p, low, up = fxad.jit(linalg.lu)(A)
    near(p @ low @ up, A)
    assert np.allclose(np.triu(low, 1), 0) and np.allclose(np.diag(low), 1)
    assert np.abs(low).max() <= 1 + 1e-12
    near(linalg.lu(A, permute_l=True)[0] @ up, A)
    p, low, up = linalg.lu(STACK)
    near(p @ low @ up, STACK)
    slopes(lambda a: linalg.lu(a)[1:], A)
    with pytest.raises(ShapeError, match="expects matrices"):
        linalg.lu(Q[0])


@pytest.mark.parametrize("trans", [0, 1])
def test_lu_solve(trans: int) -> None:
    x = fxad.jit(lambda a, b: linalg.lu_solve(linalg.lu_factor(a), b, trans))(A, Q)
    near((A.T if trans else A) @ np.asarray(x), Q)
    slopes(lambda a, b: linalg.lu_solve(linalg.lu_factor(a), b, trans), A, Q)
    factors = linalg.lu_factor(STACK)
    matrices = STACK.mT if trans else STACK
    for b in (Q[None], R.standard_normal((2, 4, 3)), R.standard_normal((5, 1, 4, 2))):
        x = np.asarray(linalg.lu_solve(factors, b, trans))
        near(matrices @ x, np.broadcast_to(b, x.shape))
        near((A.T if trans else A) @ np.asarray(linalg.lu_solve(linalg.lu_factor(A), b, trans)), b)
    for b in (Q[:, 0], R.standard_normal((2, 4))):
        x = np.asarray(linalg.lu_solve(factors, b, trans))
        near((matrices @ x[..., None])[..., 0], np.broadcast_to(b, (2, 4)))


@pytest.mark.parametrize("shape", [(3,), (5,), (2, 3), ()], ids=str)
@pytest.mark.parametrize("trans", [0, 2])
def test_lu_solve_of_other_rows(shape: tuple[int, ...], trans: int) -> None:
    with pytest.raises(ShapeError, match=r"lu_solve: factors \(4, 4\) and .* do not go together"):
        linalg.lu_solve(linalg.lu_factor(A), np.ones(shape), trans)
    with pytest.raises(BadArgument, match="trans must be 0, 1 or 2, got 3"):
        linalg.lu_solve(linalg.lu_factor(A), np.ones(4), 3)


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky_and_triangular_systems(lower: bool) -> None:
    factor = np.asarray(linalg.cholesky(S, lower))
    near(factor @ factor.T if lower else factor.T @ factor, S)
    near(S @ np.asarray(linalg.cho_solve(linalg.cho_factor(S, lower), Q)), Q)
    near(S @ np.asarray(linalg.solve(S, Q, assume_a="pos")), Q)
    kept = np.tril(A) if lower else np.triu(A)
    for trans in (0, "T", 2):
        x = np.asarray(linalg.solve_triangular(A, Q, trans, lower))
        near((kept.T if trans else kept) @ x, Q, 1e-8)
    near(kept @ np.asarray(linalg.solve_triangular(A, Q[:, 0], 0, lower)), Q[:, 0], 1e-8)
    slopes(lambda a, b: linalg.solve_triangular(a, b, 1, lower), A + 3 * np.eye(4), Q)
    with pytest.raises(BadArgument, match="trans must be"):
        linalg.solve_triangular(A, Q, 3)
    with pytest.raises(ShapeError, match="do not go together"):
        linalg.solve_triangular(A, np.ones(3))


def test_expm() -> None:
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    for angle in (0.1, 3.0, 40.0):
        c, s = math.cos(angle), math.sin(angle)
        near(fxad.jit(linalg.expm)(angle * turn), [[c, s], [-s, c]], 1e-11)
    near(linalg.expm(np.array([[0.0, 1.0], [0.0, 0.0]])), [[1, 1], [0, 1]])
    near(linalg.expm(STACK), np.stack([linalg.expm(a) for a in STACK]), 1e-12)
    near(linalg.expm(A) @ linalg.expm(-A), np.eye(4), 1e-9)
    slopes(linalg.expm, A)
    slopes(linalg.expm, 5 * A / np.linalg.norm(A))
    assert np.isnan(linalg.expm(np.eye(2) * 1e9)).all()


@pytest.mark.slow
def test_sqrtm_and_sylvester() -> None:
    root = fxad.jit(linalg.sqrtm)(S)
    assert root.dtype == np.complex128
    near(root @ root, S)
    near(linalg.sqrtm(A) @ linalg.sqrtm(A), A, 1e-9)
    near(linalg.sqrtm(np.eye(3)), np.eye(3))
    slopes(linalg.sqrtm, S)
    slopes(linalg.sqrtm, np.eye(3))  # equal eigenvalues
    x = np.asarray(fxad.jit(linalg.solve_sylvester)(A, B, Q))
    near(A @ x + x @ B, Q)
    slopes(linalg.solve_sylvester, A, B, Q)
    with pytest.raises(ShapeError, match="does not fit"):
        linalg.solve_sylvester(A, B, Q.T)


def test_factors_with_scipys_signatures() -> None:
    q, r = linalg.qr(Q)
    assert q.shape == (4, 4)
    near(q @ r, Q)
    q, r = linalg.qr(Q, mode="economic")
    near(q @ r, Q)
    for side in ("right", "left"):
        u, p = linalg.polar(A, side)
        near(u @ p if side == "right" else p @ u, A)
        near(np.asarray(u).T @ u, np.eye(4))
    near(linalg.eigh(S, eigvals_only=True), np.linalg.eigvalsh(S))
    near(linalg.svd(Q, compute_uv=False), np.linalg.svd(Q, compute_uv=False))


def test_special_matrices_and_bands() -> None:
    near(
        linalg.block_diag(np.ones((1, 2)), 3.0, np.array([[4.0], [5.0]])),
        [[1, 1, 0, 0], [0, 0, 3, 0], [0, 0, 0, 4], [0, 0, 0, 5]],
    )
    near(
        linalg.toeplitz(np.array([1, 2, 3]), np.array([1, 4, 5, 6])),
        [[1, 4, 5, 6], [2, 1, 4, 5], [3, 2, 1, 4]],
    )
    near(linalg.hilbert(2), [[1, 1 / 2], [1 / 2, 1 / 3]])
    bands, b = R.standard_normal((3, 5)) + [[0], [4], [0]], R.standard_normal(5)
    dense = np.diag(bands[0, 1:], 1) + np.diag(bands[1]) + np.diag(bands[2, :-1], -1)
    near(linalg.solve_banded((1, 1), bands, b), np.linalg.solve(dense, b))
    slopes(lambda ab, v: linalg.solve_banded((1, 1), ab, v), bands, b)
    with pytest.raises(ShapeError, match="solve_banded: ab must be"):
        linalg.solve_banded((1, 2), bands, b)


@pytest.mark.peers
def test_like_scipy() -> None:
    peer = pytest.importorskip("scipy.linalg")
    near(linalg.expm(3 * A), peer.expm(3 * A), 1e-9)
    near(linalg.sqrtm(A), peer.sqrtm(A), 1e-9)
    for name in ("lu", "lu_factor"):
        for got, wanted in zip(getattr(linalg, name)(A), getattr(peer, name)(A), strict=True):
            near(got, wanted)
    near(linalg.toeplitz(A[0]), peer.toeplitz(A[0]))
    near(linalg.solve_sylvester(A, B, Q), peer.solve_sylvester(A, B, Q), 1e-9)


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 2, 2), (1, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_matrices_without_elements(shape: tuple[int, ...], dtype: type) -> None:
    a = np.ones(shape, dtype)
    functions = (linalg.lu, linalg.expm, jnp.linalg.eig, jnp.linalg.eigvals, jnp.linalg.inv)

    def loss(a: Any, function: Callable[..., Any]) -> Any:
        return sum(jnp.sum(jnp.abs(leaf)) for leaf in fxad.tree.leaves(function(a)))

    for function in functions:
        for value, slope in (
            (function(a), fxad.grad(loss)(a, function)),
            (
                fxad.jit(function)(a),
                fxad.jit(fxad.grad(loss), static_argnums=1)(a, function),
            ),
        ):
            assert fxad.tree.leaves(value)[-1].shape[: len(shape) - 2] == shape[:-2]
            assert slope.shape == shape


# ---------------------------------------------------------------- functions of matrices


def test_square_roots_of_matrices_without_a_basis_of_eigenvectors() -> None:
    jordan = np.array([[4.0, 1.0, 0.0], [0.0, 4.0, 1.0], [0.0, 0.0, 4.0]])
    root = fxad.jit(linalg.sqrtm)(jordan)
    near(root @ root, jordan)
    near(linalg.sqrtm(np.zeros((3, 3))), np.zeros((3, 3)))
    assert np.isnan(linalg.sqrtm(np.array([[0.0, 1.0], [0.0, 0.0]]))).any()  # it has no root
    roots = linalg.sqrtm(STACK)
    near(roots @ roots, STACK)


def test_funm_is_the_function_of_the_eigenvalues() -> None:
    near(linalg.funm(A, jnp.exp), linalg.expm(A), 1e-9)
    near(fxad.jit(lambda a: linalg.funm(a, lambda z: z**2))(A), A @ A, 1e-9)
    value, error = linalg.funm(A, jnp.sin, disp=False)
    near(value, linalg.funm(A, jnp.sin))
    assert 0 < float(error) < 1e-10
    close = np.diag([1.0, 1.0 + 1e-9]) + np.diag([1.0], 1)
    assert float(linalg.funm(close, jnp.exp, disp=False)[1]) > 1e-8
    with pytest.raises(ShapeError, match="funm: takes one matrix"):
        linalg.funm(STACK, jnp.exp)


def test_the_derivative_of_the_exponential() -> None:
    way = R.standard_normal((4, 4))
    block = np.block([[A, way], [np.zeros((4, 4)), A]])
    value, slope = fxad.jit(linalg.expm_frechet)(A, way)
    near(value, linalg.expm(A))
    near(slope, linalg.expm(block)[:4, 4:], 1e-9)
    near(linalg.expm_frechet(A, way, method="blockEnlarge", compute_expm=False), slope)
    with pytest.raises(BadArgument, match="method must be SPS or blockEnlarge"):
        linalg.expm_frechet(A, way, method="other")
    with pytest.raises(ShapeError, match="one shape"):
        linalg.expm_frechet(A, B)


# ---------------------------------------------------------------- factors


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (2, 4, 3)])
def test_lu_of_any_shape(shape: tuple[int, ...]) -> None:
    a = R.standard_normal(shape)
    p, low, up = fxad.jit(linalg.lu)(a)
    near(p @ low @ up, a)
    size = min(shape[-2:])
    assert low.shape[-1] == up.shape[-2] == size and np.abs(low).max() <= 1 + 1e-12
    if len(shape) == 2:
        slopes(lambda a: linalg.lu(a)[1:], a)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_qr_with_pivoting(shape: tuple[int, int]) -> None:
    a = R.standard_normal(shape)
    for mode in ("full", "economic"):
        q, r, order = linalg.qr(a, pivoting=True, mode=mode)
        near(q @ r, a[:, order])
        near(q.T @ q, np.eye(q.shape[1]))
        main = np.abs(np.diag(r))
        assert (main[:-1] >= main[1:]).all() and not np.tril(r, -1).any()
    r, order = linalg.qr(a, pivoting=True, mode="r")
    near(r.T @ r, a[:, order].T @ a[:, order])
    stack = np.stack([a, 2 * a[:, ::-1]])
    for i, one in enumerate(stack):
        near(linalg.qr(stack, pivoting=True)[1][i], linalg.qr(one, pivoting=True)[1])
    slopes(lambda a: linalg.qr(a, pivoting=True, mode="economic")[1], a)


@pytest.mark.parametrize("pivoting", [False, True])
def test_products_with_the_orthogonal_factor(pivoting: bool) -> None:
    a, b, c = Q, R.standard_normal(4), R.standard_normal((3, 2))
    q, r, *order = linalg.qr(a, mode="economic", pivoting=pivoting)
    onto, triangle, *same = linalg.qr_multiply(a, b, pivoting=pivoting)
    near(onto, b @ np.asarray(q))
    near(triangle, r)
    assert [o.tolist() for o in order] == [o.tolist() for o in same]
    near(linalg.qr_multiply(a, c, "left", pivoting)[0], q @ c)
    turned = a + 1j * a[::-1]
    near(
        linalg.qr_multiply(turned, c, "left", conjugate=True)[0],
        np.conj(linalg.qr(turned, mode="economic")[0]) @ c,
    )
    with pytest.raises(ShapeError, match="qr_multiply"):
        linalg.qr_multiply(a, c)


def test_eigenvalues_of_tridiagonal_matrices() -> None:
    d, e = R.standard_normal(6), R.standard_normal(5)
    dense = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
    wanted, _ = np.linalg.eigh(dense)
    near(linalg.eigh_tridiagonal(d, e, eigvals_only=True), wanted)
    values, vectors = fxad.jit(linalg.eigh_tridiagonal)(d, e)
    near(dense @ vectors, vectors * values)
    some, vectors = linalg.eigh_tridiagonal(d, e, select="i", select_range=(1, 3))
    near(some, wanted[1:4])
    assert vectors.shape == (6, 3)
    slopes(lambda d, e: linalg.eigh_tridiagonal(d, e, eigvals_only=True), d, e)
    with pytest.raises(BadArgument, match="select must be a or i"):
        linalg.eigh_tridiagonal(d, e, select="v", select_range=(0, 1))
    with pytest.raises(ShapeError, match="n and n - 1 numbers"):
        linalg.eigh_tridiagonal(d, d)


# ---------------------------------------------------------------- special matrices


def test_special_matrices_by_what_they_do() -> None:
    v, w = R.standard_normal(5), R.standard_normal((2, 3))
    roots = np.array([3.0, -1.0, 0.5, 2.0])
    for made in (linalg.companion, linalg.fiedler_companion):
        near(np.sort(np.linalg.eigvals(made(np.poly(roots))).real), np.sort(roots), 1e-8)
    for mode in ("full", "same", "valid"):
        for n in (1, 2, 5, 8):
            x = R.standard_normal(n)
            near(linalg.convolution_matrix(v, n, mode) @ x, np.convolve(v, x, mode))
    near(linalg.circulant(v) @ v, np.fft.ifft(np.fft.fft(v) ** 2).real)
    near(linalg.dft(5) @ v, np.fft.fft(v))
    near(linalg.dft(4, "sqrtn") @ np.conj(linalg.dft(4, "sqrtn")), np.eye(4))
    for n in (1, 3, 6):
        near(linalg.hilbert(n) @ linalg.invhilbert(n), np.eye(n), 1e-5)
        for kind in ("symmetric", "lower", "upper"):
            near(linalg.pascal(n, kind) @ linalg.invpascal(n, kind), np.eye(n), 1e-9)
        near(linalg.helmert(n, full=True) @ linalg.helmert(n, full=True).T, np.eye(n))
    hadamard = linalg.hadamard(8)
    assert (hadamard @ hadamard.T == 8 * np.eye(8)).all() and hadamard.dtype == np.int64
    near(linalg.leslie(w, w[:, 1:])[1], [w[1], [w[1, 1], 0, 0], [0, w[1, 2], 0]])
    slopes(linalg.toeplitz, v, v[:3])
    assert linalg.toeplitz(w).shape == linalg.hankel(w).shape == (2, 3, 3)
    assert np.isinf(linalg.pascal(600)[-1, -1]) and linalg.pascal(600)[1, 1] == 2
    for call in (
        lambda: linalg.hadamard(6),
        lambda: linalg.dft(3, "other"),
        lambda: linalg.pascal(3, "other"),
        lambda: linalg.convolution_matrix(v, 0),
        lambda: linalg.helmert(0),
    ):
        with pytest.raises(BadArgument):
            call()
    for call in (
        lambda: linalg.companion(np.ones(1)),
        lambda: linalg.leslie(v, v),
        lambda: linalg.circulant(1.0),
    ):
        with pytest.raises(ShapeError):
            call()


@pytest.mark.peers
def test_special_matrices_are_scipys() -> None:
    peer = pytest.importorskip("scipy.linalg")
    v = R.standard_normal(5)
    for name in "circulant companion fiedler fiedler_companion hankel toeplitz".split():
        near(getattr(linalg, name)(v), getattr(peer, name)(v))
    for name in "dft hadamard helmert hilbert invhilbert invpascal pascal".split():
        near(getattr(linalg, name)(8), getattr(peer, name)(8))
    near(linalg.hankel(v, v[:3]), peer.hankel(v, v[:3]))
    near(linalg.leslie(v, v[1:]), peer.leslie(v, v[1:]))
    near(linalg.funm(A, jnp.cosh), peer.coshm(A), 1e-9)
    near(linalg.qr(A, pivoting=True)[2], peer.qr(A, pivoting=True)[2])
    for got, wanted in zip(
        linalg.eigh_tridiagonal(v, v[1:]), peer.eigh_tridiagonal(v, v[1:]), strict=True
    ):
        near(np.abs(got), np.abs(wanted), 1e-9)
