"""Complex arrays: which elements are complex, and their lexicographic maximum and minimum.

real_if_close(x + 0j)       # x
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from fxad.api.custom import custom_jvp
from fxad.core import dtypes as dt
from fxad.ir.program import OPS
from fxad.numpy.core import known_values, promoted, spread_to, value_of
from fxad.numpy.creation import full
from fxad.numpy.elementwise import arctan2, imag, isnan, logical_not, real, where
from fxad.trace.array import Array
from fxad.trace.replay import replayed


@replayed
def angle(x: Any, /) -> Array:
    """Argument of a complex number."""
    (value,) = promoted("angle", x, inexact=True, numbers=False)
    return arctan2(imag(value), real(value))


@replayed
def iscomplex(x: Any) -> Array:
    """Elementwise: whether the imaginary part is not 0."""
    value = value_of(x, "iscomplex")
    return imag(value) != 0 if dt.is_complex(value.dtype) else full(value.shape, False)


@replayed
def isreal(x: Any) -> Array:
    """Elementwise: whether the imaginary part is 0."""
    return logical_not(iscomplex(x))


def iscomplexobj(x: Any) -> bool:
    """Whether the dtype is complex."""
    return dt.is_complex(value_of(x, "iscomplexobj").dtype)


def isrealobj(x: Any) -> bool:
    """Whether the dtype is not complex."""
    return not iscomplexobj(x)


def real_if_close(a: Any, tol: float = 100) -> Array:
    """The real part of a complex array whose imaginary parts are all below tol times eps (below
    tol itself for tol <= 1), else the array. Decides by values: not for use inside jit."""
    value = value_of(a, "real_if_close")
    if not dt.is_complex(value.dtype):
        return value
    limit = tol * float(dt.finfo(value.dtype).eps) if tol > 1 else tol
    parts = known_values(imag(value), "real_if_close", "take fxad.numpy.real where it is meant")
    return real(value) if np.all(np.abs(parts) < limit) else value


@partial(custom_jvp, nondiff_argnums=(0, 2))
def lexicographic(op: str, value: Array, axes: tuple[int, ...]) -> Array:
    """`op` ("max_reduce" or "min_reduce") of complex numbers: by real part, then by imaginary
    part. NaN wins, as in NumPy; equals share the gradient."""
    re, im = real(value), imag(value)
    nothing = -math.inf if op == "max_reduce" else math.inf
    first = OPS[op](re, axes=axes)
    second = OPS[op](where(re == _back(first, axes, value), im, nothing), axes=axes)
    broken = isnan(first) | OPS["any"](isnan(im), axes=axes)
    # complex(nan, nan) wherever either part of any element is NaN
    first, second = (where(broken, math.nan, part) for part in (first, second))
    return OPS["complex"](first, second)


def _back(reduced: Array, axes: tuple[int, ...], like: Array) -> Array:
    """A reduced array at every element that went into it."""
    kept = tuple(1 if i in axes else n for i, n in enumerate(like.shape))
    return spread_to(OPS["reshape"](reduced, shape=kept), like.shape)


@lexicographic.defjvp
def _lexicographic_jvp(op: str, axes: Any, primals: Any, tangents: Any) -> tuple[Array, Array]:
    (value,) = primals
    out = lexicographic(op, value, axes)
    chosen = value == _back(out, axes, value)
    count = OPS["sum"](where(chosen, 1.0, 0.0).astype(real(value).dtype), axes=axes)
    return out, OPS["sum"](where(chosen, tangents[0], 0), axes=axes) / count
