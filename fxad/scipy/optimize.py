"""`fxad.scipy.optimize`: minimize, by the method of Broyden, Fletcher, Goldfarb and Shanno.

best = minimize(lambda x: ((x - 3) ** 2).sum(), jnp.zeros(2), method="BFGS")
best.x, best.fun, best.success
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fxad.api.autodiff import value_and_grad
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.core.lazy import lazy as _lazy
from fxad.lax.loops import while_loop
from fxad.numpy import abs, asarray, eye, isfinite, linalg, matmul, outer, sqrt, sum, where
from fxad.numpy.core import promoted
from fxad.trace.array import Array

__all__ = ["OptimizeResults", "minimize"]

Function = Callable[[Array], tuple[Array, Array]]  # its value and gradient at x

# Status of a result.
CONVERGED, TOO_MANY_STEPS, NO_DECREASE, NO_BRACKET = 0, 1, 3, 5
# Of Wolfe's conditions: how much of the decrease, and of the slope, a step must bring.
DECREASE, CURVATURE = 1e-4, 0.9
REFINEMENTS = 30  # of one line search, after its minimum is between two points


class OptimizeResults(NamedTuple):
    """What `minimize` found."""

    x: Array  # [n]
    success: Array  # whether the gradient became small enough
    status: Array  # 0: it did; 1: too many steps; 3, 5: a line search found no lower point
    fun: Array  # at x
    jac: Array  # the gradient there [n]
    hess_inv: Array | None  # estimate of the inverse Hessian [n, n]
    nfev: Array  # how often the function was computed, and its gradient with it
    njev: Array
    nit: Array  # steps


class _Point(NamedTuple):
    """A point of a line: where, the value, the slope along the line, the gradient."""

    at: Array
    value: Array
    slope: Array
    gradient: Array


class _Search(NamedTuple):
    low: _Point  # the lowest so far that decreases enough
    high: _Point  # the other end of the interval that holds a minimum; at infinity if none is known
    found: Array
    tries: Array
    refined: Array


def _choose(condition: Array, yes: _Point, no: _Point) -> _Point:
    return _Point(*(where(condition, a, b) for a, b in zip(yes, no, strict=True)))


def _between(low: _Point, high: _Point) -> Array:
    """Where the cubic through two values and slopes is lowest (Nocedal and Wright, "Numerical
    optimization", 2006, equation 3.59), kept off the interval's ends; else its middle."""
    width = high.at - low.at
    first = low.slope + high.slope - 3 * (low.value - high.value) / (low.at - high.at)
    root = first**2 - low.slope * high.slope
    second = where(width < 0, -1, 1) * sqrt(where(root > 0, root, 0))
    cubic = high.at - width * (high.slope + second - first) / (high.slope - low.slope + 2 * second)
    share = (cubic - low.at) / width
    inside = (root >= 0) & isfinite(share) & (share > 0.1) & (share < 0.9)
    return low.at + width * where(inside, share, 0.5)


def _line_search(
    f: Function, x: Array, start: _Point, direction: Array, first: Array, most: int
) -> _Search:
    """From x along a direction, to a point that meets the strong Wolfe conditions (Nocedal and
    Wright, algorithms 3.5 and 3.6 as one loop): steps double until an interval holds a minimum,
    which then shrinks. `found` is false where `low` decreases the function but is still steep."""

    def point(at: Array) -> _Point:
        value, gradient = f(x + at * direction)
        return _Point(at, value, sum(gradient * direction), gradient)

    def going(search: _Search) -> Array:
        known = isfinite(search.high.at)
        left = where(known, search.refined < REFINEMENTS, search.tries < most)
        width = abs(search.high.at - search.low.at)
        apart = ~known | (width > np.finfo(x.dtype).eps * abs(search.high.at))
        return ~search.found & left & apart

    def body(search: _Search) -> _Search:
        low, high = search.low, search.high
        known = isfinite(high.at)
        # Outside the interval a cubic is not looked at: `where` would pass its NaN to gradients.
        end = _choose(known, high, low._replace(at=low.at + 1))
        further = where(low.at > 0, 2 * low.at, first)
        new = point(where(known, _between(low, end), further))
        enough = new.value <= start.value + DECREASE * new.at * start.slope
        lower = enough & (new.value < low.value)  # false for NaN
        flat = abs(new.slope) <= -CURVATURE * start.slope
        beyond = new.slope * where(known, high.at - low.at, 1) >= 0
        high = _choose(~lower, new, _choose(beyond, low, high))
        return _Search(
            _choose(lower, new, low),
            high,
            lower & flat,
            search.tries + 1,
            search.refined + known.astype(search.refined.dtype),
        )

    nothing = asarray(0, dtype=np.int32)
    far = start._replace(at=asarray(math.inf, dtype=x.dtype))
    state = _Search(start, far, asarray(False), nothing, nothing)
    return while_loop(going, body, state)


class _State(NamedTuple):
    x: Array
    here: _Point
    before: Array  # the value one step ago
    inverse: Array  # of the Hessian, an estimate
    steps: Array
    evaluations: Array
    status: Array


def _updated(inverse: Array, step: Array, change: Array) -> Array:
    """The estimate of the inverse Hessian after a step that changed the gradient (Nocedal and
    Wright, equation 6.17), as it was where the curvature along the step is not positive."""
    along = sum(step * change)
    curved = along > 0
    rho = 1 / where(curved, along, 1)
    product = matmul(inverse, change)
    cross = outer(step, product)
    update = rho * (1 + rho * sum(change * product)) * outer(step, step) - rho * (cross + cross.T)
    return where(curved & isfinite(update).all(), inverse + update, inverse)


def _bfgs(
    fun: Callable[[Array], Any],
    x0: Any,
    maxiter: int | None = None,
    norm: Any = math.inf,
    gtol: float = 1e-5,
    line_search_maxiter: int = 10,
) -> OptimizeResults:
    (x,) = promoted("minimize", asarray(x0), inexact=True, numbers=False)
    if x.ndim != 1:
        raise ShapeError(f"minimize: x0 must be a vector, got {x.type}; see fxad.flatten_util")
    if dt.is_complex(x.dtype):
        raise TypeMismatch(f"minimize: x0 must hold real numbers, got {x.type}")
    most = 200 * x.size if maxiter is None else maxiter
    zero = asarray(0.0, dtype=x.dtype)

    def f(x: Array) -> tuple[Array, Array]:
        value, gradient = value_and_grad(fun)(x)
        return value.astype(x.dtype), gradient

    def small(gradient: Array) -> Array:
        return linalg.norm(gradient, norm) < gtol

    def going(state: _State) -> Array:
        return (state.status == TOO_MANY_STEPS) & (state.steps < most)

    def body(state: _State) -> _State:
        downhill = -matmul(state.inverse, state.here.gradient)
        start = state.here._replace(slope=sum(downhill * state.here.gradient))
        # The step that would repeat the last decrease were the function quadratic, at most 1.
        guess = 2.02 * (start.value - state.before) / where(start.slope == 0, 1, start.slope)
        first = where((guess > 0) & (guess < 1), guess, 1).astype(x.dtype)
        search = _line_search(f, state.x, start, downhill, first, line_search_maxiter)
        low = search.low
        moved = low.at > 0
        failed = where(isfinite(search.high.at), NO_DECREASE, NO_BRACKET)
        status = where(small(low.gradient), CONVERGED, where(moved, TOO_MANY_STEPS, failed))
        step = where(moved, low.at * downhill, 0)
        inverse = _updated(state.inverse, step, low.gradient - start.gradient)
        return _State(
            state.x + step,
            low._replace(at=zero, slope=zero),
            start.value,
            where(moved, inverse, state.inverse),
            state.steps + 1,
            state.evaluations + search.tries,
            status.astype(state.status.dtype),
        )

    value, gradient = f(x)
    start = _Point(zero, value, zero, gradient)
    status = where(small(gradient), CONVERGED, TOO_MANY_STEPS).astype(np.int32)
    counts = asarray(0, dtype=np.int32), asarray(1, dtype=np.int32)
    before = value + 0.5 * linalg.norm(gradient)  # so that the first step is about one unit long
    state = _State(x, start, before, eye(x.size, dtype=x.dtype), *counts, status)
    end: _State = while_loop(going, body, state)
    return OptimizeResults(
        end.x,
        end.status == CONVERGED,
        end.status,
        end.here.value,
        end.here.gradient,
        end.inverse,
        end.evaluations,
        end.evaluations,
        end.steps,
    )


def minimize(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """Where `fun(x, *args)`, a real number that can be differentiated, is lowest near x0 [n].

    method: "BFGS". It stops when the norm of the gradient is below `tol`. Its options: `maxiter`
    steps (200 n), `norm`, the order of that norm (infinity), `gtol`, another name of tol (1e-5),
    `line_search_maxiter`, how often a step is doubled (10). Works inside `jit` and `vmap`.

    Raises BadArgument for another method or option, ShapeError unless x0 is a vector. A search that
    does not converge is no error: see `OptimizeResults.status`.
    """
    if not isinstance(args, tuple):
        raise TypeMismatch(f"minimize: args must be a tuple, not {args!r}")
    if not isinstance(method, str) or method.lower() != "bfgs":
        raise BadArgument(f"minimize: method must be 'BFGS', not {method!r}")
    chosen: dict[str, Any] = {} if tol is None else {"gtol": tol}
    chosen |= options or {}
    known = ("gtol", "line_search_maxiter", "maxiter", "norm")
    if unknown := sorted(set(chosen) - set(known)):
        raise BadArgument(f"minimize: no option {unknown[0]!r}; there are {', '.join(known)}")
    return _bfgs(lambda x: fun(x, *args), x0, **chosen)


if not TYPE_CHECKING:  # TAB completion shows what is public
    __getattr__, __dir__ = _lazy(globals())
