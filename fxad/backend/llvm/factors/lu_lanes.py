"""LU factors of small matrices, one in each lane: as many at once as a vector has lanes.

    w[i, j]    # a vector: element i, j of [a | b] of every matrix, in scratch

Gauss' elimination with partial pivoting (Golub and Van Loan, 3.4.1): the row with the largest
number of a column is exchanged with the one at its diagonal by selections lane by lane, the rows
below are divided and subtracted; the columns of b go along.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.base.vector import Vec, fma
from fxad.backend.llvm.factors.code import Library
from fxad.backend.llvm.factors.tables import Table, lot_of, table
from fxad.backend.llvm.math.functions import function as elementary


def write_lanes_solve(library: Library) -> None:
    """Operands a, b, x; numbers n, k, matrices. Units: groups of matrices."""
    code, (a, b, x), (n, k, count) = library.kernel("solve", 3, 3)
    f = code.f
    columns = f.add(n, k)

    def group(number: str, _: object) -> None:
        work = table(lot_of(code, number, count), "%scratch", n, columns)
        work.read(a, n)
        work.read(b, k, n)
        _eliminate(work)
        _substitute(work)
        work.write(x, n, k, n)

    f.loop("%begin", "%end", 1, group)
    f.ret()


def write_lanes_slogdet(library: Library) -> None:
    """Operands a, signs, logarithms; numbers n, none, matrices. Units: groups of matrices."""
    code, (a, signs, logarithms), (n, _, count) = library.kernel("slogdet", 3, 3)
    f = code.f

    def group(number: str, _: object) -> None:
        work = table(lot_of(code, number, count), "%scratch", n, n)
        work.read(a, n)
        odd = _eliminate(work)
        sign, logarithm = _determinant(work, odd)
        first = f.mul(f.mul(number, code.width), code.size)
        code.store(f.offset(signs, first), 0, sign, work.lot.present)
        code.store(f.offset(logarithms, first), 0, logarithm, work.lot.present)

    f.loop("%begin", "%end", 1, group)
    f.ret()


def _flags(work: Table, text: str) -> Vec:
    """A bool for every lane."""
    return Vec(work.code.values, "i1", work.code.width, text)


def _index(work: Table, i: str) -> Vec:
    """A row's number in each lane."""
    return Vec(work.code.values, "i64", 1, i).convert("trunc", "i32").splat(work.code.width)


# ---------------------------------------------------------------- factors


def _eliminate(work: Table) -> Vec:
    """Make w upper triangular, with multipliers below; lanes of an odd number of exchanges."""
    f = work.f
    none = work.code.values.const("i1", False, work.code.width)

    def column(k: str, values: list[str]) -> list[str]:
        row = _pivot(work, k)
        own = _index(work, k)
        below = f.add(k, 1)
        _exchange(work, k, k, row, lambda i, value, pivot: value / pivot)

        def later(j: str, _: object) -> None:
            def subtract(i: str, value: Vec, pivot: Vec) -> Vec:
                return fma(-work.get(work.place(i, k)), pivot, value)

            _exchange(work, k, j, row, subtract)

        f.loop(below, work.columns, 1, later)
        return [(_flags(work, values[0]) ^ row.compare("ne", own)).text]

    (odd,) = f.loop(0, work.rows, 1, column, [(none.type, none.text)])
    return _flags(work, odd)


def _pivot(work: Table, k: str) -> Vec:
    """The row from k on with the largest number in column k, the first of equals."""
    code = work.code
    best, index = code.splat(-1.0), _index(work, k)

    def look(i: str, values: list[str]) -> list[str]:
        best, index = code.vector(values[0]), Vec(code.values, "i32", code.width, values[1])
        size = work.get(work.place(i, k)).abs()
        larger = size > best
        return [larger.where(size, best).text, larger.where(_index(work, i), index).text]

    start = [(best.type, best.text), (index.type, index.text)]
    _, found = work.f.loop(k, work.rows, 1, look, start)
    return Vec(code.values, "i32", code.width, found)


def _exchange(
    work: Table, k: str, j: str, row: Vec, change: Callable[[str, Vec, Vec], Vec]
) -> None:
    """Exchange w[k, j] with that of the pivot's row in each lane, then w[i, j] = change(i, w[i, j],
    the pivot row's) in the rows below."""
    code, f = work.code, work.f
    own, below = work.get(work.place(k, j)), f.add(k, 1)

    def find(i: str, values: list[str]) -> list[str]:
        found = code.vector(values[0])
        here = row.equals(_index(work, i))
        return [here.where(work.get(work.place(i, j)), found).text]

    (text,) = f.loop(below, work.rows, 1, find, [(own.type, own.text)])
    pivot = code.vector(text)
    work.put(work.place(k, j), pivot)

    def rest(i: str, _: object) -> None:
        at = work.place(i, j)
        value = row.equals(_index(work, i)).where(own, work.get(at))
        work.put(at, change(i, value, pivot))

    f.loop(below, work.rows, 1, rest)


def _singular(work: Table) -> Vec:
    """Lanes whose diagonal has a zero."""
    none = work.code.values.const("i1", False, work.code.width)

    def look(i: str, values: list[str]) -> list[str]:
        zero = work.get(work.place(i, i)).equals(0.0)
        return [_flags(work, values[0]).binary("or", zero).text]

    (found,) = work.f.loop(0, work.rows, 1, look, [(none.type, none.text)])
    return _flags(work, found)


# ---------------------------------------------------------------- results


def _substitute(work: Table) -> None:
    """Solve the upper triangle for the columns behind it, from the last row on."""
    code, f, n = work.code, work.f, work.rows
    nan = _singular(work).where(code.splat(float("nan")), code.splat(-0.0))

    def entry(i: str, j: str) -> None:
        at = work.place(i, j)

        def subtract(p: str, values: list[str]) -> list[str]:
            total = code.vector(values[0])
            return [fma(-work.get(work.place(i, p)), work.get(work.place(p, j)), total).text]

        start = work.get(at) + nan
        (total,) = f.loop(f.add(i, 1), n, 1, subtract, [(start.type, start.text)])
        diagonal = work.get(work.place(i, i))
        work.put(at, code.vector(total) / diagonal)

    def row(number: str, _: object) -> None:
        i = f.op(f"sub i64 {f.add(n, -1)}, {number}")
        f.loop(n, work.columns, 1, lambda j, _: entry(i, j))

    f.loop(0, n, 1, row)


def _determinant(work: Table, odd: Vec) -> tuple[Vec, Vec]:
    """Its sign, and the logarithm of its size."""
    code = work.code
    one, zero = code.splat(1.0), code.splat(0.0)

    def factor(i: str, values: list[str]) -> list[str]:
        sign, total = (code.vector(text) for text in values)
        number = work.get(work.place(i, i))
        return [
            (number < 0.0).where(-sign, sign).text,
            (total + elementary("log", number.abs())).text,
        ]

    start = [(one.type, odd.where(-one, one).text), (zero.type, zero.text)]
    sign, total = (code.vector(text) for text in work.f.loop(0, work.rows, 1, factor, start))
    none = _singular(work)
    return none.where(zero, sign), none.where(total.like(float("-inf")), total)
