"""What a function captured, as arguments of its own: closure_convert, custom_gradient.

g, captured = closure_convert(f, x)
g(x, *captured) == f(x)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fxad.api.custom_vjp import custom_vjp
from fxad.api.flat import FlatFunction, flatten_args, name_of
from fxad.core import pytree
from fxad.core.errors import ShapeError, TreeError
from fxad.core.masks import merge, select
from fxad.core.node_types import Partial
from fxad.ir.program import OPS, Symbol
from fxad.ops.programs.captures import staged
from fxad.trace.tracer import Tracer, stage, type_of
from fxad.transform.context import run


def closure_convert(
    function: Callable[..., Any], *examples: Any
) -> tuple[Callable[..., Any], list[Any]]:
    """(converted, captured) with converted(*args, *captured) = function(*args).

    The function is traced once for arguments like `examples` (pytrees of arrays). `captured` holds
    the traced values that it captured; constants stay inside. For rules of custom_jvp and
    custom_vjp that take functions.
    """
    leaves, tree = flatten_args((examples, {}), f"closure_convert({name_of(function)})")
    flat = FlatFunction(function, tree)
    weak = [bool(getattr(v, "weak", False)) for v in leaves]
    program, captured = stage(flat, [type_of(v) for v in leaves], name_of(function), weak)
    hoisted = [isinstance(c, Tracer) for c in captured]
    inside = select(captured, hoisted, False)

    def converted(*args: Any) -> Any:
        count = len(examples)
        given, given_tree = flatten_args((args[:count], {}), name_of(function))
        if given_tree != tree:
            raise TreeError(f"closure_convert: arguments have structure {given_tree}, not {tree}")
        if len(args) - count != sum(hoisted):
            raise TreeError(
                f"closure_convert: {name_of(function)} captured {sum(hoisted)} values, to be given "
                f"one by one after its {count} arguments; the call has {len(args) - count}"
            )
        consts = merge(hoisted, args[count:], inside)
        return flat.tree.unflatten(run(program.closed(), [*consts, *given]))

    return converted, select(captured, hoisted)


def linear_call(
    function: Callable[[Any, Any], Any],
    transpose: Callable[[Any, Any], Any],
    residuals: Any,
    linear: Any,
) -> Any:
    """function(residuals, linear), linear in its second argument, with a transpose of its own:
    transpose(residuals, cotangent of the result) -> cotangent of `linear`. The transpose of that is
    the function again.

    Transposing raises TreeError or ShapeError if that gives another structure or other types.
    """
    name = name_of(function)
    fixed, fixed_tree = flatten_args((residuals,), f"linear_call({name})")
    given, tree = flatten_args((linear,), f"linear_call({name})")
    wanted = [type_of(v) for v in given]
    forward = FlatFunction(function, _both(fixed_tree, tree))
    apply = staged(forward, [*(type_of(v) for v in fixed), *wanted], name)
    out_tree = pytree.treedef_tuple([forward.tree])

    def back(*values: Any) -> list[Any]:
        (residual,) = fixed_tree.unflatten(values[: len(fixed)])
        (cotangent,) = out_tree.unflatten(values[len(fixed) :])
        found = linear_call(transpose, function, residual, cotangent)
        leaves, seen = flatten_args((found,), f"the transpose of linear_call({name})")
        if seen != tree:
            raise TreeError(
                f"linear_call({name}): the transpose gives {seen}, the argument is {tree}"
            )
        if [type_of(v) for v in leaves] != wanted:
            raise ShapeError(
                f"linear_call({name}): the transpose gives {[str(v.type) for v in leaves]} for "
                f"arguments {list(map(str, wanted))}"
            )
        return leaves

    symbol = Symbol(name_of(transpose), back)
    outs = OPS["linear_call"](*fixed, *given, count=len(fixed), apply=apply, transpose=symbol)
    return forward.tree.unflatten(outs)


def _both(first: pytree.TreeDef, second: pytree.TreeDef) -> pytree.TreeDef:
    """The structure of ((a, b), {}) from those of (a,) and (b,)."""
    args = pytree.treedef_tuple([*first.children(), *second.children()])
    return pytree.treedef_tuple([args, pytree.structure({})])


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
