"""Matrix products beside OpenBLAS and MKL: GFLOP/s, share of the multiply-add peak, threads.

    python -m benchmarks.matmul --peers numpy,torch                # one thread, then all cores
    python -m benchmarks.matmul --threads 1 --quick
    python -m benchmarks.matmul --only head --dtype bfloat16 --peers torch
    python -m benchmarks.matmul --cold --tokens 64               # weights from memory, as in a step

Every contender and a loop of multiply-adds on registers alone run in turns; figures are of each
one's fastest turn. OpenBLAS picks kernels by CPU model and falls back to 256-bit ones on models it
does not know: OPENBLAS_CORETYPE=SKYLAKEX makes it use AVX-512. bfloat16 products give float32 here
and bfloat16 in PyTorch (oneDNN).

A product called again and again finds its weight in cache; a training step with many layers does
not. --cold goes round copies of the weight (in products for dW, of the result) that no cache holds.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import fxad
from benchmarks import ceilings, harness
from benchmarks.blas import Blas, libraries
from benchmarks.harness import Row
from fxad.backend.llvm.contract.kernel import emit_contract
from fxad.backend.llvm.executable import Executable
from fxad.backend.llvm.native.engine import compile_module, host_target
from fxad.core.types import ArrayType
from fxad.ir.kernel import (
    Axis,
    Buffer,
    Cast,
    Cell,
    Contract,
    Get,
    Index,
    Kernel,
    Operand,
    Store,
    at,
)
from fxad.ir.plan import Plan, Run, Slot

F32 = np.dtype("float32")
Case = tuple[str, int, int, int, str]  # what, m, n, k, layouts of a and b: N or T
Runs = dict[str, Callable[[], Any]]
_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p])
_TURN = 0.008  # seconds that a contender's turn takes at least
_COLD_BYTES = 340 << 20  # of copies of a weight: what GPT-2's twelve layers take
_REST = 0.04  # seconds before it on several threads: those of the last contender still spin
_LAYERS = {"qkv": (768, 2304), "projection": (768, 768), "up": (768, 3072), "down": (3072, 768)}


def gpt2(tokens: int) -> list[Case]:
    """The products of a GPT-2 124M layer and head: y = x w, dx = dy wT, dw = xT dy."""
    found: list[Case] = []
    for name, (inner, outer) in _LAYERS.items():
        found += [
            (f"{name} forward", tokens, outer, inner, "NN"),
            (f"{name} dX", tokens, inner, outer, "NT"),
            (f"{name} dW", inner, outer, tokens, "TN"),
        ]
    head = [
        ("head forward", tokens, 50257, 768, "NT"),
        ("head dX", tokens, 768, 50257, "NN"),
        ("head dW", 50257, 768, tokens, "TN"),
    ]
    return found + head


ODD: list[Case] = [
    ("odd", 257, 1000, 771, "NN"),
    ("odd dX", 257, 771, 1000, "NT"),
    ("odd dW", 771, 1000, 257, "TN"),
    ("small odd", 33, 65, 129, "NN"),
    ("square", 1000, 1000, 1000, "NN"),
    ("square, power of 2", 1024, 1024, 1024, "NN"),
    ("tall", 20000, 64, 64, "NN"),
    ("wide", 64, 20000, 64, "NN"),
    ("deep", 64, 64, 20000, "TN"),
    ("4 rows", 4, 2304, 768, "NN"),
    ("12 rows", 12, 2304, 768, "NN"),
    ("64 rows", 64, 2304, 768, "NN"),
    ("nano", 768, 128, 128, "NN"),
]
CASES = gpt2(256) + gpt2(1024) + ODD
QUICK = [*gpt2(256)[:6], *ODD[:4]]


def product(m: int, n: int, k: int, layout: str, dtype: np.dtype = F32) -> Kernel:
    """c[m, n] = a @ b of contiguous, possibly transposed, operands; sums are float32."""
    rows, columns, depth = Axis("m", m), Axis("n", n), Axis("k", k)
    a, b = Buffer("a", dtype, m * k, "in"), Buffer("b", dtype, k * n, "in")
    c = Buffer("c", dtype, m * n, "out")
    a_index = _matrix(rows, depth) if layout[0] == "N" else _matrix(depth, rows)
    b_index = _matrix(depth, columns) if layout[1] == "N" else _matrix(columns, depth)
    cell = Cell("sum", F32)
    value = Get(cell) if dtype == F32 else Cast(Get(cell), dtype)
    stores = (Store(c, _matrix(rows, columns), value),)
    stage = Contract(rows, columns, depth, Operand(a, a_index), Operand(b, b_index), cell, stores)
    return Kernel("product", (a, b, c), (), (), (stage,))


def _matrix(outer: Axis, inner: Axis) -> Index:
    return at(outer) * inner.extent + at(inner)


def alone(kernel: Kernel, sets: list[list[np.ndarray]]) -> list[Callable[[], None]]:
    """Each runs all units on the calling thread, on one of the sets of arrays."""
    target = host_target()
    emitted = emit_contract(kernel, "product", target)
    module = compile_module([emitted.text], emitted.declarations, target)
    entry = _ENTRY(module.address("product"))
    scratch = ceilings.aligned(max(emitted.scratch_bytes, 64), dtype=np.dtype(np.uint8))

    def bound(arrays: list[np.ndarray]) -> Callable[[], None]:
        addresses = (ctypes.c_void_p * len(arrays))(*map(ceilings.place, arrays))
        words, place = ctypes.addressof(addresses), ceilings.place(scratch)

        def run(_: object = (module, arrays, addresses, scratch)) -> None:
            entry(words, 0, emitted.units, place)

        return run

    return [bound(arrays) for arrays in sets]


def pooled(kernel: Kernel, sets: list[list[np.ndarray]]) -> list[Callable[[], None]]:
    """Each runs on all threads of the pool, into the last array of one of the sets.

    A product too small to be cut runs on the calling thread, where only the way to it would differ.
    """
    if emit_contract(kernel, "product", host_target()).units == 1:
        return alone(kernel, sets)
    types = [ArrayType(b.dtype, (b.size,)) for b in kernel.buffers]
    a, b = (Slot(i, types[i], "argument", i) for i in range(2))
    c = Slot(2, types[2], "result", 0)
    plan = Plan((a, b, c), (Run(kernel, (a, b, c)),), (), (c,), 0, {0: 2})
    executable = Executable(plan)

    def bound(arrays: list[np.ndarray]) -> Callable[[], None]:
        flat = [x.reshape(-1) for x in arrays]
        return lambda: executable.run(flat)

    return [bound(arrays) for arrays in sets]


def contenders(
    case: Case, threads: int, dtype: np.dtype, peers: Sequence[str], cold: bool = False
) -> Runs:
    """fxad and its peers on arrays of their own results, which are compared."""
    _, m, n, k, layout = case
    rng = np.random.default_rng(0)
    a = _drawn(rng, (m, k) if layout[0] == "N" else (k, m), dtype)
    b = _drawn(rng, (k, n) if layout[1] == "N" else (n, k), dtype)
    mine, theirs = ceilings.aligned(m, n, dtype=dtype), ceilings.aligned(m, n)
    rights, mines, others = [b], [mine], [theirs]
    if cold and layout == "TN":
        mines, others = _copies(mine), _copies(theirs)
    elif cold:
        rights = _copies(b)
    sets = [[a, *both] for both in itertools.product(rights, mines)]
    turn = itertools.cycle(range(len(sets)))  # one for all, or one would warm what the next reads
    make = alone if threads == 1 else pooled
    runs: Runs = {"fxad": _in_turn(make(product(m, n, k, layout, dtype), sets), turn)}
    pairs = list(itertools.product(rights, others))

    def seen(x: np.ndarray, letter: str) -> np.ndarray:
        return x if letter == "N" else x.T

    left = seen(a, layout[0])
    if dtype == F32:
        for name, blas in _limited(peers, threads).items():
            calls = [blas.product(left, seen(r, layout[1]), out) for r, out in pairs]
            runs[name] = _in_turn(calls, turn)
    elif "torch" in peers:
        calls = [_one_dnn(left, seen(r, layout[1]), threads) for r in rights]
        runs["oneDNN"] = _in_turn(calls, turn)
    for run in runs.values():
        for _ in sets:
            run()
    if dtype == F32 and len(runs) > 1:
        np.testing.assert_allclose(mines[-1], others[-1], rtol=0, atol=1e-5 * k)
    return runs


def _copies(array: np.ndarray) -> list[np.ndarray]:
    """The array and as many copies as no cache holds together."""
    found = [array]
    for _ in range(math.ceil(_COLD_BYTES / array.nbytes) - 1):
        found.append(ceilings.aligned(*array.shape, dtype=array.dtype))
        found[-1][:] = array
    return found


def _in_turn(calls: Sequence[Callable[[], Any]], turn: Iterator[int]) -> Callable[[], Any]:
    if len(calls) == 1:
        return calls[0]
    return lambda: calls[next(turn)]()


def _drawn(rng: np.random.Generator, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    array = ceilings.aligned(*shape, dtype=dtype)
    array[:] = rng.standard_normal(shape, dtype=F32)
    return array


def _limited(peers: Sequence[str], threads: int) -> dict[str, Blas]:
    found = libraries(peers)
    for blas in found.values():
        blas.limit(threads)
    return found


def _one_dnn(left: np.ndarray, right: np.ndarray, threads: int) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(threads)
    a, b = (torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) for x in (left, right))
    out = torch.empty(left.shape[0], right.shape[1], dtype=torch.bfloat16)
    return lambda: torch.matmul(a, b, out=out)


def turns(runs: Runs, seconds: float, threads: int) -> dict[str, list[float]]:
    """Seconds per call of each, in turns of several calls; at least three turns.

    One thread is measured in the processor's time, which other programs do not take from.
    """
    clock = time.thread_time if threads == 1 else time.perf_counter
    repeats = {}
    for name, run in runs.items():
        start = time.perf_counter()
        run()
        repeats[name] = max(1, math.ceil(_TURN / (time.perf_counter() - start + 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in runs}
    stop = time.perf_counter() + seconds
    while len(times["fxad"]) < 3 or time.perf_counter() < stop:
        for name, run in runs.items():
            if threads > 1:
                time.sleep(_REST)
                run()
            start = clock()
            for _ in range(repeats[name]):
                run()
            times[name].append((clock() - start) / repeats[name])
    return times


def measured(
    case: Case,
    threads: int,
    seconds: float,
    dtype: np.dtype,
    peers: Sequence[str],
    cold: bool = False,
) -> Row:
    """GFLOP/s of all, the share of the peak, and how far ahead of each peer."""
    what, m, n, k, layout = case
    fxad.set_num_threads(threads)
    runs = contenders(case, threads, dtype, peers, cold)
    peak, flops = ceilings.fma(threads, 400_000 if threads > 1 else 100_000)
    best = {
        name: min(times) for name, times in turns(runs | {"peak": peak}, seconds, threads).items()
    }
    rates = {name: 2e-9 * m * n * k / best[name] for name in runs}
    row: Row = {"what": what, "size": f"{m}x{n}x{k} {layout}", "threads": threads}
    row |= rates | {"peak": 1e-9 * flops / best["peak"]}
    row["% of peak"] = 100 * rates["fxad"] / row["peak"]
    peers_best = [rate for name, rate in rates.items() if name != "fxad"]
    if peers_best:
        row["ahead"] = rates["fxad"] / max(peers_best)
    return row


def rows(quick: bool, peers: Sequence[str]) -> list[Row]:
    """One thread."""
    return [measured(c, 1, 0.2, F32, peers) for c in (QUICK if quick else CASES)]


def summaries(found: list[Row]) -> list[str]:
    """Geometric means over the cases; two threads against one, of what was measured with both."""
    lines = []
    counts = sorted({row["threads"] for row in found})
    for threads in counts:
        of = [row for row in found if row["threads"] == threads]
        names = [n for n in of[0] if n not in ("what", "size", "threads", "% of peak", "ahead")]
        means = {
            name: statistics.geometric_mean(row["fxad"] / row[name] for row in of) for name in names
        }
        shown = ", ".join(f"{v:.3f} of {n}" for n, v in means.items() if n != "fxad")
        worst = min(of, key=lambda row: row.get("ahead", 1.0))
        lines.append(
            f"{threads} threads: {shown}; worst {worst.get('ahead', 1.0):.2f}, {worst['what']}"
        )
    if len(counts) > 1:
        pairs = [[row for row in found if row["threads"] == count] for count in counts[:2]]
        gains = [two["fxad"] / one["fxad"] for one, two in zip(*pairs, strict=True)]
        lines.append(f"{counts[1]} threads / 1: {statistics.geometric_mean(gains):.2f}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--peers", default="numpy,torch", help="numpy: OpenBLAS; torch: MKL, oneDNN"
    )
    parser.add_argument("--threads", default="", help="comma-separated; default: 1 and all cores")
    parser.add_argument("--only", default="", help="comma-separated beginnings of the cases' names")
    parser.add_argument("--seconds", type=float, default=0.4, help="per case")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--quick", action="store_true", help="ten cases")
    parser.add_argument("--cold", action="store_true", help="weights from memory")
    parser.add_argument("--tokens", type=int, help="only GPT-2's products, for so many")
    args = parser.parse_args()
    peers = harness.installed([p for p in args.peers.split(",") if p])
    dtype = F32 if args.dtype == "float32" else np.dtype(ml_dtypes.bfloat16)
    listed = args.threads or ",".join(map(str, sorted({1, harness.machine()["cores"]})))
    beginnings = tuple(args.only.split(","))
    cases = gpt2(args.tokens) if args.tokens else QUICK if args.quick else CASES
    found: list[Row] = []
    for threads in map(int, listed.split(",")):
        for case in cases:
            if not case[0].startswith(beginnings):
                continue
            row = measured(case, threads, args.seconds, dtype, peers, args.cold)
            if not found:
                print(f"{host_target().isa}, GFLOP/s\n" + _header(row))
            print(_line(row), flush=True)
            found.append(row)
    print("\n".join(summaries(found)))


def _header(row: Row) -> str:
    return _line({name: name for name in row})


def _line(row: Row) -> str:
    what, size, threads, *rest = row.values()
    cells = [f"{x:>19}" if isinstance(x, str) else f"{x:19.{0 if x > 9 else 2}f}" for x in rest]
    return f"{what:19} {size:19} {threads:>7} " + " ".join(cells)


if __name__ == "__main__":
    main()
