"""`estimate_error`: how far rounding moves the results, and which lines are to blame.

    report = fxad.estimate_error(f)(x)
    print(report)                  # lines ranked by their share
    report.errors                  # an estimate for every element of every result

`suggest_precision` uses the same sums to say which equations can run in fewer bits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxad.analysis.error_estimate import Sensitivity, Site, sensitivity
from fxad.api.compiled import run_program
from fxad.api.flat import FlatFunction, flatten_args, name_of
from fxad.api.known_trips import known_trips
from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.ir.program import Program
from fxad.trace.array import Array
from fxad.trace.execute import concrete
from fxad.trace.tracer import Tracer, stage
from fxad.transform.batch import batch
from fxad.transform.context import cached

Model = Callable[[Site, np.ndarray], np.ndarray]
_ROWS = 32  # result elements per backward sweep


def rounding(site: Site, magnitude: np.ndarray) -> np.ndarray:
    """The default model: eps * |value|, and for sums a random walk over their terms.

    A sum of n terms is added up as a tree: it is taken to err by log2(n) * eps/2 of the sum of its
    terms' sizes, in the dtype it adds in (f32 for narrower floats).

    Models of your own have this signature: `site` says which equation (`op`, `type`, `where`,
    `terms`), `magnitude` is |value|, or for sums the sum of the sizes of the terms; the answer is
    the local error of each element.
    """
    error = _eps(site.type.dtype) * magnitude
    if site.terms > 1:
        tree = 0.5 * np.log2(site.terms) * _eps(site.sums_in) * magnitude
        narrow = site.sums_in != site.type.dtype
        return error + tree if narrow else np.maximum(error, tree)
    return error


def _eps(dtype: np.dtype) -> float:
    return float(dt.finfo(dtype).eps)


@dataclass(frozen=True, slots=True)
class EquationError:
    """What one equation contributes: `error` is the largest among the results' elements."""

    op: str
    where: str
    type: Any
    trips: int
    error: float


class ErrorReport:
    """The estimate. `value`: the function's result; `errors`: like it, absolute errors (f64);
    `equations`: contributions, the largest first; `lines`: (source line, sum) the same way."""

    def __init__(self, value: Any, errors: Any, equations: list[EquationError]) -> None:
        self.value = value
        self.errors = errors
        self.equations = sorted(equations, key=lambda e: -e.error)
        sums: dict[str, float] = defaultdict(float)
        for equation in equations:
            sums[equation.where] += equation.error
        self.lines = sorted(sums.items(), key=lambda item: -item[1])

    def __str__(self) -> str:
        total = sum(error for _, error in self.lines)
        text = [f"{'share':>6}  {'error':>9}  line and ops"]
        for where, error in self.lines[:20]:
            ops = dict.fromkeys(e.op for e in self.equations if e.where == where)
            share = 100 * error / total if total else 0.0
            text.append(f"{share:5.1f}%  {error:9.2e}  {where or 'unknown'}: {', '.join(ops)}")
        if len(self.lines) > 20:
            text.append(f"        and {len(self.lines) - 20} lines more")
        return "\n".join(text)

    __repr__ = __str__


def estimate_error(
    function: Callable[..., Any], model: Model = rounding
) -> Callable[..., ErrorReport]:
    """A function of the same arguments that returns an ErrorReport.

    The estimate of an element of a result is, to first order, the sum over all equations of
    |adjoint| * local error, where the local error is what `model` says (see `rounding`). Errors
    that cancel are added all the same, so it is a bound where the model is one. One backward sweep
    per element of the results (32 at a time). Raises TypeMismatch when called on traced values.

    >>> f = lambda x: (jnp.exp(x) - 1) / x
    >>> report = fxad.estimate_error(f)(jnp.float32(1e-4))
    >>> report.value.item(), report.errors.item() > 1e-4  # it should be 1.00005
    (1.0001659393310547, True)
    """
    name = f"estimate_error({name_of(function)})"

    def wrapped(*args: Any, **kwargs: Any) -> ErrorReport:
        flat, program, operands = traced(function, args, kwargs, name)
        program = known_trips(program, operands)
        sensitivity = sensitivity_of(program, False)
        outs, table = contributions(program, sensitivity, operands, model)
        errors = [np.zeros(o.shape) for o in outs]
        _spread(errors, sensitivity.active, table.sum(axis=0))
        equations = [
            EquationError(s.op, s.where, s.type, s.trips, float(row.max(initial=0.0)))
            for s, row in zip(sensitivity.sites, table, strict=True)
        ]
        return ErrorReport(flat.result(outs), flat.tree.unflatten(errors), equations)

    wrapped.__name__ = name_of(function)
    return wrapped


def traced(
    function: Callable[..., Any], args: tuple, kwargs: dict[str, Any], name: str
) -> tuple[FlatFunction, Program, list[Array]]:
    """The function's closed Program and concrete operands for it."""
    leaves, tree = flatten_args((args, kwargs), name)
    flat = FlatFunction(function, tree, what=name)
    program, captured = stage(flat, [v.type for v in leaves], name_of(function))
    operands = [*captured, *leaves]
    if any(isinstance(v, Tracer) for v in operands):
        raise TypeMismatch(f"{name}: needs concrete arguments; call it outside jit, grad and vmap")
    return flat, program.closed(), operands


@cached
def sensitivity_of(program: Program, operands: bool) -> Sensitivity:
    """The programs of the estimate, remembered with the Program."""
    return sensitivity(program, operands)


def _spread(errors: list[np.ndarray], active: Sequence[bool], flat: np.ndarray) -> None:
    """Write sums over the elements of the active results into arrays of the results' shapes."""
    start = 0
    for array, on in zip(errors, active, strict=True):
        if on:
            array[...] = flat[start : start + array.size].reshape(array.shape)
            start += array.size


def contributions(
    program: Program, sensitivity: Sensitivity, operands: Sequence[Any], model: Model
) -> tuple[list[Any], np.ndarray]:
    """Results, and the table [site, element of the active results] of adjoint * local error."""
    body = sensitivity.forward
    zeros = [np.zeros(t.shape, t.dtype) for t in body.in_types[len(operands) :]]
    found = run_program(body, [*operands, *zeros])
    n = len(program.outputs)
    middle = n + len(sensitivity.sites)
    outs, residuals = found[:n], found[middle:]
    sizes = [_wide(m) for m in found[n:middle]]
    with np.errstate(all="ignore"):
        local = [model(s, m) for s, m in zip(sensitivity.sites, sizes, strict=True)]
    types = [o.type for o, on in zip(outs, sensitivity.active, strict=True) if on]
    total = sum(t.size for t in types)
    table = np.zeros((len(sensitivity.sites), total))
    for start in range(0, total, _ROWS):
        rows = min(_ROWS, total - start)
        for site, adjoint in _adjoints(sensitivity, residuals, types, start, rows):
            moved = np.abs(adjoint) * local[site]
            table[site, start : start + rows] = moved.reshape(rows, -1).sum(axis=1)
    return list(outs), table


def _wide(value: Any) -> np.ndarray:
    return concrete(value).astype(np.float64)


def _adjoints(
    sensitivity: Sensitivity, residuals: Sequence[Any], types: Sequence[Any], start: int, rows: int
) -> list[tuple[int, np.ndarray]]:
    """(site, adjoints [row, *shape]) for some elements of the active results."""
    cotangents, first = [], 0
    for t in types:
        unit = np.zeros((rows, t.size), t.dtype)
        for row in range(rows):
            column = start + row - first
            if 0 <= column < t.size:
                unit[row, column] = 1
        cotangents.append(unit.reshape(rows, *t.shape))
        first += t.size
    lanes = (False,) * len(residuals) + (True,) * len(types)
    program, _ = batch(
        sensitivity.backward, rows, lanes, (True,) * len(sensitivity.backward.outputs)
    )
    found = iter(run_program(program, [*residuals, *cotangents]))
    result = []
    for site, reached in enumerate(sensitivity.reached):
        if reached:
            value = concrete(next(found))
            wide = np.complex128 if dt.is_complex(value.dtype) else np.float64
            result.append((site, value.astype(wide)))
    return result
