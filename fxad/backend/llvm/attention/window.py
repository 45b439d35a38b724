"""Which keys a row of queries sees, and which rows see a key.

    window = whole_window(code, scope)
    low, high = visible_keys(code, window, "%row")           # of one row
    low, high = keys_of_rows(code, window, "%first", "48")   # of some, in whole panels

A causal row sees the keys up to its own, a local window some before it; where a mask of keys lets
one run of them through (key_mask.py), no row sees another.
"""

from __future__ import annotations

from fxad.backend.llvm.attention.code import Code
from fxad.backend.llvm.elements.scope import Scope, inner, with_axes
from fxad.backend.llvm.elements.values import scalar_index
from fxad.core.record import record
from fxad.ir.kernel import Index

Range = tuple[str, str]  # low <= n < high


@record
class Block:
    """A block of query rows: the first, and how many there are."""

    first: str
    count: str


@record
class Window:
    """The keys that rows of a head may see: first <= j < end, and within these the stage's bounds.

    scope: at the head's grid point. masked: whether first and end are those of a mask of keys.
    scale: what a score is multiplied by, if that is all that is done to one of these keys.
    """

    scope: Scope
    first: str
    end: str
    masked: bool
    scale: float | None


def whole_window(code: Code, scope: Scope) -> Window:
    """All keys."""
    problem = code.problem
    return Window(scope, "0", str(problem.keys), masked=False, scale=problem.scale)


def visible_keys(code: Code, window: Window, row: str) -> Range:
    """The keys that a row sees, within those of the window."""
    f, stage = code.f, code.problem.stage
    here = inner(window.scope, axes=with_axes(window.scope, {stage.rows: row}))
    low, high = scalar_index(here, stage.lower), scalar_index(here, stage.upper)
    low = f.least(f.most(low, window.first), window.end)
    return low, f.most(f.least(high, window.end), low)


def keys_of_rows(code: Code, window: Window, first: str, count: str) -> Range:
    """The keys that `count` rows from `first` on see, in whole panels."""
    f, panel = code.f, code.problem.panel
    low, _ = visible_keys(code, window, first)
    _, high = visible_keys(code, window, f.op(f"sub i64 {f.add(first, count)}, 1"))
    low = f.mul(f.op(f"udiv i64 {low}, {panel}"), panel)
    panels = f.op(f"udiv i64 {f.add(high, panel - 1)}, {panel}")
    return low, f.mul(panels, panel)


def keys_of_tile(code: Code, window: Window, row: str, height: int) -> Range:
    """The keys that any of so many rows from `row` on sees."""
    f = code.f
    last = f.least(f.add(row, height - 1), code.problem.queries - 1)
    return visible_keys(code, window, row)[0], visible_keys(code, window, last)[1]


def rows_of_keys(code: Code, window: Window, key: str, count: int, rows: Block) -> Range:
    """Those rows of a block, counted from its first, that see any of `count` keys from `key` on."""
    f, stage = code.f, code.problem.stage
    low, high = "0", rows.count
    if stage.upper.coefficient(stage.rows):
        after = _at_row_0(code, window, stage.upper)
        low = f.most(f.op(f"sub i64 {f.add(key, 1)}, {f.add(rows.first, after)}"), 0)
    if stage.lower.coefficient(stage.rows):
        before = _at_row_0(code, window, stage.lower)
        end = f.op(f"sub i64 {f.add(key, count)}, {f.add(rows.first, before)}")
        high = f.least(f.most(end, 0), rows.count)
    return f.least(low, high), high


def _at_row_0(code: Code, window: Window, bound: Index) -> str:
    """A bound of the keys that row 0 sees."""
    axes = with_axes(window.scope, {code.problem.stage.rows: "0"})
    return scalar_index(inner(window.scope, axes=axes), bound)
