"""What may be given to custom_jvp and custom_vjp, what their rules may return, and which mistakes
are found."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import BadArgument, LeakedTracerError, MissingRule, ShapeError, TreeError
from fxad.custom_derivatives import (
    CustomVJPPrimal,
    SymbolicZero,
    custom_vjp_primal_tree_values,
    linear_call,
    zero_from_primal,
)

X = np.array([0.5, -1.0, 2.0])


def scaled(kind, **options):
    """x -> f(x) with twice f's derivative, f being an argument that is not differentiated."""
    f = kind(lambda f, x: f(x), **options)
    if kind is fxad.custom_jvp:

        @f.defjvp
        def rule(f_, primals, tangents):
            out, tangent = fxad.jvp(f_, primals, tangents)
            return out, 2 * tangent
    else:
        f.defvjp(lambda f_, x: fxad.vjp(f_, x), lambda f_, pull, ct: (2 * pull(ct)[0],))
    return f


@pytest.mark.parametrize(
    "options", [{"nondiff_argnums": (0,)}, {"nondiff_argnums": 0}, {"nondiff_argnames": "f"}]
)
def test_nondiff_arguments_by_position_and_name(options):
    f = scaled(fxad.custom_jvp, **options)
    for g in (fxad.grad(lambda x: f(jnp.sin, x)), fxad.jit(fxad.grad(lambda x: f(jnp.sin, x)))):
        assert float(g(0.5)) == pytest.approx(2 * np.cos(0.5), rel=1e-6)
    with pytest.raises(BadArgument, match="nondiff_argnames has 'g'"):
        fxad.custom_jvp(lambda f, x: x, nondiff_argnames="g")


def test_calls_that_do_not_fit_the_signature():
    def function(x, y, *, z=1.0):
        return x * y * z

    for f in (fxad.custom_jvp(function), fxad.custom_vjp(function)):
        with pytest.raises(MissingRule, match="give its rule"):
            f(1.0, 2.0)
        assert not hasattr(type("T", (), {"__getattr__": lambda s, n: f(1.0, 2.0)})(), "a")
    f = fxad.custom_jvp(function)
    f.defjvps(lambda t, out, x, y: t * y, None)
    assert float(fxad.grad(f)(3.0, 2.0)) == 2.0
    with pytest.raises(TypeError, match="missing a required argument: 'y'"):
        f(1.0)
    with pytest.raises(TypeError, match="by position, which z"):
        f(1.0, 2.0, z=3.0)


def test_a_rule_may_call_its_own_function_on_tangents():
    @fxad.custom_jvp
    def negative(x):
        return -x

    negative.defjvp(lambda primals, tangents: (negative(*primals), negative(*tangents)))

    @fxad.custom_vjp
    def double(x):
        return 2 * x

    double.defvjp(lambda x: (double(x), None), lambda _, ct: (double(ct),))
    for f, slope in ((negative, -1.0), (double, 2.0)):
        for g in (f, lambda x, f=f: lax.scan(lambda c, _: (f(c), None), x, length=1)[0]):
            assert float(fxad.grad(g)(3.0)) == float(fxad.jit(fxad.grad(g))(3.0)) == slope
        (transposed,) = fxad.linear_transpose(f, 1.0)(5.0)
        assert float(transposed) == 5 * slope


def test_differentiated_values_from_around_are_refused():
    def of_closure(kind):
        def outer(x):
            f = kind(lambda y: x + y)
            if kind is fxad.custom_jvp:
                f.defjvp(lambda p, t: (f(*p), t[0]))
            else:
                f.defvjp(lambda y: (f(y), None), lambda _, ct: (ct,))
            return f

        return outer

    for kind in (fxad.custom_jvp, fxad.custom_vjp):
        outer = of_closure(kind)
        for call in (lambda x: outer(x)(1.0), lambda x: outer(x)(x)):
            with pytest.raises(LeakedTracerError, match="not through its arguments"):
                fxad.grad(call)(3.0)
        assert float(fxad.grad(lambda y: outer(3.0)(y))(1.0)) == 1.0


def test_nondiff_arguments_of_one_lane():
    @partial(fxad.custom_jvp, nondiff_argnums=(0,))
    def f(x, y):
        return x * y

    f.defjvp(lambda x, primals, tangents: (f(x, *primals), 10 * x * tangents[0]))
    out, tangent = fxad.jvp(lambda y: fxad.vmap(f)(X, y), (X,), (np.ones(3),))
    np.testing.assert_allclose(out, X * X)
    np.testing.assert_allclose(tangent, 10 * X)

    g = scaled(fxad.custom_vjp, nondiff_argnums=(0,))
    with pytest.raises(LeakedTracerError, match="argument 0 is in nondiff_argnums"):
        fxad.jit(g)(1.0, 2.0)


def test_a_jvp_rule_must_give_what_its_function_gives():
    for answer, error in (
        (lambda x, t: ((x, x), (t, t)), TreeError),
        (lambda x, t: (jnp.stack([x, x]), jnp.stack([t, t])), ShapeError),
    ):
        f = fxad.custom_jvp(lambda x: x)
        f.defjvp(lambda primals, tangents, answer=answer: answer(*primals, *tangents))
        with pytest.raises(error, match="the function's"):
            fxad.jit(lambda x, f=f: fxad.jvp(f, (x,), (x,)))(1.0)


def test_bwd_may_leave_zeros_out():
    def of(bwd, **options):
        f = fxad.custom_vjp(lambda tree: tree["a"] * tree["b"][0])
        f.defvjp(lambda tree: (tree["a"], None), lambda _, ct: (bwd(ct),))
        return f

    tree = {"a": 2.0, "b": (3.0, None, 4.0)}
    for bwd, expected in (
        (lambda ct: {"a": ct, "b": (None, None, ct)}, [1.0, 0.0, 1.0]),
        (lambda ct: {"a": ct, "b": None}, [1.0, 0.0, 0.0]),
        (lambda ct: None, [0.0, 0.0, 0.0]),
        (lambda ct: {"a": zero_from_primal(ct, symbolic_zeros=True), "b": None}, [0.0] * 3),
        (lambda ct: {"a": zero_from_primal(ct), "b": (ct, None, None)}, [0.0, 1.0, 0.0]),
    ):
        for g in (fxad.grad(of(bwd)), fxad.jit(fxad.grad(of(bwd)))):
            assert [float(v) for v in fxad.tree.leaves(g(tree))] == expected
    with pytest.raises(TreeError, match="has one leaf where"):
        fxad.grad(of(lambda ct: ct))(tree)
    with pytest.raises(ShapeError, match="return None"):
        zero = zero_from_primal(X, symbolic_zeros=True)
        fxad.grad(of(lambda ct: {"a": zero, "b": None}))(tree)


def test_values_of_perturbed_leaves():
    seen = []

    @fxad.custom_vjp
    def f(x, y):
        return x["v"] * y

    def forward(x, y):
        assert isinstance(y, CustomVJPPrimal)
        seen.append((x["v"].perturbed, y.perturbed))
        x, y = custom_vjp_primal_tree_values((x, y))
        return f(x, y), (x, y)

    f.defvjp(forward, lambda res, ct: ({"v": ct * res[1]}, None), symbolic_zeros=True)
    assert float(fxad.grad(f)({"v": 2.0}, 3.0)["v"]) == 3.0
    assert seen == [(True, False)]
    assert isinstance(zero_from_primal(X, symbolic_zeros=True), SymbolicZero)


def test_linear_call():
    def f(r, x):
        return linear_call(lambda r, x: {"y": x / r}, lambda r, ct: ct["y"] / r, r, x)["y"]

    for wrap in (lambda g: g, fxad.jit):
        np.testing.assert_allclose(wrap(f)(2.0, X), X / 2)
        grads = wrap(fxad.grad(lambda r, x: f(r, x).sum(), (0, 1)))(2.0, X)
        np.testing.assert_allclose(grads[0], -np.sum(X) / 4)
        np.testing.assert_allclose(grads[1], np.full(3, 0.5))
        np.testing.assert_allclose(wrap(fxad.vmap(partial(f, 2.0)))(X), X / 2)
        (back,) = wrap(lambda ct: fxad.linear_transpose(partial(f, 4.0), X)(ct))(X)
        np.testing.assert_allclose(back, X / 4)

    own = lambda x: linear_call(lambda _, x: 3 * x, lambda _, ct: 7 * ct, (), x)  # noqa: E731
    assert float(fxad.grad(own)(1.0)) == 7.0  # the transpose that was given, not the true one
    assert float(fxad.jvp(own, (1.0,), (1.0,))[1]) == 3.0
    with pytest.raises(TreeError, match="the transpose gives"):
        fxad.grad(lambda x: linear_call(lambda _, x: x, lambda _, ct: (ct, ct), (), x))(1.0)
    with pytest.raises(ShapeError, match="the transpose gives"):
        fxad.vjp(lambda x: linear_call(lambda _, x: x, lambda _, ct: ct.sum(), (), x), X)[1](X)


def test_the_transpose_of_a_transpose_is_the_function():
    f = lambda x: linear_call(lambda r, x: 3 * r * x, lambda r, ct: 7 * r * ct, 2.0, x)  # noqa: E731
    turned = lambda g: lambda y: fxad.linear_transpose(g, 1.0)(y)[0]  # noqa: E731
    g, slopes = f, []
    for _ in range(4):
        slopes.append(float(g(1.0)))
        g = turned(g)
    assert slopes == [6.0, 14.0, 6.0, 14.0]

    def itself(x):
        return linear_call(lambda _, x: x, lambda _, ct: itself(ct), None, x)

    assert float(fxad.jit(fxad.grad(itself))(0.1)) == 1.0
