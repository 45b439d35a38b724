"""Names of `jax.interpreters.ad`: how primitives are differentiated (see `primitives`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fxad
from fxad.api.jaxpr import Primitive
from fxad.as_jax.primitives import UndefinedPrimal as UndefinedPrimal
from fxad.as_jax.primitives import Zero as Zero
from fxad.as_jax.primitives import instantiate as instantiate_zeros
from fxad.as_jax.primitives import jvps as primitive_jvps
from fxad.as_jax.primitives import transposes as primitive_transposes
from fxad.trace.tracer import Tracer

__all__ = [
    "JVPTracer",
    "UndefinedPrimal",
    "Zero",
    "add_jaxvals",
    "add_tangents",
    "defbilinear",
    "defjvp",
    "defjvp2",
    "deflinear",
    "deflinear2",
    "get_primitive_transpose",
    "instantiate_zeros",
    "is_undefined_primal",
    "primitive_jvps",
    "primitive_transposes",
    "zeros_like_aval",
]

get_primitive_transpose = primitive_transposes.of
JVPTracer = Tracer  # what a function that is differentiated is called with is one


def is_undefined_primal(x: Any) -> bool:
    """Whether only the type of a transpose rule's operand is known."""
    return isinstance(x, UndefinedPrimal)


def zeros_like_aval(aval: Any) -> Any:
    """An array of zeros."""
    return instantiate_zeros(Zero(aval))


def add_jaxvals(x: Any, y: Any) -> Any:
    """x + y."""
    return x + y


def add_tangents(x: Any, y: Any) -> Any:
    """x + y, where either may be a Zero."""
    if isinstance(x, Zero):
        return y
    return x if isinstance(y, Zero) else x + y


def defjvp(primitive: Primitive, *jvprules: Callable[..., Any] | None) -> None:
    """A rule for each operand: rule(tangent, *primals, **params) is the tangent it adds to the
    result's; None: it adds none."""

    def without(rule: Callable[..., Any] | None) -> Callable[..., Any] | None:
        return rule and (lambda t, ans, *primals, **params: rule(t, *primals, **params))

    defjvp2(primitive, *map(without, jvprules))


def defjvp2(primitive: Primitive, *jvprules: Callable[..., Any] | None) -> None:
    """The same for rules that are handed the result: rule(tangent, ans, *primals, **params)."""

    def jvp(primals: Any, tangents: Any, **params: Any) -> Any:
        ans = primitive.bind(*primals, **params)
        total: Any = Zero.from_primal_value(ans)
        for rule, tangent in zip(jvprules, tangents, strict=True):
            if rule is not None and not isinstance(tangent, Zero):
                total = add_tangents(total, rule(tangent, ans, *primals, **params))
        return ans, total

    primitive_jvps[primitive] = jvp


def deflinear(primitive: Primitive, transpose_rule: Callable[..., Any]) -> None:
    """Linear in all operands: transpose_rule(cotangent, **params) is a list of cotangents."""
    deflinear2(primitive, lambda ct, *operands, **params: transpose_rule(ct, **params))


def deflinear2(primitive: Primitive, transpose_rule: Callable[..., Any]) -> None:
    """Linear in all operands: transpose_rule(cotangent, *operands, **params)."""

    def jvp(primals: Any, tangents: Any, **params: Any) -> Any:
        ans = primitive.bind(*primals, **params)
        if all(isinstance(t, Zero) for t in tangents):
            return ans, [*map(Zero.from_primal_value, ans)] if primitive.multiple_results else None
        return ans, primitive.bind(*map(instantiate_zeros, tangents), **params)

    primitive_jvps[primitive] = jvp
    primitive_transposes[primitive] = transpose_rule


def defbilinear(
    prim: Primitive, lhs_rule: Callable[..., Any], rhs_rule: Callable[..., Any]
) -> None:
    """Linear in each of two operands: lhs_rule(cotangent, x, y, **params) and rhs_rule are the
    cotangents of the first and of the second, of which only the type is known."""

    def transpose(ct: Any, x: Any, y: Any, **params: Any) -> Any:
        if is_undefined_primal(x):
            return lhs_rule(ct, x, y, **params), None
        return None, rhs_rule(ct, x, y, **params)

    defjvp(
        prim,
        lambda t, x, y, **params: prim.bind(t, y, **params),
        lambda t, x, y, **params: prim.bind(x, t, **params),
    )
    primitive_transposes[prim] = transpose


jvp, linearize = fxad.jvp, fxad.linearize
