"""Orthogonal factors of small matrices, one in each lane.

    a = q r    # rows x columns; q of `basis` columns, r upper triangular

Householder's reflections (Golub and Van Loan, 5.2.1), with LAPACK's signs: column j of what is left
becomes beta e_1 with beta = -sign(alpha) |column| of its first number alpha, by
H = 1 - tau v v^T with v = (1, rest / (alpha - beta)) and tau = (beta - alpha) / beta; nothing where
the rest is zeros already. The v lie below r until q = H_1 H_2 ... is made, from the last on.
"""

from __future__ import annotations

from fxad.backend.llvm.base.vector import fma
from fxad.backend.llvm.factors.code import Library
from fxad.backend.llvm.factors.tables import Table, lot_of, table


def write_qr(library: Library) -> None:
    """`qr` of operands a, q, r; numbers rows, columns, columns of q, matrices. Units: groups of
    matrices."""
    code, (a, q, r), (m, n, basis, count) = library.kernel("qr", 3, 4)
    f, step = code.f, code.step
    least = f.least(m, n)

    def group(number: str, _: object) -> None:
        lot = lot_of(code, number, count)
        work = table(lot, "%scratch", m, n)
        made = table(lot, f.offset("%scratch", f.mul(f.mul(m, n), step)), m, basis)
        scales = table(lot, made.place(m, "0"), "1", least)
        work.read(a, n)
        f.loop(0, least, 1, lambda j, _: _reflect(work, scales, j))
        _identity(made)

        def apply(number: str, _: object) -> None:
            j = f.op(f"sub i64 {f.add(least, -1)}, {number}")
            _apply(work, scales, j, made, j)

        f.loop(0, least, 1, apply)
        _clear(work)
        made.write(q, m, basis)
        work.write(r, basis, n)

    f.loop("%begin", "%end", 1, group)
    f.ret()


def _reflect(work: Table, scales: Table, j: str) -> None:
    """Reflect column j, and those after it: zeros below the diagonal, where v comes to lie."""
    f = work.f
    below, place = f.add(j, 1), work.place(j, j)
    alpha = work.get(place)

    def largest(i: str, values: list[str]) -> list[str]:
        size, most = work.get(work.place(i, j)).abs(), work.code.vector(values[0])
        return [(size > most).where(size, most).text]

    start = alpha.abs()
    most = work.code.vector(f.loop(below, work.rows, 1, largest, [(start.type, start.text)])[0])
    unit = (most > 0.0).where(most, 1.0)  # so that no square is too large or too small
    zero = work.code.splat(0.0)

    def square(i: str, values: list[str]) -> list[str]:
        number = work.get(work.place(i, j)) / unit
        return [fma(number, number, work.code.vector(values[0])).text]

    rest = work.code.vector(f.loop(below, work.rows, 1, square, [(zero.type, zero.text)])[0])
    first = alpha / unit
    beta = -(fma(first, first, rest).sqrt() * unit).copysign(alpha)
    done = rest.equals(0.0)
    work.put(place, done.where(alpha, beta))
    work.put(scales.place("0", j), done.where(zero, (beta - alpha) / beta))
    divisor = done.where(work.code.splat(1.0), alpha - beta)

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
            total = to.code.vector(values[0])
            return [fma(work.get(work.place(i, j)), to.get(to.place(i, c)), total).text]

        (text,) = f.loop(below, work.rows, 1, product, [(top.type, top.text)])
        along = tau * to.code.vector(text)
        to.put(place, top - along)

        def subtract(i: str, _: object) -> None:
            at = to.place(i, c)
            to.put(at, fma(-work.get(work.place(i, j)), along, to.get(at)))

        f.loop(below, work.rows, 1, subtract)

    f.loop(first, to.columns, 1, column)


def _identity(work: Table) -> None:
    """Ones on the diagonal, zeros elsewhere."""
    f = work.f

    def element(i: str, j: str) -> None:
        same = work.code.flag(f.op(f"icmp eq i64 {i}, {j}")).splat(work.code.width)
        work.put(work.place(i, j), same.where(work.code.splat(1.0), work.code.splat(0.0)))

    f.loop(
        0, work.rows, 1,
        lambda i, _: f.loop(0, work.columns, 1, lambda j, _: element(i, j)) and None,
    )  # fmt: skip


def _clear(work: Table) -> None:
    """Zeros below the diagonal."""
    f = work.f

    def row(i: str, _: object) -> None:
        stop = f.least(i, work.columns)
        f.loop(0, stop, 1, lambda j, _: work.put(work.place(i, j), work.code.splat(0.0)))

    f.loop(0, work.rows, 1, row)
