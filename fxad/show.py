"""Coloured printing of Programs, Kernels and Plans.

    fxad.show.show(fxad.make_ir(f)(x))        fxad.show.show(fxad.jit(f).lower(x).plan)

Plain text comes from `str(...)`; this module only adds colour, through rich.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from fxad.api.derived import Printed
from fxad.api.stages import Lowered
from fxad.ir import text
from fxad.ir.kernel import Kernel
from fxad.ir.kernel_text import kernel_text
from fxad.ir.plan import Plan
from fxad.ir.program import Program
from fxad.plan.text import plan_text

_COLOURS = (
    (r"#[^\n]*", "dim"),
    (r"\b(?:bool|[iuf]\d+|bf16|c\d+|f8\w+|tape)\[[\d,]*\]", "cyan"),
    (r"(?<== )[a-z_0-9]+(?=\()", "bold magenta"),
    (r"\b(?:program|return|kernel|grid|plan|run|loop|while|branch|copy)\b", "bold blue"),
    (r"\b(?:map|reduce|scan|scatter|sort|contract)\b", "bold green"),
    (r"\b[a-z_]+(?==)", "yellow"),
)


def as_text(thing: Any) -> str:
    """The plain text of a Program, Kernel, Plan, Lowered or anything with a `str`."""
    match thing:
        case Program():
            return text.show(thing)
        case Printed():
            return text.show(thing.program)
        case Kernel():
            return kernel_text(thing)
        case Plan():
            return plan_text(thing)
        case Lowered():
            return text.show(thing.program)
    return str(thing)


def coloured(thing: Any) -> Text:
    """The text with rich styles on types, ops, parameters and source lines."""
    out = Text(as_text(thing))
    for pattern, style in _COLOURS:
        out.highlight_regex(pattern, style)
    return out


def show(thing: Any, console: Console | None = None) -> None:
    """Print in colour where the terminal can."""
    (console or Console(soft_wrap=True)).print(coloured(thing))
