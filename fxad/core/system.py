"""What depends on the operating system, in one place: the rest of the library asks here.

>>> machine() in ("x86_64", "aarch64") or bool(machine())
True

Linux is what everything runs on. What macOS and Windows lack or name otherwise is answered by what
serves there; tests take it away on Linux (`tests/core/test_system.py`). See docs/processors.md.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import platform
import signal
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from mmap import mmap

LINUX, MACOS, WINDOWS = "linux", "darwin", "win32"  # of `name`
Lock = TypeVar("Lock")
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # Windows' and Apple's words


def name() -> str:
    """The operating system as Python calls it: LINUX, MACOS, WINDOWS or another."""
    return sys.platform


def machine() -> str:
    """The processor's architecture in Linux's words, such as x86_64 or aarch64."""
    found = platform.machine().lower()
    return _MACHINES.get(found, found)


# ---------------------------------------------------------------- processes


def at_fork(
    before: Callable[[], object] | None = None,
    parent: Callable[[], object] | None = None,
    child: Callable[[], object] | None = None,
) -> None:
    """Have functions called around every fork of this process, where there is such a thing."""
    if not hasattr(os, "register_at_fork"):
        return
    given = {"before": before, "after_in_parent": parent, "after_in_child": child}
    os.register_at_fork(**{k: f for k, f in given.items() if f is not None})


_free_in_children: weakref.WeakSet[Any] = weakref.WeakSet()


def free_in_children(lock: Lock) -> Lock:
    """The lock, which a forked child finds free: a thread that held it stayed behind, and would
    never release it there. An RLock of the thread that forks stays its own. What it guards must be
    whole between any two lines of Python."""
    _free_in_children.add(lock)
    return lock


def _free() -> None:
    for lock in _free_in_children:
        if not (hasattr(lock, "_is_owned") and lock._is_owned()):
            lock._at_fork_reinit()  # as Python's own modules do with theirs


at_fork(child=_free)


def allowed_cpus() -> frozenset[int]:
    """The CPUs that this process may run on; all of them where the system has no such mask."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def resident_bytes() -> int:
    """The largest resident memory of this process so far; 0 where the system does not say."""
    try:
        resource = importlib.import_module("resource")
    except ImportError:  # Windows
        return 0
    unit = 1 if name() == MACOS else 1024
    return unit * int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def resident_now() -> int:
    """The resident memory of this process; the largest so far where the system says no more."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:  # only Linux has it
        return resident_bytes()
    return pages * os.sysconf("SC_PAGE_SIZE")


# ---------------------------------------------------------------- memory


def physical_bytes() -> int | None:
    """Bytes of memory that this machine has; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def fresh_pages(size: int) -> mmap:
    """Pages of zeros of this process alone, not shared with a forked child. Raises MemoryError."""
    maps = importlib.import_module("mmap")
    private = getattr(maps, "MAP_PRIVATE", 0) | getattr(maps, "MAP_ANONYMOUS", 0)
    try:
        return cast("mmap", maps.mmap(-1, size, **({"flags": private} if private else {})))
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"cannot get {size:,} bytes of memory: {error}") from None


def prefer_huge_pages(pages: mmap) -> None:
    """Ask for huge pages under these, of a system that can be asked."""
    advice = getattr(importlib.import_module("mmap"), "MADV_HUGEPAGE", None)
    if advice is not None:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            pages.madvise(advice)


# ---------------------------------------------------------------- files


def cache_home() -> Path:
    """Where a user's programs keep what they can make again."""
    if name() == WINDOWS:
        return Path(os.environ.get("LOCALAPPDATA") or Path.home())
    if home := os.environ.get("XDG_CACHE_HOME"):
        return Path(home)
    return Path.home() / ".cache"


def cache_directory() -> Path:
    """This library's part of it; one of its own for a user whom the system does not know, as in
    some containers."""
    try:
        return cache_home() / "fxad"
    except RuntimeError:  # no home
        return Path(tempfile.gettempdir()) / f"fxad-{os.geteuid()}"


def lock(handle: int, *, wait: bool = True) -> bool:
    """Keep other processes that ask the same out of an open file, until it is closed.

    False where another process has it, only without `wait`; True also where the system or the file
    system has no such locks.
    """
    try:
        fcntl = importlib.import_module("fcntl")
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def path_of(handle: int) -> str | None:
    """Where an open file or directory is now; None where the system does not say."""
    with contextlib.suppress(OSError, ImportError, ValueError):
        if name() == MACOS:
            fcntl = importlib.import_module("fcntl")
            return os.fsdecode(fcntl.fcntl(handle, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
        return os.readlink(f"/proc/self/fd/{handle}")
    return None


# ---------------------------------------------------------------- the C library


@functools.cache
def libraries() -> tuple[ctypes.CDLL, ...]:
    """Where compiled code's C functions are: this process, then the libraries (of C, of maths, of
    the compiler's helpers) that it need not have loaded by itself."""
    if name() == WINDOWS:
        return tuple(ctypes.CDLL(n) for n in ("ucrtbase", "kernel32"))
    found = [ctypes.CDLL(None)]
    for library in ("libm.so.6", "libgcc_s.so.1"):
        with contextlib.suppress(OSError):  # another system keeps these in the process itself
            found.append(ctypes.CDLL(library))
    return tuple(found)


def c_function(function: str, result: Any, *arguments: Any) -> Callable[..., int] | None:
    """A C function of this process by its name and types; None where there is none."""
    for library in libraries():
        try:
            found = library[function]  # a new object each time, unlike library.function
        except AttributeError:
            continue
        found.restype, found.argtypes = result, arguments
        return cast(Callable[..., int], found)
    return None


def c_library() -> str:
    """The name and version of the C library, the system's name where it does not say."""
    return " ".join(platform.libc_ver()).strip() or platform.system()


def linux_call(numbers: Mapping[str, int], *arguments: Any) -> int | None:
    """What a Linux system call answers, by its number on each `machine`; -1 where it fails, None
    where there is none."""
    number = numbers.get(machine()) if name() == LINUX else None
    return None if number is None else int(ctypes.CDLL(None).syscall(number, *arguments))


# ---------------------------------------------------------------- threads


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Threads that are started inside get no signals, where those go to any thread."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def interrupt_main_thread() -> None:
    """Send the main thread what Ctrl-C sends, also where it waits inside a call of the system."""
    thread = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and thread is not None:
        signal.pthread_kill(thread, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)


def start_thread(function: int, argument: int) -> Callable[[], None]:
    """Run the C function `void *f(void *)` at an address in a thread of its own, which gets no
    signals and which the interpreter does not wait for. The answer waits for its end.

    A native thread, or Python's where the system has no POSIX threads. Raises OSError.
    """
    pointer = ctypes.c_void_p
    create = c_function("pthread_create", ctypes.c_int, *[pointer] * 4)
    join = c_function("pthread_join", ctypes.c_int, pointer, pointer)
    if create is None or join is None:
        run = ctypes.CFUNCTYPE(None, pointer)(function)
        thread = threading.Thread(target=run, args=(argument,), daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise OSError(str(error)) from None
        return thread.join
    handle = pointer()
    with signals_blocked():
        error_number = create(ctypes.byref(handle), None, function, argument)
    if error_number:
        raise OSError(error_number, os.strerror(error_number))
    return functools.partial(_discard, join, handle)


def _discard(join: Callable[..., int], handle: ctypes.c_void_p) -> None:
    join(handle, None)
