"""What notebooks show of Programs, Plans, profiles, Arrays and jitted functions; HTML files; and
the text of long Programs. What writes them is loaded when it is asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fxad.core import files
from fxad.core.lazy import later
from fxad.core.views import set_view
from fxad.ir.plan import Plan
from fxad.ir.program import Program, set_long_text
from fxad.trace import location
from fxad.trace.array import Array, Concrete

if TYPE_CHECKING:
    from fxad.ir import terse
    from fxad.ir.inspection import page, tables
else:
    terse = later("fxad.ir.terse")
    page = later("fxad.ir.inspection.page")
    tables = later("fxad.ir.inspection.tables")


def program_html(program: Program) -> str:
    """A Program as a notebook shows it."""
    return page.to_fragment(program, location.code)


def save_html(program: Program, path: str | os.PathLike[str]) -> None:
    """Write a Program as one HTML file that needs no other: all of it, or nothing."""
    files.write_text(path, page.to_page(program, location.code))


def plan_html(plan: Plan) -> str:
    """A Plan as a notebook shows it."""
    return tables.plan_html(plan)


def array_html(array: Array) -> str:
    """An Array as a notebook shows it."""
    values = array.data if isinstance(array, Concrete) and not array.is_deleted() else None
    return tables.array_html(values, str(array.type), repr(array))


def profile_html(profile: Any) -> str:
    """A profile as a notebook shows it."""
    table = str(profile).split("\n")[len(profile.kernels) + 1 :]
    return tables.profile_html(profile.kernels, table)


def jit_html(jitted: Any) -> str:
    """A jitted function as a notebook shows it: its traces with their programs."""
    traces = [
        (", ".join(map(str, trace.program.in_types)) or "no arguments", program_html(trace.program))
        for trace in jitted.traces()
    ]
    return tables.function_html(repr(jitted), traces)


set_long_text(lambda program: terse.terse(program))
set_view("program", program_html)
set_view("plan", plan_html)
set_view("array", array_html)
set_view("profile", profile_html)
