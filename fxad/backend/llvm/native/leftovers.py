"""What compiling leaves in memory, given back before a program that takes much runs for the first
time: heaps with little in them, and the pages of LLVM's code.

    give_back()
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from typing import Any

from fxad.backend.llvm.native.engine import library_path
from fxad.core import system

_function = functools.cache(system.c_function)
_LOADED, _WRITABLE = 1, 2  # PT_LOAD, PF_W: see elf(5)


def give_back() -> None:
    """Milliseconds. What is needed again comes back by itself."""
    _trim_heaps()
    _unmap(library_path())


def _trim_heaps() -> None:
    """Have the C library return memory that was freed in its heaps: LLVM leaves tens of MB in
    them, in those of all threads that compile, when it has compiled a large program."""
    trim = _function("malloc_trim", ctypes.c_int, ctypes.c_size_t)
    if trim is not None:
        trim(0)


class _Segment(ctypes.Structure):
    """Elf64_Phdr: a part of a library."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("kind", "flags")),
        *((name, ctypes.c_uint64) for name in ("offset", "address", "physical", "stored", "size")),
        ("align", ctypes.c_uint64),
    )


class _Library(ctypes.Structure):
    """The beginning of a dl_phdr_info: a library in this process; its segments' addresses count
    from `base`."""

    _fields_ = (
        ("base", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("segments", ctypes.POINTER(_Segment)),
        ("count", ctypes.c_uint16),
    )


_VISIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Library), ctypes.c_size_t, ctypes.c_void_p)


def _unmap(path: str) -> None:
    """Leave those pages of a library that nothing can have written to the system's file cache; the
    next use finds them there. Of LLVM they are 65 MB, also where it only loads code."""
    visit_all = _function("dl_iterate_phdr", ctypes.c_int, _VISIT, ctypes.c_void_p)
    advise = _function("madvise", ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
    if (
        visit_all is None
        or advise is None
        or system.name() != system.LINUX
        or sys.maxsize < 1 << 32
    ):
        return

    def visit(found: Any, size: int, data: Any) -> int:
        library = found.contents
        if library.name != path.encode():
            return 0
        for segment in library.segments[: library.count]:
            if segment.kind == _LOADED and not segment.flags & _WRITABLE:
                start, page = library.base + segment.address, mmap.PAGESIZE
                first, end = -(-start // page) * page, (start + segment.size) // page * page
                advise(first, max(end - first, 0), mmap.MADV_DONTNEED)
        return 1

    visit_all(_VISIT(visit), None)
