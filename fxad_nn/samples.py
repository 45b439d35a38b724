"""What a model in training says: the likeliest continuations of a few prompts.

prompts = [Prompt(tokenizer.encode("To be"), wanted=" or not to be")]
for sample in continued(params, config, prompts, tokenizer, 64):
    print(sample.prompt, sample.text)
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fxad.core.schema import integer, nullable, parse, record, string
from fxad_nn import models
from fxad_nn.errors import DataError
from fxad_nn.generate import generate
from fxad_nn.tokenizer import Tokenizer

SAMPLES = "samples.jsonl"
"""Where a run's directory keeps its samples, one to a line."""

MOST = 3
"""How many prompts are taken from a validation split."""

LONGEST = 1 << 20  # bytes of a line
LINE = record(
    {"step": integer(), "prompt": string(), "text": string(), "wanted": nullable(string())}
)


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


def latest(directory: str | Path) -> list[Sample]:
    """The samples of the last step that a run's directory holds any of; none where it has none, or
    where lines of the file are not whole."""
    directory = Path(directory)
    path, found = directory / SAMPLES, list[tuple[int, Sample]]()
    if not path.is_file():
        return []
    with open(path, "rb") as file:
        while text := file.readline(LONGEST):
            with contextlib.suppress(DataError):
                line = parse(text, LINE, SAMPLES, DataError)
                found.append((line.pop("step"), Sample(**line)))
    last = found[-1][0] if found else 0
    return [sample for step, sample in found if step == last][-MOST:]


def continued(
    params: Any, config: models.Config, prompts: Sequence[Prompt], tokenizer: Tokenizer, count: int
) -> list[Sample]:
    """Of each prompt its likeliest continuation, at most `count` tokens of the tokenizer's, up to
    one that ends a text by the model's configuration or the tokenizer."""
    samples = []
    limits: dict[str, Any] = {
        "temperature": 0.0,
        "vocab": tokenizer.size,
        "ends": tokenizer.ids.eos,
    }
    for prompt in prompts:
        ids = [int(i) for i in prompt.ids]
        drawn = generate(params, config, ids, count, **limits)
        said, before = tokenizer.decode([*ids, *drawn]), tokenizer.decode(ids)
        samples.append(Sample(before, said[len(before) :], prompt.wanted))
    return samples
