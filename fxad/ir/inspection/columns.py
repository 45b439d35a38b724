"""Programs as listings with columns: operations, bytes, lifetimes, residuals.

program grad_f(a: f32[3]) {            flops  bytes  lives  kept
  b: f32[3] = exp(a)                       3     24  0-4    saved
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument
from fxad.core.record import record
from fxad.core.types import ArrayType
from fxad.ir import loops
from fxad.ir.kernel import Const, Prim, walk
from fxad.ir.program import (
    Eqn,
    Naming,
    Program,
    Var,
    equation,
    heading,
    returning,
    subprograms,
)
from fxad.ir.uses import Uses, uses_of

_FREE = (loops.View, loops.Alias)


@record
class Known:
    """What columns say beyond the program: times, in seconds, of kernels with the equations they
    compute (`dot @ model.py:12`), and the user's code of a line."""

    kernels: Sequence[tuple[str, float, Sequence[str]]] = ()
    code: Callable[[str], str] = str


def listing(program: Program, columns: Sequence[str], known: Known | None = None) -> str:
    """The program's text with columns (see `COLUMNS`) to the right of each equation.

    Raises BadArgument for a column that there is not, or that needs what is not known.
    """
    known = Known() if known is None else known
    columns = (columns,) if isinstance(columns, str) else columns
    unknown = [c for c in columns if c not in COLUMNS]
    if unknown:
        raise BadArgument(f"no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    if "time" in columns and not known.kernels:
        raise BadArgument("the column 'time' needs times: pass profile=fxad.profile(f, *args)")
    names = Naming(program)
    head = heading(program, names)
    uses = uses_of(program)
    rows = [
        (equation(e, names, "  "), [COLUMNS[c](uses, e, known) for c in columns])
        for e in program.eqns
    ]
    first = max([len(head), *(len(text.split("\n")[-1]) for text, _ in rows)]) + 2
    widths = [max([len(c), *(len(cells[i]) for _, cells in rows)]) for i, c in enumerate(columns)]

    def line(text: str, cells: Sequence[str]) -> str:
        *before, last = text.split("\n")
        padded = [
            cell.rjust(w) if c in _NUMBERS else cell.ljust(w)
            for c, cell, w in zip(columns, cells, widths, strict=True)
        ]
        return "\n".join([*before, f"{last:<{first}}{'  '.join(padded)}".rstrip()])

    lines = [line(head, list(columns)), *(line(*row) for row in rows)]
    return "\n".join([*lines, f"  {returning(program, names)}", "}"])


def _lives(uses: Uses, eqn: Eqn, known: Known) -> str:
    start = uses.number(eqn)
    reads = [reader for v in eqn.outputs for reader in uses.reads.get(v, ())]
    if None in reads:  # it is a result
        return f"{start}-end"
    return f"{start}-{max([uses.number(reader) for reader in reads if reader], default=start)}"


def _kept(uses: Uses, eqn: Eqn, known: Known) -> str:
    if eqn.tag is not None:
        return "recomputed" if eqn.tag == "recomputed" and eqn.op.name != "barrier" else ""
    readers = [reader for v in eqn.outputs for reader in uses.readers(v)]
    if any(reader.op.name in ("put", "offload") for reader in readers):
        return "offloaded"
    return "saved" if any(reader.tag is not None for reader in readers) else ""


def _time(uses: Uses, eqn: Eqn, known: Known) -> str:
    """Milliseconds of each kernel that computes the equation, and its name. Kernels of equal code
    are one, and so are equations of one op and line: what equal layers take stands at each."""
    place = f"{eqn.op.name} @ {eqn.where}"
    found = [(name, took) for name, took, where in known.kernels if place in where]
    return ", ".join(f"{1e3 * took:.3f} {name}" for name, took in found)


Column = Callable[[Uses, Eqn, Known], str]
COLUMNS: dict[str, Column] = {
    "shape": lambda uses, eqn, known: ", ".join(str(v.type) for v in eqn.outputs),
    "flops": lambda uses, eqn, known: f"{flops(eqn):,}",
    "bytes": lambda uses, eqn, known: f"{moved(eqn):,}",
    "lives": _lives,
    "kept": _kept,
    "phase": lambda uses, eqn, known: str(eqn.tag or "forward"),
    "time": _time,
    "where": lambda uses, eqn, known: eqn.where,
    "source": lambda uses, eqn, known: known.code(eqn.where),
}
_NUMBERS = ("flops", "bytes")


def moved(eqn: Eqn) -> int:
    """Bytes an equation reads and writes if it runs alone; views move nothing."""
    if isinstance(loops.loops_of(eqn), _FREE):
        return 0
    atoms = {a for a in (*eqn.inputs, *eqn.outputs) if isinstance(a, Var)}
    return sum(a.type.nbytes for a in atoms if isinstance(a.type, ArrayType))


def flops(eqn: Eqn) -> int:
    """Floating-point operations (a call of exp counts one, a product of n x n matrices 2 n^3).

    Of branches the dearest counts, of a while loop one trip.
    """
    held = [sum(map(flops, inner.eqns)) for _, inner in subprograms(eqn)]
    if held:
        trips = eqn.params.get("length", 1)
        return max(held) if eqn.op.name == "cond" else trips * sum(held)
    if not eqn.outputs or not isinstance(eqn.outputs[0].type, ArrayType):
        return 0
    size = eqn.outputs[0].type.size
    operand = eqn.inputs[0].type if eqn.inputs else eqn.outputs[0].type
    match loops.loops_of(eqn):
        case loops.Pointwise(value):
            return size * _prims(value(*[Const(0, a.type.dtype) for a in eqn.inputs]))
        case loops.Contract(contract, _):
            return 2 * size * math.prod(operand.shape[i] for i in contract[0])
        case loops.Reduce() | loops.Scan() if dt.is_inexact(operand.dtype):
            return operand.size
    return 0


def _prims(expr: Any) -> int:
    return sum(
        isinstance(e, Prim) and dt.is_inexact(e.args[0].dtype if e.args else e.dtype)
        for e in walk(expr)
    )
