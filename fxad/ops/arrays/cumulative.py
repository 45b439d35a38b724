"""Running combinations along an axis: cumsum, cumprod, cummax, cummin, cumlogsumexp.

    cumsum(x, axis=0, reverse=False)     # x: f32[4] -> f32[4], x0, x0 + x1, ...

Elements are combined one after another; half-width floats accumulate in f32. Tangents of all but
cumsum are computed by doubling (Hillis and Steele 1986): log2(n) steps of ordinary ops, which
have derivatives themselves, so that every order is exact, with zeros and infinities too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core.types import ArrayType
from fxad.ir.loops import Scan
from fxad.ops.arrays.movement import concatenate
from fxad.ops.arrays.reduce import SUMS, cut, widened
from fxad.ops.arrays.slicing import check_axes
from fxad.ops.base import Primitive, case, check_kind, define, fails, narrow, only
from fxad.ops.elements.arithmetic import add, max, min, mul, sub
from fxad.ops.elements.compare import eq, is_finite, select
from fxad.ops.elements.math import exp, log
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Cotangents, Operands, Tangents, Value, Values
    from fxad.trace.array import Array

Parts = tuple["Value", ...]  # arrays that are combined together


def doubling(
    combine: Callable[[Parts, Parts], Parts], values: Parts, axis: int, reverse: bool
) -> Parts:
    """Running combination of tuples of arrays; combine(earlier, later) is associative."""
    length = type_of(values[0]).shape[axis]
    step = 1
    while step < length:
        rest = length - step
        front, back = ([cut(v, at, rest, axis) for v in values] for at in (0, step))
        earlier, later = (back, front) if reverse else (front, back)
        joined = combine(tuple(earlier), tuple(later))
        kept = [cut(v, rest if reverse else 0, step, axis) for v in values]
        values = tuple(
            concatenate(*((j, k) if reverse else (k, j)), axis=axis)
            for k, j in zip(kept, joined, strict=True)
        )
        step *= 2
    return values


def _scan_jvp(combine: Callable[[Parts, Parts], Parts]) -> Callable[..., Any]:
    """Tangents by the running combination of pairs (value, tangent)."""

    def jvp(primals: Values, tangents: Tangents, out: Value, *, axis: int, reverse: bool) -> Value:
        return doubling(combine, (primals[0], only(tangents)), axis, reverse)[1]

    return jvp


def _reference(function: np.ufunc) -> Callable[..., np.ndarray]:
    def rule(x: np.ndarray, *, axis: int, reverse: bool) -> np.ndarray:
        wide = widened(x)
        flipped = np.flip(wide, axis) if reverse else wide
        result = function.accumulate(flipped, axis, dtype=wide.dtype)
        return narrow(np.flip(result, axis) if reverse else result, x.dtype)

    return rule


def _cumulative(
    name: str, monoid: str, function: np.ufunc, allowed: str, **rules: Any
) -> Primitive[Array]:
    def type_rule(x: ArrayType, *, axis: int, reverse: bool) -> ArrayType:
        check_kind(name, x, allowed)
        check_axes(name, (axis,), x)
        return x

    def batch(
        size: int, batched: Sequence[bool], args: Values, *, axis: int, reverse: bool
    ) -> Value:
        return op(args[0], axis=axis + 1, reverse=reverse)

    if monoid:
        rules["loops"] = lambda types, *, axis, reverse: Scan(monoid, axis, reverse)
    op = define(
        name,
        type=type_rule,
        numpy=_reference(function),
        batch=batch,
        dtypes=allowed,
        samples=lambda r: [
            case(r.x(3, 4), axis=1, reverse=False),
            case(r.x(3, 4), axis=0, reverse=True),
            case(r.x(7), axis=0, reverse=True),
            case(r.x(1), axis=0, reverse=False),
            case(r.x(2, 0), axis=1, reverse=False),
            fails(r.x(3), axis=1, reverse=False, saying="axis 1 is not an axis"),
        ],
        **rules,
    )
    return op


# ---------------------------------------------------------------- cumsum, cumprod


def _cumsum_transpose(ct: Value, args: Operands, *, axis: int, reverse: bool) -> Cotangents:
    return [cumsum(ct, axis=axis, reverse=not reverse)]


def _multiply(earlier: Parts, later: Parts) -> Parts:
    (x, dx), (y, dy) = earlier, later
    return mul(x, y), add(mul(dx, y), mul(x, dy))


cumsum = _cumulative(
    "cumsum",
    "add",
    np.add,
    "float complex int",
    doc="Running sums; from the end if reverse.",
    jvp="linear",
    transpose=_cumsum_transpose,
    ulp=SUMS,
)
cumprod = _cumulative(
    "cumprod",
    "mul",
    np.multiply,
    "float complex int",
    doc="Running products; from the end if reverse.",
    jvp=_scan_jvp(_multiply),
    ulp=SUMS,
)

# ---------------------------------------------------------------- cummax, cummin


def _extremum(op: Primitive[Array]) -> Callable[[Parts, Parts], Parts]:
    jvp: Any = op.jvp  # of an op on arrays with one result: it answers Value | None

    def combine(earlier: Parts, later: Parts) -> Parts:
        (x, dx), (y, dy) = earlier, later
        out = op(x, y)
        return out, jvp((x, y), (dx, dy), out)

    return combine


cummax = _cumulative(
    "cummax",
    "max",
    np.maximum,
    "float int",
    doc="Running maxima; NaN from the first NaN on. At a tie earlier and later share the gradient.",
    jvp=_scan_jvp(_extremum(max)),
    exact=True,
)
cummin = _cumulative(
    "cummin",
    "min",
    np.minimum,
    "float int",
    doc="Running minima; NaN from the first NaN on. At a tie earlier and later share the gradient.",
    jvp=_scan_jvp(_extremum(min)),
    exact=True,
)

# ---------------------------------------------------------------- cumlogsumexp


def _finite(x: Value) -> Value:
    """x, with 0 for infinities, so that differences from it are never inf - inf."""
    return select(is_finite(x), x, 0.0)


def _log_add(x: Value, y: Value) -> Value:
    """log(exp(x) + exp(y)) without overflow."""
    largest = _finite(max(x, y))
    return add(log(add(exp(sub(x, largest)), exp(sub(y, largest)))), largest)


def _log_add_pair(earlier: Parts, later: Parts) -> Parts:
    (x, dx), (y, dy) = earlier, later
    out = _log_add(x, y)
    base = _finite(out)
    return out, add(mul(dx, exp(sub(x, base))), mul(dy, exp(sub(y, base))))


def _cumlogsumexp_jvp(primals: Values, tangents: Tangents, out: Value, **params: Any) -> Value:
    """An element that is -inf has weight 0 everywhere."""
    x = primals[0]
    dx = select(eq(x, -math.inf), 0.0, only(tangents))
    return _scan_jvp(_log_add_pair)((x,), (dx,), out, **params)


def _cumlogsumexp_parts(x: Value, *, axis: int, reverse: bool) -> Value:
    def combine(earlier: Parts, later: Parts) -> Parts:
        return (_log_add(earlier[0], later[0]),)

    return doubling(combine, (x,), axis, reverse)[0]


cumlogsumexp = _cumulative(
    "cumlogsumexp",
    "",
    np.logaddexp,
    "float",
    doc="Running log(sum(exp(x))) without overflow; of nothing but -inf it is -inf, gradient 0.",
    jvp=_cumlogsumexp_jvp,
    decompose=_cumlogsumexp_parts,
    ulp={"f16": 2, "bf16": 2, "f32": 16, "f64": 16},
)
