"""Cross-entropy from logits and integer targets.

cross_entropy(logits, targets)      # logits [batch, time, vocab], targets [batch, time] -> f32
chunked_cross_entropy(logits_of, features, targets, Penalties(label_smoothing=0.1))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fxad
import fxad.numpy as jnp
from fxad_nn.errors import ConfigError

IGNORE = -1


@dataclass(frozen=True)
class Penalties:
    """What a training loss adds to cross-entropy; nothing unless it is asked for.

    label_smoothing e: targets are mixed with e of the uniform distribution over the vocabulary
    (Szegedy et al., 2016), as in `torch.nn.functional.cross_entropy`. z_loss z: z log(Z)^2 of each
    target, where Z is the softmax's denominator: it holds logits near 0 (Chowdhery et al., 2022,
    with 1e-4).
    """

    label_smoothing: float = 0.0
    z_loss: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ConfigError(f"label smoothing must be in [0, 1), got {self.label_smoothing}")
        if not (math.isfinite(self.z_loss) and self.z_loss >= 0):
            raise ConfigError(f"the factor of a z-loss must be 0 or more, got {self.z_loss}")


NONE = Penalties()


def token_losses(logits: Any, targets: Any, penalties: Penalties = NONE) -> Any:
    """-log softmax(logits)[target] in float32, and what penalties add.

    logits: [..., vocab], targets and the losses: [...]. Targets equal to `IGNORE` give 0.
    """
    logits = logits.astype(jnp.float32)
    counted = targets != IGNORE
    chosen = jnp.where(counted, targets, 0)[..., None]
    picked = jnp.take_along_axis(logits, chosen, axis=-1)[..., 0]
    log_z = fxad.nn.logsumexp(logits, axis=-1)
    losses = log_z - picked
    if penalties.label_smoothing:
        losses = losses + penalties.label_smoothing * (picked - jnp.mean(logits, axis=-1))
    if penalties.z_loss:
        losses = losses + penalties.z_loss * jnp.square(log_z)
    return jnp.where(counted, losses, 0.0)


def total_and_count(logits: Any, targets: Any, penalties: Penalties = NONE) -> tuple[Any, Any]:
    """The sum of the losses and the number of targets that count, both float32 scalars."""
    return jnp.sum(token_losses(logits, targets, penalties)), _count(targets)


def cross_entropy(logits: Any, targets: Any, penalties: Penalties = NONE) -> Any:
    """The mean loss over targets that are not `IGNORE`; 0 where there are none."""
    total, count = total_and_count(logits, targets, penalties)
    return total / jnp.maximum(count, 1.0)


CHUNK = 512
"""Rows of logits that are in memory at once."""


def chunked_cross_entropy(
    logits_of: Callable[[Any], Any], x: Any, targets: Any, penalties: Penalties = NONE
) -> Any:
    """`cross_entropy(logits_of(x), targets, penalties)`, of which `CHUNK` rows of logits are in
    memory at once: backward they are computed again.

    x: [batch, time, width], targets: [batch, time]; logits_of: [rows, width] -> [rows, vocab].
    """
    rows = targets.size
    pad = -rows % min(CHUNK, rows)
    x = jnp.pad(x.reshape(rows, -1), ((0, pad), (0, 0)))
    wanted = jnp.pad(targets.reshape(-1), (0, pad), constant_values=IGNORE)
    chunks = (rows + pad) // min(CHUNK, rows)

    @fxad.checkpoint
    def total(x: Any, wanted: Any) -> Any:
        return jnp.sum(token_losses(logits_of(x), wanted, penalties))

    def add(before: Any, chunk: tuple[Any, Any]) -> tuple[Any, None]:
        return before + total(*chunk), None

    parts = x.reshape(chunks, -1, x.shape[-1]), wanted.reshape(chunks, -1)
    summed, _ = fxad.lax.scan(add, jnp.zeros((), jnp.float32), parts)
    return summed / jnp.maximum(_count(targets), 1.0)


def _count(targets: Any) -> Any:
    return jnp.sum((targets != IGNORE).astype(jnp.float32))
