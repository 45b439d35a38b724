"""Expressions of a Kernel as LLVM values: scopes, lanes, indices.

A value is computed once per scope. What does not depend on the lane axis stays scalar and is
spread over the lanes where it meets a vector. Loops call `hoist` first, which computes before the
loop whatever does not change in it, addresses included.

    values.lanes_along(axis, 16); values.copy = Copy(0, "%i")
    values.value(Load(x, at(axis)))         # one vector load
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fxad.backend.llvm.base.formats import Pair, Value, cast, is_unsigned, kind_of
from fxad.backend.llvm.base.vector import Code, Vec, bits_of
from fxad.backend.llvm.elements import prims
from fxad.core.record import valued
from fxad.ir import kernel as ir

I32 = np.dtype("int32")
I64 = np.dtype("int64")
_COMPARISONS = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])
Atom = ir.Axis | ir.Quot | ir.Rem | ir.Data
Need = ir.Axis | ir.Cell | ir.Buffer


@valued
class Copy:
    """One vector of an unrolled loop: lane 0 is position base + offset of the lane axis."""

    number: int
    base: str
    offset: int = 0
    mask: Vec | None = None


ONLY = Copy(0, "0")


class Values:
    """Evaluates expressions into the function under construction."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.f = code.function
        self.env: dict[ir.Axis, str] = {}
        self.params: dict[ir.Scalar, Value] = {}
        self.cells: dict[ir.Cell, dict[int, Value]] = {}
        self.varying_cells: set[ir.Cell] = set()
        self.lane_axis: ir.Axis | None = None
        self.width = 1
        self.copies: list[Copy] = [ONLY]
        self.copy = ONLY
        self.scopes: list[dict] = [{}]
        self._needs: dict[int, frozenset[Need]] = {}
        self._index_needs: dict[ir.Index, frozenset[Need]] = {}

    # ------------------------------------------------------------ what a value depends on

    def needs(self, expr: ir.Expr) -> frozenset[Need]:
        """Axes, cells and writable buffers below an expression."""
        known = self._needs.get(id(expr))
        if known is None:
            for e in ir.walk(expr):
                if id(e) not in self._needs:
                    self._needs[id(e)] = self._own_needs(e)
            known = self._needs[id(expr)]
        return known

    def _own_needs(self, e: ir.Expr) -> frozenset[Need]:
        found: set[Need] = set()
        for child in ir.children(e):
            found |= self.needs(child)
        if isinstance(e, ir.Load | ir.IndexValue):
            found |= self.index_needs(e.index)
        if isinstance(e, ir.Load) and e.buffer.role != "in":
            found.add(e.buffer)
        if isinstance(e, ir.Get):
            found.add(e.cell)
        return frozenset(found)

    def index_needs(self, index: ir.Index) -> frozenset[Need]:
        known = self._index_needs.get(index)
        if known is None:
            known = frozenset().union(*(self.atom_needs(a) for a, _ in index.terms))
            self._index_needs[index] = known
        return known

    def atom_needs(self, atom: Atom) -> frozenset[Need]:
        match atom:
            case ir.Axis():
                return frozenset((atom,))
            case ir.Data():
                return self.needs(atom.value)
            case _:
                return self.index_needs(atom.index)

    def _is_varying(self, needs: frozenset[Need]) -> bool:
        return self.width > 1 and (
            self.lane_axis in needs or not self.varying_cells.isdisjoint(needs)
        )

    def varies(self, expr: ir.Expr) -> bool:
        """Does it differ between lanes?"""
        return self._is_varying(self.needs(expr))

    # ------------------------------------------------------------ scopes

    def find(self, key: object) -> Any:
        """What a scope remembers under a key, or None."""
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]
        return None

    def _key(self, expr: ir.Expr) -> object:
        return (id(expr), self.copy.number) if self._per_copy(expr) else id(expr)

    def _per_copy(self, expr: ir.Expr) -> bool:
        needs = self.needs(expr)
        return self.lane_axis in needs or not self.varying_cells.isdisjoint(needs)

    def lanes_along(self, axis: ir.Axis | None, width: int) -> None:
        self.lane_axis, self.width = axis, width
        self.copies, self.copy = [ONLY], ONLY

    def each_copy(self) -> Iterator[Copy]:
        """Make each vector of the unrolled loop the current one in turn; their code is mixed."""
        starts = []
        for copy in self.copies:
            self.copy = copy
            starts.append(len(self.f.lines))
            yield copy
        self.f.take_turns(starts)

    def hoist(self, roots: Iterable[ir.Expr], blocked: frozenset[Need], width: int = 1) -> None:
        """Compute here what does not depend on `blocked`; spread it over `width` lanes."""
        seen: set[int] = set()
        stack = list(roots)
        while stack:
            e = stack.pop()
            if id(e) in seen or isinstance(e, ir.Const):
                continue
            seen.add(id(e))
            if blocked.isdisjoint(self.needs(e)):
                for _ in self.each_copy() if self._per_copy(e) else (self.copy,):
                    value = self.value(e)
                    if width > 1 and isinstance(value, Vec) and value.width == 1:
                        self.splat(value, width)
                continue
            if isinstance(e, ir.Load):
                self.hoist_index(e.buffer, e.index, blocked)
            stack += ir.children(e)

    def hoist_index(self, buffer: ir.Buffer, index: ir.Index, blocked: frozenset[Need]) -> None:
        """Add to a buffer's address whatever is known of the index already."""
        raise NotImplementedError

    # ------------------------------------------------------------ expressions

    def value(self, expr: ir.Expr) -> Value:
        """The register value of an expression at the current point (and copy)."""
        known = self.find(self._key(expr))
        if known is not None:
            return known
        for e in self._unknown(expr):
            self.scopes[-1][self._key(e)] = self._compute(e)
        return self.scopes[-1][self._key(expr)]

    def _unknown(self, root: ir.Expr) -> Iterator[ir.Expr]:
        """Not yet computed expressions below root, children first."""
        done: set[int] = set()
        stack = [(root, False)]
        while stack:
            e, ready = stack.pop()
            if id(e) in done:
                continue
            if ready:
                done.add(id(e))
                yield e
            elif self.find(self._key(e)) is None:
                stack.append((e, True))
                stack += [(c, False) for c in reversed(ir.children(e))]
            else:
                done.add(id(e))

    def splat(self, value: Value, width: int) -> Value:
        """`value` in every lane, remembered in this scope."""
        if isinstance(value, Pair):
            return Pair(self.splat(value.re, width), self.splat(value.im, width))
        if value.width == width or not value.text.startswith("%"):
            return value.splat(width)
        key = ("splat", value.text, width)
        known = self.find(key)
        if known is None:
            known = self.scopes[-1][key] = value.splat(width)
        return known

    def _compute(self, e: ir.Expr) -> Value:
        match e:
            case ir.Const():
                return self.constant(e.value, e.dtype)
            case ir.Param():
                return self.params[e.scalar]
            case ir.Get():
                return self.cells[e.cell][self.copy.number if e.cell in self.varying_cells else 0]
            case ir.IndexValue():
                return self._index_value(e.index, e.dtype)
            case ir.Load():
                guard = None if e.guard is None else self.value(e.guard)
                fill = None if e.fill is None else self.value(e.fill)
                return self.load(e.buffer, e.index, guard, fill, self.varies(e))
            case ir.Cast():
                return cast(self.value(e.arg), e.arg.dtype, e.dtype)
            case ir.Prim(name, (ir.IndexValue() as a, ir.IndexValue() as b)) if (
                name in _COMPARISONS and self._is_short(a) and self._is_short(b)
            ):
                args = [self._index_value(x.index, I32) for x in (a, b)]
                wide = max(x.width for x in args)
                return prims.apply(name, [self.splat(x, wide) for x in args], I32, e.dtype)
            case ir.Prim():
                args = [self.value(a) for a in e.args]
                wide = max(a.width for a in args)
                args = [self.splat(a, wide) for a in args]
                return prims.apply(e.name, args, e.args[-1].dtype, e.dtype)
        raise TypeError(f"not an expression: {e!r}")

    def load(
        self,
        buffer: ir.Buffer,
        index: ir.Index,
        guard: Vec | None,
        fill: Value | None,
        wide: bool,
    ) -> Value:
        raise NotImplementedError

    def constant(self, value: bool | int | float | complex, dtype: np.dtype) -> Value:
        kind = kind_of(dtype)
        if isinstance(value, complex) or dtype.kind == "c":
            number = complex(value)
            return Pair(self.code.const(kind, number.real), self.code.const(kind, number.imag))
        if kind in ("float", "double"):
            value = float(np.asarray(value).astype(dtype))
        return self.code.const(kind, value)

    # ------------------------------------------------------------ indices

    def _index_value(self, index: ir.Index, dtype: np.dtype) -> Value:
        if not self._is_varying(self.index_needs(index)):
            return cast(Vec(self.code, "i64", 1, self.scalar_index(index)), I64, dtype)
        own = self._index_dtype(index)
        return cast(self.lane_index(index, kind_of(own)), own, dtype)

    def _is_short(self, e: ir.IndexValue) -> bool:
        """Whether an integer has the same value in 32 bits."""
        return e.dtype in (I32, I64) and self._index_dtype(e.index) == I32

    def _index_dtype(self, index: ir.Index) -> np.dtype:
        low, high = index.bounds()
        return I32 if low > -(2**31) and high < 2**31 else I64

    def scalar_index(self, index: ir.Index) -> str:
        """A lane-independent index as an i64."""
        total: str | int = index.const
        for atom, coefficient in index.terms:
            total = self.f.add(self.f.mul(self.scalar_atom(atom), coefficient), total)
        return str(total)

    def scalar_atom(self, atom: Atom) -> str:
        if isinstance(atom, ir.Axis):
            return self.env[atom]
        known = self.find(("atom", atom))
        if known is None:
            known = self.scopes[-1][("atom", atom)] = self._scalar_atom(atom)
        return known

    def _scalar_atom(self, atom: ir.Quot | ir.Rem | ir.Data) -> str:
        if isinstance(atom, ir.Data):
            return self._data(atom, "i64").text
        index, shift = _nonnegative(atom.index, atom.divisor)
        inner = self.scalar_index(index)
        if isinstance(atom, ir.Rem):
            return self.f.op(f"urem i64 {inner}, {atom.divisor}")
        return self.f.add(self.f.op(f"udiv i64 {inner}, {atom.divisor}"), -shift)

    def lane_index(self, index: ir.Index, kind: str) -> Vec:
        """An index in every lane."""
        uniform: str | int = index.const
        total: Vec | None = None
        for atom, coefficient in index.terms:
            if self._is_varying(self.atom_needs(atom)):
                term = self.lane_atom(atom, kind) * coefficient
                total = term if total is None else total + term
            else:
                uniform = self.f.add(self.f.mul(self.scalar_atom(atom), coefficient), uniform)
        base = Vec(self.code, "i64", 1, str(uniform))
        if total is None:
            return self.splat(_narrow(base, kind), self.width)
        if str(uniform) == "0":
            return total
        return total + self.splat(_narrow(base, kind), self.width)

    def lane_atom(self, atom: Atom, kind: str) -> Vec:
        key = ("lanes", atom, kind, self.copy.number)
        known = self.find(key)
        if known is None:
            known = self.scopes[-1][key] = self._lane_atom(atom, kind)
        return known

    def _lane_atom(self, atom: Atom, kind: str) -> Vec:
        if isinstance(atom, ir.Axis):
            base = _narrow(Vec(self.code, "i64", 1, self.copy.base), kind)
            lanes = self.code.iota(kind, self.width, self.copy.offset)
            return self.splat(base, self.width) + lanes
        if isinstance(atom, ir.Data):
            return self._data(atom, kind).splat(self.width)
        index, shift = _nonnegative(atom.index, atom.divisor)
        inner_kind = kind if self._index_dtype(index) == I32 else "i64"
        inner = self.lane_index(index, inner_kind)
        if isinstance(atom, ir.Rem):
            return _narrow(inner.binary("urem", atom.divisor), kind)
        return _narrow(inner.binary("udiv", atom.divisor), kind) - shift

    def _data(self, atom: ir.Data, kind: str) -> Vec:
        """The clamped integer read from an array, as `kind`."""
        x = self.value(atom.value)
        dtype = atom.value.dtype
        limit = max(atom.size - 1, 0)
        unsigned = is_unsigned(dtype)
        if x.kind == "i1":
            x = x.convert("zext", "i32")
        if not unsigned:
            x = self.code.intrinsic("smax", x, x.like(0))
        if limit < (1 << (bits_of(x.kind) - (not unsigned))) - 1:
            x = self.code.intrinsic("umin", x, x.like(limit))
        return _narrow(x, kind, "zext")


def _nonnegative(index: ir.Index, divisor: int) -> tuple[ir.Index, int]:
    """(index + k * divisor, k) that is never negative: division needs no sign then."""
    low, _ = index.bounds()
    shift = -(low // divisor) if low < 0 else 0
    return index + shift * divisor, shift


def _narrow(x: Vec, kind: str, widen: str = "sext") -> Vec:
    """An integer as another kind; constants fold."""
    if x.kind == kind:
        return x
    if x.width == 1 and not x.text.startswith("%"):
        return x.code.const(kind, int(x.text))
    return x.convert("trunc" if bits_of(kind) < bits_of(x.kind) else widen, kind)


def roots_with_guards(stores: Sequence[ir.Store]) -> list[ir.Expr]:
    """Values and guards of stores."""
    return [s.value for s in stores] + [s.guard for s in stores if s.guard is not None]
