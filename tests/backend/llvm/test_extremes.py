"""Maxima and minima of rows: NaN wherever it is, signed zeros, rows that fill no vector."""

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.backend.llvm import cache
from fxad.backend.llvm.base import schedule

HIGHEST = fxad.jit(lambda x: jnp.max(x, -1))
LOWEST = fxad.jit(lambda x: jnp.min(x, -1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [9, 16, 64, 100, 257])
def test_a_nan_anywhere_is_the_extreme(width, dtype):
    x = np.random.default_rng(0).uniform(-1, 1, (width + 1, width)).astype(dtype)
    x[np.arange(width), np.arange(width)] = np.nan  # in row i at i; none in the last row
    with fxad.enable_x64():
        for compiled, numpy in ((HIGHEST, np.max), (LOWEST, np.min)):
            np.testing.assert_array_equal(compiled(x), numpy(x, -1))


@pytest.mark.parametrize("width", [16, 100])
def test_zero_lies_above_its_negative(width):
    x = np.full((2, width), -0.0, np.float32)
    x[0, 3] = x[1, 3] = 0.0
    x[1] = -x[1]  # row 0: one +0 among -0; row 1: one -0 among +0
    assert not np.signbit(HIGHEST(x)).any()
    assert np.signbit(LOWEST(x)).all()


def test_infinities():
    x = np.full((2, 40), -np.inf, np.float32)
    x[1, 7] = 5.0
    np.testing.assert_array_equal(HIGHEST(x), np.float32([-np.inf, 5]))
    np.testing.assert_array_equal(LOWEST(-x), np.float32([np.inf, -5]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("shape", [(5, 64), (33, 200), (70, 17)], ids=str)
def test_columns_and_pairs_keep_nan_and_the_sign_of_zero(shape, dtype):
    """Down the columns, a vector of them at a time, and element by element of two arrays."""
    rng = np.random.default_rng(0)
    special = np.array([np.nan, 0.0, -0.0, np.inf, -np.inf, 1.5, -2.0, 1e-30])
    x = rng.choice(special, (2, *shape), p=[0.02, 0.2, 0.2, 0.02, 0.02, 0.2, 0.2, 0.14])
    with fxad.enable_x64():
        a, b = (jnp.asarray(part, dtype) for part in x)
        wide, other = (np.asarray(part).astype(np.float64) for part in (a, b))
        for name, zero in (("max", False), ("min", True)):
            found = np.asarray(fxad.jit(lambda v, n=name: getattr(jnp, n)(v, 0))(a))
            wanted = getattr(np, name)(wide, 0)
            np.testing.assert_array_equal(found.astype(np.float64), wanted)
            mixed = (np.signbit(wide) != np.signbit(wide[0])).any(0) & (wanted == 0)
            assert (np.signbit(found[mixed]) == zero).all()
            pair = fxad.jit(lambda v, w, n=name: getattr(jnp, n + "imum")(v, w))(a, b)
            wanted = getattr(np, name + "imum")(wide, other)
            np.testing.assert_array_equal(np.asarray(pair).astype(np.float64), wanted)
            zeros = (wide == 0) & (other == 0) & (np.signbit(wide) != np.signbit(other))
            assert (np.signbit(np.asarray(pair)[zeros]) == zero).all()


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
@pytest.mark.parametrize("shape", [(100, 10), (3, 5, 7), (2, 64, 3), (70, 1, 13)], ids=str)
def test_what_may_go_in_any_order_goes_over_several_axes_as_one(shape, dtype):
    rng = np.random.default_rng(1)
    x = rng.integers(-50, 50, shape)
    x = (x > 0) if dtype == "bool" else x.astype(dtype)
    functions = ["max", "min", "argmax", "argmin"] + ["sum", "prod"] * (dtype == "int32")
    for name in functions:
        compiled = fxad.jit(lambda v, n=name: getattr(jnp, n)(v))
        wanted = getattr(np, name)(x)
        if name in ("sum", "prod"):
            wanted = wanted.astype(np.int32)
        assert np.asarray(compiled(x)) == wanted
        crossed = fxad.jit(lambda v, n=name: getattr(jnp, n)(v.T))  # no two axes lie as one
        assert np.asarray(crossed(x)) == getattr(np, name)(x.T).astype(np.asarray(wanted).dtype)


def test_an_axis_of_few_positions_that_is_one_with_others_is_a_loop():
    """Not code for each of all their positions, which took LLVM minutes."""
    x = np.random.default_rng(1).integers(-1000, 1000, (20, 40, 3)).astype(np.int32)
    compiled, flat = (fxad.jit(lambda v, a=axes: jnp.max(v, a)) for axes in ((1, 2), 1))
    np.testing.assert_array_equal(compiled(x), x.max((1, 2)))
    lines, wanted = (
        len(f.lower(v).asm.splitlines()) for f, v in ((compiled, x), (flat, x.reshape(20, 120)))
    )
    assert lines < 1.5 * wanted


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
@pytest.mark.parametrize("shape", [(70, 5), (33, 10), (40, 15), (40, 16), (50, 5, 3)], ids=str)
def test_rows_shorter_than_a_vector(monkeypatch, shape, dtype):
    """Alone and as many at once as a vector has lanes: NumPy's extremes, the same bits of sums."""
    rng = np.random.default_rng(2)
    x = rng.integers(-100, 100, shape).astype(dtype)
    if x.dtype.kind == "f":
        x = x * rng.standard_normal(shape).astype(dtype)
        x[3, 2], x[5], x[7] = np.nan, -0.0, -np.inf
    axes = tuple(range(1, x.ndim))

    def rows(x):
        small = jnp.exp(-jnp.abs(x.astype(jnp.float32)))
        return jnp.max(x, axes), jnp.min(x, axes), jnp.sum(small, axes), jnp.sum(x, axes)

    with fxad.enable_x64():
        found = [np.asarray(r) for r in fxad.jit(rows)(x)]
        monkeypatch.setattr(schedule, "_few", lambda *_: 0)
        monkeypatch.setattr(cache.kernels, "_codes", type(cache.kernels._codes)())
        alone = [np.asarray(r) for r in fxad.jit(lambda y: (*rows(y), y + y))(x)]
    np.testing.assert_array_equal(found[0], x.max(axes))
    np.testing.assert_array_equal(found[1], x.min(axes))
    np.testing.assert_allclose(found[3], x.sum(axes, dtype=found[3].dtype), rtol=1e-4, atol=1e-4)
    for one, other in zip(found, alone, strict=False):
        np.testing.assert_array_equal(one, other)
