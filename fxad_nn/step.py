"""One training step as one compiled function.

step = train_step(config, optimizer, clip=1.0, accumulate=1, dtype="bfloat16")
params, state, loss = step(params, state, tokens, targets)      # params and state are donated
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Integral
from typing import Any

import fxad
import fxad.numpy as jnp
from fxad_nn import models
from fxad_nn.dropout import with_residual_dropout
from fxad_nn.errors import ConfigError, did_you_mean
from fxad_nn.lora import with_dropout
from fxad_nn.loss import NONE, Penalties
from fxad_nn.loss_scale import loss_scale, scaled_value_and_grad, unscaled
from fxad_nn.objective import Objective
from fxad_nn.optim import as_optimizer, clip_by_global_norm, global_norm
from fxad_nn.precision import PRECISIONS, in_precision, is_scaled
from fxad_nn.vocabulary import require_integers


def train_step(
    config: models.Config,
    optimizer: Any,
    clip: float | None,
    accumulate: int = 1,
    dtype: str | None = None,
    penalties: Penalties = NONE,
    with_norm: bool = False,
) -> Callable[..., tuple[Any, Any, Any]]:
    """Compiled (params, state, tokens, targets) -> (params, state, mean loss).

    optimizer: an `Optimizer`, or a pair of init and update as Optax has them (`as_optimizer`).

    tokens and targets are int32 [batch, context], with accumulation [accumulate, batch, context].
    Ids outside the vocabulary are clamped to it: ask `vocabulary.require_ids` about foreign ones.
    clip=None leaves gradients as they are, which lets every gradient die as soon as it is used:
    updates are then done as the gradients' products are computed (`fxad.profile` says if not).
    dtype: what the factors of all matrix products, forward and backward, are rounded to: with
    "bfloat16" parameters, sums, activations between layers, gradients and moments stay float32;
    with "mixed" activations are stored in bfloat16, too.
    "float16" wants an optimizer with a loss scale (`fxad_nn.loss_scale.with_loss_scale`): the step
    then scales its loss, and divides the gradients by the scale before it clips them.
    penalties: what the loss adds to cross-entropy. with_norm: the last result is (mean loss, global
    norm of the gradient before it is clipped), which costs nothing where it is clipped.

    Raises ConfigError for a precision that is unknown or wants a loss scale that is missing, and
    for `accumulate` below 1; the step raises it for tokens or targets of another shape, and
    DataError for those that are no integers.
    """
    if dtype not in (None, *PRECISIONS):
        hint = did_you_mean(str(dtype), PRECISIONS)
        raise ConfigError(
            f"train_step: dtype must be one of {', '.join(PRECISIONS)}, got {dtype}{hint}"
        )
    if not (isinstance(accumulate, Integral) and accumulate >= 1):
        raise ConfigError(
            f"train_step: accumulate counts the batches of a step, at least 1, got {accumulate!r}"
        )
    config = in_precision(config, dtype)
    update = as_optimizer(optimizer).update
    loss = models.family(config).loss
    loss_and_grads = scaled_value_and_grad(
        lambda params, batch: loss(params, batch, config, penalties=penalties)
    )

    def accumulated(params: Any, scale: Any, tokens: Any, targets: Any) -> tuple[Any, Any]:
        def add(total: Any, batch: Any) -> tuple[Any, None]:
            part = loss_and_grads(scale, params, batch)
            return fxad.tree.map(lambda t, x: t + x.astype(t.dtype), total, part), None

        zero = fxad.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        total, _ = fxad.lax.scan(add, (jnp.zeros((), jnp.float32), zero), (tokens, targets))
        return fxad.tree.map(lambda t: t / accumulate, total)

    def step(params: Any, state: Any, tokens: Any, targets: Any) -> tuple[Any, Any, Any]:
        _require_batches(tokens, targets, accumulate)
        scale = loss_scale(state)
        if scale is None and is_scaled(dtype):
            raise ConfigError(
                f"train_step: with dtype={dtype!r} small gradients vanish unless the loss is "
                "scaled: wrap the optimizer, fxad_nn.loss_scale.with_loss_scale(optimizer)"
            )
        if accumulate == 1:
            value, grads = loss_and_grads(scale, params, (tokens, targets))
        else:
            value, grads = accumulated(params, scale, tokens, targets)
        grads, norm = _clipped(unscaled(grads, scale), clip, with_norm)
        params, state = update(grads, state, params)
        return params, state, (value, norm) if with_norm else value

    return fxad.jit(step, donate_argnums=(0, 1))


def _require_batches(tokens: Any, targets: Any, accumulate: int) -> None:
    """DataError unless both are integers, ConfigError unless both are [batch, context], or with
    accumulation [accumulate, batch, context]: a mean over another number of batches would be off
    by a factor."""
    wanted = (accumulate,) if accumulate > 1 else ()
    for name, array in (("tokens", tokens), ("targets", targets)):
        require_integers(array, name, "ids of tokens")
        shape = tuple(array.shape)
        if len(shape) != len(wanted) + 2 or shape[: len(wanted)] != wanted:
            axes = ", ".join([*map(str, wanted), "batch", "context"])
            raise ConfigError(
                f"train_step: with accumulate={accumulate} {name} must be [{axes}], got "
                f"{list(shape)}"
            )
    if tokens.shape != targets.shape:
        raise ConfigError(
            f"train_step: each token has a target: tokens are {list(tokens.shape)}, targets "
            f"{list(targets.shape)}"
        )


def _clipped(grads: Any, clip: float | None, with_norm: bool) -> tuple[Any, Any]:
    """Gradients of a global norm of at most `clip`, and the norm before, where it is asked for."""
    if clip is None:
        return grads, global_norm(grads) if with_norm else None
    return clip_by_global_norm(grads, clip)


def tuning_step(
    objective: Objective,
    optimizer: Any,
    clip: float | None,
    dropout: float = 0.0,
    seed: int = 0,
    residual_dropout: float = 0.0,
    with_norm: bool = False,
) -> Callable[..., tuple[Any, Any, Any]]:
    """Compiled (trained, state, frozen, reference, *batch, number) -> (trained, state, loss).

    trained and frozen are the two parts of the parameters (`fxad.tree.partition`): only `trained`
    has gradients and a state, and only these two are donated. batch: what the objective takes, each
    array int32 [accumulate, rows, ...]; the loss is the objective's sum over all of them by its
    count over all of them. dropout: of the inputs of adapters, residual_dropout: of what layers
    add, both by keys that follow from `seed` and the step's `number`. with_norm: as `train_step`.
    """

    update = as_optimizer(optimizer).update

    def step(
        trained: Any, state: Any, frozen: Any, reference: Any, *arguments: Any
    ) -> tuple[Any, Any, Any]:
        *batch, number = arguments
        micro_batches = batch[0].shape[0]
        counts = [objective.count(tuple(x[i] for x in batch)) for i in range(micro_batches)]
        count = jnp.maximum(sum(counts[1:], counts[0]), 1.0)
        key = fxad.random.fold_in(fxad.random.key(seed), number)

        def total(trained: Any, batch: Any, micro: Any) -> Any:
            params = fxad.tree.combine(trained, frozen)
            of_adapters, of_residuals = fxad.random.split(fxad.random.fold_in(key, micro))
            params = with_dropout(params, dropout, of_adapters)
            params = with_residual_dropout(params, residual_dropout, of_residuals)
            return objective.total(params, reference, batch)

        scale = loss_scale(state)
        total_and_grads = partial(scaled_value_and_grad(total), scale)
        if micro_batches == 1:
            loss, grads = total_and_grads(trained, tuple(x[0] for x in batch), 0)
        else:
            loss, grads = _summed(total_and_grads, trained, tuple(batch))
        grads = unscaled(grads, scale)
        # Divided last, in float32: factors of narrower products would lose what is small.
        loss, grads = fxad.tree.map(lambda x: (x / count).astype(x.dtype), (loss, grads))
        grads, norm = _clipped(grads, clip, with_norm)
        trained, state = update(grads, state, trained)
        return trained, state, (loss, norm) if with_norm else loss

    return fxad.jit(step, donate_argnums=(0, 1))


def _summed(
    total_and_grads: Callable[..., tuple[Any, Any]], trained: Any, batch: tuple[Any, ...]
) -> tuple[Any, Any]:
    """The losses and the gradients of all micro-batches, added in float32 one after another."""

    def add(total: Any, micro_batch: Any) -> tuple[Any, None]:
        batch, number = micro_batch
        part = total_and_grads(trained, batch, number)
        return fxad.tree.map(lambda t, x: t + x.astype(t.dtype), total, part), None

    zero = fxad.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), trained)
    numbers = jnp.arange(batch[0].shape[0])
    start = (jnp.zeros((), jnp.float32), zero)
    return fxad.lax.scan(add, start, (batch, numbers))[0]
