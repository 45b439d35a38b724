"""LU factors of small matrices, one in each lane: as many at once as a vector has lanes.

    w[i, j]    # a vector: element i, j of [a | b] of every matrix, in scratch

Gauss' elimination with partial pivoting (Golub and Van Loan, 3.4.1): the row with the largest
number of a column is exchanged with the one at its diagonal by picks lane by lane, the rows below
are divided and subtracted; the columns of b go along.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.base.vector import Vec, fma
from fxad.backend.llvm.factors.tables import Lot, Table
from fxad.backend.llvm.factors.writer import Writer
from fxad.backend.llvm.math.functions import function as elementary


class Lanes(Writer):
    """Writes `solve` and `slogdet`. Units: groups of matrices."""

    def write(self) -> tuple[str, ...]:
        self.solve()
        self.slogdet()
        return "solve", "slogdet"

    def solve(self) -> None:
        """Operands a, b, x; numbers n, k, matrices."""
        code, (a, b, x), (n, k, count) = self.kernel("solve", 3, 3)
        f = code.function
        columns = f.add(n, k)

        def group(number: str, _: object) -> None:
            work = _Group(Lot(self, code, number, count), "%scratch", n, columns)
            work.read(a, n)
            work.read(b, k, n)
            work.eliminate()
            work.substitute(k)
            work.write(x, n, k, n)

        f.loop("%begin", "%end", 1, group)
        f.ret()

    def slogdet(self) -> None:
        """Operands a, signs, logarithms; numbers n, none, matrices."""
        code, (a, signs, sizes), (n, _, count) = self.kernel("slogdet", 3, 3)
        f = code.function

        def group(number: str, _: object) -> None:
            work = _Group(Lot(self, code, number, count), "%scratch", n, n)
            work.read(a, n)
            odd = work.eliminate()
            sign, size = work.determinant(odd)
            first = f.mul(f.mul(number, self.width), self.size)
            self.store(code, f.offset(signs, first), 0, sign, work.lot.there)
            self.store(code, f.offset(sizes, first), 0, size, work.lot.there)

        f.loop("%begin", "%end", 1, group)
        f.ret()


class _Group(Table):
    """Some matrices with their right sides."""

    @property
    def n(self) -> str:
        return self.rows

    # ---------------------------------------------------------------- the factors

    def eliminate(self) -> Vec:
        """Make w upper triangular, with multipliers below; lanes of an odd number of exchanges."""
        f = self.f
        none = self.code.const("i1", False, self.width)

        def column(k: str, values: list[str]) -> list[str]:
            row = self.pivot(k)
            own = self.number(k)
            below = f.add(k, 1)
            self.exchanged(k, k, row, lambda i, value, pivot: value / pivot)

            def later(j: str, _: object) -> None:
                def less(i: str, value: Vec, pivot: Vec) -> Vec:
                    return fma(-self.get(self.place(i, k)), pivot, value)

                self.exchanged(k, j, row, less)

            f.loop(below, self.columns, 1, later)
            odd = Vec(self.code, "i1", self.width, values[0])
            return [(odd ^ row.compare("ne", own)).text]

        (odd,) = f.loop(0, self.n, 1, column, [(none.type, none.text)])
        return Vec(self.code, "i1", self.width, odd)

    def number(self, i: str) -> Vec:
        """A row's number in each lane."""
        return Vec(self.code, "i64", 1, i).convert("trunc", "i32").splat(self.width)

    def pivot(self, k: str) -> Vec:
        """The row from k on with the largest number in column k, the first of equals."""
        code, f = self.code, self.f
        best, index = code.const(self.kind, -1.0, self.width), self.number(k)

        def look(i: str, values: list[str]) -> list[str]:
            best = Vec(code, self.kind, self.width, values[0])
            index = Vec(code, "i32", self.width, values[1])
            size = self.get(self.place(i, k)).abs()
            larger = size > best
            return [larger.where(size, best).text, larger.where(self.number(i), index).text]

        start = [(best.type, best.text), (index.type, index.text)]
        _, found = f.loop(k, self.n, 1, look, start)
        return Vec(code, "i32", self.width, found)

    def exchanged(self, k: str, j: str, row: Vec, change: Callable[[str, Vec, Vec], Vec]) -> None:
        """Exchange w[k, j] with that of the pivot's row in each lane, then
        w[i, j] = change(i, w[i, j], the pivot row's) in the rows below."""
        code, f = self.code, self.f
        own, below = self.get(self.place(k, j)), f.add(k, 1)

        def find(i: str, values: list[str]) -> list[str]:
            found = Vec(code, self.kind, self.width, values[0])
            here = row.equals(self.number(i))
            return [here.where(self.get(self.place(i, j)), found).text]

        (text,) = f.loop(below, self.n, 1, find, [(own.type, own.text)])
        pivot = Vec(code, self.kind, self.width, text)
        self.put(self.place(k, j), pivot)

        def rest(i: str, _: object) -> None:
            place = self.place(i, j)
            value = row.equals(self.number(i)).where(own, self.get(place))
            self.put(place, change(i, value, pivot))

        f.loop(below, self.n, 1, rest)

    def singular(self) -> Vec:
        """Lanes whose diagonal has a zero."""
        none = self.code.const("i1", False, self.width)

        def look(i: str, values: list[str]) -> list[str]:
            found = Vec(self.code, "i1", self.width, values[0])
            zero = self.get(self.place(i, i)).equals(0.0)
            return [found.binary("or", zero).text]

        (found,) = self.f.loop(0, self.n, 1, look, [(none.type, none.text)])
        return Vec(self.code, "i1", self.width, found)

    # ---------------------------------------------------------------- what is made of them

    def substitute(self, k: str) -> None:
        """Solve the upper triangle for the last k columns, from the last row on."""
        code, f = self.code, self.f
        spoil = self.singular().where(
            code.const(self.kind, float("nan"), self.width), code.const(self.kind, -0.0, self.width)
        )

        def entry(i: str, j: str) -> None:
            place = self.place(i, j)

            def less(p: str, values: list[str]) -> list[str]:
                total = Vec(code, self.kind, self.width, values[0])
                return [fma(-self.get(self.place(i, p)), self.get(self.place(p, j)), total).text]

            start = self.get(place) + spoil
            after = f.add(i, 1)
            (total,) = f.loop(after, self.n, 1, less, [(start.type, start.text)])
            diagonal = self.get(self.place(i, i))
            self.put(place, Vec(code, self.kind, self.width, total) / diagonal)

        def row(number: str, _: object) -> None:
            i = f.op(f"sub i64 {f.add(self.n, -1)}, {number}")
            f.loop(self.n, self.columns, 1, lambda j, _: entry(i, j))

        f.loop(0, self.n, 1, row)

    def determinant(self, odd: Vec) -> tuple[Vec, Vec]:
        """Its sign, and the logarithm of its size."""
        code = self.code
        one = code.const(self.kind, 1.0, self.width)
        zero = code.const(self.kind, 0.0, self.width)

        def factor(i: str, values: list[str]) -> list[str]:
            sign, size = (Vec(code, self.kind, self.width, text) for text in values)
            number = self.get(self.place(i, i))
            return [
                (number < 0.0).where(-sign, sign).text,
                (size + elementary("log", number.abs())).text,
            ]

        start = [(one.type, odd.where(-one, one).text), (zero.type, zero.text)]
        found = self.f.loop(0, self.n, 1, factor, start)
        sign, size = (Vec(code, self.kind, self.width, text) for text in found)
        none = self.singular()
        return none.where(zero, sign), none.where(size.like(float("-inf")), size)
