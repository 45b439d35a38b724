"""Kernels as text, and the key under which equal kernels share code.

    kernel(in0: f32[8], out0: f32[8]; s0: f32) grid(i: 8)
      map()
        out0[i] = mul(exp(in0[i]), s0)

Names come from positions alone, so two kernels that differ only in names (or in the equations
they came from) print alike and have the same key. A value used twice is printed once, as `v0 =`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np

from fxad.core.dtypes import is_bool, short_name
from fxad.core.errors import CheckError
from fxad.ir import kernel as k
from fxad.ir.prims import PRIMS, truth

N = TypeVar("N", k.Axis, k.Buffer, k.Scalar, k.Cell)
_DEPTH = 12  # nesting of one printed line
_AXIS_NAMES = "ijklmnopqrstuvwxyzabcdefgh"


_NAMEABLE = (k.Prim, k.Cast, k.Load, k.IndexValue)  # expressions that may get a line of their own


def kernel_text(kernel: k.Kernel) -> str:
    """The kernel as readable text. Raises CheckError for an axis, buffer or cell never declared."""
    return _Printer(kernel).text()


def kernel_key(kernel: k.Kernel) -> str:
    """A hash (40 hex digits) of everything that the code of a kernel depends on."""
    return hashlib.sha256(kernel_text(kernel).encode()).hexdigest()[:40]


class _Printer:
    def __init__(self, kernel: k.Kernel) -> None:
        self.kernel = kernel
        self.axes: dict[k.Axis, str] = {}
        self.buffers: dict[k.Buffer, str] = {}
        self.roles: dict[str, int] = {}  # number of the last buffer of each
        self.scalars = {scalar: f"s{i}" for i, scalar in enumerate(kernel.scalars)}
        self.cells: dict[k.Cell, str] = {}
        self.values: dict[int, str] = {}  # expressions already printed on a line of their own
        self.count = 0
        self.lines: list[str] = []

    def text(self) -> str:
        kernel = self.kernel
        params = ", ".join(self._declare(buffer) for buffer in kernel.buffers)
        scalars = ", ".join(f"{n}: {short_name(s.dtype)}" for s, n in self.scalars.items())
        head = f"kernel({params}{'; ' if scalars else ''}{scalars}) grid({self._bind(kernel.grid)})"
        scratch = [f"  scratch {self._declare(buffer)}" for buffer in kernel.scratch]
        self.lines = [head, *scratch]
        for stage in kernel.body:
            self._stage(stage)
        return "\n".join(self.lines) + "\n"

    def _declare(self, buffer: k.Buffer) -> str:
        prefix = "t" if buffer.role == "scratch" else buffer.role
        number = self.roles[buffer.role] = self.roles.get(buffer.role, -1) + 1
        self.buffers[buffer] = f"{prefix}{number}"
        return f"{prefix}{number}: {short_name(buffer.dtype)}[{buffer.size}]"

    def _bind(self, axes: Iterable[k.Axis]) -> str:
        for axis in axes:
            turn, letter = divmod(len(self.axes), len(_AXIS_NAMES))
            self.axes.setdefault(axis, _AXIS_NAMES[letter] + (str(turn) if turn else ""))
        return ", ".join(f"{self.axes[axis]}: {axis.extent}" for axis in axes)

    def _cell(self, cell: k.Cell) -> str:
        self.cells.setdefault(cell, f"c{len(self.cells)}")
        return f"{self.cells[cell]}: {short_name(cell.dtype)}"

    # ------------------------------------------------------------ stages

    def _stage(self, stage: k.Stage) -> None:
        self.values = {}
        head = self._head(stage)  # binds the axes and cells that the lines below name
        at = len(self.lines)
        self._share(k.exprs_of(stage))
        body = self._operands(stage)
        self.lines.insert(at, f"  {head}")
        self.lines += [f"    {line}" for line in body]
        self.lines += [f"    {self._store(store)}" for store in k.stores_of(stage)]

    def _head(self, stage: k.Stage) -> str:
        match stage:
            case k.Map():
                return f"map({self._bind(stage.axes)})"
            case k.Reduce():
                cells = ", ".join(map(self._cell, stage.cells))
                over = self._bind(stage.over)
                return f"{cells} = reduce {stage.monoid} {stage.order} over({over})"
            case k.Scan():
                back = " reverse" if stage.reverse else ""
                axis = self._bind((stage.axis,))
                return f"{self._cell(stage.cell)} = scan {stage.monoid} along({axis}){back}"
            case k.Scatter():
                return f"scatter {stage.monoid} over({self._bind(stage.over)})"
            case k.Sort():
                cells = ", ".join(map(self._cell, stage.cells))
                text = f"{cells} = sort along({self._bind((stage.axis,))}) keys {stage.keys}"
                if stage.largest is None:
                    return text
                return f"{text} largest({self._bind((stage.largest,))})"
            case k.Contract():
                axes = f"m {self._bind((stage.m,))}, n {self._bind((stage.n,))}"
                axes += f", k {self._bind((stage.k,))}"
                marks = " skinny" * stage.skinny + " streaming" * stage.streaming
                return f"{self._cell(stage.cell)} = contract({axes}){marks}"
            case k.Attend():
                return self._attend(stage)
            case k.AttendGrad():
                return f"{self._attend(stage.attend)} grad group({self._bind((stage.group,))})"
        raise CheckError(f"kernel {self.kernel.name}: not a stage: {stage!r}")

    def _attend(self, stage: k.Attend) -> str:
        axes = f"rows {self._bind((stage.rows,))}, keys {self._bind((stage.keys,))}"
        axes += f", depth {self._bind((stage.depth,))}, width {self._bind((stage.width,))}"
        return f"{self._cell(stage.score)} = attend({axes})"

    def _attend_lines(self, stage: k.Attend) -> list[str]:
        sides = {"q": stage.q, "k": stage.k, "v": stage.v, "out": stage.out, "lse": stage.lse}
        return [
            *(f"{n} {self._place(x.buffer, x.index)}" for n, x in sides.items()),
            f"logit {self._expr(stage.logit)}",
            f"from {self._index(stage.lower)} to {self._index(stage.upper)}",
        ]

    def _operands(self, stage: k.Stage) -> list[str]:
        match stage:
            case k.Reduce():
                return [f"of {self._expr(value)}" for value in stage.values]
            case k.Scan():
                return [f"of {self._expr(stage.value)}"]
            case k.Sort():
                return [f"of {self._expr(value)}" for value in stage.operands]
            case k.Contract():
                return [f"of {self._factor(side)}" for side in (stage.a, stage.b)]
            case k.Attend():
                return self._attend_lines(stage)
            case k.AttendGrad():
                more = {"delta": stage.delta, "dq": stage.dq, "dk": stage.dk, "dv": stage.dv}
                return [
                    *self._attend_lines(stage.attend),
                    *(f"{n} {self._place(x.buffer, x.index)}" for n, x in more.items()),
                    f"slope {self._expr(stage.slope)}",
                ]
            case _:
                return []

    def _factor(self, operand: k.Operand) -> str:
        place = self._place(operand.buffer, operand.index)
        return place if operand.rounded is None else f"{short_name(operand.rounded)}({place})"

    def _store(self, store: k.Store) -> str:
        guard = f"if {self._expr(store.guard)}: " if store.guard is not None else ""
        return f"{guard}{self._place(store.buffer, store.index)} = {self._expr(store.value)}"

    # ------------------------------------------------------------ expressions

    def _share(self, roots: tuple[k.Expr, ...]) -> None:
        """Print every value that is used more than once, before the first use.

        Deeply nested values get lines of their own too: lines stay short and recursion shallow.
        """
        order = [(expr, [id(child) for child in k.children(expr)]) for expr in k.walk(*roots)]
        uses: dict[int, int] = {}  # a Counter takes several times as long
        for inner in ([id(root) for root in roots], *[inner for _, inner in order]):
            for child in inner:
                uses[child] = uses.get(child, 0) + 1
        depth: dict[int, int] = {}
        for expr, inner in order:
            depth[id(expr)] = 1 + max([depth[child] for child in inner], default=0)
            if not isinstance(expr, _NAMEABLE):
                continue
            if uses[id(expr)] > 1 or depth[id(expr)] > _DEPTH:
                text = self._expr(expr)
                depth[id(expr)] = 0
                self.values[id(expr)] = f"v{self.count}"
                self.lines.append(f"    v{self.count} = {text}")
                self.count += 1

    def _expr(self, expr: k.Expr) -> str:
        known = self.values.get(id(expr))
        if known is not None:
            return known
        match expr:
            case k.Const():
                return f"{short_name(expr.dtype)}({_number(expr.value, expr.dtype)})"
            case k.Param():
                return self._named(self.scalars, expr.scalar)
            case k.Get():
                return self._named(self.cells, expr.cell)
            case k.IndexValue():
                return f"{short_name(expr.dtype)}({self._index(expr.index)})"
            case k.Load():
                return self._load(expr)
            case k.Cast():
                return f"{short_name(expr.dtype)}<-{self._expr(expr.arg)}"
            case k.Prim():
                args = ", ".join(map(self._expr, expr.args))
                return f"{expr.name}{_result_dtype(expr)}({args})"
        raise CheckError(f"kernel {self.kernel.name}: not an expression: {expr!r}")

    def _load(self, load: k.Load) -> str:
        place = self._place(load.buffer, load.index)
        if load.guard is None:
            return place
        fill = self._expr(load.fill) if load.fill is not None else "nothing"
        return f"({place} if {self._expr(load.guard)} else {fill})"

    def _place(self, buffer: k.Buffer, index: k.Index) -> str:
        return f"{self._named(self.buffers, buffer)}[{self._index(index)}]"

    def _named(self, names: Mapping[N, str], item: N) -> str:
        try:
            return names[item]
        except KeyError:
            raise CheckError(
                f"kernel {self.kernel.name}: {type(item).__name__.lower()} {item.name!r} is used "
                "but neither the kernel nor an enclosing stage declares it"
            ) from None

    def _index(self, index: k.Index) -> str:
        terms = [
            self._atom(atom) if c == 1 else f"{c}*{self._atom(atom)}" for atom, c in index.terms
        ]
        if index.const or not terms:
            terms.append(str(index.const))
        return " + ".join(terms)

    def _atom(self, atom: k.Axis | k.Quot | k.Rem | k.Data) -> str:
        match atom:
            case k.Axis():
                return self._named(self.axes, atom)
            case k.Quot():
                return f"(({self._index(atom.index)}) // {atom.divisor})"
            case k.Rem():
                return f"(({self._index(atom.index)}) % {atom.divisor})"
            case k.Data():
                return f"data({self._expr(atom.value)}, {atom.size})"
        raise CheckError(f"kernel {self.kernel.name}: not an index atom: {atom!r}")


def _number(value: bool | int | float | complex, dtype: np.dtype) -> str:
    """Digits that tell any two values of the dtype apart, signed zeros included."""
    if is_bool(dtype):
        return str(bool(value)).lower()
    if isinstance(value, np.generic):
        value = value.item()
    return repr(value)


def _result_dtype(prim: k.Prim) -> str:
    """`:dtype` where the arguments do not tell the result's dtype."""
    if PRIMS[prim.name].result is truth:
        return "" if is_bool(prim.dtype) else f":{short_name(prim.dtype)}"
    same = prim.args[-1].dtype == prim.dtype if prim.args else False
    return "" if same else f":{short_name(prim.dtype)}"
