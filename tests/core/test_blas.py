"""NumPy's OpenBLAS held to one thread, and batches of matrices that threads divide."""

from __future__ import annotations

import contextlib
import os
import threading

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core import blas, cores
from fxad.ir.orders import LAPACK_MANY_ROWS
from fxad.ir.program import OPS
from fxad.ops.matrices import base

functions = blas._functions()
needs_openblas = pytest.mark.skipif(functions is None, reason="NumPy has another library here")


@pytest.fixture
def two_threads():
    """OpenBLAS on two threads, whatever the machine has."""
    tell, put = functions
    before = tell()
    put(2)
    yield tell
    put(before)


@contextlib.contextmanager
def block_of_another_thread():
    """Another thread is in its block meanwhile."""
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with blas.one_thread():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(60)
    yield
    leave.set()
    thread.join()


@needs_openblas
def test_one_thread_in_a_block_of_any_thread(two_threads) -> None:
    with contextlib.ExitStack() as other:
        with blas.one_thread():
            assert two_threads() == 1
            other.enter_context(block_of_another_thread())
        assert two_threads() == 1
    assert two_threads() == 2
    with pytest.raises(ZeroDivisionError), blas.one_thread():
        1 / 0  # noqa: B018
    assert two_threads() == 2


@needs_openblas
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_not_left_in_the_block_of_another_thread(two_threads) -> None:
    with block_of_another_thread():
        child = os.fork()
        if not child:
            os._exit(two_threads())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2


def test_another_library_is_left_alone(monkeypatch) -> None:
    monkeypatch.setattr(blas, "_functions", lambda: None)
    with blas.one_thread():
        pass


def test_jobs_at_once() -> None:
    meet = threading.Barrier(3)
    assert cores.at_once([lambda n=n: (meet.wait(60), n)[1] for n in range(3)]) == [0, 1, 2]
    ended = []
    with pytest.raises(ZeroDivisionError):
        cores.at_once([lambda: 1 / 0, lambda: ended.append(1)])
    assert ended == [1]


def test_without_more_threads_jobs_run_one_after_another(monkeypatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert cores.at_once([lambda: 1, lambda: 2]) == [1, 2]


CASES = {
    "eigh": (jnp.linalg.eigh, (3, 2, 6, 6)),
    "svd": (jnp.linalg.svd, (5, 7, 4)),
    "solve": (lambda a: jnp.linalg.solve(a, a[..., :2]), (2, 5, 6, 6)),
    "fft": (lambda a: jnp.fft.fft(a, axis=-1), (5, 997)),
    "fft of rows": (lambda a: jnp.fft.fftn(a, axes=(-2,)), (3, 34, 5)),
    "irfft": (lambda a: jnp.fft.irfft(a, axis=-1), (7, 38)),
}


@pytest.mark.parametrize("case", CASES)
def test_bits_do_not_depend_on_the_threads_that_divide_a_batch(case, monkeypatch) -> None:
    monkeypatch.setattr(base, "PART", 1)
    function, shape = CASES[case]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for run in (function, fxad.jit(function)):
        by_threads = []
        for threads in (1, 3):
            monkeypatch.setattr(cores, "get_num_threads", lambda n=threads: n)
            by_threads.append(fxad.tree.leaves(run(jnp.asarray(x))))
        for one, divided in zip(*by_threads, strict=True):
            np.testing.assert_array_equal(divided, one)


def test_threads_have_the_modes_of_errors_that_are_set() -> None:
    with np.errstate(over="raise"):
        modes = cores.at_once([lambda: np.geterr()["over"]] * 2)
    assert modes == ["raise", "raise"]


@pytest.mark.filterwarnings("error")
def test_narrow_results_overflow_in_silence(monkeypatch) -> None:
    monkeypatch.setattr(base, "PART", 1)
    monkeypatch.setattr(cores, "get_num_threads", lambda: 4)
    a = jnp.asarray(np.full((8, 24, 24), 6e4, np.float16))
    assert np.isinf(np.asarray(jnp.linalg.svd(a)[1])[:, 0]).all()


def test_large_matrices_are_left_to_the_threads_of_lapack(monkeypatch) -> None:
    monkeypatch.setattr(cores, "at_once", None)
    monkeypatch.setattr(blas, "one_thread", None)
    a = np.stack([np.eye(LAPACK_MANY_ROWS + 1, dtype=np.float32)] * 2)
    np.testing.assert_array_equal(jnp.linalg.svd(jnp.asarray(a))[1], np.ones(a.shape[:2]))


def test_a_transform_over_no_axes() -> None:
    x = np.ones((400, 128), np.complex64)
    np.testing.assert_array_equal(fxad.jit(lambda x: jnp.fft.fftn(x, axes=()))(x), x)
    found = OPS["fft"](jnp.asarray(x), axes=(), inverse=False)
    np.testing.assert_array_equal(found, x)


def test_a_matrix_without_a_solution_spoils_no_other(monkeypatch) -> None:
    monkeypatch.setattr(base, "PART", 1)
    monkeypatch.setattr(cores, "get_num_threads", lambda: 2)
    a = np.stack([np.eye(3), np.full((3, 3), np.nan), 2 * np.eye(3), 3 * np.eye(3)])
    found = np.asarray(jnp.linalg.eigh(jnp.asarray(a.astype(np.float32)))[0])
    assert np.isnan(found[1]).all()
    np.testing.assert_allclose(found[[0, 2, 3]], np.outer([1, 2, 3], np.ones(3)), rtol=1e-6)
