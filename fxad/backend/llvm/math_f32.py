"""Functions with float32 polynomials of their own, because they must be fast.

    tanh(Vec(code, "float", 16, "%x"))

Measured bounds are in `fxad.backend.llvm.math.ULP`.
"""

from __future__ import annotations

from fxad.backend.llvm import coefficients as table
from fxad.backend.llvm.math_core import exp as exp_any
from fxad.backend.llvm.math_core import exp_parts, scale
from fxad.backend.llvm.vector import Vec, fma, polynomial


def logistic(x: Vec) -> Vec:
    """1 / (1 + exp(-x)), from exp(-|x|) so that small results keep their digits."""
    e = exp_any(-x.abs())
    return (x < 0.0).where(e, 1.0) / (e + 1.0)


def tanh(x: Vec) -> Vec:
    """x + x**3 P(x*x) near 0, else 1 - 2 / (exp(2|x|) + 1)."""
    size = x.abs()
    z = x * x
    near = fma(x * z, polynomial(z, table.TANH_F32), x)
    # From 9.02 on the result is 1; at_most keeps NaN.
    n, r, q = exp_parts((size + size).at_most(20.0))
    e = scale(fma(fma(q, r, 1.0), r, 1.0), n)
    far = 1.0 - 2.0 / (e + 1.0)
    return (size < 0.625).where(near, far).copysign(x)


def erf(x: Vec) -> Vec:
    """x + x P(x*x) near 0, else 1 - exp(|x| Q(|x|)); 1 from 3.92 on."""
    size = x.abs()
    z = x * x
    near = fma(x, polynomial(z, table.ERF_F32), x)
    bounded = size.at_most(4.0)
    u = bounded * polynomial(bounded - 2.0, table.LOG_ERFC_F32)
    n, r, q = exp_parts(u)
    e = scale(fma(fma(q, r, 1.0), r, 1.0), n)
    return (size < 0.925).where(near, (1.0 - e).copysign(x))
