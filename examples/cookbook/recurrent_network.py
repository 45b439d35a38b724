"""A gated recurrent unit learns to add the two numbers that are marked in a sequence."""

import fxad
import fxad.numpy as jnp
from fxad import lax, nn, random

LENGTH, BATCH, WIDTH = 20, 64, 32


def gru(params, xs):
    """The last state [width] of a sequence [length, features]. Cho and others (2014)."""

    def step(h, x):
        a, b = params["input"] @ x, params["state"] @ h  # [3 width]: reset, update, new
        reset, update = nn.sigmoid(a[: 2 * WIDTH] + b[: 2 * WIDTH]).reshape(2, WIDTH)
        new = jnp.tanh(a[2 * WIDTH :] + reset * b[2 * WIDTH :])
        return update * h + (1 - update) * new, None

    return lax.scan(step, jnp.zeros(WIDTH), xs)[0]


def sequences(key):
    """[batch, length, 2]: numbers, two of them marked by 1; and [batch]: the sum of the two."""
    numbers, first, second = random.split(key, 3)
    values, places = random.uniform(numbers, (BATCH, LENGTH)), jnp.arange(LENGTH)
    one = random.randint(first, (BATCH, 1), 0, LENGTH // 2)
    two = random.randint(second, (BATCH, 1), LENGTH // 2, LENGTH)
    marks = ((places == one) | (places == two)).astype(values.dtype)
    return jnp.stack([values, marks], axis=-1), jnp.sum(values * marks, axis=1)


def loss(params, xs, sums):
    states = fxad.vmap(gru, in_axes=(None, 0))(params, xs)
    return jnp.mean((states @ params["out"] - sums) ** 2)


@fxad.jit
def train(params, keys):
    """A step of Adam for every key, each on new sequences; the losses."""

    def step(state, key):
        params, m, v = state
        value, g = fxad.value_and_grad(loss)(params, *sequences(key))
        m = fxad.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = fxad.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
        params = fxad.tree.map(lambda p, m, v: p - 5e-3 * m / (jnp.sqrt(v) + 1e-6), params, m, v)
        return (params, m, v), value

    zeros = fxad.tree.map(jnp.zeros_like, params)
    return lax.scan(step, (params, zeros, zeros), keys)[1]


def init(key):
    shapes = {"input": (3 * WIDTH, 2), "state": (3 * WIDTH, WIDTH), "out": (WIDTH,)}
    keys = random.split(key, len(shapes))
    named = zip(shapes.items(), keys, strict=True)
    return {name: random.normal(key, shape) / WIDTH**0.5 for (name, shape), key in named}


def main():
    losses = train(init(random.key(0)), random.split(random.key(1), 1000))
    for i, some in enumerate(losses.reshape(4, 250)):
        print(f"steps {250 * i:3d} to {250 * i + 249}: mean squared error {some.mean():.4f}")


if __name__ == "__main__":
    main()
