"""Where equations come from: the line of the user's code (`file.py:12`) and the scope it stands in
(`file.py:12 in attention`), the part of a derivative, and which loops a derivative has made
together."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np

from fxad.core import notebook
from fxad.core.errors import set_locator
from fxad.core.source import FILES, PACKAGE
from fxad.ir.program import new_pair

# contextlib: of decorators in the package. NumPy calls us for arrays of ours.
_OURS = (PACKAGE, FILES, "<frozen", contextlib.__file__, os.path.dirname(np.__file__) + os.sep)
_names: dict[str, str] = {}  # file -> its name without folders, empty for our own


class _State(threading.local):
    where: str = ""
    scope: str = ""  # " in attention/softmax", or nothing
    phase: str | None = None
    pair: int | None = None


_state = _State()


def current() -> str:
    """The location rewrites are working on behalf of, else the nearest frame outside fxad."""
    return _state.where or calling()


def calling() -> str:
    """The nearest frame outside fxad."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        name = _names.get(file)
        if name is None:
            name = _names[file] = _named(file)
        if name:
            return f"{name}:{frame.f_lineno}{_state.scope}"
        frame = frame.f_back
    return ""


def _named(file: str) -> str:
    """What a file is called in locations: nothing if it is ours, `In[12]` for a notebook's cell."""
    if file.startswith(_OURS):
        return ""
    return notebook.cell(file) or os.path.basename(file)


def _forget_cells(*_: Any) -> None:
    """A cell has another number when it runs again."""
    for file in [file for file in _names if notebook.cell(file)]:
        del _names[file]


def code(where: str) -> str:
    """The user's line of code at a location, without its indentation; nothing if the file is not
    known, or two files of its name are."""
    name, _, rest = where.partition(":")
    files = [file for file, short in _names.items() if short == name]
    number = rest.partition(" ")[0]
    if len(files) != 1 or not number.isdigit():
        return ""
    linecache: Any = importlib.import_module("linecache")  # only who asks pays for it
    return str(linecache.getline(files[0], int(number))).strip()


def here() -> tuple[str, str | None]:
    """`current()` and `phase()`."""
    where, phase = _state.where, _state.phase
    return where or current(), phase


def surroundings() -> tuple[str, str | None]:
    """What equations recorded now say beside their line: the scope and `phase()`."""
    return _state.scope, _state.phase


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """Have locations found inside say so: `model.py:12 in attention`, and `in attention/softmax`
    where scopes are nested. What is no printable character, and blanks, become underscores."""
    before = _state.scope
    word = "".join([c if c.isprintable() and not c.isspace() else "_" for c in name])
    _state.scope = f"{before}/{word}" if before else f" in {word}"
    try:
        yield
    finally:
        _state.scope = before


@contextlib.contextmanager
def using(where: str) -> Iterator[None]:
    """Give every equation recorded inside this location instead of the Python frame's."""
    before = _state.where
    _state.where = where or before
    try:
        yield
    finally:
        _state.where = before


def follow(where: str) -> str:
    """Set the location for following equations, returning the one before (see `using`)."""
    before = _state.where
    if where:
        _state.where = where
    return before


def phase() -> str | None:
    """The part of a derivative being recorded: "backward", "recomputed", or None (forward)."""
    return _state.phase


def enter(phase: str | None) -> str | None:
    """Set the phase of following equations, returning the one before."""
    before = _state.phase
    _state.phase = phase
    return before


def enter_pair(pair: int | None) -> int | None:
    """Set the pair of the loops that follow (see `Eqn.pair`), returning the one before."""
    before = _state.pair
    _state.pair = pair
    return before


def pair() -> int | None:
    """The pair of loops being recorded."""
    return _state.pair


@contextlib.contextmanager
def paired() -> Iterator[None]:
    """Give loops recorded inside one pair: that of the loop they are made from, or a new one."""
    before = _state.pair
    if before is None:
        _state.pair = new_pair()
    try:
        yield
    finally:
        _state.pair = before


def restore(where: str) -> None:
    _state.where = where


set_locator(current)
notebook.before_each_cell(_forget_cells)
