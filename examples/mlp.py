"""A two-layer network fits a spiral; per-example gradients with vmap(grad).

python examples/mlp.py
"""

import math

import fxad
import fxad.numpy as jnp


def spiral(key, count=256):
    """Two interleaved spirals: points [2 count, 2] and labels [2 count]."""
    radius = jnp.sqrt(fxad.random.uniform(key, (count,))) * 2.5
    angle = radius * math.pi / 1.5
    arm = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1) * radius[:, None]
    return jnp.concatenate([arm, -arm]), jnp.concatenate([jnp.zeros(count), jnp.ones(count)])


def init(key, sizes):
    keys = fxad.random.split(key, len(sizes) - 1)
    return [
        {"w": fxad.random.normal(k, (m, n)) / math.sqrt(m), "b": jnp.zeros(n)}
        for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def predict(params, x):
    for layer in params[:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    last = params[-1]
    return (x @ last["w"] + last["b"])[..., 0]


def loss(params, x, y):
    logit = predict(params, x)
    return jnp.mean(jnp.logaddexp(0.0, logit) - y * logit)


@fxad.jit
def step(params, velocity, x, y):
    value, grads = fxad.value_and_grad(loss)(params, x, y)
    velocity = fxad.tree.map(lambda v, g: 0.9 * v - 0.1 * g, velocity, grads)
    return value, fxad.tree.map(lambda p, v: p + v, params, velocity), velocity


def main() -> float:
    x, y = spiral(fxad.random.key(1))
    params = init(fxad.random.key(2), [2, 32, 32, 1])
    velocity = fxad.tree.map(jnp.zeros_like, params)
    for i in range(600):
        value, params, velocity = step(params, velocity, x, y)
        if i % 150 == 0:
            print(f"step {i:3d}  loss {float(value):.4f}")
    per_example = fxad.jit(fxad.vmap(fxad.grad(loss), in_axes=(None, 0, 0)))(params, x, y)
    norms = jnp.sqrt(
        sum(jnp.sum(g * g, axis=tuple(range(1, g.ndim))) for g in fxad.tree.leaves(per_example))
    )
    print(f"final loss {float(value):.4f}; hardest example {int(jnp.argmax(norms))}")
    return float(value)


if __name__ == "__main__":
    main()
