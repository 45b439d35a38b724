"""fxad.scipy.ndimage, interpolate and cluster.vq: against their definitions, NumPy, JAX (peers)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.scipy.cluster.vq import vq
from fxad.scipy.interpolate import RegularGridInterpolator
from fxad.scipy.ndimage import map_coordinates

R = np.random.default_rng(0)
IMAGE = R.standard_normal((5, 4)).astype(np.float32)
PLACES = [R.uniform(-9, 12, (3, 7)).astype(np.float32), R.uniform(-9, 12, 7).astype(np.float32)]
MODES = ["constant", "nearest", "wrap", "mirror", "reflect"]


def point(size, mode, index):
    """The point of an axis that stands for an index, by walking to it; None for `cval`."""
    if 0 <= index < size:
        return index
    if mode == "constant":
        return None
    if mode == "nearest":
        return min(max(index, 0), size - 1)
    forth = list(range(size))
    period = {
        "wrap": forth,
        "mirror": forth + forth[-2:0:-1],
        "reflect": forth + forth[::-1],
    }[mode]
    return period[index % len(period)]


def by_hand(image, places, order, mode, cval):
    places = np.broadcast_arrays(*places)
    out = np.zeros(places[0].shape)
    for at in np.ndindex(*out.shape):
        axes = []
        for place in places:
            x = float(place[at])
            low = int(np.floor(x))
            near = int(np.sign(x) * np.floor(abs(x) + 0.5))
            axes.append([(near, 1.0)] if order == 0 else [(low, low + 1 - x), (low + 1, x - low)])
        for corner in itertools.product(*axes):
            index = [point(n, mode, i) for n, (i, _) in zip(image.shape, corner, strict=True)]
            value = cval if None in index else image[tuple(index)]
            out[at] += value * np.prod([w for _, w in corner])
    return out


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", [0, 1])
def test_map_coordinates(order, mode):
    f = fxad.jit(lambda image, *places: map_coordinates(image, places, order, mode, 2.5))
    found = f(IMAGE, *PLACES)
    assert found.shape == (3, 7) and found.dtype == np.float32
    np.testing.assert_allclose(found, by_hand(IMAGE, PLACES, order, mode, 2.5), atol=2e-5)
    inside = [p % (n - 1) for p, n in zip(PLACES, IMAGE.shape, strict=True)]
    np.testing.assert_allclose(f(IMAGE, *inside), by_hand(IMAGE, inside, order, mode, 0), atol=1e-5)


def test_map_coordinates_of_other_dtypes_and_sizes():
    image = np.array([0, 10, 41], np.int32)
    found = map_coordinates(image, [jnp.array([0.05, 1.5, 1.75, 9.0])], 1)
    assert found.dtype == np.int32 and found.tolist() == [1, 26, 33, 0]
    assert map_coordinates(image, [jnp.array([0, 2, -1])], 1, "wrap").tolist() == [0, 41, 41]
    one = map_coordinates(jnp.array([3.0]), [jnp.array([-2.0, 0.3, 5.0])], 1, "mirror")
    assert one.tolist() == [3.0, 3.0, 3.0]
    assert map_coordinates(jnp.ones((2, 3)), [jnp.ones((0,)), jnp.ones((0,))], 1).shape == (0,)


def test_map_coordinates_has_derivatives():
    with fxad.enable_x64():
        image, places = IMAGE.astype(float), [jnp.array([1.3, 2.6]), jnp.array([0.4, 2.2])]

        def f(image, *places):
            return map_coordinates(image, places, 1, "mirror")

        fxad.check_grads(f, (image, *places), order=1)
        lanes = fxad.vmap(lambda p: map_coordinates(image, [p, p], 1))(
            jnp.arange(6.0).reshape(2, 3)
        )
        assert lanes.shape == (2, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((IMAGE, PLACES[:1], 1), ShapeError, "2 axes"),
        ((IMAGE, PLACES, 3), BadArgument, "order must be 0 or 1, got 3"),
        ((IMAGE, PLACES, 1, "edge"), BadArgument, "constant, nearest, wrap"),
    ],
)
def test_map_coordinates_of_bad_input(arguments, error, said):
    with pytest.raises(error, match=said):
        map_coordinates(*arguments)


GRID = (np.array([0.0, 1, 4], np.float32), np.array([-1.0, 0, 2, 3], np.float32))
VALUES = R.standard_normal((3, 4, 2)).astype(np.float32)


def test_a_linear_interpolator_is_exact_for_planes():
    plane = 2 * GRID[0][:, None] - 3 * GRID[1] + 1
    f = RegularGridInterpolator(GRID, plane, fill_value=None)
    places = R.uniform(-3, 6, (2, 5, 2)).astype(np.float32)  # beyond the edges, too
    np.testing.assert_allclose(f(places), 2 * places[..., 0] - 3 * places[..., 1] + 1, atol=1e-5)
    np.testing.assert_allclose(f((places[..., 0], places[..., 1])), f(places))
    kept = RegularGridInterpolator(GRID, plane)(jnp.array([[5.0, 0.0], [4.0, 3.0]]))
    assert np.isnan(kept[0]) and kept[1] == plane[-1, -1]


def test_an_interpolator_passes_through_points_and_takes_the_nearest():
    corners = jnp.stack(jnp.meshgrid(*map(jnp.asarray, GRID), indexing="ij"), -1)
    for method in ("linear", "nearest"):
        f = RegularGridInterpolator(GRID, VALUES, method)
        np.testing.assert_allclose(fxad.jit(lambda f, x: f(x))(f, corners), VALUES, rtol=1e-6)
    assert f(jnp.array([2.4, 0.9])).tolist() == VALUES[1, 1].reshape(1, 2).tolist()
    line = RegularGridInterpolator((GRID[1],), GRID[1] * 2, fill_value=-1)
    assert line(jnp.array([0.5, 9.0])).tolist() == [1.0, -1.0]
    assert line(jnp.array([0.9]), method="nearest").tolist() == [0.0]


def test_an_interpolator_has_derivatives():
    with fxad.enable_x64():
        places = jnp.array([[0.3, 0.7], [2.0, 2.5]])
        grid = [jnp.asarray(g, "float64") for g in GRID]

        def f(values, x):
            return RegularGridInterpolator(grid, values)(x)

        fxad.check_grads(f, (VALUES.astype(float), places), order=1)


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: RegularGridInterpolator(GRID, VALUES, "cubic"), BadArgument, "linear, nearest"),
        (
            lambda: RegularGridInterpolator(GRID, VALUES, bounds_error=True),
            BadArgument,
            "fill_value",
        ),
        (lambda: RegularGridInterpolator(GRID, VALUES[0, 0]), ShapeError, "2 dimensions"),
        (lambda: RegularGridInterpolator(GRID[::-1], VALUES), ShapeError, "dimension 0"),
        (lambda: RegularGridInterpolator(GRID, VALUES, fill_value=1j), TypeMismatch, "complex"),
        (lambda: RegularGridInterpolator(GRID, VALUES)(np.ones(3)), ShapeError, "2 coordinates"),
    ],
)
def test_interpolators_of_bad_input(make, error, said):
    with pytest.raises(error, match=said):
        make()


def test_vq():
    points, codes = R.standard_normal((20, 3)), R.standard_normal((4, 3))
    number, apart = fxad.jit(vq)(points.astype(np.float32), codes.astype(np.float32))
    expected = np.linalg.norm(points[:, None] - codes, axis=-1)
    assert number.dtype == np.int32 and number.tolist() == expected.argmin(1).tolist()
    np.testing.assert_allclose(apart, expected.min(1), rtol=1e-5)
    assert vq(jnp.array([0.2, 2.9]), jnp.array([0, 3]))[0].tolist() == [0, 1]
    for wrong in (codes[0], codes[:, :2], codes[:0]):
        with pytest.raises(ShapeError, match="vq"):
            vq(points, wrong)


@pytest.mark.peers
def test_beside_jax():
    jax = pytest.importorskip("jax")
    ndimage = pytest.importorskip("jax.scipy.ndimage")
    for order, mode in itertools.product([0, 1], MODES):
        theirs = ndimage.map_coordinates(IMAGE, PLACES, order, mode, 1.5)
        ours = map_coordinates(IMAGE, PLACES, order, mode, 1.5)
        np.testing.assert_allclose(ours, theirs, atol=2e-5)
    places = R.uniform(-3, 6, (9, 2)).astype(np.float32)
    for method, fill in itertools.product(["linear", "nearest"], [np.nan, None, 2.0]):
        theirs = jax.scipy.interpolate.RegularGridInterpolator(
            GRID, VALUES, method, fill_value=fill
        )(places)
        ours = RegularGridInterpolator(GRID, VALUES, method, fill_value=fill)(places)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    points, codes = IMAGE, IMAGE[:2]
    for a, b in zip(vq(points, codes), jax.scipy.cluster.vq.vq(points, codes), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
