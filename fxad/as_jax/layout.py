"""Names of `jax.experimental.layout`: arrays have one layout, row after row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxad.core.errors import UnsupportedError

__all__ = ["Format", "Layout"]


class Layout:
    """The order of an array's axes in memory, the slowest first. Raises UnsupportedError for
    another than row after row."""

    def __init__(
        self,
        major_to_minor: Sequence[int],
        tiling: Any = None,
        sub_byte_element_size_in_bits: int = 0,
    ) -> None:
        self.major_to_minor = tuple(major_to_minor)
        self.tiling = tiling
        self.sub_byte_element_size_in_bits = sub_byte_element_size_in_bits
        if tiling or self.major_to_minor != tuple(range(len(self.major_to_minor))):
            raise UnsupportedError(f"arrays lie row after row, not as {self}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.major_to_minor == other.major_to_minor

    def __hash__(self) -> int:
        return hash(self.major_to_minor)

    def __repr__(self) -> str:
        return (
            f"Layout(major_to_minor={self.major_to_minor}, tiling={self.tiling}, "
            f"sub_byte_element_size_in_bits={self.sub_byte_element_size_in_bits})"
        )


class Format:
    """A layout and a sharding, which packages compare with what they are given. Nothing here
    returns one."""

    def __init__(self, layout: Any = None, sharding: Any = None) -> None:
        self.layout, self.sharding = layout, sharding
