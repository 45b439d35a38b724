"""The AMX micro-kernel: up to 2 x 2 tiles of sums over some steps of 32 of K.

    micro_kernel = AmxMicroKernel("matmul0.2x2", high=2, wide=2, pitch=24576, ...)
    text = micro_kernel.emit(lanes)

Sums are tiles 0 to 3, those of A are 4 and 5, those of B 6 and 7. While the products run, it
prefetches what comes next: its part of the next block of the operand that is packed as products go,
and the lines that the epilogue reads and writes.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.amx_tiles import LINE_BYTES, LINES, TILE_BYTES
from fxad.backend.llvm.contract.lanes import Lanes, prefetch_line
from fxad.backend.llvm.contract.prefetch import TileLines, TilePrefetcher
from fxad.core.record import valued

PARAMS = (
    ("i64", "iterations"),
    ("ptr", "a"),
    ("ptr", "b"),
    ("ptr", "from"),  # partial sums of the block of K before; null: 0
    ("ptr", "to"),
    ("i64", "stride"),  # bytes between rows of `to`
    ("ptr", "next"),  # the part of the block to come that this call prefetches
    ("i64", "last"),  # all ones in the last block of K, else 0
    ("i64", "ends"),
)
_A, _B = 4, 6


@valued
class BlockPrefetch:
    """What a step prefetches of the next block: lines in each of `rows`, and bytes on to
    the next step."""

    rows: int
    row_bytes: int
    lines: int
    step: int


@valued
class AmxMicroKernel:
    """high x wide tiles. pitch: bytes between rows of packed tiles. resumes: whether sums may go on
    from `from`. most_steps: of a call. most_prefetches: in a step, for what the epilogue reads and
    writes."""

    name: str
    high: int
    wide: int
    pitch: int
    resumes: bool
    most_steps: int
    prefetch: BlockPrefetch
    tile_lines: Sequence[TileLines]
    most_prefetches: int

    @property
    def parameters(self) -> list[tuple[str, str]]:
        return [*PARAMS, *(("ptr", f"tile{i}") for i in range(len(self.tile_lines)))]

    def emit(self, lanes: Lanes) -> str:
        """The text of the internal function."""
        f = Function(self.name, "void", self.parameters, "internal", "#1")
        prefetcher = TilePrefetcher(f, self.tile_lines, self.most_steps, self.most_prefetches)
        self.begin(f)

        def step(iteration: str, pointers: list[str]) -> list[str]:
            a, b, following = pointers
            prefetcher.emit(iteration, lanes)
            self.prefetch_next(f, self.prefetch, following, lanes)
            following = f.offset(following, self.prefetch.step)
            self.multiply(f, a, b)
            return [f.offset(a, TILE_BYTES), f.offset(b, TILE_BYTES), following]

        pointers = [("ptr", f"%{name}") for name in ("a", "b", "next")]
        f.loop(0, "%iterations", 1, step, pointers, at_least_once=True, reduce=True)
        self.sums(f, "tilestored64", "%to", "%stride")
        f.ret()
        return str(f)

    def begin(self, f: Function) -> None:
        """Sums of 0, or partial ones."""
        if not self.resumes:
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

    def prefetch_next(
        self, f: Function, prefetch: BlockPrefetch, pointer: str, lanes: Lanes
    ) -> None:
        for i in range(prefetch.rows):
            for line in range(prefetch.lines):
                at = f.offset(pointer, i * prefetch.row_bytes + line * LINE_BYTES)
                prefetch_line(f, lanes.declarations, at, write=False, level=2)

    def multiply(self, f: Function, a: str, b: str) -> None:
        """One step of 32; tiles are loaded as they are first needed."""
        for i in range(self.high):
            _load(f, _A + i, f.offset(a, i * self.pitch), LINE_BYTES)
            for j in range(self.wide):
                if i == 0:
                    _load(f, _B + j, f.offset(b, j * self.pitch), LINE_BYTES)
                tiles = f"i8 {i * self.wide + j}, i8 {_A + i}, i8 {_B + j}"
                f.line(f"call void @llvm.x86.tdpbf16ps({tiles})")


def _load(f: Function, tile: int, at: str, stride: int) -> None:
    f.line(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr {at}, i64 {stride})")
