"""Stopping in a debugger in the frames of traced code, when its values exist.

When compiled code runs, the frames in which it was traced are gone. So a breakpoint notes them
while it is traced: file, line, names and values. Later the debugger is called from frames made
anew, of the same file and line, in which traced values have become arrays.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from fxad.core import pytree
from fxad.core.record import record
from fxad.core.source import PACKAGE
from fxad.trace.array import Array
from fxad.trace.tracer import Tracer

_STOP = "__stop__"


@record
class Place:
    """A frame of the user's: where it was, and what its names meant."""

    file: str
    line: int
    name: str
    globals: dict[str, Any]
    locals: dict[str, Any]

    def having(self, values: dict[str, Any]) -> Place:
        return Place(self.file, self.line, self.name, self.globals, {**self.locals, **values})


def places_of(frame: FrameType) -> list[Place]:
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
        Place(f.f_code.co_filename, f.f_lineno, f.f_code.co_name, f.f_globals, dict(f.f_locals))
        for f in frames[:traced]
    ]


def traced_values(places: Sequence[Place]) -> tuple[list[Tracer], Callable[..., list[Place]]]:
    """The traced values among the names of places, and a function of arrays for them that gives the
    places with these instead."""
    found: list[Tracer] = []

    def position(leaf: Any) -> Any:
        if not isinstance(leaf, Tracer):
            return leaf
        found.append(leaf)
        return _At(len(found) - 1)

    def replaced(variable: Any, change: Callable[[Any], Any]) -> Any:
        try:
            return pytree.map(change, variable)
        except (TypeError, ValueError):  # of nodes that cannot be taken apart or made again
            return variable

    marked = [{k: replaced(v, position) for k, v in p.locals.items()} for p in places]

    def with_arrays(*arrays: Array) -> list[Place]:
        def array(leaf: Any) -> Any:
            return arrays[leaf.number] if isinstance(leaf, _At) else leaf

        known = [{k: replaced(v, array) for k, v in names.items()} for names in marked]
        return [place.having(names) for place, names in zip(places, known, strict=True)]

    return found, with_arrays


@record
class _At:
    """The place of a traced value in a list of them."""

    number: int


def stop_in(places: Sequence[Place]) -> None:
    """Call `sys.breakpointhook` in frames like these, innermost first."""
    inner, *outer = places
    stop: Callable[[], Any] = _frame(inner, sys.breakpointhook, after=True)
    for place in outer:
        stop = _frame(place, stop)
    stop()


def _frame(place: Place, call: Callable[[], Any], after: bool = False) -> Callable[[], Any]:
    """A function that makes a call from a frame like a place. after: a line follows, where a
    debugger stops, as after Python's own `breakpoint()`."""
    line = place.line
    calls = [ast.Expr(ast.Call(ast.Name(_STOP, ast.Load()), [], []))]
    lines = [line]
    if after:
        calls.append(ast.Expr(ast.Name(_STOP, ast.Load())))
        lines = [line, line + 1]
    for statement, number in zip(calls, lines, strict=True):
        for node in ast.walk(statement):
            node.lineno = node.end_lineno = number  # type: ignore[attr-defined]
            node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
    module = ast.Module(list[ast.stmt](calls), [])
    code = compile(module, place.file, "exec").replace(co_name=place.name)
    return lambda: exec(code, place.globals, {**place.locals, _STOP: call})
