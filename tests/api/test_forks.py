"""A process forked while other threads trace and compile can do so too: their locks are free there,
and what they had put off is not put off for ever."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
from llvmlite.binding import ffi

import fxad
from fxad import compiler
from fxad.core import system
from fxad.core.collecting import without_collection

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
    # JAX's own hook, where another test (or hypothesis) has imported JAX into this process:
    pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called\..*JAX:RuntimeWarning"),
]


def _true_in_a_child(asked: Callable[[], object]) -> bool:
    """Whether this is true in a forked process, within ten seconds."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(10)
            code = 0 if asked() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextmanager
def _beside(work: Callable[[Callable[[], None]], object]) -> Iterator[threading.Event]:
    """A thread that has called what it is given, which returns when the event is set."""
    there, leave = threading.Event(), threading.Event()

    def stay() -> None:
        there.set()
        leave.wait(10)

    thread = threading.Thread(target=work, args=(stay,))
    thread.start()
    assert there.wait(10)
    try:
        yield leave
    finally:
        leave.set()
        thread.join()


@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock])
def test_a_lock_that_another_thread_held(kind) -> None:
    lock = system.free_in_children(kind())

    def hold(stay: Callable[[], None]) -> None:
        with lock:
            stay()

    with _beside(hold):
        assert _true_in_a_child(lambda: lock.acquire(timeout=1))
        assert not lock.acquire(blocking=False)  # here it is held as before


def test_while_another_thread_compiles() -> None:
    numbers = iter(range(1000))

    def fresh() -> bool:
        n = next(numbers)
        return float(fxad.jit(lambda x: fxad.numpy.sin(x) + n)(np.float32(0))) == n

    make = compiler.executable

    def compile_in_a_thread(stay: Callable[[], None]) -> None:
        def slowly(*args: object) -> object:
            if threading.current_thread() is not threading.main_thread():
                stay()
            return make(*args)

        with mock.patch.object(compiler, "executable", slowly):
            assert fresh()

    with _beside(compile_in_a_thread):
        assert _true_in_a_child(fresh)


def test_a_fork_waits_for_llvmlite() -> None:
    def question(stay: Callable[[], None]) -> None:
        with ffi.lib._lock:  # as in any call of it
            stay()

    assert float(fxad.jit(lambda x: x + 1)(1.0)) == 2  # the compiler is loaded
    with _beside(question) as leave:
        threading.Timer(0.2, leave.set).start()
        start = time.perf_counter()
        assert _true_in_a_child(lambda: float(fxad.jit(lambda x: x + 2)(1.0)) == 3)
        assert time.perf_counter() - start > 0.1


def test_collections_that_another_thread_put_off() -> None:
    def put_off(stay: Callable[[], None]) -> None:
        with without_collection():
            stay()

    def own_blocks_alone() -> bool:
        with without_collection():
            inside = gc.isenabled()
        return not inside and gc.isenabled()

    with _beside(put_off):
        assert not gc.isenabled()
        assert _true_in_a_child(gc.isenabled)
        assert _true_in_a_child(own_blocks_alone)
        with without_collection():
            assert _true_in_a_child(lambda: not gc.isenabled())
    assert gc.isenabled()
