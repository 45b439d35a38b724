"""Training with products of bfloat16 factors: gradients, losses, and what stays float32."""

import numpy as np
import pytest

import fxad
from fxad_nn import models, optim
from fxad_nn.errors import ConfigError
from fxad_nn.layers import conv1d, linear
from fxad_nn.precision import in_precision
from fxad_nn.spec import init_params, named_leaves
from fxad_nn.step import train_step

EPS = 2.0**-7  # of bfloat16: rounding a factor moves it by at most half of this
PRODUCTS = 2 * 4 + 1  # on a path through two blocks, each with four in a row, and the head


def small(family, **more):
    name = {"gpt2": "tiny", "llama": "llama-tiny"}[family]
    # Wide enough for the smallest products to take the path of large ones.
    sizes = {"width": 64, "hidden": 128, "context": 32, "heads": 4}
    sizes |= ({"head_dim": 16} if family == "llama" else {}) | more
    return models.preset(name, **sizes)


def started(config, seed=0):
    params = init_params(models.family(config).spec(config), fxad.random.key(seed))
    tokens = np.random.default_rng(seed).integers(0, config.vocab, (4, config.context + 1))
    tokens = tokens.astype(np.int32)
    return params, np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])


def gradients(config, params, batch):
    loss = models.family(config).loss
    return fxad.jit(fxad.value_and_grad(lambda p, b: loss(p, b, config)))(params, batch)


def features(config, params, batch):
    """What the head sees: its shape and dtype."""
    found = models.family(config).features
    return fxad.eval_shape(lambda p, tokens: found(p, tokens, config), params, batch[0])


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_gradients_are_close_to_those_of_float32(family):
    """Every product on a path forward and back rounds two factors by EPS / 2 at most, so moves the
    gradient by at most EPS of its size where nothing amplifies that; and it does move it."""
    config, wide = small(family, products="bfloat16"), small(family)
    params, *batch = started(config)
    (loss, grads), (expected_loss, expected) = (
        gradients(c, params, tuple(batch)) for c in (config, wide)
    )
    assert float(loss) == pytest.approx(float(expected_loss), rel=EPS)
    wanted = dict(named_leaves(expected))
    for name, got in named_leaves(grads):
        assert got.dtype == np.float32
        exact = np.asarray(wanted[name])
        error = np.linalg.norm(np.asarray(got) - exact) / np.linalg.norm(exact)
        assert 1e-5 < error <= 2 * PRODUCTS * EPS, (name, error)


@pytest.mark.parametrize("layer", [linear, conv1d])
def test_a_linear_layer_rounds_its_factors_and_nothing_else(layer):
    """Forward and backward against float64 products of factors rounded by hand."""
    rng = np.random.default_rng(0)
    x, w, d_y = (rng.standard_normal(s).astype(np.float32) for s in ((2, 24, 40), (40, 72), 72))
    bias = rng.standard_normal(72).astype(np.float32)
    lies = (lambda a: a.T) if layer is linear else (lambda a: a)  # [out, in] or [in, out]
    p = {"weight": np.ascontiguousarray(lies(w)), "bias": bias}
    narrow = [np.asarray(fxad.numpy.asarray(a).astype("bfloat16"), np.float64) for a in (x, w, d_y)]
    y = np.asarray(fxad.jit(lambda p, x: layer(p, x, "bfloat16"))(p, x))
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, narrow[0] @ narrow[1] + bias, rtol=0, atol=40 * 1e-6)
    grads, d_x = fxad.jit(
        fxad.grad(lambda p, x: fxad.numpy.sum(layer(p, x, "bfloat16") * d_y), argnums=(0, 1))
    )(p, x)
    rows = np.ones((2, 24, 1)) * narrow[2]
    expected = np.einsum("bti,bto->io", narrow[0], rows)
    np.testing.assert_allclose(lies(np.asarray(grads["weight"])), expected, rtol=0, atol=48 * 2e-6)
    np.testing.assert_allclose(np.asarray(d_x), rows @ narrow[1].T, rtol=0, atol=72 * 2e-6)
    np.testing.assert_allclose(np.asarray(grads["bias"]), 48 * d_y, rtol=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_training_reaches_the_loss_of_float32(family):
    """Sixty steps on one batch: all learn it by heart, at nearly the same pace."""
    config = small(family)
    losses = {}
    for dtype in ("f32", "bf16", "mixed"):
        params, *batch = started(config)
        optimizer = optim.adamw(3e-3)
        step, state = train_step(config, optimizer, clip=1.0, dtype=dtype), optimizer.init(params)
        found = []
        for _ in range(60):
            params, state, loss = step(params, state, *batch)
            found.append(float(loss))
        losses[dtype] = np.array(found)
        assert {leaf.dtype for _, leaf in named_leaves(params)} == {np.dtype("float32")}
        moments = {np.asarray(leaf).dtype for _, leaf in named_leaves(state)}
        assert moments <= {np.dtype("float32"), np.dtype("int32")}
    assert losses["f32"][-1] < losses["f32"][0] / 2
    for narrow in ("bf16", "mixed"):
        np.testing.assert_allclose(losses[narrow], losses["f32"], rtol=0.05, atol=0.02)


SMALL = {"vocab": 65, "context": 32, "layers": 1, "heads": 4, "width": 64, "hidden": 128}
SMALL |= {"dtype": "float32"}
GROUPED = {"groups": 2, "head_dim": 16}
FAMILIES = {
    "gpt2": {"layers": 2},
    "llama3.2-1b": {**GROUPED, "layers": 2},
    "qwen3-0.6b": GROUPED,
    "phi3-mini": GROUPED,
    "gemma3-1b": {**GROUPED, "layers": 2, "window": 16, "local": (True, False)},
    "mixtral-8x7b": {**GROUPED, "experts": 4},
}


@pytest.mark.parametrize("name", FAMILIES)
def test_mixed_gradients_of_every_family_are_close_to_those_of_float32(name):
    """Every activation is rounded, by EPS / 2 at most: half a dozen in a block."""
    config = models.preset(name, **{**SMALL, **FAMILIES[name]})
    params, *batch = started(config)
    mixed = in_precision(config, "mixed")
    (loss, grads), (expected_loss, expected) = (
        gradients(c, params, tuple(batch)) for c in (mixed, config)
    )
    assert float(loss) == pytest.approx(float(expected_loss), rel=EPS)
    assert {leaf.dtype for _, leaf in named_leaves(grads)} == {np.dtype("float32")}
    assert features(mixed, params, batch).dtype == fxad.numpy.bfloat16
    both = [
        np.concatenate([np.asarray(leaf).ravel() for _, leaf in named_leaves(tree)])
        for tree in (grads, expected)
    ]
    error = np.linalg.norm(both[0] - both[1]) / np.linalg.norm(both[1])
    assert 1e-3 < error <= 6 * config.layers * EPS / 2


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_mixed_stores_activations_in_bfloat16(family):
    """What the head sees is bfloat16, and the plan takes less."""
    config = small(family, layers=4, width=128, hidden=512, context=128)
    params, *batch = started(config)
    optimizer = optim.adamw(1e-3)
    state, taken = optimizer.init(params), {}
    for precision in ("bf16", "mixed"):
        step = train_step(config, optimizer, clip=None, dtype=precision)
        low = step.lower(params, state, *batch)
        taken[precision] = low.planned_bytes(arguments=False)
    assert taken["mixed"] < 0.9 * taken["bf16"]
    config = in_precision(config, "mixed")
    assert features(config, params, batch).dtype == fxad.numpy.bfloat16


def test_mixed_leaves_parameters_and_moments_of_muon_float32():
    """Those of AdamW are seen above."""
    config, optimizer = small("llama"), optim.muon(1e-3)
    params, *batch = started(config)
    step = train_step(config, optimizer, clip=1.0, dtype="mixed")
    params, state, loss = step(params, optimizer.init(params), *batch)
    assert loss.dtype == np.float32
    for tree in (params, state):
        dtypes = {np.asarray(leaf).dtype for _, leaf in named_leaves(tree)}
        assert dtypes <= {np.dtype("float32"), np.dtype("int32")}


def test_accumulation_and_threads():
    config = small("gpt2")
    params, *batch = started(config)
    optimizer = optim.adamw(1e-3)
    before, found = fxad.get_num_threads(), []
    halves = [a.reshape(2, 2, -1) for a in batch]
    try:
        for threads in (1, 2):
            fxad.set_num_threads(threads)
            params, *_ = started(config)
            step = train_step(config, optimizer, clip=None, accumulate=2, dtype="bfloat16")
            new, _, loss = step(params, optimizer.init(params), *halves)
            found.append([np.asarray(leaf) for _, leaf in named_leaves(new)])
    finally:
        fxad.set_num_threads(before)
    assert np.isfinite(float(loss))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_unknown_dtype_is_named():
    for wrong, meant in (("bf61", "bf16"), ("mixd", "mixed")):
        with pytest.raises(ConfigError, match=f"did you mean '{meant}'"):
            train_step(small("gpt2"), optim.adamw(1e-3), clip=None, dtype=wrong)
