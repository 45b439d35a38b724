"""What a training run tells whoever started it.

class Quiet(Listener):
    def progressed(self, progress):
        print(progress.step, progress.loss)

train(options, Quiet())
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from fxad_nn.run import Run
from fxad_nn.samples import Sample


@dataclass(frozen=True)
class Progress:
    """A report every few steps.

    loss and gradient_norm (before clipping; NaN where no gradient was finite) are means over the
    steps since the last report. utilisation: model FLOPs over the machine's peak, which is that of
    `unit` ("float32", "AMX"), or of no known one where `peak` was given. resident: bytes of
    memory that the process holds; predicted: what the plans of the run's programs say of them, or
    what the option `memory` did; None where neither is known.
    """

    step: int
    loss: float
    learning_rate: float
    tokens_per_second: float
    utilisation: float
    gradient_norm: float = math.nan
    resident: int = 0
    predicted: int | None = None
    unit: str = ""


class Listener:
    """What `train` tells the outside; a subclass overrides what it wants to hear.

    Where one of them raises, the run is saved before the exception goes on.
    """

    def started(self, run: Run, parameters: int, peak: float) -> None:
        """Everything is loaded; the first step compiles next. `peak` is in FLOP/s."""

    def progressed(self, progress: Progress) -> None:
        """Some steps were done."""

    def evaluated(self, step: int, loss: float) -> None:
        """The loss on a sample of the validation split."""

    def sampled(self, step: int, samples: list[Sample]) -> None:
        """What the model says to a few prompts."""

    def saved(self, path: Path) -> None:
        """A checkpoint is on the disk."""

    def warned(self, message: str) -> None:
        """Something the user should know, though the run goes on."""

    def should_stop(self) -> bool:
        """Asked after every step: whether to end the run, with a checkpoint as after Ctrl-C."""
        return False
