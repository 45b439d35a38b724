"""Quantiles by interpolation between sorted elements.

quantile(x, [0.25, 0.75], axis=0)      median(x)
"""

from __future__ import annotations

import math
from typing import Any

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, TypeMismatch
from fxad.core.promotion import is_python_scalar
from fxad.ir.program import OPS
from fxad.numpy.core import axes_tuple, cast, promoted, spread_to, value_of
from fxad.numpy.elementwise import isnan, where
from fxad.numpy.shaping import moveaxis, reshape
from fxad.trace.array import Array
from fxad.trace.tracer import type_of


def median(a: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """Middle of the sorted elements."""
    return quantile(a, 0.5, axis, keepdims=keepdims)


def quantile(
    a: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Array:
    """Quantile by linear interpolation; q is a number or a vector in [0, 1]."""
    if method not in ("linear", "lower", "higher", "nearest", "midpoint"):
        raise BadArgument(f"quantile: unknown method {method!r}")
    (value,) = promoted("quantile", a, inexact=True, numbers=False)
    axes = axes_tuple(axis, value.ndim, "quantile")
    rest = [i for i in range(value.ndim) if i not in axes]
    flat = OPS["transpose"](value, permutation=(*rest, *axes))
    flat = reshape(flat, (*(value.shape[i] for i in rest), -1))
    (ordered,) = OPS["sort"](flat, axis=flat.ndim - 1, keys=1)
    count = ordered.shape[-1]
    if not is_python_scalar(q) and value_of(q).ndim > 1:
        raise TypeMismatch("quantile: q must be a number or a vector")
    position = cast(value_of(q), value.dtype) * (count - 1)
    low, high = OPS["floor"](position), OPS["ceil"](position)
    share = position - low
    share = {
        "linear": share,
        "lower": share * 0,
        "higher": high - low,
        "midpoint": (high - low) * 0.5,
        "nearest": OPS["round"](share),
    }[method]
    below, above = (ordered[..., cast(p, dt.int32)] for p in (low, high))
    out = below * (1 - share) + above * share
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


def percentile(
    a: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Array:
    """Quantile with q in percent."""
    return quantile(a, value_of(q) / 100, axis, method, keepdims)
