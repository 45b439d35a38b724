"""Learning answers: the task of `python -m fxad_nn finetune`.

task = Tuning(options, config, frozen, corpus)
step = task.compiled(adamw(1e-4))
trained, state, loss = step(trained, state, *task.batch(0))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import fxad
from fxad_nn import models
from fxad_nn.chat_examples import Counts, Example, Pair
from fxad_nn.epochs import Epochs
from fxad_nn.finetune_recipe import FinetuneOptions
from fxad_nn.flops import training_flops_per_token
from fxad_nn.objective import Answers, Objective, Preferences
from fxad_nn.optim import Optimizer
from fxad_nn.packing import padded, widths
from fxad_nn.samples import MOST, Prompt, Sample, continued
from fxad_nn.step import tuning_step
from fxad_nn.task import Batch, Step
from fxad_nn.tokenizer import Tokenizer


@dataclass(frozen=True)
class Corpus:
    """Examples in two splits, what they were encoded with, what became of the records, and the
    digests of what else decides about them and the model; and prompts to sample answers to."""

    train: Sequence[Example | Pair]
    val: Sequence[Example | Pair]
    tokenizer: Tokenizer
    source: str
    counts: Counts
    digests: dict[str, str]
    prompts: Sequence[Prompt]


class Tuning:
    """The answers of a corpus, learned by the trained part of a model's parameters.

    frozen: the other part (`fxad.tree.partition`). reference: whole parameters to compare with,
    for preferences.
    """

    def __init__(
        self,
        options: FinetuneOptions,
        config: models.Config,
        frozen: Any,
        corpus: Corpus,
        reference: Any = None,
    ) -> None:
        self._options, self._config, self._corpus = options, config, corpus
        self.frozen, self._reference = frozen, reference
        o, lengths = options, list(map(len, corpus.train))
        self._objective: Objective = Answers(config, o.penalties)
        judged: Objective = Answers(config)
        if o.dpo:
            self._objective = judged = Preferences(config, o.beta)
        self._epochs = Epochs(lengths, o.batch * o.accumulate, o.seed)
        longest = max([*lengths, *map(len, corpus.val)])
        self._widths = widths(min(-(-longest // 16) * 16, config.context))
        self._sums = _sums(judged)

    @property
    def source(self) -> str:
        return self._corpus.source

    @property
    def size(self) -> int:
        return sum(map(len, self._corpus.train)) + sum(map(len, self._corpus.val))

    @property
    def digests(self) -> dict[str, str]:
        return self._corpus.digests

    @property
    def tokenizer(self) -> Tokenizer:
        return self._corpus.tokenizer

    @property
    def steps_per_epoch(self) -> int:
        """How many steps go over all examples once."""
        return self._epochs.steps

    @property
    def flops_per_token(self) -> float:
        """Without the gradients of frozen weights, which are a third of the products."""
        whole = training_flops_per_token(self._config, self._widths[-1])
        return whole * 2 / 3 if self._options.lora else whole

    def lines(self) -> list[str]:
        c = self._corpus
        return [
            f"model: {self._options.model}, vocabulary {self._config.vocab}",
            f"data: {c.source}: {c.counts}",
            f"examples: {len(c.train):,} to train, {len(c.val):,} to validate; rows of "
            f"{', '.join(map(str, self._widths))} tokens",
        ]

    def batch(self, step: int) -> Batch:
        """Tokens and targets, int32 [accumulate, batch, time] or, of pairs, [accumulate, batch, 2,
        time], and the step's number. Where an epoch ends, rows of padding are among them."""
        o = self._options
        examples = [self._corpus.train[i] for i in self._epochs.rows(step)]
        rows = self._rows(examples, o.batch * o.accumulate)
        shaped = (array.reshape(o.accumulate, o.batch, *array.shape[1:]) for array in rows)
        return *shaped, np.int32(step)

    def _rows(self, examples: Sequence[Example | Pair], rows: int) -> Batch:
        longest = max(map(len, examples))
        width = next(width for width in self._widths if width >= longest)
        answers = list(_each_answer(examples))
        batch = padded(answers, width, rows * (2 if self._options.dpo else 1))
        shape = (rows, 2, width) if self._options.dpo else (rows, width)
        return batch.tokens.reshape(shape), batch.targets.reshape(shape)

    def compiled(self, optimizer: Optimizer) -> Step:
        o = self._options
        dropouts = {"dropout": o.dropout, "residual_dropout": o.residual_dropout}
        step = tuning_step(self._objective, optimizer, o.clip, seed=o.seed, **dropouts)

        def with_frozen(trained: Any, state: Any, *batch: Any) -> tuple[Any, Any, Any]:
            return step(trained, state, self.frozen, self._reference, *batch)

        return with_frozen

    def samples(self, params: Any) -> list[Sample]:
        whole, o = fxad.tree.combine(params, self.frozen), self._options
        return continued(whole, self._config, self._corpus.prompts, self.tokenizer, o.sample_tokens)

    def evaluate(self, params: Any, whole: bool) -> float:
        """The loss over the validation split, without dropout: always all of it, so that the best
        checkpoint is judged by what the others are."""
        chosen, rows = sorted(self._corpus.val, key=len), self._options.batch
        total = count = 0.0
        for start in range(0, len(chosen), rows):
            batch = self._rows(chosen[start : start + rows], rows)
            sums = self._sums(params, self.frozen, self._reference, batch)
            total, count = total + float(sums[0]), count + float(sums[1])
        return total / max(count, 1.0)


def _each_answer(examples: Sequence[Example | Pair]) -> Iterator[Example]:
    for example in examples:
        yield from (example.chosen, example.rejected) if isinstance(example, Pair) else (example,)


def asked(examples: Sequence[Example | Pair], tokenizer: Tokenizer) -> list[Prompt]:
    """Of a few examples, evenly spaced, what stands before their first answer, and that answer."""
    chosen = sorted({i * len(examples) // MOST for i in range(MOST)})
    prompts = []
    for answer in _each_answer([examples[i] for i in chosen if i < len(examples)]):
        places = np.flatnonzero(answer.trained)
        first = int(places[0])
        gaps = np.flatnonzero(np.diff(places) > 1)
        end = int(places[gaps[0]] if gaps.size else places[-1]) + 1
        before = tokenizer.decode(answer.ids[:first])
        wanted = tokenizer.decode(answer.ids[:end])[len(before) :]
        prompts.append(Prompt(answer.ids[:first].tolist(), wanted))
    return prompts[::2] if isinstance(examples[0], Pair) else prompts


def _sums(objective: Objective) -> Any:
    @fxad.jit
    def sums(trained: Any, frozen: Any, reference: Any, batch: Any) -> tuple[Any, Any]:
        params = fxad.tree.combine(trained, frozen)
        return objective.total(params, reference, batch), objective.count(batch)

    return sums


def split(
    examples: Sequence[Example | Pair], share: float, most: int, seed: int
) -> tuple[list[Example | Pair], list[Example | Pair]]:
    """(training, validation): a share of the examples, from one to `most`, chosen by the seed."""
    count = min(max(round(len(examples) * share), 1), most)
    random = np.random.default_rng([seed, 1])
    chosen = set(random.permutation(len(examples))[:count].tolist())
    return (
        [example for i, example in enumerate(examples) if i not in chosen],
        [example for i, example in enumerate(examples) if i in chosen],
    )
