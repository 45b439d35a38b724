"""Dynamic loss scaling: its sequence, what a skipped step leaves alone, and runs in float16."""

import signal

import numpy as np
import pytest
from short_run import At, options, same_as_unbroken

import fxad
import fxad.numpy as jnp
from fxad_nn import models, optim
from fxad_nn.errors import ConfigError
from fxad_nn.loss_scale import all_finite, loss_scale, scaled_value_and_grad, with_loss_scale
from fxad_nn.run import resumed_options
from fxad_nn.spec import init_params, named_leaves
from fxad_nn.step import train_step
from fxad_nn.train import train

BAD = (np.inf, -np.inf, np.nan)


def sgd(rate=0.1):
    def update(grads, state, params):
        stepped = fxad.tree.map(lambda p, g: p - rate * g, params, grads)
        return stepped, {"step": state["step"] + 1}

    return optim.Optimizer(lambda params: {"step": jnp.zeros((), jnp.int32)}, update)


class Oracle:
    """The rules of `torch.amp.GradScaler`, in Python."""

    def __init__(self, initial, interval):
        self.scale, self.good, self.interval = np.float32(initial), 0, interval

    def step(self, good):
        self.good = self.good + 1 if good else 0
        if not good:
            self.scale = self.scale * np.float32(0.5)
        elif self.good == self.interval:
            with np.errstate(over="ignore"):
                larger = self.scale * np.float32(2)
            self.scale, self.good = larger if np.isfinite(larger) else self.scale, 0


def outcomes(seed, steps, share):
    """Which of some steps have finite gradients."""
    return np.random.default_rng(seed).random(steps) > share


@pytest.mark.parametrize(
    ("initial", "interval", "share"),
    [(65536.0, 3, 0.2), (1.0, 1, 0.0), (2.0**126, 2, 0.1), (2.0**-140, 2, 0.6), (65536.0, 2000, 0)],
)
def test_the_scale_follows_the_rules(initial, interval, share):
    optimizer = with_loss_scale(sgd(), initial, interval=interval)
    params = {"w": jnp.ones((2, 3)), "b": jnp.zeros(3)}
    state, oracle = optimizer.init(params), Oracle(initial, interval)
    update = fxad.jit(optimizer.update)
    skipped = 0
    for step, good in enumerate(outcomes(0, 60 if interval < 2000 else 4001, share)):
        grads = {"w": np.full((2, 3), 0.5, np.float32), "b": np.ones(3, np.float32)}
        if not good:
            grads["w" if step % 2 else "b"].flat[step % 3] = BAD[step % 3]
        before = params, state["optimizer"]
        params, state = update(grads, state, params)
        oracle.step(good)
        skipped += not good
        assert float(state["scale"]) == oracle.scale, step
        assert int(state["good"]) == oracle.good
        assert int(state["skipped"]) == skipped
        if not good:
            for (_, left), (_, right) in zip(
                named_leaves(before), named_leaves((params, state["optimizer"])), strict=True
            ):
                np.testing.assert_array_equal(left, right)
    assert int(state["optimizer"]["step"]) == step + 1 - skipped


def test_numbers_that_cannot_be_are_refused():
    for wrong in (
        {"initial": 0.0},
        {"initial": np.inf},
        {"growth": 1.0},
        {"backoff": 1.0},
        {"backoff": 0.0},
    ):
        with pytest.raises(ConfigError, match="need a loss scale above 0"):
            with_loss_scale(sgd(), **wrong)
    with pytest.raises(ConfigError, match="after at least one step, not 0"):
        with_loss_scale(sgd(), interval=0)
    assert loss_scale(optim.adamw(1e-3).init({"w": jnp.ones(2)})) is None
    averaged = optim.with_average(with_loss_scale(sgd()), 0.9).init({"w": jnp.ones(2)})
    assert float(loss_scale(averaged)) == 65536.0
    assert bool(all_finite({}))


def test_the_value_is_that_of_the_function_however_large_the_scale():
    f = scaled_value_and_grad(lambda x, y: jnp.sum(x * y))
    x, y = np.full(4, 2.0, np.float32), np.full(4, 3.0, np.float32)
    for scale in (None, np.float32(8.0), np.float32(2.0**127)):
        value, grads = f(scale, x, y)
        assert float(value) == 24.0
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(grads, y * (scale or np.float32(1)))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_without_overflow_is_that_of_float32(accumulate):
    """Scaling by powers of two rounds nothing: products of float32 show it to the last bit."""
    config = models.preset("tiny")
    rng = np.random.default_rng(0)
    shape = (accumulate, 4, 16) if accumulate > 1 else (4, 16)
    batch = tuple(rng.integers(0, config.vocab, shape).astype(np.int32) for _ in range(2))
    found = []
    for wrap in (lambda o: o, with_loss_scale):
        params = init_params(models.family(config).spec(config), fxad.random.key(0))
        optimizer = wrap(optim.adamw(1e-2))
        state, step = optimizer.init(params), train_step(config, optimizer, 1.0, accumulate)
        for _ in range(3):
            params, state, loss = step(params, state, *batch)
        found.append((params, loss))
    for (name, left), (_, right) in zip(*map(named_leaves, found), strict=True):
        np.testing.assert_array_equal(left, right, err_msg=name)


def test_small_gradients_survive_in_float16_only_where_they_are_scaled():
    """Rounded to float16, cotangents below 3e-8 are 0."""
    x, w = jnp.ones((4, 8)), jnp.full((8, 8), 0.5)

    def loss(w, x):
        from fxad_nn.layers import linear

        return jnp.mean(linear({"weight": w}, x, "float16")) * 1e-6

    run = scaled_value_and_grad(loss)
    _, plain = run(None, w, x)
    _, scaled = run(np.float32(65536.0), w, x)
    exact = 1e-6 / 8
    assert not np.asarray(plain).any() or np.abs(np.asarray(plain) / exact - 1).max() > 0.01
    np.testing.assert_allclose(np.asarray(scaled) / 65536.0, exact, rtol=2e-3)


# Runs


def test_a_run_in_float16_learns_as_one_in_float32(tmp_path, text):
    more = {"steps": 60, "warmup": 2, "log_every": 5, "eval_every": 30}
    wide = train(options(tmp_path, text, out=tmp_path / "wide", **more))
    half = train(options(tmp_path, text, dtype="fp16", **more))
    state = half.run.state
    assert int(state["good"]) + int(state["skipped"]) == 60
    assert float(state["scale"]) == 65536.0 * 0.5 ** int(state["skipped"])
    # 11 bits round a product by 5e-4 of its size; after 60 steps the two have parted by more.
    assert half.val_loss == pytest.approx(wide.val_loss, rel=0.02)


def test_a_run_in_float16_resumes_with_its_scale(tmp_path, text):
    more = {"dtype": "float16", "average": 0.9, "skip_outliers": 6.0}

    def interrupt():
        signal.raise_signal(signal.SIGINT)

    first = train(options(tmp_path, text, **more), At(4, interrupt))
    assert first.interrupted and float(first.run.state["scale"]) > 0
    second = train(resumed_options(tmp_path / "run"))
    assert int(second.run.state["good"]) + int(second.run.state["skipped"]) == 8
    same_as_unbroken(tmp_path, text, second, **more)
    assert resumed_options(tmp_path / "run", dtype="fp16").dtype == "fp16"
    with pytest.raises(ConfigError, match="`dtype` cannot change from float16 to float32"):
        resumed_options(tmp_path / "run", dtype="float32")


def test_a_step_that_overflows_is_skipped(tmp_path):
    """With a scale that no cotangent of float16 bears at first."""
    config = models.preset("llama-tiny")
    params = init_params(models.family(config).spec(config), fxad.random.key(0))
    optimizer = with_loss_scale(optim.adamw(1e-2), initial=2.0**60)
    rng = np.random.default_rng(0)
    tokens, targets = (rng.integers(0, config.vocab, (4, 16)).astype(np.int32) for _ in range(2))
    step, state = train_step(config, optimizer, 1.0, dtype="float16"), optimizer.init(params)
    with pytest.raises(ConfigError, match="loss is scaled: wrap the optimizer"):
        step(params, state["optimizer"], tokens, targets)
    before = [np.array(leaf) for leaf in fxad.tree.leaves(params)]
    losses, scales = [], []
    for _ in range(60):
        params, state, loss = step(params, state, tokens, targets)
        losses.append(float(loss))
        scales.append(float(state["scale"]))
        if int(state["skipped"]) == len(losses):
            for left, right in zip(before, fxad.tree.leaves(params), strict=True):
                np.testing.assert_array_equal(left, right)
    skipped = int(state["skipped"])
    assert 20 < skipped < 50
    assert scales[:skipped] == [2.0 ** (59 - i) for i in range(skipped)]
    assert losses[skipped] == losses[0] and losses[-1] < 0.9 * losses[0]
    assert np.isfinite(losses).all()
