"""Products of groups of rows against a loop of NumPy's products."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.lax import ragged

SIZES = [[3, 0, 4], [0, 0, 0], [7, 0, 2], [2, 3, 1]]


def by_loop(x: np.ndarray, w: np.ndarray, sizes: list[int]) -> np.ndarray:
    out, start = np.zeros((len(x), w.shape[2]), x.dtype), 0
    for matrix, size in zip(w, sizes, strict=True):
        out[start : start + size] = x[start : start + size] @ matrix
        start += size
    return out


def operands(dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    r = np.random.default_rng(0)
    return r.normal(size=(9, 5)).astype(dtype), r.normal(size=(3, 5, 4)).astype(dtype)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values(sizes):
    x, w = operands()
    for run in (lax.ragged_dot, fxad.jit(lax.ragged_dot)):
        found = run(x, w, np.array(sizes, np.int32))
        np.testing.assert_allclose(found, by_loop(x, w, sizes), rtol=1e-5, atol=1e-6)


def test_groups_do_not_see_each_other():
    x, w = operands()
    w[1] = np.inf
    found = np.asarray(fxad.jit(lax.ragged_dot)(x, w, np.array([3, 2, 4], np.int32)))
    assert np.isfinite(found[[0, 1, 2, 5, 6, 7, 8]]).all()


@pytest.mark.parametrize("few", [0, ragged.FEW], ids=["blocks", "few"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_gradients(sizes, few, monkeypatch):
    monkeypatch.setattr(ragged, "FEW", few)
    with fxad.enable_x64(True):
        x, w = operands("float64")
        ct, counts = np.random.default_rng(1).normal(size=(9, 4)), np.array(sizes)

        def loss(x, w):
            return jnp.sum(lax.ragged_dot(x, w, counts) * ct)

        dx, dw = fxad.jit(fxad.grad(loss, (0, 1)))(x, w)
    turned = by_loop(ct, w.swapaxes(1, 2), sizes)
    np.testing.assert_allclose(dx, turned, rtol=1e-12, atol=1e-12)
    ends = np.cumsum(sizes)
    for matrix, end, size in zip(np.asarray(dw), ends, sizes, strict=True):
        rows = slice(end - size, end)
        np.testing.assert_allclose(matrix, x[rows].T @ ct[rows], rtol=1e-12, atol=1e-12)


def test_vmap_over_sizes():
    x, w = operands()
    counts = np.array(SIZES, np.int32)
    found = fxad.vmap(lambda s: lax.ragged_dot(x, w, s))(counts)
    wanted = [by_loop(x, w, s) for s in SIZES]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_wider_results():
    x, w = (v.astype(np.float16) for v in operands())
    found = lax.ragged_dot(x, w, np.array([4, 4, 1], np.int32), preferred_element_type=jnp.float32)
    assert found.dtype == np.float32
    wide = by_loop(x.astype(np.float32), w.astype(np.float32), [4, 4, 1])
    np.testing.assert_allclose(found, wide, rtol=1e-5, atol=1e-6)


def test_bad_operands():
    x, w = operands()
    with pytest.raises(ShapeError, match=r"takes \[m, k\]"):
        lax.ragged_dot(x, w, np.array([1, 2]))
    with pytest.raises(TypeMismatch, match="integers"):
        lax.ragged_dot(x, w, np.ones(3, np.float32))
    with pytest.raises(BadArgument, match="group_offset"):
        lax.ragged_dot(x, w, np.array([1, 2, 3]), group_offset=1)


def test_an_infinite_matrix_reaches_its_own_group_alone():
    x, w = operands()
    w[1] = np.inf
    counts = np.array([3, 2, 4], np.int32)
    dx, dw = fxad.jit(fxad.grad(lambda x, w: jnp.sum(lax.ragged_dot(x, w, counts)), (0, 1)))(x, w)
    assert np.isfinite(np.asarray(dx)[[0, 1, 2, 5, 6, 7, 8]]).all()
    assert np.isfinite(np.asarray(dw)).all()


@pytest.mark.parametrize("sizes", [[300, 0, 1, 130], [0, 0, 431, 0], [128, 128, 128, 47]], ids=str)
def test_groups_of_many_blocks(sizes):
    r = np.random.default_rng(2)
    x, w = r.normal(size=(431, 6)), r.normal(size=(4, 6, 5))
    with fxad.enable_x64(True):
        f = fxad.jit(lambda x, w: lax.ragged_dot(x, w, np.array(sizes)))
        np.testing.assert_allclose(f(x, w), by_loop(x, w, sizes), rtol=1e-12, atol=1e-12)
        fxad.check_grads(f, (x, w), order=2)


def test_vmap_of_gradients():
    x, w = operands()
    xs, ws, counts = np.stack([x, -x]), np.stack([w, w + 1]), np.array(SIZES[2:], np.int32)

    def slopes(x, w, counts):
        return fxad.grad(lambda x, w: jnp.sum(lax.ragged_dot(x, w, counts) ** 2), (0, 1))(x, w)

    found = fxad.jit(fxad.vmap(slopes))(xs, ws, counts)
    for lane in range(2):
        wanted = slopes(xs[lane], ws[lane], counts[lane])
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one[lane], other, rtol=1e-5, atol=1e-5)


def test_integers():
    x, w = (np.rint(3 * v).astype(np.int32) for v in operands())
    found = lax.ragged_dot(x, w, np.array(SIZES[3]))
    np.testing.assert_array_equal(found, by_loop(x, w, SIZES[3]))


@pytest.mark.parametrize(("narrow", "wide"), [("bfloat16", "float32"), ("float32", "float64")])
def test_gradients_where_the_result_is_wider_than_the_operands(narrow, wide):
    with fxad.enable_x64(True):
        x, w = (jnp.asarray(v).astype(narrow) for v in operands())
        sizes = np.array([3, 0, 4], np.int32)

        def loss(x, w):
            return jnp.sum(lax.ragged_dot(x, w, sizes, preferred_element_type=wide))

        dx, dw = fxad.jit(fxad.grad(loss, (0, 1)))(x, w)
        assert str(dx.dtype) == str(dw.dtype) == narrow
        x64, w64 = (v.astype("float64") for v in (x, w))
        ex, ew = fxad.grad(lambda x, w: jnp.sum(lax.ragged_dot(x, w, sizes)), (0, 1))(x64, w64)
        tolerance = {"rtol": 2.0**-8, "atol": 0} if narrow == "bfloat16" else {"rtol": 1e-6}
        np.testing.assert_allclose(dx.astype("float64"), ex, **tolerance)
        np.testing.assert_allclose(dw.astype("float64"), ew, **tolerance)


def test_sizes_whose_sum_is_no_int32():
    x, w = operands()
    found = lax.ragged_dot(x, w, np.array([2**31 - 1, 5, 2], np.int32))
    np.testing.assert_allclose(found, x @ w[0], rtol=1e-5, atol=1e-6)
