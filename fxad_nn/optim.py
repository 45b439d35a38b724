"""AdamW, Muon, what wraps them, clipping and learning-rate schedules: pure functions over trees.

optimizer = adamw(cosine(1e-3, 1e-4, warmup=100, steps=2000), beta2=0.99)
state = optimizer.init(params)
grads, norm = clip_by_global_norm(grads, 1.0)
params, state = optimizer.update(grads, state, params)

optimizer = muon(2e-2, others=adamw(3e-4))                      # matrices of the blocks by Muon
optimizer = by_group({"slow": adamw(1e-5), "fast": adamw(1e-3)}, lambda params: names)
optimizer = skip_outliers(with_average(optimizer, 0.999))       # skipped steps, averaged weights
optimizer = as_optimizer(optax.adam(1e-3))                      # any pair of init and update
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import fxad
import fxad.numpy as jnp
from fxad_nn.errors import ConfigError, did_you_mean
from fxad_nn.spec import Leaf, zeros

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


NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration, chosen for the largest slope at 0 (Jordan, 2024)."""


def orthogonalized(matrix: Any, steps: int = 5, epsilon: float = 1e-7) -> Any:
    """A matrix with the singular vectors of `matrix` [rows, columns] and singular values near 1.

    `steps` Newton-Schulz iterations X <- a X + (b X Xᵀ + c (X Xᵀ)²) X, in float32, from the matrix
    over its Frobenius norm (Bernstein and Newhouse, 2024; Jordan, 2024). After five of them the
    singular values lie between about 0.7 and 1.2, but those that were below 1e-3 of the norm.
    """
    a, b, c = NEWTON_SCHULZ
    wide = matrix.astype(jnp.float32)
    upright = wide.shape[0] > wide.shape[1]
    x = wide.T if upright else wide
    x = x / jnp.maximum(jnp.sqrt(jnp.sum(x * x)), epsilon)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if upright else x


def hidden_matrices(params: Any) -> Any:
    """True for the matrices of a model's blocks: not its embeddings, its head and its vectors."""

    def hidden(path: Any, leaf: Any) -> bool:
        names = fxad.tree.keystr(path, simple=True, separator=".").split(".")
        return leaf.ndim == 2 and not {"embed", "head"} & set(names)

    return fxad.tree.map_with_path(hidden, params)


def muon(
    learning_rate: Schedule | float,
    momentum: float = 0.95,
    weight_decay: float = 0.1,
    steps: int = 5,
    match_adamw: bool = False,
    others: Any = None,
    chosen: Callable[[Any], Any] = hidden_matrices,
) -> Optimizer:
    """Muon for the leaves that `chosen(params)`, a tree of bools, says; `others` for the rest.

    The update is the orthogonalized Nesterov momentum of the gradient [rows, columns], times
    sqrt(max(1, rows / columns)) (Jordan, 2024), or with `match_adamw` times
    0.2 sqrt(max(rows, columns)), of the size of AdamW's updates, so that its learning rate serves
    (Liu et al., 2025). `others` is AdamW of the same schedule unless given. Momenta are float32.
    """
    schedule = learning_rate if callable(learning_rate) else constant(learning_rate)

    def init(params: Any) -> dict[str, Any]:
        means = fxad.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        return {"step": jnp.zeros((), jnp.int32), "mean": means}

    def update(grads: Any, state: dict[str, Any], params: Any) -> tuple[Any, dict[str, Any]]:
        rate = schedule(state["step"].astype(jnp.float32))

        def new_mean(m: Any, g: Any) -> Any:
            return momentum * m + (1.0 - momentum) * g.astype(jnp.float32)

        def new_param(p: Any, m: Any, g: Any) -> Any:
            rows, columns = p.shape
            direction = orthogonalized(new_mean(m, g), steps)
            size = 0.2 * max(rows, columns) ** 0.5 if match_adamw else max(1, rows / columns) ** 0.5
            kept = p.astype(jnp.float32) * (1.0 - rate * weight_decay)
            return (kept - rate * size * direction).astype(p.dtype)

        mean = fxad.tree.map(new_mean, state["mean"], grads)
        params = fxad.tree.map(new_param, params, mean, grads)
        return params, {"step": state["step"] + 1, "mean": mean}

    def name(params: Any) -> Any:
        return fxad.tree.map(lambda by_muon: "muon" if by_muon else "others", chosen(params))

    others = adamw(learning_rate) if others is None else others
    return by_group({"muon": Optimizer(init, update), "others": others}, name)


def by_group(groups: Mapping[str, Any], group_of: Callable[[Any], Any]) -> Optimizer:
    """Several optimizers, each for the leaves of its group.

    `group_of(params)` is a tree of the names of groups, one for each leaf: for rates that differ,
    or with `frozen` for leaves that stay. ConfigError where a name is no group.
    """
    optimizers = {group: as_optimizer(optimizer) for group, optimizer in groups.items()}

    def parts(names: Any, tree: Any) -> dict[str, Any]:
        """For each group the tree with None in place of the leaves of other groups."""
        return {
            group: fxad.tree.map(lambda n, x, group=group: x if n == group else None, names, tree)
            for group in groups
        }

    def named(params: Any) -> Any:
        names = group_of(params)
        for name in fxad.tree.leaves(names):
            if name not in groups:
                raise ConfigError(f"by_group: no group {name!r}{did_you_mean(str(name), groups)}")
        return names

    def init(params: Any) -> dict[str, Any]:
        mine = parts(named(params), params)
        return {group: optimizer.init(mine[group]) for group, optimizer in optimizers.items()}

    def update(grads: Any, state: dict[str, Any], params: Any) -> tuple[Any, dict[str, Any]]:
        names = named(params)
        our_grads, ours = parts(names, grads), parts(names, params)
        new, states = {}, {}
        for group, optimizer in optimizers.items():
            new[group], states[group] = optimizer.update(
                our_grads[group], state[group], ours[group]
            )
        found = {group: iter(fxad.tree.leaves(tree)) for group, tree in new.items()}
        return fxad.tree.map(lambda name: next(found[name]), names), states

    return Optimizer(init, update)


frozen = Optimizer(lambda params: {}, lambda grads, state, params: (params, state))
"""Leaves parameters as they are; for groups."""


def with_average(optimizer: Any, decay: float) -> Optimizer:
    """`optimizer`, whose state["average"] is the exponential average of the weights, in float32.

    average <- decay average + (1 - decay) params after each update, from the first parameters on
    (Polyak and Juditsky, 1992). `averaged(state, params)` has it in the parameters' dtypes.
    """
    if not 0 <= decay < 1:
        raise ConfigError(f"the decay of averaged weights must be in [0, 1), got {decay}")
    optimizer = as_optimizer(optimizer)

    def init(params: Any) -> dict[str, Any]:
        average = fxad.tree.map(lambda p: jnp.asarray(p, jnp.float32) + 0.0, params)  # a copy
        return {"optimizer": optimizer.init(params), "average": average}

    def update(grads: Any, state: dict[str, Any], params: Any) -> tuple[Any, dict[str, Any]]:
        params, inner = optimizer.update(grads, state["optimizer"], params)

        def new_average(a: Any, p: Any) -> Any:
            return decay * a + (1.0 - decay) * p.astype(jnp.float32)

        average = fxad.tree.map(new_average, state["average"], params)
        return params, {"optimizer": inner, "average": average}

    return Optimizer(init, update)


def averaged(state: Any, params: Any) -> Any:
    """The averaged weights in a state of `with_average`, in the dtypes of `params`; `params` where
    nothing was averaged."""
    while isinstance(state, dict):  # of another kind: that of a pair which was given
        if "average" in state:
            return fxad.tree.map(lambda a, p: a.astype(p.dtype), state["average"], params)
        state = state.get("optimizer")
    return params


def skip_outliers(optimizer: Any, deviations: float = 6.0, window: int = 128) -> Optimizer:
    """`optimizer`, but a step whose gradient is an outlier changes nothing.

    An outlier's global norm lies more than `deviations` standard deviations above the mean of the
    last `window` norms, of which at least half must be known, or is not finite (OLMo 2, 2025).
    state["skipped"] counts them. Norms of outliers are remembered if finite, so that a lasting
    change is soon no outlier.
    """
    if deviations <= 0 or window < 2:
        raise ConfigError(f"need deviations > 0, window >= 2; got {deviations} and {window}")
    optimizer = as_optimizer(optimizer)

    def init(params: Any) -> dict[str, Any]:
        counts = {name: jnp.zeros((), jnp.int32) for name in ("step", "skipped")}
        norms = jnp.zeros((window,), jnp.float32)
        return {"optimizer": optimizer.init(params), "norms": norms, **counts}

    def update(grads: Any, state: dict[str, Any], params: Any) -> tuple[Any, dict[str, Any]]:
        norm, norms, step = global_norm(grads), state["norms"], state["step"]
        known = jnp.minimum(step, window)
        count = jnp.maximum(known, 1).astype(jnp.float32)
        mean = jnp.sum(norms) / count
        there = jnp.arange(window) < known
        spread = jnp.sqrt(jnp.sum(jnp.where(there, (norms - mean) ** 2, 0.0)) / count)
        usual = (known < window // 2) | (norm - mean <= deviations * spread)
        taken = usual & jnp.isfinite(norm)

        def chosen(new: Any, old: Any) -> Any:
            return fxad.tree.map(lambda n, o: jnp.where(taken, n, o), new, old)

        new_params, inner = optimizer.update(grads, state["optimizer"], params)
        place = step % window
        remembered = norms.at[place].set(jnp.where(jnp.isfinite(norm), norm, norms[place]))
        return chosen(new_params, params), {
            "optimizer": chosen(inner, state["optimizer"]),
            "norms": remembered,
            "step": step + 1,
            "skipped": state["skipped"] + (~taken).astype(jnp.int32),
        }

    return Optimizer(init, update)


def as_optimizer(pair: Any) -> Optimizer:
    """An `Optimizer`, or any pair of init and update as Optax defines it, as an `Optimizer`.

    The pair is a tuple (init, update), or an object with these two; its
    update(grads, state, params) -> (updates, state) gives what is added to the parameters. Whatever
    takes an optimizer asks for this, so that such a pair may stand anywhere.
    """
    if isinstance(pair, Optimizer):
        return pair
    init, transform = pair if type(pair) is tuple and len(pair) == 2 else _methods(pair)

    def update(grads: Any, state: Any, params: Any) -> tuple[Any, Any]:
        updates, state = transform(grads, state, params)
        return fxad.tree.map(lambda p, u: (p + u).astype(p.dtype), params, updates), state

    return Optimizer(init, update)


def _methods(pair: Any) -> tuple[Any, Any]:
    init, update = getattr(pair, "init", None), getattr(pair, "update", None)
    if not callable(init) or not callable(update):
        raise ConfigError(f"an optimizer is a pair of functions init and update, got {pair!r}")
    return init, update


def state_spec(optimizer: Any, spec: Any) -> Any:
    """The spec of an optimizer's state for parameters of this spec: what a checkpoint must hold."""
    shapes = fxad.tree.map(lambda leaf: fxad.ShapeDtypeStruct(leaf.shape, leaf.dtype), spec)
    state = fxad.eval_shape(as_optimizer(optimizer).init, shapes)
    return fxad.tree.map(
        lambda s: Leaf(s.shape, str(s.dtype), ("state",) * len(s.shape), zeros), state
    )


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


OPTIMIZERS = ("adamw", "muon")
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
