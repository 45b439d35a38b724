"""Reflections as LAPACK keeps them: against NumPy's raw and complete factors."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, ShapeError
from fxad.lax import linalg

SHAPES = [(5, 3), (4, 4), (3, 5), (2, 6, 4), (1, 1), (4, 1)]


@pytest.fixture(autouse=True)
def _x64():
    with fxad.enable_x64():
        yield


def drawn(shape, dtype):
    r = np.random.default_rng(0)
    real = r.standard_normal(shape)
    return (real + 1j * r.standard_normal(shape) if dtype == "c16" else real).astype(dtype)


def adjoint(a):
    return np.conj(np.swapaxes(a, -1, -2))


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_packed_factors_are_lapacks(shape, dtype) -> None:
    a, tol = drawn(shape, dtype), 1e-5 if dtype == "f4" else 1e-12
    wanted = np.linalg.qr(a, mode="raw")
    raw = lambda a: jnp.linalg.qr(a, mode="raw")  # noqa: E731
    for found in raw(a), fxad.jit(raw)(a):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=tol, atol=tol)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
@pytest.mark.parametrize("shape", [s for s in SHAPES if s[-2] >= s[-1]])
def test_products_of_reflections(shape, dtype) -> None:
    a, tol = drawn(shape, dtype), 1e-4 if dtype == "f4" else 1e-11
    h, taus = np.linalg.qr(a, mode="raw")
    packed, full = np.swapaxes(h, -1, -2), np.linalg.qr(a, mode="complete")[0]
    thin = linalg.householder_product(packed, taus)
    np.testing.assert_allclose(thin, full[..., : shape[-1]], rtol=tol, atol=tol)
    c = drawn((*shape[:-2], shape[-2], 2), dtype)
    for transpose, q in (False, full), (True, adjoint(full)):
        found = fxad.jit(lambda *a, t=transpose: linalg.ormqr(*a, transpose=t))(packed, taus, c)
        np.testing.assert_allclose(found, q @ c, rtol=tol, atol=tol)
        right = linalg.ormqr(packed, taus, adjoint(c), left=False, transpose=transpose)
        np.testing.assert_allclose(right, adjoint(c) @ q, rtol=tol, atol=tol)


def test_nothing_to_reflect() -> None:
    for a in np.zeros((4, 3)), np.eye(4, 3), np.diag([1.0, -2.0]):
        for one, other in zip(
            jnp.linalg.qr(a, mode="raw"), np.linalg.qr(a, mode="raw"), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_derivatives() -> None:
    """Of the least-squares solution by reflections, as lineax finds it."""
    a, b = drawn((5, 3), "f8"), drawn((5,), "f8")

    def solution(a, b):
        h, taus = jnp.linalg.qr(a, mode="raw")
        packed = jnp.swapaxes(h, -1, -2)
        turned = linalg.ormqr(packed, taus, b[:, None], transpose=True)[:3, 0]
        return fxad.scipy.linalg.solve_triangular(packed[:3], turned)

    np.testing.assert_allclose(solution(a, b), np.linalg.lstsq(a, b)[0], rtol=1e-10)
    fxad.check_grads(solution, (a, b), order=1, modes=("fwd", "rev"))


def test_bad_input() -> None:
    with pytest.raises(BadArgument, match="'reduced', 'complete', 'r' or 'raw', got 'full'"):
        jnp.linalg.qr(np.eye(2), mode="full")
    with pytest.raises(ShapeError, match="at least as many rows as columns"):
        linalg.householder_product(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ShapeError, match="no factors for the columns"):
        linalg.householder_product(np.ones((3, 2)), np.ones(3))
    with pytest.raises(ShapeError, match="do not go together"):
        linalg.ormqr(np.ones((3, 2)), np.ones(2), np.ones((2, 2)))
