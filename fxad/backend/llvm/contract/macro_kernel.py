"""The macro-kernel: one panel of B over one cache block of K, met by all rows of a unit.

    block = cache_block(code, region, number)
    emit_panel(code, region, block, first_panel_of_group, panel, 48)

A cache block begins with sums of 0 or with partial ones of the block before it, and ends with
partial sums or, at the end of a sum's block of K, with sums that are added to the result.
"""

from __future__ import annotations

from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract import pack as packing
from fxad.backend.llvm.contract.arguments import address
from fxad.backend.llvm.contract.bf16_dot import Bf16DotLanes, emit_pack_b_pairs
from fxad.backend.llvm.contract.epilogue import Epilogue
from fxad.backend.llvm.contract.gemm_plan import GemmPlan, Layout
from fxad.backend.llvm.contract.lanes import Lanes
from fxad.backend.llvm.contract.micro_kernel import MicroKernel, Mode, emit_micro_kernel
from fxad.backend.llvm.contract.prefetch import PanelPrefetch, TileLines, lines_of, lines_under_tile
from fxad.backend.llvm.contract.unpack import PackedPart, Staging, emit_unpack
from fxad.backend.llvm.elements.scope import Scope
from fxad.core.record import record


@record
class Code:
    """A product's function as it is written. helpers: texts of the functions that it calls, by
    name. The last five are addresses in this thread's scratch, "" for what is not there."""

    plan: GemmPlan
    f: Function
    scope: Scope
    lanes: Lanes
    epilogue: Epilogue | None
    helpers: dict[str, str]
    packed_b: str
    packed_a: str
    sums: str
    partial_sums: str
    staging: str

    def first_row(self, tile: str) -> str:
        """First row of a tile of rows."""
        f, blocking = self.f, self.plan.blocking
        tall = f.least(tile, blocking.tall_tiles) if blocking.tall_tiles else "0"
        return f.add(f.mul(tile, blocking.tile_rows), tall)


@record
class Region:
    """What a unit computes of one batch element, whose scope is `scope`: tiles of rows [low, high),
    the first of their rows, panels [first, end), addresses of the operands and of the result (""
    for none), and the Mode of the first block of K. packed: where B begins if it is packed."""

    batch: str
    scope: Scope
    tiles: tuple[str, str]
    first_row: str
    panels: tuple[str, str]
    a: str
    b: str
    c: str
    mode: str
    packed: PackedPart | None


@record
class CacheBlock:
    """Where a cache block lies in K, and what becomes of its sums.

    start, depth: in steps; iterations, rest: of the micro-kernel's loops. inside: cache blocks of
    the same sum's block before it, `skipped` steps. mode: of the micro-kernels. ends: whether it
    ends a sum's block; is_last: whether it is the last of all; both "" if it is the only one.
    """

    start: str
    depth: str
    iterations: str
    rest: str
    inside: str
    skipped: str
    mode: str
    ends: str
    is_last: str


def cache_block(code: Code, region: Region, number: str) -> CacheBlock:
    """The cache block of that number."""
    f, k, sums, unroll = code.f, code.plan.k, code.plan.sums, code.plan.tuning.unroll
    if k.cache_blocks == 1:
        loops = str(k.steps // unroll), str(k.steps % unroll)
        return CacheBlock("0", str(k.steps), *loops, "0", "0", region.mode, "", "")
    inside, block = "0", number
    if k.sum_blocks == 1:
        inside, block = number, "0"
    elif sums.spills:
        inside = f.op(f"urem i64 {number}, {k.per_sum_block}")
        block = f.op(f"udiv i64 {number}, {k.per_sum_block}")
    skipped = f.mul(inside, k.cache_block)
    start = f.add(f.mul(block, k.sum_block), skipped)
    is_last = f.op(f"icmp eq i64 {number}, {k.cache_blocks - 1}")
    left, later = str(k.last_sum_block), "false"
    if k.sum_blocks > 1:
        in_last = f.op(f"icmp eq i64 {block}, {k.sum_blocks - 1}")
        left = _select(f, in_last, "i64", k.last_sum_block, k.sum_block)
        later = f.op(f"icmp ne i64 {block}, 0")
    left = f.op(f"sub i64 {left}, {skipped}")
    depth = f.least(left, k.cache_block)
    mode, ends = _select(f, later, "i64", int(Mode.ADD), region.mode), ""
    if sums.spills:
        ends = f.op(f"icmp sle i64 {left}, {k.cache_block}")
        last_mode = _select(f, ends, "i64", mode, int(Mode.SPILL))
        resumes = _select(f, f.op(f"icmp ne i64 {inside}, 0"), "i64", int(Mode.RESUME), 0)
        mode = f.op(f"or i64 {last_mode}, {resumes}")
    iterations, rest = (f.op(f"{op} i64 {depth}, {unroll}") for op in ("udiv", "urem"))
    return CacheBlock(start, depth, iterations, rest, inside, skipped, mode, ends, is_last)


def _select(f: Function, condition: str, type: str, yes: str | int, no: str | int) -> str:
    return f.op(f"select i1 {condition}, {type} {yes}, {type} {no}")


@record
class Panel:
    """A panel of `columns` columns from `column` on, in one cache block.

    in_group: its number within its group. source: where it lies in B; following: where the next
    part of B does; sums: where its sums go, partial: where they are spilled. in_place: whether B is
    read where it lies; fuses_packing: whether the first tile of rows copies it.
    """

    column: str
    columns: int
    in_group: str
    source: str
    following: str
    sums: str
    partial: str
    in_place: bool
    fuses_packing: bool


def emit_panel(
    code: Code, region: Region, block: CacheBlock, group: str, number: str, columns: int
) -> None:
    """A panel of a group, over one cache block, for all rows of a unit."""
    blocking, in_place = code.plan.blocking, code.plan.b.in_place
    fuses = code.plan.b.fuses_packing and columns == blocking.panel_columns
    panel = _panel(code, region, block, group, number, columns, fuses)
    if not in_place and not fuses:
        _pack_b(code, region, block, panel)
    _all_tiles(code, region, block, panel)


def _panel(
    code: Code,
    region: Region,
    block: CacheBlock,
    group: str,
    number: str,
    columns: int,
    fuses: bool,
) -> Panel:
    plan, f, b, sums = code.plan, code.f, code.plan.problem.b, code.plan.sums
    size, row_bytes = plan.problem.dtype.itemsize, plan.b.row_bytes
    column = f.mul(number, plan.blocking.panel_columns)
    b_size = b.buffer.dtype.itemsize
    across, down = b.outer * b_size, b.inner * b_size * plan.k_step
    source = f.offset(region.b, f.add(f.mul(column, across), f.mul(block.start, down)))
    in_group = "0" if number == group else f.op(f"sub i64 {number}, {group}")
    following = _following(code, region, block, group, across, down)
    partial = "null"
    if sums.spills:
        place = f.mul(in_group, plan.blocking.unit_rows * row_bytes)
        partial = f.offset(code.partial_sums, place)
    if sums.result:
        to = f.offset(region.c, f.mul(column, size))
    else:
        beside = f.mul(f.op(f"sub i64 {number}, {region.panels[0]}"), row_bytes)
        to = f.offset(code.sums, beside) if sums.keeps_unit else code.sums
    return Panel(column, columns, in_group, source, following, to, partial, plan.b.in_place, fuses)


def _following(
    code: Code, region: Region, block: CacheBlock, group: str, across: int, down: int
) -> str:
    """Where the next part of B begins: the next cache block of these panels; after a sum's block
    the panels beside them, after the last ones the first ones again, in the next block of K."""
    f, plan, (first, end) = code.f, code.plan, region.panels
    after = f.add(group, plan.b.group)
    k = f.op(f"sub i64 {block.start}, {block.skipped}")
    if plan.k.sum_blocks > 1:
        below = f.add(k, plan.k.sum_block)
        more = f.op(f"icmp slt i64 {below}, {plan.k.steps}")
        wraps = f.op(f"icmp sge i64 {after}, {end}")
        # After the last block the next unit begins with the first one.
        k = _select(f, wraps, "i64", _select(f, more, "i64", below, 0), k)
        wraps = f.op(f"and i1 {wraps}, {more}")
        after = _select(f, wraps, "i64", first, after)
    if plan.b.prefetch and not plan.b.prefetch.next_panel and block.ends:
        k = _select(f, block.ends, "i64", k, f.add(block.start, block.depth))
        after = _select(f, block.ends, "i64", after, group)
    column = f.mul(after, plan.blocking.panel_columns * across)
    return f.offset(region.b, f.add(column, f.mul(k, down)))


def _pack_b(code: Code, region: Region, block: CacheBlock, panel: Panel) -> None:
    plan, b, lanes = code.plan, code.plan.problem.b, code.lanes
    name, length = f"{plan.name}.pack{panel.columns}", _length(code, block)
    at, source = panel.source, packing.Source(b.outer, b.inner, b.buffer.dtype)
    if region.packed and plan.b.staging:
        at = _unpacked(code, region.packed, plan.b.staging, block, panel, length)
        source = plan.b.staging.source(along_rows=b.inner == 1)
    if name not in code.helpers:
        code.helpers[name] = (
            emit_pack_b_pairs(name, source, panel.columns, lanes, plan.ends_odd)
            if isinstance(lanes, Bf16DotLanes)
            else packing.emit_pack_b(name, source, panel.columns, lanes)
        )
    code.f.line(f"call void @{name}(ptr {at}, ptr {code.packed_b}, i64 {length})")


def _unpacked(
    code: Code,
    packed: PackedPart,
    staging: Staging,
    block: CacheBlock,
    panel: Panel,
    length: str,
) -> str:
    """Unpack a panel's columns for the steps of k of a cache block; the first one's address."""
    f, name = code.f, f"{code.plan.name}.unpack"
    if name not in code.helpers:
        code.helpers[name], declarations = emit_unpack(name, staging, code.scope.code.target)
        code.lanes.declarations |= declarations
    place, size = (panel.column, f.mul(block.start, code.plan.k_step)), (str(panel.columns), length)
    if code.plan.problem.b.inner != 1:  # rows of the matrix are steps of k
        place, size = place[::-1], size[::-1]
    return packed.unpacked(f, name, staging, place, size, code.staging)


def _length(code: Code, block: CacheBlock) -> str:
    """Steps of k of a cache block: one or two of each step of the micro-kernels."""
    f, plan = code.f, code.plan
    found = f.mul(block.depth, plan.k_step)
    if not plan.ends_odd:
        return found
    lacking = f.op(f"zext i1 {block.is_last} to i64") if block.is_last else "1"
    return f.op(f"sub i64 {found}, {lacking}")


def _all_tiles(code: Code, region: Region, block: CacheBlock, panel: Panel) -> None:
    """Call the micro-kernel on every tile of rows: the tall ones, then the others."""
    f, blocking, (low, high) = code.f, code.plan.blocking, region.tiles
    rows = blocking.tile_rows

    def tile(number: str, rows: int, packs: bool = False) -> None:
        _tile(code, region, block, panel, number, rows, packs)

    if panel.fuses_packing:
        tile(low, max(blocking.tile_heights), packs=True)
        low = f.add(low, 1)
    if blocking.tall_tiles:
        all_tall = blocking.tall_tiles == blocking.row_tiles
        end = high if all_tall else f.least(high, blocking.tall_tiles)
        f.loop(low, end, 1, lambda i, _: tile(i, rows + 1))
    if blocking.tall_tiles < blocking.row_tiles:
        start = f.most(low, blocking.tall_tiles) if blocking.tall_tiles else low
        f.loop(start, high, 1, lambda i, _: tile(i, rows))


def _tile(
    code: Code,
    region: Region,
    block: CacheBlock,
    panel: Panel,
    number: str,
    rows: int,
    packs: bool,
) -> None:
    """One tile: the micro-kernel, then the epilogue if its sums are complete. packs: it copies the
    panel of B, which it reads in place."""
    plan, f = code.plan, code.f
    blocking, sums = plan.blocking, plan.sums
    size, in_place = plan.problem.dtype.itemsize, packs or panel.in_place
    whole = panel.columns == blocking.panel_columns or not blocking.panels
    row = f.mul(number, rows)
    if rows == blocking.tile_rows:
        row = f.add(row, blocking.tall_tiles)
    inside = row
    if plan.a.packed or sums.spills or sums.keeps_unit:
        inside = f.op(f"sub i64 {row}, {region.first_row}")
    to = panel.sums
    if sums.result is not None or sums.keeps_unit:
        to = f.offset(to, f.mul(inside if not sums.result else row, sums.stride * size))
    # Only the tile that does most of the work is worth the size of an unrolled loop.
    unrolled = rows == blocking.main_tile_rows and whole and not packs and plan.tuning.unroll > 1
    kernel = _micro_kernel(plan, panel, rows, packs, in_place, unrolled)
    following, first = "null", "0"
    if kernel.b_prefetch_steps:
        following = panel.following
    elif kernel.panel_prefetch:
        following = panel.following
        first = _first_iteration(code, region, block, panel, kernel.panel_prefetch, number)
    arguments = [
        block.iterations if unrolled else block.depth,
        block.rest if unrolled else "0",
        _address_of_a(code, region, block, row, inside, number),
        panel.source if in_place else code.packed_b,
        to,
        f.offset(panel.partial, f.mul(inside, plan.b.row_bytes)) if sums.spills else "null",
        block.mode,
        code.packed_b,
        following,
        first,
    ]
    if kernel.tile_lines:
        arguments += _starts_of_tile_lines(code, region, block, panel, row, inside, rows)
    name = f"{plan.name}.{rows}x{panel.columns}{'p' if packs else ''}"
    if name not in code.helpers:
        code.helpers[name] = emit_micro_kernel(name, kernel, code.lanes)
    types = [type for type, _ in kernel.parameters]
    listed = ", ".join(f"{t} {a}" for t, a in zip(types, arguments, strict=True))
    f.line(f"call void @{name}({listed})")
    if code.epilogue and not plan.epilogue_per_unit:
        call = code.epilogue.call(region.batch, to, row, panel.column, rows, panel.columns)
        _call_epilogue(f, block, call)


def _starts_of_tile_lines(
    code: Code,
    region: Region,
    block: CacheBlock,
    panel: Panel,
    row: str,
    inside: str,
    rows: int,
) -> list[str]:
    """%last and %ends, then where the tile starts in everything that it prefetches its lines of."""
    f, plan = code.f, code.plan
    when = (block.is_last, block.ends)
    found = [f.op(f"sext i1 {flag} to i64") if flag else "-1" for flag in when]
    for matrix, _ in plan.tile_operands:
        size = matrix.buffer.dtype.itemsize
        start = address(region.scope, matrix.buffer, matrix.base)
        at = f.add(f.mul(row, matrix.outer * size), f.mul(panel.column, size))
        found.append(f.offset(start, at))
    if plan.prefetches_next_a:
        next_row, next_inside = f.add(row, rows), f.add(inside, rows)
        found.append(_address_of_a(code, region, block, next_row, next_inside, ""))
    return found


def _call_epilogue(f: Function, block: CacheBlock, call: str) -> None:
    """The epilogue's call, where this is the last block of K."""
    if not block.is_last:
        f.line(call)
        return
    f.when(block.is_last, lambda: f.line(call))


def _address_of_a(
    code: Code, region: Region, block: CacheBlock, row: str, inside: str, tile: str
) -> str:
    """Where a tile's part of A lies; tile: its number, which packed panels are found by."""
    f, a, size = code.f, code.plan.a, code.plan.problem.dtype.itemsize
    if a.layout == Layout.IN_PLACE:
        at = f.add(f.mul(row, a.row_stride * size), f.mul(block.start, a.k_stride * size))
        return f.offset(region.a, at)
    skip = f.mul(block.skipped, a.k_stride * size)
    if a.layout == Layout.COPY:
        return f.offset(code.packed_a, f.add(f.mul(inside, a.row_stride * size), skip))
    number = f.op(f"sub i64 {tile}, {region.tiles[0]}")
    return f.offset(code.packed_a, f.add(f.mul(number, a.panel_bytes), skip))


def _first_iteration(
    code: Code,
    region: Region,
    block: CacheBlock,
    panel: Panel,
    prefetch: PanelPrefetch,
    tile: str,
) -> str:
    """Number of a call's first iteration among all that prefetch the part of B to come."""
    f, plan = code.f, code.plan
    call = f.op(f"sub i64 {tile}, {region.tiles[0]}")
    if plan.b.fuses_packing:
        call = f.op(f"sub i64 {call}, 1")
    before = block.inside if prefetch.next_panel else panel.in_group
    calls = plan.blocking.unit_tiles - plan.b.fuses_packing
    call = f.add(f.mul(before, calls), call)
    return f.mul(call, prefetch.iterations)


def _micro_kernel(
    plan: GemmPlan, panel: Panel, rows: int, packs: bool, in_place: bool, unrolled: bool
) -> MicroKernel:
    b, sums, lanes = plan.problem.b, plan.sums, plan.blocking.lanes
    padded = -(-panel.columns // lanes) * lanes
    unroll = plan.tuning.unroll if unrolled else 1
    lengths = plan.k.lengths
    return MicroKernel(
        rows=rows,
        columns=panel.columns,
        a_row=plan.a.row_stride,
        a_k=plan.a.k_stride,
        b_stride=b.inner if in_place else padded,
        c_stride=sums.stride,
        b_dtype=b.buffer.dtype if in_place else plan.problem.dtype,
        unroll=unroll,
        packed=not in_place,
        packs=packs,
        panel_prefetch=plan.b.prefetch if unrolled else None,
        has_rest=any(depth % unroll for depth in lengths),
        may_be_short=min(lengths) < unroll,
        spills=sums.spills,
        prefetches_partial=plan.tuning.prefetch_partial_sums,
        tile_lines=_tile_lines(plan, panel, rows) if unrolled else (),
        iterations=max(lengths) // unroll,
        streams=sums.streams,
        b_prefetch_steps=_b_prefetch_steps(plan, packs, in_place),
        most_prefetches=plan.tuning.tile_prefetches,
    )


def _tile_lines(plan: GemmPlan, panel: Panel, rows: int) -> tuple[TileLines, ...]:
    sums, size = plan.sums, (rows, panel.columns)
    found = [
        lines_under_tile(m, write, size, sums.result is not None and m.buffer == sums.result.buffer)
        for m, write in plan.tile_operands
    ]
    if plan.prefetches_next_a:
        row = plan.a.row_stride * plan.problem.dtype.itemsize
        lines = lines_of(plan.k.cache_block * plan.problem.dtype.itemsize, row)
        found.append(TileLines(rows, row, lines, write=False, when=""))
    return tuple(found)


def _b_prefetch_steps(plan: GemmPlan, packs: bool, in_place: bool) -> int:
    """Steps of k ahead that a tile prefetches what it reads of B in place; 0: others did so."""
    once = in_place and plan.blocking.unit_tiles == 1
    if packs and plan.b.in_l2:
        steps = plan.tuning.pack_b_prefetch_steps
    else:
        steps = plan.tuning.b_prefetch_steps if once else 0
    return steps if plan.k.cache_block > 2 * steps else 0
