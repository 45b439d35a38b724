"""Functions over pytrees: nested dicts, lists, tuples, namedtuples, dataclasses and own nodes.

>>> tree = {"w": [1, 2], "b": None}
>>> map(lambda x: 10 * x, tree)
{'b': None, 'w': [10, 20]}
>>> [keystr(path) for path, _ in leaves_with_path(tree)]
["['w'][0]", "['w'][1]"]

None has no leaves; dicts go by sorted key; a class that is not registered is a leaf. This module
is meant to be used by its name (`pytree.map`), since some functions share names with built-ins.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fxad.core.errors import TreeError, TypeMismatch
from fxad.core.keypath import (
    AttrKey,
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    KeyPath,
    SequenceKey,
    describe_path,
    keystr,
)
from fxad.core.node_types import Partial, register_dataclass, register_node
from fxad.core.treedef import (
    LEAF,
    IsLeaf,
    TreeDef,
    children_with_keys,
    flatten,
    mismatch,
    node_type,
    unflatten,
)

__all__ = [
    "LEAF",
    "AttrKey",
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "KeyPath",
    "Partial",
    "SequenceKey",
    "TreeDef",
    "all",
    "all_leaves",
    "broadcast",
    "broadcast_prefix",
    "describe_path",
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
    "same_structure_or_raise",
    "structure",
    "transpose",
    "unflatten",
]


def leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves from left to right."""
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: IsLeaf = None) -> TreeDef:
    """The structure without the leaves."""
    return flatten(tree, is_leaf)[1]


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Apply `f` to each leaf of `tree` and the subtrees of `rest` at the same place.

    Raises TreeError naming the path if a tree of `rest` lacks the structure of `tree`.
    """
    first, treedef = flatten(tree, is_leaf)
    columns = [first, *(treedef.flatten_up_to(other) for other in rest)]
    return unflatten(treedef, [f(*args) for args in zip(*columns, strict=True)])


def reduce(
    f: Callable[[Any, Any], Any], tree: Any, *initializer: Any, is_leaf: IsLeaf = None
) -> Any:
    """Fold the leaves from the left, starting at `initializer` if one is given."""
    if len(initializer) > 1:
        raise TypeError(f"reduce takes (f, tree[, initializer]); got {2 + len(initializer)} values")
    return functools.reduce(f, leaves(tree, is_leaf), *initializer)


def all(tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether every leaf is true."""
    return builtins.all(leaves(tree, is_leaf))


def all_leaves(values: Iterable[Any], is_leaf: IsLeaf = None) -> bool:
    """Whether every value is a leaf by itself."""
    return builtins.all(structure(value, is_leaf) is LEAF for value in values)


# Paths


def flatten_with_path(
    tree: Any, is_leaf: IsLeaf = None
) -> tuple[list[tuple[KeyPath, Any]], TreeDef]:
    """Like `flatten`, each leaf with the path that leads to it."""
    out: list[tuple[KeyPath, Any]] = []
    return out, _flatten_with_path(tree, (), out, is_leaf)


def _flatten_with_path(
    tree: Any, path: KeyPath, out: list[tuple[KeyPath, Any]], is_leaf: IsLeaf
) -> TreeDef:
    node = None if is_leaf is not None and is_leaf(tree) else node_type(type(tree))
    if node is None:
        out.append((path, tree))
        return LEAF
    before = len(out)
    pairs, data = children_with_keys(node, tree)
    children = [_flatten_with_path(child, (*path, key), out, is_leaf) for key, child in pairs]
    return TreeDef(node, data, tuple(children), len(out) - before)


def leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    """`[(path, leaf), ...]` from left to right."""
    return flatten_with_path(tree, is_leaf)[0]


def map_with_path(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Like `map`, with the leaf's path as the first argument of `f`."""
    pairs, treedef = flatten_with_path(tree, is_leaf)
    columns = [treedef.flatten_up_to(other) for other in rest]
    rows = zip(pairs, *columns, strict=True)
    return unflatten(treedef, [f(path, leaf, *args) for (path, leaf), *args in rows])


# Prefixes and transposition


def broadcast_prefix(prefix: Any, tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """Repeat each leaf of `prefix` for every leaf of `tree` below it: one value per leaf of `tree`.

    `tree` may be a TreeDef. `vmap` reads `in_axes` this way, with `is_leaf=lambda x: x is None`.
    Raises TreeError naming the path where `prefix` is no prefix of `tree`.
    """
    treedef = tree if type(tree) is TreeDef else structure(tree)
    out: list[Any] = []
    _broadcast_prefix(prefix, treedef, (), out, is_leaf)
    return out


def _broadcast_prefix(
    prefix: Any, treedef: TreeDef, path: KeyPath, out: list[Any], is_leaf: IsLeaf
) -> None:
    node = None if is_leaf is not None and is_leaf(prefix) else node_type(type(prefix))
    if node is None:
        out.extend([prefix] * treedef.num_leaves)
        return
    pairs, data = children_with_keys(node, prefix)
    children = treedef.children()
    if node is not treedef.node or data != treedef.data or len(pairs) != len(children):
        raise mismatch(structure(prefix, is_leaf), treedef, path, "the prefix has", "the tree has")
    for (key, child), child_def in zip(pairs, children, strict=True):
        _broadcast_prefix(child, child_def, (*path, key), out, is_leaf)


def broadcast(prefix: Any, tree: Any, is_leaf: IsLeaf = None) -> Any:
    """The leaves of `prefix` repeated into the structure of `tree`."""
    return unflatten(structure(tree), broadcast_prefix(prefix, tree, is_leaf))


def flatten_prefix(prefix: Any, tree: Any, is_leaf: IsLeaf = None) -> list[tuple[Any, Any]]:
    """`[(leaf of prefix, subtree of tree at the same place), ...]`."""
    first, treedef = flatten(prefix, is_leaf)
    return list(zip(first, treedef.flatten_up_to(tree), strict=True))


def transpose(outer: TreeDef, inner: TreeDef | None, tree: Any) -> Any:
    """Turn a tree of structure outer-of-inner inside out: inner-of-outer.

    `inner=None` takes the structure of the first subtree.
    """
    subtrees = outer.flatten_up_to(tree)
    if inner is None:
        if not subtrees:
            raise TreeError("transpose: outer structure has no leaves, so give the inner structure")
        inner = structure(subtrees[0])
    rows = []
    for subtree in subtrees:
        row, treedef = flatten(subtree)
        if treedef != inner:
            same_structure_or_raise(inner, treedef, "transpose")
        rows.append(row)
    columns = zip(*rows, strict=True) if rows else [()] * inner.num_leaves
    return unflatten(inner, [unflatten(outer, column) for column in columns])


# Errors


def same_structure_or_raise(a: Any, b: Any, what: str) -> None:
    """Raise TreeError naming the first path at which two trees (or TreeDefs) differ.

    `what` opens the message, for instance "scan: carry in and carry out".
    """
    first, second = (x if type(x) is TreeDef else structure(x) for x in (a, b))
    if first == second:
        return
    path, x, y = _first_difference(first, second, ())
    raise TreeError(f"{what}: {mismatch(x, y, path, 'the first is', 'the second is')}")


def _first_difference(a: TreeDef, b: TreeDef, path: KeyPath) -> tuple[KeyPath, TreeDef, TreeDef]:
    if a.node is b.node and a.data == b.data and len(a.children()) == len(b.children()):
        for key, x, y in zip(a.keys(), a.children(), b.children(), strict=True):
            if x != y:
                return _first_difference(x, y, (*path, key))
    return path, a, b


def leaf_error(
    leaf: Any, path: KeyPath | str = (), expected: str = "an array or a number"
) -> TypeError:
    """The error for a leaf that is no array, with the fix that suits its type.

    path: where it is, as a path or in words.
    """
    name = type(leaf).__name__
    where = path if isinstance(path, str) else describe_path(path)
    text = f"{where} is {_article(name)}, expected {expected}"
    if isinstance(leaf, type):
        fix = f"this is the class {leaf.__name__} itself; pass an instance"
    elif dataclasses.is_dataclass(leaf):
        fix = (
            f"if its fields hold arrays, put @fxad.tree.register_dataclass above class {name} "
            f"(mark constant fields with field(metadata={{'static': True}}))"
        )
    elif isinstance(leaf, (str, bytes)) or callable(leaf):
        fix = "mark it static (static_argnums, static_argnames), or leave it out of the tree"
    elif isinstance(leaf, (dict, list, tuple, set, frozenset)):
        node = f"fxad.tree.register_node({name}, ...)"
        fix = f"convert it to a plain dict, list or tuple, or use {node}"
    else:
        fix = f"if it holds arrays, use fxad.tree.register_node({name}, flatten, unflatten)"
    return TypeMismatch(f"{text}: {fix}")


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def treedef_tuple(children: Sequence[TreeDef]) -> TreeDef:
    """The structure of a tuple whose items have the given structures."""
    node = node_type(tuple)
    return TreeDef(node, None, tuple(children), sum(child.num_leaves for child in children))
