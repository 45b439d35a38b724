"""Names of `jax.interpreters.mlir`: how primitives are compiled (see `primitives`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxad.api import jaxpr
from fxad.as_jax.primitives import Primitive, lowerings

__all__ = ["LoweringRuleContext", "lower_fun", "register_lowering"]


class LoweringRuleContext:
    """What JAX gives a rule that builds MLIR. Nothing here: such rules are not called."""


class _Lowering:
    """A function by which a primitive is compiled."""

    def __init__(self, fun: Callable[..., Any], multiple_results: bool) -> None:
        self.fun, self.multiple_results = fun, multiple_results


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> Any:
    """What compiles a primitive as the function does: fun(*args, **params)."""
    return _Lowering(fun, multiple_results)


def register_lowering(
    prim: jaxpr.Primitive,
    rule: Any,
    platform: str | None = None,
    inline: bool = True,
    cacheable: bool = True,
) -> Any:
    """Compile a primitive by what `lower_fun` gives. Nothing for another platform than the CPU,
    nor for a rule that builds MLIR, since there is no XLA: compiled programs then call the
    primitive's implementation."""
    if platform not in (None, "cpu") or not isinstance(rule, _Lowering):
        return rule
    if isinstance(prim, Primitive):
        prim.renew()
    fun = rule.fun
    if prim.multiple_results and not rule.multiple_results:
        lowerings[prim] = lambda *args, **params: (fun(*args, **params),)
    else:
        lowerings[prim] = fun
    return rule
