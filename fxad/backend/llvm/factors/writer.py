"""What all functions of factors are written with: operands, vectors in memory, NaN for singular
matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fxad.backend.llvm.base.formats import kind_of
from fxad.backend.llvm.base.schedule import ABI, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.vector import Code, Vec, type_of


def name_of(kind: str, dtype: np.dtype) -> str:
    return f"fx_{kind}_{dtype.name}"


class Writer:
    """Writes functions of one dtype."""

    def __init__(self, dtype: np.dtype, target: Target) -> None:
        self.dtype, self.target = dtype, target
        self.kind, self.size = kind_of(dtype), dtype.itemsize
        self.width = target.lanes(dtype)
        self.codes: list[Code] = []

    def write(self) -> tuple[str, ...]:
        """Write all functions that are called like kernels; their kinds."""
        raise NotImplementedError

    def code(self, name: str, params: Sequence[tuple[str, str]], linkage: str = "") -> Code:
        code = Code(Function(name, "void", params, linkage), self.target)
        self.codes.append(code)
        return code

    def kernel(self, kind: str, operands: int, numbers: int) -> tuple[Code, list[str], list[str]]:
        """A function called like a kernel: its code, operands' addresses and numbers."""
        code = self.code(name_of(kind, self.dtype), ABI)
        words = [code.function.offset("%args", 8 * i) for i in range(operands + numbers)]
        places = [code.function.op(f"load ptr, ptr {w}") for w in words[:operands]]
        return code, places, [code.function.op(f"load i64, ptr {w}") for w in words[operands:]]

    def scalar(self, code: Code, place: str) -> Vec:
        return code.op(self.kind, 1, f"load {self.kind}, ptr {place}")

    def put(self, code: Code, place: str, value: Vec) -> None:
        """Store a scalar, or a vector whole."""
        code.function.line(f"store {value.type} {value.text}, ptr {place}, align {self.size}")

    def load(self, code: Code, place: str, number: int = 0, mask: Vec | None = None) -> Vec:
        """Vector `number` of those from an address on; zeros beyond a mask."""
        place = code.function.offset(place, number * self.width * self.size)
        vector = type_of(self.kind, self.width)
        if mask is None:
            return code.op(self.kind, self.width, f"load {vector}, ptr {place}, align {self.size}")
        zero = code.const(self.kind, 0, self.width)
        name = f"llvm.masked.load.{zero.suffix}.p0"
        code.declarations.add(f"declare {vector} @{name}(ptr, i32, {mask.type}, {vector})")
        given = f"ptr {place}, i32 {self.size}, {mask.type} {mask.text}, {vector} {zero.text}"
        return code.op(self.kind, self.width, f"call {vector} @{name}({given})")

    def store(self, code: Code, place: str, number: int, value: Vec, mask: Vec | None) -> None:
        place = code.function.offset(place, number * self.width * self.size)
        if mask is None:
            return self.put(code, place, value)
        types = (value.type, "ptr", "i32", mask.type)
        name = f"llvm.masked.store.{value.suffix}.p0"
        code.call_void(name, types, (value.text, place, str(self.size), mask.text))

    def singular(self, code: Code, c: str, step: str, n: str) -> str:
        """Whether the diagonal, `step` bytes from number to number, has a zero."""
        f = code.function

        def look(_: str, values: list[str]) -> list[str]:
            place, found = values
            zero = f.op(f"fcmp oeq {self.kind} {self.scalar(code, place).text}, 0.0")
            return [f.offset(place, step), f.op(f"or i1 {found}, {zero}")]

        return f.loop(0, n, 1, look, [("ptr", c), ("i1", "false")])[1]

    def spoil(self, code: Code, wrong: str) -> str:
        """What is added to all results: nothing, or NaN."""
        test = Vec(code, "i1", 1, wrong)
        return test.where(code.const(self.kind, float("nan")), code.const(self.kind, -0.0)).text
