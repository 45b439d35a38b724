"""Measured choices on disk, and the target that compiles with them.

    target = target_of(config.isa)       # of this machine, with what was measured on it
    adopt(choices)                       # from now on, and in later processes

Tiles are measured where `fxad.tune` is asked to; a processor of no known kind is calibrated once,
when something is compiled for it, and again on later days where it was too busy to answer. A file
holds the answers of one processor, compiler and set of features; a damaged one is ignored with a
warning. With `FXAD_CACHE=0` nothing is read or written, and nothing is calibrated, as with
`FXAD_CALIBRATE=0`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fxad.backend.llvm.base.answers import Answer, Calibration, tuned
from fxad.backend.llvm.base.choices import NONE, Choice, Choices
from fxad.backend.llvm.base.kinds import known
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.tuning import Tuning
from fxad.backend.llvm.native import engine
from fxad.backend.llvm.native.entries import directory, get, locked, put, warn_once
from fxad.core.config import config
from fxad.core.lazy import later
from fxad.core.record import replace

if TYPE_CHECKING:
    from fxad.backend.llvm import calibrate
else:
    calibrate = later("fxad.backend.llvm.calibrate")

SECONDS = 2.0  # that calibrating may take unasked

_own: dict[Path | None, Choices] = {}  # by file; None: without one
_answers: dict[Path, tuple[Calibration | None, Tuning]] = {}  # by file
_tuning: list[Tuning] = []  # the last one takes the place of the kind's, see `tuned_by`


def target_of(isa: str | None) -> Target:
    """`engine.host_target` with the choices measured on this machine."""
    plain = engine.host_target(isa)
    found, tuning = current(), _tuning[-1] if _tuning else _of_kind(plain)
    return _with(plain, found, tuning) if found.digest or tuning is not plain.tuning else plain


@functools.lru_cache(maxsize=16)
def _with(target: Target, choices: Choices, tuning: Tuning) -> Target:
    return replace(target, choices=choices, tuning=tuning)


@contextlib.contextmanager
def tuned_by(tuning: Tuning) -> Iterator[None]:
    """Compile with this record inside a `with` block, whatever the processor is (for tests and
    measurements). What is compiled already stays as it is."""
    _tuning.append(tuning)
    try:
        yield
    finally:
        _tuning.pop()


def calibration() -> Calibration | None:
    """What was measured of this processor: when `recalibrate` was asked to, or, if it is of no
    known kind, once, which may be now; on another day again if it left questions unanswered.
    None where nothing is kept on disk."""
    if not (config.cache and config.calibrate):
        return None
    path = calibration_file()
    if path not in _answers:
        found = _calibration_in(path)
        if _wanted(found) and known(engine.host_kind()) is None:
            with locked(path.name):  # of several processes that start together one measures
                found = _calibration_in(path)
                if _wanted(found):
                    found = _calibrate(SECONDS, found)
        _adopt(path, found)
    return _answers[path][0]


def calibrated() -> tuple[Answer, ...]:
    """The answers of `calibration`."""
    found = calibration()
    return found.answers if found else ()


def recalibrate(seconds: float = SECONDS) -> tuple[Answer, ...]:
    """Measure this processor now, for at most so many seconds, and keep what was answered."""
    return _calibrate(seconds, None).answers


def _wanted(found: Calibration | None) -> bool:
    return found is None or found.due(time.time())


def _calibrate(seconds: float, before: Calibration | None) -> Calibration:
    """Ask what `before` leaves unanswered."""
    path, answered = calibration_file(), before.answers if before else ()
    more, unanswered = calibrate.calibrate(engine.host_target(), seconds, answered)
    tries = before.tries + 1 if before else 1
    found = Calibration((*answered, *more), unanswered, tries, int(time.time()))
    if config.cache:
        put(path.name, found.text().encode())
    _adopt(path, found)
    return found


def _adopt(path: Path, found: Calibration | None) -> None:
    _answers[path] = found, tuned(engine.host_target().tuning, found.answers if found else ())


def calibration_file() -> Path:
    """Where this processor's answers are, if they are kept on disk. 3: with the present names of
    tuned numbers; what older versions kept is measured again. So is what was asked beside another
    record: answers say what is better than its numbers."""
    record = engine.host_target().tuning.digest
    return directory() / f"calibration-3-{_processor()}-{record}.json"


def _of_kind(plain: Target) -> Tuning:
    """The record of the processor's kind, with what was measured of this one."""
    if plain.isa != engine.host_isa() or not calibrated():
        return plain.tuning
    return _answers[calibration_file()][1]


def _calibration_in(path: Path) -> Calibration | None:
    """What a file holds; None if there is none that can be used."""
    content = get(path.name)
    if content is None:
        return None
    try:
        return Calibration.parse(content)
    except ValueError as error:
        warn_once(f"ignoring the damaged calibration {path}, measuring anew: {error}")
        return None


def current() -> Choices:
    """What was measured on this machine, as far as this process knows."""
    path = file()
    if path not in _own:
        _own[path] = NONE if path is None else _read(path)
    return _own[path]


def adopt(choices: Mapping[str, Choice]) -> Path | None:
    """Compile with these choices too from now on, and keep them on disk beside those that are
    there; returns the file, None where nothing is kept."""
    path = file()
    if path is None:
        _own[path] = current().with_(choices)
        return None
    with locked(path.name):  # what another process measures meanwhile is not lost
        _own[path] = both = current().with_(dict(_read(path).items())).with_(choices)
        written = put(path.name, both.text().encode())
    return path if written else None


def file() -> Path | None:
    """Where this processor's choices are; None if nothing is kept on disk."""
    return directory() / f"tiles-{_processor()}.json" if config.cache else None


def kept() -> Path | None:
    """The file of this processor's choices, if there is one."""
    path = file()
    return path if path is not None and path.is_file() else None


@functools.cache
def _processor() -> str:
    return hashlib.sha256(engine.host_identity().encode()).hexdigest()[:16]


def _read(path: Path) -> Choices:
    content = get(path.name)
    if content is None:
        return NONE
    try:
        return Choices.parse(content)
    except ValueError as error:
        return _ignored(path, error)


def _ignored(path: Path, error: ValueError) -> Choices:
    warn_once(f"ignoring the damaged table of tiles {path} (fxad.tune makes a new one): {error}")
    return NONE
