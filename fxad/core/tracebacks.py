"""Tracebacks that end at the user's line: frames of the library are left out where they are shown.

    Traceback (most recent call last):
      File "train.py", line 12, in <module>
        print(loss(w, x))
      File "train.py", line 8, in loss
        return x @ w
    fxad.core.errors.ShapeError: matmul: ... (train.py:8)

FXAD_TRACEBACK=full (`config.traceback = "full"`) shows all frames. The exception itself keeps them:
debuggers see everything. An error that is no `FxadError`, nor one of `fxad_nn`, and was raised by
the library's own code is a fault of the library, and shows all of them too.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from fxad.core import notebook
from fxad.core.config import config
from fxad.core.errors import FxadError, set_renderer
from fxad.core.source import FILES, PACKAGE

_LIBRARIES = os.path.dirname(os.__file__) + os.sep
_shown_before = sys.excepthook
MODELS = os.path.join(os.path.dirname(os.path.dirname(PACKAGE)), "fxad_nn") + os.sep
"""What the names of its modules begin with, which are installed beside ours."""


def users_frames(error: BaseException, shown: BaseException | None = None) -> TracebackType | None:
    """The traceback of an error without the library's frames; as it is where they are wanted.

    shown: the error that it is shown with, as one that led to it. Where that was raised on purpose
    it says what happened within the library: frames there add nothing.
    """
    frames = []
    each = error.__traceback__
    while each is not None:
        frames.append(each)
        each = each.tb_next
    users = [frame for frame, inside in zip(frames, _inside(frames), strict=True) if not inside]
    code = [frame for frame in frames if _ours(frame) or not _called(frame)]
    if config.traceback != "full" and not users and shown is not None and _meant(shown):
        return None
    fault = bool(code) and _ours(code[-1]) and not _meant(error)
    if config.traceback == "full" or fault or not users:
        return error.__traceback__
    found: TracebackType | None = None
    for frame in reversed(users):
        found = TracebackType(found, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return found


def _inside(frames: list[TracebackType]) -> list[bool]:
    """Which frames are the library's, or of what it calls of Python's own."""
    found = list[bool]()
    for frame in frames:
        code = frame.tb_frame.f_code
        made = code.co_filename == "<string>" and code.co_name == "__init__"  # of a dataclass
        pythons = made or (_called(frame) and "-packages" not in code.co_filename)
        found.append(_ours(frame) or (pythons and found[-1:] == [True]))
    return found


def _ours(frame: TracebackType) -> bool:
    return frame.tb_frame.f_code.co_filename.startswith((PACKAGE, MODELS, FILES))


def _meant(error: BaseException) -> bool:
    """Whether an error is one that we raise on purpose. Those of `fxad_nn` are known by where they
    are defined: it may not be loaded."""
    return isinstance(error, FxadError) or any(
        kind.__module__ == "fxad_nn.errors" for kind in type(error).__mro__
    )


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


@contextlib.contextmanager
def _of_the_user(error: BaseException) -> Iterator[None]:
    """Inside, an error and those it came from have the user's frames alone."""
    whole = [(each, each.__traceback__) for each in _chain(error)]
    try:
        for each, _ in whole:
            each.__traceback__ = users_frames(each, None if each is error else error)
        yield
    finally:
        for each, frames in whole:
            each.__traceback__ = frames


def _show(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    """Show an error that nobody caught, as whoever was asked before, with the user's frames."""
    with _of_the_user(error):
        _shown_before(kind, error, error.__traceback__)


def _show_in_shell(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    frames: TracebackType | None,
    tb_offset: int | None = None,
) -> None:
    """`_show` for IPython, which formats it as the user has set (`%xmode`, colours, cells).

    `%debug` has the library's frames, and passes over them on its way up.
    """
    each = frames
    while each is not None:
        if _ours(each):
            each.tb_frame.f_locals["__tracebackhide__"] = True
        each = each.tb_next
    with _of_the_user(error):
        shown = kind, error, error.__traceback__
        shell.showtraceback(shown, tb_offset=tb_offset, running_compiled_code=True)


def rendered(error: BaseException) -> list[str]:
    """The lines that IPython shows of an error that it asks for them, as in `%run`. Raises
    NotImplementedError where there is no IPython."""
    shell = notebook.shell()
    if shell is None:
        raise NotImplementedError
    with _of_the_user(error):
        frames = error.__traceback__
        while frames is not None and frames.tb_next is not None and _shells(frames):
            frames = frames.tb_next
        lines: list[str] = shell.InteractiveTB.structured_traceback(
            type(error), error, frames, tb_offset=0
        )
    return lines


def _shells(frame: TracebackType) -> bool:
    return f"{os.sep}IPython{os.sep}" in frame.tb_frame.f_code.co_filename


def install() -> None:
    """Have Python and IPython show tracebacks so; done once, when fxad is imported."""
    sys.excepthook = _show
    set_renderer(rendered)
    shell = notebook.shell()
    if shell is not None and not shell.custom_exceptions:  # nobody else shows them
        shell.set_custom_exc((Exception, KeyboardInterrupt), _show_in_shell)
