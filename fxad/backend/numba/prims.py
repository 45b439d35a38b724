"""Code of every scalar function (`fxad.ir.prims`) as a Python expression: a table for each kind of
dtype.

    prim("add", ["v0", "v1"], int32, int32)   # "i32(v0 + v1)"

Arguments are names or literals, so that they may be repeated. `source` is the dtype of the last
argument, `target` the result's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fxad.backend.numba.formats import load, register, rounded, store, suffix
from fxad.core import dtypes
from fxad.ir.prims import meaning

# In the tables' texts {x}, {y}, {z} are the arguments, {t} is the constructor of the arguments'
# dtype (f32, i64...), {part} that of a complex dtype's parts, {bits} its width, {n} the ending of
# functions that come in two widths. What they call, `library.py` provides.

_COMPARISONS = {
    "eq": "bool({x} == {y})",
    "ne": "bool({x} != {y})",
    "lt": "bool({x} < {y})",
    "le": "bool({x} <= {y})",
    "gt": "bool({x} > {y})",
    "ge": "bool({x} >= {y})",
}
_BOOL = {
    "and": "({x} and {y})",
    "or": "({x} or {y})",
    "xor": "bool({x} != {y})",
    "not": "(not {x})",
    "min": "({x} and {y})",
    "max": "({x} or {y})",
    "fmin": "({x} and {y})",
    "fmax": "({x} or {y})",
    **_COMPARISONS,
}
_SIGNED = {
    "neg": "{t}({t}(0) - {x})",
    "abs": "{t}({t}(0) - {x} if {x} < 0 else {x})",
    "sign": "{t}(({x} > 0) * 1 - ({x} < 0) * 1)",
    "square": "{t}({x} * {x})",
    "not": "{t}(~{x})",
    "popcount": "{t}(popcount(u64(u{bits}({x}))))",
    "clz": "{t}(clz(u64(u{bits}({x})), {bits}))",
    "add": "{t}({x} + {y})",
    "sub": "{t}({x} - {y})",
    "mul": "{t}({x} * {y})",
    "div": "{t}(int_div({x}, {y}))",
    "rem": "({t}({x} - {t}(int_div({x}, {y})) * {y}) if {y} != 0 else {t}(0))",
    "mul_high": "{t}((i64({x}) * i64({y})) >> i64({bits}))",
    "fma": "{t}({x} * {y} + {z})",
    "min": "({x} if {x} < {y} else {y})",
    "max": "({x} if {x} > {y} else {y})",
    "fmin": "({x} if {x} < {y} else {y})",
    "fmax": "({x} if {x} > {y} else {y})",
    "and": "{t}({x} & {y})",
    "or": "{t}({x} | {y})",
    "xor": "{t}({x} ^ {y})",
    "shl": "{t}(shift_left(u{bits}({x}), u{bits}({y}), {bits}))",
    "shr_logical": "{t}(shift_right(u{bits}({x}), u{bits}({y}), {bits}))",
    "shr_arith": "{t}(shift_signed(i{bits}({x}), i64({y}), {bits}))",
    **_COMPARISONS,
}
UNSIGNED = _SIGNED | {
    "abs": "{x}",
    "div": "{t}(uint_div({x}, {y}))",
    "rem": "({t}({x} - {t}(uint_div({x}, {y})) * {y}) if {y} != 0 else {t}(0))",
    "mul_high": "{t}((u64({x}) * u64({y})) >> u64({bits}))",
}
# The targets' own functions, which are called by name; those of complex numbers begin with a c.
COMPLEX_CALLS = (*("exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh"),)
CALLS = (
    *COMPLEX_CALLS,
    *("expm1", "log2", "log1p", "erf", "erfc", "lgamma"),
    *("asin", "acos", "atan", "asinh", "acosh", "atanh"),
)
_FLOAT = {
    "neg": "(-{x})",
    "abs": "abs({x})",
    "sign": "sign({x}, {t}(1))",
    "square": "product{n}({x}, {x})",
    "reciprocal": "({t}(1) / {x})",
    "add": "({x} + {y})",
    "sub": "({x} - {y})",
    "mul": "product{n}({x}, {y})",
    "div": "({x} / {y})",
    "rem": "{t}(fmod({x}, {y}))",
    "fma": "fma({x}, {y}, {z})",
    "min": "minimum({x}, {y})",
    "max": "maximum({x}, {y})",
    "fmin": "fminimum({x}, {y})",
    "fmax": "fmaximum({x}, {y})",
    "floor": "floor{n}({x})",
    "ceil": "(-floor{n}(-{x}))",
    "trunc": "copysign(floor{n}(abs({x})), {x})",
    "round": "round{n}({x})",
    "copysign": "{t}(copysign({x}, {y}))",
    "is_finite": "bool(abs({x}) < inf)",
    "is_nan": "bool({x} != {x})",
    "rsqrt": "({t}(1) / sqrt({x}))",
    "cbrt": "{t}(cbrt(f64({x})))",
    "erfinv": "{t}(erfinv(f64({x})))",
    "exp2": "{t}(power({t}(2), {x}))",
    "logistic": "({t}(1) / ({t}(1) + {t}(exp(-{x}))))",
    "pow": "{t}(power({x}, {y}))",
    "atan2": "{t}(atan2({x}, {y}))",
    **{name: f"{{t}}({name}({{x}}))" for name in CALLS},
    **_COMPARISONS,
}
_COMPLEX = {
    "real": "{part}({x}.real)",
    "imag": "{part}({x}.imag)",
    "conj": "{t}(complex({x}.real, -{x}.imag))",
    "abs": "{part}(abs({x}))",
    "neg": "{t}(complex(-{x}.real, -{x}.imag))",
    "sign": "{t}(csign({x}))",
    "square": "{t}(cmul({x}, {x}))",
    "reciprocal": "{t}(cdiv({t}(1), {x}))",
    "add": "{t}({x} + {y})",
    "sub": "{t}({x} - {y})",
    "mul": "{t}(cmul({x}, {y}))",
    "div": "{t}(cdiv({x}, {y}))",
    "fma": "{t}(cfma({x}, {y}, {z}))",
    "pow": "{t}(cpow({x}, {y}))",
    "rsqrt": "{t}(cdiv({t}(1), {t}(csqrt({x}))))",
    "expm1": "{t}(cexp({x}) - {part}(1))",
    "log1p": "{t}(clog({t}({x} + {part}(1))))",
    "logistic": "{t}(cdiv({t}(1), {t}(cexp(-{x}) + {part}(1))))",
    "eq": _COMPARISONS["eq"],
    "ne": _COMPARISONS["ne"],
    "is_finite": "bool(abs({x}.real) < inf and abs({x}.imag) < inf)",
    "is_nan": "bool({x} != {x})",
    **{name: f"{{t}}(c{name}({{x}}))" for name in COMPLEX_CALLS},
}
CODE: dict[str, dict[str, str]] = {
    "bool": _BOOL,
    "int": _SIGNED,
    "float": _FLOAT,
    "complex": _COMPLEX,
}


def prim(name: str, args: Sequence[str], source: np.dtype, target: np.dtype) -> str:
    """One scalar function; raises NotImplementedError where it has no meaning for the dtype."""
    function = meaning(name, source)
    if name in OF_DTYPES:
        return OF_DTYPES[name](args, source, target)
    kind = dtypes.kind_of(source)
    unsigned = kind == "int" and not dtypes.is_signed(source)
    code = (UNSIGNED if unsigned else CODE[kind])[name]
    if name == "mul_high" and source.itemsize == 8:
        code = "umul_high({x}, {y})" if unsigned else "mul_high({x}, {y})"
    text = code.format(
        **dict(zip("xyz", args, strict=False)),
        t=register(source),
        part=register(dtypes.real_of(source)),
        bits=8 * source.itemsize,
        n=suffix(source),
    )
    return text if function.moves else rounded(text, target)


# ------------------------------------------------ what depends on more than the kind


def _select(args: Sequence[str], source: np.dtype, target: np.dtype) -> str:
    return f"({args[1]} if {args[0]} else {args[2]})"


def _complex(args: Sequence[str], source: np.dtype, target: np.dtype) -> str:
    return f"{register(target)}(complex({args[0]}, {args[1]}))"


def _bitcast(args: Sequence[str], source: np.dtype, target: np.dtype) -> str:
    (x,) = args
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


def _nextafter(args: Sequence[str], source: np.dtype, target: np.dtype) -> str:
    """In the grid of the dtype: narrow formats step their own bits."""
    x, y = args
    if source in (dtypes.float32, dtypes.float64):
        return f"next{suffix(source)}({x}, {y})"
    bits, other = store(x, source), store(y, source)
    return load(f"next_bits({x}, {y}, {bits}, {other}, {source.itemsize * 8})", source)


OF_DTYPES: dict[str, Callable[[Sequence[str], np.dtype, np.dtype], str]] = {
    "select": _select,
    "bitcast": _bitcast,
    "complex": _complex,
    "nextafter": _nextafter,
}
