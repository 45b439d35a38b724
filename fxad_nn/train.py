"""Training as a function: options in, trained parameters and a checkpoint out.

result = train(recipe("nano", data=Path("input.txt")))
print(result.val_loss, result.checkpoint)
"""

from __future__ import annotations

import math
import time
import warnings
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fxad
from fxad.core.system import resident_now
from fxad_nn.directory import reserved
from fxad_nn.errors import TrainingError
from fxad_nn.flops import measured_peak, unit_of
from fxad_nn.keep import Keeper
from fxad_nn.listener import Listener, Progress
from fxad_nn.memory_choice import Prediction, copies
from fxad_nn.optim import Schedule, schedule
from fxad_nn.recipe import TrainOptions, optimizer_of, require_options
from fxad_nn.run import Run, begin, not_finite, resume
from fxad_nn.signals import Stop, stopping
from fxad_nn.spec import count_params
from fxad_nn.task import Step


@dataclass(frozen=True)
class Result:
    """What training left. `val_loss` is over the whole split, and None where that is empty or the
    run was interrupted; then `stop` holds the signal, if it was one."""

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

    A run that is done already is evaluated alone, which the listener is told; where there is none,
    Python warns.

    Raises TrainingError where a loss or a parameter is not finite, ConfigError for what are no
    options and where another process trains in the same directory, DataError where the data is
    damaged.
    """
    require_options(options, TrainOptions, "recipe")
    if options.threads is not None:
        fxad.set_num_threads(options.threads)
    return carry_out(resume(options) if options.resume else begin(options), listener)


def carry_out(run: Run, listener: Listener | None = None) -> Result:
    """Do the steps of a run that are left, as `train` says, and evaluate what comes of it."""
    if run.is_done and listener is None:
        warnings.warn(_nothing_left(run), stacklevel=3)  # at the call of train or finetune
    listener = listener or Listener()
    for message in run.warnings:
        listener.warned(message)
    if run.is_done:
        listener.warned(_nothing_left(run))
    elif run.options.warmup > run.options.steps:
        listener.warned(
            f"the learning rate rises over `warmup={run.options.warmup}` steps, and the run ends "
            f"after `steps={run.options.steps}`: it never reaches `learning_rate`"
        )
    with reserved(run.directory) as place, closing(Keeper(run, place, listener)) as keeper:
        with stopping() as stop:
            try:
                interrupted = _loop(run, listener, keeper, stop)
                checkpoint = keeper.finish()
            except BaseException as error:
                keeper.rescue(error)
                raise
        if interrupted:
            return Result(run, checkpoint, None, True, stop)
        val_loss = run.task.evaluate(run.weights, whole=True)
        if val_loss is not None:
            keeper.judge(val_loss)
        keeper.collect(wait=True)
    return Result(run, checkpoint, val_loss, False, stop)


def _nothing_left(run: Run) -> str:
    """Why no step of a run is done, in words."""
    asked = f"`steps={run.options.steps}`"
    how = f"more than {asked}" if run.step > run.options.steps else f"which are all of {asked}"
    return f"the run has done {run.step} steps, {how}: nothing is trained"


def _loop(run: Run, listener: Listener, keeper: Keeper, stop: Stop) -> bool:
    """Steps, with reports, validations and checkpoints; whether they were stopped early."""
    o = run.options
    rate = schedule(o.schedule, o.learning_rate, o.final_rate, o.warmup, o.steps)
    step = run.task.compiled(optimizer_of(o))
    unit = "" if o.peak else unit_of(o.dtype)
    peak = o.peak * 1e9 if o.peak else measured_peak(unit)
    meter = Meter(run, rate, peak, unit)
    listener.started(run, count_params(run.params), peak)

    def report() -> None:
        progress = meter.report()
        keeper.record("train", progress.loss)
        if math.isfinite(progress.gradient_norm):
            keeper.record("norm", progress.gradient_norm)
        keeper.watch(
            {
                "learning_rate": progress.learning_rate,
                "tokens_per_second": progress.tokens_per_second,
                "utilisation": progress.utilisation,
            }
        )
        listener.progressed(progress)

    def goes_on() -> bool:
        return run.step < o.steps and not stop.is_set() and not listener.should_stop()

    def due(every: int) -> bool:
        return every > 0 and run.step > 0 and run.step % every == 0

    while goes_on():
        keeper.collect()
        if due(o.eval_every) and run.step not in {at for at, _ in run.history["val"]}:
            value = run.task.evaluate(run.weights, whole=False)
            if value is not None:
                keeper.judge(value)
                listener.evaluated(run.step, value)
            meter.restart()
        if due(o.sample_every) and run.step != run.sampled:
            samples = run.task.samples(run.weights)
            keeper.keep(samples)
            run.sampled = run.step
            listener.sampled(run.step, samples)
            meter.restart()
        if due(o.save_every):
            keeper.save()
            meter.restart()
        meter.add(*_step(run, step))
        if due(o.log_every):
            report()
    if meter.waiting:
        report()
    return stop.is_set() or listener.should_stop()


def _step(run: Run, step: Step) -> tuple[tuple[Any, Any], int]:
    """Do one step; its loss and its gradient's norm, and how many tokens went through the model.
    Until it returns there is nothing to save: the old is donated."""
    batch = run.task.batch(run.step)
    given = run.params, run.state
    run.params = run.state = None
    run.params, run.state, measured = step(*given, *batch)
    run.step += 1
    return measured, batch[0].size


class Meter:
    """Collects losses between two reports and times the steps alone."""

    def __init__(self, run: Run, rate: Schedule, peak: float, unit: str = "") -> None:
        self._run, self._rate, self._peak, self._unit = run, rate, peak, unit
        self._held = resident_now()
        self._copies = copies(run.options, run.params, run.state)
        self._flops = run.task.flops_per_token
        self._losses: list[Any] = []
        self._norms: list[Any] = []
        self._seconds, self._tokens = 0.0, 0
        self._warm = False
        self.restart()

    def restart(self) -> None:
        """Start timing the next step, leaving out what happened since the last one."""
        self._since = time.perf_counter()

    def add(self, measured: tuple[Any, Any], tokens: int) -> None:
        """One step was done. The first step of all, which compiles, is not timed."""
        self._losses.append(measured[0])
        self._norms.append(measured[1])
        now = time.perf_counter()
        if self._warm:
            self._seconds += now - self._since
            self._tokens += tokens
        self._warm = True
        self._since = now

    @property
    def waiting(self) -> bool:
        """Whether a step was done since the last report."""
        return bool(self._losses)

    def report(self) -> Progress:
        """The mean loss and gradient's norm, and the speed, since the last report."""
        losses = [float(loss) for loss in self._losses]
        norms = [norm for norm in map(float, self._norms) if math.isfinite(norm)]
        if not all(map(math.isfinite, losses)):
            raise TrainingError(self._diverged(losses))
        self._seconds += time.perf_counter() - self._since  # fetching waits for pending work
        self._since = time.perf_counter()
        speed = self._tokens / self._seconds if self._tokens else 0.0
        self._losses, self._norms, self._seconds, self._tokens = [], [], 0.0, 0
        rate = float(self._rate(np.float32(self._run.step - 1)))
        mean = sum(losses) / len(losses)
        return Progress(
            self._run.step,
            mean,
            rate,
            speed,
            speed * self._flops / self._peak,
            gradient_norm=sum(norms) / len(norms) if norms else math.nan,
            resident=resident_now(),
            predicted=self._predicted(),
            unit=self._unit,
        )

    def _predicted(self) -> int | None:
        """What was predicted to keep within `memory`, or else what the plans of the programs that
        ran say: a few additions, since those plans are there already."""
        if self._run.predicted is not None:
            return self._run.predicted
        needed = self._run.task.needed()
        return Prediction(self._held, needed, self._copies).total if needed else None

    def _diverged(self, losses: list[float]) -> str:
        """Which loss was no number, and what it left."""
        first = next(i for i, loss in enumerate(losses) if not math.isfinite(loss))
        step = self._run.step - len(losses) + first + 1
        broken = not_finite(self._run)
        spread = f"; now {broken} holds such numbers too" if broken else ""
        return (
            f"the loss is {losses[first]} at step {step}{spread}: try a lower `learning_rate` "
            "or a longer `warmup`, and `resume` from the last checkpoint where there is one"
        )
