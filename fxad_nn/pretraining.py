"""Predicting every next token of a text: the task of `python -m fxad_nn train`.

task = Pretraining(options, config, open_data(options.data))
step = task.compiled(adamw(1e-3))
params, state, (loss, norm) = step(params, state, *task.batch(0))
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import fxad
from fxad_nn import models
from fxad_nn.data import Dataset, random_batch
from fxad_nn.data_mixture import mixed_batch
from fxad_nn.evaluate import Evaluator
from fxad_nn.flops import training_flops_per_token
from fxad_nn.loss import IGNORE
from fxad_nn.memory_choice import needed
from fxad_nn.optim import Optimizer
from fxad_nn.recipe import TrainOptions
from fxad_nn.samples import MOST, Prompt, Sample, continued
from fxad_nn.step import train_step
from fxad_nn.task import Batch, Step
from fxad_nn.tokenizer import Tokenizer
from fxad_nn.vocabulary import require_ids

TEXT = "text"
"""What the digest of a run's text is called."""

PROMPT = 32
"""Tokens of a prompt that is taken from the validation split."""


class Pretraining:
    """Random windows of `data`, whose every token but the first is predicted."""

    def __init__(self, options: TrainOptions, config: models.Config, data: Dataset) -> None:
        self._options, self._config, self.data = options, config, data
        self._context = options.context or config.context
        self._evaluate = Evaluator(config)
        self._compiled: list[Any] = []

    @property
    def source(self) -> str:
        return self.data.source

    @property
    def size(self) -> int:
        return sum(len(part) for part in (*self.data.train, *self.data.val))

    @property
    def digests(self) -> dict[str, str]:
        """Of the text alone: a checkpoint holds the model and the tokenizer."""
        return {TEXT: self.data.digest} if self.data.digest else {}

    @property
    def tokenizer(self) -> Tokenizer:
        return self.data.tokenizer

    @property
    def flops_per_token(self) -> float:
        return training_flops_per_token(self._config, self._context)

    def lines(self) -> list[str]:
        o, tokens = self._options, [sum(map(len, s)) for s in (self.data.train, self.data.val)]
        return [
            f"model: {o.preset if o.weights is None else o.weights}, "
            f"vocabulary {self._config.vocab}",
            f"data: {self.source}",
            f"tokens: {tokens[0]:,} to train, {tokens[1]:,} to validate",
        ]

    def batch(self, step: int) -> Batch:
        """Tokens and targets of one step.

        DataError where an id is outside the model's vocabulary, as in a file that was damaged
        after it was opened.
        """
        o, vocab = self._options, self._config.vocab
        first = step * o.accumulate
        data, how = self.data, (o.batch, self._context, o.seed)
        parts = [
            mixed_batch(data.train, data.shares, *how, first + i)
            if data.shares
            else random_batch(data.train, *how, first + i)
            for i in range(o.accumulate)
        ]
        for tokens, targets in parts:
            require_ids(tokens, vocab, f"the batch of step {step + 1}")
            require_ids(targets, vocab, f"the targets of step {step + 1}", IGNORE)
        tokens, targets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return tokens.reshape(self._shape), targets.reshape(self._shape)

    @property
    def parts(self) -> tuple[int, int]:
        o = self._options
        return o.accumulate * o.micro_batches, o.batch // o.micro_batches

    @property
    def _shape(self) -> tuple[int, ...]:
        """Of a step's tokens: [micro-batches, rows, context], of a single one without the first."""
        parts, rows = self.parts
        return (rows, self._context) if parts == 1 else (parts, rows, self._context)

    def compiled(self, optimizer: Optimizer) -> Step:
        o = self._options
        config = replace(self._config, recompute=o.recompute, offload=o.offload)
        how = o.clip, self.parts[0], o.dtype, o.penalties
        step = train_step(config, optimizer, *how, with_norm=True)
        self._compiled.append(step)
        return step

    def changed(self, options: TrainOptions) -> Pretraining:
        return Pretraining(options, self._config, self.data)

    def largest(self, optimizer: Optimizer, params: Any, state: Any) -> list[Any]:
        tokens = fxad.ShapeDtypeStruct(self._shape, np.int32)
        seen = fxad.ShapeDtypeStruct((self._options.eval_batch, self._context), np.int32)
        step: Any = self.compiled(optimizer)
        return [
            step.lower(params, state, tokens, tokens),
            self._evaluate.sums.lower(params, seen, seen),
        ]

    def needed(self) -> int:
        return needed(*self._compiled, self._evaluate.sums)

    def samples(self, params: Any) -> list[Sample]:
        """Of texts from the validation split, evenly spaced, each with how it goes on."""
        count, vocab = self._options.sample_tokens, self.tokenizer
        part = max(self.data.val, key=len)
        length = min(PROMPT, self._context, len(part) - 1)
        prompts = []
        for start in np.linspace(0, len(part) - length - 1, MOST, dtype=int):
            ids = np.asarray(part[start : start + length + count])
            require_ids(ids, self._config.vocab, "the validation split")
            wanted = vocab.decode(ids)[len(vocab.decode(ids[:length])) :]
            prompts.append(Prompt(ids[:length].tolist(), wanted))
        return continued(params, self._config, prompts, vocab, count)

    def evaluate(self, params: Any, whole: bool) -> float:
        o = self._options
        limit = None if whole else o.eval_windows
        return self._evaluate(params, self.data.val, self._context, o.eval_batch, limit)
