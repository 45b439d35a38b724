"""Schur forms a = Q T Q^H: reduction to Hessenberg form, then Francis' implicit double shifts.

    t, q = schur_form(a)        # one matrix [n, n], real or complex

T is upper triangular, for real matrices up to 2 by 2 blocks of complex pairs, each with equal
diagonal entries and off-diagonal ones of opposite signs (LAPACK's standard form). Golub and Van
Loan, Matrix Computations, 7.4 and 7.5; shifts and deflation as in LAPACK's lahqr.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import fxad.numpy as jnp
from fxad.core import dtypes as dt
from fxad.lax.branches import switch
from fxad.lax.loops import fori_loop, while_loop
from fxad.lax.shapes import dynamic_slice, dynamic_update_slice
from fxad.numpy.householder import packed_hessenberg, product
from fxad.trace.array import Array

SWEEPS = 30  # for each row, on average: LAPACK's limit
WIDTH = 3  # rows that a reflection of a double shift mixes


class _State(NamedTuple):
    """t: padded by a row and column of zeros, so that every reflection has WIDTH rows; q: by a
    column. last: the last row that is not in its final place; since: sweeps since it is that."""

    t: Array
    q: Array
    last: Array
    since: Array
    sweeps: Array


def hessenberg_form(a: Array) -> tuple[Array, Array]:
    """(h, q) of one matrix: a = q h q^H, h zero below its first subdiagonal."""
    size = a.shape[0]
    packed, taus = packed_hessenberg(a)
    q = jnp.eye(size, dtype=a.dtype)
    if size > 1:
        # The reflections leave the first row alone.
        q = jnp.pad(product(packed[1:, :-1], taus), ((1, 0), (1, 0))) + q * (jnp.arange(size) == 0)
    return jnp.triu(packed, -1), q


def schur_form(a: Array) -> tuple[Array, Array]:
    """(t, q) of one matrix; NaN where the iteration does not come to an end."""
    size = a.shape[0]
    if size < 2:
        return a, jnp.eye(size, dtype=a.dtype)
    largest = jnp.max(jnp.abs(a))
    usable = (largest > 0) & jnp.isfinite(largest)
    # By a power of two, so that products of entries neither overflow nor vanish.
    scale = jnp.exp2(jnp.floor(jnp.log2(jnp.where(usable, largest, 1)))).astype(a.dtype)
    h, q = hessenberg_form(a / scale)
    zero = jnp.zeros((), np.int32)
    start = _State(jnp.pad(h, (0, 1)), jnp.pad(q, ((0, 0), (0, 1))), zero + (size - 1), zero, zero)

    def goes_on(state: _State) -> Array:
        return (state.last > 0) & (state.sweeps < SWEEPS * max(size, 10))

    end = while_loop(goes_on, _step, start)
    found = (end.last <= 0) & jnp.isfinite(largest)
    t, q = end.t[:size, :size] * scale, end.q[:, :size]
    return jnp.where(found, t, np.nan), jnp.where(found, q, np.nan)


def _step(state: _State) -> _State:
    """Put entries that are negligible to zero, and go on with the last block that is not done."""
    size = state.q.shape[0]
    t = state.t
    below, places = jnp.diagonal(t[:size, :size], -1), jnp.arange(size - 1, dtype=np.int32)
    main = jnp.abs(jnp.diagonal(t[:size, :size]))
    around = main[:-1] + main[1:]
    around = jnp.where(around == 0, 1, around)  # the largest entry is between 1 and 2
    small = jnp.abs(below) <= dt.finfo(t.dtype).eps * around
    cut = jnp.pad(jnp.where(small, below, 0), ((1, 1)))  # at its column + 1
    at = jnp.arange(size + 1)
    t = t - jnp.where(at[:, None] == at + 1, cut[:, None], 0)
    first = jnp.max(jnp.where(small & (places < state.last), places + 1, 0))
    state = state._replace(t=t)
    width = jnp.minimum(state.last - first, 2)
    return switch(width, [_one, _two, _sweep], state, first)


def _one(state: _State, first: Array) -> _State:
    """The last row is a block of its own."""
    return state._replace(last=first - 1, since=state.since * 0)


def _entry(t: Array, row: Array, column: Array) -> Array:
    return dynamic_slice(t, (row, column), (1, 1))[0, 0]


def _two(state: _State, first: Array) -> _State:
    """The last two rows are a block: rotated to a triangle, or to LAPACK's form of a pair."""
    t, q = state.t, state.q
    (a, b), (c, d) = dynamic_slice(t, (first, first), (2, 2))
    half = (a - d) / 2
    square = half * half + b * c
    is_complex = dt.is_complex(t.dtype)
    root = jnp.sqrt(square if is_complex else jnp.maximum(square, 0))
    same = jnp.real(jnp.conj(half) * root) >= 0
    # (z, c) is the eigenvector of d + z, of the larger z.
    x, y = half + jnp.where(same, root, -root), c
    if not is_complex:
        # Equal diagonal entries: tan of twice the angle is (d - a) / (b + c).
        total = b + c
        length = jnp.hypot(total, a - d)
        length = jnp.where(length == 0, 1, length)  # any rotation keeps the form
        cosine = jnp.sqrt((1 + jnp.abs(total) / length) / 2)
        sine = -half / (length * cosine) * jnp.copysign(1, total)
        x, y = jnp.where(square < 0, cosine, x), jnp.where(square < 0, sine, y)
    length = jnp.sqrt(jnp.real(x * jnp.conj(x)) + jnp.real(y * jnp.conj(y)))
    x, y = x / length, y / length
    turn = jnp.stack([jnp.stack([x, -jnp.conj(y)]), jnp.stack([y, jnp.conj(x)])])
    t = _on_rows(t, first, jnp.conj(turn.T))
    t = _on_columns(t, first, turn)
    block = dynamic_slice(t, (first, first), (2, 2))
    corner = jnp.arange(2)
    lower = corner[:, None] > corner
    fixed = jnp.where(lower, 0, block)
    if not is_complex:
        middle = (block[0, 0] + block[1, 1]) / 2
        pair = jnp.where(corner[:, None] == corner, middle, block)
        fixed = jnp.where(square < 0, pair, fixed)
    t = dynamic_update_slice(t, fixed, (first, first))
    q = _on_columns(q, first, turn)
    return state._replace(t=t, q=q, last=first - 1, since=state.since * 0)


def _on_rows(t: Array, first: Array, matrix: Array) -> Array:
    """matrix @ the rows from `first` on."""
    rows = dynamic_slice(t, (first, first * 0), (matrix.shape[0], t.shape[1]))
    return dynamic_update_slice(t, jnp.matmul(matrix, rows), (first, first * 0))


def _on_columns(t: Array, first: Array, matrix: Array) -> Array:
    """The columns from `first` on @ matrix."""
    columns = dynamic_slice(t, (first * 0, first), (t.shape[0], matrix.shape[0]))
    return dynamic_update_slice(t, jnp.matmul(columns, matrix), (first * 0, first))


def _shifts(state: _State) -> tuple[Array, Array]:
    """Sum and product of two shifts: eigenvalues of the last 2 by 2 block, two real ones being
    replaced by the one that is nearer to the last entry; every tenth time some others."""
    t, last = state.t, state.last
    (a, b), (c, d) = dynamic_slice(t, (last - 1, last - 1), (2, 2))
    total, product = a + d, a * d - b * c
    if not dt.is_complex(t.dtype):
        half = (a - d) / 2
        square = half * half + b * c
        root = jnp.sqrt(jnp.maximum(square, 0))
        near = d + half - jnp.copysign(root, half)
        real = square >= 0
        total, product = jnp.where(real, 2 * near, total), jnp.where(real, near * near, product)
    stuck = (state.since % 10) == 9
    off = jnp.abs(c) + jnp.abs(_entry(t, last - 1, last - 2))
    other = d + 0.75 * off
    total = jnp.where(stuck, 2 * other, total)
    return total, jnp.where(stuck, other * other + 0.4375 * off * off, product)


def _sweep(state: _State, first: Array) -> _State:
    """One double step on rows `first` to `last`: three rows at least."""
    total, product = _shifts(state)
    size = state.q.shape[0]
    (a, b, _), (c, d, _), (_, g, _) = dynamic_slice(state.t, (first, first), (3, 3))
    # The first column of (T - s1)(T - s2), over the entry below the corner.
    column = jnp.stack([(a * (a - total) + product) / c + b, a + d - total, g])

    def reflect(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        t, q = carry
        bulge = dynamic_slice(t, (k, jnp.maximum(k - 1, 0)), (WIDTH, 1))[:, 0]
        x = jnp.where(k == first, column, bulge)
        x = jnp.where((jnp.arange(WIDTH) == 2) & (k == state.last - 1), 0, x)
        matrix = _reflection(x)
        t = _on_columns(_on_rows(t, k, jnp.conj(matrix.T)), k, matrix)
        return t, _on_columns(q, k, matrix)

    t, q = fori_loop(first, state.last, reflect, (state.t, state.q))
    at = jnp.arange(size + 1)
    t = jnp.where(at[:, None] > at + 1, 0, t)  # what reflections should have left there
    return _State(t, q, state.last, state.since + 1, state.sweeps + 1)


def _reflection(x: Array) -> Array:
    """The unitary matrix whose adjoint turns x to a multiple of the first unit vector."""
    alpha, rest = x[0], x[1:]
    below = jnp.sum(jnp.real(rest * jnp.conj(rest)))
    norm = jnp.sqrt(jnp.real(alpha * jnp.conj(alpha)) + below)
    beta = -jnp.copysign(norm, jnp.real(alpha)).astype(x.dtype)
    done = (below == 0) & (jnp.imag(alpha) == 0)
    tau = jnp.where(done, 0, (beta - alpha) / jnp.where(done, 1, beta))
    v = jnp.where(jnp.arange(x.shape[0]) == 0, 1, x / jnp.where(done, 1, alpha - beta))
    return jnp.eye(x.shape[0], dtype=x.dtype) - tau * jnp.outer(v, jnp.conj(v))
