"""What a training run works at, apart from how a run goes: batches, a step, a judgement.

`fxad_nn.train` steps through any `Task`: `fxad_nn.pretraining` predicts texts, `fxad_nn.tuning`
answers, or prefers one answer to another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from fxad_nn.optim import Optimizer
from fxad_nn.samples import Sample
from fxad_nn.tokenizer import Tokenizer

Batch = tuple[Any, ...]
"""Arrays; of the first every element is a token that goes through the model."""
Step = Callable[..., tuple[Any, Any, tuple[Any, Any]]]
"""(params, state, *batch) -> (params, state, (loss, gradient's norm)), the first two donated."""


class Task(Protocol):
    """Data, and what is done with it. `params` are the parameters that are trained."""

    @property
    def source(self) -> str:
        """Where the data comes from, in words."""

    @property
    def size(self) -> int:
        """How many tokens the data holds: by this and `digests` a resumed run knows it again."""

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of what a resumed run must find as it was, by what it is called."""

    @property
    def tokenizer(self) -> Tokenizer:
        """What the data was encoded with."""

    @property
    def flops_per_token(self) -> float:
        """Floating-point operations of a step for each token that goes through the model."""

    @property
    def parts(self) -> tuple[int, int]:
        """The micro-batches of a step, one after another, and the rows of each."""

    def lines(self) -> list[str]:
        """What there is to say of model and data before the first step."""

    def batch(self, step: int) -> Batch:
        """The batch of a step, counted from 0: the same one whether or not the run was resumed."""

    def compiled(self, optimizer: Optimizer) -> Step:
        """One step as a function."""

    def changed(self, options: Any) -> Task:
        """The same data, with other options for how a step is done."""

    def largest(self, optimizer: Optimizer, params: Any, state: Any) -> list[Any]:
        """A step and a part of a validation, of the largest arrays that a run has: what its memory
        follows from, each as `jit(f).lower(...)` gives it."""

    def needed(self) -> int:
        """Bytes that steps and validations need at most beside their arguments, by the plans of
        those that have run so far."""

    def samples(self, params: Any) -> list[Sample]:
        """How the parameters continue a few prompts; always the same ones."""

    def evaluate(self, params: Any, whole: bool) -> float | None:
        """The validation loss, over a sample of the split or all of it; None where there is no
        split to validate on."""
