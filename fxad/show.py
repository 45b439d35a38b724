"""Coloured printing of Programs, Kernels and Plans.

    fxad.show.show(fxad.make_ir(f)(x))        fxad.show.show(fxad.jit(f).lower(x).plan)

Plain text comes from `str(...)`; `show` adds colour, through rich, and columns. `graph` draws, and
`passes` says what each pass of the compiler changed:

    fxad.show.graph(fxad.make_ir(f)(x), "f.html")
    print(fxad.show.passes(f)(x))
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from fxad.api.derived import Printed, styled, tabled
from fxad.api.jit import Jit, jit
from fxad.api.stages import Lowered
from fxad.compiler import simplified
from fxad.core.errors import BadArgument, TypeMismatch
from fxad.core.files import write_text
from fxad.ir.inspection.diff import diff
from fxad.ir.inspection.drawing import to_html, to_svg
from fxad.ir.program import Naming, Program
from fxad.ir.stages import Ran, listening

_COLOURS = (
    (r"#[^\n]*", "dim"),
    (r"\b(?:bool|[iuf]\d+|bf16|c\d+|f8\w+|tape)\[[\d,]*\]", "cyan"),
    (r"(?<== )[a-z_0-9]+(?=\()", "bold magenta"),
    (
        r"\b(?:program|return|consts|for|in|with|kernel|grid|plan|run|loop|while|branch|copy)\b",
        "bold blue",
    ),
    (r"(?<![\w.\[,*+-])-?\d[\w.+-]*", "bright_red"),
    (r"\b(?:map|reduce|scan|scatter|sort|contract)\b", "bold green"),
    (r"\b[a-z_]+(?==)", "yellow"),
)


def as_text(
    thing: Any,
    columns: Sequence[str] = (),
    *,
    style: str | None = None,
    width: int | None = None,
    depth: int | None = None,
) -> str:
    """The plain text of a Program, Kernel, Plan, Lowered or anything with a `str`.

    columns, style, width: of a Program, see `make_ir(f)(x).text`. depth: how many braces deep; what
    stands inside more of them is left out, and its lines are counted.
    """
    if columns:
        text = tabled(program_of(thing), columns)
    elif isinstance(thing, Program | Printed | Lowered):
        text = styled(program_of(thing), style, width)
    else:
        text = str(thing)
    return text if depth is None else "\n".join(_folded(text.split("\n"), depth))


def _folded(lines: Sequence[str], depth: int) -> Iterator[str]:
    """The lines inside at most so many braces."""
    level = hidden = 0
    for line in lines:
        bare = line.split("  #")[0].strip()
        level -= bare.startswith("}")
        if level > depth:
            hidden += 1
        else:
            if hidden:
                yield f"{'  ' * (depth + 1)}… {hidden} lines"
            hidden = 0
            yield line
        level += bare.endswith("{")


def program_of(thing: Any) -> Program:
    """The Program of what `make_ir` and `lower` return. Raises TypeMismatch for other things."""
    match thing:
        case Program():
            return thing
        case Printed() | Lowered():
            return thing.program
    raise TypeMismatch(f"expected a Program, make_ir(f)(x) or lower(x), got {type(thing).__name__}")


def coloured(
    thing: Any,
    columns: Sequence[str] = (),
    *,
    style: str | None = None,
    width: int | None = None,
    depth: int | None = None,
) -> Text:
    """The text (see `as_text`) with rich styles on types, ops, parameters and source lines."""
    out = Text(as_text(thing, columns, style=style, width=width, depth=depth))
    for pattern, style in _COLOURS:
        out.highlight_regex(pattern, style)
    return out


def show(
    thing: Any,
    console: Console | None = None,
    columns: Sequence[str] = (),
    *,
    style: str | None = None,
    depth: int | None = None,
) -> None:
    """Print in colour where the terminal can, with columns if any are named, in lines of the
    console's width (see `as_text`)."""
    console = console or Console(soft_wrap=True)
    width = console.width if console.is_terminal else None
    console.print(coloured(thing, columns, style=style, width=width, depth=depth))


def passes(function: Callable[..., Any]) -> Callable[..., str]:
    """passes(f)(*args): what each pass of the compiler changed in f's program, as a diff."""
    jitted = function if isinstance(function, Jit) else jit(function)

    def wrapped(*args: Any, **kwargs: Any) -> str:
        found = pass_diffs(jitted.lower(*args, **kwargs).traced)
        return "\n".join(f"=== {name}\n{changed}" for name, changed in found)

    return wrapped


def pass_diffs(program: Program) -> list[tuple[str, str]]:
    """(pass, what it changed) for every pass that changed something, in order."""
    names = Naming()  # the same in all diffs
    ran: list[Ran] = []
    with listening(ran.append):
        simplified(program)
    found = []
    for one in ran:
        assert isinstance(one.given, Program) and isinstance(one.made, Program)
        found.append((one.stage, diff(one.given, one.made, names)))
    return [(stage, changed) for stage, changed in found if changed]


class _Drawing(str):
    """An SVG, which a notebook draws."""

    def _repr_html_(self) -> str:
        return str(self)


def graph(thing: Any, path: str | os.PathLike[str] | None = None) -> str:
    """A Program drawn as a graph: an HTML page that also draws the programs inside loops and
    branches, or one SVG if `path` ends in .svg (or there is none). Written to `path` if given.
    Raises BadArgument for a path that ends in neither .svg nor .html."""
    program = program_of(thing)
    if path is not None and not os.fspath(path).endswith((".svg", ".html")):
        raise BadArgument(f"graph: {os.fspath(path)!r} must end in .svg or .html")
    page = path is not None and not os.fspath(path).endswith(".svg")
    drawing = to_html(program) if page else _Drawing(to_svg(program))
    if path is not None:
        write_text(path, drawing)
    return drawing
