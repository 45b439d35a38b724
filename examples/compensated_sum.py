"""Why Kahan's sum is better, as its error estimate sees it.

Both loops add the same numbers in float32. The estimate follows every rounding to the result by
reverse mode: in the compensated loop the correction term carries each rounding back, so the
adjoints of the additions vanish.

    python examples/compensated_sum.py
"""

from __future__ import annotations

import numpy as np

import fxad
from fxad import lax


def naive(x):
    return lax.scan(lambda total, v: (total + v, None), 0.0, x)[0]


def compensated(x):
    def add(state, v):
        total, lost = state
        v = v - lost
        new = total + v
        return (new, (new - total) - v), None

    return lax.scan(add, (0.0, 0.0), x)[0][0]


def main() -> float:
    """How many times smaller the estimated error of the compensated sum is."""
    x = np.random.default_rng(0).uniform(0, 1, 2000).astype(np.float32)
    exact = float(np.sum(x.astype(np.float64)))
    estimates = []
    for function in (naive, compensated):
        report = fxad.estimate_error(function)(x)
        estimates.append(float(report.errors))
        error = abs(float(report.value) - exact)
        print(f"{function.__name__}: estimate {estimates[-1]:.1e}, error {error:.1e}")
        print(report)
    return estimates[0] / estimates[1]


if __name__ == "__main__":
    main()
