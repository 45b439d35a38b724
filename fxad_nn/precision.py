"""What a precision means, by name: what products round their factors to, and what is stored.

    config = in_precision(config, "mixed")

| name | factors of products | activations | loss scaled |
|---|---|---|---|
| `float32`, `f32` | as they are | float32 | no |
| `bfloat16`, `bf16` | bfloat16 | float32 | no |
| `float16`, `fp16` | float16 | float32 | yes |
| `mixed` | bfloat16 | bfloat16 | no |

Sums of products, norms, softmax and losses are float32 in all of them, and so are parameters,
gradients and moments. With `mixed` logits and the gradient of the head's table are rounded once, as
PyTorch's autocast does. Where parameters are narrower than float32, so are activations anyway.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

DTYPES = ("float32", "bfloat16", "float16", "f32", "bf16", "fp16")
MIXED = "mixed"
PRECISIONS = (*DTYPES, MIXED)
_LONG = {"f32": "float32", "bf16": "bfloat16", "fp16": "float16", MIXED: "bfloat16"}


def products_of(precision: str | None) -> str | None:
    """What the factors of products are rounded to; None: whatever goes without saying."""
    return _LONG.get(str(precision), precision)


def is_scaled(precision: str | None) -> bool:
    """Whether the loss is scaled, so that small gradients stay above zero."""
    return products_of(precision) == "float16"


def activations_of(precision: str | None) -> str | None:
    """What activations are stored in; None: what products and parameters give."""
    return "bfloat16" if precision == MIXED else None


def in_precision(config: Any, precision: str | None) -> Any:
    """A model's configuration with its products and activations in a precision."""
    products = products_of(precision)
    if products not in (None, config.dtype):
        config = replace(config, products=products)
    return replace(config, activations=activations_of(precision))
