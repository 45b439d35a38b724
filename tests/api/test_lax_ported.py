"""lax functions of ported code: reductions by any function, windows, gathers, segments."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


# ---------------------------------------------------------------- reduce and reduce_window


@pytest.mark.parametrize(
    ("function", "init", "reference"),
    [
        (lax.add, 0.0, np.sum),
        (lambda a, b: b * a, 1.0, np.prod),
        (jnp.maximum, -np.inf, np.max),
        (lax.min, np.inf, np.min),
        (lambda a, b: jnp.sqrt(a * a + b * b), 0.0, lambda x, axis: np.sqrt((x**2).sum(axis))),
    ],
)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), ()])
def test_reduce_by_any_function(function, init, reference, axes):
    x = np.abs(X)
    got = lax.reduce(x, init, function, axes)
    expected = reference(x, axis=axes) if axes else x
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    native = fxad.jit(lambda x: lax.reduce(x, init, function, axes))(x)
    np.testing.assert_allclose(native, expected, rtol=1e-5)


def test_reduce_of_several_operands():
    """The largest element and its place, as one function of pairs."""

    def better(a, b):
        first = a[0] >= b[0]
        return jnp.where(first, a[0], b[0]), jnp.where(first, a[1], b[1])

    places = np.broadcast_to(np.arange(6, dtype=np.int32), X.shape)
    value, place = lax.reduce((X, places), (-np.inf, 0), better, (1,))
    np.testing.assert_array_equal(value, X.max(1))
    np.testing.assert_array_equal(place, X.argmax(1))


def test_reduce_edges_and_errors():
    empty = np.zeros((0, 3), np.float32)
    assert lax.reduce(empty, 7.0, lax.add, (0,)).tolist() == [7.0] * 3
    assert int(lax.reduce_xor(np.array([1, 2, 7], np.int32), (0,))) == 4
    with pytest.raises(TypeMismatch, match="must give"):
        lax.reduce(X, 0.0, lambda a, b: a > b, (0,))
    with pytest.raises(ShapeError, match="one shape"):
        lax.reduce((X, X[0]), (0.0, 0.0), lambda a, b: a, (0,))
    fxad.check_grads(lambda x: lax.reduce(x, 1.0, lambda a, b: a * b, (1,)), (X,), order=1)


def windows(x, size, step):
    views = np.lib.stride_tricks.sliding_window_view(x, size)
    return views[tuple(slice(None, None, s) for s in step)]


@pytest.mark.parametrize(("size", "step"), [((2, 3), (1, 1)), ((2, 2), (2, 3)), ((4, 1), (1, 2))])
def test_windows(size, step):
    views = windows(X, size, step)
    for init, function, reference in (
        (0.0, lax.add, np.sum),
        (-np.inf, lax.max, np.max),
        (1.0, lambda a, b: a * b, np.prod),
    ):
        got = lax.reduce_window(X, init, function, size, step)
        np.testing.assert_allclose(got, reference(views, axis=(2, 3)), rtol=1e-4, atol=1e-6)


def test_windows_larger_than_the_array():
    assert lax.reduce_window(jnp.ones((8, 3)), 0.0, lax.add, (2**40, 2), (1, 1)).shape == (0, 2)


def test_windows_padded_and_dilated():
    x = np.arange(1.0, 6.0, dtype=np.float32)
    same = lax.reduce_window(x, 0.0, lax.add, (2,), (2,), "SAME")
    assert same.tolist() == [3.0, 7.0, 5.0]
    lower = lax.reduce_window(x, 0.0, lax.add, (2,), (2,), "SAME_LOWER")
    assert lower.tolist() == [1.0, 5.0, 9.0]
    apart = lax.reduce_window(x, 0.0, lax.add, (2,), window_dilation=(3,))
    assert apart.tolist() == [5.0, 7.0]
    spread = lax.reduce_window(x, 0.0, lax.add, (2,), padding=((1, 0),), base_dilation=(2,))
    assert spread.tolist() == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0]
    pool = fxad.grad(lambda x: lax.reduce_window(x, -np.inf, lax.max, (2,), (2,)).sum())
    assert pool(x).tolist() == [0.0, 1.0, 0.0, 1.0, 0.0]
    with pytest.raises(BadArgument, match="VALID, SAME"):
        lax.reduce_window(x, 0.0, lax.add, (2,), padding="FULL")
    with pytest.raises(ShapeError, match="window_dimensions"):
        lax.reduce_window(x, 0.0, lax.add, (2, 2))


# ---------------------------------------------------------------- gather and scatter

ROWS = lax.GatherDimensionNumbers((1,), (0,), (0,))


def test_gather_windows():
    starts = np.array([[0], [3], [9]], np.int32)
    got = lax.gather(X, starts, ROWS, (1, 4), mode="clip")
    np.testing.assert_array_equal(got, X[[0, 3, 3], :4])
    filled = fxad.jit(lambda x, i: lax.gather(x, i, ROWS, (1, 4), mode="fill", fill_value=-1))(
        X, starts
    )
    np.testing.assert_array_equal(filled, np.vstack([X[[0, 3], :4], -np.ones((1, 4))]))
    pieces = lax.GatherDimensionNumbers((1,), (), (0,))
    line = np.arange(10.0, dtype=np.float32)
    got = lax.gather(line, np.array([[2], [9]], np.int32), pieces, (3,), mode="clip")
    assert got.tolist() == [[2.0, 3.0, 4.0], [7.0, 8.0, 9.0]]
    lanes = lax.GatherDimensionNumbers((), (1,), (1,), (0,), (0,))
    places = np.array([[[1], [0]], [[5], [2]], [[0], [0]], [[3], [4]]], np.int32)
    got = lax.gather(X, places, lanes, (1, 1))
    np.testing.assert_array_equal(got, np.take_along_axis(X, places[..., 0], 1))
    with pytest.raises(ShapeError, match="do not fit"):
        lax.gather(X, starts, ROWS, (2, 4))
    with pytest.raises(BadArgument, match="unknown mode"):
        lax.gather(X, starts, ROWS, (1, 4), mode="wrap")


@pytest.mark.parametrize(
    ("name", "ufunc"),
    [
        ("scatter_add", np.add),
        ("scatter_sub", np.subtract),
        ("scatter_mul", np.multiply),
        ("scatter_min", np.minimum),
        ("scatter_max", np.maximum),
    ],
)
def test_scatter_windows(name, ufunc):
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    places = np.array([[1], [3], [1], [9]], np.int32)
    new = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    expected = X.copy()
    ufunc.at(expected, (places[:3], np.arange(3)), new[:3])
    got = getattr(lax, name)(X, places, new, numbers)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    fxad.check_grads(lambda x: lax.scatter_add(x, places, new, numbers), (X,), order=1)


def test_scatter_replaces_and_clips():
    numbers = lax.ScatterDimensionNumbers((1,), (), (0,))
    line = np.zeros(5, np.float32)
    new = np.array([[1.0, 2.0]], np.float32)
    places = np.array([[4]], np.int32)
    assert lax.scatter(line, places, new, numbers).tolist() == [0.0] * 5
    assert lax.scatter(line, places, new, numbers, mode="clip").tolist() == [0, 0, 0, 1, 2]
    with pytest.raises(TypeMismatch, match="updates"):
        lax.scatter(line, places, new.astype(np.int32), numbers)


# ---------------------------------------------------------------- segments


def test_segments():
    owners = np.array([0, 2, -1, 2, 7, 0], np.int32)
    rows = X.T
    total = np.zeros((3, 4), np.float32)
    np.add.at(total, owners[[0, 1, 3, 5]], rows[[0, 1, 3, 5]])
    np.testing.assert_allclose(lax.segment_sum(rows, owners, 3), total, rtol=1e-6)
    ids = np.array([0, 2, 2, 0, 0, 2], np.int32)
    assert lax.segment_sum(rows, ids).shape == (3, 4)
    np.testing.assert_allclose(lax.segment_prod(rows, ids)[2], rows[ids == 2].prod(0), rtol=1e-5)
    np.testing.assert_array_equal(lax.segment_max(rows, ids)[0], rows[ids == 0].max(0))
    low = lax.segment_min(np.arange(6, dtype=np.int32), ids, 4)
    assert low.tolist() == [0, 2**31 - 1, 1, 2**31 - 1]
    grads = fxad.jit(fxad.grad(lambda x: (lax.segment_sum(x, ids, 3) ** 2).sum()))(rows)
    np.testing.assert_allclose(grads, 2 * np.asarray(lax.segment_sum(rows, ids, 3))[ids], rtol=1e-5)
    with pytest.raises(BadArgument, match="negative"):
        lax.segment_sum(rows, ids, -1)
    with pytest.raises(TypeMismatch, match="integers"):
        lax.segment_sum(rows, ids.astype(np.float32), 3)
    with pytest.raises(TypeError, match="num_segments"):
        fxad.jit(lax.segment_sum)(rows, ids)


# ---------------------------------------------------------------- small ones


def test_map_in_batches():
    def f(x):
        return {"y": x["a"] * 2, "z": x["a"].sum()}

    for size in (1, 2, 3, 4, 9):
        out = lax.map(f, {"a": X}, batch_size=size)
        np.testing.assert_array_equal(out["y"], X * 2)
        np.testing.assert_allclose(out["z"], X.sum(1), rtol=1e-5)
    with pytest.raises(BadArgument, match="batch_size"):
        lax.map(f, {"a": X}, batch_size=0)


def test_shapes():
    np.testing.assert_array_equal(lax.tile(X, (2, 3)), np.tile(X, (2, 3)))
    np.testing.assert_array_equal(lax.stack([X, X + 1], 1), np.stack([X, X + 1], 1))
    rows = lax.unstack(X, 1)
    assert len(rows) == 6
    np.testing.assert_array_equal(rows[5], X[:, 5])
    a, b = lax.split(X, (2, 4), 1)
    np.testing.assert_array_equal(a, X[:, :2])
    np.testing.assert_array_equal(b, X[:, 2:])
    with pytest.raises(ShapeError, match="add up"):
        lax.split(X, (2, 3), 1)
    turned = lax.broadcast_in_dim(X, (6, 2, 4), (2, 0))
    np.testing.assert_array_equal(turned, np.broadcast_to(X.T[:, None, :], (6, 2, 4)))
    assert lax.broadcast_like(np.ones(6, np.float32), X).shape == (4, 6)
    assert lax.broadcast_to_rank(X, 4).shape == (1, 1, 4, 6)
    with pytest.raises(ShapeError, match="more than"):
        lax.broadcast_to_rank(X, 1)


def test_rounding():
    halves = np.array([-2.5, -0.5, 0.5, 1.5, 0.4, 2.6], np.float32)
    assert lax.round(halves).tolist() == [-3.0, -1.0, 1.0, 2.0, 0.0, 3.0]
    assert (
        lax.round(halves, lax.RoundingMethod.TO_NEAREST_EVEN).tolist() == np.rint(halves).tolist()
    )
    narrow = lax.reduce_precision(X, 5, 10)
    np.testing.assert_array_equal(narrow, X.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(lax.reduce_precision(X, 8, 23), X)
    with pytest.raises(BadArgument, match="no format"):
        lax.reduce_precision(X, 0, 9)


def test_approximate_searches_are_exact():
    values, places = lax.approx_min_k(X, 2)
    np.testing.assert_array_equal(values, np.sort(X, 1)[:, :2])
    np.testing.assert_array_equal(places, np.argsort(X, 1)[:, :2])
    np.testing.assert_array_equal(lax.approx_max_k(X, 1)[0][:, 0], X.max(1))


@pytest.mark.parametrize("left_side", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transpose_a", [True, False])
def test_triangular_solve(left_side, lower, transpose_a):
    a = np.random.default_rng(1).standard_normal((3, 3)) + 4 * np.eye(3)
    b = np.random.default_rng(2).standard_normal((3, 3))
    with fxad.enable_x64():
        x = lax.linalg.triangular_solve(
            a, b, left_side=left_side, lower=lower, transpose_a=transpose_a
        )
    x = np.asarray(x)
    part = np.tril(a) if lower else np.triu(a)
    part = part.T if transpose_a else part
    np.testing.assert_allclose(part @ x if left_side else x @ part, b, atol=1e-12)


def test_factorisations_under_lax_names():
    s = (X @ X.T + 4 * np.eye(4)).astype(np.float32)
    v, w = lax.linalg.eigh(s)
    np.testing.assert_allclose((v * w) @ v.T, s, rtol=1e-4, atol=1e-4)
    low = lax.linalg.cholesky(s)
    np.testing.assert_allclose(low @ low.T, s, rtol=1e-4, atol=1e-4)
    q, r = lax.linalg.qr(X, full_matrices=False)
    np.testing.assert_allclose(q @ r, X, atol=1e-5)
    u, d, vh = lax.linalg.svd(X, full_matrices=False)
    np.testing.assert_allclose((u * d) @ vh, X, atol=1e-5)
