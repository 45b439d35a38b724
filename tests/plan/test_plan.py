"""Arena, overlap rules, order of updates, text."""

from __future__ import annotations

import numpy as np
from attempts import plan
from plan_walker import run_plan

import fxad.numpy as jnp
from fxad.compiler import simplified
from fxad.core.arena import Arena
from fxad.core.types import ArrayType
from fxad.ir.plan import Copy, Run
from fxad.ir.program import OPS
from fxad.trace.tracer import stage

F32 = np.dtype("float32")


def program_of(function, *shapes: tuple[int, ...]):
    program, consts = stage(lambda *xs: list(function(*xs)), [ArrayType(F32, s) for s in shapes])
    assert not consts
    return simplified(program)


def test_arena_never_gives_out_bytes_twice() -> None:
    random = np.random.default_rng(0)
    arena, held = Arena(), {}
    for _ in range(2000):
        if held and random.random() < 0.5:
            offset = list(held)[int(random.integers(len(held)))]
            arena.give(offset)
            del held[offset]
        else:
            size = int(random.integers(1, 5000))
            offset = arena.take(size)
            assert offset % 64 == 0
            assert all(offset + size <= o or o + n <= offset for o, n in held.items())
            held[offset] = size
    assert max(o + n for o, n in held.items()) <= arena.peak
    for offset in list(held):
        arena.give(offset)
    assert arena.take(arena.peak) == 0  # all gaps have grown together


def test_a_chain_of_products_needs_two_buffers() -> None:
    def f(x, w):
        for _ in range(8):
            x = x @ w
        return (x,)

    made = plan(program_of(f, (32, 32), (32, 32)))
    assert made.arena_bytes == 2 * 32 * 32 * 4


def test_dead_operands_are_overwritten() -> None:
    def f(x, w):
        y = x @ w
        y = jnp.exp(y - jnp.max(y, axis=1, keepdims=True))
        return ((y / y.sum(axis=1, keepdims=True)) @ w,)

    made = plan(program_of(f, (64, 64), (64, 64)))
    assert made.arena_bytes == 64 * 64 * 4


def test_a_shift_is_not_done_in_place() -> None:
    program = program_of(lambda x: (jnp.roll(x, 1) + 1.0,), (100,))
    assert plan(program, donate=frozenset({0})).donated == {}
    program = program_of(lambda x: (x + 1.0,), (100,))
    assert plan(program, donate=frozenset({0})).donated == {0: 0}


def test_an_argument_read_later_is_not_overwritten_before() -> None:
    def f(w, x):
        return w - 0.1 * (x.T @ x), x @ w

    program = program_of(f, (8, 8), (16, 8))
    made = plan(program, donate=frozenset({0}))
    assert made.donated == {0: 0}
    runs = [s.kernel.name for s in made.steps if isinstance(s, Run)]
    assert len(runs) == 2
    args = [np.random.default_rng(1).standard_normal(s).astype(F32) for s in ((8, 8), (16, 8))]
    wanted = run_plan(plan(program), [a.copy() for a in args])
    for one, other in zip(run_plan(made, [a.copy() for a in args]), wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_scatter_updates_a_donated_array_without_a_copy() -> None:
    def f(x, y):
        return (x.at[np.array([3, 1, 3])].add(y),)

    types = [ArrayType(F32, (10, 4)), ArrayType(F32, (3, 4))]
    program, consts = stage(lambda *xs: list(f(*xs)), types)
    program = simplified(program.closed())
    donated = plan(program, donate=frozenset({len(consts)}))
    assert not any(isinstance(s, Copy) for s in donated.steps)
    assert any(isinstance(s, Copy) for s in plan(program).steps)


def test_text_names_kernels_slots_and_bytes() -> None:
    program = program_of(lambda x, w: (jnp.exp(x @ w) @ w,), (8, 8), (8, 8))
    text = str(plan(program))
    assert repr(plan(program)) == text  # what a REPL shows
    assert text.startswith("plan  arena 256 bytes\n")
    assert "run dot_exp(%0, %1 -> " in text
    assert "result 0: f32[8,8]" in text


def test_fusion_does_not_undo_a_barrier() -> None:
    def f(x, w):
        def layer(x):
            return jnp.exp(x - x.max(axis=1, keepdims=True))

        first = layer(x)
        again = layer(OPS["barrier"](x)[0])
        return first @ w, again

    made = plan(program_of(f, (32, 32), (32, 32)))
    computing = [s for s in made.steps if isinstance(s, Run) and "exp" in s.kernel.name]
    assert len(computing) == 2


def test_work_behind_a_barrier_joins_what_it_reads() -> None:
    def f(x, w):
        hidden = jnp.tanh(x)
        product = hidden @ w  # does not feed the barrier
        return product, product * jnp.tanh(OPS["barrier"](x)[0])

    made = plan(program_of(f, (32, 32), (32, 32)))
    names = [s.kernel.name for s in made.steps if isinstance(s, Run)]
    assert names == ["tanh", "dot_mul"]


def test_what_feeds_a_barrier_is_not_joined_by_what_is_behind_it() -> None:
    def f(x, w):
        product = x @ w
        return product, product * jnp.tanh(OPS["barrier"](product)[0])

    made = plan(program_of(f, (32, 32), (32, 32)))
    names = [s.kernel.name for s in made.steps if isinstance(s, Run)]
    assert names == ["dot", "mul"]
