"""`jax.tree_util.default_registry`: how classes flatten, asked of a registry as an object.

default_registry.flatten_one_level({"b": 1, "a": 2})    # ([2, 1], ("a", "b"))
type(x) in _registry                                    # whether x is a node, by its class
_registry[type(x)].to_iter(x)                           # (children, static data)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from fxad import tree
from fxad.core import treedef
from fxad.core.containers import Flatten, NodeType, Unflatten

__all__ = ["PyTreeRegistry", "default_registry"]


class PyTreeRegistry:
    """The registry of all functions that take pytrees. There is one."""

    def flatten(
        self, tree: Any, leaf_predicate: Callable[[Any], bool] | None = None
    ) -> tuple[list[Any], treedef.TreeDef]:
        """Leaves and structure."""
        return treedef.flatten(tree, leaf_predicate)

    def flatten_with_path(
        self, tree: Any, leaf_predicate: Callable[[Any], bool] | None = None
    ) -> tuple[list[tuple[Any, Any]], treedef.TreeDef]:
        """Leaves, each with its path, and structure."""
        return _with_path(tree, leaf_predicate)

    def flatten_one_level(self, tree: Any) -> tuple[Iterable[Any], Any] | None:
        """(children, static data) of a node, None of a leaf."""
        node = treedef.node_type(type(tree))
        if node is None:
            return None
        children, data = node.flatten(tree)
        if _named(node):
            return list(children), type(tree)
        return (children if node.cls is tuple or tree is None else list(children)), data

    def flatten_one_level_with_keys(self, tree: Any) -> tuple[Iterable[Any], Any] | None:
        """((key, child) of each child, static data) of a node, None of a leaf."""
        node = treedef.node_type(type(tree))
        if node is None:
            return None
        pairs, data = treedef.children_with_keys(node, tree)
        return tuple(pairs), type(tree) if _named(node) else data

    def is_node(self, type: type) -> bool:
        """Whether instances of a class have children."""
        return treedef.node_type(type) is not None

    def register_node(
        self,
        type: type,
        to_iterable: Callable[[Any], tuple[Iterable[Any], Any]],
        from_iterable: Callable[[Any, Any], Any],
        to_iterable_with_keys: Callable[[Any], tuple[Any, Any]] | None = None,
    ) -> None:
        """Have instances of a class flatten. Raises ValueError if they do already."""
        if to_iterable_with_keys is None:
            tree.register_pytree_node(type, to_iterable, from_iterable)
        else:
            tree.register_pytree_with_keys(type, to_iterable_with_keys, from_iterable, to_iterable)

    def register_dataclass_node(
        self, type: type, data_fields: list[str], meta_fields: list[str], /
    ) -> None:
        """Have a dataclass flatten to some of its fields. Raises ValueError if it does already."""
        tree.register_dataclass(type, data_fields, meta_fields)


_with_path = tree.flatten_with_path


def _named(node: NodeType) -> bool:
    return issubclass(node.cls, tuple) and hasattr(node.cls, "_fields")


class Entry(NamedTuple):
    """How a class flattens: to_iter(x) is (children, static data), from_iter(data, children) x."""

    to_iter: Flatten
    from_iter: Unflatten


class _ByClass(Mapping[type, Entry]):
    """How each registered class flattens, by the class."""

    def __contains__(self, cls: object) -> bool:
        return isinstance(cls, type) and treedef.node_type(cls) is not None

    def __getitem__(self, cls: type) -> Entry:
        node = treedef.node_type(cls)
        if node is None:
            raise KeyError(cls)
        return Entry(node.flatten, node.unflatten)

    def __iter__(self) -> Iterator[type]:
        return iter(treedef.registered())

    def __len__(self) -> int:
        return len(treedef.registered())


default_registry = PyTreeRegistry()
_registry = _ByClass()
