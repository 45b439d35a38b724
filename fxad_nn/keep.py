"""What a run leaves on the disk while it goes on: its losses and its checkpoints.

    keeper = Keeper(run, place, listener)
    keeper.record("train", 3.31)                # a line of losses.jsonl
    keeper.save()                               # a checkpoint, where the directory is now
    keeper.collect()                            # what was saved in the background, or why not
    path = keeper.finish()                      # the run as it is in the end, on the disk

With `options.background_saves` a checkpoint is copied in memory at once, and one thread writes it
while the run goes on. The run waits for the thread before it copies another step, and before it
ends; where writing fails, the error is raised at the next step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from fxad_nn.directory import Place
from fxad_nn.errors import CheckpointError, TrainingError
from fxad_nn.events import Events
from fxad_nn.listener import Listener
from fxad_nn.losses import LOSSES, Line, append, begun, lines_of, point
from fxad_nn.run import BEST, Run, best_loss, is_saved, save, save_best, snapshot, write
from fxad_nn.run_file import STARTS, start
from fxad_nn.samples import SAMPLES, Sample

_TRIES = 3  # a directory may be moved again while it is written to


@dataclass(frozen=True)
class _Writing:
    """A copy of a run that the thread writes: how often the directory had changed by then, whether
    it is the best, and the checkpoint that comes of it."""

    run: Run
    changes: int
    best: bool
    path: Future[Path]


class Keeper:
    """Writes what `run` leaves to `place`, and tells `listener` of it and of what is in its way."""

    def __init__(self, run: Run, place: Place, listener: Listener) -> None:
        self._run, self._place, self._listener = run, place, listener
        self._unwritten: list[Line] = [begun(run.step)]
        self._untold: list[str] = []
        self._events = Events(run.step) if run.options.events else None
        self._complained = False
        self._start: list[Line] = [start(run.step, run.options)]
        self._writer = ThreadPoolExecutor(1, "save") if run.options.background_saves else None
        self._writing: list[_Writing] = []
        self._changes = 0

    def record(self, kind: str, value: float) -> None:
        """Add a loss, "train" or "val", or the gradient's "norm", of the run's present step to its
        history, on the disk too.

        A disk that refuses is mentioned once; the next time every line that is missing is written.
        """
        run = self._run
        run.history[kind].append([run.step, value])
        self._unwritten.append(point(kind, run.step, value))
        with self._trying("losses"):
            path = run.directory / LOSSES
            append(path, self._unwritten if path.exists() else lines_of(run.history))
            self._unwritten = []
        self._tell_start()
        self.watch({"gradient_norm" if kind == "norm" else f"loss/{kind}": value})

    def watch(self, scalars: Mapping[str, float]) -> None:
        """Add numbers of the run's present step to its event file, where it wants one."""
        if self._events is not None:
            with self._trying("events"):
                self._events.write(self._run.directory, self._run.step, scalars)

    def _tell_start(self) -> None:
        """Say how this start of the run came about, once there is something else to keep."""
        if self._start:
            with self._trying("record of this start"):
                append(self._run.directory / STARTS, self._start)
                self._start = []

    def keep(self, samples: list[Sample]) -> None:
        """Add samples of the run's present step to those on the disk, if that takes them."""
        lines = [{"step": self._run.step, **asdict(sample)} for sample in samples]
        with self._trying("samples"):
            append(self._run.directory / SAMPLES, lines)

    @contextlib.contextmanager
    def _trying(self, what: str) -> Iterator[None]:
        """Write `what` where the directory is now; the user hears once of a disk that refuses."""
        try:
            self._settle()
            yield
        except OSError as error:
            if not self._complained:
                self._untold.append(f"the {what} cannot be written to the disk: {error}")
            self._complained = True
        self._tell()

    def save(self) -> None:
        """Save the run as it is now, or begin to."""
        if self._writer is None:
            self.finish()
        elif not is_saved(self._run):
            self._begin(best=False)

    def finish(self) -> Path:
        """Have the run as it is now on the disk, and say so unless its newest checkpoint holds
        this step."""
        self.collect(wait=True)
        before = self._run.checkpoint
        path = self._write()
        self._tell_start()
        self._tell()
        if path != before:
            self._listener.saved(path)
        return path

    def judge(self, loss: float) -> None:
        """Record a validation loss and, where the run wants that, save the best one so far, or
        begin to."""
        self.record("val", loss)
        if not self._run.options.best:
            return
        self.collect(wait=True)  # which may be the best one so far
        if loss <= best_loss(self._run.directory):
            self._settle()
            if self._writer is None:
                self._listener.saved(save_best(self._run))
            else:
                self._begin(best=True)
            self._tell()

    def close(self) -> None:
        """Wait for what is being written. What is wrong with it, `collect` says."""
        if self._writer is not None:
            self._writer.shutdown()

    def collect(self, wait: bool = False) -> None:
        """Say what the thread has written; wait: until it has written everything.

        Raises what writing raised: CheckpointError where the disk refuses, TrainingError where a
        number is not finite.
        """
        while self._writing and (wait or self._writing[0].path.done()):
            self._collect(self._writing.pop(0))

    def _begin(self, best: bool) -> None:
        """Copy the run as it is now, and let the thread write that. Before there is a second copy
        in memory, the one before is written."""
        run = self._run
        same = [writing.run for writing in self._writing if writing.run.step == run.step]
        if not same:
            self.collect(wait=True)
        self._settle()
        assert self._writer is not None
        copy = same[0] if same else snapshot(run)
        where, keep = (run.directory / BEST, 1) if best else (run.directory, run.options.keep)
        path = self._writer.submit(write, copy, where, keep)
        self._writing.append(_Writing(copy, self._changes, best, path))

    def _collect(self, writing: _Writing) -> None:
        run = self._run
        try:
            path = writing.path.result()
        except CheckpointError:
            self._settle()
            if writing.changes == self._changes:
                raise
            # The directory was moved or removed while the thread wrote to it: once more.
            home = run.directory / BEST if writing.best else run.directory
            path = write(writing.run, home, 1 if writing.best else run.options.keep)
        if not writing.best:
            run.checkpoint = path
            self._settle(moved=path.parent != run.directory)
            path = run.checkpoint or path
        self._tell_start()
        self._tell()
        self._listener.saved(path)

    def rescue(self, error: BaseException) -> None:
        """Save what `error` would cost, if the run is between two steps, and say so in a note.

        Not where the numbers are bad, the disk refuses or the user wants to leave at once.
        """
        run = self._run
        if isinstance(error, CheckpointError):
            kept = run.checkpoint
            if kept and kept.is_dir() and str(kept) not in str(error):  # as beside a best one
                error.add_note(f"the newest checkpoint, {kept}, is whole")
            return
        try:
            self.collect(wait=True)
        except Exception as failure:
            error.add_note(f"what was being saved is not: {failure}")
        at_once = not isinstance(error, Exception) or isinstance(error, TrainingError)
        if at_once or run.params is None or run.step == 0:
            newest = f"the newest checkpoint is {run.checkpoint}"
            error.add_note(newest if run.checkpoint else "no checkpoint was saved")
            return
        try:
            error.add_note(f"step {run.step} is saved in {self._write()}")
        except (ValueError, OSError) as failure:
            error.add_note(f"step {run.step} could not be saved: {failure}")
        for message in self._untold:  # the listener may be what failed
            error.add_note(message)

    def _write(self) -> Path:
        """Save, again where the directory was moved or removed just then."""
        for _ in range(_TRIES):
            self._settle()
            try:
                return save(self._run)
            except CheckpointError:
                if self._place.in_place():
                    raise
        return save(self._run)

    def _settle(self, moved: bool = False) -> None:
        """Follow the directory where it was moved or removed; moved: it was, since the newest
        checkpoint was written."""
        run = self._run
        if told := self._place.settle():
            self._untold.append(told)
            self._changes += 1
            run.directory, moved = self._place.path, True
        if moved and run.checkpoint is not None:
            followed = run.directory / run.checkpoint.name
            run.checkpoint = followed if followed.exists() else None

    def _tell(self) -> None:
        while self._untold:
            self._listener.warned(self._untold.pop(0))
