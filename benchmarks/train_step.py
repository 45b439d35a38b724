"""A training step (forward, backward, AdamW) of GPT-2 or Llama against PyTorch and JAX.

    python -m benchmarks.train_step --peers torch,torch-compile,jax
    python -m benchmarks.train_step --peers torch --preset llama-110m --batch 4 --tokens 256
    python -m benchmarks.train_step --peers torch,torch-compile --dtype bf16

With bf16 products round their factors, torch's as autocast does; parameters stay float32.

Times alternate in one process with the same number of threads, and so does a loop of multiply-adds
on registers alone on as many threads, of which `of peak` is the share: 6 flops per parameter of a
product and token, and the causal half of attention. Peak memory is measured by running each
contender alone in a fresh process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import ceilings, harness
from fxad_nn import flops, models

PEAK_STEPS = 3
PEAK_TURNS = 10_000_000  # about a tenth of a second: long enough for the clock speed to settle
Contender = tuple[Callable[[], float], float]  # a step, and seconds that its first call took


def batch(args: argparse.Namespace, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.random.default_rng(0).integers(0, vocabulary, (args.batch, args.tokens + 1))
    rows = rows.astype(np.int32)
    return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])


def ours(args: argparse.Namespace) -> Contender:
    import fxad
    from fxad_nn import optim, spec
    from fxad_nn.step import train_step

    config = models.preset(args.preset)
    optimiser = optim.adamw(optim.constant(3e-4), beta2=0.95, weight_decay=0.1)
    params = spec.init_params(models.family(config).spec(config), fxad.random.key(0))
    state = optimiser.init(params)
    step = train_step(config, optimiser, clip=None, dtype=args.dtype)
    tokens, targets = batch(args, config.vocab)
    start = time.perf_counter()
    held = list(step(params, state, tokens, targets))
    del params, state
    first = time.perf_counter() - start

    def run() -> float:
        held[0], held[1], loss = step(held[0], held[1], tokens, targets)
        return float(loss)

    return run, first


def in_torch(args: argparse.Namespace, compiled: bool = False) -> Contender:
    import torch

    from benchmarks.torch_models import model_of, training_step

    if args.threads:
        torch.set_num_threads(args.threads)
    config = models.preset(args.preset)
    step = training_step(model_of(config), compiled, args.dtype == "bf16")
    tokens, targets = (torch.from_numpy(a.astype(np.int64)) for a in batch(args, config.vocab))
    start = time.perf_counter()
    step(tokens, targets)
    return lambda: step(tokens, targets), time.perf_counter() - start


def torch_compiled(args: argparse.Namespace) -> Contender:
    return in_torch(args, compiled=True)


def in_jax(args: argparse.Namespace, scanned: bool = True) -> Contender:
    from benchmarks.jax_models import training_step

    if args.dtype != "f32":
        raise SystemExit("the step in JAX is float32 only: leave out --dtype or jax")
    config = models.preset(args.preset)
    step = training_step(config, scanned)
    tokens, targets = batch(args, config.vocab)
    start = time.perf_counter()
    step(tokens, targets)
    return lambda: step(tokens, targets), time.perf_counter() - start


def jax_unrolled(args: argparse.Namespace) -> Contender:
    return in_jax(args, scanned=False)


CONTENDERS = {
    "fxad": ours,
    "torch": in_torch,
    "torch-compile": torch_compiled,
    "jax": in_jax,
    "jax-loop": jax_unrolled,
}


def needed_flops(args: argparse.Namespace) -> float:
    """Of one step: 6 per product parameter and token, and attention's causal half."""
    config = models.preset(args.preset)
    full = flops.training_flops_per_token(config, args.tokens)
    products = flops.training_flops_per_token(config, 0)
    return args.batch * args.tokens * (products + full) / 2


# preset, batch, tokens, dtype of products, rounds
CASES = [
    ("gpt2", 4, 64, "f32", 7),
    ("gpt2", 1, 16, "f32", 7),
    ("gpt2", 1, 64, "f32", 7),
    ("gpt2", 1, 128, "f32", 7),
    ("gpt2", 4, 256, "f32", 3),
    ("gpt2", 1, 1024, "f32", 3),
    ("gpt2", 8, 512, "f32", 2),
    ("gpt2", 4, 64, "bf16", 7),
    ("gpt2", 4, 256, "bf16", 3),
    ("llama-110m", 1, 64, "f32", 7),
    ("llama-110m", 4, 64, "f32", 5),
]


def rows(quick: bool, peers: Sequence[str]) -> list[harness.Row]:
    """Steps of GPT-2 124M and a Llama of 110M, and what memory they take; if quick a step of
    nanoGPT's CPU model on 4 x 64 tokens."""
    if quick:
        return [_summary(("nano", 4, 64, "f32", 5), peers, memory=False)]
    return [_summary(case, peers, memory=True) for case in CASES]


def _summary(case: tuple, peers: Sequence[str], memory: bool) -> harness.Row:
    preset, batch, tokens, dtype, rounds = case
    args = argparse.Namespace(preset=preset, batch=batch, tokens=tokens, threads=0, dtype=dtype)
    left_out = {"jax", "jax-loop"} if dtype != "f32" else set()
    names = ["fxad", *(name for name in CONTENDERS if name in peers and name not in left_out)]
    taken = {name: memory_of(name, args)["peak MB"] for name in names} if memory else {}
    times = in_turns({name: CONTENDERS[name](args)[0] for name in names}, rounds)
    made = harness.row(f"{preset} training step ({batch}, {tokens}) {dtype}", times)
    if taken:
        made["peak MB"] = taken.pop("fxad")
    if taken:
        made["memory / least peer's"] = made["peak MB"] / min(taken.values())
    return made


def in_turns(contenders: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds per step; a step is long enough not to be run twice for its threads' waking."""
    return harness.alternate(contenders, rounds, pause=harness.REST, woken=False)


def memory_of(name: str, args: argparse.Namespace) -> dict[str, float]:
    """Peak resident memory and first-call time of one contender in its own process."""
    command = [sys.executable, "-m", "benchmarks.train_step", "--alone", name]
    command += ["--batch", str(args.batch), "--tokens", str(args.tokens), "--preset", args.preset]
    command += ["--dtype", args.dtype]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def alone(args: argparse.Namespace) -> None:
    run, first = CONTENDERS[args.alone](args)
    for _ in range(PEAK_STEPS):
        run()
    print(json.dumps({"peak MB": harness.peak_memory(), "first call s": first}))


def measured(names: Sequence[str], args: argparse.Namespace) -> list[harness.Row]:
    """A row for every contender."""
    memory = {name: memory_of(name, args) for name in names} if args.memory else {}
    loop, amount = ceilings.fma(args.threads or harness.machine()["cores"], PEAK_TURNS)
    runs: dict[str, Callable[[], Any]] = {name: CONTENDERS[name](args)[0] for name in names}
    times = in_turns({**runs, "peak": loop}, args.rounds)
    peaks = [amount / seconds for seconds in times["peak"]]
    found = []
    for name in names:
        figures = harness.summary(times[name])
        rates = [needed_flops(args) / seconds for seconds in times[name]]
        share = statistics.median(rate / peak for rate, peak in zip(rates, peaks, strict=True))
        made: harness.Row = {
            "step": f"{args.preset} ({args.batch},{args.tokens}) {args.dtype}",
            "who": name,
            "ms": figures["median"],
            "min": figures["min"],
            "max": figures["max"],
            "times faster": f"{harness.ratio(times['fxad'], times[name]):.2f}",
            "of peak": f"{100 * share:.0f}%",
        }
        found.append(made | memory.get(name, {}))
    lowest, highest = (f"{1e-9 * f(peaks):.0f}" for f in (min, max))
    print(f"multiply-adds on registers: {lowest} to {highest} GFLOP/s")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="", help=f"comma-separated: {', '.join(CONTENDERS)}")
    parser.add_argument("--preset", default="gpt2")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtype", default="f32", choices=("f32", "bf16"), help="of products")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", default=None, help="write the table here")
    parser.add_argument("--no-memory", dest="memory", action="store_false", help="times only")
    parser.add_argument("--alone", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        alone(args)
        return
    names = ["fxad", *(p for p in args.peers.split(",") if p)]
    if unknown := [name for name in names if name not in CONTENDERS]:
        parser.error(f"no peer named {', '.join(unknown)}; there are {', '.join(CONTENDERS)}")
    harness.report("train_step", measured(names, args), args.json)
    triad = harness.triad_ceiling()
    print(f"NumPy's add on one thread: {triad:.0f} GB/s")


if __name__ == "__main__":
    main()
