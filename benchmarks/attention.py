"""Causal attention, forward and forward with backward, against PyTorch's fused attention.

    python -m benchmarks.attention --peers torch --rounds 7

Times alternate in one process with the same number of threads; the backward pass gives all three
cotangents.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.harness import Row

# batch, time, heads, width
CASES = [(4, 64, 12, 64), (4, 256, 12, 64), (1, 1024, 12, 64), (1, 1024, 8, 128), (1, 4096, 4, 64)]


def draw(case: tuple[int, int, int, int]) -> list[np.ndarray]:
    """q, k, v and the cotangent of the result, [batch, time, heads, width]."""
    r = np.random.default_rng(0)
    return [r.standard_normal(case).astype(np.float32) for _ in range(4)]


def ours(case: tuple[int, int, int, int]) -> dict[str, Callable[[], Any]]:
    """Closures: forward alone, and with the backward pass."""
    import fxad
    import fxad.numpy as jnp

    q, k, v, d_out = (jnp.asarray(x) for x in draw(case))

    def attention(q: Any, k: Any, v: Any) -> Any:
        return fxad.nn.dot_product_attention(q, k, v, is_causal=True)

    def both(q: Any, k: Any, v: Any, d_out: Any) -> Any:
        out, back = fxad.vjp(attention, q, k, v)
        return out, back(d_out)

    forward, step = fxad.jit(attention), fxad.jit(both)
    return {"forward": lambda: forward(q, k, v), "with backward": lambda: step(q, k, v, d_out)}


def theirs(case: tuple[int, int, int, int]) -> dict[str, Callable[[], Any]]:
    import torch

    q, k, v, d_out = (torch.from_numpy(x).transpose(1, 2) for x in draw(case))
    leaves = [x.requires_grad_(True) for x in (q, k, v)]

    def attention() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)

    def forward() -> None:
        with torch.no_grad():
            attention()

    return {
        "forward": forward,
        "with backward": lambda: torch.autograd.grad(attention(), leaves, d_out),
    }


def rows(quick: bool, peers: Sequence[str], rounds: int = 7) -> list[Row]:
    """Both passes of every case."""
    found = []
    for case in CASES[:3] if quick else CASES:
        made = {"fxad": ours(case)} | ({"torch": theirs(case)} if "torch" in peers else {})
        calls = max(1, int(2e9 / (case[0] * case[1] ** 2 * case[2] * case[3])))
        for kind in ("forward", "with backward"):
            runs = {who: harness.repeated(of[kind], calls) for who, of in made.items()}
            times = harness.alternate(runs, rounds)
            found.append(harness.row(f"attention {case}, {kind}", times, calls=calls))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    peers = harness.installed([p for p in args.peers.split(",") if p])
    print(harness.table(rows(False, peers, args.rounds)))


if __name__ == "__main__":
    main()
