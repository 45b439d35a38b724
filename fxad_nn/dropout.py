"""Dropout of what the layers of a model add, while it is trained (Srivastava et al., 2014).

    params = with_residual_dropout(params, 0.1, fxad.random.key(0))
    x = x + kept(p, "attention", attention(...))        # p: of a block

A training step puts keys into the tree; a tree without them, as it is validated, sampled and saved,
drops nothing. What adapters drop is in `fxad_nn.lora`.
"""

from __future__ import annotations

from typing import Any

import fxad
import fxad.numpy as jnp

ADDED = ("attention", "mlp")
"""What the two halves of a block add to the residual stream."""


def with_residual_dropout(params: Any, rate: float, key: Any) -> Any:
    """The parameters for one training step: a share `rate` of the embedded tokens' elements, and of
    what each half of a block adds, is 0, the others grow by 1 / (1 - rate), by keys of their own
    (Vaswani et al., 2017, section 5.4)."""
    if rate == 0:
        return params
    first, *keys = fxad.random.split(key, 1 + len(ADDED) * len(params["blocks"]))
    pairs = zip(keys[::2], keys[1::2], strict=True)
    blocks = [
        {**block, "dropout": _rule(rate, **dict(zip(ADDED, pair, strict=True)))}
        for block, pair in zip(params["blocks"], pairs, strict=True)
    ]
    embed = {**params["embed"], "dropout": _rule(rate, embedded=first)}
    return {**params, "embed": embed, "blocks": blocks}


def _rule(rate: float, **keys: Any) -> dict[str, Any]:
    return {"rate": jnp.float32(rate), **keys}


def kept(p: dict[str, Any], name: str, x: Any) -> Any:
    """x, or what a training step leaves of it: by p["dropout"], where that is there."""
    return dropped(x, p["dropout"][name], p["dropout"]["rate"]) if "dropout" in p else x


def dropped(x: Any, key: Any, rate: Any) -> Any:
    """x with every element 0 by the chance `rate`, else divided by 1 - rate."""
    stays = fxad.random.bernoulli(key, 1.0 - rate, x.shape)
    return jnp.where(stays, x / (1.0 - rate), jnp.zeros((), x.dtype)).astype(x.dtype)
