"""Every scalar function of kernel.PRIMS as a Python expression.

    prim("add", ["v0", "v1"], int32, int32)   # "i32(v0 + v1)"

Arguments are names or literals, so that they may be repeated. `source` is the dtype of the last
argument, `target` the result's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fxad.backend.numba.formats import load, register, rounded, store, suffix
from fxad.core import dtypes

_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_EXACT = frozenset(("neg", "abs", "sign", "copysign", "min", "max", "fmin", "fmax", "nextafter"))
_COMPLEX_CALLS = frozenset(
    ("exp", "log", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan")
    + ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
)
_CALLS = _COMPLEX_CALLS | {"expm1", "log2", "log1p", "erf", "erfc", "lgamma"}


def prim(name: str, args: Sequence[str], source: np.dtype, target: np.dtype) -> str:
    """One scalar function; raises NotImplementedError where it has no meaning for the dtype."""
    if name == "select":
        return f"({args[1]} if {args[0]} else {args[2]})"
    if name == "bitcast":
        return _bitcast(args[0], source, target)
    if name == "complex":
        return f"{register(target)}(complex({args[0]}, {args[1]}))"
    if name in _COMPARE:
        return _compare(name, args, source)
    if dtypes.is_complex(source):
        return _complex(name, args, source)
    if name in ("real", "conj"):
        return args[0]
    if name == "imag":
        return f"{register(target)}(0)"
    if dtypes.is_float(source):
        text = _float(name, args, source)
        kept = name in _EXACT or dtypes.is_bool(target)
        return text if kept else rounded(text, target)
    if dtypes.is_bool(source):
        return _bool(name, args)
    return _integer(name, args, source)


def _unknown(name: str, kind: str) -> NotImplementedError:
    return NotImplementedError(f"scalar function {name!r} has no meaning for {kind} values")


def _compare(name: str, args: Sequence[str], source: np.dtype) -> str:
    if dtypes.is_complex(source) and name not in ("eq", "ne"):
        raise _unknown(name, "complex")
    return f"bool({args[0]} {_COMPARE[name]} {args[1]})"


def _bitcast(x: str, source: np.dtype, target: np.dtype) -> str:
    bits = dtypes.from_short_name(f"u{source.itemsize * 8}")
    if dtypes.is_integer(source):
        word = f"{register(bits)}({x})"
    elif source in (dtypes.float32, dtypes.float64):
        word = f"bits{suffix(source)}({x})"
    else:
        word = store(x, source)
    if dtypes.is_integer(target):
        return f"{register(target)}({word})"
    if target in (dtypes.float32, dtypes.float64):
        return f"float{suffix(target)}({word})"
    return load(word, target)


# ---------------------------------------------------------------- floats


def _float(name: str, args: Sequence[str], dtype: np.dtype) -> str:
    t, n = register(dtype), suffix(dtype)
    x, y = args[0], args[-1]
    if name in _CALLS:
        return f"{t}({name}({x}))"
    match name:
        case "add":
            return f"({x} + {y})"
        case "sub":
            return f"({x} - {y})"
        case "mul":
            return f"product{n}({x}, {y})"
        case "square":
            return f"product{n}({x}, {x})"
        case "div":
            return f"({x} / {y})"
        case "neg":
            return f"(-{x})"
        case "abs":
            return f"abs({x})"
        case "sign":
            return f"sign({x}, {t}(1))"
        case "round":
            return f"round{n}({x})"
        case "floor":
            return f"floor{n}({x})"
        case "ceil":
            return f"(-floor{n}(-{x}))"
        case "trunc":
            return f"copysign(floor{n}(abs({x})), {x})"
        case "reciprocal":
            return f"({t}(1) / {x})"
        case "rsqrt":
            return f"({t}(1) / sqrt({x}))"
        case "cbrt" | "erfinv":
            return f"{t}({name}(f64({x})))"
        case "exp2":
            return f"{t}(power({t}(2), {x}))"
        case "logistic":
            return f"({t}(1) / ({t}(1) + {t}(exp(-{x}))))"
        case "is_nan":
            return f"bool({x} != {x})"
        case "is_finite":
            return f"bool(abs({x}) < inf)"
        case "rem":
            return f"{t}(fmod({x}, {y}))"
        case "pow":
            return f"{t}(power({x}, {y}))"
        case "atan2" | "copysign":
            return f"{t}({name}({x}, {y}))"
        case "min" | "max" | "fmin" | "fmax":
            return f"{name}imum({x}, {y})"
        case "nextafter":
            return _nextafter(x, y, dtype)
        case "fma":
            return f"fma({', '.join(args)})"
        case _:
            raise _unknown(name, "float")


def _nextafter(x: str, y: str, dtype: np.dtype) -> str:
    """In the grid of the dtype: narrow formats step their own bits."""
    if dtype in (dtypes.float32, dtypes.float64):
        return f"next{suffix(dtype)}({x}, {y})"
    bits, other = store(x, dtype), store(y, dtype)
    return load(f"next_bits({x}, {y}, {bits}, {other}, {dtype.itemsize * 8})", dtype)


# ---------------------------------------------------------------- integers


def _integer(name: str, args: Sequence[str], dtype: np.dtype) -> str:
    unsigned = not dtypes.is_signed(dtype)
    t, bits = register(dtype), dtype.itemsize * 8
    x, y = args[0], args[-1]
    symbols = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
    if name in symbols:
        return f"{t}({x} {symbols[name]} {y})"
    match name:
        case "div":
            return f"{t}({'uint_div' if unsigned else 'int_div'}({x}, {y}))"
        case "rem":
            quotient = f"{t}({'uint_div' if unsigned else 'int_div'}({x}, {y}))"
            return f"({t}({x} - {quotient} * {y}) if {y} != 0 else {t}(0))"
        case "pow":
            return f"{t}({'uint_pow' if unsigned else 'int_pow'}({x}, {y}))"
        case "min" | "fmin":
            return f"({x} if {x} < {y} else {y})"
        case "max" | "fmax":
            return f"({x} if {x} > {y} else {y})"
        case "shl":
            return f"{t}(shift_left(u{bits}({x}), u{bits}({y}), {bits}))"
        case "shr_logical":
            return f"{t}(shift_right(u{bits}({x}), u{bits}({y}), {bits}))"
        case "shr_arith":
            return f"{t}(shift_signed(i{bits}({x}), i64({y}), {bits}))"
        case "mul_high":
            return _mul_high(x, y, dtype)
        case "fma":
            return f"{t}({x} * {args[1]} + {y})"
        case _:
            return _integer_unary(name, x, dtype)


def _mul_high(x: str, y: str, dtype: np.dtype) -> str:
    unsigned = not dtypes.is_signed(dtype)
    if dtype.itemsize == 8:
        return f"{'umul_high' if unsigned else 'mul_high'}({x}, {y})"
    wide = "u64" if unsigned else "i64"
    return f"{register(dtype)}(({wide}({x}) * {wide}({y})) >> {wide}({dtype.itemsize * 8}))"


def _integer_unary(name: str, x: str, dtype: np.dtype) -> str:
    t, bits, unsigned = register(dtype), dtype.itemsize * 8, not dtypes.is_signed(dtype)
    match name:
        case "neg":
            return f"{t}({t}(0) - {x})"
        case "not":
            return f"{t}(~{x})"
        case "abs":
            return x if unsigned else f"{t}({t}(0) - {x} if {x} < 0 else {x})"
        case "sign":
            return f"{t}(({x} > 0) * 1 - ({x} < 0) * 1)"
        case "square":
            return f"{t}({x} * {x})"
        case "floor" | "ceil" | "trunc" | "round":
            return x
        case "popcount":
            return f"{t}(popcount(u64(u{bits}({x}))))"
        case "clz":
            return f"{t}(clz(u64(u{bits}({x})), {bits}))"
        case "is_finite":
            return "True"
        case "is_nan":
            return "False"
        case _:
            raise _unknown(name, "integer")


def _bool(name: str, args: Sequence[str]) -> str:
    x, y = args[0], args[-1]
    match name:
        case "and" | "mul" | "min" | "fmin":
            return f"({x} and {y})"
        case "or" | "add" | "max" | "fmax":
            return f"({x} or {y})"
        case "xor" | "sub":
            return f"bool({x} != {y})"
        case "not":
            return f"(not {x})"
        case "neg" | "abs" | "sign" | "square" | "floor" | "ceil" | "trunc" | "round":
            return x
        case "is_finite":
            return "True"
        case "is_nan":
            return "False"
        case _:
            raise _unknown(name, "bool")


# ---------------------------------------------------------------- complex numbers


def _complex(name: str, args: Sequence[str], dtype: np.dtype) -> str:
    t, part = register(dtype), register(dtypes.real_of(dtype))
    x, y = args[0], args[-1]
    if name in _COMPLEX_CALLS:
        return f"{t}(c{name}({x}))"
    match name:
        case "real" | "imag":
            return f"{part}({x}.{name})"
        case "abs":
            return f"{part}(abs({x}))"
        case "conj":
            return f"{t}(complex({x}.real, -{x}.imag))"
        case "neg":
            return f"{t}(complex(-{x}.real, -{x}.imag))"
        case "add" | "sub":
            return f"{t}({x} {'+' if name == 'add' else '-'} {y})"
        case "mul":
            return f"{t}(cmul({x}, {y}))"
        case "square":
            return f"{t}(cmul({x}, {x}))"
        case "div":
            return f"{t}(cdiv({x}, {y}))"
        case "reciprocal":
            return f"{t}(cdiv({t}(1), {x}))"
        case "rsqrt":
            return f"{t}(cdiv({t}(1), {t}(csqrt({x}))))"
        case "pow":
            return f"{t}(cpow({x}, {y}))"
        case "fma":
            return f"{t}(cfma({args[0]}, {args[1]}, {args[2]}))"
        case "sign":
            return f"{t}(csign({x}))"
        case "log2":
            return f"{t}(clog({x}) / {part}(0.6931471805599453))"
        case "exp2":
            return f"{t}(cexp({x} * {part}(0.6931471805599453)))"
        case "log1p":
            return f"{t}(clog({t}({x} + {part}(1))))"
        case "expm1":
            return f"{t}(cexp({x}) - {part}(1))"
        case "logistic":
            return f"{t}(cdiv({t}(1), {t}(cexp(-{x}) + {part}(1))))"
        case "is_nan":
            return f"bool({x} != {x})"
        case "is_finite":
            return f"bool(abs({x}.real) < inf and abs({x}.imag) < inf)"
        case _:
            raise _unknown(name, "complex")
