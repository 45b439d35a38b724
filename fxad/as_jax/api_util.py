"""Names of `jax.api_util`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from fxad.api.arguments import as_tuple
from fxad.api.shaped_array import ShapedArray, aval_of
from fxad.as_jax.linear_util import WrappedFun
from fxad.as_jax.util import safe_map
from fxad.core import pytree
from fxad.core.errors import BadArgument
from fxad.core.treedef import TreeDef

__all__ = [
    "debug_info",
    "flatten_fun",
    "flatten_fun_nokwargs",
    "infer_argnums_and_argnames",
    "safe_map",
    "shaped_abstractify",
]


def shaped_abstractify(x: Any) -> ShapedArray:
    """The type of an array as a ShapedArray."""
    return aval_of(x)


def debug_info(*args: Any, **kwargs: Any) -> None:
    """None: equations carry the user's line anyway."""


def infer_argnums_and_argnames(
    sig: inspect.Signature,
    argnums: int | Iterable[int] | None,
    argnames: str | Iterable[str] | None,
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """(argnums, argnames) of a function: where one of them is None it follows from the other."""
    if argnums is not None and argnames is not None:
        return as_tuple(argnums), as_tuple(argnames)
    numbers, names = as_tuple(argnums), as_tuple(argnames)
    both = [
        (number, parameter.name)
        for number, parameter in enumerate(sig.parameters.values())
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and (number in numbers or parameter.name in names)
    ]
    return (
        tuple(number for number, _ in both) if argnums is None else numbers,
        tuple(name for _, name in both) if argnames is None else names,
    )


def flatten_fun(f: WrappedFun, in_tree: TreeDef) -> tuple[WrappedFun, Callable[[], TreeDef]]:
    """The function of the leaves of (args, kwargs), and what gives the structure of its result once
    it has been called."""

    def call(args: Any) -> Any:
        positional, named = args
        return f.call_wrapped(*positional, **named)

    return _flat(call, in_tree, f)


def flatten_fun_nokwargs(
    f: WrappedFun, in_tree: TreeDef
) -> tuple[WrappedFun, Callable[[], TreeDef]]:
    """The same of the leaves of args."""
    return _flat(lambda args: f.call_wrapped(*args), in_tree, f)


def _flat(
    call: Callable[[Any], Any], in_tree: TreeDef, f: WrappedFun
) -> tuple[WrappedFun, Callable[[], TreeDef]]:
    seen: list[TreeDef] = []

    def flat(*leaves: Any) -> list[Any]:
        found, tree = pytree.flatten(call(in_tree.unflatten(leaves)))
        seen[:] = [tree]
        return found

    def out_tree() -> TreeDef:
        if not seen:
            raise BadArgument("the structure of the result is known once the function was called")
        return seen[0]

    return WrappedFun(flat, debug_info=f.debug_info), out_tree
