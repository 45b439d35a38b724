"""Logistic regression by gradient descent: `value_and_grad` over a parameter dict, under `jit`.

python examples/logistic_regression.py
"""

import fxad
import fxad.numpy as jnp


def make_data(key, count=512, features=8):
    """Points labelled by a hidden hyperplane: [count, features] and [count] of 0 or 1."""
    k1, k2 = fxad.random.split(key)
    x = fxad.random.normal(k1, (count, features))
    hidden = fxad.random.normal(k2, (features,))
    return x, (x @ hidden > 0).astype(jnp.float32)


def loss(params, x, y):
    """Mean negative log likelihood, written so that it cannot overflow."""
    logits = x @ params["w"] + params["b"]
    return jnp.mean(jnp.logaddexp(0.0, logits) - y * logits)


@fxad.jit
def step(params, x, y):
    value, grads = fxad.value_and_grad(loss)(params, x, y)
    return value, fxad.tree.map(lambda p, g: p - 1.0 * g, params, grads)


def main() -> float:
    x, y = make_data(fxad.random.key(0))
    params = {"w": jnp.zeros(x.shape[1]), "b": jnp.zeros(())}
    for i in range(200):
        value, params = step(params, x, y)
        if i % 50 == 0:
            print(f"step {i:3d}  loss {float(value):.4f}")
    accuracy = jnp.mean((x @ params["w"] + params["b"] > 0) == (y > 0.5))
    print(f"accuracy {float(accuracy):.3f}")
    return float(accuracy)


if __name__ == "__main__":
    main()
