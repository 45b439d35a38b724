"""Making, moving, ordering and searching arrays beside NumPy."""

from __future__ import annotations

import warnings
from array import array
from types import SimpleNamespace

import numpy as np
import pytest
from numpy_draws import draw, same

import fxad
import fxad.numpy as jnp
from fxad.core.errors import AxisError, BadArgument, ConcretizationError, ShapeError, TypeMismatch


def histogram(*args, **named):
    """NumPy's, with counts in floats as JAX has them."""
    counts, edges = np.histogram(*args, **named)
    return counts.astype("float32"), edges


def test_sorting_and_searching():
    x, i = draw(4, 6), draw(3, 7, dtype="int32")
    for axis in (0, 1, -1, None):
        same(jnp.sort(x, axis), np.sort(x, axis))
        same(jnp.argsort(i, axis), np.argsort(i, axis, kind="stable"))
    for axis in (0, 1, None):
        same(jnp.argmax(i, axis), np.argmax(i, axis))
        same(jnp.argmin(x, axis, keepdims=True), np.argmin(x, axis, keepdims=True))
    keys = np.sort(x[0])
    for side in ("left", "right"):
        same(jnp.searchsorted(keys, x, side), np.searchsorted(keys, x, side))
    same(jnp.unique(i), np.unique(i))
    same(jnp.unique(i, return_counts=True), np.unique(i, return_counts=True))
    same(jnp.bincount(abs(i[0]), length=12), np.bincount(abs(i[0]), minlength=12))
    for counted, wanted in (
        ([-1, -5, 2], [2, 0, 1]),
        ([True, False, True], [1, 2]),
        (np.uint8([1]), [0, 1]),
    ):
        assert jnp.bincount(jnp.asarray(counted)).tolist() == wanted
    for bad in (i, i[0, 0], x[0]):
        with pytest.raises((ShapeError, TypeMismatch), match="bincount: (x must be|takes)"):
            jnp.bincount(bad, length=3)
    with pytest.raises(ShapeError, match=r"weights f32\[\] for x i32"):
        jnp.bincount(i[0], np.float32(2), length=3)
    same(jnp.lexsort((i[0], i[1])), np.lexsort((i[0], i[1])))
    same(jnp.interp(x, keys, x[1]), np.interp(x, keys, x[1]).astype("float32"), rtol=1e-4)
    xp, fp = np.array([0, 1, 3]), np.array([1, 2, 0])
    outside = jnp.interp(np.float32([-2, 5]), xp, fp, "extrapolate", "extrapolate")
    same(outside, np.array([-1.0, -2.0]))
    around = (x[1], keys[::-1], x[1], None, None, -2.5)
    same(jnp.interp(*around), np.interp(*around).astype("float32"), rtol=1e-4)
    same(jnp.nonzero(i), tuple(v.astype("int32") for v in np.nonzero(i)))
    found = jnp.argwhere(jnp.eye(2), size=3, fill_value=(7, 8))
    same(found, np.array([[0, 0], [1, 1], [7, 8]]))
    same(jnp.where(jnp.eye(2), size=3), (np.array([0, 1, 0]), np.array([0, 1, 0])))
    same(jnp.histogram(x, 5), histogram(x, 5))
    same(jnp.isin(i, [1, 2]), np.isin(i, [1, 2]))


@pytest.mark.parametrize("seed", range(30))
def test_histograms_count_every_element(seed):
    x = np.random.default_rng(seed).standard_normal(24).astype("float32")
    for bins in (1, 5, 7):
        same(jnp.histogram(x, bins), histogram(x, bins))


def test_histograms_of_narrow_floats_and_complex_weights():
    """Counts add up in float32: bfloat16 has no 257. Weights of another kind keep it."""
    counts, edges = jnp.histogram(jnp.ones(1000, "bfloat16"), 2)
    assert counts.dtype == edges.dtype == jnp.bfloat16 and counts.tolist() == [0, 1000]
    x, weights = np.array([0, 1, 1, 4], "float32"), np.array([1, 2j, 3, 4], "complex64")
    same(jnp.histogram(x, 2, weights=weights), np.histogram(x, 2, weights=weights))


def test_histograms_of_one_value_and_of_none():
    for x in (np.full(5, 3, "float32"), np.zeros(0, "float32"), np.arange(6)):
        same(jnp.histogram(x, 4), histogram(x, 4))
    x = draw(50)
    same(jnp.histogram(x, 4, (-1, 1)), histogram(x, 4, (-1, 1)))
    same(jnp.histogram(x, 4, density=True), histogram(x, 4, density=True))


@pytest.mark.parametrize("length", [0, 1, 7, 1000])
def test_a_compiled_binary_search(length):
    """Every step indexes by the step before: an expression that is shared, not a tree."""
    keys, x = np.sort(draw(length)), draw(300)
    for side in ("left", "right"):
        found = fxad.jit(lambda v, side=side: jnp.searchsorted(keys, v, side))(x)
        same(found, np.searchsorted(keys, x, side))


def test_cumulative():
    x, i = draw(3, 5), draw(3, 5, dtype="int32")
    for axis in (0, 1, None):
        same(jnp.cumsum(x, axis), np.cumsum(x, axis), rtol=1e-5)
        same(jnp.cumprod(x, axis), np.cumprod(x, axis), rtol=1e-5)
        same(jnp.cumsum(i, axis), np.cumsum(i, axis))
    same(jnp.diff(x, 2, 0), np.diff(x, 2, 0), rtol=1e-4)
    same(jnp.cumsum(np.ones((0, 3), np.float32), 0), np.zeros((0, 3), np.float32))


MOVES = {
    "reshape": lambda m, x: [m.reshape(x, (4, -1)), m.ravel(x), x.reshape(2, 12), x.T, x.flatten()],
    "axes": lambda m, x: [
        m.transpose(x, (2, 0, 1)),
        x[0, 0].transpose(0),
        m.swapaxes(x, 0, 2),
        m.moveaxis(x, 0, -1),
        m.moveaxis(x, (0, 1), (1, 2)),
        m.expand_dims(x, (0, 2)),
        m.squeeze(x[None]),
        m.rollaxis(x, 2),
        m.atleast_3d(x[0]),
    ],
    "join": lambda m, x: [
        m.concatenate([x, x], 1),
        m.stack([x, x], -1),
        m.vstack([x, x]),
        m.hstack([x, x]),
        m.dstack([x, x]),
        m.column_stack([x[0, 0], x[0, 1]]),
        m.concatenate([x, x], None),
        m.append(x, x),
    ],
    "split": lambda m, x: [
        *m.split(x, 3, 1),
        *m.array_split(x, 3, 2),
        *m.split(x, [1, 2], 2),
        *m.vsplit(x, 2),
    ],
    "repeat": lambda m, x: [
        m.repeat(x, 2, 1),
        m.repeat(x, 2),
        m.repeat(x, [1, 2], 0),
        m.tile(x, 2),
        m.tile(x, (2, 1, 1, 2)),
    ],
    "flip": lambda m, x: [
        m.flip(x),
        m.flip(x, 1),
        m.fliplr(x),
        m.flipud(x),
        m.rot90(x),
        m.rot90(x, 3, (1, 2)),
    ],
    "roll": lambda m, x: [
        m.roll(x, 5),
        m.roll(x, -1, 1),
        m.roll(x, (1, 2), (0, 2)),
        m.roll(x, 30, 0),
        m.roll(x, (1, 2), 1),
        m.roll(x, 1, (0, 2)),
        m.roll(x, [3, 4]),
        m.roll(x, m.array([1, 2]), (0, 2)),
    ],
    "pad": lambda m, x: [
        m.pad(x, 1),
        m.pad(x, ((0, 1), (2, 0), (1, 1)), constant_values=3.0),
        m.pad(x, 1, "edge"),
        m.pad(x, 1, "reflect"),
        m.pad(x, 1, "symmetric"),
        m.pad(x, 1, "wrap"),
    ],
    "triangles": lambda m, x: [
        m.tril(x),
        m.triu(x, 1),
        m.tril(x[0], -1),
        m.diag(x[0]),
        m.diag(x[0, 0], 1),
        m.diagonal(x, 1, 0, 2),
        m.trace(x),
        m.eye(3, 4, 1),
        m.tri(3, 2),
    ],
    "broadcast": lambda m, x: [
        m.broadcast_to(x[0, 0], (2, 4)),
        *m.broadcast_arrays(x, x[0, :1]),
        *m.meshgrid(x[0, 0], x[0, :, 0]),
    ],
    "choice": lambda m, x: [
        m.where(x > 0, x, 0),
        m.clip(x, -0.5, 0.5),
        m.clip(x, None, 0.1),
        m.select([x > 1, x > 0], [x, -x], 7),
    ],
}


@pytest.mark.parametrize("name", MOVES)
def test_movement(name):
    x = draw(2, 3, 4)
    same(MOVES[name](jnp, jnp.asarray(x)), MOVES[name](np, x), name)
    same(fxad.jit(lambda v: MOVES[name](jnp, v))(x), MOVES[name](np, x), name)


def test_rolling_by_traced_shifts():
    x, shifts = draw(3, 300), np.array([255, 0, 7], np.uint8)
    rows = [np.roll(row, int(n)) for row, n in zip(x, shifts, strict=True)]
    for mapped in (fxad.vmap(jnp.roll), fxad.jit(fxad.vmap(jnp.roll))):
        same(mapped(x, shifts), np.stack(rows))
    last = fxad.lax.fori_loop(0, 3, lambda i, x: jnp.roll(x, (-i, i), (0, 1)), jnp.asarray(x))
    same(last, np.roll(x, (-3, 3), (0, 1)))
    rolled = fxad.jit(fxad.value_and_grad(lambda x, by: (jnp.roll(x, by, 1) * x[::-1]).sum()))
    got, slope = rolled(x[:, :5], -2)
    same(got, (np.roll(x[:, :5], -2, 1) * x[::-1, :5]).sum(), rtol=1e-5)
    same(slope, np.roll(x[::-1, :5], 2, 1) + np.roll(x[:, :5], -2, 1)[::-1], rtol=1e-5)
    assert fxad.jit(lambda x, by: jnp.roll(x, by, 0))(x[:0], 1).shape == (0, 300)


def test_what_arrays_are_made_of_and_shapes_read_from():
    x, square = draw(6), draw(2, 2)

    class Interface:
        __array_interface__ = x.__array_interface__

    same(jnp.array(range(3)), np.arange(3))
    same(jnp.array([range(2), jnp.array([5, 6])]), np.array([[0, 1], [5, 6]]))
    same(jnp.asarray(range(3), "int8"), np.arange(3, dtype="int8"))
    same(jnp.array(memoryview(square)), square)
    same(jnp.array(array("i", [1, 2]), float), np.array([1.0, 2.0]))
    same(jnp.asarray(Interface()), x)
    bytes_ = bytearray(b"ab")
    made = jnp.array(bytes_), jnp.asarray(bytes_, copy=True)
    bytes_[0] = 0  # arrays have memory of their own
    for one in made:
        same(one, np.array([97, 98], "uint8"))
    for shape in (jnp.array([2, 3]), range(2, 4), np.array([2, 3])):
        assert jnp.zeros(shape).shape == jnp.full(shape, 1).shape == (2, 3)
        same(jnp.reshape(x, shape), x.reshape(2, 3))
        same(jnp.tile(x, shape), np.tile(x, (2, 3)))
    same(jnp.asarray(x).reshape(jnp.array([3, -1])), x.reshape(3, 2))


def test_sort_complex():
    z = np.array([[2 + 3j, 1 + 1j, 2 - 3j], [0, -1, 1j]], "complex64")
    same(jnp.sort_complex(z), np.sort_complex(z))
    for name in ("float32", "int32", "int8", "float16", "bool"):
        x = draw(2, 5).astype(name)
        same(jnp.sort_complex(x), np.sort(x).astype("complex64"))
    with fxad.enable_x64():
        assert jnp.sort_complex(np.ones(2)).dtype == np.complex128


def test_trim_zeros():
    plane = np.zeros((5, 6, 4), np.float32)
    plane[1:3, 2, 1:], plane[3, 4, 2] = 2, np.nan
    for x in (np.array([0, 0, 2, 0, 1, 0]), np.ones(3), np.zeros(3), np.zeros((2, 3)), plane):
        for trim in ("fb", "f", "b", "B"):
            want = x.astype("float32")
            axes = range(x.ndim) if x.any() else ()
            for axis in axes:
                rows = [bool(row.any()) for row in np.moveaxis(x, axis, 0)]
                start = rows.index(True) if "f" in trim.lower() else 0
                stop = len(rows) - rows[::-1].index(True) if "b" in trim.lower() else len(rows)
                want = want.take(range(start, stop), axis)
                one = jnp.trim_zeros(x, trim, axis)
                assert one.shape == (*x.shape[:axis], stop - start, *x.shape[axis + 1 :])
            want = want if axes else np.zeros((0,) * x.ndim, "float32")
            same(jnp.trim_zeros(x.astype("float32"), trim), want)
    assert jnp.trim_zeros(np.zeros((2, 3)), axis=(0,)).shape == (0, 3)
    assert jnp.trim_zeros(np.zeros((2, 3)), axis=()).shape == (2, 3)
    assert jnp.trim_zeros(np.zeros((2, 3)), "").shape == (2, 3)
    assert jnp.trim_zeros(0.0).shape == ()
    assert (
        fxad.grad(lambda x: jnp.trim_zeros(x**2).sum())(plane[:3]).tolist()
        == (2 * plane[:3]).tolist()
    )
    with pytest.raises(ConcretizationError, match="trim_zeros: the shape of the result"):
        fxad.jit(jnp.trim_zeros)(plane)
    with pytest.raises(BadArgument, match="trim is 'f', 'b' or 'fb', not 'x'"):
        jnp.trim_zeros(plane, "x")


def test_shapes_of_elements_of_any_kind():
    words = np.array([["a", "b", "c"]])
    for x in (words, words.astype(object), np.zeros((1, 3), "M8[s]"), np.zeros((1, 3), "i,i")):
        assert (jnp.shape(x), jnp.ndim(x), jnp.size(x), jnp.size(x, -1)) == ((1, 3), 2, 3, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is converted, so nothing narrows
        x = SimpleNamespace(shape=(3, 3), dtype=np.dtype(float))  # as sparse matrices of SciPy's
        assert (jnp.shape(x), jnp.ndim(x), jnp.size(x), jnp.size(x, 0)) == ((3, 3), 2, 9, 3)
        assert jnp.shape(np.float64(1)) == jnp.shape(1.0) == ()
    for x in (None, {}, "text", object(), jnp.int32, np.float32):
        with pytest.raises(TypeMismatch):
            jnp.shape(x)


class Lengths:
    """A shape of another library: a sequence by its methods, but no `Sequence`."""

    def __init__(self, *sizes):
        self.sizes = list(sizes)

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, i):
        return self.sizes[i]

    def __iter__(self):
        return iter(self.sizes)


def test_a_shape_is_any_sequence():
    x, key = draw(6), fxad.random.key(0)
    shape = Lengths(2, 3)
    made = [jnp.zeros(shape), jnp.ones(shape), jnp.full(shape, 2), jnp.empty(shape)]
    made += [jnp.zeros_like(x, shape=shape), jnp.broadcast_to(x[:3], shape), jnp.resize(x, shape)]
    made += [jnp.asarray(x).reshape(shape), jnp.reshape(x, shape), fxad.lax.reshape(x, shape)]
    made += [fxad.random.normal(key, shape), fxad.random.uniform(key, shape)]
    made += [fxad.random.randint(key, shape, 0, 5), fxad.lax.full(shape, 1.0)]
    made += [fxad.lax.broadcast_in_dim(x[:3], shape, Lengths(1))]
    assert {one.shape for one in made} == {(2, 3)}
    assert fxad.lax.broadcast(x, shape).shape == (2, 3, 6)
    same(jnp.tile(x, shape), np.tile(x, (2, 3)))
    assert jnp.broadcast_shapes(shape, Lengths(3)) == (2, 3)
    shape.sizes[0] = 4  # what an earlier call has seen is not kept
    assert jnp.zeros(shape).shape == jnp.broadcast_to(x[:3], shape).shape == (4, 3)
    for wrong in ("23", b"23", {2: 3}, Lengths(2, 3.5), Lengths("a")):
        with pytest.raises(TypeMismatch, match="zeros: a shape must be ints"):
            jnp.zeros(wrong)


@pytest.mark.parametrize("kind", [Lengths, lambda *axes: np.array(axes)])
def test_axes_are_any_sequence(kind):
    x = draw(2, 3)
    for _ in range(2):  # a call like an earlier one runs what that has recorded
        for axes in ((0, 1), (1,), (0,)):
            same(jnp.sum(x, axis=kind(*axes)), x.sum(axes), rtol=1e-6)
            same(jnp.asarray(x).max(kind(*axes)), x.max(axes))
            same(jnp.flip(x, kind(*axes)), np.flip(x, axes))
            same(jnp.expand_dims(x, kind(*axes)), np.expand_dims(x, axes))
            same(jnp.roll(x, 1, kind(*axes)), np.roll(x, 1, axes))
            same(jnp.fft.fftshift(x, kind(*axes)), np.fft.fftshift(x, axes))
    same(jnp.sum(x, axis=range(2)), x.sum(), rtol=1e-6)
    same(jnp.expand_dims(x, range(2)), x[None, None])
    same(jnp.moveaxis(x, kind(0, 1), kind(1, 0)), x.T)
    same(jnp.squeeze(x[None, :, None], kind(0, 2)), x)
    same(jnp.average(x, kind(1), x[0]), np.average(x, 1, x[0]), rtol=1e-6)
    same(jnp.gradient(x, axis=kind(0, 1)), np.gradient(x, axis=(0, 1)), rtol=1e-5)
    with pytest.raises(AxisError, match="sum: axis 2 is out of range"):
        jnp.sum(x, axis=kind(0, 2))
    with pytest.raises(AxisError, match=r"sum: axes \(1, 1\) name one axis twice"):
        jnp.sum(x, axis=kind(1, 1))


def test_creation():
    for args in [(5,), (2, 7), (0, 1, 0.25), (5, 0, -2)]:
        same(jnp.arange(*args), np.arange(*args))
    same(jnp.linspace(0, 1, 7), np.linspace(0, 1, 7))
    same(jnp.linspace(0, 1, 4, endpoint=False), np.linspace(0, 1, 4, endpoint=False))
    same(jnp.logspace(0, 2, 3), np.logspace(0, 2, 3), rtol=1e-5)
    same(jnp.full((2, 2), 3), np.full((2, 2), 3))
    same(jnp.ones_like(draw(2)), np.ones(2, np.float32))
    same(jnp.array([[1, 2.5], [3, 4]]), np.array([[1, 2.5], [3, 4]]))
    assert jnp.array([1, jnp.float32(2)]).dtype == np.float32
    same(jnp.indices((2, 3)), np.indices((2, 3)))
    same(jnp.tril_indices(3), np.tril_indices(3))
    assert jnp.zeros(3, bool).dtype == bool
    assert jnp.float32(2).dtype == np.float32


def test_grids():
    same(jnp.mgrid[0:3, 1:4], np.mgrid[0:3, 1:4])
    same(jnp.ogrid[0:3, 0:1:4j], list(np.ogrid[0:3, 0:1:4j]))
    same(jnp.mgrid[0:1:3j], np.mgrid[0:1:3j])
    same(jnp.r_[1.0, 2:5, [7, 8]], np.r_[1.0, 2:5, [7, 8]])
    same(jnp.c_[[1, 2], [3, 4]], np.c_[[1, 2], [3, 4]])
    square = np.arange(4).reshape(2, 2)
    for how in ("-1", "0,2", "1,2,0", "0,2,0", "0,3,1", "0,3,-2", "2,3"):
        same(jnp.r_[how, [1, 2], square[0]], np.r_[how, [1, 2], square[0]], how)
        same(jnp.c_[how, [1, 2], square[0]], np.c_[how, [1, 2], square[0]], how)
        if how[2:] in ("", "2", "2,0"):
            same(jnp.r_[how, square, 5 * square], np.r_[how, square, 5 * square], how)
    same(jnp.r_["r", 1:3, 7], np.array([[1, 2, 7]]))
    same(jnp.r_["c", 1:3, 7], np.array([[1], [2], [7]]))
    x = draw(4, 5)
    same(jnp.asarray(x)[jnp.ix_([0, 2], [1, 3, 4])], x[np.ix_([0, 2], [1, 3, 4])])
    for nothing in ([], jnp.zeros(0)):
        same(jnp.asarray(x)[jnp.ix_(nothing, [1, 3])], x[np.ix_([], [1, 3])])
    same(jnp.block([[x, x], [x, x]]), np.block([[x, x], [x, x]]))
    same(jnp.block([x[0], 1.0]), np.block([x[0], 1.0]).astype("float32"))
    same(jnp.diagflat(x[:2, :2]), np.diagflat(x[:2, :2]))
    same(jnp.geomspace(1, 1000, 4), np.geomspace(1, 1000, 4), rtol=1e-5)
    for ends in ((-1, -1000), (2j, 16j), (1, 8j), (np.float32([-1, 2]), np.float32([-8, 6]))):
        same(jnp.geomspace(*ends, 4), np.geomspace(*ends, 4), rtol=1e-5)
    same(
        jnp.fromfunction(lambda i, j: i + 2 * j, (2, 3)),
        np.fromfunction(lambda i, j: i + 2 * j, (2, 3)),
    )
    same(jnp.fromfunction(lambda i: 2 * i, 3), 2 * np.arange(3.0))
    same(jnp.fromfunction(lambda i, j: jnp.stack([i, j]), [2, 3])[1, 2], np.array([1.0, 2.0]))
    filled = x[:, :4].copy()
    np.fill_diagonal(filled, 9)
    same(jnp.fill_diagonal(x[:, :4], 9, inplace=False), filled)
    for values in (np.array([8, 7]), np.arange(6).reshape(2, 3)):  # repeated, cut off
        np.fill_diagonal(filled, values)
        same(jnp.fill_diagonal(x[:, :4], values, inplace=False), filled)
    assert jnp.resize(jnp.zeros(0, int), 2).tolist() == [0, 0]
    assert jnp.size(x, (0, -1)) == 20 and jnp.size(x, ()) == 1
    for change in (
        lambda: jnp.fill_diagonal(x, 9),
        lambda: jnp.put(x, np.int32([1]), 9),
        lambda: jnp.put_along_axis(x, np.int32([[1]]), 9, 0),
    ):
        with pytest.raises(NotImplementedError, match="immutable; pass inplace=False"):
            change()
    same(jnp.frombuffer(b"\1\2\3", np.uint8), np.array([1, 2, 3], np.uint8))


@pytest.mark.parametrize("counts", [[2, 0], [0, 0], [1, 3], [3, 3], [0, 2]])
@pytest.mark.parametrize("total", [0, 2, 4])
def test_repeat_by_traced_counts(counts, total):
    """Cut off, or filled up with the last element, as JAX does."""
    x, counts = np.array([[5, 6], [7, 8]], np.int32), np.array(counts, np.int32)
    whole = np.concatenate([np.repeat(x, counts, 1), np.repeat(x[:, -1:], total, 1)], 1)

    def repeated(x, counts):
        return jnp.repeat(x, counts, axis=1, total_repeat_length=total)

    for function in (repeated, fxad.jit(repeated)):
        np.testing.assert_array_equal(function(x, counts), whole[:, :total])


def test_repeat_cuts_and_fills_up_for_one_count_too():
    for total, want in ((4, [0, 0, 1, 1]), (8, [0, 0, 1, 1, 2, 2, 2, 2])):
        assert jnp.repeat(np.arange(3), 2, total_repeat_length=total).tolist() == want


@pytest.mark.parametrize("total", [None, 4])
def test_repeat_refuses_other_counts(total):
    x = np.arange(3, dtype=np.int32)
    with pytest.raises(TypeMismatch, match=r"counts are integers, got f32\[3\]"):
        jnp.repeat(x, np.ones(3, np.float32), total_repeat_length=total)
    with pytest.raises(ShapeError, match=r"each of 3 elements along axis 0 .* got i32\[2\]"):
        jnp.repeat(x, np.array([1, 0], np.int32), total_repeat_length=total)


def test_repeat_without_a_total_needs_its_counts():
    with pytest.raises(ConcretizationError, match="give total_repeat_length"):
        fxad.jit(jnp.repeat)(np.arange(2), np.array([1, 2]))
