"""Hamiltonian Monte Carlo: the posterior of a logistic regression, by four chains at once."""

import fxad
import fxad.numpy as jnp
from fxad import lax, nn, random

# Racine, Grieve, Fluehler and Smith (1986): logarithms of doses, animals that got them, deaths.
DOSES, ANIMALS, DEATHS = (-0.86, -0.30, -0.05, 0.73), (5, 5, 5, 5), (0, 1, 3, 5)


def log_posterior(x):
    """Of x = [intercept, slope], up to a constant; the priors are N(0, 2^2) and N(10, 10^2)."""
    logits = x[0] + x[1] * jnp.array(DOSES)
    likelihood = jnp.array(DEATHS) @ logits - jnp.array(ANIMALS) @ nn.softplus(logits)
    return likelihood - 0.5 * ((x[0] / 2) ** 2 + ((x[1] - 10) / 10) ** 2)


def sample(log_density, key, x, count, scale, leaps=10, size=0.4):
    """Draws [count, n] from a density by its gradient, and the share of proposals accepted.

    scale [n]: about the standard deviations. Neal (2011), MCMC using Hamiltonian dynamics.
    """
    slope = fxad.grad(log_density)

    def leap(_, state):
        x, p = state
        x = x + size * scale * p
        return x, p + size * scale * slope(x)

    def draw(x, key):
        momentum, chance = random.split(key)
        p = random.normal(momentum, x.shape)
        half = size / 2 * scale
        y, q = lax.fori_loop(0, leaps, leap, (x, p + half * slope(x)))
        q = q - half * slope(y)
        gain = log_density(y) - log_density(x) + (p @ p - q @ q) / 2
        accept = jnp.log(random.uniform(chance)) < gain
        x = jnp.where(accept, y, x)
        return x, (x, accept)

    draws, accepted = lax.scan(draw, x, random.split(key, count))[1]
    return draws, accepted.mean()


@fxad.jit
def chains(keys, starts):
    scale = jnp.array([1.0, 5.0])
    return fxad.vmap(lambda key, x: sample(log_posterior, key, x, 2500, scale))(keys, starts)


def main():
    with fxad.enable_x64():
        starts = jnp.array([[-2.0, 0.0], [2.0, 0.0], [-2.0, 20.0], [2.0, 20.0]])
        draws, accepted = chains(random.split(random.key(0), 4), starts)
        draws = draws[:, 500:]  # [chain, draw, coordinate]
        within, between = draws.var(axis=1).mean(axis=0), draws.mean(axis=1).var(axis=0, ddof=1)
        ratio = jnp.sqrt(1 + jnp.max(between / within))  # of Gelman and Rubin: 1 when chains agree
        print(f"accepted {accepted.mean():.2f}, R-hat {ratio:.2f}")
        for name, x in zip(("intercept", "slope"), draws.reshape(-1, 2).T, strict=True):
            print(f"{name} {x.mean():.1f} +- {x.std():.1f}")
        lethal = jnp.median(-draws[..., 0] / draws[..., 1])
        print(f"half die of a dose of log {lethal:.2f}")


if __name__ == "__main__":
    main()
