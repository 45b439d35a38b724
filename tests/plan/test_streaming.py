"""Which results are read so late that products write them by streaming stores."""

from __future__ import annotations

import numpy as np

import fxad
import fxad.lax as lax
import fxad.numpy as jnp
from fxad.ir import heuristics
from fxad.ir.plan import Run, walk

SIDE = 512  # a square is 1 MB: a product of two touches three
SQUARE = np.ones((SIDE, SIDE), np.float32)


def are_streamed(function, *args) -> list[bool]:
    """For every product in order of execution, whether it writes by streaming stores."""
    steps = walk(fxad.jit(function).lower(*args).plan.steps)
    kernels = [s.kernel for s in steps if isinstance(s, Run) and s.kernel.kind == "contract"]
    return [kernel.body[0].streaming for kernel in kernels]


def products(x, count):
    """(the product of all, each one of them)."""
    found = []
    for _ in range(count):
        x = x @ SQUARE
        found.append(x)
    return x, found


def test_what_the_next_step_reads_is_not_streamed():
    assert not any(are_streamed(lambda x: products(x, 40)[0], SQUARE))


def test_outputs_are_read_at_the_end():
    """Each is an operand of the product that follows and of nothing later; the others are not."""

    def grads(x):
        return [x.T @ (x * float(i)) for i in range(30)]

    found = are_streamed(grads, SQUARE)
    after = heuristics.STREAMING_DISTANCE // (3 * SQUARE.nbytes)
    assert found[0] and not any(found[-after // 2 :]) and found == sorted(found, reverse=True)


def test_few_results_are_not_streamed():
    assert not any(are_streamed(lambda x: [x.T @ x, x @ x.T], SQUARE))


def test_gradients_in_a_loop():
    """What a loop stacks is read after it, what it carries in its next trip."""

    def step(x, w):
        gradient = x.T @ (x * w[0, 0])
        for _ in range(12):
            x = x @ w
        return x, gradient

    found = are_streamed(
        lambda x, ws: lax.scan(step, x, ws), SQUARE, np.ones((3, SIDE, SIDE), np.float32)
    )
    assert found == [True] + [False] * 12


def test_results_are_the_same():
    """A deep network's gradients against those of each layer alone."""
    random = np.random.default_rng(0)
    weights = [random.standard_normal((256, 256)).astype(np.float32) / 16 for _ in range(24)]
    x = random.standard_normal((64, 256)).astype(np.float32)

    def loss(weights, x):
        for w in weights:
            x = jnp.tanh(x @ w)
        return jnp.sum(x * x)

    assert any(are_streamed(fxad.grad(loss), weights * 3, x))
    found = fxad.jit(fxad.grad(loss))(weights * 3, x)
    eager = fxad.grad(loss)(weights * 3, x)
    for one, other in zip(found, eager, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4)
