"""The loss over a whole split, or over an even sample of its windows.

evaluate = Evaluator(config)
evaluate(params, data.val, context=64, size=64)             # mean nats per token, a float
"""

from __future__ import annotations

from typing import Any

import fxad
from fxad_nn import models
from fxad_nn.data import Tokens, count_windows, windows
from fxad_nn.loss import IGNORE, total_and_count
from fxad_nn.vocabulary import require_ids


class Evaluator:
    """A function evaluate(params, tokens, context, size, limit=None) -> mean loss.

    `size` windows of `context` go through the model at a time; with `limit`, about that many
    windows, evenly spaced, stand for the split. Compiled once for all calls of the same sizes.
    DataError where an id of the split is outside the model's vocabulary.

    sums: jitted, (params, tokens, targets) -> the sum of the losses, and how many there are.
    """

    def __init__(self, config: models.Config) -> None:
        forward = models.family(config).forward

        @fxad.jit
        def sums(params: Any, tokens: Any, targets: Any) -> tuple[Any, Any]:
            return total_and_count(forward(params, tokens, config), targets)

        self._vocab, self.sums = config.vocab, sums

    def __call__(
        self, params: Any, tokens: Tokens, context: int, size: int, limit: int | None = None
    ) -> float:
        stride = -(-count_windows(tokens, context) // limit) if limit else 1
        total = count = 0.0
        for batch in windows(tokens, size, context, keep=lambda index: index % stride == 0):
            require_ids(batch[0], self._vocab, "a batch of the validation split")
            require_ids(batch[1], self._vocab, "the targets of the validation split", IGNORE)
            loss, targets = self.sums(params, *batch)
            total += float(loss)
            count += float(targets)
        return total / max(count, 1.0)
