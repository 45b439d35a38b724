"""What products of few rows share: units of columns, factors of A, totals and their epilogue.

A unit is a chunk of columns of one batch element; its totals lie in this thread's scratch, a row of
`chunk` elements for every row of A, until the epilogue takes them.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.base.schedule import ABI, Emitted, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract import pack as packing
from fxad.backend.llvm.contract.epilogue import Finish
from fxad.backend.llvm.contract.grid import address, arguments, go_to
from fxad.backend.llvm.contract.lanes import Lanes, prefetch
from fxad.backend.llvm.contract.plan import FLOPS_PER_NS, Problem
from fxad.core.aligned import to_line
from fxad.ir.orders import k_block

_BYTES_PER_NS = 10.0


class FewRows:
    """One function under construction: units are chunks of columns of one batch element."""

    step: int  # columns that are computed and finished together
    parts: int = 1  # batch elements of a unit: parts of the same columns of B
    f: Function

    def __init__(self, problem: Problem, name: str, target: Target) -> None:
        self.problem, self.name, self.target = problem, name, target
        self.tuning = target.tuning.gemv
        self.rows, self.columns, self.k = problem.size
        self.lanes = Lanes(problem.dtype, target.lanes(problem.dtype))
        self.size, self.source = problem.dtype.itemsize, problem.b.buffer.dtype
        self.halves = 2 if self.source.name == "bfloat16" else 1  # elements in a lane of B
        self.block = k_block(self.k)
        self.blocks = -(-self.k // self.block)
        self.helpers: list[str] = []

    def chunked(self, most: int) -> None:
        """Cut the columns into at most so many units, an even number where there are several."""
        whole = self.columns * self.k * self.parts * self.source.itemsize
        count = max(1, min(most, self.tuning.most_units, whole // self.tuning.unit_bytes))
        steps = -(-self.columns // self.step)
        self.chunk = -(-steps // max(1, count & ~1)) * self.step
        self.chunks = -(-self.columns // self.chunk)

    def emit(self) -> Emitted:
        problem, a = self.problem, self.problem.a
        f = self.f = Function(self.name, "void", ABI)
        self.memory = arguments(problem.kernel, f, self.target)
        self.finish = Finish(problem, self.name, self.target, self.lanes, self.chunk)
        self.scratch_bytes = 0
        self.totals = self.scratch(self.rows * self.chunk)
        self.a_strides = (a.outer if self.rows > 1 else self.k, a.inner)
        self.packs_a = a.buffer.dtype != problem.dtype
        if self.packs_a:
            self.packed_a = self.scratch(self.rows * self.k * self.parts)
        self.begin()
        f.loop("%begin", "%end", 1, self.unit)
        f.ret()
        declarations = self.lanes.declarations | self.memory.code.declarations
        moved = self.columns * self.k * self.source.itemsize / _BYTES_PER_NS
        cost = problem.kernel.points * max(moved, problem.flops / FLOPS_PER_NS)
        return Emitted(
            self.name,
            "\n".join([*self.helpers, *self.finish.texts(), str(f)]),
            frozenset(declarations | self.finish.declarations),
            problem.kernel.points // self.parts * self.chunks,
            self.scratch_bytes,
            cost,
        )

    def begin(self) -> None:
        """Claim more scratch."""

    def scratch(self, elements: int) -> str:
        """The address of so many elements of this thread's scratch."""
        pointer = self.f.offset("%scratch", self.scratch_bytes)
        self.scratch_bytes += to_line(elements * self.size)
        return pointer

    def unit(self, unit: str, _: list[str]) -> None:
        f, first, self.element = self.f, "0", unit
        if self.chunks > 1:
            first = f.mul(f.op(f"urem i64 {unit}, {self.chunks}"), self.chunk)
            self.element = f.op(f"udiv i64 {unit}, {self.chunks}")
        if self.parts == 1:
            self.go_to_part("0")
            if self.packs_a:
                self.pack_a("0")
        elif self.packs_a:
            f.loop(0, self.parts, 1, self.pack_part, at_least_once=True)
        self.first, self.count = first, str(min(self.chunk, self.columns))
        if self.columns % self.chunk and self.chunks > 1:
            self.count = self.f.least(f.op(f"sub i64 {self.columns}, {first}"), self.chunk)
        self.compute()

    def compute(self) -> None:
        """All products of the columns first ... first + count - 1, and their epilogue."""
        raise NotImplementedError

    def go_to_part(self, part: str) -> None:
        """Take one of the unit's batch elements next."""
        f, problem = self.f, self.problem
        self.part, self.strides = part, self.a_strides
        self.batch = f.add(f.mul(self.element, self.parts), part)
        go_to(self.memory, problem.kernel, self.batch)
        self.a = address(self.memory, problem.a.buffer, problem.a.base)
        self.b = address(self.memory, problem.b.buffer, problem.b.base)

    def pack_part(self, part: str, _: list[str]) -> None:
        self.go_to_part(part)
        self.pack_a(part)

    def pack_a(self, part: str) -> None:
        """Convert A once, into scratch."""
        layout = packing.Source(*self.a_strides, self.problem.a.buffer.dtype)
        self.is_turned = packing.a_is_turned(layout)
        name = f"{self.name}.pack_a"
        if not self.helpers:
            stride = self.rows if self.is_turned else self.k
            self.helpers.append(packing.emit_pack_a(name, layout, stride, self.lanes))
        source = self.a
        self.take_packed(part)
        given = f"ptr {source}, ptr {self.a}, i64 {self.k}, i64 {self.rows}"
        self.f.line(f"call void @{name}({given})")

    def take_packed(self, part: str) -> None:
        """Read the part's A where its copy lies."""
        size = self.rows * self.k
        self.a = self.f.offset(self.packed_a, self.f.mul(part, size * self.size))
        self.strides = (1, self.rows) if self.is_turned else (self.k, 1)

    # ------------------------------------------------------------ pieces of code

    def each_step(self, body: Callable[[str, int], None]) -> None:
        """body(column within the chunk, how many) for whole steps, then for what is left."""
        f, left = self.f, self.columns % self.step
        whole = self.count
        if left:
            whole = f.mul(f.op(f"udiv i64 {self.count}, {self.step}"), self.step)
        f.loop(0, whole, self.step, lambda at, _: body(at, self.step))
        if left:
            more = f.op(f"icmp slt i64 {whole}, {self.count}")
            self.f.when(more, lambda: body(whole, left))

    def block_ends(self, block: str) -> tuple[str, str]:
        """The k at which a block of K begins and ends."""
        if self.blocks == 1:
            return "0", str(self.k)
        low = self.f.mul(block, self.block)
        return low, self.f.least(self.f.add(low, self.block), self.k)

    def factor(self, row: int, k: str, more: int = 0) -> str:
        """A[row, k + more] in all lanes."""
        by_row, by_k = self.strides
        at = self.f.offset(self.a, self.f.mul(k, by_k * self.size))
        at = self.f.offset(at, (row * by_row + more * by_k) * self.size)
        return self.lanes.broadcast(self.f, self.lanes.element(self.f, at, self.problem.dtype))

    def pairs(self, at: str) -> str:
        """A vector of pairs of bfloat16."""
        wide = f"<{self.lanes.width} x i32>"
        found = self.f.op(f"load {wide}, ptr {at}, align {self.source.itemsize}")
        return self.f.op(f"bitcast {wide} {found} to {self.lanes.vector}")

    def half(self, pairs: str, which: int) -> str:
        """The first or second bfloat16 of every lane as float32."""
        f, wide = self.f, f"<{self.lanes.width} x i32>"
        bits = f.op(f"bitcast {self.lanes.vector} {pairs} to {wide}")
        how = ("and", "-65536") if which else ("shl", "16")
        taken = f.op(f"{how[0]} {wide} {bits}, splat (i32 {how[1]})")
        return f.op(f"bitcast {wide} {taken} to {self.lanes.vector}")

    def ask(self, pointer: str, bytes: int) -> None:
        """Prefetch what lies so far behind a pointer."""
        at, level = self.f.offset(pointer, bytes), self.tuning.level
        prefetch(self.f, self.lanes.declarations, at, write=False, level=level)

    def along(self, at: str, distance: int, end: str | int, following: int) -> str:
        """The place `distance` bytes past `at` in a row that ends at `end`; past that, as far into
        what begins `following` bytes after the row does."""
        f = self.f
        place = f.add(at, distance)
        is_past = f.op(f"icmp sge i64 {place}, {end}")
        beyond = f.op(f"sub i64 {f.add(place, following)}, {end}")
        return f.op(f"select i1 {is_past}, i64 {beyond}, i64 {place}")

    def finished(self, at: str, count: int) -> None:
        """The epilogue of columns whose totals are done."""
        sums, column = self.f.offset(self.totals, self.f.mul(at, self.size)), None
        column = self.f.add(self.first, at)
        self.f.line(self.finish.call(self.batch, sums, "0", column, self.rows, count))
