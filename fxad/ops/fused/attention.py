"""Softmax attention as one op, so that scores need never be stored.

    out, lse = flash_attention(q, k, v, scale=0.125, left=-1, right=0, bias=False, mask=False)
    dq, dk, dv = flash_attention_grad(q, k, v, lse, delta, d_out, ...)

q, d_out: [B, T, N, H]; k, v: [B, S, K, H], N a multiple of K; float32 or float64. Query t sees keys
t - left ... t + right; -1: all on that side (right=0 is causal). Then come a bias, added to the
scaled scores, and a mask of bools, False excluding, each [B or 1, N or 1, T or 1, S or 1] where the
parameter of its name says so. lse [B, N, T]: the log of the sum of exponentials.

starts, ends: True where int32 operands [B, T] come last: the first key that a query may see, and
the one after the last. They do not fall from query to query, as those of documents in a row.

key_parts: more than 1 where results of so many equal parts of the keys are wanted apart, as a new
first axis (`passes.split_keys`, behind which no rule but loops and the reference is asked).

A query that sees no key gets 0. One whose keys are all excluded by the mask averages those it sees.
Backward: Dao et al., "FlashAttention" (2022), with the maximum known exactly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.kernel import Const, Expr, Prim
from fxad.ir.loops import Attention, Point
from fxad.ir.program import OPS, Program, Var
from fxad.ir.rewrite import dce
from fxad.ops.base import Batched, Primitive, define, spread
from fxad.ops.fused.attention_parts import (
    EXTRAS,
    LOWEST,
    at_excluded,
    extras_of,
    grad_parts,
    op,
    parts,
    seen_keys,
    stretched,
)
from fxad.ops.programs.control import filled, instantiate, present
from fxad.trace.tracer import stage, type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Transforms
    from fxad.trace.array import Array

# ---------------------------------------------------------------- types


def _check(
    name: str, q: ArrayType, k: ArrayType, v: ArrayType, extras: Mapping[str, ArrayType]
) -> None:
    if not q.dtype == k.dtype == v.dtype or q.dtype not in (dt.float32, dt.float64):
        raise TypeMismatch(f"{name}: operands must be f32 or f64, all alike, got {q}, {k}, {v}")
    good = (
        q.ndim == k.ndim == v.ndim == 4
        and k.shape[:3] == v.shape[:3]
        and q.shape[0] == k.shape[0]
        and q.shape[3] == k.shape[3]
        and k.shape[2] > 0
        and q.shape[2] % k.shape[2] == 0
    )
    if not good:
        raise ShapeError(f"{name}: {q}, {k} and {v} do not go together; expected [B, T, N, H], "
                         "[B, S, K, H] and [B, S, K, E], N a multiple of K")  # fmt: skip
    scores = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    bound = ArrayType(dt.int32, q.shape[:2])
    for role, extra in extras.items():
        if role in ("starts", "ends"):
            if extra != bound:
                raise ShapeError(f"{name}: {role} must be {bound}, got {extra}")
        elif extra.ndim != 4 or any(
            a not in (1, b) for a, b in zip(extra.shape, scores, strict=True)
        ):
            raise ShapeError(
                f"{name}: a bias or mask of shape {extra.shape} does not spread to {scores}"
            )


def _type(
    q: ArrayType,
    k: ArrayType,
    v: ArrayType,
    *extras: ArrayType,
    key_parts: int = 1,
    **params: Any,
) -> tuple[ArrayType, ...]:
    _check("flash_attention", q, k, v, extras_of(params, extras))
    batch, time, heads, _ = q.shape
    parts = (key_parts,) if key_parts > 1 else ()
    out = ArrayType(q.dtype, (*parts, batch, time, heads, v.shape[3]))
    return out, ArrayType(q.dtype, (*parts, batch, heads, time))


def _grad_type(
    q: ArrayType,
    k: ArrayType,
    v: ArrayType,
    lse: ArrayType,
    delta: ArrayType,
    d_out: ArrayType,
    *extras: ArrayType,
    **params: Any,
) -> tuple[ArrayType, ...]:
    _check("flash_attention_grad", q, k, v, extras_of(params, extras))
    wanted = _type(q, k, v)
    if (d_out, lse) != wanted or delta != lse:
        raise ShapeError(
            f"flash_attention_grad: {d_out}, {lse}, {delta} should be {wanted} and {wanted[1]}"
        )
    return q, k, v


# ---------------------------------------------------------------- by other ops


@functools.lru_cache(maxsize=64)
def _program(
    function: Callable[..., Any], types: tuple[ArrayType, ...], params: tuple[tuple[str, Any], ...]
) -> Program:
    program, consts = stage(lambda *xs: function(*xs, **dict(params)), types, "attention")
    assert not consts
    return program


def _parts_program(
    function: Callable[..., Any], args: Sequence[Any], params: dict[str, Any]
) -> Program:
    return _program(function, tuple(type_of(a) for a in args), tuple(sorted(params.items())))


# ---------------------------------------------------------------- the reference


def _grouped(x: np.ndarray, groups: int) -> np.ndarray:
    """[B, T, N, H] -> [B, K, G, T, H]."""
    batch, time, heads, width = x.shape
    return x.reshape(batch, time, groups, heads // groups, width).transpose(0, 2, 3, 1, 4)


def _ungrouped(x: np.ndarray) -> np.ndarray:
    """[B, K, G, T, H] -> [B, T, N, H]."""
    batch, groups, each, time, width = x.shape
    return x.transpose(0, 3, 1, 2, 4).reshape(batch, time, groups * each, width)


def _logits(
    q: np.ndarray,
    k: np.ndarray,
    extras: Mapping[str, np.ndarray],
    *,
    scale: float,
    left: int,
    right: int,
    **_: Any,
) -> np.ndarray:
    """[B, K, G, T, S]; minus infinity where a query does not see a key."""
    groups = k.shape[2]
    x = _grouped(q, groups) @ k.transpose(0, 2, 3, 1)[:, :, None] * q.dtype.type(scale)
    flat = x.reshape(x.shape[0], -1, *x.shape[3:])
    if "bias" in extras:
        flat = flat + extras["bias"]
    if "mask" in extras:
        flat = np.where(extras["mask"], flat, q.dtype.type(LOWEST * np.finfo(q.dtype).max))
    row, column = np.ogrid[: flat.shape[2], : flat.shape[3]]
    seen = (left < 0 or column >= row - left) & (right < 0 or column <= row + right)
    if "starts" in extras:
        seen = seen & (column >= extras["starts"][:, None, :, None])
    if "ends" in extras:
        seen = seen & (column < extras["ends"][:, None, :, None])
    return np.where(seen, flat, q.dtype.type(-np.inf)).reshape(x.shape)


def _numpy(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *extras: np.ndarray,
    key_parts: int = 1,
    **params: Any,
) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(all="ignore"):
        x = _logits(q, k, extras_of(params, extras), **params)
        if key_parts == 1:
            return _seen(q, x, v)
        parts = zip(np.split(x, key_parts, -1), np.split(v, key_parts, 1), strict=True)
        outs, lses = zip(*[_seen(q, *part) for part in parts], strict=True)
        return np.stack(outs), np.stack(lses)


def _seen(q: np.ndarray, x: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Results for queries q of logits x [B, K, G, T, S] and as many values."""
    with np.errstate(all="ignore"):
        top = x.max(axis=-1, initial=-np.inf, keepdims=True)
        top[np.isneginf(top)] = 0
        weights = np.exp(x - top)
        total = weights.sum(axis=-1, keepdims=True)
        lse = (top + np.log(total)).reshape(q.shape[0], q.shape[2], q.shape[1])
        out = (weights / np.where(total == 0, 1, total)) @ v.transpose(0, 2, 1, 3)[:, :, None]
        return _ungrouped(out.astype(q.dtype)), lse.astype(q.dtype)


def _grad_numpy(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    lse: np.ndarray,
    delta: np.ndarray,
    d_out: np.ndarray,
    *extras: np.ndarray,
    **params: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    groups, named = k.shape[2], extras_of(params, extras)
    with np.errstate(all="ignore"):
        x = _logits(q, k, named, **params)
        lse, delta = (a.reshape(*x.shape[:4], 1) for a in (lse, delta))
        weights = np.where(np.isneginf(x), 0, np.exp(x - lse)).astype(q.dtype)
        d5, q5 = _grouped(d_out, groups), _grouped(q, groups)
        d_weights = d5 @ v.transpose(0, 2, 3, 1)[:, :, None]
        d_scores = weights * (d_weights - delta) * q.dtype.type(params["scale"])
        if "mask" in named:
            flat = d_scores.reshape(x.shape[0], -1, *x.shape[3:])
            d_scores = np.where(named["mask"], flat, 0).reshape(x.shape).astype(q.dtype)
        dq = _ungrouped(d_scores @ k.transpose(0, 2, 1, 3)[:, :, None])
        turned = (np.swapaxes(m, -1, -2) @ other for m, other in ((d_scores, q5), (weights, d5)))
        dk, dv = (m.sum(axis=2, dtype=q.dtype).transpose(0, 2, 1, 3) for m in turned)
        return dq, dk, dv


# ---------------------------------------------------------------- derivatives


def _transposed(q: Any, k: Any, v: Any, out: Any, lse: Any, *rest: Any, **params: Any) -> Any:
    """(primals, results, extras, cotangent of out) -> cotangents of q, k and v."""
    *extras, d_out = rest
    delta = op("sum", op("mul", d_out, out), axes=(3,))
    delta = op("transpose", delta, permutation=(0, 2, 1))
    if params["mask"]:
        named = extras_of(params, extras)
        each = op("div", 1.0, seen_keys(lse, type_of(k).shape[1], named, **params))
        each = op("transpose", at_excluded(lse, each), permutation=(0, 2, 1))
        d_out = op("mul", d_out, stretched(each, d_out, (0, 1, 2)))
    return flash_attention_grad(q, k, v, lse, delta, d_out, *extras, **params)


def _jvp(
    t: Transforms, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
) -> tuple[Sequence[Any], Sequence[Any]]:
    """The tangent is a linear call that knows the fused backward, except for a bias's."""
    program = _parts_program(parts, primals, params)
    active = present(tangents)
    if any(active[3:]):
        derived, out_active = t.jvp(program, active)
        results = t.run(derived, [*primals, *(x for x in tangents if x is not None)])
        return results[:2], filled(out_active, results[2:])
    out, lse = flash_attention(*primals, **params)
    fixed = [*primals[:3], out, lse, *primals[3:]]
    types = [type_of(x) for x in fixed]
    mask = tuple(i < 3 for i in range(len(primals)))
    derived, _ = t.jvp(program, mask, (True, False))
    held = len(primals)
    inputs = [*derived.inputs[:3], Var(types[3]), Var(types[4]), *derived.inputs[3:held]]
    tangent = dce(
        Program(
            [*inputs, *derived.inputs[held:]], derived.eqns, derived.outputs[2:3], "flash_attention"
        )
    )
    back = t.stage(lambda *xs: _transposed(*xs, **params), [*types, types[3]], "flash_attention")
    (d_out,) = OPS["linear_call"](
        *fixed,
        *instantiate(primals[:3], tangents[:3]),
        count=len(fixed),
        apply=tangent,
        transpose=back,
    )
    return [out, lse], [d_out, None]


def _grad_jvp(
    t: Transforms, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Second derivatives go through the plain ops."""
    derived, _ = t.jvp(_parts_program(grad_parts, primals, params), present(tangents), (True,) * 3)
    results = t.run(derived, [*primals, *(x for x in tangents if x is not None)])
    return list(flash_attention_grad(*primals, **params)), results[3:]


def _batch(op_of: Callable[[], Any]) -> Callable[..., Any]:
    """Lanes join the batch axis of every operand."""

    def rule(
        t: Transforms, size: int, batched: Sequence[bool], args: Sequence[Any], **params: Any
    ) -> Any:
        batch = type_of(args[0]).shape[int(batched[0])]
        lanes = [a if b else spread(a, size) for a, b in zip(args, batched, strict=True)]
        joined = [_joined_lanes(x, batch) for x in lanes]
        outs = op_of()(*joined, **params)
        split = [op("reshape", o, shape=(size, batch, *type_of(o).shape[1:])) for o in outs]
        return Batched(tuple(split), (True,) * len(split))

    return rule


def _joined_lanes(x: Any, batch: int) -> Any:
    """[lanes, B or 1, ...] -> [lanes * B, ...]."""
    lanes, first, *rest = type_of(x).shape
    if first != batch:
        x = op("reshape", x, shape=(lanes, *rest))
        axes = (0, *range(2, len(rest) + 2))
        x = op("broadcast", x, shape=(lanes, batch, *rest), axes=axes)
    return op("reshape", x, shape=(lanes * batch, *rest))


# ---------------------------------------------------------------- loops


def _attention(
    types: Sequence[ArrayType],
    *,
    scale: float,
    left: int,
    right: int,
    key_parts: int = 1,
    **present: bool,
) -> Attention:
    dtype = types[0].dtype
    roles = [name for name in EXTRAS if present.get(name)]
    first = len(types) - len(roles)
    bias, mask = "bias" in roles, "mask" in roles

    def element(role: str, point: Point, read: Callable[..., Expr]) -> Expr:
        number = first + roles.index(role)
        shape = types[number].shape
        where = tuple(i if n > 1 else i * 0 for i, n in zip(point, shape, strict=True))
        return read(number, where)

    def bound(role: str) -> Callable[..., Expr] | None:
        return functools.partial(element, role) if role in roles else None

    def logit(score: Expr, point: Point, read: Callable[..., Expr]) -> Expr:
        x: Expr = Prim("mul", (score, Const(scale, dtype)), dtype)
        if bias:
            x = Prim("add", (x, element("bias", point, read)), dtype)
        if mask:
            lowest = Const(LOWEST * float(dt.finfo(dtype).max), dtype)
            x = Prim("select", (element("mask", point, read), x, lowest), dtype)
        return x

    def slope(point: Point, read: Callable[..., Expr]) -> Expr:
        value = Const(scale, dtype)
        if not mask:
            return value
        return Prim("select", (element("mask", point, read), value, Const(0.0, dtype)), dtype)

    return Attention(
        first > 3, left, right, logit, slope,
        key_parts=key_parts, start=bound("starts"), end=bound("ends"),
    )  # fmt: skip


flash_attention: Primitive[tuple[Array, ...]] = define(
    "flash_attention",
    higher=True,
    doc="Softmax attention [B,T,N,H] x [B,S,K,H] x [B,S,K,E] -> ([B,T,N,E], log-sum-exp [B,N,T]).",
    type=_type,
    numpy=_numpy,
    jvp=_jvp,
    batch=_batch(lambda: flash_attention),
    loops=_attention,
    decompose=parts,
    dtypes="",
)

flash_attention_grad: Primitive[tuple[Array, ...]] = define(
    "flash_attention_grad",
    higher=True,
    doc="Cotangents of q, k and v from lse, delta = sum(d_out * out) and d_out; weights are "
    "exp(logit - lse), which is 1 where a mask excludes all.",
    type=_grad_type,
    numpy=_grad_numpy,
    jvp=_grad_jvp,
    batch=_batch(lambda: flash_attention_grad),
    loops=_attention,
    decompose=grad_parts,
    dtypes="",
)
