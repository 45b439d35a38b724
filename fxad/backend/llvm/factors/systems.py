"""Linear systems, determinants and factors by LU factors of one matrix after the other (lu.py).

    A P = L U

A x = b is L (U z) = b and x = P z: two triangular systems, and the exchanges of rows of z from the
last to the first. The factors with exchanges of rows are those of the transpose:

    A^T P = L U,  D the diagonal of U  ->  P^T A = (U^T D^-1) (D L^T)
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.factors.code import Code, Library, is_singular, nan_if
from fxad.backend.llvm.factors.lu import call_lu, divisor, exchanged_with, lu_scratch
from fxad.backend.llvm.factors.panels import Panels
from fxad.backend.llvm.factors.triangles import Triangle, solve_triangle
from fxad.backend.llvm.math.functions import function as elementary


def write_solve(library: Library, panels: Panels, lu: str) -> None:
    """Operands a, b, x; numbers n, k. Units: matrices. lu: the name of lu.py's function."""
    code, (a, b, x), (n, k) = library.kernel("solve", 3, 2)
    f, size = code.f, code.size
    row, no_nan = f.mul(k, size), code.const(-0.0).text
    scratch = lu_scratch(code, n)
    line = scratch.line

    def matrix(number: str, _: object) -> None:
        call_lu(code, lu, f.offset(a, f.mul(number, f.mul(f.mul(n, n), size))), n, scratch)
        nan = nan_if(code, is_singular(code, "%scratch", f.add(line, size), n))
        right, out = (f.offset(p, f.mul(number, f.mul(n, row))) for p in (b, x))
        lower = Triangle("%scratch", line, str(size))
        solve_triangle(code, panels, lower, right, out, row, n, k, "true", nan)
        corner, last = (
            f.offset(p, f.mul(f.add(n, -1), step))
            for p, step in (("%scratch", f.add(line, size)), (out, row))
        )
        up, left, back = (f.op(f"sub i64 0, {step}") for step in (line, size, row))
        upper = Triangle(corner, up, left)
        solve_triangle(code, panels, upper, last, last, back, n, k, "false", no_nan)
        _exchange_rows(code, out, n, k, scratch.swaps)

    f.loop("%begin", "%end", 1, matrix)
    f.ret()


def write_slogdet(library: Library, lu: str) -> None:
    """Operands a, signs, logarithms; number n. Units: matrices. lu: the name of lu.py's
    function."""
    code, (a, signs, logarithms), (n, _) = library.kernel("slogdet", 3, 2)
    f, size = code.f, code.size
    scratch = lu_scratch(code, n)
    one, zero = code.const(1.0), code.const(0.0)

    def matrix(number: str, _: object) -> None:
        call_lu(code, lu, f.offset(a, f.mul(number, f.mul(f.mul(n, n), size))), n, scratch)

        def factor(i: str, values: list[str]) -> list[str]:
            sign, total = (code.number(text) for text in values)
            pivot = code.scalar(f.offset("%scratch", f.mul(i, f.add(scratch.line, size))))
            swapped = f.op(f"icmp ne i64 {i}, {exchanged_with(code, scratch.swaps, i)}")
            odd = (pivot < 0.0) ^ code.flag(swapped)
            logarithm = elementary("log", pivot.abs())
            return [odd.where(-sign, sign).text, (total + logarithm).text]

        found = f.loop(0, n, 1, factor, [(one.type, one.text), (zero.type, zero.text)])
        sign, total = (code.number(text) for text in found)
        none = code.flag(is_singular(code, "%scratch", f.add(scratch.line, size), n))
        offset = f.mul(number, size)
        code.put(f.offset(signs, offset), none.where(zero, sign))
        least = total.like(float("-inf"))
        code.put(f.offset(logarithms, offset), none.where(least, total))

    f.loop("%begin", "%end", 1, matrix)
    f.ret()


def write_factors(library: Library, lu: str) -> None:
    """Operands a, factors, exchanged rows, order of rows (int32); number n. Units: matrices. lu:
    the name of lu.py's function."""
    code, (a, factors, swaps, order), (n, _) = library.kernel("lu", 4, 2)
    f, size = code.f, code.size
    row, scratch = f.mul(n, size), lu_scratch(code, n)

    def integer(at: str) -> str:
        return f.op(f"load i32, ptr {at}")

    def put(at: str, value: str) -> None:
        f.line(f"store i32 {value}, ptr {at}")

    def each(body: Callable[[str, str], None]) -> None:
        f.loop(0, n, 1, lambda i, _: f.loop(0, n, 1, lambda j, _: body(i, j)) and None)

    def matrix(number: str, _: object) -> None:
        given, out = (f.offset(p, f.mul(number, f.mul(n, row))) for p in (a, factors))
        exchanged, rows = (f.offset(p, f.mul(number, f.mul(n, 4))) for p in (swaps, order))

        def number_at(start: str, line: str, i: str, j: str) -> str:
            return f.offset(start, f.add(f.mul(i, line), f.mul(j, size)))

        each(
            lambda i, j: code.put(
                number_at(out, row, j, i), code.scalar(number_at(given, row, i, j))
            )
        )
        call_lu(code, lu, out, n, scratch)

        def factor(i: str, j: str) -> None:
            known = code.scalar(number_at("%scratch", scratch.line, j, i))
            line = f.op(f"icmp slt i64 {i}, {j}")
            least = f.op(f"select i1 {line}, i64 {i}, i64 {j}")
            pivot = divisor(code, number_at("%scratch", scratch.line, least, least))
            own = f.op(f"icmp eq i64 {i}, {j}")
            found = code.flag(line).where(known * pivot, known / pivot)
            code.put(number_at(out, row, i, j), code.flag(own).where(known, found))

        each(factor)
        f.loop(
            0, n, 1, lambda i, _: put(f.offset(rows, f.mul(i, 4)), f.op(f"trunc i64 {i} to i32"))
        )

        def exchange(i: str, _: object) -> None:
            other = exchanged_with(code, scratch.swaps, i)
            put(f.offset(exchanged, f.mul(i, 4)), f.op(f"trunc i64 {other} to i32"))
            places = [f.offset(rows, f.mul(k, 4)) for k in (i, other)]
            for place, value in zip(places, reversed([integer(p) for p in places]), strict=True):
                put(place, value)

        f.loop(0, n, 1, exchange)

    f.loop("%begin", "%end", 1, matrix)
    f.ret()


def _exchange_rows(code: Code, x: str, n: str, k: str, swaps: str) -> None:
    """Exchange rows of x, from the last exchange to the first."""
    f = code.f
    row = f.mul(k, code.size)

    def exchange(number: str, _: object) -> None:
        i = f.op(f"sub i64 {f.add(n, -1)}, {number}")
        rows = [f.offset(x, f.mul(r, row)) for r in (i, exchanged_with(code, swaps, i))]

        def part(start: str, _: object) -> None:
            mask = code.first_lanes(k, start)
            here = [f.offset(at, f.mul(start, code.size)) for at in rows]
            values = [code.load(at, 0, mask) for at in here]
            for at, value in zip(here, reversed(values), strict=True):
                code.store(at, 0, value, mask)

        f.loop(0, k, code.width, part)

    f.loop(0, n, 1, exchange)
