"""Orthogonal factors of small matrices, one in each lane.

    a = q r    # rows x columns; q of `basis` columns, r upper triangular

Householder's reflections (Golub and Van Loan, 5.2.1), with LAPACK's signs: column j of what is left
becomes beta e_1 with beta = -sign(alpha) |column| of its first number alpha, by
H = 1 - tau v v^T with v = (1, rest / (alpha - beta)) and tau = (beta - alpha) / beta; nothing where
the rest is zeros already. The v lie below r until q = H_1 H_2 ... is made, from the last on.
"""

from __future__ import annotations

from fxad.backend.llvm.base.vector import Vec, fma
from fxad.backend.llvm.factors.tables import Lot, Table
from fxad.backend.llvm.factors.writer import Writer


class Orthogonal(Writer):
    """Writes `qr`. Units: groups of matrices."""

    def write(self) -> tuple[str, ...]:
        self.qr()
        return ("qr",)

    def qr(self) -> None:
        """Operands a, q, r; numbers rows, columns, columns of q, matrices."""
        code, (a, q, r), (m, n, basis, count) = self.kernel("qr", 3, 4)
        f, step = code.function, self.width * self.size
        least = f.least(m, n)

        def group(number: str, _: object) -> None:
            lot = Lot(self, code, number, count)
            work = Table(lot, "%scratch", m, n)
            made = Table(lot, f.offset("%scratch", f.mul(f.mul(m, n), step)), m, basis)
            scales = Table(lot, made.place(m, "0"), "1", least)
            work.read(a, n)
            f.loop(0, least, 1, lambda j, _: _reflect(work, scales, j))
            _unit(made)

            def turn(number: str, _: object) -> None:
                j = f.op(f"sub i64 {f.add(least, -1)}, {number}")
                _apply(work, scales, j, made, j)

            f.loop(0, least, 1, turn)
            _clear(work)
            made.write(q, m, basis)
            work.write(r, basis, n)

        f.loop("%begin", "%end", 1, group)
        f.ret()


def _reflect(work: Table, scales: Table, j: str) -> None:
    """Turn column j, and those after it: zeros below the diagonal, where v comes to lie."""
    f = work.f
    below, place = f.add(j, 1), work.place(j, j)
    alpha = work.get(place)

    def largest(i: str, values: list[str]) -> list[str]:
        size, most = work.get(work.place(i, j)).abs(), work.total(values[0])
        return [(size > most).where(size, most).text]

    start = alpha.abs()
    most = work.total(f.loop(below, work.rows, 1, largest, [(start.type, start.text)])[0])
    unit = (most > 0.0).where(most, 1.0)  # so that no square is too large or too small
    zero = work.const(0.0)

    def square(i: str, values: list[str]) -> list[str]:
        number = work.get(work.place(i, j)) / unit
        return [fma(number, number, work.total(values[0])).text]

    rest = work.total(f.loop(below, work.rows, 1, square, [(zero.type, zero.text)])[0])
    first = alpha / unit
    beta = -(fma(first, first, rest).sqrt() * unit).copysign(alpha)
    done = rest.equals(0.0)
    work.put(place, done.where(alpha, beta))
    work.writer.put(work.code, scales.place("0", j), done.where(zero, (beta - alpha) / beta))
    divisor = done.where(work.const(1.0), alpha - beta)

    def divide(i: str, _: object) -> None:
        at = work.place(i, j)
        work.put(at, work.get(at) / divisor)

    f.loop(below, work.rows, 1, divide)
    _apply(work, scales, j, work, below)


def _apply(work: Table, scales: Table, j: str, to: Table, first: str) -> None:
    """Reflection j of the columns of a table from `first` on."""
    f = work.f
    below, tau = f.add(j, 1), scales.get(scales.place("0", j))

    def column(c: str, _: object) -> None:
        place = to.place(j, c)
        top = to.get(place)

        def product(i: str, values: list[str]) -> list[str]:
            return [
                fma(work.get(work.place(i, j)), to.get(to.place(i, c)), to.total(values[0])).text
            ]

        (text,) = f.loop(below, work.rows, 1, product, [(top.type, top.text)])
        along = tau * to.total(text)
        to.put(place, top - along)

        def less(i: str, _: object) -> None:
            at = to.place(i, c)
            to.put(at, fma(-work.get(work.place(i, j)), along, to.get(at)))

        f.loop(below, work.rows, 1, less)

    f.loop(first, to.columns, 1, column)


def _unit(table: Table) -> None:
    """Ones on the diagonal, zeros elsewhere."""
    f = table.f

    def element(i: str, j: str) -> None:
        same = Vec(table.code, "i1", 1, f.op(f"icmp eq i64 {i}, {j}")).splat(table.width)
        table.put(table.place(i, j), same.where(table.const(1.0), table.const(0.0)))

    f.loop(
        0, table.rows, 1,
        lambda i, _: f.loop(0, table.columns, 1, lambda j, _: element(i, j)) and None,
    )  # fmt: skip


def _clear(table: Table) -> None:
    """Zeros below the diagonal."""
    f = table.f

    def row(i: str, _: object) -> None:
        stop = f.least(i, table.columns)
        f.loop(0, stop, 1, lambda j, _: table.put(table.place(i, j), table.const(0.0)))

    f.loop(0, table.rows, 1, row)
