"""GPT-2 and Llama training in JAX, as its users write it: one jitted step, layers stacked, scanned
and checkpointed, or one after the other with all kept.

step = training_step(models.preset("gpt2"))       # scanned; scanned=False: a loop in Python
loss = step(tokens, targets)         # int32 [batch, time] each; keeps its own parameters
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def _gpt2_params(c: Any) -> dict[str, Any]:
    normal, width, layers = _normal(), c.width, c.layers

    def norm(*lead: int) -> Any:
        return jnp.ones((*lead, width)), jnp.zeros((*lead, width))

    return {
        "token": normal(c.vocab, width),
        "position": normal(c.context, width),
        "blocks": {
            "norm1": norm(layers),
            "qkv": (normal(layers, width, 3 * width), jnp.zeros((layers, 3 * width))),
            "out": (normal(layers, width, width), jnp.zeros((layers, width))),
            "norm2": norm(layers),
            "up": (normal(layers, width, 4 * width), jnp.zeros((layers, 4 * width))),
            "down": (normal(layers, 4 * width, width), jnp.zeros((layers, width))),
        },
        "norm": norm(),
    }


def _llama_params(c: Any) -> dict[str, Any]:
    normal, layers, keys = _normal(), c.layers, c.groups * c.head_dim
    return {
        "token": normal(c.vocab, c.width),
        "blocks": {
            "norm1": jnp.ones((layers, c.width)),
            "qkv": normal(layers, c.width, c.width + 2 * keys),
            "out": normal(layers, c.width, c.width),
            "norm2": jnp.ones((layers, c.width)),
            "gate_up": normal(layers, c.width, 2 * c.hidden),
            "down": normal(layers, c.hidden, c.width),
        },
        "norm": jnp.ones(c.width),
    }


def _normal() -> Callable[..., Any]:
    r = np.random.default_rng(0)
    return lambda *shape: jnp.asarray(0.02 * r.standard_normal(shape, np.float32))


def _layer_norm(x: Any, p: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p[0] + p[1]


def _rms_norm(x: Any, scale: Any) -> Any:
    return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5) * scale


def _gpt2_features(c: Any, params: Any, tokens: Any) -> Any:
    x = params["token"][tokens] + params["position"][: tokens.shape[1]]

    def block(x: Any, p: Any) -> tuple[Any, None]:
        qkv = _layer_norm(x, p["norm1"]) @ p["qkv"][0] + p["qkv"][1]
        q, k, v = (a.reshape(*x.shape[:2], c.heads, -1) for a in jnp.split(qkv, 3, -1))
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
        x = x + mixed @ p["out"][0] + p["out"][1]
        hidden = jax.nn.gelu(_layer_norm(x, p["norm2"]) @ p["up"][0] + p["up"][1])
        return x + hidden @ p["down"][0] + p["down"][1], None

    return _layer_norm(_through(block, x, params["blocks"]), params["norm"])


def _llama_features(c: Any, params: Any, tokens: Any) -> Any:
    x = params["token"][tokens]
    powers = np.arange(0, c.head_dim, 2, dtype=np.float32) / c.head_dim
    angles = np.outer(np.arange(tokens.shape[1]), c.rope_theta**-powers)
    angles = np.concatenate([angles, angles], 1).astype(np.float32)[:, None]
    cosines, sines = np.cos(angles), np.sin(angles)
    keys = c.groups * c.head_dim

    def rotated(x: Any) -> Any:
        first, second = jnp.split(x, 2, -1)
        return x * cosines + jnp.concatenate([-second, first], -1) * sines

    def block(x: Any, p: Any) -> tuple[Any, None]:
        qkv = _rms_norm(x, p["norm1"]) @ p["qkv"]
        q, k, v = (
            a.reshape(*x.shape[:2], -1, c.head_dim)
            for a in jnp.split(qkv, [c.width, c.width + keys], -1)
        )
        mixed = jax.nn.dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        x = x + mixed.reshape(x.shape) @ p["out"]
        gate, up = jnp.split(_rms_norm(x, p["norm2"]) @ p["gate_up"], 2, -1)
        return x + (jax.nn.silu(gate) * up) @ p["down"], None

    return _rms_norm(_through(block, x, params["blocks"]), params["norm"])


def _through(block: Callable[..., Any], x: Any, blocks: Any) -> Any:
    """x after all layers: a tree of stacked parameters is scanned, a list gone through."""
    if isinstance(blocks, list):
        for p in blocks:
            x, _ = block(x, p)
        return x
    return jax.lax.scan(jax.checkpoint(block), x, blocks)[0]


def training_step(config: Any, scanned: bool = True) -> Callable[[Any, Any], float]:
    """A closure that runs one step: forward, backward, AdamW, parameters and moments donated.

    config: of fxad_nn's GPT-2 or Llama.
    """
    llama = hasattr(config, "rope_theta")
    features = _llama_features if llama else _gpt2_features
    params = (_llama_params if llama else _gpt2_params)(config)
    if not scanned:
        stacked = params["blocks"]
        params["blocks"] = [
            jax.tree.map(operator.itemgetter(i), stacked) for i in range(config.layers)
        ]
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = [params, zeros, jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.int32)]

    def loss_of(params: Any, tokens: Any, targets: Any) -> Any:
        logits = features(config, params, tokens) @ params["token"].T
        picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        return (jax.nn.logsumexp(logits, -1) - picked).mean()

    def step(params: Any, m: Any, v: Any, count: Any, tokens: Any, targets: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, tokens, targets)
        count = count + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, v, grads)
        one, two = 1 - 0.9**count, 1 - 0.95**count

        def moved(p: Any, m: Any, v: Any) -> Any:
            return p - 3e-4 * (m / one / (jnp.sqrt(v / two) + 1e-8) + 0.1 * p)

        return jax.tree.map(moved, params, m, v), m, v, count, loss

    compiled = jax.jit(step, donate_argnums=(0, 1, 2))

    def run(tokens: Any, targets: Any) -> float:
        *after, loss = compiled(*state, tokens, targets)
        state[:] = after
        return float(loss)

    return run
