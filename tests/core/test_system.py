"""What macOS and Windows lack is taken away on Linux: the library goes on without it."""

import ctypes
import mmap
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fxad.core import system

RUN = """
import fxad, numpy as np
import fxad.numpy as jnp
from fxad.backend.llvm.native import library, memory, nodes, pool
from fxad.core import cgroup, cores, limits

cores.set_num_threads(2)
x = np.linspace(0, 1, 1 << 21, dtype=np.float32)
np.testing.assert_allclose(fxad.jit(jnp.sin)(x), np.sin(x), rtol=1e-6)
assert fxad.jit(lambda x: x + 1).lower(x).memory()["resident_bytes"] >= 0
assert limits.memory_bytes() >= 1 << 30
cores.set_num_threads(1)
pool.current_pool()

import pathlib, tempfile
from fxad_nn import directory, files, flops
with tempfile.TemporaryDirectory() as where:
    with directory.reserved(pathlib.Path(where) / "run") as place:
        assert place.settle() is None
assert files.cache_directory().name == "nn"
assert flops.measured_peak(tries=1) > 0
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


def test_a_lock_keeps_others_out_where_there_are_locks(monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    first, second = (os.open(tmp_path / "file", os.O_RDWR) for _ in range(2))
    try:
        assert system.lock(first) and not system.lock(second, wait=False)
        monkeypatch.setitem(sys.modules, "fcntl", None)  # Windows
        assert system.lock(second, wait=False)
    finally:
        os.close(first)
        os.close(second)


def test_an_open_directory_is_found_where_it_was_moved(monkeypatch, tmp_path) -> None:
    (tmp_path / "a").mkdir()
    handle = os.open(tmp_path / "a", os.O_RDONLY)
    try:
        (tmp_path / "a").rename(tmp_path / "b")
        assert system.path_of(handle) == str(tmp_path / "b")
        for lacking in ("darwin", "win32"):  # neither has what this Linux has for it
            monkeypatch.setattr(sys, "platform", lacking)
            monkeypatch.setattr(os, "readlink", lambda path: (_ for _ in ()).throw(OSError))
            monkeypatch.setitem(sys.modules, "fcntl", None)
            assert system.path_of(handle) is None
    finally:
        os.close(handle)


def test_caches_have_a_place_on_every_system(monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert system.cache_directory() == Path("/x/fxad")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert system.cache_directory() == Path("/local/fxad")


# What a system may lack or name otherwise, and who may say it beside `core/system.py`: files that
# are found or not (cgroups, caches), parts of Python that are everywhere (`signal` for SIGINT), and
# what is asked for by another name first.
DEPENDS = r"\b(fcntl|resource|msvcrt|sched_\w+affinity|sys\.platform|os\.name|os\.uname|CDLL)\b"
DEPENDS += r"|\bos\.(fork|register_at_fork|sysconf|posix_\w+|memfd_create)\b"
DEPENDS += r"|\bplatform\.(system|machine|libc_ver|processor)\b|MADV_\w+|\bimport mmap\b"
EXCEPT = {
    "fxad/core/system.py": None,
    "fxad/backend/llvm/native/engine.py": {"CDLL"},  # of LLVM, which llvmlite has loaded
    "fxad/backend/llvm/native/memory.py": {"import mmap"},  # the size of a page
    "fxad/backend/llvm/native/leftovers.py": {"import mmap", "MADV_DONTNEED"},  # on Linux alone
    "fxad_nn/template_worker.py": {"resource"},  # a process that must not import fxad
}


def test_what_depends_on_the_system_is_in_one_place() -> None:
    root, wrong = Path(__file__).parents[2], []
    for path in sorted([*root.glob("fxad/**/*.py"), *root.glob("fxad_nn/**/*.py")]):
        name = path.relative_to(root).as_posix()
        for found in re.finditer(DEPENDS, path.read_text()):
            allowed = EXCEPT.get(name, set())
            if allowed is not None and found[0] not in allowed:
                wrong.append(f"{name}: {found[0]}")
    assert not wrong, wrong
