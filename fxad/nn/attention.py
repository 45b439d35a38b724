"""Scaled dot-product attention, with grouped query heads.

out = dot_product_attention(q, k, v, is_causal=True)     # [batch, time, heads, width]
"""

from __future__ import annotations

import math
from typing import Any

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.ir.program import OPS
from fxad.nn.softmax import softmax
from fxad.numpy.core import cast, promoted, value_of
from fxad.numpy.elementwise import where
from fxad.trace.array import Array
from fxad.trace.tracer import type_of


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
) -> Array:
    """softmax(query . key * scale + bias) . value, for every head.

    query: [B, T, N, H]; key, value: [B, S, K, H] with N a multiple of K (each key head serves
    N / K query heads in a row); all may lack B. bias: added, broadcast to [B, N, T, S]. mask:
    bools, likewise; False excludes. is_causal: query t sees keys 0..t. scale: 1 / sqrt(H) unless
    given. Logits and softmax are float32 (or wider). Returns [B, T, N, H] in query's dtype.

    Raises ShapeError if the shapes do not go together, TypeMismatch if the mask is not bool.
    """
    q, k, v = promoted(
        "dot_product_attention", query, key, value, inexact=True, numbers=False, broadcast=False
    )
    _check(q, k, v)
    if single := q.ndim == 3:
        q, k, v = (OPS["reshape"](x, shape=(1, *x.shape)) for x in (q, k, v))
    logits = _logits(q, k)
    width = q.shape[-1]
    logits = logits * (1 / math.sqrt(width) if scale is None else scale)
    if bias is not None:
        logits = logits + value_of(bias, "dot_product_attention: bias")
    logits = _masked(logits, mask, is_causal)
    out = _mixed(cast(softmax(logits), v.dtype), v)
    return OPS["reshape"](out, shape=out.shape[1:]) if single else out


def _check(q: Any, k: Any, v: Any) -> None:
    shapes = q.shape, k.shape, v.shape
    good = (
        q.ndim in (3, 4)
        and k.shape == v.shape
        and k.ndim == q.ndim
        and q.shape[:-3] == k.shape[:-3]
        and q.shape[-1] == k.shape[-1]
        and k.shape[-2] > 0
        and q.shape[-2] % k.shape[-2] == 0
    )
    if not good:
        raise ShapeError(
            f"dot_product_attention: query {shapes[0]}, key {shapes[1]} and value {shapes[2]} do "
            "not go together; expected [B, T, N, H] and twice [B, S, K, H], N a multiple of K"
        )


def _logits(q: Any, k: Any) -> Any:
    """[B, T, N, H] and [B, S, K, H] to [B, N, T, S]."""
    batch, time, heads, width = q.shape
    groups = k.shape[2]
    wide = dt.float32 if q.dtype.itemsize < 4 else q.dtype
    if groups == heads:
        return OPS["dot"](q, k, contract=((3,), (3,)), batch=((0, 2), (0, 2)), dtype=wide)
    q = OPS["reshape"](q, shape=(batch, time, groups, heads // groups, width))
    q = OPS["transpose"](q, permutation=(0, 2, 3, 1, 4))
    out = OPS["dot"](q, k, contract=((4,), (3,)), batch=((0, 1), (0, 2)), dtype=wide)
    return OPS["reshape"](out, shape=(batch, heads, time, k.shape[1]))


def _masked(logits: Any, mask: Any, is_causal: bool) -> Any:
    """Excluded logits become so low that they weigh nothing, but finite: a query that sees no
    key averages them all instead of giving NaN."""
    lowest = float(dt.finfo(type_of(logits).dtype).max) * -0.7
    if mask is not None:
        allowed = value_of(mask, "dot_product_attention: mask")
        if allowed.dtype != dt.bool_:
            raise TypeMismatch(f"dot_product_attention: the mask must be bool, not {allowed.type}")
        logits = where(allowed, logits, lowest)
    if is_causal:
        shape = type_of(logits).shape[-2:]
        rows = OPS["iota"](dtype=dt.int32, shape=shape, axis=0)
        columns = OPS["iota"](dtype=dt.int32, shape=shape, axis=1)
        logits = where(OPS["ge"](rows, columns), logits, lowest)
    return logits


def _mixed(weights: Any, v: Any) -> Any:
    """[B, N, T, S] and [B, S, K, H] to [B, T, N, H]."""
    batch, heads, time, length = weights.shape
    groups, width = v.shape[2:]
    if groups == heads:
        out = OPS["dot"](weights, v, contract=((3,), (1,)), batch=((0, 1), (0, 2)), dtype=v.dtype)
        return OPS["transpose"](out, permutation=(0, 2, 1, 3))
    weights = OPS["reshape"](weights, shape=(batch, groups, heads // groups, time, length))
    out = OPS["dot"](weights, v, contract=((4,), (1,)), batch=((0, 1), (0, 2)), dtype=v.dtype)
    out = OPS["transpose"](out, permutation=(0, 3, 1, 2, 4))
    return OPS["reshape"](out, shape=(batch, time, heads, width))
