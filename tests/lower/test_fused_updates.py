"""An optimiser's update as the epilogue of its gradient's product, and where it stays apart."""

from __future__ import annotations

import numpy as np
import pytest
from attempts import plan
from fused import check, draw, kernels_of, kinds, program_of

import fxad.numpy as jnp
from fxad.ir import heuristics
from fxad.ir.plan import Run, walk


def test_adamw_is_one_pass() -> None:
    def f(p, g, m, v, rate):
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g * g
        return p - rate * m / (jnp.sqrt(v) + 1e-8), m, v

    args = [draw(30, 20), draw(30, 20), draw(30, 20), draw(30, 20) ** 2]
    made = check(f, *args, np.full((), 0.1, np.float32), donate=frozenset({0, 2, 3}))
    assert kinds(made) == ["map"]
    assert made.donated == {0: 0, 1: 2, 2: 3}


def updated(x, dy, w, mean, square, scale=1.0):
    """AdamW's update of w by the gradient x^T dy."""
    gradient = (x.T @ dy).astype(jnp.float32) * scale
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.99 * square + 0.01 * gradient * gradient
    return w - 0.01 * mean / (jnp.sqrt(square) + 1e-3), mean, square


def test_an_update_is_the_epilogue_of_its_gradient(monkeypatch) -> None:
    """The gradient is in no kernel's results; what is donated is updated in place."""
    monkeypatch.setattr(heuristics, "EPILOGUE_BYTES", 0)
    monkeypatch.setattr(heuristics, "ROW_EPILOGUE_EXTENT", 32)
    state = [draw(32, 48), draw(32, 48), np.abs(draw(32, 48))]
    made = check(updated, draw(8, 32), draw(8, 48), *state, donate=frozenset({2, 3, 4}))
    assert kinds(made) == ["contract"] and made.arena_bytes == 0
    (run,) = [s for s in walk(made.steps) if isinstance(s, Run)]
    assert [b.role for b in run.kernel.buffers].count("inout") == 3


@pytest.mark.parametrize("reason", ["too few rows", "bf16", "clipped"])
def test_an_update_stays_apart_where_that_is_faster_or_needed(monkeypatch, reason) -> None:
    monkeypatch.setattr(heuristics, "EPILOGUE_BYTES", 0)
    monkeypatch.setattr(heuristics, "NARROW_EPILOGUE_BYTES", 0)
    monkeypatch.setattr(heuristics, "ROW_EPILOGUE_EXTENT", 33 if reason == "too few rows" else 32)
    x, dy = draw(8, 32), draw(8, 48)

    def step(x, dy, *state):
        if reason == "bf16":
            x, dy = x.astype("bfloat16"), dy.astype("bfloat16")
        scale = 1.0
        if reason == "clipped":  # every element of the gradient decides about every update
            scale = 1.0 / jnp.maximum(jnp.sqrt(jnp.sum(jnp.square(x.T @ dy))), 1.0)
        return updated(x, dy, *state, scale)

    program, _ = program_of(step, x, dy, draw(32, 48), draw(32, 48), draw(32, 48))
    found = [k for k in kernels_of(plan(program)) if k.kind == "contract"]
    assert found and all(len(k.body[0].stores) == 1 for k in found)
