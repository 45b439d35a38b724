"""Triangular systems: c x = b, in vectors along the rows of b (panels.py has the recurrence).

    write_triangular_solve(library, panels)
    solve_triangle(code, panels, Triangle(c, down, along), b, x, row, n, k, unit, nan)

An upper triangle is walked from its end.
"""

from __future__ import annotations

from fxad.backend.llvm.factors.code import Code, Library, is_singular, nan_if
from fxad.backend.llvm.factors.panels import Panels, call_panel, each_columns, each_rows
from fxad.core.record import record


@record
class Triangle:
    """The address of its first number, bytes to the next row, and to the next number of a row."""

    start: str
    down: str
    along: str


def write_triangular_solve(library: Library, panels: Panels) -> None:
    """Operands a, b, x; numbers n, k, upper, unit. Units: panels of columns of each matrix."""
    code, (a, b, x), (n, k, upper, unit) = library.kernel("triangular_solve", 3, 4)
    f, size = code.f, code.size
    columns = panels.vectors * code.width
    count = f.op(f"sdiv i64 {f.add(k, columns - 1)}, {columns}")
    row, line = f.mul(k, size), f.mul(n, size)
    is_upper, unit = f.op(f"icmp ne i64 {upper}, 0"), f.op(f"icmp ne i64 {unit}, 0")

    def signed(value: str) -> str:
        return f.op(f"select i1 {is_upper}, i64 {f.op(f'sub i64 0, {value}')}, i64 {value}")

    down, along, step = signed(line), signed(str(size)), signed(row)
    last = f.mul(upper, f.op(f"sub i64 {f.mul(n, line)}, {size}"))
    lowest = f.mul(upper, f.mul(f.add(n, -1), row))

    def panel(number: str, _: object) -> None:
        matrix, panel = (f.op(f"{op} i64 {number}, {count}") for op in ("sdiv", "srem"))
        c = f.offset(a, f.add(f.mul(matrix, f.mul(n, line)), last))
        first = f.mul(panel, columns)
        start = f.add(f.mul(matrix, f.mul(n, row)), f.add(lowest, f.mul(first, size)))
        width = f.least(f.op(f"sub i64 {k}, {first}"), columns)
        found = is_singular(code, c, f.add(down, along), n)
        nan = nan_if(code, f.op(f"and i1 {found}, {f.op(f'xor i1 {unit}, true')}"))
        right, out = f.offset(b, start), f.offset(x, start)
        triangle = Triangle(c, down, along)
        solve_triangle(code, panels, triangle, right, out, step, n, width, unit, nan)

    f.loop("%begin", "%end", 1, panel)
    f.ret()


def solve_triangle(
    code: Code,
    panels: Panels,
    triangle: Triangle,
    b: str,
    x: str,
    row: str,
    n: str,
    k: str,
    unit: str,
    nan: str,
) -> None:
    """All n rows of k columns. row: bytes between rows of b and x, which may be the same. unit:
    whether the diagonal is ones. nan: what is added to every result, -0 or NaN."""
    f = code.f

    def columns(column: str, vectors: int, count: str) -> None:
        skip = f.mul(column, code.size)
        right, out = f.offset(b, skip), f.offset(x, skip)

        def rows(i: str, height: int) -> None:
            args = [
                f.offset(triangle.start, f.mul(i, triangle.down)),
                triangle.down,
                triangle.along,
                f.offset(right, f.mul(i, row)),
                out,
                row,
            ]
            call_panel(code, panels, height, vectors, [*args, i, count, unit, nan])

        each_rows(code, panels, n, rows)

    each_columns(code, panels, k, columns)
