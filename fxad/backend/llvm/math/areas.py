"""Inverse hyperbolic sine and cosine of floats and doubles, within one ulp.

    asinh(Vec(code, "double", 8, "%x"))

Each is the logarithm of x and a root. What rounding loses is carried along as a second number
(Dekker, 1971), also that of the root: its square is held against what it is the root of.
"""

from __future__ import annotations

from functools import partial

from fxad.backend.llvm.base.vector import Vec, fma
from fxad.backend.llvm.math import f32_log, f64_log
from fxad.backend.llvm.math.core import per_lane, unless_rare
from fxad.backend.llvm.math.divide import inverse_of_root
from fxad.backend.llvm.math.divide import root as iterated_root
from fxad.backend.llvm.math.f64 import in_double

_MOST = {"float": 2.0**60, "double": 2.0**400}  # whose squares are far from the largest number


def _log_of(u: Vec, lost: Vec) -> Vec:
    """log(u + lost)."""
    return (f32_log if u.kind == "float" else f64_log).log_of_sum(u, lost)


def _root_of_sum(high: Vec, low: Vec) -> tuple[Vec, Vec]:
    """The root of high + low, and what it lacks times 2 root."""
    root = high.sqrt() if high.kind == "float" else iterated_root(high)
    return root, fma(-root, root, high) + low


def asinh(x: Vec) -> Vec:
    """log(|x| + sqrt(x x + 1)). 1 - (x x + 1) is exact where what it lacks counts."""
    size = x.abs()
    square = fma(size, size, 1.0)
    root, left = _root_of_sum(square, fma(size, size, 1.0 - square))
    u = root + size
    y = _log_of(u, fma(left, inverse_of_root(root), (root - u) + size)).copysign(x)
    slow = partial(in_double, asinh) if x.kind == "float" else partial(per_lane, "asinh")
    return unless_rare(~(size < _MOST[x.kind]), y, slow, x)


def acosh(x: Vec) -> Vec:
    """log(x + sqrt(x x - 1)), x x - 1 = a a + 2 a with a = x - 1."""
    a = x - 1.0
    twice = a + a
    square = fma(a, a, twice)
    root, left = _root_of_sum(square, fma(a, a, twice - square))
    u = x + root
    y = _log_of(u, fma(left, inverse_of_root(root), (x - u) + root))
    slow = partial(in_double, acosh) if x.kind == "float" else partial(per_lane, "acosh")
    least, most = (x.like(value).bits() for value in (1.0, _MOST[x.kind]))
    return unless_rare((x.bits() - (least + 1)).compare("uge", most - least), y, slow, x)
