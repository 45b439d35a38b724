"""LU factors of a matrix, in vectors along its rows.

    A P = L U    # L with ones on its diagonal, both in one matrix

    name = write_lu(library, panels)
    scratch = lu_scratch(code, n)
    call_lu(code, name, a, n, scratch)

The largest number of a row is its pivot, and columns are exchanged: the search and the elimination
are along rows, which lie in memory. Numbers are as bounded as with exchanges of rows.

A block of rows is factored; then multiples of all of them are subtracted from the rows below, which
are read and written once for it (Golub and Van Loan, 3.4.7).

In scratch: rows with zeros up to a whole vector; such rows for multipliers; columns exchanged.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.base.vector import Vec, fma
from fxad.backend.llvm.factors.code import Code, Library
from fxad.backend.llvm.factors.panels import Panels, each_columns, each_rows
from fxad.core.record import record

BLOCK = 16  # rows factored before the rest: whole vectors of any machine


@record
class LuScratch:
    """Bytes from row to row of a factor in scratch, and where its exchanges are."""

    line: str
    swaps: str


def lu_scratch(code: Code, n: str) -> LuScratch:
    """For a matrix of n rows. An odd number of vectors in a row, so that the numbers of a column do
    not share a few places of a cache."""
    f = code.f
    vectors = f.op(f"sdiv i64 {f.add(n, code.width - 1)}, {code.width}")
    line = f.mul(f.op(f"or i64 {vectors}, 1"), code.step)
    return LuScratch(line, f.offset("%scratch", f.mul(f.add(n, BLOCK), line)))


def call_lu(code: Code, name: str, a: str, n: str, scratch: LuScratch) -> None:
    """Factor the matrix at `a` in scratch."""
    given = f"ptr {a}, ptr %scratch, i64 {n}, i64 {scratch.line}, ptr {scratch.swaps}"
    code.f.line(f"call void @{name}({given})")


def exchanged_with(code: Code, swaps: str, k: str) -> str:
    """The column that was exchanged with column k."""
    f = code.f
    return f.op(f"load i64, ptr {f.offset(swaps, f.mul(k, 8))}")


def divisor(code: Code, at: str) -> Vec:
    """The pivot at an address, by which numbers below it are divided; 1 for a pivot of 0, whose
    row is zeros: what is below stays as it is."""
    pivot = code.scalar(at)
    zero = code.flag(code.f.op(f"fcmp oeq {code.kind} {pivot.text}, 0.0"))
    return zero.where(code.const(1.0), pivot)


def write_lu(library: Library, panels: Panels) -> str:
    """The name of the function that copies a matrix to w and factors it there."""
    name = f"fx_lu_rows_{library.dtype.name}"
    params = [("ptr", "a"), ("ptr", "w"), ("i64", "n"), ("i64", "line"), ("ptr", "swaps")]
    code = library.function(name, params, "internal")
    f = code.f
    _copy(code)
    factors = f.offset("%w", f.mul("%n", "%line"))

    def block(start: str, _: object) -> None:
        stop = f.least(f.add(start, BLOCK), "%n")
        f.loop(start, stop, 1, lambda k, _: _column(code, panels, k, stop, factors))
        _multipliers(code, start, stop, factors)
        _subtract(code, panels, start, stop, factors)

    f.loop(0, "%n", BLOCK, block)
    f.ret()
    return name


def _copy(code: Code) -> None:
    """Rows of a to w, with zeros up to a whole vector."""
    f = code.f
    row = f.mul("%n", code.size)

    def part(i: str, j: str) -> None:
        mask = code.first_lanes("%n", j)
        skip = f.mul(j, code.size)
        value = code.load(f.offset(f.offset("%a", f.mul(i, row)), skip), 0, mask)
        code.put(f.offset(f.offset("%w", f.mul(i, "%line")), skip), value)

    width = code.width
    f.loop(0, "%n", 1, lambda i, _: f.loop(0, "%n", width, lambda j, _: part(i, j)) and None)


def _whole_columns(code: Code) -> str:
    """Columns up to a whole vector."""
    return code.f.op(f"and i64 {code.f.add('%n', code.width - 1)}, {-code.width}")


# ---------------------------------------------------------------- a block of rows


def _column(code: Code, panels: Panels, k: str, stop: str, factors: str) -> None:
    """Find the pivot of row k, and eliminate with it in the rows before `stop`."""
    f = code.f
    top = f.offset("%w", f.mul(k, "%line"))
    first = f.op(f"and i64 {k}, {-code.width}")
    best = _pivot(code, top, first, k)
    f.line(f"store i64 {best}, ptr {f.offset('%swaps', f.mul(k, 8))}")
    _swap_columns(code, k, best, stop, factors)
    _divide(code, k, top, stop, factors)

    def columns(start: str, count: int, _: str) -> None:
        _eliminate(code, k, top, stop, factors, start, count)

    each_columns(code, panels, _whole_columns(code), columns, first)


def _index(code: Code, number: str) -> Vec:
    """A column's number in every lane."""
    return Vec(code.values, "i64", 1, number).convert("trunc", "i32").splat(code.width)


def _columns(code: Code, start: str) -> Vec:
    """Numbers of the columns of a vector that begins at one."""
    first = _index(code, start)
    return code.values.iota("i32", code.width) + first


def _pivot(code: Code, top: str, first: str, k: str) -> str:
    """The column from k on with the largest number of a row, the first of equals; k itself if all
    are 0 or NaN, and never one of the zeros behind the row."""
    f, values, bits = code.f, code.values, code.size * 8
    own = _index(code, k)
    best = code.splat(0.0)

    def look(start: str, carried: list[str]) -> list[str]:
        best, index = code.vector(carried[0]), Vec(values, "i32", code.width, carried[1])
        size = code.load(f.offset(top, f.mul(start, code.size))).abs()
        columns = _columns(code, start)
        larger = (size > best) & (columns >= own)
        return [larger.where(size, best).text, larger.where(columns, index).text]

    found = f.loop(first, "%n", code.width, look, [(best.type, best.text), (own.type, own.text)])
    sizes = code.vector(found[0]).bits()  # in order as integers
    index = Vec(values, "i32", code.width, found[1])
    name = f"llvm.vector.reduce.smax.v{code.width}i{bits}"
    most = values.call(name, f"i{bits}", 1, [sizes])
    these = sizes.equals(most.splat(code.width)).where(index, 2**31 - 1)
    name = f"llvm.vector.reduce.smin.v{code.width}i32"
    return values.call(name, "i32", 1, [these]).convert("zext", "i64").text


def _swap_columns(code: Code, k: str, best: str, stop: str, factors: str) -> None:
    """Exchange two columns of all rows; what comes to column k in the rows below k, before `stop`,
    goes to `factors`, and zeros into the matrix."""
    f = code.f
    own, other = (f.mul(j, code.size) for j in (k, best))
    zero = code.const(0.0)

    def exchange(i: str) -> tuple[str, Vec]:
        """The other column's number is put here; where column k lies, and what goes there."""
        start = f.offset("%w", f.mul(i, "%line"))
        here, there = f.offset(start, own), f.offset(start, other)
        mine, others = code.scalar(here), code.scalar(there)
        code.put(there, mine)
        return here, others

    def row(i: str, _: object) -> None:
        here, value = exchange(i)
        code.put(f.offset(factors, f.mul(i, code.size)), value)
        code.put(here, zero)

    below = f.add(k, 1)
    f.loop(0, below, 1, lambda i, _: code.put(*exchange(i)))
    f.loop(below, stop, 1, row)
    f.loop(stop, "%n", 1, lambda i, _: code.put(*exchange(i)))


def _divide(code: Code, k: str, top: str, stop: str, factors: str) -> None:
    """What is subtracted of row k from the rows below it: their numbers over the pivot."""
    f = code.f
    pivot = divisor(code, f.offset(top, f.mul(k, code.size)))

    def some(i: str, _: object) -> None:
        at = f.offset(factors, f.mul(i, code.size))
        code.put(at, code.load(at) / pivot)

    f.loop(f.op(f"and i64 {k}, {-code.width}"), stop, code.width, some)


def _eliminate(
    code: Code, k: str, top: str, stop: str, factors: str, start: str, count: int
) -> None:
    """Some vectors of columns: subtract multiples of row k from the rows below, and put the
    multipliers where they made zeros, as 0 - factor * -1."""
    f = code.f
    skip = f.mul(start, code.size)
    row, own = [], _index(code, k)
    for v in range(count):
        columns = _columns(code, f.add(start, v * code.width))
        mark = columns.equals(own).where(code.splat(-1.0), 0.0)
        row.append((columns > own).where(code.load(f.offset(top, skip), v), mark))

    def below(i: str, _: object) -> None:
        here = f.offset(f.offset("%w", f.mul(i, "%line")), skip)
        factor = -code.scalar(f.offset(factors, f.mul(i, code.size))).splat(code.width)
        for v in range(count):
            code.store(here, v, fma(factor, row[v], code.load(here, v)), None)

    f.loop(f.add(k, 1), stop, 1, below)


# ---------------------------------------------------------------- rows below a block


def _multipliers(code: Code, start: str, stop: str, factors: str) -> None:
    """Of the block's rows, for every row below them: a row of `factors` for each row of the block,
    and in the matrix."""
    f = code.f

    def places(k: str, i: str) -> tuple[str, str]:
        row = f.offset("%w", f.mul(i, "%line"))
        return _factor_at(code, factors, start, k, i), f.offset(row, f.mul(k, code.size))

    def gather(k: str, i: str) -> None:
        factor, number = places(k, i)
        code.put(factor, code.scalar(number))

    def scatter(k: str, i: str) -> None:
        factor, number = places(k, i)
        code.put(number, code.scalar(factor))

    def solve(k: str, i: str) -> None:
        top = f.offset("%w", f.mul(k, code.size))  # column k

        def subtract(p: str, values: list[str]) -> list[str]:
            above = code.scalar(f.offset(top, f.mul(p, "%line"))).splat(code.width)
            total = code.vector(values[0])
            known = code.load(_factor_at(code, factors, start, p, i))
            return [fma(-known, above, total).text]

        at = _factor_at(code, factors, start, k, i)
        given = code.load(at)
        (text,) = f.loop(start, k, 1, subtract, [(given.type, given.text)])
        pivot = divisor(code, f.offset(top, f.mul(k, "%line")))
        code.put(at, code.vector(text) / pivot)

    def each(body: Callable[[str, str], None], step: int) -> None:
        def row(i: str, _: object) -> None:
            f.loop(start, stop, 1, lambda k, _: body(k, i))

        f.loop(stop, "%n", step, row)

    each(gather, 1)
    each(solve, code.width)
    each(scatter, 1)


def _factor_at(code: Code, factors: str, start: str, k: str, i: str) -> str:
    """Where the multiple of row k that is subtracted from row i is."""
    f = code.f
    row = f.mul(f.op(f"sub i64 {k}, {start}"), "%line")
    return f.offset(f.offset(factors, row), f.mul(i, code.size))


def _subtract(code: Code, panels: Panels, start: str, stop: str, factors: str) -> None:
    """Subtract multiples of a block's rows from those below: a few rows and vectors at a time in
    registers."""
    f = code.f

    def tile(i: str, rows: int, column: str, count: int) -> None:
        skip = f.mul(column, code.size)
        here = [f.offset("%w", f.add(f.mul(f.add(i, r), "%line"), skip)) for r in range(rows)]
        sums = [code.load(at, v) for at in here for v in range(count)]

        def subtract(k: str, values: list[str]) -> list[str]:
            top = f.offset("%w", f.add(f.mul(k, "%line"), skip))
            read = [code.load(top, v) for v in range(count)]
            at = _factor_at(code, factors, start, k, i)
            following = []
            for r in range(rows):
                factor = -code.scalar(f.offset(at, r * code.size)).splat(code.width)
                for v in range(count):
                    total = code.vector(values[r * count + v])
                    following.append(fma(factor, read[v], total).text)
            return following

        found = f.loop(start, stop, 1, subtract, [(s.type, s.text) for s in sums])
        for number, text in enumerate(found):
            code.store(here[number // count], number % count, code.vector(text), None)

    def columns(column: str, count: int, _: str) -> None:
        each_rows(code, panels, "%n", lambda i, rows: tile(i, rows, column, count), stop)

    each_columns(code, panels, _whole_columns(code), columns, stop)
