"""Between functions over pytrees and functions over flat lists of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import TypeMismatch
from fxad.core.node_types import register_node
from fxad.core.pytree import KeyPath, SequenceKey, TreeDef, describe_path
from fxad.core.record import valued
from fxad.trace.array import Array
from fxad.trace.convert import is_array_like, to_value


def flatten_args(
    args: Any, what: str, place: Callable[[KeyPath], str] = describe_path
) -> tuple[list[Array], TreeDef]:
    """Leaves as Arrays, and the structure. Errors name the leaf's path, as `place` prints it.

    Arrays of `float0` hold nothing: they become part of the structure.
    """
    leaves, tree = pytree.flatten(args)
    if any(map(dt.is_float0, leaves)):
        args = with_float0_nodes(args)
        leaves, tree = pytree.flatten(args)
    return [
        leaf if isinstance(leaf, Array) else _leaf(leaf, args, i, what, place)
        for i, leaf in enumerate(leaves)
    ], tree


def called_by_python(
    function: Callable[..., Any],
    args: tuple,
    kwargs: dict[str, Any],
    what: str,
    place: Callable[[KeyPath], str] = describe_path,
) -> Any:
    """function(*args, **kwargs), run at once with Arrays where traced code would have them: NumPy's
    arithmetic would be neither fxad's nor seen by `debug.nans`. Its results are Arrays, too."""
    leaves, tree = flatten_args((args, kwargs), what, place)
    args, kwargs = tree.unflatten(leaves)
    results = function(*args, **kwargs)
    return pytree.map(lambda v: v if dt.is_float0(v) else to_value(v, what), results)


@valued
class Float0:
    """In a structure: an array of `float0`, which unflattening makes again."""

    shape: tuple[int, ...]


register_node(
    Float0, lambda node: ((), node.shape), lambda shape, children: np.zeros(shape, dt.float0)
)


def with_float0_nodes(tree: Any) -> Any:
    """The tree with arrays of `float0` as nodes without leaves."""
    return pytree.map(lambda v: Float0(v.shape) if dt.is_float0(v) else v, tree)


@valued
class Number:
    """In a structure: a Python number, which stays one."""

    value: bool | int | float | complex


register_node(Number, lambda node: ((), node.value), lambda value, children: value)


NUMBERS = (bool, int, float, complex)


def with_number_nodes(tree: Any) -> Any:
    """The tree with Python's numbers as nodes without leaves."""
    return pytree.map(lambda v: Number(v) if type(v) in NUMBERS else v, tree)


def call_place(path: KeyPath) -> str:
    """How to reach a leaf of (args, kwargs): `args[0]['w']`."""
    head = "args" if path[0] == SequenceKey(0) else "kwargs"
    return head + pytree.keystr(path[1:])


def kind_of(value: Any) -> str:
    """What a value is, for messages."""
    return f"an array {value.type}" if isinstance(value, Array) else f"a {type(value).__name__}"


def _leaf(leaf: Any, tree: Any, number: int, what: str, place: Callable[[KeyPath], str]) -> Array:
    if is_array_like(leaf) or hasattr(leaf, "__array__") or hasattr(leaf, "__jax_array__"):
        return to_value(leaf, what)
    path = pytree.leaves_with_path(tree)[number][0]
    error = pytree.leaf_error(leaf, place(path))
    raise TypeMismatch(f"{what}: {error}")


class FlatFunction:
    """`function(*args, **kwargs)` seen as flat arrays to flat arrays.

    After a call `tree` is the TreeDef of the result, and `weak` says which results are weak.
    """

    def __init__(
        self, function: Callable[..., Any], tree: TreeDef, has_aux: bool = False, what: str = ""
    ) -> None:
        self.function = function
        self.in_tree = tree
        self.has_aux = has_aux
        self.what = what or getattr(function, "__name__", "function")
        self.tree: Any = None
        self.aux_tree: Any = None
        self.count = 0
        self.weak: tuple[bool, ...] = ()

    def __call__(self, *leaves: Any) -> list[Any]:
        args, kwargs = self.in_tree.unflatten(leaves)
        result = self.function(*args, **kwargs)
        aux_leaves: list[Any] = []
        if self.has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                raise TypeMismatch(
                    f"{self.what}: with has_aux=True the function must return (output, aux), "
                    f"not {kind_of(result)}"
                )
            result, aux = result
            aux_leaves, self.aux_tree = flatten_args(aux, f"auxiliary output of {self.what}")
        outs, self.tree = flatten_args(result, f"result of {self.what}")
        self.count = len(outs)
        everything = [*outs, *aux_leaves]
        self.weak = tuple(bool(getattr(o, "weak", False)) for o in everything)
        return everything

    def result(self, leaves: Sequence[Any]) -> Any:
        """The function's result (with aux beside it if it has one) rebuilt from leaves."""
        out = self.tree.unflatten(leaves[: self.count])
        if self.has_aux:
            return out, self.aux_tree.unflatten(leaves[self.count :])
        return out


def name_of(function: Callable[..., Any]) -> str:
    """A printable identifier for a function. Raises TypeMismatch for what cannot be called."""
    if not callable(function):
        raise TypeMismatch(f"expected a function, got {type(function).__name__} ({function!r:.60})")
    name = getattr(function, "__name__", type(function).__name__)
    return name if isinstance(name, str) and name.isidentifier() else "f"
