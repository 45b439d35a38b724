"""What a model in training says: the likeliest continuations of a few prompts.

prompts = [Prompt(tokenizer.encode("To be"), wanted=" or not to be")]
for sample in continued(params, config, prompts, tokenizer, 64):
    print(sample.prompt, sample.text)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fxad_nn import models
from fxad_nn.generate import generate
from fxad_nn.tokenizer import Tokenizer

SAMPLES = "samples.jsonl"
"""Where a run's directory keeps its samples, one to a line."""

MOST = 3
"""How many prompts are taken from a validation split."""


@dataclass(frozen=True)
class Prompt:
    """Ids to continue, and how the data goes on, where they are from the data."""

    ids: Sequence[int]
    wanted: str | None = None


@dataclass(frozen=True)
class Sample:
    """A prompt as text, and what the model wrote after it."""

    prompt: str
    text: str
    wanted: str | None


def continued(
    params: Any, config: models.Config, prompts: Sequence[Prompt], tokenizer: Tokenizer, count: int
) -> list[Sample]:
    """Of each prompt its likeliest continuation, at most `count` tokens of the tokenizer's, up to
    one that ends a text."""
    samples = []
    for prompt in prompts:
        ids = [int(i) for i in prompt.ids]
        drawn = generate(params, config, ids, count, temperature=0.0, vocab=tokenizer.size)
        said, before = tokenizer.decode([*ids, *drawn]), tokenizer.decode(ids)
        samples.append(Sample(before, said[len(before) :], prompt.wanted))
    return samples
