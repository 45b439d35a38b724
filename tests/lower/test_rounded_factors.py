"""Products that round their factors: which casts go, and the bits of a cast of its own."""

from __future__ import annotations

import numpy as np
import pytest
from attempts import lower

import fxad
import fxad.numpy as jnp
from fxad.api import compiled
from fxad.backend.llvm.native.engine import host_target
from fxad.ir.kernel import Contract
from fxad.ir.plan import Run, walk

K, N = 512, 640
W = np.random.default_rng(0).standard_normal((K, N)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((96, K)).astype(np.float32)


def half(x):
    return x.astype(jnp.bfloat16)


def product(x, w, contract=((1,), (0,))):
    """In float32 of rounded factors."""
    return fxad.lax.dot_general(half(x), half(w), (contract, ((), ())), None, jnp.float32)


def kernels(f, *args):
    """Of the function, for a backend that rounds the right factors of products."""
    program = fxad.jit(f).lower(*args).program
    block = lower(program, rounds_right)
    return [step.kernel for step in block.steps]


def rounds_right(kernel) -> bool:
    (stage,) = kernel.body
    return stage.b.buffer.dtype == np.float32


def casts(found) -> int:
    """Copies of W in bf16."""
    return sum(k.buffers[-1].size == W.size and k.kind == "map" for k in found)


def layer(w, x, dy):
    """What a layer makes of its weight: the product, and both its cotangents."""
    return jnp.sin(product(x, w)), product(dy, w, ((1,), (1,))), product(x, dy, ((0,), (0,)))


def test_a_weight_is_rounded_by_its_products():
    found = kernels(layer, W, X, X @ W)
    assert casts(found) == 0
    stages = [s for k in found for s in k.body if isinstance(s, Contract)]
    assert len(stages) == 3 and sum(s.b.rounded is not None for s in stages) == 2
    assert any("bf16(in" in str(k) for k in found)


@pytest.mark.parametrize(
    "f",
    [
        lambda w, x: (product(x, w), half(w)),  # a result
        lambda w, x: (product(x, w), jnp.cumsum(half(w), axis=0)),  # another reader
        lambda w, x: product(x, jnp.sin(w)),  # no input
        lambda w, x: product(x[:, :8], w[:8]),  # small
        lambda w, x: [product(x + i, w) for i in range(4)],  # read by many
    ],
    ids=["result", "reader", "computed", "small", "many"],
)
def test_other_copies_stay(f):
    def has_rounded(found):
        return any(
            o.rounded for k in found for s in k.body if isinstance(s, Contract) for o in (s.a, s.b)
        )

    assert not has_rounded(kernels(f, W, X))


@pytest.mark.skipif("amx_bf16" not in host_target().features, reason="needs AMX with bf16")
@pytest.mark.parametrize("rows", [96, 256, 640])
def test_bits_of_a_training_step(rows):
    """Loss, gradients and a donated weight's update, as with casts of their own."""
    x = np.random.default_rng(1).standard_normal((rows, K)).astype(np.float32)

    def step(w, x, dy):
        y, dx, dw = layer(w, x, dy)
        return w - 0.1 * dw, y, dx

    dy = np.random.default_rng(2).standard_normal((rows, N)).astype(np.float32)
    rounded = fxad.jit(step, donate_argnums=(0,))
    plan = rounded.lower(W, x, dy).plan
    assert sum("bf16(in" in str(s.kernel) for s in walk(plan.steps) if isinstance(s, Run)) == 2
    found = rounded(jnp.asarray(W), x, dy)
    with compiled.fusion(False):
        wanted = fxad.jit(step)(W, x, dy)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
