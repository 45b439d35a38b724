"""Kernels that memory rules, beside a generated loop with as many streams of reads and writes.

    python -m benchmarks.memory_bound
    python -m benchmarks.memory_bound --threads 1

Arrays of 2^24 float32 elements and more, far beyond the caches. `of streams` is the share of the
speed of a loop that only reads and writes as many arrays, all threads, measured in turns: of the
faster of two, one of which has streaming stores (not where arguments are overwritten).
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fxad
import fxad.numpy as jnp
from benchmarks import ceilings, harness
from benchmarks.harness import Row
from benchmarks.row_kernels import (
    adamw,
    back,
    cross_entropy,
    gelu,
    layer_norm,
    rms_norm,
    softmax,
    swiglu,
)

SHAPE = (1 << 14, 1 << 10)
LOGITS = (1 << 10, 50_257)  # GPT-2's vocabulary


# what, function, arrays in, small vectors in between, arrays read and written, donated arguments,
# shape of the arrays if not SHAPE
CASES: list[tuple] = [
    ("layer norm", layer_norm, 1, 2, (1, 1), ()),
    ("layer norm, backward in x", back(layer_norm, 1), 2, 2, (2, 1), ()),
    ("RMS norm", rms_norm, 1, 1, (1, 1), ()),
    ("RMS norm, backward in x", back(rms_norm, 1), 2, 1, (2, 1), ()),
    ("softmax", softmax, 1, 0, (1, 1), ()),
    ("softmax, backward", back(softmax, 1), 2, 0, (2, 1), ()),
    ("GELU", gelu, 1, 0, (1, 1), ()),
    ("GELU, backward", back(gelu, 1), 2, 0, (2, 1), ()),
    ("SwiGLU", swiglu, 2, 0, (2, 1), ()),
    ("SwiGLU, backward", back(swiglu, 2), 3, 0, (3, 2), ()),
    ("AdamW", adamw, 4, 0, (4, 3), (0, 2, 3)),
    ("cross-entropy", cross_entropy, 1, 0, (1, 0), (), LOGITS),
    ("cross-entropy, backward", fxad.grad(cross_entropy), 1, 0, (1, 1), (), LOGITS),
]


def ours(case: tuple) -> Callable[[], Any]:
    _, function, arrays, vectors, _, donated, *shape = case
    rng = np.random.default_rng(0)
    big = [
        jnp.asarray(rng.uniform(0.5, 1.5, shape[0] if shape else SHAPE).astype(np.float32))
        for _ in range(arrays)
    ]
    small = [jnp.ones(SHAPE[-1], jnp.float32) for _ in range(vectors)]
    inputs = [big[0], *small, *big[1:]]
    compiled = fxad.jit(function, donate_argnums=donated)

    def run() -> None:
        results = compiled(*inputs)
        for place, result in zip(donated, results if donated else (), strict=True):
            inputs[place] = result

    return run


def rows(quick: bool, peers: Sequence[str]) -> list[Row]:
    """Every kernel and its streams, in turns."""
    found = []
    threads = fxad.get_num_threads()
    for case in CASES[:1] if quick else CASES:
        what, (read, written), donated = case[0], case[4], case[5]
        high, wide = case[6] if len(case) > 6 else SHAPE
        loops = {
            name: ceilings.streams(read, written, high * wide, threads, bool(donated), past)[0]
            for name, past in {"streams": False, "past caches": True}.items()
            if not past or (written and not donated)
        }
        times = harness.alternate({"fxad": ours(case), **loops}, 5 if quick else 9)
        best = map(min, zip(*(times[name] for name in loops), strict=True))
        pairs = zip(best, times["fxad"], strict=True)
        share = statistics.median(stream / own for stream, own in pairs)
        made = harness.row(f"{what}, {high} x {wide}", times) | {"of streams": f"{share:.2f}"}
        made.pop("ahead", None)
        found.append(made)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="", help="none: the loop is the peer")
    parser.add_argument("--threads", type=int, help="as many as there are cores by default")
    asked = parser.parse_args()
    if asked.threads:
        fxad.set_num_threads(asked.threads)
    print(harness.table(rows(False, [])))


if __name__ == "__main__":
    main()
