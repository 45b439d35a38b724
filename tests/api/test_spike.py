"""The five cases that decide whether the IR is right: captures, scan split, linear_call, eager
custom rules, tapes under vmap. Oracles: closed forms and finite differences in float64."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.ir.check import check
from fxad.ir.program import Program, subprograms

X = np.float64(0.7)
V = np.array([0.1, 0.2, 0.3])


@pytest.fixture(autouse=True)
def _x64():
    with fxad.enable_x64():
        yield


def equations(program: Program, name: str) -> list:
    """All equations of an op, in the program and inside its sub-programs."""
    found = []
    for eqn in program.eqns:
        if eqn.op.name == name:
            found.append(eqn)
        for _, inner in subprograms(eqn):
            found += equations(inner, name)
    return found


def slope(function, *args, at: int = 0, step: float = 1e-6) -> np.ndarray:
    """Central differences with respect to one argument."""
    base = [np.array(a, np.float64) for a in args]
    out = np.zeros_like(base[at])
    for index in np.ndindex(out.shape):
        ends = []
        for sign in (1, -1):
            moved = [b.copy() for b in base]
            moved[at][index] += sign * step
            ends.append(float(function(*moved)))
        out[index] = (ends[0] - ends[1]) / (2 * step)
    return out


# ---------------------------------------------------------------- 1. outer tracers


def test_inner_gradient_captures_the_outer_variable():
    def outer(y):
        return fxad.grad(lambda x: x * y * x)(y * 2.0)  # 4 y^2

    for wrap in (lambda f: f, fxad.jit):
        assert float(wrap(fxad.grad(outer))(X)) == pytest.approx(8 * X, rel=1e-14)
        np.testing.assert_allclose(wrap(fxad.vmap(fxad.grad(outer)))(V), 8 * V, rtol=1e-14)
        assert float(wrap(fxad.grad(fxad.grad(outer)))(X)) == pytest.approx(8.0, rel=1e-14)


def test_loop_and_branch_bodies_capture_outer_tracers():
    def outer(y):
        inner = fxad.jit(lambda x: x * y)
        total, _ = lax.scan(lambda c, x: (c + inner(x) * y, None), 0.0, jnp.asarray(V))
        low = lax.cond(y > 0, lambda t: t * y, lambda t: t - y, total)
        return lax.while_loop(lambda c: c < 3.0 * y, lambda c: c + y, low)

    def numbers(y):
        low = y * sum(v * y * y for v in V)
        while low < 3.0 * y:
            low += y
        return low

    for wrap in (lambda f: f, fxad.jit):
        assert float(wrap(outer)(X)) == pytest.approx(numbers(X), rel=1e-14)
        pushed = wrap(lambda y: fxad.jvp(outer, (y,), (jnp.ones_like(y),))[1])(X)
        assert float(pushed) == pytest.approx(slope(numbers, X), rel=1e-7)


# ---------------------------------------------------------------- 2. scan split


def _decay(k, xs):
    """exp(k) does not depend on the iteration: one value, not one per iteration."""
    c, ys = lax.scan(lambda c, x: (c * x * jnp.exp(k) + c, jnp.sin(c)), 0.5, xs)
    return c + jnp.sum(ys)


def _decay_numbers(k, xs):
    c, total = 0.5, 0.0
    for x in xs:
        total += np.sin(c)
        c = c * x * np.exp(k) + c
    return c + total


def test_scan_gradient_matches_differences():
    for at, args in ((0, (X, V)), (1, (X, V))):
        want = slope(_decay_numbers, *args, at=at)
        np.testing.assert_allclose(fxad.grad(_decay, argnums=at)(*args), want, rtol=1e-8)
        np.testing.assert_allclose(fxad.jit(fxad.grad(_decay, argnums=at))(*args), want, rtol=1e-8)


def test_second_derivative_through_scan():
    want = slope(lambda k: float(slope(_decay_numbers, k, V)), X, step=1e-4)
    first = fxad.grad(_decay)
    for function in (fxad.grad(first), fxad.jit(fxad.grad(first))):
        assert float(function(X, V)) == pytest.approx(float(want), rel=1e-4)


def test_invariant_residuals_are_not_stacked():
    program = fxad.jit(fxad.grad(_decay)).lower(X, V).program
    scans = equations(program, "scan")
    assert len(scans) == 2
    forward, backward = scans
    assert not equations(forward.params["body"], "exp")  # hoisted out of the loop
    stacked = len(forward.outputs) - forward.params["carry"]
    assert stacked == 2  # what changes: c * x and cos c; never exp(k), x, or the unread ys
    assert backward.params["reverse"] is not forward.params["reverse"]
    # xs is read again by the backward loop, not saved by the forward one
    source = program.inputs[-1]
    assert source in forward.inputs
    assert source in backward.inputs


# ---------------------------------------------------------------- 3. linear_call


@fxad.custom_vjp
def doubled(x):
    return jnp.sin(x)


doubled.defvjp(lambda x: (jnp.sin(x), jnp.cos(x)), lambda r, ct: (ct * r * 2.0,))


def test_custom_backward_is_used_in_reverse_mode_only():
    for wrap in (lambda f: f, fxad.jit):
        assert float(wrap(fxad.grad(doubled))(X)) == pytest.approx(2 * np.cos(X), rel=1e-14)
        # Forward mode differentiates the function itself.
        push = wrap(lambda x: fxad.jvp(doubled, (x,), (jnp.ones_like(x),))[1])
        assert float(push(X)) == pytest.approx(np.cos(X), rel=1e-14)


def test_forward_over_reverse_and_vmap_of_a_custom_backward():
    for wrap in (lambda f: f, fxad.jit):
        over = wrap(lambda x: fxad.jvp(fxad.grad(doubled), (x,), (jnp.ones_like(x),))[1])
        assert float(over(X)) == pytest.approx(-2 * np.sin(X), rel=1e-14)
        np.testing.assert_allclose(wrap(fxad.vmap(fxad.grad(doubled)))(V), 2 * np.cos(V))
        np.testing.assert_allclose(wrap(fxad.vmap(over))(V), -2 * np.sin(V))
        total = wrap(fxad.grad(lambda v: jnp.sum(fxad.vmap(doubled)(v))))
        np.testing.assert_allclose(total(V), 2 * np.cos(V))


def test_direct_backward_enters_as_linear_call():
    printed = fxad.make_ir(lambda x: fxad.jvp(doubled, (x,), (x,))[1])(X)
    check(printed.program)
    assert equations(printed.program, "linear_call")


# ---------------------------------------------------------------- 4. eager custom_vjp


def test_eager_backward_may_branch_on_values():
    calls = []

    @fxad.custom_vjp
    def odd(x):
        return jnp.sin(x)

    def backward(r, ct):
        calls.append(float(r))
        return (ct * 5.0,) if r > 0 else (-ct,)

    odd.defvjp(lambda x: (jnp.sin(x), jnp.cos(x)), backward)
    assert float(fxad.grad(odd)(X)) == 5.0
    assert float(fxad.grad(odd)(np.float64(3.0))) == -1.0
    assert len(calls) == 2
    with pytest.raises(fxad.core.errors.ConcretizationError, match=r"test_spike\.py"):
        fxad.jit(fxad.grad(odd))(X)


# ---------------------------------------------------------------- 5. reverse while, tapes


def _grow(x, y):
    """Trip count, and so the tape's length, depends on x and y."""
    state = lax.while_loop(
        lambda s: s[0] < 10.0, lambda s: (s[0] * (s[0] + y), jnp.sin(s[1] * s[0]) + y), (x, x)
    )
    return state[0] + state[1]


def _grow_numbers(x, y):
    z = x
    while x < 10:
        x, z = x * (x + y), np.sin(z * x) + y
    return x + z


def test_reverse_while():
    args = (np.float64(1.1), np.float64(0.6))
    for at in (0, 1):
        want = float(slope(_grow_numbers, *args, at=at))
        assert float(fxad.grad(_grow, argnums=at)(*args)) == pytest.approx(want, rel=1e-7)
        assert float(fxad.jit(fxad.grad(_grow, argnums=at))(*args)) == pytest.approx(want, rel=1e-7)


def test_reverse_while_under_vmap_with_lanes_of_different_lengths():
    xs, ys = np.array([1.1, 3.0, 0.7, 20.0]), np.array([0.6, 0.1, 1.0, 0.5])
    want = [float(slope(_grow_numbers, x, y, at=1)) for x, y in zip(xs, ys, strict=True)]
    np.testing.assert_allclose(fxad.vmap(fxad.grad(_grow, argnums=1))(xs, ys), want, rtol=1e-7)
    total = fxad.grad(lambda b: jnp.sum(fxad.vmap(_grow)(xs, b)))
    np.testing.assert_allclose(total(ys), want, rtol=1e-7)
    shared = [float(slope(_grow_numbers, xs[0], y, at=1)) for y in ys]
    one = fxad.vmap(fxad.grad(_grow, argnums=1), (None, 0))(xs[0], ys)
    np.testing.assert_allclose(one, shared, rtol=1e-7)


def test_second_order_through_while():
    args = (np.float64(1.1), np.float64(0.6))
    second = slope(lambda x: float(slope(_grow_numbers, x, args[1])), args[0], step=1e-4)
    first = fxad.grad(_grow)
    forward = fxad.jvp(lambda x: first(x, args[1]), (args[0],), (np.float64(1.0),))[1]
    assert float(forward) == pytest.approx(float(second), rel=1e-4)
    reverse = fxad.grad(first)(*args)
    assert float(reverse) == pytest.approx(float(second), rel=1e-4)


def test_derivatives_of_while_under_jit_and_vmap_to_third_order():
    xs, ys = np.array([1.1, 3.0, 20.0]), np.array([0.6, 0.1, 0.5])
    second = [
        float(slope(lambda z, y=y: float(slope(_grow_numbers, z, y)), x, step=1e-4))
        for x, y in zip(xs, ys, strict=True)
    ]
    twice = fxad.grad(fxad.grad(_grow))
    np.testing.assert_allclose(fxad.vmap(twice)(xs, ys), second, rtol=1e-4)
    np.testing.assert_allclose(fxad.jit(fxad.vmap(twice))(xs, ys), second, rtol=1e-4)
    third = slope(lambda x: float(twice(x, ys[0])), xs[0], step=1e-5)
    assert float(fxad.grad(twice)(xs[0], ys[0])) == pytest.approx(float(third), rel=1e-6)


def test_a_batched_branch_with_a_loop_runs_only_where_it_was_chosen():
    def function(x):  # the loop would never end at x = 0.5
        return lax.cond(
            x > 1.0,
            lambda z: lax.while_loop(lambda q: q < 3.0, lambda q: q * (q + z), z),
            jnp.sin,
            x,
        )

    xs = np.array([1.1, 0.5, 2.0])
    want = [1.1 * 2.2 * (1.1 * 2.2 + 1.1), np.sin(0.5), 2.0 * 4.0]
    np.testing.assert_allclose(fxad.vmap(function)(xs), want)
    np.testing.assert_allclose(fxad.jit(fxad.vmap(function))(xs), want)
