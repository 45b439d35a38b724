"""What methods of PyTorch's arrays are called here, for the message that they are missing."""

from __future__ import annotations

INSTEAD = {
    "add_": "x = x + y",
    "backward": "fxad.grad(loss)(params)",
    "bfloat16": "x.astype(jnp.bfloat16)",
    "bmm": "x @ y",
    "clamp": "jnp.clip(x, low, high)",
    "contiguous": "x itself",
    "cpu": "x itself",
    "cuda": "fxad.jit(f).on('cuda')",
    "detach": "fxad.stop_gradient(x)",
    "dim": "x.ndim",
    "double": "x.astype(jnp.float64)",
    "expand": "jnp.broadcast_to(x, shape)",
    "float": "x.astype(jnp.float32)",
    "grad": "fxad.grad(loss)(params)",
    "half": "x.astype(jnp.float16)",
    "long": "x.astype(jnp.int32)",
    "masked_fill": "jnp.where(mask, value, x)",
    "mm": "x @ y",
    "mul_": "x = x * y",
    "norm": "jnp.linalg.norm(x)",
    "numel": "x.size",
    "numpy": "numpy.asarray(x)",
    "permute": "x.transpose(axes)",
    "repeat_interleave": "x.repeat(n)",
    "requires_grad": "argnums= of fxad.grad",
    "requires_grad_": "argnums= of fxad.grad",
    "sub_": "x = x - y",
    "t": "x.T",
    "to": "x.astype(dtype)",
    "unsqueeze": "jnp.expand_dims(x, axis)",
    "zero_": "jnp.zeros_like(x)",
}
"""PyTorch's names, and what to write."""


class TorchMethod:
    """A method of PyTorch's, which arrays do not have: asking for it says what to write."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type | None = None) -> None:
        raise AttributeError(
            f"'Array' object has no attribute {self.name!r}; write {INSTEAD[self.name]}"
        )
