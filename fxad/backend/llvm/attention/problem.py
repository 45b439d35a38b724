"""An attention kernel's sizes, register tiles and logits: what holds for both of its passes.

problem = Problem.of(kernel, stage, "attend0", target)
problem.panel                    # keys whose scores a register tile computes side by side
problem.scale                    # what a score is multiplied by, if nothing else is done to it
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.attention.logits import KeyMask, key_mask_of, scale_of
from fxad.backend.llvm.attention.split import KERNEL_ROWS, TILES
from fxad.backend.llvm.base import tuning
from fxad.backend.llvm.base.schedule import Target
from fxad.core.record import record
from fxad.ir.kernel import Attention, Kernel, Prim
from fxad.ir.orders import ATTENTION_TILES, SPLIT_KEYS, SPLIT_QUERIES

BLOCK_ROWS = 48  # every tile's height divides it
MOST_TILE_ROWS = 12  # more rows to a tile wait for broadcasts


def round_up(size: int, to: int) -> int:
    return -(-size // to) * to


def uses_bf16x6(stage: Attention, target: Target) -> bool:
    """Whether products are computed as six of bf16: float32, where AMX was chosen for it, enough
    work that packing pays, and no mask that decides which keys count (a NaN behind a weight of 0
    would reach the sum)."""
    return (
        "amx_float32" in target.features
        and stage.score.dtype == np.float32
        and stage.rows.extent >= SPLIT_QUERIES
        and stage.keys.extent * (stage.depth.extent + stage.width.extent) >= SPLIT_KEYS
        and not (isinstance(stage.logit, Prim) and stage.logit.name == "select")
    )


@record
class Problem:
    """What is given, and what both passes decide alike.

    size: bytes of an element. lane_width: lanes of a vector. bf16x6: products are six of bf16 on
    tiles. tile_rows, panel_vectors: of the register tile of scores; column_vectors: most vectors of
    that of other products. panel: keys side by side in packed copies; padded_keys: whole panels of
    them. scale: the positive number that a score times is the logit, if that is all a logit is.
    mask: one of keys, the same for all rows, that the logit is made of.
    """

    kernel: Kernel
    stage: Attention
    name: str
    target: Target
    dtype: np.dtype
    size: int
    lane_width: int
    bf16x6: bool
    tile_rows: int
    panel_vectors: int
    column_vectors: int
    queries: int
    keys: int
    depth: int
    width: int
    panel: int
    padded_keys: int
    scale: float | None
    mask: KeyMask | None

    @staticmethod
    def of(kernel: Kernel, stage: Attention, name: str, target: Target) -> Problem:
        dtype = stage.score.dtype
        lane_width, bf16x6 = target.lanes(dtype), uses_bf16x6(stage, target)
        tile_rows, vectors, column_vectors = ATTENTION_TILES[target.isa]
        if bf16x6:
            tile_rows, vectors, column_vectors = KERNEL_ROWS, TILES, TILES
        panel = vectors * lane_width
        return Problem(
            kernel=kernel,
            stage=stage,
            name=name,
            target=target,
            dtype=dtype,
            size=dtype.itemsize,
            lane_width=lane_width,
            bf16x6=bf16x6,
            tile_rows=tile_rows,
            panel_vectors=vectors,
            column_vectors=column_vectors,
            queries=stage.rows.extent,
            keys=stage.keys.extent,
            depth=stage.depth.extent,
            width=stage.width.extent,
            panel=panel,
            padded_keys=round_up(stage.keys.extent, panel),
            scale=scale_of(stage, stage.logit),
            mask=key_mask_of(stage),
        )

    @property
    def tuning(self) -> tuning.Attention:
        return self.target.tuning.attention

    @property
    def flops_per_ns(self) -> float:
        return self.target.tuning.gemm.flops_per_ns

    @property
    def masked_vectors(self) -> int:
        """Vectors of a row of scores that go together where some keys are not visible: split
        weights are stored in pairs of vectors."""
        return self.panel_vectors if self.bf16x6 else 1

    @property
    def weight_size(self) -> int:
        """Bytes of a weight as the product with the values reads it."""
        return 2 if self.bf16x6 else self.size

    def score_block(self, rows: int, keys: int) -> ScoreBlock:
        """A block of scores of so many rows and keys. On tiles rows are not a multiple of a large
        power of 2 apart."""
        return ScoreBlock(rows, keys, keys + KERNEL_ROWS if self.bf16x6 else keys)


@record
class ScoreBlock:
    """The block of scores that stays in cache: query rows, keys, elements from row to row."""

    rows: int
    keys: int
    stride: int
