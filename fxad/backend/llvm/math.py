"""Scalar functions for any lane count, float and double.

    function("exp", Vec(code, "float", 16, "%x"))

Half-width floats compute with the float functions. The same argument gives the same bits
whatever the lane count.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm import math_core, math_f32, math_f32_log, math_f32_trig, math_f64
from fxad.backend.llvm.divide import root
from fxad.backend.llvm.vector import Vec

# Worst error in units in the last place; tests/backend/test_math.py measures it.
ULP: dict[str, dict[str, float]] = {
    "exp": {"float32": 0.87, "float64": 1.0},
    "exp2": {"float32": 0.84, "float64": 1.0},
    "expm1": {"float32": 0.93, "float64": 2.0},
    "log": {"float32": 0.78, "float64": 1.0},
    "log2": {"float32": 0.8, "float64": 2.0},
    "log1p": {"float32": 0.82, "float64": 2.0},
    "sin": {"float32": 1.0, "float64": 1.5},
    "cos": {"float32": 1.0, "float64": 1.5},
    "tan": {"float32": 0.97, "float64": 3.0},
    "asin": {"float32": 0.7, "float64": 4.0},
    "acos": {"float32": 0.7, "float64": 4.0},
    "atan": {"float32": 0.8, "float64": 2.5},
    "atan2": {"float32": 0.85, "float64": 3.0},
    "sinh": {"float32": 0.96, "float64": 4.0},
    "cosh": {"float32": 0.96, "float64": 4.0},
    "tanh": {"float32": 1.01, "float64": 4.0},
    "asinh": {"float32": 0.8, "float64": 4.0},
    "acosh": {"float32": 0.85, "float64": 4.0},
    "atanh": {"float32": 0.93, "float64": 4.0},
    "erf": {"float32": 0.97, "float64": 1.0},
    "erfc": {"float32": 0.51, "float64": 5.0},
    "erfinv": {"float32": 0.51, "float64": 5.0},
    "lgamma": {"float32": 0.51, "float64": 5.0},
    "cbrt": {"float32": 0.85, "float64": 2.0},
    "logistic": {"float32": 0.9, "float64": 2.0},
    "pow": {"float32": 1.1, "float64": 1.0},
    "sqrt": {"float32": 0.5, "float64": 0.5},
    "rsqrt": {"float32": 0.58, "float64": 1.5},
}

_FLOAT: dict[str, Callable[..., Vec]] = {
    "exp": math_core.exp,
    "exp2": math_f32.exp2,
    "expm1": math_f32.expm1,
    "log": math_f32_log.log,
    "log2": math_f32_log.log2,
    "log1p": math_f32_log.log1p,
    "pow": math_f32_log.power,
    "asinh": math_f32_log.asinh,
    "acosh": math_f32_log.acosh,
    "atanh": math_f32_log.atanh,
    "sin": math_f32_trig.sin,
    "cos": math_f32_trig.cos,
    "tan": math_f32_trig.tan,
    "asin": math_f32_trig.asin,
    "acos": math_f32_trig.acos,
    "atan": math_f32_trig.atan,
    "atan2": math_f32_trig.atan2,
    "sinh": math_f32.sinh,
    "cosh": math_f32.cosh,
    "cbrt": math_f32.cbrt,
    "logistic": math_f32.logistic,
    "tanh": math_f32.tanh,
    "erf": math_f32.erf,
    "sqrt": root,
    "rsqrt": math_f32.rsqrt,
    "erfc": math_f32.erfc,
    "erfinv": math_f32.erfinv,
    "lgamma": math_f32.lgamma,
}

_DOUBLE: dict[str, Callable[..., Vec]] = {
    "sqrt": Vec.sqrt,
    "exp": math_core.exp,
    "log": math_core.log,
    "pow": math_f64.power,
    "exp2": math_f64.exp2,
    "expm1": math_f64.expm1,
    "log2": math_f64.log2,
    "log1p": math_f64.log1p,
    "cbrt": math_f64.cbrt,
    "rsqrt": math_f64.rsqrt,
    "sin": math_f64.sin,
    "cos": math_f64.cos,
    "tan": math_f64.tan,
    "asin": math_f64.asin,
    "acos": math_f64.acos,
    "atan": math_f64.atan,
    "atan2": math_f64.atan2,
    "sinh": math_f64.sinh,
    "cosh": math_f64.cosh,
    "tanh": math_f64.tanh,
    "asinh": math_f64.asinh,
    "acosh": math_f64.acosh,
    "atanh": math_f64.atanh,
    "logistic": math_f64.logistic,
    "erf": math_f64.erf,
    "erfc": math_f64.erfc,
    "erfinv": math_f64.erfinv,
    "lgamma": math_f64.lgamma,
}

NAMES = frozenset(_DOUBLE)


def function(name: str, *args: Vec) -> Vec:
    """Apply a function of NAMES to floats or doubles."""
    wide = max(a.width for a in args)
    known = _DOUBLE if args[0].kind == "double" else _FLOAT
    return known[name](*[a.splat(wide) for a in args])
