"""Pytrees, under the names of `jax.tree` and `jax.tree_util`.

>>> from fxad import tree
>>> tree.map(lambda x, y: x + y, {"a": 1, "b": (2, 3)}, {"a": 10, "b": (20, 30)})
{'a': 11, 'b': (22, 33)}
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core.errors import TreeError, TypeMismatch
from fxad.core.lazy import lazy as _lazy
from fxad.core.node_types import (
    Partial,
    register_dataclass,
    register_node,
    register_node_class,
    register_node_with_keys,
    register_node_with_keys_class,
    register_static,
)
from fxad.core.pytree import (
    AttrKey,
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    KeyPath,
    SequenceKey,
    TreeDef,
    all,
    all_leaves,
    broadcast,
    broadcast_prefix,
    flatten,
    flatten_prefix,
    flatten_with_path,
    keystr,
    leaf_error,
    leaves,
    leaves_with_path,
    map,
    map_with_path,
    prefix_errors,
    reduce,
    same_structure_or_raise,
    structure,
    transpose,
    treedef_tuple,
    unflatten,
)
from fxad.core.treedef import children_with_keys, node_type

KeyEntry = Any  # one step of a KeyPath: a key of this module, or what a node registers
PyTreeDef = TreeDef
register_pytree_node = register_node
register_pytree_node_class = register_node_class
register_pytree_with_keys = register_node_with_keys
register_pytree_with_keys_class = register_node_with_keys_class
tree_all = all
tree_broadcast = broadcast
tree_flatten = flatten
tree_flatten_with_path = flatten_with_path
tree_leaves = leaves
tree_leaves_with_path = leaves_with_path
tree_map = map
tree_map_with_path = map_with_path
tree_reduce = reduce
tree_structure = structure
tree_transpose = transpose
tree_unflatten = unflatten


def flatten_one_level(tree: Any) -> tuple[list[Any], Any]:
    """(children, static data) of a node. Raises TreeError for a leaf.

    >>> children, _ = fxad.tree.flatten_one_level({"a": [1, 2], "b": 3})
    >>> children
    [[1, 2], 3]
    """
    node = node_type(type(tree))
    if node is None:
        raise TreeError(f"flatten_one_level: can't tree-flatten type: {type(tree)}, a leaf")
    children, data = node.flatten(tree)
    return list(children), data


def flatten_one_level_with_keys(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    """([(key, child), ...], static data) of a node. Raises TreeError for a leaf.

    >>> children, _ = fxad.tree.flatten_one_level_with_keys({"a": [1, 2]})
    >>> children
    [(DictKey(key='a'), [1, 2])]
    """
    node = node_type(type(tree))
    if node is None:
        raise TreeError(
            f"flatten_one_level_with_keys: can't tree-flatten type: {type(tree)}, a leaf"
        )
    return children_with_keys(node, tree)


def static(**options: Any) -> Any:
    """`dataclasses.field(**options)` for a field that `register_dataclass` keeps as static data.

    >>> import dataclasses
    >>> @fxad.tree.register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     weight: fxad.Array
    ...     width: int = fxad.tree.static(default=4)
    >>> fxad.tree.leaves(Layer(1.0))
    [1.0]
    """
    metadata = {"static": True, **(options.pop("metadata", None) or {})}
    return importlib.import_module("dataclasses").field(metadata=metadata, **options)


def is_tree_node(typ: Any) -> bool:
    """Whether the value is a node (registered, or a container) rather than a leaf.

    >>> fxad.tree.is_tree_node([1]), fxad.tree.is_tree_node(1)
    (True, False)
    """
    return node_type(type(typ)) is not None


def reduce_associative(
    operation: Callable[[Any, Any], Any], tree: Any, *, identity: Any = None, is_leaf: Any = None
) -> Any:
    """Fold the leaves with an associative function, in logarithmic depth.

    Raises TreeError for a tree without leaves if there is no identity.

    >>> fxad.tree.reduce_associative(lambda a, b: a + b, {"a": 1, "b": [2, 3]})
    6
    """
    values = leaves(tree, is_leaf)
    if not values:
        if identity is None:
            raise TreeError("reduce_associative: a tree without leaves needs identity=")
        return identity
    while len(values) > 1:
        pairs = zip(values[0::2], values[1::2], strict=False)
        folded = [operation(a, b) for a, b in pairs]
        values = [*folded, *values[2 * len(folded) :]]
    return values[0]


tree_reduce_associative = reduce_associative


def partition(tree: Any, chosen: Any, *, is_leaf: Any = None) -> tuple[Any, Any]:
    """Split a tree in two of its shape: (the chosen leaves, the rest), None for each other's.

    chosen: `leaf -> bool`, or a tree of bools (or of such functions) that is a prefix of `tree`.
    Since None has no leaves, either part can be differentiated, mapped or optimised by itself, and
    `combine` puts them together (Equinox's `partition`). Raises TreeError if `chosen` is no prefix
    of the tree, TypeMismatch if it says anything but true or false.

    >>> params = {"base": 1.0, "adapter": 2.0}
    >>> trained, frozen = partition(params, {"base": False, "adapter": True})
    >>> trained, frozen
    ({'adapter': 2.0, 'base': None}, {'adapter': None, 'base': 1.0})
    >>> combine(trained, frozen)
    {'adapter': 2.0, 'base': 1.0}
    """
    values, treedef = flatten(tree, is_leaf)
    function = callable(chosen) and not is_tree_node(chosen)  # a tree of a class with `__call__`
    masks = [chosen] * len(values) if function else broadcast_prefix(chosen, treedef)
    sides = [_choice(mask, value) for mask, value in zip(masks, values, strict=True)]
    pairs = [(v, None) if side else (None, v) for v, side in zip(values, sides, strict=True)]
    return unflatten(treedef, [a for a, _ in pairs]), unflatten(treedef, [b for _, b in pairs])


def _choice(mask: Any, leaf: Any) -> bool:
    """What a mask, or a function of the leaf, says of a leaf."""
    side = mask(leaf) if callable(mask) else mask
    if not isinstance(side, (bool, np.bool_)):
        raise TypeMismatch(f"partition: a leaf is chosen by True or False, got {side!r}")
    return bool(side)


def combine(*trees: Any, is_leaf: Any = None) -> Any:
    """Put the parts of a tree together: at each place the first that is not None.

    Undoes `partition`. A part may have None where another has a whole subtree, if that other part
    comes later. Raises TreeError where the trees differ otherwise, TypeError without a tree.

    >>> fxad.tree.combine({"w": 1.0, "b": None}, {"w": None, "b": 2.0})
    {'b': 2.0, 'w': 1.0}
    """
    if not trees:
        raise TypeError("combine: at least one tree is needed")

    def ends(value: Any) -> bool:
        return value is None or (is_leaf is not None and is_leaf(value))

    def first(*values: Any) -> Any:
        return next((value for value in values if value is not None), None)

    return map(first, *trees, is_leaf=ends)


def treedef_children(treedef: TreeDef) -> list[TreeDef]:
    """The structures one level down.

    >>> len(fxad.tree.treedef_children(fxad.tree.structure({"a": 1, "b": (2, 3)})))
    2
    """
    return treedef.children()


def treedef_is_leaf(treedef: TreeDef) -> bool:
    """Whether the structure is a single leaf, or a node without any, as in JAX.

    >>> fxad.tree.treedef_is_leaf(fxad.tree.structure(1.0))
    True
    """
    return treedef.num_nodes == 1


__all__ = [
    "AttrKey",
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "KeyEntry",
    "KeyPath",
    "Partial",
    "PyTreeDef",
    "SequenceKey",
    "TreeDef",
    "all",
    "all_leaves",
    "broadcast",
    "broadcast_prefix",
    "combine",
    "flatten",
    "flatten_one_level",
    "flatten_one_level_with_keys",
    "flatten_prefix",
    "flatten_with_path",
    "is_tree_node",
    "keystr",
    "leaf_error",
    "leaves",
    "leaves_with_path",
    "map",
    "map_with_path",
    "partition",
    "prefix_errors",
    "reduce",
    "reduce_associative",
    "register_dataclass",
    "register_node",
    "register_node_class",
    "register_node_with_keys",
    "register_node_with_keys_class",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
    "same_structure_or_raise",
    "static",
    "structure",
    "transpose",
    "tree_all",
    "tree_broadcast",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_reduce_associative",
    "tree_structure",
    "tree_transpose",
    "tree_unflatten",
    "treedef_children",
    "treedef_is_leaf",
    "treedef_tuple",
    "unflatten",
]


if not TYPE_CHECKING:  # TAB completion shows what is public
    __getattr__, __dir__ = _lazy(globals())
