"""Dynamic loss scaling beside `torch.amp.GradScaler`, step by step."""

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad_nn import optim
from fxad_nn.loss_scale import loss_scale, scaled_value_and_grad, unscaled, with_loss_scale

pytestmark = pytest.mark.peers
torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("initial", "interval", "share"), [(65536.0, 3, 0.2), (2.0**126, 2, 0.05), (65536.0, 2000, 0.0)]
)
def test_scales_and_parameters_are_those_of_torch(initial, interval, share):
    """A loss sum(w x) whose x is infinite in some steps; SGD in both, of the same float32."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=5).astype(np.float32)
    theirs = torch.nn.Parameter(torch.from_numpy(w.copy()))
    sgd = torch.optim.SGD([theirs], lr=0.125)
    scaler = torch.amp.GradScaler("cpu", init_scale=initial, growth_interval=interval)

    def stepped(grads, state, params):
        return fxad.tree.map(lambda p, g: p - 0.125 * g, params, grads), state

    optimizer = with_loss_scale(
        optim.Optimizer(lambda params: {}, stepped), initial, interval=interval
    )
    ours, state = jnp.asarray(w), optimizer.init(jnp.asarray(w))

    @fxad.jit
    def step(ours, state, x):
        scale = loss_scale(state)
        _, grads = scaled_value_and_grad(lambda w: jnp.sum(w * x))(scale, ours)
        return optimizer.update(unscaled(grads, scale), state, ours)

    skipped = 0
    for number in range(80 if interval < 2000 else 4100):
        x = rng.normal(size=5).astype(np.float32) * np.float32(2.0**-20)
        if rng.random() < share:
            x[number % 5] = (np.inf, np.nan)[number % 2]
            skipped += 1
        sgd.zero_grad()
        scaler.scale((theirs * torch.from_numpy(x)).sum()).backward()
        scaler.step(sgd)
        scaler.update()
        ours, state = step(ours, state, x)
        assert float(state["scale"]) == scaler.get_scale(), number
        assert int(state["good"]) == scaler.state_dict()["_growth_tracker"]
        np.testing.assert_array_equal(ours, theirs.detach().numpy())
    assert int(state["skipped"]) == skipped
    assert skipped > 0 or share == 0


def test_the_defaults_are_those_of_torch():
    scaler = torch.amp.GradScaler("cpu")
    found = scaler.get_scale(), scaler.get_growth_factor(), scaler.get_backoff_factor()
    from fxad_nn.loss_scale import BACKOFF, GROWTH, INITIAL, INTERVAL

    assert (*found, scaler.get_growth_interval()) == (INITIAL, GROWTH, BACKOFF, INTERVAL)
