"""Learning answers: the task of `python -m fxad_nn finetune`.

task = Tuning(options, config, frozen, corpus)
step = task.compiled(adamw(1e-4))
trained, state, (loss, norm) = step(trained, state, *task.batch(0))

With `options.pack` examples share rows, which are packed once: every epoch takes the same rows in
another order. A step takes so many rows that it has about as many examples as without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import fxad
from fxad_nn import models
from fxad_nn.chat_examples import Counts, Example, Pair
from fxad_nn.epochs import Epochs
from fxad_nn.finetune_recipe import FinetuneOptions
from fxad_nn.flops import training_flops_per_token
from fxad_nn.memory_choice import needed
from fxad_nn.objective import Answers, Objective, Preferences
from fxad_nn.optim import Optimizer
from fxad_nn.packing import pack, packed, widths
from fxad_nn.precision import activations_of
from fxad_nn.samples import MOST, Prompt, Sample, continued
from fxad_nn.step import tuning_step
from fxad_nn.task import Batch, Step
from fxad_nn.tokenizer import Tokenizer

Row = Sequence[Example | Pair]
"""What shares a row: several examples, or one of either kind."""


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
        o = options
        trained = replace(config, activations=activations_of(o.dtype))
        trained = replace(trained, recompute=o.recompute, offload=o.offload)
        self._objective: Objective = Answers(trained, o.penalties)
        judged: Objective = Answers(config)
        if o.dpo:
            self._objective = Preferences(trained, o.beta, o.label_smoothing)
            judged = Preferences(config, o.beta)
        longest = max(map(len, [*corpus.train, *corpus.val]))
        shared = self._shared_width(longest)
        self._packs = shared is not None
        self._widths = widths(shared or self._whole(longest))
        self._train, self._val = self._rows_of(corpus.train), self._rows_of(corpus.val)
        self._accumulate, self._batch = o.accumulate, o.batch
        if self._packs:
            wanted = o.batch * o.accumulate * len(self._train) / len(corpus.train)
            rows = max(round(wanted), 1)
            self._batch = -(-rows // o.accumulate)
            self._accumulate = -(-rows // self._batch)
        per_step = self._batch * self._accumulate
        self.parts = self._parts()
        self._epochs = Epochs(list(map(_length, self._train)), per_step, o.seed)
        self._sums = _sums(judged)
        self._compiled: list[Any] = []

    def _parts(self) -> tuple[int, int]:
        """Micro-batches of a step and the rows of each. Those of packed rows, whose number follows
        from the examples, are as many as it allows for, up to what was asked."""
        wanted = self._options.micro_batches
        parts = next(n for n in range(min(wanted, self._batch), 0, -1) if self._batch % n == 0)
        return self._accumulate * parts, self._batch // parts

    def _whole(self, tokens: int) -> int:
        """So many tokens, or up to 15 more, as far as the model's context goes."""
        return min(-(-tokens // 16) * 16, self._config.context)

    def _shared_width(self, longest: int) -> int | None:
        """The tokens of a row that examples share: room for the longest, and for about as many as
        there are in a batch. None where they have rows of their own."""
        o, train = self._options, self._corpus.train
        if not o.pack or o.dpo:
            return None
        batch = round(o.batch * sum(map(len, train)) / len(train))
        shares = partial(models.family(self._config).shares_rows, self._config)
        wanted = self._whole(max(batch, longest)), self._whole(longest)
        return next((width for width in wanted if shares(width)), None)

    def _rows_of(self, examples: Sequence[Example | Pair]) -> list[Row]:
        """Which examples are in one row: one of them, unless they are packed."""
        if not self._packs:
            return [(example,) for example in examples]
        found = pack(list(map(len, examples)), self._widths[-1])
        return [tuple(examples[i] for i in sorted(row)) for row in found]

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
        """How many steps go over all rows once."""
        return self._epochs.steps

    @property
    def flops_per_token(self) -> float:
        """Without the gradients of frozen weights, which are a third of the products."""
        whole = training_flops_per_token(self._config, self._seen())
        return whole * 2 / 3 if self._options.lora else whole

    def _seen(self) -> int:
        """The tokens of a text that attention goes through: of packed ones those of its document,
        on average over tokens."""
        if not self._packs:
            return self._widths[-1]
        lengths = np.array([len(example) for row in self._train for example in row], np.float64)
        return max(round(float((lengths**2).sum() / lengths.sum())), 1)

    def lines(self) -> list[str]:
        c = self._corpus
        return [
            f"model: {self._options.model}, vocabulary {self._config.vocab}",
            f"data: {c.source}: {c.counts}",
            f"examples: {len(c.train):,} to train, {len(c.val):,} to validate; rows of "
            f"{', '.join(map(str, self._widths))} tokens",
            *self._packing(),
        ]

    def _packing(self) -> list[str]:
        """What there is to say of examples that share rows, or do not though that was wanted."""
        if not self._options.pack or self._options.dpo:
            return []
        width = self._widths[-1]
        if not self._packs:
            return [
                f"packing: none, since the model's rotary scaling depends on a text's length "
                f"in rows of {width} tokens"
            ]
        count, rows = len(self._corpus.train), len(self._train)
        filled = sum(map(_length, self._train)) / (rows * width)
        return [
            f"packing: {count:,} documents in {rows:,} rows of {width} tokens, "
            f"{filled:.1%} filled; steps of {self._accumulate} x {self._batch} rows"
        ]

    def batch(self, step: int) -> Batch:
        """Tokens and targets, int32 [accumulate, batch, time] or, of pairs, [accumulate, batch, 2,
        time], of packed rows their segments, and the step's number. Where an epoch ends, rows of
        padding are among them."""
        rows = [self._train[i] for i in self._epochs.rows(step)]
        arrays = self._arrays(rows, self._accumulate * self._batch)
        shapes = ((*self.parts, *array.shape[1:]) for array in arrays)
        return *(map(np.reshape, arrays, shapes)), np.int32(step)

    def _arrays(self, rows: Sequence[Row], count: int, least: int = 0) -> Batch:
        """Rows as arrays of at least `least` tokens, and rows of padding up to `count`."""
        longest = max(least, *map(_length, rows))
        width = next(width for width in self._widths if width >= longest)
        answers = [part for row in rows for part in _answers(row)]
        empty = count * (2 if self._options.dpo else 1) - len(answers)
        batch = packed([*answers, *[()] * empty], width)
        if self._packs:
            return batch.tokens, batch.targets, batch.segments
        shape = (count, 2, width) if self._options.dpo else (count, width)
        return batch.tokens.reshape(shape), batch.targets.reshape(shape)

    def compiled(self, optimizer: Optimizer) -> Step:
        step = self._step(optimizer)
        self._compiled.append(step)

        def with_frozen(trained: Any, state: Any, *batch: Any) -> tuple[Any, Any, Any]:
            return step(trained, state, self.frozen, self._reference, *batch)

        return with_frozen

    def _step(self, optimizer: Optimizer) -> Any:
        o = self._options
        return tuning_step(
            self._objective,
            optimizer,
            o.clip,
            dropout=o.dropout,
            residual_dropout=o.residual_dropout,
            seed=o.seed,
            with_norm=True,
        )

    def changed(self, options: FinetuneOptions) -> Tuning:
        return Tuning(options, self._config, self.frozen, self._corpus, self._reference)

    def largest(self, optimizer: Optimizer, params: Any, state: Any) -> list[Any]:
        row = self._arrays([self._train[0]], 1, self._widths[-1])
        step, judged = (
            tuple(fxad.ShapeDtypeStruct((*rows, *array.shape[1:]), array.dtype) for array in row)
            for rows in (self.parts, (self.parts[1],))
        )
        number, held = np.int32(0), (self.frozen, self._reference)
        return [
            self._step(optimizer).lower(params, state, *held, *step, number),
            self._sums.lower(params, *held, judged),
        ]

    def needed(self) -> int:
        return needed(*self._compiled, self._sums)

    def samples(self, params: Any) -> list[Sample]:
        whole, o = fxad.tree.combine(params, self.frozen), self._options
        return continued(whole, self._config, self._corpus.prompts, self.tokenizer, o.sample_tokens)

    def evaluate(self, params: Any, whole: bool) -> float | None:
        """The loss over the validation split, without dropout: always all of it, so that the best
        checkpoint is judged by what the others are. None where the split is empty."""
        if not self._val:
            return None
        chosen, rows = sorted(self._val, key=_length), self.parts[1]
        total = count = 0.0
        for start in range(0, len(chosen), rows):
            batch = self._arrays(chosen[start : start + rows], rows)
            sums = self._sums(params, self.frozen, self._reference, batch)
            total, count = total + float(sums[0]), count + float(sums[1])
        return total / max(count, 1.0)


def _length(row: Row) -> int:
    """The tokens of a row."""
    return sum(map(len, row))


def _answers(row: Row) -> list[Sequence[Example]]:
    """The rows of arrays that a row becomes: of a pair there are two."""
    (first, *_) = row
    if isinstance(first, Pair):
        return [(first.chosen,), (first.rejected,)]
    return [[example for example in row if isinstance(example, Example)]]


def asked(examples: Sequence[Example | Pair], tokenizer: Tokenizer) -> list[Prompt]:
    """Of a few examples, evenly spaced, what stands before their first answer, and that answer."""
    chosen = sorted({i * len(examples) // MOST for i in range(MOST)})
    prompts = []
    for example in (examples[i] for i in chosen):
        answer = example.chosen if isinstance(example, Pair) else example
        places = np.flatnonzero(answer.trained)
        gaps = np.flatnonzero(np.diff(places) > 1)
        first, last = int(places[0]), int(places[gaps[0]] if gaps.size else places[-1])
        before = tokenizer.decode(answer.ids[:first])
        wanted = tokenizer.decode(answer.ids[: last + 1])[len(before) :]
        prompts.append(Prompt(answer.ids[:first].tolist(), wanted))
    return prompts


def _sums(objective: Objective) -> Any:
    @fxad.jit
    def sums(trained: Any, frozen: Any, reference: Any, batch: Any) -> tuple[Any, Any]:
        params = fxad.tree.combine(trained, frozen)
        return objective.total(params, reference, batch), objective.count(batch)

    return sums


def split(
    examples: Sequence[Example | Pair], share: float, most: int, seed: int
) -> tuple[list[Example | Pair], list[Example | Pair]]:
    """(training, validation): a share of the examples, from one to `most`, chosen by the seed; none
    where the share is 0."""
    count = min(max(round(len(examples) * share), 1), most) if share else 0
    random = np.random.default_rng([seed, 1])
    chosen = set(random.permutation(len(examples))[:count].tolist())
    return (
        [example for i, example in enumerate(examples) if i not in chosen],
        [example for i, example in enumerate(examples) if i in chosen],
    )
