"""AdamW and clipping against NumPy in float64, schedules at their corners."""

import math

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad_nn import optim
from fxad_nn.errors import ConfigError
from fxad_nn.loss_scale import with_loss_scale
from fxad_nn.spec import Leaf, named_leaves, normal, zeros


def numpy_adamw(params, grads_of, rates, beta1, beta2, epsilon, decay):
    """The published algorithm, one dict of float64 arrays."""
    mean = {k: np.zeros_like(p) for k, p in params.items()}
    square = {k: np.zeros_like(p) for k, p in params.items()}
    for t, rate in enumerate(rates, start=1):
        for k, g in grads_of(t).items():
            mean[k] = beta1 * mean[k] + (1 - beta1) * g
            square[k] = beta2 * square[k] + (1 - beta2) * g * g
            corrected = mean[k] / (1 - beta1**t), square[k] / (1 - beta2**t)
            if params[k].ndim >= 2:
                params[k] = params[k] - rate * decay * params[k]
            params[k] = params[k] - rate * corrected[0] / (np.sqrt(corrected[1]) + epsilon)
    return params


@pytest.mark.parametrize("compiled", [False, True])
def test_adamw_follows_the_paper(compiled):
    r = np.random.default_rng(0)
    start = {"w": r.normal(size=(3, 4)), "b": r.normal(size=4)}
    grads = {t: {k: r.normal(size=p.shape) for k, p in start.items()} for t in range(1, 6)}
    schedule = optim.cosine(0.1, 0.01, warmup=2, steps=5)
    rates = [float(schedule(np.float32(t))) for t in range(5)]
    expected = numpy_adamw(dict(start), grads.get, rates, 0.9, 0.99, 1e-8, 0.2)

    adamw = optim.adamw(schedule, 0.9, 0.99, weight_decay=0.2)
    update = fxad.jit(adamw.update) if compiled else adamw.update
    params = {k: jnp.asarray(p, "float32") for k, p in start.items()}
    state = adamw.init(params)
    for t in range(1, 6):
        step = {k: jnp.asarray(g, "float32") for k, g in grads[t].items()}
        params, state = update(step, state, params)
    assert int(state["step"]) == 5
    for k in start:  # five float32 updates of size 0.1
        np.testing.assert_allclose(params[k], expected[k], rtol=2e-6, atol=2e-6)


def test_a_mask_chooses_what_decays_and_bfloat16_keeps_its_dtype():
    adamw = optim.adamw(0.5, weight_decay=1.0, decayed=lambda params: {"a": True, "b": False})
    params = {k: jnp.ones((2,), "bfloat16") for k in "ab"}
    still = {k: jnp.zeros((2,), "bfloat16") for k in "ab"}
    state = adamw.init(params)
    assert str(state["mean"]["a"].dtype) == "float32"
    params, _ = adamw.update(still, state, params)
    assert str(params["a"].dtype) == "bfloat16"
    np.testing.assert_array_equal(np.asarray(params["a"], "float32"), [0.5, 0.5])
    np.testing.assert_array_equal(np.asarray(params["b"], "float32"), [1.0, 1.0])


def test_the_state_has_the_spec_it_claims():
    spec = {"w": Leaf((2, 3), "bfloat16", ("in", "out"), normal(1.0)), "n": [_vector(3)]}
    params = {"w": jnp.zeros((2, 3), "bfloat16"), "n": [jnp.zeros((3,))]}
    state = dict(named_leaves(optim.adamw(1.0).init(params)))
    claimed = dict(named_leaves(optim.state_spec(optim.adamw(1.0), spec)))
    assert state.keys() == claimed.keys()
    for name, leaf in claimed.items():
        assert (state[name].shape, str(state[name].dtype)) == (leaf.shape, leaf.dtype)


def _vector(size):
    return Leaf((size,), "float32", ("width",), zeros)


def test_clipping_scales_all_leaves_together():
    grads = {"a": jnp.asarray([3.0, 0.0]), "b": [jnp.asarray([[4.0]])]}
    clipped, norm = optim.clip_by_global_norm(grads, 1.0)
    assert float(norm) == pytest.approx(5.0, rel=1e-6)
    np.testing.assert_allclose(clipped["a"], [0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose(clipped["b"][0], [[0.8]], rtol=1e-6)
    same, _ = optim.clip_by_global_norm(grads, 5.5)
    np.testing.assert_array_equal(same["a"], grads["a"])
    broken, _ = optim.clip_by_global_norm({"a": jnp.asarray([np.nan, 1.0])}, 1.0)
    assert np.isnan(np.asarray(broken["a"])).all()


def rates(schedule, steps):
    return [float(schedule(np.float32(step))) for step in range(steps)]


def test_schedules_meet_their_corners():
    line = rates(optim.linear(1.0, 0.2, warmup=4, steps=12), 15)
    np.testing.assert_allclose(line[:4], [0.2, 0.4, 0.6, 0.8], rtol=1e-6)
    np.testing.assert_allclose([line[4], line[8], line[12], line[14]], [1.0, 0.6, 0.2, 0.2], 1e-6)
    wave = rates(optim.cosine(1.0, 0.2, warmup=4, steps=12), 15)
    expected = 0.2 + 0.8 * 0.5 * (1 + math.cos(math.pi * 2 / 8))
    np.testing.assert_allclose([wave[4], wave[6], wave[12]], [1.0, expected, 0.2], rtol=1e-6)
    flat = rates(optim.wsd(1.0, 0.0, warmup=2, steps=20, decay=0.25), 22)
    np.testing.assert_allclose(flat[2:16], 1.0)
    np.testing.assert_allclose(flat[15:22], [1, 0.8, 0.6, 0.4, 0.2, 0, 0], atol=1e-6)
    np.testing.assert_allclose(rates(optim.constant(0.5, warmup=1), 3), [0.25, 0.5, 0.5])
    np.testing.assert_allclose(rates(optim.constant(0.5), 2), 0.5)


def test_a_schedule_is_found_by_name_and_compiles():
    for name in optim.SCHEDULES:
        schedule = optim.schedule(name, 1.0, 0.1, 5, 10)
        compiled = fxad.jit(schedule)
        for step in (0.0, 4.0, 7.0, 20.0):  # a cosine may differ by an ulp or two
            eager = float(schedule(np.float32(step)))
            assert float(compiled(np.float32(step))) == pytest.approx(eager, rel=1e-6)
    with pytest.raises(ConfigError, match="did you mean 'cosine'"):
        optim.schedule("cosin", 1.0, 0.1, 5, 10)


def newton_schulz(g, steps=5):
    """The published iteration in float64."""
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / np.linalg.norm(x)
    for _ in range(steps):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if g.shape[0] > g.shape[1] else x


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (7, 7)])
def test_orthogonalized_keeps_singular_vectors(shape):
    g = np.random.default_rng(1).normal(size=shape)
    got = np.asarray(optim.orthogonalized(jnp.asarray(g, "float32")), np.float64)
    np.testing.assert_allclose(got, newton_schulz(g), atol=2e-5)
    u, _, v = np.linalg.svd(g, full_matrices=False)
    values = np.diag(u.T @ got @ v.T)
    assert 0.6 < values.min() <= values.max() < 1.25


@pytest.mark.parametrize("match_adamw", [False, True])
def test_muon_takes_the_matrices_of_blocks(match_adamw):
    r = np.random.default_rng(2)
    start = {
        "embed": {"token": r.normal(size=(9, 4))},
        "blocks": [{"up": {"weight": r.normal(size=(6, 4)), "bias": r.normal(size=6)}}],
    }
    params = fxad.tree.map(lambda x: jnp.asarray(x, "float32"), start)
    optimizer = optim.muon(
        0.05, weight_decay=0.2, match_adamw=match_adamw, others=optim.adamw(0.01)
    )
    state, update = optimizer.init(params), fxad.jit(optimizer.update)
    alone = optim.adamw(0.01)
    rest = {"embed": params["embed"], "bias": params["blocks"][0]["up"]["bias"]}
    rest_state = alone.init(rest)
    weight, mean = start["blocks"][0]["up"]["weight"], np.zeros((6, 4))
    for _ in range(3):
        grads = fxad.tree.map(lambda x: jnp.asarray(r.normal(size=x.shape), "float32"), start)
        g = np.asarray(grads["blocks"][0]["up"]["weight"], np.float64)
        mean = 0.95 * mean + 0.05 * g
        size = 0.2 * math.sqrt(6) if match_adamw else math.sqrt(6 / 4)
        direction = newton_schulz(0.95 * mean + 0.05 * g)
        weight = weight * (1 - 0.05 * 0.2) - 0.05 * size * direction
        params, state = update(grads, state, params)
        their = {"embed": grads["embed"], "bias": grads["blocks"][0]["up"]["bias"]}
        rest, rest_state = alone.update(their, rest_state, rest)
    np.testing.assert_allclose(params["blocks"][0]["up"]["weight"], weight, atol=5e-5)
    np.testing.assert_allclose(params["embed"]["token"], rest["embed"]["token"], atol=1e-7)
    np.testing.assert_allclose(params["blocks"][0]["up"]["bias"], rest["bias"], atol=1e-7)
    assert set(state["muon"]["mean"]["embed"].values()) == {None}


def test_groups_have_their_own_rates_and_frozen_leaves_stay():
    params = {"a": jnp.ones((2,)), "b": jnp.ones((2,)), "c": jnp.ones((2,))}
    names = {"a": "slow", "b": "fast", "c": "none"}
    groups = {"slow": optim.adamw(0.1), "fast": optim.adamw(0.5), "none": optim.frozen}
    optimizer = optim.by_group(groups, lambda params: names)
    grads = {name: jnp.ones((2,)) for name in "abc"}
    new, state = optimizer.update(grads, optimizer.init(params), params)
    # the first step of Adam is the rate itself, but for 1 - 0.999 in float32
    np.testing.assert_allclose([float(new[n][0]) for n in "abc"], [0.9, 0.5, 1.0], atol=1e-5)
    assert len(fxad.tree.leaves(state)) == 2 * 3
    with pytest.raises(ConfigError, match="no group 'slwo'; did you mean 'slow'"):
        optim.by_group(groups, lambda params: {"a": "slwo"}).init({"a": params["a"]})


def test_averaged_weights_follow_the_weights():
    optimizer = optim.with_average(optim.adamw(0.1, weight_decay=0.0), 0.5)
    params = {"w": jnp.ones((3,), "bfloat16")}
    state, average = optimizer.init(params), np.ones(3)
    for _ in range(4):
        params, state = optimizer.update({"w": jnp.ones((3,))}, state, params)
        average = 0.5 * average + 0.5 * np.asarray(params["w"], np.float64)
    np.testing.assert_allclose(state["average"]["w"], average, atol=1e-6)
    assert str(optim.averaged(state, params)["w"].dtype) == "bfloat16"
    with pytest.raises(ConfigError, match="decay of averaged weights"):
        optim.with_average(optimizer, 1.0)


def test_outliers_change_nothing_and_are_counted():
    r = np.random.default_rng(3)
    optimizer = optim.skip_outliers(optim.adamw(0.01), deviations=4.0, window=8)
    params, update = {"w": jnp.ones((50,))}, fxad.jit(optimizer.update)
    state = optimizer.init(params)
    for index in range(20):
        size = {12: 100.0, 15: np.nan}.get(index, 1.0)
        grads = {"w": jnp.asarray(size * r.normal(size=50), "float32")}
        new, new_state = update(grads, state, params)
        same = np.array_equal(new["w"], params["w"])
        assert same == (index in (12, 15)), index
        if same:
            assert int(new_state["optimizer"]["step"]) == int(state["optimizer"]["step"])
        params, state = new, new_state
    assert int(state["skipped"]) == 2
    with pytest.raises(ConfigError, match="deviations > 0"):
        optim.skip_outliers(optimizer, deviations=0)


def test_a_lasting_change_of_scale_is_soon_no_outlier():
    optimizer = optim.skip_outliers(optim.adamw(0.01), window=8)
    params, state = {"w": jnp.ones((1,))}, optimizer.init({"w": jnp.ones((1,))})
    sizes = [1.0, 1.1] * 5 + [50.0, 51.0] * 8
    for size in sizes:
        params, state = optimizer.update({"w": jnp.full((1,), size)}, state, params)
    assert 1 <= int(state["skipped"]) <= 4


def test_pairs_as_optax_makes_them_are_optimizers():
    def momentum_init(params):
        return fxad.tree.map(jnp.zeros_like, params)

    def momentum_update(grads, state, params):
        state = fxad.tree.map(lambda m, g: 0.9 * m + g, state, grads)
        return fxad.tree.map(lambda m: -0.1 * m, state), state

    class Pair:
        init = staticmethod(momentum_init)
        update = staticmethod(momentum_update)

    params = {"w": jnp.ones((2,), "bfloat16")}
    for pair in (Pair(), (momentum_init, momentum_update)):
        optimizer = optim.as_optimizer(pair)
        new, _ = optimizer.update({"w": jnp.ones((2,))}, optimizer.init(params), params)
        assert str(new["w"].dtype) == "bfloat16"
        np.testing.assert_allclose(np.asarray(new["w"], "float32"), 0.9, rtol=1e-2)
    assert optim.as_optimizer(optimizer) is optimizer
    # Wrapped, too: what such an update gives is added to the weights and does not replace them.
    wrappers = [
        lambda pair: optim.by_group({"all": pair}, lambda params: {"w": "all"}),
        lambda pair: optim.muon(0.1, others=pair),
        lambda pair: optim.with_average(pair, 0.5),
        optim.skip_outliers,
        with_loss_scale,
    ]
    for pair in (Pair(), (momentum_init, momentum_update)):
        for wrapped in [wrap(pair) for wrap in wrappers]:
            state = wrapped.init(params)
            new, state = wrapped.update({"w": jnp.ones((2,))}, state, params)
            np.testing.assert_allclose(np.asarray(new["w"], "float32"), 0.9, rtol=1e-2)
            optim.averaged(state, new)
        optim.state_spec(pair, {"w": Leaf((2,), "bfloat16", ("out",), zeros)})
    with pytest.raises(ConfigError, match="a pair of functions init and update, got 3"):
        optim.as_optimizer(3)


@pytest.mark.parametrize(
    "optimizer",
    [
        optim.muon(0.1),
        optim.with_average(optim.adamw(0.1), 0.9),
        optim.skip_outliers(optim.adamw(0.1)),
    ],
    ids=["muon", "average", "outliers"],
)
def test_states_have_the_spec_they_claim(optimizer):
    spec = {"w": Leaf((2, 3), "bfloat16", ("in", "out"), normal(1.0)), "n": [_vector(3)]}
    params = {"w": jnp.zeros((2, 3), "bfloat16"), "n": [jnp.zeros((3,))]}
    state = dict(named_leaves(optimizer.init(params)))
    claimed = dict(named_leaves(optim.state_spec(optimizer, spec)))
    assert {n: (x.shape, str(x.dtype)) for n, x in state.items()} == {
        n: (x.shape, x.dtype) for n, x in claimed.items()
    }
