"""Numbers of units taken apart: which block of rows and which panels a number stands for.

inside, rest = split(f, unit, column_units)
low, high = span(f, inside, unit_panels, panels)
"""

from __future__ import annotations

from fxad.backend.llvm.base.text import Function


def split(f: Function, number: str, count: int) -> tuple[str, str]:
    """(number mod count, number div count)."""
    if count == 1:
        return "0", number
    return f.op(f"urem i64 {number}, {count}"), f.op(f"udiv i64 {number}, {count}")


def span(f: Function, part: str, size: int, total: int) -> tuple[str, str]:
    """[part * size, min((part + 1) * size, total))."""
    if size >= total:
        return "0", str(total)
    low = f.mul(part, size)
    return low, f.least(f.add(low, size), total)
