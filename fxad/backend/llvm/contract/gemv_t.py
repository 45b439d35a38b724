"""GEMV by a B whose columns are apart: k lies side by side in memory.

Squares of B, `lanes` columns by as many elements of k, are transposed in registers, so that a lane
is a column and every sum goes over k in order.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.contract.gemv_code import (
    Code,
    Operands,
    Unit,
    block_ends,
    call_epilogue,
    each_column_step,
    factor,
    half_of,
    load_pairs,
    operands_of,
    place_along,
    prefetch,
    with_packed_a,
)
from fxad.backend.llvm.contract.gemv_plan import ColumnsOfB
from fxad.backend.llvm.contract.unpack import PackedPart, Staging, emit_unpack
from fxad.core.aligned import LINE

Adder = Callable[[str, list[str]], list[str]]


def multiply_columns(code: Code, layout: ColumnsOfB, unit: Unit, operands: Operands | None) -> None:
    """All products of a unit's columns, and their epilogue. operands: of the only batch element;
    None where there are parts."""

    def all_parts(at: str, count: int) -> None:
        """Whole columns of B, which have all parts of K side by side, though those are elements."""

        def one(part: str, _: list[str]) -> None:
            found = operands_of(code, unit.element, part)
            if code.plan.packs_a:
                found = with_packed_a(code, found)
            _some_columns(code, layout, unit, found, at, count)

        code.f.loop(0, code.plan.parts, 1, one, at_least_once=True)

    def only_part(at: str, count: int) -> None:
        assert operands is not None
        _some_columns(code, layout, unit, operands, at, count)

    each_column_step(code, unit, all_parts if operands is None else only_part)


def _some_columns(
    code: Code, layout: ColumnsOfB, unit: Unit, operands: Operands, at: str, count: int
) -> None:
    f, plan, lanes = code.f, code.plan, code.lanes
    (rows, _, k_size), width, vector = plan.problem.size, lanes.width, lanes.vector
    zeros = [(vector, "zeroinitializer")] * rows

    def whole_steps(
        low: str, high: str, step: int, body: Adder, sums: list[str]
    ) -> tuple[str, list[str]]:
        """Whole steps of k; returns the k where they end, and the sums."""
        left = f.op(f"urem i64 {f.op(f'sub i64 {high}, {low}')}, {step}")
        whole, now = f.op(f"sub i64 {high}, {left}"), [(vector, value) for value in sums]
        return whole, f.loop(low, whole, step, body, now)

    def square(here: str) -> Adder:
        """As many (pairs of) elements of k as there are lanes."""

        def add(k: str, sums: list[str]) -> list[str]:
            if not operands.packed:
                _prefetch_square(code, layout, operands, here, k)
            found = [_load_along_k(code, _address(code, here, k, i)) for i in range(count)]
            steps = width * plan.per_lane
            return _add_transposed(code, operands, k, sums, found, steps, plan.per_lane)

        return add

    def rest(here: str, length: int) -> Adder:
        """The elements of k that do not fill a square, one in a lane."""

        def add(k: str, sums: list[str]) -> list[str]:
            places = [_address(code, here, k, i) for i in range(count)]
            found = [lanes.load(f, p, plan.source, length) for p in places]
            return _add_transposed(code, operands, k, sums, found, length, 1)

        return add

    column = f.add(unit.first, at)
    in_memory = f.offset(operands.b, f.mul(column, plan.pitch))

    def block(number: str, totals: list[str]) -> list[str]:
        low, high = block_ends(code, number)
        here = in_memory
        if operands.packed and plan.staging:
            here = _unpacked(code, operands.packed, plan.staging, column, count, low, high)
        sums = ["zeroinitializer"] * rows
        at, sums = whole_steps(low, high, width * plan.per_lane, square(here), sums)
        if plan.per_lane == 2:
            at, sums = whole_steps(at, high, width, rest(here, width), sums)
        if left := k_size % width:
            now = [(vector, value) for value in sums]
            sums = f.loop(at, high, width, rest(here, left), now)
        if plan.sum_blocks == 1:
            return sums
        is_first = f.op(f"icmp eq i64 {number}, 0")
        both = [lanes.add(f, old, new) for old, new in zip(totals, sums, strict=True)]
        return [
            f.op(f"select i1 {is_first}, {vector} {new}, {vector} {added}")
            for new, added in zip(sums, both, strict=True)
        ]

    totals = f.loop(0, plan.sum_blocks, 1, block, zeros, at_least_once=True)
    for i, total in enumerate(totals):
        place = f.offset(code.totals, f.mul(at, plan.size))
        lanes.store(f, total, f.offset(place, i * plan.chunk * plan.size), width)
    call_epilogue(code, unit, operands, at, count)


def _unpacked(
    code: Code,
    packed: PackedPart,
    staging: Staging,
    column: str,
    count: int,
    low: str,
    high: str,
) -> str:
    """Unpack columns for steps low ... high of k; where step 0 of the first one would lie."""
    f, name = code.f, f"{code.plan.name}.unpack"
    if name not in code.helpers:
        code.helpers[name], declarations = emit_unpack(name, staging, code.scope.code.target)
        code.lanes.declarations |= declarations
    size = str(count), f.op(f"sub i64 {high}, {low}")
    at = packed.unpacked(f, name, staging, (column, low), size, code.staging)
    skipped = f.op(f"sub i64 0, {f.mul(low, staging.dtype.itemsize)}")
    return f.offset(at, skipped)


def _prefetch_square(code: Code, layout: ColumnsOfB, operands: Operands, here: str, k: str) -> None:
    """Prefetch as much as a square has: of the same columns, or of the next tile in the order of
    memory. Some prefetchers follow one stream better than sixteen. After the columns' last tiles
    come the next ones' first."""
    f, plan, length = code.f, code.plan, layout.tile_bytes
    itemsize = plan.source.itemsize
    at, row = f.mul(k, itemsize), here
    if plan.parts > 1:
        before = f.mul(operands.part, plan.problem.size[2] * itemsize)
        row = f.offset(row, f.op(f"sub i64 0, {before}"))
        at = f.add(at, before)
    following = plan.step * plan.pitch
    if distance := layout.k_prefetch_bytes:
        place = f.offset(row, place_along(f, at, distance, layout.column_bytes, following))
        for i in range(plan.step):
            prefetch(code, place, i * plan.pitch)
        return
    inside = f.op(f"urem i64 {at}, {length}")
    next = f.op(f"add i64 {f.op(f'sub i64 {at}, {inside}')}, {length}")
    is_last = f.op(f"icmp eq i64 {next}, {layout.column_bytes}")
    next = f.op(f"select i1 {is_last}, i64 {following}, i64 {next}")
    start, done = f.offset(row, next), f.mul(inside, plan.step)
    square = plan.lanes * plan.per_lane * itemsize * plan.step
    for more in range(0, square, LINE):
        place = f.add(done, more)
        column = f.op(f"udiv i64 {place}, {length}")
        skip = f.mul(column, plan.pitch - length)
        prefetch(code, f.offset(start, f.add(place, skip)), 0)


def _address(code: Code, here: str, k: str, i: int) -> str:
    """Where the i-th column lies, at k."""
    at = code.f.offset(here, code.f.mul(k, code.plan.source.itemsize))
    return code.f.offset(at, i * code.plan.pitch)


def _load_along_k(code: Code, at: str) -> str:
    """A vector along k, of pairs of elements where two share a lane."""
    if code.plan.per_lane == 2:
        return load_pairs(code, at)
    return code.lanes.load(code.f, at, code.plan.source, code.lanes.width)


def _add_transposed(
    code: Code,
    operands: Operands,
    k: str,
    sums: list[str],
    columns: list[str],
    length: int,
    per_lane: int,
) -> list[str]:
    """Add the products of `length` elements of k, so many in a lane of each column's vector."""
    f, lanes, sums = code.f, code.lanes, list(sums)
    columns = columns + ["zeroinitializer"] * (lanes.width - len(columns))
    transposed = lanes.transpose(f, columns)
    for u in range(length):
        value = transposed[u // per_lane]
        if per_lane == 2:
            value = half_of(code, value, u % 2)
        for i in range(code.plan.problem.size[0]):
            sums[i] = lanes.multiply_add(f, factor(code, operands, i, k, u), value, sums[i])
    return sums
