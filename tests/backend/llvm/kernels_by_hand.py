"""Small kernels written by hand: element by element, reductions, rows of softmax."""

import ml_dtypes
import numpy as np
from native_kernels import Case

from fxad.ir.kernel import (
    Axis,
    Buffer,
    Cell,
    Get,
    Index,
    Kernel,
    Load,
    Map,
    Prim,
    Reduce,
    Store,
    at,
)

F32, F64, I32, I64 = map(np.dtype, ("float32", "float64", "int32", "int64"))
BOOL = np.dtype(bool)
BF16, F16 = np.dtype(ml_dtypes.bfloat16), np.dtype("float16")


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
