"""The function of a sequence while it is written: its text, its stack, and where slots lie."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.backend.llvm.base.text import Function
from fxad.ir.plan import Slot


class Body:
    """pointers: where every slot lies at this point of the function. stack: lines that reserve
    pieces of it; words: the most that a call is handed. declarations: of functions that it calls.
    """

    def __init__(self, f: Function) -> None:
        self.f = f
        self.pointers: dict[Slot, str] = {}
        self.stack: list[str] = []
        self.words = 0
        self.declarations = {"declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"}

    def reserve(self, name: str, nbytes: int) -> str:
        """A piece of the stack, aligned for any vector."""
        self.stack.append(f"  %{name} = alloca [{max(nbytes, 8)} x i8], align 64")
        return f"%{name}"

    def copy(self, to: str, source: str, nbytes: int) -> None:
        if nbytes and to != source:
            arguments = f"ptr {to}, ptr {source}, i64 {nbytes}, i1 false"
            self.f.line(f"call void @llvm.memcpy.p0.p0.i64({arguments})")

    def call(self, function: str, words: Sequence[str], units: int = 1) -> None:
        """Call something of a kernel's signature."""
        self.words = max(self.words, len(words))
        for n, word in enumerate(words):
            self.f.line(f"store {word}, ptr {self.f.offset('%words', 8 * n)}, align 8")
        self.f.line(f"call void {function}(ptr %words, i64 0, i64 {units}, ptr %scratch)")
