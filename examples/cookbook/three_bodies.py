"""Three bodies chase each other on a figure of eight: the velocities that close the orbit."""

import fxad
import fxad.numpy as jnp
from fxad import lax

PERIOD, SEGMENTS, STEPS = 6.32591398, 40, 50  # each segment has so many steps


def accelerations(x):
    """Of bodies at x [body, axis] by gravity, where masses and G are 1."""
    apart = x[None] - x[:, None]
    squares = jnp.sum(apart**2, axis=2) + jnp.eye(len(x))  # a body does not pull itself
    return jnp.sum(apart / squares[..., None] ** 1.5, axis=1)


def orbit(x, v):
    """Positions and velocities after a period, by the leapfrog method."""
    h = PERIOD / (SEGMENTS * STEPS)

    def step(state, _):
        x, v = state
        v = v + h / 2 * accelerations(x)
        x = x + h * v
        return (x, v + h / 2 * accelerations(x)), None

    @fxad.checkpoint
    def segment(state, _):  # only the state between segments is kept for the gradient
        return lax.scan(step, state, None, length=STEPS)

    return lax.scan(segment, (x, v), None, length=SEGMENTS)[0]


def start(w):
    """One body in the middle, two beside it; w [2] is the velocity of those two."""
    x = jnp.array([[0.97000436, -0.24308753], [-0.97000436, 0.24308753], [0.0, 0.0]])
    return x, jnp.stack([w, w, -2 * w])


def energy(x, v):
    apart = jnp.stack([x[0] - x[1], x[1] - x[2], x[2] - x[0]])
    return 0.5 * jnp.sum(v**2) - jnp.sum(1 / jnp.sqrt(jnp.sum(apart**2, axis=1)))


def gap(w):
    """By how much the orbit fails to close, squared; and by how much the energy has changed."""
    (x, v), (y, u) = start(w), orbit(*start(w))
    return jnp.sum((y - x) ** 2) + jnp.sum((u - v) ** 2), energy(y, u) - energy(x, v)


@fxad.jit
def newton(w):
    (value, drift), slope = fxad.value_and_grad(gap, has_aux=True)(w)
    curvature, _ = fxad.hessian(gap, has_aux=True)(w)
    return value, drift, w - jnp.linalg.solve(curvature, slope)


def main():
    with fxad.enable_x64():
        w = jnp.array([0.46, 0.43])
        for i in range(7):
            value, drift, w = newton(w)
            print(f"step {i}: gap {jnp.sqrt(value):.0e}, change of energy {drift:.0e}")
        print(f"velocity {w[0]:.4f} {w[1]:.4f}")


if __name__ == "__main__":
    main()
