"""Plans, profiles, arrays and jitted functions as HTML, in the style of `page`."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fxad.ir.inspection.page import fragment
from fxad.ir.plan import Plan

_OPEN = 40  # lines of a plan that are not folded
_ROWS, _COLUMNS = 12, 10  # elements of an array that are shown along its last axes


def plan_html(plan: Plan) -> str:
    """The plan's text; what steps do stands in lines of their own, long ones fold."""
    lines = str(plan).split("\n")
    text = html.escape("\n".join(lines))
    opened = " open" if len(lines) <= _OPEN else ""
    head = f"plan: {len(plan.steps):,} steps, arena of {plan.arena_bytes:,} bytes"
    return fragment(f"<details{opened}><summary>{head}</summary><pre>{text}</pre></details>")


def profile_html(kernels: Iterable[Any], summary: Sequence[str]) -> str:
    """Kernels (records with the fields of `KernelProfile`) as a table with bars, the lines they
    come from folded; then lines of summary."""
    names = ("ms", "share", "", "calls", "GFLOP/s", "GB/s", "roofline", "unit", "kernel", "from")
    head = "".join([f'<th class="l">{name}</th>' for name in names])
    rows = [_kernel_row(kernel) for kernel in kernels]
    notes = "".join([f"<div>{html.escape(line)}</div>" for line in summary])
    return fragment(f"<table><tr>{head}</tr>{''.join(rows)}</table>{notes}")


def _kernel_row(kernel: Any) -> str:
    numbers = [
        f"{kernel.seconds * 1e3:.3f}",
        f"{kernel.share:.0%}",
        f'<span class="bar" style="width:{max(1, round(120 * kernel.share))}px"></span>',
        str(kernel.calls),
        f"{kernel.gflops:.1f}",
        f"{kernel.gbytes:.1f}",
        f"{kernel.roofline:.0%}",
    ]
    cells = [f"<td>{text}</td>" for text in numbers]
    cells[2] = cells[2].replace("<td>", '<td class="l">')
    words = [html.escape(kernel.unit), f'<span class="o">{html.escape(kernel.name)}</span>']
    first, *more = [html.escape(line) for line in kernel.where] or [""]
    if more:
        first = f"<details><summary>{first}</summary>{'<br>'.join(more)}</details>"
    cells += [f'<td class="l">{text}</td>' for text in (*words, first)]
    return f"<tr>{''.join(cells)}</tr>"


def array_html(values: np.ndarray | None, type_: str, said: str) -> str:
    """An array's type, and its elements as a table where it has at most two axes. values: None if
    they are not known; `said` is shown in their place, and for more axes."""
    head = f'<span class="t">{html.escape(type_)}</span>'
    if values is None or values.ndim > 2 or values.size == 0:
        return fragment(f"{head}<pre>{html.escape(said)}</pre>")
    rows = np.atleast_2d(values)
    shown = ["".join(_cells(row)) for row in rows[:_ROWS]]
    if len(rows) > _ROWS:
        shown.append(
            f'<td class="l" colspan="{_COLUMNS + 1}">… {len(rows) - _ROWS:,} more rows</td>'
        )
    body = "".join([f"<tr>{row}</tr>" for row in shown])
    return fragment(f"{head}<table>{body}</table>")


def _cells(row: np.ndarray) -> Iterable[str]:
    for value in row[:_COLUMNS]:
        text = f"{value:.6g}" if isinstance(value, np.floating) else str(value)
        yield f'<td class="n">{html.escape(text)}</td>'
    if len(row) > _COLUMNS:
        yield f"<td>… {len(row) - _COLUMNS:,} more</td>"


def function_html(said: str, traces: Sequence[tuple[str, str]]) -> str:
    """What a jitted function is, and for each trace its signature and, folded, its program."""
    parts = [f"<div>{html.escape(said)}</div>"]
    parts += [
        f"<details><summary>{html.escape(signature)}</summary>{program}</details>"
        for signature, program in traces
    ]
    return fragment("\n".join(parts))
