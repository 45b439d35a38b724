"""Loops, branches and host calls through lowering and planning, against the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from attempts import plan
from plan_walker import run_plan

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.compiler import simplified
from fxad.core.types import ArrayType
from fxad.ir.check_plan import check_plan
from fxad.ir.plan import Copy, Loop, Taping, While, walk
from fxad.ir.program import Program
from fxad.ir.rewrite import evaluate
from fxad.trace.tracer import stage


def program_of(function, *args) -> tuple[Program, list[np.ndarray]]:
    types = [ArrayType(a.dtype, a.shape) for a in args]
    program, consts = stage(lambda *xs: list(function(*xs)), types)
    return simplified(program.closed()), [*map(np.asarray, consts), *args]


def check(function, *args):
    """The fused and the unfused plan give the oracle's results; answers the fused plan."""
    program, args = program_of(function, *args)
    wanted = evaluate(program, args)
    made = plan(program)
    plain = run_plan(plan(program, fusion=False), [a.copy() for a in args])
    fused = run_plan(made, [a.copy() for a in args])
    for want, one, other in zip(wanted, plain, fused, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(other, want, rtol=1e-5, atol=1e-6)
    assert "plan" in str(made)
    return made


R = np.random.default_rng(3)
X = R.standard_normal((5, 4)).astype(np.float32)
W = R.standard_normal((4, 4)).astype(np.float32)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 4, 5])
def test_scan_carries_and_stacks(length: int, reverse: bool) -> None:
    def f(h, w, xs):
        def body(h, x):
            new = jnp.tanh(h @ w + x)
            return new, (new * 2, h)

        h, (ys, before) = lax.scan(body, h, xs, reverse=reverse)
        return h, ys, before

    check(f, X[0], W, X[:length])


def test_carries_that_trade_places() -> None:
    def f(a, b, xs):
        (a, b, c), ys = lax.scan(lambda s, x: ((s[1], s[0], s[2]), s[0] + x), (a, b, a), xs)
        return a, b, c, ys

    check(f, X[0], X[1], X)


def test_nested_scans_with_odd_lengths() -> None:
    def f(h, xs, zs):
        def outer(h, x):
            h, ys = lax.scan(lambda h, z: (jnp.sin(h[::-1]) + z, h * x), h, zs)
            return h, ys.sum(axis=0)

        return lax.scan(outer, h, xs)

    check(f, X[0], X, X[:3] * 0.5)
    check(f, X[0], X[:4], X[:2] * 0.5)


def test_elementwise_carry_is_updated_in_place() -> None:
    def f(h, xs):
        return (lax.scan(lambda h, x: (h * 0.5 + x, None), h, xs)[0],)

    made = check(f, X[0], X)
    (loop,) = [s for s in made.steps if isinstance(s, Loop)]
    assert not loop.swaps
    assert not any(isinstance(s, Copy) for s in loop.body)


def test_while_and_cond() -> None:
    def f(x, n):
        def body(state):
            i, v = state
            v = lax.cond(i % 2 == 0, lambda u: u * 1.5, lambda u: u[::-1] - 1.0, v)
            return i + 1, v

        return lax.while_loop(lambda s: s[0] < n, body, (0 * n, x))

    for n in (0, 1, 4, 7):
        check(f, X[0], np.int32(n).reshape(()))


def test_branches_that_answer_their_operands() -> None:
    def f(i, a, b):
        return lax.switch(
            i, [lambda a, b: (a, b), lambda a, b: (b, b), lambda a, b: (a + b, a)], a, b
        )

    for i in (-3, 0, 1, 2, 9):
        check(f, np.int32(i).reshape(()), X[0], X[1])


def twice(p, y):
    """A value under two shapes, from whichever branch."""
    return lax.cond(p, lambda y: (y + 1, (y + 1)[None]), lambda y: (y * 2, (y * 2)[None]), y)


def called(a):
    """What Python gives, in a shape of its own, and the same bytes in another."""
    doubled = ArrayType(np.dtype(np.float32), (1, *a.shape))
    y = fxad.pure_callback(lambda v: np.asarray(v)[None] * 2, doubled, a)
    return y, y[0]


@pytest.mark.parametrize("length", [3, 4])
@pytest.mark.parametrize(
    "body",
    [
        lambda s, p: ((s[1][0], s[0][None]), s[0][None]),
        lambda s, p: ((s[0] * 2 + s[1][0], s[0][None]), twice(p, s[0])),
        lambda s, p: (twice(p, s[0] + s[1][0]), (s[0][None], s[1][0])),
        lambda s, p: (called(s[0])[::-1], called(s[1][0])),
        lambda s, p: (lax.cond(p, lambda: (s[1][0], s[1]), lambda: (s[0], s[0][None])), s[0] + 1),
        lambda s, p: lax.scan(lambda s, _: ((s[1][0], s[0][None]), twice(p, s[0])), s, None, 3),
    ],
)
def test_one_value_in_two_shapes(body, length: int) -> None:
    """States and slices that a loop moves may be other values' bytes in another shape."""

    def scanned(p, a, b):
        return fxad.tree.leaves(lax.scan(lambda s, _: body(s, p), (a, b), None, length=length))

    def repeated(p, a, b):
        def step(s):
            return s[0] + 1, *body(s[1:], p)[0]

        return lax.while_loop(lambda s: s[0] < length, step, (jnp.int32(0), a, b))

    for p in (False, True):
        arguments = np.bool_(p).reshape(()), X[0], X[1:2]
        for f in (scanned, repeated):
            made = check(f, *arguments)
            check_plan(made)
            with fxad.disable_jit():
                wanted = f(*arguments)
            for got, want in zip(fxad.jit(f)(*arguments), wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5)


def test_gradient_of_a_scan() -> None:
    def f(h, w, xs):
        def loss(w, h):
            out, ys = lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h.sum()), h, xs)
            return (out * out).sum() + ys.sum()

        return fxad.grad(loss, argnums=(0, 1))(w, h)

    check(f, X[0], W, X)


def test_while_inside_scan() -> None:
    def f(h, xs):
        def body(h, x):
            _, h = lax.while_loop(
                lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1][::-1] * 0.9 + x), (0, h)
            )
            return h, h

        return lax.scan(body, h, xs)

    made = check(f, X[0], X)
    assert sum(1 for _ in walk(made.steps)) > 3


def test_while_inside_while_starts_where_its_state_is() -> None:
    def f(h, n):
        def inner(h, count):
            return lax.while_loop(
                lambda s: s[0] < count, lambda s: (s[0] + 1, s[1][::-1] * 0.9), (0 * count, h)
            )[1]

        def body(state):
            i, h = state
            return i + 1, inner(inner(h * 1.1, i), 3 + 0 * i)

        return lax.while_loop(lambda s: s[0] < n, body, (0 * n, h))

    for n in (1, 2, 5):
        check(f, X[0], np.int32(n).reshape(()))


def test_gradient_of_a_while_writes_and_reads_a_tape() -> None:
    def f(x, n):
        def loss(x):
            return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, x))[
                1
            ].sum()

        return (fxad.grad(loss)(x),)

    made = check(f, X[0], np.int32(3).reshape(()))
    kinds = [s.kind for s in walk(made.steps) if isinstance(s, Taping)]
    assert kinds == ["write", "read"]
    assert not any(s.frees for s in made.steps if isinstance(s, While))


def test_tapes_that_stay_in_a_trip_are_freed_after_it() -> None:
    def f(x, n):
        def loss(x):
            return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, x))[
                1
            ].sum()

        return (lax.scan(lambda x, _: (x - fxad.grad(loss)(x), ()), x, None, length=3)[0],)

    made = check(f, X[0], np.int32(3).reshape(()))
    (outer,) = [s for s in made.steps if isinstance(s, Loop)]
    assert outer.frees
    assert "frees tapes" in str(made)
