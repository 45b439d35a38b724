"""fxad.scipy.stats: densities integrate to distribution functions, which invert; SciPy (peers)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, ShapeError
from fxad.scipy import stats

R = np.random.default_rng(5)
# name, shape parameters, points inside the support of loc=0.3, scale=1.4
CONTINUOUS = [
    ("norm", (), (-3, 3)),
    ("halfnorm", (), (0.4, 3)),
    ("lognorm", (0.7,), (0.5, 4)),
    ("truncnorm", (-1.0, 2.0), (-0.9, 2.9)),
    ("uniform", (), (0.4, 1.6)),
    ("expon", (), (0.4, 5)),
    ("gamma", (2.3,), (0.4, 5)),
    ("chi2", (3.0,), (0.4, 9)),
    ("beta", (1.5, 2.5), (0.4, 1.6)),
    ("weibull_min", (1.7,), (0.4, 3)),
    ("pareto", (2.5,), (1.8, 5)),
    ("t", (4.5,), (-4, 4)),
    ("cauchy", (), (-9, 9)),
    ("logistic", (), (-4, 4)),
    ("laplace", (), (-3, 3)),
    ("gumbel_r", (), (-2, 5)),
    ("gumbel_l", (), (-5, 2)),
    ("gennorm", (1.3,), (-3, 3)),
    ("vonmises", (1.7,), (-2, 2)),
    ("wrapcauchy", (0.4,), (0.4, 6)),
]
WITHOUT_CDF = ("vonmises", "wrapcauchy")
WITH_PPF = (
    "norm halfnorm lognorm uniform expon weibull_min pareto cauchy logistic laplace"
).split()
WITH_PPF += ["gumbel_r", "gumbel_l"]
DISCRETE = [
    ("poisson", (2.5,)),
    ("bernoulli", (0.3,)),
    ("binom", (5.0, 0.4)),
    ("geom", (0.3,)),
    ("nbinom", (3.5, 0.4)),
]


@pytest.fixture(autouse=True)
def wide():
    with fxad.enable_x64():
        yield


@pytest.mark.parametrize(("name", "shapes", "ends"), CONTINUOUS)
def test_functions_of_one_distribution_agree(name: str, shapes: tuple, ends: tuple) -> None:
    one = getattr(stats, name)
    x = R.uniform(*ends, 9)
    args = (*shapes, 0.3, 1.4)
    density = np.asarray(fxad.jit(one.pdf)(x, *args))
    np.testing.assert_allclose(np.log(density), one.logpdf(x, *args), rtol=1e-12, atol=1e-13)
    if name in WITHOUT_CDF:
        with pytest.raises(BadArgument, match=f"{name}.cdf: not available"):
            one.cdf(x, *args)
        return
    below = np.asarray(fxad.jit(one.cdf)(x, *args))
    slopes = fxad.vmap(fxad.grad(lambda v: one.cdf(v, *args)))(x)
    np.testing.assert_allclose(slopes, density, rtol=1e-9)
    np.testing.assert_allclose(below + one.sf(x, *args), 1, rtol=1e-12)
    np.testing.assert_allclose(np.log(below), one.logcdf(x, *args), rtol=1e-9)
    np.testing.assert_allclose(
        one.logsf(x, *args), jnp.log(one.sf(x, *args)), rtol=1e-9, atol=1e-15
    )
    nodes, weights = np.polynomial.legendre.leggauss(60)
    low, high = ends[0] + 0.1, ends[1] - 0.1
    middle, half = (low + high) / 2, (high - low) / 2
    if name not in ("laplace", "gennorm"):  # kinks
        area = half * float(jnp.sum(weights * one.pdf(middle + half * nodes, *args)))
        assert area == pytest.approx(float(one.cdf(high, *args) - one.cdf(low, *args)), rel=1e-8)
    if name in WITH_PPF:
        np.testing.assert_allclose(one.ppf(below, *args), x, rtol=1e-8)
        np.testing.assert_allclose(one.isf(one.sf(x, *args), *args), x, rtol=1e-8)
        assert math.isnan(one.ppf(1.5, *args))


@pytest.mark.parametrize(("name", "shapes", "ends"), CONTINUOUS)
def test_gradients_in_all_parameters(name: str, shapes: tuple, ends: tuple) -> None:
    one = getattr(stats, name)
    x = R.uniform(ends[0] + 0.1, ends[1] - 0.1, 5)
    for method in ("logpdf", "cdf"):
        if method == "cdf" and name in WITHOUT_CDF:
            continue
        total = lambda *p, m=method: jnp.sum(getattr(one, m)(x, *p))  # noqa: E731
        args = (*shapes, 0.3, 1.4)
        gradient = fxad.grad(total, argnums=tuple(range(len(args))))(*args)
        for i, got in enumerate(gradient):
            up, down = (total(*args[:i], args[i] + s, *args[i + 1 :]) for s in (1e-6, -1e-6))
            assert float(got) == pytest.approx(float(up - down) / 2e-6, rel=1e-6, abs=1e-7), (
                i,
                method,
            )


def test_outside_of_the_support() -> None:
    x = np.array([-1.0, 0.5, 2.0, math.nan])
    np.testing.assert_array_equal(stats.uniform.pdf(x), [0, 1, 0, math.nan])
    np.testing.assert_array_equal(stats.uniform.cdf(x), [0, 0.5, 1, math.nan])
    np.testing.assert_array_equal(stats.expon.sf(x[:1]), [1])
    assert float(stats.gamma.logpdf(-1.0, 2.0)) == -math.inf
    gradient = fxad.grad(lambda a: jnp.sum(stats.gamma.pdf(np.array([-1.0, 1.0]), a)))(2.0)
    assert math.isfinite(gradient)
    assert math.isnan(stats.norm.pdf(0.0, 0.0, -1.0))
    assert float(stats.norm.logcdf(-40.0)) == pytest.approx(-804.6084420137538)
    assert float(stats.norm.logsf(40.0)) == pytest.approx(-804.6084420137538)


def test_keywords_and_wrong_arguments() -> None:
    same = stats.gamma.pdf(1.0, 2.0, 0.1, 3.0)
    assert stats.gamma.pdf(1.0, a=2.0, scale=3.0, loc=0.1) == same
    assert stats.gamma.pdf(1.0, 2.0, scale=3.0, loc=0.1) == same
    for call in (
        lambda: stats.gamma.pdf(1.0),
        lambda: stats.gamma.pdf(1.0, 2.0, b=1.0),
        lambda: stats.norm.pdf(1.0, 2.0, 3.0, 4.0),
        lambda: stats.norm.pdf(1.0, 2.0, loc=3.0),
    ):
        with pytest.raises(BadArgument, match=": takes"):
            call()
    with pytest.raises(BadArgument, match=r"poisson: takes \(mu, loc\)"):
        stats.poisson.pmf(1)
    assert repr(stats.beta) == "<distribution beta(a, b, loc, scale)>"


@pytest.mark.parametrize(("name", "shapes"), DISCRETE)
def test_discrete(name: str, shapes: tuple) -> None:
    one = getattr(stats, name)
    k = np.arange(-1, 60)
    mass = np.asarray(fxad.jit(one.pmf)(k, *shapes))
    assert mass.sum() == pytest.approx(1, abs=1e-8)
    np.testing.assert_allclose(one.cdf(k, *shapes), np.cumsum(mass), atol=1e-12)
    np.testing.assert_allclose(one.sf(k, *shapes), 1 - np.cumsum(mass), atol=1e-12)
    np.testing.assert_allclose(one.pmf(k + 2, *shapes, 2), mass, rtol=1e-12)
    assert float(one.pmf(1.5, *shapes)) == 0
    assert math.isnan(one.cdf(math.nan, *shapes))
    last = len(shapes) - 1
    for method in ("logpmf", "cdf"):
        f = lambda p, m=method: getattr(one, m)(1.0, *shapes[:last], p)  # noqa: E731
        difference = (f(shapes[last] + 1e-6) - f(shapes[last] - 1e-6)) / 2e-6
        assert float(fxad.grad(f)(shapes[last])) == pytest.approx(
            float(difference), rel=1e-6, abs=1e-8
        )


def test_multivariate_normal() -> None:
    a = R.standard_normal((3, 3))
    cov, mean, x = a @ a.T + np.eye(3), R.standard_normal(3), R.standard_normal((4, 3))
    gap = x - mean
    wanted = -0.5 * (
        np.einsum("ni,ij,nj->n", gap, np.linalg.inv(cov), gap)
        + np.linalg.slogdet(cov)[1]
        + 3 * math.log(2 * math.pi)
    )
    density = stats.multivariate_normal
    np.testing.assert_allclose(fxad.jit(density.logpdf)(x, mean, cov), wanted)
    np.testing.assert_allclose(density.pdf(x, mean, cov, allow_singular=True), np.exp(wanted))
    np.testing.assert_allclose(density.logpdf(x[0], mean, cov), wanted[0])
    for scalars in ((0.5, 4.0), (0.5,), ()):
        alone = stats.norm.logpdf(x, *(np.sqrt(s) if i else s for i, s in enumerate(scalars)))
        np.testing.assert_allclose(density.logpdf(x, *scalars), alone)
        np.testing.assert_allclose(density.logpdf(x[0, 0], *scalars), alone[0, 0])
    parts = stats.norm.logpdf(x, mean, 2.0)
    np.testing.assert_allclose(density.logpdf(x, mean, 4.0), jnp.sum(parts, -1))
    np.testing.assert_allclose(density.logpdf(x, mean, np.full(3, 4.0)), jnp.sum(parts, -1))
    flat = np.diag([1.0, 4.0, 0.0])
    np.testing.assert_allclose(
        density.logpdf(x * [1, 1, 0], None, flat, allow_singular=True),
        jnp.sum(stats.norm.logpdf(x[:, :2], 0, np.array([1.0, 2.0])), -1),
    )
    assert float(density.entropy(mean, cov)) == pytest.approx(
        0.5 * np.linalg.slogdet(2 * math.pi * math.e * cov)[1]
    )
    way = R.standard_normal((3, 3))
    way = way + way.T
    total = lambda c: jnp.sum(density.logpdf(x, mean, c))  # noqa: E731
    difference = (total(cov + 1e-6 * way) - total(cov - 1e-6 * way)) / 2e-6
    assert float(jnp.vdot(fxad.grad(total)(cov), way)) == pytest.approx(float(difference), rel=1e-6)
    with pytest.raises(ShapeError, match="do not go together"):
        density.logpdf(x, mean, np.eye(2))


def test_dirichlet_and_multinomial() -> None:
    alpha = np.array([1.5, 2.0, 3.0])
    x = np.array([0.2, 0.3, 0.5])
    scale = math.gamma(6.5) / math.prod(map(math.gamma, alpha))
    assert float(stats.dirichlet.pdf(x, alpha)) == pytest.approx(scale * np.prod(x ** (alpha - 1)))
    assert float(stats.dirichlet.logpdf(x * 2, alpha)) == -math.inf
    np.testing.assert_allclose(
        stats.dirichlet.pdf(np.stack([x, x], 1), alpha), [stats.dirichlet.pdf(x, alpha)] * 2
    )
    with pytest.raises(ShapeError, match="dirichlet: expects"):
        stats.dirichlet.pdf(x, alpha[:2])
    # two outcomes are a binomial
    counts = np.array([[2.0, 3.0], [5.0, 0.0], [2.0, 2.0]])
    got = stats.multinomial.pmf(counts, 5.0, np.array([0.4, 0.6]))
    np.testing.assert_allclose(got, [*stats.binom.pmf(counts[:2, 0], 5.0, 0.4), 0])


@pytest.mark.peers
def test_like_scipy() -> None:
    peer = pytest.importorskip("scipy.stats")
    x = np.concatenate([R.normal(size=200) * 3, [0, 1, -1, 50, -50, math.nan, math.inf, -math.inf]])
    near: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-14}
    for name, shapes, _ in CONTINUOUS:
        for method in ("pdf", "logpdf", "cdf", "logcdf", "sf", "logsf"):
            if name in WITHOUT_CDF and "pdf" not in method:
                continue
            with np.errstate(all="ignore"):
                wanted = getattr(getattr(peer, name), method)(x, *shapes, 0.3, 1.4)
            got = getattr(getattr(stats, name), method)(x, *shapes, 0.3, 1.4)
            np.testing.assert_allclose(got, wanted, err_msg=f"{name}.{method}", **near)
    q = np.array([0, 0.1, 0.5, 0.9, 1, -1, 2, math.nan])
    for name, shapes, _ in CONTINUOUS:
        if name in WITH_PPF:
            wanted = getattr(peer, name).ppf(q, *shapes, 0.3, 1.4)
            np.testing.assert_allclose(
                getattr(stats, name).ppf(q, *shapes, 0.3, 1.4), wanted, **near
            )
    k = np.array([-1, 0, 1, 2, 3, 5, 10, 2.5, math.nan])
    for name, shapes in DISCRETE:
        for method in ("pmf", "logpmf", "cdf", "sf"):
            wanted = getattr(getattr(peer, name), method)(k, *shapes)
            np.testing.assert_allclose(
                getattr(getattr(stats, name), method)(k, *shapes), wanted, **near
            )
