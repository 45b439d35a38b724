"""Norms of vectors and matrices. The gradient of the 2-norm and the Frobenius norm at 0 is 0.

vector_norm(x, axis=-1)      norm(m, "nuc")      matrix_norm(stack, ord=2)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError
from fxad.ir.program import OPS
from fxad.numpy import elementwise as e
from fxad.numpy import reductions
from fxad.numpy.core import axes_tuple, promoted
from fxad.numpy.shaping import moveaxis, reshape
from fxad.trace.array import Array
from fxad.trace.replay import replayed


def squares(x: Array) -> Array:
    """|x|^2, real."""
    if dt.is_complex(x.dtype):
        return e.square(e.real(x)) + e.square(e.imag(x))
    return e.square(x)


@replayed
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Array:
    """Norm of order `ord` over axes. The gradient of the 2-norm at 0 is 0."""
    (value,) = promoted("norm", x, inexact=True, numbers=False)
    if ord == 2:
        return reductions.safe_sqrt(reductions.sum(squares(value), axis, keepdims=keepdims))
    size = e.abs(value)
    if ord == math.inf:
        return _largest(size, axis, keepdims)
    if ord == -math.inf:
        return reductions.min(size, axis, keepdims)
    if ord == 0:
        return reductions.sum(size != 0, axis, keepdims=keepdims).astype(size.dtype)
    if ord == 1:
        return reductions.sum(size, axis, keepdims=keepdims)
    return reductions.sum(size**ord, axis, keepdims=keepdims) ** (1.0 / ord)


def _largest(size: Array, axis: Any, keepdims: bool = False) -> Array:
    """The largest of non-negative numbers; 0 if there are none."""
    return reductions.max(size, axis, keepdims, initial=None if size.size else 0)


@replayed
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """Vector norm, or a matrix norm ("fro", "nuc", 1, 2, inf or negated) over two axes."""
    (value,) = promoted("norm", x, inexact=True, numbers=False)
    if axis is None and ord is None:
        out = reductions.safe_sqrt(reductions.sum(squares(value)))
        return reshape(out, (1,) * value.ndim) if keepdims else out
    axes = axes_tuple(axis, value.ndim, "norm")
    if ord == "fro" or (ord is None and len(axes) == 2):
        return reductions.safe_sqrt(reductions.sum(squares(value), axes, keepdims=keepdims))
    if len(axes) == 1:
        return vector_norm(value, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) == 2 and ord in (2, -2, "nuc"):
        return _spectral_norm(value, ord, axes if axis is None else tuple(axis), keepdims)
    if len(axes) != 2 or ord not in (1, -1, math.inf, -math.inf):
        raise ShapeError(f"norm: ord={ord!r} over {len(axes)} axes is not supported")
    rows, columns = axes if axis is None else tuple(a % value.ndim for a in axis)
    inner, outer_axis = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = reductions.sum(e.abs(value), inner, keepdims=True)
    pick = _largest if ord > 0 else reductions.min
    out = pick(sums, outer_axis, keepdims=True)
    if keepdims:
        return out
    return reshape(out, tuple(s for i, s in enumerate(value.shape) if i not in axes))


@replayed
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """Norm of the matrices in the last two axes."""
    return norm(x, ord, (-2, -1), keepdims)


def _spectral_norm(value: Array, ord: Any, axes: Sequence[int], keepdims: bool) -> Array:
    values = OPS["svd"](moveaxis(value, tuple(axes), (-2, -1)), full=False)[1]
    combine: Any = {2: _largest, -2: reductions.min, "nuc": reductions.sum}[ord]
    out = combine(values, -1)
    if not keepdims:
        return out
    kept = {a % value.ndim for a in axes}
    return reshape(out, tuple(1 if i in kept else n for i, n in enumerate(value.shape)))
