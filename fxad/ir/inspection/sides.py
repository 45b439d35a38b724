"""Forward and backward side by side: which backward equations belong to which line.

model.py:12
  a: f32[3,2] = dot(x, w)             d_w: f32[4,2] = dot(x, c)
  b: f32[3,2] = tanh(a)               c: f32[3,2] = mul(d, e)
                                      ...
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from fxad.ir.program import Eqn, Naming, Program, equation, heading, returning
from fxad.ir.terse import terminal_width, wrapped

_BETWEEN = "  |  "


def side_by_side(program: Program, width: int | None = None) -> str:
    """The program's equations by the line they come from, those of the backward pass to the right.
    Lines of code stand in the order in which the forward pass meets them; equations, in each
    column, in the program's. width: of the text, the terminal's by default."""
    width = terminal_width() if width is None else width
    names = Naming(program)
    half = (width - len(_BETWEEN)) // 2
    columns: dict[str, tuple[list[str], list[str]]] = {}
    for eqn in program.eqns:
        side = columns.setdefault(eqn.where, ([], []))[eqn.tag is not None]
        side += _lines(eqn, names, half)
    lines = [*wrapped(heading(program, names), width)]
    for where, (forward, backward) in columns.items():
        lines.append(f"# {where or 'no line'}")
        lines += _beside(forward, backward, half)
    return "\n".join([*lines, *wrapped(f"  {returning(program, names)}", width), "}"])


def _lines(eqn: Eqn, names: Naming, width: int) -> Iterator[str]:
    """An equation in lines of a width; those of programs inside are cut."""
    mark = "recomputed " if eqn.tag == "recomputed" else ""
    for line in equation(eqn, names, "  " + mark).split("\n"):
        for part in wrapped(line, width):
            yield part if len(part) <= width else part[: width - 1] + "…"


def _beside(left: list[str], right: list[str], width: int) -> Iterator[str]:
    for one, other in zip_longest(left, right, fillvalue=""):
        yield f"{one:<{width}}{_BETWEEN}{other}".rstrip()
