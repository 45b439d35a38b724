"""The exponentials of softmax, whose arguments are at most about 0.

    weights = exponential(x, 0.125, mask)        # exp(x * 0.125) of float32

Those that are no normal number are 0: computing with denormals takes processors a hundred cycles.
"""

from __future__ import annotations

from fxad.backend.llvm.attention.code import Code
from fxad.backend.llvm.base.vector import Vec, fma
from fxad.backend.llvm.math import core
from fxad.backend.llvm.math.core import LOG2_E, WHOLE
from fxad.backend.llvm.math.tables.polynomials import EXP2_WEIGHT

# What exp of float64, and 2**y of float32, takes to a normal number.
_LOWEST_F64, _LOWEST_POWER = -708.0, -125.0


def weight(code: Code, mask: Vec | None, x: Vec, scale: float = 1.0) -> Vec:
    """exp(x * scale) in the lanes of the mask, 0 in others and where it is no normal number; x *
    scale is at most about 0."""
    if code.problem.size == 4:
        return exponential(x, scale, mask)
    inside = _normal(x, _LOWEST_F64 / scale, mask)
    x = inside.where(x * scale, code.splat(0))
    return inside.where(code.apply("exp", x), code.splat(0))


def exponential(x: Vec, scale: float, mask: Vec | None = None) -> Vec:
    """exp(x * scale) of float32 in the lanes of the mask, 0 in others and where it is no normal
    number; x * scale is at most about 0.

    As 2**n 2**r, 0 <= r <= 1, with a polynomial good to 7e-8. Rounding n + r is an error of at most
    4e-8 in units of exp(0).
    """
    y = x * (scale * LOG2_E)
    inside = _normal(y, _LOWEST_POWER, mask)
    if core.scales(y):
        return core.scale(_power(core.above_whole(y)), y, inside)
    rounded = fma(x, scale * LOG2_E, -0.5) + WHOLE
    scaled = _power(y - (rounded - WHOLE)) * ((rounded.bits() + 127) << 23).floats()
    return inside.where(scaled, scaled.like(0.0))


def _normal(x: Vec, lowest: float, mask: Vec | None) -> Vec:
    """The lanes of the mask where x is at least `lowest`, or NaN."""
    inside = x.compare("uge", lowest)
    return inside if mask is None else mask & inside


def _power(r: Vec) -> Vec:
    """2**r of 0 <= r <= 1."""
    value = r.like(EXP2_WEIGHT[-1])
    for c in (*reversed(EXP2_WEIGHT[:-1]), 1.0):
        value = fma(value, r, c)
    return value
