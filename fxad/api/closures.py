"""What a function captured, as arguments of its own: closure_convert, custom_gradient.

g, captured = closure_convert(f, x)
g(x, *captured) == f(x)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxad.api.custom_vjp import custom_vjp
from fxad.api.flat import FlatFunction, flatten_args, name_of
from fxad.api.naming import wraps
from fxad.core import pytree
from fxad.core.errors import ShapeError, TreeError
from fxad.core.masks import merge, select
from fxad.core.node_types import Partial
from fxad.ir.program import OPS, Symbol
from fxad.ops.programs.captures import staged
from fxad.trace.tracer import Tracer, stage, type_of
from fxad.transform.context import run


def closure_convert(
    fun: Callable[..., Any], *examples: Any
) -> tuple[Callable[..., Any], list[Any]]:
    """(converted, captured) with converted(*args, *captured) = fun(*args).

    The function is traced once for arguments like `examples` (pytrees of arrays). `captured` holds
    the traced values that it captured; constants stay inside. Rules of custom_jvp and custom_vjp
    that are given functions need this: a derivative by what a function captured is only found if it
    is an argument.

    >>> def scaled(x):
    ...     double, captured = fxad.closure_convert(lambda y: x * y, 1.0)
    ...     print(len(captured), "captured")
    ...     return double(5.0, *captured)
    >>> fxad.grad(scaled)(2.0)
    1 captured
    Array(5., dtype=float32)
    """
    leaves, tree = flatten_args((examples, {}), f"closure_convert({name_of(fun)})")
    flat = FlatFunction(fun, tree)
    weak = [bool(getattr(v, "weak", False)) for v in leaves]
    program, captured = stage(flat, [type_of(v) for v in leaves], name_of(fun), weak)
    hoisted = [isinstance(c, Tracer) for c in captured]
    inside = select(captured, hoisted, False)

    def converted(*args: Any) -> Any:
        count = len(examples)
        given, given_tree = flatten_args((args[:count], {}), name_of(fun))
        if given_tree != tree:
            raise TreeError(f"closure_convert: arguments have structure {given_tree}, not {tree}")
        if len(args) - count != sum(hoisted):
            raise TreeError(
                f"closure_convert: {name_of(fun)} captured {sum(hoisted)} values, to be given "
                f"one by one after its {count} arguments; the call has {len(args) - count}"
            )
        consts = merge(hoisted, args[count:], inside)
        return flat.tree.unflatten(run(program.closed(), [*consts, *given]))

    return converted, select(captured, hoisted)


def linear_call(
    fun: Callable[[Any, Any], Any],
    fun_transpose: Callable[[Any, Any], Any],
    residual_args: Any,
    linear_args: Any,
) -> Any:
    """fun(residual_args, linear_args), linear in its second argument, with a transpose of its own:
    fun_transpose(residual_args, cotangent of the result) -> cotangent of `linear_args`. The
    transpose of that is
    the function again.

    Transposing raises TreeError or ShapeError if that gives another structure or other types.
    """
    name = name_of(fun)
    fixed, fixed_tree = flatten_args((residual_args,), f"linear_call({name})")
    given, tree = flatten_args((linear_args,), f"linear_call({name})")
    wanted = [type_of(v) for v in given]
    forward = FlatFunction(fun, _both(fixed_tree, tree))
    apply = staged(forward, [*(type_of(v) for v in fixed), *wanted], name)
    out_tree = pytree.treedef_tuple([forward.tree])

    def back(*values: Any) -> list[Any]:
        (residual,) = fixed_tree.unflatten(values[: len(fixed)])
        (cotangent,) = out_tree.unflatten(values[len(fixed) :])
        found = linear_call(fun_transpose, fun, residual, cotangent)
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

    symbol = Symbol(name_of(fun_transpose), back)
    outs = OPS["linear_call"](*fixed, *given, count=len(fixed), apply=apply, transpose=symbol)
    return forward.tree.unflatten(outs)


def _both(first: pytree.TreeDef, second: pytree.TreeDef) -> pytree.TreeDef:
    """The structure of ((a, b), {}) from those of (a,) and (b,)."""
    args = pytree.treedef_tuple([*first.children(), *second.children()])
    return pytree.treedef_tuple([args, pytree.structure({})])


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function with its own reverse rule, written in one piece.

    `fun` returns (result, rule), with rule(cotangent) -> cotangents of the arguments (one, or a
    tuple). The new function returns the result alone.

    >>> @fxad.custom_gradient
    ... def square(x):
    ...     return x**2, lambda ct: 100 * ct * x
    >>> fxad.grad(square)(3.0)
    Array(300., dtype=float32)
    """

    @custom_vjp
    def call(*args: Any) -> Any:
        return fun(*args)[0]

    def forward(*args: Any) -> tuple[Any, Any]:
        result, rule = fun(*args)
        converted, captured = closure_convert(rule, result)
        return result, Partial(converted, *captured)

    def backward(rule: Partial, cotangent: Any) -> Any:
        found = rule.func(cotangent, *rule.args)
        return found if isinstance(found, tuple) else (found,)

    call.defvjp(forward, backward)
    return wraps(fun)(lambda *args: call(*args))
