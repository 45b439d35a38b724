"""How element types look in registers and in memory, and conversions between them.

    kind_of(np.dtype("float32"))   # "float": the LLVM scalar type in registers
    cast(x, float32, int8)         # NUMERICS: saturating, NaN gives 0

In registers bools are i1, and f16, bf16 and the 8-bit floats are float32 values that are exactly
representable in them: `rounded` makes one, loads and stores only change the spelling. A complex
number is a `Pair`. Conversion to bf16 flushes what is denormal to a zero of the same sign.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from fxad.backend.llvm.base.vector import Vec, bits_of
from fxad.core import dtypes
from fxad.core.record import valued


@valued
class Pair:
    """A complex value."""

    re: Vec
    im: Vec

    @property
    def width(self) -> int:
        return self.re.width

    def splat(self, width: int) -> Pair:
        return Pair(self.re.splat(width), self.im.splat(width))


Value = Any  # a Vec, or a Pair for complex dtypes: which one, the dtype at hand says

_KINDS = {
    "bool": "i1",
    "float16": "float",
    "bfloat16": "float",
    "float8_e4m3fn": "float",
    "float8_e5m2": "float",
    "float32": "float",
    "float64": "double",
    "complex64": "float",
    "complex128": "double",
}
_HALF = frozenset({"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"})
# 8-bit floats: (mantissa bits, exponent bias, largest finite value, what lies beyond it).
_FLOAT8 = {
    "float8_e4m3fn": (3, 7, 448.0, float("nan")),
    "float8_e5m2": (2, 15, 57344.0, float("inf")),
}


@functools.cache  # a dtype's name is computed anew each time
def kind_of(dtype: np.dtype) -> str:
    """LLVM scalar type of a register (of one part, for complex numbers)."""
    return _KINDS.get(dtype.name) or f"i{dtype.itemsize * 8}"


@functools.cache
def memory_kind(dtype: np.dtype) -> str:
    """LLVM scalar type of an element in memory (of one part, for complex numbers)."""
    match dtype.name:
        case "bool" | "float8_e4m3fn" | "float8_e5m2":
            return "i8"
        case "bfloat16":
            return "i16"
        case "float16":
            return "half"
        case _:
            return kind_of(dtype)


@functools.cache
def is_half(dtype: np.dtype) -> bool:
    """Narrow floats, which compute in float32 and round once per operation."""
    return dtype.name in _HALF


def is_unsigned(dtype: np.dtype) -> bool:
    return dtype.kind in "ub"


# ---------------------------------------------------------------- memory


def from_memory(x: Vec, dtype: np.dtype) -> Vec:
    """Register form of elements as loaded."""
    match dtype.name:
        case "bool":
            return x.compare("ne", 0)
        case "bfloat16":
            return (x.convert("zext", "i32") << 16).floats()
        case "float16":
            return x.convert("fpext", "float")
        case "float8_e4m3fn" | "float8_e5m2":
            return _decode8(x.convert("zext", "i32"), dtype.name)
        case _:
            return x


def to_memory(x: Vec, dtype: np.dtype) -> Vec:
    """Memory form of register elements (exact: the value was rounded when it was made)."""
    match dtype.name:
        case "bool":
            return x.convert("zext", "i8")
        case "bfloat16":
            return x.bits().binary("lshr", 16).convert("trunc", "i16")
        case "float16":
            return x.convert("fptrunc", "half")
        case "float8_e4m3fn" | "float8_e5m2":
            return _encode8(x, dtype.name).convert("trunc", "i8")
        case _:
            return x


def _decode8(x: Vec, name: str) -> Vec:
    mantissa, bias, _, _ = _FLOAT8[name]
    size = x & 0x7F
    value = (size << (23 - mantissa)).floats() * 2.0 ** (127 - bias)
    if name == "float8_e5m2":
        special = ((size << 21) | 0x70000000).floats()  # exponent 31 becomes 255
        value = (size >= 0x7C).where(special, value)
    else:
        value = size.equals(0x7F).where(value.like(float("nan")), value)
    return (value.bits() | ((x & 0x80) << 24)).floats()


def _encode8(x: Vec, name: str) -> Vec:
    mantissa, bias, _, _ = _FLOAT8[name]
    shift = 23 - mantissa
    bits = x.bits()
    size = bits & 0x7FFFFFFF
    normal = size.binary("lshr", shift) - ((127 - bias) << mantissa)
    steps = size.floats().at_most(1.0) * 2.0 ** (bias - 1 + mantissa)
    small = x.code.call(f"llvm.fptosi.sat.{size.suffix}.{x.suffix}", "i32", x.width, (steps,))
    code = (size.floats() < 2.0 ** (1 - bias)).where(small, normal)
    code = (size >= 0x7F800000).where(code.like(0x7C if name == "float8_e5m2" else 0x7F), code)
    code = (size > 0x7F800000).where(code.like(0x7E if name == "float8_e5m2" else 0x7F), code)
    return code | (bits.binary("lshr", 24) & 0x80)


# ---------------------------------------------------------------- rounding


def rounded(x: Vec, dtype: np.dtype) -> Vec:
    """A float32 result rounded to a narrow dtype, to nearest even; other dtypes unchanged."""
    match dtype.name:
        case "bfloat16":
            return _round_bf16(x)
        case "float16":
            return x.convert("fptrunc", "half").convert("fpext", "float")
        case "float8_e4m3fn" | "float8_e5m2":
            return _round8(x, dtype.name)
        case _:
            return x


def _round_bits(x: Vec, dropped: int) -> Vec:
    """Bits of x with the low mantissa bits rounded away, half to even."""
    bits = x.bits()
    even = bits.binary("lshr", dropped) & 1
    return (bits + even + ((1 << (dropped - 1)) - 1)) & -(1 << dropped)


def _round_bf16(x: Vec) -> Vec:
    """The processor's own instruction, which writes 16 bits, or ten instructions of integers."""
    if "avx512_bf16" in x.code.target.features and x.width * 32 in (256, 512):
        name = f"llvm.x86.avx512bf16.cvtneps2bf16.{x.width * 32}"
        short = x.code.call(name, "bfloat", x.width, (x,)).convert("bitcast", "i16")
        return from_memory(short, dtypes.bfloat16)
    bits = _round_bits(x, 16)
    raw = x.bits()
    bits = (x.abs() < 1.1754943508222875e-38).where(raw & -(1 << 31), bits)
    return x.is_nan().where((raw & -(1 << 16)) | 0x400000, bits).floats()


def _round8(x: Vec, name: str) -> Vec:
    mantissa, bias, largest, beyond = _FLOAT8[name]
    step = 2.0 ** (bias - 1 + mantissa)
    small = (x * step).rint() * (1.0 / step)
    y = (x.abs() < 2.0 ** (1 - bias)).where(small, _round_bits(x, 23 - mantissa).floats())
    y = (y.abs() > largest).where(y.like(beyond), y).copysign(x)
    return x.is_nan().where(x, y)


# ---------------------------------------------------------------- casts


def cast(x: Value, source: np.dtype, target: np.dtype) -> Value:
    """Convert a register value of dtype `source` to `target`."""
    if source == target:
        return x
    if target.kind == "c":
        part = dtypes.real_of(target)
        if isinstance(x, Pair):
            inner = dtypes.real_of(source)
            return Pair(_cast(x.re, inner, part), _cast(x.im, inner, part))
        re = _cast(x, source, part)
        return Pair(re, re.like(0.0))
    if isinstance(x, Pair):
        if target.kind == "b":
            return x.re.compare("une", 0.0) | x.im.compare("une", 0.0)
        x, source = x.re, dtypes.real_of(source)
    return _cast(x, source, target)


def _cast(x: Vec, source: np.dtype, target: np.dtype) -> Vec:
    if source == target:
        return x
    to = kind_of(target)
    from_float, to_float = dtypes.is_float(source), dtypes.is_float(target)
    if target.kind == "b":
        return x.compare("une" if from_float else "ne", 0)
    if from_float and to_float:
        return _float_to_float(x, target)
    if from_float:
        return _saturated(x, target)
    if to_float:
        y = x.convert("uitofp" if is_unsigned(source) else "sitofp", to)
        return rounded(y, target)
    if bits_of(to) < bits_of(x.kind):
        return x.convert("trunc", to)
    return x.convert("zext" if is_unsigned(source) else "sext", to)


def _saturated(x: Vec, target: np.dtype) -> Vec:
    """The integer towards 0, or the nearest one there is; of NaN 0.

    Vectors say so themselves: of `llvm.fptosi.sat` x86 makes scalars, one after the other.
    """
    to, name = kind_of(target), "fptoui" if is_unsigned(target) else "fptosi"
    if x.width == 1:
        return x.code.call(f"llvm.{name}.sat.{to}.{x.suffix}", to, 1, (x,))
    limits = np.iinfo(target)
    low, high = int(limits.min), int(limits.max)
    kind = np.float32 if x.kind == "float" else np.float64
    top = kind(high) if int(kind(high)) == high else np.nextafter(kind(high), kind(0))
    below, above = x < float(low), x > float(top)
    inside = (x >= float(low)) & (x <= float(top))
    whole = inside.where(x, 0.0).convert(name, to)
    return below.where(whole.like(low), above.where(whole.like(high), whole))


def _float_to_float(x: Vec, target: np.dtype) -> Vec:
    to = kind_of(target)
    if x.kind == "double" and to == "float":
        y = x.convert("fptrunc", "float")
        return rounded(_to_odd(x, y), target) if is_half(target) else y
    return rounded(x.convert("fpext", to), target)


def _to_odd(x: Vec, y: Vec) -> Vec:
    """y = float(x) moved to the odd neighbour where inexact, so that rounding again is exact."""
    back = y.convert("fpext", "double")
    bits = y.bits()
    bits = (back.abs() > x.abs()).where(bits - 1, bits) | 1
    return back.compare("one", x).where(bits.floats(), y)
