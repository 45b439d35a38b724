"""Measured choices on disk, and the target that compiles with them.

    target = target_of(config.isa)       # of this machine, with what was measured on it
    adopt(choices)                       # from now on, and in later processes

A file holds the choices of one processor, compiler and set of features; a damaged one is
ignored with a warning. With `FXAD_CACHE=0` nothing is read or written.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from fxad.backend.llvm.base.choices import NONE, Choice, Choices
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.tuning import Tuning
from fxad.backend.llvm.native import engine
from fxad.backend.llvm.native.entries import directory, get, locked, put, warn_once
from fxad.core.config import config
from fxad.core.record import replace

_own: dict[Path | None, Choices] = {}  # by file; None: without one
_tuning: list[Tuning] = []  # the last one takes the place of the kind's, see `tuned_by`


def target_of(isa: str | None) -> Target:
    """`engine.host_target` with the choices measured on this machine."""
    plain = engine.host_target(isa)
    found = current()
    if not found.digest and not _tuning:
        return plain
    return _with(plain, found, _tuning[-1] if _tuning else plain.tuning)


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
        return Choices.parse(content.decode())
    except ValueError as error:
        return _ignored(path, error)


def _ignored(path: Path, error: ValueError) -> Choices:
    warn_once(f"ignoring the damaged table of tiles {path} (fxad.tune makes a new one): {error}")
    return NONE
