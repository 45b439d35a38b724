"""Where a leaf sits in a pytree: a tuple of keys, printed as the expression that reaches it.

>>> keystr((DictKey("w"), SequenceKey(0), GetAttrKey("bias")))
"['w'][0].bias"
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from fxad.core.record import valued


@valued
class DictKey:
    """`tree[key]` of a mapping.

    >>> path, leaf = fxad.tree.leaves_with_path({"a": 5})[0]
    >>> path, leaf
    ((DictKey(key='a'),), 5)
    """

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@valued
class SequenceKey:
    """`tree[idx]` of a list or tuple.

    >>> fxad.tree.leaves_with_path([5])
    [((SequenceKey(idx=0),), 5)]
    """

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx}]"


@valued
class GetAttrKey:
    """`tree.name` of a namedtuple, dataclass or other object.

    >>> from collections import namedtuple
    >>> Point = namedtuple("Point", "x y")
    >>> fxad.tree.leaves_with_path(Point(1, 2))
    [((GetAttrKey(name='x'),), 1), ((GetAttrKey(name='y'),), 2)]
    """

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@valued
class FlattenedIndexKey:
    """The n-th child of a registered node that names no keys.

    >>> fxad.tree.leaves_with_path(fxad.tree.Partial(max, 7))[0][1]
    7
    """

    key: int

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


AttrKey = GetAttrKey
KeyPath = tuple[Any, ...]


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """Print a path: `['w'][0].bias`, or with `simple=True, separator='/'`: `w/0/bias`.

    >>> ((path, leaf),) = fxad.tree.leaves_with_path({"layers": [{"w": 1.0}]})
    >>> fxad.tree.keystr(path), fxad.tree.keystr(path, simple=True, separator="/")
    ("['layers'][0]['w']", 'layers/0/w')
    """
    return separator.join(_bare(key) if simple else str(key) for key in keys)


def _bare(key: Any) -> str:
    match key:
        case DictKey(value) | FlattenedIndexKey(value) | SequenceKey(value) | GetAttrKey(value):
            return str(value)
        case _:  # a registered node may use keys of its own
            return str(key)


def describe_path(path: KeyPath) -> str:
    """The path for an error message; the root has no expression and is named in words."""
    return keystr(path) or "the root"
