"""Random loops, nested and branching: compiled as one function they give the interpreter's bits.

A body is a random chain of ops on carried arrays; what it draws is fixed by the seed, so a failure
names all that is needed to see it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.backend.llvm import executable as module
from fxad.backend.llvm.executable import Executable

F32 = np.float32
SHAPES = [(), (3,), (2, 2), (5,), (3, 3), (40,), (4, 4)]
Body = Callable[[list, object], list]


def anywhere(r: np.random.Generator) -> Callable:
    """A random op for arrays of any shape: (x, y, trip) -> an array of x's shape."""
    k = F32(r.normal())
    ops = [
        lambda x, y, i: jnp.sin(x) * k,
        lambda x, y, i: x + y.sum(),
        lambda x, y, i: jnp.tanh(x * 0.5 + y.mean()),
        lambda x, y, i: lax.cond(x.sum() > k, lambda x: x * 0.7, jnp.cos, x),
        lambda x, y, i: jnp.where(x > 0, x, y.sum() * 0.1),
        lambda x, y, i: lax.switch(i % 3, [jnp.sin, lambda x: x, lambda x: -x], x),
        lambda x, y, i: jnp.exp(-x * x) - k,
    ]
    along = [
        lambda x, y, i: x.at[i % x.shape[0]].set(k),
        lambda x, y, i: x[::-1] * 0.9 + x[i % x.shape[0]],
        lambda x, y, i: jnp.cumsum(x, 0) * 0.2,
        lambda x, y, i: jnp.sort(x, 0) * 0.9,
        lambda x, y, i: x @ x.T * 0.3 if x.ndim == 2 else x * x,
    ]
    plain, other = ops[r.integers(len(ops))], along[r.integers(len(along))]
    some = r.random() < 0.5
    return lambda x, y, i: other(x, y, i) if some and x.ndim else plain(x, y, i)


def loop_inside(r: np.random.Generator, depth: int) -> Callable:
    """A random inner loop: (state, trip) -> a number."""
    body, trips, kind = random_body(r, depth + 1), int(r.integers(1, 6)), int(r.integers(3))
    reverse = bool(r.integers(2))

    def scanned(state: Sequence, i: object) -> list:
        def step(s: tuple, j: object) -> tuple:
            s = tuple(body(list(s), j))
            return s, s[0]

        out, ys = lax.scan(step, tuple(state), jnp.arange(trips), reverse=reverse)
        return [*out, ys]

    def unknown(state: Sequence, i: object) -> list:
        def step(s: tuple) -> tuple:
            return (s[0] + 1, *body(list(s[1:]), s[0]))

        return list(lax.while_loop(lambda s: s[0] < trips + i % 2, step, (0, *state))[1:])

    def counted(state: Sequence, i: object) -> list:
        return list(lax.fori_loop(0, trips, lambda j, s: tuple(body(list(s), j)), tuple(state)))

    run = (scanned, unknown, counted)[kind]
    return lambda state, i: sum(jnp.tanh(x).sum() for x in run(state, i))


def random_body(r: np.random.Generator, depth: int = 0) -> Body:
    """(state, trip) -> the next state, of the same shapes, with everything below 1."""
    ops = [(anywhere(r), r.integers(100, size=2)) for _ in range(r.integers(2, 6))]
    inner = loop_inside(r, depth) if depth < 2 and r.random() < 0.4 else None
    exchange = r.random() < 0.4

    def body(state: list, i: object) -> list:
        values = list(state)
        for op, (a, b) in ops:
            values.append(op(values[a % len(values)], values[b % len(values)], i))
        if inner is not None:
            values.append(state[0] * 0.5 + inner(state, i))
        made = values[len(state) :]
        following = []
        for s in state:
            same = [v for v in made if v.shape == s.shape]
            following.append(jnp.tanh(same[-1]) if same else jnp.sin(s) * 0.9)
        if exchange and len(state) > 1 and state[0].shape == state[1].shape:
            following[:2] = following[1::-1]
        return following

    return body


def random_loop(seed: int) -> tuple[Callable, tuple[np.ndarray, ...]]:
    r = np.random.default_rng(seed)
    shapes = [SHAPES[n] for n in r.integers(len(SHAPES), size=r.integers(1, 4))]
    shapes += shapes[:1] * int(r.integers(2))
    state = tuple([r.normal(size=shape).astype(F32) for shape in shapes])
    body, trips, reverse = random_body(r), int(r.integers(1, 40)), bool(r.integers(2))
    xs = r.normal(size=(trips, 3)).astype(F32)

    def run(*state):
        def step(s, x):
            i, x = x
            s = body(list(s), i)
            s[0] = s[0] + x.sum() * 0.1
            return tuple(s), (s[-1], x * s[0].sum())

        out, ys = lax.scan(step, state, (jnp.arange(trips), xs), reverse=reverse)
        return [*out, *ys]

    return run, state


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_loop_as_one_function_gives_the_same_bits(monkeypatch, seed):
    run, state = random_loop(seed)

    def total(*state):
        return sum(jnp.tanh(x).sum() for x in run(*state))

    for function in (run, fxad.grad(total, argnums=tuple(range(len(state))))):
        jitted = fxad.jit(function)
        plan = jitted.lower(*state).plan
        leaves, trace = jitted.trace_for(state, {})
        args = [np.asarray(a) for a in (*trace.captured, *leaves)]
        whole = Executable(plan).run(args)
        with monkeypatch.context() as patch:
            patch.setattr(module, "sequences_of", lambda plan, tuning: [])
            stepwise = Executable(plan).run(args)
        for got, want in zip(whole, stepwise, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}")
