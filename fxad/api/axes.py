"""The named axes of the vmaps that are being traced, innermost last."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Hashable, Iterator
from typing import Any

from fxad.core.errors import UnboundAxisError
from fxad.core.record import valued


@valued
class Axis:
    """A vmap's name, its number of lanes, the traced number of the lane, and the vmap's own
    number among all calls of vmaps with names."""

    name: Hashable
    size: int
    lane: Any
    call: int


class _Axes(threading.local):
    def __init__(self) -> None:
        self.stack: list[Axis] = []


_axes = _Axes()
_calls = itertools.count()


@contextlib.contextmanager
def named(name: Hashable, size: int, lane: Any) -> Iterator[None]:
    """While a function of one lane is traced."""
    _axes.stack.append(Axis(name, size, lane, next(_calls)))
    try:
        yield
    finally:
        _axes.stack.pop()


def axis(name: Hashable, what: str) -> Axis:
    """The innermost axis of a name. Raises UnboundAxisError if no vmap around gives it."""
    for found in reversed(_axes.stack):
        if found.name == name:
            return found
    known = ", ".join(repr(a.name) for a in _axes.stack) or "none"
    raise UnboundAxisError(
        f"{what}: no enclosing vmap has axis_name={name!r} (known: {known}); give it to fxad.vmap"
    )


def names() -> list[Hashable]:
    """The names of the vmaps around, outermost first."""
    return [axis.name for axis in _axes.stack]


def in_force() -> tuple[int, ...]:
    """What a trace made now may depend on: the calls of vmaps with names around it."""
    return tuple([a.call for a in _axes.stack])
