"""How classes flatten: `NodeType`, and those of Python's own containers.

A dict goes by sorted key, an OrderedDict by its own order, None has no children. Structures print
as in JAX: `{'a': *}`, `(*, *)`, and `CustomNode(Name[static data], [children])` for the rest.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fxad.core.errors import TreeError
from fxad.core.keypath import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

Flatten = Callable[[Any], tuple[Iterable[Any], Any]]
Unflatten = Callable[[Any, Sequence[Any]], Any]


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


def index_keys(data: Any, count: int) -> Iterable[Any]:
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


def namedtuple_type(cls: Any) -> NodeType:
    fields: tuple[str, ...] = cls._fields
    return NodeType(
        cls,
        lambda t: (t, None),
        lambda _, children: cls(*children),
        lambda _, count: [GetAttrKey(name) for name in fields],
        lambda _, texts: show_custom("namedtuple", cls.__name__, texts),
    )


def show_custom(name: str, data: Any, children: Iterable[str]) -> str:
    """`CustomNode(Name[data], [*, *])`."""
    return f"CustomNode({name}[{data}], [{', '.join(children)}])"


CONTAINERS = (
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
        lambda keys, texts: show_custom("OrderedDict", keys, texts),
    ),
    NodeType(
        defaultdict,
        _flatten_defaultdict,
        lambda data, children: defaultdict(data[0], zip(data[1], children, strict=True)),
        lambda data, _: [DictKey(key) for key in data[1]],
        lambda data, texts: show_custom("defaultdict", data, texts),
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
)
