"""Products that wait for their readers: what is then said to be in memory is what is."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from attempts import lower

import fxad
import fxad.numpy as jnp
from fxad.compiler import simplified
from fxad.ir.block import Launch, reads_of
from fxad.plan.order import _Order
from fxad.plan.overlap import Accesses

R = np.random.default_rng(0)


def step(a, b, m, late):
    """A product of a and b, which is read last; products in between take more memory, and read an
    operand of the first one if `late`."""
    a, b = jnp.sin(a), jnp.cos(b)
    made = a.T @ b
    between = jnp.tanh((b if late else m[: len(a)]) @ m)
    for _ in range(3):
        between = jnp.tanh(between @ m)
    wide = jnp.tanh(jnp.tanh(m @ m) @ m)
    return jnp.cumsum(made, axis=0) + jnp.sum(between) + jnp.sum(wide)


def lowered(rows, late):
    a, b = (R.standard_normal((rows, 1024)).astype(np.float32) for _ in range(2))
    m = R.standard_normal((1024, 1024)).astype(np.float32)
    function = functools.partial(step, late=late)
    return lower(simplified(fxad.jit(function).lower(a, b, m).traced))


def first_product(steps):
    """The number of the product of a and b."""
    products = [n for n, s in enumerate(steps) if isinstance(s, Launch)]
    return next(
        n for n in products if steps[n].kernel.kind == "contract" and not reads_matrix(steps[n])
    )


def reads_matrix(step):
    return any(v.type.shape == (1024, 1024) for v in reads_of(step))


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("rows", [8, 300])
def test_what_is_in_memory_is_known_after_a_move(rows, late):
    block, accesses = lowered(rows, late), functools.cache(Accesses)
    order = _Order(block, accesses)
    before = max(order.during)
    order.delay(block.steps[first_product(block.steps)])
    changed = type(block)(block.inputs, tuple(order.steps), block.outputs)
    again = _Order(changed, accesses)
    assert changed.steps != block.steps
    assert order.after == again.after
    assert max(again.during) <= before
