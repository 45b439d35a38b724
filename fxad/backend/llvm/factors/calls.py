"""How host steps of a plan become calls of native code, in place of LAPACK's through Python.

    for call in native_calls(step, target):   # none: by Python
        call.address, call.units, call.numbers

Of 60 x 60 LAPACK's factor takes 36 us through Python and a triangular system 112, since NumPy has
only a general solver; here they take a few. A thousand systems of 8 x 8 took 450 us, here 30.
No result lies where an operand does: the planner never puts a host step's there. A Fourier
transform of several axes is a call for each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fxad.backend.llvm.base.choices import NONE
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.factors.cholesky import write_cholesky
from fxad.backend.llvm.factors.code import Library, name_of
from fxad.backend.llvm.factors.fourier import write_fourier
from fxad.backend.llvm.factors.fourier_calls import fourier_calls, group_of
from fxad.backend.llvm.factors.fourier_plan import COMMON, RADICES
from fxad.backend.llvm.factors.lu import BLOCK, write_lu
from fxad.backend.llvm.factors.lu_lanes import write_lanes_slogdet, write_lanes_solve
from fxad.backend.llvm.factors.orthogonal import write_qr
from fxad.backend.llvm.factors.panels import panel_vectors, write_panels
from fxad.backend.llvm.factors.systems import write_factors, write_slogdet, write_solve
from fxad.backend.llvm.factors.triangles import write_triangular_solve
from fxad.backend.llvm.native.engine import compose
from fxad.backend.llvm.native.library import stored_module
from fxad.core.dtypes import float32, float64
from fxad.core.record import record, replace
from fxad.ir.loops import Factoring, Fourier
from fxad.ir.orders import (
    CHOLESKY_ROWS,
    LU_FACTOR_ROWS,
    LU_LANE_NUMBERS,
    LU_LANE_ROWS,
    LU_ROWS,
    QR_FEW_ROWS,
    QR_ROWS,
)
from fxad.ir.plan import Host


def _write_triangles(library: Library) -> None:
    panels = write_panels(library)
    write_triangular_solve(library, panels)
    write_cholesky(library, panels)


def _write_rows(library: Library) -> None:
    panels = write_panels(library)
    lu = write_lu(library, panels)
    write_solve(library, panels, lu)
    write_slogdet(library, lu)


def _write_factors(library: Library) -> None:
    write_factors(library, write_lu(library, write_panels(library)))


def _write_lanes(library: Library) -> None:
    write_lanes_solve(library)
    write_lanes_slogdet(library)


_FOURIER = ("fourier_rows", "fourier_columns", "fourier_steps")
# Of every group: what writes its functions, and the kinds of those that are called like kernels.
_GROUPS: dict[str, tuple[Callable[[Library], None], tuple[str, ...]]] = {
    "triangles": (_write_triangles, ("cholesky", "triangular_solve")),
    "rows": (_write_rows, ("solve", "slogdet")),
    "factors": (_write_factors, ("lu",)),
    "lanes": (_write_lanes, ("solve", "slogdet")),
    "orthogonal": (write_qr, ("qr",)),
    "fourier": (partial(write_fourier, radices=COMMON), _FOURIER),
    "fourier_primes": (partial(write_fourier, radices=RADICES), _FOURIER),
}


@record
class Call:
    """A call in a plan: its group of functions and the address of one, units and cost in ns,
    numbers that follow the addresses of operands and results, bytes of scratch for each thread,
    whether the result is the operand too, and what must stay alive."""

    group: str
    address: int
    units: int
    cost: float
    numbers: tuple[int, ...]
    scratch: int = 0
    in_place: bool = False
    keep: tuple[object, ...] = ()


def native_calls(step: Host, target: Target) -> tuple[Call, ...]:
    """How to call what a step computes, in order; none where that is left to Python."""
    what: Factoring | Fourier | None = getattr(step.function, "factoring", None)
    if isinstance(what, Fourier):
        transforms = fourier_calls(what, target.lanes(what.dtype))
        group = group_of(transforms)
        addresses = functions(target, what.dtype, group) if transforms else {}
        return tuple(
            Call(
                group,
                addresses[t.kind],
                t.units,
                t.cost,
                t.numbers,
                t.scratch,
                number > 0,
                t.keep,
            )
            for number, t in enumerate(transforms)
        )
    if what is None or what.dtype not in (float32, float64):
        return ()
    call = _factor_call(what, target)
    return () if call is None else (call,)


def _factor_call(what: Factoring, target: Target) -> Call | None:
    if 0 in (what.rows, what.columns, what.lanes):
        return None
    if what.kind == "cholesky":
        return _cholesky(what, target) if what.rows <= CHOLESKY_ROWS else None
    if what.kind == "triangular_solve":
        return _triangle(what, target)
    if what.kind == "qr":
        return _orthogonal(what, target)
    if what.kind == "lu":
        return _by_rows(what, target) if what.rows <= LU_FACTOR_ROWS else None
    if _fits_lanes(what):
        return _in_lanes(what, target)
    return _by_rows(what, target) if what.rows <= LU_ROWS else None


def _cholesky(what: Factoring, target: Target) -> Call:
    n, rate = what.rows, target.lanes(what.dtype)  # multiply-adds in a nanosecond, roughly
    cost = what.lanes * (n**3 / 6 / rate + 10 * n)
    return _call("triangles", what, target, what.lanes, cost, (n,))


def _triangle(what: Factoring, target: Target) -> Call:
    n, k, rate = what.rows, what.columns, target.lanes(what.dtype)
    panels = -(-k // (panel_vectors(target) * rate))
    cost = what.lanes * n * (n * k / 2 / rate + 10 * panels)
    numbers = (n, k, int(not what.lower), int(what.unit))
    return _call("triangles", what, target, what.lanes * panels, cost, numbers)


def _sides(what: Factoring) -> int:
    """Columns that go along with a matrix."""
    return what.columns if what.kind == "solve" else 0


def _fits_lanes(what: Factoring) -> bool:
    """Is an LU factor in each lane faster than one after the other? Where there are enough for the
    lanes, and a row of right sides is not itself long enough for vectors; measured on a Zen 5."""
    n, k = what.rows, _sides(what)
    return (
        n <= min(LU_LANE_ROWS, 4 + what.lanes)
        and k <= max(n, 16)
        and n * (n + k) <= LU_LANE_NUMBERS
    )


def _in_lanes(what: Factoring, target: Target) -> Call:
    n, k, width = what.rows, _sides(what), target.lanes(what.dtype)
    groups = -(-what.lanes // width)
    cost = groups * (0.4 * n * (n + k) * (n + 8) + 40 * n)
    scratch = n * (n + k) * width * what.dtype.itemsize
    return _call("lanes", what, target, groups, cost, (n, k, what.lanes), scratch)


def _orthogonal(what: Factoring, target: Target) -> Call | None:
    m, n, q, width = what.rows, what.columns, what.basis, target.lanes(what.dtype)
    if max(m, n) > (QR_ROWS if what.lanes >= 8 else QR_FEW_ROWS):
        return None
    groups = -(-what.lanes // width)
    cost = groups * (m * (n + q) * (n + 8) + 50 * n)
    scratch = (m * (n + q) + min(m, n)) * width * what.dtype.itemsize
    return _call("orthogonal", what, target, groups, cost, (m, n, q, what.lanes), scratch)


def _by_rows(what: Factoring, target: Target) -> Call:
    n, k, width = what.rows, _sides(what), target.lanes(what.dtype)
    line = (-(-n // width) | 1) * width
    cost = what.lanes * n * (40 + 0.6 * n + n * (n / 3 + k) / width / 5)
    scratch = (n + BLOCK) * line * what.dtype.itemsize + 8 * n
    return _call(
        "factors" if what.kind == "lu" else "rows", what, target, what.lanes, cost, (n, k), scratch
    )


def _call(group: str, what: Factoring, target: Target, *rest: Any) -> Call:
    return Call(group, functions(target, what.dtype, group)[what.kind], *rest)


def functions(target: Target, dtype: np.dtype, group: str) -> dict[str, int]:
    """Addresses of the functions of a group by kind, whatever was measured of products."""
    return _compiled(replace(target, choices=NONE), dtype, group)


@functools.cache
def _compiled(target: Target, dtype: np.dtype, group: str) -> dict[str, int]:
    """The same, compiled or read from the cache on disk."""
    library = written(group, dtype, target)
    module = stored_module(compose(library.texts, library.declarations, target), target).immortal()
    _, kinds = _GROUPS[group]
    return {kind: module.address(name_of(kind, dtype)) for kind in kinds}


def written(group: str, dtype: np.dtype, target: Target) -> Library:
    """The functions of a group."""
    library = Library(dtype, target, [])
    write, _ = _GROUPS[group]
    write(library)
    return library
