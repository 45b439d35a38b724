"""`tune`: what runs best on this machine, measured.

print(fxad.tune())                # numbers of the kind of processor: how far to prefetch, ...
print(fxad.tune(step, w, x))      # tiles of a function's matrix products

Each prints what was found; what is compiled from now on uses it.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fxad.api import compiled
from fxad.api.jit import Jit, jit
from fxad.compiler import native
from fxad.core.errors import BadArgument
from fxad.core.record import valued
from fxad.ir.plan import Run, walk
from fxad.trace.tracer import Tracer, staging

_CALIBRATION = 10.0  # seconds at most


@valued
class Tuning:
    """products: a `backend.llvm.search.Tuned` for each class of products that was measured now;
    known: how many classes were measured before; path: the file that keeps them, if one does.
    answers: of `tune()`, a `backend.llvm.base.answers.Answer` to each question."""

    products: tuple[Any, ...]
    known: int
    path: Path | None
    answers: tuple[object, ...] = ()

    def __str__(self) -> str:
        if self.answers:
            return "\n".join(map(str, self.answers))
        rows = [("GFLOP/s before", "after", "rows x columns x k", "kind", "choice")]
        rows += [
            (
                f"{one.before:.1f}",
                f"{one.after:.1f}",
                "x".join(map(str, one.size)),
                one.key,
                str(one.choice),
            )
            for one in self.products
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = []
        for row in rows:
            left, right = row[:2], row[2:4]
            cells = [cell.rjust(w) for cell, w in zip(left, widths[:2], strict=True)]
            cells += [cell.ljust(w) for cell, w in zip(right, widths[2:], strict=True)]
            lines.append("  ".join([*cells, row[4]]))
        kept = f"kept in {self.path}" if self.path else "nothing is kept after this process"
        lines.append(f"{self.known} kinds of products were measured before; {kept}")
        return "\n".join(lines)


def tune(
    function: Callable[..., Any] | None = None,
    *args: Any,
    seconds: float = 0.3,
    again: bool = False,
    **kwargs: Any,
) -> Tuning:
    """Measure the best blocking of the matrix products of `function(*args, **kwargs)`; remember it.

    Without a function: measure the processor, about 3 s, as is done unasked for 2 s at most where
    it is of no known kind; `python -m fxad doctor` shows the answers. Other programs disturb it.

    The function is compiled, not run. Products of about the same size and layout are one kind. Each
    kind is measured once, on one thread, about so many seconds for each of four questions; with
    `again` also if it was measured before. What is compiled later, in this process or another one
    on such a processor, uses the answers (`FXAD_CACHE=0`: in this process only). No result changes
    by a bit.
    Raises BadArgument inside another transformation.

    >>> fxad.tune(lambda x: x @ x, jnp.ones((64, 64)), seconds=0.01).products  # too small to matter
    ()
    """
    if not isinstance(seconds, numbers.Real) or not seconds > 0:
        raise BadArgument(f"tune: seconds must be a number above 0, not {seconds!r}")
    if function is None:
        return _processor()
    jitted = function if isinstance(function, Jit) else jit(function)
    leaves, trace = jitted.trace_for(args, kwargs)
    if staging() or any(isinstance(v, Tracer) for v in [*trace.captured, *leaves]):
        raise BadArgument("tune measures, so it cannot be used inside jit, grad or vmap")
    plan = compiled.planned(trace.program, trace.donate).plan
    kernels = [step.kernel for step in walk(plan.steps) if isinstance(step, Run)]
    found, known, path = native().tune(kernels, seconds, again)
    if found:
        compiled.forget()
        jitted.clear_cache()
    return Tuning(found, known, path)


def _processor() -> Tuning:
    answers, path = native().calibrate(_CALIBRATION)
    compiled.forget()
    return Tuning((), 0, path, answers)
