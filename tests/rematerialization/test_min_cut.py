"""Loops keep the fewest bytes from which their loops back compute the rest: the same bits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from attempts import plan, rematerialized

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.backend.llvm.executable import Executable
from fxad.compiler import simplified
from fxad.ir.pairs.regions import linear_regions
from fxad.rematerialization import automatic, boundary, min_cut

R = np.random.default_rng(0)
X = R.standard_normal((64, 96), np.float32)
WS = (0.1 * R.standard_normal((5, 96, 96))).astype(np.float32)


@pytest.fixture(autouse=True)
def _small_arenas_too(monkeypatch):
    monkeypatch.setattr(automatic, "LEAST", 0)
    monkeypatch.setattr(automatic, "PART", 0)


def gelu(x):
    return 0.5 * x * (1 + jnp.tanh(0.8 * (x + 0.044715 * x**3)))


def normed(x):
    centred = x - jnp.mean(x, axis=1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, axis=1, keepdims=True) + 1e-5)


def both(function, *args):
    """The plans of a function's program as it is and as it is compiled."""
    program = simplified(fxad.jit(function).lower(*args).traced)
    changed, better = rematerialized(program)
    return program, plan(program), changed, better


def same_bits(before, after, args):
    leaves = fxad.tree.leaves(args)
    results = [Executable(made).run([np.array(a) for a in leaves]) for made in (before, after)]
    for want, got in zip(*results, strict=True):
        assert np.asarray(want).tobytes() == np.asarray(got).tobytes()


def kept(program, region=None):
    """Shapes of the residuals that a region, else the first loop of a program, has, and of those
    that it needs."""
    region = region or next(region for region in linear_regions(program) if region.copies > 1)
    inside = boundary.boundary_inside(region)
    least = min_cut.least_kept(region, inside)
    return [sorted(v.type.shape for v in values) for values in (inside.residuals, least)]


def test_a_pointwise_chain_keeps_what_it_begins_with():
    def loss(ws, x):
        return jnp.sum(lax.scan(lambda x, w: (gelu(x @ w), None), x, ws)[0])

    program, before, changed, after = both(fxad.grad(loss), WS, X)
    now, least = kept(program)
    assert len(now) > 4 and least == [X.shape] * 2  # x and the product
    assert kept(changed)[0] == least
    assert before.arena_bytes - after.arena_bytes >= (len(now) - 2) * len(WS) * X.nbytes * 0.8
    same_bits(before, after, (WS, X))


def test_sums_are_kept_and_what_follows_from_them_is_not():
    def loss(ws, x):
        return jnp.sum(lax.scan(lambda x, w: (x + gelu(normed(x) @ w), None), x, ws)[0])

    program, before, _, after = both(fxad.value_and_grad(loss, argnums=(0, 1)), WS, X)
    assert kept(program)[1] == [(64, 1), X.shape, X.shape]
    same_bits(before, after, (WS, X))


@pytest.mark.parametrize("reverse", [False, True])
def test_state_slices_outputs_and_what_is_outside(reverse):
    def loss(ws, x):
        scale = jnp.exp(x[0])

        def trip(state, w):
            x, y = state
            z = jnp.tanh(y) * jnp.sin(scale) + jnp.cos(w[0])
            return (jnp.exp(-x * x) * z, jnp.sin(x @ w)), jnp.sin(x) * z

        last, out = lax.scan(trip, (x, x * scale), ws, reverse=reverse)
        return sum(jnp.sum(v * v) for v in (*last, out))

    _, before, _, after = both(fxad.value_and_grad(loss, argnums=(0, 1)), WS, X)
    assert after.arena_bytes < before.arena_bytes
    same_bits(before, after, (WS, X))


def test_loops_in_loops():
    def loss(ws, x):
        def outer(x, w):
            def inner(x, _):
                return gelu(x @ w), None

            x = gelu(x)
            return lax.scan(inner, x, None, length=3)[0], None

        return jnp.sum(lax.scan(outer, x, ws)[0])

    _, before, _, after = both(fxad.grad(loss, argnums=(0, 1)), WS, X)
    assert after.arena_bytes < 0.6 * before.arena_bytes
    same_bits(before, after, (WS, X))


@pytest.mark.parametrize("way", [-1, 0, 1, 5])
def test_branches(way):
    def loss(w, x, way):
        y = jnp.cos(x) + jnp.sin(x)
        z = lax.switch(
            way,
            [
                lambda y: gelu(y @ w) @ w,
                lambda y: gelu(normed(y) @ w) * jnp.tanh(y),
                lambda y: jnp.exp(-gelu(y)),
            ],
            y,
        )
        return jnp.sum(z * z)

    args = WS[0], X, np.int32(way)
    _, before, _, after = both(fxad.value_and_grad(loss, argnums=(0, 1)), *args)
    assert after.arena_bytes < 0.8 * before.arena_bytes
    same_bits(before, after, args)


def test_a_branch_that_makes_one_value_of_two_dying_ones_keeps_that():
    def loss(x, way):
        y, z = jnp.cumsum(x, axis=0), jnp.cumsum(x, axis=1)
        return jnp.sum(lax.cond(way, lambda y, z: jnp.exp(y + z), lambda y, z: y * 0 + 1, y, z))

    args = X, np.bool_(True)
    program, before, _, after = both(fxad.grad(loss), *args)
    chosen = [
        kept(program, region)[1] for region in linear_regions(program) if region.cut is not None
    ]
    assert chosen == [[], [X.shape]]  # the sum's exponential, not y and z
    same_bits(before, after, args)


@pytest.mark.parametrize("trips", [0, 1, 7])
def test_loops_of_unknown_length_keep_less_on_their_tapes(trips):
    def loss(w, x, trips):
        _, x = lax.while_loop(
            lambda state: state[0] > 0,
            lambda state: (state[0] - 1, gelu(state[1] @ w)),
            (trips, x),
        )
        return jnp.sum(x**2)

    args = WS[0], X, np.int32(trips)
    _, before, _, after = both(fxad.value_and_grad(loss, argnums=(0, 1)), *args)
    taken = []
    for made in (before, after):
        executable = Executable(made)
        executable.run([np.array(a) for a in args])
        taken.append(executable.tape_bytes)
    assert taken[1] <= 0.5 * taken[0] and (taken[0] > 0 or trips == 0)
    same_bits(before, after, args)


def test_branches_in_loops_of_unknown_length():
    def loss(w, x, trips):
        def trip(state):
            left, x = state
            even = left % 2 == 0
            x = lax.cond(even, lambda x: gelu(x @ w), lambda x: jnp.tanh(gelu(x)), x)
            return left - 1, x

        return jnp.sum(lax.while_loop(lambda state: state[0] > 0, trip, (trips, x))[1] ** 2)

    args = WS[0], X, np.int32(5)
    _, before, _, after = both(fxad.value_and_grad(loss, argnums=(0, 1)), *args)
    needed = automatic._intermediate_bytes
    assert needed(after) < 0.6 * needed(before)
    same_bits(before, after, args)


def test_what_is_not_elementwise_is_not_repeated():
    def loss(ws, x):
        def trip(x, w):
            return jnp.cumsum(jnp.sort(x, axis=1), axis=0) @ w, None

        return jnp.sum(lax.scan(trip, x, ws)[0])

    program, _, changed, _ = both(fxad.grad(loss), WS, X)
    assert changed is program


def test_the_cut_is_a_least_one():
    """Against every set of values of small random networks."""
    r = np.random.default_rng(1)
    for _ in range(200):
        count = 6
        sizes = r.integers(1, 5, count)
        edges = [(a, b) for a in range(count) for b in range(a + 1, count) if r.random() < 0.4]
        first = [v for v in range(count) if v == 0 or r.random() < 0.3]
        last = [v for v in range(count) if v == count - 1 or r.random() < 0.3]
        network = min_cut._Network()
        for v in range(count):
            network.join((v, False), (v, True), int(sizes[v]))
        for a, b in edges:
            network.join((a, True), (b, False))
        for v in first:
            network.join(min_cut.START, (v, False))
        for v in last:
            network.join((v, True), min_cut.END)
        network.fill()
        late = network.leading_to_end()
        cut = {v for v in range(count) if (v, True) in late and (v, False) not in late}
        good = [
            set(chosen)
            for size in range(count + 1)
            for chosen in itertools.combinations(range(count), size)
            if separates(set(chosen), edges, first, last)
        ]
        least = min(sum(sizes[v] for v in chosen) for chosen in good)
        assert separates(cut, edges, first, last)
        assert sum(sizes[v] for v in cut) == least


def separates(chosen, edges, first, last):
    open_ = [v for v in first if v not in chosen]
    seen = set(open_)
    while open_:
        v = open_.pop()
        new = [b for a, b in edges if a == v and b not in chosen and b not in seen]
        seen.update(new)
        open_ += new
    return seen.isdisjoint(last)
