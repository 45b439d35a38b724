"""`suggest_precision`: which equations can run in bf16 without moving the results too far.

found = fxad.suggest_precision(f, tolerance=1e-2)(x)
print(found)                   # the equations, line by line
y = found.function(x)          # f with those equations in bf16
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.analysis.error_estimate import Site, narrowed, runs_in
from fxad.api.compiled import run_program
from fxad.api.error_estimate import contributions, sensitivity_of, traced
from fxad.api.flat import flatten_args, name_of
from fxad.api.known_trips import known_trips
from fxad.compiler import inlined
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, TreeError
from fxad.ir.program import Eqn, Program
from fxad.trace.execute import concrete


class Suggestion:
    """What `suggest_precision` found. `chosen` and `kept`: (op, source line, relative error) of
    the equations that can run in `dtype` and of those that should not; `error`: the estimated
    relative error of the results with all of the chosen ones in `dtype`; `program`: that Program.
    """

    def __init__(
        self,
        dtype: np.dtype,
        chosen: list[tuple[str, str, float]],
        kept: list[tuple[str, str, float]],
        error: float,
        program: Program,
        rebuild: Callable[..., Any],
    ) -> None:
        self.dtype = dtype
        self.chosen = chosen
        self.kept = kept
        self.error = error
        self.program = program
        self.function = rebuild

    def __str__(self) -> str:
        count = len(self.chosen) + len(self.kept)
        head = (
            f"{len(self.chosen)} of {count} equations can run in {self.dtype.name}, together "
            f"{self.error:.1e} of the result"
        )
        lines = [head]
        for title, rows in ((self.dtype.name, self.chosen), ("as it is", self.kept)):
            lines += [f"  {title:>9}  {error:8.1e}  {where}: {op}" for op, where, error in rows]
        return "\n".join(lines)

    __repr__ = __str__


def suggest_precision(
    function: Callable[..., Any], tolerance: float, *, dtype: Any = "bfloat16"
) -> Callable[..., Suggestion]:
    """A function of the same arguments that returns a Suggestion for them.

    tolerance: how far a result may move, relative to its leaf's largest element. An equation in
    `dtype` rounds its operands on the way in and its result on the way out; what that does to the
    results is estimated to first order (see `estimate_error`). Equations are taken in the order of
    their errors while the sum allows it. Results hold for arguments like these: run it on typical
    ones. Raises BadArgument if the tolerance is not positive or dtype not a float.

    >>> w, x = jnp.ones((64, 64)) / 64, jnp.ones(64)
    >>> suggestion = fxad.suggest_precision(lambda w, x: jnp.tanh(w @ x), 0.05)(w, x)
    >>> len(suggestion.chosen), bool(suggestion.error < 0.05)
    (2, True)
    """
    low = dt.canonicalize(dtype, explicit=True)
    if not tolerance > 0:
        raise BadArgument(f"suggest_precision: tolerance must be positive, got {tolerance}")
    if not dt.is_float(low):
        raise BadArgument(f"suggest_precision: dtype must be a float, got {low}")
    name = f"suggest_precision({name_of(function)})"

    def wrapped(*args: Any, **kwargs: Any) -> Suggestion:
        flat, program, operands = traced(function, args, kwargs, name)
        program = inlined(program)
        fixed = known_trips(program, operands)  # equations of loops are the same objects
        sensitivity = sensitivity_of(fixed, True)
        outs, table = contributions(fixed, sensitivity, operands, _Narrow(low))
        table = np.nan_to_num(table, nan=np.inf) / _limits(outs, sensitivity.active)
        costs: dict[Eqn, np.ndarray] = defaultdict(lambda: np.zeros(table.shape[1]))
        for site, row in zip(sensitivity.sites, table, strict=True):
            if runs_in(site.eqn, low):
                costs[site.eqn] = costs[site.eqn] + row
        chosen, kept, error = _greedy(costs, tolerance)
        mixed = narrowed(program, {e for e, _ in chosen}, low)
        captured = operands[: len(program.inputs) - len(flatten_args((args, kwargs), name)[0])]

        def rebuilt(*xs: Any, **named: Any) -> Any:
            leaves, tree = flatten_args((xs, named), name)
            if tree != flat.in_tree:
                raise TreeError(f"{name}: arguments have structure {tree}, not {flat.in_tree}")
            return flat.result(run_program(mixed, [*captured, *leaves]))

        return Suggestion(low, _rows(chosen), _rows(kept), error, mixed, rebuilt)

    wrapped.__name__ = name_of(function)
    return wrapped


class _Narrow:
    """The model of what `runs_in` a narrow dtype: operands and results round to it."""

    def __init__(self, dtype: np.dtype) -> None:
        self.eps = float(dt.finfo(dtype).eps) / 2
        self.dtype = dtype

    def __call__(self, site: Site, magnitude: np.ndarray) -> np.ndarray:
        # A product may keep its wide result (its parameter `dtype`), but not its wide operands.
        stays = site.operand is None and "dtype" in site.eqn.params
        return np.zeros_like(magnitude) if stays else self.eps * magnitude


def _limits(outs: Sequence[Any], active: Sequence[bool]) -> np.ndarray:
    """Per element of the active results the largest size in its leaf."""
    parts = []
    for out, on in zip(outs, active, strict=True):
        if on:
            size = np.abs(concrete(out).astype(np.complex128))
            parts.append(np.full(size.size, size.max(initial=0.0) or 1.0))
    return np.concatenate(parts) if parts else np.zeros(0)


Costs = list[tuple[Eqn, float]]


def _greedy(costs: dict[Eqn, np.ndarray], tolerance: float) -> tuple[Costs, Costs, float]:
    """The cheapest equations while no result's sum passes the tolerance."""
    ranked = sorted(costs.items(), key=lambda item: float(item[1].max(initial=0.0)))
    total = np.zeros(len(ranked[0][1]) if ranked else 0)
    chosen: Costs = []
    kept: Costs = []
    for eqn, cost in ranked:
        worst = float(cost.max(initial=0.0))
        if (total + cost).max(initial=0.0) <= tolerance:
            total = total + cost
            chosen.append((eqn, worst))
        else:
            kept.append((eqn, worst))
    return chosen, kept, float(total.max(initial=0.0))


def _rows(costs: Costs) -> list[tuple[str, str, float]]:
    return [(eqn.op.name, eqn.where, error) for eqn, error in costs]
