"""Native Cholesky factors and triangular systems against NumPy in double precision."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from guarded import MARK, around, guarded

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.backend.llvm.factors import calls
from fxad.backend.llvm.factors.panels import panel_vectors
from fxad.backend.llvm.native.engine import host_target
from fxad.core.config import config
from fxad.ops.matrices.factor import cholesky, triangular_solve

TARGET = host_target()
LOWER = ["generic"] if TARGET.isa in ("generic", "neon") else ["avx2", "generic"]
SIZES = [1, 2, 3, 4, 5, 16, 19, 67, 130]  # below, at and beyond a panel's rows and vectors
FACTOR = fxad.jit(cholesky)
SOLVE = fxad.jit(
    lambda a, b, lower, unit: triangular_solve(a, b, lower=lower, unit=unit), static_argnums=(2, 3)
)


def _positive(n: int, dtype: str, lanes: int = 2) -> np.ndarray:
    a = np.random.default_rng(n).normal(size=(lanes, n, n))
    return (a @ a.swapaxes(1, 2) / n + np.eye(n)).astype(dtype)


def _off(found: object, expected: np.ndarray) -> float:
    """The largest error, in units of the last place of the largest number."""
    found = np.asarray(found)
    scale = np.abs(expected).max() * np.finfo(found.dtype).eps
    return np.abs(found - expected).max() / scale


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_factors_equal_numpys(n, dtype):
    with fxad.enable_x64(dtype == "float64"):
        a = _positive(n, dtype)
        found = FACTOR(a)
    assert _off(found, np.linalg.cholesky(a.astype(np.float64))) < 4 + n / 16
    assert not np.triu(found, 1).any() and not np.signbit(np.triu(found, 1)).any()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_triangular_systems_equal_numpys(n, dtype):
    rng = np.random.default_rng(n)
    whole = np.linalg.cholesky(_positive(n, "float64"))
    with fxad.enable_x64(dtype == "float64"):
        for columns in (1, 3, 16, 64, 70):
            b = rng.normal(size=(2, n, columns)).astype(dtype)
            for lower in (True, False):
                triangle = (whole if lower else whole.swapaxes(1, 2)).astype(dtype)
                other = np.triu if lower else np.tril
                unread = other(np.full((n, n), np.nan, dtype), 1 if lower else -1)
                expected = np.linalg.solve(triangle.astype(np.float64), b)
                assert _off(SOLVE(triangle + unread, b, lower, False), expected) < 16 + n
                ones = triangle / np.diagonal(triangle, axis1=1, axis2=2)[:, None]
                given = ones + unread + np.eye(n, dtype=dtype) * 5  # what is on it is not read
                expected = np.linalg.solve(ones.astype(np.float64), b)
                assert _off(SOLVE(given, b, lower, True), expected) < 16 + 4 * n


def called(kind: str, arrays: list[np.ndarray], numbers: tuple[int, ...], units: int) -> None:
    """A native function on arrays between pages that nobody may touch."""
    words = [*[a.ctypes.data for a in arrays], *numbers]
    address = calls.functions(TARGET, arrays[0].dtype, "triangles")[kind]
    types = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    ctypes.CFUNCTYPE(None, *types)(address)((ctypes.c_int64 * len(words))(*words), 0, units, None)
    for before, after in map(around, arrays):
        assert (before == MARK).all() and (after == MARK).all()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("offset", [None, 0])
def test_nothing_outside_of_the_arrays_is_touched(n, dtype, offset):
    a = guarded(_positive(n, dtype), offset)
    made = guarded(np.full_like(a, np.nan), offset)  # what was there before does not count
    called("cholesky", [a, made], (n,), 2)
    assert _off(made, np.linalg.cholesky(a.astype(np.float64))) < 4 + n / 16
    for columns in (1, 3, 16, 64, 70):
        b = guarded(np.random.default_rng(n).normal(size=(2, n, columns)).astype(dtype), offset)
        panels = -(-columns // (panel_vectors(TARGET) * TARGET.lanes(b.dtype)))
        for upper in (0, 1):
            triangle = guarded(made.swapaxes(1, 2) if upper else made, offset)
            x = guarded(np.full_like(b, np.nan), offset)
            called("triangular_solve", [triangle, b, x], (n, columns, upper, 0), 2 * panels)
            assert _off(x, np.linalg.solve(triangle.astype(np.float64), b)) < 16 + n


@pytest.mark.parametrize("isa", LOWER)
def test_other_instruction_sets_compute_the_same(isa):
    a = _positive(67, "float32")
    b = np.random.default_rng(0).normal(size=(2, 67, 40)).astype(np.float32)

    def results():
        made = fxad.jit(lambda a: cholesky(a))(a)
        return made, fxad.jit(lambda a, b: triangular_solve(a, b, lower=True, unit=False))(made, b)

    best = results()
    with config.override(isa=isa):
        for one, other in zip(best, results(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_one_bad_lane_is_nan_and_the_others_are_not():
    a = _positive(20, "float32", lanes=5)
    a[1, 19, 19] = -1.0  # found last
    a[2] = 0.0  # a pivot of zero
    a[3, 2, 7] = np.nan
    bad = np.isnan(FACTOR(a)).all(axis=(1, 2))
    assert bad.tolist() == [False, True, True, True, False]
    made = np.array(FACTOR(a[[0, 4]]))
    made[1, 19, 19] = 0.0  # singular
    found = np.isnan(SOLVE(made, np.ones((2, 20, 3), np.float32), True, False))
    assert found.all(axis=(1, 2)).tolist() == [False, True] and not found[0].any()
    assert not np.isnan(SOLVE(made, np.ones((2, 20, 3), np.float32), True, True)).any()


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0)])
def test_no_elements(shape):
    assert FACTOR(np.ones(shape, np.float32)).shape == shape
    b = np.ones((*shape[:-1], 2), np.float32)
    assert SOLVE(np.ones(shape, np.float32), b, True, False).shape == b.shape


def test_no_columns():
    assert SOLVE(np.eye(3, dtype=np.float32), np.ones((3, 0), np.float32), True, False).size == 0


def test_bits_do_not_depend_on_threads():
    a = _positive(200, "float32", lanes=3)
    b = np.random.default_rng(0).normal(size=(3, 200, 300)).astype(np.float32)
    before = fxad.get_num_threads()
    try:
        found = []
        for count in (1, 2):
            fxad.set_num_threads(count)
            found.append(np.asarray(SOLVE(FACTOR(a), b, True, False)))
    finally:
        fxad.set_num_threads(before)
    np.testing.assert_array_equal(*found)


def test_no_python_is_called_and_a_profile_has_the_same_bits():
    a = _positive(30, "float32")[0]

    def loss(a):
        return jnp.sum(jnp.log(jnp.diag(jnp.linalg.cholesky(a))))

    gradient = fxad.jit(fxad.grad(loss))
    profile = fxad.profile(gradient, a, repeats=1)
    np.testing.assert_array_equal(profile.result, gradient(a))
    names = [k.name for k in profile.kernels]
    assert {"cholesky", "triangular_solve"} <= set(names), names


def test_in_a_loop():
    a = _positive(12, "float32", lanes=6)

    def step(carry, a):
        made = cholesky(a + carry @ carry.T)
        return made, triangular_solve(made, carry, lower=True, unit=False)

    start = np.eye(12, dtype=np.float32)
    last, all_ = fxad.jit(lambda a: lax.scan(step, start, a))(a)
    carry, expected = start, []
    for one in a.astype(np.float64):
        made = np.linalg.cholesky(one + carry @ carry.T)
        expected.append(np.linalg.solve(made, carry))
        carry = made
    np.testing.assert_allclose(last, carry, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(all_, expected, rtol=1e-4, atol=1e-5)


def test_large_factors_are_left_to_lapack(monkeypatch):
    monkeypatch.setattr(calls, "CHOLESKY_ROWS", 8)
    a = _positive(9, "float32")
    factor = fxad.jit(lambda a: cholesky(a))
    np.testing.assert_array_equal(factor(a), cholesky(a))  # the eager reference
    assert [k.name for k in fxad.profile(factor, a).kernels] == ["python cholesky"]
