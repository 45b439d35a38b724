"""fxad.image beside known images and kernels, PyTorch and JAX (peers)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import image
from fxad.core.errors import BadArgument, ShapeError
from fxad.image import ResizeMethod

RANDOM = np.random.default_rng(0)
PICTURE = RANDOM.standard_normal((7, 2, 5)).astype(np.float32)
SHAPES = [(7, 2, 5), (14, 2, 10), (3, 2, 4), (9, 2, 2), (1, 2, 1), (7, 2, 13)]
METHODS = "nearest linear cubic lanczos3 lanczos5 cubic-pytorch area".split()
SMOOTH = [name for name in METHODS if name != "nearest"]


def test_known_images():
    row = jnp.arange(4.0)
    assert image.resize(row, (8,), "nearest").tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert image.resize(row, (8,), "linear").tolist() == [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3]
    assert image.resize(row, (2,), "linear", antialias=False).tolist() == [0.5, 2.5]
    assert image.resize(row, (2,), "area").tolist() == [0.5, 2.5]
    # A triangle two pixels wide: weights 3, 3, 1 of 7.
    np.testing.assert_allclose(image.resize(row, (2,), "linear"), [5 / 7, 16 / 7], rtol=1e-6)
    moved = image.scale_and_translate(row, (4,), [0], jnp.ones(1), jnp.ones(1), "linear")
    assert moved.tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("method", METHODS)
def test_constants_stay_and_the_same_shape_is_the_same_image(method):
    for shape in SHAPES:
        flat = image.resize(np.full((7, 2, 5), 3.0, np.float32), shape, method)
        np.testing.assert_allclose(flat, np.full(shape, 3), rtol=1e-6)
    assert image.resize(PICTURE, PICTURE.shape, method).tolist() == PICTURE.tolist()
    same = fxad.jit(lambda x: image.resize(x, (9, 2, 3), method))(PICTURE)
    np.testing.assert_allclose(same, image.resize(PICTURE, (9, 2, 3), method), atol=1e-6)


def test_cubics_are_interpolated():
    at = np.arange(12.0)
    with fxad.enable_x64():
        found = image.resize(at**2, (24,), "cubic")
        wanted = ((np.arange(24) + 0.5) / 2 - 0.5) ** 2
        np.testing.assert_allclose(found[4:-4], wanted[4:-4], atol=1e-12)


def test_types():
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert image.resize(pixels, (6, 2), "nearest").dtype == np.uint8
    assert image.resize(pixels, (6, 2), ResizeMethod.LINEAR).dtype == np.float32
    assert image.resize(PICTURE.astype(jnp.bfloat16), (7, 2, 9), "cubic").dtype == jnp.bfloat16
    assert image.resize(PICTURE * 1j, (7, 2, 9), "cubic").dtype == np.complex64
    assert image.resize(PICTURE, (7, 2, 0), "cubic").shape == (7, 2, 0)
    assert ResizeMethod.from_string("bicubic") is ResizeMethod.CUBIC


@pytest.mark.parametrize("method", [name for name in SMOOTH if name != "area"])
def test_derivatives_in_the_image_and_where_it_goes(method):
    def moved(x, scale, translation):
        return image.scale_and_translate(x, (5, 2, 6), (0, 2), scale, translation, method)

    with fxad.enable_x64():
        args = PICTURE.astype(float), np.array([0.71, 1.33]), np.array([0.23, -0.4])
        fxad.check_grads(moved, args, order=1)


def test_what_is_refused():
    with pytest.raises(BadArgument, match="no method 'best'; there are nearest, linear"):
        image.resize(PICTURE, (1, 2, 3), "best")
    with pytest.raises(BadArgument, match="a name or a ResizeMethod"):
        image.resize(PICTURE, (1, 2, 3), 3)
    with pytest.raises(ShapeError, match="has 2 axes"):
        image.resize(PICTURE, (1, 2), "linear")
    one = np.ones(1)
    with pytest.raises(BadArgument, match="for resize alone"):
        image.scale_and_translate(PICTURE, (7, 2, 5), (0,), one, one, "nearest")
    with pytest.raises(ShapeError, match="for each of 2 axes"):
        image.scale_and_translate(PICTURE, (7, 2, 5), (0, 2), one, one, "linear")
    with pytest.raises(ShapeError, match="axis 1 is no spatial one"):
        image.scale_and_translate(PICTURE, (7, 3, 5), (0,), one, one, "linear")


@pytest.mark.peers
@pytest.mark.parametrize("method", METHODS)
def test_images_are_jaxs(method):
    theirs = pytest.importorskip("jax.image")
    scales, translations = np.float32([0.7, 1.6]), np.float32([1.3, -0.8])
    for shape, antialias in itertools.product(SHAPES, (True, False)):
        wanted = np.asarray(theirs.resize(PICTURE, shape, method, antialias))
        found = image.resize(PICTURE, shape, method, antialias)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
        if method in SMOOTH and not (method == "cubic-pytorch" and not antialias):
            call = shape, (0, 2), scales, translations, method, antialias
            wanted = np.asarray(theirs.scale_and_translate(PICTURE, *call))
            found = image.scale_and_translate(PICTURE, *call)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.peers
@pytest.mark.parametrize(("ours", "theirs"), [("linear", "bilinear"), ("cubic-pytorch", "bicubic")])
def test_images_are_pytorchs(ours, theirs):
    torch = pytest.importorskip("torch")
    picture = RANDOM.standard_normal((1, 3, 8, 6)).astype(np.float32)
    for shape, antialias in itertools.product([(16, 9), (5, 4), (3, 12)], (True, False)):
        wanted = torch.nn.functional.interpolate(
            torch.tensor(picture), shape, mode=theirs, antialias=antialias
        )
        found = image.resize(picture, (1, 3, *shape), ours, antialias)
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-5, atol=1e-5)
