"""A Kalman filter: the log-likelihood of what was seen, and the noise levels that maximise it."""

import fxad
import fxad.numpy as jnp
from fxad import lax, random

STEP = 0.1  # seconds between observations
COUNT = 500
TRUE = (0.5, 0.2)  # standard deviations of the acceleration and of the observation's error


def motion():
    """How [position, velocity] moves in one step, and what a unit of acceleration adds."""
    return jnp.array([[1.0, STEP], [0.0, 1.0]]), jnp.array([STEP**2 / 2, STEP])


@fxad.jit
def simulate(key):
    """Observed positions [COUNT] of a body that is pushed at random."""
    transition, push = motion()

    def move(state, noise):
        state = transition @ state + push * TRUE[0] * noise[0]
        return state, state[0] + TRUE[1] * noise[1]

    return lax.scan(move, jnp.zeros(2), random.normal(key, (COUNT, 2)))[1]


def log_likelihood(logs, observed):
    """log p(observed), step by step; logs [2] are those of the two standard deviations."""
    transition, push = motion()
    drive, blur = jnp.exp(2 * logs)

    def step(belief, seen):
        mean, cov = belief
        mean = transition @ mean
        cov = transition @ cov @ transition.T + drive * jnp.outer(push, push)
        error, variance = seen - mean[0], cov[0, 0] + blur
        gain = cov[:, 0] / variance
        belief = mean + gain * error, cov - jnp.outer(gain, cov[0])
        return belief, -0.5 * (error**2 / variance + jnp.log(2 * jnp.pi * variance))

    return lax.scan(step, (jnp.zeros(2), jnp.eye(2)), observed)[1].sum()


@fxad.jit
def newton(logs, observed):
    """The likelihood, its slope and the next logs, and their standard errors."""
    value, slope = fxad.value_and_grad(log_likelihood)(logs, observed)
    covariance = jnp.linalg.inv(-fxad.hessian(log_likelihood)(logs, observed))
    return value, slope, logs + covariance @ slope, jnp.sqrt(jnp.diag(covariance))


def main():
    with fxad.enable_x64():
        observed = simulate(random.key(0))
        logs = jnp.log(jnp.array([0.3, 0.3]))
        for i in range(5):
            value, slope, logs, errors = newton(logs, observed)
            print(f"step {i}: log-likelihood {value:.3f}, gradient {slope[0]:.3f} {slope[1]:.3f}")
        for name, true, x, error in zip(("drive", "blur"), TRUE, logs, errors, strict=True):
            print(f"{name} {jnp.exp(x):.3f} +- {jnp.exp(x) * error:.3f}, true {true}")


if __name__ == "__main__":
    main()
