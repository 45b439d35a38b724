"""gaussian_kde, betabinom, poisson.entropy and bernoulli.ppf: by their definitions, and JAX's
(peers)."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.scipy import stats

R = np.random.default_rng(3)
LINE, PLANE = R.standard_normal(30), R.standard_normal((2, 25))
WEIGHTS = R.uniform(0.1, 1, 25)
FINE = np.linspace(-9, 9, 4001)


def test_a_density_is_the_mean_of_gaussians():
    with fxad.enable_x64():
        density = stats.gaussian_kde(LINE, bw_method=0.5)
        wide = 0.5 * np.std(LINE, ddof=1)
        expected = np.exp(-(((FINE[:, None] - LINE) / wide) ** 2) / 2).mean(1)
        expected /= wide * math.sqrt(2 * math.pi)
        np.testing.assert_allclose(fxad.jit(lambda d, x: d(x))(density, FINE), expected, rtol=1e-9)
        np.testing.assert_allclose(density.logpdf(FINE[2000]), np.log(expected[2000:2001]))
        step = FINE[1] - FINE[0]
        assert np.trapezoid(expected, dx=step) == pytest.approx(1)
        part = FINE[(FINE >= -1) & (FINE <= 1.0005)]
        inside = float(density.integrate_box_1d(part[0], part[-1]))
        assert inside == pytest.approx(np.trapezoid(density(part), part), rel=1e-5)
        other = stats.gaussian_kde(LINE[:9] + 1)
        both = np.trapezoid(np.asarray(density(FINE)) * np.asarray(other(FINE)), FINE)
        assert float(density.integrate_kde(other)) == pytest.approx(both)
        bell = np.exp(-((FINE - 0.3) ** 2) / 2 / 0.7) / math.sqrt(2 * math.pi * 0.7)
        both = np.trapezoid(np.asarray(density(FINE)) * bell, FINE)
        assert float(density.integrate_gaussian(0.3, 0.7)) == pytest.approx(both)
        slope = fxad.grad(lambda data: stats.gaussian_kde(data)(0.5)[0])
        moved = [
            float(stats.gaussian_kde(LINE + h * (np.arange(30) == 4))(0.5)[0])
            for h in (1e-5, -1e-5)
        ]
        assert float(slope(LINE)[4]) == pytest.approx((moved[0] - moved[1]) / 2e-5, rel=1e-5)


def test_samples_have_the_densitys_moments():
    density = stats.gaussian_kde(PLANE.astype(np.float32), weights=WEIGHTS.astype(np.float32))
    drawn = density.resample(fxad.random.key(1), (4000,))
    assert drawn.shape == (2, 4000) and density.resample(fxad.random.key(1)).shape == (2,)
    share = WEIGHTS / WEIGHTS.sum()
    np.testing.assert_allclose(drawn.mean(1), PLANE @ share, atol=0.06)
    spread = np.cov(PLANE, aweights=share, bias=True) + np.asarray(density.covariance)
    np.testing.assert_allclose(np.cov(drawn), spread, atol=0.12)


def test_densities_of_bad_input():
    density = stats.gaussian_kde(PLANE)
    for make, error, said in [
        (lambda: stats.gaussian_kde([1.0]), ShapeError, "two elements"),
        (lambda: stats.gaussian_kde(LINE * 1j), TypeMismatch, "complex"),
        (lambda: stats.gaussian_kde(LINE, weights=[1.0]), ShapeError, "30 samples"),
        (lambda: stats.gaussian_kde(LINE, "narrow"), BadArgument, "scott"),
        (lambda: density(LINE), ShapeError, r"\[2, m\]"),
        (lambda: density.integrate_box_1d(0, 1), ShapeError, "2 dimensions"),
        (lambda: density.integrate_kde(stats.gaussian_kde(LINE)), ShapeError, "2 and 1"),
        (lambda: density.integrate_gaussian(0.0, 1.0), ShapeError, "2 dimensions"),
        (lambda: density.integrate_box([0], [1]), BadArgument, "integrate_box_1d"),
        (lambda: density.set_bandwidth(1.0), BadArgument, "another"),
        (lambda: stats.betabinom.cdf(1, 2, 3, 4), BadArgument, "no closed form"),
    ]:
        with pytest.raises(error, match=said):
            make()


@pytest.mark.slow
def test_betabinom_is_binom_of_a_beta():
    with fxad.enable_x64():
        k, n, a, b = np.arange(-1, 8), 6, 2.5, 0.8
        p = (np.arange(200000) + 0.5) / 200000
        weights = np.asarray(stats.beta.pdf(p, a, b)) / 200000
        expected = [(np.asarray(stats.binom.pmf(i, n, p)) * weights).sum() for i in k]
        np.testing.assert_allclose(stats.betabinom.pmf(k, n, a, b), expected, atol=2e-4)
        assert float(stats.betabinom.pmf(k + 2, n, a, b, loc=2).sum()) == pytest.approx(1)


def test_entropy_of_poisson_and_quantiles_of_bernoulli():
    with fxad.enable_x64():
        means = np.array([0.0, 1e-3, 0.5, 3.0, 40.0, 255.9, 256.0, 1e5])
        k = np.arange(2000)
        logs = np.asarray(stats.poisson.logpmf(k, means[1:-1, None]))
        expected = [0, *-(np.exp(logs) * logs).sum(1)]
        found = fxad.jit(stats.poisson.entropy)(means)
        np.testing.assert_allclose(found[:-1], expected, rtol=1e-10)
        assert float(found[-1]) == pytest.approx(math.log(2 * math.pi * math.e * 1e5) / 2, rel=1e-6)
        assert math.isnan(stats.poisson.entropy(-1.0))
    assert stats.bernoulli.ppf(jnp.array([0.0, 0.7, 0.71, 1.0]), 0.3).tolist() == [0, 0, 1, 1]
    assert np.isnan(stats.bernoulli.ppf(jnp.array([-0.1, 1.1, np.nan]), 0.3)).all()


@pytest.mark.peers
@pytest.mark.parametrize("bandwidth", [None, "scott", "silverman", 0.3, lambda kde: kde.neff**-0.1])
def test_like_jax(bandwidth):
    theirs = pytest.importorskip("jax.scipy.stats")
    data, weights = PLANE.astype(np.float32), WEIGHTS.astype(np.float32)
    places = R.standard_normal((2, 7)).astype(np.float32)
    for w in (None, weights):
        a, b = stats.gaussian_kde(data, bandwidth, w), theirs.gaussian_kde(data, bandwidth, w)
        for name in ("neff", "covariance", "inv_cov", "weights"):
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-4, atol=1e-5)
        for name in ("evaluate", "pdf", "logpdf"):
            np.testing.assert_allclose(
                getattr(a, name)(places), getattr(b, name)(places), rtol=1e-4
            )
        mean, spread = places[:, 0], np.eye(2, dtype=np.float32)
        np.testing.assert_allclose(
            a.integrate_gaussian(mean, spread), b.integrate_gaussian(mean, spread), rtol=1e-4
        )
    line = stats.gaussian_kde(LINE.astype(np.float32)), theirs.gaussian_kde(LINE.astype(np.float32))
    drawn = line[0].resample(fxad.random.key(2), (6,))
    jax = pytest.importorskip("jax")
    np.testing.assert_allclose(drawn, line[1].resample(jax.random.key(2), (6,)), rtol=1e-5)
    found = [one.integrate_box_1d(-0.5, 1.0) for one in line]
    np.testing.assert_allclose(*found, rtol=1e-5)
    k = np.arange(-1.0, 9.0, dtype=np.float32)
    np.testing.assert_allclose(
        stats.betabinom.logpmf(k, 7, 2.0, 3.0), theirs.betabinom.logpmf(k, 7, 2.0, 3.0), rtol=1e-4
    )
    mu = np.array([0.1, 5, 50, 500], np.float32)
    np.testing.assert_allclose(stats.poisson.entropy(mu), theirs.poisson.entropy(mu), rtol=1e-4)
