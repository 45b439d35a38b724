"""Tiles transposed in registers: accesses across the lanes, whole and at every kind of edge."""

import ml_dtypes
import numpy as np
import pytest
from native_kernels import Case, check

from fxad.backend.llvm.base.schedule import choose
from fxad.backend.llvm.native.engine import host_target
from fxad.ir.kernel import Axis, Buffer, Cell, Get, Kernel, Load, Map, Prim, Scan, Store, at

F32 = np.dtype("float32")
DTYPES = [np.dtype(n) for n in ("float32", "float64", "float16", "int8", "int64", "bool")]
DTYPES.append(np.dtype(ml_dtypes.bfloat16))
SHAPES = [(16, 16), (33, 70), (64, 128), (5, 40), (130, 17), (8, 3), (1, 40)]


def sample(rng, dtype, n):
    if dtype.kind == "b":
        return rng.integers(0, 2, n).astype(bool)
    return rng.integers(-100, 100, n).astype(dtype)


def transposed(rng, dtype, rows, columns, plus=False):
    """out[i, j] = a[j, i], or out[i, j] = b[i, j] + a[j, i]."""
    n, i, j = rows * columns, Axis("i", rows), Axis("j", columns)
    a, b, out = (Buffer(k, dtype, n, "out" if k == "out" else "in") for k in ("a", "b", "out"))
    here, across = at(i) * columns + at(j), at(j) * rows + at(i)
    value = Load(a, across)
    if plus:
        value = Prim("or" if dtype.kind == "b" else "add", (Load(b, here), value), dtype)
    buffers = (a, b, out) if plus else (a, out)
    kernel = Kernel("turn", buffers, (), (i, j), (Map((), (Store(out, here, value),)),))
    arrays = [sample(rng, dtype, n) for _ in buffers[:-1]]
    return Case(kernel, [*arrays, np.zeros(n, dtype)])


def running(rng, dtype, rows, columns, reverse, in_place=False):
    """Running sums of rows."""
    n, i, j = rows * columns, Axis("i", rows), Axis("j", columns)
    out = Buffer("out", dtype, n, "inout" if in_place else "out")
    x = out if in_place else Buffer("x", dtype, n, "in")
    here, cell = at(i) * columns + at(j), Cell("c", dtype)
    stores = (Store(out, here, Get(cell)),)
    stage = Scan(j, "add", Load(x, here), cell, stores, reverse)
    buffers = (out,) if in_place else (x, out)
    values = (rng.standard_normal(n) * 50).astype(dtype)
    arrays = [values] if in_place else [values, np.zeros(n, dtype)]
    return Case(Kernel("running", buffers, (), (i,), (stage,)), arrays)


def test_chosen():
    schedule = choose(transposed(np.random.default_rng(0), F32, 64, 128).kernel, host_target())
    assert (schedule.lane_axis.name, schedule.inner.name, schedule.unroll) == ("j", "i", 1)


@pytest.mark.parametrize("plus", [False, True])
def test_transposes(plus):
    rng = np.random.default_rng(1)
    check([transposed(rng, d, r, c, plus) for d in DTYPES for r, c in SHAPES])


@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_of_rows(reverse):
    rng = np.random.default_rng(2)
    check([running(rng, d, r, c, reverse) for d in DTYPES if d.kind != "b" for r, c in SHAPES])
    check([running(rng, F32, r, c, reverse, in_place=True) for r, c in SHAPES])
