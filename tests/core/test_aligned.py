"""Copies that begin at a cache line."""

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core import aligned

ARRAYS = [
    np.arange(3, dtype=np.float32),
    np.arange(40_000, dtype=np.int32),
    np.arange(40_000, dtype=np.float32).reshape(200, 200).T,
    np.zeros((0, 5), np.float32),
    np.float32(3.0).reshape(()),
]


@pytest.mark.parametrize("array", ARRAYS, ids=str)
def test_copies_are_contiguous_on_a_line_and_their_own(array):
    copy = aligned.copied(array)
    assert copy.dtype == array.dtype and copy.flags.c_contiguous and copy.flags.writeable
    np.testing.assert_array_equal(copy, array)
    assert not np.shares_memory(copy, array)
    assert copy.nbytes <= aligned.SMALL or copy.ctypes.data % 64 == 0


@pytest.mark.parametrize("make", [jnp.array, jnp.asarray, fxad.device_put])
def test_arrays_made_of_numpy_arrays_begin_at_a_line(make):
    whole = np.zeros(1 << 20, np.float32)
    for start in (0, 1, 4):  # wherever NumPy's memory begins, one of these is not on a line
        assert np.asarray(make(whole[start:])).ctypes.data % 64 == 0


def test_a_copy_can_be_given_away():
    following = fxad.jit(lambda x: x + 1, donate_argnums=0)
    for size in (1 << 10, 1 << 14, 1 << 20):
        x = jnp.asarray(np.ones(size, np.float32))
        place = np.asarray(x).ctypes.data
        assert np.asarray(following(x)).ctypes.data == place


@pytest.mark.parametrize("made", [jnp.zeros, jnp.ones, lambda shape: jnp.full(shape, 2.5)])
def test_what_parameters_and_states_begin_as_lies_on_a_line(made):
    """Kernels read a norm's scale and an optimizer's state in every step; either may be donated."""
    arrays = [made((size, 1000)) for size in (1, 3, 500) for _ in range(5)]  # some replayed
    assert [np.asarray(a).ctypes.data % aligned.LINE for a in arrays] == [0] * 15
    wanted = [np.asarray(a).copy() * 2 for a in arrays]
    for array, twice in zip(arrays, wanted, strict=True):
        np.testing.assert_array_equal(fxad.jit(lambda x: x * 2, donate_argnums=0)(array), twice)
