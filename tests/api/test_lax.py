"""fxad.lax: control flow against Python loops, operators against NumPy, both beside JAX."""

import math
from typing import NamedTuple

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import ShapeError, TreeError, TypeMismatch

W = np.array([1.0, 2.0, 3.0], np.float32)
XS = np.arange(4, dtype=np.float32)
CLOSE = {"rtol": 2e-6, "atol": 1e-6}  # a few f32 roundings


def check(actual, expected, **tolerance):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), **(tolerance or CLOSE))


def modes(function, *args):
    """Results outside jit, inside, and interpreted as plain Python."""
    yield function(*args)
    yield fxad.jit(function)(*args)
    with fxad.disable_jit():
        yield function(*args)


# ---------------------------------------------------------------- scan


def test_scan_of_pytrees_in_both_directions():
    def run(init, xs, reverse):
        def step(carry, x):
            new = {"sum": carry["sum"] + x[0], "last": x[1]}
            return new, (carry["sum"], x[1] * 2)

        return lax.scan(step, init, xs, reverse=reverse)

    init = {"sum": np.float32(10), "last": np.int32(-1)}
    xs = (XS, np.arange(4, dtype=np.int32))
    for reverse in (False, True):
        for carry, (before, twice) in modes(lambda i, x, r=reverse: run(i, x, r), init, xs):
            assert float(carry["sum"]) == 16
            assert int(carry["last"]) == (0 if reverse else 3)
            check(before, [16, 15, 13, 10] if reverse else [10, 10, 11, 13])
            check(twice, [0, 2, 4, 6])


def test_scan_gradient_with_captured_arrays_under_every_transform():
    def total(w, xs):
        return lax.scan(lambda c, x: (c + jnp.sin(w * x).sum() * c, None), 1.0, xs)[0]

    def expected(w, xs):
        out, grads = 1.0, np.zeros(3)
        for x in xs.astype(np.float64):
            factor = 1 + np.sin(w * x).sum()
            grads = grads * factor + out * np.cos(w * x) * x
            out *= factor
        return out, grads

    value, slope = expected(W.astype(np.float64), XS)
    for out in modes(lambda w: fxad.value_and_grad(total)(w, XS), W):
        check(out[0], value)
        check(out[1], slope, rtol=2e-5)
    lanes = np.stack([W, 2 * W])
    mapped = fxad.jit(fxad.vmap(fxad.grad(total), (0, None)))(lanes, XS)
    for lane, got in zip(lanes, mapped, strict=True):
        check(got, expected(lane.astype(np.float64), XS)[1], rtol=1e-4, atol=1e-5)


def test_scan_without_xs_and_of_no_steps():
    assert float(lax.scan(lambda c, _: (c * 2, None), 1.0, length=5)[0]) == 32
    for carry, ys in modes(lambda x: lax.scan(lambda c, v: (c + v, c), 1.0, x), XS[:0]):
        assert float(carry) == 1.0
        assert ys.shape == (0,)


def test_weak_carries_take_the_dtype_of_the_body():
    half = np.ones(3, np.float16)
    carry, _ = lax.scan(lambda c, x: (c + x, None), 0, half)
    assert carry.dtype == np.float16
    assert lax.scan(lambda c, x: (c + x, None), 0, XS)[0].dtype == np.float32
    assert lax.fori_loop(0, 3, lambda i, c: c + i, np.int8(1)).dtype == np.int8
    assert lax.scan(lambda c, x: (0, c), np.float16(1), half)[0].dtype == np.float16
    kept = lax.scan(lambda c, x: (c + 1, None), 0, XS)[0]
    assert (kept + half).dtype == np.float16  # still a weak number


def test_weak_carries_that_take_another_dtype_are_strong():
    half = np.ones(3, np.float16)
    for carry in (
        lax.scan(lambda c, x: (c + 1.5, None), 0, XS)[0],
        lax.fori_loop(0, 3, lambda i, c: c * 1.5, 1),
        lax.while_loop(lambda c: c < 3, lambda c: c + 1.5, 0),
        fxad.jit(lambda c: lax.while_loop(lambda c: c < 3, lambda c: c + 1.5, c))(0),
    ):
        assert (carry + half).dtype == np.float32
    assert (lax.fori_loop(0, 3, lambda i, c: c * 1.5, 1.0) + half).dtype == np.float16


def broken_body(carry, x):
    return {"a": carry["a"], "b": carry["b"].astype("int8")}, x


def test_scan_errors_name_leaf_types_and_function():
    with pytest.raises(
        TypeMismatch,
        match=r"`broken_body` \(test_lax.py:\d+\).*carry\['b'\] goes in as i32\[3\] and comes "
        r"out as i8\[3\]",
    ):
        lax.scan(broken_body, {"a": W, "b": np.arange(3, dtype=np.int32)}, XS)
    with pytest.raises(TreeError, match="tuple of 2"):
        lax.scan(lambda c, x: (c[0], x), (W, W), XS)
    with pytest.raises(TypeMismatch, match=r"must return \(carry, y\), not an array f32\[\]"):
        lax.scan(lambda c, x: c, 1.0, XS)
    with pytest.raises(ShapeError, match=r"xs\[0\]: 3, xs\[1\]: 4"):
        lax.scan(lambda c, x: (c, x), 1, (W, XS))
    with pytest.raises(ShapeError, match=r"xs\['k'\] is f32\[\]"):
        lax.scan(lambda c, x: (c, x), 1, {"k": np.float32(1)})
    with pytest.raises(ValueError, match="give length="):
        lax.scan(lambda c, x: (c, x), 1)
    with pytest.raises(TypeMismatch, match="str"):
        lax.scan(lambda c, x: (c, "text"), 1, XS)


# ---------------------------------------------------------------- while, fori, map


def test_while_loop_with_captures_in_condition_and_body():
    def power(base, limit):
        return lax.while_loop(
            lambda s: s["value"] < limit,
            lambda s: {"value": s["value"] * base, "steps": s["steps"] + 1},
            {"value": 1.0, "steps": 0},
        )

    for out in modes(power, np.float32(3), np.float32(50)):
        assert float(out["value"]) == 81
        assert int(out["steps"]) == 4
    lanes = fxad.vmap(power, (None, 0))(np.float32(3), np.array([2, 50, 0.5], np.float32))
    check(lanes["value"], [3, 81, 1])
    assert lanes["steps"].tolist() == [1, 4, 0]
    _, slope = fxad.jvp(lambda b: power(b, np.float32(50))["value"], (3.0,), (1.0,))
    check(slope, 4 * 27)
    with pytest.raises(TypeMismatch, match=r"must give one bool, not \(f32\[\]\)"):
        lax.while_loop(lambda s: s, lambda s: s + 1, 0.0)
    with pytest.raises(TypeMismatch, match=r"goes in as f32\[\] and comes out as f32\[3\]"):
        lax.while_loop(lambda s: s.sum() < 3, lambda s: s + W, 0.0)


def test_fori_loop_with_known_and_traced_bounds():
    def run(low, high, w):
        return lax.fori_loop(low, high, lambda i, c: c * w + i, jnp.ones(3))

    def expected(w):
        out = np.ones(3)
        for i in range(2, 5):
            out = out * w + i
        return out

    check(run(2, 5, W), expected(W))
    for out in modes(run, np.int32(2), np.int32(5), W):
        check(out, expected(W))
    check(run(5, 2, W), np.ones(3))
    slope = fxad.jit(fxad.grad(lambda w: run(2, 5, w).sum()))(W)
    step = 1e-6
    wide = W.astype(np.float64)
    check(slope, (expected(wide + step) - expected(wide - step)) / (2 * step), rtol=1e-5)
    counts = fxad.vmap(lambda n: lax.fori_loop(0, n, lambda i, c: c + i, 0))(jnp.arange(5))
    assert counts.tolist() == [0, 0, 1, 3, 6]
    with pytest.raises(TypeMismatch, match="lower must be one integer"):
        lax.fori_loop(1j, 3, lambda i, c: c, 0)


def test_python_loops_when_jit_is_disabled():
    seen = []
    with fxad.disable_jit():
        lax.fori_loop(0, 3, lambda i, c: seen.append(int(i)) or c, 0)
        lax.scan(lambda c, x: (c, seen.append(float(x))), 0, XS[:2])
        lax.while_loop(lambda s: s < 2, lambda s: seen.append(int(s)) or s + 1, 0)
        lax.cond(True, lambda: seen.append("yes"), lambda: seen.append("no"))
        lax.switch(7, [lambda: seen.append("a"), lambda: seen.append("b")])
    assert seen == [0, 1, 2, 0.0, 1.0, 0, 1, "yes", "b"]


def test_map_and_nested_control_flow():
    def row(x):
        return lax.cond(
            x > 1, lambda: lax.fori_loop(0, 3, lambda i, c: c * W, x * W), lambda: x - W
        )

    expected = np.stack([x * W**4 if x > 1 else x - W for x in XS])
    for out in modes(lambda xs: lax.map(row, xs), XS):
        check(out, expected)
    check(fxad.vmap(row)(XS), expected)
    slope = fxad.jit(fxad.grad(lambda xs: lax.map(row, xs).sum()))(XS)
    check(slope, [3, 3, (W**4).sum(), (W**4).sum()])


def test_associative_scan_of_odd_and_even_lengths():
    for length in (0, 1, 2, 3, 7, 8):
        x = np.arange(1, length + 1, dtype=np.int32)
        assert lax.associative_scan(jnp.add, x).tolist() == np.cumsum(x).tolist()
        backwards = np.cumsum(x[::-1])[::-1].tolist()
        assert lax.associative_scan(jnp.add, x, reverse=True).tolist() == backwards
    a = np.random.default_rng(0).normal(size=(5, 2, 2)).astype(np.float32)
    products = [a[0]]
    for matrix in a[1:]:
        products.append(products[-1] @ matrix)
    check(lax.associative_scan(jnp.matmul, a), np.stack(products), rtol=1e-5, atol=1e-5)
    pair = lax.associative_scan(lambda p, q: (p[0] + q[0], q[1]), (XS, XS[None].T), axis=0)
    check(pair[0], np.cumsum(XS))
    with pytest.raises(ShapeError, match="lengths"):
        lax.associative_scan(lambda p, q: p, (XS, W))


def test_associative_scan_takes_the_leaves_of_what_its_function_gives():
    class Pair(NamedTuple):
        a: object
        b: object

    got = lax.associative_scan(lambda p, q: (p.a + q.a, p.b * q.b), Pair(XS, XS))
    assert type(got) is Pair
    check(got.a, np.cumsum(XS))
    check(got.b, np.cumprod(XS), rtol=1e-6)
    for few in (lambda p, q: (p.a,), lambda p, q: p.a, lambda p, q: (p, q)):
        with pytest.raises(TreeError, match="elements and results: tree structures differ"):
            lax.associative_scan(few, Pair(XS, XS))
    for wrong, kind, says in (
        (lambda p, q: (p.a, p.b > q.b), TypeMismatch, r"gives bool\[2\] for elements f32\[2\]"),
        (lambda p, q: (p.a, p.b.sum()), ShapeError, r"gives f32\[\] for elements f32\[2\]"),
    ):
        with pytest.raises(kind, match=says):
            lax.associative_scan(wrong, Pair(XS, XS))


# ---------------------------------------------------------------- cond, switch


def test_cond_takes_one_branch_with_its_own_captures():
    scale, shift = jnp.asarray(W), jnp.asarray(2 * W)

    def choose(flag, x):
        return lax.cond(flag, lambda v: (v * scale, 1), lambda v: (v + shift, 2), x)

    for flag, expected, number in ((True, 3 * W, 1), (False, 3 + 2 * W, 2)):
        for out in modes(choose, flag, np.float32(3)):
            check(out[0], expected)
            assert int(out[1]) == number
    assert float(lax.cond(np.float32(0), lambda x: x, lambda x: -x, operand=2.0)) == -2


def test_cond_gradients_do_not_touch_the_other_branch():
    def safe(x):
        return lax.cond(x > 0, jnp.log, lambda v: v * 0, x)

    for out in modes(fxad.grad(safe), 2.0):
        check(out, 0.5)
    for out in modes(fxad.grad(safe), -1.0):
        check(out, 0.0)
    check(fxad.vmap(fxad.grad(safe))(np.array([2.0, -1.0], np.float32)), [0.5, 0.0])


def test_switch_clamps_its_index():
    branches = [lambda x: x, lambda x: x * 2, lambda x: x * 3]
    given = ((-5, 1), (0, 1), (1, 2), (9, 3), (np.uint8(200), 3), (False, 1), (np.bool_(True), 2))
    for index, factor in given:
        for out in modes(lambda i, x: lax.switch(i, branches, x), index, W):
            check(out, factor * W)
    mapped = fxad.vmap(lambda i: lax.switch(i, branches, W.sum()))(jnp.arange(3))
    check(mapped, 6 * np.arange(1, 4))


def test_branches_with_different_results_are_refused():
    with pytest.raises(TypeMismatch, match=r"result: .*f32\[3\] from"):
        lax.cond(True, lambda: W * 1.0, lambda: 1)
    with pytest.raises(TypeMismatch, match=r"result\['k'\]: i8\[\] from.*i16\[\] from"):
        lax.cond(True, lambda: {"k": np.int16(1)}, lambda: {"k": np.int8(1)})
    with pytest.raises(TreeError, match="structures differ"):
        lax.cond(True, lambda: W, lambda: (W, W))
    with pytest.raises(TypeMismatch, match=r"pred must be one value, not f32\[3\]"):
        lax.cond(W, lambda: 1, lambda: 2)
    with pytest.raises(TypeMismatch, match="index must be an integer"):
        lax.switch(1.5, [lambda: 1, lambda: 2])
    with pytest.raises(ValueError, match="at least one branch"):
        lax.switch(0, [])
    out = lax.cond(True, lambda: np.float16(2), lambda: 0)  # a weak number adapts
    assert out.dtype == np.float16


# ---------------------------------------------------------------- operators


def test_operators_that_numpy_lacks():
    ints = np.array([-7, 7, 5, 0], np.int32)
    assert lax.div(ints, np.array([2, -2, 0, 3], np.int32)).tolist() == [-3, -3, 0, 0]
    assert lax.rem(ints, np.array([2, -2, 0, 3], np.int32)).tolist() == [-1, 1, 0, 0]
    assert lax.shift_right_arithmetic(ints, 1).tolist() == [-4, 3, 2, 0]
    assert lax.shift_right_logical(ints, 28).tolist() == [15, 0, 0, 0]
    assert lax.population_count(np.array([255, 8], np.uint8)).tolist() == [8, 1]
    x = np.array([-2.0, 0.3, 1.5], np.float32)
    check(lax.erf(x), [math.erf(v) for v in x.astype(float)])
    check(lax.lgamma(x[1:]), [math.lgamma(v) for v in x[1:].astype(float)])
    check(lax.erf_inv(lax.erf(x)), x, rtol=2e-5)
    check(lax.integer_pow(x, -2), x**-2.0)
    check(lax.clamp(-1.0, x, 1.0), np.clip(x, -1, 1))
    check(
        fxad.grad(lambda v: lax.clamp(0.0, v, 1.0).sum())(np.array([0, 0.5, 2], np.float32)),
        [0.5, 1, 0],
    )
    check(lax.select_n(np.array([0, 2, 1], np.int32), x, x * 10, x * 100), [-2, 30, 15])
    check(lax.select(x > 0, x, -x), np.abs(x))
    assert lax.bitcast_convert_type(np.float32(1), "uint32") == 0x3F800000
    with pytest.raises(TypeMismatch, match="is not an integer"):
        lax.integer_pow(ints, -1)


def test_shape_functions():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    check(lax.broadcast(x, (2,)), np.stack([x, x]))
    check(
        lax.broadcast_in_dim(x[:, :1], (2, 4, 3), (0, 2)),
        np.broadcast_to(x[:, :1][:, None], (2, 4, 3)),
    )
    check(lax.collapse(np.ones((2, 3, 4)), 0, 2), np.ones((6, 4)))
    check(lax.rev(x, (1,)), x[:, ::-1])
    check(lax.expand_dims(x, (0, 3)), x[None, :, :, None])
    check(lax.squeeze(x[None, :, :, None], (0, -1)), x)
    check(lax.pad(x, 9.0, ((1, 0, 0), (-1, 1, 1))), [[9] * 5, [9, 1, 9, 2, 9], [9, 4, 9, 5, 9]])
    check(lax.slice(x, (0, 1), (2, 3)), x[:, 1:])
    check(lax.slice_in_dim(x, -2, None, axis=1), x[:, -2:])
    check(lax.index_in_dim(x, -1, axis=1, keepdims=False), x[:, -1])
    check(lax.broadcasted_iota("int32", (2, 3), 1), np.tile(np.arange(3), (2, 1)))
    with pytest.raises(ShapeError, match="does not fit"):
        lax.broadcast_in_dim(x, (2, 3), (1, 0))
    with pytest.raises(IndexError, match="out of range"):
        lax.index_in_dim(x, 3, axis=1)


def test_slices_at_computed_places_clamp_and_count_from_the_end():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)

    def cut(i, j):
        return lax.dynamic_slice(x, (i, j), (2, 2))

    for at, first in (((0, 1), (0, 1)), ((2, 3), (1, 2)), ((-1, -4), (1, 0))):
        expected = x[first[0] : first[0] + 2, first[1] : first[1] + 2]
        check(cut(*at), expected)
        check(fxad.jit(cut)(*map(np.int32, at)), expected)
    row = np.full(4, -1, np.float32)
    for index in (1, np.int32(-2)):
        expected = x.copy()
        expected[1] = row
        check(lax.dynamic_update_index_in_dim(x, row, index, 0), expected)
    check(lax.dynamic_index_in_dim(x, jnp.asarray(9), 0, keepdims=False), x[2])
    check(lax.dynamic_slice_in_dim(x, jnp.asarray(1), 2, axis=1), x[:, 1:3])
    slope = fxad.grad(lambda v: (lax.dynamic_slice(v, (1, 1), (2, 2)) ** 2).sum())(x)
    expected = np.zeros_like(x)
    expected[1:, 1:3] = 2 * x[1:, 1:3]
    check(slope, expected)
    with pytest.raises(TypeMismatch, match="one integer"):
        lax.dynamic_slice(x, (jnp.asarray(0.5), 0), (1, 1))


def test_reductions_sorting_and_products():
    x = np.array([[3, 1, 2], [0, 5, 4]], np.float32)
    check(lax.reduce_sum(x, (0,)), x.sum(0))
    check(lax.reduce_max(x, (0, 1)), 5)
    check(lax.reduce(x, 1.0, lax.mul, (1,)), x.prod(1))
    assert lax.reduce_sum(np.ones(3, np.int8), (0,)).dtype == np.int8
    check(lax.cumsum(x, 1, reverse=True), np.cumsum(x[:, ::-1], 1)[:, ::-1])
    check(lax.cummax(x, 1), np.maximum.accumulate(x, 1))
    check(lax.cumlogsumexp(x, 1), np.logaddexp.accumulate(x, 1))
    values, places = lax.top_k(x, 2)
    assert values.tolist() == [[3, 2], [5, 4]]
    assert places.tolist() == [[0, 2], [1, 2]]
    check(lax.top_k(x, 1, axis=0)[0], [[3, 5, 4]])
    keys, rest = lax.sort_key_val(x[0], np.arange(3, dtype=np.int32))
    assert keys.tolist() == [1, 2, 3]
    assert rest.tolist() == [1, 2, 0]
    assert lax.argmax(x, 1, "uint8").dtype == np.uint8
    a, b = np.ones((2, 3, 4), np.float32), np.arange(40, dtype=np.float32).reshape(2, 4, 5)
    check(lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,)))), a @ b)
    check(lax.batch_matmul(a, b), a @ b)
    half = lax.dot(np.ones(4, np.float16), np.ones(4, np.float16), preferred_element_type="float32")
    assert half.dtype == np.float32
    with pytest.raises(TypeMismatch, match="must give"):
        lax.reduce(x, 0.0, lambda p, q: p > q, (0,))
    with pytest.raises(ShapeError, match="k=4"):
        lax.top_k(x, 4)


@pytest.mark.peers
def test_control_flow_beside_jax():
    jax = pytest.importorskip("jax")

    def loss(m, np_, w, xs):
        def step(carry, x):
            h = np_.tanh(carry @ w + x)
            h = m.lax.cond(h.sum() > 0, lambda v: v * 2, lambda v: v - w.sum(), h)
            return h, m.lax.fori_loop(0, 3, lambda i, c: c + np_.sin(h) * i, h)

        last, ys = m.lax.scan(step, xs[0], xs)
        return (last**2).sum() + ys.sum()

    rng = np.random.default_rng(0)
    w, xs = rng.normal(size=(3, 3)).astype("f"), rng.normal(size=(5, 3)).astype("f")
    ours = fxad.jit(fxad.value_and_grad(lambda *a: loss(fxad, jnp, *a), (0, 1)))(w, xs)
    theirs = jax.value_and_grad(lambda *a: loss(jax, jax.numpy, *a), (0, 1))(w, xs)
    for mine, other in zip(fxad.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        check(mine, other, rtol=2e-4, atol=2e-4)  # the recurrence amplifies rounding
