"""JAX's example libraries under the alias: layers and optimizers beside JAX's own (peers), and its
example that trains on digits."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import random, tree
from fxad.as_jax import optimizers, stax
from fxad.core.errors import BadArgument, ShapeError, TreeError

RANDOM = np.random.default_rng(0)
OPTIMIZERS = [
    ("sgd", ()),
    ("momentum", (0.9,)),
    ("nesterov", (0.9,)),
    ("adagrad", ()),
    ("rmsprop", ()),
    ("rmsprop_momentum", ()),
    ("adam", ()),
    ("adamax", ()),
    ("sm3", ()),
]
SCHEDULES = [
    ("constant", (0.1,)),
    ("exponential_decay", (0.1, 4, 0.5)),
    ("inverse_time_decay", (0.1, 4, 0.5)),
    ("inverse_time_decay", (0.1, 4, 0.5, True)),
    ("polynomial_decay", (0.1, 6, 0.01, 2.0)),
    ("piecewise_constant", ([2, 5], [0.1, 0.2, 0.3])),
]


def network(stax):
    """Layers of nearly every kind."""
    block = stax.serial(
        stax.FanOut(2),
        stax.parallel(stax.serial(stax.Conv(4, (3, 3), padding="SAME"), stax.Tanh), stax.Identity),
        stax.FanInSum,
    )
    return stax.serial(
        stax.Conv(4, (3, 2), (2, 1), "SAME"), stax.BatchNorm(), stax.Relu,
        stax.MaxPool((2, 2)), block, stax.AvgPool((2, 2), padding="SAME"), stax.Elu,
        stax.ConvTranspose(3, (2, 2), (2, 2)), stax.SumPool((2, 2), (2, 2)), stax.Gelu,
        stax.FanOut(2), stax.FanInConcat(), stax.Flatten,
        stax.shape_dependent(lambda shape: stax.Dense(shape[-1] // 2)), stax.Softplus,
        stax.Dense(5), stax.LogSoftmax,
    )  # fmt: skip


IMAGES = RANDOM.standard_normal((6, 9, 8, 1)).astype(np.float32)


def test_shapes_are_those_of_predictions():
    init, predict = network(stax)
    shape, params = init(random.key(0), IMAGES.shape)
    assert predict(params, IMAGES).shape == shape == (6, 5)
    same = fxad.jit(predict)(params, IMAGES)
    np.testing.assert_allclose(same, predict(params, IMAGES), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jnp.exp(same).sum(1), np.ones(6), rtol=1e-5)


def test_dropout_keeps_a_share():
    _, apply = stax.serial(stax.Dropout(0.25), stax.Identity)
    kept = apply([(), ()], jnp.ones(4000), rng=random.key(0))
    assert set(kept.tolist()) == {0.0, 4.0}
    assert float(kept.mean()) == pytest.approx(1, abs=0.1)
    assert stax.Dropout(0.25, "test")[1]((), jnp.ones(3), rng=random.key(0)).tolist() == [1, 1, 1]
    with pytest.raises(BadArgument, match="needs a key"):
        apply([(), ()], jnp.ones(3))


@pytest.mark.parametrize(("name", "rest"), OPTIMIZERS)
def test_optimizers_find_a_minimum(name, rest):
    init, update, get_params = getattr(optimizers, name)(0.1, *rest)
    state = init({"w": jnp.ones((2, 3)), "b": jnp.float32(1)})
    loss = lambda p: ((p["w"] - 0.5) ** 2).sum() + p["b"] ** 2  # noqa: E731

    @fxad.jit
    def step(i, state):
        return update(i, fxad.grad(loss)(get_params(state)), state)

    first = loss(get_params(state))
    for i in range(100):
        state = step(i, state)
    assert loss(get_params(state)) < 0.2 * first
    assert tree.structure(get_params(state)) == tree.structure({"w": 0, "b": 0})


def test_states_go_to_trees_and_back():
    init, *_ = optimizers.adam(0.1)
    state = init([jnp.ones(2), {"a": jnp.zeros(3)}])
    marked = optimizers.unpack_optimizer_state(state)
    assert [leaf.shape for leaf in marked[0].subtree] == [(2,)] * 3
    again = optimizers.pack_optimizer_state(marked)
    assert tree.structure(again) == tree.structure(state)
    with pytest.raises(TreeError, match="JoinPoint"):
        optimizers.pack_optimizer_state([1])


def test_gradients_of_another_structure():
    init, update, _ = optimizers.sgd(0.1)
    with pytest.raises(TreeError, match="sgd: gradients"):
        update(0, [jnp.ones(2)], init((jnp.ones(2),)))


def test_clipping_and_schedules():
    grads = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    assert float(optimizers.l2_norm(grads)) == 5
    assert optimizers.clip_grads(grads, 1.0)["b"].tolist() == pytest.approx([0.8])
    assert optimizers.clip_grads(grads, 6.0)["b"].tolist() == [4]
    with pytest.raises(BadArgument, match="a step size is a number"):
        optimizers.sgd(np.ones(2))
    with pytest.raises(ShapeError, match=r"values \[n \+ 1\]"):
        optimizers.piecewise_constant([1, 2], [1.0, 2.0])


@pytest.mark.peers
def test_layers_are_jaxs():
    jax = pytest.importorskip("jax")
    theirs = pytest.importorskip("jax.example_libraries.stax")
    init, predict = network(theirs)
    shape, params = init(jax.random.key(3), IMAGES.shape)
    ours, apply = network(stax)
    assert ours(random.key(3), IMAGES.shape)[0] == shape
    own = ours(random.key(3), IMAGES.shape)[1]
    pairs = zip(tree.leaves(own), jax.tree.leaves(params), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, np.asarray(b), rtol=1e-5, atol=1e-6)
    wanted = np.asarray(predict(params, IMAGES))
    np.testing.assert_allclose(apply(own, IMAGES), wanted, rtol=1e-4, atol=1e-5)
    key, x = 5, np.ones((3, 4), np.float32)
    wanted = theirs.Dropout(0.5)[1]((), x, rng=jax.random.key(key))
    assert stax.Dropout(0.5)[1]((), x, rng=random.key(key)).tolist() == np.asarray(wanted).tolist()


@pytest.mark.peers
@pytest.mark.parametrize(("name", "rest"), OPTIMIZERS)
def test_optimizers_are_jaxs(name, rest):
    theirs = pytest.importorskip("jax.example_libraries.optimizers")
    gradients = RANDOM.standard_normal((6, 2, 3)).astype(np.float32)
    found = []
    for module, array in ((optimizers, jnp.asarray), (theirs, np.asarray)):
        schedule = module.exponential_decay(0.1, 3, 0.5)
        init, update, get_params = getattr(module, name)(schedule, *rest)
        state = init([array(gradients[0])])
        for i, gradient in enumerate(gradients):
            state = update(i, [array(gradient)], state)
        found.append(np.asarray(get_params(state)[0]))
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.peers
@pytest.mark.parametrize(("name", "rest"), SCHEDULES)
def test_schedules_are_jaxs(name, rest):
    theirs = pytest.importorskip("jax.example_libraries.optimizers")
    for i in range(9):
        ours = float(getattr(optimizers, name)(*rest)(i))
        assert ours == pytest.approx(float(getattr(theirs, name)(*rest)(i)), rel=1e-6)
