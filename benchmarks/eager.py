"""Functions outside `jit` on a few elements: what a call costs beyond NumPy's.

    python -m benchmarks.eager

Each line of EXPRESSIONS is run with fxad's arrays and functions and with NumPy's, alternating; the
fastest of many short runs counts. The dearest come first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import fxad.numpy as jnp
from benchmarks import harness
from benchmarks.harness import Row
from benchmarks.overhead import over_numpy

COUNT = 20  # calls of a run

# lib: the library; x: 8 numbers, m: 4 x 4, c: a column of 4, s: 4 x 4 x 4, b: bools, i: integers
EXPRESSIONS = """
x + x | x * 2.0 | 2.0 * x | x + 1 | x / x | x ** 2 | b ** 0.5 | -x | x // 2.0 | x % 2.0 | x > 0
x == x | m + c | m + m[0] | b & b | i + i | x[:, None] + x[None, :] | lib.sin(x) | lib.exp(x)
lib.tanh(x) | lib.abs(x) | lib.square(x) | lib.sqrt(x) | lib.sign(x) | lib.floor(x)
lib.round(x) | lib.isnan(x) | lib.isfinite(x) | lib.logical_not(b) | lib.logical_and(b, b)
lib.maximum(x, x) | lib.maximum(x, 0) | lib.clip(x, -0.5, 0.5) | lib.where(b, x, x)
lib.where(b, x, 0.0) | lib.power(x, x) | lib.arctan2(x, x) | lib.hypot(x, x)
lib.logaddexp(x, x) | lib.nan_to_num(x) | x.sum() | lib.sum(m, axis=0)
lib.sum(m, axis=-1, keepdims=True) | lib.prod(x) | lib.max(x) | lib.max(m, axis=1) | lib.min(x)
lib.mean(x) | lib.mean(m, axis=1) | lib.var(x) | lib.std(x) | lib.any(b) | lib.all(b)
lib.argmax(x) | lib.cumsum(x) | lib.median(x) | lib.quantile(x, 0.3) | lib.ptp(x)
lib.average(x, weights=x + 2) | lib.count_nonzero(x) | lib.nansum(x) | lib.nanmean(x) | x @ x
m @ m | s @ s | lib.dot(m, m) | lib.einsum("ij,jk->ik", m, m) | lib.einsum("bij,bjk->bik", s, s)
lib.tensordot(m, m, 1) | lib.outer(x, x) | lib.inner(x, x) | lib.vdot(x, x) | lib.kron(m, m)
lib.trace(m) | lib.linalg.norm(x) | x.reshape(2, 4) | lib.reshape(x, (2, -1)) | m.ravel() | m.T
lib.transpose(s, (1, 0, 2)) | lib.swapaxes(s, 0, 1) | lib.moveaxis(s, 0, -1)
lib.expand_dims(x, 0) | lib.squeeze(c) | lib.broadcast_to(x, (4, 8)) | lib.flip(x)
lib.roll(x, 1) | lib.tile(x, 2) | lib.repeat(x, 2) | lib.stack([x, x]) | lib.concatenate([x, x])
lib.vstack([x, x]) | lib.hstack([x, x]) | lib.split(x, 2) | lib.pad(x, 1) | lib.append(x, x)
lib.diff(x) | lib.meshgrid(x, x) | x[0] | x[1:3] | x[None] | x[i] | m[:, 1] | float(x[0])
lib.take(x, i) | lib.take_along_axis(x, i, 0) | lib.diag(m) | lib.tril(m) | lib.sort(x)
lib.argsort(x) | lib.searchsorted(x, x) | lib.interp(x, x, x) | lib.isclose(x, x)
lib.allclose(x, x) | lib.array_equal(x, x) | x.astype(lib.int32) | lib.zeros(8)
lib.ones((2, 4)) | lib.full((8,), 2.0) | lib.zeros_like(x) | lib.arange(8) | lib.eye(4)
lib.linspace(0.0, 1.0, 8) | lib.asarray(x) | lib.array([1.0, 2.0, 3.0])
"""
CALLS: dict[str, Callable[..., Any]] = {
    text.strip(): eval(f"lambda lib, x, m, c, s, b, i: {text.strip()}")
    for line in EXPRESSIONS.strip().splitlines()
    for text in line.split(" | ")
}


def _set(array: Any, index: Any, value: Any) -> Any:
    copy = array.copy()
    copy[index] = value
    return copy


UPDATES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "x.at[0].set(1.0)": (lambda x, i: x.at[0].set(1.0), lambda x, i: _set(x, 0, 1.0)),
    "x.at[i].add(1.0)": (lambda x, i: x.at[i].add(1.0), lambda x, i: np.add.at(x.copy(), i, 1.0)),
}


def _arrays() -> list[np.ndarray]:
    x = np.linspace(-1, 1, 8, dtype=np.float32)
    m = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    s = np.linspace(0, 1, 64, dtype=np.float32).reshape(4, 4, 4)
    return [x, m, np.ones((4, 1), np.float32), s, x > 0, np.array([0, 2, 1], np.int32)]


def rows(quick: bool, peers: Sequence[str]) -> list[Row]:
    """Every expression's time, what it is beyond NumPy's, and at the end how many are within 5."""
    theirs = _arrays()
    ours = [jnp.asarray(a) for a in theirs]
    contenders = {
        text: {"fxad": partial(f, jnp, *ours), "numpy": partial(f, np, *theirs)}
        for text, f in CALLS.items()
    }
    for text, (f, g) in UPDATES.items():
        contenders[text] = {
            "fxad": partial(f, ours[0], ours[-1]),
            "numpy": partial(g, theirs[0], theirs[-1]),
        }
    found = []
    with np.errstate(all="ignore"):
        for text, pair in contenders.items():
            runs = {name: harness.repeated(f, COUNT) for name, f in pair.items()}
            times = harness.alternate(runs, 15 if quick else 60)
            found.append(over_numpy(harness.row(f"eager {text}", times, "us", COUNT)))
    found.sort(key=lambda row: -row["over numpy"])
    within = sum(row["over numpy"] <= 5 for row in found)
    return [*found, {"what": f"eager: within 5 us of NumPy {within} of {len(found)}"}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", default=None, help="write the table here")
    args = parser.parse_args()
    harness.report("eager", rows(args.quick, []), args.json)


if __name__ == "__main__":
    main()
