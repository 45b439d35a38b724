"""custom_root, custom_linear_solve and closure_convert, against formulas and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import ShapeError, TreeError, TypeMismatch


@pytest.fixture(autouse=True)
def _x64():
    with fxad.enable_x64():
        yield


def newton(f, x):
    slope = fxad.grad(f)
    return lax.while_loop(lambda x: jnp.abs(f(x)) > 1e-13, lambda x: x - f(x) / slope(x), x)


def cube_root(y, scale=1.0):
    return lax.custom_root(
        lambda x: x**3 - scale * y, 1.0, newton, lambda g, y: y / g(jnp.ones_like(y))
    )


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit])
def test_root_and_its_derivatives(wrap):
    f = wrap(cube_root)
    assert float(f(8.0)) == pytest.approx(2.0)
    assert float(wrap(fxad.grad(cube_root))(8.0)) == pytest.approx(1 / 12)
    second = wrap(fxad.grad(fxad.grad(cube_root)))(8.0)
    assert float(second) == pytest.approx(-2 / 9 * 8 ** (-5 / 3))
    ys = np.array([1.0, 8.0, 27.0])
    lanes = wrap(fxad.vmap(fxad.grad(cube_root)))(ys)
    np.testing.assert_allclose(lanes, ys ** (-2 / 3) / 3)
    fxad.check_grads(wrap(cube_root), (8.0, 2.0), order=2)


def test_root_ignores_derivatives_of_what_solvers_capture():
    matrix = np.array([[3.0, 1.0], [0.5, 2.0]])

    def linear(a, b):
        known = jnp.linalg.solve(a, b)
        inverse = jnp.linalg.inv(a)
        return lax.custom_root(
            lambda x: a @ x - b, jnp.zeros(2), lambda f, x: known, lambda g, y: inverse @ y
        )

    b = np.array([1.0, -2.0])
    np.testing.assert_allclose(linear(matrix, b), np.linalg.solve(matrix, b))
    fxad.check_grads(linear, (matrix, b), order=1)


def test_root_with_aux():
    def solve(f, x):
        return newton(f, x), {"steps": 3}

    def f(y):
        return lax.custom_root(
            lambda x: x * x - y, 1.0, solve, lambda g, y: y / g(jnp.ones_like(y)), has_aux=True
        )

    (x, aux), (dx, _) = fxad.jvp(f, (4.0,), (1.0,))
    assert (float(x), float(dx), int(aux["steps"])) == (pytest.approx(2), pytest.approx(0.25), 3)


def test_root_errors():
    with pytest.raises(TreeError, match="result of"):
        lax.custom_root(lambda x: (x, x), 0.0, lambda f, x: x, lambda g, y: y)
    with pytest.raises(ShapeError, match="solution of"):
        lax.custom_root(lambda x: x, 0.0, lambda f, x: jnp.ones(2), lambda g, y: y)
    with pytest.raises(TypeMismatch, match=r"\(x, aux\)"):
        lax.custom_root(lambda x: x, 0.0, lambda f, x: x, lambda g, y: y, has_aux=True)


def richardson(matvec, b):
    """x <- x + (b - A x) / 8 until it stops moving: not differentiable in reverse."""

    def step(state):
        x, _ = state
        rest = b - matvec(x)
        return x + rest / 8, jnp.max(jnp.abs(rest))

    return lax.while_loop(lambda s: s[1] > 1e-13, step, (b, jnp.asarray(1.0)))[0]


A = np.array([[4.0, 1.0, 0.5], [0.0, 3.0, 1.0], [1.0, 0.0, 5.0]])
B = np.array([1.0, -2.0, 0.5])


def iterative(a, b):
    return lax.custom_linear_solve(lambda x: a @ x, jnp.sin(b), richardson, richardson)


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit])
def test_linear_solve_and_its_derivatives(wrap):
    np.testing.assert_allclose(wrap(iterative)(A, B), np.linalg.solve(A, np.sin(B)))
    fxad.check_grads(wrap(iterative), (A, B), order=2)
    direct = fxad.hessian(lambda a: jnp.sum(jnp.linalg.solve(a, jnp.sin(B)) ** 2))(A)
    implicit = wrap(fxad.hessian(lambda a: jnp.sum(iterative(a, B) ** 2)))(A)
    np.testing.assert_allclose(implicit, direct, rtol=1e-7, atol=1e-9)


def test_linear_solve_over_lanes():
    matrices = np.stack([A, A + np.eye(3), A.T])
    lanes = fxad.vmap(iterative, in_axes=(0, None))(matrices, B)
    np.testing.assert_allclose(lanes, [np.linalg.solve(m, np.sin(B)) for m in matrices])
    grads = fxad.jit(fxad.vmap(fxad.grad(lambda a, b: iterative(a, b).sum(), (0, 1)), (0, None)))
    for lane, matrix in enumerate(matrices):
        one = fxad.grad(lambda a, b: iterative(a, b).sum(), (0, 1))(matrix, B)
        for batched, single in zip(grads(matrices, B), one, strict=True):
            np.testing.assert_allclose(batched[lane], single, atol=1e-12)


def test_symmetric_linear_solve_over_a_tree_with_aux():
    diagonal = {"p": np.array([2.0, 4.0]), "q": np.array(8.0)}

    def solve(matvec, b):
        ones = fxad.tree.map(jnp.ones_like, b)
        return fxad.tree.map(lambda v, d: v / d, b, matvec(ones)), 7

    def f(d, b):
        return lax.custom_linear_solve(
            lambda x: fxad.tree.map(lambda u, v: u * v, d, x),
            b,
            solve,
            symmetric=True,
            has_aux=True,
        )

    b = {"p": np.array([1.0, 2.0]), "q": np.array(4.0)}
    x, aux = f(diagonal, b)
    assert int(aux) == 7
    np.testing.assert_allclose(x["p"], [0.5, 0.5])
    fxad.check_grads(lambda d, b: f(d, b)[0], (diagonal, b), order=1)


def test_linear_solve_without_a_transposed_solver():
    def f(a):
        return lax.custom_linear_solve(lambda x: a @ x, B, richardson)

    assert fxad.jvp(f, (A,), (A,))[1].shape == (3,)
    with pytest.raises(TypeMismatch, match="transpose_solve"):
        fxad.grad(lambda a: f(a).sum())(A)


def test_linear_solve_errors():
    with pytest.raises(TreeError, match="result of"):
        lax.custom_linear_solve(lambda x: [x], 1.0, lambda f, b: b)
    with pytest.raises(ShapeError, match="result of"):
        lax.custom_linear_solve(lambda x: jnp.ones(2), 1.0, lambda f, b: b)
    with pytest.raises(ShapeError, match="solution of"):
        lax.custom_linear_solve(lambda x: x, 1.0, lambda f, b: jnp.ones(2))
    with pytest.raises(TreeError, match="solution of"):
        lax.custom_linear_solve(lambda x: x, 1.0, lambda f, b: b, lambda f, b: (b,))


def test_closure_convert_makes_captured_values_arguments():
    def derivative(scale):
        converted, captured = fxad.closure_convert(lambda x: {"y": jnp.sin(x * scale)}, 1.0)
        return sum(fxad.grad(lambda s: converted(2.0, s)["y"])(c) for c in captured)

    expected = 2 * np.cos(2 * 3.0)
    assert float(fxad.jit(derivative)(3.0)) == pytest.approx(expected)
    assert float(fxad.jit(fxad.jvp, static_argnums=0)(derivative, (3.0,), (1.0,))[0]) == (
        pytest.approx(expected)
    )
    assert derivative(jnp.asarray(3.0)) == 0  # a constant stays inside
    converted, captured = fxad.closure_convert(lambda x: x, 1.0)
    assert not captured
    with pytest.raises(TreeError, match="structure"):
        converted((1.0, 2.0))
    with pytest.raises(TreeError, match="captured 0 values"):
        converted(1.0, 2.0)


def test_compiled_solver_of_a_vector_right_side():
    """A host function sees its operand's shape even where another value's bytes are read."""
    np.testing.assert_allclose(fxad.jit(jnp.linalg.solve)(A, B), np.linalg.solve(A, B))
