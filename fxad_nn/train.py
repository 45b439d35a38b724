"""Training as a function: options in, trained parameters and a checkpoint out.

result = train(recipe("nano", data=Path("input.txt")))
print(result.val_loss, result.checkpoint)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fxad
from fxad_nn import models
from fxad_nn.data import random_batch
from fxad_nn.directory import reserved
from fxad_nn.errors import TrainingError
from fxad_nn.evaluate import Evaluate, evaluator
from fxad_nn.flops import measured_peak, training_flops_per_token
from fxad_nn.keep import Keeper
from fxad_nn.listener import Listener, Progress
from fxad_nn.loss import IGNORE
from fxad_nn.optim import Schedule, schedule
from fxad_nn.recipe import TrainOptions, optimizer_of
from fxad_nn.run import Run, begin, resume
from fxad_nn.signals import Stop, stopping
from fxad_nn.spec import count_params
from fxad_nn.step import train_step
from fxad_nn.vocabulary import require_ids


@dataclass(frozen=True)
class Result:
    """What training left. After an interruption `val_loss`, which is over the whole split, is None
    and `stop` holds the signal, if it was one."""

    run: Run
    checkpoint: Path
    val_loss: float | None
    interrupted: bool
    stop: Stop


def train(options: TrainOptions, listener: Listener | None = None) -> Result:
    """Train, evaluate and save as `options` say.

    Ctrl-C (or SIGTERM, SIGHUP, a listener that says so) ends the run after the step under way with
    a checkpoint from which `resume` continues to the same bits. Where an error ends it between two
    steps it is saved too; a note on the error says where, or why not.

    Raises TrainingError where a loss or a parameter is not finite, ConfigError where another
    process trains in the same directory, DataError where the data is damaged.
    """
    listener = listener or Listener()
    if options.threads is not None:
        fxad.set_num_threads(options.threads)
    run = resume(options) if options.resume else begin(options)
    for message in run.warnings:
        listener.warned(message)
    evaluate = evaluator(run.config)
    with reserved(run.directory) as place:
        keeper = Keeper(run, place, listener)
        with stopping() as stop:
            try:
                interrupted = _loop(run, evaluate, listener, keeper, stop)
                checkpoint = keeper.save()
            except BaseException as error:
                keeper.rescue(error)
                raise
        if interrupted:
            return Result(run, checkpoint, None, True, stop)
        val_loss = evaluate(run.weights, run.data.val, run.context, run.options.eval_batch)
        keeper.record("val", val_loss)
    return Result(run, checkpoint, val_loss, False, stop)


def _loop(run: Run, evaluate: Evaluate, listener: Listener, keeper: Keeper, stop: Stop) -> bool:
    """Steps, with reports, validations and checkpoints; whether they were stopped early."""
    o = run.options
    rate = schedule(o.schedule, o.learning_rate, o.final_rate, o.warmup, o.steps)
    step = train_step(run.config, optimizer_of(o), o.clip, o.accumulate, o.dtype)
    peak = o.peak * 1e9 if o.peak else measured_peak()
    meter = Meter(run, rate, peak)
    listener.started(run, count_params(models.family(run.config).spec(run.config)), peak)

    def report() -> None:
        progress = meter.report()
        keeper.record("train", progress.loss)
        listener.progressed(progress)

    def goes_on() -> bool:
        return run.step < o.steps and not stop.is_set() and not listener.should_stop()

    def due(every: int) -> bool:
        return every > 0 and run.step > 0 and run.step % every == 0

    while goes_on():
        if due(o.eval_every) and run.step not in {at for at, _ in run.history["val"]}:
            value = evaluate(run.weights, run.data.val, run.context, o.eval_batch, o.eval_windows)
            keeper.record("val", value)
            listener.evaluated(run.step, value)
            meter.restart()
        if due(o.save_every):
            keeper.save()
            meter.restart()
        meter.add(_step(run, step))
        if due(o.log_every):
            report()
    if meter.waiting:
        report()
    return stop.is_set() or listener.should_stop()


def _step(run: Run, step: Callable[..., Any]) -> Any:
    """Do one step; its loss. Until it returns there is nothing to save: the old is donated."""
    batch = _batch(run)
    given = run.params, run.state
    run.params = run.state = None
    run.params, run.state, loss = step(*given, *batch)
    run.step += 1
    return loss


class Meter:
    """Collects losses between two reports and times the steps alone."""

    def __init__(self, run: Run, rate: Schedule, peak: float) -> None:
        self._run, self._rate, self._peak = run, rate, peak
        o = run.options
        self._tokens_per_step = o.batch * o.accumulate * run.context
        self._flops = training_flops_per_token(run.config, run.context)
        self._losses: list[Any] = []
        self._seconds, self._timed = 0.0, 0
        self._warm = False
        self.restart()

    def restart(self) -> None:
        """Start timing the next step, leaving out what happened since the last one."""
        self._since = time.perf_counter()

    def add(self, loss: Any) -> None:
        """One step was done. The first step of all, which compiles, is not timed."""
        self._losses.append(loss)
        now = time.perf_counter()
        if self._warm:
            self._seconds += now - self._since
            self._timed += 1
        self._warm = True
        self._since = now

    @property
    def waiting(self) -> bool:
        """Whether a step was done since the last report."""
        return bool(self._losses)

    def report(self) -> Progress:
        """The mean loss and the speed since the last report."""
        losses = [float(loss) for loss in self._losses]
        if not all(map(math.isfinite, losses)):
            raise TrainingError(
                f"the loss is {losses[-1]} at step {self._run.step}: try a lower --learning-rate "
                "or a longer --warmup, and --resume from the last checkpoint where there is one"
            )
        self._seconds += time.perf_counter() - self._since  # fetching waits for pending work
        self._since = time.perf_counter()
        speed = self._tokens_per_step * self._timed / self._seconds if self._timed else 0.0
        self._losses, self._seconds, self._timed = [], 0.0, 0
        rate = float(self._rate(np.float32(self._run.step - 1)))
        mean = sum(losses) / len(losses)
        return Progress(self._run.step, mean, rate, speed, speed * self._flops / self._peak)


def _batch(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """The tokens and targets of the next step; the same ones whether or not it was resumed.

    DataError where an id is outside the model's vocabulary, as in a file that was damaged after it
    was opened.
    """
    o = run.options
    first = run.step * o.accumulate
    parts = [
        random_batch(run.data.train, o.batch, run.context, o.seed, first + i)
        for i in range(o.accumulate)
    ]
    for tokens, targets in parts:
        require_ids(tokens, run.config.vocab, f"the batch of step {run.step + 1}")
        require_ids(targets, run.config.vocab, f"the targets of step {run.step + 1}", IGNORE)
    if o.accumulate == 1:
        return parts[0]
    return np.stack([tokens for tokens, _ in parts]), np.stack([wanted for _, wanted in parts])
