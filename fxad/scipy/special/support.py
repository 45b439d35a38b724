"""How functions of this package take their arguments, and how they sum series.

@special
def f(a, x): ...     # called with arrays of one float dtype (f32 or f64) and one shape
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from fxad.api.autodiff import jvp
from fxad.api.custom_rules import SymbolicZero
from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.numpy import ones_like, zeros_like
from fxad.numpy.core import cast, promoted
from fxad.numpy.weak import finish, weak_result
from fxad.trace.array import Array

LOG_2PI = math.log(2 * math.pi)
HALF_LOG_2PI = 0.5 * LOG_2PI


def special(function: Callable[..., Array]) -> Callable[..., Array]:
    """Promote and broadcast arguments to one float dtype; 16-bit floats are computed in f32.

    Raises TypeMismatch for complex arguments, for which the functions have no meaning here.
    """
    name = function.__name__

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Array:
        bound = signature.bind(*args, **named).args
        values = promoted(name, *bound, inexact=True, numbers=False)
        dtype = values[0].dtype
        if dt.is_complex(dtype):
            raise TypeMismatch(f"{name}: takes real numbers, got {values[0].type}")
        wide = [cast(v, dt.float32) for v in values] if dtype.itemsize < 4 else values
        return finish(cast(function(*wide), dtype), weak_result(*bound))

    signature = inspect.signature(function)
    return call


def chebyshev(t: Array, coefficients: Sequence[float]) -> Array:
    """Sum of c_k T_k(t), |t| <= 1, by Clenshaw's recurrence."""
    twice = t + t
    newer, older = zeros_like(t) + coefficients[-1], zeros_like(t)
    for c in reversed(coefficients[1:-1]):
        newer, older = twice * newer - older + c, newer
    return t * newer - older + coefficients[0]


def polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    """c_0 + c_1 x + c_2 x**2 + ... by Horner's rule."""
    total = zeros_like(x) + coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def slope(function: Callable[[Array], Array], at: Array) -> Array:
    """Derivative of an elementwise function."""
    return jvp(function, (at,), (ones_like(at),))[1]


def moved(*parts: tuple[Any, Callable[[], Array]]) -> Array:
    """Sum of tangent * slope() over those (tangent, slope) whose tangent is no SymbolicZero."""
    terms = [tangent * rate() for tangent, rate in parts if not isinstance(tangent, SymbolicZero)]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
