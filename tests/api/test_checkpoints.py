"""`checkpoints=` of while_loop and fori_loop: same numbers, bounded memory, counted work."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.backend.llvm import executable
from fxad.backend.llvm.native.tapes import Region
from fxad.core.errors import BadArgument

WAYS = [1, 3, 1000, lax.binomial(2), lax.binomial(4), lax.binomial(9)]
R = np.random.default_rng(0)
X, W = R.normal(size=3).astype("f4"), (0.5 * R.normal(size=(3, 3))).astype("f4")


def steps(x, w, n, checkpoints=None):
    """A state of several parts and dtypes, with a captured weight."""

    def body(s):
        i, y, flips = s
        return i + 1, jnp.sin(y @ w) + 0.1 * y + 0.01 * i, ~flips

    init = (0, x, jnp.asarray(False))
    i, y, flips = lax.while_loop(lambda s: s[0] < n, body, init, checkpoints=checkpoints)
    return y.sum() + jnp.where(flips, y[0], 0.0) + i


PLAIN = fxad.jit(fxad.value_and_grad(steps, (0, 1)))


@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_gradients_are_those_of_the_plain_loop(ways) -> None:
    kept = fxad.value_and_grad(lambda x, w, n: steps(x, w, n, ways), (0, 1))
    compiled = fxad.jit(kept)
    for n in (0, 1, 2, 7, 20, 101):
        wanted = fxad.tree.leaves(PLAIN(X, W, n))
        for run in (kept, compiled) if n < 8 else (compiled,):
            for seen, want in zip(fxad.tree.leaves(run(X, W, n)), wanted, strict=True):
                np.testing.assert_allclose(seen, want, rtol=1e-4, atol=1e-5)


X64, W64 = X.astype("f8"), W.astype("f8")
XS, NS = np.stack([X64, -X64, 2 * X64]), np.array([0, 5, 11])


def second(ways):
    """A gradient of a function of a gradient."""

    def slope(x, n):
        return (fxad.grad(lambda x: steps(x, W64, n, ways))(x) ** 2).sum()

    return fxad.jit(fxad.grad(slope))(X64, 7)


@functools.cache
def plain_loops():
    """The second gradient, the gradients of three starts and the gradient of seven trips."""
    first = fxad.jit(fxad.grad(lambda x, n: steps(x, W64, n)))
    each = [np.asarray(first(x, n)) for x, n in zip(XS, NS, strict=True)]
    return second(None), np.stack(each), first(X64, 7)


@pytest.mark.parametrize("ways", [3, lax.binomial(3)], ids=str)
def test_they_differentiate_again_and_map(ways) -> None:
    with fxad.enable_x64():
        twice, each, once = plain_loops()
        np.testing.assert_allclose(second(ways), twice, rtol=1e-9)
        first = fxad.grad(lambda x, n: steps(x, W64, n, ways))
        np.testing.assert_allclose(fxad.jit(fxad.vmap(first))(XS, NS), each, rtol=1e-9)
        forward = fxad.jvp(lambda x: steps(x, W64, 7, ways), (X64,), (np.ones(3),))[1]
        np.testing.assert_allclose(forward, once.sum(), rtol=1e-9)


@pytest.mark.parametrize("ways", [2, lax.binomial(3)], ids=str)
def test_fori_loops_and_loops_in_loops(ways) -> None:
    def f(x, n, ways):
        def outer(i, y):
            return lax.fori_loop(0, i, lambda j, z: jnp.sin(z) * x + j, y, checkpoints=ways)

        return lax.fori_loop(0, n, outer, x, checkpoints=ways)

    g = fxad.jit(fxad.grad(f), static_argnums=2)
    np.testing.assert_allclose(g(0.7, 5, ways), g(0.7, 5, None), rtol=1e-5)
    known = fxad.jit(fxad.grad(lambda x: f(x, 5, ways)))
    np.testing.assert_allclose(known(0.7), g(0.7, 5, None), rtol=1e-5)


def runs_of_the_body(ways) -> Callable[[int], int]:
    """How often a gradient of so many trips runs the body, reversing included."""
    runs = []

    def body(s):
        fxad.debug.callback(lambda: runs.append(1))
        return s[0] + 1, jnp.sin(s[1])

    def f(x, n):
        return lax.while_loop(lambda s: s[0] < n, body, (0, x), checkpoints=ways)[1]

    gradient = fxad.jit(fxad.grad(f))

    def count(n: int) -> int:
        runs.clear()
        gradient(0.3, n)
        return len(runs)

    return count


@pytest.mark.parametrize("states", [2, 3, 4, 8, 16])
def test_recomputation_stays_within_the_schedules_bound(states: int) -> None:
    count = runs_of_the_body(lax.binomial(states))
    for n in (1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 33, 64, 150, 300):
        sweeps = 0
        while math.comb(states + sweeps, sweeps) < n:
            sweeps += 1
        runs = count(n)
        if n <= states:
            assert runs == 2 * n  # forward once, and once where each trip is reversed
        assert runs - n <= (sweeps + 1) * n


def test_the_plain_loop_computes_nothing_again() -> None:
    assert runs_of_the_body(None)(60) == 60


def test_bytes_kept(monkeypatch) -> None:
    regions: list[Region] = []

    class Seen(Region):
        def __init__(self) -> None:
            super().__init__()
            regions.append(self)

    monkeypatch.setattr(executable, "Region", Seen)

    def bytes_of(ways, n):
        x = np.ones(1000, "f4")

        def f(x, n):
            body = lambda s: (s[0] + 1, jnp.sin(s[1]) * jnp.cos(s[1]))  # noqa: E731
            init = (0, x)
            return lax.while_loop(lambda s: s[0] < n, body, init, checkpoints=ways)[1].sum()

        g, before = fxad.jit(fxad.grad(f)), len(regions)
        g(x, n)
        return max((r.most for r in regions[before:]), default=0)

    every = bytes_of(None, 2500)
    assert bytes_of(50, 2500) < every / 10
    assert bytes_of(lax.binomial(4), 2500) == 0  # its states are in the arena, of a known size


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "binomial"])
def test_other_checkpoints_are_errors(wrong) -> None:
    with pytest.raises(BadArgument, match="checkpoints must be"):
        lax.while_loop(lambda s: s < 3, lambda s: s + 1, 0, checkpoints=wrong)
    with pytest.raises(BadArgument, match="checkpoints must be"):
        lax.fori_loop(0, 3, lambda i, s: s + 1, 0, checkpoints=wrong)


@pytest.mark.parametrize("wrong", [1, 0, 2.0, True, None])
def test_other_numbers_of_states_are_errors(wrong) -> None:
    with pytest.raises(BadArgument, match="at least 2"):
        lax.binomial(wrong)
