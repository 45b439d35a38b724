"""Inverse sine and cosine of floats and doubles, below one ulp.

    asin(Vec(code, "double", 8, "%x"))

What rounding loses where it would show is carried along as a second number (Dekker, 1971).
"""

from __future__ import annotations

from fxad.backend.llvm.base.vector import Vec, fma, polynomial
from fxad.backend.llvm.math import coefficients, core, f32_trig, tables_f64
from fxad.backend.llvm.math.divide import inverse_of_root
from fxad.backend.llvm.math.divide import root as iterated_root

# pi / 2 as a sum of two, and the polynomial.
_CONSTANTS = {
    "float": (f32_trig.HALF_PI[:2], coefficients.ASIN_F32),
    "double": (core.HALF_PI[:2], tables_f64.ASIN),
}


def _asin_parts(size: Vec) -> tuple[Vec, Vec, Vec, Vec]:
    """(big, z, root, left): asin(size) is t + t z P(z), t = size, or pi / 2 less that where big.

    Then z is (1 - size) / 2, t is twice its root, and left what the root's square lacks of z.
    """
    big = size > 0.5
    half = fma(size, -0.5, 0.5)
    root = half.sqrt() if size.kind == "float" else iterated_root(half)
    return big, big.where(half, size * size), root, fma(-root, root, half)


def asin(x: Vec) -> Vec:
    (quarter, beyond), slopes = _CONSTANTS[x.kind]
    size = x.abs()
    big, z, root, left = _asin_parts(size)
    t = big.where(root * -2.0, size)
    total = big.where(t + quarter, t)
    lost = (quarter - total) + t + beyond
    lost = big.where(fma(left * -2.0, inverse_of_root(root), lost), 0.0)
    return (total + fma(t * z, polynomial(z, slopes), lost)).copysign(x)


def acos(x: Vec) -> Vec:
    """pi / 2 - asin(x), which beyond a half is t + t z P(z), or pi less that."""
    (quarter, beyond), slopes = _CONSTANTS[x.kind]
    big, z, root, left = _asin_parts(x.abs())
    side = x.like(2.0).copysign(x)
    t = big.where(root * side, -x)
    base = big.where(fma(side, -quarter / 2, quarter), quarter)
    total = base + t
    lost = fma(base, beyond / quarter, (base - total) + t)
    lost = big.where(fma(left * side, inverse_of_root(root), lost), lost)
    return total + fma(t * z, polynomial(z, slopes), lost)
