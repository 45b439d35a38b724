"""Mixtures of experts: every token goes through a few of many gated MLPs.

    weights, experts = route(logits, chosen=2, renormalised=True)   # [tokens, 2] each
    y = mixture(p, x, weights, experts, fxad.nn.silu)               # [tokens, width]

Tokens are sorted by their expert, and each group of them is multiplied with its matrix
(`fxad.lax.ragged_dot`): no expert has a capacity, and no token is dropped (Gale et al., 2023).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fxad
import fxad.numpy as jnp
from fxad_nn.quantized import is_quantized, quantized_ragged_product
from fxad_nn.spec import Leaf, normal


def experts_spec(experts: int, width: int, hidden: int, dtype: str) -> dict[str, Any]:
    """The spec of `mixture`: matrices [experts, in, out], as `ragged_dot` reads them."""

    def stacked(size: tuple[int, int], axes: tuple[str, str]) -> dict[str, Leaf]:
        return {"weight": Leaf((experts, *size), dtype, ("experts", *axes), normal(0.02))}

    return {
        "gate": stacked((width, hidden), ("width", "hidden")),
        "up": stacked((width, hidden), ("width", "hidden")),
        "down": stacked((hidden, width), ("hidden", "width")),
    }


def route(logits: Any, chosen: int, renormalised: bool) -> tuple[Any, Any]:
    """The likeliest experts of every token, int32 [tokens, chosen], and their probabilities.

    logits: [tokens, experts]. Probabilities are float32, and sum to 1 if `renormalised`.
    """
    weights, experts = fxad.lax.top_k(fxad.nn.softmax(logits.astype(jnp.float32)), chosen)
    if renormalised:
        weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
    return weights, experts


def mixture(
    p: dict[str, Any],
    x: Any,
    weights: Any,
    experts: Any,
    activation: Callable[[Any], Any],
    products: str | None = None,
) -> Any:
    """sum over a token's experts e of weight_e down_e(activation(gate_e(x)) * up_e(x)).

    x: [tokens, width]; weights, experts: [tokens, chosen]. products: what factors are rounded to.
    The gradient computes the product of gate and up again: cheaper than to keep it. Matrices that
    are `Quantized` lie as they are published, [experts, out, in], and have no gradient.
    """
    tokens, chosen = experts.shape
    flat = experts.reshape(-1)  # [tokens * chosen]
    order = jnp.argsort(flat)
    sizes = jnp.bincount(flat, length=p["gate"]["weight"].shape[0])

    def product(name: str, rows: Any) -> Any:
        """rows [tokens * chosen, in] in the order of experts, times their matrices."""
        matrices = p[name]["weight"]
        if is_quantized(matrices):
            return quantized_ragged_product(rows, matrices, sizes, products)
        if products is None:
            return fxad.lax.ragged_dot(rows, matrices, sizes)
        rows, matrices = rows.astype(products), matrices.astype(products)
        return fxad.lax.ragged_dot(rows, matrices, sizes, preferred_element_type=jnp.float32)

    def down(gate: Any, up: Any) -> Any:
        return product("down", activation(gate) * up)

    rows = x[order // chosen]
    y = fxad.checkpoint(down)(product("gate", rows), product("up", rows))
    y = y[jnp.argsort(order)].reshape(tokens, chosen, -1)  # as the tokens lie
    return jnp.sum(y * weights[:, :, None].astype(y.dtype), axis=1).astype(x.dtype)


def balance_loss(logits: Any, chosen: int, counted: Any = None) -> Any:
    """experts * sum over experts of (share of choices) (mean probability): `chosen` where all are
    used alike, more elsewhere (Fedus et al., 2022, equations 4 to 6).

    logits: [n, experts]. counted: bool [n], of which tokens; of all unless given.
    """
    weights = _weights(logits, counted)
    probabilities = fxad.nn.softmax(logits.astype(jnp.float32))
    _, experts = fxad.lax.top_k(probabilities, chosen)
    size, flat = logits.shape[1], jnp.repeat(weights, chosen)
    shares = jnp.bincount(experts.reshape(-1), weights=flat, length=size)
    return size * jnp.sum(shares * jnp.sum(probabilities * weights[:, None], axis=0))


def z_loss(logits: Any, counted: Any = None) -> Any:
    """The mean square of the logarithm of the softmax's denominator (Zoph et al., 2022).

    logits: [n, experts]. counted: bool [n], of which tokens; of all unless given.
    """
    squares = jnp.square(fxad.nn.logsumexp(logits.astype(jnp.float32), axis=-1))
    return jnp.sum(squares * _weights(logits, counted))


def _weights(logits: Any, counted: Any) -> Any:
    """What each token weighs in a mean over those that count: float32 [n]."""
    if counted is None:
        return jnp.full(logits.shape[:1], 1.0 / logits.shape[0], jnp.float32)
    counted = counted.astype(jnp.float32)
    return counted / jnp.maximum(jnp.sum(counted), 1.0)
