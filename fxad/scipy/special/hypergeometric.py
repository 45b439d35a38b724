"""Hypergeometric functions of real numbers: hyp1f1, hyp2f1.

hyp1f1(1.0, 2.0, 1.0)           # e - 1
hyp2f1(1.0, 1.0, 2.0, -1.0)     # log(2)

Power series where they converge fast; Kummer's and Pfaff's transformations of negative arguments
(DLMF 13.2.39, 15.8.1); for large x the asymptotic series of 1F1 (13.7.1), and between 1/2 and 1
Taylor steps along the differential equation of 2F1 (15.10.1), each halfway to the singularity at 1,
which need no case apart where exponents differ by an integer. J. W. Pearson, S. Olver and M. A.
Porter, "Numerical methods for the computation of the confluent and Gauss hypergeometric functions",
Numerical Algorithms 74 (2017), compares these methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fxad.api.custom import custom_jvp
from fxad.core import dtypes as dt
from fxad.ir.program import OPS
from fxad.lax.loops import fori_loop, while_loop
from fxad.numpy import (
    abs,
    any,
    exp,
    floor,
    isinf,
    log,
    log1p,
    maximum,
    ones,
    ones_like,
    where,
    zeros_like,
)
from fxad.numpy.core import cast
from fxad.numpy.weak import gives_strong
from fxad.scipy.special.gammas import gammasgn
from fxad.scipy.special.support import moved, slope, special
from fxad.trace.array import Array

_LIMIT = 10000  # terms


def _whole(x: Array) -> Array:
    """Whether x is 0, -1, -2, ..."""
    return (x <= 0) & (x == floor(x))


def _series(tops: list[Array], bottom: Array, x: Array) -> tuple[Array, Array]:
    """total, size: the sum of (t_1)_k (t_2)_k ... / (bottom)_k x**k / k! is total exp(size).

    Its end is found by a bound of the terms that does not vanish where a factor t + k does, so that
    derivatives in t, which go on there, are summed too.
    """
    eps = float(dt.finfo(x.dtype).eps)

    def going(carry: Any) -> Array:
        k, _, bound, total, _ = carry
        return (k < _LIMIT) & any((bound > 0.25 * eps * abs(total)) | (k < -bottom))

    def body(carry: Any) -> Any:
        k, term, bound, total, size = carry
        below = bottom + k
        below = where(below == 0, 1.0, below) * (k + 1)
        ratio, least = x / below, abs(x / below)
        for top in tops:
            ratio = ratio * (top + k)
            least = least * maximum(abs(top + k), 0.5)
        term, bound = term * ratio, bound * least
        total = total + term
        big = maximum(bound, abs(total)) > 1e15
        scale = where(big, 1e-15, ones_like(total))
        size = where(big, size + math.log(1e15), size)
        return k + 1, term * scale, bound * scale, total * scale, size

    one = ones_like(x)
    start = (zeros_like(ones((), x.dtype)), one, one, one, zeros_like(x))
    _, _, _, total, size = while_loop(going, body, start)
    return total, size


# ---------------------------------------------------------------- 1F1


def _asymptotic(a: Array, b: Array, x: Array) -> tuple[Array, Array]:
    """total, size of exp(-x) 1F1(a, b, x) for large x > 0; a is not 0, -1, -2, ..."""
    term = total = ones_like(x)
    for k in range(24):
        term = term * ((k + 1 - a) * (b - a + k) / ((k + 1) * x))
        total = total + term
    size = (a - b) * log(x) + OPS["lgamma"](b) - OPS["lgamma"](a)
    return total * OPS["stop_gradient"](gammasgn(a) * gammasgn(b)), size


def _confluent(a: Array, b: Array, x: Array) -> Array:
    negative = (x < 0) & ~_whole(a)
    top, at = where(negative, b - a, a), where(negative, -x, x)
    far = (at > 40 + 2 * (top * top + b * b)) & ~_whole(top)
    total, size = _series([where(far, 1.0, top)], where(far, 1.0, b), where(far, 0.0, at))
    inside = [where(far, v, safe) for v, safe in ((top, 0.5), (b, 0.5), (at, 50.0))]
    total_far, size_far = _asymptotic(*inside)
    # The two exponentials of a negative x cancel far out: neither is taken.
    size = where(
        far,
        size_far + where(negative, 0.0, at),
        size + where(negative, x, 0.0),
    )
    return where(far, total_far, total) * exp(size)


@custom_jvp
def _hyp1f1(a: Array, b: Array, x: Array) -> Array:
    return _confluent(a, b, x)


def _hyp1f1_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (a, b, x), (da, db, dx) = primals, tangents
    return _hyp1f1(a, b, x), moved(
        (da, lambda: slope(lambda v: _confluent(v, b, x), a)),
        (db, lambda: slope(lambda v: _confluent(a, v, x), b)),
        (dx, lambda: a / b * hyp1f1(a + 1, b + 1, x)),
    )


_hyp1f1.defjvp(_hyp1f1_jvp, symbolic_zeros=True)


def _or_edge(
    function: Callable[..., Array], inside: Array, edge: Any, *args: Array, safe: float
) -> Array:
    """function(*args) inside, and the edge value elsewhere; NaN for a NaN among the arguments."""
    value = function(*(where(inside, v, safe) for v in args))
    value = where(inside, value, edge)
    for v in args:
        value = where(v == v, value, math.nan)
    return value


@gives_strong
@special
def hyp1f1(a: Any, b: Any, x: Any) -> Array:
    """Kummer's confluent hypergeometric function 1F1(a, b, x), with derivatives in all three.

    inf where b is 0, -1, ..., unless the series ends before; 1 for a = b = 0, as in JAX; NaN for
    infinite arguments. Digits are lost where terms of both signs are much larger than their sum.

    >>> print(f"{float(hyp1f1(1.0, 2.0, 1.0)):.5f}")
    1.71828
    """
    ends = _whole(a) & (a > b)
    pole = _whole(b) & ~ends & (a != 0) & (a != b)
    infinite = isinf(a) | isinf(b) | isinf(x)
    edge = where(infinite, math.nan, math.inf)
    return _or_edge(_hyp1f1, ~(pole | infinite), edge, a, b, x, safe=1.0)


# ---------------------------------------------------------------- 2F1

_STEPS = 72  # terms of a Taylor step, of which each is at most about half the one before


def _towards_one(a: Array, b: Array, c: Array, z: Array, rest: Array) -> Array:
    """2F1(a, b, c, z), 0 <= z < 1 and rest = 1 - z."""
    start = maximum(rest, 0.5)
    low = where(rest < 0.5, 0.5, z)

    def at(shift: int) -> Array:
        total, size = _series([a + shift, b + shift], c + shift, low)
        return total * exp(size)

    value, rate = at(0), a * b / c * at(1)

    def step(state: tuple) -> tuple:
        here, value, rate = state
        moving = here > rest
        end = where(moving, maximum(0.5 * here, rest), 0.5 * here)
        h = here - end
        point = 1 - here
        lead = h / (point * here)

        def term(index: Array, sums: tuple) -> tuple:
            n = cast(index, rest.dtype)
            u, v, value, rate = sums  # the terms n and n + 1, with their powers of h
            value, rate = value + u, rate + (n + 1) * v
            middle = (1 - 2 * point) * n + c - (a + b + 1) * point
            after = (n + a) * (n + b) * u * h - (n + 1) * middle * v
            return v, after * lead / ((n + 1) * (n + 2)), value, rate

        zero = zeros_like(value)
        sums = fori_loop(0, _STEPS, term, (value, rate * h, zero, zero))
        return (
            where(moving, end, here),
            where(moving, sums[2], value),
            where(moving, sums[3] / h, rate),
        )

    return while_loop(lambda state: any(state[0] > rest), step, (start, value, rate))[1]


def _gauss(a: Array, b: Array, c: Array, x: Array) -> Array:
    """2F1 for x < 1."""
    negative = x < 0
    first = where((_whole(b) | (b < a)) & ~_whole(a), b, a)
    second = a + b - first
    other = where(negative, c - second, second)
    below = 1 / where(negative, 1 - x, 1.0)
    value = _towards_one(
        first, other, c, where(negative, -x * below, x), where(negative, below, 1 - x)
    )
    return value * where(negative, exp(-first * log1p(where(negative, -x, 0.0))), 1.0)


def _polynomial(a: Array, b: Array, c: Array, x: Array) -> Array:
    """2F1 where a or b is 0, -1, -2, ...: all terms of it."""
    last = maximum(where(_whole(a), a, -math.inf), where(_whole(b), b, -math.inf))
    count = where(last > -_LIMIT, -last, 0.0)

    def body(carry: Any) -> Any:
        k, term, total = carry
        below = where(c + k == 0, 1.0, c + k) * (k + 1)
        term = where(k < count, term * ((a + k) * (b + k) / below) * x, 0.0)
        return k + 1, term, total + term

    one = ones_like(x)
    start = (zeros_like(ones((), x.dtype)), one, one)
    return while_loop(lambda carry: any(carry[0] < count), body, start)[2]


def _at_one(a: Array, b: Array, c: Array) -> Array:
    """Gauss' sum: Gamma(c) Gamma(c - a - b) / (Gamma(c - a) Gamma(c - b)), c > a + b."""
    d, ca, cb = c - a - b, c - a, c - b
    zero = _whole(ca) | _whole(cb)
    ca, cb = where(zero, 1.0, ca), where(zero, 1.0, cb)
    log_gamma = OPS["lgamma"]
    size = log_gamma(c) + log_gamma(d) - log_gamma(ca) - log_gamma(cb)
    sign = OPS["stop_gradient"](gammasgn(c) * gammasgn(ca) * gammasgn(cb))
    return where(zero, 0.0, sign * exp(size))


def _hypergeometric(a: Array, b: Array, c: Array, x: Array) -> Array:
    below, one = x < 1, x == 1
    ends = _whole(a) | _whole(b)
    inside = [where(below, v, safe) for v, safe in ((a, 1.0), (b, 1.0), (c, 2.0), (x, 0.0))]
    finite = ends & ~below
    all_terms = _polynomial(
        *(where(finite, v, safe) for v, safe in ((a, 0.0), (b, 1.0), (c, 1.0), (x, 1.0)))
    )
    summed = one & (c > a + b)
    sum_of_gauss = _at_one(*(where(summed, v, safe) for v, safe in ((a, 1.0), (b, 1.0), (c, 3.0))))
    outside = where(summed, sum_of_gauss, where(finite, all_terms, math.inf))
    return where(below, _gauss(*inside), outside)


@custom_jvp
def _hyp2f1(a: Array, b: Array, c: Array, x: Array) -> Array:
    return _hypergeometric(a, b, c, x)


def _hyp2f1_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (a, b, c, x), (da, db, dc, dx) = primals, tangents
    return _hyp2f1(a, b, c, x), moved(
        (da, lambda: slope(lambda v: _hypergeometric(v, b, c, x), a)),
        (db, lambda: slope(lambda v: _hypergeometric(a, v, c, x), b)),
        (dc, lambda: slope(lambda v: _hypergeometric(a, b, v, x), c)),
        (dx, lambda: a * b / c * hyp2f1(a + 1, b + 1, c + 1, x)),
    )


_hyp2f1.defjvp(_hyp2f1_jvp, symbolic_zeros=True)


@special
def hyp2f1(a: Any, b: Any, c: Any, x: Any) -> Array:
    """Gauss' hypergeometric function 2F1(a, b, c, x), x <= 1, with derivatives in all four.

    inf for x > 1 and where c is 0, -1, ..., unless the series ends before; 1 at x = 0; NaN for
    infinite arguments. Digits are lost where terms of both signs are much larger than their sum.

    >>> print(f"{float(hyp2f1(1.0, 1.0, 2.0, -1.0)):.5f}")
    0.69315
    """
    ends = (_whole(a) & (a > c)) | (_whole(b) & (b > c))
    pole = _whole(c) & ~ends & (x != 0)
    infinite = isinf(a) | isinf(b) | isinf(c) | isinf(x)
    trivial = x == 0
    edge = where(infinite, math.nan, where(trivial, 1.0, math.inf))
    inside = ~(pole | infinite | (trivial & _whole(c)))
    return _or_edge(_hyp2f1, inside, edge, a, b, c, x, safe=0.5)
