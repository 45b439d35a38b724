"""The structure of a pytree (`TreeDef`), the registry of node types, flatten and unflatten.

>>> leaves, treedef = flatten({"b": [1, 2], "a": None})
>>> leaves, str(treedef)
([1, 2], "PyTreeDef({'a': None, 'b': [*, *]})")
>>> unflatten(treedef, [3, 4])
{'a': None, 'b': [3, 4]}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fxad.core.containers import CONTAINERS, NodeType, index_keys, namedtuple_type
from fxad.core.errors import TreeError
from fxad.core.keypath import DictKey, KeyPath, describe_path

IsLeaf = Callable[[Any], bool] | None


class TreeDef:
    """The structure of a pytree without its leaves. Immutable, hashable, compared by value.

    `node` is None for a leaf; `data` is what the node type keeps besides its children.

    >>> fxad.tree.structure({"a": 1, "b": [2, 3]})
    PyTreeDef({'a': *, 'b': [*, *]})
    >>> fxad.tree.structure({"a": 1, "b": [2, 3]}).num_leaves
    3
    """

    __slots__ = ("_children", "_hash", "data", "node", "num_leaves")

    def __init__(
        self, node: NodeType | None, data: Any, children: tuple[TreeDef, ...], num_leaves: int
    ) -> None:
        self.node = node
        self.data = data
        self._children = children
        self.num_leaves = num_leaves
        self._hash: int | None = None

    def children(self) -> list[TreeDef]:
        """The structures one level down."""
        return list(self._children)

    def keys(self) -> tuple[Any, ...]:
        """One path key per child."""
        if self.node is None:
            return ()
        return tuple(_keys_of(self.node, self.data, len(self._children)))

    def paths(self) -> list[KeyPath]:
        """The way to each leaf. No node is made from leaves that are none."""
        if self.node is None:
            return [()]
        pairs = zip(self.keys(), self._children, strict=True)
        return [(key, *rest) for key, child in pairs for rest in child.paths()]

    @property
    def num_nodes(self) -> int:
        """Number of nodes, leaves included."""
        return 1 + sum(child.num_nodes for child in self._children)

    @property
    def is_leaf(self) -> bool:
        return self.node is None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        return unflatten(self, leaves)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The subtrees of `tree` at this structure's leaves. Raises TreeError naming the path."""
        out: list[Any] = []
        _flatten_up_to(self, tree, (), out)
        return out

    def compose(self, inner: TreeDef) -> TreeDef:
        """This structure with `inner` in the place of every leaf."""
        if self.node is None:
            return inner
        children = tuple([child.compose(inner) for child in self._children])
        return TreeDef(self.node, self.data, children, self.num_leaves * inner.num_leaves)

    def walk(
        self,
        at_node: Callable[[tuple[Any, ...], Any], Any],
        at_leaf: Callable[[Any], Any] | None,
        leaves: Iterable[Any],
    ) -> Any:
        """Fold the tree: `at_leaf` gives the value of a leaf (None: the leaf itself), `at_node`
        that of a node from its children's values and its static data. Returns the root's."""
        return _walk(self, at_node, at_leaf, iter(leaves))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not TreeDef or self.node is not other.node:
            return False
        return (
            self.num_leaves == other.num_leaves
            and same_data(self.data, other.data)
            and self._children == other._children
        )

    def __hash__(self) -> int:
        if self._hash is None:
            try:
                self._hash = hash((self.node, self.data, self._children))
            except TypeError:  # static data that cannot be hashed still compares
                self._hash = hash((self.node, self._children))
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        cls = None if self.node is None else self.node.cls
        return _rebuild, (cls, self.data, self._children)

    def __str__(self) -> str:
        return f"PyTreeDef({self.body()})"

    __repr__ = __str__

    def body(self) -> str:
        """The structure as text, a star for each leaf."""
        if self.node is None:
            return "*"
        return self.node.show(self.data, [child.body() for child in self._children])

    def summary(self) -> str:
        """One level of the structure, for error messages."""
        if self.node is None:
            return "a leaf"
        if self.node.cls is type(None):
            return "None"
        name, count = self.node.cls.__name__, len(self._children)
        names = ", ".join(repr(k.key) for k in self.keys()[:8] if isinstance(k, DictKey))
        if names:
            return f"{name} with keys {names}{', ...' if count > 8 else ''}"
        return f"{name} of {count}"


LEAF = TreeDef(None, None, (), 1)

_nodes: dict[type, NodeType] = {node.cls: node for node in CONTAINERS}
# Classes seen as leaves, so that most leaves cost one set lookup. Bounded: it keeps classes alive.
_leaf_types: set[type] = set()
_MAX_LEAF_TYPES = 1024
_NO_TYPES: set[type] = set()


def node_type(cls: type) -> NodeType | None:
    """The registered node type of a class; None if its instances are leaves."""
    node = _nodes.get(cls)
    if node is not None or cls in _leaf_types:
        return node
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        node = _nodes[cls] = namedtuple_type(cls)
        return node
    if len(_leaf_types) >= _MAX_LEAF_TYPES:
        _leaf_types.clear()
    _leaf_types.add(cls)
    return None


def add_node_type(node: NodeType) -> None:
    """Register a class. Raises ValueError if it already is a node."""
    if node.cls in _nodes:
        raise ValueError(f"{node.cls.__name__} is already a pytree node")
    _nodes[node.cls] = node
    _leaf_types.discard(node.cls)


def registered() -> list[type]:
    """The classes whose instances are nodes, named tuples where one was seen."""
    return list(_nodes)


# Flatten and unflatten


def flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeDef]:
    """The leaves of `tree` from left to right (dicts by sorted key) and its structure.

    `is_leaf(subtree)` may stop the descent early. Raises TreeError for unsortable dict keys.

    >>> leaves, structure = fxad.tree.flatten({"b": [3, 4], "a": 1})
    >>> leaves
    [1, 3, 4]
    >>> fxad.tree.unflatten(structure, ["first", "second", "third"])
    {'a': 'first', 'b': ['second', 'third']}
    """
    out: list[Any] = []
    return out, _flatten(tree, out, is_leaf, _leaf_types if is_leaf is None else _NO_TYPES)


def _flatten(tree: Any, out: list[Any], is_leaf: IsLeaf, known_leaves: set[type]) -> TreeDef:
    node = None if is_leaf is not None and is_leaf(tree) else node_type(type(tree))
    if node is None:
        out.append(tree)
        return LEAF
    before = len(out)
    children, data = node.flatten(tree)
    defs: list[TreeDef] = []
    for child in children:
        if type(child) in known_leaves:
            out.append(child)
            defs.append(LEAF)
        else:
            defs.append(_flatten(child, out, is_leaf, known_leaves))
    return TreeDef(node, data, tuple(defs), len(out) - before)


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """Put leaves into a structure. Raises TreeError if their number differs from `num_leaves`.

    >>> structure = fxad.tree.structure({"a": 0, "b": [0, 0]})
    >>> fxad.tree.unflatten(structure, [1, 2, 3])
    {'a': 1, 'b': [2, 3]}
    """
    if type(treedef) is not TreeDef:
        raise TypeError(f"unflatten takes (treedef, leaves); got {type(treedef).__name__} first")
    leaves = list(leaves)
    if len(leaves) != treedef.num_leaves:
        raise TreeError(f"{treedef} has {treedef.num_leaves} leaves, got {len(leaves)}")
    return _unflatten(treedef, iter(leaves))


def _unflatten(treedef: TreeDef, leaves: Iterator[Any]) -> Any:
    if treedef.node is None:
        return next(leaves)
    children = [
        next(leaves) if child is LEAF else _unflatten(child, leaves) for child in treedef._children
    ]
    return treedef.node.unflatten(treedef.data, children)


def _walk(treedef: TreeDef, at_node: Any, at_leaf: Any, leaves: Iterator[Any]) -> Any:
    if treedef.node is None:
        leaf = next(leaves)
        return leaf if at_leaf is None else at_leaf(leaf)
    values = tuple([_walk(child, at_node, at_leaf, leaves) for child in treedef._children])
    data = treedef.data
    return at_node(values, list(data) if treedef.node.cls is dict else data)


def children_with_keys(node: NodeType, tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    """One level of `tree`: `[(key, child), ...]` and its static data."""
    if node.flatten_with_keys is not None:
        pairs, data = node.flatten_with_keys(tree)
        return [(key, child) for key, child in pairs], data
    children, data = node.flatten(tree)
    children = list(children)
    return list(zip(node.keys(data, len(children)), children, strict=True)), data


def _flatten_up_to(treedef: TreeDef, tree: Any, path: KeyPath, out: list[Any]) -> None:
    if treedef.node is None:
        out.append(tree)
        return
    node = node_type(type(tree))
    if node is treedef.node:
        children, data = node.flatten(tree)
        children = list(children)
        if same_data(data, treedef.data) and len(children) == len(treedef._children):
            for index, child_def in enumerate(treedef._children):
                if child_def is LEAF:
                    out.append(children[index])
                else:
                    _flatten_up_to(child_def, children[index], (*path, (treedef, index)), out)
            return
    text = _unlike(treedef, tree)
    if node is treedef.node:
        text += _only_in(treedef, flatten(tree)[1])
    raise TreeError(f"tree structures differ at {describe_path(resolve(path))}: {text}")


def _unlike(treedef: TreeDef, tree: Any) -> str:
    """What keeps `tree` from having the root of `treedef`, in the words of `jax.tree_util`."""
    assert treedef.node is not None
    cls, seen = treedef.node.cls, _shown(tree)
    name, count = cls.__name__, len(treedef._children)
    if cls in (list, tuple, dict, type(None)) and type(tree) is not cls:
        return f"Expected {'None' if cls is type(None) else name}, got {seen}."
    if cls in (list, tuple):
        return f"{name.capitalize()} arity mismatch: {len(tree)} != {count}; {name}: {seen}."
    if cls is dict:
        return f"Dict key mismatch; expected keys: {list(treedef.data)}; dict: {seen}."
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and type(tree) is not cls:
        if not hasattr(tree, "_fields"):
            return f"Expected named tuple, got {seen}."
        return f"Named tuple type mismatch: expected type: {cls}, tuple: {seen}."
    if type(tree) is not cls:
        return f"Custom node type mismatch: expected type: {cls}, value: {seen}."
    return f"Mismatch custom node data or arity: expected {treedef.body()}; value: {seen}."


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def resolve(path: KeyPath) -> KeyPath:
    """Turn `(treedef, index)` steps into keys; keys are computed only for messages."""
    return tuple(treedef.keys()[index] for treedef, index in path)


def mismatch(a: TreeDef, b: TreeDef, path: KeyPath, a_is: str, b_is: str) -> TreeError:
    """The error for two structures that differ at `path`."""
    text = difference(a, b, a_is, b_is)
    return TreeError(f"tree structures differ at {describe_path(path)}: {text}")


def difference(a: TreeDef, b: TreeDef, a_is: str, b_is: str) -> str:
    """Two nodes that differ, in words: `expected list of 1, got a leaf`."""
    return f"{a_is} {a.summary()}, {b_is} {b.summary()}{_only_in(a, b)}"


def _only_in(a: TreeDef, b: TreeDef) -> str:
    """What two nodes of one type do not have in common: keys, else static data."""
    if a.node is not b.node or a.node is None:
        return ""
    ours, theirs = set(a.keys()), set(b.keys())
    if ours == theirs:
        return f"; static parts {a.data!r} and {b.data!r} differ"
    sides = (("only in the former", ours - theirs), ("only in the latter", theirs - ours))
    return "".join(f"; {side}: {', '.join(sorted(map(str, keys)))}" for side, keys in sides if keys)


def same_data(a: Any, b: Any) -> bool:
    """Whether the static data of two nodes agree. Raises TreeError if `==` cannot tell."""
    try:
        return bool(a == b)
    except Exception as error:
        raise TreeError(
            "Exception raised while checking equality of metadata fields of pytree. Metadata "
            f"needs an == that gives a bool, so it cannot hold arrays: {_shown(a)}"
        ) from error


def _keys_of(node: NodeType, data: Any, count: int) -> Iterable[Any]:
    if node.flatten_with_keys is not None:
        # Only instances know their keys: make one around placeholders. A class may refuse those.
        try:
            dummy = node.unflatten(data, [object()] * count)
            return [key for key, _ in node.flatten_with_keys(dummy)[0]]
        except Exception:
            return index_keys(data, count)
    return node.keys(data, count)


def _rebuild(cls: type | None, data: Any, children: tuple[TreeDef, ...]) -> TreeDef:
    if cls is None:
        return LEAF
    node = node_type(cls)
    if node is None:
        raise TreeError(f"{cls.__name__} is not registered as a pytree node in this process")
    return TreeDef(node, data, children, sum(child.num_leaves for child in children))
