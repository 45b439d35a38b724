"""The native runtime as LLVM IR: thread pool, and the interpreter of encoded plans.

    status = runtime().execute(frame_address)  # DONE, TICK, HOST or REBIND

`execute` walks the code words that `runner.py` wrote (see `Op`) over one frame. It returns early
where Python must act, with everything needed to go on kept in the frame: call it again to resume.
It returns TICK at least every INTERVAL ns of work, so that Python can handle signals (Ctrl-C).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
from collections.abc import Callable, Mapping
from enum import IntEnum
from string import Template

import numpy as np

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.native import direct_code, entries, pool_code, tape_code, walk_code
from fxad.backend.llvm.native.engine import (
    Module,
    ModuleText,
    compile_modules,
    compose,
    host_identity,
    host_target,
)
from fxad.core import system
from fxad.core.config import config
from fxad.core.errors import CheckError
from fxad.core.record import valued

# The interpreter's, compiled once for all targets, so none of `Tuning`.
COPY_BLOCK = 1 << 17  # bytes one unit of the copy kernel moves
POLL_NS = 100_000  # estimated nanoseconds of work between two looks at the clock
NEVER = 1 << 61


class Status(IntEnum):
    """Why `execute` returned."""

    DONE = 0
    TICK = 1  # time to let Python handle signals; call again
    HOST = 2  # run host step frame[REPORT], then call again
    REBIND = 3  # object frame[UNIT] of table frame[REPORT] cannot be read in place; replace it


class Op(IntEnum):
    """Instructions; their words follow. Slots, counters and objects are word indices in the frame.

    END     the plan is done
    BIND    count, address of NumPy's class of arrays, then per object: table, number, slot, dtype
            address, ndim, *shape; a table is
            the frame word ARGUMENTS or RESULTS, which points at the objects' addresses
    PLACE   count, then per slot: slot, offset in the arena
    RUN     function, parallel, units, chunk, cost of a chunk (ns), count, *argument words
    SET     word, value
    LOOP    counter, trips, reverse, exit, count, then per view: slot, base slot, stride
    NEXT    counter, target            count one iteration and jump
    SWAP    count, then per pair: slot, slot
    UNLESS  slot, target               jump if the bool at slot is false
    SWITCH  slot, is i32, count, *targets
    JUMP    target
    HOST    number
    COMMIT  from here on arguments are overwritten: no more ticks
    """

    END = 0
    BIND = 1
    PLACE = 2
    RUN = 3
    SET = 4
    LOOP = 5
    NEXT = 6
    SWAP = 7
    UNLESS = 8
    SWITCH = 9
    JUMP = 10
    HOST = 11
    COMMIT = 12


class Word(IntEnum):
    """The head of a frame. From PC on, Python writes it before each run."""

    CODE = 0
    DEADLINE = 1
    BUDGET = 2
    REPORT = 3
    ARGS = 4
    PC = 5
    UNIT = 6
    INTERVAL = 7
    POOL = 8
    ARENA = 9
    SCRATCH = 10
    STRIDE = 11
    REGION = 12  # memory of tapes, see native/tape_code.py
    ARGUMENTS = 13
    RESULTS = 14
    FIRST = 15


class PoolByte(IntEnum):
    """Byte offsets in the pool's memory, one cache line per thing that is written by many."""

    GENERATION = 0
    STATE = 64  # number of workers inside, plus OPEN
    SLEEPERS = 128
    FUNCTION = 192
    ARGUMENTS = 200
    UNITS = 208
    CHUNK = 216
    SCRATCH = 224
    STRIDE = 232
    LEAST = 240
    NEXT = 256
    BUSY = 320
    SPIN = 384
    THREADS = 392
    EXIT = 400
    SIZE = 448


OPEN = 1 << 32
_HEAD = object.__basicsize__  # NumPy's array fields follow Python's object header

_FUTEX = {"x86_64": 202, "aarch64": 98}  # Linux system call numbers

_LINUX = """
define internal void @fx_wait(ptr %word, i32 %seen) #1 {
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i32 128, i32 %seen, ptr null)
  ret void
}

define internal void @fx_wake(ptr %word, i32 %count) #1 {
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i32 129, i32 %count)
  ret void
}
"""

_ANYWHERE = """
define internal void @fx_wait(ptr %word, i32 %seen) #1 {
  %r = call i32 @usleep(i32 50)
  ret void
}

define internal void @fx_wake(ptr %word, i32 %count) #1 {
  ret void
}
"""

_X86 = """
define internal void @fx_pause() #0 {
  call void @llvm.x86.sse2.pause()
  ret void
}

define internal i64 @fx_enter_fp() #1 {
  %word = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %word)
  %before = load i32, ptr %word
  store i32 8064, ptr %word ; to nearest, denormals kept, no traps
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  %wide = zext i32 %before to i64
  ret i64 %wide
}

define internal void @fx_leave_fp(i64 %before) #1 {
  %word = alloca i32, align 4
  %narrow = trunc i64 %before to i32
  store i32 %narrow, ptr %word
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  ret void
}
"""

_ARM = """
define internal void @fx_pause() #0 {
  call void @llvm.aarch64.hint(i32 1)
  ret void
}

define internal i64 @fx_enter_fp() #1 {
  %before = call i64 @llvm.aarch64.get.fpcr()
  call void @llvm.aarch64.set.fpcr(i64 0)
  ret i64 %before
}

define internal void @fx_leave_fp(i64 %before) #1 {
  call void @llvm.aarch64.set.fpcr(i64 %before)
  ret void
}
"""

_OTHER = """
define internal void @fx_pause() #0 {
  ret void
}

define internal i64 @fx_enter_fp() #1 {
  ret i64 0
}

define internal void @fx_leave_fp(i64 %before) #1 {
  ret void
}
"""

_DECLARATIONS = (
    "declare ptr @calloc(i64, i64)",
    "declare ptr @malloc(i64)",
    "declare void @free(ptr)",
    "declare i64 @llvm.ctlz.i64(i64, i1)",
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
    "declare i64 @llvm.smin.i64(i64, i64)",
    "declare i64 @llvm.smax.i64(i64, i64)",
    "declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)",
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    "declare i32 @clock_gettime(i32, ptr)",
    "declare i32 @sched_yield()",
)
_X86_DECLARATIONS = (
    "declare void @llvm.x86.sse2.pause()",
    "declare void @llvm.x86.sse.stmxcsr(ptr)",
    "declare void @llvm.x86.sse.ldmxcsr(ptr)",
)
_ARM_DECLARATIONS = (
    "declare void @llvm.aarch64.hint(i32)",
    "declare i64 @llvm.aarch64.get.fpcr()",
    "declare void @llvm.aarch64.set.fpcr(i64)",
)


def _texts() -> tuple[list[str], list[str]]:
    """Functions and declarations for this operating system and processor. CheckError on Windows."""
    if system.name() == system.WINDOWS:  # whose linker would not tell that they are missing
        raise CheckError(
            "compiled code does not run on Windows yet: its runtime calls clock_gettime and "
            "sched_yield, which Windows lacks; use Linux there (WSL), or functions without jit"
        )
    machine = system.machine()
    functions = [pool_code.TEXT, walk_code.TEXT, tape_code.TEXT, direct_code.TEXT]
    declarations = list(_DECLARATIONS)
    if machine == "x86_64":
        functions.append(_X86)
        declarations += _X86_DECLARATIONS
    elif machine == "aarch64":
        functions.append(_ARM)
        declarations += _ARM_DECLARATIONS
    else:
        functions.append(_OTHER)
    if system.name() == system.LINUX and machine in _FUTEX:
        functions.append(_LINUX)
        declarations.append("declare i64 @syscall(i64, ...)")
    else:
        functions.append(_ANYWHERE)
        declarations.append("declare i32 @usleep(i32)")
    return functions, declarations


def _names() -> dict[str, int]:
    """What the `$NAMES` in the texts stand for."""
    pool = {f"POOL_{name}": byte.value for name, byte in PoolByte.__members__.items()}
    return {
        **{name: word.value for name, word in Word.__members__.items()},
        **{f"OP_{name}": op.value for name, op in Op.__members__.items()},
        **{name: status.value for name, status in Status.__members__.items()},
        **pool,
        "TAPE_HEADER": tape_code.HEADER,
        "TAPE_BYTES": 8 * (tape_code.HEADER + tape_code.SLABS),
        "OPEN": OPEN,
        "INSIDE": OPEN - 1,
        "NEVER": NEVER,
        "POLL_NS": POLL_NS,
        "COPY_BLOCK": COPY_BLOCK,
        "CLOCK": 1 if system.name() == system.LINUX else 6,  # CLOCK_MONOTONIC
        "FUTEX": _FUTEX.get(system.machine(), 0),
        "CLASS_AT": _HEAD - 8,
        "DATA_AT": _HEAD,
        "NDIM_AT": _HEAD + 8,
        "SHAPE_AT": _HEAD + 16,
        "DTYPE_AT": _HEAD + 40,
        "FLAGS_AT": _HEAD + 48,
        "IN_PLACE": 0x101,  # NumPy's C_CONTIGUOUS and ALIGNED
    }


def _check_layouts() -> None:
    """Make sure tuples and NumPy's arrays look the way BIND reads them (since NumPy 1.0)."""
    table = (object(), object())
    items = (ctypes.c_int64 * 2).from_address(id(table) + tuple.__basicsize__)
    if list(items) != [id(item) for item in table]:
        raise CheckError(
            f"{sys.implementation.name} keeps tuples in an unknown layout; use CPython"
        )
    for array in (np.zeros((2, 3), np.float32), np.zeros((4, 6), np.int64)[::2, ::3], np.zeros(())):
        start = id(array) + _HEAD
        data, ndim, shape = (ctypes.c_int64.from_address(start + n).value for n in (0, 8, 16))
        dtype, flags = (ctypes.c_int64.from_address(start + n).value for n in (40, 48))
        ndim, flags = ndim & 0xFFFFFFFF, flags & 0x101
        dims = tuple(ctypes.c_int64.from_address(shape + 8 * n).value for n in range(ndim))
        expected = 0x100 | array.flags.c_contiguous
        seen = (data, dims, dtype, flags, ctypes.c_int64.from_address(start - 8).value)
        if seen != (array.ctypes.data, array.shape, id(array.dtype), expected, id(np.ndarray)):
            raise CheckError(
                f"NumPy {np.__version__} on {sys.implementation.name} keeps arrays in a layout "
                "this runtime does not know; use CPython with a released NumPy"
            )


@valued
class Runtime:
    """execute(frame address) -> Status and stop(pool address), both without the GIL.

    worker, copy: addresses of a pool thread's function and of the kernel that copies bytes.
    call: address of the C function that Python calls a program by, see `direct.py`.
    tapes: addresses of the kernels of tape_code.py by name. clear(region address) frees tapes.
    """

    execute: Callable[[int], int]
    stop: Callable[[int], None]
    worker: int
    copy: int
    call: int
    tapes: Mapping[str, int]
    clear: Callable[[int], None]


def stored_module(text: str, target: Target) -> Module:
    """A module of functions every program may call, compiled or read from the cache on disk."""
    if not config.cache:
        return compile_modules([ModuleText(text)], target)[0]
    made_for = f"{target.isa} {host_identity()} {entries.MAGIC!r}"
    name = hashlib.sha256(f"{text} {made_for}".encode()).hexdigest()
    image = entries.read(name)
    if image is not None:
        return Module(text, target, image)
    module = compile_modules([ModuleText(text)], target)[0]
    entries.write(name, module.image)
    return module


@functools.cache
def runtime() -> Runtime:
    """The native runtime, compiled or read from the cache on disk (once per process)."""
    _check_layouts()
    functions, declarations = _texts()
    names = _names()
    texts = [Template(text).substitute(names) for text in functions]
    # Worker threads may be inside this code while the interpreter exits, so it is never freed.
    target = host_target()
    module = stored_module(compose(texts, declarations, target), target).immortal()
    execute = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(module.address("fx_execute"))
    stop = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(module.address("fx_stop"))
    clear = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(module.address("fx_tape_clear"))
    tapes = {name: module.address(f"fx_tape_{name}") for name in tape_code.KERNELS}
    worker, copy = module.address("fx_worker"), module.address("fx_copy")
    return Runtime(execute, stop, worker, copy, module.address("fx_call"), tapes, clear)
