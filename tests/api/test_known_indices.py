"""x[i] of known elements by known integers, which is read straight from memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices, integer_array_indices

import fxad
import fxad.numpy as jnp
from fxad.core.errors import IndexOutOfRange
from fxad.numpy.indexing import _from_memory


@settings(deadline=None)
@given(data=st.data(), turned=st.booleans(), dtype=st.sampled_from(["int8", "float32", "bool"]))
def test_numpys_elements(data, turned, dtype):
    shape = data.draw(array_shapes(min_dims=1, max_dims=4))
    index = data.draw(basic_indices(shape, allow_newaxis=True))
    mine = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    mine = mine.T if turned else mine
    x = jnp.asarray(np.ascontiguousarray(mine.T)).T if turned else jnp.asarray(mine)
    try:
        wanted = mine[index]
    except IndexError:
        with pytest.raises(IndexOutOfRange):
            x[index]
        return
    found = x[index]
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    np.testing.assert_array_equal(np.asarray(found), wanted)
    np.testing.assert_array_equal(np.asarray(fxad.jit(lambda x: x[index])(x)), wanted)


def test_which_indices_are_read_from_memory():
    x = jnp.arange(12.0).reshape(3, 4)
    one = jnp.asarray(1)
    integers = [0, (0, 1), (-1, slice(1, None, 2)), (None, 2), (..., 3), one, (one, 2)]
    larger = [slice(1), ..., (0, np.arange(2)), jnp.arange(2), (jnp.arange(2), one)]
    for index in integers + larger:
        assert _from_memory(x, index) is not None
    for index in [True, (0, True), 7, jnp.arange(4), (0, slice(one)), (0, [1]), x, x > 1]:
        assert _from_memory(x, index) is None
    recorded = []

    def record(y):
        recorded.extend(_from_memory(x, index) is not None for index in integers + larger)
        return y

    fxad.jit(record)(x)  # a program holds single elements, not copies of parts of what it captures
    assert recorded == [True] * len(integers) + [False] * len(larger)


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_numpys_elements_by_index_arrays(data):
    shape = data.draw(array_shapes(min_dims=1, max_dims=3))
    arrays = data.draw(integer_array_indices(shape))
    index = (*arrays[:-1], slice(None), arrays[-1])[: len(shape)] if len(shape) > 2 else arrays
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    ours = tuple(i if isinstance(i, slice) else jnp.asarray(i) for i in index)
    for given_index in (index, ours):
        found = jnp.asarray(x)[given_index]
        np.testing.assert_array_equal(np.asarray(found), x[index])
        assert found.shape == x[index].shape


def test_masks_and_positions_out_of_range():
    x = jnp.arange(4.0)
    assert x[np.array([True, False, True, False])].tolist() == [0.0, 2.0]
    assert x[jnp.asarray([0, 9, -1])].tolist() == [0.0, 3.0, 3.0]  # reads clamp


def test_elements_are_nobody_elses_memory():
    x = jnp.arange(6.0).reshape(2, 3)
    row = x[1]
    assert not np.shares_memory(np.asarray(row), np.asarray(x))
    fxad.jit(lambda x: x * 2, donate_argnums=0)(x)
    assert row.tolist() == [3.0, 4.0, 5.0]


def test_what_was_donated_is_gone():
    x = jnp.ones(3)
    x.take_memory()
    with pytest.raises(fxad.core.errors.DonatedError):
        x[0]


def test_errors_say_what_was_out_of_range():
    with pytest.raises(IndexOutOfRange, match=r"index 5 out of bounds for axis 1 with size 3"):
        jnp.ones((2, 3))[0, 5]
    with pytest.raises(IndexOutOfRange, match="Too many indices"):
        jnp.ones(3)[0, 0]
    assert float(jnp.arange(3.0).at[7].get(mode="fill", fill_value=9.0)) == 9.0
