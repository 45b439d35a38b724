"""Householder reflections as LAPACK keeps them: `qr(a, mode="raw")`, and their products.

    packed, taus = packed_qr(a)             # R in the upper triangle, reflections below it
    q = product(packed, taus)               # the first columns of H_0 H_1 ... H_{k-1}
    applied(packed, taus, c, left=True, adjoint=True)      # Q^H c

H_i is I - tau_i v_i v_i^H, where v_i is 0 above i, 1 at i, and column i of `packed` below it (Golub
and Van Loan, Matrix Computations, 5.1 and 5.2; LAPACK's geqrf, orgqr and ormqr). One matrix each;
batches go through `vmap`.
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
    count = min(rows, columns)
    at_row, at_column = arange(rows), arange(columns)

    def step(i: Array, a: Array, taus: Array) -> list[Array]:
        column = _column(a, i)
        below = e.where(at_row > i, column, 0)
        alpha = reductions.sum(e.where(at_row == i, column, 0))
        norm = e.sqrt(_square_sum(column, at_row >= i))
        beta = -e.copysign(norm, e.real(alpha)).astype(a.dtype)
        # Nothing to reflect: LAPACK takes H_i = I.
        done = (_square_sum(below, at_row > i) == 0) & (e.imag(alpha) == 0)
        tau = e.where(done, 0, (beta - alpha) / e.where(done, 1, beta))
        v = e.where(at_row == i, 1, below / e.where(done, 1, alpha - beta))
        reflected = a - e.conj(tau) * products.outer(v, products.matmul(e.conj(v), a))
        own = e.where(at_row == i, e.where(done, alpha, beta), e.where(at_row > i, v, column))
        a = e.where(at_column > i, reflected, e.where(at_column == i, own[:, None], a))
        return [a, e.where(arange(count) == i, tau, taus)]

    packed, taus = _each(count, step, [a, zeros(count, a.dtype)])
    return packed, taus


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
