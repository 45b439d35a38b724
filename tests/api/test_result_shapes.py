"""lax's shapes of results beside those of the results, and JAX's (peers)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fxad import lax
from fxad.core.errors import BadArgument, ShapeError

LETTERS = [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NHWC"), ("HCNW", "WOHI", "CWNH")]
SIZES = {"N": 2, "C": 3, "H": 7, "W": 9}
KERNEL = {"O": 4, "I": 3, "H": 3, "W": 2}
CONVOLUTIONS = list(
    itertools.product(
        LETTERS, [(1, 1), (2, 3)], ["SAME", "VALID", [(1, 0), (2, 2)]]
    )
)  # fmt: skip


def shapes(letters):
    return tuple(SIZES[c] for c in letters[0]), tuple(KERNEL[c] for c in letters[1])


@pytest.mark.parametrize(("letters", "strides", "padding"), CONVOLUTIONS)
def test_shapes_are_those_of_results(letters, strides, padding):
    x, w = (np.ones(shape, np.float32) for shape in shapes(letters))
    call = strides, padding, letters
    y = lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=letters)
    assert lax.conv_general_shape_tuple(x.shape, w.shape, *call) == y.shape
    y = lax.conv_transpose(x, w, strides, padding, dimension_numbers=letters)
    assert lax.conv_transpose_shape_tuple(x.shape, w.shape, *call) == y.shape


def test_shapes_of_windows():
    x = np.ones((5, 8), np.float32)
    for padding, base, holes in itertools.product(
        ("SAME", "VALID", [(1, 2), (0, 1)]), [None, (2, 3)], [None, (1, 2)]
    ):
        call = (2, 3), (1, 2), padding, base, holes
        y = lax.reduce_window(x, 0.0, lax.add, *call)
        assert lax.reduce_window_shape_tuple(x.shape, *call) == y.shape


def test_index_take():
    x = np.arange(24).reshape(2, 3, 4)
    rows = np.array([0, 1, -1]), np.array([3, 4, -1])
    taken = lax.index_take(x, rows, (0, 2))
    assert taken.tolist() == [x[0, :, 3].tolist(), x[1, :, 0].tolist(), x[1, :, 3].tolist()]


def test_what_is_refused():
    with pytest.raises(ShapeError, match="one entry for each of the sizes"):
        lax.conv_shape_tuple((1, 2, 5, 5), (3, 2, 2, 2), (1,), "VALID")
    with pytest.raises(ShapeError, match="no 2 equal groups"):
        lax.conv_shape_tuple((3, 2, 5), (3, 2, 2), (1,), "VALID", 2)
    with pytest.raises(BadArgument, match="dimension_numbers"):
        lax.conv_general_permutations(("NHWC", "HWIO", "NHWD"))
    with pytest.raises(ShapeError, match="1 vectors of indices for 2 axes"):
        lax.index_take(np.ones((2, 3)), [np.zeros(1, int)], (0, 1))


@pytest.mark.peers
def test_shapes_are_jaxs():
    theirs = pytest.importorskip("jax.lax")
    for letters, strides, padding in CONVOLUTIONS:
        for name in ("conv_general_shape_tuple", "conv_transpose_shape_tuple"):
            call = *shapes(letters), strides, padding, letters
            assert getattr(lax, name)(*call) == tuple(getattr(theirs, name)(*call))
        permutations = theirs.conv_general_permutations(letters)
        assert lax.conv_general_permutations(letters) == permutations
    call = (4, 3, 7, 9), (4, 3, 3, 2), (2, 1), [(0, 1), (2, 0)], 2
    assert lax.conv_shape_tuple(*call) == theirs.conv_shape_tuple(*call)
    x, rows = np.arange(24).reshape(2, 3, 4), [np.array([0, 5, -1]), np.array([3, 4, -1])]
    wanted = theirs.index_take(np.asarray(x), rows, (0, 2))
    assert lax.index_take(x, rows, (0, 2)).tolist() == np.asarray(wanted).tolist()
