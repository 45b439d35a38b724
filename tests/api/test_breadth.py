"""Corners of fxad.numpy: derivatives at ties, complex extremes, eig, empty and scalar operands."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import ConcretizationError, ShapeError

R = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def wide():
    with fxad.enable_x64():
        yield


@pytest.mark.parametrize(("x", "y"), [(2.0, 2.0), (0.6, 0.7), (-1.0, 3.0)])
def test_second_derivatives_of_hypot_and_logaddexp_at_ties(x: float, y: float) -> None:
    hessian = np.asarray(fxad.hessian(lambda v: jnp.hypot(v[0], v[1]))(np.array([x, y])))
    h = math.hypot(x, y)
    np.testing.assert_allclose(hessian, np.array([[y * y, -x * y], [-x * y, x * x]]) / h**3)
    hessian = np.asarray(fxad.hessian(lambda v: jnp.logaddexp(v[0], v[1]))(np.array([x, y])))
    share = 1 / (1 + math.exp(y - x))
    np.testing.assert_allclose(hessian, share * (1 - share) * np.array([[1, -1], [-1, 1]]))


def test_hypot_and_logaddexp_at_their_limits() -> None:
    assert fxad.grad(jnp.hypot, argnums=(0, 1))(0.0, 0.0) == (0, 0)
    inf = math.inf
    for a, b in ((inf, inf), (-inf, -inf), (inf, -inf), (1.0, -inf)):
        assert float(jnp.logaddexp(a, b)) == np.logaddexp(a, b)
    assert fxad.grad(jnp.logaddexp, argnums=(0, 1))(-inf, -inf) == (0.5, 0.5)
    assert fxad.grad(jnp.logaddexp, argnums=(0, 1))(1.0, -inf) == (1, 0)
    assert math.isnan(jnp.logaddexp(math.nan, 1.0))
    big = 1e200
    assert float(jnp.hypot(big, big)) == pytest.approx(math.sqrt(2) * big)


@pytest.mark.parametrize("way", ["method", "astype", "asarray"])
def test_a_dtype_that_is_asked_for_is_strong(way: str) -> None:
    """As in JAX: what was asked for stays so beside float16, eagerly, replayed and compiled."""
    wide = jnp.asarray(2.0).dtype

    def beside(number: Any) -> Any:
        if way == "method":
            asked = jnp.asarray(number).astype(wide)
        else:
            asked = getattr(jnp, way)(jnp.asarray(number), wide)
        return asked * jnp.ones(2, jnp.float16)

    for _ in range(4):
        assert beside(2.0).dtype == wide
    assert fxad.jit(beside)(2.0).dtype == wide
    assert (jnp.asarray(2.0) * jnp.ones(2, jnp.float16)).dtype == jnp.float16


def test_where_of_two_numbers_is_weakly_typed() -> None:
    x = np.ones(2, np.float32)
    assert (jnp.where(x > 0, 1.0, 2.0) * x).dtype == np.float32
    assert jnp.where(x > 0, x, 2.0).dtype == np.float32
    assert fxad.jit(lambda v: jnp.where(v > 0, 1, 2) * v)(x).dtype == np.float32


def complexes() -> list[np.ndarray]:
    plain = R.integers(-2, 3, (4, 5)) + 1j * R.integers(-2, 3, (4, 5))
    broken = plain.copy()
    broken[1, 2] = complex(math.nan, 0)
    broken[3, 0] = complex(0, math.nan)
    return [plain, broken]


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
def test_complex_max_and_min_are_lexicographic(axis: Any) -> None:
    for z in complexes():
        for name in ("max", "min"):
            got, wanted = getattr(jnp, name)(z, axis), getattr(np, name)(z, axis)
            np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
            np.testing.assert_array_equal(np.nan_to_num(got), np.nan_to_num(wanted))


def test_gradient_of_a_complex_max_is_at_it() -> None:
    z = np.array([1 + 2j, 3 - 1j, 3 + 1j])
    gradient = fxad.grad(lambda v: jnp.abs(jnp.max(v)) ** 2)(z)
    np.testing.assert_allclose(gradient, [0, 0, 2 * (3 - 1j)])


def test_which_elements_are_complex() -> None:
    z = np.array([1 + 0j, 1j])
    np.testing.assert_array_equal(jnp.iscomplex(z), [False, True])
    np.testing.assert_array_equal(jnp.isreal(z), [True, False])
    np.testing.assert_array_equal(jnp.isreal(np.ones(2)), [True, True])
    assert jnp.real_if_close(z).dtype == np.complex128
    assert jnp.real_if_close(z[:1] + 1e-18j).dtype == np.float64
    with pytest.raises(ConcretizationError, match="real_if_close"):
        fxad.jit(jnp.real_if_close)(z)


@pytest.mark.parametrize("kind", ["real", "complex", "batch"])
def test_eig(kind: str) -> None:
    shape = (2, 5, 5) if kind == "batch" else (5, 5)
    a = R.standard_normal(shape) + (1j * R.standard_normal(shape) if kind == "complex" else 0)
    w, v = fxad.jit(jnp.linalg.eig)(a)
    assert w.dtype == v.dtype == np.complex128
    np.testing.assert_allclose(a @ v, v * np.asarray(w)[..., None, :], atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(v, axis=-2), 1)
    np.testing.assert_array_equal(w, jnp.linalg.eigvals(a))
    way = R.standard_normal(shape)

    def ends(step: float) -> Any:
        return np.linalg.eig(a + step * way)

    _, tangents = fxad.jvp(jnp.linalg.eig, (a,), (way.astype(a.dtype),))
    for got, upper, lower in zip(tangents, ends(1e-6), ends(-1e-6), strict=True):
        np.testing.assert_allclose(got, (upper - lower) / 2e-6, rtol=1e-5, atol=1e-6)


def test_eig_in_reverse_and_what_it_refuses() -> None:
    a = R.standard_normal((4, 4))
    loss = lambda m: jnp.sum(jnp.abs(jnp.linalg.eigvals(m)) ** 2)  # noqa: E731
    gradient = np.asarray(fxad.grad(loss)(a))
    way = R.standard_normal((4, 4))
    difference = (loss(a + 1e-6 * way) - loss(a - 1e-6 * way)) / 2e-6
    assert float(np.vdot(gradient, way)) == pytest.approx(float(difference), rel=1e-6)
    assert jnp.linalg.eigvals(np.eye(2, dtype=np.float16)).dtype == np.complex64
    with pytest.raises(ShapeError, match="square"):
        jnp.linalg.eig(np.ones((2, 3)))


def test_joining_and_contracting_odd_operands() -> None:
    np.testing.assert_array_equal(jnp.column_stack([1.0, 2.0]), [[1, 2]])
    np.testing.assert_array_equal(
        jnp.column_stack([np.arange(3), np.ones((3, 2))]),
        np.column_stack([np.arange(3), np.ones((3, 2))]),
    )
    cube = np.arange(24).reshape(2, 3, 4)
    for got, wanted in zip(jnp.dsplit(cube, 2), np.dsplit(cube, 2), strict=True):
        np.testing.assert_array_equal(got, wanted)
    empty = jnp.einsum("...ij,...jk->...ik", np.ones((0, 2, 3)), np.ones((0, 3, 4)))
    assert empty.shape == (0, 2, 4)
