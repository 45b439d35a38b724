"""Loops in two: inside, where conditions on positions are settled, and at the edges."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from guarded import guarded

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.backend.llvm.loops.interior import _TESTS, _changes, interior
from fxad.ir.kernel import Axis, Buffer, Const, IndexValue, Load, Map, Prim, Store, at

F32, I64, BOOL = np.dtype("float32"), np.dtype("int64"), np.dtype("bool")


@pytest.mark.parametrize("name", _TESTS)
def test_places_where_a_test_changes(name) -> None:
    for coefficient, const, limit in itertools.product((-3, -1, 1, 2), (-5, 0, 4), range(-9, 10)):
        answers = [_TESTS[name](coefficient * j + const, limit) for j in range(-20, 21)]
        found = {j for j in range(-19, 21) if answers[j + 20] != answers[j + 19]}
        assert found <= set(_changes(coefficient, const, name, limit))


def _kernel(low: int, high: int, extent: int):
    """Zeros but at low <= j < high, where an array is read."""
    i, j = Axis("i", 40), Axis("j", extent)
    read, out = Buffer("x", F32, 40 * extent, "in"), Buffer("y", F32, 40 * extent, "out")
    above, below = (
        Prim(name, (IndexValue(at(j), I64), Const(limit, I64)), BOOL)
        for name, limit in (("ge", low), ("lt", high))
    )
    inside, zero = Prim("and", (above, below), BOOL), Const(0.0, F32)
    place = at(i) * extent + at(j)
    value = Prim("select", (inside, Load(read, place + -low, inside), zero), F32)
    return [Map((), (Store(out, place, value),))], {i: 40, j: extent}, j


def test_what_is_inside() -> None:
    body, extents, j = _kernel(5, 300, 310)
    found = interior(body, extents, j, 16)
    assert found is not None
    assert found.ranges == {j: (16, 288)}
    ((stage,), (store,)) = found.body, found.body[0].stores
    assert isinstance(store.value, Load) and store.value.guard is None and stage.axes == ()


@pytest.mark.parametrize(
    ("low", "high", "extent", "width"),
    [(5, 60, 70, 16), (150, 300, 310, 16), (0, 400, 310, 1000)],
    ids=["short", "no part is most of it", "wider than the axis"],
)
def test_nothing_is_inside(low, high, extent, width) -> None:
    body, extents, j = _kernel(low, high, extent)
    assert interior(body, extents, j, width) is None


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


PROGRAMS = {
    "roll": lambda np, x: np.roll(x, 3, -1) + 2 * np.roll(x, -1, 0),
    "both axes": lambda np, x: sum(np.roll(x, (a, b), (0, -1)) for a in (-1, 1) for b in (-2, 2)),
    "pad": lambda np, x: np.pad(x, 2) * 3,
    "wrap": lambda np, x: np.pad(x, 2, mode="wrap"),
    "joined": lambda np, x: np.concatenate([x[..., :7], x * 2, x[..., 3:]], -1) + 1,
    "one axis": lambda np, x: np.concatenate([x[:1] * 2, x[1:]], 0) + 1,
    "triangle": lambda np, x: np.where(np.arange(x.shape[-1]) == 200, 5, x),
    "narrow": lambda np, x: np.roll((x * 10).astype(np.int8), 1, -1) + np.int8(1),
}


@pytest.mark.parametrize("shape", [(64,), (1000,), (5, 130), (3, 4, 257), (70, 64)], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_elements_are_those_of_numpy(name, shape) -> None:
    x, program = draw(*shape), PROGRAMS[name]
    got = fxad.jit(lambda x: program(jnp, x))(x)
    np.testing.assert_array_equal(got, program(np, x))


def test_elements_of_a_long_axis_in_blocks() -> None:
    x = draw(300_001)
    got = fxad.jit(lambda x: jnp.roll(x, 1) - jnp.roll(x, -5))(x)
    np.testing.assert_array_equal(got, np.roll(x, 1) - np.roll(x, -5))


def test_gradients_of_slices() -> None:
    x = draw(9, 400)
    found = fxad.jit(fxad.grad(lambda x: jnp.sum(jnp.diff(x) ** 2) + jnp.sum(x[2:5, 7:] ** 2)))(x)
    wanted = np.zeros_like(x)
    wanted[:, 1:] += 2 * np.diff(x)
    wanted[:, :-1] -= 2 * np.diff(x)
    wanted[2:5, 7:] += 2 * x[2:5, 7:]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_an_automaton_on_a_torus() -> None:
    """Conway's rules, in a loop, against NumPy."""

    def step(np, b):
        near = [(a, d) for a in (-1, 0, 1) for d in (-1, 0, 1) if (a, d) != (0, 0)]
        count = sum(np.roll(b, place, (0, 1)) for place in near)
        return ((count == 3) | ((count == 2) & (b == 1))).astype(b.dtype)

    wanted = start = (draw(70, 90) > 0).astype(np.int32)
    for _ in range(5):
        wanted = step(np, wanted)
    found = fxad.jit(lambda b: lax.fori_loop(0, 5, lambda _, b: step(jnp, b), b))(start)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("pad", [(0, 3), (0, 2000), (2000, 0)], ids=str)
def test_rows_of_the_edge_read_nothing_outside_of_an_array(pad) -> None:
    """What no lane changes is read at the start of a row, where its guard may not hold."""
    x, y = guarded(draw(1 << 14)), draw(1, 64)
    found = fxad.jit(lambda x, y: jnp.pad(x, pad)[:, None] * y)(x, y)
    np.testing.assert_array_equal(found, np.pad(x, pad)[:, None] * y)
