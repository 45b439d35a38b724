"""Pytrees, under the names of `jax.tree` and `jax.tree_util`.

>>> from fxad import tree
>>> tree.map(lambda x, y: x + y, {"a": 1, "b": (2, 3)}, {"a": 10, "b": (20, 30)})
{'a': 11, 'b': (22, 33)}
"""

from __future__ import annotations

from fxad.core.node_types import (
    Partial,
    register_dataclass,
    register_node,
    register_node_class,
    register_node_with_keys,
    register_node_with_keys_class,
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
    reduce,
    same_structure_or_raise,
    structure,
    transpose,
    treedef_tuple,
    unflatten,
)

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


def treedef_children(treedef: TreeDef) -> tuple[TreeDef, ...]:
    """The structures one level down."""
    return treedef.children()


def treedef_is_leaf(treedef: TreeDef) -> bool:
    """Whether the structure is a single leaf."""
    return treedef.is_leaf


__all__ = [
    "AttrKey",
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "KeyPath",
    "Partial",
    "PyTreeDef",
    "SequenceKey",
    "TreeDef",
    "all",
    "all_leaves",
    "broadcast",
    "broadcast_prefix",
    "flatten",
    "flatten_prefix",
    "flatten_with_path",
    "keystr",
    "leaf_error",
    "leaves",
    "leaves_with_path",
    "map",
    "map_with_path",
    "reduce",
    "register_dataclass",
    "register_node",
    "register_node_class",
    "register_node_with_keys",
    "register_node_with_keys_class",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "same_structure_or_raise",
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
    "tree_structure",
    "tree_transpose",
    "tree_unflatten",
    "treedef_children",
    "treedef_is_leaf",
    "treedef_tuple",
    "unflatten",
]
