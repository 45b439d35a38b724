"""A row of scores, panel of keys by panel: masks where some are not visible, and reductions.

    highest = walk_row(code, window, row, keys, [(scores, 4)], body, "max")

Panels whose keys are all visible take a loop without masks; those at either end of what a row sees
are masked.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.attention.code import Code, View
from fxad.backend.llvm.attention.problem import MOST_TILE_ROWS
from fxad.backend.llvm.attention.window import Range, Window, visible_keys
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements.scope import (
    Copy,
    Lanes,
    Scope,
    each_copy,
    inner,
    with_axes,
    with_cells,
)
from fxad.backend.llvm.elements.values import value

# Keys after those that a row sees, which tiles of rows below it read as 0.
_READ_BEYOND = MOST_TILE_ROWS - 1

# body(scope of a vector of keys, where it lies in each row): a vector to combine, or None. The mask
# of visible keys is the copy's: `scope.copy.mask`, None for all.
Body = Callable[[Scope, list[str]], Vec | None]
Limits = tuple[str, Vec]  # the first key visible, and how many are, in every lane


def walk_row(
    code: Code,
    window: Window,
    row: str,
    keys: Range,
    pointers: list[tuple[str, int]],
    body: Body,
    combine: str = "",
) -> Vec | None:
    """Call the body for every vector of `keys` (whole panels) of a row.

    pointers: where rows of scores have key 0, and the bytes of a key there. What the body returns
    is combined ("add" or "max") lane by lane.
    """
    problem, f = code.problem, code.f
    visible, panel = visible_keys(code, window, row), problem.panel
    up = f.mul(f.op(f"udiv i64 {f.add(visible[0], panel - 1)}, {panel}"), panel)
    down = f.mul(f.op(f"udiv i64 {visible[1]}, {panel}"), panel)
    first = f.least(f.most(up, keys[0]), keys[1])
    last = f.least(f.most(down, first), keys[1])
    start = {"": [], "add": [code.splat(0)], "max": [code.splat(-float("inf"))]}[combine]
    values = [v.text for v in start] * problem.panel_vectors
    end = keys[1]
    # Otherwise all rows of a tile read all keys.
    grows = problem.stage.upper.coefficient(problem.stage.rows)
    if problem.masked_vectors == 1 and grows and not window.masked:
        end = f.least(f.add(visible[1], _READ_BEYOND), end)
    limits = _limits(code, visible)
    segments: list[tuple[str, str, Limits | None]] = [(first, last, None), (last, end, limits)]
    if problem.stage.lower.terms or window.masked:
        segments.insert(0, (keys[0], first, limits))
    else:
        segments[0] = (keys[0], last, None)
    for low, high, limits_here in segments:
        vectors = problem.masked_vectors if limits_here else problem.panel_vectors
        carried = [(code.lanes.vector, v) for v in values[:vectors]]

        def some(j: str, now: list[str], limits: Limits | None = limits_here) -> list[str]:
            copies = _copies(code, j, limits)
            at = [(f.offset(p, f.mul(j, size)), size) for p, size in pointers]
            return _vectors(code, _at_keys(code, window, row, j, copies), at, body, combine, now)

        values[:vectors] = f.loop(low, high, vectors * code.lanes.width, some, carried)
    if not combine:
        return None
    total = code.vector(values[0])
    for text in values[1:]:
        total = _combined(combine, total, code.vector(text))
    return total


def _limits(code: Code, visible: Range) -> Limits:
    count = code.f.op(f"sub i64 {visible[1]}, {visible[0]}")
    short = Vec(code.scope.code, "i64", 1, count).convert("trunc", "i32")
    return visible[0], short.splat(code.lanes.width)


def _copies(code: Code, j: str, limits: Limits | None) -> tuple[Copy, ...]:
    """The vectors from key j on that go together, with the lanes of visible keys."""
    width = code.lanes.width
    if limits is None:
        return tuple(Copy(u, j, u * width) for u in range(code.problem.panel_vectors))
    low, count = limits
    vectors = code.scope.code
    offset = Vec(vectors, "i64", 1, code.f.op(f"sub i64 {j}, {low}"))
    base = offset.convert("trunc", "i32").splat(width)
    starts = range(0, code.problem.masked_vectors * width, width)
    masks = [(base + vectors.iota("i32", width, s)).compare("ult", count) for s in starts]
    return tuple(Copy(u, j, u * width, mask) for u, mask in enumerate(masks))


def _at_keys(code: Code, window: Window, row: str, j: str, copies: tuple[Copy, ...]) -> Scope:
    """The scope of some vectors of keys of a row."""
    stage = code.problem.stage
    axes = with_axes(window.scope, {stage.rows: row, stage.keys: j})
    return inner(window.scope, axes=axes, lanes=Lanes(stage.keys, code.lanes.width, copies))


def _vectors(
    code: Code,
    scope: Scope,
    pointers: list[tuple[str, int]],
    body: Body,
    combine: str,
    values: list[str],
) -> list[str]:
    """The body at every vector, and what it returns combined with what was before."""
    following = []
    for here in each_copy(scope):
        skip = here.copy.offset
        found = body(here, [code.f.offset(p, skip * size) for p, size in pointers])
        if found is not None:
            before = code.vector(values[here.copy.number])
            following.append(_combined(combine, before, found).text)
    return following


def with_score(code: Code, scope: Scope, score: Vec) -> Scope:
    """The scope of a vector of keys, with its scores."""
    return with_cells(scope, {code.problem.stage.score: {scope.copy.number: score}})


def logit(code: Code, scope: Scope) -> Vec:
    """The logits of a vector of keys, whose scores the scope has."""
    found = value(scope, code.problem.stage.logit)
    assert isinstance(found, Vec)
    return found.splat(code.lanes.width)


# ---------------------------------------------------------------- reductions


def reduce_rows(code: Code, combine: str, view: View, first: str) -> Vec:
    """The lanes of as many rows as there are lanes, combined: row first + n in lane n."""
    return reduce_lanes(
        code.lanes.width,
        combine,
        lambda n: code.load(code.element(view, code.f.add(first, n))),
    )


def reduce_lanes(width: int, combine: str, vector: Callable[[int], Vec]) -> Vec:
    """The lanes of vector(n) combined, in lane n: a transposition that halves the vectors as it
    goes."""

    def some(first: int, count: int) -> Vec:
        if count == 1:
            return vector(first)
        bit = count // 2
        a, b = some(first, bit), some(first + bit, bit)
        low = [n if not n & bit else (n ^ bit) + width for n in range(width)]
        high = [n | bit if not n & bit else n + width for n in range(width)]
        return _combined(combine, a.shuffle(low, b), a.shuffle(high, b))

    return some(0, width)


def _combined(combine: str, a: Vec, b: Vec) -> Vec:
    return a + b if combine == "add" else a.at_least(b)
