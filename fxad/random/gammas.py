"""The gamma family: gamma, loggamma, beta, dirichlet, chisquare.

p = dirichlet(key, jnp.ones(3))

Rejection sampling of G. Marsaglia and W. W. Tsang, "A simple method for generating gamma
variables", 2000. Draws follow their parameters where these are differentiated: each keeps its
quantile (`fxad.scipy.special.incomplete.log_slope_of_draw`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fxad.api.custom import custom_jvp
from fxad.api.vectorise import vmap
from fxad.core.errors import ShapeError
from fxad.core.lazy import later
from fxad.ir.program import OPS
from fxad.lax.loops import while_loop
from fxad.numpy.core import cast, promoted, spread_to, value_of
from fxad.numpy.elementwise import exp, log, maximum, sqrt, where
from fxad.numpy.reductions import max, sum
from fxad.random.bits import float_dtype, shape_for, uniform
from fxad.random.distributions import exponential, normal
from fxad.random.keys import checked, split
from fxad.trace.array import Array

if TYPE_CHECKING:
    from fxad.scipy.special import incomplete
else:
    incomplete = later("fxad.scipy.special.incomplete")


def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Logarithms of gamma numbers of shape parameter a > 0: no underflow for small a.

    >>> key = fxad.random.key(0)
    >>> jnp.isfinite(fxad.random.loggamma(key, 1e-4, (1000,))).all()
    Array(True, dtype=bool)
    >>> (fxad.random.gamma(key, 1e-4, (1000,)) == 0).mean().round(2)  # these underflow
    Array(0.99, dtype=float32)
    """
    wanted = float_dtype("loggamma", dtype)
    value = cast(value_of(a, "loggamma"), wanted)
    shape = shape_for("loggamma", shape, value.shape)
    flat = OPS["reshape"](spread_to(value, shape), shape=(math.prod(shape),))
    if not flat.size:
        return OPS["reshape"](flat, shape=shape)
    keys = split(checked(key, "loggamma"), flat.size)
    return OPS["reshape"](_log_draws(keys, flat), shape=shape)


@custom_jvp
def _log_draws(keys: Array, a: Array) -> Array:
    return vmap(_log_draw)(keys, a)


@_log_draws.defjvp
def _log_draws_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    logs = _log_draws(*primals)
    return logs, tangents[1] * incomplete.log_slope_of_draw(primals[1], logs)


def _log_draw(key: Array, a: Array) -> Array:
    """One draw. Below 1, gamma(a) is gamma(a + 1) times uniform ** (1 / a)."""
    large = a >= 1
    raised = where(large, a, a + 1)
    d = raised - 1 / 3
    c = (1 / 3) / sqrt(d)
    dtype = a.dtype

    def rejected(state: tuple) -> Array:
        _, x_squared, cube, drawn = state
        unsure = drawn >= 1 - 0.0331 * (x_squared * x_squared)
        return unsure & (log(drawn) >= x_squared * 0.5 + d * ((1 - cube) + log(cube)))

    def attempt(state: tuple) -> tuple:
        keys = split(state[0], 3)

        def draw(inner: tuple) -> tuple:
            pair = split(inner[0])
            x = normal(pair[1], (), dtype)
            return pair[0], x, 1 + x * c

        zero = a * 0
        _, x, v = while_loop(lambda inner: inner[2] <= 0, draw, (keys[1], zero, zero - 1))
        return keys[0], x * x, v * v * v, uniform(keys[2], (), dtype)

    keys = split(key)
    start = (keys[0], a * 0, a * 0 + 1, a * 0 + 2)  # the condition holds: one attempt at least
    _, _, cube, _ = while_loop(rejected, attempt, start)
    spare = -exponential(keys[1], (), dtype)
    boost = where(large | (spare == 0), 0.0, spare / a)
    return log(d) + log(cube) + boost


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Gamma numbers of shape parameter a > 0 and scale 1.

    >>> key = fxad.random.key(0)
    >>> fxad.random.gamma(key, 3.0, (10000,)).mean().round(1)
    Array(3., dtype=float32)
    """
    return exp(loggamma(key, a, shape, dtype))


def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Chi-square numbers of df degrees of freedom.

    >>> key = fxad.random.key(0)
    >>> fxad.random.chisquare(key, 4.0, (10000,)).mean().round(1)
    Array(4., dtype=float32)
    """
    return gamma(key, value_of(df, "chisquare") * 0.5, shape, dtype) * 2


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Beta numbers of parameters a, b > 0.

    >>> key = fxad.random.key(0)
    >>> x = fxad.random.beta(key, 2.0, 6.0, (10000,))
    >>> x.mean().round(2)  # a / (a + b)
    Array(0.25, dtype=float32)
    """
    wanted = float_dtype("beta", dtype)
    first, second = promoted("beta", a, b, inexact=True, numbers=False, broadcast=False)
    shape = shape_for("beta", shape, first.shape, second.shape)
    keys = split(checked(key, "beta"))
    logs = [loggamma(k, v, shape, wanted) for k, v in ((keys[0], first), (keys[1], second))]
    peak = maximum(*logs)
    above, below = (exp(v - peak) for v in logs)
    return above / (above + below)


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Probability vectors of parameters alpha > 0 along the last axis.

    shape: that of the result without the last axis.

    >>> key = fxad.random.key(0)
    >>> x = fxad.random.dirichlet(key, jnp.array([1.0, 2.0, 5.0]), (1000,))
    >>> x.shape, x.sum(-1).round(4)[:3]
    ((1000, 3), Array([1., 1., 1.], dtype=float32))
    """
    wanted = float_dtype("dirichlet", dtype)
    value = cast(value_of(alpha, "dirichlet"), wanted)
    if not value.ndim:
        raise ShapeError(f"dirichlet: alpha needs an axis, got {value.type}")
    shape = shape_for("dirichlet", shape, value.shape[:-1])
    logs = loggamma(key, value, (*shape, value.shape[-1]), wanted)
    sizes = exp(logs - max(logs, -1, keepdims=True))
    return sizes / sum(sizes, -1, keepdims=True)
