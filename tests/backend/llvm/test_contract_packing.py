"""Products whose A is packed: rows side by side, rows pages apart, types too narrow to turn."""

from __future__ import annotations

import numpy as np
import pytest
from contracts import F32, Sketch, assert_product, random, targets

import fxad
import fxad.numpy
from fxad.backend.llvm.contract import pack
from fxad.backend.llvm.native.engine import host_target


@pytest.mark.parametrize("target", targets(), ids=lambda t: t.isa)
@pytest.mark.parametrize("size", [(403, 400, 830), (197, 385, 64), (64, 1000, 1601)], ids=str)
def test_rows_that_lie_side_by_side_are_packed_in_blocks(size, target):
    """Two heights, several blocks of K, chunks and panels: the bits of an A read in place."""
    m, n, k = size
    a, b = random(m, k), random(k, n, seed=1)
    transposed = np.ascontiguousarray(a.T)
    plain, packed = np.full((m, n), np.nan, F32), np.full((m, n), np.nan, F32)
    Sketch(a, b, plain).run(target=target)
    emitted = Sketch((transposed.T, transposed), b, packed).run(target=target, cuts=(1, 2, 3))
    assert "pack_a" in emitted.text and "pack_a" not in Sketch(a, b, plain).run(target=target).text
    np.testing.assert_array_equal(packed, plain)
    assert_product(packed, a, b)


@pytest.mark.parametrize("target", targets(), ids=lambda t: t.isa)
@pytest.mark.parametrize("size", [(131, 1030, 1024), (97, 1024, 803)], ids=str)
def test_rows_that_share_one_place_of_a_cache_are_packed_in_blocks(size, target):
    """Two heights, whole squares and a rest, one or several blocks of K; a negative stride, too."""
    m, n, k = size
    a, b = random(m, k), random(k, n, seed=1)
    plain = np.full((m, n), np.nan, F32)
    apart = np.zeros((m, k + 16), F32)
    apart[:, :k] = a
    assert "pack_a" not in Sketch((apart[:, :k], apart), b, plain).run(target=target).text
    for step in (1, -1):
        pages = np.zeros((m, 2048), F32)
        pages[::step, 7 : k + 7] = a
        packed = np.full((m, n), np.nan, F32)
        rows = pages[::step, 7 : k + 7]
        emitted = Sketch((rows, pages), b, packed).run(target=target, cuts=(1, 2, 3))
        assert ("pack_a" in emitted.text) == (step == 1)
        np.testing.assert_array_equal(packed, plain)
    assert_product(plain, a, b)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_squares_of_more_lanes_than_registers_are_not_transposed(dtype):
    """Rows whole pages apart, as above, of so narrow a type that a square has 32 or 64 rows."""
    k = 4096 // np.dtype(dtype).itemsize
    a, b = (random(*shape).astype(dtype) for shape in ((64, k), (k, 1024)))
    found = np.zeros((64, 1024), dtype)
    emitted = Sketch(a, b, found).run()
    assert ("pack_a" in emitted.text) == (host_target().lanes(a.dtype) <= pack.MOST_TRANSPOSED)
    np.testing.assert_array_equal(found, a @ b)


@pytest.mark.parametrize("size", [(1024, 70, 300), (2048, 48, 65)])
def test_an_a_whose_rows_of_k_are_pages_apart_gives_the_bits_of_any_other(size) -> None:
    rows, columns, depth = size
    r = np.random.default_rng(0)
    a = r.standard_normal((depth, rows)).astype(np.float32)
    b = r.standard_normal((depth, columns)).astype(np.float32)
    product = fxad.jit(lambda a, b: fxad.numpy.tanh(a.T @ b) + 1)
    apart = np.zeros((depth, rows + 16), np.float32)
    apart[:, :rows] = a
    found = np.asarray(product(a, b))
    np.testing.assert_array_equal(found, np.asarray(product(apart, b))[:rows])
    np.testing.assert_allclose(found, np.tanh(a.T.astype(np.float64) @ b) + 1, atol=2e-4)
