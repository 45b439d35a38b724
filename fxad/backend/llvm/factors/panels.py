"""Cholesky factors and triangular systems: one recurrence over rows, in vectors along them.

    x[i] = (b[i] - sum(c[i, p] * x[p] for p in range(i))) / c[i, i]

For a system, c is the triangle (an upper one is walked from its end). For a factor, x is U with
U^T U = b, and c[i, p] is U[p, i]. Four rows are taken at a time, so that a row of x is read once
for all of them; sums run over p in order, with fused multiply-adds, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.vector import Code, Vec, fma, type_of
from fxad.backend.llvm.factors.writer import Writer

ROWS = 4  # taken at a time
_PANEL = (
    ("ptr", "c"),  # coefficients of the first row
    ("i64", "down"),  # bytes to the next row's
    ("i64", "along"),  # bytes to the next coefficient of a row
    ("ptr", "b"),  # the first row of the right side
    ("ptr", "x"),  # row 0 of the result
    ("i64", "row"),  # bytes between rows of b and x
    ("i64", "done"),  # rows of x that are there
    ("i64", "count"),  # lanes of a panel of one vector
    ("i1", "unit"),  # whether the diagonal is ones
    (None, "spoil"),  # -0.0, or NaN to make everything NaN
)


def vectors(target: Target) -> int:
    """Vectors of a panel of columns."""
    return 4 if target.registers >= 32 else 2


class Panels(Writer):
    """Writes `cholesky` and `triangular_solve`."""

    def __init__(self, dtype: np.dtype, target: Target) -> None:
        super().__init__(dtype, target)
        self.rows = min(ROWS, self.width)
        self.vectors = vectors(target)
        self.panels = {
            (rows, count, pivot): self.panel(rows, count, pivot)
            for rows in dict.fromkeys((self.rows, 1))
            for count, pivot in ((self.vectors, False), (1, False), (1, True))
        }

    def write(self) -> tuple[str, ...]:
        self.triangular_solve()
        self.cholesky()
        return "cholesky", "triangular_solve"

    # ---------------------------------------------------------------- some rows of a panel

    def panel(self, rows: int, count: int, pivot: bool) -> str:
        """The function that computes some rows of a panel of `count` vectors, the last of which
        has `%count` lanes if it is alone. pivot: these columns hold the diagonal of a factor."""
        name = f"fx_panel_{self.dtype.name}_{rows}_{count}{'_pivot' if pivot else ''}"
        params = [(kind or self.kind, label) for kind, label in _PANEL]
        code = self.code(name, params, "internal")
        function = code.function
        mask = code.first_lanes(self.width, "%count") if count == 1 else None
        spoil = Vec(code, self.kind, 1, "%spoil")
        below = [function.mul(r, "%down") for r in range(rows)]
        places = [function.offset("%b", function.mul(r, "%row")) for r in range(rows)]
        sums = [[self.load(code, p, v, mask) + spoil for v in range(count)] for p in places]

        def step(_: str, values: list[str]) -> list[str]:
            c, x, *rest = values
            read = [self.load(code, x, v, mask) for v in range(count)]
            after = []
            for r in range(rows):
                factor = -self.scalar(code, function.offset(c, below[r])).splat(self.width)
                for v in range(count):
                    added = Vec(code, self.kind, self.width, rest[r * count + v])
                    after.append(fma(factor, read[v], added).text)
            return [function.offset(c, "%along"), function.offset(x, "%row"), *after]

        vector = type_of(self.kind, self.width)
        carried = [("ptr", "%c"), ("ptr", "%x")]
        carried += [(vector, s.text) for row in sums for s in row]
        c, x, *found = function.loop(0, "%done", 1, step, carried)
        for i, text in enumerate(found):
            sums[i // count][i % count] = Vec(code, self.kind, self.width, text)
        corner = [[function.offset(function.offset(c, below[r]), function.mul(s, "%along"))
                   for s in range(r + 1)] for r in range(rows)]  # fmt: skip
        for r in range(rows):
            self.finish(code, sums, r, corner[r], pivot)
            place = function.offset(x, function.mul(r, "%row"))
            for v in range(count):
                self.store(code, place, v, sums[r][v], mask)
        function.ret()
        return name

    def finish(
        self, code: Code, sums: list[list[Vec]], r: int, corner: list[str], pivot: bool
    ) -> None:
        """Row r: subtract what the rows above it among these add, and divide."""
        for s in range(r):
            factor = sums[s][0].lane(r) if pivot else self.scalar(code, corner[s])
            sums[r] = [fma(-factor.splat(self.width), x, y)
                       for x, y in zip(sums[s], sums[r], strict=True)]  # fmt: skip
        if pivot:
            size = sums[r][0].lane(r)
            root = (size > 0.0).where(size.sqrt(), size.like(float("nan")))
            sums[r] = [(sums[r][0] / root).with_lane(r, root)]
        else:
            unit = Vec(code, "i1", 1, "%unit")
            size = self.scalar(code, corner[r])
            size = unit.where(size.like(1.0), size)
            sums[r] = [y / size for y in sums[r]]

    def call(
        self, code: Code, rows: int, count: int, args: Sequence[str], pivot: bool = False
    ) -> None:
        types = [kind or self.kind for kind, _ in _PANEL]
        listed = ", ".join(f"{t} {a}" for t, a in zip(types, args, strict=True))
        code.function.line(f"call void @{self.panels[rows, count, pivot]}({listed})")

    # ---------------------------------------------------------------- whole functions

    def each_rows(
        self, code: Code, n: str, body: Callable[[str, int], None], first: str = "0"
    ) -> None:
        """body(first row, how many) for rows from `first` on, a few at a time, then one by one."""
        function = code.function
        left = function.op(f"sub i64 {n}, {first}")
        whole = function.op(f"sub i64 {n}, {function.op(f'srem i64 {left}, {self.rows}')}")
        function.loop(first, whole, self.rows, lambda i, _: body(i, self.rows))
        function.loop(whole, n, 1, lambda i, _: body(i, 1))

    def triangular_solve(self) -> None:
        """Operands a, b, x; numbers n, k, upper, unit. Units: panels of columns of each lane."""
        code, (a, b, x), (n, k, upper, unit) = self.kernel("triangular_solve", 3, 4)
        f, size = code.function, self.size
        columns = self.vectors * self.width
        panels = f.op(f"sdiv i64 {f.add(k, columns - 1)}, {columns}")
        row, line = f.mul(k, size), f.mul(n, size)
        turned, unit = f.op(f"icmp ne i64 {upper}, 0"), f.op(f"icmp ne i64 {unit}, 0")

        def signed(value: str) -> str:  # an upper triangle is walked from its end
            return f.op(f"select i1 {turned}, i64 {f.op(f'sub i64 0, {value}')}, i64 {value}")

        down, along, step = signed(line), signed(str(size)), signed(row)
        last = f.mul(upper, f.op(f"sub i64 {f.mul(n, line)}, {size}"))
        lowest = f.mul(upper, f.mul(f.add(n, -1), row))

        def piece(number: str, _: object) -> None:
            lane, panel = (f.op(f"{op} i64 {number}, {panels}") for op in ("sdiv", "srem"))
            c = f.offset(a, f.add(f.mul(lane, f.mul(n, line)), last))
            first = f.mul(panel, columns)
            start = f.add(f.mul(lane, f.mul(n, row)), f.add(lowest, f.mul(first, size)))
            width = f.least(f.op(f"sub i64 {k}, {first}"), columns)
            found = self.singular(code, c, f.add(down, along), n)
            spoil = self.spoil(code, f.op(f"and i1 {found}, {f.op(f'xor i1 {unit}, true')}"))
            right, out = f.offset(b, start), f.offset(x, start)
            self.system(code, (c, down, along), right, out, step, n, width, unit, spoil)

        f.loop("%begin", "%end", 1, piece)
        f.ret()

    def system(
        self, code: Code, c: tuple[str, str, str], b: str, x: str, step: str, n: str, k: str,
        unit: str, spoil: str,
    ) -> None:  # fmt: skip
        """All rows of k columns. c: address, bytes to the next row and along one; b may be x."""
        f, (first, down, along) = code.function, c

        def rows(column: str, vectors: int, count: str) -> None:
            place = f.mul(column, self.size)
            right, out = f.offset(b, place), f.offset(x, place)

            def body(i: str, taken: int) -> None:
                args = [f.offset(first, f.mul(i, down)), down, along]
                args += [f.offset(right, f.mul(i, step)), out, step]
                self.call(code, taken, vectors, [*args, i, count, unit, spoil])

            self.each_rows(code, n, body)

        self.each_columns(code, k, rows)

    def each_columns(
        self, code: Code, width: str, rows: Callable[[str, int, str], None], first: str = "0"
    ) -> None:
        """rows(column, vectors, lanes): columns from `first` to `width`, in whole panels, then
        vector by vector."""
        f, columns = code.function, self.vectors * self.width
        left = f.op(f"sub i64 {width}, {first}")
        rest = f.op(f"sub i64 {width}, {f.op(f'srem i64 {left}, {columns}')}")
        f.loop(first, rest, columns, lambda column, _: rows(column, self.vectors, "0"))

        def single(column: str, _: object) -> None:
            rows(column, 1, f.least(f.op(f"sub i64 {width}, {column}"), self.width))

        f.loop(rest, width, self.width, single)

    def cholesky(self) -> None:
        """Operands a, x; number n. Units: lanes. Above the diagonal of x U is made, then turned."""
        code, (a, x), (n,) = self.kernel("cholesky", 2, 1)
        f, size = code.function, self.size
        line, clean = f.mul(n, size), code.const(self.kind, -0.0).text

        def factor(lane: str, _: object) -> None:
            offset = f.mul(lane, f.mul(n, line))
            given, made = f.offset(a, offset), f.offset(x, offset)
            self.symmetric(code, given, made, n)

            def body(i: str, taken: int) -> None:
                top = f.offset(made, f.mul(i, size))

                def rows(column: str, vectors: int, count: str, pivot: bool = False) -> None:
                    above = f.offset(made, f.mul(column, size))
                    args = [top, str(size), line, f.offset(above, f.mul(i, line)), above, line]
                    self.call(code, taken, vectors, [*args, i, count, "false", clean], pivot)

                rows(i, 1, f.least(f.op(f"sub i64 {n}, {i}"), self.width), pivot=True)
                next_column = f.least(f.add(i, self.width), n)
                self.each_columns(code, n, rows, next_column)

            self.each_rows(code, n, body)
            self.turn(code, made, n)

        f.loop("%begin", "%end", 1, factor)
        f.ret()

    def entry(self, code: Code, matrix: str, n: str, i: str, j: str) -> str:
        """The address of matrix[i, j]."""
        f = code.function
        return f.offset(matrix, f.mul(f.add(f.mul(i, n), j), self.size))

    def symmetric(self, code: Code, a: str, x: str, n: str) -> None:
        """x[i, j] = (a[i, j] + a[j, i]) / 2 from the diagonal on; x may be a."""

        def entry(i: str, j: str) -> None:
            one, other = (self.scalar(code, self.entry(code, a, n, *at)) for at in ((i, j), (j, i)))
            half = (one + other) * 0.5
            place = self.entry(code, x, n, i, j)
            code.function.line(f"store {self.kind} {half.text}, ptr {place}")

        loop = code.function.loop
        loop(0, n, 1, lambda i, _: loop(i, n, 1, lambda j, _: entry(i, j)) and None)

    def turn(self, code: Code, x: str, n: str) -> None:
        """U to U^T, or to NaN where the last number of its diagonal is."""
        f = code.function
        least = f.add(n, -1)
        last = self.scalar(code, self.entry(code, x, n, least, least))
        spoil = Vec(code, self.kind, 1, self.spoil(code, last.is_nan().text))

        def entry(i: str, j: str) -> None:  # below the diagonal
            above, below = (self.entry(code, x, n, *at) for at in ((j, i), (i, j)))
            zero = spoil + 0.0
            for place, value in ((below, self.scalar(code, above) + spoil), (above, zero)):
                f.line(f"store {self.kind} {value.text}, ptr {place}")

        def row(i: str, _: object) -> None:
            f.loop(0, i, 1, lambda j, _: entry(i, j))
            place = self.entry(code, x, n, i, i)
            f.line(f"store {self.kind} {(self.scalar(code, place) + spoil).text}, ptr {place}")

        f.loop(0, n, 1, row)
