"""Convolution and correlation of vectors: few ops where each runs by NumPy, else those of `lax`.

full = convolve(a, v)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.api.compiled import interpreting
from fxad.api.jit import jit
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.ir.program import OPS
from fxad.lax.convolution import conv_general_dilated
from fxad.numpy.core import cast, full_of, promoted, value_of
from fxad.numpy.manipulation import reshape
from fxad.numpy.products import product
from fxad.numpy.weak import finish, weak_result
from fxad.trace.array import Array
from fxad.trace.replay import replayed, replaying
from fxad.trace.tracer import staging, type_of

__all__ = ["convolve", "correlate"]

_LARGE = 1 << 14  # products from which compiling pays off


def convolve(
    a: Any,
    v: Any,
    mode: str = "full",
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """Discrete convolution of two vectors, in floats as in JAX.

    >>> jnp.convolve(jnp.array([1, 2, 3]), jnp.array([1, 10]))
    Array([ 1., 12., 23., 30.], dtype=float32)
    >>> jnp.convolve(jnp.array([1, 2, 3]), jnp.array([1, 10]), mode="valid")
    Array([12., 23.], dtype=float32)
    """
    options = mode, precision, preferred_element_type
    return _by_size("convolve", a, v, mode)("convolve", a, v, *options, mirrored=False)


def _by_size(name: str, a: Any, v: Any, mode: str) -> Callable[..., Array]:
    """`_convolved` as it is, replayed where it runs by NumPy, or compiled where that takes long."""
    if mode not in ("full", "same", "valid"):
        raise BadArgument(f"{name}: mode must be full, same or valid, not {mode!r}")
    if staging() or interpreting():
        return _convolved
    products = getattr(a, "size", 0) * getattr(v, "size", 0)
    return _compiled_convolved() if products >= _LARGE else _replayed_convolved


@functools.cache
def _compiled_convolved() -> Callable[..., Array]:
    return jit(_convolved, static_argnames=("name", "mode", "precision", "wanted", "mirrored"))


def _convolved(
    name: str, a: Any, v: Any, mode: str, precision: Any, wanted: Any, mirrored: bool
) -> Array:
    """The convolution of a and v. mirrored: their correlation."""
    x, y = promoted(name, a, v, inexact=True, numbers=False, broadcast=False)
    if type_of(x).ndim != 1 or type_of(y).ndim != 1:
        raise ShapeError(f"{name}: both arguments must be vectors, not {x.type} and {y.type}")
    if not len(x) or not len(y):
        raise ShapeError(f"{name}: {x.type} and {y.type}: neither argument may be empty")
    if mirrored:
        y = OPS["reverse"](OPS["conj"](y) if dt.is_complex(y.dtype) else y, axes=(0,))
    # Where the middle of `full` begins: before half of the shorter operand. One of even length has
    # no middle; its left half is the shorter one, which is the right half where the whole
    # correlation is the mirror image of that with the operands exchanged.
    shorter = min(len(x), len(y))
    first = shorter // 2 if mirrored and len(x) < len(y) else (shorter - 1) // 2
    if len(x) < len(y):
        x, y = y, x
    n, m = len(x), len(y)
    low, length = {"full": (0, n + m - 1), "same": (first, n), "valid": (m - 1, n - m + 1)}[mode]
    wide = None if wanted is None else np.dtype(wanted)
    kept = wide if wide is not None and wide.kind == type_of(x).dtype.kind else None
    few = replaying() or not (staging() or interpreting())
    out = (_by_windows if few else _by_slices)(x, y, low, length, precision, kept)
    return finish(out, weak_result(a, v)) if wide is None else cast(out, wide)


def _by_windows(x: Array, y: Array, low: int, length: int, precision: Any, wide: Any) -> Array:
    """Elements of the whole convolution from `low` on, by few ops: they write all windows."""
    rows = np.arange(low, low + length)[:, None] - np.arange(len(y))
    inside = (rows >= 0) & (rows < len(x))
    windows = x[np.clip(rows, 0, len(x) - 1).astype(np.int32)]
    windows = OPS["select"](value_of(inside), windows, full_of(0, windows.type))
    return product(windows, y, ((1,), (0,)), precision=precision, wide=wide)


def _by_slices(x: Array, y: Array, low: int, length: int, precision: Any, wide: Any) -> Array:
    """The same by `lax`."""
    n, m = len(x), len(y)
    out = conv_general_dilated(
        reshape(x, (1, 1, n)),
        reshape(OPS["reverse"](y, axes=(0,)), (1, 1, m)),
        (1,),
        [(m - 1 - low, low + length - n)],
        precision=precision,
        preferred_element_type=wide,
    )
    return reshape(out, (length,))


_replayed_convolved = replayed(_convolved)


def correlate(
    a: Any,
    v: Any,
    mode: str = "valid",
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """Cross-correlation of two vectors, in floats as in JAX.

    >>> jnp.correlate(jnp.array([1, 2, 3]), jnp.array([1, 10]))
    Array([21., 32.], dtype=float32)
    """
    options = mode, precision, preferred_element_type
    return _by_size("correlate", a, v, mode)("correlate", a, v, *options, mirrored=True)
