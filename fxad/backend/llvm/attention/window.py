"""Which keys a row of queries sees, and which rows see a key.

    window = whole_window(code, scope)
    low, high = visible_keys(code, window, "%row")           # of one row
    low, high = keys_of_rows(code, window, "%first", "48")   # of some, in whole panels

A causal row sees the keys up to its own, a local window some before it; where a mask of keys lets
one run of them through (key_mask.py), no row sees another. Bounds that are read from an array, as
those of documents in a row are, do not fall from row to row: which rows of a block see a key is
found by bisection.
"""

from __future__ import annotations

from fxad.backend.llvm.attention.code import Code
from fxad.backend.llvm.elements.scope import Scope, inner, with_axes
from fxad.backend.llvm.elements.values import scalar_index
from fxad.core.record import record
from fxad.ir.kernel import Data, Index

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
    if _is_read(stage.upper):
        low = _rows_up_to(code, window, stage.upper, key, rows)
    elif stage.upper.coefficient(stage.rows):
        after = _at_row_0(code, window, stage.upper)
        low = f.most(f.op(f"sub i64 {f.add(key, 1)}, {f.add(rows.first, after)}"), 0)
    if _is_read(stage.lower):
        high = _rows_up_to(code, window, stage.lower, f.add(key, count - 1), rows)
    elif stage.lower.coefficient(stage.rows):
        before = _at_row_0(code, window, stage.lower)
        end = f.op(f"sub i64 {f.add(key, count)}, {f.add(rows.first, before)}")
        high = f.least(f.most(end, 0), rows.count)
    return f.least(low, high), high


def _is_read(bound: Index) -> bool:
    """Whether a bound is read from an array."""
    return any(isinstance(atom, Data) for atom, _ in bound.terms)


def _rows_up_to(code: Code, window: Window, bound: Index, most: str, rows: Block) -> str:
    """How many rows of a block, from its first on, have a bound of at most `most`.

    Without branches: where the number is not asked for, LLVM leaves all of it out.
    """
    f, found = code.f, "0"
    for bit in reversed(range(code.block.rows.bit_length())):
        wanted = f.add(found, 1 << bit)
        there = f.least(wanted, rows.count)
        row = f.add(rows.first, f.op(f"sub i64 {there}, 1"))
        within = f.op(f"icmp sle i64 {_at_row(code, window, bound, row)}, {most}")
        whole = f.op(f"icmp eq i64 {there}, {wanted}")
        both = f.op(f"and i1 {within}, {whole}")
        found = f.op(f"select i1 {both}, i64 {wanted}, i64 {found}")
    return found


def _at_row_0(code: Code, window: Window, bound: Index) -> str:
    """A bound of the keys that row 0 sees."""
    return _at_row(code, window, bound, "0")


def _at_row(code: Code, window: Window, bound: Index, row: str) -> str:
    """A bound of the keys that a row sees."""
    axes = with_axes(window.scope, {code.problem.stage.rows: row})
    return scalar_index(inner(window.scope, axes=axes), bound)
