"""Scalar functions of Kernels in NumPy, for reference.py.

    apply("div", [x, y], np.dtype("int32"))     # x // 0 == 0

Exact ones give exact bits; transcendental ones are good to half a unit in the last place or so,
since they are computed in extended precision and rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.core import dtypes

_EXACT = frozenset(["neg", "abs", "copysign", "select", "min", "max", "fmin", "fmax", "bitcast"])


def compute_dtype(dtype: np.dtype) -> np.dtype:
    """float32 for narrow floats, else the dtype itself."""
    narrow = dtypes.is_float(dtype) and dtype.itemsize < 4
    return dtypes.float32 if narrow else dtype


def extreme(dtype: np.dtype, highest: bool) -> float | int | bool:
    """The largest or smallest value (infinite for floats)."""
    if dtypes.is_float(dtype):
        return math.inf if highest else -math.inf
    if dtype.kind == "b":
        return highest
    limits = dtypes.iinfo(dtype)
    return limits.max if highest else limits.min


def round_to(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A result in its dtype; bf16 denormals become zero."""
    x = np.asarray(x)
    if dtype == dtypes.bfloat16:
        wide = x.astype(np.float32)
        x = np.where(np.abs(wide) < np.float32(2.0**-126), wide * np.float32(0), wide)
    return x.astype(dtype)


def cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Convert: floats to integers saturate, NaN gives 0; complex to real drops the rest."""
    x = np.asarray(x)
    if x.dtype == dtype:
        return x
    if x.dtype.kind == "c" and dtype.kind not in "cb":
        x = x.real
    if dtype.kind == "b":
        return x != np.zeros((), x.dtype)
    if dtypes.is_float(x.dtype) and dtypes.is_integer(dtype):
        wide = np.nan_to_num(
            np.trunc(x.astype(np.float64)), nan=0.0, posinf=2.0**70, neginf=-(2.0**70)
        )
        limits = np.iinfo(dtype)
        inside = (wide > float(limits.min) - 0.5) & (wide < float(limits.max) + 0.5)
        safe = np.where(inside & (wide < 2.0**63 if dtype != np.uint64 else inside), wide, 0)
        result = safe.astype(dtype)
        result = np.where(wide >= float(limits.max), dtype.type(limits.max), result)
        return np.where(wide <= float(limits.min), dtype.type(limits.min), result)
    if dtypes.is_float(dtype):
        narrow = dtype.itemsize < 4 and x.dtype.kind in "iu"
        return round_to(x.astype(np.float32) if narrow else x, dtype)
    return x.astype(dtype)


# ---------------------------------------------------------------- integers


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    quotient = np.where(b == 0, a.dtype.type(0), a // np.where(b == 0, b.dtype.type(1), b))
    if a.dtype.kind == "i":
        smallest = (b == -1) & (a == np.iinfo(a.dtype).min)
        rest = a - quotient * b
        fix = (rest != 0) & ((rest < 0) != (a < 0)) & (b != 0)
        quotient = np.where(smallest, a, quotient + fix.astype(a.dtype))
    return quotient


def _shift(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = a.dtype.itemsize * 8
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    fits = b.astype(unsigned) < bits
    amount = np.where(fits, b, 0).astype(a.dtype)
    if name == "shl":
        moved = a << amount
    elif name == "shr_logical":
        moved = (a.astype(unsigned) >> amount.astype(unsigned)).astype(a.dtype)
    else:
        signed = np.dtype(f"i{a.dtype.itemsize}")
        amount = np.where(fits, b, bits - 1).astype(signed)
        return (a.astype(signed) >> amount).astype(a.dtype)
    return np.where(fits, moved, a.dtype.type(0))


def _by_object(f: Callable[..., int]) -> Callable[..., np.ndarray]:
    """A Python function of exact integers, wrapped to the first argument's dtype."""

    def wrapped(*args: np.ndarray) -> np.ndarray:
        dtype = args[0].dtype
        bits = dtype.itemsize * 8
        flat = np.broadcast_arrays(*args)
        out = [
            f(bits, *(int(v) for v in vs)) for vs in zip(*(a.ravel() for a in flat), strict=True)
        ]
        wrapped = np.array([o & ((1 << bits) - 1) for o in out], np.dtype(f"u{dtype.itemsize}"))
        return wrapped.astype(dtype).reshape(flat[0].shape)

    return wrapped


_INTEGER: dict[str, Callable[..., np.ndarray]] = {
    "div": _divide,
    "rem": lambda a, b: np.where(b == 0, a.dtype.type(0), a - _divide(a, b) * b),
    "pow": _by_object(lambda bits, a, b: 0 if b < 0 else pow(a, b, 1 << bits)),
    "mul_high": _by_object(lambda bits, a, b: (a * b) >> bits),
    "popcount": _by_object(lambda bits, a: (a & ((1 << bits) - 1)).bit_count()),
    "clz": _by_object(lambda bits, a: bits - (a & ((1 << bits) - 1)).bit_length()),
    "shl": lambda a, b: _shift("shl", a, b),
    "shr_arith": lambda a, b: _shift("shr_arith", a, b),
    "shr_logical": lambda a, b: _shift("shr_logical", a, b),
    "not": np.invert,
    "round": lambda a: a,
    "floor": lambda a: a,
    "ceil": lambda a: a,
    "trunc": lambda a: a,
    "is_nan": lambda a: np.zeros(a.shape, bool),
    "is_finite": lambda a: np.ones(a.shape, bool),
}
_BOOL: dict[str, Callable[..., np.ndarray]] = {
    "add": np.logical_or,
    "mul": np.logical_and,
    "sub": np.logical_xor,
    "xor": np.logical_xor,
    "not": np.logical_not,
}


# ---------------------------------------------------------------- floats


def _slowly(f: Callable[[float], float], *args: np.ndarray) -> np.ndarray:
    """A Python function element by element, in double."""
    return np.vectorize(f, otypes=[np.float64])(*(np.asarray(a, np.float64) for a in args))


def _inverse_erf(x: float) -> float:
    """Bisection on erf (erfc near 1)."""
    if not -1 < x < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    size, low, high = abs(x), 0.0, 6.0
    if size < 1e-10:
        return x * (math.sqrt(math.pi) / 2)
    for _ in range(1200):
        middle = (low + high) / 2
        below = math.erf(middle) < size if size < 0.5 else math.erfc(middle) > 1 - size
        low, high = (middle, high) if below else (low, middle)
        if middle in (0.0, high) and high - low <= math.ulp(low):
            break
    return math.copysign((low + high) / 2, x)


def _lgamma(x: float) -> float:
    if math.isinf(x) or x > 1e305 or (x <= 0 and x == math.floor(x)):
        return math.inf
    return math.lgamma(x)


def _logistic(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


_FLOAT: dict[str, Callable[..., Any]] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": lambda x: _slowly(math.erf, x),
    "erfc": lambda x: _slowly(math.erfc, x),
    "erfinv": lambda x: _slowly(_inverse_erf, x),
    "lgamma": lambda x: _slowly(_lgamma, x),
    "logistic": _logistic,
    "cbrt": np.cbrt,
    "pow": np.power,
    "atan2": np.arctan2,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
}

_ANY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rem": np.fmod,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "sqrt": np.sqrt,
    "square": np.multiply,
    "reciprocal": lambda x: x.dtype.type(1) / x,
    "is_finite": np.isfinite,
    "is_nan": np.isnan,
    "min": np.minimum,
    "max": np.maximum,
    "fmin": np.fmin,
    "fmax": np.fmax,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "nextafter": np.nextafter,
    "copysign": np.copysign,
    "real": np.real,
    "imag": np.imag,
    "conj": np.conj,
}


def apply(name: str, args: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """One scalar function; `dtype` is the result's."""
    if name == "select":
        return np.where(args[0], args[1], args[2]).astype(dtype)
    if name == "bitcast":
        return np.ascontiguousarray(args[0]).view(dtype).reshape(np.shape(args[0]))
    if name == "complex":
        result = np.empty(np.broadcast_shapes(*(a.shape for a in args)), dtype)
        result.real, result.imag = args
        return result
    source = args[-1].dtype
    wide = compute_dtype(source)
    if name in ("nextafter", "copysign"):
        wide = source
    values = [a.astype(wide) for a in args]
    if name == "square":
        values = values * 2
    if name == "fma":
        return _fma(values, dtype)
    if source.kind == "b" and name in _BOOL:
        result = _BOOL[name](*values)
    elif source.kind in "iu" and name in _INTEGER:
        result = _INTEGER[name](*values)
    elif dtypes.is_inexact(source) and name in _FLOAT:
        more: type[np.inexact] = np.complex128 if wide.kind == "c" else np.longdouble
        if name in ("erf", "erfc", "erfinv", "lgamma"):
            more = np.float64
        result = _FLOAT[name](*(v.astype(more) for v in values))
    else:
        result = _ANY[name](*values)
    return result.astype(dtype) if name in _EXACT else round_to(result, dtype)


def _fma(values: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """a * b + c; exact in double for float32 up to a double rounding."""
    more = np.longdouble if dtypes.is_float(values[0].dtype) else values[0].dtype
    a, b, c = (v.astype(more) for v in values)
    return round_to((a * b + c).astype(values[0].dtype), dtype)
