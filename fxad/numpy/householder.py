"""Householder reflections as LAPACK keeps them: `qr(a, mode="raw")`, and their products.

    packed, taus = packed_qr(a)             # R in the upper triangle, reflections below it
    packed, taus, order = pivoted_qr(a)     # of a[:, order]
    packed, taus = packed_hessenberg(a)     # H down to the first subdiagonal, reflections below
    q = product(packed, taus)               # the first columns of H_0 H_1 ... H_{k-1}
    applied(packed, taus, c, left=True, adjoint=True)      # Q^H c

H_i is I - tau_i v_i v_i^H, where v_i is 0 above i, 1 at i, and column i of `packed` below it (Golub
and Van Loan, Matrix Computations, 5.1 and 5.2; LAPACK's geqrf, orgqr and ormqr). Those of a
Hessenberg form begin a row further down (7.4.3; LAPACK's gehrd). One matrix each; batches go
through `vmap`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.numpy import elementwise as e
from fxad.numpy import products, reductions
from fxad.numpy.creation import arange, eye, zeros
from fxad.numpy.manipulation import matrix_transpose
from fxad.trace.array import Array
from fxad.trace.tracer import stage, type_of

INDEX = np.dtype(np.int32)


def packed_qr(a: Array) -> tuple[Array, Array]:
    """(packed, taus) of a [m, n]: packed [m, n], taus [min(m, n)]."""
    rows, columns = a.shape
    return _packed(a, min(rows, columns), 0)


def pivoted_qr(a: Array) -> tuple[Array, Array, Array]:
    """(packed, taus, order): the factors of a[:, order], where at each step the column is taken
    whose norm below the rows that are done is largest (Golub and Van Loan, 5.4.2)."""
    rows, columns = a.shape
    count = min(rows, columns)
    at_row, at_column = arange(rows), arange(columns, dtype=INDEX)

    def step(i: Array, a: Array, taus: Array, order: Array) -> list[Array]:
        left = reductions.sum(e.where(at_row[:, None] >= i, e.real(a) ** 2 + e.imag(a) ** 2, 0), 0)
        largest = reductions.argmax(e.where(at_column >= i, left, -1)).astype(INDEX)
        swapped = e.where(at_column == i, largest, e.where(at_column == largest, i, at_column))
        a, taus = _reflected(i, i, a[:, swapped], taus)
        return [a, taus, order[swapped]]

    packed, taus, order = _each(count, step, [a, zeros(count, a.dtype), at_column])
    return packed, taus, order


def packed_hessenberg(a: Array) -> tuple[Array, Array]:
    """(packed, taus) of a [n, n]: packed [n, n], taus [n - 1]; a = Q H Q^H."""
    return _packed(a, max(a.shape[0] - 1, 0), 1)


def _packed(a: Array, count: int, down: int) -> tuple[Array, Array]:
    """Reflections of rows from i + down on that leave zeros in column i below them; with `down`
    columns are reflected too."""

    def step(i: Array, a: Array, taus: Array) -> list[Array]:
        return [*_reflected(i, i + down, a, taus, both=down > 0)]

    packed, taus = _each(count, step, [a, zeros(count, a.dtype)])
    return packed, taus


def _reflected(
    i: Array, head: Array, a: Array, taus: Array, both: bool = False
) -> tuple[Array, Array]:
    """The step of column i, whose reflection begins in row `head`; `both`: a H too."""
    at_row, at_column = arange(a.shape[0]), arange(a.shape[1])
    column = _column(a, i)
    below = e.where(at_row > head, column, 0)
    alpha = reductions.sum(e.where(at_row == head, column, 0))
    norm = e.sqrt(_square_sum(column, at_row >= head))
    beta = -e.copysign(norm, e.real(alpha)).astype(a.dtype)
    # Nothing to reflect: LAPACK takes H_i = I.
    done = (_square_sum(below, at_row > head) == 0) & (e.imag(alpha) == 0)
    tau = e.where(done, 0, (beta - alpha) / e.where(done, 1, beta))
    v = e.where(at_row == head, 1, below / e.where(done, 1, alpha - beta))
    own = e.where(at_row == head, e.where(done, alpha, beta), e.where(at_row > head, v, column))
    reflected = a - e.conj(tau) * products.outer(v, products.matmul(e.conj(v), a))
    if both:
        reflected -= tau * products.outer(products.matmul(reflected, v), e.conj(v))
    a = e.where(at_column > i, reflected, e.where(at_column == i, own[:, None], a))
    return a, e.where(arange(len(taus)) == i, tau, taus)


def product(packed: Array, taus: Array) -> Array:
    """Q's first n columns of packed [m, n], m >= n."""
    rows, columns = packed.shape
    return applied(packed, taus, eye(rows, columns, dtype=packed.dtype), True, False)


def applied(packed: Array, taus: Array, c: Array, left: bool, adjoint: bool) -> Array:
    """Q c, or c Q where not `left`; Q^H in place of Q where `adjoint`."""
    if not left:
        # c Q is (Q^H c^H)^H.
        turned = applied(packed, taus, e.conj(matrix_transpose(c)), True, not adjoint)
        return e.conj(matrix_transpose(turned))
    at_row, count = arange(packed.shape[0]), taus.shape[0]

    def step(i: Array, c: Array) -> list[Array]:
        # Q c is H_0 (H_1 (... c)), so the last one is first; of Q^H the first one is.
        i = i if adjoint else count - 1 - i
        column = _column(packed, i)
        v = e.where(at_row > i, column, e.where(at_row == i, 1, 0).astype(c.dtype))
        tau = reductions.sum(e.where(arange(count) == i, taus, 0))
        tau = e.conj(tau) if adjoint else tau
        return [c - tau * products.outer(v, products.matmul(e.conj(v), c))]

    return _each(count, step, [c])[0]


def _column(a: Array, i: Array) -> Array:
    return reductions.sum(e.where(arange(a.shape[1]) == i, a, 0), axis=1)


def _square_sum(x: Array, where: Array) -> Array:
    return reductions.sum(e.where(where, e.real(x) ** 2 + e.imag(x) ** 2, 0))


def _each(
    count: int, step: Callable[..., Sequence[Array]], state: Sequence[Array]
) -> tuple[Array, ...]:
    """state = step(i, *state) for i in range(count), as one loop."""

    def body(i: Array, *state: Array) -> list[Array]:
        return [OPS["add"](i, 1), *step(i, *state)]

    types = [ArrayType(INDEX, ()), *map(type_of, state)]
    program, captured = stage(body, types, "householder")
    first = OPS["convert"](0, dtype=INDEX)
    outs = OPS["scan"](
        *captured,
        first,
        *state,
        body=program.closed(),
        consts=len(captured),
        carry=len(types),
        length=count,
        reverse=False,
    )
    return tuple(outs[1:])
