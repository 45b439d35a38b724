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
WITHOUT_CDF = ("vonmises",)
WITH_PPF = (
    "norm halfnorm lognorm uniform expon weibull_min pareto cauchy logistic laplace"
).split()
WITH_PPF += ["gumbel_r", "gumbel_l", "wrapcauchy"]
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


# By mpmath at 50 digits, from the definitions. What is computed as 1 less a probability near 1 has
# no digits left in these.
FAR = [
    ("t", "cdf", -10.0, (1000.0,), 8.335351479300033e-23),
    ("t", "logcdf", -10.0, (1000.0,), -50.8389514544672),
    ("t", "logsf", -10.0, (1000.0,), -8.335351479300033e-23),
    ("t", "cdf", -10.0, (100.0,), 4.9508444922970696e-17),
    ("t", "logcdf", -10.0, (100.0,), -37.54438841436501),
    ("t", "logsf", -10.0, (100.0,), -4.9508444922970696e-17),
    ("t", "cdf", -5.0, (10000.0,), 2.9151633068313237e-07),
    ("t", "logcdf", -5.0, (10000.0,), -15.048169809798392),
    ("t", "logsf", -5.0, (10000.0,), -2.915163731740261e-07),
    ("t", "cdf", -7.0, (10000.0,), 1.362015780339914e-12),
    ("t", "logcdf", -7.0, (10000.0,), -27.322055322115695),
    ("t", "logsf", -7.0, (10000.0,), -1.3620157803408415e-12),
    ("t", "cdf", -1.5, (3.0,), 0.11529193262241152),
    ("t", "cdf", -2.0, (0.0009765625,), 0.4976366139924228),
    ("t", "cdf", -2.0, (1e30,), 0.02275013194817921),
    ("t", "logcdf", -1.5, (3.0,), -2.1602878227377666),
    ("t", "logsf", -1.5, (3.0,), -0.12249755576237246),
    ("t", "cdf", -10000000000.0, (0.5,), 3.207009754142229e-06),
    ("t", "logcdf", -10000000000.0, (0.5,), -12.650171595741751),
    ("t", "logsf", -10000000000.0, (0.5,), -3.207014896609005e-06),
    ("t", "logcdf", -40.0, (10000.0,), -746.6342824782068),
    ("halfnorm", "isf", 1e-10, (), 6.466951087240516),
    ("lognorm", "isf", 1e-10, (0.5,), 24.06288113266213),
    ("laplace", "isf", 1e-10, (), 22.33270374938051),
    ("gumbel_r", "isf", 1e-10, (), 23.025850929890456),
    ("gumbel_l", "isf", 1e-10, (), 3.1366175382420014),
    ("weibull_min", "isf", 1e-10, (1.7,), 6.328537331248052),
    ("pareto", "isf", 1e-10, (2.5,), 10000.0),
    ("cauchy", "ppf", 1e-10, (), -3183098861.837907),
    ("cauchy", "isf", 1e-10, (), 3183098861.837907),
    ("expon", "logcdf", 23.025850929940457, (), -1.0000000000499996e-10),
    ("halfnorm", "isf", 1e-20, (), 9.33604484923406),
    ("lognorm", "isf", 1e-20, (0.5,), 102.63408036681497),
    ("laplace", "isf", 1e-20, (), 45.35855467932097),
    ("gumbel_r", "isf", 1e-20, (), 46.051701859880914),
    ("gumbel_l", "isf", 1e-20, (), 3.829764718801947),
    ("weibull_min", "isf", 1e-20, (1.7,), 9.514365132974762),
    ("pareto", "isf", 1e-20, (2.5,), 100000000.0),
    ("cauchy", "ppf", 1e-20, (), -3.1830988618379067e19),
    ("cauchy", "isf", 1e-20, (), 3.1830988618379067e19),
    ("expon", "logcdf", 46.051701859880914, (), -9.999999999999992e-21),
    ("halfnorm", "cdf", 1e-10, (), 7.978845608028654e-11),
    ("halfnorm", "logsf", 1e-10, (), -7.978845608346964e-11),
    ("halfnorm", "logcdf", 10.0, (), -1.523970604832105e-23),
    ("cauchy", "sf", 10000000000.0, (), 3.1830988618379065e-11),
    ("cauchy", "logcdf", 10000000000.0, (), -3.1830988618885674e-11),
    ("laplace", "logcdf", 50.0, (), -9.643749239819589e-23),
    ("laplace", "logsf", -50.0, (), -9.643749239819589e-23),
    ("laplace", "logcdf", -5000.0, (), -5000.69314718056),
    ("gumbel_r", "logsf", 50.0, (), -50.0),
    ("gumbel_r", "logsf", -4.0, (), -1.9423376049564018e-24),
    ("gumbel_l", "logcdf", 4.0, (), -1.9423376049564018e-24),
    ("gumbel_l", "logcdf", -1000.0, (), -1000.0),
    ("weibull_min", "logcdf", 10.0, (1.7,), -1.7128329286369409e-22),
    ("pareto", "logcdf", 10000000000.0, (2.5,), -1e-25),
    ("uniform", "logsf", 1e-20, (), -1e-20),
    ("gamma", "logcdf", 60.0, (2.0,), -5.341471565244877e-25),
    ("gamma", "logsf", 1e-08, (2.0,), -4.999999966666667e-17),
    ("chi2", "logcdf", 120.0, (4.0,), -5.341471565244877e-25),
    ("beta", "sf", 9.094947017729282e-13, (0.2, 0.3), 0.9974793447876905),
    ("beta", "logsf", 1e-10, (2.0, 3.0), -5.9999999992e-20),
    ("gennorm", "logcdf", 30.0, (1.3,), -1.0733763434124893e-37),
    ("truncnorm", "cdf", 3.0000009536743164, (3.0, 9.0), 3.131002386497612e-06),
    ("truncnorm", "logsf", 3.0000009536743164, (3.0, 9.0), -3.1310072880958155e-06),
    ("truncnorm", "sf", -3.0000009536743164, (-8.0, -3.0), 3.1310023864990546e-06),
    ("poisson", "sf", 20.0, (2.5,), 4.118553154482076e-13),
    ("poisson", "logsf", 30.0, (2.5,), -52.10608061201829),
    ("poisson", "logcdf", 20.0, (2.5,), -4.1185531544829243e-13),
    ("poisson", "logsf", 5.0, (60.0,), -6.180223580811603e-20),
    ("binom", "sf", 20.0, (100.0, 0.0078125), 6.338043872465031e-24),
    ("binom", "logsf", 20.0, (100.0, 0.0078125), -53.41547204848152),
    ("binom", "logcdf", 20.0, (100.0, 0.0078125), -6.338043872465031e-24),
    ("geom", "sf", 100.0, (0.25,), 3.207202185381504e-13),
    ("geom", "logsf", 100.0, (0.25,), -28.768207245178093),
    ("geom", "logcdf", 100.0, (0.25,), -3.207202185382018e-13),
    ("geom", "cdf", 1.0, (9.313225746154785e-10,), 9.313225746154785e-10),
    ("geom", "logsf", 1.0, (9.313225746154785e-10,), -9.313225750491594e-10),
    ("geom", "logsf", 10000.0, (0.25,), -2876.820724517809),
    ("nbinom", "sf", 100.0, (3.5, 0.375), 6.992308701786382e-18),
    ("nbinom", "logsf", 100.0, (3.5, 0.375), -39.50172088580105),
    ("nbinom", "logcdf", 100.0, (3.5, 0.375), -6.992308701786382e-18),
    ("bernoulli", "sf", 0.0, (9.313225746154785e-10,), 9.313225746154785e-10),
    ("bernoulli", "logsf", 0.0, (9.313225746154785e-10,), -20.79441541679836),
    ("bernoulli", "logcdf", 0.0, (9.313225746154785e-10,), -9.313225750491594e-10),
    ("gamma", "logsf", 1000.0, (2.0,), -993.0912452206848),
    ("gamma", "logsf", 1000.0, (60.0,), -776.9155217403817),
    ("gamma", "logcdf", 0.0625, (60.0,), -355.0449716596089),
    ("chi2", "logsf", 500.0, (3.0,), -247.11649326907894),
    ("gennorm", "logcdf", -300.0, (1.5,), -5200.000675535301),
    ("beta", "logcdf", 0.03125, (60.0, 3.0), -200.46173286370325),
    ("beta", "logsf", 0.96875, (3.0, 60.0), -200.46173286370325),
    ("poisson", "logsf", 100.0, (2.5,), -278.28432310708837),
    ("poisson", "logcdf", 2.0, (200.0,), -190.08651261288554),
    ("binom", "logsf", 100.0, (1000.0, 0.0078125), -172.93364633476222),
    ("binom", "logcdf", 10.0, (1000.0, 0.5), -639.2090519107085),
    ("nbinom", "logsf", 600.0, (3.5, 0.375), -270.11454705654137),
    ("nbinom", "logcdf", 2.0, (600.0, 0.375), -577.3298571986595),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "method", "at", "shapes", "wanted"), FAR)
def test_tails(dtype: Any, name: str, method: str, at: float, shapes: tuple, wanted: float) -> None:
    function = getattr(getattr(stats, name), method)
    got = function(dtype(at), *map(dtype, shapes))
    assert got.dtype == dtype
    # A tail is the exponential of a number near 50, whose rounding is 50 times that of the tail.
    assert float(got) == pytest.approx(wanted, rel=100 * float(np.finfo(dtype).eps), abs=0)
    assert not math.isnan(fxad.grad(function)(dtype(at), *map(dtype, shapes)))


def test_slopes_of_logarithms_far_out() -> None:
    ten, many = np.float32(-10), np.float32(100)
    share = float(stats.t.pdf(ten, many)) / float(stats.t.cdf(ten, many))
    assert float(fxad.grad(stats.t.logcdf)(ten, many)) == pytest.approx(share, rel=1e-4)
    # mpmath's diff of log I_x(df / 2, 1 / 2) at 50 digits
    got = fxad.grad(stats.t.logcdf, 1)(-10.0, 1000.0)
    assert float(got) == pytest.approx(-0.002245767468202222, rel=1e-9)
    for one in (stats.laplace, stats.cauchy):
        assert float(fxad.grad(one.cdf)(0.0)) == pytest.approx(float(one.pdf(0.0)), rel=1e-12)
    for beta in (0.6, 1.3, 4.0):  # abs(x)**beta alone has no derivative at 0, or 0
        got = fxad.grad(stats.gennorm.cdf)(0.0, beta)
        assert float(got) == pytest.approx(float(stats.gennorm.pdf(0.0, beta)), rel=1e-12)
        assert float(fxad.grad(stats.gennorm.cdf, 1)(0.0, beta)) == 0


def test_at_the_ends_of_the_support() -> None:
    wanted = {"pdf": 0, "logpdf": -math.inf, "cdf": 0, "sf": 1, "logcdf": -math.inf, "logsf": 0}
    for method, value in wanted.items():
        function = getattr(stats.lognorm, method)
        assert float(function(0.0, 0.5)) == value
        for gradient in fxad.grad(function, (0, 1))(0.0, 0.5):
            assert math.isfinite(gradient)
    one = stats.truncnorm
    for ends in ((-math.inf, 1.0), (-1.0, math.inf), (-math.inf, math.inf)):
        for method, value in list(wanted.items())[2:]:
            assert float(getattr(one, method)(-math.inf, *ends)) == value
        assert float(one.cdf(math.inf, *ends)) == 1
        assert float(one.logsf(math.inf, *ends)) == -math.inf
        density, below, above = (float(f(0.5, *ends)) for f in (one.pdf, one.cdf, one.sf))
        for f, share in (
            (one.cdf, density),
            (one.sf, -density),
            (one.logcdf, density / below),
            (one.logsf, -density / above),
        ):
            assert float(fxad.grad(f)(0.5, *ends)) == pytest.approx(share, rel=1e-12)
    assert float(one.cdf(-1.0, -1.0, 2.0)) == 0
    assert math.isfinite(fxad.grad(one.cdf)(-1.0, -1.0, 2.0))
    assert math.isfinite(fxad.grad(stats.halfnorm.logsf)(0.0))
    for f, at, shapes in (
        (stats.beta.logsf, 1.0, (1.5, 2.5)),
        (stats.pareto.logcdf, 1.0, (2.5,)),
        (stats.weibull_min.logcdf, 0.0, (1.7,)),
    ):
        assert float(f(at, *shapes)) == -math.inf
        assert all(math.isfinite(g) for g in fxad.grad(f, (0, 1))(at, *shapes))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wrapcauchy_on_all_of_the_circle(dtype: Any) -> None:
    c, turn = dtype(0.4), dtype(2 * math.pi)  # which float32 rounds up
    np.testing.assert_allclose(stats.wrapcauchy.cdf(np.array([0, turn], dtype), c), [0, 1])
    np.testing.assert_allclose(
        stats.wrapcauchy.sf(np.array([0, turn], dtype), c), [1, 0], atol=1e-6
    )
    ends = stats.wrapcauchy.ppf(np.array([0, 1], dtype), c)
    np.testing.assert_allclose(ends, [0, 2 * math.pi], rtol=1e-6)
    # of one that turns by a small angle: 1e-10 (1 + c) / (1 - c) / (2 pi)
    small = stats.wrapcauchy.cdf(dtype(1e-10), c)
    assert float(small) == pytest.approx(1e-10 * 1.4 / 0.6 / (2 * math.pi), rel=1e-6)
    assert float(stats.wrapcauchy.ppf(small, c)) == pytest.approx(1e-10, rel=1e-6)
    assert math.isnan(stats.wrapcauchy.cdf(dtype(1), dtype(1.5)))


def test_quantiles_and_entropies_of_trials() -> None:
    # Quantiles are those of scipy.stats 1.17.1, entropies by mpmath at 40 digits.
    q = np.array([0, 1e-3, 0.3, 0.5, 0.51, 0.999, 1, -1, math.nan])
    wanted = [0, 1, 2, 3, 3, 25, math.inf, math.nan, math.nan]
    np.testing.assert_array_equal(stats.geom.ppf(q, 0.25), wanted)
    np.testing.assert_array_equal(stats.geom.ppf(q, 0.25, 2), np.add(wanted, 2))
    k = np.arange(1, 200.0)
    for p in (0.1, 0.25, 0.3, 0.9):  # at the steps, from the same rounded cdf
        some = k[: int(30 / p)]
        np.testing.assert_array_equal(stats.geom.isf(stats.geom.sf(some, p), p), some)
        some = some[np.asarray(stats.geom.sf(some, p)) > 1e-12]
        np.testing.assert_array_equal(stats.geom.ppf(stats.geom.cdf(some, p), p), some)
    assert float(stats.geom.isf(1e-30, 0.25)) == 241
    np.testing.assert_array_equal(
        stats.bernoulli.isf(np.array([0, 0.2, 0.3, 1]), 0.3), [1, 1, 0, 0]
    )
    for p, one, many in (
        (0.3, 0.6108643020548935, 2.0362143401829784),
        (1e-12, 2.8631021115928048e-11, 28.63102111592805),
        (1.0, 0.0, 0.0),
    ):
        assert float(stats.bernoulli.entropy(p)) == pytest.approx(one, rel=1e-12)
        assert float(stats.geom.entropy(p)) == pytest.approx(many, rel=1e-12)
    assert math.isnan(stats.geom.entropy(0.0))
    assert math.isnan(stats.bernoulli.entropy(1.5))


def test_second_derivatives_at_the_centre() -> None:
    """Where optimisers begin: -(df + 1) / df and -2."""
    assert float(fxad.hessian(lambda z: stats.t.logpdf(z, 3.0))(0.0)) == pytest.approx(-4 / 3)
    assert float(fxad.hessian(stats.cauchy.logpdf)(0.0)) == pytest.approx(-2)
