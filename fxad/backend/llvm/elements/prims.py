"""Every scalar function of kernel.PRIMS on register values.

    apply("add", [x, y], float32, float32)

`source` is the dtype of the (last) argument, `target` the result's. Narrow floats are rounded
once to `target`; moves of bits (neg, abs, copysign, select, min, max) never round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fxad.backend.llvm.base.formats import (
    Pair,
    Value,
    from_memory,
    is_unsigned,
    rounded,
    to_memory,
)
from fxad.backend.llvm.base.vector import Vec, bits_of, fma
from fxad.backend.llvm.elements import complexes
from fxad.backend.llvm.math import functions as math
from fxad.core import dtypes

_EXACT = frozenset(["neg", "abs", "copysign", "select", "min", "max", "fmin", "fmax", "bitcast"])
_COMPARE = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])


def apply(name: str, args: Sequence[Value], source: np.dtype, target: np.dtype) -> Value:
    """One scalar function; raises NotImplementedError where it has no meaning for the dtype."""
    if name == "select":
        return _select(*args)
    if name == "bitcast":
        return _bitcast(args[0], source, target)
    if name == "complex":
        return Pair(args[0], args[1])
    if source.kind == "c":
        return complexes.apply(name, args)
    if name in ("real", "conj"):
        return args[0]
    if name == "imag":
        return args[0].like(0)
    if name in _COMPARE:
        return _compare(name, args[0], args[1], source)
    if dtypes.is_float(source):
        result = _float(name, args, source)
        return result if name in _EXACT else rounded(result, target)
    return _bool(name, args) if source.kind == "b" else _integer(name, args, source)


def _select(test: Vec, yes: Value, no: Value) -> Value:
    if isinstance(yes, Pair):
        return Pair(test.where(yes.re, no.re), test.where(yes.im, no.im))
    return test.where(yes, no)


def _bitcast(x: Vec, source: np.dtype, target: np.dtype) -> Vec:
    stored = to_memory(x, source)
    kind = f"i{bits_of(stored.kind)}"
    stored = stored.convert("bitcast", kind)
    if target.name == "float16":
        stored = stored.convert("bitcast", "half")
    elif target.name in ("float32", "float64"):
        stored = stored.floats()
    return from_memory(stored, target)


def _compare(name: str, a: Vec, b: Vec, dtype: np.dtype) -> Vec:
    if dtypes.is_float(dtype):
        return a.compare("une" if name == "ne" else "o" + name, b)
    if name in ("eq", "ne"):
        return a.compare(name, b)
    return a.compare(("u" if is_unsigned(dtype) else "s") + name, b)


def _unknown(name: str, kind: str) -> NotImplementedError:
    return NotImplementedError(f"scalar function {name!r} has no meaning for {kind} values")


# ---------------------------------------------------------------- floats


def maximum(a: Vec, b: Vec) -> Vec:
    """The larger; NaN if either is; +0 above -0."""
    return _extreme("max", a, b)


def minimum(a: Vec, b: Vec) -> Vec:
    return _extreme("min", a, b)


def _extreme(name: str, a: Vec, b: Vec) -> Vec:
    """LLVM takes twice as many instructions, unless it knows one of the numbers."""
    if has_extreme(a) and a.text.startswith("%") and b.text.startswith("%"):
        return a.compare("uno", b).where(a + b, extreme(name, a, b))
    return a.code.intrinsic(f"{name}imum", a, b)


def has_extreme(like: Value) -> bool:
    """Whether the processor has an instruction for `extreme`."""
    whole = isinstance(like, Vec) and like.kind in ("float", "double")
    return whole and like.width * bits_of(like.kind) == 512 and like.code.target.isa == "avx512"


def extreme(name: str, a: Vec, b: Vec) -> Vec:
    """The lesser ("min") or greater ("max"), -0 below +0, by one instruction; anything where
    either is NaN."""
    suffix, mask = ("ps", "i16") if a.kind == "float" else ("pd", "i8")
    how = a.code.const("i32", 5 if name == "max" else 4)  # the result has its own sign
    current = a.code.const("i32", 4)  # report no exceptions otherwise than usual
    name = f"llvm.x86.avx512.mask.range.{suffix}.512"
    return a.code.call(name, a.kind, a.width, (a, b, how, a, a.code.const(mask, -1), current))


def _sign(x: Vec) -> Vec:
    """+0 for both zeros, as NumPy has it."""
    ordered = x.compare("une", 0.0) & x.compare("ord", x)
    return ordered.where(x.like(1.0).copysign(x), x + 0.0)


def _nextafter(x: Vec, y: Vec) -> Vec:
    bits = x.bits()
    away = (x < y).compare("eq", x > 0.0)
    moved = away.where(bits + 1, bits - 1).floats()
    moved = x.equals(0.0).where(bits.like(1).floats().copysign(y), moved)
    moved = x.equals(y).where(y, moved)
    return (x.is_nan() | y.is_nan()).where(x + y, moved)


_FLOAT: dict[str, Callable[..., Vec]] = {
    "neg": lambda x: -x,
    "abs": lambda x: x.abs(),
    "sign": _sign,
    "floor": lambda x: x.intrinsic("floor"),
    "ceil": lambda x: x.intrinsic("ceil"),
    "trunc": lambda x: x.intrinsic("trunc"),
    "round": lambda x: x.rint(),
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1.0 / x,
    "is_finite": lambda x: x.abs() < float("inf"),
    "is_nan": lambda x: x.is_nan(),
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rem": lambda a, b: a.binary("frem", b),
    "min": minimum,
    "max": maximum,
    "fmin": lambda a, b: ((a < b) | b.is_nan()).where(a, b),
    "fmax": lambda a, b: ((a > b) | b.is_nan()).where(a, b),
    "copysign": lambda a, b: a.copysign(b),
    "fma": fma,
}


def _float(name: str, args: Sequence[Vec], dtype: np.dtype) -> Vec:
    if name in math.NAMES:
        return math.function(name, *args)
    if name == "nextafter":
        x, y = args
        return _narrow_nextafter(x, y, dtype)
    if name not in _FLOAT:
        raise _unknown(name, "float")
    return _FLOAT[name](*args)


def _narrow_nextafter(x: Vec, y: Vec, dtype: np.dtype) -> Vec:
    """nextafter in the grid of the dtype: on float32 bits, one step is the dtype's last place."""
    if dtype.name in ("float32", "float64"):
        return _nextafter(x, y)
    a, b = (to_memory(v, dtype).convert("bitcast", f"i{dtype.itemsize * 8}") for v in (x, y))
    sign = a & (1 << (dtype.itemsize * 8 - 1))
    away = (x < y).compare("eq", x > 0.0)
    moved = away.where(a + 1, a - 1)
    least = (b & (1 << (dtype.itemsize * 8 - 1))) | 1
    moved = x.equals(0.0).where(least, moved | sign)
    moved = x.equals(y).where(b, moved)
    moved = moved.convert("bitcast", "half") if dtype.name == "float16" else moved
    result = from_memory(moved, dtype)
    return (x.is_nan() | y.is_nan()).where(x + y, result)


# ---------------------------------------------------------------- integers


def _divide(a: Vec, b: Vec, dtype: np.dtype) -> Vec:
    """Truncating division; by 0 gives 0, the smallest by -1 wraps."""
    unsigned = is_unsigned(dtype)
    zero = b.equals(0)
    if not b.text.startswith("%"):
        constant = a.binary("udiv" if unsigned else "sdiv", _safe(b, unsigned))
        return _repaired(a, b, zero, constant, unsigned)
    safe = _safe(b, unsigned)
    if bits_of(a.kind) <= 32 and max(a.width, b.width) > 1:
        up, down = ("uitofp", "fptoui") if unsigned else ("sitofp", "fptosi")
        quotient = a.convert(up, "double") / safe.convert(up, "double")
        quotient = quotient.intrinsic("trunc").convert(down, a.kind)
    else:
        quotient = a.binary("udiv" if unsigned else "sdiv", safe)
    return _repaired(a, b, zero, quotient, unsigned)


def _safe(b: Vec, unsigned: bool) -> Vec:
    bad = b.equals(0) if unsigned else b.equals(0) | b.equals(-1)
    return bad.where(b.like(1), b)


def _repaired(a: Vec, b: Vec, zero: Vec, quotient: Vec, unsigned: bool) -> Vec:
    if not unsigned:
        quotient = b.equals(-1).where(-a, quotient)
    return zero.where(quotient.like(0), quotient)


def _remainder(a: Vec, b: Vec, dtype: np.dtype) -> Vec:
    result = a - _divide(a, b, dtype) * b
    return b.equals(0).where(result.like(0), result)


def _shift(word: str, a: Vec, b: Vec) -> Vec:
    """Amounts past the width move every bit out: zeros or, for "ashr", the sign stay."""
    fits = b.compare("ult", bits_of(a.kind))
    if word == "ashr":
        return a.binary(word, fits.where(b, bits_of(a.kind) - 1))
    moved = a.binary(word, fits.where(b, 0))
    return fits.where(moved, 0)


def _power(a: Vec, b: Vec, dtype: np.dtype) -> Vec:
    """a ** b by squaring; exponents below 0 give 0."""
    wide = max(a.width, b.width)
    a, b = a.splat(wide), b.splat(wide)
    f, code = a.code.function, a.code

    def step(_: str, state: list[str]) -> list[str]:
        result, base, exponent = (Vec(code, a.kind, wide, s) for s in state)
        odd = (exponent & 1).equals(1)
        following = odd.where(result * base, result)
        return [following.text, (base * base).text, exponent.binary("lshr", 1).text]

    start = [(a.type, a.like(1).text), (a.type, a.text), (b.type, b.text)]
    result = Vec(code, a.kind, wide, f.loop(0, bits_of(a.kind), 1, step, start)[0])
    return result if is_unsigned(dtype) else (b < 0).where(result.like(0), result)


def _mul_high(a: Vec, b: Vec, dtype: np.dtype) -> Vec:
    word, bits = "zext" if is_unsigned(dtype) else "sext", bits_of(a.kind)
    wide = f"i{2 * bits}"
    product = a.convert(word, wide) * b.convert(word, wide)
    return product.binary("lshr", bits).convert("trunc", a.kind)


def _integer(name: str, args: Sequence[Vec], dtype: np.dtype) -> Vec:
    a = args[0]
    b = args[1] if len(args) > 1 else a
    u = "u" if is_unsigned(dtype) else "s"
    code = a.code
    match name:
        case "add" | "sub" | "mul" | "and" | "or" | "xor":
            return a.binary(name, b)
        case "div":
            return _divide(a, b, dtype)
        case "rem":
            return _remainder(a, b, dtype)
        case "pow":
            return _power(a, b, dtype)
        case "min" | "fmin":
            return code.intrinsic(f"{u}min", a, b)
        case "max" | "fmax":
            return code.intrinsic(f"{u}max", a, b)
        case "shl":
            return _shift("shl", a, b)
        case "shr_arith":
            return _shift("ashr", a, b)
        case "shr_logical":
            return _shift("lshr", a, b)
        case "mul_high":
            return _mul_high(a, b, dtype)
        case "fma":
            return a * b + args[2]
        case _:
            return _integer_unary(name, a, dtype)


def _integer_unary(name: str, a: Vec, dtype: np.dtype) -> Vec:
    code, unsigned = a.code, is_unsigned(dtype)
    match name:
        case "neg":
            return -a
        case "not":
            return ~a
        case "abs":
            return a if unsigned else (a < 0).where(-a, a)
        case "sign":
            positive = a.compare("ne", 0).convert("zext", a.kind)
            return positive if unsigned else (a < 0).where(a.like(-1), positive)
        case "square":
            return a * a
        case "floor" | "ceil" | "trunc" | "round":
            return a
        case "popcount":
            return a.intrinsic("ctpop")
        case "clz":
            flag = code.const("i1", False)
            return code.call(f"llvm.ctlz.{a.suffix}", a.kind, a.width, (a, flag))
        case "is_finite":
            return code.const("i1", True, a.width)
        case "is_nan":
            return code.const("i1", False, a.width)
        case _:
            raise _unknown(name, "integer")


def _bool(name: str, args: Sequence[Vec]) -> Vec:
    match name:
        case "and" | "mul" | "min" | "fmin":
            return args[0] & args[1]
        case "or" | "add" | "max" | "fmax":
            return args[0] | args[1]
        case "xor" | "sub":
            return args[0] ^ args[1]
        case "not":
            return ~args[0]
        case "neg" | "abs" | "sign" | "square" | "floor" | "ceil" | "trunc" | "round":
            return args[0]
        case "is_finite":
            return args[0].code.const("i1", True, args[0].width)
        case "is_nan":
            return args[0].code.const("i1", False, args[0].width)
        case _:
            raise _unknown(name, "bool")
