"""Training steps of small models that people train on CPUs, written as a user would write them.

    python -m benchmarks.models --peers torch,torch-compile,jax
    python -m benchmarks.models --peers torch --only gru --rounds 20

Forward, backward and AdamW on both sides, float32: an MLP of 784-512-512-10 on 128 rows, three
convolutions on 64 images of 32 x 32, a GRU of 256 over 100 steps of 32 rows, and a vision
transformer (six blocks of 192, 64 patches, no mask) on 32 images. PyTorch has its own layers, GRU
and fused AdamW; JAX has the same functions as fxad, imports changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

import fxad
from benchmarks import harness
from benchmarks.harness import Row

RATE, BETAS, EPSILON, DECAY = 1e-3, (0.9, 0.999), 1e-8, 0.01
Batch = tuple[np.ndarray, np.ndarray]
Run = Callable[[], float]
MINE = SimpleNamespace(
    np=fxad.numpy, nn=fxad.nn, lax=fxad.lax, tree=fxad.tree, jit=fxad.jit,
    value_and_grad=fxad.value_and_grad,
)  # fmt: skip


def in_jax() -> SimpleNamespace:
    """The same names as in `MINE`."""
    import jax

    parts = {"np": jax.numpy, "nn": jax.nn, "lax": jax.lax, "tree": jax.tree}
    return SimpleNamespace(**parts, jit=jax.jit, value_and_grad=jax.value_and_grad)


# ---------------------------------------------------------------- models of fxad and JAX


def mlp(o: Any, p: Any, x: Any) -> Any:
    """x [rows, 784] -> logits."""
    for w, b in p["hidden"]:
        x = o.nn.relu(x @ w + b)
    return x @ p["out"][0] + p["out"][1]


def convnet(o: Any, p: Any, x: Any) -> Any:
    """x [images, 32, 32, 3] -> logits: every convolution but the first halves the picture."""
    for (w, b), stride in zip(p["layers"], (1, 2, 2), strict=True):
        numbers = ("NHWC", "HWIO", "NHWC")
        y = o.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=numbers)
        x = o.nn.relu(y + b)
    return o.np.mean(x, axis=(1, 2)) @ p["out"][0] + p["out"][1]


def gru(o: Any, p: Any, x: Any) -> Any:
    """x [rows, steps, features] -> logits of the last state; gates as PyTorch's GRU has them."""
    given = o.np.swapaxes(x @ p["given"][0] + p["given"][1], 0, 1)

    def step(h: Any, a: Any) -> tuple[Any, None]:
        seen = h @ p["state"][0] + p["state"][1]
        (ar, az, an), (hr, hz, hn) = o.np.split(a, 3, axis=-1), o.np.split(seen, 3, axis=-1)
        update = o.nn.sigmoid(az + hz)
        new = o.np.tanh(an + o.nn.sigmoid(ar + hr) * hn)
        return (1 - update) * new + update * h, None

    start = o.np.zeros((x.shape[0], p["state"][0].shape[0]), o.np.float32)
    return o.lax.scan(step, start, given)[0] @ p["out"][0] + p["out"][1]


def _norm(o: Any, p: Any, x: Any) -> Any:
    centred = x - o.np.mean(x, axis=-1, keepdims=True)
    variance = o.np.mean(centred * centred, axis=-1, keepdims=True)
    return centred * o.lax.rsqrt(variance + 1e-5) * p[0] + p[1]


def vit(o: Any, p: Any, x: Any) -> Any:
    """x [images, patches, pixels of a patch] -> logits of the mean over patches."""
    x = x @ p["patch"][0] + p["patch"][1] + p["position"]
    for b in p["blocks"]:
        qkv = _norm(o, b["norm1"], x) @ b["qkv"][0] + b["qkv"][1]
        q, k, v = (a.reshape(*x.shape[:2], 3, -1) for a in o.np.split(qkv, 3, axis=-1))
        mixed = o.nn.dot_product_attention(q, k, v).reshape(x.shape)
        x = x + mixed @ b["out"][0] + b["out"][1]
        hidden = o.nn.gelu(_norm(o, b["norm2"], x) @ b["up"][0] + b["up"][1])
        x = x + hidden @ b["down"][0] + b["down"][1]
    return o.np.mean(_norm(o, p["norm"], x), axis=1) @ p["out"][0] + p["out"][1]


class Numbers:
    """Parameters and batches, the same for all contenders."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return (scale * self.random.standard_normal(shape)).astype(np.float32)

    def dense(self, *shape: int) -> list[np.ndarray]:
        """A weight, its last axis the outputs, and a bias of zeros."""
        scale = float(np.prod(shape[:-1])) ** -0.5
        return [self.normal(*shape, scale=scale), np.zeros(shape[-1], np.float32)]

    def batch(self, *shape: int) -> Batch:
        return self.normal(*shape), self.random.integers(0, 10, shape[0]).astype(np.int32)


def _mlp_start(n: Numbers) -> tuple[Any, Batch]:
    hidden = [n.dense(784, 512), n.dense(512, 512)]
    return {"hidden": hidden, "out": n.dense(512, 10)}, n.batch(128, 784)


def _convnet_start(n: Numbers) -> tuple[Any, Batch]:
    layers = [n.dense(3, 3, 3, 32), n.dense(3, 3, 32, 64), n.dense(3, 3, 64, 128)]
    return {"layers": layers, "out": n.dense(128, 10)}, n.batch(64, 32, 32, 3)


def _gru_start(n: Numbers) -> tuple[Any, Batch]:
    params = {"given": n.dense(64, 768), "state": n.dense(256, 768), "out": n.dense(256, 10)}
    return params, n.batch(32, 100, 64)


def _vit_start(n: Numbers) -> tuple[Any, Batch]:
    def norm() -> list[np.ndarray]:
        return [np.ones(192, np.float32), np.zeros(192, np.float32)]

    def block() -> dict[str, Any]:
        products = {"qkv": n.dense(192, 576), "out": n.dense(192, 192)}
        products |= {"up": n.dense(192, 768), "down": n.dense(768, 192)}
        return {"norm1": norm(), "norm2": norm(), **products}

    params = {"patch": n.dense(48, 192), "position": n.normal(64, 192, scale=0.02)}
    params |= {"blocks": [block() for _ in range(6)], "norm": norm(), "out": n.dense(192, 10)}
    return params, n.batch(32, 64, 48)


MODELS = {
    "mlp": (mlp, _mlp_start),
    "convnet": (convnet, _convnet_start),
    "gru": (gru, _gru_start),
    "vit": (vit, _vit_start),
}


def training_step(o: Any, name: str) -> Run:
    """One step at each call, parameters and moments donated."""
    model, start = MODELS[name]
    params, batch = start(Numbers())

    def loss_of(params: Any, x: Any, labels: Any) -> Any:
        logits = model(o, params, x)
        picked = o.np.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
        return o.np.mean(o.nn.logsumexp(logits, axis=-1) - picked)

    def step(params: Any, m: Any, v: Any, count: Any, x: Any, labels: Any) -> Any:
        loss, grads = o.value_and_grad(loss_of)(params, x, labels)
        count = count + 1
        one, two = (1 - beta**count for beta in BETAS)
        m = o.tree.map(lambda m, g: BETAS[0] * m + (1 - BETAS[0]) * g, m, grads)
        v = o.tree.map(lambda v, g: BETAS[1] * v + (1 - BETAS[1]) * g * g, v, grads)

        def moved(p: Any, m: Any, v: Any) -> Any:
            return p - RATE * (m / one / (o.np.sqrt(v / two) + EPSILON) + DECAY * p)

        return o.tree.map(moved, params, m, v), m, v, count, loss

    compiled = o.jit(step, donate_argnums=(0, 1, 2))
    zeros = partial(o.tree.map, lambda p: o.np.zeros(p.shape, o.np.float32))
    params = o.tree.map(o.np.asarray, params)
    state = [params, zeros(params), zeros(params), o.np.zeros((), o.np.float32)]

    def run() -> float:
        *after, loss = compiled(*state, *batch)
        state[:] = after
        return float(loss)

    return run


def contenders(name: str, peers: Sequence[str]) -> dict[str, Run]:
    """fxad's step and those of the peers asked for."""
    runs = {"fxad": training_step(MINE, name)}
    for peer in peers:
        if peer.startswith("torch"):
            from benchmarks import torch_small

            runs[peer] = torch_small.training_step(name, peer == "torch-compile")
        elif peer == "jax":
            runs[peer] = training_step(in_jax(), name)
    return runs


def measured(name: str, peers: Sequence[str], rounds: int) -> Row:
    times = harness.alternate(contenders(name, peers), rounds, warmup=3, pause=harness.REST)
    return harness.row(f"{name} training step", times)


def rows(quick: bool, peers: Sequence[str]) -> list[Row]:
    """A step of every model; if quick of the MLP alone."""
    return [measured(name, peers, 20) for name in (["mlp"] if quick else MODELS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="", help="comma-separated: torch, torch-compile, jax")
    parser.add_argument("--only", default=",".join(MODELS), help="comma-separated models")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", default=None, help="write the table here")
    args = parser.parse_args()
    peers = harness.installed([p for p in args.peers.split(",") if p])
    found = [measured(name, peers, args.rounds) for name in args.only.split(",")]
    harness.report("models", found, args.json)


if __name__ == "__main__":
    main()
