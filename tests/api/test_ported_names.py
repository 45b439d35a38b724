"""Names that ported code uses: custom_gradient, ravel_pytree, static nodes, initializers."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import nn, tree
from fxad.core.errors import ShapeError, TreeError, TypeMismatch

KEY = fxad.random.key(1)


def test_custom_gradient():
    @fxad.custom_gradient
    def f(x):
        return x**2, lambda ct: 5.0 * ct * x

    @fxad.custom_gradient
    def g(x, y):
        return x * y, lambda ct: (ct * y, 7.0 * ct * x)

    for wrap in (lambda h: h, fxad.jit):
        assert float(wrap(f)(3.0)) == 9.0
        assert float(wrap(fxad.grad(f))(3.0)) == 15.0
        assert [float(v) for v in wrap(fxad.grad(g, (0, 1)))(2.0, 3.0)] == [3.0, 14.0]
        assert wrap(fxad.vmap(fxad.grad(f)))(jnp.arange(3.0)).tolist() == [0.0, 5.0, 10.0]


def test_ravel_and_back():
    params = {"w": jnp.arange(6.0).reshape(2, 3), "n": np.array([7, 8], np.int32), "b": 1.5}
    vector, unravel = fxad.flatten_util.ravel_pytree(params)
    assert vector.tolist() == [1.5, 7.0, 8.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    again = unravel(vector)
    assert {k: (v.dtype.name, v.shape) for k, v in again.items()} == {
        "w": ("float32", (2, 3)),
        "n": ("int32", (2,)),
        "b": ("float32", ()),
    }
    loss = lambda v: (unravel(v)["w"] ** 2).sum()  # noqa: E731
    assert fxad.grad(loss)(vector).tolist() == [0.0] * 3 + [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert fxad.flatten_util.ravel_pytree({})[0].shape == (0,)
    with pytest.raises(ShapeError, match="vector of 9"):
        unravel(vector[:3])
    with pytest.raises(TypeMismatch, match="expected dtype float32"):
        unravel(vector.astype("int32"))
    doubles, back = fxad.flatten_util.ravel_pytree([jnp.ones(2), jnp.zeros(1)])
    assert back(doubles > 0.5)[0].dtype == bool
    assert back == fxad.flatten_util.ravel_pytree([jnp.zeros(2), jnp.ones(1)])[1]
    traces = []
    run = fxad.jit(lambda v, back: traces.append(1) or back(v), static_argnums=1)
    run(doubles, back), run(doubles, fxad.flatten_util.ravel_pytree(back(doubles))[1])
    assert len(traces) == 1


def test_static_nodes_are_part_of_the_structure():
    @tree.register_static
    class Size(int):
        pass

    leaves, structure = tree.flatten({"n": Size(3), "x": 1.0})
    assert leaves == [1.0]
    assert structure != tree.structure({"n": Size(4), "x": 1.0})
    calls = []

    @fxad.jit
    def f(args):
        calls.append(1)
        return args["x"] * int(args["n"])

    assert float(f({"n": Size(3), "x": 2.0})) == 6.0
    assert float(f({"n": Size(3), "x": 3.0})) == 9.0
    assert float(f({"n": Size(4), "x": 3.0})) == 12.0
    assert len(calls) == 2


def test_one_level_and_folds():
    assert tree.flatten_one_level({"b": [1, 2], "a": 3})[0] == [3, [1, 2]]
    assert tree.is_tree_node([1])
    assert not tree.is_tree_node(1.0)
    with pytest.raises(TreeError, match="leaf"):
        tree.flatten_one_level(1.0)
    joined = tree.reduce_associative(lambda a, b: a + b, ["a", ("b", "c"), {"d": "d", "e": "e"}])
    assert joined == "abcde"
    assert tree.reduce_associative(max, [], identity=0) == 0
    with pytest.raises(TreeError, match="identity"):
        tree.reduce_associative(max, [])


def test_linear_transpose_of_shapes():
    shape = fxad.ShapeDtypeStruct((3,), np.float32)
    back = fxad.linear_transpose(lambda x: 2 * x, shape)
    assert back(jnp.ones(3))[0].tolist() == [2.0] * 3
    assert fxad.typeof(jnp.ones((2, 3))).shape == (2, 3)


def test_activations():
    x = np.array([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0], np.float32)
    expected = np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4))
    np.testing.assert_allclose(nn.sparse_plus(x), expected)
    slope = fxad.vmap(fxad.grad(nn.sparse_plus))(x)
    np.testing.assert_allclose(nn.sparse_sigmoid(x), slope)
    y = np.array([1e-6, 0.1, 0.6931, 0.7, 5.0, 50.0], np.float32)
    wide = np.log1p(-np.exp(-y.astype(np.float64)))
    np.testing.assert_allclose(nn.log1mexp(y), wide, rtol=1e-5)
    np.testing.assert_allclose(
        fxad.vmap(fxad.grad(nn.log1mexp))(y), 1 / np.expm1(y.astype(np.float64)), rtol=1e-5
    )
    z = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32) * 100
    mask = np.array([[True, False, True, True]])
    wide = z.astype(np.float64)
    peak = wide.max(1, keepdims=True)
    expected = np.log(np.exp(wide - peak).mean(1)) + peak[:, 0]
    np.testing.assert_allclose(nn.logmeanexp(z, 1), expected, rtol=1e-5)
    some = nn.logmeanexp(z, 1, where=mask)
    np.testing.assert_allclose(some, nn.logmeanexp(z[:, mask[0]], 1), rtol=1e-5)


def test_orthogonal_initializers():
    init = nn.initializers.orthogonal(2.0, column_axis=0)
    w = np.asarray(init(KEY, (3, 2, 4)))
    rows = w.reshape(3, 8)
    np.testing.assert_allclose(rows @ rows.T, 4 * np.eye(3), atol=1e-5)
    kernel = np.asarray(nn.initializers.delta_orthogonal()(KEY, (3, 5, 2, 4)))
    middle = kernel[1, 2]
    np.testing.assert_allclose(middle @ middle.T, np.eye(2), atol=1e-6)
    assert np.count_nonzero(kernel) == np.count_nonzero(middle)
    with pytest.raises(ShapeError, match="two axes"):
        init(KEY, (3,))
    with pytest.raises(ShapeError, match="3 to 5 axes"):
        nn.initializers.delta_orthogonal()(KEY, (3, 3, 4, 2))


@pytest.mark.peers
def test_initializers_are_those_of_jax():
    jax = pytest.importorskip("jax")
    key = jax.random.PRNGKey(1)
    theirs = jax.nn.initializers.orthogonal(2.0, 0)(key, (3, 2, 4))
    np.testing.assert_allclose(
        nn.initializers.orthogonal(2.0, 0)(KEY, (3, 2, 4)), theirs, atol=1e-5
    )
