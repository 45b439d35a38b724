"""LLVM values with operators: a scalar (width 1) or a vector of lanes.

    x = Vec(code, "float", 16, "%x")
    y = (x > 0.0).where(x * 2.0 + 1.0, 0.0)      # appends the instructions to `code`

Arithmetic is exactly one IEEE or wrapping instruction; `fma` is the only contraction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.text import Function, float_literal

_FLOATS: dict[str, np.dtype] = {
    "half": np.dtype("float16"),
    "float": np.dtype("float32"),
    "double": np.dtype("float64"),
}
_BITS = {"half": 16, "float": 32, "double": 64}
Number = bool | int | float


def is_float(kind: str) -> bool:
    return kind in _FLOATS


def bits_of(kind: str) -> int:
    return _BITS[kind] if kind in _BITS else int(kind[1:])


def type_of(kind: str, width: int) -> str:
    return kind if width == 1 else f"<{width} x {kind}>"


def literal(kind: str, value: Number) -> str:
    """A scalar constant; integers wrap to the kind."""
    if kind in _FLOATS:
        return float_literal(float(value), _FLOATS[kind])
    bits = bits_of(kind)
    wrapped = int(value) & ((1 << bits) - 1)
    if bits > 1 and wrapped >> (bits - 1):
        wrapped -= 1 << bits
    return str(wrapped)


class Code:
    """A function under construction, the target, and the declarations it has come to need."""

    def __init__(self, function: Function, target: Target) -> None:
        self.function = function
        self.target = target
        self.declarations: set[str] = set()
        self._occurrences: Counter[str] = Counter()

    def occurrence(self, name: str) -> int:
        """How often this was asked before: for what is to differ from one vector to the next."""
        self._occurrences[name] += 1
        return self._occurrences[name] - 1

    def const(self, kind: str, value: Number, width: int = 1) -> Vec:
        text = literal(kind, value)
        return Vec(self, kind, width, text if width == 1 else f"splat ({kind} {text})")

    def consts(self, kind: str, values: Sequence[Number]) -> Vec:
        """One constant per lane."""
        if len(values) == 1:
            return self.const(kind, values[0])
        items = ", ".join(f"{kind} {literal(kind, v)}" for v in values)
        return Vec(self, kind, len(values), f"<{items}>")

    def iota(self, kind: str, width: int, start: int = 0, step: int = 1) -> Vec:
        return self.consts(kind, [start + step * i for i in range(width)])

    def first_lanes(self, width: int, count: str) -> Vec:
        """A mask of the first lanes, `count` (an i64 from 0 on) of them or all."""
        some = Vec(self, "i64", 1, count).convert("trunc", "i32").splat(width)
        return self.iota("i32", width).compare("ult", some)

    def concealed(self, mask: Vec) -> Vec:
        """The same mask, but one that LLVM cannot know while it compiles."""
        one = Vec(self, "i64", 1, self.function.op('call i64 asm "", "=r,0"(i64 1)'))
        return mask & one.convert("trunc", "i1").splat(mask.width)

    def call(self, name: str, kind: str, width: int, args: Sequence[Vec]) -> Vec:
        """Call a function or intrinsic by its full name, declaring it."""
        types = ", ".join(a.type for a in args)
        result = type_of(kind, width)
        self.declarations.add(f"declare {result} @{name}({types})")
        listed = ", ".join(f"{a.type} {a.text}" for a in args)
        return self.op(kind, width, f"call {result} @{name}({listed})")

    def call_void(self, name: str, types: Sequence[str], args: Sequence[str]) -> None:
        self.declarations.add(f"declare void @{name}({', '.join(types)})")
        listed = ", ".join(f"{t} {a}" for t, a in zip(types, args, strict=True))
        self.function.line(f"call void @{name}({listed})")

    def intrinsic(self, name: str, *args: Vec) -> Vec:
        """llvm.<name> overloaded on the (common) type of its arguments."""
        wide = max(a.width for a in args)
        args = tuple(a.splat(wide) for a in args)
        first = args[0]
        return self.call(f"llvm.{name}.{first.suffix}", first.kind, wide, args)

    def op(self, kind: str, width: int, text: str) -> Vec:
        return Vec(self, kind, width, self.function.op(text))


class Vec:
    """One SSA value or constant of `width` lanes of the LLVM scalar type `kind`."""

    __slots__ = ("code", "kind", "text", "width")

    def __init__(self, code: Code, kind: str, width: int, text: str) -> None:
        self.code = code
        self.kind = kind
        self.width = width
        self.text = text

    @property
    def type(self) -> str:
        return type_of(self.kind, self.width)

    @property
    def suffix(self) -> str:
        """How overloaded intrinsics spell this type: f32, v16f32, i64..."""
        kind = f"f{_BITS[self.kind]}" if self.kind in _BITS else self.kind
        return kind if self.width == 1 else f"v{self.width}{kind}"

    def like(self, value: Number) -> Vec:
        """A constant of the same type."""
        return self.code.const(self.kind, value, self.width)

    def splat(self, width: int) -> Vec:
        """This scalar in every lane (a vector of that width already is returned as it is)."""
        if self.width == width:
            return self
        if self.width != 1:
            raise ValueError(f"cannot make {width} lanes of a vector of {self.width}")
        if not self.text.startswith("%"):
            return Vec(self.code, self.kind, width, f"splat ({self.kind} {self.text})")
        type = type_of(self.kind, width)
        one = self.code.function.op(f"insertelement {type} poison, {self.kind} {self.text}, i64 0")
        return self.code.op(
            self.kind, width, f"shufflevector {type} {one}, {type} poison, "
            f"<{width} x i32> zeroinitializer"
        )  # fmt: skip

    def shuffle(self, lanes: Sequence[int], other: Vec | None = None) -> Vec:
        """The listed lanes of this vector (and of `other`, numbered after)."""
        if len(lanes) == 1:
            return self.lane(lanes[0])
        picked = ", ".join(f"i32 {i}" for i in lanes)
        second = f"{self.type} {other.text if other else 'poison'}"
        text = f"shufflevector {self.type} {self.text}, {second}, <{len(lanes)} x i32> <{picked}>"
        return self.code.op(self.kind, len(lanes), text)

    def lane(self, number: int) -> Vec:
        if self.width == 1:
            return self
        return self.code.op(self.kind, 1, f"extractelement {self.type} {self.text}, i64 {number}")

    def with_lane(self, number: int, value: Vec) -> Vec:
        if self.width == 1:
            return value
        text = f"insertelement {self.type} {self.text}, {self.kind} {value.text}, i64 {number}"
        return self.code.op(self.kind, self.width, text)

    # arithmetic

    def _pair(self, other: Vec | Number) -> tuple[Vec, Vec]:
        if not isinstance(other, Vec):
            return self, self.like(other)
        if self.width == other.width:
            return self, other
        width = max(self.width, other.width)
        return self.splat(width), other.splat(width)

    def binary(self, name: str, other: Vec | Number) -> Vec:
        """One instruction: fadd, sub, udiv, lshr..."""
        a, b = self._pair(other)
        return a.code.op(a.kind, a.width, f"{name} {a.type} {a.text}, {b.text}")

    def _arith(self, name: str, other: Vec | Number) -> Vec:
        return self.binary("f" + name if self.kind in _BITS else name, other)

    def __add__(self, other: Vec | Number) -> Vec:
        return self._arith("add", other)

    def __sub__(self, other: Vec | Number) -> Vec:
        return self._arith("sub", other)

    def __mul__(self, other: Vec | Number) -> Vec:
        return self._arith("mul", other)

    def __truediv__(self, other: Vec | Number) -> Vec:
        return self.binary("fdiv", other)

    def __radd__(self, other: Number) -> Vec:
        return self.like(other) + self

    def __rsub__(self, other: Number) -> Vec:
        return self.like(other) - self

    def __rmul__(self, other: Number) -> Vec:
        return self.like(other) * self

    def __rtruediv__(self, other: Number) -> Vec:
        return self.like(other) / self

    def __neg__(self) -> Vec:
        if self.kind in _BITS:
            return self.code.op(self.kind, self.width, f"fneg {self.type} {self.text}")
        return self.like(0) - self

    def __and__(self, other: Vec | Number) -> Vec:
        return self.binary("and", other)

    def __or__(self, other: Vec | Number) -> Vec:
        return self.binary("or", other)

    def __xor__(self, other: Vec | Number) -> Vec:
        return self.binary("xor", other)

    def __invert__(self) -> Vec:
        return self.binary("xor", -1)

    def __lshift__(self, other: Vec | Number) -> Vec:
        return self.binary("shl", other)

    # comparisons: ordered for floats, signed for integers

    def compare(self, name: str, other: Vec | Number) -> Vec:
        """fcmp or icmp with an explicit predicate (olt, une, ult, eq...)."""
        a, b = self._pair(other)
        word = "fcmp" if a.kind in _BITS else "icmp"
        return a.code.op("i1", a.width, f"{word} {name} {a.type} {a.text}, {b.text}")

    def _ordered(self, name: str, other: Vec | Number) -> Vec:
        return self.compare(("o" if self.kind in _BITS else "s") + name, other)

    def __lt__(self, other: Vec | Number) -> Vec:
        return self._ordered("lt", other)

    def __le__(self, other: Vec | Number) -> Vec:
        return self._ordered("le", other)

    def __gt__(self, other: Vec | Number) -> Vec:
        return self._ordered("gt", other)

    def __ge__(self, other: Vec | Number) -> Vec:
        return self._ordered("ge", other)

    def equals(self, other: Vec | Number) -> Vec:
        return self.compare("oeq" if self.kind in _BITS else "eq", other)

    def is_nan(self) -> Vec:
        return self.compare("uno", self)

    def is_denormal_or_infinite(self) -> Vec:
        """One instruction where AVX-512 has it."""
        if self.code.target.isa == "avx512" and bits_of(self.kind) * self.width == 512:
            short = "ps" if self.kind == "float" else "pd"
            name, classes = f"llvm.x86.avx512.fpclass.{short}.512", 0x38
        else:
            name, classes = f"llvm.is.fpclass.{self.suffix}", 0x294
        return self.code.call(name, "i1", self.width, (self, self.code.const("i32", classes)))

    def where(self, yes: Vec, no: Vec | Number) -> Vec:
        """This condition ? yes : no, lane by lane."""
        yes, no = yes._pair(no)
        width = max(self.width, yes.width)
        yes, no = yes.splat(width), no.splat(width)
        test = self if self.width == 1 else self.splat(width)
        text = f"select {test.type} {test.text}, {yes.type} {yes.text}, {no.type} {no.text}"
        return self.code.op(yes.kind, width, text)

    def at_least(self, low: Vec | Number) -> Vec:
        """max(self, low); a NaN of self stays (one x86 instruction)."""
        low = low if isinstance(low, Vec) else self.like(low)
        return (low > self).where(low, self)

    def at_most(self, high: Vec | Number) -> Vec:
        """min(self, high); a NaN of self stays."""
        high = high if isinstance(high, Vec) else self.like(high)
        return (high < self).where(high, self)

    # conversions

    def convert(self, name: str, kind: str) -> Vec:
        """A cast instruction (sext, trunc, sitofp, fpext...) to lanes of `kind`."""
        if kind == self.kind:
            return self
        to = type_of(kind, self.width)
        return self.code.op(kind, self.width, f"{name} {self.type} {self.text} to {to}")

    def bits(self) -> Vec:
        """The same bits as integers."""
        return self.convert("bitcast", f"i{bits_of(self.kind)}")

    def floats(self) -> Vec:
        """The same bits as float or double."""
        return self.convert("bitcast", {16: "half", 32: "float", 64: "double"}[bits_of(self.kind)])

    # intrinsics

    def intrinsic(self, name: str) -> Vec:
        return self.code.intrinsic(name, self)

    def rint(self) -> Vec:
        return self.intrinsic("rint")

    def abs(self) -> Vec:
        return self.intrinsic("fabs")

    def sqrt(self) -> Vec:
        return self.intrinsic("sqrt")

    def copysign(self, sign: Vec) -> Vec:
        return self.code.intrinsic("copysign", self, sign)


def fma(a: Vec, b: Vec | Number, c: Vec | Number) -> Vec:
    """a * b + c with one rounding."""
    b = b if isinstance(b, Vec) else a.like(b)
    c = c if isinstance(c, Vec) else a.like(c)
    return a.code.intrinsic("fma", a, b, c)


def polynomial(x: Vec, coefficients: Sequence[Vec | float]) -> Vec:
    """sum of coefficients[k] * x**k by Horner's rule with FMA."""
    last = coefficients[-1]
    result = last if isinstance(last, Vec) else x.like(last)
    for c in reversed(coefficients[:-1]):
        result = fma(result, x, c)
    return result
