"""Scatters into a constant that need no scatter: every element of the result is hit at most once.

    zeros(n, v).at[i, t[i]].add(u[i])   ->   out[i, j] = u[i] if j == t[i] else 0
    its sum over j                      ->   out[i] = u[i]

The gradient of picking one logit per row is of this kind; so it costs no pass over memory.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.core import dtypes as dt
from fxad.ir.index import ZERO, axes_for
from fxad.ir.kernel import INDEX, Const, Expr, IndexValue, Prim, at
from fxad.ir.loops import Indexed, Point, Scatter
from fxad.ir.program import Atom

Read = Callable[..., Expr]


def selected(record: Scatter, operands: tuple[Atom, ...], shape: tuple[int, ...]) -> Indexed | None:
    """The scatter into a result of `shape` as a choice at every element; None if updates collide.

    That is so if along every axis of the updates but those of length 1 the result's index is the
    update's index.
    """
    source = _sources(record, operands, shape)
    if source is None:
        return None
    tested = [o for o in range(len(shape)) if o not in source.values()]
    rank = operands[record.update].type.ndim

    def value(point: Point, read: Read) -> Expr:
        where = tuple([point[source[n]] if n in source else ZERO for n in range(rank)])
        target, hit = record.target(where, read)
        for axis in tested:
            if shape[axis] == 1 and target[axis] == ZERO:
                continue
            here = IndexValue(point[axis], INDEX), IndexValue(target[axis], INDEX)
            equal = Prim("eq", here, dt.bool_)
            hit = equal if hit is None else Prim("and", (hit, equal), dt.bool_)
        new = read(record.update, where)
        old = read(0, point)
        if record.monoid != "set":
            new = Prim(record.monoid, (old, new), new.dtype)
        return new if hit is None else Prim("select", (hit, new, old), new.dtype)

    return Indexed(value)


def summed(
    record: Scatter,
    operands: tuple[Atom, ...],
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    negative: bool,
) -> Indexed | None:
    """The sum over `axes` of a scatter into zeros (or of its negative) as the update at each place.

    None unless each sum has one update. Bits are the sum's: it begins with 0.
    """
    source = _sources(record, operands, shape)
    if source is None or record.monoid != "add":
        return None
    kept = [o for o in range(len(shape)) if o not in axes]
    if sorted(source.values()) != [o for o in kept if shape[o] != 1]:
        return None
    rank = operands[record.update].type.ndim
    place = {n: kept.index(o) for n, o in source.items()}

    def value(point: Point, read: Read) -> Expr:
        where = tuple([point[place[n]] if n in place else ZERO for n in range(rank)])
        _, hit = record.target(where, read)
        new = read(record.update, where)
        zero = Const(0, new.dtype)
        new = Prim("add", (zero, new), new.dtype)
        new = new if hit is None else Prim("select", (hit, new, zero), new.dtype)
        new = Prim("neg", (new,), new.dtype) if negative else new
        return Prim("add", (zero, new), new.dtype)

    return Indexed(value)


def _sources(
    record: Scatter, operands: tuple[Atom, ...], shape: tuple[int, ...]
) -> dict[int, int] | None:
    """For the axes of the updates but those of length 1 the result's axis with the same index;
    None if updates may collide."""
    update = operands[record.update].type.shape
    if 0 in update or any(update[axis] != 1 for axis in record.serial):
        return None
    axes = axes_for(update)

    def nothing(number: int, point: Point, guard: object = None, fill: object = None) -> Expr:
        return Const(0, operands[number].type.dtype)

    target, _ = record.target(tuple([at(a) for a in axes]), nothing)
    source: dict[int, int] = {}
    for number, axis in enumerate(axes):
        if axis.extent == 1:
            continue
        same = [o for o, i in enumerate(target) if i == at(axis) and shape[o] == axis.extent]
        if len(same) != 1:
            return None
        source[number] = same[0]
    return source
