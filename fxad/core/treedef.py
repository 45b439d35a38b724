"""The structure of a pytree (`TreeDef`), the registry of node types, flatten and unflatten.

>>> leaves, treedef = flatten({"b": [1, 2], "a": None})
>>> leaves, str(treedef)
([1, 2], "TreeDef({'a': None, 'b': [*, *]})")
>>> unflatten(treedef, [3, 4])
{'a': None, 'b': [3, 4]}
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fxad.core.errors import TreeError
from fxad.core.keypath import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    KeyPath,
    SequenceKey,
    describe_path,
)

Flatten = Callable[[Any], tuple[Iterable[Any], Any]]
Unflatten = Callable[[Any, Sequence[Any]], Any]
IsLeaf = Callable[[Any], bool] | None


class NodeType:
    """How one class flattens into children and static data, and back.

    `keys(data, count)` gives one path key per child from the static data; where only an instance
    knows its keys, `flatten_with_keys` gives `((key, child), ...), data`.
    """

    __slots__ = ("cls", "flatten", "flatten_with_keys", "keys", "show", "unflatten")

    def __init__(
        self,
        cls: type,
        flatten: Flatten,
        unflatten: Unflatten,
        keys: Callable[[Any, int], Iterable[Any]],
        show: Callable[[Any, list[str]], str],
        flatten_with_keys: Flatten | None = None,
    ) -> None:
        self.cls = cls
        self.flatten = flatten
        self.unflatten = unflatten
        self.keys = keys
        self.show = show
        self.flatten_with_keys = flatten_with_keys


class TreeDef:
    """The structure of a pytree without its leaves. Immutable, hashable, compared by value.

    `node` is None for a leaf; `data` is what the node type keeps besides its children.
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

    def children(self) -> tuple[TreeDef, ...]:
        return self._children

    def keys(self) -> tuple[Any, ...]:
        """One path key per child."""
        if self.node is None:
            return ()
        return tuple(_keys_of(self.node, self.data, len(self._children)))

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

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not TreeDef or self.node is not other.node:
            return False
        return (
            self.num_leaves == other.num_leaves
            and self.data == other.data
            and self._children == other._children
        )

    def __hash__(self) -> int:
        if self._hash is None:
            try:
                self._hash = hash((self.node, self.data, self._children))
            except TypeError as error:
                name = self.node.cls.__name__ if self.node else "leaf"
                raise TypeError(
                    f"the static part of pytree node {name} must be hashable ({error}); got "
                    f"{self.data!r}. Make it a tuple or frozenset, or make that field a leaf"
                ) from error
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        cls = None if self.node is None else self.node.cls
        return _rebuild, (cls, self.data, self._children)

    def __str__(self) -> str:
        return f"TreeDef({self.body()})"

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

_nodes: dict[type, NodeType] = {}
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
        node = _nodes[cls] = _namedtuple_type(cls)
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


# Flatten and unflatten


def flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeDef]:
    """The leaves of `tree` from left to right (dicts by sorted key) and its structure.

    `is_leaf(subtree)` may stop the descent early. Raises TreeError for unsortable dict keys.
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
    """Put leaves into a structure. Raises TreeError if their number differs from `num_leaves`."""
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
        if data == treedef.data and len(children) == len(treedef._children):
            for index, child_def in enumerate(treedef._children):
                if child_def is LEAF:
                    out.append(children[index])
                else:
                    _flatten_up_to(child_def, children[index], (*path, (treedef, index)), out)
            return
    raise mismatch(treedef, flatten(tree)[1], resolve(path), "expected", "got")


def resolve(path: KeyPath) -> KeyPath:
    """Turn `(treedef, index)` steps into keys; keys are computed only for messages."""
    return tuple(treedef.keys()[index] for treedef, index in path)


def mismatch(a: TreeDef, b: TreeDef, path: KeyPath, a_is: str, b_is: str) -> TreeError:
    """The error for two structures that differ at `path`."""
    place = describe_path(path)
    text = f"tree structures differ at {place}: {a_is} {a.summary()}, {b_is} {b.summary()}"
    if a.node is b.node and a.node is not None:
        ours, theirs = set(a.keys()), set(b.keys())
        for label, keys in (
            ("only in the former", ours - theirs),
            ("only in the latter", theirs - ours),
        ):
            if keys:
                text += f"; {label}: {', '.join(sorted(map(str, keys)))}"
        if ours == theirs:
            text += f"; static parts {a.data!r} and {b.data!r} differ"
    return TreeError(text)


def _keys_of(node: NodeType, data: Any, count: int) -> Iterable[Any]:
    if node.flatten_with_keys is not None:
        # Only instances know their keys: make one around placeholders. A class may refuse those.
        try:
            dummy = node.unflatten(data, [object()] * count)
            return [key for key, _ in node.flatten_with_keys(dummy)[0]]
        except Exception:
            return _index_keys(data, count)
    return node.keys(data, count)


# Built-in node types


def _index_keys(data: Any, count: int) -> Iterable[Any]:
    return [FlattenedIndexKey(i) for i in range(count)]


def _sequence_keys(data: Any, count: int) -> Iterable[Any]:
    return [SequenceKey(i) for i in range(count)]


def _flatten_dict(tree: dict[Any, Any]) -> tuple[Iterable[Any], Any]:
    try:
        keys = sorted(tree)
    except TypeError as error:
        kinds = ", ".join(sorted({type(key).__name__ for key in tree}))
        raise TreeError(
            f"dict keys must be sortable to be a pytree ({error}); got keys of type {kinds}: "
            f"{', '.join(map(repr, list(tree)[:8]))}. Use keys of one type, or an OrderedDict"
        ) from None
    return [tree[key] for key in keys], tuple(keys)


def _flatten_defaultdict(tree: defaultdict[Any, Any]) -> tuple[Iterable[Any], Any]:
    children, keys = _flatten_dict(tree)
    return children, (tree.default_factory, keys)


def _show_dict(keys: Iterable[Any], children: list[str]) -> str:
    pairs = zip(keys, children, strict=True)
    return f"{{{', '.join(f'{key!r}: {child}' for key, child in pairs)}}}"


def _show_tuple(data: Any, children: list[str]) -> str:
    return f"({children[0]},)" if len(children) == 1 else f"({', '.join(children)})"


def _namedtuple_type(cls: Any) -> NodeType:
    fields: tuple[str, ...] = cls._fields
    return NodeType(
        cls,
        lambda t: (t, None),
        lambda _, children: cls(*children),
        lambda _, count: [GetAttrKey(name) for name in fields],
        lambda _, texts: show_fields(cls, zip(fields, texts, strict=True)),
    )


def show_fields(cls: type, pairs: Iterable[tuple[str, str]]) -> str:
    """`Name(field=*, other=[*, *])`."""
    return f"{cls.__name__}({', '.join(f'{name}={text}' for name, text in pairs)})"


def _rebuild(cls: type | None, data: Any, children: tuple[TreeDef, ...]) -> TreeDef:
    if cls is None:
        return LEAF
    node = node_type(cls)
    if node is None:
        raise TreeError(f"{cls.__name__} is not registered as a pytree node in this process")
    return TreeDef(node, data, children, sum(child.num_leaves for child in children))


for _node in (
    NodeType(
        dict,
        _flatten_dict,
        lambda keys, children: dict(zip(keys, children, strict=True)),
        lambda keys, _: [DictKey(key) for key in keys],
        _show_dict,
    ),
    NodeType(
        OrderedDict,
        lambda t: (t.values(), tuple(t)),
        lambda keys, children: OrderedDict(zip(keys, children, strict=True)),
        lambda keys, _: [DictKey(key) for key in keys],
        lambda keys, texts: f"OrderedDict({_show_dict(keys, texts)})",
    ),
    NodeType(
        defaultdict,
        _flatten_defaultdict,
        lambda data, children: defaultdict(data[0], zip(data[1], children, strict=True)),
        lambda data, _: [DictKey(key) for key in data[1]],
        lambda data, texts: f"defaultdict({_show_dict(data[1], texts)})",
    ),
    NodeType(
        list,
        lambda t: (t, None),
        lambda _, children: children,
        _sequence_keys,
        lambda _, texts: f"[{', '.join(texts)}]",
    ),
    NodeType(
        tuple,
        lambda t: (t, None),
        lambda _, children: tuple(children),
        _sequence_keys,
        _show_tuple,
    ),
    NodeType(
        type(None),
        lambda _: ((), None),
        lambda _, children: None,
        _sequence_keys,
        lambda _, texts: "None",
    ),
):
    add_node_type(_node)
del _node
