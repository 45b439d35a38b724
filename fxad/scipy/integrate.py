"""`fxad.scipy.integrate`: ordinary differential equations (odeint), and trapezoid.

ys = odeint(lambda y, t, k: -k * y, y0, times, k)       # a pytree like y0, with times in front
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fxad.api.vectorise import vmap
from fxad.core.errors import BadArgument, ShapeError
from fxad.flatten_util import ravel_pytree
from fxad.ir.program import OPS
from fxad.lax.loops import scan, while_loop
from fxad.numpy import abs, asarray, concatenate, max, maximum, minimum, sign, sqrt, sum, where
from fxad.numpy import trapezoid as trapezoid
from fxad.numpy.core import promoted
from fxad.trace.array import Array

# Dormand and Prince's pair of orders 5 and 4 ("RK5(4)7M", 1980)
_NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def _fixed(x: Array) -> Array:
    """x without its derivative: how long steps are is no part of the solution."""
    return OPS["stop_gradient"](x)


def _step(f: Callable[[Array, Array], Array], y: Array, t: Array, h: Array) -> tuple[Array, Array]:
    """y after a step h, and an estimate of its error."""
    slopes = [f(y, t)]
    for node, weights in zip(_NODES, _STAGES, strict=True):
        move = 0 * y
        for weight, slope in zip(weights, slopes, strict=True):
            move = move + weight * slope
        slopes.append(f(y + h * move, t + node * h))
    error = 0 * y
    for weight, slope in zip(_ERROR, slopes, strict=True):
        error = error + weight * slope
    return y + h * move, h * error


def _next_step(size: Array, tried: Array, last: Array, step: Array) -> tuple[Array, Array]:
    """Whether a step with this scaled error is good, and how long the next one should be."""
    good = size <= 1
    factor = minimum(10.0, maximum(0.2, 0.9 * maximum(size, 1e-10) ** -0.2))
    # A step cut short by the end of its interval says little against the one before.
    return good, where(good & last, maximum(step, tried * factor), tried * factor)


def _advance(
    f: Callable[[Array, Array], Array], carry: Any, end: Array, limits: tuple[float, ...]
) -> Any:
    """From one time to the next; carry: y, time, step."""
    rtol, atol, most, longest = limits
    direction = sign(_fixed(end - carry[1]))

    def going(state: Any) -> Array:
        count, _, at, step = state
        return (count < most) & ((end - at) * direction > 0) & (step == step)

    def body(state: Any) -> Any:
        count, y, at, step = state
        last = abs(end - at) <= step
        h = where(last, end - at, direction * _fixed(step))
        after, error = _step(f, y, at, h)
        scale = atol + rtol * _fixed(maximum(abs(y), abs(after)))
        size = sqrt(sum((_fixed(error) / scale) ** 2) / (y.size or 1))
        good, step = _next_step(size, _fixed(abs(h)), last, step)
        at = where(good, where(last, end, at + h), at)
        return count + 1, where(good, after, y), at, minimum(step, longest)

    y, at, step = carry
    first = minimum(step, maximum(_fixed(abs(end - at)), 1e-30))
    _, y, at, step = while_loop(going, body, (0, y, at, first))
    y = where(_fixed(at) == _fixed(end), y, math.nan)
    return (y, end, _fixed(step)), y


def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    *args: Any,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: int = 5000,
    hmax: float = math.inf,
) -> Any:
    """y at the times t, where dy/dt = func(y, t, *args) and y(t[0]) = y0.

    y0: a pytree of floats; t: increasing or decreasing times [n]. Steps adapt to the tolerances;
    the result is NaN where more than `mxstep` would be needed between two times, or steps shrink
    to nothing. Derivatives are those of the steps taken (their lengths are held fixed), in
    y0, t and args, of any order.
    """
    times = asarray(t)
    if times.ndim != 1:
        raise ShapeError(f"odeint: t must be a vector of times, got {times.type}")
    if not mxstep > 0:
        raise BadArgument(f"odeint: mxstep must be positive, got {mxstep}")
    start, unravel = ravel_pytree(y0)
    start, times = promoted("odeint", start, times, inexact=True, numbers=False, broadcast=False)

    def slope(y: Array, at: Array) -> Array:
        return ravel_pytree(func(unravel(y), at, *args))[0].astype(start.dtype)

    rate = max(abs(_fixed(slope(start, times[0]))), initial=0.0)
    first = 0.01 * (max(abs(_fixed(start)), initial=0.0) + 0.01) / (rate + 1e-10)
    limits = (rtol, atol, mxstep, hmax)
    _, rest = scan(
        lambda carry, end: _advance(slope, carry, end, limits),
        (start, times[0], first.astype(start.dtype)),
        times[1:],
    )
    return vmap(unravel)(concatenate([start[None], rest]))
