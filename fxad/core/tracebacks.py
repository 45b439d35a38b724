"""Tracebacks that end at the user's line: frames of the library are left out where they are shown.

    Traceback (most recent call last):
      File "train.py", line 12, in <module>
        print(loss(w, x))
      File "train.py", line 8, in loss
        return x @ w
    fxad.core.errors.ShapeError: matmul: ... (train.py:8)

FXAD_TRACEBACK=full (`config.traceback = "full"`) shows all frames. The exception itself keeps them:
debuggers see everything. An error that is no `FxadError` and was raised by the library's own code
is a fault of the library, and shows all of them too.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import TracebackType
from typing import Any

from fxad.core.config import config
from fxad.core.errors import FxadError, set_renderer
from fxad.core.source import FILES, PACKAGE


def users_frames(error: BaseException) -> TracebackType | None:
    """The traceback of an error without the library's frames; as it is where they are wanted."""
    frames = []
    each = error.__traceback__
    while each is not None:
        frames.append(each)
        each = each.tb_next
    users = [frame for frame in frames if not _ours(frame)]
    code = [frame for frame in frames if _ours(frame) or not _called(frame)]
    fault = bool(code) and _ours(code[-1]) and not isinstance(error, FxadError)
    if config.traceback == "full" or fault or not users:
        return error.__traceback__
    found: TracebackType | None = None
    for frame in reversed(users):
        found = TracebackType(found, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return found


def _ours(frame: TracebackType) -> bool:
    return frame.tb_frame.f_code.co_filename.startswith((PACKAGE, FILES))


def _called(frame: TracebackType) -> bool:
    """Whether a frame is of Python's or an installed library, which fails for its caller."""
    return frame.tb_frame.f_code.co_filename.startswith(_LIBRARIES)


def _chain(error: BaseException) -> list[BaseException]:
    """An error and those it came from."""
    found: list[BaseException] = []
    open_: list[BaseException | None] = [error]
    while open_:
        each = open_.pop()
        if each is not None and all(each is not known for known in found):
            found.append(each)
            open_ += [each.__cause__, each.__context__]
    return found


def rendered(error: BaseException) -> list[str]:
    """Lines for IPython, which asks errors that have `_render_traceback_`."""
    traceback: Any = importlib.import_module("traceback")  # only errors pay for it
    whole = [(each, each.__traceback__) for each in _chain(error)]
    try:
        for each, _ in whole:
            each.__traceback__ = users_frames(each)
        text = "".join(traceback.format_exception(error))
    finally:
        for each, frames in whole:
            each.__traceback__ = frames
    return str(text).rstrip().split("\n")


_LIBRARIES = os.path.dirname(os.__file__) + os.sep
_shown_before = sys.excepthook


def _show(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    """Show an error that nobody caught, as whoever was asked before, with the user's frames."""
    whole = [(each, each.__traceback__) for each in _chain(error)]
    try:
        for each, _ in whole:
            each.__traceback__ = users_frames(each)
        _shown_before(kind, error, error.__traceback__)
    finally:
        for each, held in whole:
            each.__traceback__ = held


def install() -> None:
    """Have Python and IPython show tracebacks so; done once, when fxad is imported."""
    sys.excepthook = _show
    set_renderer(rendered)
