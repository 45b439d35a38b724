"""fxad.scipy.fft beside the sums that define it, and SciPy and JAX (peers)."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
from fxad.core.errors import BadArgument, ShapeError
from fxad.scipy import fft

RANDOM = np.random.default_rng(0)
NORMS = (None, "backward", "ortho", "forward")


def cosines(n, norm):
    """The matrix [n, n] of the transform."""
    k, j = np.arange(n)[:, None], np.arange(n)
    matrix = 2 * np.cos(np.pi * k * (2 * j + 1) / (2 * n))
    if norm == "ortho":
        matrix /= np.sqrt(np.where(k == 0, 4 * n, 2 * n))
    return matrix / (2 * n) if norm == "forward" else matrix


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8])
def test_transforms_are_products_with_a_matrix(n, norm):
    x, matrix = RANDOM.standard_normal((2, n, 3)), cosines(n, norm)
    with fxad.enable_x64():
        y = fft.dct(x, axis=1, norm=norm)
        np.testing.assert_allclose(y, np.einsum("kj,ajb->akb", matrix, x), atol=1e-12)
        np.testing.assert_allclose(fft.idct(y, axis=1, norm=norm), x, atol=1e-12)
        slope = fxad.jacobian(lambda v: fft.dct(v, norm=norm))(x[0, :, 0])
        np.testing.assert_allclose(slope, matrix, atol=1e-12)
        slope = fxad.jacobian(lambda v: fft.idct(v, norm=norm))(x[0, :, 0])
        np.testing.assert_allclose(slope, np.linalg.inv(matrix), atol=1e-12)


def test_sizes_axes_and_types():
    x = RANDOM.standard_normal((3, 4)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (0, 2)))
    np.testing.assert_allclose(fft.dct(x, n=6), fft.dct(padded), atol=1e-6)
    np.testing.assert_allclose(fft.dct(x, n=2), fft.dct(x[:, :2]), atol=1e-6)
    np.testing.assert_allclose(fft.dctn(x, s=6), fft.dct(x, n=6), atol=1e-6)
    np.testing.assert_allclose(fft.dctn(x), fft.dct(fft.dct(x, axis=0), axis=1), atol=1e-5)
    np.testing.assert_allclose(fft.idctn(fft.dctn(x, axes=[0, 1])), x, atol=1e-6)
    assert fft.dct(x).dtype == np.float32 == fft.dct(x.astype(np.int8)).dtype
    both = fft.dct(x + 2j * x)
    np.testing.assert_allclose(both, fft.dct(x) * np.complex64(1 + 2j), atol=1e-5)


def test_what_is_refused():
    x = np.ones((2, 3), np.float32)
    with pytest.raises(BadArgument, match="type 2, not 3"):
        fft.dct(x, type=3)
    with pytest.raises(BadArgument, match="norm must be"):
        fft.idctn(x, norm="unitary")
    with pytest.raises(BadArgument, match="at least one element"):
        fft.dct(x, n=0)
    with pytest.raises(ShapeError, match="twice"):
        fft.dctn(x, axes=(0, -2))
    with pytest.raises(ShapeError, match="1 sizes for 2 axes"):
        fft.dctn(x, s=[3], axes=(0, 1))


@pytest.mark.peers
def test_transforms_are_scipys_and_jaxs():
    theirs = pytest.importorskip("scipy.fft")
    jaxs = pytest.importorskip("jax.scipy.fft")
    x = RANDOM.standard_normal((5, 6, 3)).astype(np.float32)
    calls = [{}, {"s": [4, 9]}, {"axes": [0]}, {"axes": [0, 2], "s": [3, 2]}]
    for name in ("dctn", "idctn"):
        for call in calls:
            for norm in NORMS:
                ours = getattr(fft, name)(x, norm=norm, **call)
                wanted = getattr(theirs, name)(x, norm=norm, **call)
                np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-4)
                if norm != "forward":
                    wanted = getattr(jaxs, name)(x, norm=norm, **call)
                    np.testing.assert_allclose(ours, np.asarray(wanted), rtol=1e-5, atol=1e-4)
