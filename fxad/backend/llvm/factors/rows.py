"""LU factors of a matrix, in vectors along its rows.

    A P = L U    # L with ones on its diagonal, both in one matrix

The largest number of a row is its pivot, and columns are exchanged: the search and the elimination
are along rows, which lie in memory. Numbers are as bounded as with exchanges of rows. Then
A x = b is L (U z) = b and x = P z: two triangular systems, and the exchanges of rows of z from the
last to the first.

A few rows are factored at a time; then multiples of all of them are subtracted from the rows below,
which are read and written once for it (Golub and Van Loan, 3.4.7).

In scratch: rows with zeros up to a whole vector; such rows for multipliers; columns exchanged.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.base.vector import Code, Vec, fma
from fxad.backend.llvm.factors.panels import Panels
from fxad.backend.llvm.math.functions import function as elementary

TAKEN = 16  # rows factored before the rest: whole vectors of any machine


class Rows(Panels):
    """Writes `solve` and `slogdet`. Units: matrices."""

    def write(self) -> tuple[str, ...]:
        self.factor_name = f"fx_lu_{self.dtype.name}"
        self.factor()
        self.solve()
        self.slogdet()
        return "solve", "slogdet"

    def solve(self) -> None:
        """Operands a, b, x; numbers n, k."""
        code, (a, b, x), (n, k) = self.kernel("solve", 3, 2)
        f, size = code.function, self.size
        row, clean = f.mul(k, size), code.const(self.kind, -0.0).text
        line, swaps = self.scratch(code, n)

        def piece(lane: str, _: object) -> None:
            self.factored(code, f.offset(a, f.mul(lane, f.mul(f.mul(n, n), size))), n, line, swaps)
            spoil = self.spoil(code, self.singular(code, "%scratch", f.add(line, size), n))
            right, out = (f.offset(p, f.mul(lane, f.mul(n, row))) for p in (b, x))
            self.system(code, ("%scratch", line, str(size)), right, out, row, n, k, "true", spoil)
            ends = [f.offset(p, f.mul(f.add(n, -1), step))
                    for p, step in (("%scratch", f.add(line, size)), (out, row))]  # fmt: skip
            up, left, back = (f.op(f"sub i64 0, {step}") for step in (line, size, row))
            self.system(code, (ends[0], up, left), ends[1], ends[1], back, n, k, "false", clean)
            self.unswap(code, out, n, k, swaps)

        f.loop("%begin", "%end", 1, piece)
        f.ret()

    def slogdet(self) -> None:
        """Operands a, signs, logarithms; number n."""
        code, (a, signs, sizes), (n, _) = self.kernel("slogdet", 3, 2)
        f, size = code.function, self.size
        line, swaps = self.scratch(code, n)
        one, zero = code.const(self.kind, 1.0), code.const(self.kind, 0.0)

        def piece(lane: str, _: object) -> None:
            self.factored(code, f.offset(a, f.mul(lane, f.mul(f.mul(n, n), size))), n, line, swaps)

            def number(i: str, values: list[str]) -> list[str]:
                sign, total = (Vec(code, self.kind, 1, text) for text in values)
                pivot = self.scalar(code, f.offset("%scratch", f.mul(i, f.add(line, size))))
                swapped = f.op(f"icmp ne i64 {i}, {self.swap_of(code, swaps, i)}")
                odd = (pivot < 0.0) ^ Vec(code, "i1", 1, swapped)
                size_ = elementary("log", pivot.abs())
                return [odd.where(-sign, sign).text, (total + size_).text]

            found = f.loop(0, n, 1, number, [(one.type, one.text), (zero.type, zero.text)])
            sign, total = (Vec(code, self.kind, 1, text) for text in found)
            none = Vec(code, "i1", 1, self.singular(code, "%scratch", f.add(line, size), n))
            offset = f.mul(lane, size)
            self.put(code, f.offset(signs, offset), none.where(zero, sign))
            least = total.like(float("-inf"))
            self.put(code, f.offset(sizes, offset), none.where(least, total))

        f.loop("%begin", "%end", 1, piece)
        f.ret()

    # ---------------------------------------------------------------- factors

    def scratch(self, code: Code, n: str) -> tuple[str, str]:
        """Bytes from row to row in scratch, and where the exchanges' columns are. An odd number of
        vectors, so that the numbers of a column do not share a few places of a cache."""
        f = code.function
        vectors = f.op(f"sdiv i64 {f.add(n, self.width - 1)}, {self.width}")
        line = f.mul(f.op(f"or i64 {vectors}, 1"), self.step)
        return line, f.offset("%scratch", f.mul(f.add(n, TAKEN), line))

    @property
    def step(self) -> int:
        """Bytes of a vector."""
        return self.width * self.size

    def whole(self, code: Code) -> str:
        """Columns up to a whole vector."""
        return code.function.op(f"and i64 {code.function.add('%n', self.width - 1)}, {-self.width}")

    def factored(self, code: Code, a: str, n: str, line: str, swaps: str) -> None:
        given = f"ptr {a}, ptr %scratch, i64 {n}, i64 {line}, ptr {swaps}"
        code.function.line(f"call void @{self.factor_name}({given})")

    def factor(self) -> None:
        """The function that copies a matrix to w and factors it there."""
        params = [("ptr", "a"), ("ptr", "w"), ("i64", "n"), ("i64", "line"), ("ptr", "swaps")]
        code = self.code(self.factor_name, params, "internal")
        f = code.function
        self.copy(code)
        factors = f.offset("%w", f.mul("%n", "%line"))

        def block(start: str, _: object) -> None:
            stop = f.least(f.add(start, TAKEN), "%n")
            f.loop(start, stop, 1, lambda k, _: self.column(code, k, stop, factors))
            self.multipliers(code, start, stop, factors)
            self.subtract(code, start, stop, factors)

        f.loop(0, "%n", TAKEN, block)
        f.ret()

    def column(self, code: Code, k: str, stop: str, factors: str) -> None:
        """Find the pivot of row k, and eliminate with it in the rows before `stop`."""
        f = code.function
        top = f.offset("%w", f.mul(k, "%line"))
        first = f.op(f"and i64 {k}, {-self.width}")
        best = self.search(code, top, first, k)
        f.line(f"store i64 {best}, ptr {f.offset('%swaps', f.mul(k, 8))}")
        self.swap_columns(code, k, best, stop, factors)
        self.divide(code, k, top, stop, factors)

        def rows(start: str, count: int, _: str) -> None:
            self.eliminate(code, k, top, stop, factors, start, count)

        self.each_columns(code, self.whole(code), rows, first)

    def copy(self, code: Code) -> None:
        """Rows of a to w, with zeros up to a whole vector."""
        f = code.function
        row = f.mul("%n", self.size)

        def part(i: str, j: str) -> None:
            mask = code.first_lanes(self.width, f.op(f"sub i64 %n, {j}"))
            at = f.mul(j, self.size)
            value = self.load(code, f.offset(f.offset("%a", f.mul(i, row)), at), 0, mask)
            self.put(code, f.offset(f.offset("%w", f.mul(i, "%line")), at), value)

        width = self.width
        f.loop(0, "%n", 1, lambda i, _: f.loop(0, "%n", width, lambda j, _: part(i, j)) and None)

    def columns(self, code: Code, start: str) -> Vec:
        """Numbers of the columns of a vector that begins at one."""
        first = Vec(code, "i64", 1, start).convert("trunc", "i32").splat(self.width)
        return code.iota("i32", self.width) + first

    def search(self, code: Code, top: str, first: str, k: str) -> str:
        """The column from k on with the largest number of a row, the first of equals; k itself if
        all are 0 or NaN, and never one of the zeros behind the row."""
        f, bits = code.function, self.size * 8
        own = Vec(code, "i64", 1, k).convert("trunc", "i32").splat(self.width)
        best = code.const(self.kind, 0.0, self.width)

        def look(start: str, values: list[str]) -> list[str]:
            best = Vec(code, self.kind, self.width, values[0])
            index = Vec(code, "i32", self.width, values[1])
            size = self.load(code, f.offset(top, f.mul(start, self.size))).abs()
            columns = self.columns(code, start)
            larger = (size > best) & (columns >= own)
            return [larger.where(size, best).text, larger.where(columns, index).text]

        start = [(best.type, best.text), (own.type, own.text)]
        found = f.loop(first, "%n", self.width, look, start)
        sizes = Vec(code, self.kind, self.width, found[0]).bits()  # in order as integers
        index = Vec(code, "i32", self.width, found[1])
        most = code.call(f"llvm.vector.reduce.smax.v{self.width}i{bits}", f"i{bits}", 1, [sizes])
        these = sizes.equals(most.splat(self.width)).where(index, 2**31 - 1)
        name = f"llvm.vector.reduce.smin.v{self.width}i32"
        return code.call(name, "i32", 1, [these]).convert("zext", "i64").text

    def swap_columns(self, code: Code, k: str, best: str, stop: str, factors: str) -> None:
        """Exchange two columns of all rows; what comes to column k in the rows below k, before
        `stop`, goes to `factors`, and zeros into the matrix."""
        f = code.function
        own, other = (f.mul(j, self.size) for j in (k, best))
        zero = code.const(self.kind, 0.0)

        def exchange(i: str) -> tuple[str, Vec]:
            start = f.offset("%w", f.mul(i, "%line"))
            place, far = f.offset(start, own), f.offset(start, other)
            kept, value = self.scalar(code, place), self.scalar(code, far)
            self.put(code, far, kept)
            return place, value

        def row(i: str, _: object) -> None:
            place, value = exchange(i)
            self.put(code, f.offset(factors, f.mul(i, self.size)), value)
            self.put(code, place, zero)

        below = f.add(k, 1)
        f.loop(0, below, 1, lambda i, _: self.put(code, *exchange(i)))
        f.loop(below, stop, 1, row)
        f.loop(stop, "%n", 1, lambda i, _: self.put(code, *exchange(i)))

    def divide(self, code: Code, k: str, top: str, stop: str, factors: str) -> None:
        """What is subtracted of row k from the rows below it: their numbers over the pivot."""
        f = code.function
        pivot = self.scalar(code, f.offset(top, f.mul(k, self.size)))

        def some(i: str, _: object) -> None:
            place = f.offset(factors, f.mul(i, self.size))
            self.put(code, place, self.load(code, place) / pivot)

        f.loop(f.op(f"and i64 {k}, {-self.width}"), stop, self.width, some)

    def eliminate(
        self, code: Code, k: str, top: str, stop: str, factors: str, start: str, count: int
    ) -> None:
        """Some vectors of columns: subtract multiples of row k from the rows below, and put the
        multipliers where they made zeros, as 0 - factor * -1."""
        f = code.function
        at = f.mul(start, self.size)
        row, own = [], Vec(code, "i64", 1, k).convert("trunc", "i32").splat(self.width)
        for v in range(count):
            columns = self.columns(code, f.add(start, v * self.width))
            mark = columns.equals(own).where(code.const(self.kind, -1.0, self.width), 0.0)
            row.append((columns > own).where(self.load(code, f.offset(top, at), v), mark))

        def below(i: str, _: object) -> None:
            here = f.offset(f.offset("%w", f.mul(i, "%line")), at)
            factor = -self.scalar(code, f.offset(factors, f.mul(i, self.size))).splat(self.width)
            for v in range(count):
                value = fma(factor, row[v], self.load(code, here, v))
                self.store(code, here, v, value, None)

        f.loop(f.add(k, 1), stop, 1, below)

    # ---------------------------------------------------------------- rows below those taken

    def multipliers(self, code: Code, start: str, stop: str, factors: str) -> None:
        """Of the rows taken, for every row below them: a row of `factors` for each one taken, and
        in the matrix."""
        f = code.function

        def places(k: str, i: str) -> tuple[str, str]:
            row = f.offset("%w", f.mul(i, "%line"))
            return self.factor_at(code, factors, start, k, i), f.offset(row, f.mul(k, self.size))

        def gather(k: str, i: str) -> None:
            made, given = places(k, i)
            self.put(code, made, self.scalar(code, given))

        def scatter(k: str, i: str) -> None:
            made, given = places(k, i)
            self.put(code, given, self.scalar(code, made))

        def some(k: str, i: str) -> None:
            top = f.offset("%w", f.mul(k, self.size))  # column k

            def less(p: str, values: list[str]) -> list[str]:
                above = self.scalar(code, f.offset(top, f.mul(p, "%line"))).splat(self.width)
                total = Vec(code, self.kind, self.width, values[0])
                known = self.load(code, self.factor_at(code, factors, start, p, i))
                return [fma(-known, above, total).text]

            place = self.factor_at(code, factors, start, k, i)
            given = self.load(code, place)
            (text,) = f.loop(start, k, 1, less, [(given.type, given.text)])
            pivot = self.scalar(code, f.offset(top, f.mul(k, "%line")))
            self.put(code, place, Vec(code, self.kind, self.width, text) / pivot)

        def each(body: Callable[[str, str], None], step: int) -> None:
            def row(i: str, _: object) -> None:
                f.loop(start, stop, 1, lambda k, _: body(k, i))

            f.loop(stop, "%n", step, row)

        each(gather, 1)
        each(some, self.width)
        each(scatter, 1)

    def factor_at(self, code: Code, factors: str, start: str, k: str, i: str) -> str:
        """Where the multiple of row k that is subtracted from row i is."""
        f = code.function
        row = f.mul(f.op(f"sub i64 {k}, {start}"), "%line")
        return f.offset(f.offset(factors, row), f.mul(i, self.size))

    def subtract(self, code: Code, start: str, stop: str, factors: str) -> None:
        """Subtract multiples of the rows taken from those below: a few rows and vectors at a time
        in registers."""
        f = code.function

        def tile(i: str, rows: int, column: str, count: int) -> None:
            at = f.mul(column, self.size)
            here = [f.offset("%w", f.add(f.mul(f.add(i, r), "%line"), at)) for r in range(rows)]
            sums = [self.load(code, place, v) for place in here for v in range(count)]

            def less(k: str, values: list[str]) -> list[str]:
                top = f.offset("%w", f.add(f.mul(k, "%line"), at))
                read = [self.load(code, top, v) for v in range(count)]
                place = self.factor_at(code, factors, start, k, i)
                after = []
                for r in range(rows):
                    factor = -self.scalar(code, f.offset(place, r * self.size)).splat(self.width)
                    for v in range(count):
                        total = Vec(code, self.kind, self.width, values[r * count + v])
                        after.append(fma(factor, read[v], total).text)
                return after

            found = f.loop(start, stop, 1, less, [(s.type, s.text) for s in sums])
            for number, text in enumerate(found):
                value = Vec(code, self.kind, self.width, text)
                self.store(code, here[number // count], number % count, value, None)

        def columns(column: str, count: int, _: str) -> None:
            self.each_rows(code, "%n", lambda i, rows: tile(i, rows, column, count), stop)

        self.each_columns(code, self.whole(code), columns, stop)

    # ---------------------------------------------------------------- exchanges

    def swap_of(self, code: Code, swaps: str, k: str) -> str:
        f = code.function
        return f.op(f"load i64, ptr {f.offset(swaps, f.mul(k, 8))}")

    def unswap(self, code: Code, x: str, n: str, k: str, swaps: str) -> None:
        """Exchange rows of x, from the last exchange to the first."""
        f = code.function
        row = f.mul(k, self.size)

        def exchange(number: str, _: object) -> None:
            i = f.op(f"sub i64 {f.add(n, -1)}, {number}")
            places = [f.offset(x, f.mul(r, row)) for r in (i, self.swap_of(code, swaps, i))]

            def part(start: str, _: object) -> None:
                mask = code.first_lanes(self.width, f.op(f"sub i64 {k}, {start}"))
                here = [f.offset(place, f.mul(start, self.size)) for place in places]
                values = [self.load(code, place, 0, mask) for place in here]
                for place, value in zip(here, reversed(values), strict=True):
                    self.store(code, place, 0, value, mask)

            f.loop(0, k, self.width, part)

        f.loop(0, n, 1, exchange)
