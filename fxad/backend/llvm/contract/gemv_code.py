"""What the two kinds of GEMV share: their function as it is written, factors of A, prefetches.

A unit is a chunk of columns of one batch element; its totals lie in this thread's scratch, a row of
`chunk` elements for every row of A, until the epilogue takes them.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.arguments import address, at_grid_point
from fxad.backend.llvm.contract.epilogue import Epilogue
from fxad.backend.llvm.contract.gemv_plan import GemvPlan
from fxad.backend.llvm.contract.lanes import Lanes, prefetch_line
from fxad.backend.llvm.contract.unpack import PackedPart
from fxad.backend.llvm.elements.scope import Scope
from fxad.core.record import record, replace


@record
class Code:
    """The function as it is written. helpers: texts of the functions that it calls, by name.
    a_strides: of A in memory, along rows and k. packed_a_strides: of its copy. The last four are
    addresses in this thread's scratch, "" for what is not there."""

    plan: GemvPlan
    f: Function
    scope: Scope
    lanes: Lanes
    epilogue: Epilogue
    helpers: dict[str, str]
    a_strides: tuple[int, int]
    packed_a_strides: tuple[int, int]
    totals: str
    packed_a: str
    sums: str
    staging: str


@record
class Unit:
    """`count` columns from `first` on, of the batch elements that are parts of `element`."""

    element: str
    first: str
    count: str


@record
class Operands:
    """One batch element: its number, the part of the unit that it is, A with its strides, and B, or
    where it begins if it is packed."""

    batch: str
    part: str
    a: str
    a_strides: tuple[int, int]
    b: str
    packed: PackedPart | None


def operands_of(code: Code, unit_element: str, part: str) -> Operands:
    """A unit's batch element of that number, with A where it lies in memory."""
    f, plan = code.f, code.plan
    problem = plan.problem
    batch = f.add(f.mul(unit_element, plan.parts), part)
    here = at_grid_point(code.scope, problem.kernel, batch)
    a = address(here, problem.a.buffer, problem.a.base)
    if problem.packed:
        packed = PackedPart.at(here, replace(problem.packed, index=problem.b.base))
        return Operands(batch, part, a, code.a_strides, "null", packed)
    b = address(here, problem.b.buffer, problem.b.base)
    return Operands(batch, part, a, code.a_strides, b, None)


def with_packed_a(code: Code, operands: Operands) -> Operands:
    """The same with A where its copy lies."""
    rows, _, k = code.plan.problem.size
    a = code.f.offset(code.packed_a, code.f.mul(operands.part, rows * k * code.plan.size))
    return replace(operands, a=a, a_strides=code.packed_a_strides)


def each_column_step(code: Code, unit: Unit, body: Callable[[str, int], None]) -> None:
    """body(column within the chunk, how many) for whole steps, then for what is left."""
    f, step = code.f, code.plan.step
    left, whole = code.plan.problem.size[1] % step, unit.count
    if left:
        whole = f.mul(f.op(f"udiv i64 {unit.count}, {step}"), step)
    f.loop(0, whole, step, lambda at, _: body(at, step))
    if left:
        more = f.op(f"icmp slt i64 {whole}, {unit.count}")
        f.when(more, lambda: body(whole, left))


def block_ends(code: Code, block: str) -> tuple[str, str]:
    """The k at which a block of K begins and ends."""
    f, plan = code.f, code.plan
    k = plan.problem.size[2]
    if plan.sum_blocks == 1:
        return "0", str(k)
    low = f.mul(block, plan.sum_block)
    return low, f.least(f.add(low, plan.sum_block), k)


def factor(code: Code, operands: Operands, row: int, k: str, more: int = 0) -> str:
    """A[row, k + more] in all lanes."""
    f, size, (by_row, by_k) = code.f, code.plan.size, operands.a_strides
    at = f.offset(operands.a, f.mul(k, by_k * size))
    at = f.offset(at, (row * by_row + more * by_k) * size)
    return code.lanes.broadcast(f, code.lanes.element(f, at, code.plan.problem.dtype))


def load_pairs(code: Code, lanes: Lanes, at: str) -> str:
    """A vector of pairs of bfloat16."""
    wide = f"<{lanes.width} x i32>"
    found = code.f.op(f"load {wide}, ptr {at}, align {code.plan.source.itemsize}")
    return code.f.op(f"bitcast {wide} {found} to {lanes.vector}")


def half_of(code: Code, pairs: str, which: int) -> str:
    """The first or second bfloat16 of every lane as float32."""
    f, wide = code.f, f"<{code.lanes.width} x i32>"
    bits = f.op(f"bitcast {code.lanes.vector} {pairs} to {wide}")
    how = ("and", "-65536") if which else ("shl", "16")
    taken = f.op(f"{how[0]} {wide} {bits}, splat (i32 {how[1]})")
    return f.op(f"bitcast {wide} {taken} to {code.lanes.vector}")


def prefetch(code: Code, pointer: str, bytes: int) -> None:
    """Prefetch what lies so far behind a pointer."""
    at, level = code.f.offset(pointer, bytes), code.plan.tuning.prefetch_level
    prefetch_line(code.f, code.lanes.declarations, at, write=False, level=level)


def place_along(f: Function, at: str, distance: int, end: str | int, following: int) -> str:
    """The place `distance` bytes past `at` in a row that ends at `end`; past that, as far into what
    begins `following` bytes after the row does."""
    place = f.add(at, distance)
    is_past = f.op(f"icmp sge i64 {place}, {end}")
    beyond = f.op(f"sub i64 {f.add(place, following)}, {end}")
    return f.op(f"select i1 {is_past}, i64 {beyond}, i64 {place}")


def call_epilogue(code: Code, unit: Unit, operands: Operands, at: str, count: int) -> None:
    """The epilogue of columns whose totals are done."""
    f, rows = code.f, code.plan.problem.size[0]
    sums = f.offset(code.totals, f.mul(at, code.plan.size))
    column = f.add(unit.first, at)
    f.line(code.epilogue.call(operands.batch, sums, "0", column, rows, count))
