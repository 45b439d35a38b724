"""How notebooks show things: `_repr_html_` of classes whose pages modules above them write.

    class Plan:
        _repr_html_ = html_of("plan")

    set_view("plan", lambda plan: ...)      # by the api, once

What writes a page is loaded when one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_views: dict[str, Callable[[Any], str]] = {}


def set_view(kind: str, view: Callable[[Any], str]) -> None:
    """Install what gives the HTML of a kind of thing."""
    _views[kind] = view


def html_of(kind: str) -> Callable[[Any], str]:
    """A method that gives the HTML of a kind of thing."""

    def _repr_html_(self: Any) -> str:
        return _views[kind](self)

    return _repr_html_
