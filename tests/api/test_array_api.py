"""The Python array API on fxad.numpy: names and special cases of the standard, NumPy's values."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
from array_api_same import same

import fxad
import fxad.numpy as jnp
from fxad.core.errors import (
    AxisError,
    BadArgument,
    ConcretizationError,
    ShapeError,
    TypeMismatch,
)

R = np.random.default_rng(3)
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64"]


@pytest.fixture(autouse=True)
def wide():
    """NumPy's default dtypes, so that dtypes can be compared."""
    with fxad.enable_x64():
        yield


def draw(dtype: str, *shape: int) -> np.ndarray:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.asarray(R.integers(0, 2, shape) == 1)
    if kind in "iu":
        return np.asarray(R.integers(0, 7, shape)).astype(dtype)
    return np.asarray(R.standard_normal(shape)).astype(dtype)


# ---------------------------------------------------------------- the namespace


def test_arrays_name_their_namespace_and_device():
    x = jnp.ones(3)
    assert x.__array_namespace__() is jnp
    assert x.__array_namespace__(api_version="2025.12") is jnp
    assert x.device.platform == "cpu" and x.to_device(x.device) is x
    with pytest.raises(BadArgument, match="unknown version"):
        x.__array_namespace__(api_version="1999.12")
    with pytest.raises(BadArgument, match="no device 'gpu'"):
        x.to_device("gpu")


@pytest.mark.parametrize(
    "make",
    [
        lambda **k: jnp.zeros(2, **k),
        lambda **k: jnp.ones(2, **k),
        lambda **k: jnp.empty(2, **k),
        lambda **k: jnp.full(2, 3, **k),
        lambda **k: jnp.zeros_like(jnp.ones(2), **k),
        lambda **k: jnp.ones_like(jnp.ones(2), **k),
        lambda **k: jnp.full_like(jnp.ones(2), 3, **k),
        lambda **k: jnp.arange(2, **k),
        lambda **k: jnp.linspace(0, 1, 2, **k),
        lambda **k: jnp.eye(2, **k),
        lambda **k: jnp.asarray([1], **k),
        lambda **k: jnp.astype(jnp.ones(2), jnp.int32, **k),
        lambda **k: jnp.from_dlpack(np.ones(2), **k),
    ],
)
def test_creation_takes_a_device(make):
    assert make(device="cpu").device in fxad.devices()
    with pytest.raises(BadArgument, match="no device"):
        make(device="gpu")


def test_namespace_info():
    info = jnp.__array_namespace_info__()
    assert info.default_device() in info.devices()
    assert set(info.dtypes()) == {"bool", *INTS, *FLOATS, "complex64", "complex128"}
    assert set(info.dtypes(kind=("real floating", "bool"))) == {"bool", *FLOATS}
    assert info.default_dtypes()["integral"] == np.int64
    assert info.capabilities()["boolean indexing"]
    with fxad.enable_x64(False):
        assert info.default_dtypes()["real floating"] == np.float32


def test_dtypes():
    assert jnp.can_cast(jnp.int8, jnp.int16) and not jnp.can_cast(jnp.int64, jnp.int32)
    assert jnp.can_cast(jnp.ones(2, jnp.float32), jnp.float64)
    assert jnp.can_cast(jnp.bfloat16, jnp.float32) and not jnp.can_cast(jnp.float32, jnp.bfloat16)
    for name in FLOATS:
        info, known = jnp.finfo(name), np.finfo(name)
        assert type(info.eps) is float and type(info.max) is float and info.bits == known.bits
        assert info.eps == known.eps and info.smallest_normal == known.smallest_normal
        assert info.dtype == np.dtype(name)
    assert jnp.finfo(jnp.complex64).dtype == np.float32
    x = jnp.ones(2, jnp.float16)
    assert (x * jnp.finfo(x.dtype).eps).dtype == np.float16


# ---------------------------------------------------------------- functions


@pytest.mark.parametrize("name", ["unique_all", "unique_counts", "unique_inverse"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32"])
def test_unique(name, dtype):
    x = draw(dtype, 3, 4)
    if dtype == "float32":
        x[0, :2] = np.nan
    got, wanted = getattr(jnp, name)(jnp.asarray(x)), getattr(np, name)(x)
    assert got._fields == wanted._fields
    same(got, tuple(wanted))
    same(jnp.unique_values(x), wanted.values)


def test_unique_needs_known_values():
    with pytest.raises(ConcretizationError, match="pass size="):
        fxad.jit(jnp.unique_values)(jnp.ones(3))


@pytest.mark.parametrize("dtype", ["bool", *INTS, *FLOATS])
@pytest.mark.parametrize("initial", [False, True])
def test_cumulative(dtype, initial):
    x = draw(dtype, 3, 4)
    for name in ("cumulative_sum", "cumulative_prod"):
        got = getattr(jnp, name)(x, axis=1, include_initial=initial)
        wanted = getattr(np, name)(x, axis=1, include_initial=initial)
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5)
    with pytest.raises(BadArgument, match="axis="):
        jnp.cumulative_prod(x)


@pytest.mark.parametrize("dtype", ["bool", *INTS])
def test_sums_of_integers_widen(dtype):
    x = draw(dtype, 3, 3)
    for name in ("sum", "prod", "trace"):
        same(getattr(jnp, name)(jnp.asarray(x)), getattr(np, name)(x))
    same(jnp.cumulative_sum(jnp.asarray(x), axis=0), np.cumulative_sum(x, axis=0))
    same(jnp.cumsum(jnp.asarray(x)), np.cumsum(x, dtype=None if dtype == "bool" else dtype))
    same(jnp.linalg.trace(jnp.asarray(x), offset=1), np.linalg.trace(x, offset=1))


def test_diff_with_ends():
    x = draw("float64", 3, 4)
    same(jnp.diff(x, prepend=0.0), np.diff(x, prepend=0.0))
    same(
        jnp.diff(x, axis=0, n=2, prepend=x[:1], append=x[:2]),
        np.diff(x, axis=0, n=2, prepend=x[:1], append=x[:2]),
    )
    same(jnp.diff(x[:, :0]), np.diff(x[:, :0]))
    with pytest.raises(BadArgument, match="negative"):
        jnp.diff(x, n=-1)


def test_positions_are_default_integers():
    x = jnp.asarray([0, 2, 0, 3])
    for found in (jnp.nonzero(x)[0], jnp.where(x)[0], jnp.searchsorted(jnp.sort(x), x)):
        assert found.dtype == np.int64
    assert jnp.searchsorted(jnp.asarray([1.0, 2.0]), 5.0) == 2


def test_axes_out_of_range_are_index_errors_too():
    with pytest.raises(AxisError, match="axis 3"):
        jnp.expand_dims(jnp.ones(2), axis=3)
    with pytest.raises(IndexError):
        jnp.flip(jnp.ones(2), axis=-2)


def test_a_diagonals_number_is_an_integer():
    x = draw("float64", 2, 3)
    for function in (jnp.diagonal, jnp.trace, jnp.tril):
        for k in (0.5, 1.0, "1", None):
            with pytest.raises(TypeMismatch, match="diagonal's number"):
                function(x, k)
    same(jnp.diagonal(x, np.int64(1)), np.diagonal(x, 1))
    with pytest.raises(ConcretizationError):
        fxad.jit(jnp.diagonal)(x, 1)


@pytest.mark.parametrize("k", [-1000, -2, 0, 1, 3, 1000])
def test_diagonals_outside_a_matrix(k):
    x = draw("float64", 2, 3)
    for name in ("tril", "triu"):
        same(getattr(jnp, name)(x, k=k), getattr(np, name)(x, k))
    same(jnp.eye(2, 3, k=k), np.eye(2, 3, k))
    same(jnp.linalg.diagonal(x, offset=k), np.linalg.diagonal(x, offset=k))
    same(jnp.linalg.trace(x, offset=2**40 + k), np.zeros(()))


def test_ranges_are_computed_in_the_dtype_asked_for():
    with fxad.enable_x64(False):
        for name, given in (
            ("linspace", (0.1, 0.7, 5)),
            ("linspace", (0.0, 1.0, 7, False)),
            ("logspace", (0.0, 3.0, 4)),
            ("geomspace", (0.3, 70.0, 6)),
            ("geomspace", (0.3, 70.0, 6, False)),
        ):
            got = getattr(jnp, name)(*given, dtype=jnp.float64)
            assert got.dtype == np.float64
            wanted = getattr(np, name)(*given)
            np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-14)
        same(jnp.logspace(0, 3, 4, dtype=jnp.int32), np.asarray([1, 10, 100, 1000], np.int32))
        low, high = np.float32([1, 2]), np.float32([8, 4])
        got = jnp.geomspace(low, high, 3, axis=-1)
        np.testing.assert_allclose(got, np.geomspace(low, high, 3, axis=-1), rtol=1e-6)
    with pytest.raises(ShapeError, match="negative"):
        jnp.linspace(0, 1, -1)


def test_shapes_the_standard_forbids():
    with pytest.raises(ShapeError, match="length 3"):
        jnp.linalg.cross(jnp.ones((2, 2)), jnp.ones((2, 2)))
    with pytest.raises(ShapeError, match="vecdot"):
        jnp.vecdot(jnp.ones((2, 1)), jnp.ones((2, 3)))
    with pytest.raises(ShapeError, match="0-d"):
        jnp.nonzero(jnp.asarray(1))
    x = draw("float64", 4, 1, 3), draw("float64", 2, 3)
    same(jnp.linalg.cross(*x), np.linalg.cross(*x))


def test_unsigned_ranges_may_go_down():
    same(jnp.arange(9, 1, -2, dtype=jnp.uint8), np.arange(9, 1, -2, dtype=np.uint8))


SCALAR_MASKS: list[Any] = [True, False, (True, 0), (..., True), (None, False), (slice(1), True, 1)]
SCALAR_MASKS += [
    (np.asarray([0, 2]), True),
    np.asarray(True),
    (np.arange(12).reshape(3, 4) > 3, True),
]


@pytest.mark.parametrize("index", SCALAR_MASKS, ids=str)
def test_scalar_masks(index):
    x = np.arange(12).reshape(3, 4)
    same(jnp.asarray(x)[index], x[index])


def mask(*shape: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(1).random(shape) < 0.5)


MASKS: list[Any] = [mask(2), mask(2, 3), mask(2, 3, 4), (0, mask(3)), (..., mask(4)), mask(0)]
MASKS += [(slice(None), mask(3, 4)), (..., mask(3, 4)), (None, mask(2)), [True, False]]
MASKS += [(True, mask(2)), (0, True, mask(3)), (..., True, mask(4))]


@pytest.mark.parametrize("index", MASKS, ids=str)
def test_masks(index):
    x = np.arange(24).reshape(2, 3, 4)
    same(jnp.asarray(x)[index], x[index])


@pytest.mark.parametrize(
    "index", [mask(3), mask(2, 4), (0, mask(4)), (..., mask(3)), mask(2, 3, 4, 1)], ids=str
)
def test_masks_that_do_not_fit(index):
    with pytest.raises(IndexError):
        jnp.zeros((2, 3, 4))[index]


def test_a_scalar_mask_of_a_scalar():
    same(jnp.asarray(3)[jnp.asarray(True)], np.asarray([3]))
    same(jnp.ones(2).at[True].set(0.0), np.zeros(2))


# ---------------------------------------------------------------- special values

VALUES = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.5, 1e30, -1e30, math.inf, -math.inf, math.nan]
X, Y = (a.ravel() for a in np.meshgrid(np.asarray(VALUES), np.asarray(VALUES)))


@pytest.mark.parametrize("how", [lambda f: f, fxad.jit], ids=["eager", "jit"])
def test_remainders_and_lengths(how):
    with np.errstate(all="ignore"):
        same(how(jnp.remainder)(X, Y), np.remainder(X, Y))
        got, wanted = how(jnp.hypot)(X, Y), np.hypot(X, Y)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-15)


@pytest.mark.parametrize("how", [lambda f: f, fxad.jit], ids=["eager", "jit"])
def test_floor_divide(how):
    """NumPy's values; the floor of the quotient where an operand is zero or infinite."""
    got = np.asarray(how(jnp.floor_divide)(X, Y))
    with np.errstate(all="ignore"):
        special = ~np.isfinite(X) | ~np.isfinite(Y) | (X == 0) | (Y == 0)
        same(got, np.where(special, np.floor(X / Y), np.floor_divide(X, Y)))


def test_floor_divide_is_exact():
    x, y = R.integers(1, 2**52, 2000).astype(float), R.integers(1, 2**20, 2000).astype(float)
    same(jnp.floor_divide(x, y), np.floor_divide(x, y))
    x, y = R.uniform(0, 1e4, 2000), R.uniform(0.01, 1, 2000)
    same(jnp.floor_divide(x, y), np.floor_divide(x, y))


def test_derivatives_of_remainders():
    def slope(x: float, y: float) -> float:
        return float(fxad.grad(lambda x: jnp.remainder(x, y))(jnp.asarray(x)))

    assert [slope(5.0, 3.0), slope(6.0, 3.0), slope(6.0, -3.0), slope(-1.0, 3.0)] == [1.0] * 4
    assert float(fxad.grad(lambda x: jnp.floor_divide(x, 3.0))(6.5)) == 0.0


def test_rounding_of_complex_numbers():
    z = draw("float64", 5) * 9 + 1j * draw("float64", 5)
    same(jnp.round(z), np.round(z))
    with pytest.raises(TypeMismatch, match="no order"):
        jnp.floor(z)
    with np.errstate(all="ignore"):
        z = np.asarray([complex(math.inf, 2), complex(math.inf, math.nan), 100 + 1j])
        np.testing.assert_allclose(np.asarray(jnp.log10(z)), np.log10(z), rtol=1e-15)


# ---------------------------------------------------------------- signatures

# What the standard (2025.12) lets be passed by keyword.
KEYWORDS = {
    "arange": "stop step dtype device",
    "argsort": "axis descending stable",
    "asarray": "dtype device copy",
    "astype": "copy device",
    "broadcast_to": "shape",
    "clip": "min max",
    "concat": "axis",
    "count_nonzero": "axis keepdims",
    "cumulative_prod": "axis dtype include_initial",
    "cumulative_sum": "axis dtype include_initial",
    "diff": "axis n prepend append",
    "expand_dims": "axis",
    "eye": "k dtype device",
    "from_dlpack": "device copy",
    "full": "shape fill_value dtype device",
    "isin": "invert",
    "linspace": "num dtype device endpoint",
    "max": "axis keepdims",
    "meshgrid": "indexing",
    "permute_dims": "axes",
    "repeat": "axis",
    "reshape": "shape copy",
    "roll": "shift axis",
    "searchsorted": "side sorter",
    "squeeze": "axis",
    "stack": "axis",
    "std": "axis correction keepdims",
    "sum": "axis dtype keepdims",
    "take": "axis",
    "take_along_axis": "axis",
    "tensordot": "axes",
    "tril": "k",
    "unstack": "axis",
    "var": "axis correction keepdims",
    "vecdot": "axis",
}


@pytest.mark.parametrize("name", sorted(KEYWORDS))
def test_keywords_of_the_standard(name):
    parameters = inspect.signature(getattr(jnp, name)).parameters
    assert set(KEYWORDS[name].split()) <= set(parameters)
