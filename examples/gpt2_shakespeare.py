"""A small GPT-2 learns the characters of a text: Tiny Shakespeare if you give it, else Python's.

python examples/gpt2_shakespeare.py [FILE]
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import fxad
from fxad_nn import models, optim, spec
from fxad_nn.generate import generate
from fxad_nn.step import train_step


def read(path):
    """The file's text, or the source of a module that every Python has."""
    if path:
        return Path(path).read_text()
    return Path(argparse.__file__).read_text()


def batches(tokens, count, batch, context, seed=0):
    """`count` batches of random windows: inputs and next tokens, both [batch, context] int32."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        starts = rng.integers(0, len(tokens) - context, batch)
        rows = np.stack([tokens[s : s + context + 1] for s in starts])
        yield rows[:, :-1].copy(), rows[:, 1:].copy()


def main(path=None, steps=1000) -> float:
    text = read(path)
    letters = sorted(set(text))
    tokens = np.array([letters.index(c) for c in text], np.int32)

    config = models.preset("nano", layers=2, heads=2, width=64, hidden=256, vocab=len(letters))
    tree = models.family(config).spec(config)
    params = spec.init_params(tree, fxad.random.key(0))
    print(f"{spec.count_params(tree):,} parameters, {len(tokens):,} characters")

    optimiser = optim.adamw(optim.cosine(3e-3, 3e-4, warmup=20, steps=steps), beta2=0.99)
    state = optimiser.init(params)
    step = train_step(config, optimiser, clip=1.0)
    for i, (x, y) in enumerate(batches(tokens, steps, 16, config.context)):
        params, state, loss = step(params, state, x, y)
        if i % 100 == 0:
            print(f"step {i:4d}  loss {float(loss):.3f}")

    prompt = [int(t) for t in tokens[:8]]
    drawn = generate(params, config, prompt=prompt, count=80, seed=1, temperature=0.8)
    print("".join(letters[t] for t in [*prompt, *drawn]))
    return float(loss)


if __name__ == "__main__":
    main(*sys.argv[1:])
