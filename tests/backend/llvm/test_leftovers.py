"""What compiling leaves in memory, and how much of it goes."""

import ctypes
import mmap
import re
import sys

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.backend.llvm.native import leftovers
from fxad.backend.llvm.native.engine import library_path
from fxad.core.config import config

linux = pytest.mark.skipif(sys.platform != "linux", reason="it asks Linux what is resident")
glibc = pytest.mark.skipif(
    leftovers._function("malloc_trim", ctypes.c_int, ctypes.c_size_t) is None,
    reason="another C library than glibc",
)


def compiled(factor: float) -> float:
    """What code compiled just now makes of a number."""
    with config.override(cache=False):
        return float(fxad.jit(lambda x: jnp.sum(jnp.sin(x) * factor))(np.ones(4, np.float32)))


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def of_the_library(field: str) -> int:
    """Bytes of a line of /proc/self/smaps, over all mappings of LLVM's library."""
    with open("/proc/self/smaps") as file:
        mappings = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", file.read(), flags=re.M)
    ours = [m for m in mappings if m.partition("\n")[0].endswith(library_path())]
    return 1024 * sum(int(n) for m in ours for n in re.findall(rf"^{field}:\s+(\d+) kB", m, re.M))


@linux
@glibc
def test_what_was_freed_in_the_heap_is_returned():
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    size, count = 50_000, 1000
    parts = [libc.malloc(size) for _ in range(count)]
    for part in parts:
        ctypes.memset(part, 1, size)
    for part in parts[:-1]:  # the last one is above them, so that nothing returns by itself
        libc.free(part)
    before = resident()
    leftovers.give_back()
    assert before - resident() > 0.9 * size * count
    libc.free(parts[-1])


@linux
@glibc
def test_llvms_code_leaves_and_comes_back():
    value, written = compiled(2.0), of_the_library("Anonymous")
    assert of_the_library("Rss") > written + (20 << 20)
    leftovers.give_back()
    # Asking for a page brings those beside it: 2 MiB where the file lies so in Linux's memory.
    assert of_the_library("Rss") <= written + (8 << 20)
    assert of_the_library("Anonymous") == written  # what the loader has written stays
    assert compiled(4.0) == 2 * value


def test_without_the_c_librarys_functions_everything_stays(monkeypatch):
    monkeypatch.setattr(leftovers, "_function", lambda *names: None)
    leftovers.give_back()
    assert compiled(3.0) > 0
