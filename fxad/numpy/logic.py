"""Logic: whether arrays are equal or close, and whether numbers are complex or real.

allclose(x, y, rtol=1e-3)      array_equal(x, y)      iscomplex(x)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.numpy.core import asarray, promoted, value_of
from fxad.numpy.creation import full
from fxad.numpy.elementwise import (
    abs,
    equal,
    imag,
    isfinite,
    isnan,
    logical_and,
    logical_not,
    logical_or,
    where,
)
from fxad.numpy.reductions import all
from fxad.numpy.weak import gives_strong, strong_with_axes
from fxad.trace.array import Array
from fxad.trace.replay import replayed

__all__ = [
    "allclose", "array_equal", "array_equiv", "isclose", "iscomplex", "iscomplexobj", "isreal",
    "isrealobj",
]  # fmt: skip


@replayed
@gives_strong
def isclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Array:
    """|a - b| <= atol + rtol |b|, infinities equal to themselves.

    >>> jnp.isclose(jnp.array([1.0, 1.1, jnp.nan]), jnp.array([1.000001, 1.0, jnp.nan]))
    Array([ True, False, False], dtype=bool)
    """
    if _are_keys(a) and _are_keys(b):  # close are those that are equal
        return equal(a, b)
    x, y = promoted("isclose", a, b, inexact=True, numbers=False)
    finite = isfinite(x) & isfinite(y)
    near = abs(x - y) <= atol + rtol * abs(y)
    out = where(finite, near, equal(x, y))
    return out | (isnan(x) & isnan(y)) if equal_nan else out


def _are_keys(value: Any) -> bool:
    return isinstance(value, Array) and value.dtype == dt.key


@replayed
@gives_strong
def allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Array:
    """Whether all elements are close.

    >>> jnp.allclose(jnp.array([1.0, 2.0]), jnp.array([1.000001, 2.0]))
    Array(True, dtype=bool)
    """
    return all(isclose(a, b, rtol, atol, equal_nan))


@replayed
@gives_strong
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Array:
    """Same shape and elements.

    >>> jnp.array_equal(jnp.array([1, 2]), jnp.array([1, 2]))
    Array(True, dtype=bool)
    >>> jnp.array_equal(jnp.ones(2), jnp.ones(3))
    Array(False, dtype=bool)
    """
    x, y = asarray(a1), asarray(a2)
    if x.shape != y.shape:
        return asarray(False)
    same = equal(x, y)
    if equal_nan and not _are_keys(x):
        same = logical_or(same, logical_and(isnan(x), isnan(y)))
    return all(same)


@replayed
@gives_strong
def array_equiv(a1: Any, a2: Any) -> Array:
    """Whether two arrays are equal after broadcasting.

    >>> jnp.array_equiv(jnp.array([1, 2]), jnp.array([[1, 2], [1, 2]]))
    Array(True, dtype=bool)
    """
    x, y = asarray(a1), asarray(a2)
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return asarray(False)
    return all(x == y)


@replayed
@strong_with_axes
def iscomplex(x: Any) -> Array:
    """Elementwise: whether the imaginary part is not 0.

    >>> jnp.iscomplex(jnp.array([1 + 0j, 1j]))
    Array([False,  True], dtype=bool)
    """
    value = value_of(x, "iscomplex")
    return imag(value) != 0 if dt.is_complex(value.dtype) else full(value.shape, False)


@replayed
@strong_with_axes
def isreal(x: Any) -> Array:
    """Elementwise: whether the imaginary part is 0.

    >>> jnp.isreal(jnp.array([1 + 0j, 1j]))
    Array([ True, False], dtype=bool)
    """
    return logical_not(iscomplex(x))


def iscomplexobj(x: Any) -> bool:
    """Whether the dtype of an array, of a shape struct, or the dtype itself is complex.

    >>> jnp.iscomplexobj(jnp.array([1 + 0j]))  # by its dtype
    True
    """
    dtype = x if isinstance(x, np.dtype | type) else getattr(x, "dtype", None)
    if dtype is None:
        dtype = value_of(x, "iscomplexobj").dtype
    return bool(np.issubdtype(dtype, np.complexfloating))


def isrealobj(x: Any) -> bool:
    """Whether the dtype is not complex.

    >>> jnp.isrealobj(jnp.array([1 + 0j]))  # by its dtype
    False
    """
    return not iscomplexobj(x)
