"""Hessenberg, tridiagonal and Schur forms: what they must multiply to, and JAX's (peers)."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.lax import linalg as lax_linalg
from fxad.scipy import linalg

R = np.random.default_rng(3)
REAL = R.standard_normal((6, 6))
COMPLEX = REAL + 1j * R.standard_normal((6, 6))
ORTHOGONAL = np.linalg.qr(REAL)[0]
JORDAN = np.diag([2.0] * 5) + np.diag(np.ones(4), 1)
HARD = {
    "one": np.array([[3.0]]),
    "none": np.zeros((0, 0)),
    "rotation": np.array([[0.0, 1.0], [-1.0, 0.0]]),
    "permutation": np.roll(np.eye(6), 1, 0),
    "jordan": JORDAN,
    "jordan below": JORDAN.T,
    "zero": np.zeros((5, 5)),  # one size compiles once
    "identity": np.eye(5),
    "equal entries": np.ones((5, 5)),
    "symmetric": REAL + REAL.T,
    "skew": REAL - REAL.T,
    "orthogonal": ORTHOGONAL,
    "triangle": np.triu(REAL),
    "large": 1e200 * REAL,
    "small": 1e-200 * REAL,
    "wide range": np.diag(10.0 ** np.arange(6)) @ REAL,
    "long": R.standard_normal((40, 40)),
}


@pytest.fixture(autouse=True)
def wide():
    with fxad.enable_x64():
        yield


def adjoint(a):
    return np.conj(np.swapaxes(a, -1, -2))


def check(a, t, q):
    """a = q t q^H up to a small multiple of the rounding of its largest entry, and t has the form:
    for real matrices with blocks as LAPACK standardises them."""
    t, q = np.asarray(t), np.asarray(q)
    eps, size = np.finfo(t.dtype).eps, len(a)
    unit = 10 * (size + 1) * eps
    scale = np.abs(a).max(initial=0) or 1.0
    np.testing.assert_allclose(q @ (t / scale) @ adjoint(q), a / scale, rtol=0, atol=unit)
    np.testing.assert_allclose(adjoint(q) @ q, np.eye(size), rtol=0, atol=unit)
    assert not np.tril(t, -2).any()
    blocks = np.flatnonzero(np.diag(t, -1))
    if t.dtype.kind == "c":
        assert not len(blocks)
    for i in blocks:
        block = t[i : i + 2, i : i + 2] / scale
        assert block[0, 0] == block[1, 1] and block[0, 1] * block[1, 0] < 0
        assert i + 1 not in blocks


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("size", [2, 3, 7])
def test_schur_forms(dtype, size):
    a = (COMPLEX if dtype[0] == "c" else REAL)[:size, :size].astype(dtype)
    a = R.permutation(np.tile(a, (2, 2)))[:size, :size]
    t, q = fxad.jit(linalg.schur)(a)
    assert t.dtype == q.dtype == a.dtype
    check(a, t, q)


@pytest.mark.parametrize("name", HARD)
def test_matrices_that_are_hard_to_reduce(name):
    a = HARD[name]
    check(a, *linalg.schur(a))
    t, q = linalg.schur(a, output="complex")
    assert t.dtype == np.complex128
    check(a.astype(complex), t, q)
    check(a.astype(complex), *linalg.rsf2csf(*linalg.schur(a)))


def test_batches_and_lanes():
    stack = R.standard_normal((3, 4, 4))
    t, q = linalg.schur(stack)
    lanes = fxad.jit(fxad.vmap(linalg.schur))(stack)
    for i, a in enumerate(stack):
        check(a, t[i], q[i])
        check(a, lanes[0][i], lanes[1][i])
    (alone,) = lax_linalg.schur(stack[0], compute_schur_vectors=False)
    np.testing.assert_array_equal(alone, lax_linalg.schur(stack[0])[0])


def test_a_matrix_that_is_not_finite_gives_nan():
    for bad in (np.nan, np.inf):
        a = REAL.copy()
        a[2, 3] = bad
        t, q = linalg.schur(a)
        assert np.isnan(t).all() and np.isnan(q).all()


def test_schur_has_no_derivative_and_says_so():
    with pytest.raises(TypeMismatch, match="schur: has no derivative"):
        fxad.grad(lambda a: linalg.schur(a)[0].sum())(REAL)
    with pytest.raises(BadArgument, match="output must be real or complex"):
        linalg.schur(REAL, output="neither")
    with pytest.raises(ShapeError, match="rsf2csf"):
        linalg.rsf2csf(REAL, REAL[:3])


@pytest.mark.parametrize("a", [REAL, COMPLEX, REAL[:1, :1], REAL[:2, :2]])
def test_hessenberg_forms(a):
    h, q = linalg.hessenberg(a, calc_q=True)
    np.testing.assert_allclose(q @ h @ adjoint(q), a, atol=1e-12)
    np.testing.assert_allclose(adjoint(q) @ q, np.eye(len(a)), atol=1e-12)
    assert not np.tril(h, -2).any()
    np.testing.assert_array_equal(linalg.hessenberg(a), h)


def test_the_slope_of_a_hessenberg_form():
    def squares(a):
        return (linalg.hessenberg(a)[:3] ** 2).sum()

    way = R.standard_normal(REAL.shape)
    wanted = (squares(REAL + 1e-6 * way) - squares(REAL - 1e-6 * way)) / 2e-6
    assert float(fxad.jvp(squares, (REAL,), (way,))[1]) == pytest.approx(float(wanted), rel=1e-6)
    slope = fxad.jit(fxad.grad(squares))(REAL)
    assert float((slope * way).sum()) == pytest.approx(float(wanted), rel=1e-6)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("a", [REAL + REAL.T, COMPLEX + adjoint(COMPLEX)])
def test_tridiagonal_forms_read_one_triangle(a, lower):
    half = np.tril(a) if lower else np.triu(a)
    _, d, e, _ = lax_linalg.tridiagonal(half, lower=lower)
    tridiagonal = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
    np.testing.assert_allclose(np.linalg.eigvalsh(tridiagonal), np.linalg.eigvalsh(a), atol=1e-11)


@pytest.mark.peers
@pytest.mark.parametrize("a", [REAL, COMPLEX, np.stack([REAL, REAL.T])])
def test_forms_are_those_of_jax(a):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        pairs = [(lax_linalg.hessenberg(a), jax.lax.linalg.hessenberg(a))]
        hermitian = a + adjoint(a)
        for lower in (True, False):
            theirs = jax.lax.linalg.tridiagonal(hermitian, lower=lower)
            pairs.append((lax_linalg.tridiagonal(hermitian, lower=lower), theirs))
        for ours, theirs in pairs:
            for got, wanted in zip(ours, theirs, strict=True):
                assert got.dtype == wanted.dtype
                np.testing.assert_allclose(got, wanted, atol=1e-11)
        if a.ndim == 2:
            t, q = jax.scipy.linalg.schur(a)
            ours = linalg.rsf2csf(np.asarray(t), np.asarray(q))
            for got, wanted in zip(ours, jax.scipy.linalg.rsf2csf(t, q), strict=True):
                np.testing.assert_allclose(got, wanted, atol=1e-11)
            eigenvalues = [np.sort_complex(np.linalg.eigvals(m)) for m in (linalg.schur(a)[0], t)]
            np.testing.assert_allclose(*eigenvalues, atol=1e-11)
