"""The scalar functions that expressions of Kernels are made of: one record of each.

    PRIMS["cbrt"].cost                       # 25.0
    PRIMS["lt"].result(np.dtype("int32"))    # bool
    PRIMS["cbrt"].numpy(x)                   # its meaning

Every backend has code for each of them, for each kind of dtype that its record names
(`tests/backend/test_prims.py` holds the tables against this one).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.record import record
from fxad.ir import prims_numpy as own

SIMPLE = 2.0  # cost of one or two instructions
FUNCTION = 20  # instructions of an elementary function, roughly


def same(dtype: np.dtype) -> np.dtype:
    """The result's dtype of most functions: their arguments'."""
    return dtype


def truth(dtype: np.dtype) -> np.dtype:
    return dt.bool_


@record
class ScalarFunction:
    """What the compiler knows of a scalar function, which a `Prim` names.

    arity: how many arguments, of one dtype (but the condition of `select`). dtypes: the kinds of
    dtype that it has a meaning for (bool int float complex). numpy: its meaning, on arrays; floats
    narrower than f32 are widened before and rounded once after. result: the result's dtype for that
    of the last argument; None: the expression says it.

    cost: to compute an element of an array in vectors, in rough hundredths of a nanosecond, by
    which values are stored or recomputed. instructions: roughly, by which loops are unrolled.
    chain: most of its instructions wait for the one before. ulp: largest error of native code in
    units in the last place, of f32 and of f64 (half: correctly rounded). moves: it only moves bits
    of an argument, so it never rounds, and keeps numbers below the normal ones.
    """

    arity: int
    dtypes: str
    numpy: Callable[..., np.ndarray]
    result: Callable[[np.dtype], np.dtype] | None = same
    cost: float = SIMPLE
    instructions: int = 1
    chain: bool = False
    ulp: tuple[float, float] = (0.5, 0.5)
    moves: bool = False

    @property
    def correctly_rounded(self) -> bool:
        """Whether floats are the nearest to the exact result."""
        return max(self.ulp) <= 0.5


def _elementary(
    dtypes: str,
    numpy: Callable[..., np.ndarray],
    *,
    cost: float,
    ulp: tuple[float, float],
    arity: int = 1,
    chain: bool = False,
) -> ScalarFunction:
    """A function that takes some dozen instructions."""
    return ScalarFunction(
        arity, dtypes, numpy, cost=cost, instructions=FUNCTION, chain=chain, ulp=ulp
    )


def _comparison(dtypes: str, numpy: Callable[..., np.ndarray]) -> ScalarFunction:
    return ScalarFunction(2, dtypes, numpy, truth)


# Integer division and shifts are total: x / 0 = x rem 0 = 0, shifts by the width or more give 0.
# `rem` has the sign of its first argument. min and max propagate NaN, fmin and fmax ignore it.
_ARITHMETIC = {
    "neg": ScalarFunction(1, "int float complex", np.negative, moves=True),
    "abs": ScalarFunction(1, "int float complex", np.abs, dt.real_of, moves=True),
    "sign": ScalarFunction(1, "int float complex", own.sign),
    "square": ScalarFunction(1, "int float complex", np.square),
    "reciprocal": ScalarFunction(1, "float complex", own.reciprocal, cost=8.0),
    "add": ScalarFunction(2, "int float complex", np.add),
    "sub": ScalarFunction(2, "int float complex", np.subtract),
    "mul": ScalarFunction(2, "int float complex", np.multiply),
    "div": ScalarFunction(2, "int float complex", own.quotient, cost=8.0),
    "rem": ScalarFunction(2, "int float", own.remainder, cost=8.0, instructions=FUNCTION),
    "fma": ScalarFunction(3, "int float complex", own.fused_multiply_add),
    "min": ScalarFunction(2, "bool int float", own.minimum, moves=True),
    "max": ScalarFunction(2, "bool int float", own.maximum, moves=True),
    "fmin": ScalarFunction(2, "bool int float", np.fmin, moves=True),
    "fmax": ScalarFunction(2, "bool int float", np.fmax, moves=True),
    "floor": ScalarFunction(1, "float", np.floor),
    "ceil": ScalarFunction(1, "float", np.ceil),
    "trunc": ScalarFunction(1, "float", np.trunc),
    "round": ScalarFunction(1, "float", np.rint),
    "nextafter": ScalarFunction(2, "float", np.nextafter),
    "copysign": ScalarFunction(2, "float", np.copysign, moves=True),
}
_BITS = {
    "and": ScalarFunction(2, "bool int", np.bitwise_and),
    "or": ScalarFunction(2, "bool int", np.bitwise_or),
    "xor": ScalarFunction(2, "bool int", np.bitwise_xor),
    "not": ScalarFunction(1, "bool int", np.bitwise_not),
    "shl": ScalarFunction(2, "int", own.shift_left),
    "shr_arith": ScalarFunction(2, "int", own.shift_right_arithmetic),
    "shr_logical": ScalarFunction(2, "int", own.shift_right_logical),
    "popcount": ScalarFunction(1, "int", own.popcount),
    "clz": ScalarFunction(1, "int", own.count_leading_zeros),
    "mul_high": ScalarFunction(2, "int", own.multiply_high),
    "bitcast": ScalarFunction(1, "int float", np.ndarray.view, None, moves=True),
}
_CHOICES = {
    "eq": _comparison("bool int float complex", np.equal),
    "ne": _comparison("bool int float complex", np.not_equal),
    "lt": _comparison("bool int float", np.less),
    "le": _comparison("bool int float", np.less_equal),
    "gt": _comparison("bool int float", np.greater),
    "ge": _comparison("bool int float", np.greater_equal),
    "is_finite": ScalarFunction(1, "float complex", np.isfinite, truth),
    "is_nan": ScalarFunction(1, "float complex", np.isnan, truth),
    "select": ScalarFunction(3, "bool int float complex", np.where, moves=True),
}
_ELEMENTARY = {
    "sqrt": ScalarFunction(1, "float complex", np.sqrt, cost=8.0),
    "rsqrt": ScalarFunction(1, "float complex", own.reciprocal_root, cost=8.0, ulp=(0.58, 0.6)),
    "cbrt": _elementary("float", np.cbrt, cost=25.0, ulp=(0.82, 0.7)),
    "exp": _elementary("float complex", np.exp, cost=25.0, ulp=(0.87, 0.7)),
    "exp2": _elementary("float", np.exp2, cost=25.0, ulp=(0.92, 0.85)),
    "expm1": _elementary("float complex", own.expm1, cost=40.0, ulp=(0.99, 0.6)),
    "log": _elementary("float complex", np.log, cost=25.0, ulp=(0.78, 0.85)),
    "log2": _elementary("float", np.log2, cost=25.0, ulp=(0.8, 0.85)),
    "log1p": _elementary("float complex", own.log1p, cost=40.0, ulp=(0.82, 0.85)),
    "pow": _elementary("float complex", np.power, arity=2, cost=60.0, chain=True, ulp=(1.1, 1.0)),
    "sin": _elementary("float complex", np.sin, cost=40.0, ulp=(1.0, 0.85)),
    "cos": _elementary("float complex", np.cos, cost=40.0, ulp=(1.0, 0.85)),
    "tan": _elementary("float complex", own.tan, cost=60.0, chain=True, ulp=(0.93, 0.7)),
    "asin": _elementary("float", np.arcsin, cost=40.0, ulp=(0.7, 0.8)),
    "acos": _elementary("float", np.arccos, cost=40.0, ulp=(0.7, 0.8)),
    "atan": _elementary("float", np.arctan, cost=40.0, ulp=(0.8, 0.9)),
    "atan2": _elementary("float", np.arctan2, arity=2, cost=40.0, chain=True, ulp=(0.85, 0.9)),
    "sinh": _elementary("float complex", np.sinh, cost=40.0, ulp=(0.93, 0.8)),
    "cosh": _elementary("float complex", np.cosh, cost=40.0, ulp=(0.96, 0.9)),
    "tanh": _elementary("float complex", own.tanh, cost=40.0, ulp=(1.04, 1.6)),
    "asinh": _elementary("float", np.arcsinh, cost=60.0, chain=True, ulp=(0.8, 1.0)),
    "acosh": _elementary("float", np.arccosh, cost=60.0, chain=True, ulp=(0.85, 1.0)),
    "atanh": _elementary("float", np.arctanh, cost=60.0, ulp=(0.93, 0.85)),
    "erf": _elementary("float", own.erf, cost=40.0, ulp=(0.97, 0.85)),
    "erfc": _elementary("float", own.erfc, cost=60.0, ulp=(0.51, 5.0)),
    "erfinv": _elementary("float", own.erfinv, cost=60.0, ulp=(0.51, 5.0)),
    "lgamma": _elementary("float", own.lgamma, cost=100.0, ulp=(0.51, 5.0)),
    "logistic": _elementary("float complex", own.logistic, cost=25.0, ulp=(0.9, 0.85)),
}
_COMPLEX = {
    "real": ScalarFunction(1, "complex", own.real, dt.real_of),
    "imag": ScalarFunction(1, "complex", own.imag, dt.real_of),
    "conj": ScalarFunction(1, "complex", np.conj),
    "complex": ScalarFunction(2, "float", own.complex_of_parts, dt.complex_of),
}

# Below the normal numbers a result may be rounded once more: its bound, where that is more.
BELOW_NORMAL = 0.9

PRIMS: dict[str, ScalarFunction] = _ARITHMETIC | _BITS | _CHOICES | _ELEMENTARY | _COMPLEX


def meaning(name: str, dtype: np.dtype) -> ScalarFunction:
    """The function of arguments of this dtype (of the last one, for `select`). Raises
    NotImplementedError if it has no meaning for them."""
    function = PRIMS[name]
    if dtype == dt.key:  # which is moved as one word
        dtype = dt.uint64
    if dt.kind_of(dtype) not in function.dtypes:
        raise NotImplementedError(f"scalar function {name!r} has no meaning for {dtype.name}")
    return function
