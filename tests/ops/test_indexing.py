"""Index semantics of gather, scatter, dynamic windows, pad and dot, beside JAX."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ops.arrays.indexing import dynamic_slice, dynamic_update, gather, scatter
from fxad.ops.arrays.movement import broadcast, iota, pad, reshape
from fxad.ops.matrices.product import dot

BF16 = np.dtype(ml_dtypes.bfloat16)
RANDOM = np.random.default_rng(0)


def draw(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RANDOM.integers(-9, 10, shape).astype(dtype)


def same(got: Any, wanted: Any) -> None:
    wanted = np.asarray(wanted)
    assert got.dtype == wanted.dtype
    got = got.data
    if wanted.dtype == BF16:  # NumPy finds NaNs in its own dtypes only
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.peers
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.bool_, BF16, np.complex64])
def test_gather_matches_jax(dtype: Any) -> None:
    jnp = pytest.importorskip("jax.numpy")
    x = draw(4, 5, 3, dtype=dtype)
    i = np.array([[0, 3, 9], [4, 2, 7]], np.int32)
    for mode, theirs in (("clamp", "clip"), ("fill", "fill")):
        got = gather(x, i, axes=(1,), mode=mode)
        wanted = jnp.take(jnp.asarray(x), i, axis=1, mode=theirs)
        same(got, jnp.moveaxis(wanted, 0, 2))
        both = gather(x, i % 4, i, axes=(0, 1), mode=mode)
        same(both, jnp.asarray(x).at[i % 4, i].get(mode=theirs))
        lanes = np.stack([i[0]] * 4)
        got = gather(x, lanes, axes=(1,), batch=1, mode=mode)
        rows = np.broadcast_to(np.arange(4)[:, None], lanes.shape)
        same(got, jnp.asarray(x).at[rows, lanes].get(mode=theirs))


@pytest.mark.peers
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, BF16])
@pytest.mark.parametrize("monoid", ["set", "add", "mul", "min", "max"])
def test_scatter_matches_jax(dtype: Any, monoid: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    x = draw(5, 3, dtype=dtype)
    i = np.array([0, 3, 9, 4], np.int32) if monoid == "set" else np.array([0, 3, 9, 3], np.int32)
    updates = draw(4, 3, dtype=dtype)
    name = {"mul": "multiply"}.get(monoid, monoid)
    for mode, theirs in (("drop", "drop"), ("clamp", "clip")):
        if monoid == "set" and mode == "clamp":
            continue  # JAX leaves the order of duplicates open
        got = scatter(x, updates, i, axes=(0,), monoid=monoid, mode=mode)
        wanted = getattr(jnp.asarray(x).at[i], name)(jnp.asarray(updates), mode=theirs)
        same(got, wanted)


def test_the_last_of_several_writes_stays() -> None:
    i = np.zeros(1000, np.int32)
    got = scatter(np.zeros(2, np.float32), np.arange(1000, dtype=np.float32), i, axes=(0,))
    assert got.data.tolist() == [999.0, 0.0]


def test_half_scatters_round_at_every_step() -> None:
    i = np.zeros(300, np.int32)
    got = scatter(np.zeros(1, BF16), np.ones(300, BF16), i, axes=(0,), monoid="add")
    assert float(got.data[0]) == 256.0  # 256 + 1 rounds to 256 in bf16


def test_indices_beyond_int64_are_safe() -> None:
    x = np.arange(4, dtype=np.float32)
    huge = np.array([2**64 - 1, 2**63], np.uint64)
    assert gather(x, huge, axes=(0,)).data.tolist() == [0.0, 0.0]
    assert gather(x, huge, axes=(0,), mode="fill", fill=7).data.tolist() == [7.0, 7.0]


@pytest.mark.peers
def test_windows_match_jax() -> None:
    lax = pytest.importorskip("jax.lax")
    x, update = draw(4, 6), draw(2, 3)
    for starts in ((0, 0), (1, 3), (3, 5), (9, 2)):
        i, j = map(np.int32, starts)
        same(dynamic_slice(x, i, j, sizes=(2, 3)), lax.dynamic_slice(x, (i, j), (2, 3)))
        same(dynamic_update(x, update, i, j), lax.dynamic_update_slice(x, update, (i, j)))


@pytest.mark.peers
def test_pad_matches_jax() -> None:
    lax = pytest.importorskip("jax.lax")
    x, value = draw(5, 4), np.float32(7)
    for config in ([(1, 2, 0), (0, 1, 2)], [(-1, 2, 1), (2, -3, 0)], [(-7, 0, 1), (-1, -1, 0)]):
        low, high, interior = (tuple(c[k] for c in config) for k in range(3))
        got = pad(x, value, low=low, high=high, interior=interior)
        same(got, lax.pad(x, value, config))


@pytest.mark.peers
def test_dot_matches_jax() -> None:
    lax = pytest.importorskip("jax.lax")
    a, b = draw(2, 3, 4, 5), draw(5, 2, 6, 3)
    contract, batch = ((1, 3), (3, 0)), ((0,), (1,))
    for dtype in (np.dtype("float32"), np.dtype("int32"), np.dtype("int8"), BF16):
        left, right = a.astype(dtype), b.astype(dtype)
        got = dot(left, right, contract=contract, batch=batch, dtype=dtype)
        same(got, lax.dot_general(left, right, (contract, batch), preferred_element_type=dtype))
    wide = dot(a.astype(BF16), b.astype(BF16), contract=contract, batch=batch, dtype=a.dtype)
    same(wide, dot(a, b, contract=contract, batch=batch, dtype=a.dtype).data)  # small integers


def test_half_products_accumulate_in_f32() -> None:
    ones = np.ones((1, 4096), BF16)
    got = dot(ones, ones, contract=((1,), (1,)), batch=((), ()), dtype=BF16)
    assert float(got.data[0, 0]) == 4096.0


def test_integer_products_wrap() -> None:
    x = np.full((1, 2), 100, np.int8)
    got = dot(x, x, contract=((1,), (1,)), batch=((), ()), dtype=x.dtype)
    assert got.data.tolist() == [[20000 - 78 * 256]]


def test_sizes_beyond_memory_are_errors_before_allocation() -> None:
    vector = np.zeros(2**20, np.float32)
    outer = {"contract": ((), ()), "batch": ((), ()), "dtype": vector.dtype}
    index = np.zeros(2**20, np.int32)
    with pytest.raises(ShapeError, match="bytes"):
        broadcast(vector, shape=(2**45, 2**20), axes=(1,))
    with pytest.raises(ShapeError, match="bytes"):
        iota(dtype=np.dtype("int32"), shape=(2**32, 2**32), axis=0)
    with pytest.raises(ShapeError, match="bytes"):
        pad(vector, np.float32(0), low=(2**62,), high=(0,), interior=(0,))
    with pytest.raises(ShapeError, match="bytes"):
        dot.type(*[_type(np.float32, 2**40)] * 2, **outer)
    with pytest.raises(ShapeError, match="bytes"):
        gather.type(_type(np.float32, 4, 2**45), _type(index.dtype, 2**20), axes=(0,))
    with pytest.raises(ShapeError, match="negative"):
        reshape(vector, shape=(-1, -(2**20)))


def test_specs_that_do_not_fit_are_errors() -> None:
    x, i = np.zeros((3, 4), np.float32), np.zeros(3, np.int32)
    with pytest.raises(ShapeError, match="batch axes"):
        gather(x, i, axes=(0,), batch=1)
    with pytest.raises(ShapeError, match="share 1 leading axes"):
        gather(x, i[:2], axes=(1,), batch=1)
    with pytest.raises(TypeMismatch, match="mode"):
        gather(x, i, axes=(0,), mode="wrap")
    with pytest.raises(TypeMismatch, match="bool"):
        scatter(x > 0, x > 0, i, axes=(0,), monoid="add")
    with pytest.raises(TypeMismatch, match="dtype"):
        scatter(x, x.astype(np.int32), i, axes=(0,))


def _type(dtype: Any, *shape: int) -> Any:
    return ArrayType(np.dtype(dtype), shape)
