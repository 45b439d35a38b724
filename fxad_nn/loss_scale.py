"""Dynamic loss scaling: gradients of float16 products that neither vanish nor overflow for long.

    optimizer = with_loss_scale(adamw(1e-3))
    state = optimizer.init(params)                      # state["scale"] is 65536
    grads = fxad.grad(lambda p: loss(p) * loss_scale(state))(params)
    grads = unscaled(grads, loss_scale(state))
    params, state = optimizer.update(grads, state, params)

float16 holds numbers from 6e-8 to 65504. Cotangents below that range would be rounded to 0, so the
loss, and with it all of them, is multiplied by a scale that is as large as it can be (Micikevicius
et al., 2018). A step whose gradients are not all finite changes nothing but the scale, which is
halved; after 2000 steps in a row without one it is doubled. These are the rules, the numbers and
the sequence of scales of `torch.amp.GradScaler`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import fxad
import fxad.numpy as jnp
from fxad_nn.errors import ConfigError
from fxad_nn.optim import Optimizer, as_optimizer

INITIAL, GROWTH, BACKOFF, INTERVAL = 65536.0, 2.0, 0.5, 2000
"""What `torch.amp.GradScaler` starts with, and what it changes the scale by, and when."""


def with_loss_scale(
    optimizer: Any,
    initial: float = INITIAL,
    growth: float = GROWTH,
    backoff: float = BACKOFF,
    interval: int = INTERVAL,
) -> Optimizer:
    """`optimizer`, whose state["scale"] is what to multiply the next step's loss by.

    `update` takes gradients that were divided by it (`unscaled`). Where they are not all finite,
    parameters and the state of `optimizer` stay as they are, state["skipped"] counts the step, and
    the scale is multiplied by `backoff`; after `interval` other steps in a row by `growth`, unless
    it would overflow float32.
    """
    numbers = initial, growth, backoff
    if not (all(map(math.isfinite, numbers)) and initial > 0 and growth > 1 > backoff > 0):
        raise ConfigError(
            f"need a loss scale above 0, growth > 1 and backoff between 0 and 1; got {numbers}"
        )
    if interval < 1:
        raise ConfigError(f"the loss scale grows after at least one step, not {interval}")
    optimizer = as_optimizer(optimizer)

    def init(params: Any) -> dict[str, Any]:
        counts = {name: jnp.zeros((), jnp.int32) for name in ("good", "skipped")}
        scale = jnp.full((), initial, jnp.float32)
        return {"optimizer": optimizer.init(params), "scale": scale, **counts}

    def update(grads: Any, state: dict[str, Any], params: Any) -> tuple[Any, dict[str, Any]]:
        good = all_finite(grads)

        def chosen(new: Any, old: Any) -> Any:
            return fxad.tree.map(lambda n, o: jnp.where(good, n, o), new, old)

        new_params, inner = optimizer.update(grads, state["optimizer"], params)
        scale, count = state["scale"], state["good"] + 1
        larger = jnp.where(jnp.isfinite(scale * growth), scale * growth, scale)
        grown = jnp.where(count == interval, larger, scale)
        return chosen(new_params, params), {
            "optimizer": chosen(inner, state["optimizer"]),
            "scale": jnp.where(good, grown, scale * backoff),
            "good": jnp.where(good & (count < interval), count, 0),
            "skipped": state["skipped"] + (~good).astype(jnp.int32),
        }

    return Optimizer(init, update)


def loss_scale(state: Any) -> Any:
    """What to multiply the loss of the next step by, float32 []; None where nothing scales it."""
    while isinstance(state, dict):
        if "scale" in state and "good" in state:
            return state["scale"]
        state = state.get("optimizer")
    return None


def scaled_value_and_grad(f: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """(scale, x, ...) -> f(x, ...) as it is, and its gradient in x times the scale, if that is one.

    The cotangent that backward begins with is the scale: f's value itself cannot overflow.
    """

    def run(scale: Any, x: Any, *rest: Any) -> tuple[Any, Any]:
        if scale is None:
            return fxad.value_and_grad(f)(x, *rest)

        def scaled(x: Any) -> tuple[Any, Any]:
            value = f(x, *rest)
            return value * scale, value

        (_, value), grads = fxad.value_and_grad(scaled, has_aux=True)(x)
        return value, grads

    return run


def unscaled(grads: Any, scale: Any) -> Any:
    """Gradients of a scaled loss as those of the loss, in float32; without a scale as they are."""
    if scale is None:
        return grads
    inverse = 1.0 / scale
    return fxad.tree.map(lambda g: g.astype(jnp.float32) * inverse, grads)


def all_finite(tree: Any) -> Any:
    """Whether every number in a tree is finite, bool []."""
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in fxad.tree.leaves(tree)]
    return jnp.all(jnp.stack(finite)) if finite else jnp.array(True)
