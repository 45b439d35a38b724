"""All cases for the numba backend, matrix products among them, and a part that stands for them."""

from __future__ import annotations

import re

import numpy as np
from numba_kernels import (
    BF16,
    C64,
    F32,
    I32,
    Case,
    analytic_cases,
    cast_cases,
    elementwise_cases,
    indexed_cases,
    row_cases,
    sample,
    sequential_cases,
)

from fxad.ir.kernel import (
    Axis,
    Buffer,
    Cell,
    Const,
    Contract,
    Get,
    Kernel,
    Load,
    Map,
    Operand,
    Prim,
    Reduce,
    Store,
    at,
)

# ---------------------------------------------------------------- matrix products


def product(
    rng: np.random.Generator,
    size: tuple[int, int, int, int],
    dtype: np.dtype = F32,
    accumulator: np.dtype | None = None,
    rtol: float = 0.0,
) -> Case:
    """out[g, m, n] = max(sum over k of a[g, k, m] b[g, n, k] + bias[n], 0): both transposed."""
    grid, rows, columns, depth = size
    g, m, n, k = (Axis(*p) for p in zip("gmnk", size, strict=True))
    sums = accumulator or dtype
    a = Buffer("a", dtype, grid * rows * depth, "in")
    b = Buffer("b", dtype, grid * columns * depth, "in")
    bias, out = (
        Buffer("bias", sums, columns, "in"),
        Buffer("out", sums, grid * rows * columns, "out"),
    )
    cell = Cell("sum", sums)
    value = Prim("add", (Get(cell), Load(bias, at(n))), sums)
    if sums.kind != "c":
        value = Prim("max", (value, Const(0, sums)), sums)
    place = at(g) * (rows * columns) + at(m) * columns + at(n)
    stage = Contract(
        m,
        n,
        k,
        Operand(a, at(g) * (rows * depth) + at(k) * rows + at(m)),
        Operand(b, at(g) * (columns * depth) + at(n) * depth + at(k)),
        cell,
        (Store(out, place, value),),
    )
    kernel = Kernel(f"product {size} {dtype}", (a, b, bias, out), (), (g,), (stage,))
    arrays = [
        sample(rng, d, s) if d.kind in "ic" else rng.standard_normal(s).astype(d)
        for d, s in ((dtype, a.size), (dtype, b.size), (sums, columns))
    ]
    return Case(kernel, [*arrays, np.zeros(out.size, sums)], (), rtol)


def scores(rng: np.random.Generator, rows: int = 9, depth: int = 5) -> Case:
    """A product into scratch, row sums over it, and the quotient: stages of one block."""
    g, m, n, k = (Axis(*p) for p in zip("gmnk", (2, rows, rows, depth), strict=True))
    i, j = Axis("i", rows), Axis("j", rows)
    size, square = 2 * rows * depth, rows * rows
    x, out = Buffer("x", I32, size, "in"), Buffer("out", I32, 2 * square, "out")
    kept, sums = Buffer("kept", I32, square, "scratch"), Cell("sums", I32)
    total = Cell("total", I32)
    base = at(g) * (rows * depth) + at(k)
    product = Contract(
        m,
        n,
        k,
        Operand(x, base + at(m) * depth),
        Operand(x, base + at(n) * depth),
        sums,
        (Store(kept, at(m) * rows + at(n), Get(sums)),),
    )
    whole = Reduce((i, j), "add", (Load(kept, at(i) * rows + at(j)),), (total,), "lanes")
    value = Prim("sub", (Load(kept, at(i) * rows + at(j)), Get(total)), I32)
    place = at(g) * square + at(i) * rows + at(j)
    stages = (product, whole, Map((i, j), (Store(out, place, value),)))
    kernel = Kernel("scores", (x, out), (), (g,), stages)
    return Case(kernel, [rng.integers(-9, 9, size).astype(I32), np.zeros(2 * square, I32)])


def product_cases(rng: np.random.Generator) -> list[Case]:
    return [
        # The reference multiplies in double and rounds twice: seldom a last bit.
        product(rng, (2, 5, 7, 33), rtol=1e-5),
        product(rng, (1, 2, 3, 1000), rtol=1e-4),  # two blocks of K
        product(rng, (1, 17, 3, 16), I32),
        product(rng, (1, 2, 3, 0), F32),
        product(rng, (1, 3, 4, 20), BF16, F32, rtol=1e-5),
        product(rng, (1, 3, 4, 20), C64, rtol=1e-4),
        scores(rng),
    ]


def all_cases() -> list[Case]:
    """Every kind of kernel with every group of dtypes."""
    rng = np.random.default_rng(0)
    made = (elementwise_cases, analytic_cases, cast_cases, indexed_cases, row_cases)
    cases = [case for make in made for case in make(rng)]
    return [*cases, *sequential_cases(rng), *product_cases(rng)]


# What is left where compiling or simulating is slow: one for each way of typing a kernel.
FEWER = re.compile(
    "(float32|bfloat16|complex128|bool) arithmetic|int32|uint64|float32 analytic|power|complex"
    "|from (float32|bfloat16|int32|uint64|bool)|indexed|softmax|argmax .* lanes.*"
    r"|add \(2, 100\) .*|mul .*|scan float32|scatter (add|set)|sort float32|scores"
    r"|product \(2, .*|product \(1, 3, 4.*"
)


def fewer_cases() -> list[Case]:
    """A representative part of `all_cases`."""
    return [case for case in all_cases() if FEWER.fullmatch(case.kernel.name)]
