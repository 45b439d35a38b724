"""Indexing as ported code does it: negative indices, sequences, masks, and the errors."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import IndexOutOfRange, TracedIndexError, TypeMismatch

X = np.arange(5.0, dtype=np.float32) + 1
IDX = np.array([-6, -5, -1, 0, 4, 5], np.int32)


def model(index, size, wrap, clip):
    """(place of each index, which are in range)."""
    index = np.where((index < 0) & wrap, index + size, index)
    inside = (index >= 0) & (index < size)
    return np.clip(index, 0, size - 1), inside | clip


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("mode", ["clip", "fill", "drop", "promise_in_bounds"])
def test_reads(mode, wrap, compiled):
    def read(x, i):
        return x.at[i].get(mode=mode, fill_value=99.0, wrap_negative_indices=wrap)

    place, inside = model(IDX, 5, wrap, mode in ("clip", "promise_in_bounds"))
    got = (fxad.jit(read) if compiled else read)(jnp.asarray(X), IDX)
    np.testing.assert_array_equal(got, np.where(inside, X[place], 99.0))


WRITES = {
    "set": lambda x, i, v: x.__setitem__(i, v),
    "add": np.add.at,
    "subtract": np.subtract.at,
    "multiply": np.multiply.at,
    "divide": np.divide.at,
    "power": np.power.at,
    "min": np.minimum.at,
    "max": np.maximum.at,
}


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("mode", ["clip", "drop"])
@pytest.mark.parametrize("method", WRITES)
def test_writes(method, mode, wrap):
    index = np.array([-6, -2, 1, 7], np.int32)
    values = np.array([2.0, 3.0, 0.5, 4.0], np.float32)
    place, inside = model(index, 5, wrap, mode == "clip")
    expected = X.copy()
    WRITES[method](expected, place[inside], values[inside])

    def write(x):
        return getattr(x.at[index], method)(values, mode=mode, wrap_negative_indices=wrap)

    np.testing.assert_allclose(write(jnp.asarray(X)), expected, rtol=1e-6)
    np.testing.assert_allclose(fxad.jit(write)(X), expected, rtol=1e-6)


def test_integers_divided_somewhere_are_floats():
    x = jnp.array([7, 5, 3])
    for divided in (x.at[1:].divide(2), fxad.jit(lambda x: x.at[1:].divide(2))(x)):
        assert divided.dtype == jnp.float32
        assert divided.tolist() == [7.0, 2.5, 1.5]


def test_python_integers_below_zero():
    x = jnp.asarray(X)
    with pytest.raises(IndexOutOfRange, match="index -1 out of bounds for axis 0 with size 5"):
        x.at[-1].get(wrap_negative_indices=False)
    assert float(x.at[-1].get(mode="clip", wrap_negative_indices=False)) == 1.0
    assert x.at[-1].set(9.0, mode="drop", wrap_negative_indices=False).tolist() == X.tolist()
    applied = x.at[-1].apply(jnp.negative, mode="clip", wrap_negative_indices=False)
    assert applied.tolist() == [-1.0, 2.0, 3.0, 4.0, 5.0]


def test_updates_of_bools():
    flags, index = np.array([True, False, True]), np.array([0, 0, 1, 2])
    values = np.array([False, True, True, False])
    for method, ufunc in (("min", np.minimum), ("max", np.maximum), ("multiply", np.multiply)):
        expected = flags.copy()
        ufunc.at(expected, index, values)
        got = getattr(jnp.asarray(flags).at[index], method)(values)
        assert got.dtype == bool
        assert got.tolist() == expected.tolist(), method
    assert jnp.zeros(3, bool).at[1:].add(True).tolist() == [False, True, True]
    owners = np.array([0, 1, 0, -1])
    assert lax.segment_max(values, owners, 3).tolist() == [True, True, False]
    assert lax.segment_min(values, owners, 3).tolist() == [False, True, True]


def test_sequences():
    x = np.arange(24).reshape(2, 3, 4)
    a = jnp.asarray(x)
    assert a[([],)].shape == (0, 3, 4)
    assert a[[], []].shape == (0, 4)
    np.testing.assert_array_equal(a[[0, 1], [2, 0]], x[[0, 1], [2, 0]])
    traced = fxad.jit(lambda i: a[[i, 0], [[i], [2]]])(1)
    np.testing.assert_array_equal(traced, x[[1, 0], [[1], [2]]])
    for wrong in ([0, None], [0, slice(None)], [0, [0, 1]]):
        with pytest.raises(TypeMismatch, match=r"non-tuple sequence.*arr\[tuple\(seq\)\]"):
            a[wrong]


@pytest.mark.parametrize(
    ("read", "error", "said"),
    [
        (lambda x, i: x[:i], TracedIndexError, "dynamic_slice"),
        (lambda x, i: x[x > i], TracedIndexError, "boolean mask"),
        (lambda x, i: x[i > 0], TracedIndexError, "boolean mask"),
        (lambda x, i: x[:, i], IndexError, "Too many indices: array is 1-dim.* 2 were indexed"),
        (lambda x, i: x[7], IndexError, "index 7 out of bounds for axis 0 with size 5"),
        (lambda x, i: x[np.array([True])], IndexError, "boolean index did not match shape"),
        (lambda x, i: x[1.0], TypeError, "must have integer or boolean type.* 1.0"),
        (lambda x, i: x[jnp.ones(2)], TypeError, r"must have integer or boolean type.* f32\[2\]"),
        (lambda x, i: x["a"], TypeError, "string indexing; got 'a'"),
        (lambda x, i: x[:0][i], IndexError, "out of bounds for axis 0 with size 0"),
    ],
)
def test_errors(read, error, said):
    with pytest.raises(error, match=said):
        fxad.jit(read)(X, 1)


def test_traced_shapes_are_index_errors_too():
    assert issubclass(TracedIndexError, IndexError)
    assert issubclass(TracedIndexError, TypeError)


def test_float0_tangents_of_integers():
    zero = np.zeros((3,), [("float0", np.void, 0)])
    f = lambda x, i: jnp.sum(x[i] ** 2)  # noqa: E731
    i = np.array([0, 2, 2])
    y, dy = fxad.jvp(f, (X, i), (X, zero))
    assert float(y) == 1 + 9 + 9
    assert float(dy) == 2 * (1 + 9 + 9)
    push = fxad.linearize(f, X, i)[1]
    assert float(push(X, zero)) == 2 * (1 + 9 + 9)


def halved(x, index, size):
    """x after one halving for every time an index names a place."""
    out = x.copy()
    for i in np.atleast_1d(index):
        if -size <= i < size:
            out[i] /= 2
    return out


@pytest.mark.parametrize("index", [2, np.array([3, 1]), np.array([0, -1, 4, 0, 0]), [1, 1], 7])
def test_apply_works_once_for_every_index(index):
    x = jnp.asarray(X)
    half = lambda x: x / 2  # noqa: E731
    run = lambda x: x.at[index].apply(half, mode="drop")  # noqa: E731
    expected = halved(X, index, 5)
    assert run(x).tolist() == expected.tolist()
    assert fxad.jit(run)(x).tolist() == expected.tolist()
    if not isinstance(index, list):
        traced = fxad.jit(lambda x, i: x.at[i].apply(half, mode="drop"))
        assert traced(x, index).tolist() == expected.tolist()
        slopes = fxad.jit(fxad.grad(lambda x, i: jnp.sum(x.at[i].apply(half, mode="drop"))))
        assert slopes(x, index).tolist() == halved(np.ones(5, np.float32), index, 5).tolist()


def test_apply_to_lanes_and_windows():
    x, index = np.arange(6.0).reshape(2, 3) + 1, np.array([[0, 0], [1, 2]])
    run = fxad.vmap(lambda x, i: x.at[i].apply(jnp.negative))
    np.testing.assert_array_equal(run(x, index), x * [[1, 1, 1], [1, -1, -1]])
    rows = jnp.asarray(x).at[np.array([1, 1])].apply(lambda x: x + 1)
    np.testing.assert_array_equal(rows, x + [[0], [2]])
    once = jnp.asarray(x).at[np.array([0, 1])].apply(lambda x: x + 1, unique_indices=True)
    np.testing.assert_array_equal(once, x + 1)
    assert jnp.zeros((0, 2)).at[np.zeros(0, int)].apply(jnp.sin).shape == (0, 2)


def test_scatter_apply():
    numbers = lax.ScatterDimensionNumbers((1,), (), (0,))
    index = np.array([[0], [1], [8]])
    run = lambda x: lax.scatter_apply(  # noqa: E731
        x, index, lambda x: x + 10, numbers, update_shape=(3, 2)
    )
    expected = X + [10, 20, 10, 0, 0]  # windows at 0 and 1; that at 8 is dropped
    np.testing.assert_array_equal(run(X), expected)
    np.testing.assert_array_equal(fxad.jit(run)(X), expected)
