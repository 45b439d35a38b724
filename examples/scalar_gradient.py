"""The gradient of a scalar function, as a number and as a program you can read.

python examples/scalar_gradient.py
"""

import fxad
import fxad.numpy as jnp


def f(x):
    return jnp.sin(x) * jnp.exp(-x * x)


def newton(x, steps=6):
    """Find a stationary point of f. Python's `while` may look at values here: nothing is jitted."""
    slope, curvature = fxad.grad(f), fxad.grad(fxad.grad(f))
    while abs(slope(x)) > 1e-6 and steps:
        x, steps = x - slope(x) / curvature(x), steps - 1
    return x


def main() -> float:
    print("f'(1) =", fxad.grad(f)(1.0))
    print(fxad.make_ir(fxad.grad(f))(1.0))
    peak = newton(0.5)
    print("stationary point", peak)
    return float(peak)


if __name__ == "__main__":
    main()
