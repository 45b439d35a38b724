"""Cross-entropy of a linear head as one op, so that the logits of all rows never exist.

    (loss,) = linear_cross_entropy(x, table, targets, weights, width=1, factors=float32)

x: [R, D]; table: [V, D] (width=0: [D, V]) of x's dtype; targets: i32[R]; weights: [R], of the dtype
in which softmax and loss are computed; factors: the dtype that the operands of all products are
rounded to, backward ones too; terms: of float32 ones, by how many products of their bfloat16 parts
(see `matrices/product_by_parts.py`), if it is given. The result, of that dtype and rank 0, is the
sum of weights * (logsumexp(logits) - logits[target]); a target outside 0 ... V-1 picks 0.

It is made of plain ops, CHUNK rows at a time (more where rows are short, all where they are few).
Where a gradient is asked for, a chunk's logits become their own cotangent in place, and that the
chunk's parts of the gradients, before the next chunk begins: no logit is computed twice.

skip: rows of weight 0 may be left out, if it is true. Where the table and the weights have no
tangent the others are moved to the front, and a loop takes PART of them at a time until none is
left: rows that do not count cost nothing, as those of prompts beside a frozen table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.record import valued
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.ir.rewrite import literal
from fxad.ops.base import Batched, define, zeros
from fxad.trace.tracer import stage, type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Tangents, Transforms, Value, Values, WithTangents

CHUNK = 512  # rows: their logits cost less memory traffic than the table's gradient, once a chunk
PART = 128  # rows at once where some are left out: a product of fewer reads the table too often
SHORT = 1 << 21  # logits: a chunk of short rows has as many, so that chunks are few


def _op(name: str, *args: Value, **params: Any) -> Value:
    return OPS[name](*args, **params)


def _type(
    x: ArrayType,
    table: ArrayType,
    targets: ArrayType,
    weights: ArrayType,
    *,
    width: int,
    factors: np.dtype,
    terms: int | None = None,
    skip: bool = False,
) -> tuple[ArrayType]:
    good = x.ndim == table.ndim == 2 and x.shape[1] == table.shape[width]
    if not good or targets.shape != x.shape[:1] or weights.shape != x.shape[:1]:
        raise ShapeError(
            f"linear_cross_entropy: {x}, {table}, {targets} and {weights} do not go together; "
            "expected [R, D], [V, D] and twice [R]"
        )
    if terms is not None and not (x.dtype == weights.dtype == factors == dt.float32):
        raise TypeMismatch(f"linear_cross_entropy: terms are of float32, not of {x} and {weights}")
    if x.dtype != table.dtype or targets.dtype != dt.int32 or not dt.is_float(weights.dtype):
        raise TypeMismatch(f"linear_cross_entropy: {x}, {table}, {targets} and {weights}: expected "
                           "two of one float dtype, i32, and floats")  # fmt: skip
    return (ArrayType(weights.dtype, ()),)


def _numpy(
    x: np.ndarray,
    table: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    *,
    width: int,
    factors: np.dtype,
    terms: int | None = None,
    skip: bool = False,
) -> tuple[np.ndarray]:
    if skip:
        x, targets, weights = (a[weights != 0] for a in (x, targets, weights))
    with np.errstate(all="ignore"):
        if terms is None:
            # Rounded factors and a wider sum, as `dot` computes it.
            wide = np.float64 if x.dtype == np.float64 else np.float32
            a, b = (np.asarray(m.astype(factors), wide) for m in (x, table))
            logits = np.matmul(a, b.T if width == 1 else b)
        else:
            pairs = {"contract": ((1,), (width,)), "batch": ((), ())}
            logits = OPS["dot_by_parts"].numpy(x, table, **pairs, terms=terms)
        logits = logits.astype(x.dtype).astype(weights.dtype)
        peak = logits.max(axis=1, keepdims=True, initial=-np.inf)
        peak[np.isinf(peak)] = 0
        lse = np.log(np.exp(logits - peak).sum(axis=1)) + peak[:, 0]
        inside = (targets >= 0) & (targets < logits.shape[1])
        rows = np.arange(len(targets))[inside]
        picked = np.zeros(len(targets), weights.dtype)
        picked[rows] = logits[rows, targets[inside]]
        return (np.asarray(((lse - picked) * weights).sum(), weights.dtype),)


# ---------------------------------------------------------------- rows


@valued
class _Rows:
    """Of some rows: logits, their log-sum-exp, where the targets are, and the losses."""

    x: Value
    logits: Value
    lse: Value
    hot: Value
    losses: Value
    weights: Value


def _chunks(rows: int, depth: int, classes: int) -> list[slice]:
    """Equal parts of at most CHUNK rows, or SHORT logits if those are more.

    One part, if all logits together take no more memory than CHUNK rows of them and the table's
    gradient [depth, classes]: that is then one product, which waits for its reader, while with
    more parts their sum waits beside the last part's logits.
    """
    most = max(CHUNK, SHORT // classes)
    count = 1 if rows <= most + depth else -(-rows // most)
    each = -(-rows // count)
    return [slice(start, min(start + each, rows)) for start in range(0, rows, max(each, 1))]


def _cut(x: Value, part: slice) -> Value:
    shape = type_of(x).shape
    if part == slice(0, shape[0]):
        return x
    rest = shape[1:]
    stop = (part.stop, *rest)
    return _op("slice", x, start=(part.start, *[0] * len(rest)), stop=stop, step=(1,) * len(stop))


def _across(x: Value, like: Value, axis: int = 0) -> Value:
    return _op("broadcast", x, shape=type_of(like).shape, axes=(axis,))


def _cast(x: Value, dtype: np.dtype) -> Value:
    return x if type_of(x).dtype == dtype else _op("convert", x, dtype=dtype)


def _product(
    a: Value,
    b: Value,
    axes: tuple[int, int],
    factors: np.dtype,
    dtype: np.dtype,
    terms: int | None,
) -> Value:
    """Sum over one axis of each, of numbers rounded to `factors`, or by `terms` of their parts."""
    pairs = {"contract": ((axes[0],), (axes[1],)), "batch": ((), ())}
    if terms is not None:
        return _op("dot_by_parts", a, b, **pairs, terms=terms)
    return _op("dot", _cast(a, factors), _cast(b, factors), **pairs, dtype=dtype)


def _rows(
    x: Value,
    table: Value,
    targets: Value,
    weights: Value,
    width: int,
    factors: np.dtype,
    terms: int | None = None,
) -> _Rows:
    product = _product(x, table, (1, width), factors, type_of(x).dtype, terms)
    logits = _cast(product, type_of(weights).dtype)
    peak = _op("stop_gradient", _op("max_reduce", logits, axes=(1,)))
    infinite = _op("eq", _op("abs", peak), math.inf)
    peak = _op("select", infinite, zeros(type_of(peak)), peak)
    powers = _op("exp", _op("sub", logits, _across(peak, logits)))
    lse = _op("add", _op("log", _op("sum", powers, axes=(1,))), peak)
    places = _op("iota", dtype=dt.int32, shape=type_of(logits).shape, axis=1)
    hot = _op("eq", places, _across(targets, logits))
    # A sum over the row instead of a gather: the same pass over the logits that sums exponentials.
    picked = _op("sum", _op("select", hot, logits, zeros(type_of(logits))), axes=(1,))
    return _Rows(x, logits, lse, hot, _op("sub", lse, picked), weights)


def _all_rows(
    x: Value, table: Value, targets: Value, weights: Value, **params: Any
) -> Iterator[_Rows]:
    """The rows of one chunk after the other; none of no rows."""
    (count, depth), classes = type_of(x).shape, type_of(table).shape[1 - params["width"]]
    if type_of(table).size:
        for part in _chunks(count, depth, classes):
            yield _rows(_cut(x, part), table, _cut(targets, part), _cut(weights, part), **params)


def _plus(total: Value | None, part: Value) -> Value:
    return part if total is None else _op("add", total, part)


def _loss(rows: _Rows) -> Value:
    return _op("sum", _op("mul", rows.losses, rows.weights), axes=(0,))


def parts(
    x: Value, table: Value, targets: Value, weights: Value, skip: bool = False, **params: Any
) -> tuple[Value]:
    """The loss by plain ops."""
    if skip and type_of(x).shape[0] and type_of(table).size:
        return (_of_those_that_count(x, table, targets, weights, False, **params)[0],)
    loss: Value | None = None
    for rows in _all_rows(x, table, targets, weights, **params):
        loss = _plus(loss, _loss(rows))
    return (zeros(ArrayType(type_of(weights).dtype, ())) if loss is None else loss,)


# ---------------------------------------------------------------- rows that count


def _of_those_that_count(
    x: Value, table: Value, targets: Value, weights: Value, slope: bool, **params: Any
) -> list[Value]:
    """The loss of the rows that have a weight and, if asked for, its gradient of x.

    while(order; at = 0: rows order[at : at + each], at += each, as long as at < their number)
    """
    count, depth = type_of(x).shape
    trips = -(-count // PART)
    each = -(-count // trips)
    i32 = partial(literal, dtype=dt.int32)
    left_out = _op("convert", _op("eq", weights, 0), dtype=dt.int32)
    counted = _op("sub", i32(count), _op("sum", left_out, axes=(0,)))
    rows = _op("iota", dtype=dt.int32, shape=(count,), axis=0)
    _, order = OPS["sort"](left_out, rows, axis=0, keys=2)  # with both as keys: as they stood
    # The last part may reach beyond the rows: the first row again, with weight 0.
    missing = {"low": (0,), "high": (trips * each - count,), "interior": (0,)}
    weights = _op("pad", _taken(weights, order), literal(0, type_of(weights).dtype), **missing)
    padded = _op("pad", order, i32(0), **missing)

    def body(*args: Value) -> list[Value]:
        x, table, targets, weights, at, loss, *d_x = args
        start = (at, i32(0))
        x = _op("dynamic_slice", x, *start, sizes=(each, depth))
        targets, weights = (_op("dynamic_slice", a, at, sizes=(each,)) for a in (targets, weights))
        rows = _rows(x, table, targets, weights, **params)
        if slope:
            part = _slope_of_x(_slope_of_logits(rows), table, **params)
            d_x = [_op("dynamic_update", *d_x, part, *start)]
        return [_op("add", at, i32(each)), _op("add", loss, _loss(rows)), *d_x]

    consts = [_taken(x, padded), table, _taken(targets, padded), weights]
    carry = [zeros(ArrayType(dt.int32, ())), zeros(ArrayType(type_of(weights).dtype, ()))]
    carry += [zeros(type_of(consts[0]))] * slope
    types = [type_of(a) for a in carry]
    test, _ = stage(lambda n, at, *_: [_op("lt", at, n)], [type_of(counted), *types], "some_left")
    loop, _ = stage(body, [*map(type_of, consts), *types], "counted_rows")
    found = OPS["while"](
        counted, *consts, *carry, cond=test, body=loop, cond_consts=1, body_consts=4
    )
    if not slope:
        return [found[1]]
    _, places = OPS["sort"](order, rows, axis=0, keys=1)  # where each row went to
    return [found[1], _taken(found[2], places)]


def _taken(x: Value, rows: Value) -> Value:
    return _op("gather", x, rows, axes=(0,), batch=0, fill=None, mode="clamp", unique=False)


# ---------------------------------------------------------------- derivatives


def _slope_of_logits(rows: _Rows) -> Value:
    """The loss's gradient with respect to these rows of logits."""
    soft = _op("exp", _op("sub", rows.logits, _across(rows.lse, rows.logits)))
    hot = _op("convert", rows.hot, dtype=type_of(soft).dtype)
    return _op("mul", _op("sub", soft, hot), _across(rows.weights, soft))


def _slope_of_x(
    d_logits: Value, table: Value, width: int, factors: np.dtype, terms: int | None = None
) -> Value:
    return _product(d_logits, table, (1, 1 - width), factors, type_of(table).dtype, terms)


def _slope_of_table(
    d_logits: Value, x: Value, width: int, factors: np.dtype, terms: int | None = None
) -> Value:
    ends = (d_logits, x) if width == 1 else (x, d_logits)
    return _product(*ends, (0, 0), factors, type_of(x).dtype, terms)


def _jvp(
    t: Transforms, primals: Values, tangents: Tangents, skip: bool = False, **params: Any
) -> WithTangents:
    """The gradients are computed with the loss, all of a chunk before the next begins; the tangent
    is their product with the tangents."""
    x, table, targets, weights = primals
    if skip and tangents[1] is tangents[3] is None and type_of(x).shape[0] and type_of(table).size:
        return _jvp_of_those_that_count(primals, tangents[0], **params)
    loss: Value | None = None
    d_table: Value | None = None
    d_x: list[Value] = []
    losses: list[Value] = []
    for rows in _all_rows(x, table, targets, weights, **params):
        loss = _plus(loss, _loss(rows))
        d_logits = _slope_of_logits(rows)
        d_x.append(_slope_of_x(d_logits, table, **params))
        d_table = _plus(d_table, _slope_of_table(d_logits, rows.x, **params))
        losses.append(rows.losses)
    type_ = ArrayType(type_of(weights).dtype, ())
    if loss is None:
        return [zeros(type_)], [zeros(type_)]
    slopes = (_joined(d_x), d_table, None, _joined(losses))
    tangent: Value | None = None
    for slope, pushed in zip(slopes, tangents, strict=True):
        if slope is not None and pushed is not None:
            tangent = _plus(tangent, _cast(_inner(slope, pushed), type_.dtype))
    return [loss], [tangent]


def _jvp_of_those_that_count(primals: Values, pushed: Value | None, **params: Any) -> WithTangents:
    x, table, targets, weights = primals
    if pushed is None:
        return _of_those_that_count(x, table, targets, weights, False, **params), [None]
    loss, slope = _of_those_that_count(x, table, targets, weights, True, **params)
    return [loss], [_cast(_inner(slope, pushed), type_of(loss).dtype)]


def _joined(parts: Values) -> Value:
    return parts[0] if len(parts) == 1 else _op("concatenate", *parts, axis=0)


def _inner(a: Value, b: Value) -> Value:
    return _op("sum", _op("mul", a, b), axes=tuple(range(type_of(a).ndim)))


def _batch(
    t: Transforms, size: int, batched: Sequence[bool], args: Values, **params: Any
) -> Batched:
    """One lane after the other, so that never more than a chunk of one lane's logits exist."""
    order = sorted(range(len(args)), key=lambda i: batched[i])
    values = [args[i] for i in order]
    types = [
        ArrayType(type_of(a).dtype, type_of(a).shape[batched[i] :])
        for i, a in zip(order, values, strict=True)
    ]

    def body(*lane: Value) -> list[Value]:
        return [*linear_cross_entropy(*(lane[order.index(i)] for i in range(len(args))), **params)]

    program, consts = stage(body, types, "linear_cross_entropy")
    assert not consts
    loop = {"carry": 0, "length": size, "reverse": False}
    results = OPS["scan"](*values, body=program, consts=len(args) - sum(batched), **loop)
    return Batched(tuple(results), (True,))


linear_cross_entropy = define(
    "linear_cross_entropy",
    higher=True,
    doc="Weighted cross-entropy of x times a table: [R,D] x [V,D], i32[R], [R] -> [].",
    type=_type,
    numpy=_numpy,
    jvp=_jvp,
    batch=_batch,
    decompose=parts,
    dtypes="",
)
