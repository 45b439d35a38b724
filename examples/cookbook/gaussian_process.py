"""A Gaussian process: its three parameters by the gradient of the marginal likelihood."""

import fxad
import fxad.numpy as jnp
from fxad import lax, random
from fxad.scipy.linalg import cho_solve, solve_triangular


def kernel(logs, a, b):
    """Covariances [a, b]; logs [3] of the function's deviation, its length and the noise."""
    return jnp.exp(2 * logs[0] - 0.5 * ((a[:, None] - b) / jnp.exp(logs[1])) ** 2)


def factorized(logs, x, y):
    """The Cholesky factor L [n, n] of the covariance of y [n], and its inverse times y."""
    factor = jnp.linalg.cholesky(kernel(logs, x, x) + jnp.exp(2 * logs[2]) * jnp.eye(len(x)))
    return factor, cho_solve((factor, True), y)


def log_likelihood(logs, x, y):
    """log p(y | x, logs). Rasmussen and Williams (2006), algorithm 2.1."""
    factor, weights = factorized(logs, x, y)
    return -0.5 * y @ weights - jnp.sum(jnp.log(jnp.sqrt(2 * jnp.pi) * jnp.diag(factor)))


@fxad.jit
def train(logs, x, y):
    """100 steps of gradient ascent; the likelihoods on the way."""

    def step(logs, _):
        value, slope = fxad.value_and_grad(log_likelihood)(logs, x, y)
        return logs + slope / len(y), value

    return lax.scan(step, logs, None, length=100)


@fxad.jit
def predict(logs, x, y, new):
    """Mean and standard deviation of the function at new points."""
    factor, weights = factorized(logs, x, y)
    across = kernel(logs, x, new)
    explained = jnp.sum(solve_triangular(factor, across, lower=True) ** 2, axis=0)
    return across.T @ weights, jnp.sqrt(jnp.exp(2 * logs[0]) - explained)


def main():
    with fxad.enable_x64():
        places, noise = random.split(random.key(0))
        x = random.uniform(places, (200,), maxval=10.0)
        y = jnp.sin(x) + 0.3 * random.normal(noise, (200,))
        logs, values = train(jnp.zeros(3), x, y)
        print(f"log-likelihood {values[0]:.1f}, trained {values[-1]:.1f}")
        print("deviation {:.2f}, length {:.2f}, noise {:.2f}".format(*jnp.exp(logs)))
        new = jnp.array([2.5, 5.0, 12.0])
        for at, mean, deviation in zip(new, *predict(logs, x, y, new), strict=True):
            print(f"f({at}) = {mean:.2f} +- {deviation:.2f}, sin {jnp.sin(at):.2f}")


if __name__ == "__main__":
    main()
