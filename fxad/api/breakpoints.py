"""Stopping in a debugger in the frames of traced code, when its values exist.

When compiled code runs, the frames in which it was traced are gone. So a breakpoint notes them
while it is traced: file, line, names and values. Later the debugger is called from recreated
frames, of the same file and line, in which traced values have become arrays.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from fxad.core import pytree
from fxad.core.errors import LeakedTracerError
from fxad.core.pytree import TreeDef
from fxad.core.record import record
from fxad.core.source import PACKAGE
from fxad.trace.array import Array
from fxad.trace.tracer import Tracer, check_alive

_STOP = "__stop__"


@record
class Frame:
    """A frame of the user's: its function, the line it was at, and its variables."""

    file: str
    line: int
    name: str
    globals: dict[str, Any]
    locals: dict[str, Any]

    def having(self, values: dict[str, Any]) -> Frame:
        return Frame(self.file, self.line, self.name, self.globals, {**self.locals, **values})


def frames_of(frame: FrameType) -> list[Frame]:
    """The frame, and those around it that are being traced: innermost first, the library's left
    out. Frames outside of all tracing are still there when the code runs."""
    frames: list[FrameType] = []
    around: FrameType | None = frame
    traced = 1
    while around is not None:
        file = around.f_code.co_filename
        if file.startswith(PACKAGE):
            if file.endswith("__main__.py"):  # which only starts the user's program
                break
            traced = max(traced, len(frames))
        else:
            frames.append(around)
        around = around.f_back
    return [
        Frame(f.f_code.co_filename, f.f_lineno, f.f_code.co_name, f.f_globals, dict(f.f_locals))
        for f in frames[:traced]
    ]


@record
class _Tree:
    """A variable with traced values in it. Of its leaves those are None; `numbers` says which they
    are among all traced values."""

    leaves: tuple[Any, ...]
    numbers: dict[int, int]
    tree: TreeDef
    variable: Any

    def having(self, arrays: Sequence[Array]) -> Any:
        leaves = list(self.leaves)
        for leaf, number in self.numbers.items():
            leaves[leaf] = arrays[number]
        try:
            return self.tree.unflatten(leaves)
        except Exception:  # of the user's own class
            return self.variable


def traced_values(frames: Sequence[Frame]) -> tuple[list[Tracer], Callable[..., list[Frame]]]:
    """The traced values among the variables of frames, and a function of arrays for them that gives
    the frames with these instead."""
    found: list[Tracer] = []

    def noted(variable: Any) -> Any:
        try:
            leaves, tree = pytree.flatten(variable)
        except Exception:  # what cannot be taken apart stays as it is
            return variable
        traced = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tracer) and _lives(leaf)]
        if not traced:
            return variable
        numbers = {leaf: len(found) + n for n, leaf in enumerate(traced)}
        found.extend(leaves[i] for i in traced)
        rest = tuple([None if i in numbers else leaf for i, leaf in enumerate(leaves)])
        return _Tree(rest, numbers, tree, variable)

    known = [f.having({k: noted(v) for k, v in f.locals.items()}) for f in frames]

    def with_arrays(*arrays: Array) -> list[Frame]:
        def value(variable: Any) -> Any:
            return variable.having(arrays) if isinstance(variable, _Tree) else variable

        return [f.having({k: value(v) for k, v in f.locals.items()}) for f in known]

    return found, with_arrays


def _lives(value: Tracer) -> bool:
    """Whether a traced value may be used here: its trace has not ended."""
    try:
        check_alive(value)
    except LeakedTracerError:
        return False
    return True


def stop_in(frames: Sequence[Frame]) -> None:
    """Call `sys.breakpointhook` in frames like these, innermost first."""
    stop = _hook()
    for frame in frames:
        stop = _recreated(frame, stop)
    stop()


def _hook() -> Callable[[], Any]:
    """`sys.breakpointhook`, unless that does nothing: a notebook's kernel sets debugpy's, which
    stops only where an editor is connected."""
    hook: Callable[[], Any] = sys.breakpointhook
    debugpy = sys.modules.get("debugpy")
    if "debugpy" not in getattr(hook, "__name__", "") or debugpy is None:
        return hook
    return hook if debugpy.is_client_connected() else sys.__breakpointhook__


def _recreated(frame: Frame, call: Callable[[], Any]) -> Callable[[], Any]:
    """A function that makes a call from a frame like this one."""
    statement = ast.Expr(ast.Call(ast.Name(_STOP, ast.Load()), [], []))
    for node in ast.walk(statement):
        node.lineno = node.end_lineno = frame.line  # type: ignore[attr-defined]
        node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
    code = compile(ast.Module([statement], []), frame.file, "exec").replace(co_name=frame.name)
    # No function of Python's: it would be a frame between two of the user's.
    return functools.partial(exec, code, frame.globals, {**frame.locals, _STOP: call})
