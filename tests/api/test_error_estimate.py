"""Error estimates against the error measured in float64, and programs in mixed precision."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import BadArgument, TypeMismatch

X = np.random.default_rng(5).uniform(0.2, 2.0, 40).astype(np.float32)


def polynomial(x):
    return (x - 1) ** 7 * 3.7 - x / 3


def reductions(x):
    return jnp.sum(jnp.exp(x)), jnp.mean(x * x) - jnp.max(x), jnp.cumsum(x)


def product(x):
    a = x.reshape(5, 8)
    return jnp.tanh(a @ a.T) @ a


def looped(x):
    def body(c, v):
        new = lax.cond(v > 1, jnp.sin, lambda c: jnp.sqrt(c + 1.1), c * v)
        return new, new * v

    return lax.scan(body, 0.7, x)


def cancelling(x):
    return (1 + x) - 1


@pytest.mark.parametrize("f", [polynomial, reductions, product, looped, cancelling])
@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit, fxad.checkpoint])
def test_the_estimate_bounds_the_error_and_is_near_it(f, wrap) -> None:
    report = fxad.estimate_error(wrap(f))(X)
    with fxad.enable_x64():
        exact = fxad.tree.leaves(f(X.astype(np.float64)))
    values, errors = fxad.tree.leaves(report.value), fxad.tree.leaves(report.errors)
    assert len(values) == len(errors) == len(exact)
    for value, bound, wanted in zip(values, errors, exact, strict=True):
        error = np.abs(np.asarray(value, np.float64) - np.asarray(wanted))
        assert np.asarray(wanted).dtype == np.float64
        assert (error <= bound).all()
        assert bound.max() <= 100 * max(error.max(), np.finfo(np.float32).eps)


def test_the_sum_is_that_of_adjoint_times_value_times_eps() -> None:
    x, y = np.float32(1.3), np.float32(0.4)
    report = fxad.estimate_error(lambda x, y: jnp.exp(x) * jnp.sin(y))(x, y)
    eps = 2.0**-23
    e, s = np.exp(1.3), np.sin(0.4)
    np.testing.assert_allclose(report.errors, 3 * e * s * eps, rtol=1e-6)
    assert sorted(q.op for q in report.equations) == ["exp", "mul", "sin"]
    for equation in report.equations:
        np.testing.assert_allclose(equation.error, e * s * eps, rtol=1e-6)


def test_lines_are_ranked_and_named() -> None:
    def f(x):
        big = jnp.exp(x * 8)
        small = jnp.sin(x)
        return big + small

    report = fxad.estimate_error(f)(np.float32(1.0))
    shares = [error for _, error in report.lines]
    assert shares == sorted(shares, reverse=True)
    first, second = str(report).splitlines()[1:3]
    assert "test_error_estimate.py" in first
    assert "exp" in first + second


def test_what_is_exact_or_without_influence_costs_nothing() -> None:
    report = fxad.estimate_error(lambda x: (-x[::2]).reshape(4, 5).T * 2.0)(X)
    assert (report.errors == 0).all()
    report = fxad.estimate_error(lambda x: (x > jnp.mean(x), jnp.argmax(jnp.exp(x))))(X)
    assert all((np.asarray(e) == 0).all() for e in report.errors)


def test_compensated_sums_lose_their_errors() -> None:
    def add(state, v):
        total, lost = state
        v = v - lost
        new = total + v
        return (new, (new - total) - v), None

    def naive(x):
        return lax.scan(lambda c, v: (c + v, None), 0.0, x)[0]

    plain = fxad.estimate_error(naive)(X).errors
    better = fxad.estimate_error(lambda x: lax.scan(add, (0.0, 0.0), x)[0][0])(X).errors
    assert better < plain / 4


def test_models_are_pluggable_and_loops_count_their_trips() -> None:
    seen = []

    def one_unit_per_run(site, magnitude):
        seen.append((site.op, site.trips, magnitude.shape))
        return np.ones_like(magnitude)

    def f(x):
        return lax.scan(lambda c, v: (c + v, None), 0.0, x)[0]

    assert fxad.estimate_error(f, model=one_unit_per_run)(X).errors == len(X)
    assert seen == [("add", 40, (40,))]


def test_traced_arguments_are_refused() -> None:
    with pytest.raises(TypeMismatch, match="concrete"):
        fxad.jit(lambda x: fxad.estimate_error(jnp.sin)(x).value)(X)


# ---------------------------------------------------------------- precision

R = np.random.default_rng(1)
PARAMS = {
    "w": R.normal(0, 0.2, (20, 30)).astype(np.float32),
    "v": R.normal(0, 0.2, (30, 5)).astype(np.float32),
}
BATCH = R.normal(size=(8, 20)).astype(np.float32)


def net(p, x):
    h = jnp.tanh(x @ p["w"]) @ p["v"]
    return jnp.mean((h - 1) ** 2) + 1e-6 * jnp.sum(jnp.exp(p["v"]))


@pytest.mark.parametrize("tolerance", [1e-1, 3e-2, 1e-3])
def test_suggested_programs_stay_within_the_tolerance(tolerance: float) -> None:
    found = fxad.suggest_precision(net, tolerance)(PARAMS, BATCH)
    assert found.error <= tolerance
    value, wanted = float(found.function(PARAMS, BATCH)), float(net(PARAMS, BATCH))
    assert abs(value - wanted) <= tolerance * abs(wanted)
    narrow = [e for e in found.program.eqns if "bf16" in str([v.type for v in e.outputs])]
    assert bool(narrow) == bool(found.chosen)


def test_a_wider_tolerance_takes_more_and_the_cheapest_first() -> None:
    counts = [
        len(fxad.suggest_precision(net, t)(PARAMS, BATCH).chosen) for t in (1e-9, 1e-4, 1e-2, 1e-1)
    ]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[1] >= 2, "the small term's exp and sum"
    found = fxad.suggest_precision(net, 1e-4)(PARAMS, BATCH)
    assert "exp" in [op for op, _, _ in found.chosen]
    assert "bfloat16" in str(found)


def test_loop_bodies_are_rewritten_and_other_dtypes_possible() -> None:
    found = fxad.suggest_precision(lambda x: looped(x)[0], 0.5, dtype="float16")(X)
    assert found.chosen
    assert "f16[]" in str(found.program)
    assert "bf16" not in str(found.program)
    np.testing.assert_allclose(found.function(X), looped(X)[0], rtol=0.5)


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(BadArgument, match="positive"):
        fxad.suggest_precision(net, 0)
    with pytest.raises(BadArgument, match="float"):
        fxad.suggest_precision(net, 1e-2, dtype="int8")


def newton(a):
    """The square root of every element: trips until all are near."""

    def far(state):
        return jnp.max(jnp.abs(state[1] * state[1] - a)) > 1e-4

    def step(state):
        count, x = state
        return count + 1, 0.5 * (x + a / x)

    return lax.while_loop(far, step, (0, a * 0.3 + 1))[1]


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit])
def test_loops_of_unknown_length_are_followed_trip_by_trip(wrap) -> None:
    report = fxad.estimate_error(wrap(newton))(X)
    trips = {(e.op, e.trips) for e in report.equations}
    (count,) = {n for op, n in trips if op == "div"}
    assert count > 2
    assert {("add", count), ("add", 1)} <= trips
    assert "while" not in {op for op, _ in trips}
    assert all(e.where.startswith("test_error_estimate.py:") for e in report.equations)
    with fxad.enable_x64():
        exact = np.asarray(newton(X.astype(np.float64)))
    assert (np.abs(np.asarray(report.value, np.float64) - exact) <= report.errors).all()
    # A known number of trips is the same loop.
    known = fxad.estimate_error(
        lambda a: lax.fori_loop(0, count, lambda i, x: 0.5 * (x + a / x), a * 0.3 + 1)
    )(X)
    np.testing.assert_allclose(report.errors, known.errors, rtol=1e-12)


def test_precision_is_suggested_inside_loops_of_unknown_length() -> None:
    found = fxad.suggest_precision(newton, 2e-2)(X)
    assert "div" in [op for op, _, _ in found.chosen + found.kept]
    loops = [e for e in found.program.eqns if e.op.name == "while"]
    assert len(loops) == 1  # still one, for arguments that need other trips
    strict = fxad.suggest_precision(newton, 1e-9)(4 * X)
    assert not strict.chosen
    np.testing.assert_array_equal(strict.function(X), newton(X))


def newton_one(v):
    def step(x):
        return 0.5 * (x + v / x)

    return lax.while_loop(lambda x: jnp.abs(x * x - v) > 1e-4 * v, step, v * 0.3 + 1)


def newton_each(a):
    """A loop of its own for every element: other numbers of trips."""
    return lax.scan(lambda c, v: (c, newton_one(v)), 0, a)[1]


def newton_nested(a):
    """Twice the square root, in loops inside a loop and inside branches."""

    def again(state):
        count, x = state
        return count + 1, lax.cond(count >= 0, newton, lambda x: x * 3, x)

    return lax.while_loop(lambda s: s[0] < 2, again, (0, a))[1]


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit, fxad.checkpoint])
@pytest.mark.parametrize("f", [newton_each, newton_nested])
def test_loops_inside_loops_and_branches_are_followed(f, wrap) -> None:
    report = fxad.estimate_error(wrap(f))(X)
    ops = {e.op for e in report.equations}
    assert "div" in ops
    assert not ops & {"while", "scan", "cond"}
    with fxad.enable_x64():
        exact = np.asarray(f(X.astype(np.float64)))
    assert (np.abs(np.asarray(report.value, np.float64) - exact) <= report.errors).all()
    np.testing.assert_array_equal(report.value, f(X))


def test_each_trip_of_an_inner_loop_errs_as_it_would_alone() -> None:
    alone = [fxad.estimate_error(newton_one)(x).errors for x in X]
    together = fxad.estimate_error(newton_each)(X).errors
    np.testing.assert_allclose(together, np.stack(alone), rtol=1e-6)


def test_trips_that_are_not_made_add_nothing() -> None:
    def counted(counts):
        def each(c, n):
            return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 1.7), (0, c))[
                1
            ], n

        return lambda x: lax.scan(each, x, np.asarray(counts, np.int32))[0]

    x = np.float32(0.4)
    one, split = (fxad.estimate_error(counted(c))(x) for c in ([6], [5, 0, 1]))
    np.testing.assert_array_equal(one.value, split.value)
    np.testing.assert_allclose(split.errors, one.errors, rtol=1e-6)


def test_precision_is_suggested_inside_nested_loops() -> None:
    def f(x, n):
        def inner(c, v):
            return c, lax.fori_loop(0, n, lambda i, x: 0.5 * (x + v / x), v * 0.3 + 1)

        return lax.scan(inner, 0, x)[1]

    found = fxad.suggest_precision(f, 2e-2)(X, 4)
    assert "div" in [op for op, _, _ in found.chosen]
    assert "while" in str(found.program)
    assert "bf16" in str(found.program)
    np.testing.assert_allclose(found.function(X, 4), f(X, 4), rtol=2e-2)


def test_custom_rules_count_as_one_equation() -> None:
    @fxad.custom_vjp
    def doubled(x):
        return jnp.sin(x) * 3.3

    doubled.defvjp(lambda x: (doubled(x), x), lambda x, ct: (3.3 * jnp.cos(x) * ct,))

    def f(x):
        def step(state):
            count, v = state
            return count + 1, v * 1.7

        def loop(x):
            return lax.while_loop(lambda s: s[0] < 3, step, (0, x))[1]

        return lax.cond(x > 0, loop, lambda x: x, doubled(x))

    x = np.float32(0.4)
    report = fxad.estimate_error(f)(x)
    assert sorted(e.op for e in report.equations) == ["custom_vjp", "mul"]
    # The rule once, the product in each of three trips.
    np.testing.assert_allclose(report.errors, 4 * 2.0**-23 * np.sin(0.4) * 3.3 * 1.7**3, rtol=1e-5)
    # No trip, and more trips than there is memory to follow.
    for end in (0, 10_000_000):
        grown = fxad.estimate_error(
            lambda x, end=end: lax.while_loop(
                lambda s: s[0] < end, lambda s: (s[0] + 1, s[1] * 0.9999999), (0, x)
            )[1]
        )(x)
        assert [e.op for e in grown.equations] == ["while"]
