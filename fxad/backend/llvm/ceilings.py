"""What the machine can do at most, by generated loops, to be timed in turns with what is measured.

    run, flops = fma(threads=2)          # multiply-adds on registers alone, on two threads
    run, size = streams(3, 1, 1 << 24)   # reads three float32 arrays, writes one

Each is `(run, amount)`: a call to time, and the floating-point operations or bytes of that call.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import numpy as np

from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.native.engine import Module, compile_module, host_target

F32 = np.dtype("float32")
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


def fma(threads: int = 1, turns: int = 100_000) -> Ceiling:
    """Multiply-adds on registers alone; how many flops. 100,000 turns take about a millisecond:
    several threads want more of them, since starting one takes a tenth of that."""
    target = host_target()
    lanes, chains = target.lanes(F32), 12
    vector, name = f"<{lanes} x float>", f"llvm.fma.v{lanes}f32"
    params = (("ptr", "x"), ("i64", "begin"), ("i64", "end"), ("ptr", "out"))
    f = Function("peak", "void", params)
    x = f.op(f"load {vector}, ptr %x, align 4")

    def body(_: str, sums: list[str]) -> list[str]:
        call = f"call {vector} @{name}({vector} {x}, {vector} {x}, {vector}"
        return [f.op(f"{call} {s})") for s in sums]

    sums = f.loop("%begin", "%end", 1, body, [(vector, "zeroinitializer")] * chains, True)
    for i, value in enumerate(sums):
        f.line(f"store {vector} {value}, ptr {f.offset('%out', i * lanes * 4)}, align 4")
    f.ret()
    declaration = f"declare {vector} @{name}({vector}, {vector}, {vector})"
    module = compile_module([str(f)], [declaration], target)
    one = aligned(lanes)
    one[:] = 1e-3
    outs = [aligned(chains * lanes) for _ in range(threads)]
    calls = [(place(one), 0, turns, place(out)) for out in outs]
    return _together(module, "peak", calls, (one, outs)), 2.0 * lanes * chains * turns * threads


def streams(
    reads: int,
    writes: int,
    elements: int,
    threads: int = 1,
    in_place: bool = False,
    past: bool = False,
) -> Ceiling:
    """Sum `reads` float32 arrays into each of `writes` others; the bytes of both.

    Arrays are read and written once, in order, each thread its own part. With no writes the sum
    stays in registers. in_place: what is written are the first of the arrays that are read.
    past: stores go past the caches; otherwise the processor reads a written line first, which is
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

    stored = "align 64, !nontemporal !{i32 1}" if past else "align 4"
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


_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


def _together(
    module: Module, name: str, calls: list[tuple[int, int, int, int]], alive: object
) -> Callable[[], None]:
    """Runs each call on a thread of its own; the first on the caller's."""
    entry = _ENTRY(module.address(name))

    def run(_: object = (module, alive)) -> None:
        others = [threading.Thread(target=entry, args=call) for call in calls[1:]]
        for thread in others:
            thread.start()
        entry(*calls[0])
        for thread in others:
            thread.join()

    return run
