"""Names of `jax._src.util`, which JAX's pages about interpreters import."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any


def safe_map(f: Callable[..., Any], *args: Iterable[Any]) -> list[Any]:
    """The list of f's results. Raises ValueError for arguments of different lengths."""
    return [f(*each) for each in safe_zip(*args)]


def safe_zip(*args: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Tuples of elements. Raises ValueError for arguments of different lengths."""
    return list(zip(*args, strict=True))


def unzip2(pairs: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first and the second elements of pairs."""
    listed = list(pairs)
    return tuple([x for x, _ in listed]), tuple([y for _, y in listed])


def split_list(args: Sequence[Any], ns: Sequence[int]) -> list[list[Any]]:
    """Lists of these lengths from the front, and of what is left."""
    rest, parts = list(args), []
    for n in ns:
        parts.append(rest[:n])
        rest = rest[n:]
    return [*parts, rest]


def partition_list(bs: Sequence[bool], l: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The elements where a flag is false, and those where it is true."""
    pairs = safe_zip(bs, l)
    return [x for b, x in pairs if not b], [x for b, x in pairs if b]


def merge_lists(bs: Sequence[bool], l0: Sequence[Any], l1: Sequence[Any]) -> list[Any]:
    """What `partition_list` has taken apart."""
    if (bs.count(False), bs.count(True)) != (len(l0), len(l1)):
        raise ValueError(f"merge_lists: {len(l0)} and {len(l1)} elements for the flags {bs}")
    off, on = iter(l0), iter(l1)
    return [next(on if b else off) for b in bs]
