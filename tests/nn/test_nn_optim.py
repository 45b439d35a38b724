"""AdamW and clipping against NumPy in float64, schedules at their corners."""

import math

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad_nn import optim
from fxad_nn.errors import ConfigError
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
    claimed = dict(named_leaves(optim.state_spec(spec)))
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
