"""bf16 products on AMX: 16 x 16 tiles of sums, 32 steps of k in one instruction.

    emit_amx_product(problem, "matmul0", target)       # what emit_contract answers, where uses_amx

Both operands are packed into tiles: where rows of A begin inside a cache line, as those of arrays
that others made may, tiles read from them in place take twice as many lines. K is cut into blocks
so short that one block of an operand stays in the first-level cache beside what the other streams
past it. Which operand is stationary depends on the rows:

- few, A: a unit's rows are packed once; a panel of columns is packed, an L1 block of K at a time,
  and met by all of them, while the lines of its next block are prefetched;
- many, B: panels of columns are packed, as many as the second-level cache keeps; each block of rows
  meets all of them, an L1 block of K at a time.

L1 blocks make an L2 block: as much of K as finds room in the second-level cache. Partial sums are
spilled to scratch memory from block to block.

`tdpbf16ps` adds up 16 products of even k and 16 of odd k, each by FMA from 0, then adds both to the
sum; what is denormal counts as 0. So the order over k is one of steps of 32, whatever blocks K is
cut into: it depends on sizes and types alone, as on every path, but is not that of paths without
tiles. Errors are no larger: no product passes through more than 16 + K / 32 roundings.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fxad.backend.llvm.base.schedule import ABI, Emitted, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.amx_blocking import TileBlocking, quotient
from fxad.backend.llvm.contract.amx_micro_kernel import AmxMicroKernel, BlockPrefetch
from fxad.backend.llvm.contract.amx_pack import TilePacker
from fxad.backend.llvm.contract.amx_tiles import (
    DECLARATIONS,
    DEPTH,
    LINE_BYTES,
    LINES,
    TILE_BYTES,
    configure_tiles,
)
from fxad.backend.llvm.contract.arguments import address, at_grid_point, load_arguments
from fxad.backend.llvm.contract.autotune import choice_of
from fxad.backend.llvm.contract.epilogue import Epilogue
from fxad.backend.llvm.contract.lanes import Lanes
from fxad.backend.llvm.contract.numbering import split
from fxad.backend.llvm.contract.pack import Source
from fxad.backend.llvm.contract.prefetch import lines_of, lines_under_tile, tile_operands
from fxad.backend.llvm.contract.problem import Matrix, Problem
from fxad.backend.llvm.contract.unpack import PackedPart, Staging, emit_unpack
from fxad.backend.llvm.elements.scope import Scope
from fxad.core.record import record, replace

_FLOAT = np.dtype(np.float32).itemsize


@record
class _Plan:
    """What is decided before code is written. pitch: bytes from one packed row (or column) of tiles
    to the next; block_bytes: of a block's sums; result: the matrix that holds whole sums, None:
    scratch, and then there is an epilogue. staging: what a panel of a B in few bits is unpacked
    into before it is packed. scratch_bytes: of packed B, packed A, partial sums, a block's sums and
    staging, in this order."""

    problem: Problem
    name: str
    blocking: TileBlocking
    micro_kernel: AmxMicroKernel
    result: Matrix | None
    tile_operands: list[tuple[Matrix, bool]]
    pitch: int
    block_bytes: int
    staging: Staging | None
    scratch_bytes: tuple[int, ...]


@record
class _Code:
    """The function as it is written. helpers: texts of the functions that it calls, by name. The
    last five are addresses in this thread's scratch, "" for what is not there."""

    plan: _Plan
    f: Function
    scope: Scope
    lanes: Lanes
    epilogue: Epilogue | None
    helpers: dict[str, str]
    declarations: set[str]
    packed_b: str
    packed_a: str
    partial_sums: str
    sums: str
    staging: str


@record
class _Region:
    """What a unit computes: blocks of rows [low, high) and panels of columns of a batch element,
    its scope, and where its operands and its result lie. has_new_rows: whether the unit before had
    others. packed: where B begins if it is in few bits."""

    batch: str
    scope: Scope
    rows: tuple[str, str]
    panels: tuple[str, str]
    a: str
    b: str
    c: str
    has_new_rows: str
    packed: PackedPart | None


@record
class _Block:
    """An L1 block of K: its first step of k, how many there are, and how many tiles. later,
    is_last: whether it is not the first and whether it is the last one of K, as bits; "" if there
    is only one."""

    start: str
    depth: str
    tiles: str
    later: str
    is_last: str


def emit_amx_product(problem: Problem, name: str, target: Target) -> Emitted:
    """LLVM IR of a product that `uses_amx`."""
    plan, tuning = _plan(problem, name, target), target.tuning.amx
    code = _code(plan, target)
    f, blocking = code.f, plan.blocking
    f.loop("%begin", "%end", 1, lambda unit, _: _unit(code, unit))
    f.line("call void @llvm.x86.tilerelease()")
    f.ret()
    texts = [*code.helpers.values()]
    declarations = code.declarations | code.scope.code.declarations | code.lanes.declarations
    if code.epilogue:
        texts += code.epilogue.texts()
        declarations |= code.epilogue.declarations
    return Emitted(
        name,
        "\n".join([*texts, str(f)]),
        frozenset(declarations),
        blocking.units,
        sum(plan.scratch_bytes),
        max(problem.flops * blocking.batch / tuning.flops_per_ns, 100.0),
    )


def _plan(problem: Problem, name: str, target: Target) -> _Plan:
    tuning = target.tuning.amx
    blocking = TileBlocking.of(problem, tuning, choice_of(problem, target).b_bytes)
    pitch = blocking.l1_block * TILE_BYTES
    block_bytes = blocking.high * blocking.wide * TILE_BYTES
    rows, columns, _ = problem.size
    whole = rows % blocking.block_rows == 0 and columns % blocking.block_columns == 0
    stores = problem.stage.stores
    plain = len(stores) == 1 and problem.is_identity(stores[0])
    result = problem.plain_result() if whole and plain else None
    operands = tile_operands(problem)
    size = blocking.block_rows, blocking.block_columns
    micro_kernel = AmxMicroKernel(
        name=f"{name}.{blocking.high}x{blocking.wide}",
        high=blocking.high,
        wide=blocking.wide,
        pitch=pitch,
        resumes=blocking.l1_blocks > 1,
        most_steps=blocking.l1_block,
        prefetch=_prefetch(problem, blocking),
        tile_lines=[lines_under_tile(m, write, size, sums=False) for m, write in operands],
        most_prefetches=tuning.tile_prefetches,
    )
    scratch = _scratch_bytes(blocking, pitch, block_bytes, has_epilogue=result is None)
    staging = None
    if (operand := problem.packed) and operand.packed:
        part = blocking.block_columns, blocking.l1_block * DEPTH
        part = part if problem.b.inner == 1 else part[::-1]
        staging = Staging.of(operand.packed, operand.dtype, *part, target)
    return _Plan(
        problem=problem,
        name=name,
        blocking=blocking,
        micro_kernel=micro_kernel,
        result=result,
        tile_operands=operands,
        pitch=pitch,
        block_bytes=block_bytes,
        staging=staging,
        scratch_bytes=(*scratch, staging.bytes if staging else 0),
    )


def _scratch_bytes(
    blocking: TileBlocking, pitch: int, block_bytes: int, has_epilogue: bool
) -> tuple[int, int, int, int]:
    rows, panels, spilled = blocking.unit_rows * blocking.l2_block, 1, blocking.unit_rows
    if blocking.b_stationary:
        rows, panels = 1, blocking.unit_columns * blocking.l2_block
        spilled = blocking.unit_columns
    if blocking.l2_blocks > 1:
        spilled = blocking.unit_rows * blocking.unit_columns
    return (
        panels * blocking.wide * pitch,
        rows * blocking.high * pitch,
        spilled * block_bytes if blocking.l1_blocks > 1 else 0,
        block_bytes if has_epilogue else 0,
    )


def _prefetch(problem: Problem, blocking: TileBlocking) -> BlockPrefetch:
    """What a micro-kernel prefetches in a step, of the next block of the operand that is packed as
    products go: it takes 32 rows, along k or across, to make the tiles of a step."""
    matrix, rows = problem.b, quotient(DEPTH, blocking.unit_rows)
    if blocking.b_stationary:
        matrix, rows = problem.a, quotient(DEPTH, blocking.unit_columns)
    size = matrix.buffer.dtype.itemsize
    row = max(abs(matrix.outer), abs(matrix.inner)) * size
    # Few bits come from memory fast enough without.
    lines = 0 if matrix is problem.b and problem.packed else lines_of(DEPTH * size, row)
    return BlockPrefetch(rows, row, lines, DEPTH * matrix.inner * size)


def _code(plan: _Plan, target: Target) -> _Code:
    """The function, at its start."""
    problem, lanes, epilogue = plan.problem, Lanes(plan.problem.dtype, LINES), None
    if plan.result is None:
        epilogue = Epilogue(problem, plan.name, target, lanes, plan.blocking.block_columns)
    f = Function(plan.name, "void", ABI)
    scope = load_arguments(problem.kernel, f, target)
    configure_tiles(f)
    places, start = [], 0
    for size in plan.scratch_bytes[:-1]:
        places.append(f.offset("%scratch", start))
        start += size
    places.append(f.offset("%scratch", start) if plan.staging else "")
    return _Code(plan, f, scope, lanes, epilogue, {}, set(DECLARATIONS), *places)


# ---------------------------------------------------------------- a unit


def _unit(code: _Code, unit: str) -> None:
    f, plan = code.f, code.plan
    blocking = plan.blocking
    column_unit, rest = split(f, unit, blocking.column_units)
    row_unit, batch = split(f, rest, blocking.row_units)
    here = at_grid_point(code.scope, plan.problem.kernel, batch)
    rows = _span(f, row_unit, blocking.unit_rows, blocking.row_blocks)
    panels = _span(f, column_unit, blocking.unit_columns, blocking.column_blocks)
    problem, packed = plan.problem, None
    if problem.packed:
        packed = PackedPart.at(here, replace(problem.packed, index=problem.b.base))
    matrices = (problem.a, *([plan.result] if plan.result else []))
    a, *c = (address(here, m.buffer, m.base) for m in matrices)
    b = "null" if packed else address(here, problem.b.buffer, problem.b.base)
    # Units are numbered so that those of the same rows follow each other.
    starts = f.op(f"icmp eq i64 {unit}, %begin"), f.op(f"icmp eq i64 {column_unit}, 0")
    has_new_rows = f.op(f"or i1 {starts[0]}, {starts[1]}")
    region = _Region(batch, here, rows, panels, a, b, c[0] if c else "", has_new_rows, packed)
    l2_block = _rows_meet_b if blocking.b_stationary else _panels_meet_a
    if blocking.l2_blocks == 1:
        l2_block(code, region, "0", str(blocking.l1_blocks))
        return

    def one_block(number: str, _: list[str]) -> None:
        first = f.mul(number, blocking.l2_block)
        left = f.op(f"sub i64 {blocking.l1_blocks}, {first}")
        l2_block(code, region, first, f.least(left, blocking.l2_block))

    f.loop(0, blocking.l2_blocks, 1, one_block, at_least_once=True)


def _span(f: Function, part: str, size: int, total: int) -> tuple[str, str]:
    """[part * size, min((part + 1) * size, total)), computed even where one part has all."""
    low = f.mul(part, size)
    return low, f.least(f.add(low, size), total)


def _panels_meet_a(code: _Code, region: _Region, first_block: str, blocks: str) -> None:
    """An L2 block, for few rows: they are packed, then meet a block of a panel after the other."""
    f, plan = code.f, code.plan
    blocking, b = plan.blocking, plan.problem.b

    def pack_rows() -> None:
        f.loop(0, blocks, 1, lambda p, _: pack_block(p))

    def pack_block(p: str) -> None:
        _pack_a(code, region, _block(code, first_block, p), p, *region.rows)

    if blocking.l2_blocks == 1:
        f.when(region.has_new_rows, pack_rows)
    else:
        pack_rows()

    def one_panel(n: str, columns: int) -> None:
        f.loop(0, blocks, 1, lambda p, _: meet(n, columns, p), at_least_once=True)

    def meet(n: str, columns: int, p: str) -> None:
        block = _block(code, first_block, p)
        _pack_b(code, region, block, n, f.add(n, 1), code.packed_b)
        ends = blocking.block_columns, region.panels[1]
        following = _following(code, b, region.b, *ends, n, first_block, p, blocks)

        def product(i: str, _: list[str]) -> None:
            inside = f.op(f"sub i64 {i}, {region.rows[0]}")
            place = f.add(f.mul(p, blocking.unit_rows), inside)
            a = f.offset(code.packed_a, f.mul(place, blocking.high * plan.pitch))
            next = _part_to_prefetch(code, inside, following)
            _product(code, region, block, i, n, columns, a, code.packed_b, next)

        f.loop(*region.rows, 1, product, at_least_once=True)

    _each_panel(code, region, one_panel)


def _rows_meet_b(code: _Code, region: _Region, first_block: str, blocks: str) -> None:
    """An L2 block, for many rows: panels of columns are packed, then all of them meet a block of
    the rows after the other."""
    f, plan, (first, end) = code.f, code.plan, region.panels
    blocking, a = plan.blocking, plan.problem.a

    def packed(p: str, n: str) -> str:
        at = f.add(f.mul(p, blocking.unit_columns), f.op(f"sub i64 {n}, {first}"))
        return f.offset(code.packed_b, f.mul(at, blocking.wide * plan.pitch))

    def pack(p: str, _: list[str]) -> None:
        _pack_b(code, region, _block(code, first_block, p), first, end, packed(p, first))

    def rows(i: str, _: list[str]) -> None:
        f.loop(0, blocks, 1, lambda p, _: meet(i, p), at_least_once=True)

    def meet(i: str, p: str) -> None:
        block = _block(code, first_block, p)
        _pack_a(code, region, block, "0", i, f.add(i, 1))
        ends = blocking.block_rows, region.rows[1]
        following = _following(code, a, region.a, *ends, i, first_block, p, blocks)

        def product(n: str, columns: int) -> None:
            inside = f.op(f"sub i64 {n}, {first}")
            next = _part_to_prefetch(code, inside, following)
            _product(code, region, block, i, n, columns, code.packed_a, packed(p, n), next)

        _each_panel(code, region, product)

    f.loop(0, blocks, 1, pack, at_least_once=True)
    f.loop(*region.rows, 1, rows, at_least_once=True)


def _block(code: _Code, first_block: str, p: str) -> _Block:
    """L1 block number p of the L2 block that begins with number `first_block`."""
    f, blocking, k = code.f, code.plan.blocking, code.plan.problem.size[2]
    if blocking.l1_blocks == 1:
        return _Block("0", str(k), str(blocking.tiles), "", "")
    length = blocking.l1_block * DEPTH
    number = f.add(first_block, p)
    start, depth, tiles = f.mul(number, length), str(length), str(blocking.l1_block)
    if k % length:
        depth = f.least(f.op(f"sub i64 {k}, {start}"), length)
        tiles = f.op(f"udiv i64 {f.add(depth, DEPTH - 1)}, {DEPTH}")
    later = f.op(f"icmp ne i64 {number}, 0")
    is_last = f.op(f"icmp eq i64 {number}, {blocking.l1_blocks - 1}")
    return _Block(start, depth, tiles, later, is_last)


def _each_panel(code: _Code, region: _Region, body: Callable[[str, int], None]) -> None:
    """body(number, columns) for every panel of the unit's columns."""
    f, blocking, (first, end) = code.f, code.plan.blocking, region.panels
    tail = code.plan.problem.size[1] % blocking.block_columns
    whole = f.least(end, blocking.column_blocks - 1) if tail else end
    f.loop(first, whole, 1, lambda n, _: body(n, blocking.block_columns))
    if tail:
        f.loop(whole, end, 1, lambda n, _: body(n, tail))


# ---------------------------------------------------------------- packing


def _pack_a(code: _Code, region: _Region, block: _Block, number: str, first: str, end: str) -> None:
    """Pack an L1 block of some blocks of rows, as block `number` of those that are kept."""
    f, plan = code.f, code.plan
    blocking = plan.blocking
    place = f.mul(number, blocking.unit_rows * blocking.high * plan.pitch)
    to = f.offset(code.packed_a, place)
    _pack(code, "a", plan.problem.a, region.a, block, (first, end), blocking.block_rows, to)


def _pack_b(code: _Code, region: _Region, block: _Block, first: str, end: str, to: str) -> None:
    """Pack an L1 block of some panels of columns."""
    f, plan = code.f, code.plan
    b, columns = plan.problem.b, plan.blocking.block_columns
    if region.packed is None or plan.staging is None:
        _pack(code, "b", b, region.b, block, (first, end), columns, to)
        return
    packed, staging, source = region.packed, plan.staging, plan.staging.source(b.inner == 1)

    def panel(n: str, _: list[str]) -> None:
        low, count = _extent(code, "b", (n, f.add(n, 1)), columns)
        at = _unpacked(code, packed, staging, block, low, count)
        place = f.mul(f.op(f"sub i64 {n}, {first}"), plan.blocking.wide * plan.pitch)
        _call_packer(code, "b", source, at, f.offset(to, place), count, block.depth)

    f.loop(first, end, 1, panel, at_least_once=True)


def _unpacked(
    code: _Code,
    packed: PackedPart,
    staging: Staging,
    block: _Block,
    column: str,
    count: str,
) -> str:
    """Unpack some columns for an L1 block of K; the address of the first one."""
    f, name = code.f, f"{code.plan.name}.unpack"
    if name not in code.helpers:
        code.helpers[name], declarations = emit_unpack(name, staging, code.scope.code.target)
        code.declarations.update(declarations)
    place, size = (column, block.start), (count, block.depth)
    if code.plan.problem.b.inner != 1:  # rows of the matrix are steps of k
        place, size = place[::-1], size[::-1]
    return packed.unpacked(f, name, staging, place, size, code.staging)


def _pack(
    code: _Code,
    side: str,
    matrix: Matrix,
    start: str,
    block: _Block,
    span: tuple[str, str],
    size: int,
    to: str,
) -> None:
    """Pack an L1 block of a span of blocks of so many rows or columns."""
    f, itemsize = code.f, matrix.buffer.dtype.itemsize
    low, count = _extent(code, side, span, size)
    at = f.add(f.mul(low, matrix.outer * itemsize), f.mul(block.start, matrix.inner * itemsize))
    source = Source(matrix.outer, matrix.inner, matrix.buffer.dtype)
    _call_packer(code, side, source, f.offset(start, at), to, count, block.depth)


def _extent(code: _Code, side: str, span: tuple[str, str], size: int) -> tuple[str, str]:
    """The first row or column of a span of blocks of so many, and how many there are."""
    f = code.f
    low = f.mul(span[0], size)
    high = f.least(f.mul(span[1], size), code.plan.problem.size[side == "b"])
    return low, f.op(f"sub i64 {high}, {low}")


def _call_packer(
    code: _Code, side: str, source: Source, at: str, to: str, count: str, depth: str
) -> None:
    f, plan = code.f, code.plan
    name = f"{plan.name}.pack_{side}"
    if name not in code.helpers:
        packer = TilePacker(name, source, side == "b", plan.pitch)
        code.helpers[name] = packer.emit()
        code.declarations.update(packer.declarations)
    f.line(f"call void @{name}(ptr {at}, ptr {to}, i64 {count}, i64 {depth})")


def _following(
    code: _Code,
    matrix: Matrix,
    memory: str,
    size: int,
    end: str,
    n: str,
    first_block: str,
    p: str,
    blocks: str,
) -> str:
    """Where what follows L1 block p of the n-th block of rows or columns starts in memory: the next
    L1 block, the next rows' or columns' first one, or after the last ones of a unit theirs again.
    size: rows or columns of a block."""
    f, itemsize = code.f, matrix.buffer.dtype.itemsize
    after = f.add(p, 1)
    wraps = f.op(f"icmp sge i64 {after}, {blocks}")
    number = f.add(n, f.op(f"zext i1 {wraps} to i64"))
    ends = f.op(f"icmp sge i64 {number}, {end}")
    number = f.op(f"select i1 {ends}, i64 {n}, i64 {number}")
    after = f.op(f"select i1 {wraps}, i64 0, i64 {after}")
    at = f.mul(f.add(first_block, after), code.plan.blocking.l1_block * DEPTH)
    place = f.mul(number, size * matrix.outer * itemsize)
    return f.offset(memory, f.add(place, f.mul(at, matrix.inner * itemsize)))


def _part_to_prefetch(code: _Code, inside: str, source: str) -> str:
    """What the product number `inside` of an L1 block prefetches of the block to come, which starts
    at `source`."""
    f, prefetch = code.f, code.plan.micro_kernel.prefetch
    part = f.op(f"urem i64 {inside}, {quotient(DEPTH, prefetch.rows)}")
    return f.offset(source, f.mul(part, prefetch.rows * prefetch.row_bytes))


# ---------------------------------------------------------------- products


def _product(
    code: _Code,
    region: _Region,
    block: _Block,
    i: str,
    number: str,
    columns: int,
    a: str,
    b: str,
    next: str,
) -> None:
    """The micro-kernel on an L1 block of K of one block of rows, packed at `a`, and one panel of
    columns, then the epilogue. next: what it prefetches."""
    f, plan = code.f, code.plan
    blocking, micro_kernel = plan.blocking, plan.micro_kernel
    row, column = f.mul(i, blocking.block_rows), f.mul(number, blocking.block_columns)
    begin, to, stride = _places_of_sums(code, region, block, i, number)
    last = f.op(f"sext i1 {block.is_last} to i64") if block.is_last else "-1"
    given = [block.tiles, a, b, begin, to, stride, next, last, last]
    given += _starts_of_tile_lines(code, region, row, column)
    if micro_kernel.name not in code.helpers:
        code.helpers[micro_kernel.name] = micro_kernel.emit(code.lanes)
    types = [type for type, _ in micro_kernel.parameters]
    listed = ", ".join(f"{t} {x}" for t, x in zip(types, given, strict=True))
    f.line(f"call void @{micro_kernel.name}({listed})")
    if not code.epilogue:
        return
    left = f.op(f"sub i64 {plan.problem.size[0]}, {row}")
    height = f.least(left, str(blocking.block_rows))
    call = code.epilogue.call(region.batch, to, row, column, height, columns)
    if block.is_last:
        f.when(block.is_last, lambda: f.line(call))
    else:
        f.line(call)


def _starts_of_tile_lines(code: _Code, region: _Region, row: str, column: str) -> list[str]:
    """Where the block starts in everything that it prefetches its lines of."""
    f, found = code.f, []
    for matrix, _ in code.plan.tile_operands:
        size = matrix.buffer.dtype.itemsize
        start = address(region.scope, matrix.buffer, matrix.base)
        at = f.add(f.mul(row, matrix.outer * size), f.mul(column, size))
        found.append(f.offset(start, at))
    return found


def _places_of_sums(
    code: _Code, region: _Region, block: _Block, i: str, number: str
) -> tuple[str, str, str]:
    """(where a block's partial sums are, or null, where its sums go, bytes between their rows
    there)."""
    f, plan = code.f, code.plan
    blocking = plan.blocking
    spilled = str(blocking.wide * LINE_BYTES)
    to, stride = code.sums, spilled
    if plan.result:
        stride = str(plan.result.outer * _FLOAT)
        row, column = f.mul(i, blocking.block_rows), f.mul(number, blocking.block_columns)
        to = f.offset(region.c, f.add(f.mul(row, stride), f.mul(column, _FLOAT)))
    if blocking.l1_blocks == 1:
        return "null", to, stride
    firsts = (i, region.rows[0]), (number, region.panels[0])
    row, panel = (f.op(f"sub i64 {x}, {first}") for x, first in firsts)
    place = panel if blocking.b_stationary else row
    if blocking.l2_blocks > 1:
        place = f.add(f.mul(panel, blocking.unit_rows), row)
    partial = f.offset(code.partial_sums, f.mul(place, plan.block_bytes))
    begin = f.op(f"select i1 {block.later}, ptr {partial}, ptr null")
    to = f.op(f"select i1 {block.is_last}, ptr {to}, ptr {partial}")
    return begin, to, f.op(f"select i1 {block.is_last}, i64 {stride}, i64 {spilled}")
