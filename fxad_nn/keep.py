"""What a run leaves on the disk while it goes on: its losses and its checkpoints.

keeper = Keeper(run, place, listener)
keeper.record("train", 3.31)                # a line of losses.jsonl
path = keeper.save()                        # a checkpoint, where the directory is now
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from fxad_nn.directory import Place
from fxad_nn.errors import CheckpointError, TrainingError
from fxad_nn.events import Events
from fxad_nn.listener import Listener
from fxad_nn.losses import LOSSES, Line, append, begun, lines_of, point
from fxad_nn.run import Run, best_loss, save, save_best
from fxad_nn.run_file import STARTS, start
from fxad_nn.samples import SAMPLES, Sample

_TRIES = 3  # a directory may be moved again while it is written to


class Keeper:
    """Writes what `run` leaves to `place`, and tells `listener` of it and of what is in its way."""

    def __init__(self, run: Run, place: Place, listener: Listener) -> None:
        self._run, self._place, self._listener = run, place, listener
        self._unwritten: list[Line] = [begun(run.step)]
        self._untold: list[str] = []
        self._events = Events(run.step) if run.options.events else None
        self._complained = False
        self._start: list[Line] = [start(run.step, run.options)]

    def record(self, kind: str, loss: float) -> None:
        """Add a loss, "train" or "val", of the run's present step to its history, on the disk too.

        A disk that refuses is mentioned once; the next time every line that is missing is written.
        """
        run = self._run
        run.history[kind].append([run.step, loss])
        self._unwritten.append(point(kind, run.step, loss))
        with self._trying("losses"):
            path = run.directory / LOSSES
            append(path, self._unwritten if path.exists() else lines_of(run.history))
            self._unwritten = []
        self._tell_start()
        self.watch({f"loss/{kind}": loss})

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

    def save(self) -> Path:
        """Save the run as it is now, and say so unless its newest checkpoint holds this step."""
        before = self._run.checkpoint
        path = self._write()
        self._tell_start()
        self._tell()
        if path != before:
            self._listener.saved(path)
        return path

    def judge(self, loss: float) -> None:
        """Record a validation loss and, where the run wants that, save the best one so far."""
        self.record("val", loss)
        if self._run.options.best and loss <= best_loss(self._run.directory):
            self._settle()
            self._listener.saved(save_best(self._run))
            self._tell()

    def rescue(self, error: BaseException) -> None:
        """Save what `error` would cost, if the run is between two steps, and say so in a note.

        Not where the numbers are bad, the disk refuses or the user wants to leave at once.
        """
        run = self._run
        if isinstance(error, CheckpointError):
            return  # its message says what is left
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

    def _settle(self) -> None:
        """Follow the directory where it was moved or removed."""
        run = self._run
        if told := self._place.settle():
            self._untold.append(told)
            run.directory = self._place.path
            if run.checkpoint is not None:
                moved = run.directory / run.checkpoint.name
                run.checkpoint = moved if moved.exists() else None

    def _tell(self) -> None:
        while self._untold:
            self._listener.warned(self._untold.pop(0))
