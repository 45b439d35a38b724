"""Reductions and running sums that skip NaN.

nanmean([1, nan, 3])        # 2
nanmax(x, axis=0)           # NaN only where a column has nothing else

Integers and bools have no NaN: they go to the plain function and keep its dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fxad.core import dtypes as dt
from fxad.numpy.core import axes_tuple, cast, no_out, spread_to, value_of
from fxad.numpy.cumulative import cumprod, cumsum
from fxad.numpy.elementwise import isnan, logical_not
from fxad.numpy.elementwise import where as choose
from fxad.numpy.reductions import (
    all,
    argmax,
    argmin,
    flags_of,
    in_dtype,
    max,
    mean,
    min,
    prod,
    safe_sqrt,
    squared_size,
    sum,
    widened,
)
from fxad.numpy.weak import gives_strong
from fxad.trace.array import Array
from fxad.trace.replay import replayed

__all__ = [
    "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmin",
    "nanprod", "nanstd", "nansum", "nanvar",
]  # fmt: skip


def _filled(name: str, a: Any, filler: Any) -> Array:
    value = value_of(a, name)
    return choose(isnan(value), filler, value) if dt.is_inexact(value.dtype) else value


@replayed
@gives_strong
def nansum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Sum, taking NaN as 0.

    >>> jnp.nansum(jnp.array([1.0, jnp.nan, 2.0]))
    Array(3., dtype=float32)
    """
    no_out("nansum", out)
    return sum(_filled("nansum", a, 0), axis, dtype, None, keepdims, initial, where)


@replayed
@gives_strong
def nanprod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Product, taking NaN as 1.

    >>> jnp.nanprod(jnp.array([3.0, jnp.nan, 2.0]))
    Array(6., dtype=float32)
    """
    no_out("nanprod", out)
    return prod(_filled("nanprod", a, 1), axis, dtype, None, keepdims, initial, where)


@replayed
@gives_strong
def nanmax(
    a: Any,
    axis: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Largest of what is not NaN; NaN of nothing else, where no `initial` is given.

    >>> jnp.nanmax(jnp.array([1.0, jnp.nan, 2.0]))
    Array(2., dtype=float32)
    """
    no_out("nanmax", out)
    return _extreme("nanmax", max, -math.inf, a, axis, keepdims, initial, where)


@replayed
@gives_strong
def nanmin(
    a: Any,
    axis: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Smallest of what is not NaN; NaN of nothing else, where no `initial` is given.

    >>> jnp.nanmin(jnp.array([1.0, jnp.nan, 2.0]))
    Array(1., dtype=float32)
    """
    no_out("nanmin", out)
    return _extreme("nanmin", min, math.inf, a, axis, keepdims, initial, where)


def _extreme(
    name: str,
    extreme: Callable[..., Array],
    worst: float,
    a: Any,
    axis: Any,
    keepdims: bool,
    initial: Any,
    where: Any,
) -> Array:
    value = value_of(a, name)
    out = extreme(_filled(name, value, worst), axis, None, keepdims, initial, where)
    if initial is not None or not dt.is_inexact(value.dtype):
        return out
    return choose(all(isnan(value), axis, keepdims=keepdims), math.nan, out)


def _kept(value: Array, where: Any) -> Array:
    """Which elements count."""
    kept = logical_not(isnan(value))
    if where is None:
        return kept
    return spread_to(kept & flags_of(where), value.shape)


@replayed
@gives_strong
def nanmean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    where: Any = None,
) -> Array:
    """Mean of what is not NaN.

    >>> jnp.nanmean(jnp.array([1.0, jnp.nan, 2.0]))
    Array(1.5, dtype=float32)
    """
    no_out("nanmean", out)
    value = value_of(a, "nanmean")
    if not dt.is_inexact(value.dtype):
        return mean(value, axis, dtype, keepdims=keepdims, where=where)
    return mean(
        _filled("nanmean", value, 0), axis, dtype, keepdims=keepdims, where=_kept(value, where)
    )


@replayed
def nanvar(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = None,
    mean: Any = None,
) -> Array:
    """Variance of the elements that are not NaN; NaN where ddof leaves none of them free.

    mean: the means, with the axes kept, where they are known already.

    >>> jnp.nanvar(jnp.array([1.0, jnp.nan, 3.0]))
    Array(1., dtype=float32)
    """
    no_out("nanvar", out)
    value = in_dtype("nanvar", a, dtype)
    own = value.dtype
    wide = widened(value)
    axes = axes_tuple(axis, value.ndim, "nanvar")
    kept = _kept(value, where)
    centre = nanmean(wide, axes, keepdims=True, where=where) if mean is None else value_of(mean)
    gap = choose(kept, wide - centre, 0)
    squared = squared_size(gap)
    free = sum(cast(kept, squared.dtype), axes, keepdims=keepdims) - ddof
    total = sum(squared, axes, keepdims=keepdims)
    out = choose(free > 0, total / choose(free > 0, free, 1), math.nan)
    return cast(out, dt.real_of(own) if dt.is_complex(own) else own)


@replayed
def nanstd(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = None,
    mean: Any = None,
) -> Array:
    """Standard deviation of the elements that are not NaN.

    >>> jnp.nanstd(jnp.array([1.0, jnp.nan, 3.0]))
    Array(1., dtype=float32)
    """
    no_out("nanstd", out)
    return safe_sqrt(nanvar(a, axis, dtype, None, ddof, keepdims, where, mean))


@replayed
@gives_strong
def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """Running sum; NaN counts as 0.

    >>> jnp.nancumsum(jnp.array([1.0, jnp.nan, 3.0]))
    Array([1., 1., 4.], dtype=float32)
    """
    no_out("nancumsum", out)
    return cumsum(_filled("nancumsum", a, 0), axis, dtype)


@replayed
@gives_strong
def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """Running product; NaN counts as 1.

    >>> jnp.nancumprod(jnp.array([2.0, jnp.nan, 3.0]))
    Array([2., 2., 6.], dtype=float32)
    """
    no_out("nancumprod", out)
    return cumprod(_filled("nancumprod", a, 1), axis, dtype)


@replayed
@gives_strong
def nanargmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """Position of the largest element that is not NaN; -1 if all are.

    >>> jnp.nanargmax(jnp.array([1.0, jnp.nan, 3.0]))
    Array(2, dtype=int32)
    """
    no_out("nanargmax", out)
    return _position(argmax, -math.inf, a, axis, keepdims)


@replayed
@gives_strong
def nanargmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """Position of the smallest element that is not NaN; -1 if all are.

    >>> jnp.nanargmin(jnp.array([jnp.nan, 1.0, 3.0]))
    Array(1, dtype=int32)
    """
    no_out("nanargmin", out)
    return _position(argmin, math.inf, a, axis, keepdims)


def _position(
    find: Callable[..., Array], worst: float, a: Any, axis: int | None, keepdims: bool
) -> Array:
    value = value_of(a, f"nan{find.__name__}")
    out = find(_filled(find.__name__, value, worst), axis, keepdims=keepdims)
    if not dt.is_inexact(value.dtype):
        return out
    return choose(all(isnan(value), axis, keepdims=keepdims), -1, out)
