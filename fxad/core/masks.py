"""Lists taken apart by a mask, and put together again: `select` and `merge`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
Other = TypeVar("Other")

Mask = tuple[bool, ...]


def select(items: Sequence[T], mask: Sequence[bool], wanted: bool = True) -> list[T]:
    """The items whose mask entry equals `wanted`."""
    return [item for item, m in zip(items, mask, strict=True) if bool(m) is wanted]


def merge(mask: Sequence[bool], if_true: Sequence[T], if_false: Sequence[Other]) -> list[T | Other]:
    """The inverse of selecting by a mask and by its opposite."""
    yes, no = iter(if_true), iter(if_false)
    return [next(yes) if m else next(no) for m in mask]
