"""Reductions that skip NaN, starting values, known means, and the order of complex numbers, beside
NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp

X = np.array([[1, np.nan, 3, -2], [np.nan] * 4, [5, 0.5, np.nan, 7]], np.float32)
Z = (np.arange(12) % 3 + 1j * (np.arange(12) % 4 - 1)).astype(np.complex64).reshape(3, 4)
MASK = np.array([True, True, False, True])
EXTREMES, SUMS = ["nanmax", "nanmin"], ["nansum", "nanprod"]
MOMENTS = ["nanmean", "nanvar", "nanstd"]
quiet = pytest.mark.filterwarnings(
    "ignore:.*(Degrees of freedom|empty slice|All-NaN):RuntimeWarning"
)


def close(found: object, wanted: object) -> None:
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5, atol=1e-6)


def both(name: str, *args: object, **options: object) -> None:
    wanted = getattr(np, name)(*args, **options)
    close(getattr(jnp, name)(*args, **options), wanted)
    x, *rest = args
    close(fxad.jit(lambda v: getattr(jnp, name)(v, *rest, **options))(x), wanted)


@quiet
@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("name", EXTREMES + SUMS + MOMENTS)
def test_nan_is_skipped(name: str, axis: int | None) -> None:
    both(name, X, axis=axis)
    both(name, X, axis=axis, keepdims=True)


@pytest.mark.parametrize("name", EXTREMES + SUMS)
def test_masks_and_starting_values(name: str) -> None:
    both(name, X, axis=1, initial=2.0, where=MASK)
    both(name, X, axis=0, initial=-4.0)


@quiet
@pytest.mark.parametrize("name", MOMENTS)
def test_moments_of_masked_elements(name: str) -> None:
    both(name, X, axis=1, where=MASK)
    more = {} if name == "nanmean" else {"ddof": 1}
    both(name, X, axis=1, **more)
    both(name, Z, axis=1)


@pytest.mark.parametrize("name", [*EXTREMES, *SUMS, "nancumsum", "nancumprod"])
@pytest.mark.parametrize("dtype", ["int32", "bool", "uint8"])
def test_what_has_no_nan_keeps_its_dtype(name: str, dtype: str) -> None:
    x = (np.arange(6).reshape(2, 3) % 4).astype(dtype)
    plain = getattr(jnp, name.removeprefix("nan"))(x, 0)
    skipping = getattr(jnp, name)(x, 0)
    assert skipping.dtype == plain.dtype
    np.testing.assert_array_equal(np.asarray(skipping), np.asarray(plain))


def test_positions_among_nothing_are_minus_one() -> None:
    assert np.asarray(jnp.nanargmax(X, 1)).tolist() == [2, -1, 3]
    assert np.asarray(jnp.nanargmin(X, 1)).tolist() == [3, -1, 1]


@quiet
@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles_of_what_is_there(method: str) -> None:
    for axis, keepdims in [(1, False), (0, True), (None, False), (None, True), ((0, 1), True)]:
        both("nanquantile", X, np.float32([0.2, 0.9]), axis=axis, method=method, keepdims=keepdims)
        both("nanpercentile", X, 45.0, axis=axis, method=method, keepdims=keepdims)
    both("nanmedian", X, axis=1)
    with pytest.raises(ValueError, match="unknown method 'cubic', not one of linear"):
        jnp.nanquantile(X, 0.5, method="cubic")


@pytest.mark.parametrize("method", ["lower", "higher", "nearest"])
def test_quantiles_that_are_elements(method: str) -> None:
    x = np.float32([3, -np.inf, 1, np.inf, 2])
    for name in ["quantile", "nanquantile"]:
        both(name, x, np.float32([0, 0.1, 0.375, 0.5, 0.6, 0.625, 1]), method=method)


def test_medians_beside_infinities() -> None:
    for x in ([1, np.inf, np.inf], [-np.inf, -np.inf, 2], [1, 3, np.inf]):
        both("median", np.float32(x))
        both("nanmedian", np.float32([*x, np.nan]))


def test_gradients_skip_nan_too() -> None:
    grad = fxad.grad(lambda x: jnp.nanstd(x[::2], axis=1).sum() + jnp.nanquantile(x[::2], 0.3))(X)
    found = np.asarray(grad)
    assert np.isfinite(found).all()
    assert not found[np.isnan(X)].any()


def test_a_starting_value_takes_the_dtype_of_the_elements() -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    for name in ["sum", "prod", "max", "min"]:
        out = getattr(jnp, name)(x, axis=0, initial=2.0)
        assert out.dtype == np.int32
        np.testing.assert_array_equal(np.asarray(out), getattr(np, name)(x, axis=0, initial=2))


@pytest.mark.parametrize("name", ["var", "std"])
def test_spread_around_known_means(name: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    centre = np.full((3, 1), 0.25, np.float32)
    wanted = ((x - 0.25) ** 2).mean(1)
    wanted = wanted if name == "var" else np.sqrt(wanted)
    close(getattr(jnp, name)(x, axis=1, mean=centre), wanted)
    close(getattr(jnp, "nan" + name)(x, axis=1, mean=centre), wanted)


COMPLEX = ["less", "less_equal", "greater", "greater_equal", "maximum", "minimum"]


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_compare_by_real_part_first(name: str) -> None:
    other = np.roll(Z, 5)
    wanted = getattr(np, name)(Z, other)
    np.testing.assert_array_equal(np.asarray(getattr(jnp, name)(Z, other)), wanted)
    np.testing.assert_array_equal(np.asarray(fxad.jit(getattr(jnp, name))(Z, other)), wanted)


def test_complex_numbers_sort_by_real_part_first() -> None:
    for axis in (0, 1):
        np.testing.assert_array_equal(np.asarray(jnp.sort(Z, axis)), np.sort(Z, axis))
        order = np.argsort(Z, axis, kind="stable")
        np.testing.assert_array_equal(
            np.asarray(fxad.jit(jnp.argsort, static_argnums=1)(Z, axis)), order
        )
        np.testing.assert_array_equal(np.asarray(jnp.argmax(Z, axis)), np.argmax(Z, axis))
        np.testing.assert_array_equal(np.asarray(jnp.argmin(Z, axis)), np.argmin(Z, axis))
    broken = Z.copy()
    broken[1, 2] = np.nan
    assert int(jnp.argmax(broken)) == 6
    assert np.isnan(np.asarray(jnp.maximum(broken, Z))[1, 2])


BOOLS = np.array([True, False, True]), np.array([True, True, True])


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "divmod"])
def test_bools_divide_as_integers(name: str) -> None:
    wanted = getattr(np, name)(*(b.astype(np.int32) for b in BOOLS))
    found = getattr(jnp, name)(*BOOLS)
    for a, b in zip(found, wanted, strict=True) if name == "divmod" else [(found, wanted)]:
        assert a.dtype == np.int32
        np.testing.assert_array_equal(np.asarray(a), b)


def test_dtypes_of_results() -> None:
    small = np.array([-3, 2], np.int8)
    assert jnp.fabs(small).dtype == jnp.rint(small).dtype == np.float32
    assert jnp.bitwise_count(small).dtype == jnp.bitwise_count(BOOLS[0]).dtype == np.uint8
    assert np.asarray(jnp.bitwise_count(small)).tolist() == [2, 1]
    assert jnp.square(BOOLS[0]).dtype == np.int32
    assert jnp.argwhere(np.float32(3)).shape == (1, 0)
    assert jnp.argwhere(np.float32(0)).shape == (0, 0)
