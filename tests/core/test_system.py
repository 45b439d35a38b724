"""What macOS and Windows lack is taken away on Linux: the library goes on without it."""

import ctypes
import mmap
import os
import signal
import subprocess
import sys

import pytest

from fxad.core import system

RUN = """
import fxad, numpy as np
import fxad.numpy as jnp
from fxad.backend.llvm.native import library, memory, nodes, pool
from fxad.core import cgroup, limits

pool.set_num_threads(2)
x = np.linspace(0, 1, 1 << 21, dtype=np.float32)
np.testing.assert_allclose(fxad.jit(jnp.sin)(x), np.sin(x), rtol=1e-6)
assert fxad.jit(lambda x: x + 1).lower(x).memory()["resident_bytes"] >= 0
assert limits.memory_bytes() >= 1 << 30
pool.set_num_threads(1)
pool.current_pool()
"""
# Loaded before the system is another, for they look at it themselves.
LOADED = "import subprocess, tempfile, signal, llvmlite.binding, ml_dtypes, numba, numpy.testing\n"
MAC = LOADED + (
    "import mmap, os, sys\nsys.platform = 'darwin'\ndel os.sched_getaffinity, mmap.MADV_HUGEPAGE\n"
)
# Without what POSIX adds. Addresses of C functions are Linux's: no fake has another C library.
WITHOUT = LOADED + (
    "import mmap, os, signal, sys\n"
    "sys.modules['fcntl'] = sys.modules['resource'] = None\n"
    "del os.sched_getaffinity, os.sysconf, os.register_at_fork, os.fork, os.getuid\n"
    "del signal.pthread_sigmask, mmap.MAP_PRIVATE, mmap.MAP_ANONYMOUS, mmap.MADV_HUGEPAGE\n"
    "from fxad.core import system\n"
    "found = system.c_function\n"
    "system.c_function = lambda n, *a: None if n.startswith('pthread') else found(n, *a)\n"
)


@pytest.mark.parametrize("taken", [MAC, WITHOUT], ids=["macOS", "without POSIX"])
def test_programs_run_on_other_systems(taken: str) -> None:
    command = [sys.executable, "-c", taken + RUN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert not done.returncode, done.stderr


def test_windows_libraries_are_asked_for_c_functions(monkeypatch) -> None:
    asked = []

    class Library:
        def __init__(self, name):
            asked.append(name)

        def __getitem__(self, name):
            raise AttributeError(name)

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(ctypes, "CDLL", Library)
    system.libraries.cache_clear()
    try:
        assert system.c_function("malloc_trim", ctypes.c_int) is None
    finally:
        system.libraries.cache_clear()
    assert asked == ["ucrtbase", "kernel32"]


def test_machines_have_linuxs_names(monkeypatch) -> None:
    for said, name in {"AMD64": "x86_64", "arm64": "aarch64", "riscv64": "riscv64"}.items():
        monkeypatch.setattr(system.platform, "machine", lambda said=said: said)
        assert system.machine() == name


def test_resident_memory_is_in_bytes(monkeypatch) -> None:
    linux = system.resident_bytes()
    assert linux > 1 << 24
    monkeypatch.setattr(sys, "platform", "darwin")  # says bytes, where Linux says kilobytes
    assert 0 < system.resident_bytes() <= 2 * linux // 1024
    monkeypatch.setitem(sys.modules, "resource", None)
    assert system.resident_bytes() == 0


def test_unknown_sizes_are_none(monkeypatch) -> None:
    monkeypatch.delattr(os, "sysconf")
    assert system.physical_bytes() is None


def test_pages_are_zeros_and_private(monkeypatch) -> None:
    for names in ((), ("MAP_PRIVATE", "MAP_ANONYMOUS")):
        for name in names:
            monkeypatch.delattr(mmap, name)
        pages = system.fresh_pages(3 * mmap.PAGESIZE)
        system.prefer_huge_pages(pages)
        assert pages[:] == bytes(3 * mmap.PAGESIZE)
    with pytest.raises(MemoryError, match=r"cannot get [\d,]+ bytes"):
        system.fresh_pages(1 << 60)


@pytest.mark.parametrize("posix", [True, False])
def test_a_thread_is_waited_for(monkeypatch, posix) -> None:
    if not posix:
        monkeypatch.setattr(system, "c_function", lambda *given: None)
    masks = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    def function(argument):
        masks.append((argument, signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        return None

    join = system.start_thread(ctypes.cast(function, ctypes.c_void_p).value, 5)
    join()
    assert masks == [(5, posix)]  # Python's threads are given no signals by Python itself
