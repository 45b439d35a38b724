"""Softmax over rows of attention's scores: which keys a row sees, maxima, weights.

A row is walked a panel of keys at a time. Panels whose keys are all visible take a loop without
masks; those at either end of what a row sees are masked. Where a mask of keys, the same for all
rows, lets one run of them through (padding), the others are not visible: there are two versions of
the code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fxad.backend.llvm.attention.operands import HIGHEST, Place
from fxad.backend.llvm.attention.tile_products import Products
from fxad.backend.llvm.base.vector import Vec, fma
from fxad.backend.llvm.elements import prims
from fxad.backend.llvm.elements.scope import Copy
from fxad.backend.llvm.math import core
from fxad.backend.llvm.math.core import LOG2_E, WHOLE
from fxad.backend.llvm.math.tables.polynomials import EXP2_WEIGHT
from fxad.ir.kernel import Const, Expr, Get, Prim

# What exp takes to a normal number, and 2**y of float32.
_LOWEST_F64, _LOWEST_POWER = -708.0, -125.0
_BEYOND = HIGHEST - 1  # keys after those that a row sees, which tiles of rows below it read as 0

# body(number of the vector, lanes of visible keys or None for all, where it lies in each row)
Body = Callable[[int, Vec | None, list[str]], Vec | None]

Half = tuple[list[Vec], list[str]]  # a vector's parts, and where each of them goes


class Softmax(Products):
    """A function under construction that also works on rows of scores."""

    masked_vectors = 1  # of a row that go together where some keys are not visible

    @property
    def scale(self) -> float | None:
        """The positive number that a score times is the logit, if that is all a logit is."""
        masked = self.key_mask if self.limits else None
        return self._scale_of(masked[1] if masked else self.stage.logit)

    def _scale_of(self, logit: Expr) -> float | None:
        match logit:
            case Prim("mul", (Get(cell), Const(float(value))), _) if cell is self.stage.score:
                return value if value > 0 else None
        return None

    # ------------------------------------------------------------ masks of keys

    @property
    def key_mask(self) -> tuple[Expr, Expr] | None:
        """(mask, scaled score), if these are the logit and the mask is the same for all rows."""
        excluded = 0.5 * float(np.finfo(self.dtype).min)
        match self.stage.logit:
            case Prim("select", (mask, logit, Const(float(value))), _) if value < excluded:
                alike = self.memory.needs(mask).isdisjoint((self.stage.rows, self.stage.score))
                return (mask, logit) if alike and self._scale_of(logit) else None
        return None

    def with_key_mask(self, first: str, end: str, body: Callable[[], None]) -> None:
        """body(), for rows first ... end - 1.

        Where the mask lets one run of keys through and every row sees the first of them, another
        version of it sees no other keys.
        """
        f, found = self.f, self.key_mask
        if found is None:
            body()
            return
        low, past, count = self._run_of_keys(found[0])
        last = self.visible(f.op(f"sub i64 {end}, 1"))
        conditions = (
            f"eq i64 {f.op(f'sub i64 {past}, {low}')}, {count}",
            f"sle i64 {last[0]}, {low}",
            f"slt i64 {low}, {self.visible(first)[1]}",
        )
        some, *others = (f.op(f"icmp {c}") for c in conditions)
        for other in others:
            some = f.op(f"and i1 {some}, {other}")

        def version(limits: tuple[str, str] | None) -> None:
            self.limits = limits
            self.memory.scopes.append({})
            body()
            self.memory.scopes.pop()
            self.limits = None

        f.when(some, lambda: version((low, past)))
        f.when(f.op(f"xor i1 {some}, true"), lambda: version(None))

    def _run_of_keys(self, mask: Expr) -> list[str]:
        """The first key that a mask lets through, one past the last, and how many (keys, 0, 0 if it
        lets none through)."""
        f, memory, width = self.f, self.memory, self.lanes.width
        for name in ("cttz.i64(i64, i1", "ctlz.i64(i64, i1", "ctpop.i64(i64"):
            self.code.declarations.add(f"declare i64 @llvm.{name})")

        def vector(j: str, values: list[str]) -> list[str]:
            memory.scopes.append({})
            memory.env[self.stage.keys] = j
            memory.lanes_along(self.stage.keys, width)
            inside = self.code.first_lanes(width, f.op(f"sub i64 {self.keys}, {j}"))
            memory.copies = [Copy(0, j, 0, inside)]
            for _ in memory.each_copy():
                value = memory.value(mask)
                assert isinstance(value, Vec)
                through = inside & value.splat(width)
            memory.lanes_along(None, 1)
            memory.scopes.pop()
            bits = f.op(f"bitcast {through.type} {through.text} to i{width}")
            bits = f.op(f"zext i{width} {bits} to i64")
            low = f.add(j, f.op(f"call i64 @llvm.cttz.i64(i64 {bits}, i1 false)"))
            after = f.op(f"call i64 @llvm.ctlz.i64(i64 {bits}, i1 false)")
            past = f.op(f"sub i64 {f.add(j, 64)}, {after}")
            some = f.op(f"icmp ne i64 {bits}, 0")
            low = f.op(f"select i1 {some}, i64 {f.least(low, values[0])}, i64 {values[0]}")
            past = f.op(f"select i1 {some}, i64 {past}, i64 {values[1]}")
            return [low, past, f.add(values[2], f.op(f"call i64 @llvm.ctpop.i64(i64 {bits})"))]

        start = [("i64", str(self.keys)), ("i64", "0"), ("i64", "0")]
        return f.loop(0, self.keys, width, vector, start)

    # ------------------------------------------------------------ values

    def vec(self, text: str) -> Vec:
        return Vec(self.code, self.kind, self.lanes.width, text)

    def scalar(self, text: str) -> Vec:
        return Vec(self.code, self.kind, 1, text)

    def load(self, pointer: str) -> Vec:
        return self.vec(self.lanes.load(self.f, pointer, self.dtype, self.lanes.width))

    def store(self, value: Vec, pointer: str) -> None:
        self.lanes.store(self.f, value.text, pointer, self.lanes.width)

    def load_scalar(self, pointer: str) -> Vec:
        return self.scalar(self.f.op(f"load {self.kind}, ptr {pointer}, align {self.size}"))

    def store_scalar(self, value: Vec, pointer: str) -> None:
        self.f.line(f"store {self.kind} {value.text}, ptr {pointer}, align {self.size}")

    def zero(self) -> Vec:
        return self.code.const(self.kind, 0, self.lanes.width)

    def lowest(self) -> Vec:
        return self.code.const(self.kind, -float("inf"), self.lanes.width)

    def apply(self, name: str, value: Vec) -> Vec:
        found = prims.apply(name, [value], self.dtype, self.dtype)
        assert isinstance(found, Vec)
        return found

    # ------------------------------------------------------------ weights

    def weights_scratch(self, scores: str) -> str:
        """Where weights lie, which the product with the values reads."""
        return scores

    def weights_from(self, weights: str, key: str) -> str:
        """Where weights have key 0, if what is kept of them begins with `key`."""
        return self.f.offset(weights, self.f.op(f"sub i64 0, {self.f.mul(key, self.size)}"))

    def weights_of_row(self, weights: str, i: str) -> list[tuple[str, int]]:
        """Places beside its scores where a row's weights go."""
        return []

    def store_weight(self, weight: Vec, at: list[str], waiting: Half | None) -> Half | None:
        """A vector of weights into places `at`: of scores, and those of `weights_of_row`.

        Where two vectors are stored as one, the first of them is what `waiting` is at the second.
        """
        self.store(weight, at[0])
        return None

    # ------------------------------------------------------------ rows

    def each_panel_of_row(
        self,
        row: str,
        span: tuple[str, str],
        visible: tuple[str, str],
        pointers: list[tuple[str, int]],
        body: Body,
        combine: str = "",
    ) -> Vec | None:
        """Walk the keys `span` (whole panels) of a row that sees the keys `visible`.

        pointers: where rows of scores have key 0, and the bytes of a key there. What the body
        returns is combined ("add" or "max") lane by lane.
        """
        f = self.f
        up = f.mul(f.op(f"udiv i64 {f.add(visible[0], self.panel - 1)}, {self.panel}"), self.panel)
        down = f.mul(f.op(f"udiv i64 {visible[1]}, {self.panel}"), self.panel)
        first = f.least(f.most(up, span[0]), span[1])
        last = f.least(f.most(down, first), span[1])
        start = {"": [], "add": [self.zero()], "max": [self.lowest()]}[combine] * self.vectors
        values = [v.text for v in start]
        end = span[1]
        grows = self.stage.upper.coefficient(self.stage.rows)  # or `rows_that_see` says all rows
        if self.masked_vectors == 1 and grows and not self.limits:
            end = f.least(f.add(visible[1], _BEYOND), end)
        segments = [(first, last, None), (last, end, self._limits(visible))]
        if self.stage.lower.terms or self.limits:
            segments.insert(0, (span[0], first, segments[-1][2]))
        else:
            segments[0] = (span[0], last, None)
        for low, high, limits in segments:
            vectors = self.masked_vectors if limits else self.vectors
            carried = [(self.lanes.vector, v) for v in values[:vectors]]

            def panel(j: str, now: list[str], limits: tuple | None = limits) -> list[str]:
                return self._panel(row, j, pointers, limits, body, combine, now)

            values[:vectors] = f.loop(low, high, vectors * self.lanes.width, panel, carried)
        if not combine:
            return None
        total = self.vec(values[0])
        for text in values[1:]:
            total = self.combined(combine, total, self.vec(text))
        return total

    def _limits(self, visible: tuple[str, str]) -> tuple[str, Vec]:
        """(first key visible, how many are, in every lane)."""
        count = Vec(self.code, "i64", 1, self.f.op(f"sub i64 {visible[1]}, {visible[0]}"))
        return visible[0], count.convert("trunc", "i32").splat(self.lanes.width)

    def _panel(
        self,
        row: str,
        j: str,
        pointers: list[tuple[str, int]],
        limits: tuple[str, Vec] | None,
        body: Body,
        combine: str,
        values: Sequence[str],
    ) -> list[str]:
        f, memory, width = self.f, self.memory, self.lanes.width
        memory.scopes.append({})
        memory.env[self.stage.rows], memory.env[self.stage.keys] = row, j
        memory.lanes_along(self.stage.keys, width)
        memory.varying_cells.add(self.stage.score)
        masks = self._masks(j, *limits) if limits else [None] * self.vectors
        at = [(f.offset(p, f.mul(j, size)), size) for p, size in pointers]
        memory.copies = [Copy(u, j, u * width, m) for u, m in enumerate(masks)]
        memory.cells[self.stage.score] = {}
        following: list[str] = []
        for u, _ in enumerate(memory.each_copy()):
            found = body(u, masks[u], [f.offset(p, u * width * size) for p, size in at])
            if found is not None:
                following.append(self.combined(combine, self.vec(values[u]), found).text)
        memory.lanes_along(None, 1)
        memory.scopes.pop()
        return following

    def _masks(self, j: str, low: str, count: Vec) -> list[Vec]:
        """The lanes of visible keys, for every vector of the panel at key j."""
        offset = Vec(self.code, "i64", 1, self.f.op(f"sub i64 {j}, {low}"))
        width = self.lanes.width
        base = offset.convert("trunc", "i32").splat(width)
        starts = range(0, self.masked_vectors * width, width)
        return [(base + self.code.iota("i32", width, s)).compare("ult", count) for s in starts]

    @staticmethod
    def combined(combine: str, a: Vec, b: Vec) -> Vec:
        return a + b if combine == "add" else a.at_least(b)

    def reduce_across_lanes(self, combine: str, rows: Place, first: str) -> Vec:
        """The lanes of as many rows as there are lanes, combined: row first + n in lane n."""
        return self.transpose_reduce(
            combine, lambda n: self.load(self.at(rows, self.f.add(first, n)))
        )

    def transpose_reduce(self, combine: str, vector: Callable[[int], Vec]) -> Vec:
        """The lanes of vector(n) combined, in lane n."""
        width = self.lanes.width

        def some(first: int, count: int) -> Vec:
            if count == 1:
                return vector(first)
            bit = count // 2
            a, b = some(first, bit), some(first + bit, bit)
            low = [n if not n & bit else (n ^ bit) + width for n in range(width)]
            high = [n | bit if not n & bit else n + width for n in range(width)]
            return self.combined(combine, a.shuffle(low, b), a.shuffle(high, b))

        return some(0, width)

    def logit(self, number: int, score: Vec) -> Vec:
        """The logit of the current vector's scores."""
        self.memory.cells[self.stage.score][number] = score
        found = self.memory.value(self.stage.logit)
        assert isinstance(found, Vec)
        return found.splat(self.lanes.width)

    def weight(self, mask: Vec | None, x: Vec, scale: float = 1.0) -> Vec:
        """exp(x * scale) in the lanes of the mask, 0 in others and where it is no normal number."""
        if self.size == 4:
            return exponential(x, scale, mask)
        kept = _normal(x, _LOWEST_F64 / scale, mask)
        x = kept.where(x * scale, self.zero())
        return kept.where(self.apply("exp", x), self.zero())


def _normal(x: Vec, lowest: float, mask: Vec | None) -> Vec:
    """The lanes of the mask where x is at least `lowest`, or NaN."""
    kept = x.compare("uge", lowest)
    return kept if mask is None else mask & kept


def exponential(x: Vec, scale: float, mask: Vec | None = None) -> Vec:
    """exp(x * scale) of float32 in the lanes of the mask, 0 in others and where it is no normal
    number; x * scale is at most about 0.

    Without numbers that underflow: computing with them takes processors a hundred cycles. As
    2**n 2**r, 0 <= r <= 1, with a polynomial good to 7e-8. Rounding n + r is an error of at most
    4e-8 in units of exp(0).
    """
    y = x * (scale * LOG2_E)
    kept = _normal(y, _LOWEST_POWER, mask)
    if core.scales(y):
        return core.scale(_power(core.above_whole(y)), y, kept)
    rounded = fma(x, scale * LOG2_E, -0.5) + WHOLE
    scaled = _power(y - (rounded - WHOLE)) * ((rounded.bits() + 127) << 23).floats()
    return kept.where(scaled, scaled.like(0.0))


def _power(r: Vec) -> Vec:
    """2**r of 0 <= r <= 1."""
    value = r.like(EXP2_WEIGHT[-1])
    for c in (*reversed(EXP2_WEIGHT[:-1]), 1.0):
        value = fma(value, r, c)
    return value
