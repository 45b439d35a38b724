"""Elementwise ops: what `unary` and `binary` fill in of an op's record.

sin = unary("sin", jvp=lambda dx, x, y: mul(dx, cos(x)), dtypes="float complex")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType, Type
from fxad.ir.kernel import Cast, Prim
from fxad.ir.loops import Pointwise
from fxad.ir.prims import PRIMS, ScalarFunction, same
from fxad.ir.program import OPS, Lit
from fxad.ir.rewrite import literal
from fxad.ops.base import Primitive, Unknown, case, check_kind, define, narrow, only, spread
from fxad.trace.array import Array
from fxad.trace.tracer import bind, type_of

if TYPE_CHECKING:
    from fxad.ir.rules import (
        AnyValue,
        AnyValues,
        BatchRule,
        BinaryJvp,
        JvpRule,
        SamplesRule,
        Tangents,
        UnaryJvp,
        Value,
        Values,
    )

F32 = dt.float32


class Elementwise(Primitive[Array]):
    """Operands of one shape; Python numbers become Lits of the first array operand's dtype, and
    rank-0 arrays are broadcast."""

    __slots__ = ()

    def __call__(self, *args: AnyValue, **params: Any) -> Array:
        return bind(self, *_align(args), **params)


def _aligned_already(args: AnyValues) -> bool:
    """Whether all are Arrays of one type, or Lits."""
    like: ArrayType | None = None
    for arg in args:
        if type(arg) is Lit:
            continue
        if not isinstance(arg, Array) or (like is not None and arg.type is not like):
            return False
        like = arg.type
    return True


def _align(args: AnyValues) -> AnyValues:
    if _aligned_already(args):
        return args
    like: Type | None = None
    shape: tuple[int, ...] = ()
    mixed = False
    for arg in args:
        if type(arg) in (int, float, bool, complex):
            mixed = True
            continue
        type_ = type_of(arg)
        if like is None and not isinstance(arg, Lit):
            like = type_
        if type_.shape and not shape:
            shape = type_.shape
        elif type_.shape != shape:
            mixed = True
    if not mixed:
        return list(args)
    aligned: list[AnyValue] = []
    for arg in args:
        if type(arg) in (int, float, bool, complex):
            dtype = like.dtype if like is not None else np.asarray(arg).dtype
            if type(arg) is bool:
                dtype = dt.bool_
            aligned.append(literal(arg, dtype))
        elif shape and not isinstance(arg, Lit) and type_of(arg).shape == ():
            aligned.append(bind(OPS["broadcast"], arg, shape=shape, axes=()))
        else:
            aligned.append(arg)
    return aligned


def same_type(name: str, allowed: str) -> Callable[..., ArrayType]:
    """Type rule: all operands of one dtype of the allowed kinds, one shape (or rank 0)."""

    def rule(*types: ArrayType, **params: Any) -> ArrayType:
        first = types[0]
        if types.count(first) == len(types):
            check_kind(name, first, allowed)
            return first
        for t in types:
            if t.dtype != first.dtype:
                seen = ", ".join(map(str, types))
                raise TypeMismatch(f"{name}: operands differ in dtype: {seen}; convert one side")
        check_kind(name, first, allowed)
        return ArrayType(first.dtype, common_shape(name, types))

    return rule


def common_shape(name: str, types: Sequence[ArrayType]) -> tuple[int, ...]:
    shape: tuple[int, ...] = ()
    for t in types:
        if t.shape and shape and t.shape != shape:
            seen = ", ".join(map(str, types))
            raise ShapeError(f"{name}: operands differ in shape: {seen}")
        shape = t.shape or shape
    return shape


def elementwise_batch(op_name: str) -> BatchRule:
    """Batch rule of an elementwise op: unbatched operands are broadcast along the new axis."""

    def rule(size: int, batched: Sequence[bool], args: Values, **params: Any) -> Value:
        full_args = [
            a if b or isinstance(a, Lit) else spread(a, size)
            for a, b in zip(args, batched, strict=True)
        ]
        return bind(OPS[op_name], *full_args, **params)

    return rule


@overload
def fit(cotangent: Value, arg: Unknown) -> Value: ...
@overload
def fit(cotangent: Value | None, arg: Unknown) -> Value | None: ...
def fit(cotangent: Value | None, arg: Unknown) -> Value | None:
    """Cotangent for an operand that may have been a rank-0 one: sum over what it was spread."""
    if cotangent is None or type_of(cotangent).shape == arg.shape:
        return cotangent
    axes = tuple(range(type_of(cotangent).ndim))
    return bind(OPS["sum"], cotangent, axes=axes)


def numpy_elementwise(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Reference of an elementwise op: f16 and bf16 compute in f32 and round once."""

    def rule(*arrays: np.ndarray, **params: Any) -> np.ndarray:
        dtype = arrays[0].dtype
        if dtype.itemsize < 4 and dt.is_float(dtype):
            wide = function(*[a.astype(F32) for a in arrays], **params)
            return narrow(wide, dtype) if wide.dtype == F32 else wide
        result = function(*arrays, **params)
        return result if type(result) is np.ndarray else np.asarray(result)

    rule.direct = function  # type: ignore[attr-defined]  # what it is for other dtypes
    return rule


def _scalar_function(name: str) -> ScalarFunction:
    if name not in PRIMS:
        raise ValueError(
            f"op {name!r}: fxad.ir.prims has no scalar function of that name; "
            "add a record of it there, or give numpy= and loops="
        )
    return PRIMS[name]


def prim(name: str) -> Callable[..., Pointwise]:
    """Loop body of an elementwise op that is a scalar function. Raises ValueError if none has
    that name."""
    result = _scalar_function(name).result
    assert result is not None, f"{name}: its dtype is not told by its arguments'"

    def loops(types: Sequence[ArrayType], **params: Any) -> Pointwise:
        return Pointwise(lambda *xs: Prim(name, xs, result(xs[-1].dtype)))

    return loops


def _result_type(name: str, allowed: str) -> Callable[..., ArrayType]:
    """Type rule: `same_type`, with the dtype that the scalar primitive gives."""
    check = same_type(name, allowed)
    result = PRIMS[name].result if name in PRIMS else None
    if result is None or result is same:
        return check

    def rule(*types: ArrayType) -> ArrayType:
        type_ = check(*types)
        return type_.with_dtype(result(type_.dtype))

    return rule


def convert_loops(types: Sequence[ArrayType], *, dtype: np.dtype) -> Pointwise:
    return Pointwise(lambda x: Cast(x, dtype))


def unary(
    name: str,
    *,
    numpy: Callable[..., np.ndarray] | None = None,
    dtypes: str = "float complex",
    jvp: UnaryJvp | Literal["linear"] | None = None,
    samples: SamplesRule | None = None,
    **rules: Any,
) -> Primitive[Array]:
    """An elementwise function of one operand; jvp(dx, x, y). Reference, loop body and the result's
    dtype, where left out, are those of the scalar function of its name (`fxad.ir.prims`)."""
    return define(
        name,
        kind=Elementwise,
        type=rules.pop("type", None) or _result_type(name, dtypes),
        numpy=rules.pop("reference", None)
        or numpy_elementwise(numpy or _scalar_function(name).numpy),
        jvp=jvp if jvp is None or isinstance(jvp, str) else _unary_jvp(jvp),
        batch=elementwise_batch(name),
        loops=rules.pop("loops", None) or prim(name),
        dtypes=dtypes,
        samples=samples or (lambda r: [case(r.x(3, 4)), case(r.x()), case(r.x(0, 2))]),
        **rules,
    )


def _unary_jvp(rule: UnaryJvp) -> JvpRule:
    def jvp(primals: Values, tangents: Tangents, out: Value, **params: Any) -> Value | None:
        return rule(only(tangents), primals[0], out, **params)

    return jvp


def binary(
    name: str,
    *,
    numpy: Callable[..., np.ndarray] | None = None,
    dtypes: str = "float complex int",
    jvp: Sequence[BinaryJvp | None] | Literal["linear"] | None = None,
    samples: SamplesRule | None = None,
    **rules: Any,
) -> Primitive[Array]:
    """An elementwise function of two operands; jvp = (rule of dx, rule of dy), each
    rule(d, x, y, out); their sum is the tangent. What is left out is as in `unary`."""
    return define(
        name,
        kind=Elementwise,
        type=rules.pop("type", None) or _result_type(name, dtypes),
        numpy=rules.pop("reference", None)
        or numpy_elementwise(numpy or _scalar_function(name).numpy),
        jvp=jvp if jvp is None or isinstance(jvp, str) else _binary_jvp(jvp),
        batch=elementwise_batch(name),
        loops=rules.pop("loops", None) or prim(name),
        dtypes=dtypes,
        samples=samples
        or (lambda r: [case(r.x(3, 4), r.x(3, 4)), case(r.x(), r.x()), case(r.x(5), r.lit(2))]),
        **rules,
    )


def _binary_jvp(rules: Sequence[BinaryJvp | None]) -> JvpRule:
    def jvp(primals: Values, tangents: Tangents, out: Value, **params: Any) -> Value | None:
        total: Value | None = None
        for rule, tangent in zip(rules, tangents, strict=True):
            if tangent is None or rule is None:
                continue
            term = rule(tangent, *primals, out)
            if term is not None:
                total = term if total is None else bind(OPS["add"], total, term)
        return total

    return jvp
