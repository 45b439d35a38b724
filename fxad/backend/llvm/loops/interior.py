"""Index-set splitting: a loop whose conditions on positions do not change but at its edges.

    out0[i, j] = select(lt(j, 511), (in0[512*i + j + 1] if lt(j, 511)), in0[512*i + j - 511])

`roll`, `pad`, `concatenate` and updates of slices ask of every point in which part it lies. Here
the answer is one for j < 496, so those vectors run without conditions, masks or second loads; the
others, and rows at the edges of outer axes, run the body as it is. The elements are the same.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fxad.backend.llvm.elements.scope import Need, Scope, inner
from fxad.backend.llvm.elements.values import hoist
from fxad.backend.llvm.loops.nest import Vectors, vectors
from fxad.core import dtypes as dt
from fxad.core.record import record, replace
from fxad.ir import kernel as ir

LEAST_VECTORS = 4  # of a lane axis, from which a second loop is worth its code
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")
}
Range = tuple[int, int]


@record
class Interior:
    """ranges: positions on each axis between which no condition changes; body: the stages there."""

    ranges: Mapping[ir.Axis, Range]
    body: Sequence[ir.Map]


def interior(
    body: Sequence[ir.Stage], extents: Mapping[ir.Axis, int], lanes: ir.Axis, width: int
) -> Interior | None:
    """Where most points of a grid lie whose conditions are alike; None if that is nowhere, or does
    not make the body simpler.

    extents: of the grid's axes, `lanes` among them, of which ranges are whole vectors of `width`.
    """
    maps = [stage for stage in body if isinstance(stage, ir.Map) and not stage.axes]
    if len(maps) < len(body):
        return None
    roots = [e for stage in maps for e in ir.exprs_of(stage)]
    tests = list(_tests(roots, extents))
    breaks: dict[ir.Axis, set[int]] = {}
    for _, axis, coefficient, const, name, limit in tests:
        breaks.setdefault(axis, set()).update(_changes(coefficient, const, name, limit))
    ranges = {}
    for axis, places in breaks.items():
        extent = extents[axis]
        edges = [0, *sorted(p for p in places if 0 < p < extent), extent]
        low, high = max(itertools.pairwise(edges), key=lambda r: r[1] - r[0])
        if 2 * (high - low) > extent:
            ranges[axis] = low, high
    settled = set(ranges)
    low, high = ranges.get(lanes, (0, extents[lanes]))
    ranges[lanes] = low, high = -(-low // width) * width, high // width * width
    if not settled or high - low < LEAST_VECTORS * width:
        return None
    known: dict[ir.Expr, bool] = {
        test: _TESTS[name](coefficient * ranges[axis][0] + const, limit)
        for test, axis, coefficient, const, name, limit in tests
        if axis in settled
    }
    inside = _simplified(maps, known)
    return Interior(ranges, inside) if known and inside else None


def _tests(
    roots: Sequence[ir.Expr], extents: Mapping[ir.Axis, int]
) -> Iterator[tuple[ir.Prim, ir.Axis, int, int, str, int]]:
    """Comparisons of (coefficient * axis + const) with a number."""
    for e in ir.walk(*roots):
        match e:
            case ir.Prim(name, (ir.IndexValue(index), ir.Const(int(limit)))) if name in _TESTS:
                if len(index.terms) != 1:
                    continue
                ((axis, coefficient),) = index.terms
                if isinstance(axis, ir.Axis) and axis in extents:
                    yield e, axis, coefficient, index.const, name, limit


def _changes(coefficient: int, const: int, name: str, limit: int) -> list[int]:
    """Positions from which on a test may have another answer than before."""
    if name in ("eq", "ne"):
        place, rest = divmod(limit - const, coefficient)
        return [] if rest else [place, place + 1]
    if name in ("le", "gt"):
        limit += 1  # of integers, x <= b is x < b + 1
    if coefficient > 0:
        return [-((const - limit) // coefficient)]
    return [(const - limit) // -coefficient + 1]


def _simplified(body: Sequence[ir.Map], known: Mapping[ir.Expr, bool]) -> list[ir.Map]:
    """The stages with tests replaced by their answers."""
    done: dict[int, ir.Expr] = {}

    def new(e: ir.Expr) -> ir.Expr:
        return done[id(e)]

    for e in ir.walk(*(e for stage in body for e in ir.exprs_of(stage))):
        done[id(e)] = _answered(e, known, new)
    stages = []
    for stage in body:
        stores = []
        for store in stage.stores:
            guard = None if store.guard is None else new(store.guard)
            if not _is(guard, False):
                guard = None if _is(guard, True) else guard
                stores.append(replace(store, value=new(store.value), guard=guard))
        stages.append(replace(stage, stores=tuple(stores)))
    return [stage for stage in stages if stage.stores]


def _answered(
    e: ir.Expr, known: Mapping[ir.Expr, bool], new: Callable[[ir.Expr], ir.Expr]
) -> ir.Expr:
    """One expression over simplified operands."""
    if e in known:
        return ir.Const(known[e], dt.bool_)
    match e:
        case ir.Load(guard=guard, fill=fill) if guard is not None:
            guard, fill = new(guard), None if fill is None else new(fill)
            if _is(guard, True):
                return replace(e, guard=None, fill=None)
            if _is(guard, False):
                return ir.Const(0, e.dtype) if fill is None else fill
            if guard is not e.guard or fill is not e.fill:
                return replace(e, guard=guard, fill=fill)
        case ir.Cast(arg) if new(arg) is not arg:
            return replace(e, arg=new(arg))
        case ir.Prim(name, old):
            args = tuple(map(new, old))
            if name == "select" and isinstance(args[0], ir.Const):
                return args[1] if args[0].value else args[2]
            if name in ("and", "or") and e.dtype == dt.bool_:
                for this, other in (args, args[::-1]):
                    if isinstance(this, ir.Const):
                        return other if bool(this.value) == (name == "and") else this
            if any(a is not b for a, b in zip(args, old, strict=True)):
                return replace(e, args=args)
    return e


def _is(e: ir.Expr | None, answer: bool) -> bool:
    return isinstance(e, ir.Const) and bool(e.value) == answer


# ---------------------------------------------------------------- the loops


def interior_loop(
    scope: Scope,
    found: Interior,
    axis: ir.Axis,
    low: str | int,
    high: str | int,
    width: int,
    unroll: int,
    roots: Sequence[ir.Expr],
    blocked: frozenset[Need],
    general: Vectors,
    roots_inside: Sequence[ir.Expr],
    inside: Vectors,
) -> None:
    """The lane loop over low..high, where low is a multiple of `width`: `inside` at vectors of the
    interior, `unroll` at a time, and `general` at those before and after it, one by one.

    What is read inside has no guard there, so nothing of it is computed where no vector is inside.
    """
    f, step = scope.f, width * unroll
    hoist(scope, roots, blocked | {axis}, width)
    first, last = found.ranges[axis]
    begin: str | int = f.least(f.most(low, first), high)
    end: str | int = f.most(f.least(high, last), begin)
    in_rows = _in_rows(scope, found, axis)
    if in_rows is not None:  # rows of the edge have no interior
        begin, end = (f.op(f"select i1 {in_rows}, i64 {x}, i64 {high}") for x in (begin, end))
    gap = f.op(f"sub i64 {end}, {begin}")
    mask = high if scope.extent(axis) % width else None
    edge = vectors(scope, axis, width, 1, mask, general)

    def at_edge(index: str, texts: list[str]) -> None:
        before = f.op(f"icmp slt i64 {index}, {begin}")
        edge(f.op(f"select i1 {before}, i64 {index}, i64 {f.add(index, gap)}"), texts)

    f.loop(low, f.op(f"sub i64 {high}, {gap}"), width, at_edge)

    def interior() -> None:
        here = inner(scope)
        hoist(here, roots_inside, blocked | {axis}, width)
        whole = f.op(f"sub i64 {end}, {f.op(f'urem i64 {gap}, {step}')}")
        f.loop(begin, whole, step, vectors(here, axis, width, unroll, None, inside))
        if unroll > 1:
            f.loop(whole, end, width, vectors(here, axis, width, 1, None, inside))

    f.when(f.op(f"icmp slt i64 {begin}, {end}"), interior)


def _in_rows(scope: Scope, found: Interior, lanes: ir.Axis) -> str | None:
    """Whether the outer axes are in their ranges here; None where they always are."""
    f, known = scope.f, None
    for axis, (low, high) in found.ranges.items():
        if axis is lanes or high - low == scope.extent(axis):
            continue
        past = f.op(f"sub i64 {scope.axes[axis]}, {low}")
        test = f.op(f"icmp ult i64 {past}, {high - low}")
        known = test if known is None else f.op(f"and i1 {known}, {test}")
    return known
