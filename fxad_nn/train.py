"""Training as a function: options in, trained parameters and a checkpoint out.

result = train(recipe("nano", data=Path("input.txt")))
print(result.val_loss, result.checkpoint)
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fxad
from fxad_nn import models
from fxad_nn.data import random_batch
from fxad_nn.errors import TrainingError
from fxad_nn.evaluate import Evaluate, evaluator
from fxad_nn.files import reserved
from fxad_nn.flops import measured_peak, training_flops_per_token
from fxad_nn.optim import Schedule, adamw, schedule
from fxad_nn.recipe import TrainOptions
from fxad_nn.run import Run, begin, resume, save
from fxad_nn.spec import count_params
from fxad_nn.step import train_step


@dataclass(frozen=True)
class Progress:
    """A report every few steps. `utilisation` is model FLOPs over the machine's peak."""

    step: int
    loss: float
    learning_rate: float
    tokens_per_second: float
    utilisation: float


class Listener:
    """What `train` tells the outside; a subclass overrides what it wants to hear."""

    def started(self, run: Run, parameters: int, peak: float) -> None:
        """Everything is loaded; the first step compiles next. `peak` is in FLOP/s."""

    def progressed(self, progress: Progress) -> None:
        """Some steps were done."""

    def evaluated(self, step: int, loss: float) -> None:
        """The loss on a sample of the validation split."""

    def saved(self, path: Path) -> None:
        """A checkpoint is on the disk."""


@dataclass(frozen=True)
class Result:
    """What training left. `val_loss` is over the whole split, None after an interruption."""

    run: Run
    checkpoint: Path
    val_loss: float | None
    interrupted: bool


def train(options: TrainOptions, listener: Listener | None = None) -> Result:
    """Train, evaluate and save as `options` say.

    Ctrl-C (or SIGTERM) ends the run after the step under way with a checkpoint from which
    `resume` continues to the same bits. Raises TrainingError where the loss is not finite,
    ConfigError where another process trains in the same directory.
    """
    listener = listener or Listener()
    if options.threads is not None:
        fxad.set_num_threads(options.threads)
    with _stop_signals() as stop:
        run = resume(options) if options.resume else begin(options)
        evaluate = evaluator(run.config)
        with reserved(run.directory):
            _loop(run, evaluate, listener, stop)
            interrupted = run.step < run.options.steps
            checkpoint = _keep(run, listener)
    if interrupted:
        return Result(run, checkpoint, None, True)
    val_loss = evaluate(run.params, run.data.val, run.context, run.options.eval_batch)
    run.history["val"].append([run.step, val_loss])
    return Result(run, checkpoint, val_loss, False)


def _loop(run: Run, evaluate: Evaluate, listener: Listener, stop: threading.Event) -> None:
    """Steps until the last one or until `stop`, with reports, validations and checkpoints."""
    o = run.options
    rate = schedule(o.schedule, o.learning_rate, o.final_rate, o.warmup, o.steps)
    optimizer = adamw(rate, o.beta1, o.beta2, weight_decay=o.weight_decay)
    step = train_step(run.config, optimizer, o.clip, o.accumulate, o.dtype)
    peak = o.peak * 1e9 if o.peak else measured_peak()
    meter = Meter(run, rate, peak)
    listener.started(run, count_params(models.family(run.config).spec(run.config)), peak)
    while run.step < o.steps and not stop.is_set():
        batch = _batch(run)
        run.params, run.state, loss = step(run.params, run.state, *batch)
        run.step += 1
        meter.add(loss)
        if run.step % o.log_every == 0 or run.step == o.steps or stop.is_set():
            progress = meter.report()
            run.history["train"].append([run.step, progress.loss])
            listener.progressed(progress)
        if o.eval_every and run.step % o.eval_every == 0 and run.step < o.steps:
            value = evaluate(run.params, run.data.val, run.context, o.eval_batch, o.eval_windows)
            run.history["val"].append([run.step, value])
            listener.evaluated(run.step, value)
            meter.restart()
        if o.save_every and run.step % o.save_every == 0 and run.step < o.steps:
            _keep(run, listener)
            meter.restart()


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

    def report(self) -> Progress:
        """The mean loss and the speed since the last report."""
        losses = [float(loss) for loss in self._losses]
        if not all(map(math.isfinite, losses)):
            raise TrainingError(
                f"the loss is {losses[-1]} at step {self._run.step}: try a lower --learning-rate "
                "or a longer --warmup, and --resume from the last checkpoint"
            )
        self._seconds += time.perf_counter() - self._since  # fetching waits for pending work
        self._since = time.perf_counter()
        speed = self._tokens_per_step * self._timed / self._seconds if self._timed else 0.0
        self._losses, self._seconds, self._timed = [], 0.0, 0
        rate = float(self._rate(np.float32(self._run.step - 1)))
        mean = sum(losses) / len(losses)
        return Progress(self._run.step, mean, rate, speed, speed * self._flops / self._peak)


def _keep(run: Run, listener: Listener) -> Path:
    """Save, and say so unless this step was on the disk already."""
    before = run.checkpoint
    path = save(run)
    if path != before:
        listener.saved(path)
    return path


def _batch(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """The tokens and targets of the next step; the same ones whether or not it was resumed."""
    o = run.options
    first = run.step * o.accumulate
    parts = [
        random_batch(run.data.train, o.batch, run.context, o.seed, first + i)
        for i in range(o.accumulate)
    ]
    if o.accumulate == 1:
        return parts[0]
    return np.stack([tokens for tokens, _ in parts]), np.stack([wanted for _, wanted in parts])


@contextlib.contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; a second one interrupts at once.

    Outside the main thread, where Python delivers no signals, nobody sets it.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number in numbers:
            signal.signal(number, before[number])

    def handle(number: int, frame: Any) -> None:
        stop.set()
        restore()

    for number in numbers:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        restore()
