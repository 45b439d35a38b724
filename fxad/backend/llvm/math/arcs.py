"""Inverse sine and cosine of floats and doubles, below one ulp.

    asin(Vec(code, "double", 8, "%x"))

What rounding loses where it would show is carried along as a second number (Dekker, 1971).
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.backend.llvm.base.vector import Vec, fma, polynomial
from fxad.backend.llvm.math import core, f32_trig
from fxad.backend.llvm.math.divide import inverse_of_root
from fxad.backend.llvm.math.divide import root as iterated_root
from fxad.backend.llvm.math.tables import doubles, polynomials


def _of_four(slopes: Sequence[float]) -> list[float]:
    """P(z) as a polynomial of 4 z, but for a factor of 4 that goes with z."""
    return [c / 4 ** (k + 1) for k, c in enumerate(slopes)]


# pi / 2 as a sum of two, and the polynomial.
_CONSTANTS = {
    "float": (f32_trig.HALF_PI[:2], _of_four(polynomials.ASIN_F32)),
    "double": (core.HALF_PI[:2], _of_four(doubles.ASIN)),
}


def _asin_parts(size: Vec) -> tuple[Vec, Vec, Vec, Vec]:
    """(big, w, root, left): asin(size) is t + t w P(w), t = size, or pi / 2 less that where big.

    w is four times the square of size, or where big 2 - 2 size. Then t is its root, and left what
    the root's square lacks of w.
    """
    big = size > 0.5
    twice = fma(size, -2.0, 2.0)
    root = twice.sqrt() if size.kind == "float" else iterated_root(twice)
    double = size + size
    return big, big.where(twice, double * double), root, fma(-root, root, twice)


def asin(x: Vec) -> Vec:
    (quarter, beyond), slopes = _CONSTANTS[x.kind]
    size = x.abs()
    big, w, root, left = _asin_parts(size)
    t = big.where(-root, size)
    total = big.where(quarter - root, t)
    lost = (quarter - total) - root + beyond
    lost = big.where(fma(-left, inverse_of_root(root), lost), 0.0)
    return (total + fma(t * w, polynomial(w, slopes), lost)).copysign(x)


def acos(x: Vec) -> Vec:
    """pi / 2 - asin(x), which beyond a half is t + t w P(w), or pi less that."""
    (quarter, beyond), slopes = _CONSTANTS[x.kind]
    big, w, root, left = _asin_parts(x.abs())
    side = x.like(1.0).copysign(x)
    root = root * side
    t = big.where(root, -x)
    base = big.where(fma(side, -quarter, quarter), quarter)
    total = base + t
    lost = fma(base, beyond / quarter, (base - total) + t)
    lost = big.where(fma(left, inverse_of_root(root), lost), lost)
    return total + fma(t * w, polynomial(w, slopes), lost)
