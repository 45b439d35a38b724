"""Padding in every mode, and functions around it that pick, put in and measure, beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, ConcretizationError

X = np.array([[1.5, -2, 0.25, 7], [0, 3, -1, 2], [5, -4, 8, 6]], np.float32)
INT = np.array([[7, -2, 5], [1, 9, -3]], np.int32)
MODES = [
    "constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp", "maximum", "mean", "median",
    "minimum",
]  # fmt: skip


def check_pad(x: np.ndarray, width: object, *, rtol: float = 1e-6, **options: object) -> None:
    wanted = np.pad(x, width, **options)
    for found in (
        jnp.pad(x, width, **options),
        fxad.jit(lambda v: jnp.pad(v, width, **options))(x),
    ):
        assert found.dtype == x.dtype
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=rtol)


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode: str) -> None:
    check_pad(X, ((1, 2), (3, 0)), mode=mode)
    check_pad(X[0], 2, mode=mode)
    check_pad(INT, ((0, 1), (2, 2)), mode=mode)


@pytest.mark.parametrize("mode", ["reflect", "symmetric"])
@pytest.mark.parametrize("width", [1, 3, (0, 2)])
def test_odd_reflections(mode: str, width: object) -> None:
    check_pad(X[0], width, mode=mode, reflect_type="odd")
    check_pad(X, ((1, 1), (0, 2)), mode=mode, reflect_type="odd")
    check_pad(X[:, :1], ((0, 0), (2, 1)), mode=mode, reflect_type="odd")


def test_odd_reflections_go_on_past_the_first() -> None:
    check_pad(X[0], 7, mode="reflect", reflect_type="odd")


def test_options_of_the_modes() -> None:
    check_pad(X, ((1, 2), (2, 1)), mode="linear_ramp", end_values=((1, 2), (3, 4)))
    check_pad(INT, 3, mode="linear_ramp", end_values=20)
    for mode in ["maximum", "mean", "median", "minimum"]:
        check_pad(X, 2, mode=mode, stat_length=2)
        check_pad(X, 1, mode=mode, stat_length=((1, 3), (9, 2)))
    wanted = np.pad(X, ((0, 0), (1, 2)))
    np.testing.assert_array_equal(np.asarray(jnp.pad(X, {-1: (1, 2)})), wanted)


def test_a_constant_may_be_nan() -> None:
    check_pad(X, 1, constant_values=np.nan)
    check_pad(X, ((0, 2), (1, 1)), constant_values=((1, np.nan), (3, 4)))


def test_padding_takes_arrays_of_another_dtype() -> None:
    x = jnp.arange(3.0)
    assert jnp.pad(x, 1, constant_values=jnp.array(2)).tolist() == [2, 0, 1, 2, 2]
    traced = fxad.jit(lambda n: jnp.pad(x, 1, constant_values=n))
    assert traced(jnp.array([3, 4])).tolist() == [3, 0, 1, 2, 4]
    mixed = fxad.jit(lambda n: jnp.pad(x, 1, constant_values=(n, 7)))
    assert mixed(5).tolist() == [5, 0, 1, 2, 7]


def test_padding_is_as_exact_as_the_dtype() -> None:
    for mode in ["maximum", "minimum"]:
        check_pad(np.array([2**24 + 1, 2**24 + 3], np.int32), 1, mode=mode, rtol=0)
    check_pad(X.astype(np.complex64), 2, mode="linear_ramp", end_values=1 + 2j)
    with fxad.enable_x64():
        check_pad(5.0 + X.astype(np.float64), 7, mode="linear_ramp", end_values=1 / 3, rtol=1e-14)


def test_what_padding_refuses() -> None:
    with pytest.raises(ValueError, match="unknown mode 'mirror', not one of constant"):
        jnp.pad(X, 1, mode="mirror")
    with pytest.raises(ValueError, match="'even' or 'odd', not 'strange'"):
        jnp.pad(X, 1, mode="reflect", reflect_type="strange")
    with pytest.raises(TypeError, match=r"widths must be ints, not 1\.5"):
        jnp.pad(X, 1.5)
    with pytest.raises(ValueError, match="no element to go on from"):
        jnp.pad(X[:0], 1, mode="edge")
    with pytest.raises(ValueError, match="stat_length must be at least 1"):
        jnp.pad(X, 1, mode="mean", stat_length=0)


@pytest.mark.parametrize("mode", MODES)
def test_gradients(mode: str) -> None:
    with fxad.enable_x64():
        x = X.astype(np.float64) + np.arange(12).reshape(3, 4) / 64
        fxad.check_grads(lambda v: jnp.pad(v, ((1, 2), (2, 1)), mode=mode) ** 2, (x,), order=1)


def test_extract_and_compress() -> None:
    np.testing.assert_array_equal(np.asarray(jnp.extract(X > 0, X)), np.extract(X > 0, X))
    found = fxad.jit(lambda x: jnp.extract(x > 0, x, size=10, fill_value=-1))(X)
    wanted = np.extract(X > 0, X)
    np.testing.assert_array_equal(np.asarray(found), [*wanted, *[-1] * (10 - wanted.size)])
    rows = np.array([True, False, True])
    found = fxad.jit(lambda m, x: jnp.compress(m, x, axis=0, size=2))(rows, X)
    np.testing.assert_array_equal(np.asarray(found), X[rows])
    with pytest.raises(ValueError, match="must be a vector"):
        jnp.compress(X > 0, X)
    np.testing.assert_array_equal(jnp.compress(rows[[0, 2, 1, 1, 1]], X, 0), X[:2])
    with pytest.raises(ValueError, match="element 3 of the condition is true, and axis 0"):
        jnp.compress(np.ones(4, bool), X, 0)


@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_choose_numbers_outside(mode: str) -> None:
    choices = [X[0], X[1], X[2]]
    numbers = np.array([-4, 1, 5, 2])
    np.testing.assert_array_equal(
        np.asarray(jnp.choose(numbers, choices, mode=mode)), np.choose(numbers, choices, mode=mode)
    )
    with pytest.raises(ValueError, match="-4 goes beyond the 3 choices"):
        jnp.choose(numbers, choices)
    with pytest.raises(ConcretizationError, match="mode='raise' looks at the values"):
        fxad.jit(lambda n: jnp.choose(n, choices))(numbers)
    with pytest.raises(ValueError, match="must be integers, not bool"):
        jnp.choose(numbers > 0, choices)


def test_a_function_fills_the_edges() -> None:
    def filled(row, widths, axis, options):
        return row.at[: widths[0]].set(options["fill"]).at[row.size - widths[1] :].set(axis)

    def theirs(row, widths, axis, options):
        row[: widths[0]], row[row.size - widths[1] :] = options["fill"], axis

    found = jnp.pad(X, ((1, 0), (2, 1)), filled, fill=5.0)
    np.testing.assert_array_equal(np.asarray(found), np.pad(X, ((1, 0), (2, 1)), theirs, fill=5.0))
    with pytest.raises(BadArgument, match="pad: mode 'edge' takes no fill"):
        jnp.pad(X, 1, "edge", fill=5.0)


@pytest.mark.parametrize("right", [False, True])
def test_bins_may_fall(right: bool) -> None:
    for bins in (np.float32([-2, 0, 1.5, 3]), np.float32([3, 1.5, 0, -2])):
        found = fxad.jit(lambda x, bins=bins: jnp.digitize(x, bins, right))(X)
        np.testing.assert_array_equal(np.asarray(found), np.digitize(X, bins, right))


def test_many_values_are_put_in() -> None:
    for places in ([0, 2], np.array([3, 1, 1]), slice(0, 4, 2)):
        np.testing.assert_array_equal(
            np.asarray(jnp.insert(X[0], places, 9.0)), np.insert(X[0], places, 9.0)
        )
    found = jnp.insert(X, [1, 3], X[:, :2], axis=1)
    np.testing.assert_array_equal(np.asarray(found), np.insert(X, [1, 3], X[:, :2], axis=1))
    for place, values, axis in ((1, X[:, 0], 1), (-1, X[:2], 0), (2, X[:, :1], 1), (0, 2.0, None)):
        found = jnp.insert(X, place, values, axis)
        np.testing.assert_array_equal(np.asarray(found), np.insert(X, place, values, axis))
    found = jnp.insert(jnp.arange(3), 1, 1.7)  # in the array's dtype
    assert found.dtype == np.int32 and found.tolist() == [0, 1, 1, 2]


def test_traced_positions_of_what_is_put_in_and_left_out() -> None:
    put_in = fxad.jit(lambda places, values: jnp.insert(X, places, values, axis=1))
    for places in (2, np.array([3, 1]), np.array([1, 1]), np.array([-1])):
        values = X[:, 0] if np.ndim(places) == 0 else X[:, : len(places)]
        found = put_in(places, values)
        np.testing.assert_array_equal(np.asarray(found), np.insert(X, places, values, axis=1))
    left = fxad.jit(lambda places: jnp.delete(X, places, 1, assume_unique_indices=True))
    np.testing.assert_array_equal(np.asarray(left(np.array([-1, 1]))), np.delete(X, [-1, 1], 1))
    assert jnp.delete(X[0], []).tolist() == X[0].tolist()


def test_slopes_between_uneven_places() -> None:
    places = np.array([0, 1, 3, 3.5])
    for axis_places, axis in [(places, 1), (places[:3], 0)]:
        found = jnp.gradient(X, axis_places.astype(np.float32), axis=axis)
        np.testing.assert_allclose(
            np.asarray(found), np.gradient(X, axis_places, axis=axis), rtol=1e-5
        )
    with pytest.raises(ValueError, match="coordinates"):
        jnp.gradient(X, np.float32([1, 2]), axis=1)


def test_weighted_covariances() -> None:
    counts, weights = np.array([1, 2, 3, 1]), np.float32([0.5, 1, 2, 0.25])
    for options in (
        {"fweights": counts},
        {"aweights": weights},
        {"fweights": counts, "aweights": weights, "ddof": 0},
    ):
        np.testing.assert_allclose(
            np.asarray(jnp.cov(X, **options)), np.cov(X, **options), rtol=1e-5
        )
    signs = {"fweights": -counts, "aweights": -weights}
    np.testing.assert_array_equal(
        jnp.cov(X, **signs), jnp.cov(X, fweights=counts, aweights=weights)
    )
    with pytest.raises(TypeError, match=r"fweights must be integers, not f32\[4\]"):
        jnp.cov(X, fweights=weights)


def test_covariances_in_a_dtype() -> None:
    for dtype in (np.float16, np.complex64):
        for name, x in (("cov", X), ("corrcoef", INT)):
            assert getattr(jnp, name)(x, dtype=dtype).dtype == dtype
    np.testing.assert_allclose(jnp.cov(X, dtype=np.float16), np.cov(X), rtol=1e-2)
    np.testing.assert_array_equal(jnp.corrcoef(X, dtype=np.complex64).imag, np.zeros((3, 3)))
    with pytest.raises(ValueError, match="dtype must be a float or complex one, not int32"):
        jnp.corrcoef(X, dtype=int)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (2, 1)])
def test_covariance_of_too_few_observations_is_not_a_number(shape: tuple[int, ...]) -> None:
    assert np.isnan(np.asarray(jnp.cov(np.zeros(shape, np.float32)))).all()


def test_smaller_options() -> None:
    def check(name: str, *args: object, **options: object) -> None:
        found, wanted = getattr(jnp, name)(*args, **options), getattr(np, name)(*args, **options)
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5, atol=1e-6)

    check("interp", X[0], np.float32([0, 1, 2]), np.float32([3, 4, 1]), period=3.0)
    check("logspace", X[1], X[2], 4, axis=1)
    check("ediff1d", X[0], to_begin=3.0, to_end=[1.0, 2.0])
    check("polyint", X[0], 2, k=[1.0, 2.0])
    for name in ["vstack", "hstack", "stack"]:
        check(name, [X, X], dtype=np.float16)
    assert jnp.dstack([X, X], dtype=np.float16).dtype == np.float16
    for found, wanted in zip(
        jnp.indices((2, 3), sparse=True), np.indices((2, 3), sparse=True), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(found), wanted)
