"""x[i] of known elements by known integers, which is read straight from memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices, integer_array_indices

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, IndexOutOfRange, ShapeError, TypeMismatch
from fxad.numpy.indexing import _from_memory
from fxad.numpy.updates import _in_memory


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


def by_ops(x, index, values, monoid, **hints):
    """The update as it is recorded: by ops, one after the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fxad.numpy.updates._in_memory", lambda *_: None)
        return getattr(x.at[index], monoid)(values, **hints)


@settings(deadline=None)
@given(data=st.data())
def test_updates_are_those_of_ops(data):
    shape = data.draw(array_shapes(min_dims=1, max_dims=3))
    blocks = basic_indices(shape, allow_newaxis=True)
    index = data.draw(st.one_of(blocks, integer_array_indices(shape)))
    dtype = data.draw(st.sampled_from(["int8", "float32", "bool", "float16"]))
    monoid = data.draw(st.sampled_from(["set", "add", "multiply", "min", "max"]))
    mine = (np.arange(np.prod(shape)).reshape(shape) - 2).astype(dtype)
    x, place = jnp.asarray(mine), np.shape(mine[index])
    shapes = st.sampled_from([(), place, place[1:], (1, *place), (1,) * len(place)])
    values = np.asarray(data.draw(st.sampled_from([3, -0.0])) + np.zeros(data.draw(shapes)))
    for given_ in (jnp.asarray(values.astype(dtype)), jnp.asarray(values.astype(np.float32)), 1):
        try:
            wanted = by_ops(x, index, given_, monoid)
        except ShapeError:
            with pytest.raises(ShapeError):
                getattr(x.at[index], monoid)(given_)
            continue
        found = getattr(x.at[index], monoid)(given_)
        assert found.type is wanted.type and found.weak == wanted.weak
        assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes()
    assert np.asarray(x).tobytes() == mine.tobytes()


def test_fewer_values_than_places_are_repeated():
    """NumPy's `add.at` reads beyond the end of such values (2.4)."""
    x, index = jnp.asarray(np.full(100, 100, np.int8)), np.zeros((2, 2), int)
    added = x.at[index].add(jnp.asarray(np.array([3, 4], np.int8)))
    assert added[0] == 114 and int(added[1]) == 100


def test_which_updates_are_made_in_memory():
    x = jnp.arange(12.0).reshape(3, 4)
    for index in [0, (0, 1), (slice(1), 2), ..., None, jnp.asarray([0, 0]), (np.arange(2), 1)]:
        assert _in_memory(x, index, 1.5, "set") is not None
        assert _in_memory(x, index, jnp.asarray(2), "set") is not None
    assert _in_memory(x, jnp.asarray([0, 0]), 2.0, "add") is not None
    assert _in_memory(x, 0, 2.0, "add") is None  # -0.0 elsewhere would stay so
    for index in [7, jnp.asarray([0, 7]), True, x > 1, [0, 1]]:  # the last is an array only later
        assert _in_memory(x, index, 2.0, "set") is None
    assert _in_memory(x, 0, jnp.ones((1, 4)), "set") is None
    assert _in_memory(jnp.asarray([1, 2]), 0, 2**40, "set") is None


def test_complex_numbers_have_no_larger_one():
    x = jnp.ones(3, np.complex64)
    for update in (lambda x: x.at[jnp.asarray([0])].max(2.0), lambda x: x.at[:, None].min(2.0)):
        for run in (update, fxad.jit(update)):
            with pytest.raises(TypeMismatch):
                run(x)


def test_updates_out_of_range_or_of_other_modes_are_as_before():
    x = jnp.arange(4.0)
    with pytest.raises(IndexOutOfRange):
        x.at[7].set(1.0)
    places = jnp.asarray([0, 7, -1])
    for hints in ({}, {"mode": "clip"}, {"mode": "drop"}, {"wrap_negative_indices": False}):
        for monoid in ("set", "add"):
            found = getattr(x.at[places], monoid)(5.0, **hints)
            wanted = by_ops(x, places, 5.0, monoid, **hints)
            assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes()
    with pytest.raises(BadArgument):
        x.at[0].set(1.0, mode="nowhere")
    grads = fxad.grad(lambda v: jnp.sum(x.at[1].set(v) ** 2))(jnp.asarray(3.0))
    assert float(grads) == 6.0
    assert "dynamic_update" in str(fxad.make_ir(lambda v: x.at[1].set(v))(jnp.asarray(3.0)))
    assert "dynamic_update" in str(fxad.make_ir(lambda v: v + x.at[1].set(9.0))(x))
