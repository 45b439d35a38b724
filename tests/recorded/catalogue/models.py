"""Training steps, generation and smaller models as the benchmarks have them; nothing is run, so
true widths cost no memory."""

from __future__ import annotations

import functools
from typing import Any

import fxad
import fxad.numpy as jnp
from benchmarks import models as benchmarked
from fxad_nn import models, optim
from fxad_nn.cache import init_cache
from fxad_nn.generate import next_token
from fxad_nn.spec import from_named, named_leaves
from fxad_nn.step import train_step
from tests.recorded.catalogue.case import Cases, Traced, f32, i32, key

cases = Cases("models")


def parameters(config: models.Config) -> Any:
    """The types of a model's parameters."""
    spec = models.family(config).spec(config)
    leaves = {n: fxad.ShapeDtypeStruct(leaf.shape, leaf.dtype) for n, leaf in named_leaves(spec)}
    return from_named(spec, leaves)


def training(
    name: str,
    preset: str,
    batch: int,
    time: int,
    *,
    dtype: str | None = None,
    clip: float | None = None,
    accumulate: int = 1,
    budget: int | None = None,
    **changes: Any,
) -> None:
    """A step of AdamW with parameters and moments donated, as `fxad_nn` trains."""

    def traced() -> Traced:
        config = models.preset(preset, **changes)
        optimizer = optim.adamw(optim.constant(3e-4), beta2=0.95)
        step = train_step(config, optimizer, clip, accumulate, dtype)
        params = parameters(config)
        state = fxad.eval_shape(optimizer.init, params)
        shape = (batch, time) if accumulate == 1 else (accumulate, batch, time)
        lowered = step.lower(params, state, i32(*shape), i32(*shape))
        return lowered.traced, lowered._donate

    cases.program(name, traced, budget=budget)


def decoding(
    name: str, preset: str, length: int, dtype: str, time: int = 1, **changes: Any
) -> None:
    """A compiled step of `fxad_nn.generate`: one token, or a prompt of several."""

    def traced() -> Traced:
        config = models.preset(preset, dtype=dtype, **changes)
        cache = fxad.eval_shape(functools.partial(init_cache, config, 1, length))
        limits = {"temperature": f32(), "top_k": i32()}
        position = i32() if time == 1 else None
        step = next_token(config, config.vocab)
        given = (parameters(config), cache, i32(1, time), position, i32(), key, limits)
        lowered = step.lower(*given, seen=length)
        return lowered.traced, lowered._donate

    cases.program(name, traced)


training("gpt2-tiny-step", "tiny", 2, 16)
training("gpt2-tiny-step-clipped", "tiny", 2, 16, clip=1.0)
training("gpt2-tiny-step-bf16", "tiny", 2, 16, dtype="bf16")
training("gpt2-tiny-step-accumulated", "tiny", 2, 16, accumulate=3)
training("gpt2-nano-step", "nano", 8, 64, layers=1)
training("llama-tiny-step", "llama-tiny", 2, 16)
training("llama-tiny-step-bf16", "llama-tiny", 2, 16, dtype="bf16", clip=1.0)
training("gpt2-two-layers-step", "gpt2", 4, 64, layers=2)
training("gpt2-two-layers-step-256", "gpt2", 4, 256, layers=2, clip=1.0)
training("gpt2-two-layers-step-bf16", "gpt2", 4, 256, layers=2, dtype="bf16")
training("llama-two-layers-step", "llama3.2-1b", 1, 128, layers=2)
training("llama-two-layers-step-bf16", "llama3.2-1b", 1, 128, layers=2, dtype="bf16")
decoding("gpt2-tiny-token", "tiny", 16, "float32")
decoding("gpt2-tiny-prompt", "tiny", 16, "float32", 16)
decoding("llama-tiny-token", "llama-tiny", 16, "bfloat16")
decoding("gpt2-two-layers-token", "gpt2", 256, "float32", layers=2)
decoding("gpt2-two-layers-token-bf16", "gpt2", 256, "bfloat16", layers=2)
decoding("gpt2-two-layers-prompt", "gpt2", 128, "float32", 128, layers=2)
decoding("llama-two-layers-token", "llama3.2-1b", 256, "float32", layers=2)
decoding("llama-two-layers-token-bf16", "llama3.2-1b", 256, "bfloat16", layers=2)


def dense(*shape: int) -> list[Any]:
    return [f32(*shape), f32(shape[-1])]


MLP = {"hidden": [dense(784, 512), dense(512, 512)], "out": dense(512, 10)}
LAYERS = [dense(3, 3, 3, 32), dense(3, 3, 32, 64), dense(3, 3, 64, 128)]
GRU = {"given": dense(64, 768), "state": dense(256, 768), "out": dense(256, 10)}
SMALL: dict[str, tuple[Any, Any]] = {
    "mlp": (MLP, f32(128, 784)),
    "convnet": ({"layers": LAYERS, "out": dense(128, 10)}, f32(64, 32, 32, 3)),
    "gru": (GRU, f32(32, 100, 64)),
}


def descent(name: str, params: Any, x: Any, labels: Any) -> Any:
    """A step of momentum on the cross-entropy of a model of `benchmarks/models.py`."""
    model = benchmarked.MODELS[name][0]

    def loss_of(params: Any) -> Any:
        logits = fxad.nn.log_softmax(model(benchmarked.MINE, params, x))
        return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], axis=1))

    loss, grads = fxad.value_and_grad(loss_of)(params)
    return fxad.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


for name, (params, x) in SMALL.items():
    labels = i32(x.shape[0])
    cases.add(f"{name}-step", functools.partial(descent, name), params, x, labels, donate=(0,))
cases.add("mlp-forward", functools.partial(benchmarked.mlp, benchmarked.MINE), MLP, f32(1, 784))
cases.add("mlp-per-example-gradients", fxad.vmap(
    fxad.grad(lambda p, x: benchmarked.mlp(benchmarked.MINE, p, x[None]).sum()), in_axes=(None, 0)
), {"hidden": [dense(16, 32)], "out": dense(32, 4)}, f32(8, 16))  # fmt: skip

# ---------------------------------------------------------------- memory


def deep(wrap: Any) -> Any:
    """The gradient of four layers, each wrapped."""

    def layer(x: Any, w: Any) -> Any:
        return jnp.tanh(jnp.sin(x) @ w)

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = wrap(layer)(x, w)
        return (x * x).sum()

    return fxad.grad(loss)


def checkpoint(**options: Any) -> Any:
    return functools.partial(fxad.checkpoint, **options)


WEIGHTS, X = [f32(256, 256)] * 4, f32(512, 256)
cases.add("four-layers-grad", deep(lambda f: f), WEIGHTS, X)
cases.add("four-layers-checkpointed", deep(checkpoint()), WEIGHTS, X)
cases.add("four-layers-dots-kept", deep(checkpoint(policy="dots_saveable")), WEIGHTS, X)
cases.add("four-layers-on-disk", deep(checkpoint(offload="disk")), WEIGHTS, X)
cases.add("four-layers-on-host", deep(checkpoint(offload="host")), WEIGHTS, X)
cases.add("four-layers-rounded", deep(checkpoint(compress="bf16")), WEIGHTS, X)
cases.add("four-layers-in-1MB", deep(checkpoint(budget="1MiB")), WEIGHTS, X)
cases.add("four-layers-budget", deep(lambda f: f), WEIGHTS, X, budget=5_500_000)
cases.add(
    "four-layers-budget-disk", deep(lambda f: f), WEIGHTS, X, budget=5_000_000, ways=("disk",)
)

# ---------------------------------------------------------------- optimizers

TREE = {"w": f32(300, 200), "b": f32(200), "norm": f32(64)}
ADAM = optim.adamw(1e-3)
STATE = fxad.eval_shape(ADAM.init, TREE)
cases.add("adamw-update", ADAM.update, TREE, STATE, TREE, donate=(1, 2))
cases.add("clip", lambda g: optim.clip_by_global_norm(g, 1.0), TREE, donate=(0,))
cases.add(
    "momentum-update",
    lambda p, m, g: (p - 0.1 * (0.9 * m + g), 0.9 * m + g),
    *(f32(512, 512), f32(512, 512), f32(512, 512)),
    donate=(0, 1),
)
cases.add(
    "cosine-schedule", lambda step: optim.cosine(1e-3, 1e-4, warmup=10, steps=100)(step), f32()
)
