"""The heat equation by FFT, and backwards: what was hot, from what is warm now."""

import fxad
import fxad.numpy as jnp
from fxad import random
from fxad.scipy.sparse.linalg import cg

SIZE, TIME, NOISE, WEIGHT = 64, 5e-4, 0.01, 3e-3
SPOTS = ((0.3, 0.3), (0.3, 0.4), (0.6, 0.5), (0.7, 0.6), (0.5, 0.8))  # centres on the unit square


def diffuse(u):
    """Temperatures [size, size] on a periodic unit square after TIME; exact for each frequency."""
    rows, columns = jnp.fft.fftfreq(SIZE, 1 / SIZE), jnp.fft.rfftfreq(SIZE, 1 / SIZE)
    decay = jnp.exp(-TIME * (2 * jnp.pi) ** 2 * (rows[:, None] ** 2 + columns**2))
    return jnp.fft.irfft2(decay * jnp.fft.rfft2(u))


@fxad.jit
def observe(u, key):
    """What is measured after TIME."""
    return diffuse(u) + NOISE * random.normal(key, u.shape)


def loss(u, seen):
    """Misfit, and a penalty on large temperatures: without it noise would take over."""
    return 0.5 * jnp.sum((diffuse(u) - seen) ** 2) + 0.5 * WEIGHT * jnp.sum(u**2)


@fxad.jit
def invert(seen):
    """The least loss: it is quadratic, so one step of Newton's method with CG finds it."""
    slope = fxad.grad(loss)
    zero = jnp.zeros_like(seen)

    def curved(p):  # the Hessian times p
        return fxad.jvp(lambda u: slope(u, seen), (zero,), (p,))[1]

    return cg(curved, -slope(zero, seen))[0]


def main():
    with fxad.enable_x64():
        x = jnp.arange(SIZE) / SIZE
        squares = [(x[:, None] - a) ** 2 + (x - b) ** 2 for a, b in SPOTS]
        true = sum(jnp.exp(-square / (2 * 0.025**2)) for square in squares)
        seen = observe(true, random.key(0))
        for name, u in ("seen", seen), ("found", invert(seen)):
            off = jnp.linalg.norm(u - true) / jnp.linalg.norm(true)
            print(f"{name}: hottest {u.max():.2f} of {true.max():.2f}, error {off:.2f}")


if __name__ == "__main__":
    main()
