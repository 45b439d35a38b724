"""vmap against Python loops: axes, pytrees, nesting, control flow, indexing, derivatives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import ConcretizationError, ShapeError

R = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def looped(function, in_axes, *args):
    """The Python loop vmap stands for; results stacked in front."""
    size = next(a.shape[x] for a, x in zip(args, in_axes, strict=True) if x is not None)
    rows = []
    for i in range(size):
        one = [
            jnp.asarray(a if x is None else np.take(a, i, x))
            for a, x in zip(args, in_axes, strict=True)
        ]
        rows.append(fxad.tree.map(np.asarray, function(*one)))
    return fxad.tree.map(lambda *leaves: np.stack(leaves), *rows)


def agree(function, in_axes, *args, rtol: float = 2e-6) -> None:
    want = looped(function, in_axes, *args)
    for wrap in (lambda f: f, fxad.jit):
        got = wrap(fxad.vmap(function, in_axes))(*args)
        for g, w in zip(fxad.tree.leaves(got), fxad.tree.leaves(want), strict=True):
            assert g.shape == w.shape
            assert g.dtype == w.dtype
            np.testing.assert_allclose(g, w, rtol=rtol, atol=1e-6)


# ---------------------------------------------------------------- axes


@pytest.mark.parametrize("axes", list(itertools.product((0, 1, -1, None), repeat=2)))
def test_in_axes(axes):
    if axes == (None, None):
        return
    agree(lambda a, b: jnp.sin(a) @ b.T + jnp.max(b), axes, draw(4, 4, 4), draw(4, 4, 4))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_out_axes(axis):
    x = draw(5, 2, 3)
    got = fxad.vmap(lambda v: v * 2, out_axes=axis)(x)
    np.testing.assert_array_equal(got, np.moveaxis(x * 2, 0, axis))


def test_axes_of_pytrees_and_keywords():
    tree = {"a": draw(4, 3), "b": [draw(3, 4), np.float32(2)]}
    axes = {"a": 0, "b": [1, None]}

    def function(t, *, c):
        return {"x": t["a"] * t["b"][0] * t["b"][1] + c, "y": t["b"][1]}

    c = draw(4, 3)
    got = fxad.vmap(function, in_axes=(axes,), out_axes={"x": 1, "y": None})(tree, c=c)
    want = tree["a"] * tree["b"][0].T * 2 + c
    np.testing.assert_allclose(got["x"], want.T, rtol=1e-6)
    assert float(got["y"]) == 2.0
    assert fxad.vmap(lambda: jnp.ones(2), axis_size=3)().shape == (3, 2)
    assert fxad.vmap(lambda a: 1.0, out_axes=0)(c).shape == (4,)


def test_nested():
    a, b = draw(3, 4), draw(5, 4)
    outer = fxad.vmap(fxad.vmap(jnp.dot, (None, 0)), (0, None))
    for f in (outer, fxad.jit(outer)):
        np.testing.assert_allclose(f(a, b), a @ b.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fxad.vmap(fxad.vmap(lambda v: v + a[0, 0]))(b), b + a[0, 0])


def test_empty_and_single_lanes():
    assert fxad.vmap(lambda v: jnp.sum(v * 2))(np.zeros((0, 3), np.float32)).shape == (0,)
    assert fxad.jit(fxad.vmap(lambda v: v @ v))(np.zeros((0, 3), np.float32)).shape == (0,)
    np.testing.assert_allclose(fxad.vmap(jnp.sum)(np.ones((1, 3), np.float32)), [3.0])


def test_mistakes_are_explained():
    x = draw(3, 2)
    with pytest.raises(ShapeError, match=r"different sizes.*3.*4.*test_vmap\.py"):
        fxad.vmap(lambda a, b: a)(x, draw(4))
    with pytest.raises(ShapeError, match="rank should be at least 1, but is only 0"):
        fxad.vmap(lambda a: a)(np.float32(1))
    with pytest.raises(ValueError, match="in_axes has 1 entries for 2"):
        fxad.vmap(lambda a, b: a, in_axes=(0,))(x, x)
    with pytest.raises(ValueError, match="axis_size"):
        fxad.vmap(lambda a: a, in_axes=None)(x)
    with pytest.raises(ValueError, match="out_axes is None"):
        fxad.vmap(lambda a: a, out_axes=None)(x)
    with pytest.raises(ValueError, match="axis -9, .* rank should be at least 9, but is only"):
        fxad.vmap(lambda a: a, in_axes=-9)(x)
    with pytest.raises(ValueError, match="axis 7 is out of bounds for array of dimension"):
        fxad.vmap(lambda a: a, out_axes=7)(x)


# ---------------------------------------------------------------- many functions at once

X, I, M = draw(4, 3, 3), R.integers(0, 3, (4, 2)).astype(np.int32), draw(4, 3, 3) > 0

FUNCTIONS = {
    "reductions": lambda x, i, m: (x.sum(0), x.mean(), x.argmax(1), jnp.prod(x), x.std(0)),
    "sorting": lambda x, i, m: (jnp.sort(x, 0), jnp.argsort(x[0]), lax.top_k(x, 2)),
    "cumulative": lambda x, i, m: (jnp.cumsum(x, 0), jnp.cumprod(x, 1), lax.cummax(x, axis=1)),
    "gather": lambda x, i, m: (x[i], x[0, i], x[i, 1], x[:, i], x[i[0]], jnp.take(x, i, 1)),
    "scatter": lambda x, i, m: (
        x.at[i].add(1.0),
        x.at[:, i].set(2.0),
        x.at[i[0], i].multiply(3.0),
        jnp.zeros(3).at[i].max(x[0, :2]),
    ),
    "masks": lambda x, i, m: (jnp.where(m, x, 0.0), x.sum(where=m), x.max(where=m, initial=-9)),
    "slices": lambda x, i, m: (
        lax.dynamic_slice(x, (i[0], 0), (2, 2)),
        lax.dynamic_update_slice(x, jnp.ones((1, 2)), (i[0], i[1])),
        x[::-1, 1:],
    ),
    "products": lambda x, i, m: (
        x @ x.T,
        jnp.einsum("ij,kj->ki", x, x),
        jnp.tensordot(x, x, 2),
        x[0] @ x,
        jnp.outer(x[0], x[1]),
    ),
    "movement": lambda x, i, m: (
        jnp.concatenate([x, x[:1]]),
        jnp.stack([x, x], 1),
        jnp.pad(x, 1),
        jnp.roll(x, 1),
        jnp.tile(x, (2, 1)),
        jnp.repeat(x, 2, 0),
        jnp.flip(x, 0),
        x.reshape(9)[2:5],
    ),
    "unmapped results": lambda x, i, m: (jnp.arange(3) + 0 * i[0], jnp.eye(3), x * 0 + jnp.ones(3)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function = FUNCTIONS[name]
    agree(function, (0, 0, 0), X, I, M)
    agree(function, (0, None, None), X, I[0], M[0])
    agree(function, (None, 0, None), X[0], I, M[0])


# ---------------------------------------------------------------- control flow


def _scan(x, n, c):
    def body(carry, row):
        count, total = carry
        return (count + 1, total * c + row), total.sum()

    return lax.scan(body, (0, jnp.zeros(3)), x)


CONTROL = {
    "scan": _scan,
    "reverse scan": lambda x, n, c: lax.scan(lambda s, r: (s * c + r, s), x[0], x, reverse=True),
    "fori": lambda x, n, c: lax.fori_loop(0, 3, lambda i, s: s * c + x[i], x[0]),
    "fori to a mapped bound": lambda x, n, c: lax.fori_loop(0, n, lambda i, s: s * 0.5 + i, x[0]),
    "while": lambda x, n, c: lax.while_loop(
        lambda s: (s[0] < n) & (s[1].sum() < 50), lambda s: (s[0] + 1, s[1] + x[0] * c), (0, x[1])
    ),
    "cond": lambda x, n, c: lax.cond(c > 0, lambda v: v @ v, lambda v: -v, x),
    "switch": lambda x, n, c: lax.switch(n, [jnp.sin, jnp.cos, lambda v: v * c], x),
    "cond of scan": lambda x, n, c: lax.cond(c > 0, lambda: _scan(x, n, c)[1], lambda: x[0]),
    "scan of cond": lambda x, n, c: lax.scan(
        lambda s, r: (lax.cond(s.sum() > 0, lambda: s * c, lambda: s + r), s), x[0], x
    ),
    "map": lambda x, n, c: lax.map(lambda r: r * c + n, x),
    "associative scan": lambda x, n, c: lax.associative_scan(jnp.add, x * c),
}


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow(name):
    n, c = np.array([0, 2, 5, 1], np.int32), np.array([0.5, -0.5, 1.5, 0.0], np.float32)
    for axes in [(0, 0, 0), (0, None, None), (None, 0, None), (None, None, 0)]:
        args = [v if a == 0 else v[0] for v, a in zip((X, n, c), axes, strict=True)]
        agree(CONTROL[name], axes, *args)


def test_loop_counter_stays_unbatched():
    def function(x):
        return lax.fori_loop(0, 5, lambda i, s: s + x * i, x)

    program = fxad.make_ir(fxad.vmap(function))(draw(4)).program
    (loop,) = [e for e in program.eqns if e.op.name in ("scan", "while")]
    body = loop.params["body"]
    counters = [t for t in body.in_types if t.dtype == np.int32]
    assert all(t.shape == () for t in counters)


# ---------------------------------------------------------------- derivatives


def test_per_example_gradients():
    w, x, y = 0.3 * draw(3), draw(5, 3), draw(5)  # small: 1 - tanh(x)^2 cancels

    def loss(w, x, y):
        return (jnp.tanh(x @ w) - y) ** 2

    for wrap in (lambda f: f, fxad.jit):
        got = wrap(fxad.vmap(fxad.grad(loss), (None, 0, 0)))(w, x, y)
        t = np.tanh(x @ w)
        np.testing.assert_allclose(got, (2 * (t - y) * (1 - t**2))[:, None] * x, rtol=1e-4)


@pytest.mark.parametrize("name", ["scan", "reverse scan", "fori", "cond", "switch", "scan of cond"])
def test_gradients_of_control_flow(name):
    n, c = np.array([0, 2, 5, 1], np.int32), np.array([0.5, -0.5, 1.5, 0.25], np.float32)

    def total(x, n, c):
        leaves = fxad.tree.leaves(CONTROL[name](x, n, c))
        return sum(jnp.sum(jnp.sin(v)) for v in leaves if jnp.issubdtype(v.dtype, jnp.floating))

    agree(fxad.grad(total, argnums=(0, 2)), (0, 0, 0), X, n, c, rtol=2e-5)
    summed = fxad.grad(lambda x: jnp.sum(fxad.vmap(total)(x, n, c)))(X)
    want = looped(fxad.grad(total), (0, 0, 0), X, n, c)
    np.testing.assert_allclose(summed, want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("one", "weak"),
    [
        (lambda x: (1.0, x * 2), (True, False)),
        (lambda x: jnp.where(x > 0, 1.0, 2), (True,)),
        (lambda x: lax.cond(x > 0, lambda: (1.0, x), lambda: (2.0, x)), (True, False)),
        (lambda x: lax.fori_loop(0, 3, lambda i, c: (c[0] + 1, c[1] * x), (0.0, x)), (True, False)),
        (lambda x: fxad.vmap(lambda y: (y, 1, x))(jnp.arange(2)), (False, True, False)),
    ],
)
def test_results_that_are_weak_for_one_lane_are_weak_for_all(one, weak):
    x = jnp.arange(3.0)
    for mapped in (fxad.vmap(one), fxad.jit(fxad.vmap(one))):
        assert tuple(out.weak_type for out in fxad.tree.leaves(mapped(x))) == weak
    halves = fxad.vmap(lambda x: 2.0)(x) * jnp.ones(3, jnp.bfloat16)
    assert halves.dtype == jnp.bfloat16


def test_what_no_lane_changes_is_known():
    """Values that do not depend on a mapped argument are values: Python may look at them."""
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    captured = jnp.array([True, False, True])

    def one(row, w):
        chosen = jnp.arange(3.0)[captured & (w[0] > 0)]
        return row @ w if bool(w[0] > 0) else row[0], chosen

    got, chosen = fxad.vmap(one, in_axes=(0, None))(x, jnp.array([1.0, 10.0]))
    np.testing.assert_allclose(got, x @ [1, 10], rtol=1e-6)
    np.testing.assert_array_equal(chosen, [[0, 2]] * 3)
    with pytest.raises(ConcretizationError):  # under jit all is traced, as ever
        fxad.jit(fxad.vmap(one, in_axes=(0, None)))(x, jnp.array([1.0, 10.0]))


def test_an_argument_that_is_not_mapped_comes_back_in_memory_of_its_own():
    x, w = np.ones((3, 2), np.float32), np.ones(2, np.float32)
    _, same = fxad.vmap(lambda row, w: (row, w), in_axes=(0, None), out_axes=(0, None))(x, w)
    w[0] = 5
    np.testing.assert_array_equal(same, [1, 1])
