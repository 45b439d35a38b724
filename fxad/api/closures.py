"""What a function captured, as arguments of its own: closure_convert, custom_gradient.

g, captured = closure_convert(f, x)
g(x, *captured) == f(x)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fxad.api.custom import custom_vjp
from fxad.api.flat import FlatFunction, flatten_args, name_of
from fxad.core.errors import TreeError
from fxad.core.node_types import Partial
from fxad.trace.tracer import stage, type_of
from fxad.transform.context import run


def closure_convert(
    function: Callable[..., Any], *examples: Any
) -> tuple[Callable[..., Any], list[Any]]:
    """(converted, captured) with converted(*args, *captured) = function(*args).

    The function is traced once for arguments like `examples` (pytrees of arrays); every array it
    captured is in `captured`. For rules of custom_jvp and custom_vjp that take functions.
    """
    leaves, tree = flatten_args((examples, {}), f"closure_convert({name_of(function)})")
    flat = FlatFunction(function, tree)
    weak = [bool(getattr(v, "weak", False)) for v in leaves]
    program, captured = stage(flat, [type_of(v) for v in leaves], name_of(function), weak)

    def converted(*args: Any) -> Any:
        count = len(examples)
        given, given_tree = flatten_args((args[:count], {}), name_of(function))
        if given_tree != tree:
            raise TreeError(f"closure_convert: arguments have structure {given_tree}, not {tree}")
        return flat.tree.unflatten(run(program.closed(), [*args[count:], *given]))

    return converted, captured


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns (result, rule) as one that returns the result, differentiated in
    reverse by rule(cotangent) -> cotangents of the arguments (one, or a tuple).

    @custom_gradient
    def f(x):
        return x**2, lambda ct: 3 * ct * x
    """

    @custom_vjp
    def call(*args: Any) -> Any:
        return function(*args)[0]

    def forward(*args: Any) -> tuple[Any, Any]:
        result, rule = function(*args)
        converted, captured = closure_convert(rule, result)
        return result, Partial(converted, *captured)

    def backward(rule: Partial, cotangent: Any) -> Any:
        found = rule.func(cotangent, *rule.args)
        return found if isinstance(found, tuple) else (found,)

    call.defvjp(forward, backward)
    return functools.wraps(function)(lambda *args: call(*args))
