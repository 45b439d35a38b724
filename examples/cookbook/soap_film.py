"""A soap film between two rings: the least area, by SciPy's L-BFGS with our gradient."""

import numpy as np
from scipy.optimize import minimize

import fxad
import fxad.numpy as jnp

RADIUS, HEIGHT, POINTS = 1.0, 1.0, 99  # of the rings; between them; between their planes


def area(r):
    """Of the film, made of frustums of cones; its radius r [points] is at equal heights."""
    r = jnp.pad(r, 1, constant_values=RADIUS)
    slant = jnp.hypot(r[1:] - r[:-1], HEIGHT / (POINTS + 1))
    return jnp.sum(jnp.pi * (r[1:] + r[:-1]) * slant)


area_and_slope = fxad.jit(fxad.value_and_grad(area))


def main():
    with fxad.enable_x64():
        cylinder = np.full(POINTS, RADIUS)
        options = {"gtol": 1e-8, "ftol": 0.0, "maxiter": 1000}
        film = minimize(area_and_slope, cylinder, jac=True, method="L-BFGS-B", options=options)
        print(f"area {film.fun:.4f}, of a cylinder {area(cylinder):.4f}")
        print(f"waist {film.x[POINTS // 2]:.4f}")


if __name__ == "__main__":
    main()
