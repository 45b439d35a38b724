"""The AMX micro-kernel: up to 2 x 2 tiles of sums over some steps of 32 of K.

    micro = TileMicro("matmul0.2x2", high=2, wide=2, a=Tiled(64, 1024, 24576), b_pitch=24576, ...)
    text = micro.emit()

Sums are tiles 0 to 3, those of A are 4 and 5, those of B 6 and 7. While the products run, it asks
for what comes next: its part of the panel of B to come, and the lines that the epilogue touches.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.amx_pack import LINE_BYTES, LINES, TILE_BYTES
from fxad.backend.llvm.contract.lanes import Lanes, prefetch
from fxad.backend.llvm.contract.touch import Touch, Toucher
from fxad.core.record import valued

PARAMS = (
    ("i64", "steps"),
    ("ptr", "a"),
    ("ptr", "b"),
    ("ptr", "from"),  # sums that wait from the piece before; null: 0
    ("ptr", "to"),
    ("i64", "stride"),  # bytes between rows of `to`
    ("ptr", "next"),  # the part of the block to come that this call prefetches
    ("i64", "last"),  # all ones in the last piece of K, else 0
    ("i64", "ends"),
)
_A, _B = 4, 6


@valued
class Tiled:
    """Where tiles of A lie: bytes between lines, to the next step of K, to the next 16 rows."""

    line: int
    step: int
    tile: int


@valued
class Coming:
    """What a step fetches of a panel: lines in each of `rows`, and bytes on to the next step."""

    rows: int
    row_bytes: int
    lines: int
    step: int


@valued
class TileMicro:
    """high x wide tiles. waits: whether sums may go on from `from`. most: steps of a call. room:
    prefetches in a step for what the epilogue touches."""

    name: str
    high: int
    wide: int
    a: Tiled
    b_pitch: int
    waits: bool
    most: int
    coming: Coming
    touches: Sequence[Touch]
    room: int

    @property
    def params(self) -> list[tuple[str, str]]:
        return [*PARAMS, *(("ptr", f"touch{i}") for i in range(len(self.touches)))]

    def emit(self, lanes: Lanes) -> str:
        """The text of the internal function."""
        f = Function(self.name, "void", self.params, "internal", "#1")
        toucher = Toucher(f, self.touches, self.most, self.room)
        self.begin(f)

        def step(turn: str, pointers: list[str]) -> list[str]:
            a, b, following = pointers
            toucher.step(turn, lanes)
            self.fetch(f, self.coming, following, lanes)
            following = f.offset(following, self.coming.step)
            self.multiply(f, a, b)
            return [f.offset(a, self.a.step), f.offset(b, TILE_BYTES), following]

        pointers = [("ptr", f"%{name}") for name in ("a", "b", "next")]
        f.loop(0, "%steps", 1, step, pointers, at_least_once=True, reduce=True)
        self.sums(f, "tilestored64", "%to", "%stride")
        f.ret()
        return str(f)

    def begin(self, f: Function) -> None:
        """Sums of 0, or those that wait."""
        if not self.waits:
            self.zeros(f)
            return
        fresh, resume, start = (f.new_label(x) for x in ("fresh", "resume", "start"))
        f.branch(f.op("icmp eq ptr %from, null"), fresh, resume)
        f.label(fresh)
        self.zeros(f)
        f.jump(start)
        f.label(resume)
        self.sums(f, "tileloadd64", "%from", self.wide * LINE_BYTES)
        f.jump(start)
        f.label(start)

    def zeros(self, f: Function) -> None:
        for number in range(self.high * self.wide):
            f.line(f"call void @llvm.x86.tilezero(i8 {number})")

    def sums(self, f: Function, call: str, start: str, stride: str | int) -> None:
        """Load or store all tiles of sums."""
        for i in range(self.high):
            for j in range(self.wide):
                at = f.offset(start, f.add(f.mul(LINES * i, stride), LINE_BYTES * j))
                number = i * self.wide + j
                f.line(f"call void @llvm.x86.{call}(i8 {number}, ptr {at}, i64 {stride})")

    def fetch(self, f: Function, coming: Coming, pointer: str, lanes: Lanes) -> None:
        for i in range(coming.rows):
            for line in range(coming.lines):
                at = f.offset(pointer, i * coming.row_bytes + line * LINE_BYTES)
                prefetch(f, lanes.declarations, at, write=False, level=2)

    def multiply(self, f: Function, a: str, b: str) -> None:
        """One step of 32; tiles are loaded as they are first needed."""
        for i in range(self.high):
            _load(f, _A + i, f.offset(a, i * self.a.tile), self.a.line)
            for j in range(self.wide):
                if i == 0:
                    _load(f, _B + j, f.offset(b, j * self.b_pitch), LINE_BYTES)
                tiles = f"i8 {i * self.wide + j}, i8 {_A + i}, i8 {_B + j}"
                f.line(f"call void @llvm.x86.tdpbf16ps({tiles})")


def _load(f: Function, tile: int, at: str, stride: int) -> None:
    f.line(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr {at}, i64 {stride})")
