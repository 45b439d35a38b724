"""What the machine can do at most, by generated loops, to be timed in turns with what is measured.

    run, flops = fma(threads=2)          # multiply-adds on registers alone, on two threads
    run, size = reading(1 << 26, 2)      # reads a float32 array, as fast as a loop can here
    run, size = streams(3, 1, 1 << 24)   # reads three, writes one

Each is `(run, amount)`: a call to time, and the floating-point operations or bytes of that call.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Callable

import numpy as np

from fxad.backend.llvm.base.schedule import ENTRY, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.lanes import prefetch_line
from fxad.backend.llvm.native.engine import Module, compile_module, host_target
from fxad.backend.llvm.peaks import OPERAND_BYTES, loop_of
from fxad.core.aligned import LINE
from fxad.ir.orders import bf16_unit

F32 = np.dtype("float32")
BF16_UNITS = {"tiles": "AMX", "pairs": "bf16 pairs", "lanes": "float32"}
_TURNS, _SECONDS, _REPEATS = 20_000, 0.004, 4  # of a first run; of those that count
_AHEAD = 1024  # bytes from a load to what is prefetched with it
Ceiling = tuple[Callable[[], None], float]


def aligned(*shape: int, dtype: np.dtype = F32) -> np.ndarray:
    """Uninitialised, at a multiple of 64 bytes."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def place(array: np.ndarray) -> int:
    """The address of an array's first element."""
    return array.__array_interface__["data"][0]


def fma(
    threads: int = 1, turns: int = 100_000, unit: str = "float32", target: Target | None = None
) -> Ceiling:
    """Multiply-adds of a unit (see `peaks.UNITS`) on registers alone; how many flops. 100,000 turns
    take about a millisecond: several threads want more of them, since starting one takes a tenth of
    that."""
    module, flops = _busy(unit, target or host_target())
    size = OPERAND_BYTES // F32.itemsize
    x, outs = aligned(size), [aligned(size) for _ in range(threads)]
    x[:] = 1e-3
    calls = [(place(x), 0, turns, place(out)) for out in outs]
    return _together(module, "peak", calls, (x, outs)), flops * turns * threads


def unit_for(dtype: str, target: Target | None = None) -> str:
    """The unit that large products of such factors run on."""
    if dtype != "bfloat16":
        return dtype
    return BF16_UNITS[bf16_unit((target or host_target()).features)]


@functools.cache
def _busy(unit: str, target: Target) -> tuple[Module, float]:
    """The compiled loop of a unit, and the operations of one turn."""
    text, declarations, flops = loop_of(unit, target)
    return compile_module([text], declarations, target), flops


def peak(unit: str, target: Target, threads: int) -> float:
    """GFLOP/s of a unit, the best of a few short runs."""
    short, _ = fma(threads, _TURNS, unit, target)
    turns = max(_TURNS, int(_TURNS * _SECONDS / _timed(short)))
    run, flops = fma(threads, turns, unit, target)
    return flops / min(_timed(run) for _ in range(_REPEATS)) / 1e9


def _timed(run: Callable[[], None]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def reading(elements: int, threads: int = 1) -> Ceiling:
    """Read a float32 array once, each thread its own part; the bytes of it.

    The fastest of three loops: along a thread's part; along both its halves in turn, two lines of
    each, prefetched a KiB ahead; the same into the second level. On an Emerald Rapids (two threads,
    24 November) the halves are read at 37 GB/s, a whole part at 30.
    """
    array = aligned(elements)
    array[:] = 1.0
    loops = [_reader(array, threads, *how) for how in ((1, 0), (2, 3), (2, 2))]
    best = [min(_timed(run) for _ in range(_REPEATS)) for run, _ in loops]
    return loops[best.index(min(best))]


def _reader(array: np.ndarray, threads: int, pieces: int, level: int) -> Ceiling:
    """A loop of four lines a turn, of so many pieces of a thread's part. level: into which they are
    prefetched; 0: they are not."""
    target, declarations = host_target(), set[str]()
    width = target.lanes(F32) * F32.itemsize
    vector, turn = f"<{target.lanes(F32)} x float>", 4 * LINE // pieces
    params = (("ptr", "x"), ("i64", "begin"), ("i64", "end"), ("ptr", "out"))
    f = Function("read", "void", params)
    piece = f.op(f"udiv i64 {f.op('sub i64 %end, %begin')}, {pieces}")

    def body(at: str, sums: list[str]) -> list[str]:
        after = list[str]()
        for number in range(pieces):
            start = f.offset("%x", f.add(at, f.mul(piece, number)))
            for place in range(0, turn, width):
                if level and place % LINE == 0:
                    prefetch_line(f, declarations, f.offset(start, place + _AHEAD), False, level)
                value = f.op(f"load {vector}, ptr {f.offset(start, place)}, align 4")
                after.append(f.op(f"fadd {vector} {sums[len(after)]}, {value}"))
        return after

    zeros = [(vector, "zeroinitializer")] * (4 * LINE // width)
    sums = f.loop("%begin", f.add("%begin", piece), turn, body, zeros, at_least_once=True)
    for i, value in enumerate(sums):
        f.line(f"store {vector} {value}, ptr {f.offset('%out', i * width)}, align 4")
    f.ret()
    module = compile_module([str(f)], declarations, target)
    part = array.nbytes // threads // (4 * LINE) * (4 * LINE)
    outs = [aligned(LINE) for _ in range(threads)]
    calls = [(place(array), i * part, (i + 1) * part, place(out)) for i, out in enumerate(outs)]
    return _together(module, "read", calls, (array, outs)), float(part * threads)


def streams(
    reads: int,
    writes: int,
    elements: int,
    threads: int = 1,
    in_place: bool = False,
    streaming: bool = False,
) -> Ceiling:
    """Sum `reads` float32 arrays into each of `writes` others; the bytes of both.

    Arrays are read and written once, in order, each thread its own part. With no writes the sum
    stays in registers. in_place: what is written are the first of the arrays that are read.
    streaming: stores are non-temporal; otherwise the processor reads a written line first, which is
    not counted.
    """
    target = host_target()
    lanes = target.lanes(F32)
    vector = f"<{lanes} x float>"
    unrolled = 4 if writes == 0 else 1
    arrays = [aligned(elements) for _ in range(reads + (0 if in_place else writes))]
    for array in arrays:
        array[:] = 1.0  # some memory reads zeros faster (an EPYC Zen 5: a copy 2.18 ms for 2.40)
    params = (("ptr", "table"), ("i64", "begin"), ("i64", "end"), ("ptr", "out"))
    f = Function("stream", "void", params)
    bases = [
        f.op(f"load ptr, ptr {f.offset('%table', 8 * i)}, align 8") for i in range(len(arrays))
    ]

    def load(base: str, index: str) -> str:
        pointer = f.op(f"getelementptr float, ptr {base}, i64 {index}")
        return f.op(f"load {vector}, ptr {pointer}, align 4")

    def body(index: str, sums: list[str]) -> list[str]:
        after = []
        for part, total in enumerate(sums):
            at = f.op(f"add i64 {index}, {part * lanes}")
            for base in bases[:reads]:
                total = f.op(f"fadd {vector} {total}, {load(base, at)}")
            for base in bases[:writes] if in_place else bases[reads:]:
                pointer = f.op(f"getelementptr float, ptr {base}, i64 {at}")
                f.line(f"store {vector} {total}, ptr {pointer}, {stored}")
            after.append("zeroinitializer" if writes else total)
        return after

    stored = "align 64, !nontemporal !{i32 1}" if streaming else "align 4"
    start = [(vector, "zeroinitializer")] * unrolled
    sums = f.loop("%begin", "%end", lanes * unrolled, body, start, True)
    for i, value in enumerate(sums):
        f.line(f"store {vector} {value}, ptr {f.offset('%out', i * lanes * 4)}, align 4")
    f.ret()
    module = compile_module([str(f)], [], target)
    table = (ctypes.c_void_p * len(arrays))(*map(place, arrays))
    step = elements // threads // (lanes * unrolled) * (lanes * unrolled)
    outs = [aligned(4 * lanes) for _ in range(threads)]
    calls = [
        (ctypes.addressof(table), i * step, (i + 1) * step, place(out))
        for i, out in enumerate(outs)
    ]
    size = 4.0 * step * threads * (reads + writes)
    return _together(module, "stream", calls, (arrays, table, outs)), size


def _together(
    module: Module, name: str, calls: list[tuple[int, int, int, int]], alive: object
) -> Callable[[], None]:
    """Runs each call on a thread of its own; the first on the caller's."""
    entry = ENTRY(module.address(name))

    def run(_: object = (module, alive)) -> None:
        others = [threading.Thread(target=entry, args=call) for call in calls[1:]]
        for thread in others:
            thread.start()
        entry(*calls[0])
        for thread in others:
            thread.join()

    return run
