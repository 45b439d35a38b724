"""What a product's epilogue reads of an elementwise kernel is computed in the epilogue instead."""

from __future__ import annotations

import numpy as np
import pytest
from attempts import lower

import fxad
import fxad.lax as lax
import fxad.numpy as jnp
from fxad.api.compiled import fusion
from fxad.ir.block import reads_of, writes_of
from fxad.ir.plan import Run, walk

R = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return (R.standard_normal(shape) * 0.5).astype(np.float32)


def kernels_with_tanh(function, *args) -> list[str]:
    """Kinds of the kernels that compute tanh, by launch; fused and unfused have the same bits."""
    made = fxad.jit(function).lower(*args)
    fused = fxad.jit(function)(*args)
    with fusion(False):
        plain = fxad.jit(lambda *xs: function(*xs))(*args)
    for one, other in zip(fxad.tree.leaves(fused), fxad.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(one, other)
    kernels = [step.kernel for step in walk(made.plan.steps) if isinstance(step, Run)]
    return [k.kind for k in kernels if "tanh" in str(k)]


def gelu(u):
    return 0.5 * u * (1 + jnp.tanh(0.7978845608 * (u + 0.044715 * u * u * u)))


def mlp(up, down, x):
    hidden = fxad.checkpoint(lambda h: gelu(h) @ down)(x @ up)
    return jnp.sum(jnp.square(x + hidden))


def test_gelu_is_recomputed_where_its_gradient_is() -> None:
    up, down, x = draw(16, 40), draw(40, 16), draw(24, 16)
    both = fxad.grad(mlp, argnums=(0, 1, 2))
    assert kernels_with_tanh(both, up, down, x) == ["contract", "contract"]
    found = fxad.jit(both)(up, down, x)
    for number, gradient in enumerate(found):
        args = [a.astype(np.float64) for a in (up, down, x)]
        direction = R.standard_normal(args[number].shape)
        ends = []
        for step in (1e-5, -1e-5):
            moved = [*args]
            moved[number] = args[number] + step * direction
            u = moved[2] @ moved[0]
            g = 0.5 * u * (1 + np.tanh(0.7978845608 * (u + 0.044715 * u**3)))
            ends.append(np.sum((moved[2] + g @ moved[1]) ** 2))
        slope = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(np.vdot(gradient, direction), slope, rtol=1e-4)


def test_layers_have_one_such_kernel_whatever_barriers_they_have_passed() -> None:
    layers, x = [(draw(16, 40), draw(40, 16)) for _ in range(3)], draw(24, 16)

    def loss(layers, x):
        for up, down in layers:
            x = x + fxad.checkpoint(lambda h, down=down: gelu(h) @ down)(x @ up)
        return jnp.sum(x * x)

    kinds = kernels_with_tanh(fxad.grad(loss), layers, x)
    assert set(kinds) == {"contract"}
    assert len(kinds) == 6


def shifted(x, w):
    t = jnp.tanh(x)
    return (x @ w) * t + (x @ w) * jnp.roll(t, 1, axis=0), t @ w


def operand(x, w):
    t = jnp.tanh(x)
    return (t @ w) * t, t + 1


def depends(x, w):
    t = jnp.tanh(x)
    return (x @ (w * jnp.sum(t @ w))) * t, t


def behind_a_barrier(x, w):
    t = jnp.tanh(x)
    y, later = lax.optimization_barrier((x, jnp.sum(t @ w)))
    return (y @ w) * t, later, t


@pytest.mark.parametrize("function", [shifted, operand, depends, behind_a_barrier])
def test_products_that_must_run_later_or_read_elsewhere_stay_apart(function) -> None:
    assert "map" in kernels_with_tanh(function, draw(24, 24), draw(24, 24))


def two_values(x, w):
    t = jnp.tanh(x)
    s = jnp.sin(jnp.cumsum(t, axis=1))  # cannot run where t does
    return (x @ w) * s * t, s.T @ w, t.T @ w


def numbered(x, w):
    t, s = jnp.tanh(x), jnp.sin(w)
    p, q = x @ w, w @ x
    sums = jnp.cumsum(w, axis=0)
    one, other = p * t, q * s
    return one, other, jnp.cumsum(sums, axis=1), t.T @ w, s.T @ w


def postponed_twice(x, w):
    narrow, flat = x[:, :4] * 2, w[:4] * 2
    p, q = narrow @ flat, (narrow + 1) @ flat  # larger than their operands
    one, other = jnp.cumsum(w, axis=0), jnp.cumsum(x, axis=0)
    one, other = q + one, p + other
    return one, other, jnp.cumsum(other, axis=1), jnp.cumsum(one, axis=1)


@pytest.mark.parametrize("function", [two_values, numbered, postponed_twice])
def test_kernels_run_after_what_they_read(function) -> None:
    args = draw(24, 24), draw(24, 24)
    kernels_with_tanh(function, *args)
    block = lower(fxad.jit(function).lower(*args).traced)
    ready = set(block.inputs)
    for step in block.steps:
        ready.update(writes_of(step))
        assert ready.issuperset(reads_of(step))


def test_transposed_and_bf16_values() -> None:
    def turned(x, w, y):
        t = jnp.tanh(x)
        return (y @ w) * t, (t.T @ w), t * 3

    x, w, y = draw(24, 24), draw(24, 24), draw(24, 24)
    assert kernels_with_tanh(turned, x, w, y) == ["contract"]
    halves = [a.astype(jnp.bfloat16) for a in (x, w, y)]
    assert kernels_with_tanh(turned, *halves) == ["contract"]
