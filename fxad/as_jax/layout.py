"""Names of `jax.experimental.layout`: arrays have one layout, row after row."""

from __future__ import annotations

from typing import Any

__all__ = ["Format"]


class Format:
    """A layout and a sharding, which packages compare with what they are given. Nothing here
    returns one."""

    def __init__(self, layout: Any = None, sharding: Any = None) -> None:
        self.layout, self.sharding = layout, sharding
