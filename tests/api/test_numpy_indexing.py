"""Indexing and updates beside NumPy: indices of every kind, known and traced, out of range."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy_draws import draw, same

import fxad
import fxad.numpy as jnp
from fxad.core.errors import ShapeError


class Indices:
    """Random indices of every kind, drawn with a seed."""

    def __init__(self, seed: int) -> None:
        self.rng, self.r = random.Random(seed), np.random.default_rng(seed)

    def shape(self) -> tuple[int, ...]:
        return tuple(self.rng.choice([1, 2, 3, 4]) for _ in range(self.rng.randint(1, 4)))

    def index(self, shape: tuple[int, ...]):
        rng, items, axis, dots = self.rng, [], 0, False
        arrays = rng.choice([(2,), (3,), (2, 3), (1,), (), (0,)])
        while axis < len(shape):
            size = shape[axis]
            kind = rng.choice(["int", "slice", "slice", "none", "dots", "array", "array", "mask"])
            if kind == "none":
                items.append(None)
            elif kind == "dots":
                if not dots:
                    items.append(Ellipsis)
                    axis += rng.randint(0, len(shape) - axis)
                dots = True
            elif kind == "int":
                items.append(rng.choice([int, np.int32, jnp.int32])(rng.randint(-size, size - 1)))
                axis += 1
            elif kind == "slice":
                ends = [None, *range(-size - 1, size + 2)]
                step = rng.choice([None, 1, 2, -1, -2, 3])
                items.append(slice(rng.choice(ends), rng.choice(ends), step))
                axis += 1
            elif kind == "array":
                own = arrays if rng.random() < 0.7 else (1,) * len(arrays)
                items.append(self.r.integers(-size, size, own))
                axis += 1
            elif len(arrays) == 1:
                count = rng.randint(1, min(2, len(shape) - axis))
                mask = np.zeros(shape[axis : axis + count], bool)
                if mask.size >= arrays[0]:
                    mask.ravel()[self.r.permutation(mask.size)[: arrays[0]]] = True
                    items.append(mask)
                    axis += count
        return items[0] if len(items) == 1 else tuple(items)


UPDATES = [
    ("add", np.add.at), ("subtract", np.subtract.at), ("multiply", np.multiply.at),
    ("min", np.minimum.at), ("max", np.maximum.at),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_indexing_of_every_kind(seed):
    draws = Indices(seed)
    for number in range(40):
        shape = draws.shape()
        x = draws.r.integers(-50, 50, shape).astype(np.float32)
        index = draws.index(shape)
        plain = fxad.tree.map(np.asarray, index) if isinstance(index, fxad.Array) else index
        if isinstance(index, tuple):
            plain = tuple(np.asarray(i) if isinstance(i, fxad.Array) else i for i in index)
        label = f"{shape}[{index}]"
        try:
            want = x[plain]
        except IndexError:
            with pytest.raises(IndexError):
                jnp.asarray(x)[index]
            continue
        a = jnp.asarray(x)
        np.testing.assert_array_equal(a[index], want, err_msg=label)
        np.testing.assert_array_equal(a.at[index].get(), want, err_msg=label)
        weights = draws.r.integers(-5, 5, want.shape).astype(np.float32)
        expected = np.zeros_like(x)
        np.add.at(expected, plain, weights)
        got = fxad.grad(lambda v, i=index, w=weights: jnp.sum(v[i] * w))(x)
        np.testing.assert_array_equal(got, expected, err_msg=label)
        for method, update in UPDATES:
            values = weights if number % 2 else np.float32(3)
            expected = x.copy()
            update(expected, plain, values)
            got = getattr(a.at[index], method)(values)
            np.testing.assert_array_equal(got, expected, err_msg=f"{method} {label}")
        expected = x.copy()
        expected[plain] = 7
        np.testing.assert_array_equal(a.at[index].set(7), expected, err_msg=label)
        if number % 8 == 0:
            both = fxad.jit(lambda v, i=index: (v[i], v.at[i].add(2.0)))(x)
            expected = x.copy()
            np.add.at(expected, plain, np.float32(2))
            np.testing.assert_array_equal(both[0], want, err_msg=label)
            np.testing.assert_array_equal(both[1], expected, err_msg=label)


def test_indices_out_of_range():
    x = jnp.arange(4.0)
    far = np.array([1, 9, -9])
    for f in (lambda v, i: v[i], fxad.jit(lambda v, i: v[i])):
        np.testing.assert_array_equal(f(x, far), [1.0, 3.0, 0.0])  # clamped
    np.testing.assert_array_equal(x.at[far].set(5.0), [0, 5, 2, 3])  # dropped
    np.testing.assert_array_equal(x.at[far].get(mode="fill", fill_value=-1), [1, -1, -1])
    with pytest.raises(IndexError, match=r"index 4.*axis 0.*f32\[4\].*test_numpy_indexing\.py"):
        x[4]
    with pytest.raises(IndexError, match="Too many indices"):
        fxad.jit(lambda v: v[0, 0])(x)


def test_traced_indices():
    x, i = draw(5, 4), np.int32(2)
    f = fxad.jit(lambda v, i: (v[i], v[i, 1], v[:, i], v[i, None], v.at[i].set(0.0), v[-i]))
    want = x.copy()
    want[2] = 0
    same(f(x, i), (x[2], x[2, 1], x[:, 2], x[2, None], want, x[-2]))


def test_take_and_friends():
    x, i = draw(3, 4), np.array([[0, 2], [1, 1]])
    for axis in (None, 0, 1):
        same(jnp.take(x, i, axis), np.take(x, i, axis))
    j = draw(3, 2, dtype="int32") % 4
    same(jnp.take_along_axis(x, j, 1), np.take_along_axis(x, j, 1))
    same(jnp.compress([True, False, True], x, 0), np.compress([True, False, True], x, 0))
    same(jnp.argwhere(x > 0), np.argwhere(x > 0))
    same(jnp.unravel_index(np.arange(5), (2, 3)), np.unravel_index(np.arange(5), (2, 3)))
    same(jnp.ravel_multi_index((i, i), (3, 4)), np.ravel_multi_index((i, i), (3, 4)))


@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_positions_out_of_range(mode):
    x, far = draw(4), np.array([-1, 2, -7, 9], np.int32)
    sides, shape = (far, far[::-1]), (3, 4)
    calls = [
        (lambda i: jnp.take(x, i, mode=mode), (far,), np.take(x, far, mode=mode)),
        (
            lambda i, j: jnp.ravel_multi_index((i, j), shape, mode=mode, order="F"),
            sides,
            np.ravel_multi_index(sides, shape, mode=mode, order="F"),
        ),
    ]
    for call, args, want in calls:
        same(call(*args), want)
        same(fxad.jit(call)(*args), want)


@pytest.mark.parametrize(
    ("axis", "index"), [(1, [[0]]), (0, [[1]]), (None, [0, 4]), (-1, [[2], [0]])]
)
def test_put_along_axis_broadcasts_indices(axis, index):
    wanted, index = np.zeros((2, 3), np.float32), np.array(index)
    values = np.arange(1.0, 1.0 + index.size, dtype=np.float32).reshape(index.shape)
    np.put_along_axis(wanted, index, values, axis)
    got = jnp.put_along_axis(jnp.zeros((2, 3)), index, values, axis, inplace=False)
    np.testing.assert_array_equal(np.asarray(got), wanted)


def test_put_along_axis_says_what_does_not_fit():
    x = jnp.zeros((2, 3))
    with pytest.raises(ShapeError, match="do not broadcast to indices"):
        jnp.put_along_axis(x, np.array([[0]]), np.ones((2, 1), np.float32), 1, inplace=False)
    with pytest.raises(ShapeError, match="more lanes"):
        jnp.put_along_axis(x[:1], np.array([[0], [1]]), 1.0, 1, inplace=False)
    with pytest.raises(ShapeError, match="as many axes"):
        jnp.put_along_axis(x, np.array([0]), 1.0, 1, inplace=False)


def test_positions_that_no_mode_brings_into_range():
    for i in ([0, 3], [-1, 0]):
        with pytest.raises(ValueError, match="of length 3"):
            jnp.ravel_multi_index((np.array(i), np.array([0, 1])), (3, 4))
    with pytest.raises(ValueError, match="mode is one of raise, clip, wrap"):
        jnp.ravel_multi_index((0, 0), (3, 4), mode="nearest")
    near = np.array([-1, 5, 30, -40])  # as JAX has it: NumPy raises
    same(jnp.unravel_index(near, (3, 4)), np.unravel_index(np.array([11, 5, 11, 0]), (3, 4)))
    same(jnp.unravel_index(near, 12)[0], np.array([11, 5, 11, 0]))
    lanes = jnp.put_along_axis(jnp.zeros(4), np.array([-1, 9]), 7.0, 0, inplace=False)
    assert lanes.tolist() == [0, 0, 0, 7]
    lanes = jnp.put_along_axis(jnp.zeros(4), np.array([9]), 7.0, 0, inplace=False, mode="clip")
    assert lanes.tolist() == [0, 0, 0, 7]


@pytest.mark.parametrize("method", ["set", "add", "multiply", "min", "max"])
def test_updates_at_a_traced_mask(method):
    x, m = draw(4, 3), draw(4, dtype="bool")
    for mask, value in ((x > 0, 0.25), (m, np.float32([1, 2, 3])), (m, 2.0)):
        want = getattr(jnp.asarray(x).at[mask], method)(value)  # the mask is known: positions
        got = fxad.jit(lambda v, k, u=value: getattr(v.at[k], method)(u))(x, mask)
        np.testing.assert_array_equal(got, want)
        slopes = fxad.jit(fxad.grad(lambda v, k, u=value: getattr(v.at[k], method)(u).sum()))
        eager = fxad.grad(lambda v, k=mask, u=value: getattr(v.at[k], method)(u).sum())
        np.testing.assert_array_equal(slopes(x, mask), eager(x))


@pytest.mark.parametrize("place", [2**40, -(2**40), 2**31, -(2**63)])
def test_positions_beyond_int32_are_as_out_of_range_as_others(place):
    """Narrowed, 2^40 would be 0."""
    x, near = jnp.arange(3), np.array([100 if place > 0 else -100])
    for read in (lambda i: x[i], lambda i: x.at[i].set(7), lambda i: jnp.take(x, i, mode="clip")):
        np.testing.assert_array_equal(read(np.array([place])), read(near))
    np.testing.assert_array_equal(x[[place]], x[near])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
@pytest.mark.parametrize("index", [1, slice(1, 3), slice(None, None, 2), slice(3, 0, -2)], ids=str)
def test_what_an_update_does_not_reach_keeps_the_sign_of_its_zeros(index, dtype):
    x = np.full(4, complex(-0.0, -0.0) if dtype == "complex64" else -0.0, dtype)
    wanted = x.copy()
    wanted[index] += np.ones((), dtype)
    for add in (lambda x: x.at[index].add(1), fxad.jit(lambda x: x.at[index].add(1))):
        assert np.asarray(add(jnp.asarray(x))).tobytes() == wanted.tobytes()
