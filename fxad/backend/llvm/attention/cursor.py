"""A scope that moves, for the functions of attention.

    cursor.scopes.append({})
    cursor.env[axis] = "%i"
    y = cursor.value(Load(x, at(axis)))
    cursor.scopes.pop()

Loops and products hand the scope of their inside on (`elements/scope.py`). Attention's functions
have one place where they are, and set where that is as they go; every method here looks at it as a
Scope.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fxad.backend.llvm.base.formats import Value
from fxad.backend.llvm.contract.arguments import at_grid_point
from fxad.backend.llvm.elements import values
from fxad.backend.llvm.elements.scope import ONLY, Copy, Lanes, Need, Scope
from fxad.ir import kernel as ir


class Cursor:
    """The present place in a function, and values there. Its fields may be set at any time."""

    def __init__(self, start: Scope) -> None:
        self.start, self.code, self.f = start, start.code, start.f
        self.env: dict[ir.Axis, str] = {}
        self.cells: dict[ir.Cell, dict[int, Value]] = {}
        self.varying_cells: set[ir.Cell] = set()
        self.lane_axis: ir.Axis | None = None
        self.width = 1
        self.copies: list[Copy] = [ONLY]
        self.copy = ONLY
        self.scopes: list[dict[Any, Any]] = [{}]

    @property
    def scope(self) -> Scope:
        """The present place."""
        return Scope(
            self.start.context,
            tuple(reversed(self.scopes)),
            axes=self.env,
            cells=self.cells,
            varying=frozenset(self.varying_cells),
            lanes=Lanes(self.lane_axis, self.width, tuple(self.copies)),
            copy=self.copy,
        )

    def go_to(self, kernel: ir.Kernel, point: str) -> None:
        """To a point of the kernel's grid."""
        self.env.update(at_grid_point(self.scope, kernel, point).axes)

    def lanes_along(self, axis: ir.Axis | None, width: int) -> None:
        self.lane_axis, self.width = axis, width
        self.copies, self.copy = [ONLY], ONLY

    def each_copy(self) -> Iterator[Copy]:
        """Be at each vector of the unrolled loop in turn; their code is interleaved."""
        starts = []
        for copy in self.copies:
            self.copy = copy
            starts.append(len(self.f.lines))
            yield copy
        self.f.interleave(starts)

    def needs(self, expr: ir.Expr) -> frozenset[Need]:
        return self.start.context.needs.of(expr)

    def value(self, expr: ir.Expr) -> Value:
        return values.value(self.scope, expr)

    def scalar_index(self, index: ir.Index) -> str:
        return values.scalar_index(self.scope, index)
