"""Scalar functions for any lane count, float and double.

    function("exp", Vec(code, "float", 16, "%x"))

Half-width floats compute with the float functions. The same argument gives the same bits
whatever the lane count.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.math import arcs, areas, core, f32, f32_log, f32_trig, f64, f64_log, f64_trig
from fxad.backend.llvm.math.divide import root

# Worst error in units in the last place; tests/backend/llvm/test_math.py measures it. Results below
# the normal numbers, which may be rounded once more, have BELOW_NORMAL where that is more.
BELOW_NORMAL = 0.9
ULP: dict[str, dict[str, float]] = {
    "exp": {"float32": 0.87, "float64": 0.7},
    "exp2": {"float32": 0.92, "float64": 0.85},
    "expm1": {"float32": 0.99, "float64": 0.6},
    "log": {"float32": 0.78, "float64": 0.85},
    "log2": {"float32": 0.8, "float64": 0.85},
    "log1p": {"float32": 0.82, "float64": 0.85},
    "sin": {"float32": 1.0, "float64": 0.85},
    "cos": {"float32": 1.0, "float64": 0.85},
    "tan": {"float32": 0.93, "float64": 0.7},
    "asin": {"float32": 0.7, "float64": 0.8},
    "acos": {"float32": 0.7, "float64": 0.8},
    "atan": {"float32": 0.8, "float64": 0.9},
    "atan2": {"float32": 0.85, "float64": 0.9},
    "sinh": {"float32": 0.93, "float64": 0.8},
    "cosh": {"float32": 0.96, "float64": 0.9},
    "tanh": {"float32": 1.04, "float64": 1.6},
    "asinh": {"float32": 0.8, "float64": 1.0},
    "acosh": {"float32": 0.85, "float64": 1.0},
    "atanh": {"float32": 0.93, "float64": 0.85},
    "erf": {"float32": 0.97, "float64": 0.85},
    "erfc": {"float32": 0.51, "float64": 5.0},
    "erfinv": {"float32": 0.51, "float64": 5.0},
    "lgamma": {"float32": 0.51, "float64": 5.0},
    "cbrt": {"float32": 0.82, "float64": 0.7},
    "logistic": {"float32": 0.9, "float64": 0.85},
    "pow": {"float32": 1.1, "float64": 1.0},
    "sqrt": {"float32": 0.5, "float64": 0.5},
    "rsqrt": {"float32": 0.58, "float64": 0.6},
}

_FLOAT: dict[str, Callable[..., Vec]] = {
    "exp": core.exp,
    "exp2": f32.exp2,
    "expm1": f32.expm1,
    "log": f32_log.log,
    "log2": f32_log.log2,
    "log1p": f32_log.log1p,
    "pow": f32_log.power,
    "asinh": areas.asinh,
    "acosh": areas.acosh,
    "atanh": f32_log.atanh,
    "sin": f32_trig.sin,
    "cos": f32_trig.cos,
    "tan": f32_trig.tan,
    "asin": arcs.asin,
    "acos": arcs.acos,
    "atan": f32_trig.atan,
    "atan2": f32_trig.atan2,
    "sinh": f32.sinh,
    "cosh": f32.cosh,
    "cbrt": f32.cbrt,
    "logistic": f32.logistic,
    "tanh": f32.tanh,
    "erf": f32.erf,
    "sqrt": root,
    "rsqrt": f32.rsqrt,
    "erfc": f32.erfc,
    "erfinv": f32.erfinv,
    "lgamma": f32.lgamma,
}

_DOUBLE: dict[str, Callable[..., Vec]] = {
    "sqrt": root,
    "exp": core.exp,
    "log": f64_log.log,
    "pow": f64_log.power,
    "exp2": f64.exp2,
    "expm1": f64.expm1,
    "log2": f64_log.log2,
    "log1p": f64_log.log1p,
    "cbrt": f64.cbrt,
    "rsqrt": f64.rsqrt,
    "sin": f64_trig.sin,
    "cos": f64_trig.cos,
    "tan": f64_trig.tan,
    "asin": arcs.asin,
    "acos": arcs.acos,
    "atan": f64_trig.atan,
    "atan2": f64_trig.atan2,
    "sinh": f64.sinh,
    "cosh": f64.cosh,
    "tanh": f64.tanh,
    "asinh": areas.asinh,
    "acosh": areas.acosh,
    "atanh": f64_log.atanh,
    "logistic": f64.logistic,
    "erf": f64.erf,
    "erfc": f64.erfc,
    "erfinv": f64.erfinv,
    "lgamma": f64.lgamma,
}

NAMES = frozenset(_DOUBLE)


def function(name: str, *args: Vec) -> Vec:
    """Apply a function of NAMES to floats or doubles."""
    wide = max(a.width for a in args)
    known = _DOUBLE if args[0].kind == "double" else _FLOAT
    return known[name](*[a.splat(wide) for a in args])
