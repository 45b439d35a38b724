"""Arithmetic on kernel indices: points to flat positions and back, axes replaced by indices.

flat((at(i), at(j)), (3, 4)) == 4 i + j
unflat(4 i + j, (3, 4)) == (i, j)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fxad.ir.kernel import (
    Attention,
    Axis,
    Buffer,
    Cast,
    Const,
    Data,
    Expr,
    Get,
    Index,
    IndexValue,
    Load,
    Operand,
    Packed,
    Param,
    Prim,
    Quot,
    Rem,
    Stage,
    Store,
    quotient,
    remainder,
)

Point = tuple[Index, ...]
ZERO = Index()


@functools.lru_cache(1 << 12)
def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)


def flat(point: Point, shape: tuple[int, ...]) -> Index:
    """Row-major position of a point; quotients and remainders of one index are put together."""
    const = 0
    terms: dict[Axis | Quot | Rem | Data, int] = {}
    recombine = False
    for index, stride in zip(point, strides_of(shape), strict=True):
        const += index.const * stride
        for atom, coefficient in index.terms:
            terms[atom] = terms.get(atom, 0) + coefficient * stride
            recombine = recombine or type(atom) is Rem
    result = Index(const, tuple([(a, c) for a, c in terms.items() if c]))
    return recombined(result) if recombine else result


def recombined(index: Index) -> Index:
    """x where the index says (x // d) * d + x % d."""
    for atom, coefficient in index.terms:
        if type(atom) is not Rem:
            continue
        partner = (Quot(atom.index, atom.divisor), coefficient * atom.divisor)
        if partner in index.terms:
            rest = tuple(t for t in index.terms if t[0] is not atom and t != partner)
            return recombined(Index(index.const, rest) + atom.index * coefficient)
    return index


def unflat(index: Index, shape: Sequence[int]) -> Point:
    """The point of a shape at a row-major position."""
    point: list[Index] = []
    for i in range(len(shape) - 1, -1, -1):
        if i == 0:
            point.append(index if shape[i] != 1 else ZERO)
            break
        if shape[i] == 0:
            return (ZERO,) * len(shape)
        point.append(remainder(index, shape[i]))
        index = quotient(index, shape[i])
    return tuple(reversed(point))


def axes_for(shape: Sequence[int]) -> tuple[Axis, ...]:
    """Axes of a shape, without names: a kernel numbers those that it uses."""
    return tuple([Axis("", extent) for extent in shape])


def is_affine(index: Index) -> bool:
    """Only axes, no quotients, remainders or data."""
    return all(type(atom) is Axis for atom, _ in index.terms)


def _same_load(old: Load, index: Index, guard: Expr | None, fill: Expr | None) -> Expr:
    return Load(old.buffer, index, guard, fill)


class Substitution:
    """Replaces axes by indices in indices and expressions; shared subexpressions stay shared.

    `load` says what becomes of a Load (given its index, guard and fill after replacement).
    Substitutions given the same `pool` answer one object for equal expressions.
    """

    def __init__(
        self,
        env: Mapping[Axis, Index],
        load: Callable[[Load, Index, Expr | None, Expr | None], Expr] = _same_load,
        leaf: Callable[[Expr], Expr] = lambda expr: expr,
        pool: dict[tuple[object, ...], Expr] | None = None,
    ) -> None:
        self.env = env
        self.load = load
        self.leaf = leaf
        self.pool = {} if pool is None else pool
        self._done: dict[int, tuple[Expr, Expr]] = {}
        self._atoms: dict[Quot | Rem | Data, Index] = {}

    def index(self, index: Index) -> Index:
        env = self.env
        const = index.const
        terms: dict[Axis | Quot | Rem | Data, int] = {}
        recombine = False
        for atom, coefficient in index.terms:
            new = env[atom] if type(atom) is Axis else self._atom(atom)
            const += new.const * coefficient
            for a, c in new.terms:
                terms[a] = terms.get(a, 0) + c * coefficient
                recombine = recombine or type(a) is Rem
        result = Index(const, tuple([(a, c) for a, c in terms.items() if c]))
        return recombined(result) if recombine else result

    def _atom(self, atom: Quot | Rem | Data) -> Index:
        known = self._atoms.get(atom)
        if known is None:
            match atom:
                case Quot():
                    known = quotient(self.index(atom.index), atom.divisor)
                case Rem():
                    known = remainder(self.index(atom.index), atom.divisor)
                case Data():
                    known = Index(0, ((Data(self(atom.value), atom.size), 1),))
            self._atoms[atom] = known
        return known

    def __call__(self, expr: Expr) -> Expr:
        known = self._done.get(id(expr))
        if known is not None:
            return known[1]
        match expr:
            case Prim():
                args = tuple([self(a) for a in expr.args])
                key: tuple[object, ...] = (expr.name, id(expr.dtype), *map(id, args))
                new: Expr | None = self.pool.get(key)
                if new is None:
                    new = self.pool[key] = Prim(expr.name, args, expr.dtype)
            case Cast():
                arg = self(expr.arg)
                key = (id(expr.dtype), id(arg))
                new = self.pool.get(key)
                if new is None:
                    new = self.pool[key] = Cast(arg, expr.dtype)
            case Load():
                guard = None if expr.guard is None else self(expr.guard)
                fill = None if expr.fill is None else self(expr.fill)
                new = self.load(expr, self.index(expr.index), guard, fill)
            case IndexValue():
                index = self.index(expr.index)
                key = (index, id(expr.dtype))
                new = self.pool.get(key)
                if new is None:
                    new = self.pool[key] = IndexValue(index, expr.dtype)
            case Const():
                key = (id(expr.dtype), repr(expr.value))
                new = self.pool.setdefault(key, expr)
            case _:
                new = self.leaf(expr)
        self._done[id(expr)] = (expr, new)  # keeps `expr` alive, so its id stays its own
        return new


def substituted(
    stage: Stage,
    axes: Mapping[Axis, Axis],
    move: Substitution,
    buffer: Callable[[Buffer], Buffer],
) -> Stage:
    """A stage over other axes and buffers. `move` does in expressions what the others say; cells
    stay what they are."""
    fields = [getattr(stage, name) for name in stage.__match_args__]
    return type(stage)(*[_moved(field, axes, move, buffer) for field in fields])


def _moved(
    field: Any,
    axes: Mapping[Axis, Axis],
    move: Substitution,
    buffer: Callable[[Buffer], Buffer],
) -> Any:
    """A field of a stage. (A function inside `substituted` that called itself would be a cycle.)"""
    match field:
        case Axis():
            return axes[field]
        case Buffer():
            return buffer(field)
        case Index():
            return move.index(field)
        case tuple():
            return tuple([_moved(item, axes, move, buffer) for item in field])
        case Store():  # its buffer is numbered after those that its value reads
            value, guard = [_moved(e, axes, move, buffer) for e in (field.value, field.guard)]
            return Store(buffer(field.buffer), move.index(field.index), value, guard)
        case Operand() | Packed() | Attention():
            fields = [getattr(field, name) for name in field.__match_args__]
            return type(field)(*[_moved(item, axes, move, buffer) for item in fields])
        case Const() | Param() | Get() | IndexValue() | Load() | Prim() | Cast():
            return move(field)
    return field  # cells, and what is no part of the loops
