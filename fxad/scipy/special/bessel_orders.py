"""Bessel functions of other orders: jn, yn, bessel_jn of integer order, iv, ive of real order.

jn(3, x)        yn(-2, x)       iv(1.5, x)

Integer orders follow from 0 and 1 by recurrence (DLMF 10.6) in the direction in which it is
stable; real orders are summed: the power series (DLMF 10.25.2), the asymptotic one (10.40.1) for
arguments beyond the square of the order, and the uniform one (10.41.3) where either is large.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

from fxad.api.custom import custom_jvp
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, TypeMismatch
from fxad.ir.program import OPS
from fxad.lax.loops import while_loop
from fxad.numpy import (
    abs,
    any,
    arcsinh,
    concatenate,
    exp,
    hypot,
    log,
    minimum,
    ones,
    ones_like,
    sqrt,
    stack,
    where,
    zeros_like,
)
from fxad.numpy.core import cast, promoted
from fxad.scipy.special.bessel import _j0, _j1, _y0, _y1
from fxad.scipy.special.support import moved, polynomial, slope, special
from fxad.trace.array import Array


def _order(name: str, n: Any) -> int:
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise BadArgument(f"{name}: the order must be a Python int, got {n!r}")
    return int(n.__index__())


def _upward(n: int, x: Array, first: Array, second: Array) -> Array:
    """Order n from orders 0 and 1 by F_(k+1) = 2k/x F_k - F_(k-1)."""
    for k in range(1, n):
        first, second = second, 2 * k / x * second - first
    return second


def _downward(n: int, x: Array) -> Array:
    """J_n(x), 0 < x <= n, by Miller's method: run down from a high order and scale by
    J_0 + 2 J_2 + 2 J_4 + ... = 1."""
    high = 2 * ((n + 10 + int(5 * math.sqrt(n))) // 2)
    above, here = zeros_like(x), 1e-20 * ones_like(x)
    total, wanted = zeros_like(x), zeros_like(x)
    for k in range(high, 0, -1):
        above, here = here, 2 * k / x * here - above
        scale = where(abs(here) > 1e8, 1e-10, ones_like(x))
        above, here, total, wanted = above * scale, here * scale, total * scale, wanted * scale
        if k - 1 == n:
            wanted = here
        if k % 2 and k > 1:
            total = total + 2 * here
    return wanted / (total + here)


@partial(custom_jvp, nondiff_argnums=(0,))
def _jn(n: int, x: Array) -> Array:
    """J_n, n >= 2."""
    size = abs(x)
    big = where(size > n, size, n + 1.0)
    small = (size <= n) & (size > 1e-3)
    tiny = where(size <= 1e-3, size / 2, 0.0)
    value = where(small, _downward(n, where(small, size, float(n))), 0.0)
    value = where(size > n, _upward(n, big, _j0(big), _j1(big)), value)
    lead = tiny**n * math.exp(-math.lgamma(n + 1)) * (1 - tiny * tiny / (n + 1))
    value = where(size <= 1e-3, lead, value)
    value = where(size == math.inf, 0.0, where(x == x, value, math.nan))
    return where(x < 0, -value, value) if n % 2 else value


@_jn.defjvp
def _jn_jvp(n: int, primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x,) = primals
    return _jn(n, x), tangents[0] * 0.5 * (jn(n - 1, x) - jn(n + 1, x))


def jn(n: int, x: Any) -> Array:
    """Bessel function of the first kind of integer order n.

    >>> fxad.scipy.special.jn(2, jnp.array([0.5, 2.0])).round(3)
    Array([0.031, 0.353], dtype=float32)
    """
    order = _order("jn", n)
    kind = {0: _j0, 1: _j1}.get(builtins.abs(order)) or partial(_jn, builtins.abs(order))
    return _signed(order, special(lambda x: kind(x))(x))


@partial(custom_jvp, nondiff_argnums=(0,))
def _all_orders(v: int, x: Array) -> Array:
    """J_0, ..., J_v on a new axis 0: upward for orders below |x|, by Miller's method above."""
    size = abs(x)
    upward = [_j0(size), _j1(size)]
    big = where(size > 1, size, 1.0)
    for k in range(1, v):
        upward.append(2 * k / big * upward[-1] - upward[-2])
    small = where(size > 1e-3, minimum(size, max(v, 1)), 1.0)
    tiny = where(size <= 1e-3, size / 2, 0.0)
    values = upward[: min(v, 1) + 1]
    for k, down in enumerate(_downward_all(v, small)[2:], 2):
        lead = tiny**k * math.exp(-math.lgamma(k + 1)) * (1 - tiny * tiny / (k + 1))
        value = where(size > k, upward[k], where(size <= 1e-3, lead, down))
        value = where(size == math.inf, 0.0, where(x == x, value, math.nan))
        values.append(value)
    return stack([where(x < 0, -w, w) if k % 2 else w for k, w in enumerate(values)])


def _downward_all(v: int, x: Array) -> list[Array]:
    """J_0, ..., J_v of 0 < x <= v, by Miller's method as in _downward."""
    high = 2 * ((v + 10 + int(5 * math.sqrt(v))) // 2)
    above, here, total = zeros_like(x), 1e-20 * ones_like(x), zeros_like(x)
    found: list[Array] = []
    for k in range(high, 0, -1):
        above, here = here, 2 * k / x * here - above
        scale = where(abs(here) > 1e8, 1e-10, ones_like(x))
        above, here, total = above * scale, here * scale, total * scale
        found = [f * scale for f in found]
        if k - 1 <= v:
            found.append(here)
        if k % 2 and k > 1:
            total = total + 2 * here
    return [f / (total + here) for f in reversed(found)]


@_all_orders.defjvp
def _all_orders_jvp(v: int, primals: Any, tangents: Any) -> tuple[Array, Array]:
    """J_k' = (J_(k-1) - J_(k+1)) / 2, and J_(-1) = -J_1."""
    values = _all_orders(v + 1, *primals)
    below = concatenate([-values[1:2], values[:v]])
    return values[: v + 1], tangents[0] * 0.5 * (below - values[1:])


def bessel_jn(z: Any, *, v: int, n_iter: int = 50) -> Array:
    """J_0(z), ..., J_v(z) on a new first axis: shape (v + 1, *z.shape); v = 0, 1, ...

    n_iter: accepted for JAX's sake; as many steps as the order needs are taken. Raises BadArgument
    for other v.

    >>> bessel_jn(jnp.array([0.5, 20.0]), v=3).shape
    (4, 2)
    """
    order = _order("bessel_jn", v)
    if order < 0:
        raise BadArgument(f"bessel_jn: the order v must be 0 or more, got {v!r}")
    (value,) = promoted("bessel_jn", z, inexact=True, numbers=False)
    if dt.is_complex(value.dtype):
        raise TypeMismatch(f"bessel_jn: takes real numbers, got {value.type}")
    wide = cast(value, dt.float32) if value.dtype.itemsize < 4 else value
    return cast(_all_orders(order, wide), value.dtype)


def yn(n: int, x: Any) -> Array:
    """Bessel function of the second kind of integer order n; x > 0.

    >>> fxad.scipy.special.yn(2, jnp.array([0.5, 2.0])).round(3)
    Array([-5.441, -0.617], dtype=float32)
    """
    order = _order("yn", n)
    size = builtins.abs(order)

    def value(x: Array) -> Array:
        if size < 2:
            return _y1(x) if size else _y0(x)
        safe = where(x > 0, x, 1.0)
        up = _upward(size, safe, _y0(safe), _y1(safe))
        up = where(up == up, up, -math.inf)  # inf - inf, close to 0
        return where(x > 0, up, where(x == 0, -math.inf, math.nan))

    return _signed(order, special(value)(x))


def _signed(n: int, value: Array) -> Array:
    """F_(-n) = (-1)**n F_n."""
    return -value if n < 0 and n % 2 else value


# ---------------------------------------------------------------- modified, of real order


def _power_series(v: Array, x: Array) -> Array:
    """exp(-x) I_v(x), x > 0. Partial sums that grow large are scaled down on the way."""
    eps = float(dt.finfo(x.dtype).eps)
    quarter, one = x * x / 4, ones_like(x)

    def going(carry: Any) -> Array:
        k, term, total, _ = carry
        return (k < 5000) & any(term > 0.5 * eps * total)

    def body(carry: Any) -> Any:
        k, term, total, size = carry
        term = term * (quarter / (k * (v + k)))
        total = total + term
        big = total > 1e15
        scale = where(big, 1e-15, one)
        return k + 1, term * scale, total * scale, where(big, size + math.log(1e15), size)

    size = v * log(x / 2) - OPS["lgamma"](v + 1) - x
    _, _, total, size = while_loop(going, body, (ones((), x.dtype), one, one, size))
    return total * exp(size)


def _asymptotic(v: Array, x: Array) -> Array:
    """exp(-x) I_v(x), x >= 30 + v * v."""
    term = total = ones_like(x)
    for k in range(1, 26):
        term = term * -((2 * v - (2 * k - 1)) * (2 * v + (2 * k - 1)) / (8 * k * x))
        total = total + term
    return total / sqrt(2 * math.pi * x)


def _debye_polynomials(count: int) -> list[list[float]]:
    """U_k(p) / p**k in powers of p**2, k = 0, 1, ..., by the recurrence of DLMF 10.41.9."""
    rows = [[Fraction(1)]]
    for k in range(count - 1):
        older, row = rows[-1], [Fraction(0)] * (k + 2)
        for j, c in enumerate(older):
            power = k + 2 * j  # of p
            row[j] += c * (Fraction(power, 2) + Fraction(1, 8 * (power + 1)))
            row[j + 1] -= c * (Fraction(power, 2) + Fraction(5, 8 * (power + 3)))
        rows.append(row)
    return [[float(c) for c in row] for row in rows]


_DEBYE = _debye_polynomials(13)
_FAR = 50.0  # sqrt(v * v + x * x) from which they give all digits


def _uniform(v: Array, x: Array, scaled: bool) -> Array:
    """I_v(x), times exp(-x) if `scaled`, for a large order or argument: DLMF 10.41.3."""
    size = hypot(v, x)
    share = v / size
    coefficients = [polynomial(share * share, row) for row in _DEBYE]
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total / size + c
    # size - x without cancellation; half of the exponent, as its power overflows first
    rise = v * (v / (size + x)) if scaled else size
    half = exp(0.5 * (rise - v * arcsinh(v / x)))
    return half / sqrt(2 * math.pi * size) * total * half


def _modified(v: Array, x: Array, scaled: bool) -> Array:
    """I_v(x), times exp(-x) if `scaled`."""
    far = x > 30 + v * v
    if not scaled:
        far = far & (x < (80.0 if x.dtype == dt.float32 else 700.0))  # exp(x) overflows first
    large = ~far & (hypot(v, x) >= _FAR)
    near = _power_series(where(far | large, 0.0, v), where(far | large, 1.0, x))
    value = where(far, _asymptotic(where(far, v, 0.0), where(far, x, 30.0)), near)
    if not scaled:
        value = exp(where(large, 0.0, x)) * value
    return where(large, _uniform(where(large, v, 0.0), where(large, x, _FAR), scaled), value)


@custom_jvp
def _ive(v: Array, x: Array) -> Array:
    return _modified(v, x, True)


@custom_jvp
def _iv(v: Array, x: Array) -> Array:
    return _modified(v, x, False)


def _ive_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (v, x), (dv, dx) = primals, tangents
    value = _ive(v, x)
    return value, moved(
        (dv, lambda: slope(lambda order: _modified(order, x, True), v)),
        (dx, lambda: _ive(v + 1, x) + (v / x - 1) * value),
    )


def _iv_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (v, x), (dv, dx) = primals, tangents
    value = _iv(v, x)
    return value, moved(
        (dv, lambda: slope(lambda order: _modified(order, x, False), v)),
        (dx, lambda: _iv(v + 1, x) + v / x * value),
    )


_ive.defjvp(_ive_jvp, symbolic_zeros=True)
_iv.defjvp(_iv_jvp, symbolic_zeros=True)


def _inside(function: Callable[[Array, Array], Array], v: Array, x: Array) -> Array:
    """function(v, x) for v >= 0 and x > 0; its limit at 0, NaN outside."""
    inside = (v >= 0) & (x > 0) & (x < math.inf)
    value = function(where(inside, v, 0.0), where(inside, x, 1.0))
    return where(inside, value, where((v >= 0) & (x == 0), where(v == 0, 1.0, 0.0), math.nan))


@special
def ive(v: Any, x: Any) -> Array:
    """exp(-x) iv(v, x), without overflow; v >= 0 and x >= 0, else NaN.

    >>> fxad.scipy.special.ive(1.5, jnp.array([0.5, 100.0])).round(3)
    Array([0.058, 0.039], dtype=float32)
    """
    return _inside(_ive, v, x)


@special
def iv(v: Any, x: Any) -> Array:
    """Modified Bessel function of the first kind of real order v >= 0; x >= 0, else NaN.

    >>> fxad.scipy.special.iv(1.5, jnp.array([0.5, 2.0])).round(3)
    Array([0.096, 1.099], dtype=float32)
    """
    return _inside(_iv, v, x)
