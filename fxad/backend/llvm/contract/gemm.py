"""Matrix products on vector registers: packed panels of B, met by micro-kernels.

    emitted = emit_gemm(problem, "matmul0", target)
    emitted.units                          # independent: panels of columns x tiles of rows

For every block of K, panel of columns and cache block of K: bring that part of B into the
first-level cache (packed side by side unless one tile of rows reads it only once), then go over the
rows with the micro-kernel, which reads A where it lies, or a packed copy of it. The epilogue runs
on a tile as soon as its sums are done; one that reads much from memory (an update of Adam's
moments) runs over the rows of a whole unit, whose sums are kept in scratch memory.
"""

from __future__ import annotations

from fxad.backend.llvm.base.schedule import ABI, Emitted, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract import pack as packing
from fxad.backend.llvm.contract.arguments import address, at_grid_point, load_arguments
from fxad.backend.llvm.contract.bf16_dot import Bf16DotLanes, emit_pack_a_pairs
from fxad.backend.llvm.contract.epilogue import Epilogue
from fxad.backend.llvm.contract.gemm_plan import GemmPlan, Layout
from fxad.backend.llvm.contract.lanes import Lanes
from fxad.backend.llvm.contract.macro_kernel import Code, Region, cache_block, emit_panel
from fxad.backend.llvm.contract.micro_kernel import Mode
from fxad.backend.llvm.contract.numbering import span, split
from fxad.backend.llvm.contract.problem import Problem
from fxad.backend.llvm.contract.unpack import PackedPart
from fxad.core.aligned import LINE
from fxad.core.record import replace


def emit_gemm(problem: Problem, name: str, target: Target) -> Emitted:
    """LLVM IR of a product whose dtypes have vectors."""
    plan = GemmPlan.of(problem, name, target)
    code = _code(plan, target)
    f, blocking = code.f, plan.blocking
    if blocking.joins_units:
        _joined_units(code)
    else:
        f.loop("%begin", "%end", 1, lambda unit, _: _unit(code, unit))
    if plan.sums.streams:  # before others are told of it
        code.lanes.declarations.add("declare void @llvm.x86.sse.sfence()")
        f.line("call void @llvm.x86.sse.sfence()")
    f.ret()
    texts = [*code.helpers.values()]
    declarations = code.lanes.declarations | code.scope.code.declarations
    if code.epilogue:
        texts += code.epilogue.texts()
        declarations |= code.epilogue.declarations
    cost = problem.flops * blocking.batch / plan.tuning.flops_per_ns
    return Emitted(
        name,
        "\n".join([*texts, str(f)]),
        frozenset(declarations),
        blocking.units,
        plan.scratch_bytes,
        max(cost, 100.0),
    )


def _code(plan: GemmPlan, target: Target) -> Code:
    """The function, at its start."""
    problem, sums = plan.problem, plan.sums
    lanes = Lanes(problem.dtype, plan.blocking.lanes)
    if plan.bf16_dot:
        lanes = Bf16DotLanes(problem.dtype, plan.blocking.lanes, plan.a_pairs_in_place)
    epilogue = None
    if plan.has_epilogue:
        in_place = sums.result is not None
        epilogue = Epilogue(problem, plan.name, target, lanes, sums.stride, in_place)
    f = Function(plan.name, "void", ABI)
    scope = load_arguments(problem.kernel, f, target)
    places, start = [], 0
    for size in (plan.b.panel_bytes, plan.a.copy_bytes, sums.bytes):
        start += size
        places.append(f.offset("%scratch", start))
    start += sums.partial_bytes
    places.append(f.offset("%scratch", start) if plan.b.staging else "")
    return Code(plan, f, scope, lanes, epilogue, {}, "%scratch", *places)


# ---------------------------------------------------------------- units


def _unit(code: Code, unit: str) -> None:
    blocking = code.plan.blocking
    is_first = code.f.op(f"icmp eq i64 {unit}, %begin")
    group, rest = split(code.f, unit, blocking.column_units)
    panels = span(code.f, group, blocking.unit_panels, blocking.panel_count)
    _panels_of_unit(code, is_first, rest, panels)


def _joined_units(code: Code) -> None:
    """Units side by side as one, so that all their panels share what is in cache of A."""
    f, blocking = code.f, code.plan.blocking
    units = blocking.column_units
    low = f.op(f"udiv i64 %begin, {units}")
    high = f.op(f"udiv i64 {f.add('%end', units - 1)}, {units}")

    def row(rest: str, _: list[str]) -> None:
        is_first = f.op(f"icmp eq i64 {rest}, {low}")
        start = f.mul(rest, units)
        first = f.most(f.op(f"sub i64 %begin, {start}"), 0)
        last = f.least(f.op(f"sub i64 %end, {start}"), units)
        end = f.least(f.mul(last, blocking.unit_panels), blocking.panel_count)
        _panels_of_unit(code, is_first, rest, (f.mul(first, blocking.unit_panels), end))

    f.loop(low, high, 1, row)


def _panels_of_unit(code: Code, is_first: str, rest: str, panels: tuple[str, str]) -> None:
    """Some panels of the rows and batch elements that unit number `rest`, without columns, has."""
    f, blocking = code.f, code.plan.blocking
    row_unit, batch_unit = split(f, rest, blocking.row_units)
    tiles = span(f, row_unit, blocking.unit_tiles, blocking.row_tiles)
    batch = span(f, batch_unit, blocking.unit_batch, blocking.batch)
    f.loop(*batch, 1, lambda n, _: _element(code, n, tiles, panels, is_first), at_least_once=True)


def _element(
    code: Code, batch: str, tiles: tuple[str, str], panels: tuple[str, str], is_first: str
) -> None:
    """Some panels and tiles of rows of one batch element."""
    plan, f = code.plan, code.f
    problem, prefetch = plan.problem, plan.b.prefetch
    here = at_grid_point(code.scope, problem.kernel, batch)
    a = address(here, problem.a.buffer, problem.a.base)
    packed, b = None, "null"
    if problem.packed:
        packed = PackedPart.at(here, replace(problem.packed, index=problem.b.base))
    else:
        b = address(here, problem.b.buffer, problem.b.base)
    result = plan.sums.result
    c = address(here, result.buffer, result.base) if result else ""
    mode = _first_mode(code, c)
    region = Region(batch, here, tiles, code.first_row(tiles[0]), panels, a, b, c, mode, packed)
    if prefetch and problem.b_bytes >= plan.tuning.l2_a_bytes:
        f.when(is_first, lambda: _prefetch_first_panel(code, region))
    if plan.k.sum_blocks == 1:
        _sum_block(code, region, "0")
    else:
        f.loop(
            0, plan.k.sum_blocks, 1, lambda n, _: _sum_block(code, region, n), at_least_once=True
        )
    if code.epilogue and plan.epilogue_per_unit:
        _epilogue_of_unit(code, code.epilogue, region)


def _first_mode(code: Code, c: str) -> str:
    """How the first block of K ends: STORE, or STREAM where that may be and c begins at a line."""
    f = code.f
    if not code.plan.sums.streams:
        return str(int(Mode.STORE))
    inside = f.op(f"and i64 {f.op(f'ptrtoint ptr {c} to i64')}, {LINE - 1}")
    begins = f.op(f"icmp eq i64 {inside}, 0")
    return f.op(f"select i1 {begins}, i64 {int(Mode.STREAM)}, i64 {int(Mode.STORE)}")


def _prefetch_first_panel(code: Code, region: Region) -> None:
    """The first part of B: no unit of this call came before and prefetched it."""
    f, plan, b = code.f, code.plan, code.plan.problem.b
    apart = plan.blocking.panel_columns * b.outer * b.buffer.dtype.itemsize
    if plan.b.prefetch:
        start = f.offset(region.b, f.mul(region.panels[0], apart))
        plan.b.prefetch.emit_all(f, start, code.lanes)


def _epilogue_of_unit(code: Code, epilogue: Epilogue, region: Region) -> None:
    f, (first, end), width = code.f, region.panels, code.plan.blocking.panel_columns
    rows = f.op(f"sub i64 {code.first_row(region.tiles[1])}, {region.first_row}")
    column = f.mul(first, width)
    last = f.least(f.mul(end, width), code.plan.problem.size[1])
    columns = f.op(f"sub i64 {last}, {column}")
    call = epilogue.call_unit(region.batch, code.sums, region.first_row, rows, column, columns)
    f.line(call)


# ---------------------------------------------------------------- blocks of K


def _sum_block(code: Code, region: Region, number: str) -> None:
    """All panels of a unit, for one block of K: its part of A is read by every one of them."""
    plan, f = code.plan, code.f
    blocking, (first, end) = plan.blocking, region.panels
    if plan.a.packed:
        _pack_a(code, region, number)
    if blocking.panels:
        last = f.least(end, blocking.panels) if blocking.tail_columns else end
        f.loop(
            first,
            last,
            plan.b.group,
            lambda panel, _: _panel_group(code, region, number, panel, last),
        )
    if blocking.tail_columns:
        with_tail = f.op(f"icmp sgt i64 {end}, {blocking.panels}")
        tail = str(blocking.panels)
        f.when(with_tail, lambda: _panel_group(code, region, number, tail, None))


def _panel_group(code: Code, region: Region, block: str, first: str, most: str | None) -> None:
    """A group of panels from `first` on, before `most`, by the cache blocks of a block of K; or the
    narrow last panel (most: None)."""
    f, k = code.f, code.plan.k
    blocking, group = code.plan.blocking, code.plan.b.group
    columns = blocking.tail_columns if most is None else blocking.panel_columns
    end = "" if most is None or group == 1 else f.least(f.add(first, group), most)

    def one_block(number: str, _: list[str]) -> None:
        block = cache_block(code, region, number)
        if end:
            f.loop(
                first,
                end,
                1,
                lambda panel, _: emit_panel(code, region, block, first, panel, columns),
                at_least_once=True,
            )
        else:
            emit_panel(code, region, block, first, first, columns)

    if k.per_sum_block == 1:
        return one_block(block, [])
    number = f.mul(block, k.per_sum_block)
    last = f.least(f.add(number, k.per_sum_block), k.cache_blocks)
    f.loop(number, last, 1, one_block, at_least_once=True)


def _pack_a(code: Code, region: Region, number: str) -> None:
    """Pack A's rows of this unit, for one block of K."""
    f, plan, problem = code.f, code.plan, code.plan.problem
    source = plan.a.source
    block, depth = plan.k.sum_block * plan.k_step, str(problem.size[2])
    at = f.add(f.mul(region.first_row, source.outer), f.mul(number, block * source.k))
    if plan.k.sum_blocks > 1:
        depth = f.op(f"sub i64 {depth}, {f.mul(number, block)}")
        depth = f.least(depth, block)
    operand = f"ptr {f.offset(region.a, f.mul(at, source.dtype.itemsize))}, ptr {code.packed_a}"
    name = f"{plan.name}.pack_a"
    code.helpers[name] = _a_packer(code, name)
    if plan.a.layout == Layout.PANELS:
        tall, others = _tiles_by_height(code, region)
        rows = f"i64 {tall}, i64 {others}"
    else:
        rows = f"i64 {f.op(f'sub i64 {code.first_row(region.tiles[1])}, {region.first_row}')}"
    f.line(f"call void @{name}({operand}, i64 {depth}, {rows})")


def _a_packer(code: Code, name: str) -> str:
    """The text of the function that packs A."""
    plan, a, heights = code.plan, code.plan.a, code.plan.blocking.tile_heights
    if a.layout == Layout.PANELS:
        ends, steps = (heights[0], heights[-1]), plan.tuning.pack_a_prefetch_steps
        return packing.emit_pack_a_panels(name, a.source, ends, a.panel_bytes, code.lanes, steps)
    stride = max(a.row_stride, a.k_stride)
    if isinstance(code.lanes, Bf16DotLanes):
        return emit_pack_a_pairs(name, a.source, stride, code.lanes, plan.ends_odd)
    return packing.emit_pack_a(name, a.source, stride, code.lanes)


def _tiles_by_height(code: Code, region: Region) -> tuple[str, str]:
    """How many tiles of the unit have the greater height, and how many the other."""
    f, blocking, (low, high) = code.f, code.plan.blocking, region.tiles
    if len(blocking.tile_heights) == 1:
        return f.op(f"sub i64 {high}, {low}"), "0"
    border = f.least(f.most(low, blocking.tall_tiles), high)
    return f.op(f"sub i64 {border}, {low}"), f.op(f"sub i64 {high}, {border}")
