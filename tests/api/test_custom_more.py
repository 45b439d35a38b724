"""Both rules for one function, symbolic zeros, rules of existing ops within a scope."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import BadArgument

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
