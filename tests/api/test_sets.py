"""Arrays as sets, with results of a given size under jit: against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument


def same(got, want) -> None:
    """Equal shapes and values; dtypes are NumPy's narrowed to 32 bits."""
    for g, w in zip(fxad.tree.leaves(got), fxad.tree.leaves(want), strict=True):
        assert g.shape == w.shape
        np.testing.assert_array_equal(np.asarray(g), w)


def padded(found: np.ndarray, size: int, fill: float) -> np.ndarray:
    """The first `size` elements, then the fill value."""
    more = max(size - len(found), 0)
    return np.concatenate([found[:size], np.full(more, fill, found.dtype)])


@pytest.mark.parametrize("size", [0, 3, 6, 25])
def test_distinct_elements_of_a_given_size(size):
    x = np.array([3, np.nan, -0.0, 2, 0, np.nan, 3, 3, -7], np.float32)
    everything = {"return_index": True, "return_inverse": True, "return_counts": True}
    values, index, inverse, counts = np.unique(x, **everything)
    expected = (
        padded(values, size, 9),
        padded(index, size, index[0]),
        inverse,
        padded(counts, size, 0),
    )
    for wrap in (lambda f: f, fxad.jit):
        same(wrap(lambda x: jnp.unique(x, **everything, size=size, fill_value=9))(x), expected)
        same(wrap(lambda x: jnp.unique(x, size=size))(x), padded(values, size, values[0]))
    every = {"return_counts": True, "equal_nan": False}
    same(jnp.unique(x, **every, size=6), tuple(v[:6] for v in np.unique(x, **every)))
    found = jnp.unique_all(x, size=size, fill_value=9)
    same(found, jnp.unique(x, True, True, True, equal_nan=False, size=size, fill_value=9))
    same(jnp.unique_counts(x, size=size, fill_value=9), (found.values, found.counts))
    same(jnp.unique_inverse(x, size=size).inverse_indices, found.inverse_indices)
    same(jnp.unique_values(x, size=size, fill_value=9), found.values)


@pytest.mark.parametrize("axis", [0, 1])
def test_distinct_slices_of_a_given_size(axis):
    x = np.random.default_rng(0).integers(0, 2, (6, 5)).astype(np.int32)
    values, index, inverse, counts = np.unique(x, True, True, True, axis)
    found = fxad.jit(lambda x: jnp.unique(x, True, True, True, axis, size=4, fill_value=-1))(x)
    count = min(4, values.shape[axis])
    same(np.take(found[0], range(count), axis), np.take(values, range(count), axis))
    assert (np.take(found[0], range(count, 4), axis) == -1).all()
    same((found[1][:count], found[3][:count]), (index[:count], counts[:count]))
    same(found[2], inverse)


@pytest.mark.parametrize("equal_nan", [True, False])
def test_distinct_slices_with_nan_are_sorted(equal_nan):
    x = np.array([[2, np.nan], [np.nan, 1], [2, 0], [2, -0.0], [2, np.nan], [-1, 5]], np.float32)
    found = jnp.unique(x, True, True, True, axis=0, equal_nan=equal_nan)
    order = [5, 2, 0, 1] if equal_nan else [5, 2, 0, 4, 1]
    counts = [1, 2, 2, 1] if equal_nan else [1, 2, 1, 1, 1]
    inverse = [2, 3, 1, 1, 2, 0] if equal_nan else [2, 4, 1, 1, 3, 0]
    same(found, (x[order], np.array(order), np.array(inverse), np.array(counts)))
    same(jnp.unique(x.T, axis=-1, equal_nan=equal_nan), x[order].T)


@pytest.mark.parametrize("size", [2, 5, 40])
@pytest.mark.parametrize("name", ["union1d", "intersect1d", "setdiff1d", "setxor1d"])
def test_sets_of_two_arrays(name, size):
    rng = np.random.default_rng(size)
    pairs = [(rng.integers(0, 9, 20), rng.integers(5, 60, 50)), (np.arange(4), np.arange(9, 12)),
             (np.arange(4), np.zeros(0, int)), (np.zeros(0, int), np.arange(4))]  # fmt: skip
    ours, theirs = getattr(jnp, name), getattr(np, name)
    for x, y in pairs:
        x, y = x.astype(np.int32), y.astype(np.int32)
        expected = theirs(x, y)
        same(ours(x, y), expected)
        sized = fxad.jit(lambda x, y: ours(x, y, size=size, fill_value=-1))
        same(sized(x, y), padded(expected, size, -1))


def test_where_common_elements_are():
    x, y = np.array([5, 1, 5, 3], np.int32), np.array([3, 3, 9, 5], np.int32)
    same(jnp.intersect1d(x, y, return_indices=True), np.intersect1d(x, y, return_indices=True))
    found = fxad.jit(lambda x, y: jnp.intersect1d(x, y, return_indices=True, size=3))(x, y)
    same(found, tuple(np.array([[3, 5, 3], [3, 0, 4], [0, 3, 4]])))


def test_membership_in_a_long_table():
    table = np.array([*range(0, 99, 2), np.nan, np.inf], np.float32)
    x = np.array([2, 3, 98, 99, -1, np.nan, np.inf, -0.0], np.float32)
    for wrap in (lambda f: f, fxad.jit):
        same(wrap(jnp.isin)(x, table), np.isin(x, table))
        same(wrap(lambda x: jnp.isin(x, table, invert=True))(x), np.isin(x, table, invert=True))


def test_no_elements_cannot_fill_a_size():
    with pytest.raises(BadArgument, match="needs a fill_value"):
        jnp.unique(np.zeros(0, np.float32), size=3)


@pytest.mark.parametrize("size", [None, 2])
@pytest.mark.parametrize("assume_unique", [False, True])
def test_a_difference_has_the_dtype_of_the_first(size, assume_unique):
    x, y = jnp.array([16777217, 3], jnp.int32), jnp.array([3.0, 2.5, np.nan])
    found = jnp.setdiff1d(x, y, assume_unique, size=size, fill_value=7 if size else None)
    assert found.dtype == jnp.int32
    assert found.tolist() == ([16777217, 7] if size else [16777217])


@pytest.mark.parametrize("a", [[], [np.nan, 1, np.nan], [2, -0.0, np.inf]])
@pytest.mark.parametrize("b", [[], [np.nan, 5, 1], [0.0, 3]])
def test_what_one_of_two_has_may_be_nan(a, b):
    a, b = np.array(a, np.float32), np.array(b, np.float32)
    found = fxad.jit(lambda a, b: jnp.setxor1d(a, b, size=6, fill_value=9))(a, b)
    same(found, padded(np.setxor1d(a, b), 6, 9))


def test_complex_slices_with_nan_are_numpys():
    a = np.array([[complex(1, np.nan), 2], [3, 4], [3, 4]])
    found = jnp.unique(jnp.asarray(a.astype(np.complex64)), axis=0)
    assert found.shape == (2, 2) and np.isnan(np.asarray(found)).sum() == 1
