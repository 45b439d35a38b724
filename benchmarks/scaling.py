"""How much of the machine GPT-2's forward and backward use as its sizes grow.

    python -m benchmarks.scaling

Loss and gradients, without an optimiser. `of peak` is the share of what multiply-adds on registers
alone reach on all threads, measured in turns: 6 flops per parameter of a product and token, and the
causal half of attention. `backward / forward` compares the gradients alone with the loss alone.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fxad
from benchmarks import ceilings, harness
from benchmarks.harness import Row
from fxad_nn import flops, gpt2, models, spec

PEAK_TURNS = 2_000_000
# layers, width, tokens; heads of 64, a vocabulary of 8,192
CASES = [
    (12, 768, 64),
    (12, 768, 256),
    (12, 768, 1024),
    (2, 256, 4096),
    (4, 512, 1024),
    (2, 1024, 1024),
    (2, 2048, 512),
    (24, 256, 256),
    (48, 256, 256),
]


def config_of(layers: int, width: int, tokens: int) -> Any:
    return models.preset(
        "gpt2",
        vocab=8192,
        context=tokens,
        layers=layers,
        heads=width // 64,
        width=width,
        hidden=4 * width,
    )


def runs(case: tuple[int, int, int]) -> dict[str, Callable[[], Any]]:
    """The loss alone, and with its gradients, of one row of tokens."""
    config = config_of(*case)
    params = spec.init_params(gpt2.spec(config), fxad.random.key(0))
    rows = np.random.default_rng(0).integers(0, config.vocab, (1, case[2] + 1)).astype(np.int32)
    batch = (np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:]))

    def loss(params: Any, batch: Any) -> Any:
        return gpt2.loss(params, batch, config)

    forward, both = fxad.jit(loss), fxad.jit(fxad.value_and_grad(loss))
    return {
        "forward": lambda: forward(params, batch),
        "both": lambda: both(params, batch),
    }


def measured(case: tuple[int, int, int], rounds: int) -> Row:
    """Shares and ratios as medians over rounds."""
    loop, amount = ceilings.fma(fxad.get_num_threads(), PEAK_TURNS)
    times = harness.alternate({**runs(case), "peak": loop}, rounds, warmup=2)
    config, tokens = config_of(*case), case[2]
    products = flops.training_flops_per_token(config, 0)
    needed = tokens * (products + flops.training_flops_per_token(config, tokens)) / 2
    turns = list(zip(times["forward"], times["both"], times["peak"], strict=True))
    share = statistics.median(needed / both / (amount / peak) for _, both, peak in turns)
    ratio = statistics.median((both - forward) / forward for forward, both, _ in turns)
    layers, width, _ = case
    return harness.row(f"{layers} layers of {width}, {tokens} tokens", {"fxad": times["both"]}) | {
        "GFLOP": needed / 1e9,
        "of peak": f"{100 * share:.0f}%",
        "backward / forward": ratio,
    }


def rows(quick: bool, peers: Sequence[str]) -> list[Row]:
    """A small case if quick, or every case."""
    return [measured(case, 3 if quick else 7) for case in (CASES[3:4] if quick else CASES)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="alternating turns of a case")
    parser.add_argument("--case", type=int, nargs="*", help=f"numbers from 0 to {len(CASES) - 1}")
    given = parser.parse_args()
    found = []
    for case in [CASES[n] for n in given.case] if given.case else CASES:
        found.append(measured(case, given.rounds))
        print("; ".join(f"{k} {v}" for k, v in found[-1].items()), flush=True)
    print(harness.table(found))


if __name__ == "__main__":
    main()
