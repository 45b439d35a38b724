"""What a Kernel means, in NumPy: the executable specification that every backend is tested with.

    run_kernel(kernel, [x, y], [2.0])      # flat arrays in the order of kernel.buffers, in place

Every stage is done for all grid points at once: values are arrays over grid axes followed by the
stage's axes. Slow and plain; transcendental functions are computed in double (or by mpmath where
NumPy lacks them) and rounded. Half-width floats compute in float32, round once per Prim, and
bf16 results that are denormal become zero; neg, abs, copysign, select, min and max move bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fxad.backend import reference_attention, reference_prims
from fxad.backend.reference_prims import cast, round_to
from fxad.ir import kernel as ir
from fxad.ir.orders import PARTIALS, k_block
from fxad.ir.packed import blocks_of, unpacked


class _Run:
    """Evaluation of one kernel call."""

    def __init__(self, kernel: ir.Kernel, arrays: Sequence[np.ndarray], scalars: Sequence) -> None:
        self.grid = kernel.grid
        self.shape = tuple(a.extent for a in kernel.grid)
        self.buffers = dict(zip(kernel.buffers, arrays, strict=True))
        # A scratch buffer is private to a grid point: one row for each.
        self.scratch = {b: np.zeros((kernel.points, b.size), b.dtype) for b in kernel.scratch}
        self.scalars = {
            s: np.asarray(v, s.dtype) for s, v in zip(kernel.scalars, scalars, strict=True)
        }
        self.cells: dict[ir.Cell, np.ndarray] = {}
        self.axes: tuple[ir.Axis, ...] = ()
        self.env: dict[ir.Axis, np.ndarray] = {}
        self.memo: dict[int, np.ndarray] = {}

    def enter(self, axes: Sequence[ir.Axis]) -> tuple[int, ...]:
        """Work over grid + axes from now on; returns that shape."""
        self.axes = (*self.grid, *axes)
        self.memo = {}
        rank = len(self.axes)
        for n, axis in enumerate(self.axes):
            shape = [1] * rank
            shape[n] = axis.extent
            self.env[axis] = np.arange(axis.extent, dtype=np.int64).reshape(shape)
        return tuple(a.extent for a in self.axes)

    # ------------------------------------------------------------ values

    def index(self, index: ir.Index) -> np.ndarray:
        total = np.asarray(index.const, np.int64)
        for atom, coefficient in index.terms:
            total = total + coefficient * self.atom(atom)
        return total

    def atom(self, atom: ir.Axis | ir.Quot | ir.Rem | ir.Data) -> np.ndarray:
        match atom:
            case ir.Axis():
                return self.env[atom]
            case ir.Quot():
                return self.index(atom.index) // atom.divisor
            case ir.Rem():
                return self.index(atom.index) % atom.divisor
            case ir.Data():
                value = self.value(atom.value)
                if value.dtype == np.uint64:
                    value = np.minimum(value, np.uint64(max(atom.size - 1, 0)))
                return np.clip(value.astype(np.int64), 0, max(atom.size - 1, 0))
        raise TypeError(f"not an index atom: {atom!r}")

    def value(self, expr: ir.Expr) -> np.ndarray:
        for e in ir.walk(expr):
            if id(e) not in self.memo:
                self.memo[id(e)] = self._value(e)
        return self.memo[id(expr)]

    def _value(self, e: ir.Expr) -> np.ndarray:
        match e:
            case ir.Const():
                return np.asarray(e.value).astype(e.dtype)
            case ir.Param():
                return self.scalars[e.scalar]
            case ir.Get():
                cell = self.cells[e.cell]
                return cell.reshape(cell.shape + (1,) * (len(self.axes) - cell.ndim))
            case ir.IndexValue():
                return cast(self.index(e.index), e.dtype)
            case ir.Load():
                return self.load(e)
            case ir.Cast():
                return cast(self.value(e.arg), e.dtype)
            case ir.Prim():
                args = [self.value(a) for a in e.args]
                return reference_prims.apply(e.name, args, e.dtype)
        raise TypeError(f"not an expression: {e!r}")

    def load(self, e: ir.Load) -> np.ndarray:
        at = self.index(e.index)
        if e.guard is None:
            return self.read(e.buffer, at)
        guard = self.value(e.guard)
        fill = np.zeros((), e.dtype) if e.fill is None else self.value(e.fill)
        at, guard, fill = np.broadcast_arrays(at, guard, fill)
        result = np.array(fill)
        if guard.any():
            result[guard] = self.read(e.buffer, at, guard)
        return result

    def read(
        self, buffer: ir.Buffer, at: np.ndarray, guard: np.ndarray | None = None
    ) -> np.ndarray:
        if buffer in self.buffers:
            return self.buffers[buffer][at if guard is None else at[guard]]
        point = self.point_number()
        if guard is None:
            return self.scratch[buffer][point, at]
        point = np.broadcast_to(point, guard.shape)
        return self.scratch[buffer][point[guard], at[guard]]

    def point_number(self) -> np.ndarray:
        """Row-major number of the grid point."""
        number = np.asarray(0, np.int64)
        for axis in self.grid:
            number = number * axis.extent + self.env[axis]
        return number

    # ------------------------------------------------------------ stages

    def store(self, shape: tuple[int, ...], stores: Sequence[ir.Store]) -> None:
        ready = []
        for s in stores:
            guard = True if s.guard is None else self.value(s.guard)
            ready.append((s, self.index(s.index), self.value(s.value), guard))
        for s, at, value, guard in ready:
            guard = np.broadcast_to(guard, shape)
            at = np.broadcast_to(at, shape)[guard]
            value = np.broadcast_to(value, shape)[guard]
            if s.buffer in self.buffers:
                self.buffers[s.buffer][at] = value
            else:
                point = np.broadcast_to(self.point_number(), shape)[guard]
                self.scratch[s.buffer][point, at] = value

    def run(self, stage: ir.Stage) -> None:
        match stage:
            case ir.Map():
                self.store(self.enter(stage.axes), stage.stores)
            case ir.Reduce():
                self.reduce(stage)
            case ir.Scan():
                self.scan(stage)
            case ir.Scatter():
                self.scatter(stage)
            case ir.Sort():
                self.sort(stage)
            case ir.Contract():
                self.contract(stage)
            case ir.Unpack():
                self.unpack(stage)
            case ir.Attention():
                reference_attention.attention(self, stage)
            case ir.AttentionGrad():
                reference_attention.attention_grad(self, stage)
            case _:
                raise TypeError(f"not a stage: {stage!r}")

    def flat_values(self, stage: ir.Reduce) -> list[np.ndarray]:
        """Values as [grid..., points of over], in accumulator dtypes."""
        shape = self.enter(stage.over)
        points = math.prod(a.extent for a in stage.over)
        if points == 0:
            return [np.zeros((*self.shape, 0), c.dtype) for c in stage.cells]
        return [
            np.broadcast_to(accumulated(self.value(v), c.dtype), shape).reshape(*self.shape, points)
            for v, c in zip(stage.values, stage.cells, strict=False)
        ]

    def reduce(self, stage: ir.Reduce) -> None:
        values = self.flat_values(stage)
        if stage.monoid in ("argmin", "argmax"):
            best, place = argument(values[0], stage.monoid)
            self.cells[stage.cells[0]], self.cells[stage.cells[1]] = best, place
            return
        last = stage.over[-1].extent if stage.over else 1
        for value, cell in zip(values, stage.cells, strict=True):
            result = in_lanes if stage.order == "lanes" else in_series
            self.cells[cell] = round_to(result(value, stage.monoid, last, cell.dtype), cell.dtype)

    def scan(self, stage: ir.Scan) -> None:
        self.enter((stage.axis,))
        extent = stage.axis.extent
        total = identity(stage.monoid, stage.cell.dtype, self.shape)
        positions = range(extent - 1, -1, -1) if stage.reverse else range(extent)
        for j in positions:
            shape = self.enter((stage.axis,))[:-1] + (1,)
            self.env[stage.axis] = np.full((1,) * len(shape), j)
            value = accumulated(self.value(stage.value), stage.cell.dtype)
            value = np.broadcast_to(value, shape).reshape(self.shape)
            total = combine(stage.monoid, total, value, stage.cell.dtype)
            self.cells[stage.cell] = round_to(total, stage.cell.dtype)
            self.store(shape, stage.stores)

    def scatter(self, stage: ir.Scatter) -> None:
        shape = self.enter(stage.over)
        store = stage.store
        if math.prod(shape) == 0:
            return
        guard = True if store.guard is None else self.value(store.guard)
        parts = (self.index(store.index), self.value(store.value), guard)
        at, value, guard = (np.broadcast_to(p, shape).ravel() for p in parts)
        target = self.buffers[store.buffer]
        for i in np.nonzero(guard)[0]:
            new = accumulated(value[i], target.dtype)
            if stage.monoid != "set":
                old = accumulated(target[at[i]], target.dtype)
                new = combine(stage.monoid, old, new, target.dtype)
            target[at[i]] = round_to(new, target.dtype)

    def sort(self, stage: ir.Sort) -> None:
        shape = self.enter((stage.axis,))
        if math.prod(shape) == 0:
            return
        operands = [np.broadcast_to(self.value(v), shape) for v in stage.operands]
        keys = [accumulated(k, k.dtype) for k in operands[: stage.keys]]
        if stage.largest is None:
            order = np.lexsort(tuple(reversed(keys)), axis=-1)
        else:  # ascending order of the reversed rows, reversed: of equals the first comes first
            order = np.lexsort((np.flip(keys[0], -1),), axis=-1)
            order = stage.axis.extent - 1 - np.flip(order, -1)[..., : stage.largest.extent]
            self.cells[stage.cells[-1]] = order.astype(np.int32)
            shape = self.enter((stage.largest,))
        for operand, cell in zip(operands, stage.cells, strict=False):
            self.cells[cell] = np.take_along_axis(operand, order, axis=-1)
        self.store(shape, stage.stores)

    def contract(self, stage: ir.Contract) -> None:
        shape = self.enter((stage.m, stage.n))
        block = max(k_block(stage.k.extent), 1)
        total = np.zeros(shape, stage.cell.dtype)
        exact = stage.cell.dtype.kind in "biu"
        wide = stage.cell.dtype if exact else np.result_type(stage.cell.dtype, np.float64)
        for start in range(0, stage.k.extent, block):
            part = np.zeros(shape, stage.cell.dtype)
            for k in range(start, min(start + block, stage.k.extent)):
                self.env[stage.k] = np.asarray(k)
                a, b = (cast(self.factors(o), stage.cell.dtype) for o in (stage.a, stage.b))
                part = (a.astype(wide) * b + part).astype(stage.cell.dtype)
            total = total + part
        self.cells[stage.cell] = total
        self.store(shape, stage.stores)

    def factors(self, operand: ir.Operand) -> np.ndarray:
        """Elements of a matrix operand, of its dtype."""
        at = self.index(operand.index)
        if (packed := operand.packed) is None:
            return cast(self.read(operand.buffer, at), operand.dtype)
        blocks = blocks_of(packed.columns)
        scales = self.buffers[packed.scales].reshape(-1, blocks)
        codes = self.buffers[operand.buffer].reshape(len(scales), -1)
        whole = unpacked(codes, scales, packed.format, packed.columns)
        return cast(whole.reshape(-1)[at], operand.dtype)

    def unpack(self, stage: ir.Unpack) -> None:
        shape = self.enter((stage.columns,))
        values = np.broadcast_to(self.factors(stage.source), shape)
        self.buffers[stage.out.buffer][np.broadcast_to(self.index(stage.out.index), shape)] = values


def accumulated(value: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A value in the dtype its accumulator computes in: float32 for narrow floats."""
    return cast(value, dtype).astype(reference_prims.compute_dtype(dtype))


def identity(monoid: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    wide = reference_prims.compute_dtype(dtype)
    value: bool | int | float
    match monoid:
        case "add" | "or":
            value = 0
        case "mul":
            value = 1
        case "and":
            value = True if wide.kind == "b" else wide.type(~wide.type(0))
        case _:
            value = reference_prims.extreme(wide, highest=monoid == "min")
    return np.full(shape, value, wide)


def combine(monoid: str, a: np.ndarray, b: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return reference_prims.apply(monoid, [a, b], reference_prims.compute_dtype(dtype))


def in_series(value: np.ndarray, monoid: str, last: int, dtype: np.dtype) -> np.ndarray:
    total = identity(monoid, dtype, value.shape[:-1])
    for j in range(value.shape[-1]):
        total = combine(monoid, total, value[..., j], dtype)
    return total


def in_lanes(value: np.ndarray, monoid: str, last: int, dtype: np.dtype) -> np.ndarray:
    partial = identity(monoid, dtype, (*value.shape[:-1], PARTIALS))
    for row in range(0, value.shape[-1], max(last, 1)):
        for start in range(row, row + last, PARTIALS):
            chunk = value[..., start : min(start + PARTIALS, row + last)]
            lanes = partial[..., : chunk.shape[-1]]
            partial[..., : chunk.shape[-1]] = combine(monoid, lanes, chunk, dtype)
    half = PARTIALS // 2
    while half:
        partial = combine(monoid, partial[..., :half], partial[..., half : 2 * half], dtype)
        half //= 2
    return partial[..., 0]


def argument(value: np.ndarray, monoid: str) -> tuple[np.ndarray, np.ndarray]:
    """(best value, its first position); NumPy's argmax has the same rule for NaN."""
    if value.shape[-1] == 0:
        best = reference_prims.extreme(value.dtype, highest=monoid == "argmin")
        return np.full(value.shape[:-1], best), np.zeros(value.shape[:-1], np.int64)
    place = (np.argmax if monoid == "argmax" else np.argmin)(value, axis=-1)
    return np.take_along_axis(value, place[..., None], -1)[..., 0], place.astype(np.int64)


def run_kernel(kernel: ir.Kernel, arrays: Sequence[np.ndarray], scalars: Sequence = ()) -> None:
    """Run a kernel on flat arrays (one per kernel.buffers entry), writing them in place."""
    if kernel.points == 0:
        return
    run = _Run(kernel, arrays, scalars)
    with np.errstate(all="ignore"):
        for stage in kernel.body:
            run.run(stage)
