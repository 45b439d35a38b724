"""`closure_convert`: what a function captured, as arguments of its own.

g, captured = closure_convert(f, x)
g(x, *captured) == f(x)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxad.api.flat import FlatFunction, flatten_args, name_of
from fxad.core.errors import TreeError
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
