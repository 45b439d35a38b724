"""Attention by plain ops, with all scores in memory: what `flash_attention` is where it has no
kernel, and what its derivatives of higher order go through.

    out, lse = parts(q, k, v, scale=0.125, left=-1, right=0, bias=False, mask=False)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fxad.core import dtypes as dt
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.ir.rewrite import literal
from fxad.ops.base import full, zeros
from fxad.trace.tracer import type_of

LOWEST = -0.7  # of the largest finite number: an excluded logit
EXTRAS = ("bias", "mask", "starts", "ends")
"""Operands that there may be after the others, in this order: parameters of their names say so."""
_BOUNDS = ("starts", "ends")


def extras_of(params: Mapping[str, Any], extras: Sequence[Any]) -> dict[str, Any]:
    """The operands that there may be, by name, as far as there are any."""
    names = [name for name in EXTRAS if params.get(name)]
    return dict(zip(names, extras, strict=True))


def op(name: str, *args: Any, **params: Any) -> Any:
    return OPS[name](*args, **params)


def _split_heads(x: Any, groups: int) -> Any:
    """[B, T, N, H] -> [B, K, G, T, H]."""
    batch, time, heads, width = type_of(x).shape
    x = op("reshape", x, shape=(batch, time, groups, heads // groups, width))
    return op("transpose", x, permutation=(0, 2, 3, 1, 4))


def joined_heads(x: Any) -> Any:
    """[B, K, G, T, H] -> [B, T, N, H]."""
    batch, groups, each, time, width = type_of(x).shape
    x = op("transpose", x, permutation=(0, 3, 1, 2, 4))
    return op("reshape", x, shape=(batch, time, groups * each, width))


def stretched(x: Any, like: Any, axes: tuple[int, ...]) -> Any:
    return op("broadcast", x, shape=type_of(like).shape, axes=axes)


def _over_scores(extra: Any, scores: Any) -> Any:
    """A bias or mask [B, N, T, S] (or 1) over scores [B, K, G, T, S]."""
    batch, groups, each, time, keys = type_of(scores).shape
    shape = type_of(extra).shape
    heads = (groups, each) if shape[1] > 1 else (1, 1)
    split = (shape[0], *heads, *shape[2:])
    kept = tuple(i for i, n in enumerate(split) if n > 1)
    extra = op("reshape", extra, shape=tuple(split[i] for i in kept))
    return op("broadcast", extra, shape=(batch, groups, each, time, keys), axes=kept)


def _one_unseen(scores: Any) -> Any:
    """Scores of one key that nobody sees, in place of those of none, which have no largest."""
    return full(-float("inf"), type_of(scores).with_shape((*type_of(scores).shape[:4], 1)))


def _weights(
    q: Any, k: Any, extras: Mapping[str, Any], *, scale: float, left: int, right: int, **_: Any
) -> tuple[Any, Any]:
    """Softmax weights [B, K, G, T, S] and their log-sum-exp [B, K, G, T], by plain ops."""
    q = _split_heads(q, type_of(k).shape[2])
    dtype = type_of(q).dtype
    scores = op("dot", q, k, contract=((4,), (3,)), batch=((0, 1), (0, 2)), dtype=dtype)
    x = op("mul", scores, scale)
    if "bias" in extras:
        x = op("add", x, _over_scores(extras["bias"], x))
    if "mask" in extras:
        lowest = full(LOWEST * float(dt.finfo(dtype).max), type_of(x))
        x = op("select", _over_scores(extras["mask"], x), x, lowest)
    shape = type_of(x).shape
    row, column = (op("iota", dtype=dt.int32, shape=shape, axis=a) for a in (3, 4))
    none = full(-float("inf"), type_of(x))
    if right >= 0:
        x = op("select", op("le", column, op("add", row, right)), x, none)
    if left >= 0:
        x = op("select", op("ge", column, op("sub", row, left)), x, none)
    if "starts" in extras:
        x = op("select", op("ge", column, stretched(extras["starts"], x, (0, 3))), x, none)
    if "ends" in extras:
        x = op("select", op("lt", column, stretched(extras["ends"], x, (0, 3))), x, none)
    top = op("stop_gradient", op("max_reduce", x if shape[4] else _one_unseen(x), axes=(4,)))
    unseen = op("eq", top, -float("inf"))
    top = op("select", unseen, zeros(type_of(top)), top)
    e = op("exp", op("sub", x, stretched(top, x, (0, 1, 2, 3))))
    total = op("sum", e, axes=(4,))
    lse = op("add", top, op("log", total))
    divisor = op("select", unseen, full(1.0, type_of(total)), total)
    return op("div", e, stretched(divisor, e, (0, 1, 2, 3))), lse


def _mixed(weights: Any, v: Any) -> Any:
    """Weights [B, K, G, T, S] times v [B, S, K, E], as [B, T, N, E]."""
    pairs = {"contract": ((4,), (1,)), "batch": ((0, 1), (0, 2)), "dtype": type_of(v).dtype}
    return joined_heads(op("dot", weights, v, **pairs))


def seen_keys(
    lse: Any, keys: int, extras: Mapping[str, Any], *, left: int, right: int, **_: Any
) -> Any:
    """How many keys a query's position lets it see, at least 1; like lse, with time last."""
    type_ = type_of(lse)
    row = op("iota", dtype=dt.int32, shape=type_.shape, axis=type_.ndim - 1)
    end = op("min", op("add", row, right + 1), keys) if right >= 0 else None
    start = op("max", op("sub", row, left), 0) if left >= 0 else None
    bounds = {n: stretched(extras[n], row, (0, type_.ndim - 1)) for n in _BOUNDS if n in extras}
    if "starts" in bounds:
        start = bounds["starts"] if start is None else op("max", start, bounds["starts"])
    if "ends" in bounds:
        end = bounds["ends"] if end is None else op("min", end, bounds["ends"])
    if start is None and end is None:
        return full(float(max(keys, 1)), type_)
    stop = full(keys, ArrayType(dt.int32, type_.shape)) if end is None else end
    count = stop if start is None else op("sub", stop, start)
    return op("convert", op("max", count, 1), dtype=type_.dtype)


def at_excluded(lse: Any, value: Any) -> Any:
    """`value` for queries whose keys are all excluded by the mask, 1 for others.

    Their log-sum-exp does not tell how many keys there were: it is too large a number.
    """
    type_ = type_of(lse)
    limit = literal(0.5 * LOWEST * float(dt.finfo(type_.dtype).max), type_.dtype)
    return op("select", op("lt", lse, limit), value, full(1.0, type_))


def parts(q: Any, k: Any, v: Any, *extras: Any, **params: Any) -> tuple[Any, Any]:
    """`flash_attention` by plain ops, with all scores in memory."""
    weights, lse = _weights(q, k, extras_of(params, extras), **params)
    batch, groups, each, time = type_of(lse).shape
    return _mixed(weights, v), op("reshape", lse, shape=(batch, groups * each, time))


def joined_parts(out: Any, lse: Any) -> list[Any]:
    """Results of parts of the keys, [parts, B, T, N, H] and [parts, B, N, T], as those of all."""
    top = op("max_reduce", lse, axes=(0,))
    unseen = op("eq", top, -float("inf"))
    top = op("select", unseen, zeros(type_of(top)), top)
    weights = op("exp", op("sub", lse, stretched(top, lse, (1, 2, 3))))
    total = op("sum", weights, axes=(0,))
    divisor = op("select", unseen, full(1.0, type_of(total)), total)
    weights = op("div", weights, stretched(divisor, lse, (1, 2, 3)))
    weights = op("transpose", weights, permutation=(0, 1, 3, 2))
    out = op("sum", op("mul", out, stretched(weights, out, (0, 1, 2, 3))), axes=(0,))
    return [out, op("add", top, op("log", total))]


def grad_parts(
    q: Any, k: Any, v: Any, lse: Any, delta: Any, d_out: Any, *extras: Any, **params: Any
) -> tuple[Any, Any, Any]:
    """`flash_attention_grad` by plain ops; lse and delta are recomputed from the rest."""
    named = extras_of(params, extras)
    weights, lse = _weights(q, k, named, **params)
    if "mask" in named:
        factor = at_excluded(lse, seen_keys(lse, type_of(k).shape[1], named, **params))
        weights = op("mul", weights, stretched(factor, weights, (0, 1, 2, 3)))
    dtype, groups = type_of(q).dtype, type_of(k).shape[2]
    q5, d5 = _split_heads(q, groups), _split_heads(d_out, groups)
    by_width = {"contract": ((4,), (3,)), "batch": ((0, 1), (0, 2)), "dtype": dtype}
    by_row = {"contract": ((2, 3), (2, 3)), "batch": ((0, 1), (0, 1)), "dtype": dtype}
    d_weights = op("dot", d5, v, **by_width)
    mean = op("sum", op("mul", weights, d_weights), axes=(4,))
    centred = op("sub", d_weights, stretched(mean, d_weights, (0, 1, 2, 3)))
    d_scores = op("mul", op("mul", weights, centred), params["scale"])
    if "mask" in named:
        allowed = _over_scores(named["mask"], d_scores)
        d_scores = op("select", allowed, d_scores, zeros(type_of(d_scores)))
    dk = op("dot", d_scores, q5, **by_row)
    dv = op("dot", weights, d5, **by_row)
    dk, dv = (op("transpose", x, permutation=(0, 2, 1, 3)) for x in (dk, dv))
    return _mixed(d_scores, k), dk, dv
