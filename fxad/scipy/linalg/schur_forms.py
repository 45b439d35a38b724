"""Forms to which unitary matrices turn a square one: Hessenberg's and Schur's.

t, q = schur(a)      # a = q t q^H
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import fxad.numpy as jnp
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.lax import linalg as _lax_linalg
from fxad.lax.loops import fori_loop
from fxad.lax.schur import hessenberg_form
from fxad.lax.shapes import dynamic_slice, dynamic_update_slice
from fxad.numpy.core import promoted
from fxad.scipy.linalg.checks import matrix
from fxad.trace.array import Array


def hessenberg(
    a: Any, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Any:
    """h, zero below its first subdiagonal, or (h, q) with a = q h q^H.

    >>> h = hessenberg(jnp.array([[1.0, 0.0, 0.0], [3.0, 1.0, 0.0], [4.0, 0.0, 1.0]]))
    >>> h[:, 0]
    Array([ 1., -5.,  0.], dtype=float32)
    """
    value = matrix("hessenberg", a)
    h, q = jnp.vectorize(hessenberg_form, signature="(n,n)->(n,n),(n,n)")(value)
    return (h, q) if calc_q else h


def schur(a: Any, output: str = "real") -> tuple[Array, Array]:
    """(t, q) with a = q t q^H and a unitary q. t is a triangle; of a real matrix with output="real"
    it has a 2 by 2 block on the diagonal for each pair of complex eigenvalues. Neither is
    determined by a alone: eigenvalues have no order. No derivative (as in JAX).

    >>> t, q = schur(jnp.array([[0.0, 2.0], [2.0, 3.0]]))
    >>> sorted(jnp.diagonal(t).tolist())
    [-1.0, 4.0]
    """
    if output not in ("real", "complex"):
        raise BadArgument(f"schur: output must be real or complex, got {output!r}")
    value = matrix("schur", a)
    if output == "complex" and not dt.is_complex(value.dtype):
        value = value.astype(dt.complex_of(value.dtype))
    t, q = _lax_linalg.schur(value)
    return t, q


def rsf2csf(T: Any, Z: Any, check_finite: bool = True) -> tuple[Array, Array]:
    """The complex Schur form of one matrix from its real one: (t, z) with z t z^H = Z T Z^T and t a
    triangle (Golub and Van Loan, 7.4.1: each block is rotated away, from the last one on)."""
    t, z = promoted("rsf2csf", T, Z, inexact=True, numbers=False, broadcast=False)
    if t.ndim != 2 or t.shape != z.shape or t.shape[0] != t.shape[1]:
        raise ShapeError(f"rsf2csf: {t.type} and {z.type} are not two square matrices of one size")
    if not dt.is_complex(t.dtype):
        t, z = (v.astype(dt.complex_of(v.dtype)) for v in (t, z))
    size = t.shape[0]
    if size < 2:
        return t, z

    def rotate(done: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        t, z = carry
        first = size - 2 - done  # of the two rows
        corner = dynamic_slice(t, (first, first), (2, 2))
        largest = jnp.max(jnp.abs(corner))  # squares of what is divided by it do not overflow
        (a, b), (c, d) = corner / jnp.where(largest == 0, 1, largest)
        half = (a - d) / 2
        root = jnp.sqrt(half * half + b * c)
        same = jnp.real(jnp.conj(half) * root) >= 0
        x = half + jnp.where(same, root, -root)  # (x, c) is an eigenvector
        length = jnp.hypot(jnp.abs(x), jnp.abs(c))
        block = c != 0
        x, y = (jnp.where(block, v / jnp.where(block, length, 1), n) for v, n in ((x, 1), (c, 0)))
        turn = jnp.stack([jnp.stack([x, -jnp.conj(y)]), jnp.stack([y, jnp.conj(x)])])
        zero = first * 0
        rows = dynamic_slice(t, (first, zero), (2, size))
        t = dynamic_update_slice(t, jnp.matmul(jnp.conj(turn.T), rows), (first, zero))
        on_columns = partial(_turned, turn=turn, first=first)
        return on_columns(t), on_columns(z)

    t, z = fori_loop(0, size - 1, rotate, (t, z))
    return jnp.triu(t), z


def _turned(a: Array, turn: Array, first: Array) -> Array:
    """Two columns of a @ turn in their place."""
    zero = np.int32(0)
    start = (zero, first.astype(np.int32))
    columns = dynamic_slice(a, start, (a.shape[0], 2))
    return dynamic_update_slice(a, jnp.matmul(columns, turn), start)
