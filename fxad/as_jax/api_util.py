"""Names of `jax.api_util`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    "safe_map",
    "shaped_abstractify",
]


def shaped_abstractify(x: Any) -> ShapedArray:
    """The type of an array as a ShapedArray."""
    return aval_of(x)


def debug_info(*args: Any, **kwargs: Any) -> None:
    """None: equations carry the user's line anyway."""


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
