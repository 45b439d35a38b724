"""Quantiles by interpolation between sorted elements.

quantile(x, [0.25, 0.75], axis=0)      median(x)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, TypeMismatch
from fxad.ir.program import OPS
from fxad.numpy.core import asarray, axes_tuple, cast, promoted, spread_to
from fxad.numpy.elementwise import isnan, maximum, where
from fxad.numpy.picking import take_along_axis
from fxad.numpy.reductions import sum
from fxad.numpy.shaping import moveaxis, reshape
from fxad.trace.array import Array
from fxad.trace.replay import replayed
from fxad.trace.tracer import type_of


@replayed
def median(a: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """Middle of the sorted elements."""
    return quantile(a, 0.5, axis, keepdims=keepdims)


def quantile(
    a: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Array:
    """Quantile by linear interpolation; q is a number or a vector in [0, 1].

    Arrays q are not replayed: beyond 1 they are an IndexOutOfRange, which a trace would not see.
    """
    known = type(q) in (int, float) and 0 <= q <= 1
    return (_replayed_quantile if known else _quantile)(a, q, axis, method, keepdims)


def _quantile(a: Any, q: Any, axis: Any, method: str, keepdims: bool) -> Array:
    (value,) = promoted("quantile", a, inexact=True, numbers=False)
    axes = axes_tuple(axis, value.ndim, "quantile")
    ordered = _ordered(value, axes)
    position = _fractions("quantile", q, value.dtype) * (ordered.shape[-1] - 1)
    out = _between("quantile", position, method, lambda place: ordered[..., place])
    out = where(
        spread_to(
            isnan(ordered[..., -1:]) if out.ndim == ordered.ndim else isnan(ordered[..., -1]),
            out.shape,
        ),
        math.nan,
        out,
    )
    if type_of(position).ndim:
        out = moveaxis(out, -1, 0)
    if keepdims:
        kept = tuple(1 if i in axes else s for i, s in enumerate(value.shape))
        out = reshape(out, (*type_of(position).shape, *kept))
    return out


_replayed_quantile = replayed(_quantile)


def _ordered(value: Array, axes: tuple[int, ...]) -> Array:
    """[the other axes, sorted elements of the given ones]; NaN last."""
    rest = [i for i in range(value.ndim) if i not in axes]
    flat = OPS["transpose"](value, permutation=(*rest, *axes))
    size = math.prod(value.shape[i] for i in axes)
    flat = reshape(flat, (*(value.shape[i] for i in rest), size))
    return OPS["sort"](flat, axis=flat.ndim - 1, keys=1)[0]


def _fractions(name: str, q: Any, dtype: np.dtype) -> Array:
    fractions = asarray(q)
    if fractions.ndim > 1:
        raise TypeMismatch(f"{name}: q must be a number or a vector, not {fractions.type}")
    return cast(fractions, dtype)


_PICKS = {"lower": "floor", "higher": "ceil", "nearest": "round"}  # methods that read one element
_MIXES = ("linear", "midpoint")


def _between(name: str, position: Array, method: str, at: Callable[[Array], Array]) -> Array:
    """What lies at a position between two elements, which `at` reads."""
    if method in _PICKS:
        return at(cast(OPS[_PICKS[method]](position), dt.int32))
    if method not in _MIXES:
        known = ", ".join((*_MIXES, *_PICKS))
        raise BadArgument(f"{name}: unknown method {method!r}, not one of {known}")
    low, high = OPS["floor"](position), OPS["ceil"](position)
    share = position - low if method == "linear" else (high - low) * 0.5
    below, above = (at(cast(p, dt.int32)) for p in (low, high))
    mixed = below * (1 - share) + above * share
    return where(share == 0, below, mixed)  # infinity times 0 is NaN


@replayed
def nanquantile(
    a: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Array:
    """Quantile of the elements that are not NaN (NaN if all are)."""
    (value,) = promoted("nanquantile", a, inexact=True, numbers=False)
    axes = axes_tuple(axis, value.ndim, "nanquantile")
    ordered = _ordered(value, axes)
    fractions = _fractions("nanquantile", q, value.dtype)
    last = sum(cast(~isnan(ordered), value.dtype), -1, keepdims=True) - 1
    position = maximum(last, 0) * reshape(fractions, (-1,))
    out = _between("nanquantile", position, method, lambda i: take_along_axis(ordered, i, -1))
    out = moveaxis(where(last < 0, math.nan, out), -1, 0)  # [q, the other axes]
    kept = tuple(1 if i in axes else s for i, s in enumerate(value.shape))
    rest = kept if keepdims else out.shape[1:]
    return reshape(out, (*fractions.shape, *rest))


@replayed
def nanpercentile(
    a: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Array:
    """nanquantile with q in percent."""
    return nanquantile(a, asarray(q) / 100, axis, method, keepdims)


@replayed
def nanmedian(a: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """Median of the elements that are not NaN."""
    return nanquantile(a, 0.5, axis, keepdims=keepdims)


def percentile(
    a: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Array:
    """Quantile with q in percent."""
    known = type(q) in (int, float) and 0 <= q <= 100
    return (_replayed_percentile if known else _percentile)(a, q, axis, method, keepdims)


def _percentile(a: Any, q: Any, axis: Any, method: str, keepdims: bool) -> Array:
    return _quantile(a, asarray(q) / 100, axis, method, keepdims)


_replayed_percentile = replayed(_percentile)
