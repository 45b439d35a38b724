"""How much of the machine GPT-2's forward and backward use as its sizes grow.

    python -m benchmarks.scaling

Loss and gradients, without an optimiser. `of peak` is the share of what multiply-adds on registers
alone reach on all threads, measured in turns: 6 flops per parameter of a product and token, and the
causal half of attention. `of stream`: the share of the time in which a loop would read the weights
twice and write their gradients; where both are high, products and memory must be busy at once.
`backward / forward` compares the gradients alone with the loss alone; a row of its own does so for
GPT-2 124M with logits as a value of their own, so that nothing of the backward pass happens in the
forward one.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fxad
import fxad.lax as lax
from benchmarks import ceilings, harness
from benchmarks.harness import Row
from fxad_nn import flops, gpt2, models, spec
from fxad_nn.loss import cross_entropy

PEAK_TURNS = 2_000_000
STREAM = 1 << 23  # numbers in each array of the loop that only reads and writes
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


Loss = Callable[[Any, Any, Any], Any]


def loss_of_logits(params: Any, batch: Any, config: Any) -> Any:
    """The loss of logits that are stored, which keeps head and loss from being one."""
    logits = lax.optimization_barrier(gpt2.forward(params, batch[0], config))
    return cross_entropy(logits, batch[1])


def runs(config: Any, shape: tuple[int, int], loss: Loss) -> dict[str, Callable[[], Any]]:
    """The loss alone, and with its gradients, of (rows, tokens)."""
    params = spec.init_params(gpt2.spec(config), fxad.random.key(0))
    count, tokens = shape
    rows = np.random.default_rng(0).integers(0, config.vocab, (count, tokens + 1)).astype(np.int32)
    batch = (np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:]))

    def of(params: Any, batch: Any) -> Any:
        return loss(params, batch, config)

    forward, both = fxad.jit(of), fxad.jit(fxad.value_and_grad(of))
    return {
        "forward": lambda: forward(params, batch),
        "both": lambda: both(params, batch),
    }


def measured(
    what: str, config: Any, shape: tuple[int, int], rounds: int, loss: Loss = gpt2.loss
) -> Row:
    """Shares and ratios as medians over rounds."""
    threads = fxad.get_num_threads()
    loop, amount = ceilings.fma(threads, PEAK_TURNS)
    stream, size = ceilings.streams(2, 1, STREAM, threads, streaming=True)
    contenders = {**runs(config, shape, loss), "peak": loop, "stream": stream}
    times = harness.alternate(contenders, rounds, warmup=2)
    count, tokens = shape
    products = flops.training_flops_per_token(config, 0)
    needed = count * tokens * (products + flops.training_flops_per_token(config, tokens)) / 2
    moved = 3 * 4 * flops.product_params(config)
    turns = list(zip(*(times[n] for n in ("forward", "both", "peak", "stream")), strict=True))
    computing = [needed / amount * peak / both for _, both, peak, _ in turns]
    moving = [moved / size * stream / both for _, both, _, stream in turns]
    return harness.row(what, {"fxad": times["both"]}) | {
        "GFLOP": needed / 1e9,
        "of peak": f"{100 * statistics.median(computing):.0f}%",
        "of stream": f"{100 * statistics.median(moving):.0f}%",
        "backward / forward": statistics.median((b - f) / f for f, b, *_ in turns),
    }


def scaled(case: tuple[int, int, int], rounds: int) -> Row:
    """One row of tokens through so many layers."""
    layers, width, tokens = case
    what = f"{layers} layers of {width}, {tokens} tokens"
    return measured(what, config_of(*case), (1, tokens), rounds)


def unfused(rounds: int) -> Row:
    """GPT-2 124M with its loss apart from its head."""
    config = models.preset("gpt2", context=64)
    return measured(
        "GPT-2 124M, 4 x 64 tokens, head apart", config, (4, 64), rounds, loss_of_logits
    )


def rows(quick: bool, peers: Sequence[str]) -> list[Row]:
    """A small case if quick, or every case."""
    if quick:
        return [scaled(CASES[3], 3)]
    return [*(scaled(case, 7) for case in CASES), unfused(7)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="alternating turns of a case")
    parser.add_argument("--case", type=int, nargs="*", help=f"numbers from 0 to {len(CASES)}")
    given = parser.parse_args()
    found = []
    for number in given.case or range(len(CASES) + 1):
        whole = number < len(CASES)
        found.append(scaled(CASES[number], given.rounds) if whole else unfused(given.rounds))
        print("; ".join(f"{k} {v}" for k, v in found[-1].items()), flush=True)
    print(harness.table(found))


if __name__ == "__main__":
    main()
