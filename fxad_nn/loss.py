"""Cross-entropy from logits and integer targets.

cross_entropy(logits, targets)      # logits [batch, time, vocab], targets [batch, time] -> f32
"""

from __future__ import annotations

from typing import Any

import fxad
import fxad.numpy as jnp

IGNORE = -1


def token_losses(logits: Any, targets: Any) -> Any:
    """-log softmax(logits)[target] in float32: [..., vocab], [...] -> [...].

    Targets equal to `IGNORE` give 0.
    """
    logits = logits.astype(jnp.float32)
    counted = targets != IGNORE
    chosen = jnp.where(counted, targets, 0)[..., None]
    picked = jnp.take_along_axis(logits, chosen, axis=-1)[..., 0]
    return jnp.where(counted, fxad.nn.logsumexp(logits, axis=-1) - picked, 0.0)


def total_and_count(logits: Any, targets: Any) -> tuple[Any, Any]:
    """The sum of the losses and the number of targets that count, both float32 scalars."""
    return jnp.sum(token_losses(logits, targets)), jnp.sum((targets != IGNORE).astype(jnp.float32))


def cross_entropy(logits: Any, targets: Any) -> Any:
    """The mean loss over targets that are not `IGNORE`; 0 where there are none."""
    total, count = total_and_count(logits, targets)
    return total / jnp.maximum(count, 1.0)
