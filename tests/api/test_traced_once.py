"""How often the body of a loop is traced, in nests of loops: once, whatever the depth and whatever
transforms it; once more in all where a Python number takes another dtype. Counts of JAX (peers)."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax

DEPTH = 8


class Counted:
    """A function that counts how often it is called."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, x):
        self.calls += 1
        return self.function(x)


def in_scan(lax, f):
    return lambda c: lax.scan(lambda c, _: (f(c), None), c, None, length=2)[0]


def in_fori(lax, f):
    return lambda c: lax.fori_loop(0, 2, lambda i, c: f(c), c)


def in_while(lax, f):
    return lambda c: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, f(s[1])), (0, c))[1]


def in_cond(lax, f):
    return lambda c: lax.cond(c > 0, f, lambda c: c * 1.0, c)


KINDS = {"scan": in_scan, "fori_loop": in_fori, "while_loop": in_while, "cond": in_cond}
WAYS = {
    "eager": lambda library, f: f,
    "jit": lambda library, f: library.jit(f),
    "grad": lambda library, f: library.grad(f),
    "jit of grad": lambda library, f: library.jit(library.grad(f)),
    "vmap": lambda library, f: lambda x: library.vmap(f)(np.stack([np.float32(x)] * 2)),
    "jit of vmap": lambda library, f: (
        lambda x: library.jit(library.vmap(f))(np.stack([np.float32(x)] * 2))
    ),
}


def traces(library, kind, way, leaf, start, depth=DEPTH):
    """How often `leaf` is called where it is the body of `depth` loops, and the result."""
    counted = Counted(leaf)
    f = counted
    for _ in range(depth):
        f = KINDS[kind](importlib.import_module(library.__name__ + ".lax"), f)
    result = WAYS[way](library, f)(start)
    return counted.calls, np.asarray(result)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", [1.0, np.float32(1.0)], ids=["weak", "strong"])
def test_a_body_is_traced_once(kind, way, start):
    strong = np.float32(1.01)
    for leaf in (lambda c: c * 1.01, lambda c: c * strong):
        calls, _ = traces(fxad, kind, way, leaf, start)
        assert calls == 1


@pytest.mark.parametrize("way", ["eager", "jit"])
@pytest.mark.parametrize("kind", ["scan", "fori_loop", "while_loop"])
def test_a_weak_type_widens_by_one_more_trace_in_all(kind, way):
    for depth in (1, 3, DEPTH):
        calls, found = traces(fxad, kind, way, lambda c: c + np.float32(0.5), 1, depth)
        assert calls == 2
        assert found.dtype == np.float32 and found == 1 + 2**depth * 0.5


def test_who_asks_for_the_dtype_of_a_carry_is_asked_again():
    """What a body decided for an integer is not kept when the carry turns out to be a float."""
    seen = []

    def body(c, _):
        seen.append(str(c.dtype))
        bad = jnp.isnan(c)  # of an integer: False, whatever the value
        inner = lax.scan(lambda c, _: (c * jnp.float32(np.nan), None), c, None, length=1)[0]
        return jnp.where(bad, 7.0, inner), None

    found = lax.scan(body, 1, None, length=2)[0]
    assert found == 7.0
    assert seen == ["int32", "float32"]


def test_a_carry_that_is_used_beside_the_inner_loop_is_traced_again():
    def body(c, _):
        inner = lax.fori_loop(0, 2, lambda i, c: c + np.float32(0.5), c)
        return inner + c // 1, c

    found, before = lax.scan(body, 0, None, length=3)
    want, state = [], np.float32(0)
    for _ in range(3):
        want.append(state)
        state = np.float32(state + 1 + state // 1)
    assert found == state and before.dtype == np.float32
    assert before.tolist() == want


def test_a_carry_keeps_its_weak_type_where_its_dtype_stays():
    """JAX's rule: only another dtype is a reason to trace again."""

    def body(c, _):
        return c * np.float32(1.5), c * jnp.ones((), jnp.bfloat16)

    found, ys = lax.scan(body, 1.0, None, length=2)
    assert (found.dtype, ys.dtype) == (jnp.float32, jnp.bfloat16)


@pytest.mark.peers
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["scan", "fori_loop", "while_loop"])
@pytest.mark.parametrize("start", [1, 1.0, np.float32(1.0)], ids=["int", "float", "strong"])
def test_no_more_traces_than_jax(kind, way, start):
    jax = pytest.importorskip("jax")

    if "grad" in way and (kind == "while_loop" or isinstance(start, int)):
        pytest.skip("JAX does not differentiate it")
    for leaf in (lambda c: c * 1.01, lambda c: c * np.float32(1.01)):
        ours, found = traces(fxad, kind, way, leaf, start, depth=4)
        theirs, wanted = traces(jax, kind, way, leaf, start, depth=4)
        assert ours <= theirs
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-6)  # sixteen roundings of float32
