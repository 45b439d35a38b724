"""GPT-2 training step (forward, backward, AdamW, float32) against PyTorch eager, JAX.

    python -m benchmarks.gpt2_train --peers torch,jax
    python -m benchmarks.gpt2_train --peers torch,jax --batch 4 --tokens 64 --rounds 7

Times alternate in one process with the same number of threads. Peak memory is measured by running
each contender alone in a fresh process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import harness

PEAK_STEPS = 3


def batch(args: argparse.Namespace, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.random.default_rng(0).integers(0, vocabulary, (args.batch, args.tokens + 1))
    rows = rows.astype(np.int32)
    return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])


def ours(args: argparse.Namespace) -> tuple[Any, dict[str, float]]:
    """A closure running one step, and how long preparing it took."""
    import fxad
    from fxad_nn import gpt2, models, optim, spec
    from fxad_nn.step import train_step

    config = models.preset(args.preset)
    tree = gpt2.spec(config)
    optimiser = optim.adamw(optim.constant(3e-4), beta2=0.95, weight_decay=0.1)
    params = spec.init_params(tree, fxad.random.key(0))
    state = optimiser.init(params)
    step = train_step(config, optimiser, clip=None)
    tokens, targets = batch(args, config.vocab)
    start = time.perf_counter()
    held = list(step(params, state, tokens, targets))
    first = time.perf_counter() - start

    def run() -> float:
        held[0], held[1], loss = step(held[0], held[1], tokens, targets)
        return float(loss)

    return run, {"first call s": first}


def theirs(args: argparse.Namespace) -> tuple[Any, dict[str, float]]:
    import torch

    from benchmarks.torch_gpt2 import GPT2, training_step
    from fxad_nn import models

    if args.threads:
        torch.set_num_threads(args.threads)
    config = models.preset(args.preset)
    model = GPT2(config.vocab, config.context, config.layers, config.heads, config.width)
    step = training_step(model)
    tokens, targets = (torch.from_numpy(a.astype(np.int64)) for a in batch(args, config.vocab))
    start = time.perf_counter()
    step(tokens, targets)
    return lambda: step(tokens, targets), {"first call s": time.perf_counter() - start}


def in_jax(args: argparse.Namespace) -> tuple[Any, dict[str, float]]:
    from benchmarks.jax_gpt2 import training_step
    from fxad_nn import models

    config = models.preset(args.preset)
    step = training_step(config.vocab, config.context, config.layers, config.heads, config.width)
    tokens, targets = batch(args, config.vocab)
    start = time.perf_counter()
    step(tokens, targets)
    return lambda: step(tokens, targets), {"first call s": time.perf_counter() - start}


CONTENDERS = {"fxad": ours, "torch": theirs, "jax": in_jax}


def rows(quick: bool, peers: Sequence[str]) -> list[harness.Row]:
    """A training step of GPT-2 124M on 4 x 64 tokens (of nanoGPT's CPU model if quick)."""
    preset, rounds = ("nano", 5) if quick else ("gpt2", 7)
    args = argparse.Namespace(preset=preset, batch=4, tokens=64, threads=0)
    names = [name for name in CONTENDERS if name == "fxad" or name in peers]
    times = harness.alternate({name: CONTENDERS[name](args)[0] for name in names}, rounds)
    return [harness.row(f"{preset} training step (4, 64)", times)]


def memory_of(name: str, args: argparse.Namespace) -> dict[str, float]:
    """Peak resident memory and first-call time of one contender in its own process."""
    command = [sys.executable, "-m", "benchmarks.gpt2_train", "--alone", name]
    command += ["--batch", str(args.batch), "--tokens", str(args.tokens), "--preset", args.preset]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def alone(args: argparse.Namespace) -> None:
    run, facts = CONTENDERS[args.alone](args)
    for _ in range(PEAK_STEPS):
        run()
    print(json.dumps({"peak MB": harness.peak_memory(), **facts}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="", help="comma-separated: torch, jax")
    parser.add_argument("--preset", default="gpt2")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", default=None, help="write the table here")
    parser.add_argument("--alone", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        alone(args)
        return
    names = ["fxad", *(p for p in args.peers.split(",") if p)]
    memory = {name: memory_of(name, args) for name in names}
    runs = {name: CONTENDERS[name](args)[0] for name in names}
    times = harness.alternate(runs, args.rounds)
    rows = []
    for name in names:
        figures = harness.summary(times[name])
        rows.append(
            {
                "step": f"{args.preset} ({args.batch},{args.tokens})",
                "who": name,
                "ms": figures["median"],
                "min": figures["min"],
                "max": figures["max"],
                "times faster": f"{harness.ratio(times['fxad'], times[name]):.2f}",
                "peak MB": memory[name]["peak MB"],
                "first call s": memory[name]["first call s"],
            }
        )
    harness.report("gpt2_train", rows, args.json)
    product, triad = harness.matmul_ceiling(), harness.triad_ceiling()
    print(f"NumPy product {product:.0f} GFLOP/s, add {triad:.0f} GB/s")


if __name__ == "__main__":
    main()
