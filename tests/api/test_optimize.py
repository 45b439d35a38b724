"""fxad.scipy.optimize beside known minima, and SciPy and JAX (peers)."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.scipy.optimize import OptimizeResults, minimize


def rosenbrock(x):
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def himmelblau(x):
    return (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


def matyas(x):
    return 0.26 * (x[0] ** 2 + x[1] ** 2) - 0.48 * x[0] * x[1]


def walled(x):
    """Infinite where an element is not positive; 2 at 1."""
    inside = x > 0
    return jnp.sum(jnp.where(inside, x - jnp.log(jnp.where(inside, x, 1)), jnp.inf))


KNOWN = [
    (rosenbrock, [0.0, 0], [1.0, 1]),
    (rosenbrock, [-1.2] * 6, [1.0] * 6),
    (himmelblau, [0.0, 0], [3.0, 2]),
    (matyas, [1.0, 1], [0.0, 0]),
    (walled, [5.0, 0.1], [1.0, 1]),
]


@pytest.mark.parametrize(("f", "start", "lowest"), KNOWN)
def test_known_minima(f, start, lowest):
    with fxad.enable_x64():
        start = np.array(start)
        for run in (minimize, fxad.jit(minimize, static_argnums=0, static_argnames="method")):
            found = run(f, start, method="BFGS")
            assert found.success and found.status == 0
            np.testing.assert_allclose(found.x, lowest, atol=1e-5)
            assert found.fun == f(found.x)
            np.testing.assert_allclose(found.jac, fxad.grad(f)(found.x), atol=1e-14)
            assert abs(found.jac).max() < 1e-5
            assert 0 < found.nit < found.nfev == found.njev < 150
    single = minimize(f, start.astype(np.float32), method="bfgs")
    assert single.x.dtype == single.fun.dtype == single.hess_inv.dtype == np.float32
    np.testing.assert_allclose(single.x, lowest, atol=2e-3)


def test_the_inverse_hessian_of_a_quadratic_function():
    a = np.array([[3.0, 1, 0], [1, 2, 0.5], [0, 0.5, 1]])
    with fxad.enable_x64():
        found = minimize(
            lambda x, b: 0.5 * x @ a @ x - b @ x, np.zeros(3), (np.arange(3.0),), method="BFGS",
            tol=1e-10,
        )  # fmt: skip
        np.testing.assert_allclose(found.x, np.linalg.solve(a, np.arange(3.0)), atol=1e-9)
        np.testing.assert_allclose(found.hess_inv, np.linalg.inv(a), atol=1e-3)


def test_lanes_are_searches_of_their_own():
    starts = np.random.default_rng(0).standard_normal((4, 2))
    with fxad.enable_x64():
        both = fxad.jit(fxad.vmap(lambda x: minimize(rosenbrock, x, method="BFGS")))(starts)
        alone = [minimize(rosenbrock, x, method="BFGS") for x in starts]
        assert both.nit.tolist() == [int(one.nit) for one in alone]
        np.testing.assert_allclose(both.x, [one.x for one in alone], atol=1e-9)


def test_the_result_has_a_derivative():
    def best(b):
        f = lambda x: ((x - b) ** 2 + x**4).sum()  # noqa: E731
        return minimize(f, jnp.zeros(2), method="BFGS", tol=1e-9).x.sum()

    with fxad.enable_x64():
        x = best(1.5) / 2
        implicit = 2 * 2 / (2 + 12 * x**2)  # of x in 2 (x - b) + 4 x**3 = 0, for each of two
        assert fxad.grad(best)(1.5) == pytest.approx(float(implicit), rel=1e-4)


def test_a_search_that_does_not_converge_says_so():
    few = minimize(rosenbrock, jnp.zeros(2), method="BFGS", options={"maxiter": 3})
    assert not few.success and few.status == 1 and few.nit == 3
    with fxad.enable_x64():
        down = minimize(lambda x: -x.sum(), jnp.zeros(2), method="BFGS")
        assert not down.success and down.status == 1
        assert down.x.min() > 1e3
        lost = minimize(lambda x: jnp.nan * x.sum(), jnp.zeros(2), method="BFGS")
        assert not lost.success and lost.status in (3, 5) and lost.x.tolist() == [0, 0]
        there = minimize(matyas, jnp.zeros(2), method="BFGS")
        assert there.success and there.nit == 0 and there.nfev == 1
    loose = minimize(rosenbrock, jnp.zeros(2), method="BFGS", options={"gtol": 3.0, "norm": 2})
    assert loose.success and 1e-2 < np.linalg.norm(loose.jac) < 3


def test_what_is_refused():
    x = jnp.zeros(2)
    with pytest.raises(BadArgument, match="method must be 'BFGS', not 'CG'"):
        minimize(matyas, x, method="CG")
    with pytest.raises(BadArgument, match="no option 'xtol'"):
        minimize(matyas, x, method="BFGS", options={"xtol": 1})
    with pytest.raises(TypeMismatch, match="args must be a tuple"):
        minimize(matyas, x, 3, method="BFGS")
    with pytest.raises(TypeMismatch, match="real numbers"):
        minimize(matyas, x + 1j, method="BFGS")
    with pytest.raises(ShapeError, match="x0 must be a vector"):
        minimize(matyas, jnp.zeros((2, 2)), method="BFGS")


@pytest.mark.peers
@pytest.mark.parametrize(("f", "start", "lowest"), KNOWN)
def test_minima_are_scipys(f, start, lowest):
    theirs = pytest.importorskip("scipy.optimize")
    with fxad.enable_x64():
        slope = fxad.grad(f)
        wanted = theirs.minimize(
            lambda x: float(f(jnp.asarray(x))), start, method="BFGS",
            jac=lambda x: np.asarray(slope(jnp.asarray(x))),
        )  # fmt: skip
        found = minimize(f, np.array(start), method="BFGS")
        np.testing.assert_allclose(found.x, wanted.x, atol=1e-4)
        assert found.nfev <= 1.5 * wanted.nfev


@pytest.mark.peers
def test_results_are_jaxs():
    theirs = pytest.importorskip("jax.scipy.optimize")
    assert OptimizeResults._fields == theirs.OptimizeResults._fields
    start = np.array([1.0, 1.0], np.float32)
    wanted = theirs.minimize(matyas, start, method="BFGS")
    found = minimize(matyas, start, method="BFGS")
    np.testing.assert_allclose(found.x, np.asarray(wanted.x), atol=1e-5)
    assert int(found.status) == int(wanted.status) == 0
    assert bool(found.success) and bool(wanted.success)
