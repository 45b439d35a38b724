"""Native orthogonal factors against NumPy's."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from guarded import MARK, around, guarded

import fxad
import fxad.numpy as jnp
from fxad.backend.llvm.factors import calls
from fxad.backend.llvm.native.engine import host_target
from fxad.core.config import config

TARGET = host_target()
LOWER = ["generic"] if TARGET.isa in ("generic", "neon") else ["avx2", "generic"]
SHAPES = [(1, 1), (3, 3), (2, 5), (5, 2), (12, 12), (16, 7), (32, 32)]
REDUCED = fxad.jit(jnp.linalg.qr)
COMPLETE = fxad.jit(lambda a: jnp.linalg.qr(a, "complete"))


def _matrices(shape: tuple[int, int], dtype: str, lanes: int = 19) -> np.ndarray:
    return np.random.default_rng(shape[0]).normal(size=(lanes, *shape)).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("complete", [False, True])
def test_factors_equal_numpys(shape, dtype, complete):
    a = _matrices(shape, dtype)
    with fxad.enable_x64(dtype == "float64"):
        found = [np.asarray(x) for x in (COMPLETE if complete else REDUCED)(a)]
    q, r = found
    expected = np.linalg.qr(a.astype(np.float64), "complete" if complete else "reduced")
    eps = 4 * max(shape) * np.finfo(dtype).eps
    wide = q.astype(np.float64)
    assert np.abs(wide.swapaxes(1, 2) @ wide - np.eye(q.shape[2])).max() < eps
    assert np.abs(wide @ r - a).max() < eps * np.abs(a).max()
    assert not np.tril(r, -1).any()
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape and one.dtype == dtype
    diagonals = [np.diagonal(x, axis1=1, axis2=2) for x in (r, expected[1])]
    np.testing.assert_array_equal(*[np.sign(d) for d in diagonals])  # LAPACK's choice


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("offset", [None, 0])
@pytest.mark.parametrize("complete", [False, True])
def test_nothing_outside_of_the_arrays_is_touched(shape, offset, complete):
    m, n = shape
    basis = m if complete else min(shape)
    width = TARGET.lanes(np.dtype(np.float32))
    a = guarded(_matrices(shape, "float32"), offset)
    q, r = (guarded(np.full((19, *s), np.nan, np.float32), offset)
            for s in ((m, basis), (basis, n)))  # fmt: skip
    scratch = guarded(np.full((m * (n + basis) + min(shape)) * width * 4, 7, np.uint8), 0)
    words = [*[x.ctypes.data for x in (a, q, r)], m, n, basis, 19]
    types = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    address = calls.functions(TARGET, a.dtype, "orthogonal")["qr"]
    given, units = (ctypes.c_int64 * len(words))(*words), -(-19 // width)
    ctypes.CFUNCTYPE(None, *types)(address)(given, 0, units, scratch.ctypes.data)
    for before, after in map(around, (a, q, r, scratch)):
        assert (before == MARK).all() and (after == MARK).all()
    np.testing.assert_allclose(q @ r, a, atol=1e-4)


@pytest.mark.parametrize("isa", LOWER)
def test_other_instruction_sets_compute_the_same_bits(isa):
    a = _matrices((7, 5), "float32")
    best = [np.asarray(x) for x in fxad.jit(jnp.linalg.qr)(a)]
    with config.override(isa=isa):
        for one, other in zip(best, fxad.jit(jnp.linalg.qr)(a), strict=True):
            np.testing.assert_array_equal(one, other)


def test_zeros_small_and_large_numbers_and_nan():
    a = _matrices((4, 4), "float32", 6)
    a[0] = 0.0
    a[1, :, 2] = 0.0
    a[2] = np.triu(a[2])  # nothing to turn: r is a itself
    a[3] *= 1e-30  # squares are no numbers of float32
    a[4] *= 1e30
    q, r = (np.array(x) for x in REDUCED(a))
    expected = np.linalg.qr(a)
    for one, other in zip((q, r), expected, strict=True):
        largest = np.abs(other).max(axis=(1, 2), keepdims=True)
        scale = np.where(largest > 0, largest, 1)
        np.testing.assert_allclose(one / scale, other / scale, atol=1e-5)
    np.testing.assert_array_equal(r[2], a[2])
    a[5, 1, 1] = np.nan
    after = [np.asarray(x) for x in REDUCED(a)]
    assert np.isnan(after[0][5]).any()
    np.testing.assert_array_equal(after[0][:5], q[:5])


def test_gradients_equal_differences():
    with fxad.enable_x64():
        a = _matrices((5, 3), "float64", 9)
        fxad.check_grads(REDUCED, (a,), order=1, modes=("fwd", "rev"))


def test_bits_do_not_depend_on_threads_and_no_python_is_called():
    a = _matrices((20, 20), "float32", 300)
    before = fxad.get_num_threads()
    try:
        found = []
        for count in (1, 2):
            fxad.set_num_threads(count)
            found.append([np.asarray(x) for x in REDUCED(a)])
    finally:
        fxad.set_num_threads(before)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    names = [k.name for k in fxad.profile(REDUCED, a, repeats=1).kernels]
    assert "qr" in names, names


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 3), (2, 3, 0)])
def test_no_elements(shape):
    expected = np.linalg.qr(np.ones(shape, np.float32))
    for one, other in zip(REDUCED(np.ones(shape, np.float32)), expected, strict=True):
        assert one.shape == other.shape
