"""GPT-2 training in JAX, as its users write it: layers stacked and scanned, one jitted step.

step = training_step(vocab=50257, context=1024, layers=12, heads=12, width=768)
loss = step(tokens, targets)         # int32 [batch, time] each; keeps its own parameters
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def _params(vocab: int, context: int, layers: int, width: int) -> dict[str, Any]:
    r = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return jnp.asarray(0.02 * r.standard_normal(shape, np.float32))

    def norm(*lead: int) -> Any:
        return jnp.ones((*lead, width)), jnp.zeros((*lead, width))

    return {
        "token": normal(vocab, width),
        "position": normal(context, width),
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


def _layer_norm(x: Any, p: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p[0] + p[1]


def _loss(params: Any, tokens: Any, targets: Any, heads: int) -> Any:
    x = params["token"][tokens] + params["position"][: tokens.shape[1]]

    def block(x: Any, p: Any) -> tuple[Any, None]:
        qkv = _layer_norm(x, p["norm1"]) @ p["qkv"][0] + p["qkv"][1]
        q, k, v = (a.reshape(*x.shape[:2], heads, -1) for a in jnp.split(qkv, 3, -1))
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
        x = x + mixed @ p["out"][0] + p["out"][1]
        hidden = jax.nn.gelu(_layer_norm(x, p["norm2"]) @ p["up"][0] + p["up"][1])
        return x + hidden @ p["down"][0] + p["down"][1], None

    x, _ = jax.lax.scan(jax.checkpoint(block), x, params["blocks"])
    logits = _layer_norm(x, params["norm"]) @ params["token"].T
    picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - picked).mean()


def training_step(
    vocab: int, context: int, layers: int, heads: int, width: int
) -> Callable[[Any, Any], float]:
    """A closure that runs one step: forward, backward, AdamW, parameters and moments donated."""
    params = _params(vocab, context, layers, width)
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = [params, zeros, jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.int32)]

    def step(params: Any, m: Any, v: Any, count: Any, tokens: Any, targets: Any) -> Any:
        loss, grads = jax.value_and_grad(_loss)(params, tokens, targets, heads)
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
