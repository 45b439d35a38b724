"""fxad.lax.linalg's factorisations beside what they must multiply to, and JAX's (peers)."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
from fxad.core.errors import BadArgument, ShapeError
from fxad.lax import linalg

RANDOM = np.random.default_rng(0)
A = RANDOM.standard_normal((3, 4, 4))
TALL = RANDOM.standard_normal((3, 5, 3))
TAUS = RANDOM.uniform(0.5, 1.5, (3, 3))


@pytest.fixture(autouse=True)
def _float64():
    with fxad.enable_x64():
        yield


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def product_of_reflections(a, taus):
    """Q of one matrix, by its definition."""
    q = np.eye(len(a), dtype=a.dtype)
    for k, tau in enumerate(taus):
        v = np.concatenate([np.zeros(k), [1], a[k + 1 :, k]])
        q = q @ (np.eye(len(a)) - tau * np.outer(v, v.conj()))
    return q


def test_lu_and_its_permutation():
    both, pivots, order = linalg.lu(A)
    low, up = np.tril(both, -1) + np.eye(4), np.triu(both)
    np.testing.assert_allclose(low @ up, np.take_along_axis(A, np.asarray(order)[..., None], 1))
    assert linalg.lu_pivots_to_permutation(pivots, 4).tolist() == order.tolist()
    assert linalg.lu_pivots_to_permutation(np.array([2, 2]), 3).tolist() == [2, 0, 1]
    assert linalg.lu_pivots_to_permutation(np.zeros((2, 0), int), 2).tolist() == [[0, 1], [0, 1]]


def test_left_and_right_eigenvectors():
    values, left, right = (np.asarray(part) for part in linalg.eig(A))
    np.testing.assert_allclose(A @ right, right * values[:, None], atol=1e-12)
    np.testing.assert_allclose(adjoint(left) @ A, values[..., None] * adjoint(left), atol=1e-12)
    for vectors in (left, right):
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=-2), np.ones((3, 4)))
    assert len(linalg.eig(A, compute_left_eigenvectors=False)) == 2
    assert len(linalg.eig(A, compute_right_eigenvectors=False)) == 2


@pytest.mark.parametrize("complex_", [False, True])
def test_reflections(complex_):
    a = TALL * (1 + 0.5j) if complex_ else TALL
    whole = np.stack([product_of_reflections(x, taus) for x, taus in zip(a, TAUS, strict=True)])
    np.testing.assert_allclose(linalg.householder_product(a, TAUS), whole[..., :3], atol=1e-12)
    c = RANDOM.standard_normal((3, 5, 2))
    for left in (True, False):
        for transpose in (True, False):
            q = adjoint(whole) if transpose else whole
            wanted = q @ c if left else adjoint(c) @ q
            given = c if left else adjoint(c)
            found = linalg.ormqr(a, TAUS, given, left=left, transpose=transpose)
            np.testing.assert_allclose(found, wanted, atol=1e-11)
    q, r = np.linalg.qr(TALL[0], mode="raw")
    q_numpy = np.linalg.qr(TALL[0])[0]
    np.testing.assert_allclose(linalg.householder_product(q.T, r), q_numpy, atol=1e-12)


def test_updates():
    c = A @ adjoint(A)
    found = linalg.symmetric_product(A, c, alpha=2.0, beta=0.5, symmetrize_output=True)
    np.testing.assert_allclose(found, 2.5 * c, atol=1e-12)
    r, w = np.linalg.cholesky(c).swapaxes(-1, -2), RANDOM.standard_normal((3, 4))
    updated = linalg.cholesky_update(r, w)
    wanted = np.linalg.cholesky(c + w[..., None] * w[:, None]).swapaxes(-1, -2)
    np.testing.assert_allclose(updated, wanted, atol=1e-11)


def test_derivatives_and_jit():
    functions = [
        (lambda a: linalg.lu(a)[0], (A[0],)),
        (lambda a: linalg.eig(a)[0].real.sum(), (A[0] @ A[0].T,)),
        (linalg.householder_product, (TALL[0], TAUS[0])),
        (lambda a, c: linalg.ormqr(a, TAUS[0], c), (TALL[0], TALL[1])),
        (linalg.cholesky_update, (np.triu(A[0]) + 4 * np.eye(4), A[1, 0])),
        (lambda a: linalg.symmetric_product(a, a, beta=1.0), (A[0],)),
    ]
    for function, args in functions:
        fxad.check_grads(function, args, order=1)
        np.testing.assert_allclose(fxad.jit(function)(*args), function(*args), atol=1e-10)


def test_what_is_refused():
    with pytest.raises(ShapeError, match="no factors for the columns"):
        linalg.householder_product(TALL, TAUS[:2])
    with pytest.raises(ShapeError, match="at least as many rows as columns"):
        linalg.householder_product(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ShapeError, match="do not go together"):
        linalg.ormqr(TALL[0], TAUS[0], np.ones((4, 2)))
    with pytest.raises(ShapeError, match="do not go together"):
        linalg.cholesky_update(np.eye(3), np.ones(2))
    with pytest.raises(ShapeError, match="no pivots of 1 rows"):
        linalg.lu_pivots_to_permutation(np.array([0, 1]), 1)
    with pytest.raises(BadArgument, match="subset_by_index"):
        linalg.eigh(A, subset_by_index=(0, 2))
    with pytest.raises(BadArgument, match="subset_by_index"):
        linalg.svd(A, subset_by_index=(0, 2))
    with pytest.raises(BadArgument, match="perturb_singular"):
        linalg.tridiagonal_solve(A[0, 0], A[0, 0], A[0, 0], A[0], perturb_singular=True)
    with pytest.raises(ShapeError, match="qdwh: expects one matrix"):
        linalg.qdwh(np.ones((2, 3)))
    for function in (linalg.schur, linalg.hessenberg, linalg.tridiagonal):
        with pytest.raises(ShapeError, match=f"{function.__name__}: expects square matrices"):
            function(TALL)


@pytest.mark.peers
def test_factors_are_jaxs():
    theirs = pytest.importorskip("jax.lax.linalg")
    a, tall, taus = (x.astype(np.float32) for x in (A, TALL, TAUS))

    def same(name, *args, **static):
        ours, wanted = (
            getattr(linalg, name)(*args, **static),
            getattr(theirs, name)(*args, **static),
        )
        listed = ours if isinstance(ours, tuple | list) else [ours]
        against = wanted if isinstance(wanted, tuple | list) else [wanted]
        for one, other in zip(listed, against, strict=True):
            np.testing.assert_allclose(one, np.asarray(other), rtol=1e-4, atol=1e-4)

    same("lu", a)
    same("lu_pivots_to_permutation", np.array([[2, 2], [0, 1]], np.int32), 3)
    same("householder_product", tall, taus)
    for left in (True, False):
        same("ormqr", tall[0], taus[0], np.eye(5, dtype=np.float32), left=left, transpose=True)
    same("symmetric_product", a, a @ adjoint(a), alpha=2.0, beta=0.5, symmetrize_output=True)
    same("cholesky_update", np.linalg.cholesky(a[0] @ a[0].T).T, a[1, 0])
    values, left, right = (np.asarray(part) for part in theirs.eig(a[0]))
    mine = [np.asarray(part) for part in linalg.eig(a[0])]
    order, other = np.lexsort((values.imag, values.real)), np.lexsort((mine[0].imag, mine[0].real))
    np.testing.assert_allclose(mine[0][other], values[order], atol=1e-4)
    for own, wanted in ((mine[1], left), (mine[2], right)):  # up to their phase
        phases = np.abs((own[:, other].conj() * wanted[:, order]).sum(0))
        np.testing.assert_allclose(phases, np.ones(4), atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_polar_factors_by_halleys_iteration(dtype):
    eps = np.finfo(dtype).eps
    for size in (3, 5):
        x = (RANDOM.standard_normal((5, size)) + 1j * RANDOM.standard_normal((5, size))) * 1e3
        x = (x if dtype[0] == "c" else x.real).astype(dtype)
        x[:, 0] *= 1e-3
        u, h, steps, converged = fxad.jit(linalg.qdwh)(x)
        np.testing.assert_allclose(u @ h, x, atol=1e5 * eps)
        np.testing.assert_allclose(adjoint(np.asarray(u)) @ u, np.eye(size), atol=30 * eps)
        np.testing.assert_array_equal(h, adjoint(np.asarray(h)))
        assert np.linalg.eigvalsh(h).min() > 0 and converged and 0 < steps <= 6
    _, _, steps, converged = linalg.qdwh(x, max_iterations=1)
    assert steps == 1 and not converged


@pytest.mark.peers
def test_lu_and_pivoted_qr_of_any_shape_are_jaxs():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        for x in (TALL, TALL.swapaxes(1, 2), A, A + 1j * A[::-1]):
            for name, options in (("lu", {}), ("qr", {"pivoting": True})):
                ours = getattr(linalg, name)(x, **options)
                theirs = getattr(jax.lax.linalg, name)(x, **options)
                for got, wanted in zip(ours, theirs, strict=True):
                    assert got.dtype == wanted.dtype
                    np.testing.assert_allclose(got, wanted, atol=1e-12)
