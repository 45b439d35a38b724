"""Which native functions a Fourier transform calls, one for each axis.

    transforms = fourier_calls(what, lanes)     # none: left to NumPy

Lengths with a prime factor above 13 are left to NumPy, and long transforms of which too few lie
side by side to fill the lanes (`FOURIER_FEW` of ir/orders.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fxad.backend.llvm.factors.fourier import AFTER, BEFORE
from fxad.backend.llvm.factors.fourier_plan import (
    COMMON,
    half_roots,
    plan_of,
    radices,
    split,
    step_roots,
)
from fxad.core.dtypes import float32, float64
from fxad.core.record import record
from fxad.ir.loops import Fourier
from fxad.ir.orders import FOURIER_FEW, FOURIER_FEW_LENGTH, FOURIER_LANES, FOURIER_LENGTH


@record
class Transform:
    """Of one axis: lengths of its passes, a function, its units and cost in ns, numbers and bytes
    of scratch, and what must stay alive."""

    lengths: tuple[int, ...]
    kind: str
    units: int
    cost: float
    numbers: tuple[int, ...]
    scratch: int
    keep: tuple[object, ...]


def fourier_calls(what: Fourier, lanes: int) -> tuple[Transform, ...]:
    """The transforms one after the other, the last axis first; `lanes` of a vector."""
    if what.dtype not in (float32, float64) or 0 in what.shape:
        return ()
    axes = sorted(len(what.shape) + axis for axis in what.axes)
    found = [_axis(what, axis, lanes) for axis in reversed(axes)]
    transforms = tuple(t for t in found if t is not None)
    return transforms if len(transforms) == len(found) else ()


def group_of(transforms: Sequence[Transform]) -> str:
    """Which group of functions has what these call."""
    used = {radix for t in transforms for n in t.lengths for radix in radices(n) or ()}
    return "fourier" if used <= set(COMMON) else "fourier_primes"


def _axis(what: Fourier, axis: int, lanes: int) -> Transform | None:
    n = what.n or what.shape[axis]
    if radices(n) is None:
        return None
    outer, inner = math.prod(what.shape[:axis]), math.prod(what.shape[axis + 1 :])
    rows = inner == 1
    real = what.kind != "fft"
    if rows and (outer < FOURIER_LANES or n > FOURIER_LENGTH) and not (real and n % 2):
        parts = split(n // 2 if real else n)
        if parts is not None:
            return _steps(what, n, outer, parts, lanes)
    side = outer if rows else inner
    if side < FOURIER_FEW and n > FOURIER_FEW_LENGTH:
        return None
    return _in_lanes(what, n, outer, inner, lanes)


def _cost(n: int, count: int, size: int) -> float:
    """Nanoseconds of `count` transforms, roughly."""
    return count * n * (2 + math.log2(n)) * size / 32


def _room(elements: int, lanes: int, dtype: np.dtype) -> int:
    """Bytes of a buffer in scratch: one element more, and real numbers to a multiple of lanes."""
    vectors = -(-2 * (elements + 1) // lanes) * lanes
    return vectors * lanes * dtype.itemsize


def _steps(what: Fourier, n: int, count: int, parts: tuple[int, int], lanes: int) -> Transform:
    rows, columns = parts
    dtype = what.dtype
    plans = [plan_of(n, dtype) for n in parts]
    roots = step_roots(rows, columns, dtype)
    room = _room(columns, lanes, dtype)
    whole = None if what.kind == "fft" else half_roots(n, dtype)
    half = 2 * (n // 2 + 1)
    numbers = (
        half if what.kind == "irfft" else n if what.kind == "rfft" else 2 * n,
        half if what.kind == "rfft" else n if what.kind == "irfft" else 2 * n,
        BEFORE.index("tangle" if what.kind == "irfft" else "none"),
        AFTER.index("untangle" if what.kind == "rfft" else "none"),
        0 if whole is None else whole.ctypes.data,
        rows,
        columns,
        int(what.inverse),
        *[p.address for p in plans],
        roots.ctypes.data,
        room,
    )
    scratch = 2 * room + 4 * (rows * columns + 1) * dtype.itemsize
    cost = _cost(rows * columns, count, dtype.itemsize)
    keep = (roots, whole, *plans)
    return Transform(parts, "fourier_steps", count, cost, numbers, scratch, keep)


def _in_lanes(what: Fourier, n: int, outer: int, inner: int, lanes: int) -> Transform:
    dtype, half = what.dtype, n // 2 + 1
    even = n % 2 == 0
    length = n // 2 if even and what.kind != "fft" else n
    before = {"fft": "none", "rfft": "none" if even else "zeros"}.get(what.kind)
    before = before or ("tangle" if even else "mirror")
    after = "untangle" if what.kind == "rfft" and even else "none"
    if what.kind == "irfft" and not even:
        after = "reals"
    plan = plan_of(length, dtype)
    roots = half_roots(n, dtype) if length != n else None
    room = _room(length, lanes, dtype)
    shape = (
        BEFORE.index(before),
        AFTER.index(after),
        int(what.inverse),
        length,
        plan.address,
        0 if roots is None else roots.ctypes.data,
        room,
    )
    taken = half if what.kind == "irfft" else n
    given = half if what.kind == "rfft" else n
    parts = (1 if what.kind == "rfft" else 2, 1 if what.kind == "irfft" else 2)
    cost, keep = _cost(length, outer * inner, dtype.itemsize), (plan, roots)
    if inner == 1:
        numbers = (outer, taken * parts[0], given * parts[1], *shape)
        units = -(-outer // lanes)
        return Transform((length,), "fourier_rows", units, cost, numbers, 2 * room, keep)
    across = (inner, taken, given, *parts, *shape)
    units = outer * -(-inner // lanes)
    return Transform((length,), "fourier_columns", units, cost, across, 2 * room, keep)
