"""Primitives of users under JAX's names: their rules under every transformation, and Jaxprs."""

from __future__ import annotations

import numpy as np
import pytest
from test_alias import aliased

import fxad
import fxad.numpy as jnp
from fxad.api.jaxpr import ClosedJaxpr, Jaxpr, Literal, eval_jaxpr, jaxpr_as_fun
from fxad.api.shaped_array import ShapedArray
from fxad.as_jax import ad, batching, core, mlir
from fxad.as_jax.builtin_primitives import exp_p, tanh_p
from fxad.as_jax.primitives import Primitive
from fxad.core.errors import BadArgument, CheckError
from fxad.ops.elements.powers import square

X = np.linspace(0.1, 0.9, 5, dtype=np.float32)


def same_type(x, *others, **params):
    return ShapedArray(x.shape, x.dtype)


@pytest.fixture
def scaled():
    """x * factor * y by rules in JAX's form, without a lowering."""
    p = Primitive("scaled")
    p.def_impl(lambda x, y, *, factor: np.multiply(x, y) * factor["by"])
    p.def_abstract_eval(same_type)
    return p


def differentiable(p):
    ad.defjvp(
        p,
        lambda t, x, y, **params: p.bind(t, y, **params),
        lambda t, x, y, **params: p.bind(x, t, **params),
    )

    def transpose(ct, x, y, **params):
        if ad.is_undefined_primal(x):
            assert x.aval.shape == np.shape(y)
            return p.bind(ct, y, **params), None
        return None, p.bind(x, ct, **params)

    ad.primitive_transposes[p] = transpose
    batching.defbroadcasting(p)
    return p


def apply(p, x, y, by=3.0):
    return p.bind(x, y, factor={"by": by})


def test_a_primitive_runs_and_compiles_without_a_lowering(scaled):
    np.testing.assert_allclose(apply(scaled, X, X), 3 * X * X, rtol=1e-6)
    jitted = fxad.jit(lambda x: apply(scaled, x, jnp.sin(x)))
    np.testing.assert_allclose(jitted(X), 3 * X * np.sin(X), rtol=1e-6)


def test_a_lowering_is_fused(scaled):
    mlir.register_lowering(
        scaled, mlir.lower_fun(lambda x, y, *, factor: x * y * factor["by"], False)
    )
    lowered = fxad.jit(lambda x: apply(scaled, x, jnp.sin(x)) + 1).lower(X)
    assert len(lowered.kernels) == 1
    np.testing.assert_allclose(lowered.compile()(X), 3 * X * np.sin(X) + 1, rtol=1e-6)


def test_a_lowering_may_bring_small_arrays():
    """They are written into programs as numbers."""
    table = np.array([1, 1, -0.0, np.nan, 7], np.float32)
    p = Primitive("looked_up")
    p.def_impl(lambda x: x + table)
    p.def_abstract_eval(same_type)
    fun = lambda x: x + jnp.asarray(table) + jnp.asarray(np.array(0, np.float32))  # noqa: E731
    mlir.register_lowering(p, mlir.lower_fun(fun, multiple_results=False))
    np.testing.assert_array_equal(fxad.jit(p.bind)(X), X + table)
    large = Primitive("large")
    large.def_abstract_eval(same_type)
    long = jnp.asarray(np.arange(5000, dtype=np.float32))
    mlir.register_lowering(large, mlir.lower_fun(lambda x: x + long[:5] * 0, False))
    with pytest.raises(CheckError, match=r"f32\[5000\] of 5000 runs .* hand it over as an operand"):
        fxad.jit(large.bind)(X)


def test_one_of_several_results():
    """A primitive with `multiple_results` that has one: a list of one, under every rule."""
    p = Primitive("only")
    p.multiple_results = True
    p.def_impl(lambda x: [2 * x])
    p.def_abstract_eval(lambda x: [same_type(x)])
    ad.deflinear2(p, lambda cts, x: p.bind(cts[0]))
    batching.primitive_batchers[p] = lambda args, dims: (p.bind(*args), dims)
    for wrap in (lambda f: f), fxad.jit:
        (out,) = wrap(lambda x: p.bind(x))(X)
        np.testing.assert_array_equal(out, 2 * X)
        slopes = wrap(fxad.vmap(fxad.grad(lambda x: p.bind(x)[0])))(X)
        np.testing.assert_array_equal(slopes, np.full(5, 2, np.float32))


def test_parameters_are_no_part_of_each_other(scaled):
    """Dictionaries have no hash: two are two parameters, and programs with them differ."""
    results = [fxad.jit(lambda x, by=by: apply(scaled, x, x, by))(X) for by in (2.0, 5.0)]
    np.testing.assert_allclose(results[1], 2.5 * np.asarray(results[0]), rtol=1e-6)


@pytest.mark.parametrize("jit", [False, True])
def test_derivatives_and_lanes(scaled, jit):
    differentiable(scaled)
    f = lambda x, y: jnp.sum(apply(scaled, x, jnp.sin(y)))  # noqa: E731
    wrap = fxad.jit if jit else (lambda f: f)
    by_x, by_y = wrap(fxad.grad(f, argnums=(0, 1)))(X, X)
    np.testing.assert_allclose(by_x, 3 * np.sin(X), rtol=1e-5)
    np.testing.assert_allclose(by_y, 3 * X * np.cos(X), rtol=1e-5)
    _, tangent = wrap(lambda x: fxad.jvp(lambda x: f(x, X), (x,), (np.ones_like(X),)))(X)
    np.testing.assert_allclose(tangent, 3 * np.sin(X).sum(), rtol=1e-5)
    lanes = wrap(fxad.vmap(lambda x, y: apply(scaled, x, y), in_axes=(0, None)))(X, np.float32(2))
    np.testing.assert_allclose(lanes, 6 * X, rtol=1e-6)
    second = wrap(fxad.vmap(fxad.grad(lambda x: apply(scaled, x, x))))(X)
    np.testing.assert_allclose(second, 6 * X, rtol=1e-5)


def test_several_results_and_zeros():
    p = Primitive("halves")
    p.multiple_results = True
    p.def_impl(lambda x, n: [x[:n], x[n:]])
    p.def_abstract_eval(
        lambda x, n: [ShapedArray((n,), x.dtype), ShapedArray((x.shape[0] - n,), x.dtype)]
    )
    seen = []

    def transpose(cts, x, n):
        seen.append([type(ct) for ct in cts])
        return [jnp.concatenate([*map(ad.instantiate_zeros, cts)])]

    ad.deflinear2(p, transpose)
    first = lambda x: p.bind(x, n=2)[0]  # noqa: E731
    np.testing.assert_array_equal(first(X), X[:2])
    slope = fxad.grad(lambda x: jnp.sum(first(x) ** 2))(X)
    np.testing.assert_allclose(slope, np.where(np.arange(5) < 2, 2 * X, 0), rtol=1e-6)
    assert seen[0][1] is ad.Zero
    assert [np.shape(v) for v in fxad.jit(lambda x: p.bind(x, n=2))(X)] == [(2,), (3,)]


def test_a_rule_may_answer_with_another_axis():
    p = Primitive("rows_apart")
    p.def_impl(lambda x: x)
    p.def_abstract_eval(same_type)
    batching.primitive_batchers[p] = lambda args, dims: (jnp.moveaxis(args[0], dims[0], -1), 2)
    x = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(fxad.vmap(lambda x: p.bind(x), in_axes=1)(x), x.swapaxes(0, 1))


def test_a_rule_of_one_of_our_ops_may_be_replaced():
    """As lineax does for stop_gradient."""
    kept = square.jvp
    try:
        ad.primitive_jvps[_square()] = lambda primals, tangents: (
            primals[0] ** 2,
            7 * tangents[0],
        )
        assert fxad.grad(lambda x: jnp.sum(jnp.square(x)))(X).tolist() == [7.0] * 5
    finally:
        square.jvp = kept


def _square():
    return fxad.make_jaxpr(jnp.square)(X).eqns[0].primitive


def test_what_is_missing_is_said(scaled):
    with pytest.raises(NotImplementedError, match="Differentiation rule for 'scaled'"):
        fxad.grad(lambda x: jnp.sum(apply(scaled, x, x)))(X)
    with pytest.raises(NotImplementedError, match=r"Batching rule .* batching.primitive_batchers"):
        fxad.vmap(lambda x: apply(scaled, x, x))(X)
    ad.primitive_jvps[scaled] = lambda primals, tangents, **params: (
        scaled.bind(*primals, **params),
        scaled.bind(tangents[0], primals[1], **params),
    )
    with pytest.raises(NotImplementedError, match="Transpose rule for 'scaled'"):
        fxad.grad(lambda x: jnp.sum(apply(scaled, x, X)))(X)
    bare = Primitive("bare")
    with pytest.raises(NotImplementedError, match="Evaluation rule for 'bare'"):
        bare.bind(X)
    with pytest.raises(NotImplementedError, match=r"Abstract evaluation .*def_abstract_eval"):
        fxad.jit(bare.bind)(X)


def test_a_lowering_that_builds_mlir_is_left_to_the_implementation(scaled):
    mlir.register_lowering(scaled, lambda ctx, x, y, *, factor: ctx.module_context.build(x, y))
    np.testing.assert_allclose(fxad.jit(lambda x: apply(scaled, x, x))(X), 3 * X * X, rtol=1e-6)


# ---------------------------------------------------------------- Jaxprs


def test_a_program_under_jaxs_names():
    closed = fxad.make_jaxpr(lambda w, x: (jnp.exp(w @ x) + X, x))(np.ones((5, 3), "f4"), X[:3])
    jaxpr = closed.jaxpr
    assert [e.primitive.name for e in closed.eqns] == ["dot_general", "exp", "add"]
    assert [v.aval for v in jaxpr.invars] == closed.in_avals
    assert closed.out_avals == [ShapedArray((5,), "float32"), ShapedArray((3,), "float32")]
    assert len(jaxpr.constvars) == len(closed.consts) == 1
    assert jaxpr.outvars[1] is jaxpr.invars[1]
    assert closed.eqns[1].primitive is exp_p
    assert str(closed) == str(closed.program)
    found = eval_jaxpr(jaxpr, closed.consts, np.ones((5, 3), "f4"), X[:3])
    np.testing.assert_allclose(found[0], np.exp(np.ones((5, 3)) @ X[:3]) + X, rtol=1e-5)
    with pytest.raises(BadArgument, match=r"\(0, 1\) consts and arguments for \(1, 2\)"):
        eval_jaxpr(jaxpr, [], X)


def test_programs_inside_are_jaxprs_too():
    f = lambda x: fxad.lax.scan(lambda c, t: (c + t, c * t), 0.0, x)  # noqa: E731
    closed = fxad.make_jaxpr(f)(X)
    (scan,) = [e for e in closed.eqns if e.primitive.name == "scan"]
    assert [e.primitive.name for e in scan.params["body"].eqns] == ["add", "mul"]
    assert len(list(core.jaxprs_in_params(scan.params))) == 1
    np.testing.assert_allclose(jaxpr_as_fun(closed)(X)[0], X.sum(), rtol=1e-6)


def test_a_jaxpr_with_other_equations_runs():
    closed = fxad.make_jaxpr(lambda x: jnp.tanh(x) * 2.0)(X)
    eqns = [e.replace(primitive=exp_p) if e.primitive is tanh_p else e for e in closed.eqns]
    other = ClosedJaxpr(closed.jaxpr.replace(eqns=eqns), closed.consts)
    doubled = lambda x: jaxpr_as_fun(other)(x)[0]  # noqa: E731
    np.testing.assert_allclose(fxad.jit(doubled)(X), 2 * np.exp(X), rtol=1e-6)
    slope = fxad.grad(lambda x: jnp.sum(doubled(x)))(X)
    np.testing.assert_allclose(slope, 2 * np.exp(X), rtol=1e-6)


def test_an_interpreter_that_walks_equations():
    """The inverse of a chain of functions, equation by equation from the last."""
    inverses = {exp_p: jnp.log, tanh_p: jnp.arctanh}

    def inverse(f):
        def call(y):
            jaxpr = fxad.make_jaxpr(f)(y).jaxpr
            known = dict(zip(jaxpr.outvars, [y], strict=True))
            for eqn in reversed(jaxpr.eqns):
                (out,) = eqn.outvars
                known[eqn.invars[0]] = inverses[eqn.primitive](known[out])
            return known[jaxpr.invars[0]]

        return call

    f = lambda x: jnp.exp(jnp.tanh(x))  # noqa: E731
    np.testing.assert_allclose(inverse(f)(f(X)), X, rtol=1e-5)
    slopes = fxad.jit(fxad.vmap(fxad.grad(inverse(f))))((jnp.arange(5) + 1.0) / 5)
    # As on JAX's page on interpreters.
    np.testing.assert_allclose(
        slopes, [-3.1440797, 15.584931, 2.2551253, 1.3155028, 1.0], rtol=1e-5
    )


def test_equations_bind_what_they_hold():
    """`eqn.primitive.bind(*args, **params)`, the loop of an interpreter."""
    f = lambda x: jnp.sum(fxad.jit(jnp.sin)(x) * 2.0 + X)  # noqa: E731
    closed = fxad.make_jaxpr(f)(X)
    env = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    env |= dict(zip(closed.jaxpr.invars, [X], strict=True))
    for eqn in closed.eqns:
        args = [v.val if isinstance(v, Literal) else env[v] for v in eqn.invars]
        more, params = eqn.primitive.get_bind_params(eqn.params)
        out = eqn.primitive.bind(*more, *args, **params)
        env |= dict(zip(eqn.outvars, out if isinstance(out, list) else [out], strict=True))
    np.testing.assert_allclose(env[closed.jaxpr.outvars[0]], f(X), rtol=1e-6)


def test_consts_must_be_as_many_as_constvars():
    jaxpr = fxad.make_jaxpr(lambda x: x + X)(X).jaxpr
    assert isinstance(jaxpr, Jaxpr)
    with pytest.raises(BadArgument, match="0 consts for 1 constvars"):
        ClosedJaxpr(jaxpr)


def test_the_names_are_where_jax_has_them():
    out = aliased(
        "import jax, numpy as np\n"
        "from jax.extend import core\n"
        "from jax.extend.core import Primitive, ClosedJaxpr, primitives\n"
        "from jax.interpreters import ad, batching, mlir\n"
        "p = Primitive('twice'); p.def_impl(lambda x: 2 * x)\n"
        "p.def_abstract_eval(lambda x: jax.core.ShapedArray(x.shape, x.dtype))\n"
        "mlir.register_lowering(p, mlir.lower_fun(lambda x: x + x, multiple_results=False))\n"
        "ad.deflinear(p, lambda ct: [p.bind(ct)])\n"
        "print(jax.jit(jax.grad(lambda x: p.bind(x)))(3.0))\n"
        "closed = jax.make_jaxpr(lambda x: jax.lax.exp(x))(1.0)\n"
        "print(closed.eqns[0].primitive is jax.lax.exp_p is primitives.exp_p)\n"
        "print(isinstance(closed, ClosedJaxpr), batching.not_mapped)\n"
        "print(jax.core.eval_jaxpr(closed.jaxpr, closed.consts, 0.0))\n"
    )
    assert out.split("\n")[:3] == ["2.0", "True", "True None"]
