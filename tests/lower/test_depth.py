"""Long chains of operations, as unrolled loops give them: kernels end before the compiler's own
functions, which call themselves for every operation in a row, run out of stack."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp


def steps(x, count):
    for number in range(count):
        x = jnp.sin(x) + 1 if number % 2 else x * 1.01 - 0.5
    return x


@pytest.mark.parametrize("count", [60, 150, 400])
def test_unrolled_steps(count):
    x = np.linspace(-1, 1, 8, dtype=np.float32)
    f = fxad.jit(steps, static_argnums=1)
    with fxad.disable_jit():
        expected = np.asarray(f(x, count))
    np.testing.assert_array_equal(f(x, count), expected)
    g = fxad.jit(fxad.grad(lambda x: steps(x, count).sum()))(x)
    assert np.isfinite(np.asarray(g)).all()


def test_a_sum_of_many_arguments():
    assert int(fxad.jit(sum)(list(range(700)))) == sum(range(700))


def test_deep_rows():
    """The chain's limit holds across values that share a kernel, reductions among them."""

    def f(x):
        for _ in range(12):
            x = steps(x - x.mean(-1, keepdims=True), 40)
        return x

    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    with fxad.disable_jit():
        expected = np.asarray(f(jnp.asarray(x)))
    np.testing.assert_allclose(fxad.jit(f)(x), expected, rtol=1e-5, atol=1e-5)
