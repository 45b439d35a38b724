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
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
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
    difference,
    flatten,
    mismatch,
    node_type,
    same_data,
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
    "prefix_errors",
    "reduce",
    "register_dataclass",
    "register_node",
    "same_structure_or_raise",
    "structure",
    "transpose",
    "unflatten",
]


def leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves from left to right.

    >>> fxad.tree.leaves({"b": [3, 4], "a": 1})
    [1, 3, 4]
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: IsLeaf = None) -> TreeDef:
    """The structure without the leaves.

    >>> fxad.tree.structure({"w": 1, "b": (2, 3)})
    PyTreeDef({'b': (*, *), 'w': *})
    >>> fxad.tree.structure([1, 2]) == fxad.tree.structure(["a", "b"])
    True
    """
    return flatten(tree, is_leaf)[1]


_MISSING = object()  # no initializer, which None would be


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Apply `f` to each leaf of `tree` and the subtrees of `rest` at the same place.

    Raises TreeError naming the path if a tree of `rest` lacks the structure of `tree`.

    >>> fxad.tree.map(lambda p, g: p - 0.1 * g, {"w": 1.0, "b": [2.0]}, {"w": 5.0, "b": [10.0]})
    {'b': [1.0], 'w': 0.5}
    """
    first, treedef = flatten(tree, is_leaf)
    columns = [first, *(treedef.flatten_up_to(other) for other in rest)]
    return unflatten(treedef, [f(*args) for args in zip(*columns, strict=True)])


def reduce(
    function: Callable[[Any, Any], Any],
    tree: Any,
    initializer: Any = _MISSING,
    is_leaf: IsLeaf = None,
) -> Any:
    """Fold the leaves from the left, starting at `initializer` if one is given.

    >>> fxad.tree.reduce(lambda total, x: total + x, {"a": 1, "b": [2, 3]})
    6
    """
    start = () if initializer is _MISSING else (initializer,)
    return functools.reduce(function, leaves(tree, is_leaf), *start)


def all(tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether every leaf is true.

    >>> fxad.tree.all({"a": True, "b": [1, 0]})
    False
    """
    return builtins.all(leaves(tree, is_leaf))


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf = None) -> bool:
    """Whether every value is a leaf by itself.

    >>> fxad.tree.all_leaves([1.0, 2.0]), fxad.tree.all_leaves([1.0, (2.0, 3.0)])
    (True, False)
    """
    return builtins.all(structure(value, is_leaf) is LEAF for value in iterable)


# Paths


def flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], TreeDef]:
    """Like `flatten`, each leaf with the path that leads to it.

    `is_leaf_takes_path=True` calls `is_leaf(path, subtree)`.

    >>> found, _ = fxad.tree.flatten_with_path({"layers": [{"w": 1.0}]})
    >>> [(fxad.tree.keystr(path), leaf) for path, leaf in found]
    [("['layers'][0]['w']", 1.0)]
    """
    out: list[tuple[KeyPath, Any]] = []
    stop = is_leaf
    if is_leaf is not None and not is_leaf_takes_path:
        stop = lambda path, subtree: is_leaf(subtree)  # noqa: E731
    return out, _flatten_with_path(tree, (), out, stop)


def _flatten_with_path(
    tree: Any,
    path: KeyPath,
    out: list[tuple[KeyPath, Any]],
    is_leaf: Callable[[KeyPath, Any], bool] | None,
) -> TreeDef:
    node = None if is_leaf is not None and is_leaf(path, tree) else node_type(type(tree))
    if node is None:
        out.append((path, tree))
        return LEAF
    before = len(out)
    pairs, data = children_with_keys(node, tree)
    children = [_flatten_with_path(child, (*path, key), out, is_leaf) for key, child in pairs]
    return TreeDef(node, data, tuple(children), len(out) - before)


def leaves_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """`[(path, leaf), ...]` from left to right.

    >>> for path, leaf in fxad.tree.leaves_with_path({"b": [3, 4], "a": 1}):
    ...     print(fxad.tree.keystr(path), leaf)
    ['a'] 1
    ['b'][0] 3
    ['b'][1] 4
    """
    return flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """Like `map`, with the leaf's path as the first argument of `f`.

    >>> def name(path, leaf):
    ...     return fxad.tree.keystr(path, simple=True, separator=".")
    >>> fxad.tree.map_with_path(name, {"mlp": [{"w": 1, "b": 2}]})
    {'mlp': [{'b': 'mlp.0.b', 'w': 'mlp.0.w'}]}
    """
    pairs, treedef = flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    columns = [treedef.flatten_up_to(other) for other in rest]
    rows = zip(pairs, *columns, strict=True)
    return unflatten(treedef, [f(path, leaf, *args) for (path, leaf), *args in rows])


# Prefixes and transposition


def broadcast_prefix(prefix: Any, tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """Repeat each leaf of `prefix` for every leaf of `tree` below it: one value per leaf of `tree`.

    `tree` may be a TreeDef. `vmap` reads `in_axes` this way, with `is_leaf=lambda x: x is None`.
    Raises TreeError naming the path where `prefix` is no prefix of `tree`.

    >>> fxad.tree.broadcast_prefix({"a": 1, "b": 2}, {"a": [0, 0], "b": {"c": 0}})
    [1, 1, 2]
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
    alike = node is treedef.node and same_data(data, treedef.data)
    if not alike or len(pairs) != len(children):
        raise next(_prefix_errors(prefix, treedef, path, is_leaf))("prefix")
    for (key, child), child_def in zip(pairs, children, strict=True):
        _broadcast_prefix(child, child_def, (*path, key), out, is_leaf)


def prefix_errors(
    prefix: Any, tree: Any, is_leaf: IsLeaf = None
) -> list[Callable[[str], TreeError]]:
    """One error for each place that keeps `prefix` from being a prefix of `tree` (or TreeDef), as
    a function of the name by which the message calls the prefix.

    >>> (error,) = fxad.tree.prefix_errors([0, 0], [1, 2, 3])
    >>> print(str(error("in_axes")).splitlines()[0])
    pytree structure error: different lengths of list at key path
    """
    treedef = tree if type(tree) is TreeDef else structure(tree)
    return list(_prefix_errors(prefix, treedef, (), is_leaf))


def _prefix_errors(
    prefix: Any, treedef: TreeDef, path: KeyPath, is_leaf: IsLeaf
) -> Iterator[Callable[[str], TreeError]]:
    node = None if is_leaf is not None and is_leaf(prefix) else node_type(type(prefix))
    if node is None:
        return
    pairs, data = children_with_keys(node, prefix)
    children = treedef.children()
    if node is not treedef.node:
        kind = "different types"
    elif len(pairs) != len(children) and node.cls in (list, tuple):
        kind = f"different lengths of {node.cls.__name__}"
    elif len(pairs) != len(children):
        kind = "different numbers of pytree children"
    elif not same_data(data, treedef.data):
        kind = "different pytree metadata"
    else:
        for (key, child), child_def in zip(pairs, children, strict=True):
            yield from _prefix_errors(child, child_def, (*path, key), is_leaf)
        return
    text = difference(structure(prefix, is_leaf), treedef, "the prefix has", "the tree has")
    if kind.startswith("different numbers") and node.cls is dict:
        unshared = sorted({*data} ^ {*treedef.data}, key=str)
        text += f"; so the symmetric difference on key sets is\n    {' '.join(map(str, unshared))}"
    place = keystr(path)
    yield lambda name: TreeError(
        f"pytree structure error: {kind} at key path\n    {name}{place}: {text}"
    )


def broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> Any:
    """The leaves of `prefix_tree` repeated into the structure of `full_tree`.

    >>> fxad.tree.broadcast({"a": 1, "b": 2}, {"a": [0, 0], "b": {"c": 0}})
    {'a': [1, 1], 'b': {'c': 2}}
    """
    return unflatten(structure(full_tree), broadcast_prefix(prefix_tree, full_tree, is_leaf))


def flatten_prefix(prefix: Any, tree: Any, is_leaf: IsLeaf = None) -> list[tuple[Any, Any]]:
    """`[(leaf of prefix, subtree of tree at the same place), ...]`.

    >>> fxad.tree.flatten_prefix({"a": "slow", "b": "fast"}, {"a": [1, 2], "b": 3})
    [('slow', [1, 2]), ('fast', 3)]
    """
    first, treedef = flatten(prefix, is_leaf)
    return list(zip(first, treedef.flatten_up_to(tree), strict=True))


def transpose(
    outer_treedef: TreeDef, inner_treedef: TreeDef | None, pytree_to_transpose: Any
) -> Any:
    """Turn a tree of structure outer-of-inner inside out: inner-of-outer.

    `inner_treedef=None` takes the structure of the first subtree. Raises TreeError if they do not
    fit.

    >>> outer, inner = fxad.tree.structure([0, 0]), fxad.tree.structure({"loss": 0, "norm": 0})
    >>> fxad.tree.transpose(outer, inner, [{"loss": 1, "norm": 2}, {"loss": 3, "norm": 4}])
    {'loss': [1, 3], 'norm': [2, 4]}
    """
    if inner_treedef is None:
        subtrees = outer_treedef.flatten_up_to(pytree_to_transpose)
        if not subtrees:
            raise TreeError("transpose: outer structure has no leaves, so give the inner structure")
        inner_treedef = structure(subtrees[0])
    values, treedef = flatten(pytree_to_transpose)
    composed = outer_treedef.compose(inner_treedef)
    # A node's static data may depend on its children, so what counts is the tree that is built.
    if treedef.num_leaves != composed.num_leaves or (
        treedef != composed and treedef != structure(unflatten(composed, values))
    ):
        raise TreeError(f"transpose: Mismatch: expected {composed}, got {treedef}")
    columns = [values[i :: inner_treedef.num_leaves] for i in range(inner_treedef.num_leaves)]
    return unflatten(inner_treedef, [unflatten(outer_treedef, column) for column in columns])


# Errors


def same_structure_or_raise(a: Any, b: Any, what: str) -> None:
    """Raise TreeError naming the first path at which two trees (or TreeDefs) differ.

    `what` opens the message, for instance "scan: carry in and carry out".

    >>> fxad.tree.same_structure_or_raise({"a": 1}, {"a": 2}, "before and after")
    """
    first, second = (x if type(x) is TreeDef else structure(x) for x in (a, b))
    if first == second:
        return
    path, x, y = _first_difference(first, second, ())
    raise TreeError(f"{what}: {mismatch(x, y, path, 'the first is', 'the second is')}")


def _first_difference(a: TreeDef, b: TreeDef, path: KeyPath) -> tuple[KeyPath, TreeDef, TreeDef]:
    if a.node is b.node and same_data(a.data, b.data) and len(a.children()) == len(b.children()):
        for key, x, y in zip(a.keys(), a.children(), b.children(), strict=True):
            if x != y:
                return _first_difference(x, y, (*path, key))
    return path, a, b


def leaf_error(
    leaf: Any, path: KeyPath | str = (), expected: str = "an array or a number"
) -> TypeError:
    """The error for a leaf that is no array, with the fix that suits its type.

    path: where it is, as a path or in words.

    >>> print(str(fxad.tree.leaf_error("text", "params.name")).split(" (")[0])
    params.name is a str, expected an array or a number: leave it out of the tree
    """
    import dataclasses

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
    elif builtins.any(_is_arrays(v) for v in _fields(leaf)):
        fix = (
            f"register its class: @dataclass with @fxad.tree.register_dataclass above it, or "
            f"fxad.tree.register_node({name}, flatten, unflatten)"
        )
    elif isinstance(leaf, (str, bytes)) or callable(leaf):
        fix = "leave it out of the tree"
        if where.startswith(("args", "kwargs")):  # a result cannot be static
            fix = (
                "bind it with functools.partial, mark it static where there are options for that "
                f"(static_argnums, static_argnames), or {fix}"
            )
    elif isinstance(leaf, (dict, list, tuple, set, frozenset)):
        node = f"fxad.tree.register_node({name}, ...)"
        fix = f"convert it to a plain dict, list or tuple, or use {node}"
    else:
        fix = f"if it holds arrays, use fxad.tree.register_node({name}, flatten, unflatten)"
    return TypeMismatch(f"{text}: {fix}")


def _fields(leaf: Any) -> Iterable[Any]:
    """The values of an object's own attributes."""
    own = getattr(leaf, "__dict__", None)
    return own.values() if isinstance(own, dict) and not isinstance(leaf, ModuleType) else ()


def _is_arrays(value: Any) -> bool:
    """Whether a value is an array, or holds some in plain containers."""
    if isinstance(value, dict | list | tuple):
        inside = value.values() if isinstance(value, dict) else value
        return builtins.any(_is_arrays(v) for v in inside)
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def treedef_tuple(treedefs: Sequence[TreeDef]) -> TreeDef:
    """The structure of a tuple whose items have the given structures.

    >>> fxad.tree.treedef_tuple([fxad.tree.structure(1), fxad.tree.structure([2])])
    PyTreeDef((*, [*]))
    """
    node = node_type(tuple)
    return TreeDef(node, None, tuple(treedefs), sum(child.num_leaves for child in treedefs))
