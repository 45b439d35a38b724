"""custom_jvp, custom_vjp and checkpoint: which rule runs where, structures, wrong rules; both rules
for one function, symbolic zeros, rules of existing ops within a scope."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import BadArgument, ShapeError, TreeError, TypeMismatch

X = 0.7
V = np.array([0.3, 0.7, -1.1])
WAYS = [
    pytest.param(lambda f: f, id="eager"),
    pytest.param(fxad.jit, id="jit"),
    pytest.param(lambda f: lambda x: fxad.vmap(f)(jnp.stack([x, x]))[1], id="vmap"),
    pytest.param(lambda f: lambda x: lax.scan(lambda c, v: (c, f(v)), 0, x[None])[1][0], id="scan"),
]


@pytest.fixture(autouse=True)
def _x64():
    with fxad.enable_x64():
        yield


def both(function):
    return function, fxad.jit(function)


# The rules below are wrong on purpose (three or two times the derivative): what comes out says
# which rule was used.


def forward_rule():
    @fxad.custom_jvp
    def f(x):
        return jnp.sin(x)

    @f.defjvp
    def rule(primals, tangents):
        (x,), (dx,) = primals, tangents
        return f(x), 3.0 * jnp.cos(x) * dx

    return f


def backward_rule():
    @fxad.custom_vjp
    def f(x):
        return jnp.sin(x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (2.0 * jnp.cos(x) * ct,))
    return f


@pytest.mark.parametrize(("make", "factor"), [(forward_rule, 3.0), (backward_rule, 2.0)])
def test_the_rule_is_used_everywhere(make, factor):
    f = make()
    xs = np.array([0.1, 0.7, 2.0])
    first, second = factor * np.cos(xs), -factor * np.sin(xs)
    assert float(f(X)) == pytest.approx(np.sin(X))
    for g in both(fxad.grad(f)):
        assert float(g(xs[1])) == pytest.approx(first[1])
    for g in both(fxad.vmap(fxad.grad(f))):
        np.testing.assert_allclose(g(xs), first)
    for g in both(fxad.grad(lambda v: jnp.sum(fxad.vmap(f)(v)))):
        np.testing.assert_allclose(g(xs), first)
    for g in both(fxad.vmap(fxad.grad(fxad.grad(f)))):
        np.testing.assert_allclose(g(xs), second)
    for g in both(fxad.grad(fxad.jit(f))):
        assert float(g(xs[1])) == pytest.approx(first[1])
    for g in both(fxad.grad(fxad.checkpoint(f))):
        assert float(g(xs[1])) == pytest.approx(first[1])
    for g in both(fxad.grad(lambda x: lax.cond(x > 0, f, jnp.cos, x))):
        assert float(g(xs[1])) == pytest.approx(first[1])
    inside = fxad.grad(lambda v: lax.scan(lambda c, x: (c + f(x), None), 0.0, v)[0])
    for g in both(inside):
        np.testing.assert_allclose(g(xs), first)
    chained = fxad.grad(lambda x: f(f(x)))
    want = factor**2 * np.cos(np.sin(X)) * np.cos(X)
    for g in both(chained):
        assert float(g(X)) == pytest.approx(want)
    for g in both(lambda x: fxad.linearize(fxad.grad(f), x)[1](1.0)):
        assert float(g(xs[1])) == pytest.approx(second[1])
    np.testing.assert_allclose(fxad.hessian(lambda v: jnp.sum(f(v)))(xs), np.diag(second))


def test_defjvps():
    @fxad.custom_jvp
    def f(x, y):
        return x * y

    f.defjvps(lambda dx, out, x, y: 5.0 * dx * y, None)
    for g in both(fxad.grad(f, argnums=(0, 1))):
        dx, dy = g(2.0, 3.0)
        assert float(dx) == 15.0
        assert float(dy) == 0.0


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit], ids=["eager", "jit"])
def test_pytrees_and_static_arguments(wrap):
    @functools.partial(fxad.custom_vjp, nondiff_argnums=(0, 2))
    def f(op, tree, scale, n):
        return {"out": op(tree["a"]) * scale + tree["b"][0], "n": n}

    def fwd(op, tree, scale, n):
        return f(op, tree, scale, n), {"saved": [tree["a"], n], "none": None}

    def bwd(op, scale, residuals, ct):
        _, n = residuals["saved"]
        assert residuals["none"] is None
        return {"a": ct["out"] * scale * n, "b": [ct["out"] * 10.0]}, None

    f.defvjp(fwd, bwd)
    tree = {"a": np.float64(0.5), "b": [np.float64(2.0)]}
    grads = wrap(fxad.grad(lambda t: f(jnp.sin, t, 3.0, 4)["out"]))(tree)
    assert float(grads["a"]) == 12.0
    assert float(grads["b"][0]) == 10.0
    out = wrap(lambda t: f(jnp.sin, t, scale=3.0, n=4))(tree)  # keywords follow the signature
    assert float(out["out"]) == pytest.approx(3 * np.sin(0.5) + 2)


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit], ids=["eager", "jit"])
def test_static_arguments_of_custom_jvp(wrap):
    @functools.partial(fxad.custom_jvp, nondiff_argnums=(1,))
    def power(x, n):
        return x**n

    @power.defjvp
    def rule(n, primals, tangents):
        (x,), (dx,) = primals, tangents
        return power(x, n), n * power(x, n - 1) * dx if n > 1 else dx

    assert float(wrap(fxad.grad(lambda x: power(x, 3)))(2.0)) == 12.0
    assert float(wrap(fxad.grad(fxad.grad(lambda x: power(x, 3))))(2.0)) == 12.0


def test_a_rule_may_capture_outer_values():
    def outer(y):
        @fxad.custom_vjp
        def f(x):
            return x * y

        f.defvjp(lambda x: (x * y, y), lambda r, ct: (ct * r * 2.0,))
        return fxad.grad(f)(3.0) + y

    for g in both(outer):
        assert float(g(X)) == pytest.approx(3 * X)
    for g in both(fxad.grad(outer)):
        assert float(g(X)) == pytest.approx(3.0)
    for g in both(fxad.vmap(outer)):
        np.testing.assert_allclose(g(np.array([1.0, 2.0])), [3.0, 6.0])


def test_rules_may_capture_arrays_inside_loops_and_branches():
    table = np.array([1.0, 10.0, 100.0])

    @fxad.custom_vjp
    def f(x):
        return jnp.sin(x)

    f.defvjp(lambda x: (jnp.sin(x), x), lambda r, ct: (ct * jnp.sum(table),))

    @fxad.custom_jvp
    def h(x):
        return jnp.sin(x)

    h.defjvp(lambda p, t: (jnp.sin(p[0]), t[0] * jnp.sum(jnp.asarray(table))))
    for rule in (f, h):
        uses = {
            "scan": lambda x, r=rule: lax.scan(lambda c, s: (r(c) + s, c), x, jnp.zeros(1))[0],
            "cond": lambda x, r=rule: lax.cond(x > 0, r, jnp.cos, x),
            "while": lambda x, r=rule: lax.while_loop(
                lambda s: s[0] < 1, lambda s: (s[0] + 1, r(s[1])), (0, x)
            )[1],
            "vmap": lambda x, r=rule: fxad.vmap(r)(x[None])[0],
            "checkpoint": fxad.checkpoint(rule),
            "jit": fxad.jit(rule),
        }
        for name, use in uses.items():
            for g in both(fxad.grad(use)):
                assert float(g(np.float64(X))) == 111.0, name
            for g in both(lambda x, u=use: fxad.jvp(fxad.grad(u), (x,), (x,))[1]):
                assert float(g(np.float64(X))) == 0.0, name
            for g in both(fxad.vmap(fxad.grad(use))):
                np.testing.assert_array_equal(g(np.array([X, 2 * X])), [111.0, 111.0])


def test_gradient_of_an_array_shared_by_lanes():
    @fxad.custom_vjp
    def f(w, x):
        return jnp.sum(w * x)

    f.defvjp(lambda w, x: (f(w, x), (w, x)), lambda r, ct: (ct * r[1], ct * r[0]))
    w, xs = np.arange(3.0), np.arange(12.0).reshape(4, 3)
    for g in both(fxad.grad(lambda w: jnp.sum(fxad.vmap(f, (None, 0))(w, xs)))):
        np.testing.assert_allclose(g(w), xs.sum(0))


def test_integer_arguments_and_results():
    @fxad.custom_vjp
    def pick(table, i):
        return table[i], i + 1

    pick.defvjp(
        lambda t, i: (pick(t, i), (t.shape[0], i)),
        lambda r, ct: (jnp.zeros(3).at[r[1]].set(ct[0] * 7.0), None),
    )
    table, i = np.arange(3.0), np.int32(1)
    for g in both(fxad.grad(lambda t: pick(t, i)[0])):
        np.testing.assert_allclose(g(table), [0, 7, 0])
    for g in both(fxad.vmap(fxad.grad(lambda t, i: pick(t, i)[0]), (None, 0))):
        np.testing.assert_allclose(g(table, np.array([0, 2])), [[7, 0, 0], [0, 0, 7]])


# ---------------------------------------------------------------- wrong rules


def _vjp(fwd, bwd, function=lambda x: jnp.sum(x * 2)):
    f = fxad.custom_vjp(function)
    f.defvjp(fwd, bwd)
    return f


V = np.ones(3)
GOOD = lambda x: (jnp.sum(x * 2), x)  # noqa: E731
WRONG_VJP = {
    "no pair": (lambda x: jnp.sum(x), lambda r, ct: (ct * r,), TypeMismatch, r"fwd must return"),
    "no tuple": (GOOD, lambda r, ct: ct * r, TreeError, r"one cotangent per.*argument \(1\)"),
    "too many": (GOOD, lambda r, ct: (ct * r, ct), TreeError, r"\(1\), not tuple of 2"),
    "shape": (GOOD, lambda r, ct: (ct,), ShapeError, r"f64\[\] for an argument f64\[3\]"),
    "structure": (GOOD, lambda r, ct: ((r, r),), TreeError, r"cotangent 0 has structure"),
}


@pytest.mark.parametrize("name", WRONG_VJP)
def test_wrong_vjp_rules(name):
    fwd, bwd, error, message = WRONG_VJP[name]
    for g in both(fxad.grad(_vjp(fwd, bwd))):
        with pytest.raises(error, match=message) as caught:
            g(V)
        assert "test_custom.py" in str(caught.value)


def test_forward_rule_that_disagrees_with_the_function():
    shape = _vjp(lambda x: (x, x), lambda r, ct: (ct,))
    structure = _vjp(lambda x: ((jnp.sum(x), 1.0), x), lambda r, ct: (ct[0] * r,))
    for f, error in ((shape, ShapeError), (structure, TreeError)):
        # Outside jit the function itself does not run, so there is nothing to compare with.
        with pytest.raises(error, match=r"fwd's result.*test_custom\.py"):
            fxad.jit(lambda x, f=f: fxad.vjp(f, x)[0])(V)


WRONG_JVP = {
    "no pair": (lambda p, t: t[0], TypeMismatch, "must return"),
    "shape": (lambda p, t: (jnp.sum(p[0]), t[0]), ShapeError, r"tangent f64\[3\].*f64\[\]"),
    "structure": (lambda p, t: (jnp.sum(p[0]), (t[0], 1.0)), TreeError, "structure"),
}


@pytest.mark.parametrize("name", WRONG_JVP)
def test_wrong_jvp_rules(name):
    rule, error, message = WRONG_JVP[name]
    f = fxad.custom_jvp(lambda x: jnp.sum(x))
    f.defjvp(rule)
    for g in both(lambda x: fxad.jvp(f, (x,), (x,))):
        with pytest.raises(error, match=message):
            g(V)


def test_missing_rules():
    with pytest.raises(TypeMismatch, match="defjvp"):
        fxad.custom_jvp(lambda x: x)(1.0)
    with pytest.raises(TypeMismatch, match="defvjp"):
        fxad.custom_vjp(lambda x: x)(1.0)


# ---------------------------------------------------------------- checkpoint

POLICIES = [None, "dots_saveable", "everything_saveable", "nothing_saveable"]


@pytest.mark.parametrize("policy", POLICIES)
def test_checkpoint_changes_no_bit(policy):
    r = np.random.default_rng(0)
    x, w = r.standard_normal((4, 5)), r.standard_normal((5, 5))

    def block(x, w):
        return jnp.tanh(x @ w) + jnp.exp(-(x**2))

    def loss(wrap):
        return lambda x, w: jnp.sum(wrap(wrap(block))(wrap(block)(x, w), w) ** 2)

    checkpointed = loss(lambda f: fxad.checkpoint(f, policy=policy))
    want = fxad.jit(fxad.grad(loss(lambda f: f), argnums=(0, 1)))(x, w)
    got = fxad.jit(fxad.grad(checkpointed, argnums=(0, 1)))(x, w)
    for g, e in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, e)
    eager = fxad.grad(checkpointed, argnums=(0, 1))(x, w)
    np.testing.assert_allclose(eager[1], want[1], rtol=1e-12)


def test_checkpoint_recomputes_under_jit():
    def f(x):
        return jnp.sin(jnp.sin(jnp.sin(x)))

    def count(g):
        names = [e.op.name for e in fxad.jit(fxad.grad(g)).lower(X).program.eqns]
        return sum(n == "sin" for n in names)

    assert count(f) == 2  # the outermost sine's value is not needed
    assert count(fxad.checkpoint(f)) > count(f) - 1


def test_backward_rules_outside_jit_have_second_forward_derivatives_and_lanes() -> None:
    f = backward_rule()  # its forward derivative comes from its decomposition
    second = fxad.jvp(lambda x: fxad.jvp(f, (x,), (1.0,))[1], (X,), (1.0,))[1]
    np.testing.assert_allclose(second, -np.sin(X), rtol=1e-12)
    _, push = fxad.linearize(f, np.array([X, 2.0]))
    np.testing.assert_allclose(fxad.vmap(push)(np.eye(2)), np.diag(np.cos([X, 2.0])), rtol=1e-12)


# ---------------------------------------------------------------- both rules, zeros, scopes


def two_rules():
    """Forward mode says 3 cos, reverse mode 2 cos, so what comes out says which rule was used."""

    @fxad.custom_vjp
    def f(x, y):
        return jnp.sin(x) * y

    f.defvjp(
        lambda x, y: (jnp.sin(x) * y, (x, y)),
        lambda r, ct: (2 * jnp.cos(r[0]) * r[1] * ct, jnp.sin(r[0]) * ct),
    )

    @f.defjvp
    def rule(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        return jnp.sin(x) * y, 3 * jnp.cos(x) * y * dx + jnp.sin(x) * dy

    return f


@pytest.mark.parametrize("way", WAYS)
def test_each_mode_uses_its_own_rule(way) -> None:
    f = two_rules()
    pushed = way(lambda x: fxad.jvp(lambda x: f(x, 2.0), (x,), (jnp.ones(()),))[1])
    pulled = way(fxad.grad(lambda x: f(x, 2.0)))
    x = jnp.asarray(X)
    np.testing.assert_allclose(pushed(x), 6 * np.cos(X), rtol=1e-12)
    np.testing.assert_allclose(pulled(x), 4 * np.cos(X), rtol=1e-12)
    np.testing.assert_allclose(way(lambda x: f(x, 2.0))(x), 2 * np.sin(X), rtol=1e-12)


def test_forward_over_reverse_and_lanes_of_some_arguments() -> None:
    f = two_rules()
    mixed = fxad.jvp(fxad.grad(f), (X, 2.0), (1.0, 0.0))[1]
    np.testing.assert_allclose(mixed, -4 * np.sin(X), rtol=1e-12)
    jac = fxad.vmap(lambda x: fxad.jvp(f, (x, 2.0), (1.0, 1.0))[1])(V)
    np.testing.assert_allclose(jac, 6 * np.cos(V) + np.sin(V), rtol=1e-12)
    np.testing.assert_allclose(
        fxad.jit(fxad.jacfwd(lambda x: f(x, jnp.ones(3))))(V), np.diag(3 * np.cos(V)), rtol=1e-12
    )


def seen_zeros():
    seen = []

    @fxad.custom_jvp
    def f(x, y, n):
        return x * y * n, y

    def rule(primals, tangents):
        (x, y, n), (dx, dy, _) = primals, tangents
        seen.append(tuple(isinstance(t, fxad.SymbolicZero) for t in tangents))
        total = fxad.SymbolicZero(jnp.asarray(x).type)
        if not isinstance(dx, fxad.SymbolicZero):
            total = dx * y * n
        if not isinstance(dy, fxad.SymbolicZero):
            total = x * dy * n if isinstance(total, fxad.SymbolicZero) else total + x * dy * n
        return (x * y * n, y), (total, dy)

    f.defjvp(rule, symbolic_zeros=True)
    return f, seen


@pytest.mark.parametrize("way", WAYS)
def test_rules_see_which_tangents_are_zero(way) -> None:
    f, seen = seen_zeros()
    x, y = jnp.asarray(X), np.float64(3.0)
    found = way(fxad.grad(lambda x: f(x, y, 2)[0]))(x)
    np.testing.assert_allclose(found, 6.0, rtol=1e-12)
    assert seen
    assert set(seen) == {(False, True, True)}
    seen.clear()
    found = way(lambda x: fxad.jvp(lambda y: f(x, y, 2), (y,), (jnp.ones(()),))[1][0])(x)
    np.testing.assert_allclose(found, 2 * X, rtol=1e-12)
    assert set(seen) == {(True, False, True)}


def test_a_symbolic_zero_knows_its_type_and_can_be_made_an_array() -> None:
    @fxad.custom_jvp
    def f(x, y):
        return x * y

    def rule(primals, tangents):
        dx, dy = tangents
        assert (dy.shape, dy.dtype) == ((3,), np.float64)
        return f(*primals), dx * primals[1] + dy.instantiate() * primals[0]

    f.defjvp(rule, symbolic_zeros=True)
    np.testing.assert_allclose(fxad.grad(lambda x: f(x, V).sum())(V), V)


def test_zeros_of_a_tree() -> None:
    zeros = fxad.custom_derivatives.zero_from_primal({"a": V, "n": 3}, symbolic_zeros=True)
    assert zeros["a"].shape == (3,)
    assert fxad.custom_derivatives.zero_from_primal((V,))[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("way", WAYS)
def test_numbers_among_residuals_stay_numbers(way) -> None:
    """So that bwd may branch on them."""

    @fxad.custom_vjp
    def f(x):
        return x**2

    def bwd(res, ct):
        x, doubled, times = res
        return (ct * x * times if doubled else ct,)

    f.defvjp(lambda x: (f(x), (x, True, 5)), bwd)
    np.testing.assert_allclose(way(fxad.grad(f))(jnp.asarray(X)), 5 * X, rtol=1e-12)


@pytest.mark.parametrize("way", WAYS[:2])
def test_an_argument_without_lanes_may_be_no_float(way) -> None:
    @fxad.custom_vjp
    def f(x, flag):
        return jnp.where(flag, x, 2 * x)

    f.defvjp(
        lambda x, flag: (f(x, flag), flag), lambda flag, ct: (jnp.where(flag, ct, 3 * ct), None)
    )
    lanes = fxad.vmap(f, in_axes=(0, None))
    for flag, slope in (True, 1.0), (False, 3.0):
        found = way(fxad.grad(lambda x, flag=flag: lanes(x, np.array(flag)).sum()))(V)
        np.testing.assert_allclose(found, [slope] * 3)


def test_a_leaf_that_says_whether_it_is_differentiated_is_no_tree() -> None:
    leaf = fxad.Perturbed(V, True)
    assert fxad.tree.leaves({"x": leaf}) == [leaf]


@pytest.mark.parametrize("way", WAYS)
def test_fwd_learns_which_arguments_are_differentiated(way) -> None:
    seen = []

    @fxad.custom_vjp
    def f(x, y):
        return x * y

    def fwd(x, y):
        seen.append((x.perturbed, y.perturbed))
        return x.value * y.value, (x.value, y.value)

    f.defvjp(fwd, lambda r, ct: (r[1] * ct, r[0] * ct), symbolic_zeros=True)
    y = np.float64(3.0)
    np.testing.assert_allclose(way(fxad.grad(lambda x: f(x, y)))(jnp.asarray(X)), 3.0)
    assert set(seen) == {(True, False)}


# ---------------------------------------------------------------- overriding


def safe_sqrt(primals, tangents):
    (x,), (dx,) = primals, tangents
    y = jnp.sqrt(x)
    return y, jnp.where(x > 0, 0.5 * dx / jnp.where(x > 0, y, 1.0), 0.0)


@pytest.mark.parametrize("way", WAYS)
def test_an_ops_rule_is_replaced_within_the_scope(way) -> None:
    def norm(x):
        return jnp.sqrt(jnp.sum(x * x))

    zero = np.zeros(3)
    assert np.isnan(fxad.grad(norm)(zero)).all()
    with fxad.override("sqrt", jvp=safe_sqrt):
        np.testing.assert_array_equal(way(fxad.grad(norm))(zero), zero)
        np.testing.assert_allclose(way(norm)(V), np.linalg.norm(V))
        np.testing.assert_allclose(way(fxad.grad(norm))(V), V / np.linalg.norm(V), rtol=1e-12)
    assert np.isnan(fxad.grad(norm)(zero)).all()


def test_traced_uses_keep_the_rule_and_derivatives_may_be_taken_outside() -> None:
    def f(x):
        with fxad.override("tanh", vjp=(lambda x: (jnp.tanh(x), ()), lambda r, ct: (ct * 5,))):
            return jnp.tanh(x)

    np.testing.assert_allclose(fxad.grad(lambda x: f(x) + jnp.tanh(x))(0.0), 6.0)
    np.testing.assert_allclose(fxad.grad(fxad.jit(lambda x: f(x) + jnp.tanh(x)))(0.0), 6.0)
    np.testing.assert_allclose(fxad.jvp(f, (0.0,), (1.0,))[1], 1.0)


def test_parameters_numbers_and_nested_scopes() -> None:
    seen = []

    def scaled(factor):
        def rule(primals, tangents, **params):
            seen.append(params)
            total = jnp.sum(primals[0], axis=params["axes"])
            return total, factor * jnp.sum(tangents[0], axis=params["axes"])

        return rule

    with fxad.override("sum", jvp=scaled(2)):
        with fxad.override("sum", jvp=scaled(3)):
            np.testing.assert_allclose(fxad.grad(jnp.sum)(V), 3 * np.ones(3))
        np.testing.assert_allclose(fxad.grad(jnp.sum)(V), 2 * np.ones(3))
    assert seen[0] == {"axes": (0,)}

    def product(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        return x * y, 10 * (dx * y + x * dy)

    with fxad.override("mul", jvp=product):
        np.testing.assert_allclose(fxad.grad(lambda x: x * 3.0)(X), 30.0)


def test_impossible_overrides_are_refused() -> None:
    with pytest.raises(BadArgument, match="did you mean 'tanh'"), fxad.override("tanhh", jvp=abs):
        pass
    with pytest.raises(BadArgument, match="holds programs"), fxad.override("scan", jvp=abs):
        pass
    with pytest.raises(BadArgument, match="give jvp"), fxad.override("tanh"):
        pass


def test_functions_jitted_before_are_traced_anew_inside_the_scope() -> None:
    norm = fxad.jit(lambda x: jnp.sqrt(jnp.sum(x * x)))
    zero = np.zeros(3)
    for _ in range(3):
        assert norm(zero) == 0
        assert np.isnan(fxad.grad(norm)(zero)).all()
        with fxad.override("sqrt", jvp=safe_sqrt):
            assert norm(zero) == 0
            np.testing.assert_array_equal(fxad.grad(norm)(zero), zero)
            assert "has a trace" in norm.explain_retrace(zero)
    with fxad.override("sqrt", jvp=lambda primals, tangents: (primals[0], tangents[0])):
        assert "fxad.override" in norm.explain_retrace(zero)


@pytest.mark.parametrize("way", WAYS)
def test_bwd_sees_which_results_matter(way) -> None:
    seen = []

    @fxad.custom_vjp
    def f(x):
        return {"used": jnp.sin(x), "unused": jnp.ones(3) * x}

    def bwd(x, ct):
        zero = isinstance(ct["unused"], fxad.SymbolicZero)
        seen.append((zero, isinstance(ct["used"], fxad.SymbolicZero)))
        assert ct["unused"].shape == (3,)
        rest = 0.0 if zero else jnp.sum(ct["unused"])
        used = ct["used"]
        return (2 * jnp.cos(x) * (0.0 if isinstance(used, fxad.SymbolicZero) else used) + rest,)

    def fwd(x):
        return {"used": jnp.sin(x.value), "unused": jnp.ones(3) * x.value}, x.value

    f.defvjp(fwd, bwd, symbolic_zeros=True)
    found = way(fxad.grad(lambda x: f(x)["used"]))(jnp.asarray(X))
    np.testing.assert_allclose(found, 2 * np.cos(X), rtol=1e-12)
    assert (True, False) in seen
    both = way(fxad.grad(lambda x: f(x)["used"] + f(x)["unused"].sum()))(jnp.asarray(X))
    np.testing.assert_allclose(both, 2 * np.cos(X) + 3, rtol=1e-12)


def test_a_backward_rule_for_custom_jvp_says_how_to_give_both():
    @fxad.custom_jvp
    def f(x):
        return x * x

    with pytest.raises(AttributeError, match=r"both modes decorate with custom_vjp.*defjvp"):
        f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct,))
    assert not hasattr(f, "defvjp")
