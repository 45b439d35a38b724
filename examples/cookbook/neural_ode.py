"""A neural ODE: a network learns a pendulum's field through a solver that chooses its steps."""

import fxad
import fxad.numpy as jnp
from fxad import lax, random

STAGES = (  # Dormand and Prince (1980): the weights of earlier slopes; the last row is the result
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
ERROR = (71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def integrate(field, y, end, tolerance):
    """y(end) of y' = field(y) from y(0) = y, and how many steps were tried."""

    def step(state):
        t, h, y, slope, tried = state
        h, slopes = jnp.minimum(h, end - t), [slope]
        for weights in STAGES:
            new = y + h * sum(w * k for w, k in zip(weights, slopes, strict=True))
            slopes.append(field(new))
        error = h * sum(w * k for w, k in zip(ERROR, slopes, strict=True))
        error = jnp.max(jnp.abs(lax.stop_gradient(error)) / (tolerance * (1 + jnp.abs(y))))
        after, before = (t + h, new, slopes[-1]), (t, y, slope)
        t, y, slope = fxad.tree.map(lambda a, b: jnp.where(error <= 1, a, b), after, before)
        return t, h * jnp.clip(0.9 * (error + 1e-9) ** -0.2, 0.2, 5), y, slope, tried + 1

    state = jnp.zeros_like(end), end / 10, y, field(y), 0
    state = lax.while_loop(lambda state: state[0] < end, step, state)
    return state[2], state[4]


@fxad.jit
def pendulum(start, end):
    def field(y):
        return jnp.stack([y[:, 1], -jnp.sin(y[:, 0]) - 0.2 * y[:, 1]], axis=1)

    return integrate(field, start, end, 1e-6)


def loss(params, start, end, target):
    def network(y):
        return jnp.tanh(y @ params["in"] + params["bias"]) @ params["out"]

    y, tried = integrate(network, start, end, 1e-4)
    return jnp.mean((y - target) ** 2), tried


@fxad.jit
def train(params, start, end, target):
    """400 steps of Adam: the losses, and how many steps the solver tried."""

    def update(state, i):
        params, m, v = state
        log, g = fxad.value_and_grad(loss, has_aux=True)(params, start, end, target)
        m = fxad.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = fxad.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
        rate = 0.02 * jnp.sqrt(1 - 0.99**i) / (1 - 0.9**i)
        params = fxad.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), params, m, v)
        return (params, m, v), log

    zeros = fxad.tree.map(jnp.zeros_like, params)
    return lax.scan(update, (params, zeros, zeros), jnp.arange(1.0, 401.0))[1]


def main():
    points, first, last = random.split(random.key(0), 3)
    start, end = random.uniform(points, (64, 2), minval=-1.5, maxval=1.5), jnp.float32(2.0)
    target, steps = pendulum(start, end)
    params = {"in": random.normal(first, (2, 32)), "bias": jnp.zeros(32)}
    params["out"] = 0.1 * random.normal(last, (32, 2))
    losses, tried = train(params, start, end, target)
    print(f"loss {losses[0]:.2f}, trained {losses[-1]:.4f}; steps {tried[-1]}, the data's {steps}")


if __name__ == "__main__":
    main()
