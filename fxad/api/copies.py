"""`explain_copies`: which arrays a call of a compiled function copies, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fxad.api.jit import Jit, jit
from fxad.api.retrace import leaf_paths
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.ir.plan import Branch, Copy, Loop, Plan, Step, While
from fxad.trace.array import Array, Borrowed
from fxad.trace.execute import concrete


class ArrayCopy(NamedTuple):
    """One copy: what is copied, how many bytes per call, and why."""

    what: str
    nbytes: int
    why: str


class CopyReport(list[ArrayCopy]):
    """The copies of a call, in the order they happen; prints as a table."""

    def __str__(self) -> str:
        if not self:
            return "no copies"
        lines = [f"{c.nbytes:>12,} bytes  {c.what}: {c.why}" for c in self]
        return "\n".join(lines)

    __repr__ = __str__


def explain_copies(function: Callable[..., Any]) -> Callable[..., CopyReport]:
    """explain_copies(f)(*args): the copies that `f(*args)` makes beside computing its results.

    Arguments that native code cannot read in place, donated arguments whose memory cannot be
    taken over, copies between buffers (state of loops, branches), results that are arguments.
    `f` may be jitted or not; it is compiled, not run.

    >>> report = fxad.debug.explain_copies(fxad.jit(lambda x: x + 1))(jnp.ones(3))
    >>> print(report)
    no copies
    """
    jitted = function if isinstance(function, Jit) else jit(function)

    def wrapped(*args: Any, **kwargs: Any) -> CopyReport:
        _, trace = jitted.trace_for(args, kwargs)
        plan = jitted.lower(*args, **kwargs).plan
        dynamic = jitted.dynamic_arguments(args, kwargs)
        leaves, tree = pytree.flatten(dynamic)
        paths = leaf_paths(tree)
        skip = len(trace.captured)
        found = CopyReport()
        for number, (path, leaf) in enumerate(zip(paths, leaves, strict=True)):
            found += _at_entry(path, leaf)
            if number + skip in trace.donate:
                found += _donation(path, leaf, number + skip, plan)
        found += _steps(plan.steps, 1)
        names = [f"captured array {i}" for i in range(skip)] + paths
        found += _passed_through(plan, names)
        return found

    return wrapped


def _at_entry(path: str, leaf: Any) -> list[ArrayCopy]:
    """Why an argument is copied before native code sees it, if it is."""
    if not isinstance(leaf, Array | np.ndarray | np.generic):
        return []
    array = concrete(leaf)
    wanted = dt.canonicalize(array.dtype, explicit=isinstance(leaf, Array))
    size = array.size * wanted.itemsize
    if wanted != array.dtype and array.dtype.newbyteorder("=") != wanted:
        return [ArrayCopy(path, size, f"{array.dtype} becomes {wanted.name} (x64 is off)")]
    if not array.dtype.isnative:
        return [ArrayCopy(path, size, "its bytes are in the other order")]
    if not array.flags.c_contiguous:
        return [ArrayCopy(path, size, "it is not contiguous (a transposed or strided view)")]
    if not array.flags.aligned:
        return [ArrayCopy(path, size, "it is not aligned")]
    return []


def _donation(path: str, leaf: Any, number: int, plan: Plan) -> list[ArrayCopy]:
    """Why a donated argument's memory is not taken over, if it is not."""
    slot = next(s for s in plan.slots if s.place == "argument" and s.number == number)
    taken = {n: r for r, n in plan.donated.items()}
    what = f"{path} (donated)"
    if number not in taken:
        same = any(s.type == slot.type for s in plan.results)
        why = (
            "it is still read when the results of its type are written"
            if same
            else f"no result has its type {slot.type}"
        )
        return [ArrayCopy(what, 0, f"not used: {why}, so new memory holds the results")]
    if isinstance(leaf, Borrowed) or not isinstance(leaf, Array):
        return [ArrayCopy(what, slot.type.nbytes, "its memory is NumPy's; pass an fxad.Array")]
    data = concrete(leaf)
    if isinstance(data.base, np.ndarray) or not data.flags.c_contiguous:
        return [ArrayCopy(what, slot.type.nbytes, "it is a view of another array's memory")]
    return []


def _steps(steps: tuple[Step, ...], times: int) -> list[ArrayCopy]:
    found = []
    for step in steps:
        match step:
            case Copy():
                why = "a loop or branch starts from it, and it is needed afterwards"
                if times > 1:
                    why = f"in each of {times} trips of a loop"
                what = f"{step.src.type} {step.src.place} -> {step.dst.place}"
                found.append(ArrayCopy(what, step.src.type.nbytes * times, why))
            case Loop():
                found += _steps(step.body, times * step.trips)
            case While():
                found += _steps((*step.cond, *step.body), times)
            case Branch():
                for branch in step.branches:
                    found += _steps(branch, times)
    return found


def _passed_through(plan: Plan, names: list[str]) -> list[ArrayCopy]:
    found = []
    seen: set[int] = set()
    for number, slot in enumerate(plan.results):
        if slot.place in ("argument", "constant"):
            name = names[slot.number] if slot.place == "argument" else "a constant"
            found.append(ArrayCopy(f"result {number}", slot.type.nbytes, f"it is {name} itself"))
        elif slot.id in seen:
            found.append(
                ArrayCopy(f"result {number}", slot.type.nbytes, "another result is the same value")
            )
        seen.add(slot.id)
    return found
