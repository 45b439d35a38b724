"""Linear systems and determinants by LU factors of one matrix after the other (lu.py).

    A P = L U

A x = b is L (U z) = b and x = P z: two triangular systems, and the exchanges of rows of z from the
last to the first.
"""

from __future__ import annotations

from fxad.backend.llvm.factors.code import Code, Library, is_singular, nan_if
from fxad.backend.llvm.factors.lu import call_lu, exchanged_with, lu_scratch
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
