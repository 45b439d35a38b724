"""A published model from a directory: logits, a continuation, one step of training, and back.

python examples/published_model.py Qwen2.5-0.5B out     # a directory of Hugging Face, and a new one
python examples/published_model.py                      # a tiny one that is made first
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import fxad
import fxad_nn
from fxad_nn import models
from fxad_nn.generate import generate
from fxad_nn.spec import count_params, init_params


def make_tiny(directory: Path) -> None:
    """A Qwen of random weights where others have a download."""
    config = models.preset(
        "qwen2.5-0.5b", vocab=260, context=128, layers=2, heads=4, groups=2, width=64, hidden=160,
        head_dim=16,
    )  # fmt: skip
    params = init_params(models.family(config).spec(config), fxad.random.key(0))
    fxad_nn.save(fxad_nn.Model(params, config), directory)


def nudged(model: fxad_nn.Model, tokens: np.ndarray, rate: float) -> tuple[fxad_nn.Model, float]:
    """The model after one step of gradient descent on a text, and the loss before it."""

    @fxad.jit
    def step(model: fxad_nn.Model, tokens: np.ndarray) -> tuple[fxad_nn.Model, fxad.Array]:
        def loss(model: fxad_nn.Model) -> fxad.Array:
            batch = tokens[:, :-1], tokens[:, 1:]
            return models.family(model.config).loss(model.params, batch, model.config)

        value, grads = fxad.value_and_grad(loss)(model)
        return fxad.tree.map(lambda p, g: (p - rate * g).astype(p.dtype), model, grads), value

    model, value = step(model, tokens)
    return model, float(value)


def main(source: str | None = None, target: str | None = None) -> float:
    """Returns the loss after some steps."""
    home = Path(tempfile.mkdtemp())
    if source is None:
        make_tiny(home / "tiny")
    model = fxad_nn.load(source or home / "tiny")
    size = count_params(models.family(model.config).spec(model.config))
    print(f"{model.config.family}: {size:,} parameters in {model.config.dtype}")

    text = np.arange(32, dtype=np.int32)[None] * 7 % model.config.vocab
    print("logits", model(text).shape)
    print("goes on", list(generate(model.params, model.config, text[0].tolist(), 8, temperature=0)))

    for _ in range(4):
        model, loss = nudged(model, text, rate=0.2)
        print(f"loss {loss:.3f}")

    # transformers.AutoModelForCausalLM.from_pretrained(...) reads it, too.
    fxad_nn.save(model, target or home / "out")
    again = fxad_nn.load(target or home / "out")
    assert np.array_equal(again(text), model(text))
    print("saved in", target or home / "out")
    return loss


if __name__ == "__main__":
    main(*sys.argv[1:])
