"""Values that the array API standard (2025.12) fixes where NumPy and C leave a choice."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp

INF, NAN = math.inf, math.nan
SIGNED = ["int8", "int16", "int32", "int64"]


@pytest.fixture(autouse=True)
def wide():
    """NumPy's default dtypes, so that dtypes can be compared."""
    with fxad.enable_x64():
        yield


def parts(z: np.ndarray) -> list[str]:
    """Both parts of every element; zeros show their sign."""
    return [f"{x.real:+g} {x.imag:+g}j" for x in np.asarray(z).ravel()]


@pytest.mark.parametrize("dtype", [*SIGNED, "uint8", "uint32"])
@pytest.mark.parametrize("how", [lambda f: f, fxad.jit], ids=["eager", "jit"])
def test_shifts_past_the_width(how, dtype):
    width = 8 * np.dtype(dtype).itemsize
    values = np.asarray([0, 1, 5, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    amounts = np.asarray([0, 1, width - 1, width, width + 1, 100], dtype)
    x, y = (a.ravel() for a in np.meshgrid(values, amounts))
    for found, wanted in [
        (how(jnp.bitwise_right_shift)(x, y), np.right_shift(x, y)),
        (how(jnp.bitwise_left_shift)(x, y), np.left_shift(x, y)),
    ]:
        assert np.asarray(found).dtype == wanted.dtype
        np.testing.assert_array_equal(np.asarray(found), wanted)


def test_no_dtype_equals_none():
    names = ["bool", *SIGNED, "float32", "float64", "complex64", "complex128"]
    assert not any(getattr(jnp, name) == None for name in names)  # noqa: E711


def test_expm1_of_infinities():
    """exp(z) - 1, of which C fixes the first."""
    pairs = itertools.product([INF, -INF, NAN, 1.0, 0.0], [0.0, -0.0, 1.0, -2.0, INF, NAN])
    z = np.asarray([complex(a, b) for a, b in pairs if not (np.isfinite(a) and np.isfinite(b))])
    with np.errstate(all="ignore"):
        wanted = np.exp(z)
    wanted.real -= 1
    assert parts(jnp.expm1(z)) == parts(wanted)
    assert parts(jnp.expm1(np.asarray([0j, complex(-0.0, 0.0)]))) == ["+0 +0j", "+0 +0j"]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("how", [lambda f: f, fxad.jit], ids=["eager", "jit"])
def test_expm1_near_zero(how, dtype):
    z = np.asarray([1e-6 + 1e-6j, -3e-5 + 2e-9j, 0.5 - 2j, -40 + 1j], dtype)
    wide = z.astype("complex128")
    wanted = (
        np.expm1(wide.real) * np.cos(wide.imag)
        - 2 * np.sin(wide.imag / 2) ** 2
        + 1j * np.exp(wide.real) * np.sin(wide.imag)
    )
    np.testing.assert_allclose(np.asarray(how(jnp.expm1)(z)), wanted, rtol=32 * np.finfo(dtype).eps)


@pytest.mark.parametrize("how", [lambda f: f, fxad.jit], ids=["eager", "jit"])
def test_tanh_and_tan_at_infinities(how):
    """Zeros have the sign of their own part, whatever sin(2 imag) says."""
    z = np.asarray([complex(s * INF, t * b) for s in (1, -1) for t in (1, -1) for b in (1.0, 2.5)])
    wanted = np.copysign(1, z.real) + 0j
    wanted.imag = np.copysign(0.0, z.imag)
    assert parts(how(jnp.tanh)(z)) == parts(wanted)
    turned = np.empty_like(z)
    turned.real, turned.imag = z.imag, z.real
    swapped = np.empty_like(z)
    swapped.real, swapped.imag = wanted.imag, wanted.real
    assert parts(how(jnp.tan)(turned)) == parts(swapped)


def test_several_arrays_come_as_a_tuple():
    """As the standard has it since 2025.12."""
    x, y = np.arange(3.0), np.arange(2)
    for how in (lambda f: f, fxad.jit):
        for found, wanted in [
            (how(jnp.meshgrid)(x, y), np.meshgrid(x, y)),
            (how(jnp.broadcast_arrays)(x, y[:1]), np.broadcast_arrays(x, y[:1])),
        ]:
            assert type(found) is tuple and len(found) == 2
            for f, w in zip(found, wanted, strict=True):
                assert np.asarray(f).dtype == w.dtype
                np.testing.assert_array_equal(np.asarray(f), w)
    assert jnp.meshgrid() == () == jnp.broadcast_arrays()


@pytest.mark.parametrize("dtype", ["uint8", "uint64", "int16"])
def test_counts_of_repeats_of_any_integers(dtype):
    x = np.arange(6).reshape(2, 3)
    for counts in ([2, 0, 1], [3]):
        found = jnp.repeat(x, jnp.asarray(counts, dtype), axis=1)
        np.testing.assert_array_equal(np.asarray(found), np.repeat(x, counts, axis=1))
    assert jnp.repeat(jnp.ones(0), jnp.asarray([], dtype)).shape == (0,)


def test_an_axis_named_twice_is_an_index_error():
    for f in (jnp.expand_dims, jnp.sum, jnp.flip):
        with pytest.raises(IndexError, match="name one axis twice"):
            f(jnp.ones((2, 3)), axis=(0, 0))
