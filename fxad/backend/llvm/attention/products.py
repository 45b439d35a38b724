"""Attention's matrix products: what computes them, and how their operands lie in scratch.

    products = VectorProducts(code)                 # or Bf16x6Products(code)
    keys = products.take_panels(128, 64)
    products.pack_panels(k, 64, keys, "0", "128")
    products.scores(window, q, 64, keys, scores, Block("0", "48"), ("0", "128"))

A block of scores lies in this thread's scratch, one row of `block.stride` elements per query; it
never reaches memory that other cores see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fxad.backend.llvm.attention.code import View
from fxad.backend.llvm.attention.window import Block, Range, Window
from fxad.core.record import valued

# Of a tile's first row and its rows: the first step that counts, and how many do.
Steps = Callable[[str, int], tuple[str, str]]


@valued
class ColumnGroup:
    """Neighbouring columns, as many as a register tile has. stride: elements of a packed row."""

    start: int
    stride: int
    count: int


@valued
class RightOperand:
    """A matrix of at most so many rows, as right operand of products by tiles of `tile_rows` rows.

    Packed, its groups of columns follow each other, each a dense matrix. row_stride: elements
    between rows, if they are whole instead, in place (an only row may have 0) or copied. Of rows in
    place, those `prefetch_rows` below are prefetched, and `following` after the last.
    """

    pointer: str
    rows: int
    groups: tuple[ColumnGroup, ...]
    tile_rows: int
    row_stride: int | None = None
    prefetch_rows: int = 0
    following: str = "null"


class Products(Protocol):
    """Products of small matrices. `take_...`: room in scratch for what is packed or copied."""

    def take_panels(self, keys: int, depth: int) -> str:
        """Room for what `pack_panels` makes of so many rows."""

    def key_bytes(self, depth: int) -> int:
        """Bytes from one key to the next in packed panels."""

    def pack_panels(self, source: View, depth: int, panels: str, low: str, high: str) -> None:
        """Pack rows low ... high - 1 of a matrix [keys, depth], transposed, where the panels of
        key 0 would begin at `panels`: the right operand of scores."""

    def take_rows(self, rows: int, depth: int) -> str:
        """Room for what `copy_rows` makes of so many rows."""

    def copy_rows(self, source: View, depth: int, to: str, count: str) -> View:
        """A left operand of scores: a copy of `count` rows of a matrix [rows, depth]."""

    def take_columns(self, rows: int, columns: int) -> RightOperand:
        """Room for what `pack_columns` makes of a matrix [rows, columns]."""

    def pack_columns(self, source: View, to: RightOperand, low: str, count: str) -> None:
        """Pack `count` rows of a matrix, from `low` on, by groups of columns."""

    def scores(
        self, window: Window, a: View, depth: int, panels: str, to: str, rows: Block, keys: Range
    ) -> None:
        """to[i, j] = sum over c of a[i, c] * panels[j, c] of a block of rows and some keys, where a
        tile has pairs that are visible. to: where the block has key 0."""

    def product(
        self,
        a: View,
        b: RightOperand,
        c: View,
        rows: tuple[str, int],
        steps: Steps,
        adds: str,
        padded: bool = False,
    ) -> None:
        """c = a b, or c + a b where `adds` is 1.

        rows: of a and c, and the number of all such rows there are. steps: beyond these all of a is
        0. padded: c has room for whole vectors.
        """
