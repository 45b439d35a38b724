"""How attention's backward pass sums its results: what differs between vectors and tiles.

    gradients = vector_gradients(plan, code, copies)     # or bf16x6_gradients
    q, d_out = gradients.pack_queries(q, d_out, "%count")
    gradients.add(chunk, window, weights, rows, keys)

On vectors products add to rows of dk and dv; on tiles these are summed transposed.
"""

from __future__ import annotations

from typing import Protocol

from fxad.backend.llvm.attention.code import View
from fxad.backend.llvm.attention.window import Block, Range, Window
from fxad.core.record import record


@record
class KeyChunk:
    """Some keys of a key head: the first and their range, in whole panels, packed keys and values
    (where key 0 would be), and where the cotangents of both are summed."""

    start: str
    keys: Range
    packed_k: str
    packed_v: str
    sums: tuple[View, View]


@record
class Weights:
    """A block of weights p and of the scores' cotangents ds: where they have the first key of the
    block, and where they would have key 0 (of the split ones of ds, if they are split)."""

    p_block: str
    ds_block: str
    p: str
    ds: str
    ds_terms: str


class Gradients(Protocol):
    """How the cotangents of keys, values and queries are added up. Pairs are of q and d_out, or of
    dk and dv."""

    def pack_queries(self, q: View, d_out: View, count: str) -> tuple[View, View]:
        """Copies of `count` rows for all products that read them; those that are the left operands
        of scores."""

    def sums(self, dk: View, dv: View) -> tuple[View, View]:
        """Where a chunk's dk and dv are summed; dk, dv: where they lie in memory."""

    def clear(self, sums: tuple[View, View], count: str) -> None:
        """Set the sums of `count` keys to 0."""

    def add(
        self, chunk: KeyChunk, window: Window, weights: Weights, rows: Block, keys: Range
    ) -> None:
        """Add to dk and dv what a block of rows and one of keys gives."""

    def finish(self, sums: tuple[View, View], to: tuple[View, View], count: str) -> None:
        """Write the sums of `count` keys to memory."""

    def dq_product(self, dq: View, first: str, is_later: str) -> tuple[View, str]:
        """Where the product for rows of dq from `first` on goes, and 1 if it is added to what is
        there. is_later: dq has sums of earlier keys."""

    def finish_dq(self, dq: View, first: str, count: str, is_later: str) -> None:
        """Add the product to rows of dq, if it lies elsewhere."""
