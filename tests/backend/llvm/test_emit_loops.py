"""Native loops beside the NumPy reference: reductions, rows, scans, scatters, sorts."""

import numpy as np
import pytest
from kernels_by_hand import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I32,
    I64,
    elementwise,
    prim,
    reduction,
    sample,
    softmax_case,
)
from native_kernels import Case, check

import fxad
from fxad.backend.llvm.native.engine import host_target
from fxad.core.errors import CheckError
from fxad.ir.kernel import (
    Axis,
    Buffer,
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
    Reduce,
    Scan,
    Scatter,
    Sort,
    Store,
    at,
)

SHAPES = [((1000,), (0,)), ((5, 100), (1,)), ((40, 100), (0,)), ((3, 7, 17), (1, 2)),
          ((6, 0), (1,)),
          ((3, 64, 5), (1,)), ((4, 128, 64), (1, 2)), ((1, 1), (1,)), ((33, 2), (1,)),
          ((100, 3), (1,)), ((20, 5, 4), (1, 2)), ((50, 3, 7), (1,))]  # fmt: skip


@pytest.mark.parametrize("order", ["lanes", "serial"])
@pytest.mark.parametrize("monoid", ["add", "mul", "min", "max", "argmin", "argmax"])
def test_reductions(monoid, order):
    rng = np.random.default_rng(8)
    cases = [reduction(rng, s, o, monoid, order, F32) for s, o in SHAPES]
    cases += [reduction(rng, s, o, monoid, order, I32) for s, o in SHAPES[:4]]
    check(cases)


def test_reductions_of_other_dtypes():
    rng = np.random.default_rng(9)
    cases = []
    for order in ("lanes", "serial"):
        for dtype in (F64, np.dtype("int8"), np.dtype("uint64"), BF16, F16):
            cases.append(reduction(rng, (5, 100), (1,), "add", order, dtype))
            cases.append(reduction(rng, (5, 100), (0,), "max", order, dtype))
            cases.append(reduction(rng, (70, 3), (1,), "add", order, dtype))
            cases.append(reduction(rng, (5, 100), (1,), "argmax", order, dtype))
        cases.append(reduction(rng, (5, 100), (1,), "add", order, BF16, F32))
        cases.append(reduction(rng, (70, 3), (1,), "add", order, BF16, F32))
        for monoid in ("and", "or", "max", "argmin"):
            cases.append(reduction(rng, (9, 100), (1,), monoid, order, BOOL))
        cases.append(reduction(rng, (5, 100), (1,), "add", order, np.dtype("complex64")))
        cases.append(reduction(rng, (70, 3), (1,), "add", order, np.dtype("complex64")))
    check(cases)


def test_row_kernels():
    rng = np.random.default_rng(10)
    check([softmax_case(rng, 5, n) for n in (1, 7, 16, 17, 64, 100, 1000)])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("across", [False, True])
def test_scans(reverse, across):
    rng = np.random.default_rng(11)
    cases = []
    for monoid in ("add", "mul", "max"):
        rows, columns = 6, 37
        i, j = Axis("i", rows), Axis("j", columns)
        x, out = (Buffer(n, F32, rows * columns, r) for n, r in (("x", "in"), ("out", "out")))
        place = at(i) * columns + at(j)
        cell = Cell("c", F32)
        along, grid = (i, (j,)) if across else (j, (i,))
        stage = Scan(along, monoid, Load(x, place), cell, (Store(out, place, Get(cell)),), reverse)
        kernel = Kernel(f"scan {monoid}", (x, out), (), grid, (stage,))
        values = rng.standard_normal(rows * columns).astype(F32)
        cases.append(Case(kernel, [values, np.zeros(rows * columns, F32)]))
    check(cases)


def test_scatters():
    rng = np.random.default_rng(12)
    cases = []
    for dtype in (F32, I32, BF16):
        for monoid in ("add", "set", "max", "mul"):
            n, columns, size = 23, 19, 6
            i, j = Axis("i", n), Axis("j", columns)
            k, v = Buffer("k", I32, n, "in"), Buffer("v", dtype, n * columns, "in")
            out = Buffer("out", dtype, size * columns, "inout")
            row = Index(0, ((Data(Load(k, at(i)), size), columns),))
            keep = Prim("ge", (Load(k, at(i)), Const(0, I32)), BOOL)
            store = Store(out, row + at(j), Load(v, at(i) * columns + at(j)), keep)
            for grid, over in (((), (i, j)), ((j,), (i,))):
                kernel = Kernel(
                    f"scatter {monoid} {dtype}",
                    (k, v, out),
                    (),
                    grid,
                    (Scatter(over, monoid, store),),
                )
                values = rng.integers(-4, 5, n * columns).astype(dtype)
                start = rng.integers(1, 4, size * columns).astype(dtype)
                index = rng.integers(-2, size + 2, n).astype(np.int32)
                cases.append(Case(kernel, [index, values, start]))
    check(cases)


@pytest.mark.parametrize("columns", [1, 19, 70])
def test_guards_of_scatters(columns):
    """Those that keep an index in bounds, in part or on one side, and those of a column."""
    rng = np.random.default_rng(14)
    cases = []
    n, size = 23, 6
    i, j = Axis("i", n), Axis("j", columns)
    for keys in (I32, I64, np.dtype("uint8")):
        k, v = Buffer("k", keys, n, "in"), Buffer("v", F32, n * columns, "in")
        out = Buffer("out", F32, size * columns, "inout")
        read = Load(k, at(i))
        place = Index(0, ((Data(read, size), columns),)) + at(j)
        above, below = (
            prim(name, BOOL)(read, Const(limit, keys)) for name, limit in (("ge", 0), ("lt", size))
        )
        of_column = prim("lt", BOOL)(IndexValue(at(j), I64), Const(17, I64))
        tests = {
            "both": (above, below),
            "fewer": (above, prim("lt", BOOL)(read, Const(size - 2, keys))),
            "above": (above,),
            "below": (below,),
            "columns, too": (of_column, above, below),
        }
        for name, parts in tests.items():
            guard = parts[0]
            for part in parts[1:]:
                guard = prim("and", BOOL)(guard, part)
            store = Store(out, place, Load(v, at(i) * columns + at(j)), guard)
            for grid, over in (((), (i, j)), ((j,), (i,))):
                for monoid in ("add", "set"):
                    what = f"scatter {monoid} {keys} {name}"
                    stages = (Scatter(over, monoid, store),)
                    kernel = Kernel(what, (k, v, out), (), grid, stages)
                    low = 0 if keys.kind == "u" else -3
                    index = rng.integers(low, size + 3, n).astype(keys)
                    values = rng.integers(-4, 5, n * columns).astype(F32)
                    cases.append(Case(kernel, [index, values, np.ones(size * columns, F32)]))
    check(cases)


@pytest.mark.parametrize("dtype", [F32, I32, BF16, BOOL, F64, np.dtype("uint8")], ids=str)
def test_sorts(dtype):
    """Keys with ties and NaN carry a second key and a payload."""
    rng = np.random.default_rng(13)
    cases = []
    for n in (0, 1, 2, 7, 33, 100):
        i, j = Axis("i", 3), Axis("j", n)
        size = 3 * n
        place = at(i) * n + at(j)
        key, other = Buffer("key", dtype, size, "in"), Buffer("other", I32, size, "in")
        outs = [Buffer(f"o{k}", d, size, "out") for k, d in enumerate((dtype, I32, I64))]
        cells = tuple(Cell(f"c{k}", o.dtype) for k, o in enumerate(outs))
        operands = (Load(key, place), Load(other, place), IndexValue(at(j), I64))
        stores = tuple(Store(o, place, Get(c)) for o, c in zip(outs, cells, strict=True))
        for keys in (1, 2):
            kernel = Kernel(
                f"sort {n}",
                (key, other, *outs),
                (),
                (i,),
                (Sort(j, keys, operands, cells, stores),),
            )
            values = [sample(rng, dtype, size), rng.integers(0, 3, size).astype(np.int32)]
            cases.append(Case(kernel, values + [np.zeros(size, o.dtype) for o in outs]))
    check(cases)


@pytest.mark.parametrize("isa", ["avx2"])
def test_lower_instruction_sets_give_the_same_bits(isa):
    try:
        target = host_target(isa)
    except CheckError:
        pytest.skip(f"this machine does not run {isa}")
    rng = np.random.default_rng(16)
    cases = [softmax_case(rng, 5, n) for n in (7, 100)]
    cases += [reduction(rng, s, o, "add", "lanes", F32) for s, o in SHAPES]
    cases += [elementwise(rng, 100, prim("add"), [d, d], d) for d in (F32, BF16, F64, I32)]
    check(cases, target)


@pytest.mark.parametrize("dtype", [F32, F64, BF16], ids=str)
def test_extremes_see_every_nan(dtype):
    """A NaN of either sign at each position in turn; rows with infinities; numbers alone."""
    rng = np.random.default_rng(0)
    cases = []
    for extent in (64, 100, 128, 1027):
        x = rng.standard_normal((extent + 4, extent)).astype(dtype)
        nan = np.copysign(np.float64("nan"), rng.standard_normal(extent)).astype(dtype)
        np.fill_diagonal(x, nan)
        x[-3, extent // 2], x[-4, -1] = np.inf, -np.inf
        i, j = Axis("i", extent + 4), Axis("j", extent)
        read, out = Buffer("x", dtype, x.size, "in"), Buffer("y", dtype, extent + 4, "out")
        for monoid in ("max", "min"):
            cell = Cell("c", dtype)
            value = Load(read, at(i) * extent + at(j))
            stages = (
                Reduce((j,), monoid, (value,), (cell,), "lanes"),
                Map((), (Store(out, at(i), Get(cell)),)),
            )
            kernel = Kernel("extreme", (read, out), (), (i,), stages)
            found = np.zeros(extent + 4, dtype)
            cases.append(Case(kernel, [x.reshape(-1), found], label=f"{monoid} of {extent}"))
    check(cases)


@pytest.mark.parametrize("extent", [3, 64, 100, 256])
def test_extremes_order_zeros(extent):
    x = np.zeros((extent, extent), np.float32)
    np.fill_diagonal(x, -0.0)
    assert not np.signbit(fxad.jit(lambda x: x.max(-1))(x)).any()
    assert np.signbit(fxad.jit(lambda x: x.min(-1))(x)).all()
