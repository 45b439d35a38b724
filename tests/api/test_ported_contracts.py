"""What vmap, the Jacobians, checkpoint and shape structs accept and refuse, as JAX does."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_vmap_shares_what_is_no_array():
    f = fxad.vmap(lambda g, x, options: g(x) * options["scale"] * len(options["name"]), (None, 0))
    with pytest.raises(BadArgument, match="in_axes has 2 entries"):
        f(jnp.sin, X, {})
    f = fxad.vmap(lambda g, x, o: g(x) * o["scale"] * len(o["name"]), (None, 1, None), out_axes=1)
    options = {"scale": 2.0, "name": "ab"}
    np.testing.assert_allclose(f(jnp.sin, X, options), 4 * np.sin(X), rtol=1e-6)
    with pytest.raises(TypeMismatch, match="is a function"):
        fxad.vmap(lambda g, x: g(x))(jnp.sin, X)
    with pytest.raises(ShapeError, match="different sizes"):
        fxad.vmap(lambda a, b, g: g(a, b), (0, 1, None))(X, X, jnp.add)


@pytest.mark.parametrize(
    "options",
    [{"in_axes": {"x": 0}}, {"in_axes": False}, {"in_axes": (X,)}, {"out_axes": (0.5,)}],
)
def test_axes_are_ints(options):
    with pytest.raises(TypeMismatch, match="must be an int, None"):
        fxad.vmap(lambda x: x, **options)


def test_truth_of_a_traced_array():
    with pytest.raises(ShapeError, match="ambiguous"):
        fxad.jit(lambda x: 1 if x else 0)(X)


def test_jacobians_of_integers_and_complex_results():
    f = lambda x, n: (x * n, n + 1)  # noqa: E731
    forward = fxad.jacfwd(f)(X[0], np.arange(3))
    np.testing.assert_array_equal(forward[0], np.diag(np.arange(3.0)))
    assert forward[1].dtype == fxad.float0 and forward[1].shape == (3, 3)
    with pytest.raises(TypeMismatch, match="holomorphic=True"):
        fxad.jacrev(jnp.sin)(1 + 2j)
    for jacobian in (fxad.jacfwd, fxad.jacrev):
        assert jacobian(lambda x: x * 2)(1.0).weak_type
        assert not jacobian(lambda x: x * 2)(np.float32(1)).weak_type
        g = fxad.jit(jacobian(lambda x, double: 2 * x if double else x), static_argnames="double")
        assert float(g(1.0, True)) == 2.0


def test_shape_structs():
    s = fxad.ShapeDtypeStruct((2, 3), np.float32)
    assert len(s) == 2 and not s.weak_type
    assert fxad.eval_shape(lambda x: x * 2, 1.0).weak_type
    with pytest.raises(TypeError, match="scalar"):
        len(fxad.ShapeDtypeStruct((), np.float32))
    with pytest.raises(BadArgument, match="dtype"):
        fxad.ShapeDtypeStruct((), None)


def test_objects_that_stand_for_arrays():
    class Boxed:
        def __init__(self, value):
            self.value = value

        def __jax_array__(self):
            return self.value

    x = Boxed(jnp.asarray(X))
    for found in (
        jnp.sin(x),
        fxad.jit(jnp.sin)(x),
        jnp.sin(jnp.asarray(x)),
        fxad.vmap(jnp.sin)(x),
        fxad.lax.sin(x),
    ):
        np.testing.assert_allclose(found, np.sin(X), rtol=1e-6)
    gradient = fxad.grad(lambda x: jnp.sum(jnp.asarray(x) ** 2))(x)
    np.testing.assert_array_equal(gradient, 2 * X)


def test_checkpoint_asks_a_function():
    asked = []

    def policy(op, *types, **params):
        asked.append((str(op), [str(t) for t in types], params.get("name")))
        return str(op) == "sin" or params.get("name") == "kept"

    def f(x):
        y = fxad.checkpoint_name(jnp.exp(jnp.sin(x)), "kept")
        return jnp.sum(jnp.cos(y) * jnp.tanh(y))

    g = fxad.checkpoint(f, policy=policy)
    np.testing.assert_allclose(fxad.grad(g)(X), fxad.grad(f)(X), rtol=1e-6)
    np.testing.assert_array_equal(fxad.jit(fxad.grad(g))(X), fxad.jit(fxad.grad(f))(X))
    assert ("sin", ["f32[2,3]"], None) in asked and any(n == "kept" for *_, n in asked)
    programs = [
        fxad.jit(fxad.value_and_grad(h)).lower(X).as_text() for h in (g, fxad.checkpoint(f))
    ]
    assert [text.count("= exp(") for text in programs] == [1, 2]
    kept = fxad.checkpoint_policies.save_from_both_policies(policy, "dots_saveable")
    np.testing.assert_allclose(fxad.grad(fxad.checkpoint(f, policy=kept))(X), fxad.grad(f)(X), 1e-6)


WEAK = {
    "floor": (2.5,), "ceil": (2.5,), "trunc": (2.5,), "rint": (2.5,), "reciprocal": (2.5,),
    "floor_divide": (7.5, 2), "remainder": (7.5, 2), "fmod": (7.5, 2), "divmod": (7.5, 2),
    "hypot": (3.0, 4.0), "logaddexp": (1.0, 2.0), "copysign": (1.0, -2.0), "sinc": (0.5,),
    "heaviside": (0.5, 1.0), "float_power": (2, 3), "modf": (2.5,), "logaddexp2": (1.0, 2.0),
}  # fmt: skip


@pytest.mark.parametrize("name", WEAK)
@pytest.mark.parametrize("transform", [lambda f: f, fxad.jit], ids=["eager", "jit"])
def test_what_is_made_of_numbers_is_a_number(name, transform):
    """A result of Python numbers does not widen a bfloat16 array, as in JAX."""
    narrow = jnp.ones(3, jnp.bfloat16)
    for result in fxad.tree.leaves(transform(getattr(jnp, name))(*WEAK[name])):
        assert result.weak_type and (narrow * result).dtype == jnp.bfloat16
    strong = getattr(jnp, name)(jnp.float32(2.5), *WEAK[name][1:])
    assert not any(leaf.weak_type for leaf in fxad.tree.leaves(strong))


def test_no_argument_becomes_weak():
    """A result is marked, never an array of the caller's that a function hands back."""
    number, narrow = jnp.float32(1.0), jnp.ones(2, jnp.bfloat16)

    def mixed(a, b):
        jnp.full_like(a, b)
        return narrow * b

    assert jnp.full_like(2.0, number).weak_type
    assert not number.weak_type
    assert mixed(2.0, number).dtype == fxad.jit(mixed)(2.0, number).dtype == jnp.float32
    assert fxad.vmap(mixed, (None, 0))(2.0, jnp.ones(2)).dtype == jnp.float32


def test_rounding_in_a_loop_is_traced_once():
    traces = []
    rounded = fxad.jit(lambda x: traces.append(1) or jnp.round(x, 2))
    x = 0.5
    for _ in range(3):
        x = rounded(x)
    assert len(traces) == 1 and x.weak_type


def test_cotangents_are_weak_as_what_they_are_made_of():
    weak = fxad.vjp(jnp.sin, 0.5)[1](1.0)
    strong = fxad.vjp(jnp.sin, 0.5)[1](jnp.float32(1.0))
    assert weak[0].weak_type and not strong[0].weak_type
    assert fxad.grad(fxad.grad(fxad.nn.relu))(0.5).weak_type
    assert not fxad.grad(jnp.sum)(jnp.ones(3)).weak_type


def test_distributions_and_activations_of_numbers_are_numbers():
    for result in (fxad.scipy.stats.norm.logpdf(0.5), fxad.nn.silu(0.5), fxad.nn.softplus(0.5)):
        assert result.weak_type
    assert not fxad.scipy.stats.norm.logpdf(jnp.float32(0.5)).weak_type


@fxad.tree_util.register_pytree_node_class
class Converting:
    """Its constructor takes arrays alone, as those of many libraries do."""

    def __init__(self, value):
        self.value = jnp.asarray(value).reshape(-1)

    def tree_flatten(self):
        return (self.value,), None

    @classmethod
    def tree_unflatten(cls, data, children):
        return cls(*children)


def test_trees_whose_classes_convert_their_leaves():
    tree, lax = Converting(jnp.ones(3)), fxad.lax
    more = lambda c: Converting(c.value + 1)  # noqa: E731
    for result in (
        lax.fori_loop(0, 3, lambda i, c: more(c), tree),
        lax.while_loop(lambda c: c.value.sum() < 12, more, tree),
        lax.scan(lambda c, x: (more(c), c.value + x.value), tree, Converting(jnp.ones(3)))[0],
        lax.cond(jnp.array(True), lambda c: Converting(c.value * 4), more, tree),
        fxad.jit(lambda c: Converting(c.value * 4))(tree),
    ):
        np.testing.assert_array_equal(result.value, [4, 4, 4])
    with pytest.raises(TypeMismatch, match=r"carry\[1\]\[<flat index 0>\] goes in as f32\[3\]"):
        lax.fori_loop(0, 3, lambda i, c: Converting(c.value[:2]), tree)
    f = fxad.jit(more)
    f(tree)
    assert "f32[4]" in f.explain_retrace(Converting(jnp.ones(4)))

    @fxad.custom_vjp
    def total(c):
        return c.value.sum()

    total.defvjp(lambda c: (c.value.sum(), c), lambda c, g: (Converting(c.value * g),))
    for grad in (fxad.grad(total), fxad.jit(fxad.grad(total))):
        np.testing.assert_array_equal(grad(tree).value, [1, 1, 1])


def test_callables_that_have_every_attribute():
    class Every:
        def __getattr__(self, name):
            return 3

        def __call__(self, x):
            return (x * x).sum()

    x = jnp.arange(3.0)
    np.testing.assert_array_equal(fxad.vmap(Every())(x), x * x)
    np.testing.assert_array_equal(fxad.grad(Every())(x), 2 * x)


def test_annotations_are_not_asked_for(monkeypatch):
    """From Python 3.14 on that would evaluate them."""
    names = ("__module__", "__name__", "__qualname__", "__doc__", "__annotate__")
    monkeypatch.setattr("functools.WRAPPER_ASSIGNMENTS", names)

    class Annotated:
        def __call__(self, x):
            return (x * x).sum()

        @property
        def __annotations__(self):
            raise NameError("Batch")

    np.testing.assert_array_equal(fxad.grad(Annotated())(jnp.arange(3.0)), [0, 2, 4])


def test_callables_whose_name_is_no_string():
    class Named:
        __name__ = object()

        def __call__(self, x):
            return (x * x).sum()

    f, x = Named(), jnp.arange(3.0)
    np.testing.assert_array_equal(fxad.vmap(f)(x), x * x)
    assert fxad.jit(f)(x) == fxad.checkpoint(f)(x) == fxad.value_and_grad(f)(x)[0] == 5
    for derivative in (fxad.grad, fxad.jacfwd, fxad.jacrev):
        np.testing.assert_array_equal(derivative(f)(x), 2 * x)
    assert "Named" in repr(fxad.grad(f))
    assert "program f(x: f32[3])" in str(fxad.make_ir(f)(x))
