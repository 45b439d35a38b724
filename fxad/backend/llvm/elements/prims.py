"""Code of every scalar function (`fxad.ir.prims`) on register values: a table for each kind of
dtype.

    apply("add", [x, y], float32, float32)

`source` is the dtype of the (last) argument, `target` the result's. Narrow floats are rounded
once to `target`; functions that only move bits never round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

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
from fxad.ir.prims import meaning

Code = Callable[..., Value]


def apply(name: str, args: Sequence[Value], source: np.dtype, target: np.dtype) -> Value:
    """One scalar function; raises NotImplementedError where it has no meaning for the dtype."""
    function = meaning(name, source)
    source = dtypes.uint64 if source == dtypes.key else source
    if name in OF_DTYPES:
        return OF_DTYPES[name](args, source, target)
    kind = dtypes.kind_of(source)
    code = (UNSIGNED if kind == "int" and is_unsigned(source) else CODE[kind])[name]
    if kind == "complex":
        wide = max(a.width for a in args)
        return code(*(a.splat(wide) for a in args))
    result = code(*args)
    return rounded(result, target) if kind == "float" and not function.moves else result


def _comparisons(prefix: str, equal: str = "eq", different: str = "ne") -> dict[str, Code]:
    """By LLVM's predicates: u, s or o for unsigned, signed or ordered."""
    names = {"eq": equal, "ne": different} | {n: prefix + n for n in ("lt", "le", "gt", "ge")}
    return {n: partial(_compare, predicate) for n, predicate in names.items()}


def _compare(predicate: str, a: Vec, b: Vec) -> Vec:
    return a.compare(predicate, b)


# ---------------------------------------------------------------- of any dtype


def _select(args: Sequence[Value], source: np.dtype, target: np.dtype) -> Value:
    test, yes, no = args
    if isinstance(yes, Pair):
        return Pair(test.where(yes.re, no.re), test.where(yes.im, no.im))
    return test.where(yes, no)


def _bitcast(args: Sequence[Vec], source: np.dtype, target: np.dtype) -> Vec:
    stored = to_memory(args[0], source)
    kind = f"i{bits_of(stored.kind)}"
    stored = stored.convert("bitcast", kind)
    if target.name == "float16":
        stored = stored.convert("bitcast", "half")
    elif target.name in ("float32", "float64"):
        stored = stored.floats()
    return from_memory(stored, target)


def _complex(args: Sequence[Vec], source: np.dtype, target: np.dtype) -> Pair:
    return Pair(args[0], args[1])


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


def _whole_nextafter(x: Vec, y: Vec) -> Vec:
    bits = x.bits()
    away = (x < y).compare("eq", x > 0.0)
    moved = away.where(bits + 1, bits - 1).floats()
    moved = x.equals(0.0).where(bits.like(1).floats().copysign(y), moved)
    moved = x.equals(y).where(y, moved)
    return (x.is_nan() | y.is_nan()).where(x + y, moved)


def _nextafter(args: Sequence[Vec], source: np.dtype, target: np.dtype) -> Vec:
    """In the grid of the dtype; narrow ones step their own bits."""
    whole = source.name in ("float32", "float64")
    x, y = args
    return _whole_nextafter(x, y) if whole else rounded(_narrow_nextafter(x, y, source), target)


def _narrow_nextafter(x: Vec, y: Vec, dtype: np.dtype) -> Vec:
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


_FLOAT: dict[str, Code] = {
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
    **_comparisons("o", "oeq", "une"),
    **{name: partial(math.function, name) for name in math.FUNCTIONS},
}

# ---------------------------------------------------------------- integers


def _divide(unsigned: bool, a: Vec, b: Vec) -> Vec:
    """Truncating division; by 0 gives 0, the smallest by -1 wraps."""
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


def _remainder(unsigned: bool, a: Vec, b: Vec) -> Vec:
    result = a - _divide(unsigned, a, b) * b
    return b.equals(0).where(result.like(0), result)


def _shift(word: str, a: Vec, b: Vec) -> Vec:
    """Amounts past the width move every bit out: zeros or, for "ashr", the sign stay."""
    fits = b.compare("ult", bits_of(a.kind))
    if word == "ashr":
        return a.binary(word, fits.where(b, bits_of(a.kind) - 1))
    moved = a.binary(word, fits.where(b, 0))
    return fits.where(moved, 0)


def _mul_high(extend: str, a: Vec, b: Vec) -> Vec:
    bits = bits_of(a.kind)
    wide = f"i{2 * bits}"
    product = a.convert(extend, wide) * b.convert(extend, wide)
    return product.binary("lshr", bits).convert("trunc", a.kind)


def _leading_zeros(a: Vec) -> Vec:
    flag = a.code.const("i1", False)
    return a.code.call(f"llvm.ctlz.{a.suffix}", a.kind, a.width, (a, flag))


def _positive(a: Vec) -> Vec:
    """1 where a is not 0."""
    return a.compare("ne", 0).convert("zext", a.kind)


def _signed_sign(a: Vec) -> Vec:
    positive = _positive(a)
    return (a < 0).where(a.like(-1), positive)


def _intrinsic(name: str, a: Vec, b: Vec) -> Vec:
    return a.code.intrinsic(name, a, b)


_SIGNED: dict[str, Code] = {
    "neg": lambda a: -a,
    "abs": lambda a: (a < 0).where(-a, a),
    "sign": _signed_sign,
    "square": lambda a: a * a,
    "not": lambda a: ~a,
    "popcount": lambda a: a.intrinsic("ctpop"),
    "clz": _leading_zeros,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": partial(_divide, False),
    "rem": partial(_remainder, False),
    "mul_high": partial(_mul_high, "sext"),
    "fma": lambda a, b, c: a * b + c,
    "min": partial(_intrinsic, "smin"),
    "max": partial(_intrinsic, "smax"),
    "fmin": partial(_intrinsic, "smin"),
    "fmax": partial(_intrinsic, "smax"),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": partial(_shift, "shl"),
    "shr_arith": partial(_shift, "ashr"),
    "shr_logical": partial(_shift, "lshr"),
    **_comparisons("s"),
}
UNSIGNED: dict[str, Code] = _SIGNED | {
    "abs": lambda a: a,
    "sign": _positive,
    "div": partial(_divide, True),
    "rem": partial(_remainder, True),
    "mul_high": partial(_mul_high, "zext"),
    "min": partial(_intrinsic, "umin"),
    "max": partial(_intrinsic, "umax"),
    "fmin": partial(_intrinsic, "umin"),
    "fmax": partial(_intrinsic, "umax"),
    **_comparisons("u"),
}

# ---------------------------------------------------------------- all of them

_BOOL: dict[str, Code] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a,
    "min": lambda a, b: a & b,
    "max": lambda a, b: a | b,
    "fmin": lambda a, b: a & b,
    "fmax": lambda a, b: a | b,
    **_comparisons("u"),
}
CODE: dict[str, dict[str, Code]] = {
    "bool": _BOOL,
    "int": _SIGNED,
    "float": _FLOAT,
    "complex": complexes.FUNCTIONS,
}
# Functions of (arguments, source, target): their code depends on more than the kind.
OF_DTYPES: dict[str, Code] = {
    "select": _select,
    "bitcast": _bitcast,
    "complex": _complex,
    "nextafter": _nextafter,
}
