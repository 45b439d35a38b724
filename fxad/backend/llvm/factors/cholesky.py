"""Cholesky factors U^T U = a, by the recurrence of panels.py: x is U, and c[i, p] is U[p, i].

write_cholesky(library, panels)
"""

from __future__ import annotations

from fxad.backend.llvm.factors.code import Code, Library, nan_if
from fxad.backend.llvm.factors.panels import Panels, call_panel, each_columns, each_rows


def write_cholesky(library: Library, panels: Panels) -> None:
    """Operands a, x; number n. Units: matrices. U is made above the diagonal of x, then
    transposed."""
    code, (a, x), (n,) = library.kernel("cholesky", 2, 1)
    f, size = code.f, code.size
    line, no_nan = f.mul(n, size), code.const(-0.0).text

    def matrix(number: str, _: object) -> None:
        offset = f.mul(number, f.mul(n, line))
        given, upper = f.offset(a, offset), f.offset(x, offset)
        _symmetric(code, given, upper, n)

        def rows(i: str, height: int) -> None:
            top = f.offset(upper, f.mul(i, size))

            def columns(column: str, vectors: int, count: str, pivot: bool = False) -> None:
                above = f.offset(upper, f.mul(column, size))
                args = [top, str(size), line, f.offset(above, f.mul(i, line)), above, line]
                call_panel(code, panels, height, vectors, [*args, i, count, "false", no_nan], pivot)

            columns(i, 1, f.least(f.op(f"sub i64 {n}, {i}"), code.width), pivot=True)
            next_column = f.least(f.add(i, code.width), n)
            each_columns(code, panels, n, columns, next_column)

        each_rows(code, panels, n, rows)
        _transpose(code, upper, n)

    f.loop("%begin", "%end", 1, matrix)
    f.ret()


def _entry(code: Code, matrix: str, n: str, i: str, j: str) -> str:
    """The address of matrix[i, j]."""
    f = code.f
    return f.offset(matrix, f.mul(f.add(f.mul(i, n), j), code.size))


def _symmetric(code: Code, a: str, x: str, n: str) -> None:
    """x[i, j] = (a[i, j] + a[j, i]) / 2 from the diagonal on; x may be a."""

    def entry(i: str, j: str) -> None:
        one, other = (code.scalar(_entry(code, a, n, *at)) for at in ((i, j), (j, i)))
        half = (one + other) * 0.5
        code.f.line(f"store {code.kind} {half.text}, ptr {_entry(code, x, n, i, j)}")

    loop = code.f.loop
    loop(0, n, 1, lambda i, _: loop(i, n, 1, lambda j, _: entry(i, j)) and None)


def _transpose(code: Code, x: str, n: str) -> None:
    """U to U^T, or to NaN where the last number of its diagonal is."""
    f = code.f
    least = f.add(n, -1)
    last = code.scalar(_entry(code, x, n, least, least))
    nan = code.number(nan_if(code, last.is_nan().text))

    def entry(i: str, j: str) -> None:  # below the diagonal
        above, below = (_entry(code, x, n, *at) for at in ((j, i), (i, j)))
        zero = nan + 0.0
        for at, value in ((below, code.scalar(above) + nan), (above, zero)):
            f.line(f"store {code.kind} {value.text}, ptr {at}")

    def row(i: str, _: object) -> None:
        f.loop(0, i, 1, lambda j, _: entry(i, j))
        at = _entry(code, x, n, i, i)
        f.line(f"store {code.kind} {(code.scalar(at) + nan).text}, ptr {at}")

    f.loop(0, n, 1, row)
