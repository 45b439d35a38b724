"""What all functions of factors are written with: operands, vectors in memory, NaN for singular
matrices.

    library = Library(np.dtype("float32"), target, [])
    code, (a, x), (n,) = library.kernel("cholesky", 2, 1)
    code.put(x, code.load(a) * 2.0)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fxad.backend.llvm.base import vector
from fxad.backend.llvm.base.formats import kind_of
from fxad.backend.llvm.base.schedule import ABI, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.vector import Vec, type_of
from fxad.core.record import record


def name_of(kind: str, dtype: np.dtype) -> str:
    """What a function that is called like a kernel is called."""
    return f"fx_{kind}_{dtype.name}"


@record
class Code:
    """A function as it is written. values: its constants and declarations. kind, size: LLVM's name
    and the bytes of a number; width: numbers of a vector."""

    values: vector.Code
    f: Function
    kind: str
    size: int
    width: int

    @property
    def step(self) -> int:
        """Bytes of a vector."""
        return self.width * self.size

    def const(self, value: float) -> Vec:
        """A number."""
        return self.values.const(self.kind, value)

    def splat(self, value: float) -> Vec:
        """A vector of the same number."""
        return self.values.const(self.kind, value, self.width)

    def number(self, text: str) -> Vec:
        return Vec(self.values, self.kind, 1, text)

    def vector(self, text: str) -> Vec:
        return Vec(self.values, self.kind, self.width, text)

    def flag(self, text: str) -> Vec:
        """A bool."""
        return Vec(self.values, "i1", 1, text)

    def scalar(self, at: str) -> Vec:
        """The number at an address."""
        return self.values.op(self.kind, 1, f"load {self.kind}, ptr {at}")

    def put(self, at: str, value: Vec) -> None:
        """Store a number, or a whole vector."""
        self.f.line(f"store {value.type} {value.text}, ptr {at}, align {self.size}")

    def load(self, at: str, number: int = 0, mask: Vec | None = None) -> Vec:
        """Vector `number` of those from an address on; zeros beyond a mask."""
        at = self.f.offset(at, number * self.step)
        type = type_of(self.kind, self.width)
        if mask is None:
            text = f"load {type}, ptr {at}, align {self.size}"
            return self.values.op(self.kind, self.width, text)
        zero = self.splat(0)
        name = f"llvm.masked.load.{zero.suffix}.p0"
        self.values.declarations.add(f"declare {type} @{name}(ptr, i32, {mask.type}, {type})")
        given = f"ptr {at}, i32 {self.size}, {mask.type} {mask.text}, {type} {zero.text}"
        return self.values.op(self.kind, self.width, f"call {type} @{name}({given})")

    def store(self, at: str, number: int, value: Vec, mask: Vec | None) -> None:
        """Store vector `number` of those from an address on, as far as a mask says."""
        at = self.f.offset(at, number * self.step)
        if mask is None:
            return self.put(at, value)
        types = (value.type, "ptr", "i32", mask.type)
        name = f"llvm.masked.store.{value.suffix}.p0"
        self.values.call_void(name, types, (value.text, at, str(self.size), mask.text))

    def first_lanes(self, end: str, start: str) -> Vec:
        """A mask of the lanes from `start` on that are before `end`."""
        return self.values.first_lanes(self.width, self.f.op(f"sub i64 {end}, {start}"))


@record
class Library:
    """Functions of one dtype, in the order in which they are begun."""

    dtype: np.dtype
    target: Target
    codes: list[Code]

    @property
    def texts(self) -> list[str]:
        """LLVM IR of all functions."""
        return [str(code.f) for code in self.codes]

    @property
    def declarations(self) -> set[str]:
        """The `declare` lines that they need."""
        return set[str]().union(*[code.values.declarations for code in self.codes])

    @property
    def kind(self) -> str:
        """LLVM's name of a number."""
        return kind_of(self.dtype)

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return self.target.lanes(self.dtype)

    def function(self, name: str, params: Sequence[tuple[str, str]], linkage: str = "") -> Code:
        """The beginning of a function."""
        f = Function(name, "void", params, linkage)
        values = vector.Code(f, self.target)
        code = Code(values, f, self.kind, self.dtype.itemsize, self.width)
        self.codes.append(code)
        return code

    def kernel(self, kind: str, operands: int, numbers: int) -> tuple[Code, list[str], list[str]]:
        """The beginning of a function that is called like a kernel: its code, operands' addresses
        and numbers."""
        code = self.function(name_of(kind, self.dtype), ABI)
        f = code.f
        words = [f.offset("%args", 8 * i) for i in range(operands + numbers)]
        pointers = [f.op(f"load ptr, ptr {w}") for w in words[:operands]]
        return code, pointers, [f.op(f"load i64, ptr {w}") for w in words[operands:]]


def is_singular(code: Code, diagonal: str, step: str, n: str) -> str:
    """Whether the diagonal, `step` bytes from number to number, has a zero."""
    f = code.f

    def look(_: str, values: list[str]) -> list[str]:
        at, found = values
        zero = f.op(f"fcmp oeq {code.kind} {code.scalar(at).text}, 0.0")
        return [f.offset(at, step), f.op(f"or i1 {found}, {zero}")]

    return f.loop(0, n, 1, look, [("ptr", diagonal), ("i1", "false")])[1]


def nan_if(code: Code, wrong: str) -> str:
    """What is added to all results: NaN if something is wrong, else -0."""
    return code.flag(wrong).where(code.const(float("nan")), code.const(-0.0)).text
