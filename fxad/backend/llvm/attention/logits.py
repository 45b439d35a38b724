"""What a logit is made of: scaled scores, and masks of keys that are the same for all rows.

scale_of(stage, stage.logit)         # 0.125 of `score * 0.125`, or None
key_mask_of(stage)                   # of `where(mask, score * 0.125, lowest)`, or None
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.elements.scope import Needs
from fxad.core.record import record
from fxad.ir.kernel import Attention, Const, Expr, Get, Prim


@record
class KeyMask:
    """A mask outside of which no row sees a key; scale: of the scores inside."""

    expr: Expr
    scale: float


def scale_of(stage: Attention, logit: Expr) -> float | None:
    """The positive number that a score times is the logit, if that is all a logit is."""
    match logit:
        case Prim("mul", (Get(cell), Const(float(value))), _) if cell is stage.score:
            return value if value > 0 else None
    return None


def key_mask_of(stage: Attention) -> KeyMask | None:
    """The mask, if the logit selects by it between scaled scores and a number that excludes a key,
    and it is the same for all rows."""
    excluded = 0.5 * float(np.finfo(stage.score.dtype).min)
    match stage.logit:
        case Prim("select", (mask, logit, Const(float(value))), _) if value < excluded:
            scale = scale_of(stage, logit)
            alike = Needs().of(mask).isdisjoint((stage.rows, stage.score))
            return KeyMask(mask, scale) if alike and scale else None
    return None
