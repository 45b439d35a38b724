"""Offloaded values are made and read in their offload buffers, else copied; what is recomputed
instead."""

from __future__ import annotations

import numpy as np
import pytest
from attempts import plan
from offloaded import WS, R, X, loss, puts

import fxad
import fxad.numpy as jnp
from fxad.backend.llvm.executable import Executable
from fxad.core.config import config
from fxad.core.types import ArrayType
from fxad.ir.plan import Host, walk
from fxad.ir.program import OPS, Eqn, Program, Var
from fxad.passes.offload import offload
from fxad.runtime import Store

pytestmark = pytest.mark.usefixtures("small_offload_memory")


WIDE = R.standard_normal((128, 160)).astype(np.float32)  # 82 kB: worth a buffer
SQUARE = [(R.standard_normal((160, 160)) / 12).astype(np.float32) for _ in range(6)]


def test_values_lie_in_their_offload_buffers():
    """Nothing is copied: kernels write into the store's memory and read it there."""
    step = loss(offload="disk")
    steps = [s for s in walk(step.lower(WIDE, SQUARE).plan.steps) if isinstance(s, Host)]
    names = [s.name for s in steps]
    count = sum(e.op.name == "put" for e in step.lower(WIDE, SQUARE).program.eqns)
    assert names.count("put") == names.count("release") == count
    assert names.count("take") == 0
    assert names.count("acquire") >= 1.9 * count  # not the few that the last layer reads to the end


@pytest.mark.parametrize("memory", [90_000, 170_000, 400_000, 20_000_000])
def test_where_memory_is_too_small_for_buffers_values_are_copied(memory, monkeypatch):
    """With memory for one value, two, four or all."""
    answers = []
    for name in ("reserve", "borrow"):
        plain = getattr(Store, name)

        def noting(self, key, own, plain=plain):
            answers.append(plain(self, key, own))
            return answers[-1]

        monkeypatch.setattr(Store, name, noting)
    with config.override(offload_memory=memory):
        got, want = (loss(**o)(WIDE, SQUARE) for o in ({"offload": "disk"}, {}))
    for a, b in zip(fxad.tree.leaves(got), fxad.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(a, b)
    in_buffers = [a is not None for a in answers]
    assert any(in_buffers) == (memory >= 170_000) and all(in_buffers) == (memory > 400_000)


def test_a_value_read_again_after_it_came_back_is_copied():
    """Its memory cannot be both what the forward pass reads and what waits."""
    x, y, t, z = (Var(ArrayType(np.dtype(np.float32), WIDE.shape)) for _ in range(4))
    eqns = [
        Eqn(OPS["sin"], (x,), {}, (y,)),
        Eqn(OPS["put"], (y,), {"key": 0, "place": "disk", "memory": 0}, ()),
        Eqn(OPS["take"], (), {"key": 0, "type": t.type}, (t,)),
        Eqn(OPS["add"], (t, y), {}, (z,)),
    ]
    made = plan(Program([x], eqns, [z]))
    names = [s.name for s in made.steps if isinstance(s, Host)]
    assert names == ["put", "acquire", "release"]
    np.testing.assert_allclose(Executable(made).run([WIDE])[0], 2 * np.sin(WIDE), rtol=1e-6)


def test_what_is_quickly_computed_from_others_is_not_offloaded():
    """Of y = tanh(x w) the backward pass reads y and 1 - y * y, of w its transpose."""

    def total(**options):
        def f(x, ws):
            for w in ws:
                x = fxad.checkpoint(lambda x, w: x + jnp.tanh(x @ w) @ w.T, **options)(x, w)
            return jnp.sum(x * x)

        return fxad.jit(fxad.value_and_grad(f, argnums=(0, 1)))

    step, plain = total(offload="disk"), total(policy="everything_saveable")
    for got, want in zip(*(fxad.tree.leaves(f(X, WS)) for f in (step, plain)), strict=True):
        np.testing.assert_array_equal(got, want)
    assert puts(step) == 2 * len(WS) - 1  # y and x of every layer; the first x is an argument
    assert puts(total(offload="host")) == 4 * len(WS) - 1  # there, copies cost no more than that


def test_a_value_is_offloaded_if_what_makes_it_would_wait_for_it():
    """z = 2 y is read at once in the backward pass, y only after everything else."""
    kind = ArrayType(np.dtype(np.float32), WS[0].shape)
    product = {"batch": ((), ()), "contract": ((1,), (0,)), "dtype": kind.dtype}

    def puts_of(between: int) -> int:
        x, y, z, y2, z2, first, out = (Var(kind) for _ in range(7))
        mark = {"place": "disk", "memory": 0}
        eqns = [
            Eqn(OPS["dot"], (x, x), product, (y,)),
            Eqn(OPS["add"], (y, y), {}, (z,)),
            Eqn(OPS["offload"], (z,), mark, (z2,)),
            Eqn(OPS["offload"], (y,), mark, (y2,)),
            Eqn(OPS["cos"], (z2,), {}, (first,)),
        ]
        for _ in range(between):
            eqns.append(Eqn(OPS["cos"], (first,), {}, ((first := Var(kind)),)))
        eqns.append(Eqn(OPS["mul"], (y2, first), {}, (out,)))
        placed = offload(Program([x], eqns, [out]))
        np.testing.assert_array_equal(
            Executable(plan(placed)).run([WS[0]])[0],
            Executable(plan(Program([x], eqns, [out]))).run([WS[0]])[0],
        )
        return sum(e.op.name == "put" for e in placed.eqns)

    assert puts_of(3) == 1
    assert puts_of(30) == 2
