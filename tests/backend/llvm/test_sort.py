"""Compiled sorting against NumPy's stable sort: every dtype, by counts, networks and digits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.backend.llvm.base.tuning import DEFAULT
from fxad.backend.llvm.native.engine import host_target
from fxad.core.config import config
from fxad.core.errors import CheckError

LENGTHS = [
    *(1, 5, 16, 17, 47, 64),  # by counts and, with AVX-512 and small keys, in registers
    *(65, 100, 128, 129, 300, 1024, 1025),  # blocks in memory, and beyond; by digits
    DEFAULT.sorts.radix_long - 1,
    DEFAULT.sorts.radix_long,
    20_000,
]
DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "float16", "bfloat16", "float32", "float64"]  # fmt: skip
# Sizes of keys decide how a row is sorted, so one dtype of each size meets all of what selects a
# way. Others, whose keys differ in what they are read as, meet every way once: counts, networks in
# registers and in memory, short and long digits.
EVERYWHERE = ["int8", "float16", "float32", "float64"]
ONE_OF_EACH = (5, 47, 100, 1025, DEFAULT.sorts.radix_long)
ROWS = [(n, x) for n in DTYPES for x in (LENGTHS if n in EVERYWHERE else ONE_OF_EACH)]


def keys(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Every bit pattern, so subnormals, infinities, NaNs of both signs; ties; both zeros."""
    rng = np.random.default_rng(shape[-1])
    bits = rng.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
    if dtype.kind == "b":
        return bits[..., 0] > 99
    found = bits.view(dtype)[..., 0].copy()
    flat = found.reshape(-1)
    flat[1::3] = flat[::3][: flat[1::3].size]
    if dtype.kind not in "iu":
        flat[:4] = [0.0, -0.0, np.nan, -0.0][: flat.size]
    return found


def expected(x: np.ndarray) -> np.ndarray:
    """Stable order with NaN last; `kind="stable"` is NumPy's, and knows no bfloat16."""
    wide = x.astype(np.float32) if x.dtype.kind not in "biuf" or x.dtype.itemsize == 2 else x
    return np.argsort(wide if x.dtype.kind not in "biu" else x, axis=-1, kind="stable")


@pytest.mark.parametrize(("name", "length"), ROWS)
def test_positions_are_those_of_a_stable_sort(name: str, length: int) -> None:
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    with fxad.enable_x64(True), np.errstate(invalid="ignore"):
        x = keys(dtype, (3, length))
        order, values = fxad.jit(lambda v: (jnp.argsort(v, -1), jnp.sort(v, -1)))(x)
        np.testing.assert_array_equal(np.asarray(order), expected(x))
        taken = np.take_along_axis(x, expected(x), -1)
        assert np.asarray(values).tobytes() == taken.tobytes()


@pytest.mark.parametrize("isa", ["avx2", "generic"])
@pytest.mark.parametrize("name", ["int8", "float32", "float64"])
def test_narrower_vectors_count_alike(name: str, isa: str) -> None:
    try:
        host_target(isa)
    except CheckError:
        pytest.skip(f"this machine does not run {isa}")
    x = keys(np.dtype(name), (3, 33))
    with fxad.enable_x64(True), config.override(isa=isa), np.errstate(invalid="ignore"):
        order, best = fxad.jit(lambda v: (jnp.argsort(v, -1), fxad.lax.top_k(v, 20)[1]))(x)
    np.testing.assert_array_equal(np.asarray(order), expected(x))
    np.testing.assert_array_equal(np.asarray(best), expected_largest(x, 20))


UP = np.arange(500)
SHARING = {"up": UP, "down": UP[::-1] * 70_000, "one": UP * 0 - 3, "two": UP % 2 * (1 << 20)}


@pytest.mark.parametrize("name", list(SHARING))
def test_digits_that_all_keys_share(name: str) -> None:
    x = np.ascontiguousarray(SHARING[name], np.int32)
    order = fxad.jit(jnp.argsort)(x)
    np.testing.assert_array_equal(np.asarray(order), np.argsort(x, kind="stable"))


@pytest.mark.parametrize("length", [3, 40, 127, 9000])
def test_the_second_key_decides_between_equal_first_ones(length: int) -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(-3, 4, length).astype(np.int8)
    second = rng.choice(np.array([np.nan, -0.0, 0.0, 1.5, -np.inf], np.float32), length)
    payload = np.arange(length, dtype=np.int32)
    found = fxad.jit(lambda *xs: fxad.lax.sort(xs, num_keys=2))(first, second, payload)
    order = np.lexsort((second, first))
    for x, y in zip(found, (first, second, payload), strict=True):
        np.testing.assert_array_equal(np.asarray(x), y[order])


# all sorted by a network or counted; few by insertion, many as candidates, most by sorting all;
# some and many vectors
WANTED = [(5, 2), (33, 3), (64, 16), (40, 40), (65, 16), (65, 1), (300, 16), (700, 20), (5000, 1),
          (5000, 100), (600, 300)]  # fmt: skip
FEW_WANTED = [(33, 3), (5000, 1), (5000, 100), (600, 300)]
# Each other dtype has two of these, a signed one others than the unsigned one of its size.
LARGEST = [
    (name, *x)
    for n, name in enumerate(DTYPES)
    for x in (WANTED if name in EVERYWHERE else FEW_WANTED[n // 2 % 2 :: 2])
]


def expected_largest(x: np.ndarray, count: int) -> np.ndarray:
    """Of equals the first comes first: a stable sort of the negated ranks."""
    wide = x if x.dtype.kind in "biu" else x.astype(np.float64)
    ranks = np.stack([np.unique(row, return_inverse=True)[1].reshape(-1) for row in wide])
    return np.argsort(-ranks, axis=-1, kind="stable")[:, :count]


@pytest.mark.parametrize(("name", "extent", "count"), LARGEST)
def test_the_largest_are_those_of_a_stable_sort(name: str, extent: int, count: int) -> None:
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    with fxad.enable_x64(True), np.errstate(invalid="ignore"):
        x = keys(dtype, (2, extent))
        values, places = fxad.jit(lambda v: fxad.lax.top_k(v, count))(x)
        order = expected_largest(x, count)
        np.testing.assert_array_equal(np.asarray(places), order)
        assert np.asarray(values).tobytes() == np.take_along_axis(x, order, -1).tobytes()


@pytest.mark.parametrize("count", [4, 50])
@pytest.mark.parametrize("name", list(SHARING))
def test_the_largest_of_ordered_and_equal_elements(name: str, count: int) -> None:
    """Rising rows put every element before the bar, equal ones none."""
    x = np.ascontiguousarray(SHARING[name], np.int32)[None]
    _, places = fxad.jit(lambda v: fxad.lax.top_k(v, count))(x)
    np.testing.assert_array_equal(np.asarray(places), expected_largest(x, count))
