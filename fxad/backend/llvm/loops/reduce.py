"""Reductions: one accumulator, or 64 partial results in vectors.

    stage = Reduce((j,), "add", (Load(x, at(j)),), (cell,), "lanes")
    cells = emit_reduce(scope, stage)         # the cell's value

The order of combination is what fxad/ir/kernel.py says, whatever the width of a vector.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence

from fxad.backend.llvm.base.formats import Value, cast
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements import monoids, prims
from fxad.backend.llvm.elements.scope import (
    Copy,
    Lanes,
    Scope,
    each_copy,
    inner,
    single,
    with_axes,
)
from fxad.backend.llvm.elements.stores import hoist_prefetches, prefetch_rows
from fxad.backend.llvm.elements.values import (
    hoist,
    lane_index,
    remember,
    scalar_index,
    splat,
    value,
)
from fxad.backend.llvm.loops.fused_map import FusedMap
from fxad.backend.llvm.loops.nest import (
    Carried,
    Cells,
    Texts,
    blocked_by,
    hoist_stores,
    is_empty,
    loops,
    put,
)
from fxad.core.record import record, replace
from fxad.ir import kernel as ir
from fxad.ir.orders import PARTIALS

Combine = Callable[[Scope, ir.Reduce, list[Value], list[Value]], list[Value]]


def emit_reduce(scope: Scope, stage: ir.Reduce, fused: FusedMap | None = None) -> Cells:
    """In lanes of its own axis, or in sequence at the current point or vector of points.

    fused: a Map that is part of the loop of a reduction in lanes.
    """
    if stage.order != "lanes":
        return _in_sequence(scope, stage)
    if scope.lanes.axis is None:
        return _in_lanes(scope, stage, fused)
    return _in_registers(scope, stage)


# ---------------------------------------------------------------- accumulators


def _start(scope: Scope, stage: ir.Reduce, width: int) -> list[Value]:
    """Identity of every accumulator of one point or partial."""
    code = scope.code
    if stage.monoid in monoids.ARGS:
        first = monoids.identity(code, stage.monoid, stage.values[0].dtype, width)
        points = math.prod(scope.extent(axis) for axis in stage.over)
        return [first, code.const("i32" if points < 2**31 else "i64", 0, width)]
    return [monoids.identity(code, stage.monoid, c.dtype, width) for c in stage.cells]


def _values(scope: Scope, stage: ir.Reduce, old: list[Value]) -> list[Value]:
    """What the current point has for the accumulators."""
    new = [
        cast(value(scope, v), v.dtype, c.dtype)
        for v, c in zip(stage.values, stage.cells, strict=False)
    ]
    return [splat(scope, v, o.width) for v, o in zip(new, old, strict=False)]


def _combined(scope: Scope, stage: ir.Reduce, old: list[Value], new: list[Value]) -> list[Value]:
    """The accumulators with the current point's values."""
    if stage.monoid not in monoids.ARGS:
        return [
            monoids.combine(stage.monoid, o, v, c.dtype)
            for o, v, c in zip(old, new, stage.cells, strict=True)
        ]
    wins = monoids.better(stage.monoid, new[0], old[0], stage.cells[0].dtype)
    position = _position(scope, stage, old[1])
    return [wins.where(new[0], old[0]), wins.where(position, old[1])]


def _position(scope: Scope, stage: ir.Reduce, like: Vec) -> Vec:
    """Row-major position of the current point of `over`."""
    index = ir.Index()
    for axis in stage.over:
        index = index * scope.extent(axis) + ir.Index(0, ((axis, 1),))
    if scope.lanes.axis in stage.over:
        return lane_index(scope, index, like.kind)
    text = scalar_index(scope, index)
    if not text.startswith("%"):
        return splat(scope, scope.code.const(like.kind, int(text)), like.width)
    narrow = Vec(scope.code, "i64", 1, text).convert("trunc", like.kind)
    return splat(scope, narrow, like.width)


def _results(stage: ir.Reduce, totals: list[Value]) -> list[Value]:
    """The values of the cells."""
    if stage.monoid in monoids.ARGS:
        totals = [totals[0], totals[1].convert("sext", "i64")]
    return [monoids.rounded_value(v, c.dtype) for c, v in zip(stage.cells, totals, strict=True)]


def _cells(stage: ir.Reduce, results: Sequence[list[Value]]) -> Cells:
    """What each cell is, from its values for every copy."""
    return {cell: {n: r[at] for n, r in enumerate(results)} for at, cell in enumerate(stage.cells)}


# ---------------------------------------------------------------- in sequence


def _in_sequence(scope: Scope, stage: ir.Reduce) -> Cells:
    code, copies = scope.code, scope.lanes.copies
    start = _start(scope, stage, scope.lanes.width)
    flat = monoids.flatten(start)

    def body(inside: Scope, texts: Texts) -> Texts:
        following: list[Vec] = []
        olds = _pieces(texts, len(flat))
        for here in each_copy(inside):
            old = monoids.unflatten(code, start, next(olds))
            following += monoids.flatten(_combined(here, stage, old, _values(here, stage, old)))
        return [v.text for v in following]

    texts = [v.text for v in flat * len(copies)]
    if not is_empty(scope, stage.over):
        carried = [(v.type, v.text) for v in flat * len(copies)]
        texts = loops(scope, stage.over, stage.values, blocked_by(stage), body, carried)
    pieces = _pieces(texts, len(flat))
    results = []
    for _ in each_copy(scope):
        results.append(_results(stage, monoids.unflatten(code, start, next(pieces))))
    return _cells(stage, results)


def _in_registers(scope: Scope, stage: ir.Reduce) -> Cells:
    """The partial results of a few positions at a vector of points: a register for each."""
    code, copies = scope.code, scope.lanes.copies
    axis, outer = stage.over[-1], stage.over[:-1]
    extent = scope.extent(axis)
    start = _start(scope, stage, scope.lanes.width)
    flat = monoids.flatten(start)
    blocked = blocked_by(stage) | {axis}

    def row(inside: Scope, texts: Texts) -> Texts:
        following: list[Vec] = []
        olds = _pieces(texts, len(flat))
        hoist(inside, stage.values, blocked, scope.lanes.width)
        for position in range(extent):
            point = inner(inside, axes=with_axes(inside, {axis: str(position)}))
            for here in each_copy(point):
                old = monoids.unflatten(code, start, next(olds))
                new = _values(here, stage, old)
                following += monoids.flatten(_combined(here, stage, old, new))
        return [v.text for v in following]

    carried = [(v.type, v.text) for v in flat * (extent * len(copies))]
    texts = loops(scope, outer, stage.values, blocked, row, carried)
    partials = [monoids.unflatten(code, start, t) for t in _pieces(texts, len(flat))]
    results = []
    for here in each_copy(scope):
        mine = partials[here.copy.number :: len(copies)]
        results.append(_results(stage, _halved(stage, mine, 1)))
    return _cells(stage, results)


# ---------------------------------------------------------------- in lanes


@record
class LaneSums:
    """A reduction in lanes: 64 partial results in as many vectors as it takes, `width` lanes each.

    starts: of each vector. fused: a Map that is part of its loop. extreme: a maximum or minimum by
    one instruction instead of three, which takes no notice of NaN: whether there was one is carried
    beside the partials.
    """

    stage: ir.Reduce
    fused: FusedMap | None
    width: int
    starts: list[list[Value]]
    extreme: bool

    @property
    def axis(self) -> ir.Axis:
        return self.stage.over[-1]


def lane_sums(scope: Scope, stage: ir.Reduce, fused: FusedMap | None) -> LaneSums:
    extent = scope.extent(stage.over[-1])
    width = scope.context.schedule.reduce_width(stage, stage.over[-1])
    count = min(PARTIALS, extent + width - 1) // width
    starts = [_lane_start(scope, stage, width, n) for n in range(count)]
    extreme = _is_extreme(stage) and prims.has_extreme(starts[0][0])
    return LaneSums(stage, fused, width, starts, extreme)


def _lane_start(scope: Scope, stage: ir.Reduce, width: int, number: int) -> list[Value]:
    start = _start(scope, stage, width)
    if stage.monoid in monoids.ARGS:
        # A partial whose elements all equal the identity answers its own first position.
        start[1] = scope.code.iota(start[1].kind, width, number * width)
    return start


def _in_lanes(scope: Scope, stage: ir.Reduce, fused: FusedMap | None) -> Cells:
    """64 partial results, then combined by halving."""
    if is_empty(scope, stage.over):
        return _cells(stage, [_results(stage, _start(scope, stage, 1))])
    sums, extent = lane_sums(scope, stage, fused), scope.extent(stage.over[-1])
    whole = extent // PARTIALS * PARTIALS
    carried = _carried(sums)

    def row(here: Scope, texts: Texts) -> Texts:
        here = prepared(here, sums)
        if whole:
            values = with_nan(here, sums, list(zip([t for t, _ in carried], texts, strict=True)))
            texts = here.f.loop(
                0, whole, PARTIALS,
                lambda index, old: sum_block(here, sums, index, old), values, at_least_once=True,
            )  # fmt: skip
            texts = without_nan(here, sums, texts)
        return sum_rest(here, sums, whole, texts)

    outer, blocked = stage.over[:-1], blocked_by(stage) | {sums.axis}
    return summed(scope, sums, loops(scope, outer, stage.values, blocked, row, carried))


def _carried(sums: LaneSums) -> Carried:
    return [(v.type, v.text) for start in sums.starts for v in monoids.flatten(start)]


def prepared(scope: Scope, sums: LaneSums) -> Scope:
    """Compute what a loop over blocks of 64 positions needs; the scope for it."""
    stage, fused = sums.stage, sums.fused
    blocked = blocked_by(stage) | {sums.axis}
    hoist(scope, stage.values, blocked, sums.width)
    hoist_prefetches(scope, stage, blocked)
    if fused is None:
        return scope
    scope, _ = single(scope, fused.stage.axes)
    blocked = blocked_by(fused.stage) | {fused.axis}
    hoist(scope, [s.value for s in fused.stage.stores], blocked, sums.width)
    hoist_stores(scope, fused.stage.stores, blocked)
    hoist_prefetches(scope, fused.stage, blocked)
    return scope


def begin_sums(scope: Scope, sums: LaneSums) -> tuple[Scope, Carried]:
    """What precedes a loop over whole blocks that other stages share; what the loop carries."""
    scope, _ = single(scope, sums.stage.over)
    scope = prepared(scope, sums)
    return scope, with_nan(scope, sums, _carried(sums))


def end_sums(scope: Scope, sums: LaneSums, done: int, texts: Texts) -> Cells:
    """The positions from `done` on, and the cells."""
    return summed(scope, sums, sum_rest(scope, sums, done, without_nan(scope, sums, texts)))


def sum_block(scope: Scope, sums: LaneSums, index: str, texts: Texts) -> Texts:
    """64 positions from `index` into the partials, and into whether there was a NaN."""
    if not sums.extreme:
        return _block(scope, sums, index, texts, None, _combined)
    seen: list[Vec] = []

    def combine(scope: Scope, stage: ir.Reduce, old: list[Value], new: list[Value]) -> list[Value]:
        seen.extend(new)
        return [prims.extreme(stage.monoid, o, v) for o, v in zip(old, new, strict=True)]

    *partials, nan = texts
    following = _block(scope, sums, index, partials, None, combine)
    return [*following, (Vec(scope.code, "i1", sums.width, nan) | _any_nan(seen)).text]


def sum_rest(scope: Scope, sums: LaneSums, done: int, texts: Texts) -> Texts:
    """The positions from `done` on into the partials."""
    extent = scope.extent(sums.axis)
    for low in range(done, extent, PARTIALS):
        high = extent if low + PARTIALS > extent else None
        texts = _block(scope, sums, str(low), texts, high, _combined)
    return texts


def _block(
    scope: Scope,
    sums: LaneSums,
    index: str,
    texts: Texts,
    high: int | None,
    combine: Combine,
) -> Texts:
    """64 positions from `index`, or those below `high`, into the partials."""
    stage, starts, fused = sums.stage, sums.starts, sums.fused
    positions = {sums.axis: index}
    if fused is not None:
        positions[fused.axis] = index
    copies = _copies(scope, sums, index, high)
    lanes = Lanes(sums.axis if sums.width > 1 else None, sums.width, copies)
    each = len(texts) // len(starts)
    following = list(texts)
    for here in each_copy(inner(scope, axes=with_axes(scope, positions), lanes=lanes)):
        if fused is not None:
            _emit_fused(here, fused)
        prefetch_rows(here, stage)
        number, mask = here.copy.number, here.copy.mask
        mine = slice(number * each, (number + 1) * each)
        old = monoids.unflatten(scope.code, starts[number], texts[mine])
        new = combine(here, stage, old, _values(here, stage, old))
        following[mine] = [v.text for v in monoids.flatten(monoids.keep(mask, new, old))]
    return following


def _copies(scope: Scope, sums: LaneSums, index: str, high: int | None) -> tuple[Copy, ...]:
    """The vectors of a block, as far as there are positions below `high`."""
    width, copies = sums.width, []
    for n in range(len(sums.starts)):
        left = width if high is None else high - int(index) - n * width
        if left <= 0:
            break
        mask = None
        if left < width:
            mask = scope.code.consts("i1", [lane < left for lane in range(width)])
        copies.append(Copy(n, index, n * width, mask))
    return tuple(copies)


def _emit_fused(scope: Scope, fused: FusedMap) -> None:
    """The current vector of the Map: store its results, and remember them for the reduction."""
    there = replace(scope, lanes=replace(scope.lanes, axis=fused.axis))
    stores = fused.stage.stores
    prefetch_rows(there, fused.stage)
    values = [splat(there, value(there, s.value), scope.lanes.width) for s in stores]
    for store, found in zip(stores, values, strict=True):
        put(there, store, found, None)
    for found, loads in zip(values, fused.loads, strict=True):
        for load in loads:
            remember(scope, load, found)


def summed(scope: Scope, sums: LaneSums, texts: Texts) -> Cells:
    """The partials as the values of the cells."""
    pieces = _pieces(texts, len(texts) // len(sums.starts))
    partials = [
        monoids.unflatten(scope.code, start, t)
        for start, t in zip(sums.starts, pieces, strict=True)
    ]
    return _cells(sums.stage, [_results(sums.stage, _halved(sums.stage, partials, sums.width))])


# ---------------------------------------------------------------- extremes and NaN


def with_nan(scope: Scope, sums: LaneSums, carried: Carried) -> Carried:
    """What a loop carries, of an extreme with lanes in which there is a NaN."""
    if not sums.extreme:
        return carried
    kind = sums.starts[0][0].kind
    nan = _any_nan([Vec(scope.code, kind, sums.width, text) for _, text in carried])
    return [*carried, (nan.type, nan.text)]


def without_nan(scope: Scope, sums: LaneSums, texts: Texts) -> Texts:
    """The partials after such a loop: NaN in the lanes in which there was one."""
    if not sums.extreme:
        return texts
    *partials, last = texts
    first = Vec(scope.code, sums.starts[0][0].kind, sums.width, partials[0])
    nan = Vec(scope.code, "i1", sums.width, last)
    return [nan.where(first.like(float("nan")), first).text, *partials[1:]]


def _is_extreme(stage: ir.Reduce) -> bool:
    return stage.monoid in ("min", "max") and len(stage.values) == 1


def _any_nan(vectors: Sequence[Vec]) -> Vec:
    """Lanes in which any of the vectors has a NaN."""
    found = [a.compare("uno", b) for a, b in zip(vectors[::2], vectors[1::2], strict=False)]
    found += [v.is_nan() for v in vectors[len(vectors) // 2 * 2 :]]
    return functools.reduce(lambda a, b: a | b, found)


# ---------------------------------------------------------------- partials into one


def _halved(stage: ir.Reduce, partials: list[list[Value]], width: int) -> list[Value]:
    """p[l] = p[l] + p[l + h] for h = 32, 16 ... 1; partials never touched are identities."""
    if width > 1 and _is_extreme(stage) and prims.has_extreme(partials[0][0]):
        return [_extreme_of(stage.monoid, [p for (p,) in partials])]
    half = PARTIALS // 2
    while half >= width:
        count = half // width
        joined = [
            _joined(stage, p, q) for p, q in zip(partials[:count], partials[count:], strict=False)
        ]
        partials = joined + partials[len(joined) : count]
        half //= 2
    result = partials[0]
    while half:
        low = [monoids.shuffle(v, list(range(half))) for v in result]
        high = [monoids.shuffle(v, list(range(half, 2 * half))) for v in result]
        result = _joined(stage, low, high)
        half //= 2
    return result


def _joined(stage: ir.Reduce, a: list[Value], b: list[Value]) -> list[Value]:
    if stage.monoid in monoids.ARGS:
        first, second = (a[0], a[1]), (b[0], b[1])
        return list(monoids.pick(stage.monoid, first, second, stage.cells[0].dtype))
    return [
        monoids.combine(stage.monoid, x, y, c.dtype)
        for x, y, c in zip(a, b, stage.cells, strict=True)
    ]


def _extreme_of(monoid: str, vectors: list[Vec]) -> Vec:
    """The extreme of all lanes by one instruction a step; whether any is NaN is found beside it. An
    extreme is exact, so that any order is the right one."""
    code, nan = vectors[0].code, _any_nan(vectors)
    nan = code.call(f"llvm.vector.reduce.or.{nan.suffix}", "i1", 1, (nan,))
    best = functools.reduce(functools.partial(prims.extreme, monoid), vectors)
    half = best.width // 2
    while half:
        best = prims.extreme(monoid, best, best.shuffle([n ^ half for n in range(best.width)]))
        half //= 2
    return nan.where(code.const(best.kind, float("nan")), best.lane(0))


def _pieces(texts: Texts, size: int) -> Iterator[Texts]:
    return (texts[at : at + size] for at in range(0, len(texts), size))
