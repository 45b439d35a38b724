"""Kernels of every kind with data, and their check against the reference, for the numba backend."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from fxad.backend.numba.compile import compile_kernel, restored
from fxad.backend.numba.execute import Memory
from fxad.backend.reference import run_kernel
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

BOOL, I8, I32, I64, U32, U64 = map(np.dtype, ("?", "i1", "i4", "i8", "u4", "u8"))
F16, F32, F64, C64 = map(np.dtype, ("f2", "f4", "f8", "c8"))
BF16, E4, E5 = (
    np.dtype(t) for t in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
)


@dataclass(frozen=True)
class Case:
    """rtol 0 asks for equal bits (any NaN is any NaN)."""

    kernel: Kernel
    arrays: list[np.ndarray]
    scalars: tuple = ()
    rtol: float = 0.0


def check(case: Case, target: str) -> list[np.ndarray]:
    """Run on `target`, compare all buffers with the reference; returns the bits."""
    want = [a.copy() for a in case.arrays]
    run_kernel(case.kernel, want, case.scalars)
    space = Memory(target)
    at = [space.put(a) for a in case.arrays]
    compile_kernel(case.kernel, target)(at, case.scalars)
    memory = [space.get(a) for a in at]
    for number, (found, wanted) in enumerate(zip(memory, want, strict=True)):
        got = restored(found, wanted.dtype, wanted.shape)
        name = f"{case.kernel.name} on {target}, buffer {case.kernel.buffers[number].name}"
        if case.rtol == 0:
            assert_same_bits(got, wanted, name)
        else:
            wide = np.complex128 if got.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(
                got.astype(wide), wanted.astype(wide), rtol=case.rtol, atol=1e-30, err_msg=name
            )
    return memory


def assert_same_bits(got: np.ndarray, want: np.ndarray, name: str) -> None:
    if got.dtype.kind == "c":
        part = np.dtype(f"f{got.dtype.itemsize // 2}")
        got, want = got.view(part), want.view(part)
    same = got.view(f"u{got.dtype.itemsize}") == want.view(f"u{got.dtype.itemsize}")
    if got.dtype.kind in "fV":
        same |= np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
    bad = np.flatnonzero(~same)
    assert not bad.size, f"{name}: at {bad[0]} got {got[bad[0]]!r}, want {want[bad[0]]!r}"


def sample(rng: np.random.Generator, dtype: np.dtype, size: int) -> np.ndarray:
    """Ordinary numbers, small ones and the type's special ones."""
    if dtype.kind == "b":
        return rng.integers(0, 2, size).astype(bool)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        any_number = rng.integers(limits.min, limits.max, size, dtype=dtype, endpoint=True)
        small = rng.integers(max(limits.min, -4), 5, size).astype(dtype)
        return np.where(rng.random(size) < 0.5, small, any_number)
    if dtype.kind == "c":
        return (rng.standard_normal(size) + 1j * rng.standard_normal(size)).astype(dtype)
    values = rng.standard_normal(size) * 4
    special = rng.choice([0.0, np.inf, -np.inf, np.nan, 0.5, -1.5, 3e4], size)
    return np.where(rng.random(size) < 0.2, special, values).astype(dtype)


def maps(
    name: str,
    values: Sequence[Callable[..., Expr]],
    arrays: Sequence[np.ndarray],
    rtol: float = 0.0,
) -> Case:
    """One kernel with an output for each function of the inputs."""
    i = Axis("i", len(arrays[0]))
    inputs = [Buffer(f"x{n}", a.dtype, a.size, "in") for n, a in enumerate(arrays)]
    loads = [Load(b, at(i)) for b in inputs]
    results = [value(*loads) for value in values]
    outs = [
        Buffer(f"{n}:{getattr(r, 'name', 'cast')}", r.dtype, i.extent, "out")
        for n, r in enumerate(results)
    ]
    stores = tuple(Store(o, at(i), r) for o, r in zip(outs, results, strict=True))
    kernel = Kernel(name, (*inputs, *outs), (), (i,), (Map((), stores),))
    return Case(kernel, [*arrays, *(np.zeros(o.size, o.dtype) for o in outs)], (), rtol)


def prim(name: str, count: int, result: np.dtype | None = None) -> Callable[..., Expr]:
    return lambda *args: Prim(name, args[:count], result or args[0].dtype)


def functions(text: str, count: int, result: np.dtype | None = None) -> list:
    return [prim(name, count, result) for name in text.split()]


# ---------------------------------------------------------------- elementwise

COMPARISONS = "eq ne lt le gt ge"
FLOAT_1 = "neg abs sign floor ceil trunc round sqrt square reciprocal"
FLOAT_2 = "add sub mul div min max fmin fmax copysign"
INTEGER_1 = "neg abs sign not square popcount clz"
INTEGER_2 = """add sub mul div rem min max and or xor shl shr_arith shr_logical mul_high"""
ANALYTIC = """exp exp2 expm1 log log2 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh
    atanh erf erfc lgamma logistic rsqrt cbrt erfinv"""


def elementwise_cases(rng: np.random.Generator, size: int = 37) -> list[Case]:
    cases = []
    for dtype in (F32, BF16, F16):
        pair = [sample(rng, dtype, size), sample(rng, dtype, size)]
        for values in pair:  # NumPy does not pin the sign of max(+0, -0)
            values[values == 0] = 0
        cases.append(
            maps(
                f"{dtype} arithmetic",
                functions(FLOAT_1, 1)
                + functions(FLOAT_2, 2)
                + functions(COMPARISONS, 2, BOOL)
                + functions("is_nan is_finite", 1, BOOL),
                pair,
            )
        )
    for dtype in (I8, I32, U32, I64, U64):
        pair = [sample(rng, dtype, size), sample(rng, dtype, size)]
        values = functions(INTEGER_1, 1) + functions(INTEGER_2, 2)
        cases.append(maps(f"{dtype}", values + functions(COMPARISONS, 2, BOOL), pair))
    pair = [sample(rng, BOOL, size), sample(rng, BOOL, size)]
    cases.append(maps("bool", functions("and or xor", 2) + functions("not", 1), pair))
    return cases


def analytic_cases(rng: np.random.Generator, size: int = 25) -> list[Case]:
    inside = rng.uniform(0.01, 0.99, size)
    cases = [
        # Within a few units in the last place; lgamma loses some digits near its zero at 1.
        maps(f"{d} analytic", functions(ANALYTIC.replace("acosh", ""), 1), [inside.astype(d)], tol)
        for d, tol in ((F32, 1e-6), (F64, 1e-13))
    ]
    base, power = rng.uniform(0.1, 5, size).astype(F32), rng.uniform(-3, 3, size).astype(F32)
    cases.append(maps("power", functions("pow atan2 rem", 2), [base, power], 1e-6))
    cases.append(maps("acosh", functions("acosh", 1), [base + 1], 1e-6))
    cases.append(maps("nextafter", functions("nextafter", 2), [sample(rng, F32, size), power]))
    cases.append(maps("fma", [prim("fma", 3)], [base, power, base[::-1].copy()], 1e-6))
    z, w = sample(rng, C64, size), sample(rng, C64, size)
    one = functions("neg conj exp log sqrt sin cos tanh square reciprocal sign", 1)
    parts = functions("real imag abs", 1, F32)
    cases.append(maps("complex", one + functions("add sub mul div", 2) + parts, [z, w], 1e-5))
    return cases


def cast_cases(rng: np.random.Generator, size: int = 41) -> list[Case]:
    every = (BOOL, I8, I32, U64, F16, BF16, F32, F64, C64, E4, E5)
    cases = []
    for source in every:
        values = sample(rng, F32, size) if source in (E4, E5) else sample(rng, source, size)
        with np.errstate(all="ignore"):
            values = values.astype(source)
        targets = [t for t in every if t != source and not (t in (E4, E5) and source == C64)]
        casts = [lambda x, t=t: Cast(x, t) for t in targets]
        if source == F32:
            casts.append(lambda x: Prim("bitcast", (x,), U32))
        cases.append(maps(f"from {source}", casts, [values]))
    return cases


# ---------------------------------------------------------------- indices


def indexed_cases(rng: np.random.Generator, n: int = 40) -> list[Case]:
    """A guarded shift, a clamped gather, quotient and remainder, a guarded mirrored store."""
    i = Axis("i", n)
    x, k = Buffer("x", F32, n, "in"), Buffer("k", I32, n, "in")
    out, mirror = Buffer("out", F32, n, "out"), Buffer("mirror", F32, n, "out")
    scale = Scalar("scale", F32)
    odd = Prim("eq", (IndexValue(Index(0, ((Rem(at(i) + 3, 2), 1),)), I32), Const(1, I32)), BOOL)
    inside = Prim("lt", (IndexValue(at(i), I32), Const(n - 2, I32)), BOOL)
    shifted = Load(x, at(i) + 2, inside, Const(9.0, F32))
    folded = Load(x, Index(0, ((Quot(at(i), 3), 1), (Rem(at(i) + 1, 3), 2))))
    gathered = Load(x, Index(0, ((Data(Load(k, at(i)), n), 1),)))
    total = Prim("add", (Prim("mul", (shifted, Param(scale)), F32), gathered), F32)
    total = Prim("add", (total, folded), F32)
    stores = (Store(out, at(i), total), Store(mirror, at(i) * -1 + (n - 1), gathered, odd))
    kernel = Kernel("indexed", (x, k, out, mirror), (scale,), (i,), (Map((), stores),))
    picks = rng.integers(-5, n + 5, n).astype(I32)
    arrays = [rng.standard_normal(n).astype(F32), picks, np.zeros(n, F32), np.zeros(n, F32)]
    return [Case(kernel, arrays, (1.7,))]


# ---------------------------------------------------------------- rows


def reduction(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    over: tuple[int, ...],
    monoid: str,
    order: str,
    dtype: np.dtype = F32,
) -> Case:
    """Reduce a row-major array over the axes numbered `over`."""
    axes = [Axis(f"i{n}", e) for n, e in enumerate(shape)]
    place = Index()
    for n, axis in enumerate(axes):
        place = place + at(axis) * math.prod(shape[n + 1 :])
    grid = tuple(a for n, a in enumerate(axes) if n not in over)
    where = Index()
    for n, axis in enumerate(grid):
        where = where + at(axis) * math.prod(a.extent for a in grid[n + 1 :])
    points, size = math.prod(a.extent for a in grid), math.prod(shape)
    x = Buffer("x", dtype, size, "in")
    cells = (Cell("best", dtype), Cell("place", I64))[: 2 if monoid.startswith("arg") else 1]
    outs = [Buffer(c.name, c.dtype, points, "out") for c in cells]
    stages = (
        Reduce(tuple(axes[n] for n in over), monoid, (Load(x, place),), cells, order),
        Map((), tuple(Store(o, where, Get(c)) for o, c in zip(outs, cells, strict=True))),
    )
    values = sample(rng, dtype, size)
    if monoid in ("add", "mul") and dtype.kind not in "biu":
        values = rng.standard_normal(size).astype(dtype)
    elif dtype.kind not in "biuc":
        values[values == 0] = 0
    name = f"{monoid} {shape} {over} {order} {dtype}"
    kernel = Kernel(name, (x, *outs), (), grid, stages)
    return Case(kernel, [values, *(np.zeros(points, o.dtype) for o in outs)])


def softmax(rng: np.random.Generator, rows: int = 3, columns: int = 150) -> Case:
    """Row maximum, a function of the distance kept in scratch, its sum, the quotient."""
    i, j = Axis("i", rows), Axis("j", columns)
    x, out = Buffer("x", F32, rows * columns, "in"), Buffer("out", F32, rows * columns, "out")
    kept = Buffer("kept", F32, columns, "scratch")
    place = at(i) * columns + at(j)
    top, total = Cell("top", F32), Cell("total", F32)
    distance = Prim("square", (Prim("sub", (Load(x, place), Get(top)), F32),), F32)
    stages = (
        Reduce((j,), "max", (Load(x, place),), (top,), "lanes"),
        Map((j,), (Store(kept, at(j), distance),)),
        Reduce((j,), "add", (Load(kept, at(j)),), (total,), "lanes"),
        Map((j,), (Store(out, place, Prim("div", (Load(kept, at(j)), Get(total)), F32)),)),
    )
    kernel = Kernel("softmax", (x, out), (), (i,), stages)
    values = rng.standard_normal(rows * columns).astype(F32)
    return Case(kernel, [values, np.zeros(rows * columns, F32)])


def row_cases(rng: np.random.Generator) -> list[Case]:
    cases = [softmax(rng)]
    for order in ("lanes", "serial"):
        cases.append(reduction(rng, (3, 200), (1,), "add", order))
        cases.append(reduction(rng, (3, 4, 70), (1, 2), "argmax", order))
    cases.append(reduction(rng, (2, 100), (1,), "max", "lanes", BF16))
    cases.append(reduction(rng, (2, 100), (1,), "add", "lanes", BF16))
    cases.append(reduction(rng, (2, 100), (1,), "and", "lanes", BOOL))
    cases.append(reduction(rng, (70, 3), (0,), "mul", "serial", I32))
    cases.append(reduction(rng, (3, 0), (1,), "argmin", "lanes"))
    cases.append(reduction(rng, (0, 3), (1,), "add", "lanes"))
    return cases


# ---------------------------------------------------------------- scan, scatter, sort


def sequential_cases(rng: np.random.Generator) -> list[Case]:
    cases = []
    rows, columns = 5, 21
    i, j = Axis("i", rows), Axis("j", columns)
    place = at(i) * columns + at(j)
    size = rows * columns
    for dtype, monoid, along, grid in ((F32, "add", j, (i,)), (BF16, "add", i, (j,))):
        x, out = Buffer("x", dtype, size, "in"), Buffer("out", dtype, size, "out")
        cell = Cell("c", dtype)
        scan = Scan(along, monoid, Load(x, place), cell, (Store(out, place, Get(cell)),), True)
        kernel = Kernel(f"scan {dtype}", (x, out), (), grid, (scan,))
        values = rng.standard_normal(size).astype(dtype)
        cases.append(Case(kernel, [values, np.zeros(size, dtype)]))
    for dtype, monoid in ((F32, "set"), (BF16, "add"), (I32, "max")):
        k, v = Buffer("k", I32, rows, "in"), Buffer("v", dtype, size, "in")
        out = Buffer("out", dtype, 4 * columns, "inout")
        row = Index(0, ((Data(Load(k, at(i)), 4), columns),))
        keep = Prim("ge", (Load(k, at(i)), Const(0, I32)), BOOL)
        stage = Scatter((i,), monoid, Store(out, row + at(j), Load(v, place), keep))
        kernel = Kernel(f"scatter {monoid}", (k, v, out), (), (j,), (stage,))
        picks = rng.integers(-1, 5, rows).astype(I32)
        start = np.ones(4 * columns, dtype)
        cases.append(Case(kernel, [picks, rng.integers(-4, 5, size).astype(dtype), start]))
    return [*cases, *(sort_case(rng, d) for d in (F32, BF16))]


def sort_case(rng: np.random.Generator, dtype: np.dtype) -> Case:
    """Two keys with ties and NaN, and where they came from."""
    rows, columns = 3, 30
    i, j = Axis("i", rows), Axis("j", columns)
    place, size = at(i) * columns + at(j), rows * columns
    key, other = Buffer("key", dtype, size, "in"), Buffer("other", I32, size, "in")
    outs = [Buffer(f"o{n}", d, size, "out") for n, d in enumerate((dtype, I32, I64))]
    cells = tuple(Cell(f"c{n}", o.dtype) for n, o in enumerate(outs))
    operands = (Load(key, place), Load(other, place), IndexValue(at(j), I64))
    stores = tuple(Store(o, place, Get(c)) for o, c in zip(outs, cells, strict=True))
    sort = Sort(j, 2, operands, cells, stores)
    kernel = Kernel(f"sort {dtype}", (key, other, *outs), (), (i,), (sort,))
    first = np.where(rng.random(size) < 0.2, np.nan, rng.integers(0, 4, size)).astype(dtype)
    second = rng.integers(0, 3, size).astype(I32)
    return Case(kernel, [first, second, *(np.zeros(size, o.dtype) for o in outs)])
