"""Matrix products on one thread, beside NumPy's BLAS, as GFLOP/s and share of the FMA peak.

    OPENBLAS_CORETYPE=SKYLAKEX python -m benchmarks.matmul [seconds per case]

The peak is measured in turns with each case, by multiply-adds on registers alone. NumPy's OpenBLAS
picks its kernels by CPU model and falls back to 256-bit ones on models it does not know, which
halves its speed; the variable above makes it use AVX-512, and is the fair comparison.
"""

from __future__ import annotations

import ctypes
import glob
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks import ceilings
from benchmarks.harness import Row, row
from fxad.backend.llvm.contract import emit_contract
from fxad.backend.llvm.engine import compile_module, host_target
from fxad.ir.kernel import (
    Axis,
    Buffer,
    Cell,
    Contract,
    Expr,
    Get,
    Index,
    Kernel,
    Load,
    Operand,
    Prim,
    Store,
    at,
)  # fmt: skip

F32 = np.dtype("float32")
_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p])
# (what, batch, m, n, k, strides of a and b as "row" or "transposed", epilogue)
CASES = [
    ("forward", 1, 256, 2304, 768, "NN", False),
    ("forward, bias, tanh", 1, 256, 3072, 768, "NN", True),
    ("d input", 1, 256, 768, 2304, "NT", False),
    ("d weight", 1, 768, 2304, 256, "TN", False),
    ("head", 1, 256, 50257, 768, "NN", False),
    ("long rows", 1, 1024, 768, 3072, "NN", False),
    ("4 rows", 1, 4, 2304, 768, "NN", False),
    ("12 rows", 1, 12, 2304, 768, "NN", False),
    ("64 rows", 1, 64, 2304, 768, "NN", False),
    ("nano", 1, 768, 128, 128, "NN", False),
    ("nano, wide", 1, 768, 512, 128, "NN", False),
    ("scores", 48, 64, 64, 64, "NT", False),
    ("weighted values", 48, 64, 64, 64, "NN", False),
]


def product(batch: int, m: int, n: int, k: int, layout: str, epilogue: bool) -> Kernel:
    """c[g, m, n] = a @ b (+ bias, tanh) of contiguous, possibly transposed, operands."""
    g = Axis("g", batch)
    rows, columns, depth = Axis("m", m), Axis("n", n), Axis("k", k)
    sizes = {"a": m * k, "b": k * n, "c": m * n}
    a, b, c = (
        Buffer(name, F32, batch * size, "out" if name == "c" else "in")
        for name, size in sizes.items()
    )
    bias = Buffer("bias", F32, n, "in")
    a_index = _matrix(rows, depth) if layout[0] == "N" else _matrix(depth, rows)
    b_index = _matrix(depth, columns) if layout[1] == "N" else _matrix(columns, depth)
    cell = Cell("sum", F32)
    value: Expr = Get(cell)
    if epilogue:
        value = Prim("tanh", (Prim("add", (value, Load(bias, at(columns))), F32),), F32)
    stage = Contract(
        rows,
        columns,
        depth,
        Operand(a, at(g) * sizes["a"] + a_index),
        Operand(b, at(g) * sizes["b"] + b_index),
        cell,
        (Store(c, at(g) * sizes["c"] + _matrix(rows, columns), value),),
    )
    return Kernel("product", (a, b, c, bias), (), (g,), (stage,))


def _matrix(outer: Axis, inner: Axis) -> Index:
    return at(outer) * inner.extent + at(inner)


def compiled(kernel: Kernel, arrays: list[np.ndarray]) -> tuple[Callable[[], None], float]:
    """(run all units on this thread, milliseconds to emit and compile)."""
    target = host_target()
    start = time.perf_counter()
    emitted = emit_contract(kernel, "product", target)
    module = compile_module([emitted.text], emitted.declarations, target)
    elapsed = 1e3 * (time.perf_counter() - start)
    entry = _ENTRY(module.address("product"))
    addresses = (ctypes.c_void_p * len(arrays))(
        *(array.__array_interface__["data"][0] for array in arrays)
    )
    scratch = ceilings.aligned(max(emitted.scratch_bytes, 64), dtype=np.dtype(np.uint8))
    words, place = ctypes.addressof(addresses), scratch.__array_interface__["data"][0]
    alive = (module, arrays, addresses, scratch)

    def run(_: object = alive) -> None:
        entry(words, 0, emitted.units, place)

    return run, elapsed


def single_threaded_blas() -> str:
    """Limit NumPy's bundled OpenBLAS to one thread; says which kernels it chose."""
    folder = os.path.join(os.path.dirname(np.__file__), os.pardir, "numpy.libs")
    for path in glob.glob(os.path.join(folder, "*openblas*")):
        try:
            library = ctypes.CDLL(path)
            library.scipy_openblas_set_num_threads64_(1)
            name = library.scipy_openblas_get_corename64_
        except (OSError, AttributeError):
            continue
        name.restype = ctypes.c_char_p
        return f"OpenBLAS with {name().decode()} kernels"
    return "an unknown BLAS, on as many threads as it likes"


def alternate(candidates: dict[str, Callable[[], None]], seconds: float) -> dict[str, float]:
    """Median seconds of CPU time of each, taken in turns."""
    repeats, times = {}, {name: [] for name in candidates}
    for name, run in candidates.items():
        run()
        start = time.perf_counter()
        run()
        repeats[name] = max(1, int(0.01 / (time.perf_counter() - start + 1e-7)))
    stop = time.perf_counter() + seconds
    while len(times["fxad"]) < 3 or time.perf_counter() < stop:
        for name, run in candidates.items():
            start = time.thread_time()
            for _ in range(repeats[name]):
                run()
            times[name].append((time.thread_time() - start) / repeats[name])
    return {name: statistics.median(found) for name, found in times.items()}


def timed(case: tuple, seconds: float) -> tuple[dict[str, float], float, float]:
    """(median seconds of numpy, fxad and the loop at peak; that loop's flops; build ms)."""
    batch, m, n, k, layout, epilogue = case[1:]
    rng = np.random.default_rng(0)
    a = ceilings.aligned(batch, *((m, k) if layout[0] == "N" else (k, m)))
    b = ceilings.aligned(batch, *((k, n) if layout[1] == "N" else (n, k)))
    c, mine = ceilings.aligned(batch, m, n), ceilings.aligned(batch, m, n)
    bias = ceilings.aligned(n)
    for array in (a, b, bias):
        array[:] = rng.standard_normal(array.shape, dtype=F32)
    left = a if layout[0] == "N" else a.transpose(0, 2, 1)
    right = b if layout[1] == "N" else b.transpose(0, 2, 1)
    run, compile_ms = compiled(product(*case[1:]), [a, b, mine, bias])

    def numpy() -> None:
        np.matmul(left, right, out=c)
        if epilogue:
            np.tanh(np.add(c, bias, out=c), out=c)

    multiply_adds, flops = ceilings.fma()
    found = alternate({"numpy": numpy, "fxad": run, "peak": multiply_adds}, seconds)
    np.testing.assert_allclose(mine, c, rtol=0, atol=1e-5 * k)
    return found, flops, compile_ms


def measure(case: tuple, seconds: float) -> str:
    what, batch, m, n, k, layout, _ = case
    found, flops, compile_ms = timed(case, seconds)
    peak = 1e-9 * flops / found["peak"]
    rate = {name: 2e-9 * batch * m * n * k / t for name, t in found.items()}
    size = f"{batch}x{m}x{n}x{k} {layout}"
    share = 100 * rate["fxad"] / peak
    return (
        f"{what:20} {size:22} {rate['numpy']:8.1f} {rate['fxad']:8.1f} {peak:8.1f} {share:7.1f} "
        f"{rate['fxad'] / rate['numpy']:7.2f} {compile_ms:8.1f}"
    )


def rows(quick: bool, peers: Sequence[str]) -> list[Row]:
    """One thread, beside NumPy's BLAS."""
    single_threaded_blas()
    found = []
    for case in CASES[:4] if quick else CASES:
        times, flops, _ = timed(case, 0.1 if quick else 0.3)
        of = {name: [times[name]] for name in ("fxad", "numpy")}
        share = flops / times["peak"]
        rate = 2 * math.prod(case[1:5]) / times["fxad"]
        found.append(row(f"product, {case[0]}", of) | {"of peak": rate / share})
    return found


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.3
    print(f"{host_target().isa}, one thread, GFLOP/s; NumPy uses {single_threaded_blas()}")
    names = f"{'numpy':>8} {'fxad':>8} {'peak':>8} {'% peak':>7} {'ratio':>7} {'build ms':>8}"
    print(f"{'':20} {'size':22} {names}")
    for case in CASES:
        print(measure(case, seconds), flush=True)


if __name__ == "__main__":
    main()
