"""Writing one kernel's Python source: lines, names, indices and expressions.

    code = Code(kernel)
    code.value(expr)   # appends "v0 = (b0[i0] + b1[i0])" where needed, returns "v0"

Names say nothing about the kernel they come from (b: buffers, s: scalars, t: scratch, i: axes,
c: cells, v: values), so that kernels of equal structure have equal source and compile once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from fxad.backend.numba import formats
from fxad.backend.numba.prims import prim
from fxad.core import dtypes
from fxad.core.source import Source
from fxad.ir.kernel import (
    Axis,
    Buffer,
    Cast,
    Cell,
    Const,
    Data,
    Expr,
    Get,
    Index,
    IndexValue,
    Kernel,
    Load,
    Param,
    Prim,
    Quot,
    Rem,
    Scalar,
    Store,
    walk,
)


class Code(Source):
    """Source of one kernel's body. header: lines before its loop over points."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.header: list[str] = []
        self.names: dict[Axis | Buffer | Scalar | Cell, str] = {}
        self.offsets: dict[Buffer, str] = {}  # where a scratch buffer begins in its array
        self._memo: dict[int, str] = {}
        for prefix, items in (
            ("b", kernel.buffers),
            ("s", kernel.scalars),
            ("t", kernel.scratch),
        ):
            for item in items:
                self.names[item] = self.fresh(prefix)

    # ------------------------------------------------------------ lines

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """An indented block; what is computed inside is not remembered after it."""
        outer, self._memo = self._memo, dict(self._memo)
        with super().block(header):
            yield
        self._memo = outer

    @contextmanager
    def loops(self, axes: Sequence[Axis]) -> Iterator[None]:
        """Nested loops over `axes` in row-major order."""
        with ExitStack() as stack:
            for axis in axes:
                name = self.names[axis] = self.fresh("i")
                stack.enter_context(self.block(f"for {name} in range({axis.extent}):"))
            stack.enter_context(self.scope())
            yield

    def split(self, point: str, axes: Sequence[Axis]) -> None:
        """Name the axes whose row-major position is `point`."""
        inner = math.prod(a.extent for a in axes)
        for axis in axes:
            inner //= max(axis.extent, 1)
            index = f"{point} // {inner}" if inner > 1 else point
            outer = f"({index}) % {max(axis.extent, 1)}" if axis is not axes[0] else index
            self.names[axis] = self.define(outer, "i")

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Values computed inside are computed anew: memory or cells may have changed."""
        outer, self._memo = self._memo, {}
        yield
        self._memo = outer

    # ------------------------------------------------------------ indices and memory

    def index(self, index: Index) -> str:
        parts = [str(index.const)] if index.const or not index.terms else []
        for atom, factor in index.terms:
            text = self._atom(atom)
            parts.append(text if factor == 1 else f"{text} * {factor}")
        return " + ".join(parts)

    def _atom(self, atom: Axis | Quot | Rem | Data) -> str:
        match atom:
            case Axis():
                return self.names[atom]
            case Quot():
                return f"(({self.index(atom.index)}) // {atom.divisor})"
            case Rem():
                return f"(({self.index(atom.index)}) % {atom.divisor})"
            case Data():
                value = self.value(atom.value)
                if atom.value.dtype == dtypes.uint64:  # keep huge numbers positive
                    value = f"({value} if {value} < u64({atom.size}) else u64({atom.size}))"
                return self.define(f"clamp(i64({value}), {atom.size})")
        raise TypeError(f"not an index atom: {atom!r}")

    def element(self, buffer: Buffer, index: Index) -> str:
        """The memory element, as the target of an assignment or to read its bits."""
        text = self.index(index)
        offset = self.offsets.get(buffer)
        return f"{self.names[buffer]}[{f'{offset} + ' if offset else ''}{text}]"

    def read(self, buffer: Buffer, index: Index) -> str:
        return formats.load(self.element(buffer, index), buffer.dtype)

    # ------------------------------------------------------------ expressions

    def value(self, root: Expr) -> str:
        """A name or a literal that holds the expression."""
        for expr in walk(root):
            if id(expr) not in self._memo:
                self._memo[id(expr)] = self._expression(expr)
        return self._memo[id(root)]

    def _expression(self, expr: Expr) -> str:
        match expr:
            case Const():
                return formats.literal(expr.value, expr.dtype)
            case Param():
                return self.names[expr.scalar]
            case Get():
                return self.names[expr.cell]
            case IndexValue():
                number = f"i64({self.index(expr.index)})"
                return self.define(formats.cast(number, dtypes.int64, expr.dtype))
            case Load():
                return self._load(expr)
            case Prim():
                args = [self._memo[id(a)] for a in expr.args]
                return self.define(prim(expr.name, args, expr.args[-1].dtype, expr.dtype))
            case Cast():
                value = self._memo[id(expr.arg)]
                return self.define(formats.cast(value, expr.arg.dtype, expr.dtype))
        raise TypeError(f"not an expression: {expr!r}")

    def _load(self, load: Load) -> str:
        if load.guard is None:
            return self.define(self.read(load.buffer, load.index))
        element = self.read(load.buffer, load.index)
        other = self.value(load.fill) if load.fill else formats.literal(0, load.dtype)
        name = self.fresh("v")
        with self.block(f"if {self.value(load.guard)}:"):
            self.line(f"{name} = {element}")
        with self.block("else:"):
            self.line(f"{name} = {other}")
        return name

    def converted(self, expr: Expr, dtype) -> str:
        """The expression's value as `dtype`."""
        return formats.cast(self.value(expr), expr.dtype, dtype)

    def store_all(self, stores: Sequence[Store]) -> None:
        """Compute every value, index and guard, then store."""
        ready = []
        for store in stores:
            value = formats.store(
                self.converted(store.value, store.buffer.dtype), store.buffer.dtype
            )
            guard = None if store.guard is None else self.value(store.guard)
            ready.append((self.element(store.buffer, store.index), value, guard))
        for element, value, guard in ready:
            if guard is None:
                self.line(f"{element} = {value}")
                continue
            with self.block(f"if {guard}:"):
                self.line(f"{element} = {value}")
