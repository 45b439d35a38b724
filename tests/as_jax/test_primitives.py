"""Primitives of users under JAX's names: their rules under every transformation, and Jaxprs."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from test_alias import aliased

import fxad
import fxad.numpy as jnp
from fxad.api.jaxpr import ClosedJaxpr, Jaxpr, Literal, builtin, eval_jaxpr, jaxpr_as_fun
from fxad.api.shaped_array import ShapedArray
from fxad.as_jax import ad, batching, core, mlir
from fxad.as_jax.builtin_primitives import exp_p, tanh_p
from fxad.as_jax.primitives import Primitive
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch

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
    assert "callback" not in str(fxad.jit(p.bind).lower(X).plan)
    many = Primitive("many")
    many.def_abstract_eval(same_type)
    long = jnp.asarray(np.arange(5000, dtype=np.float32))
    mlir.register_lowering(many, mlir.lower_fun(lambda x: x + long[:5], multiple_results=False))
    np.testing.assert_allclose(fxad.jit(many.bind)(X), X + np.arange(5), rtol=1e-6)


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


def test_programs_with_any_parameter_print_and_are_rebuilt(scaled):
    closed = fxad.make_jaxpr(lambda x: apply(scaled, x, x, 2.5))(X)
    assert "(x, x; factor={'by': 2.5})" in closed.text()
    assert "scaled[factor={'by': 2.5}] a a" in str(closed)
    assert closed.eqns[0].params == {"factor": {"by": 2.5}}
    again = closed.jaxpr.replace(eqns=[e.replace() for e in closed.eqns])
    assert again.program.key() == closed.program.key()
    np.testing.assert_allclose(eval_jaxpr(again, [], X)[0], 2.5 * X * X, rtol=1e-6)


def test_a_jaxpr_as_a_parameter_stays_one():
    p = Primitive("applied")
    p.multiple_results = True
    p.def_impl(lambda *args, jaxpr: jaxpr_as_fun(jaxpr)(*args))
    p.def_abstract_eval(lambda *avals, jaxpr: jaxpr.out_avals)
    mlir.register_lowering(p, mlir.lower_fun(lambda *args, jaxpr: jaxpr_as_fun(jaxpr)(*args)))
    inner = fxad.make_jaxpr(lambda x: (jnp.sin(x), x + X))(X)
    closed = fxad.make_jaxpr(lambda x: p.bind(x, jaxpr=inner))(X)
    assert closed.eqns[0].params["jaxpr"] is inner
    assert [*core.subjaxprs(closed.jaxpr)] == [inner.jaxpr]
    again = closed.jaxpr.replace(eqns=[e.replace() for e in closed.eqns])
    for run in (jaxpr_as_fun(closed), fxad.jit(lambda x: eval_jaxpr(again, [], x))):
        np.testing.assert_allclose(run(X), [np.sin(X), 2 * X], rtol=1e-6)


def test_a_lowering_may_capture_arrays_and_must_keep_its_type():
    table = jnp.asarray(X)
    p = Primitive("looked_up")
    p.def_impl(lambda i: np.asarray(table)[i])
    p.def_abstract_eval(lambda i: ShapedArray(i.shape, "float32"))
    mlir.register_lowering(p, mlir.lower_fun(lambda i: table[i], multiple_results=False))
    batching.defvectorized(p)
    f = fxad.jit(fxad.vmap(lambda i: p.bind(i) * 2))
    np.testing.assert_array_equal(f(np.array([3, 0], "i4")), 2 * X[[3, 0]])
    loop = lambda n: fxad.lax.fori_loop(0, n, lambda i, s: s + p.bind(i), 0.0)  # noqa: E731
    np.testing.assert_allclose(fxad.jit(loop)(5), X.sum(), rtol=1e-6)
    mlir.register_lowering(p, mlir.lower_fun(lambda i: i, multiple_results=False))
    with pytest.raises(TypeMismatch, match=r"looked_up: its lowering gives \(i32\[\],\)"):
        fxad.jit(lambda i: p.bind(i))(0)


def test_parameters_that_are_equal_and_differ_have_code_of_their_own():
    p = Primitive("by_type")
    p.def_abstract_eval(same_type)
    scale = lambda x, *, k: x * (2 if type(k[0]) is int else 3)  # noqa: E731
    mlir.register_lowering(p, mlir.lower_fun(scale, multiple_results=False))
    found = [fxad.jit(lambda x, k=k: p.bind(x, k=k))(1.0) for k in ((1,), (1.0,), (True,))]
    assert found == [2.0, 3.0, 3.0]


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


def test_a_rule_of_one_of_our_ops_may_be_replaced_for_a_while():
    """As lineax does for stop_gradient."""
    slope = lambda: fxad.grad(lambda x: jnp.sum(jnp.square(x)))(X)  # noqa: E731
    before = slope()
    ad.primitive_jvps.update(
        {_square(): lambda primals, tangents: (primals[0] ** 2, 7 * tangents[0])}
    )
    try:
        assert slope().tolist() == [7.0] * 5
    finally:
        del ad.primitive_jvps[_square()]
    np.testing.assert_array_equal(slope(), before)


def test_a_new_rule_may_use_the_one_that_it_replaces():
    own = ad.primitive_jvps[tanh_p]

    def louder(primals, tangents):
        out, tangent = own(primals, tangents)
        return out, 2 * tangent

    f = lambda x: jnp.sum(jnp.tanh(x))  # noqa: E731
    ad.primitive_jvps[tanh_p] = louder
    try:
        np.testing.assert_allclose(fxad.grad(f)(X), 2 / np.cosh(X) ** 2, rtol=1e-5)
    finally:
        del ad.primitive_jvps[tanh_p]
    np.testing.assert_allclose(fxad.grad(f)(X), 1 / np.cosh(X) ** 2, rtol=1e-5)
    assert tanh_p in ad.primitive_jvps
    assert tanh_p not in ad.primitive_transposes


def pushed(jaxpr, consts, primals, tangents):
    """Forward mode as an interpreter of JAX's tables: (results, tangents)."""
    known = dict(
        zip(jaxpr.constvars, [(c, ad.Zero.from_primal_value(c)) for c in consts], strict=True)
    )
    known |= zip(jaxpr.invars, zip(primals, tangents, strict=True), strict=True)

    def read(atom):
        return (
            (atom.val, ad.Zero.from_primal_value(atom.val))
            if type(atom) is Literal
            else known[atom]
        )

    for eqn in jaxpr.eqns:
        values, moving = zip(*map(read, eqn.invars), strict=True)
        pair = ad.primitive_jvps[eqn.primitive](values, moving, **eqn.params)
        outs, found = pair if eqn.primitive.multiple_results else ([pair[0]], [pair[1]])
        known.update(zip(eqn.outvars, zip(outs, found, strict=True), strict=True))
    return [*map(read, jaxpr.outvars)]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: jnp.sin(x) * x + 1,
        lambda x: jnp.where(x > 0.5, jnp.exp(x), 3 * x),
        lambda x: fxad.jit(lambda x: x * x)(x),
        lambda x: fxad.lax.scan(lambda c, t: (c * t, c + t), jnp.float32(1), x)[1],
        lambda x: jnp.sort(-x) @ x + X,
        lambda x: fxad.lax.stop_gradient(x) * 2 + x.astype("int32"),
    ],
)
def test_an_interpreter_may_differentiate_by_the_rules_it_reads(f):
    closed = fxad.make_jaxpr(f)(X)
    ((out, tangent),) = pushed(closed.jaxpr, closed.consts, [X], [jnp.ones(5)])
    wanted = fxad.jvp(f, (X,), (np.ones_like(X),))
    np.testing.assert_allclose(out, wanted[0], rtol=1e-6)
    np.testing.assert_allclose(ad.instantiate_zeros(tangent), wanted[1], rtol=1e-6)


def test_transposes_of_our_ops_can_be_read():
    neg = ad.primitive_transposes[builtin("neg")]
    unknown = ad.UndefinedPrimal(ShapedArray((5,), "float32"))
    np.testing.assert_array_equal(neg(X, unknown)[0], -X)
    mul = ad.primitive_transposes[builtin("mul")]
    assert mul(X, X, unknown)[0] is None
    np.testing.assert_allclose(mul(X, X, unknown)[1], X * X)
    (zero,) = neg(ad.Zero(unknown.aval), unknown)
    assert type(zero) is ad.Zero
    which, off, on = ad.primitive_transposes[builtin("select")](X, X > 0.5, unknown, unknown)
    assert which is None
    np.testing.assert_array_equal(off, np.where(X > 0.5, 0, X))
    np.testing.assert_array_equal(on, np.where(X > 0.5, X, 0))
    assert str(ad.Zero.from_primal_value(3)) == "Zero(float0[])"


def test_a_rule_of_one_of_our_ops_with_several_results_or_programs_may_be_replaced():
    f = lambda x: fxad.jit(lambda x: (x * x, x))(x)[0].sum()  # noqa: E731
    primitive = builtin("call")
    ad.primitive_jvps[primitive] = lambda primals, tangents, **params: (
        primitive.bind(*primals, **params),
        [5 * tangents[0], ad.Zero.from_primal_value(primals[0])],
    )
    batching.primitive_batchers[primitive] = lambda args, dims, **params: (
        [args[0] * 3, args[0]],
        [dims[0], dims[0]],
    )
    try:
        assert fxad.grad(f)(X).tolist() == [5.0] * 5
        np.testing.assert_allclose(fxad.vmap(f)(X), 3 * X)
    finally:
        del ad.primitive_jvps[primitive], batching.primitive_batchers[primitive]
    np.testing.assert_allclose(fxad.vmap(f)(X), X * X)
    np.testing.assert_allclose(fxad.grad(f)(X), 2 * X)


def _square():
    return fxad.make_jaxpr(jnp.square)(X).eqns[0].primitive


def test_results_are_those_of_the_rule_and_computed_once():
    calls = []
    p = Primitive("counted")
    p.def_impl(lambda x: calls.append(1) or np.sin(x))
    p.def_abstract_eval(same_type)
    ad.primitive_jvps[p] = lambda primals, tangents: (
        p.bind(*primals) + 1,
        tangents[0] * jnp.cos(primals[0]),
    )
    value, slope = fxad.value_and_grad(lambda x: p.bind(x))(0.5)
    np.testing.assert_allclose((value, slope), (np.sin(0.5) + 1, np.cos(0.5)), rtol=1e-6)
    assert len(calls) == 1


def test_implementations_are_given_arrays_with_jaxs_methods():
    kept = []
    p = Primitive("first_set")
    p.def_impl(lambda x: kept.append(x) or x.at[0].set(9))
    p.def_abstract_eval(same_type)
    ad.deflinear(p, lambda ct: [p.bind(ct)])
    x = jnp.asarray(X)
    slope = fxad.grad(lambda x: jnp.sum(p.bind(x) * x))
    for f in (p.bind, fxad.jit(lambda x: p.bind(x + 0)), slope, fxad.jit(slope)):
        assert float(f(x)[0]) in (9.0, 9.0 + 9 - X[0], 9 + X[0], 18.0)
    np.testing.assert_array_equal(kept[1], X)  # memory of its own, after the program has run


def test_a_rule_that_is_replaced_is_the_one_that_is_compiled():
    p = Primitive("replaced")
    p.def_abstract_eval(same_type)
    found = []
    for factor in (3.0, 4.0):
        mlir.register_lowering(
            p, mlir.lower_fun(lambda x, factor=factor: x * factor, multiple_results=False)
        )
        found.append(fxad.jit(lambda x: p.bind(x))(1.0))
    assert found == [3.0, 4.0]
    twice = Primitive("replaced_on_the_host")
    twice.def_abstract_eval(same_type)
    for factor in (3.0, 4.0):
        twice.def_impl(lambda x, factor=factor: x * factor)
        assert fxad.jit(lambda x: twice.bind(x))(1.0) == factor


def test_what_does_not_keep_to_the_declared_shape_is_refused():
    p = Primitive("of_three")
    p.def_impl(lambda x: np.zeros(3))
    p.def_abstract_eval(lambda x: ShapedArray((2,), x.dtype))
    with pytest.raises(ShapeError, match=r"of_three: .* shapes \[\(3,\)\], .* says \(f32\[2\]\)"):
        fxad.jit(lambda x: p.bind(x))(1.0)
    q = Primitive("wide_tangent")
    q.def_impl(lambda x: x)
    q.def_abstract_eval(same_type)
    ad.primitive_jvps[q] = lambda primals, tangents: (q.bind(*primals), jnp.ones(7))
    with pytest.raises(ShapeError, match=r"wide_tangent: .* f32\[7\] for a result f32\[\]"):
        fxad.grad(lambda x: q.bind(x))(1.0)


def test_rules_of_lanes_in_both_other_forms():
    p, q = Primitive("by_axis_data"), Primitive("by_size")
    for one in (p, q):
        one.def_impl(lambda x: x)
        one.def_abstract_eval(same_type)
    batching.fancy_primitive_batchers[p] = lambda axis, args, dims: (args[0] * axis.size, dims[0])
    batching.axis_primitive_batchers[q] = lambda size, name, trace, args, dims: (
        args[0] * size,
        dims[0],
    )
    np.testing.assert_allclose(fxad.vmap(lambda x: p.bind(x) + q.bind(x))(X), 10 * X)


def test_primitives_made_at_once_are_told_apart():
    gate, made = threading.Barrier(4), []

    def make(k):
        gate.wait()
        for _ in range(50):
            p = Primitive("made_at_once")
            p.def_abstract_eval(same_type)
            mlir.register_lowering(p, mlir.lower_fun(lambda x: x + k, multiple_results=False))
            made.append((p.op.name, k, p))

    threads = [threading.Thread(target=make, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({name for name, _, _ in made}) == 200
    for _, k, p in made[::40]:
        assert fxad.jit(lambda x: p.bind(x))(0.0) == k


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


def test_rules_may_be_methods_of_a_derived_class():
    """As methods and where they are given, abstract evaluation gives types and effects."""

    class Tag(Primitive):
        multiple_results = True

        def impl(self, *args):
            return args[:1]

        def abstract_eval(self, *avals):
            return avals[:1], core.no_effects

    tag = Tag("tag")
    np.testing.assert_array_equal(tag.bind(X, 2.0)[0], X)
    np.testing.assert_array_equal(fxad.jit(tag.bind)(X, 2.0)[0], X)
    given = Primitive("given")
    given.def_abstract_eval(lambda x: x)
    aval = ShapedArray((2,), "float32")
    assert given.abstract_eval(aval)[0] == tag.abstract_eval(aval)[0][0] == aval
    given.def_effectful_abstract_eval(lambda x: (x.update(shape=(3,)), core.no_effects))
    assert given.abstract_eval(aval)[0].shape == (3,)


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
    assert closed.text() == str(closed.program)
    found = eval_jaxpr(jaxpr, closed.consts, np.ones((5, 3), "f4"), X[:3])
    np.testing.assert_allclose(found[0], np.exp(np.ones((5, 3)) @ X[:3]) + X, rtol=1e-5)
    with pytest.raises(BadArgument, match=r"\(0, 1\) consts and arguments for \(1, 2\)"):
        eval_jaxpr(jaxpr, [], X)


def test_programs_inside_are_jaxprs_too():
    f = lambda x: fxad.lax.scan(lambda c, t: (c + t, c * t), 0.0, x)  # noqa: E731
    closed = fxad.make_jaxpr(f)(X)
    (scan,) = [e for e in closed.eqns if e.primitive.name == "scan"]
    assert [e.primitive.name for e in scan.params["jaxpr"].eqns] == ["add", "mul"]
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
        out = out if eqn.primitive.multiple_results else [out]
        env |= dict(zip(eqn.outvars, out, strict=True))
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


def test_private_names_that_jaxs_pages_import():
    out = aliased(
        "from jax import core, lax as public\n"
        "from jax._src.lax import lax\n"
        "from jax._src import api\n"
        "from jax._src.util import merge_lists, partition_list, safe_map, safe_zip, split_list\n"
        "from jax._src.util import unzip2\n"
        "print(lax.exp_p is public.exp_p, lax.add is public.add, api.grad(lax.exp)(0.0))\n"
        "print(safe_map(max, [1, 5], [3, 4]), split_list([1, 2, 3], [1]), unzip2([(1, 2)]))\n"
        "import jax.extend.core\n"
        "print(core.Literal is jax.extend.core.Literal, core.Jaxpr is jax.extend.core.Jaxpr)\n"
        "off, on = partition_list([True, False, True], 'abc')\n"
        "print(off, on, merge_lists([True, False, True], off, on))\n"
        "for call in (lambda: safe_map(max, [1], []), lambda: merge_lists([True], [1], [])):\n"
        "    try: call()\n"
        "    except ValueError: print('refused')\n"
    )
    assert out.split("\n")[:6] == [
        "True True 1.0",
        "[3, 5] [[1], [2, 3]] ((1,), (2,))",
        "True True",
        "['b'] ['a', 'c'] ['a', 'b', 'c']",
        "refused",
        "refused",
    ]
