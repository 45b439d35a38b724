"""The micro-kernel: one tile of the result over one block of K, accumulators in registers.

    tile = Tile(height=8, columns=48, a=..., b_stride=48, b_packed=True, c_stride=2304, ...)
    emit_micro("@name.8x48", tile, lanes)     # internal function, called per row block

For each k: load the row of B into vectors, broadcast `height` elements of A, multiply-add. All
strides are constants of the code, so an address is one register plus a displacement.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.contract_lanes import Lanes, prefetch
from fxad.backend.llvm.contract_touch import Touch, Toucher
from fxad.backend.llvm.text import Function
from fxad.core.record import valued

PARAMS = (
    ("i64", "steps"),  # k in groups of `unroll`
    ("i64", "rest"),  # k left over
    ("ptr", "a"),
    ("ptr", "b"),
    ("ptr", "c"),
    ("i64", "more"),  # 0: c = sum, else c = c + sum
    ("ptr", "pack"),  # where a packing kernel writes its copy of B
    ("ptr", "next"),  # where to prefetch, one line per group of `unroll`
    ("i64", "stride"),  # bytes from one prefetched line to the next
)


def params_of(tile: Tile) -> tuple[tuple[str, str], ...]:
    """PARAMS and, if the tile touches more, %touch and a corner for everything it touches."""
    if not tile.touches:
        return PARAMS
    corners = [("ptr", f"touch{i}") for i in range(len(tile.touches))]
    return (*PARAMS, ("i64", "touch"), *corners)


@valued
class Tile:
    """A micro-kernel's shape. Strides are in elements.

    b_stride: from one k to the next. aligned: B is a packed panel. packs: also copy B, as it is
    read, into a packed panel. some_rest: K blocks may leave k % unroll steps over; no_steps:
    they may have no whole group at all. touches: what is prefetched for the tile, in `turns` turns
    of the loop.
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
    prefetches: bool
    some_rest: bool
    no_steps: bool
    touches: tuple[Touch, ...] = ()
    turns: int = 0


class _Micro:
    """Emits one micro-kernel; `counts` are the columns in each vector."""

    def __init__(self, f: Function, tile: Tile, lanes: Lanes) -> None:
        self.f, self.tile, self.lanes = f, tile, lanes
        starts = range(0, tile.columns, lanes.width)
        self.counts = [min(lanes.width, tile.columns - start) for start in starts]
        self.panel = len(self.counts) * lanes.width
        self.toucher = Toucher(f, tile.touches, tile.height, tile.turns) if tile.touches else None

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
            value = lanes.broadcast(f, lanes.element(f, at, lanes.dtype))
            for j, vector in enumerate(row):
                k = i * len(row) + j
                sums[k] = lanes.multiply_add(f, value, vector, sums[k])

    def loop(self, count: str, unroll: int, values: list[str], at_least_once: bool) -> list[str]:
        """`count` groups of `unroll` steps; values: a, b, pack, next, then the sums."""
        f, tile, lanes = self.f, self.tile, self.lanes

        def body(turn: str, carried: list[str]) -> list[str]:
            a, b, pack, following, *sums = carried
            if tile.prefetches and unroll > 1:
                prefetch(f, lanes.declarations, following, write=False, level=2)
                following = f.offset(following, "%stride")
            if self.toucher and unroll > 1:
                self.toucher.step(turn, lanes)
            for u in range(unroll):
                self.step(a, b, pack, u, sums)
            b = f.offset(b, unroll * tile.b_stride * tile.b_dtype.itemsize)
            if tile.packs:
                pack = f.offset(pack, unroll * self.panel * lanes.bytes)
            return [f.offset(a, unroll * tile.a_k * lanes.bytes), b, pack, following, *sums]

        types = ["ptr"] * 4 + [lanes.vector] * (len(values) - 4)
        carried = list(zip(types, values, strict=True))
        return f.loop(0, count, 1, body, carried, at_least_once)

    def store(self, sums: list[str], more: bool) -> None:
        f, tile, lanes = self.f, self.tile, self.lanes
        for i in range(tile.height):
            for j, count in enumerate(self.counts):
                at = f.offset("%c", (i * tile.c_stride + j * lanes.width) * lanes.bytes)
                value = sums[i * len(self.counts) + j]
                if more:
                    value = lanes.add(f, lanes.load(f, at, lanes.dtype, count), value)
                lanes.store(f, value, at, count)


def emit_micro(name: str, tile: Tile, lanes: Lanes) -> str:
    """The text of the internal function `name` (see `params_of`)."""
    f = Function(name, "void", params_of(tile), "internal", "#1")
    micro = _Micro(f, tile, lanes)
    for i in range(0 if tile.touches else tile.height):
        at = f.offset("%c", i * tile.c_stride * lanes.bytes)
        prefetch(f, lanes.declarations, at, write=True, level=3)
    zeros = ["zeroinitializer"] * (tile.height * len(micro.counts))
    values = ["%a", "%b", "%pack", "%next", *zeros]
    values = micro.loop("%steps", tile.unroll, values, at_least_once=not tile.no_steps)
    if tile.some_rest:
        values = micro.loop("%rest", 1, values, at_least_once=False)
    sums = values[4:]
    again, first = f.new_label("again"), f.new_label("first")
    f.branch(f.op("icmp ne i64 %more, 0"), again, first)
    for label, more in ((again, True), (first, False)):
        f.label(label)
        micro.store(sums, more)
        f.ret()
    return str(f)
