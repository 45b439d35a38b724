"""AdamW, clipping and learning-rate schedules, as pure functions over trees.

optimizer = adamw(cosine(1e-3, 1e-4, warmup=100, steps=2000), beta2=0.99)
state = optimizer.init(params)
grads, norm = clip_by_global_norm(grads, 1.0)
params, state = optimizer.update(grads, state, params)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import fxad
import fxad.numpy as jnp
from fxad_nn.errors import ConfigError, did_you_mean
from fxad_nn.spec import Leaf, from_named, named_leaves, zeros

Schedule = Callable[[Any], Any]
"""A traced float32 step, 0 for the first update -> the learning rate of that update."""


@dataclass(frozen=True)
class Optimizer:
    """A pair of pure functions.

    init(params) -> state; update(grads, state, params) -> (new params, new state).
    """

    init: Callable[[Any], Any]
    update: Callable[[Any, Any, Any], tuple[Any, Any]]


def matrices(params: Any) -> Any:
    """True for leaves of two or more axes: the usual choice of what weight decay applies to."""
    return fxad.tree.map(lambda p: p.ndim >= 2, params)


def adamw(
    learning_rate: Schedule | float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.1,
    decayed: Callable[[Any], Any] = matrices,
) -> Optimizer:
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019) and bias correction.

    `decayed(params)` is a tree of bools: which leaves decay. The moments, and the arithmetic of
    the update, are float32 whatever the parameters are.
    """
    schedule = learning_rate if callable(learning_rate) else constant(learning_rate)

    def init(params: Any) -> dict[str, Any]:
        def moments() -> Any:
            return fxad.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)

        return {"step": jnp.zeros((), jnp.int32), "mean": moments(), "square": moments()}

    def update(grads: Any, state: dict[str, Any], params: Any) -> tuple[Any, dict[str, Any]]:
        rate = schedule(state["step"].astype(jnp.float32))
        step = state["step"] + 1
        count = step.astype(jnp.float32)
        mean_scale = rate / (1.0 - beta1**count)
        square_scale = 1.0 / (1.0 - beta2**count)

        def new_mean(m: Any, g: Any) -> Any:
            return beta1 * m + (1.0 - beta1) * g.astype(jnp.float32)

        def new_square(v: Any, g: Any) -> Any:
            g = g.astype(jnp.float32)
            return beta2 * v + (1.0 - beta2) * (g * g)

        def new_param(p: Any, m: Any, v: Any, decays: bool) -> Any:
            wide = p.astype(jnp.float32)
            kept = wide * (1.0 - rate * weight_decay) if decays else wide
            moved = kept - mean_scale * m / (jnp.sqrt(v * square_scale) + epsilon)
            return moved.astype(p.dtype)

        mean = fxad.tree.map(new_mean, state["mean"], grads)
        square = fxad.tree.map(new_square, state["square"], grads)
        params = fxad.tree.map(new_param, params, mean, square, decayed(params))
        return params, {"step": step, "mean": mean, "square": square}

    return Optimizer(init, update)


def state_spec(spec: Any) -> dict[str, Any]:
    """The spec of `adamw`'s state for parameters of this spec: what a checkpoint must hold."""

    def moments() -> Any:
        leaves = {name: replace(p, dtype="float32", init=zeros) for name, p in named_leaves(spec)}
        return from_named(spec, leaves)

    return {"step": Leaf((), "int32", (), zeros), "mean": moments(), "square": moments()}


def global_norm(tree: Any) -> Any:
    """The Euclidean norm of all leaves together, a float32 scalar."""
    squares = [jnp.sum(jnp.square(x.astype(jnp.float32))) for x in fxad.tree.leaves(tree)]
    return jnp.sqrt(sum(squares[1:], squares[0]))


def clip_by_global_norm(grads: Any, limit: float) -> tuple[Any, Any]:
    """Scale all gradients down together where their norm exceeds `limit` (Pascanu et al., 2013).

    Returns the gradients and the norm they had. Gradients that hold a NaN stay NaN.
    """
    norm = global_norm(grads)
    scale = limit / jnp.maximum(norm, limit)
    return fxad.tree.map(lambda g: (g * scale).astype(g.dtype), grads), norm


def constant(peak: float, warmup: int = 0) -> Schedule:
    """Rise linearly to `peak` over `warmup` updates, then stay."""
    return _warmed(warmup, peak, lambda step: peak)


def linear(peak: float, final: float, warmup: int, steps: int) -> Schedule:
    """Warm up, then fall along a line to `final` at update `steps`."""
    return _warmed(
        warmup, peak, lambda step: peak + (final - peak) * _progress(step, warmup, steps)
    )


def cosine(peak: float, final: float, warmup: int, steps: int) -> Schedule:
    """Warm up, then fall along half a cosine to `final` at update `steps`."""

    def after(step: Any) -> Any:
        turn = 0.5 * (1.0 + jnp.cos(math.pi * _progress(step, warmup, steps)))
        return final + (peak - final) * turn

    return _warmed(warmup, peak, after)


def wsd(peak: float, final: float, warmup: int, steps: int, decay: float = 0.2) -> Schedule:
    """Warm up, stay at `peak`, and fall along a line over the last `decay` share of updates.

    Warm-up, stable, decay (Hu et al., 2024).
    """
    start = max(warmup, steps - round(steps * decay))
    return _warmed(warmup, peak, lambda step: peak + (final - peak) * _progress(step, start, steps))


SCHEDULES = ("constant", "linear", "cosine", "wsd")


def schedule(name: str, peak: float, final: float, warmup: int, steps: int) -> Schedule:
    """A schedule by its name; `constant` does not use `final` and `steps`."""
    if name == "constant":
        return constant(peak, warmup)
    choices = {"linear": linear, "cosine": cosine, "wsd": wsd}
    if name not in choices:
        raise ConfigError(f"unknown schedule {name!r}{did_you_mean(name, SCHEDULES)}")
    return choices[name](peak, final, warmup, steps)


def _progress(step: Any, start: int, stop: int) -> Any:
    """0 until `start`, 1 from `stop` on, a line between."""
    return jnp.clip((step - start) / max(stop - start, 1), 0.0, 1.0)


def _warmed(warmup: int, peak: float, after: Schedule) -> Schedule:
    """(step + 1) / (warmup + 1) of `peak` before `warmup`, as nanoGPT; then `after(step)`."""

    def rate(step: Any) -> Any:
        rising = peak * (step + 1.0) / (warmup + 1.0)
        return jnp.where(step < warmup, rising, after(step))

    return rate
