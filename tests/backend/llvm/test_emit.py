"""Native kernels against the NumPy reference, bit for bit wherever arithmetic is exact."""

import ml_dtypes
import numpy as np
import pytest
from native_kernels import Case, check

import fxad
from fxad.backend.llvm.native.engine import host_target
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
    Param,
    Prim,
    Quot,
    Reduce,
    Rem,
    Scalar,
    Scan,
    Scatter,
    Sort,
    Store,
    at,
)

F32, F64, I32, I64 = map(np.dtype, ("float32", "float64", "int32", "int64"))
BOOL = np.dtype(bool)
BF16, F16 = np.dtype(ml_dtypes.bfloat16), np.dtype("float16")
SIZES = (0, 1, 7, 16, 17, 64, 100, 1000)
FLOATS = (F32, F64, BF16, F16)
INTEGERS = tuple(np.dtype(f"{sign}{bits}") for sign in ("int", "uint") for bits in (8, 16, 32, 64))


def sample(rng, dtype, n):
    """Ordinary numbers with special ones mixed in."""
    if dtype.kind == "b":
        return rng.integers(0, 2, n).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = rng.integers(info.min, info.max, n, dtype=dtype, endpoint=True)
        small = rng.integers(0 if dtype.kind == "u" else -5, 5, n).astype(dtype)
        special = np.array([0, info.min, info.max, -1 if dtype.kind == "i" else 1], dtype)
        values = np.where(rng.random(n) < 0.5, small, values)
        return np.where(rng.random(n) < 0.2, rng.choice(special, n), values).astype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(dtype)
    values = rng.standard_normal(n) * 4
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40, 3e4])
    with np.errstate(all="ignore"):
        return np.where(rng.random(n) < 0.15, rng.choice(special, n), values).astype(dtype)


def elementwise(rng, n, function, dtypes, result):
    """out[i] = function(in0[i], in1[i]...) over n elements."""
    i = Axis("i", n)
    ins = [Buffer(f"in{k}", d, n, "in") for k, d in enumerate(dtypes)]
    out = Buffer("out", result, n, "out")
    value = function(*(Load(b, at(i)) for b in ins))
    kernel = Kernel("map", (*ins, out), (), (i,), (Map((), (Store(out, at(i), value),)),))
    return Case(kernel, [*(sample(rng, d, n) for d in dtypes), np.zeros(n, result)])


def prim(name, result=None):
    return lambda *args: Prim(name, args, result or args[-1].dtype)


EXACT_1 = ["neg", "abs", "sign", "floor", "ceil", "trunc", "round", "sqrt", "square", "reciprocal"]
EXACT_2 = ["add", "sub", "mul", "div", "min", "max", "fmin", "fmax", "copysign"]
COMPARE = ["eq", "ne", "lt", "le", "gt", "ge"]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_exact_float_functions(dtype):
    rng = np.random.default_rng(0)
    cases = []
    for name in EXACT_1:
        cases.append(elementwise(rng, 117, prim(name), [dtype], dtype))
    for name in EXACT_2:
        cases.append(elementwise(rng, 117, prim(name), [dtype, dtype], dtype))
    cases += [elementwise(rng, 117, prim(n, BOOL), [dtype, dtype], BOOL) for n in COMPARE]
    cases += [elementwise(rng, 117, prim(n, BOOL), [dtype], BOOL) for n in ("is_nan", "is_finite")]
    if dtype in (F32, F64):
        cases.append(elementwise(rng, 117, prim("nextafter"), [dtype, dtype], dtype))
        cases.append(elementwise(rng, 117, prim("rem"), [dtype, dtype], dtype))
    for case, name in zip(cases, EXACT_1 + EXACT_2 + COMPARE, strict=False):
        case.label = f"{name} {dtype}"
    fix_zero_signs(cases)
    check(cases)


def fix_zero_signs(cases):
    """min and max of +0 and -0 are not pinned by NumPy: leave -0 out for them."""
    for case in cases:
        if case.label.startswith(("min", "max", "fmin", "fmax")):
            for a in case.arrays[:-1]:
                a[a == 0] = 0


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_functions(dtype):
    rng = np.random.default_rng(1)
    cases = []
    for name in ["neg", "abs", "sign", "not", "popcount", "clz", "square"]:
        cases.append(elementwise(rng, 117, prim(name), [dtype], dtype))
    names = """add sub mul div rem pow min max and or xor shl shr_arith shr_logical mul_high"""
    for name in names.split():
        cases.append(elementwise(rng, 117, prim(name), [dtype, dtype], dtype))
        cases[-1].label = f"{name} {dtype}"
    for name in COMPARE:
        cases.append(elementwise(rng, 117, prim(name, BOOL), [dtype, dtype], BOOL))
    for divisor in (0, 1, 7, 127):
        constant = Const(divisor, dtype)
        cases.append(
            elementwise(
                rng, 117, lambda x, c=constant: Prim("div", (x, c), x.dtype), [dtype], dtype
            )
        )
    check(cases)


def test_casts():
    rng = np.random.default_rng(2)
    kinds = [BOOL, *INTEGERS, *FLOATS, np.dtype("complex64")]
    cases = []
    for source in kinds:
        for target in kinds:
            if source != target:
                case = elementwise(rng, 61, lambda x, t=target: Cast(x, t), [source], target)
                case.label = f"{source} -> {target}"
                cases.append(case)
    check(cases)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_float8(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    every = np.arange(256, dtype=np.uint8).view(dtype)
    out = elementwise(np.random.default_rng(0), 256, lambda x: Cast(x, F32), [dtype], F32)
    out.arrays[0] = every
    back = elementwise(np.random.default_rng(3), 2000, lambda x: Cast(x, dtype), [F32], dtype)
    back.arrays[0] = np.random.default_rng(3).standard_normal(2000).astype(np.float32) * np.exp2(
        np.random.default_rng(4).integers(-20, 20, 2000)
    ).astype(np.float32)
    check([out, back])


@pytest.mark.parametrize("dtype", [F32, np.dtype("int8"), F64, BOOL, BF16], ids=str)
def test_sizes(dtype):
    rng = np.random.default_rng(3)
    name = "xor" if dtype == BOOL else "add"
    check([elementwise(rng, n, prim(name), [dtype, dtype], dtype) for n in SIZES])


def test_every_partition_gives_the_same():
    rng = np.random.default_rng(4)
    for parts in (1, 3, 7):
        check([elementwise(rng, 50_000, prim("mul"), [F32, F32], F32)], parts=parts)


@pytest.mark.parametrize("shape", [(3, 5), (17, 64), (130, 70), (5, 1, 33), (2, 0), (1, 1)])
def test_strided_and_broadcast_maps(shape):
    """out = transposed(x) * row - reversed(x), with an iota."""
    rng = np.random.default_rng(5)
    axes = tuple(Axis(f"i{n}", e) for n, e in enumerate(shape))
    size = int(np.prod(shape))
    strides = [int(np.prod(shape[n + 1 :])) for n in range(len(shape))]
    back = [int(np.prod(shape[:n])) for n in range(len(shape))]
    place = sum((at(a) * s for a, s in zip(axes, strides, strict=True)), Index())
    turned = sum((at(a) * s for a, s in zip(axes, back, strict=True)), Index())
    x, row = Buffer("x", F32, size, "in"), Buffer("row", F32, shape[-1], "in")
    out = Buffer("out", F32, size, "out")
    mirrored = place * -1 + (size - 1)
    value = Prim("mul", (Load(x, turned), Load(row, at(axes[-1]))), F32)
    value = Prim("sub", (value, Load(x, mirrored)), F32)
    value = Prim("add", (value, IndexValue(place * 2 + 1, F32)), F32)
    kernel = Kernel("view", (x, row, out), (), axes, (Map((), (Store(out, place, value),)),))
    check(
        [Case(kernel, [sample(rng, F32, size), sample(rng, F32, shape[-1]), np.zeros(size, F32)])]
    )


@pytest.mark.parametrize("n", [1, 7, 40, 100])
def test_guards_quotients_and_gathers(n):
    """pad, reshape-like indices, clamped gathers, guarded stores."""
    rng = np.random.default_rng(6)
    i = Axis("i", n)
    x, k = Buffer("x", F32, n, "in"), Buffer("k", I32, n, "in")
    out, picked = Buffer("out", F32, n, "out"), Buffer("picked", F32, n, "out")
    odd = Prim("eq", (IndexValue(Index(0, ((Rem(at(i) + 3, 2), 1),)), I32), Const(1, I32)), BOOL)
    inside = Prim("lt", (IndexValue(at(i), I32), Const(max(n - 2, 1), I32)), BOOL)
    shifted = Load(x, at(i) + 2 if n > 2 else at(i), inside, Const(9.0, F32))
    folded = Load(x, Index(0, ((Quot(at(i) + -3, 3), 1), (Rem(at(i) + -3, 3), 1))) + 1, odd)
    gathered = Load(x, Index(0, ((Data(Load(k, at(i)), n), 1),)))
    total = Prim("add", (Prim("add", (shifted, gathered), F32), folded), F32)
    stores = (Store(out, at(i), total), Store(picked, at(i) * -1 + (n - 1), gathered, odd))
    kernel = Kernel("guards", (x, k, out, picked), (), (i,), (Map((), stores),))
    arrays = [
        sample(rng, F32, n), rng.integers(-3, n + 3, n).astype(np.int32),
        np.zeros(n, F32), np.zeros(n, F32),
    ]  # fmt: skip
    check([Case(kernel, arrays)])


def test_gather_of_rows():
    """out[i, j] = table[clamp(k[i]), j], and a guarded row."""
    rng = np.random.default_rng(7)
    rows, columns, size = 9, 37, 5
    i, j = Axis("i", rows), Axis("j", columns)
    table, k = Buffer("t", F32, size * columns, "in"), Buffer("k", I64, rows, "in")
    out = Buffer("out", F32, rows * columns, "out")
    row = Index(0, ((Data(Load(k, at(i)), size), columns),))
    wanted = Prim("ge", (Load(k, at(i)), Const(0, I64)), BOOL)
    value = Load(table, row + at(j), wanted, Const(-1.0, F32))
    kernel = Kernel(
        "rows",
        (table, k, out),
        (),
        (i, j),
        (Map((), (Store(out, at(i) * columns + at(j), value),)),),
    )
    arrays = [
        sample(rng, F32, size * columns),
        rng.integers(-2, size + 2, rows),
        np.zeros(333, F32),
    ]
    check([Case(kernel, arrays)])


def reduction(rng, shape, over, monoid, order, dtype, cell_dtype=None):
    """Reduce a row-major array over the axes numbered `over`."""
    axes = [Axis(f"i{n}", e) for n, e in enumerate(shape)]
    strides = [int(np.prod(shape[n + 1 :])) for n in range(len(shape))]
    place = sum((at(a) * s for a, s in zip(axes, strides, strict=True)), Index())
    grid = tuple(a for n, a in enumerate(axes) if n not in over)
    size, points = int(np.prod(shape)), int(np.prod([a.extent for a in grid]))
    x = Buffer("x", dtype, size, "in")
    cells = [Cell("c", cell_dtype or dtype)]
    if monoid.startswith("arg"):
        cells.append(Cell("p", I64))
    outs = [Buffer(f"out{n}", c.dtype, points, "out") for n, c in enumerate(cells)]
    where, step = Index(), 1
    for a in reversed(grid):
        where, step = where + at(a) * step, step * a.extent
    stores = tuple(Store(o, where, Get(c)) for o, c in zip(outs, cells, strict=True))
    stages = (
        Reduce(tuple(axes[n] for n in over), monoid, (Load(x, place),), tuple(cells), order),
        Map((), stores),
    )
    kernel = Kernel(f"{monoid} {shape} {over} {order} {dtype}", (x, *outs), (), grid, stages)
    values = sample(rng, dtype, size)
    if dtype.kind not in "iub":
        values[values == 0] = 0
        if monoid in ("add", "mul"):
            values = np.where(np.isfinite(values), values, dtype.type(1)).astype(dtype)
    return Case(kernel, [values, *(np.zeros(points, c.dtype) for c in cells)])


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


def softmax_case(rng, rows, columns):
    """Row maximum, sum of exponentials kept in scratch, and the quotient."""
    i, j = Axis("i", rows), Axis("j", columns)
    x, out = Buffer("x", F32, rows * columns, "in"), Buffer("out", F32, rows * columns, "out")
    e = Buffer("e", F32, columns, "scratch")
    place = at(i) * columns + at(j)
    top, total = Cell("top", F32), Cell("total", F32)
    shifted = Prim("sub", (Load(x, place), Get(top)), F32)
    halved = Prim("square", (shifted,), F32)
    value = Prim("div", (Load(e, at(j)), Get(total)), F32)
    stages = (
        Reduce((j,), "max", (Load(x, place),), (top,), "lanes"),
        Map((j,), (Store(e, at(j), halved),)),
        Reduce((j,), "add", (Load(e, at(j)),), (total,), "lanes"),
        Map((j,), (Store(out, place, value),)),
    )
    kernel = Kernel("softmax", (x, out), (), (i,), stages)
    return Case(
        kernel, [rng.standard_normal(rows * columns).astype(F32), np.zeros(rows * columns, F32)]
    )


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


def test_complex_arithmetic():
    rng = np.random.default_rng(14)
    cases = []
    for dtype in map(np.dtype, ("complex64", "complex128")):
        part = np.dtype(f"f{dtype.itemsize // 2}")
        for name in ("add", "sub", "mul", "div"):
            cases.append(elementwise(rng, 37, prim(name), [dtype, dtype], dtype))
            cases[-1].ulp = 64.0  # cancellation in one part, seen against that part
        for name in ("neg", "conj"):
            cases.append(elementwise(rng, 37, prim(name), [dtype], dtype))
        for name in ("real", "imag"):
            cases.append(elementwise(rng, 37, prim(name, part), [dtype], part))
        for name in ("exp", "log", "sqrt", "sin", "cos", "tanh", "square"):
            cases.append(elementwise(rng, 37, prim(name), [dtype], dtype))
            cases[-1].ulp = 64.0
        cases.append(elementwise(rng, 37, prim("abs", part), [dtype], part))
        cases[-1].ulp = 3.0
        cases.append(elementwise(rng, 37, prim("complex", dtype), [part, part], dtype))
    for case in cases:
        for a in case.arrays:
            if a.dtype.kind == "f":
                a[~np.isfinite(a)] = 1
    check(cases)


def test_scalars():
    rng = np.random.default_rng(15)
    cases = []
    for dtype in (F32, F64, I32, BF16, BOOL, np.dtype("complex64")):
        i, s = Axis("i", 20), Scalar("s", dtype)
        x, out = Buffer("x", dtype, 20, "in"), Buffer("out", dtype, 20, "out")
        name = "xor" if dtype == BOOL else "add"
        value = Prim(name, (Load(x, at(i)), Param(s)), dtype)
        kernel = Kernel(
            f"scalar {dtype}", (x, out), (s,), (i,), (Map((), (Store(out, at(i), value),)),)
        )
        cases.append(Case(kernel, [sample(rng, dtype, 20), np.zeros(20, dtype)], [True]))
    check(cases)


@pytest.mark.parametrize("isa", ["avx2"])
def test_lower_instruction_sets_give_the_same_bits(isa):
    try:
        target = host_target(isa)
    except ValueError:
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
