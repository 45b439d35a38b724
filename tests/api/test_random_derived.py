"""Counts and distributions made of others: moments from their formulas, and the numbers of JAX."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fxad
from fxad import random
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch

KEY = random.key(7)
COUNT = 20_000
COV = np.array([[2.0, 0.5], [0.5, 1.0]], np.float32)

# name, parameters, mean, variance
MOMENTS = [
    ("t", (8.0,), 0.0, 8 / 6),
    ("f", (5.0, 12.0), 1.2, 2 * 144 * 15 / (5 * 100 * 8)),
    ("pareto", (6.0,), 1.2, 6 / (25 * 4)),
    ("rayleigh", (2.0,), 2 * math.sqrt(math.pi / 2), (4 - math.pi) * 2),
    ("wald", (1.5,), 1.5, 1.5**3),
    ("triangular", (0.0, 1.0, 3.0), 4 / 3, 7 / 18),
    ("geometric", (0.3,), 1 / 0.3, 0.7 / 0.09),
    ("poisson", (3.5,), 3.5, 3.5),
    ("poisson", (200.0,), 200.0, 200.0),
    ("binomial", (10, 0.3), 3.0, 2.1),
    ("binomial", (1000, 0.7), 700.0, 210.0),
    ("weibull_min", (2.0, 1.0), 2.0, 4.0),
    ("maxwell", (), 2 * math.sqrt(2 / math.pi), 3 - 8 / math.pi),
    ("double_sided_maxwell", (1.0, 2.0), 1.0, 12.0),
    ("generalized_normal", (2.0,), 0.0, 0.5),
]


@pytest.mark.parametrize(("name", "parameters", "mean", "variance"), MOMENTS)
def test_moments(name, parameters, mean, variance):
    drawn = np.asarray(getattr(random, name)(KEY, *parameters, (COUNT,)), np.float64)
    error = math.sqrt(variance / COUNT)
    assert abs(drawn.mean() - mean) < 5 * error
    assert drawn.var() == pytest.approx(variance, rel=0.15)


def test_points_of_balls_are_inside_and_uniform():
    for p in (1, 2):
        points = np.asarray(random.ball(KEY, 3, p, (COUNT,)), np.float64)
        radius = (np.abs(points) ** p).sum(-1) ** (1 / p)
        assert radius.max() <= 1 + 1e-6
        # The radius to the third power is uniform.
        assert (radius**3).mean() == pytest.approx(0.5, abs=5 / math.sqrt(12 * COUNT))


def test_orthogonal_matrices():
    for args, shape in (
        ((3,), (3, 3)),
        ((2, (4,), None, 3), (4, 2, 3)),
        ((3, (), None, 2), (3, 2)),
    ):
        q = np.asarray(random.orthogonal(KEY, *args))
        assert q.shape == shape
        small = q @ np.swapaxes(q, -1, -2) if shape[-2] <= shape[-1] else q.T @ q
        np.testing.assert_allclose(
            small, np.broadcast_to(np.eye(2 if 2 in shape[-2:] else 3), small.shape), atol=1e-6
        )


@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
def test_multivariate_normal(method):
    mean = np.array([1.0, -2.0], np.float32)
    drawn = np.asarray(random.multivariate_normal(KEY, mean, COV, (COUNT,), method=method))
    np.testing.assert_allclose(drawn.mean(0), mean, atol=0.06)
    np.testing.assert_allclose(np.cov(drawn.T), COV, atol=0.1)


def test_multinomial_counts():
    p = np.array([0.2, 0.3, 0.5], np.float32)
    drawn = np.asarray(random.multinomial(KEY, 50.0, p, shape=(2000, 3)))
    assert set(drawn.sum(-1)) == {50.0}
    np.testing.assert_allclose(drawn.mean(0), 50 * p, rtol=0.03)


def test_special_values_of_counts():
    assert random.poisson(KEY, np.array([0.0, 0.0]), (2,)).tolist() == [0, 0]
    counts = np.array([5.0, -1.0, np.inf, 7.0], np.float32)
    drawn = np.asarray(random.binomial(KEY, counts, np.array([1.0, 0.5, 0.5, np.nan], np.float32)))
    np.testing.assert_array_equal(drawn, [5.0, np.nan, np.inf, np.nan])


def test_streams_are_the_same_compiled():
    for name, parameters in (("poisson", (4.0,)), ("binomial", (20, 0.4)), ("geometric", (0.2,))):
        function = getattr(random, name)
        eager = function(KEY, *parameters, (50,))
        native = fxad.jit(lambda k, f=function, p=parameters: f(k, *p, (50,)))(KEY)
        assert eager.tolist() == native.tolist()


def test_errors():
    with pytest.raises(ShapeError, match="mean f32"):
        random.multivariate_normal(KEY, np.zeros(3, np.float32), COV)
    with pytest.raises(BadArgument, match="method must be"):
        random.multivariate_normal(KEY, np.zeros(2, np.float32), COV, method="lu")
    with pytest.raises(TypeMismatch, match="must be an integer"):
        random.poisson(KEY, 3.0, dtype="float32")
    with pytest.raises(TypeMismatch, match="needs an axis of classes"):
        random.multinomial(KEY, 3.0, 0.5)
    with pytest.raises(ShapeError, match="do not fit"):
        random.t(KEY, np.ones(3, np.float32), (2,))


@pytest.mark.peers
def test_numbers_are_those_of_jax():
    jax = pytest.importorskip("jax")
    if not jax.config.jax_threefry_partitionable:
        pytest.skip("needs the partitionable form, JAX's default since 0.5")
    key = jax.random.PRNGKey(7)
    cases = [(name, (*parameters, (50,))) for name, parameters, _, _ in MOMENTS]
    cases += [
        ("ball", (3, 1, (20,))),
        ("orthogonal", (3, (2,), None, 4)),
        ("multivariate_normal", (np.ones(2, np.float32), COV, (20,))),
        ("multinomial", (np.float32(50), np.array([0.2, 0.3, 0.5], np.float32))),
    ]
    for name, parameters in cases:
        ours = np.asarray(getattr(random, name)(KEY, *parameters))
        theirs = np.asarray(getattr(jax.random, name)(key, *parameters))
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=3e-6, err_msg=name)


def test_binomial_does_not_warn_of_its_own_constants(monkeypatch):
    def warned(dtype):
        raise AssertionError(f"a constant of {dtype} is narrowed")

    monkeypatch.setattr("fxad.core.dtypes._warn_narrowing", warned)
    assert random.binomial(random.key(0), 40, 0.5, (7, 3)).shape == (7, 3)
