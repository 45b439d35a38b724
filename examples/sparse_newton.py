"""A nonlinear boundary value problem by Newton's method with a sparse Jacobian.

-u'' + u^3 = 1 on (0, 1), u = 0 at both ends, by central differences. Each row of the Jacobian has
three entries, so three passes give all of it, however many points there are.

    python examples/sparse_newton.py
"""

from __future__ import annotations

import numpy as np

import fxad
import fxad.numpy as jnp

POINTS = 200


def residual(u):
    padded = jnp.pad(u, 1)
    h = 1.0 / (POINTS + 1)
    return -(padded[2:] - 2 * u + padded[:-2]) / h**2 + u**3 - 1


def solve_banded(m: fxad.SparseMatrix, right: np.ndarray) -> np.ndarray:
    """Gaussian elimination without pivoting on three diagonals."""
    bands = np.zeros((3, POINTS))
    bands[m.cols - m.rows + 1, m.rows] = m.data
    low, middle, high = bands
    right = right.copy()
    for i in range(1, POINTS):
        factor = low[i] / middle[i - 1]
        middle[i] -= factor * high[i - 1]
        right[i] -= factor * right[i - 1]
    for i in reversed(range(POINTS)):
        right[i] = (right[i] - (high[i] * right[i + 1] if i + 1 < POINTS else 0)) / middle[i]
    return right


def main() -> float:
    """The residual after Newton's method has converged."""
    with fxad.enable_x64():
        u = np.zeros(POINTS)
        jacobian = fxad.sparse_jacobian(residual)
        jacobian = fxad.sparse_jacobian(residual, sparsity=jacobian.pattern(u))
        for step in range(3):
            m = jacobian(u)
            u = u - solve_banded(m, np.asarray(residual(u)))
            error = float(jnp.max(jnp.abs(residual(u))))
            print(f"step {step}: {m.pattern}, residual {error:.1e}")
    return error


if __name__ == "__main__":
    main()
