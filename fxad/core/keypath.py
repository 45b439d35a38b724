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
    """`tree[key]` of a mapping."""

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@valued
class SequenceKey:
    """`tree[idx]` of a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx}]"


@valued
class GetAttrKey:
    """`tree.name` of a namedtuple, dataclass or other object."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@valued
class FlattenedIndexKey:
    """The n-th child of a registered node that names no keys."""

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
