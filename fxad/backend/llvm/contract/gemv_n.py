"""GEMV by a B whose columns lie side by side: rows of B, each times one element of A, added up.

Rows go by in groups, and the sums of a unit's columns stay in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    place_along,
    prefetch,
)
from fxad.backend.llvm.contract.gemv_plan import RowsOfB


def multiply_rows(code: Code, layout: RowsOfB, unit: Unit, operands: Operands) -> None:
    """All products of a unit's columns, and their epilogue."""
    f, plan = code.f, code.plan
    f.loop(
        0,
        plan.sum_blocks,
        1,
        lambda block, _: _sum_block(code, layout, unit, operands, block),
        at_least_once=True,
    )
    if plan.per_lane == 2:
        whole = _whole_lines(code, layout, unit)

        def interleave(at: str, _: list[str]) -> None:
            for i in range(plan.problem.size[0]):
                row = f.offset(code.totals, i * plan.chunk * plan.size)
                _interleave_halves(code, row, at)

        f.loop(0, whole, 2 * plan.lanes, interleave)
    each_column_step(code, unit, lambda at, count: call_epilogue(code, unit, operands, at, count))


def _whole_lines(code: Code, layout: RowsOfB, unit: Unit) -> str:
    """How many of the unit's columns make whole lines of B."""
    line = layout.vectors * code.plan.lanes
    if not code.plan.problem.size[1] % line:
        return unit.count
    return code.f.mul(code.f.op(f"udiv i64 {unit.count}, {line}"), line)


def _interleave_halves(code: Code, row: str, at: str) -> None:
    """Columns with even and with odd numbers were summed apart: bring them together."""
    f, plan, width = code.f, code.plan, code.plan.lanes
    places = [f.offset(row, f.mul(at, plan.size))]
    places.append(f.offset(places[0], width * plan.size))
    even, odd = (_load(code, place) for place in places)
    for half, place in enumerate(places):
        picked = [half * width // 2 + j // 2 + j % 2 * width for j in range(width)]
        _store(code, code.lanes.shuffle(f, even, odd, picked), place)


def _sum_block(code: Code, layout: RowsOfB, unit: Unit, operands: Operands, block: str) -> None:
    """The first block of K adds up in the totals, others apart and then to them."""
    f, plan, group = code.f, code.plan, layout.group
    low, high = block_ends(code, block)
    into = code.totals
    if plan.sum_blocks > 1:
        is_first = f.op(f"icmp eq i64 {block}, 0")
        into = f.op(f"select i1 {is_first}, ptr {code.totals}, ptr {code.sums}")
    _each_vector(code, lambda at: _store(code, "zeroinitializer", f.offset(into, at)))
    left = f.op(f"urem i64 {f.op(f'sub i64 {high}, {low}')}, {group}")
    whole = f.op(f"sub i64 {high}, {left}")

    def rows(k: str, count: int) -> None:
        _add_rows(code, layout, unit, operands, into, k, count)

    f.loop(low, whole, group, lambda k, _: rows(k, group))
    f.loop(whole, high, 1, lambda k, _: rows(k, 1))
    if plan.sum_blocks > 1:
        later = f.op(f"icmp ne i64 {block}, 0")
        f.when(later, lambda: _each_vector(code, lambda at: _add_sums(code, at)))


def _each_vector(code: Code, body: Callable[[str], None]) -> None:
    """body(offset in bytes) for every vector of the sums, unused columns too."""
    plan = code.plan
    end, step = plan.problem.size[0] * plan.chunk * plan.size, plan.lanes * plan.size
    code.f.loop(0, end, step, lambda at, _: body(at), at_least_once=True)


def _add_sums(code: Code, at: str) -> None:
    total, more = (code.f.offset(p, at) for p in (code.totals, code.sums))
    _store(code, code.lanes.add(code.f, _load(code, total), _load(code, more)), total)


def _load(code: Code, pointer: str) -> str:
    return code.lanes.load(code.f, pointer, code.plan.problem.dtype, code.lanes.width)


def _store(code: Code, value: str, pointer: str) -> None:
    code.lanes.store(code.f, value, pointer, code.lanes.width)


def _add_rows(
    code: Code,
    layout: RowsOfB,
    unit: Unit,
    operands: Operands,
    into: str,
    k: str,
    group: int,
) -> None:
    """Rows k ... k + group - 1 of B, each times its element of every row of A."""
    f, plan, width = code.f, code.plan, code.plan.lanes
    a_rows, columns, _ = plan.problem.size
    itemsize = plan.source.itemsize
    factors = [[factor(code, operands, i, k, j) for j in range(group)] for i in range(a_rows)]
    start = f.add(f.mul(k, plan.pitch), f.mul(unit.first, itemsize))
    rows = [f.offset(operands.b, f.add(start, j * plan.pitch)) for j in range(group)]
    line = layout.vectors * width
    whole, left = _whole_lines(code, layout, unit), columns % line

    def some_columns(at: str, counts: Sequence[int]) -> None:
        here = f.mul(at, itemsize)
        places = [f.offset(row, here) for row in rows]
        sums = f.offset(into, f.mul(at, plan.size))
        if counts:
            _add_last(code, places, sums, factors, counts)
        else:
            _prefetch_rows(code, layout, unit, rows, places, here)
            _add_line(code, layout, places, sums, factors)

    f.loop(0, whole, line, lambda at, _: some_columns(at, []))
    if left:
        counts = [min(width, left - at) for at in range(0, left, width)]
        more = f.op(f"icmp slt i64 {whole}, {unit.count}")
        f.when(more, lambda: some_columns(whole, counts))


def _prefetch_rows(
    code: Code, layout: RowsOfB, unit: Unit, rows: list[str], places: list[str], here: str
) -> None:
    """Prefetch a line for each of the rows, which are read at `places`, `here` bytes from where
    they begin."""
    f, plan, distance = code.f, code.plan, layout.prefetch_bytes
    if layout.row_prefetch_bytes:
        end = f.mul(unit.count, plan.source.itemsize)
        following = len(rows) * plan.pitch
        at = place_along(f, here, layout.row_prefetch_bytes, end, following)
        places, distance = [f.offset(row, at) for row in rows], 0
    for place in places:
        prefetch(code, place, distance)


def _add_line(
    code: Code, layout: RowsOfB, places: list[str], sums: str, factors: list[list[str]]
) -> None:
    """A line of every row of B; of two elements in a lane each becomes a vector."""
    f, plan = code.f, code.plan
    step = plan.lanes * plan.source.itemsize
    for number in range(0, layout.vectors, plan.per_lane):
        at = [f.offset(place, number * step) for place in places]
        if plan.per_lane == 1:
            parts = [[code.lanes.load(f, p, plan.source, plan.lanes) for p in at]]
        else:
            pairs = [load_pairs(code, code.lanes, p) for p in at]
            parts = [[half_of(code, pair, which) for pair in pairs] for which in (0, 1)]
        for which, values in enumerate(parts):
            _add_products(code, values, sums, factors, number + which)


def _add_last(
    code: Code, places: list[str], sums: str, factors: list[list[str]], counts: Sequence[int]
) -> None:
    """The last columns, fewer than a line."""
    f, plan = code.f, code.plan
    step = plan.lanes * plan.source.itemsize
    for number, count in enumerate(counts):
        at = [f.offset(place, number * step) for place in places]
        values = [code.lanes.load(f, p, plan.source, count) for p in at]
        _add_products(code, values, sums, factors, number)


def _add_products(
    code: Code, values: list[str], sums: str, factors: list[list[str]], number: int
) -> None:
    """Add a vector of every row of B, times its factors, to the sums of that number."""
    f, plan = code.f, code.plan
    for i, row in enumerate(factors):
        at = f.offset(sums, (i * plan.chunk + number * plan.lanes) * plan.size)
        total = _load(code, at)
        for one, value in zip(row, values, strict=True):
            total = code.lanes.multiply_add(f, one, value, total)
        _store(code, total, at)
