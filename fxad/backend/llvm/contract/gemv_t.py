"""GEMV by a B whose columns are apart: k lies side by side in memory.

Squares of B, `lanes` columns by as many elements of k, are transposed in registers, so that a lane
is a column and every sum goes over k in order. An addition to a sum waits for the one before it, so
vectors of few lanes leave the processor idle: there several blocks of K, or several parts of a long
K, go in turns, by half squares of which all fit into registers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

from fxad.backend.llvm.contract.gemv_code import (
    Code,
    Operands,
    Unit,
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
from fxad.backend.llvm.contract.lanes import Lanes
from fxad.backend.llvm.contract.unpack import Staging, emit_unpack
from fxad.core.aligned import LINE
from fxad.core.record import record, replace

T = TypeVar("T")
# (a square, where in k, its sums) -> the sums after it
Adder = Callable[["Square", str, list[str]], list[str]]


@record
class Square:
    """`count` columns from the unit's column `at` on, no more than lanes, of one part of K. here:
    where they lie, at step 0 of that part; "" for what is packed."""

    operands: Operands
    at: str
    count: int
    here: str


@record
class Chain:
    """`length` steps of k of a square from `start` on, added up one after the other."""

    square: Square
    start: str
    length: int


def multiply_columns(code: Code, layout: ColumnsOfB, unit: Unit, operands: Operands | None) -> None:
    """All products of a unit's columns, and their epilogue. operands: of the only batch element;
    None where there are parts."""
    f, plan = code.f, code.plan

    def all_parts(at: str, count: int) -> None:
        """Whole columns of B, which have all parts of K side by side, though those are elements."""

        def some(first: str, parts: int) -> None:
            found = [operands_of(code, unit.element, f.add(first, i)) for i in range(parts)]
            if plan.packs_a:
                found = [with_packed_a(code, one) for one in found]
            _some_columns(code, layout, unit, found, at, count)

        whole = plan.parts // layout.chains * layout.chains
        if whole:
            f.loop(0, whole, layout.chains, lambda n, _: some(n, layout.chains), at_least_once=True)
        if left := plan.parts - whole:
            some(str(whole), left)

    def only_part(at: str, count: int) -> None:
        assert operands is not None
        _some_columns(code, layout, unit, [operands], at, count)

    each_column_step(code, unit, all_parts if operands is None else only_part)


def _some_columns(
    code: Code, layout: ColumnsOfB, unit: Unit, parts: Sequence[Operands], at: str, count: int
) -> None:
    """Products of `count` columns, and their epilogue. parts: of K, which go in turns; the blocks
    of K do where there is one."""
    f, plan, lanes = code.f, code.plan, code.lanes
    (rows, _, k_size), vector, block = plan.problem.size, lanes.vector, plan.sum_block

    def square(operands: Operands, first: int) -> Square:
        here = f.add(at, first)
        start = f.offset(operands.b, f.mul(f.add(unit.first, here), plan.pitch))
        return Square(operands, here, min(lanes.width, count - first), start)

    squares = [square(one, first) for one in parts for first in range(0, count, lanes.width)]

    def blocks(number: str, totals: list[str], lengths: Sequence[int]) -> list[str]:
        """Add blocks of these lengths that follow each other, from that number on."""
        low, these = f.mul(number, block), squares
        if plan.staging:
            end = f.add(low, lengths[0])
            these = [_unpacked(code, plan.staging, unit, one, low, end) for one in squares]
        chains = [
            Chain(one, f.add(low, i * block), length)
            for one in these
            for i, length in enumerate(lengths)
        ]
        found = _sums(code, layout, chains)
        if plan.sum_blocks == 1:
            return [value for sums in found for value in sums]
        is_first = f.op(f"icmp eq i64 {number}, 0")
        added: list[str] = []
        for now, sums in zip(_groups(totals, rows), _groups(found, len(lengths)), strict=True):
            for i, new in enumerate(sums):
                now = [lanes.add(f, a, b) for a, b in zip(now, new, strict=True)]
                if not i:  # 0 + -0 is not -0
                    now = [
                        f.op(f"select i1 {is_first}, {vector} {a}, {vector} {b}")
                        for a, b in zip(new, now, strict=True)
                    ]
            added += now
        return added

    def add(first: int, lengths: Sequence[int], end: int, totals: list[str]) -> list[str]:
        if end - first == len(lengths):
            return blocks(str(first), totals, lengths)
        now = [(vector, value) for value in totals]
        body = functools.partial(blocks, lengths=lengths)
        return f.loop(first, end, len(lengths), body, now, at_least_once=True)

    totals = ["zeroinitializer"] * (rows * len(squares))
    step = layout.chains if len(parts) == 1 else 1
    whole, left = divmod(k_size, block)
    if together := whole // step * step:
        totals = add(0, [block] * step, together, totals)
    if last := [block] * (whole - together) + [left] * (left > 0):
        totals = add(together, last, together + len(last), totals)
    for one, of_square in zip(squares, _groups(totals, rows), strict=True):
        for i, total in enumerate(of_square):
            place = f.offset(code.totals, f.mul(one.at, plan.size))
            lanes.store(f, total, f.offset(place, i * plan.chunk * plan.size), lanes.width)
        call_epilogue(code, unit, one.operands, one.at, one.count)


def _sums(code: Code, layout: ColumnsOfB, chains: Sequence[Chain]) -> list[list[str]]:
    """The sums along every chain; the last may be shorter than the others."""
    f, plan, lanes = code.f, code.plan, code.lanes
    rows, width, vector = plan.problem.size[0], lanes.width, lanes.vector
    sums = [["zeroinitializer"] * rows for _ in chains]

    def squares(one: Square, k: str, sums: list[str]) -> list[str]:
        """As many (pairs of) elements of k as there are lanes, or half as many."""
        if not plan.staging:
            _prefetch_square(code, layout, one, k)
        places = [_address(code, one.here, k, i) for i in range(one.count)]
        found = _transposed(code, layout, places)
        return _add_products(code, one.operands, k, sums, found, layout.depth, plan.per_lane)

    def elements(number: int) -> Adder:
        """Elements of k that fill no square, one in a lane."""

        def add(one: Square, k: str, sums: list[str]) -> list[str]:
            places = [_address(code, one.here, k, i) for i in range(one.count)]
            found = [lanes.load(f, place, plan.source, number) for place in places]
            found = lanes.transpose(f, _filled(found, width))
            return _add_products(code, one.operands, k, sums, found, number, 1)

        return add

    def go(who: Sequence[int], done: int, end: int, step: int, body: Adder) -> int:
        """Whole steps of some chains, from so far on; how far they come."""
        whole = (end - done) // step * step
        if not whole:
            return done
        first = chains[who[0]].start
        apart = [f.op(f"sub i64 {chains[j].start}, {first}") for j in who[1:]]

        def add(k: str, values: list[str]) -> list[str]:
            found: list[str] = []
            for i, (j, now) in enumerate(zip(who, _groups(values, rows), strict=True)):
                found += body(chains[j].square, f.add(k, apart[i - 1]) if i else k, now)
            return found

        before = [(vector, value) for j in who for value in sums[j]]
        low, high = f.add(first, done), f.add(first, done + whole)
        found = f.loop(low, high, step, add, before, at_least_once=True)
        for j, now in zip(who, _groups(found, rows), strict=True):
            sums[j] = now
        return done + whole

    together = go(range(len(chains)), 0, chains[-1].length, layout.depth, squares)
    for j, chain in enumerate(chains):
        done = go([j], together, chain.length, layout.depth, squares)
        if plan.per_lane == 2 or layout.depth < width:
            done = go([j], done, chain.length, width, elements(width))
        if left := chain.length - done:
            go([j], done, chain.length, left, elements(left))
    return sums


def _groups(values: list[T], size: int) -> list[list[T]]:
    return [values[i : i + size] for i in range(0, len(values), size)]


def _unpacked(
    code: Code, staging: Staging, unit: Unit, square: Square, low: str, high: str
) -> Square:
    """A square whose steps low ... high of k are unpacked."""
    f, name, packed = code.f, f"{code.plan.name}.unpack", square.operands.packed
    assert packed is not None
    if name not in code.helpers:
        code.helpers[name], declarations = emit_unpack(name, staging, code.scope.code.target)
        code.lanes.declarations |= declarations
    column = f.add(unit.first, square.at)
    size = str(square.count), f.op(f"sub i64 {high}, {low}")
    at = packed.unpacked(f, name, staging, (column, low), size, code.staging)
    skipped = f.op(f"sub i64 0, {f.mul(low, staging.dtype.itemsize)}")
    return replace(square, here=f.offset(at, skipped))


def _prefetch_square(code: Code, layout: ColumnsOfB, square: Square, k: str) -> None:
    """Prefetch as much as a square has: of the same columns, or of the next tile in the order of
    memory. Some prefetchers follow one stream better than sixteen. After the columns' last tiles
    come the next ones' first."""
    f, plan, length = code.f, code.plan, layout.tile_bytes
    itemsize, columns = plan.source.itemsize, plan.lanes
    at, row = f.mul(k, itemsize), square.here
    if plan.parts > 1:
        before = f.mul(square.operands.part, plan.problem.size[2] * itemsize)
        row = f.offset(row, f.op(f"sub i64 0, {before}"))
        at = f.add(at, before)
    following = plan.step * plan.pitch
    if distance := layout.k_prefetch_bytes:
        place = f.offset(row, place_along(f, at, distance, layout.column_bytes, following))
        for i in range(columns):
            prefetch(code, place, i * plan.pitch)
        return
    inside = f.op(f"urem i64 {at}, {length}")
    next = f.op(f"add i64 {f.op(f'sub i64 {at}, {inside}')}, {length}")
    is_last = f.op(f"icmp eq i64 {next}, {layout.column_bytes}")
    next = f.op(f"select i1 {is_last}, i64 {following}, i64 {next}")
    start, done = f.offset(row, next), f.mul(inside, columns)
    for more in range(0, layout.depth * itemsize * columns, LINE):
        place = f.add(done, more)
        column = f.op(f"udiv i64 {place}, {length}")
        skip = f.mul(column, plan.pitch - length)
        prefetch(code, f.offset(start, f.add(place, skip)), 0)


def _address(code: Code, here: str, k: str, i: int) -> str:
    """Where the i-th column lies, at k."""
    at = code.f.offset(here, code.f.mul(k, code.plan.source.itemsize))
    return code.f.offset(at, i * code.plan.pitch)


def _transposed(code: Code, layout: ColumnsOfB, places: Sequence[str]) -> list[str]:
    """Squares at these places of columns: vectors of (pairs of) elements of k, a column in a lane.

    Of half a square the columns' vectors are half as long, and two of them make one.
    """
    f, lanes = code.f, code.lanes
    length = layout.depth // code.plan.per_lane
    part = lanes if length == lanes.width else Lanes(lanes.dtype, length)
    found = [_load_along_k(code, part, place) for place in places]
    found = _filled(found, lanes.width)
    if part is not lanes:
        pairs = zip(found[:length], found[length:], strict=True)
        found = [lanes.side_by_side(f, low, high) for low, high in pairs]
    return lanes.transpose(f, found)


def _load_along_k(code: Code, lanes: Lanes, at: str) -> str:
    """A vector along k, of pairs of elements where two share a lane."""
    if code.plan.per_lane == 2:
        return load_pairs(code, lanes, at)
    return lanes.load(code.f, at, code.plan.source, lanes.width)


def _filled(columns: list[str], count: int) -> list[str]:
    return columns + ["zeroinitializer"] * (count - len(columns))


def _add_products(
    code: Code,
    operands: Operands,
    k: str,
    sums: list[str],
    transposed: Sequence[str],
    length: int,
    per_lane: int,
) -> list[str]:
    """Add the products of `length` elements of k, so many in a lane."""
    f, lanes, sums = code.f, code.lanes, list(sums)
    for u in range(length):
        value = transposed[u // per_lane]
        if per_lane == 2:
            value = half_of(code, value, u % 2)
        for i in range(code.plan.problem.size[0]):
            sums[i] = lanes.multiply_add(f, factor(code, operands, i, k, u), value, sums[i])
    return sums
