"""Logarithms and entropies with their limits: xlogy, entr, logit, logsumexp, ...

xlogy(0.0, 0.0)               # 0.0, and so is its gradient
grad(xlogy)(0.0, 2.0)         # log(2): only where the logarithm is not finite is x = 0 a case apart
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fxad.api.custom import custom_jvp
from fxad.ir.program import OPS
from fxad.nn.softmax import log_softmax as log_softmax_over
from fxad.nn.softmax import softmax as softmax_over
from fxad.numpy import abs, asarray, exp, expm1, log, log1p, minimum, where, zeros_like
from fxad.numpy import logsumexp as logsumexp
from fxad.numpy.weak import strong_with_axes
from fxad.scipy.special.support import moved, polynomial, special
from fxad.trace.array import Array


def softmax(x: Any, axis: Any = None) -> Array:
    """exp(x) / sum(exp(x)) over all elements or over the given axes.

    >>> fxad.scipy.special.softmax(jnp.array([1.0, 2.0, 3.0])).round(3)
    Array([0.09 , 0.245, 0.665], dtype=float32)
    """
    return softmax_over(x, _axes(x, axis))


def log_softmax(x: Any, axis: Any = None) -> Array:
    """log(softmax(x)), accurate for small probabilities.

    >>> fxad.scipy.special.log_softmax(jnp.array([0.0, 100.0]))
    Array([-100.,    0.], dtype=float32)
    """
    return log_softmax_over(x, _axes(x, axis))


def _axes(x: Any, axis: Any) -> Any:
    return tuple(range(asarray(x).ndim)) if axis is None else axis


@special
def expit(x: Any) -> Array:
    """1 / (1 + exp(-x)).

    >>> fxad.scipy.special.expit(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([0.622, 0.731, 0.982], dtype=float32)
    """
    return OPS["logistic"](x)


@special
def log_expit(x: Any) -> Array:
    """log(expit(x)) without underflow.

    >>> fxad.scipy.special.log_expit(jnp.array([-200.0, 0.0, 3.0])).round(3)
    Array([-2.00e+02, -6.93e-01, -4.90e-02], dtype=float32)
    """
    return _log_expit(x)


@custom_jvp
def _log_expit(x: Array) -> Array:
    return minimum(x, 0) - log1p(OPS["exp"](-OPS["abs"](x)))


@_log_expit.defjvp
def _log_expit_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """Both terms above have a kink at 0, their sum has none."""
    return _log_expit(*primals), tangents[0] * OPS["logistic"](-primals[0])


@strong_with_axes
@special
def logit(x: Any) -> Array:
    """log(x / (1 - x)), the inverse of expit.

    >>> fxad.scipy.special.logit(jnp.array([0.1, 0.5, 0.9])).round(3)
    Array([-2.197,  0.   ,  2.197], dtype=float32)
    """
    return log(x) - log1p(-x)


@special
def xlogy(x: Any, y: Any) -> Array:
    """x log(y), 0 where x = 0 (unless y is NaN).

    >>> fxad.scipy.special.xlogy(jnp.array([0.0, 2.0]), jnp.array([0.0, 3.0])).round(3)
    Array([0.   , 2.197], dtype=float32)
    """
    return _times(x, y, log, (y > 0) & (y < math.inf))


@special
def xlog1py(x: Any, y: Any) -> Array:
    """x log(1 + y), 0 where x = 0 (unless y is NaN).

    >>> fxad.scipy.special.xlog1py(jnp.array([0.0, 2.0]), jnp.array([-1.0, 1.0])).round(3)
    Array([0.   , 1.386], dtype=float32)
    """
    return _times(x, y, log1p, (y > -1) & (y < math.inf))


def _times(x: Array, y: Array, logarithm: Callable[..., Array], finite: Array) -> Array:
    """x logarithm(y), and 0 where x = 0 but the logarithm is not finite (nor NaN for y's sake).

    Elsewhere x = 0 is a number as any other, so that x has its derivative there.
    """
    nothing = (x == 0) & (y == y) & ~finite
    return where(nothing, 0.0, x * logarithm(where(nothing, 1.0, y)))


@special
def entr(x: Any) -> Array:
    """-x log(x); 0 at 0, -inf below.

    >>> fxad.scipy.special.entr(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([ 0.347, -0.   , -5.545], dtype=float32)
    """
    return where(x < 0, -math.inf, -_xlogx(x))


@custom_jvp
def _xlogx(x: Array) -> Array:
    return x * log(where(x == 0, 1.0, x))


@_xlogx.defjvp
def _xlogx_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """The slope at 0 is that of x log(x), not of what stands for it there."""
    return _xlogx(primals[0]), (log(primals[0]) + 1) * tangents[0]


def _divergence(x: Array, y: Array, inner: Callable[..., Array], at_zero: Array) -> Array:
    """inner(x, y) for positive x and y, at_zero for x = 0 <= y, else inf or NaN."""
    both = (x > 0) & (y > 0)
    value = inner(where(both, x, 1.0), where(both, y, 1.0))
    value = where(both, value, where((x == 0) & (y >= 0), at_zero, math.inf))
    return where((x == x) & (y == y), value, math.nan)


@strong_with_axes
@special
def rel_entr(p: Any, q: Any) -> Array:
    """p log(p / q); 0 at p = 0 <= q, inf where p or q is negative or q alone is 0.

    >>> fxad.scipy.special.rel_entr(jnp.array([0.5, 0.0]), jnp.array([0.25, 1.0])).round(3)
    Array([0.347, 0.   ], dtype=float32)
    """
    return _divergence(p, q, lambda a, b: a * log(a / b), zeros_like(q))


@strong_with_axes
@special
def kl_div(p: Any, q: Any) -> Array:
    """p log(p / q) - p + q, with the limits of rel_entr.

    >>> fxad.scipy.special.kl_div(jnp.array([0.5, 0.0]), jnp.array([0.25, 1.0])).round(3)
    Array([0.097, 1.   ], dtype=float32)
    """
    return _divergence(p, q, lambda a, b: a * log(a / b) - a + b, q)


# ---------------------------------------------------------------- Box and Cox


@custom_jvp
def _power_of(logarithm: Array, power: Array) -> Array:
    """(exp(l p) - 1) / p, which tends to l as p tends to 0."""
    product = logarithm * power
    tiny = (power == 0) | (abs(product) < 1e-30)
    return where(tiny, logarithm, expm1(product) / where(tiny, 1.0, power))


def _curvature(logarithm: Array, power: Array) -> Array:
    """The derivative of _power_of in p: l**2 (u exp(u) - exp(u) + 1) / u**2, u = l p; near u = 0 by
    its power series, as the numerator cancels there."""
    u = logarithm * power
    near = abs(u) < 1
    small, safe = where(near, u, 0.0), where(near, 1.0, power)
    series = polynomial(small, [(k + 1) / math.factorial(k + 2) for k in range(18)])
    direct = ((u - 1) * exp(where(near, 0.0, u)) + 1) / (safe * safe)
    return where(near, logarithm * logarithm * series, direct)


def _power_of_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (logarithm, power), (dl, dp) = primals, tangents
    return _power_of(logarithm, power), moved(
        (dl, lambda: exp(logarithm * power)), (dp, lambda: _curvature(logarithm, power))
    )


_power_of.defjvp(_power_of_jvp, symbolic_zeros=True)


@special
def boxcox(x: Any, lmbda: Any) -> Array:
    """(x**lmbda - 1) / lmbda, log(x) at lmbda = 0, where it has its derivative in lmbda too.

    NaN for x < 0. G. E. P. Box and D. R. Cox, "An analysis of transformations", 1964.

    >>> print(boxcox(3.0, 2.0), boxcox(1.0, 0.0))
    4.0 0.0
    """
    return _power_of(log(x), lmbda)


@special
def boxcox1p(x: Any, lmbda: Any) -> Array:
    """boxcox(1 + x, lmbda), accurate for small x; NaN for x < -1.

    >>> print(f"{float(boxcox1p(1e-10, 2.0)):.5g}")
    1e-10
    """
    return _power_of(log1p(x), lmbda)
