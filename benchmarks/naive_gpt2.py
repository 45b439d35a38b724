"""GPT-2 as people write it for JAX, with no fused op, against itself in JAX: only imports differ.

    python -m benchmarks.naive_gpt2 --peers jax --batch 4 --tokens 64 --layers scan

`SOURCE` is plain code for `jax`; in fxad it runs with `jax` and `jnp` standing for fxad's
namespaces. `own` is fxad_nn's step, which calls fxad's fused ops by name.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks import harness, train_step
from fxad_nn import models

SOURCE = """
def layer_norm(x, p):
    mean = jnp.mean(x, axis=-1, keepdims=True)
    var = jnp.var(x, axis=-1, keepdims=True)
    return (x - mean) / jnp.sqrt(var + 1e-5) * p["g"] + p["b"]


def dense(x, p):
    return x @ p["w"] + p["b"]


def gelu(x):
    return 0.5 * x * (1 + jnp.tanh(jnp.sqrt(2 / jnp.pi) * (x + 0.044715 * x**3)))


def attention(x, p, heads):
    batch, time, width = x.shape
    q, k, v = jnp.split(dense(x, p["qkv"]), 3, axis=-1)
    q, k, v = (a.reshape(batch, time, heads, width // heads) for a in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(width // heads)
    mask = jnp.tril(jnp.ones((time, time)))
    scores = jnp.where(mask == 0, -1e10, scores)
    weights = jax.nn.softmax(scores, axis=-1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, time, width)
    return dense(mixed, p["out"])


def block(x, p, heads):
    x = x + attention(layer_norm(x, p["norm1"]), p, heads)
    return x + dense(gelu(dense(layer_norm(x, p["norm2"]), p["up"])), p["down"])


def logits(params, tokens, heads):
    x = params["token"][tokens] + params["position"][: tokens.shape[1]]
    if isinstance(params["blocks"], list):
        for p in params["blocks"]:
            x = block(x, p, heads)
    else:
        x, _ = jax.lax.scan(lambda x, p: (block(x, p, heads), None), x, params["blocks"])
    return layer_norm(x, params["norm"]) @ params["token"].T


def loss(params, tokens, targets, heads):
    logp = jax.nn.log_softmax(logits(params, tokens, heads), axis=-1)
    return -jnp.mean(jnp.take_along_axis(logp, targets[..., None], axis=-1))


def adamw(params, grads, m, v, count):
    count = count + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g**2, v, grads)

    def moved(p, m, v):
        m_hat = m / (1 - 0.9**count)
        v_hat = v / (1 - 0.95**count)
        return p - 3e-4 * (m_hat / (jnp.sqrt(v_hat) + 1e-8) + 0.1 * p)

    return jax.tree.map(moved, params, m, v), m, v, count


def step(state, tokens, targets, heads):
    params, m, v, count = state
    value, grads = jax.value_and_grad(loss)(params, tokens, targets, heads)
    return adamw(params, grads, m, v, count), value
"""


def written_for(package: str) -> SimpleNamespace:
    """The functions of `SOURCE` with `jax` and `jnp` of a package: "jax" or "fxad"."""
    names: dict[str, Any] = {"jax": importlib.import_module(package)}
    names["jnp"] = importlib.import_module(f"{package}.numpy")
    exec(compile(SOURCE, f"naive_gpt2 in {package}", "exec"), names)
    return SimpleNamespace(**names)


def parameters(config: Any, scanned: bool) -> dict[str, Any]:
    """Parameters of a GPT-2 as NumPy arrays: a list of blocks, or blocks stacked for scan."""
    r = np.random.default_rng(0)
    width = config.width

    def normal(*shape: int) -> np.ndarray:
        return np.float32(0.02) * r.standard_normal(shape, np.float32)

    def dense(rows: int, columns: int) -> dict[str, np.ndarray]:
        return {"w": normal(rows, columns), "b": np.zeros(columns, np.float32)}

    def norm() -> dict[str, np.ndarray]:
        return {"g": np.ones(width, np.float32), "b": np.zeros(width, np.float32)}

    def block() -> dict[str, Any]:
        return {
            "norm1": norm(),
            "qkv": dense(width, 3 * width),
            "out": dense(width, width),
            "norm2": norm(),
            "up": dense(width, 4 * width),
            "down": dense(4 * width, width),
        }

    blocks: Any = [block() for _ in range(config.layers)]
    if scanned:
        names = {name: list(blocks[0][name]) for name in blocks[0]}
        blocks = {
            name: {key: np.stack([b[name][key] for b in blocks]) for key in keys}
            for name, keys in names.items()
        }
    return {
        "token": normal(config.vocab, width),
        "position": normal(config.context, width),
        "blocks": blocks,
        "norm": norm(),
    }


def training(package: str, args: argparse.Namespace) -> Callable[[], float]:
    """A closure that runs one step and returns the loss."""
    code = written_for(package)
    jax, jnp = code.jax, code.jnp
    config = models.preset(args.preset)
    params = jax.tree.map(jnp.asarray, parameters(config, args.layers == "scan"))
    moments = [jax.tree.map(jnp.zeros_like, params) for _ in "mv"]
    held = [(params, *moments, jnp.zeros((), jnp.int32))]
    compiled = jax.jit(code.step, static_argnums=3, donate_argnums=0)
    tokens, targets = train_step.batch(args, config.vocab)

    def run() -> float:
        held[0], value = compiled(held[0], tokens, targets, config.heads)
        return float(value)

    return run


def contenders(args: argparse.Namespace, peers: Sequence[str]) -> dict[str, Callable[[], float]]:
    made = {"fxad": training("fxad", args)}
    if "jax" in peers:
        made["jax"] = training("jax", args)
    if "own" in peers:
        own = argparse.Namespace(**vars(args), dtype="f32")
        made["own"] = train_step.ours(own)[0]
    return made


def rows(quick: bool, peers: Sequence[str], rounds: int = 7) -> list[harness.Row]:
    """A step of GPT-2 124M on 4 x 64 tokens (of nanoGPT's CPU model if quick), both ways."""
    found = []
    for layers in ("loop", "scan"):
        preset = "nano" if quick else "gpt2"
        args = argparse.Namespace(preset=preset, batch=4, tokens=64, threads=0, layers=layers)
        times = train_step.in_turns(contenders(args, peers), rounds)
        found.append(harness.row(f"naive {preset} (4, 64), layers by {layers}", times))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="", help="comma-separated: jax, own")
    parser.add_argument("--preset", default="gpt2")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--layers", default="loop", choices=("loop", "scan"))
    args = parser.parse_args()
    times = train_step.in_turns(contenders(args, args.peers.split(",")), args.rounds)
    what = f"naive {args.preset} ({args.batch}, {args.tokens}), layers by {args.layers}"
    print(harness.table([harness.row(what, times)]))


if __name__ == "__main__":
    main()
