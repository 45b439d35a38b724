"""The micro-kernel: one tile of the result over one block of K, accumulators in registers.

    tile = Tile(height=8, columns=48, a=..., b_stride=48, b_packed=True, c_stride=2304, ...)
    emit_micro("@name.8x48", tile, lanes)     # internal function, called per row block

For each k: load the row of B into vectors, broadcast `height` elements of A, multiply-add. All
strides are constants of the code, so an address is one register plus a displacement.
"""

from __future__ import annotations

from enum import IntFlag

import numpy as np

from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.ahead import Ahead
from fxad.backend.llvm.contract.lanes import Lanes, prefetch
from fxad.backend.llvm.contract.touch import Touch, Toucher, lines_of
from fxad.core.aligned import LINE
from fxad.core.record import valued

PARAMS = (
    ("i64", "steps"),  # k in groups of `unroll`
    ("i64", "rest"),  # k left over
    ("ptr", "a"),
    ("ptr", "b"),
    ("ptr", "c"),
    ("ptr", "waiting"),  # where sums are kept between two pieces of a block of K
    ("i64", "mode"),  # a Mode
    ("ptr", "pack"),  # where a packing kernel writes its copy of B
    ("ptr", "next"),  # where to prefetch, some lines per group of `unroll`
    ("i64", "turn"),  # number of the first group among those that do so
)


class Mode(IntFlag):
    """Where a tile's sums begin and end. FRESH: at 0, c = sum."""

    FRESH = 0
    ADDS = 1  # c = c + sum
    WAITS = 2  # waiting = sum
    GOES_ON = 4  # begin with what is waiting
    PAST = 8  # c = sum, past the caches: c begins at a line


def params_of(tile: Tile) -> tuple[tuple[str, str], ...]:
    """PARAMS and, if the tile touches more, when it does and where that starts."""
    if not tile.touches:
        return PARAMS
    corners = [("ptr", f"touch{i}") for i in range(len(tile.touches))]
    return (*PARAMS, ("i64", "last"), ("i64", "ends"), *corners)


@valued
class Tile:
    """A micro-kernel's shape. Strides are in elements.

    b_stride: from one k to the next. aligned: B is a packed panel. packs: also copy B, as it is
    read, into a packed panel. some_rest: pieces of K may leave k % unroll steps over; no_steps:
    they may have no whole group at all. waits: blocks of K come in several pieces. asks: the sums
    that wait for the next tile are prefetched. coming: what is prefetched of the part of B at
    `next`. touches: what is prefetched for the tile, in `turns` turns of the loop. ahead: how many
    steps of k ahead a tile that reads B in place prefetches it; after the last it goes on with
    `next`. past: sums may go past the caches.
    """

    height: int
    columns: int
    a_row: int
    a_k: int
    b_stride: int
    c_stride: int
    b_dtype: np.dtype
    unroll: int
    aligned: bool
    packs: bool
    some_rest: bool
    no_steps: bool
    waits: bool = False
    asks: bool = True
    coming: Ahead | None = None
    touches: tuple[Touch, ...] = ()
    turns: int = 0
    ahead: int = 0
    past: bool = False
    room: int = 1


class _Micro:
    """Emits one micro-kernel; `counts` are the columns in each vector."""

    def __init__(self, f: Function, tile: Tile, lanes: Lanes) -> None:
        self.f, self.tile, self.lanes = f, tile, lanes
        starts = range(0, tile.columns, lanes.width)
        self.counts = [min(lanes.width, tile.columns - start) for start in starts]
        self.panel = len(self.counts) * lanes.width
        self.toucher = Toucher(f, tile.touches, tile.turns, tile.room) if tile.touches else None

    def step(self, a: str, b: str, pack: str, u: int, sums: list[str]) -> None:
        """Add the products of one k, `u` steps after the pointers, to `sums`."""
        f, tile, lanes = self.f, self.tile, self.lanes
        row = []
        for j, count in enumerate(self.counts):
            size = tile.b_dtype.itemsize
            at = f.offset(b, (u * tile.b_stride + j * lanes.width) * size)
            align = lanes.bytes * lanes.width if tile.aligned else 0
            # A packed panel is padded with zeros, so its last vector is whole.
            wanted = lanes.width if tile.aligned else count
            row.append(lanes.load(f, at, tile.b_dtype, wanted, align))
            if tile.packs:
                to = f.offset(pack, (u * self.panel + j * lanes.width) * lanes.bytes)
                lanes.store(f, row[-1], to, lanes.width, lanes.bytes * lanes.width)
        for i in range(tile.height):
            at = f.offset(a, (i * tile.a_row + u * tile.a_k) * lanes.bytes)
            value = lanes.factor(f, at)
            for j, vector in enumerate(row):
                k = i * len(row) + j
                sums[k] = lanes.multiply_add(f, value, vector, sums[k])

    def loop(self, count: str, unroll: int, values: list[str], main: bool) -> list[str]:
        """`count` groups of `unroll` steps; values: a, b, pack, next, then the sums.

        main: the loop that does most of the work, and prefetches.
        """
        f, tile, lanes = self.f, self.tile, self.lanes
        if main and tile.ahead:
            values[3] = f.offset("%b", tile.ahead * tile.b_stride * tile.b_dtype.itemsize)
            turned = f.op(f"sub i64 {count}, {tile.ahead // unroll + 1}")

        def body(turn: str, carried: list[str]) -> list[str]:
            a, b, pack, following, *sums = carried
            if main and tile.ahead:
                self.fetch(following, unroll)
                step = unroll * tile.b_stride * tile.b_dtype.itemsize
                now = f.op(f"icmp eq i64 {turn}, {turned}")
                following = f.offset(following, step)
                following = f.op(f"select i1 {now}, ptr %next, ptr {following}")
            elif main and tile.coming:
                tile.coming.step(f, following, "%turn", turn, lanes)
            if main and self.toucher:
                self.toucher.step(turn, lanes)
            if main and tile.waits and tile.asks:
                self.fetch_waiting(turn)
            for u in range(unroll):
                self.step(a, b, pack, u, sums)
            b = f.offset(b, unroll * tile.b_stride * tile.b_dtype.itemsize)
            if tile.packs:
                pack = f.offset(pack, unroll * self.panel * lanes.bytes)
            return [f.offset(a, unroll * tile.a_k * lanes.bytes), b, pack, following, *sums]

        types = ["ptr"] * 4 + [lanes.vector] * (len(values) - 4)
        carried = list(zip(types, values, strict=True))
        some = main and not tile.no_steps
        return f.loop(0, count, 1, body, carried, at_least_once=some, reduce=main)

    def fetch(self, pointer: str, rows: int) -> None:
        """Prefetch some rows of a B that is read in place."""
        f, tile, lanes = self.f, self.tile, self.lanes
        row, size = tile.b_stride * tile.b_dtype.itemsize, tile.columns * tile.b_dtype.itemsize
        for u in range(rows):
            for line in range(lines_of(size, row)):
                at = f.offset(pointer, u * row + line * LINE)
                prefetch(f, lanes.declarations, at, write=False, level=3)

    def fetch_waiting(self, turn: str) -> None:
        """Prefetch a line of the sums that wait for the next tile, which lie behind this one's."""
        f, lanes = self.f, self.lanes
        behind = self.tile.height * self.panel * lanes.bytes
        at = f.offset("%waiting", f.add(f.mul(turn, LINE), behind))
        prefetch(f, lanes.declarations, at, write=False, level=3)

    def begin(self) -> list[str]:
        """Sums to begin with: 0, or those that wait."""
        f, tile, lanes = self.f, self.tile, self.lanes
        zeros = ["zeroinitializer"] * (tile.height * len(self.counts))
        if not tile.waits:
            return zeros
        before = f.block
        resume, start = f.new_label("resume"), f.new_label("start")
        f.branch(self.in_mode(Mode.GOES_ON), resume, start)
        f.label(resume)
        found = [lanes.load(f, at, lanes.dtype, lanes.width, align) for at, align in self.kept()]
        f.jump(start)
        f.label(start)
        pairs = [
            f"[ {old}, %{resume} ], [ {zero}, %{before} ]"
            for old, zero in zip(found, zeros, strict=True)
        ]
        return [f.op(f"phi {lanes.vector} {pair}") for pair in pairs]

    def kept(self) -> list[tuple[str, int]]:
        """(address, alignment) of every vector of sums that waits."""
        f, tile, lanes = self.f, self.tile, self.lanes
        bytes, panel = lanes.bytes * lanes.width, self.panel * lanes.bytes
        return [
            (f.offset("%waiting", i * panel + j * bytes), bytes)
            for i in range(tile.height)
            for j in range(len(self.counts))
        ]

    def in_mode(self, mode: Mode) -> str:
        f = self.f
        return f.op(f"icmp ne i64 {f.op(f'and i64 %mode, {int(mode)}')}, 0")

    def end(self, sums: list[str]) -> None:
        """Put the sums where the mode says, and return."""
        f, lanes = self.f, self.lanes
        if self.tile.waits:
            keep, done = f.new_label("keep"), f.new_label("done")
            f.branch(self.in_mode(Mode.WAITS), keep, done)
            f.label(keep)
            for value, (at, align) in zip(sums, self.kept(), strict=True):
                lanes.store(f, value, at, lanes.width, align)
            f.ret()
            f.label(done)
        # What goes past the caches is the whole sum: blocks of K do not add up in it.
        other = Mode.PAST if self.tile.past else Mode.ADDS
        yes, no = f.new_label("yes"), f.new_label("no")
        f.branch(self.in_mode(other), yes, no)
        for label, mode in ((yes, other), (no, Mode.FRESH)):
            f.label(label)
            self.store(sums, mode)
            f.ret()

    def store(self, sums: list[str], mode: Mode) -> None:
        f, tile, lanes = self.f, self.tile, self.lanes
        for i in range(tile.height):
            for j, count in enumerate(self.counts):
                at = f.offset("%c", (i * tile.c_stride + j * lanes.width) * lanes.bytes)
                value = sums[i * len(self.counts) + j]
                if mode == Mode.ADDS:
                    value = lanes.add(f, lanes.load(f, at, lanes.dtype, count), value)
                lanes.store(f, value, at, count, past=mode == Mode.PAST)


def emit_micro(name: str, tile: Tile, lanes: Lanes) -> str:
    """The text of the internal function `name` (see `params_of`)."""
    f = Function(name, "void", params_of(tile), "internal", "#1")
    micro = _Micro(f, tile, lanes)
    for i in range(0 if tile.touches or tile.past else tile.height):
        at = f.offset("%c", i * tile.c_stride * lanes.bytes)
        prefetch(f, lanes.declarations, at, write=True, level=3)
    values = ["%a", "%b", "%pack", "%next", *micro.begin()]
    values = micro.loop("%steps", tile.unroll, values, main=True)
    if tile.some_rest:
        values = micro.loop("%rest", 1, values, main=False)
    micro.end(values[4:])
    return str(f)
