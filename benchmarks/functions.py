"""Elementary functions: speed beside NumPy's and PyTorch's, and a sweep of float32's errors.

    python -m benchmarks.functions --peers numpy,torch       # microseconds, one thread
    python -m benchmarks.functions --peers numpy,torch --dtype float64
    python -m benchmarks.functions --peers numpy,torch --threads 2 --elements 1048576
    python -m benchmarks.functions --sweep exp,tanh          # all 2^32 arguments, errors in ulp
    python -m benchmarks.functions --sweep all --stride 1021

The sweep compares with float64 functions of NumPy (of SciPy for erf) rounded to nowhere: an error
of x ulp is x spacings of the float32 nearest to the exact result. Of odd and even functions it
takes positive arguments, and looks whether negative ones give the same bits but for the sign; of
those outside of a function's domain, and beyond 2**18 of sines, it takes every 61st.
Powers have two arguments: their sweep takes every base with one exponent, and every exponent with
one base. A sweep of one function takes 15 to 60 seconds of a core.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fxad
import fxad.numpy as jnp
from benchmarks import harness
from benchmarks.harness import Row

ELEMENTS = 1 << 17  # a megabyte in and out: in the second-level cache
CALLS = 20  # one after another, so that each finds its own arrays in the cache
CALLS_OF_THREADS = 200  # a thread that slept takes as long as several calls to come
BLOCK = 1 << 14  # its arrays stay in the cache
F32, F64 = np.float32, np.float64


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _rsqrt(x: Any) -> Any:
    return 1 / np.sqrt(x)


# name -> (ours, NumPy's, PyTorch's name or None, range of arguments timed)
Timed = tuple[Callable[..., Any], Callable[..., Any] | None, str | None, tuple[float, float]]
FUNCTIONS: dict[str, Timed] = {
    "exp": (jnp.exp, np.exp, "exp", (-20, 20)),
    "exp2": (jnp.exp2, np.exp2, "exp2", (-20, 20)),
    "expm1": (jnp.expm1, np.expm1, "expm1", (-5, 5)),
    "log": (jnp.log, np.log, "log", (0.01, 100)),
    "log2": (jnp.log2, np.log2, "log2", (0.01, 100)),
    "log1p": (jnp.log1p, np.log1p, "log1p", (-0.9, 100)),
    "sin": (jnp.sin, np.sin, "sin", (-100, 100)),
    "cos": (jnp.cos, np.cos, "cos", (-100, 100)),
    "tan": (jnp.tan, np.tan, "tan", (-10, 10)),
    "arcsin": (jnp.arcsin, np.arcsin, "asin", (-1, 1)),
    "arccos": (jnp.arccos, np.arccos, "acos", (-1, 1)),
    "arctan": (jnp.arctan, np.arctan, "atan", (-10, 10)),
    "sinh": (jnp.sinh, np.sinh, "sinh", (-10, 10)),
    "cosh": (jnp.cosh, np.cosh, "cosh", (-10, 10)),
    "arcsinh": (jnp.arcsinh, np.arcsinh, "asinh", (-10, 10)),
    "arccosh": (jnp.arccosh, np.arccosh, "acosh", (1, 100)),
    "arctanh": (jnp.arctanh, np.arctanh, "atanh", (-1, 1)),
    "tanh": (jnp.tanh, np.tanh, "tanh", (-5, 5)),
    "erf": (fxad.lax.erf, None, "erf", (-4, 4)),
    "sigmoid": (fxad.nn.sigmoid, _sigmoid, "sigmoid", (-10, 10)),
    "sqrt": (jnp.sqrt, np.sqrt, "sqrt", (0, 100)),
    "rsqrt": (fxad.lax.rsqrt, _rsqrt, "rsqrt", (0.01, 100)),
    "cbrt": (jnp.cbrt, np.cbrt, None, (-100, 100)),
    "power": (jnp.power, np.power, "pow", (0.01, 10)),
    "arctan2": (jnp.arctan2, np.arctan2, "atan2", (-10, 10)),
}
BINARY = ("power", "arctan2")
EVEN = ("cos", "cosh")
ODD = (
    "sin", "tan", "arcsin", "arctan", "sinh", "arcsinh", "arctanh", "tanh", "erf", "cbrt",
)  # fmt: skip
SIGN = np.uint32(1 << 31)
OCTAVE = np.uint64(0x7FF << 52)  # the exponent of a double


def draw(name: str, elements: int, dtype: str = "float32") -> list[np.ndarray]:
    low, high = FUNCTIONS[name][3]
    r = np.random.default_rng(0)
    return [r.uniform(low, high, elements).astype(dtype) for _ in range(1 + (name in BINARY))]


def contenders(
    name: str,
    peers: Sequence[str],
    elements: int = ELEMENTS,
    dtype: str = "float32",
    threads: int = 1,
) -> dict[str, Callable[[], Any]]:
    """name -> a call. Ours take as many threads as are set, PyTorch's `threads`, NumPy's one."""
    ours, numpys, torchs, _ = FUNCTIONS[name]
    inputs = draw(name, elements, dtype)
    arrays = [jnp.asarray(x, dtype=dtype) for x in inputs]
    compiled = fxad.jit(lambda *xs: ours(*xs))
    made: dict[str, Callable[[], Any]] = {"fxad": lambda: compiled(*arrays)}
    if "numpy" in peers and numpys is not None:
        out = np.empty(elements, dtype)
        if isinstance(numpys, np.ufunc):
            made["numpy"] = lambda: numpys(*inputs, out=out)
        else:
            made["numpy"] = lambda: numpys(*inputs)
    if "torch" in peers and torchs is not None:
        import torch

        torch.set_num_threads(threads)
        tensors = [torch.from_numpy(x) for x in inputs]
        result = torch.empty(elements, dtype=tensors[0].dtype)
        function = getattr(torch, torchs)
        made["torch"] = lambda: function(*tensors, out=result)
    return made


def rows(
    quick: bool,
    peers: Sequence[str],
    elements: int = ELEMENTS,
    dtype: str = "float32",
    threads: int = 1,
) -> list[Row]:
    """Microseconds for so many elements (by default as many as the cache holds)."""
    before = fxad.get_num_threads()
    fxad.set_num_threads(threads)
    names = ["exp", "tanh", "erf", "sin"] if quick else list(FUNCTIONS)
    calls, rounds, pause = CALLS, 7 if quick else 25, 0.0
    if threads > 1:
        calls, rounds, pause = CALLS_OF_THREADS, 5, harness.REST
    found = []
    for name in names:
        runs = {
            who: harness.repeated(run, calls)
            for who, run in contenders(name, peers, elements, dtype, threads).items()
        }
        times = harness.alternate(runs, rounds, warmup=2, pause=pause)
        found.append(harness.row(f"{name}, {elements:,} elements", times, "us", calls))
    fxad.set_num_threads(before)
    return found


def exact(name: str) -> Callable[..., np.ndarray]:
    """The function in float64, by a library."""
    if name == "erf":
        from scipy.special import erf

        return erf
    found = FUNCTIONS[name][1]
    assert found is not None
    return found


def errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """In ulp; infinity where one is NaN or infinite and the other is not, or for a wrong zero."""
    with np.errstate(all="ignore"):
        rounded = want.astype(F32)
        gap = np.spacing(np.maximum(np.abs(rounded), np.finfo(F32).smallest_subnormal)).astype(F64)
        wrong = np.abs(got.astype(F64) - want) / gap
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        sign = (got == 0) & (want == 0) & (np.signbit(got) != np.signbit(want))
    wrong = np.where(same & ~np.isfinite(wrong), 0.0, np.where(np.isnan(wrong), np.inf, wrong))
    return np.where(sign, np.inf, wrong)


def worst_of(got: np.ndarray, want: np.ndarray, known: float = 0.5) -> tuple[float, int]:
    """The largest error and where; `known` and 0 where none is larger than `known`.

    Few passes over all results leave suspects: those `known` spacings of its octave from the exact
    result, or further, or not finite, or zero. Only they are looked at closely.
    """
    with np.errstate(all="ignore"):
        gap = (want.view(np.uint64) & OCTAVE).view(F64)
        gap *= known * 2.0**-23
        np.maximum(gap, known * 2.0**-149, out=gap)
        away = np.subtract(got, want, dtype=F64)
        near = np.less(np.abs(away, out=away), gap)  # not where both are infinite
        near &= want != 0
        if near.all():
            return known, 0
        suspects = np.flatnonzero(~near)
        rounded = want[suspects].astype(F32)
        differ = got[suspects].view(np.uint32) != rounded.view(np.uint32)
    suspects = suspects[differ]
    if not len(suspects):
        return known, 0
    found = errors(got[suspects], want[suspects])
    at = int(found.argmax())
    return max(known, float(found[at])), int(suspects[at])


def asymmetry(ahead: np.ndarray, behind: np.ndarray, odd: bool) -> np.ndarray:
    """Where results of negative arguments are not what those of positive ones say."""
    mirrored = ahead.view(np.uint32) ^ (SIGN if odd else np.uint32(0))
    if np.array_equal(behind.view(np.uint32), mirrored):
        return np.empty(0, int)
    both_nan = np.isnan(ahead) & np.isnan(behind)
    return np.flatnonzero((behind.view(np.uint32) != mirrored) & ~both_nan)


def _needed(name: str, reference: Callable[..., Any], x: np.ndarray) -> np.ndarray:
    """Of neighbouring floats those to look at: each 61st where the function is not defined, and of
    sines where float64's are taken, whose references are slow."""
    with np.errstate(all="ignore"):
        outside = name not in BINARY and np.isnan(reference(x[[0, -1]].astype(F64))).all()
    return x[::61] if outside or (name in ("sin", "cos") and x[0] > 2.0**18) else x


def sweep(name: str, stride: int) -> tuple[float, float]:
    """(largest error in ulp, the argument), at least 0.5; of every or each `stride`-th float32."""
    ours, reference = fxad.jit(lambda *xs: FUNCTIONS[name][0](*xs)), exact(name)
    worst, where = 0.5, 0.0
    mirrored = name in EVEN or name in ODD
    end = 1 << (31 if mirrored else 32)
    for start in range(0, end, BLOCK * stride):
        stop = min(start + BLOCK * stride, end)
        x = np.arange(start, stop, stride, dtype=np.uint64).astype(np.uint32).view(F32)
        x = _needed(name, reference, x)
        cases = [[x]]
        if name in BINARY:
            cases = [[x, np.full_like(x, 2.7)], [np.full_like(x, 0.37), x]]
        for inputs in cases:
            got = np.asarray(ours(*inputs))
            with np.errstate(all="ignore"):
                want = reference(*(v.astype(F64) for v in inputs))
            found, at = worst_of(got, want, worst)
            if found > worst:
                worst, where = found, float(x[at])
        if mirrored and len(bad := asymmetry(got, np.asarray(ours(-x)), name in ODD)):
            return float("inf"), float(-x[bad[0]])
        if sys.stderr.isatty():
            print(f"\r{name}: {100 * stop / end:.0f}%", end="", file=sys.stderr)
    return worst, where


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="numpy", help="comma-separated: numpy, torch")
    parser.add_argument("--elements", type=int, default=ELEMENTS, help="of each array")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--threads", type=int, default=1, help="ours and PyTorch's; NumPy has one")
    parser.add_argument("--sweep", default="", help="comma-separated functions, or all")
    parser.add_argument("--stride", type=int, default=1, help="every so many-th argument")
    args = parser.parse_args()
    if not args.sweep:
        peers = harness.installed([p for p in args.peers.split(",") if p])
        print(harness.table(rows(False, peers, args.elements, args.dtype, args.threads)))
        return
    for name in FUNCTIONS if args.sweep == "all" else args.sweep.split(","):
        worst, where = sweep(name, args.stride)
        print(f"{name:8} {worst:10.3f} ulp at {where!r}", flush=True)


if __name__ == "__main__":
    main()
