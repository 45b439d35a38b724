"""Native linear systems and determinants against NumPy in double precision."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from guarded import MARK, around, guarded

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.backend.llvm.factors import calls
from fxad.backend.llvm.native.engine import host_target
from fxad.core.config import config
from fxad.ir.loops import Factoring
from fxad.ir.orders import LU_ROWS
from fxad.ir.plan import Host
from fxad.ir.program import OPS

TARGET = host_target()
LOWER = ["generic"] if TARGET.isa in ("generic", "neon") else ["avx2", "generic"]
SIZES = [1, 2, 3, 7, 8, 16, 17, 19, 33, 67, 128, 201]  # in lanes and by rows, at and beyond vectors
SOLVE = fxad.jit(jnp.linalg.solve)
SLOGDET = fxad.jit(jnp.linalg.slogdet)


def _matrices(n: int, dtype: str, lanes: int) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(lanes, n, n)).astype(dtype)


def _residual(a: np.ndarray, x: np.ndarray, b: np.ndarray) -> float:
    """The largest of |a x - b| in units of eps |a| |x| (Higham, 7.1), whatever the condition."""
    a, x = a.astype(np.float64), np.asarray(x)
    scale = np.abs(a).sum(axis=2, keepdims=True).max(axis=1, keepdims=True)
    scale = scale * np.abs(x).max(axis=1, keepdims=True) * np.finfo(x.dtype).eps
    return (np.abs(a @ x - b) / scale).max()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lanes", [1, 3, 33])
def test_systems_and_determinants_equal_numpys(n, dtype, lanes):
    a = _matrices(n, dtype, lanes)
    with fxad.enable_x64(dtype == "float64"):
        for columns in (1, 70) if lanes == 3 else (3, 16):
            b = np.random.default_rng(0).normal(size=(lanes, n, columns)).astype(dtype)
            x = SOLVE(a, b)
            assert x.dtype == dtype and _residual(a, x, b) < 4
        sign, size = map(np.asarray, SLOGDET(a))
    expected = np.linalg.slogdet(a.astype(np.float64))
    np.testing.assert_array_equal(sign, expected[0])
    eps = np.finfo(dtype).eps
    condition = np.linalg.cond(a.astype(np.float64), 1)
    assert (np.abs(size - expected[1]) < eps * (condition + 4 * np.abs(expected[1]) + 4)).all()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_factors_with_exchanges_of_rows(n, dtype):
    """P A = L U, with the pivots of the reference, which are the largest of their columns."""
    a = _matrices(n, dtype, 3)
    a[1, :, n // 2] = 0  # singular
    a[2] = np.round(a[2])  # equal candidates for pivots
    with fxad.enable_x64(dtype == "float64"):
        packed, pivots, order = map(np.asarray, fxad.jit(lax.linalg.lu)(a))
        _, same_pivots, same_order = OPS["lu"].numpy(a)
    assert packed.dtype == dtype and pivots.dtype == order.dtype == np.int32
    low, up = np.tril(packed.astype(np.float64), -1) + np.eye(n), np.triu(packed)
    rows = np.take_along_axis(a, order[..., None], -2)
    bound = n * np.finfo(dtype).eps * (np.abs(low) @ np.abs(up))  # Higham, 9.3
    assert (np.abs(low @ up - rows) <= bound + 1e-30).all()
    assert np.abs(low).max() <= 1 + 2 * np.finfo(dtype).eps
    np.testing.assert_array_equal(pivots[:2], same_pivots[:2])
    np.testing.assert_array_equal(order[:2], same_order[:2])


def test_large_factors_run_compiled_outside_jit():
    a = _matrices(40, "float32", 2)
    for found, wanted in zip(
        lax.linalg.lu(jnp.asarray(a)), fxad.jit(lax.linalg.lu)(a), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def called(kind: str, group: str, arrays: list, numbers: tuple[int, ...], call: calls.Call) -> None:
    """A native function on arrays and scratch between pages that nobody may touch."""
    scratch = guarded(np.full(call.scratch, 7, np.uint8), 0)
    words = [*[a.ctypes.data for a in arrays], *numbers]
    address = calls.functions(TARGET, arrays[0].dtype, group)[kind]
    types = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    given = (ctypes.c_int64 * len(words))(*words)
    ctypes.CFUNCTYPE(None, *types)(address)(given, 0, call.units, scratch.ctypes.data)
    for before, after in map(around, [*arrays, scratch]):
        assert (before == MARK).all() and (after == MARK).all()


def _call(what: Factoring) -> calls.Call:
    def function() -> None:
        """Stands for the Python function of a step."""

    function.factoring = what
    (call,) = calls.native_calls(Host(function, (), ()), TARGET)
    return call


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("offset", [None, 0])
@pytest.mark.parametrize("lanes", [1, 30])
def test_nothing_outside_of_the_arrays_is_touched(n, dtype, offset, lanes):
    a = guarded(_matrices(n, dtype, lanes), offset)
    for columns in (1, 3, 70):
        b = guarded(np.ones((lanes, n, columns), dtype), offset)
        x = guarded(np.full_like(b, np.nan), offset)  # what was there before does not count
        call = _call(Factoring("solve", a.dtype, lanes, n, columns))
        called("solve", call.group, [a, b, x], call.numbers, call)
        assert _residual(a, x, b) < 4
    sign, size = (guarded(np.full(lanes, np.nan, dtype), offset) for _ in range(2))
    call = _call(Factoring("slogdet", a.dtype, lanes, n, n))
    called("slogdet", call.group, [a, sign, size], call.numbers, call)
    np.testing.assert_array_equal(sign, np.linalg.slogdet(a.astype(np.float64))[0])
    packed = guarded(np.full_like(a, np.nan), offset)
    pivots, order = (guarded(np.full((lanes, n), -1, np.int32), offset) for _ in range(2))
    call = _call(Factoring("lu", a.dtype, lanes, n, n))
    called("lu", call.group, [a, packed, pivots, order], call.numbers, call)
    np.testing.assert_array_equal(np.sort(order), np.tile(np.arange(n), (lanes, 1)))


@pytest.mark.parametrize("n", [4, 19, 67])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_numbers_that_are_none_exchange_nothing_outside(n, wrong):
    """A row without a largest number: the zeros behind it are no pivots."""
    for columns in (3, 70):
        a = guarded(np.full((1, n, n), wrong, np.float32))
        b, x = (guarded(np.ones((1, n, columns), np.float32)) for _ in range(2))
        call = _call(Factoring("solve", a.dtype, 1, n, columns))
        called("solve", call.group, [a, b, x], call.numbers, call)
        assert np.isnan(x).all()


@pytest.mark.parametrize("isa", LOWER)
@pytest.mark.parametrize("n", [5, 40])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_other_instruction_sets_compute_the_same_bits(isa, n, dtype):
    a = _matrices(n, dtype, 19)
    a[3] = np.sign(a[3])  # of equals the first is the pivot
    b = np.random.default_rng(0).normal(size=(19, n, 3)).astype(dtype)

    def results():
        solve, slogdet = fxad.jit(jnp.linalg.solve), fxad.jit(jnp.linalg.slogdet)
        return [np.asarray(r) for r in (solve(a, b), *slogdet(a))]

    with fxad.enable_x64(dtype == "float64"):
        best = results()
        with config.override(isa=isa):
            for one, other in zip(best, results(), strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("n", [4, 20])
def test_one_bad_lane_is_nan_and_the_others_are_not(n):
    a = _matrices(n, "float32", 6)
    a[1] = 0.0
    a[2, :, 3] = 0.0
    a[3, 2] = a[3, 0] = np.arange(n)  # rows alike
    a[4, n - 1, 2] = np.nan
    x = np.asarray(SOLVE(a, np.ones((6, n, 2), np.float32)))
    assert np.isnan(x).all(axis=(1, 2)).tolist() == [False, True, True, True, True, False]
    assert not np.isnan(x[[0, 5]]).any()
    sign, size = map(np.asarray, SLOGDET(a))
    assert sign[1:4].tolist() == [0, 0, 0] and (size[1:4] == -np.inf).all()
    assert np.isnan(size[4]) and np.isfinite(size[[0, 5]]).all()


@pytest.mark.parametrize("n", [6, 24])
def test_permutations_need_exchanges(n):
    rng = np.random.default_rng(n)
    a = np.stack([np.eye(n, dtype=np.float32)[rng.permutation(n)] for _ in range(9)])
    b = rng.normal(size=(9, n, 2)).astype(np.float32)
    np.testing.assert_array_equal(SOLVE(a, b), a.swapaxes(1, 2) @ b)
    sign, size = SLOGDET(a)
    np.testing.assert_array_equal(sign, np.linalg.slogdet(a)[0])
    assert not np.asarray(size).any()


@pytest.mark.parametrize("n", [3, 18])
def test_gradients_equal_differences(n):
    a, b = _matrices(n, "float64", 2), _matrices(n, "float64", 2)[:, :, :2]
    with fxad.enable_x64():
        fxad.check_grads(SOLVE, (a + n * np.eye(n), b), order=2, modes=("fwd", "rev"))
        fxad.check_grads(lambda a: SLOGDET(a)[1], (a + n * np.eye(n),), order=2)
        fxad.check_grads(fxad.jit(jnp.linalg.det), (a / n + np.eye(n),), order=1)


def test_bits_do_not_depend_on_threads_or_lanes():
    before = fxad.get_num_threads()
    for n in (7, 40):
        a = _matrices(n, "float32", 200)
        b = np.ones((200, n, 3), np.float32)
        try:
            found = []
            for count in (1, 2):
                fxad.set_num_threads(count)
                found.append(np.asarray(SOLVE(a, b)))
        finally:
            fxad.set_num_threads(before)
        np.testing.assert_array_equal(*found)
        np.testing.assert_array_equal(SOLVE(a[5:], b[5:]), found[0][5:])


def test_no_python_is_called_and_large_ones_are_left_to_lapack():
    def names(n: int) -> list[str]:
        a = np.eye(n, dtype=np.float32)
        return [k.name for k in fxad.profile(fxad.jit(jnp.linalg.inv), a, repeats=1).kernels]

    assert "solve" in names(20) and "python solve" not in names(20)
    assert "python solve" in names(LU_ROWS + 1)


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0)])
def test_no_elements(shape):
    a = np.ones(shape, np.float32)
    assert SOLVE(a, np.ones((*shape[:-1], 2), np.float32)).shape == (*shape[:-1], 2)
    np.testing.assert_array_equal(SLOGDET(a)[0], np.linalg.slogdet(a)[0])
