"""What fine-tuning makes small, as a sum over what counts and how much of it there is.

    answers = Answers(config)
    total = answers.total(params, reference, (tokens, targets))      # summed over the targets
    count = answers.count((tokens, targets))                         # how many there are

A sum and a count, because a step's loss is normalised over everything that its gradient is
accumulated from: micro-batches with few answers must not weigh as much as those with many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import fxad
import fxad.numpy as jnp
from fxad_nn import models
from fxad_nn.errors import ConfigError
from fxad_nn.loss import IGNORE, NONE, Penalties, token_losses

Batch = tuple[Any, ...]
"""Tokens and targets, and the segments of documents that share rows, if any do."""


class Objective(Protocol):
    """`reference` are the parameters before training, for an objective that compares with them."""

    def total(self, params: Any, reference: Any, batch: Batch) -> Any:
        """The sum of the losses, a float32 scalar."""

    def count(self, batch: Batch) -> Any:
        """How many losses are summed, a float32 scalar."""


@dataclass(frozen=True)
class Answers:
    """Cross-entropy of the targets, and what penalties add: batches are (tokens, targets), or
    (tokens, targets, segments), all int32 [rows, time]."""

    config: models.Config
    penalties: Penalties = NONE

    def total(self, params: Any, reference: Any, batch: Batch) -> Any:
        loss = models.family(self.config).loss
        segments = batch[2] if len(batch) > 2 else None
        mean = loss(params, batch[:2], self.config, segments, self.penalties, skip_ignored=True)
        return mean * self.count(batch)

    def count(self, batch: Batch) -> Any:
        return jnp.sum((batch[1] != IGNORE).astype(jnp.float32))


@dataclass(frozen=True)
class Preferences:
    """Direct preference optimization (Rafailov et al., 2023).

    Batches are int32 [pairs, 2, time]: the preferred answer, then the other. With the margin by
    which training has raised the first one's log-probability more than the second's, the loss of a
    pair is -log sigmoid(beta margin). All logits are in memory at once.

    label_smoothing e: of the pairs, a share e is taken to have its labels swapped, and the loss is
    -(1 - e) log sigmoid(beta margin) - e log sigmoid(-beta margin) (conservative DPO: Mitchell,
    2023, "A note on DPO with noisy preferences & relationship to IPO"). ConfigError unless e is in
    [0, 0.5): from one half on it would teach the opposite.
    """

    config: models.Config
    beta: float = 0.1
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 0.5:
            raise ConfigError(
                f"label smoothing of preferences must be in [0, 0.5), got {self.label_smoothing}: "
                "it is the share of pairs whose labels are wrong"
            )

    def total(self, params: Any, reference: Any, batch: Batch) -> Any:
        before = fxad.lax.stop_gradient(self._log_probabilities(reference, batch))
        raised = self._log_probabilities(params, batch) - before
        margin = self.beta * (raised[:, 0] - raised[:, 1])
        # -log sigmoid(x) = softplus(-x), and softplus(x) = softplus(-x) + x.
        losses = fxad.nn.softplus(-margin)
        if self.label_smoothing:
            losses = losses + self.label_smoothing * margin
        return jnp.sum(losses * self._counted(batch))

    def count(self, batch: Batch) -> Any:
        return jnp.sum(self._counted(batch))

    def _counted(self, batch: Batch) -> Any:
        """1 for pairs, 0 for padding: float32 [pairs]."""
        return jnp.any(batch[1] != IGNORE, axis=(1, 2)).astype(jnp.float32)

    def _log_probabilities(self, params: Any, batch: Batch) -> Any:
        """Of the targets of each answer, summed: float32 [pairs, 2]."""
        tokens, targets = (part.reshape(-1, part.shape[-1]) for part in batch)
        logits = models.family(self.config).forward(params, tokens, self.config)
        return -jnp.sum(token_losses(logits, targets), axis=-1).reshape(-1, 2)
