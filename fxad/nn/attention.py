"""Scaled dot-product attention, with grouped query heads.

out = dot_product_attention(q, k, v, is_causal=True)     # [batch, time, heads, width]
"""

from __future__ import annotations

import math
from typing import Any

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.ir.program import OPS
from fxad.ir.rewrite import literal
from fxad.nn.segments import document_bounds
from fxad.numpy.core import cast, promoted, value_of
from fxad.numpy.elementwise import logical_and
from fxad.trace.array import Array


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
    segment_ids: Any = None,
) -> Array:
    """softmax(query . key * scale + bias) . value, for every head, with no scores in memory.

    query: [B, T, N, H]; key, value: [B, S, K, H] with N a multiple of K (each key head serves
    N / K query heads in a row); all may lack B. bias: added, broadcast to [B, N, T, S]. mask:
    bools, likewise; False excludes. is_causal: query t sees keys 0..t. local_window_size: (left,
    right), query t sees keys t - left .. t + right; one number stands for both. Sequence lengths
    [B]: keys beyond are excluded; results of queries beyond are 0. scale: 1 / sqrt(H) unless
    given. Logits and softmax are float32 (or float64 for such operands). Returns [B, T, N, H] in
    query's dtype.

    segment_ids: integers [B, T], where queries and keys are the same T positions: of documents that
    share a row, one after another. A document is a run of equal ids, and a query sees keys of its
    own only: others are skipped, forward and backward, and no mask is in memory.

    A query whose keys the mask all excludes averages those it sees; one that sees none gives 0.

    implementation: None or "xla"; there is one. return_residual: False.

    Raises ShapeError if the shapes do not go together, TypeMismatch if the mask is not bool,
    BadArgument for an implementation or residuals that are not here.

    >>> q, k, v = fxad.random.normal(fxad.random.key(0), (3, 1, 8, 2, 4))  # 2 heads of depth 4
    >>> y = fxad.nn.dot_product_attention(q, k, v, is_causal=True)
    >>> y.shape, bool((y[:, 0] == v[:, 0]).all())  # the first one sees itself alone
    ((1, 8, 2, 4), True)
    """
    if implementation not in (None, "xla") or return_residual:
        raise BadArgument(
            "dot_product_attention: there is one implementation, which keeps no residuals; pass "
            f"implementation=None and return_residual=False, not {implementation!r} and "
            f"{return_residual!r}"
        )
    q, k, v = promoted(
        "dot_product_attention", query, key, value, inexact=True, numbers=False, broadcast=False
    )
    _check(q, k, v)
    if single := q.ndim == 3:
        q, k, v = (OPS["reshape"](x, shape=(1, *x.shape)) for x in (q, k, v))
    wide = dt.float32 if q.dtype.itemsize < 4 else q.dtype
    extras = {}
    if bias is not None:
        bias = value_of(bias, "dot_product_attention: bias")
        extras["bias"] = _rank4(cast(bias, wide), "bias", q, k)
    mask = _mask(mask, key_value_seq_lengths, q, k)
    if mask is not None:
        extras["mask"] = mask
    left, right = _window(local_window_size, is_causal)
    if segment_ids is not None:
        starts, ends = document_bounds(_segments(segment_ids, q, k, single))
        extras["starts"] = starts
        if right != 0:  # no later key is seen anyway
            extras["ends"] = ends
    out, _ = OPS["flash_attention"](
        *(cast(x, wide) for x in (q, k, v)),
        *extras.values(),
        scale=float(1 / math.sqrt(q.shape[-1]) if scale is None else scale),
        left=left,
        right=right,
        bias="bias" in extras,
        mask="mask" in extras,
        **{name: True for name in ("starts", "ends") if name in extras},
    )
    if query_seq_lengths is not None:
        there = _within(query_seq_lengths, q.shape[1], "query_seq_lengths", q.shape[0])
        kept = OPS["broadcast"](there, shape=out.shape, axes=(0, 1))
        out = OPS["select"](kept, out, OPS["broadcast"](literal(0, wide), shape=out.shape, axes=()))
    out = cast(out, q.dtype)
    return OPS["reshape"](out, shape=out.shape[1:]) if single else out


def _window(size: int | tuple[int, int] | None, is_causal: bool) -> tuple[int, int]:
    """Keys seen (before, after) a query; -1: all."""
    left, right = (-1, -1) if size is None else (size, size) if isinstance(size, int) else size
    if size is not None and (left < 0 or right < 0):
        raise ShapeError(f"dot_product_attention: local_window_size must not be negative: {size}")
    return left, 0 if is_causal else right


def _within(lengths: Any, size: int, what: str, batch: int) -> Any:
    """Bools [B, size]: positions before each length."""
    lengths = value_of(lengths, f"dot_product_attention: {what}")
    if lengths.shape != (batch,) or not dt.is_integer(lengths.dtype):
        raise ShapeError(
            f"dot_product_attention: {what} must be integers [{batch}], not {lengths.type}"
        )
    shape = (batch, size)
    positions = OPS["iota"](dtype=lengths.dtype, shape=shape, axis=1)
    return OPS["lt"](positions, OPS["broadcast"](lengths, shape=shape, axes=(0,)))


def _segments(ids: Any, q: Any, k: Any, single: bool) -> Any:
    """The ids, [B, T]."""
    ids = value_of(ids, "dot_product_attention: segment_ids")
    wanted = q.shape[1:2] if single else q.shape[:2]
    if ids.shape != wanted or not dt.is_integer(ids.dtype):
        raise ShapeError(
            f"dot_product_attention: segment_ids must be integers {list(wanted)}, not {ids.type}"
        )
    if q.shape[1] != k.shape[1]:
        raise ShapeError(
            "dot_product_attention: segment_ids are of queries and keys alike, but there are "
            f"{q.shape[1]} queries and {k.shape[1]} keys; keep others apart by a mask"
        )
    return OPS["reshape"](ids, shape=q.shape[:2])


def _mask(mask: Any, key_lengths: Any, q: Any, k: Any) -> Any:
    """The given mask and that of the keys' lengths together, of rank 4; None where neither is."""
    found = None
    if mask is not None:
        found = value_of(mask, "dot_product_attention: mask")
        if found.dtype != dt.bool_:
            raise TypeMismatch(f"dot_product_attention: the mask must be bool, not {found.type}")
        found = _rank4(found, "mask", q, k)
    if key_lengths is None:
        return found
    keys = _within(key_lengths, k.shape[1], "key_value_seq_lengths", k.shape[0])
    keys = OPS["reshape"](keys, shape=(k.shape[0], 1, 1, k.shape[1]))
    return keys if found is None else logical_and(found, keys)


def _rank4(extra: Any, what: str, q: Any, k: Any) -> Any:
    """A bias or mask with leading axes of length 1, checked against [B, N, T, S]."""
    scores = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    shape = (1,) * (4 - extra.ndim) + extra.shape
    if len(shape) != 4 or any(a not in (1, b) for a, b in zip(shape, scores, strict=True)):
        raise ShapeError(
            f"dot_product_attention: the {what} {extra.shape} does not broadcast to {scores}"
        )
    return OPS["reshape"](extra, shape=shape)


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
