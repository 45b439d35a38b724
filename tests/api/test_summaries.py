"""scipy.stats' summaries and convolution by Fourier transforms, beside NumPy and JAX (peers)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fxad
from fxad.core.errors import BadArgument, ShapeError
from fxad.scipy import signal, stats

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.integers(0, 4, (3, 7)).astype(np.float32)


def test_ranks_of_known_rows():
    row = np.array([10.0, 30, 10, 20])
    wanted = {
        "average": [1.5, 4, 1.5, 3],
        "min": [1, 4, 1, 3],
        "max": [2, 4, 2, 3],
        "dense": [1, 3, 1, 2],
        "ordinal": [1, 4, 2, 3],
    }
    for method, ranks in wanted.items():
        assert stats.rankdata(row, method).tolist() == ranks
    assert np.isnan(stats.rankdata(np.array([1.0, np.nan]))).all()
    with pytest.raises(BadArgument, match="average"):
        stats.rankdata(row, "median")


def test_mode():
    found = stats.mode(np.array([[3, 1, 3, 1, 2], [5, 5, 5, 1, 1]]), axis=1)
    assert found.mode.tolist() == [1, 5] and found.count.tolist() == [2, 3]
    flat = stats.mode(ROWS, axis=None, keepdims=True)
    assert flat.mode.shape == (1, 1)
    assert flat.count[0, 0] == np.unique(ROWS, return_counts=True)[1].max()
    with pytest.raises(BadArgument, match="nan_policy"):
        stats.mode(ROWS, nan_policy="omit")


def test_sem_and_its_derivative():
    x = RANDOM.standard_normal(9)
    with fxad.enable_x64():
        assert stats.sem(x) == pytest.approx(x.std(ddof=1) / 3)
        slope = (x - x.mean()) / (8 * x.std(ddof=1)) / 3
        np.testing.assert_allclose(fxad.grad(stats.sem)(x), slope, rtol=1e-10)


def test_entropy_and_its_derivative():
    p, q = RANDOM.uniform(1, 2, (2, 5))
    with fxad.enable_x64():
        shares, other = p / p.sum(), q / q.sum()
        assert stats.entropy(p) == pytest.approx(-(shares * np.log(shares)).sum())
        relative = (shares * np.log2(shares / other)).sum()
        assert stats.entropy(p, q, base=2) == pytest.approx(relative)
        assert stats.entropy(np.array([1.0, 0])) == 0
        slope = -(np.log(shares) + stats.entropy(p)) / p.sum()
        np.testing.assert_allclose(fxad.grad(stats.entropy)(p), slope, rtol=1e-10)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolution_by_transforms(mode):
    shapes = [((9,), (4,)), ((4,), (9,)), ((5, 6), (2, 3)), ((5, 6), (3, 6))]
    with fxad.enable_x64():
        for (first, second), complex_ in itertools.product(shapes, (False, True)):
            a, b = RANDOM.standard_normal(first), RANDOM.standard_normal(second)
            b = b * (1 + 2j) if complex_ else b
            plain, fast = signal.convolve(a, b, mode), signal.fftconvolve(a, b, mode)
            assert plain.dtype == fast.dtype
            np.testing.assert_allclose(fast, plain, rtol=1e-10, atol=1e-12)
        rows = RANDOM.standard_normal((3, 8)), RANDOM.standard_normal((1, 4))
        wanted = [np.convolve(row, rows[1][0], mode) for row in rows[0]]
        for axes in (1, [1]):
            found = signal.fftconvolve(*rows, mode, axes=axes)
            np.testing.assert_allclose(found, wanted, atol=1e-12)
        slope = fxad.grad(lambda b: signal.fftconvolve(np.arange(5.0), b, mode).sum())(np.ones(3))
        plain = fxad.grad(lambda b: signal.convolve(np.arange(5.0), b, mode).sum())(np.ones(3))
        np.testing.assert_allclose(slope, plain, atol=1e-12)
    with pytest.raises(ShapeError, match="axis 0"):
        signal.fftconvolve(np.ones((2, 4)), np.ones((3, 4)), mode, axes=[1])


@pytest.mark.peers
def test_summaries_are_those_of_jax():
    theirs = pytest.importorskip("jax.scipy.stats")

    for axis, keepdims in itertools.product((None, 0, 1), (False, True)):
        for method in ("average", "min", "max", "dense", "ordinal"):
            want = np.asarray(theirs.rankdata(ROWS, method, axis=axis))
            np.testing.assert_array_equal(stats.rankdata(ROWS, method, axis=axis), want)
        ours = stats.mode(ROWS, axis, keepdims=keepdims)
        for a, b in zip(ours, theirs.mode(ROWS, axis, keepdims=keepdims), strict=True):
            np.testing.assert_array_equal(a, np.asarray(b))
        np.testing.assert_allclose(
            stats.sem(ROWS, axis, keepdims=keepdims),
            np.asarray(theirs.sem(ROWS, axis, keepdims=keepdims)),
            rtol=1e-6,
        )
