"""The micro-kernel: one register tile of the result over one block of K.

    kernel = MicroKernel(rows=8, columns=48, a_row=768, a_k=1, b_stride=48, ...)
    emit_micro_kernel("name.8x48", kernel, lanes)     # internal function, called per tile of rows

For each k: load the row of B into vectors, broadcast `rows` elements of A, multiply-add. All
strides are constants of the code, so an address is one register plus a displacement.
"""

from __future__ import annotations

from enum import IntFlag

import numpy as np

from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.lanes import Lanes, prefetch_line
from fxad.backend.llvm.contract.prefetch import PanelPrefetch, TileLines, TilePrefetcher, lines_of
from fxad.core.aligned import LINE
from fxad.core.record import valued

PARAMS = (
    ("i64", "iterations"),  # of `unroll` steps of k
    ("i64", "rest"),  # k left over
    ("ptr", "a"),
    ("ptr", "b"),
    ("ptr", "c"),
    ("ptr", "partial"),  # where sums are spilled between two cache blocks of K
    ("i64", "mode"),  # a Mode
    ("ptr", "pack"),  # where a packing kernel writes its copy of B
    ("ptr", "next"),  # what to prefetch, some lines in each iteration
    ("i64", "first"),  # number of the first iteration among those that do so
)


class Mode(IntFlag):
    """Where a tile's sums begin and end. STORE: at 0, c = sum."""

    STORE = 0
    ADD = 1  # c = c + sum
    SPILL = 2  # partial = sum
    RESUME = 4  # begin with partial sums
    STREAM = 8  # c = sum, by non-temporal stores: c begins at a line


@valued
class MicroKernel:
    """A micro-kernel's shape. Strides are in elements.

    b_stride: from one k to the next. packed: B is a packed panel. packs: also copy B, as it is
    read, into a packed panel. has_rest: blocks of K may leave k % unroll steps over; may_be_short:
    they may have no whole iteration at all. spills: a sum's block of K comes in several cache
    blocks. prefetches_partial: the next tile's partial sums are prefetched. panel_prefetch: of the
    part of B at `next`. tile_lines: what is prefetched for the tile, in so many `iterations` of the
    loop, at most `most_prefetches` in each. b_prefetch_steps: how many steps of k ahead a tile that
    reads B in place prefetches it; after the last it goes on with `next`. streams: sums may be
    written by non-temporal stores.
    """

    rows: int
    columns: int
    a_row: int
    a_k: int
    b_stride: int
    c_stride: int
    b_dtype: np.dtype
    unroll: int
    packed: bool
    packs: bool
    has_rest: bool
    may_be_short: bool
    spills: bool = False
    prefetches_partial: bool = True
    panel_prefetch: PanelPrefetch | None = None
    tile_lines: tuple[TileLines, ...] = ()
    iterations: int = 0
    b_prefetch_steps: int = 0
    streams: bool = False
    most_prefetches: int = 1

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """PARAMS and, where more is prefetched for the tile, when and where that starts."""
        if not self.tile_lines:
            return PARAMS
        starts = [("ptr", f"tile{i}") for i in range(len(self.tile_lines))]
        return (*PARAMS, ("i64", "last"), ("i64", "ends"), *starts)


class _Emitter:
    """Emits one micro-kernel; `counts` are the columns in each vector."""

    def __init__(self, f: Function, kernel: MicroKernel, lanes: Lanes) -> None:
        self.f, self.kernel, self.lanes = f, kernel, lanes
        starts = range(0, kernel.columns, lanes.width)
        self.counts = [min(lanes.width, kernel.columns - start) for start in starts]
        self.panel = len(self.counts) * lanes.width
        self.prefetcher = (
            TilePrefetcher(f, kernel.tile_lines, kernel.iterations, kernel.most_prefetches)
            if kernel.tile_lines
            else None
        )

    def step(self, a: str, b: str, pack: str, u: int, sums: list[str]) -> None:
        """Add the products of one k, `u` steps after the pointers, to `sums`."""
        f, kernel, lanes = self.f, self.kernel, self.lanes
        row = []
        for j, count in enumerate(self.counts):
            size = kernel.b_dtype.itemsize
            at = f.offset(b, (u * kernel.b_stride + j * lanes.width) * size)
            align = lanes.bytes * lanes.width if kernel.packed else 0
            # A packed panel is padded with zeros, so its last vector is whole.
            wanted = lanes.width if kernel.packed else count
            row.append(lanes.load(f, at, kernel.b_dtype, wanted, align))
            if kernel.packs:
                to = f.offset(pack, (u * self.panel + j * lanes.width) * lanes.bytes)
                lanes.store(f, row[-1], to, lanes.width, lanes.bytes * lanes.width)
        for i in range(kernel.rows):
            at = f.offset(a, (i * kernel.a_row + u * kernel.a_k) * lanes.bytes)
            value = lanes.factor(f, at)
            for j, vector in enumerate(row):
                k = i * len(row) + j
                sums[k] = lanes.multiply_add(f, value, vector, sums[k])

    def loop(self, count: str, unroll: int, values: list[str], main: bool) -> list[str]:
        """`count` iterations of `unroll` steps; values: a, b, pack, next, then the sums.

        main: the loop that does most of the work, and prefetches.
        """
        f, kernel, lanes = self.f, self.kernel, self.lanes
        if main and kernel.b_prefetch_steps:
            values[3] = f.offset(
                "%b", kernel.b_prefetch_steps * kernel.b_stride * kernel.b_dtype.itemsize
            )
            last = f.op(f"sub i64 {count}, {kernel.b_prefetch_steps // unroll + 1}")

        def body(iteration: str, carried: list[str]) -> list[str]:
            a, b, pack, following, *sums = carried
            if main and kernel.b_prefetch_steps:
                self.prefetch_b(following, unroll)
                step = unroll * kernel.b_stride * kernel.b_dtype.itemsize
                now = f.op(f"icmp eq i64 {iteration}, {last}")
                following = f.offset(following, step)
                following = f.op(f"select i1 {now}, ptr %next, ptr {following}")
            elif main and kernel.panel_prefetch:
                kernel.panel_prefetch.emit(f, following, "%first", iteration, lanes)
            if main and self.prefetcher:
                self.prefetcher.emit(iteration, lanes)
            if main and kernel.spills and kernel.prefetches_partial:
                self.prefetch_partial(iteration)
            for u in range(unroll):
                self.step(a, b, pack, u, sums)
            b = f.offset(b, unroll * kernel.b_stride * kernel.b_dtype.itemsize)
            if kernel.packs:
                pack = f.offset(pack, unroll * self.panel * lanes.bytes)
            return [f.offset(a, unroll * kernel.a_k * lanes.bytes), b, pack, following, *sums]

        types = ["ptr"] * 4 + [lanes.vector] * (len(values) - 4)
        carried = list(zip(types, values, strict=True))
        some = main and not kernel.may_be_short
        return f.loop(0, count, 1, body, carried, at_least_once=some, reduce=main)

    def prefetch_b(self, pointer: str, rows: int) -> None:
        """Prefetch some rows of a B that is read in place."""
        f, kernel, lanes = self.f, self.kernel, self.lanes
        row, size = (
            kernel.b_stride * kernel.b_dtype.itemsize,
            kernel.columns * kernel.b_dtype.itemsize,
        )
        for u in range(rows):
            for line in range(lines_of(size, row)):
                at = f.offset(pointer, u * row + line * LINE)
                prefetch_line(f, lanes.declarations, at, write=False, level=3)

    def prefetch_partial(self, iteration: str) -> None:
        """Prefetch a line of the next tile's partial sums, which lie behind this one's."""
        f, lanes = self.f, self.lanes
        behind = self.kernel.rows * self.panel * lanes.bytes
        at = f.offset("%partial", f.add(f.mul(iteration, LINE), behind))
        prefetch_line(f, lanes.declarations, at, write=False, level=3)

    def begin(self) -> list[str]:
        """Sums to begin with: 0, or partial ones."""
        f, kernel, lanes = self.f, self.kernel, self.lanes
        zeros = ["zeroinitializer"] * (kernel.rows * len(self.counts))
        if not kernel.spills:
            return zeros
        before = f.block
        resume, start = f.new_label("resume"), f.new_label("start")
        f.branch(self.in_mode(Mode.RESUME), resume, start)
        f.label(resume)
        found = [
            lanes.load(f, at, lanes.dtype, lanes.width, align) for at, align in self.partial_sums()
        ]
        f.jump(start)
        f.label(start)
        pairs = [
            f"[ {old}, %{resume} ], [ {zero}, %{before} ]"
            for old, zero in zip(found, zeros, strict=True)
        ]
        return [f.op(f"phi {lanes.vector} {pair}") for pair in pairs]

    def partial_sums(self) -> list[tuple[str, int]]:
        """(address, alignment) of every vector of partial sums."""
        f, kernel, lanes = self.f, self.kernel, self.lanes
        bytes, panel = lanes.bytes * lanes.width, self.panel * lanes.bytes
        return [
            (f.offset("%partial", i * panel + j * bytes), bytes)
            for i in range(kernel.rows)
            for j in range(len(self.counts))
        ]

    def in_mode(self, mode: Mode) -> str:
        f = self.f
        return f.op(f"icmp ne i64 {f.op(f'and i64 %mode, {int(mode)}')}, 0")

    def end(self, sums: list[str]) -> None:
        """Put the sums where the mode says, and return."""
        f, lanes = self.f, self.lanes
        if self.kernel.spills:
            spill, done = f.new_label("spill"), f.new_label("done")
            f.branch(self.in_mode(Mode.SPILL), spill, done)
            f.label(spill)
            for value, (at, align) in zip(sums, self.partial_sums(), strict=True):
                lanes.store(f, value, at, lanes.width, align)
            f.ret()
            f.label(done)
        # What is streamed is the whole sum: blocks of K do not add up in it.
        other = Mode.STREAM if self.kernel.streams else Mode.ADD
        yes, no = f.new_label("yes"), f.new_label("no")
        f.branch(self.in_mode(other), yes, no)
        for label, mode in ((yes, other), (no, Mode.STORE)):
            f.label(label)
            self.store(sums, mode)
            f.ret()

    def store(self, sums: list[str], mode: Mode) -> None:
        f, kernel, lanes = self.f, self.kernel, self.lanes
        for i in range(kernel.rows):
            for j, count in enumerate(self.counts):
                at = f.offset("%c", (i * kernel.c_stride + j * lanes.width) * lanes.bytes)
                value = sums[i * len(self.counts) + j]
                if mode == Mode.ADD:
                    value = lanes.add(f, lanes.load(f, at, lanes.dtype, count), value)
                lanes.store(f, value, at, count, streams=mode == Mode.STREAM)


def emit_micro_kernel(name: str, kernel: MicroKernel, lanes: Lanes) -> str:
    """The text of the internal function `name`."""
    f = Function(name, "void", kernel.parameters, "internal", "#1")
    emitter = _Emitter(f, kernel, lanes)
    for i in range(0 if kernel.tile_lines or kernel.streams else kernel.rows):
        at = f.offset("%c", i * kernel.c_stride * lanes.bytes)
        prefetch_line(f, lanes.declarations, at, write=True, level=3)
    values = ["%a", "%b", "%pack", "%next", *emitter.begin()]
    values = emitter.loop("%iterations", kernel.unroll, values, main=True)
    if kernel.has_rest:
        values = emitter.loop("%rest", 1, values, main=False)
    emitter.end(values[4:])
    return str(f)
