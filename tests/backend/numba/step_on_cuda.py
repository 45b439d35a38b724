"""Check training steps of small models on CUDA against the native ones, and time a larger one.

With a GPU:  python tests/backend/numba/step_on_cuda.py [--gpt2]
"""

from __future__ import annotations

import sys
import time

import numpy as np

import fxad
from fxad_nn import models, optim, spec
from fxad_nn.step import train_step


def step_of(batch: int, **sizes):
    """A training step of a GPT-2 and its arguments."""
    config = models.preset("tiny", **sizes)
    tree = models.family(config).spec(config)
    params = spec.init_params(tree, fxad.random.key(0))
    # A large epsilon: the bias of keys has no gradient but noise, which Adam would make full
    # steps of.
    optimiser = optim.adamw(1e-2, epsilon=1e-5)
    step = train_step(config, optimiser, clip=1.0)
    shape = batch, config.context + 1
    tokens = np.random.default_rng(0).integers(0, config.vocab, shape).astype(np.int32)
    return step, (params, optimiser.init(params), tokens[:, :-1].copy(), tokens[:, 1:].copy())


def check(batch: int, **sizes) -> None:
    step, args = step_of(batch, **sizes)
    found = step.on("cuda")(*args)
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        step.on("cuda")(*args)
        seconds.append(time.perf_counter() - begin)
    least = 1e3 * min(seconds)
    native = step(*args)  # takes over the memory of its arguments
    for ours, wanted in zip(fxad.tree.leaves(found), fxad.tree.leaves(native), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(wanted), rtol=2e-3, atol=2e-5)
    print(f"{sizes}: {least:.0f} ms a step, {len(seconds)} of them; all results agree", flush=True)


def main() -> None:
    check(2, layers=1, heads=2, width=8, hidden=16, vocab=11, context=2)
    check(3, layers=2, heads=4, width=64, hidden=256, vocab=500, context=100)
    check(4, layers=4, heads=6, width=384, hidden=1536, vocab=5000, context=256)
    if "--gpt2" in sys.argv:
        check(4, layers=12, heads=12, width=768, hidden=3072, vocab=50257, context=256)
    print("steps agree")


if __name__ == "__main__":
    main()
