"""Scalar functions for any lane count, float and double.

    function("exp", Vec(code, "float", 16, "%x"))

Half-width floats compute with the float functions. The same argument gives the same bits
whatever the lane count. `fxad.ir.prims` has the largest error of each, in units in the last place;
tests/backend/llvm/test_math.py measures it.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.math import arcs, areas, core, f32, f32_log, f32_trig, f64, f64_log, f64_trig
from fxad.backend.llvm.math.divide import root

# For float, for double.
FUNCTIONS: dict[str, tuple[Callable[..., Vec], Callable[..., Vec]]] = {
    "exp": (core.exp, core.exp),
    "exp2": (f32.exp2, f64.exp2),
    "expm1": (f32.expm1, f64.expm1),
    "log": (f32_log.log, f64_log.log),
    "log2": (f32_log.log2, f64_log.log2),
    "log1p": (f32_log.log1p, f64_log.log1p),
    "sin": (f32_trig.sin, f64_trig.sin),
    "cos": (f32_trig.cos, f64_trig.cos),
    "tan": (f32_trig.tan, f64_trig.tan),
    "asin": (arcs.asin, arcs.asin),
    "acos": (arcs.acos, arcs.acos),
    "atan": (f32_trig.atan, f64_trig.atan),
    "atan2": (f32_trig.atan2, f64_trig.atan2),
    "sinh": (f32.sinh, f64.sinh),
    "cosh": (f32.cosh, f64.cosh),
    "tanh": (f32.tanh, f64.tanh),
    "asinh": (areas.asinh, areas.asinh),
    "acosh": (areas.acosh, areas.acosh),
    "atanh": (f32_log.atanh, f64_log.atanh),
    "erf": (f32.erf, f64.erf),
    "erfc": (f32.erfc, f64.erfc),
    "erfinv": (f32.erfinv, f64.erfinv),
    "lgamma": (f32.lgamma, f64.lgamma),
    "cbrt": (f32.cbrt, f64.cbrt),
    "logistic": (f32.logistic, f64.logistic),
    "pow": (f32_log.power, f64_log.power),
    "sqrt": (root, root),
    "rsqrt": (f32.rsqrt, f64.rsqrt),
}


def function(name: str, *args: Vec) -> Vec:
    """Apply one of FUNCTIONS to floats or doubles."""
    wide = max(a.width for a in args)
    code = FUNCTIONS[name][args[0].kind == "double"]
    return code(*[a.splat(wide) for a in args])
