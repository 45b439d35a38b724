"""Axes split where indices ask for it: c = (h, d) where something is read at c // 64 and c % 64.

Merging heads, [b, t, h, d] seen as [b, t, h * d], reads its operand at quotients and remainders;
over split axes the same reads are affine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fxad.ir.index import Point
from fxad.ir.kernel import Axis, Expr, Index, IndexValue, Load, Quot, Rem, at, children, walk

_ROUNDS = 4


@dataclass(eq=False, slots=True)
class Body:
    """Expressions over axes; `parts` are the axes each original axis became.

    depth: operations on the longest way from a load to a value.
    """

    parts: tuple[tuple[Axis, ...], ...]
    values: list[Expr]
    loads: list[Load]
    indices: list[Index]
    depth: int

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple([axis for part in self.parts for axis in part])


def over_split_axes(
    axes: Sequence[Axis], build: Callable[[Point], list[Expr]], fixed: int | None = None
) -> Body:
    """Build expressions at the point of the axes, split as needed (all but axis `fixed`)."""
    parts: tuple[tuple[Axis, ...], ...] = tuple([(axis,) for axis in axes])
    for _ in range(_ROUNDS):
        values = build(tuple([_joined(part) for part in parts]))
        body = collected(parts, values)
        wanted = _wanted(body)
        if fixed is not None:
            wanted.pop(axes[fixed], None)
        if not wanted:
            break
        parts = tuple([_split(part, wanted) for part in parts])
    return body


def _joined(part: tuple[Axis, ...]) -> Index:
    index = Index()
    for axis in part:
        index = index * axis.extent + at(axis)
    return index


def collected(parts: Iterable[tuple[Axis, ...]], values: list[Expr]) -> Body:
    """The body with its loads and indices listed."""
    loads, indices = [], []
    depths: dict[int, int] = {}
    for expr in walk(*values):
        below = [depths.get(id(child), 0) for child in children(expr)]
        depths[id(expr)] = 1 + max(below, default=0)
        if type(expr) is Load:
            loads.append(expr)
            indices.append(expr.index)
        elif type(expr) is IndexValue:
            indices.append(expr.index)
    return Body(tuple(parts), values, loads, indices, max(depths.values(), default=0))


def _wanted(body: Body) -> dict[Axis, int]:
    """Divisors of axes in quotients and remainders of a single axis."""
    found: dict[Axis, int] = {}
    for index in body.indices:
        for atom, _ in index.terms:
            if isinstance(atom, Quot | Rem) and not atom.index.const and len(atom.index.terms) == 1:
                ((axis, coefficient),) = atom.index.terms
                if type(axis) is Axis and coefficient == 1 and axis.extent % atom.divisor == 0:
                    found.setdefault(axis, atom.divisor)
    return found


def _split(part: tuple[Axis, ...], wanted: dict[Axis, int]) -> tuple[Axis, ...]:
    found: list[Axis] = []
    for axis in part:
        if axis in wanted:
            found += [Axis("", axis.extent // wanted[axis]), Axis("", wanted[axis])]
        else:
            found.append(axis)
    return tuple(found)
