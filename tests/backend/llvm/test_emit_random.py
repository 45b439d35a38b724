"""Random kernels: axes, strides, quotients, gathers, guards, stages; compared bit for bit."""

import numpy as np
import pytest
from native_kernels import Case, check

from fxad.backend.llvm.native.engine import host_target
from fxad.core.errors import CheckError
from fxad.ir.kernel import (
    Axis,
    Buffer,
    Cast,
    Cell,
    Const,
    Data,
    Get,
    Index,
    IndexValue,
    Kernel,
    Load,
    Map,
    Prim,
    Quot,
    Reduce,
    Rem,
    Scan,
    Store,
    at,
)

DTYPES = tuple(map(np.dtype, ("float32", "float64", "int32", "int64", "int8", "uint8", "float16")))
I32, BOOL = np.dtype("int32"), np.dtype(bool)
EXTENTS = (1, 2, 3, 5, 16, 17, 33, 64, 70)


class Maker:
    """Draws one kernel and its arrays."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.inputs, self.outputs = [], []
        self.arrays = {}

    def pick(self, options):
        return options[self.rng.integers(len(options))]

    def buffer(self, dtype, size, role):
        name = f"{role}{len(self.arrays)}"
        b = Buffer(name, dtype, size, role)
        values = self.rng.integers(-8, 9, size) + (
            self.rng.random(size) if dtype.kind == "f" else 0
        )
        self.arrays[b] = np.abs(values).astype(dtype) if dtype.kind == "u" else values.astype(dtype)
        (self.inputs if role == "in" else self.outputs).append(b)
        return b

    def axes(self, count, limit):
        found, size = [], 1
        for n in range(count):
            extent = int(self.pick([e for e in EXTENTS if size * e <= limit]))
            size *= extent
            found.append(Axis(f"a{n}", extent))
        return tuple(found)

    def index(self, axes):
        """A non-negative index over some axes: row-major, permuted, reversed, folded."""
        order = list(axes)
        if self.rng.random() < 0.3:
            self.rng.shuffle(order)
        order = [a for a in order if self.rng.random() < 0.8]
        index, stride = Index(), 1
        for a in reversed(order):
            backwards = self.rng.random() < 0.15
            index = index + at(a) * (-stride if backwards else stride)
            index = index + ((a.extent - 1) * stride if backwards else 0)
            stride *= a.extent
        roll = self.rng.random()
        if roll < 0.1:
            divisor = int(self.rng.integers(2, 9))
            return Index(1, ((Quot(index + -3, divisor), 1), (Rem(index + -5, divisor), 2))) + 3
        if roll < 0.2:
            size = int(self.rng.integers(1, 30))
            row = self.load(axes, I32, plain=True)
            return Index(0, ((Data(row, size), 2),)) + index
        return index

    def load(self, axes, dtype, plain=False):
        index = self.index(axes) if not plain else sum((at(a) for a in axes), Index())
        low, high = index.bounds()
        index = index + max(0, -low)
        high += max(0, -low)
        if plain or self.rng.random() < 0.7 or not axes:
            return Load(self.buffer(dtype, high + 1, "in"), index)
        a = self.pick(axes)
        limit = int(self.rng.integers(0, a.extent + 1))
        guard = Prim("lt", (IndexValue(at(a), I32), Const(limit, I32)), BOOL)
        # Only what the guard lets through is inside the buffer.
        stride = index.coefficient(a)
        if stride is None or stride <= 0 or limit == 0:
            return Load(self.buffer(dtype, high + 1, "in"), index, guard, Const(3, dtype))
        size = high + 1 - stride * (a.extent - limit)
        return Load(self.buffer(dtype, max(size, 1), "in"), index, guard, Const(3, dtype))

    def expr(self, axes, dtype, depth, known=()):
        roll = self.rng.random()
        if depth == 0 or roll < 0.1:
            return self.leaf(axes, dtype, known)
        if roll < 0.75:
            name = self.pick(["add", "sub", "mul", "add"])
            a, b = (self.expr(axes, dtype, depth - 1, known) for _ in range(2))
            return Prim(name, (a, b if self.rng.random() < 0.9 else a), dtype)
        if roll < 0.9:
            a, b, c, d = (self.expr(axes, dtype, depth - 1, known) for _ in range(4))
            test = Prim(self.pick(["lt", "eq", "ge"]), (a, b), BOOL)
            return Prim("select", (test, c, d), dtype)
        other = self.pick(DTYPES)
        return Cast(self.expr(axes, other, depth - 1), dtype)

    def leaf(self, axes, dtype, known):
        same = [c for c in known if c.dtype == dtype]
        roll = self.rng.random()
        if same and roll < 0.4:
            return Get(self.pick(same))
        if roll < 0.7:
            return self.load(axes, dtype)
        if roll < 0.85:
            return IndexValue(self.index(axes) if self.rng.random() < 0.3 else Index(2), dtype)
        return Const(int(self.rng.integers(0, 5)), dtype)

    def store(self, axes, dtype, known):
        order = list(axes)
        if self.rng.random() < 0.3:
            self.rng.shuffle(order)
        index, stride = Index(), 1
        for a in reversed(order):
            index, stride = index + at(a) * stride, stride * a.extent
        guard = None
        if axes and self.rng.random() < 0.2:
            a = self.pick(axes)
            guard = Prim("ge", (IndexValue(at(a), I32), Const(1, I32)), BOOL)
        value = self.expr(axes, dtype, 3, known)
        return Store(self.buffer(dtype, stride, "out"), index, value, guard)

    def kernel(self):
        grid = self.axes(int(self.rng.integers(0, 4)), 2000)
        size = int(np.prod([a.extent for a in grid]))
        inner = self.axes(int(self.rng.integers(0, 3)), max(4, 6000 // size))
        dtype = self.pick(DTYPES)
        stages, cells = [], []
        for _ in range(int(self.rng.integers(0, 3))):
            cell = Cell(f"c{len(cells)}", dtype)
            monoid, order = self.pick(["add", "max", "mul"]), self.pick(["lanes", "serial"])
            value = self.expr((*grid, *inner), dtype, 2, cells)
            stages.append(Reduce(inner, monoid, (value,), (cell,), order if inner else "serial"))
            cells.append(cell)
        if len(inner) == 1 and self.rng.random() < 0.2:
            cell = Cell("scan", dtype)
            value = self.expr((*grid, *inner), dtype, 2, cells)
            stores = (self.store((*grid, *inner), dtype, [cell]),)
            stages.append(Scan(inner[0], "add", value, cell, stores, self.rng.random() < 0.5))
        for axes in (inner, ()):
            count = int(self.rng.integers(1, 3))
            stores = tuple(self.store((*grid, *axes), dtype, cells) for _ in range(count))
            stages.append(Map(axes, stores))
        buffers = (*self.inputs, *self.outputs)
        kernel = Kernel("random", buffers, (), grid, tuple(stages))
        return Case(kernel, [self.arrays[b] for b in buffers])


@pytest.mark.parametrize("block", range(4))
def test_random_kernels(block):
    target = host_target()
    if block % 2:  # small units, so that axes are cut into blocks
        target = target.tuned(rows={"unit_elements": 40})
    cases = []
    for n in range(18):
        case = Maker(1000 * block + n).kernel()
        case.label = f"seed {1000 * block + n}"
        cases.append(case)
    check(cases, parts=3, target=target)


@pytest.mark.slow
@pytest.mark.parametrize("lines", [True, False])
def test_random_kernels_with_streaming_stores(lines):
    target = host_target().tuned(rows={"streamed": 0, "far_array": 0})
    made = [Maker(n).kernel() for n in range(5000, 5040)]
    emitted = check(made, parts=3, lines=lines, target=target)
    if host_target().isa in ("avx512", "avx2"):
        assert sum("nontemporal" in e.text for e in emitted) >= 10


def test_random_kernels_on_a_lower_instruction_set():
    try:
        target = host_target("avx2")
    except CheckError:
        pytest.skip("this machine does not run avx2")
    check([Maker(n).kernel() for n in range(9000, 9015)], target)
