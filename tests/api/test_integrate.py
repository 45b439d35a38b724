"""fxad.scipy.integrate.odeint against closed forms, their derivatives, and SciPy (peers)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, ShapeError
from fxad.scipy import integrate


@pytest.fixture(autouse=True)
def wide():
    with fxad.enable_x64():
        yield


def decay(y: Any, t: Any, rate: Any) -> Any:
    return -rate * y


TIMES = np.array([0.0, 0.5, 0.7, 3.0])


@pytest.mark.parametrize("times", [TIMES, TIMES[::-1].copy()])
def test_decay_and_its_derivatives(times: np.ndarray) -> None:
    ys = fxad.jit(lambda y, t, k: integrate.odeint(decay, y, t, k))(2.0, times, 1.3)
    exact = 2 * np.exp(-1.3 * (times - times[0]))
    np.testing.assert_allclose(ys, exact, rtol=1e-6)
    last = lambda y, t, k: integrate.odeint(decay, y, t, k)[-1]  # noqa: E731
    dy, dt, dk = fxad.grad(last, argnums=(0, 1, 2))(2.0, times, 1.3)
    span = times[-1] - times[0]
    assert float(dy) == pytest.approx(exact[-1] / 2, rel=1e-5)
    assert float(dk) == pytest.approx(-span * exact[-1], rel=1e-5)
    np.testing.assert_allclose(dt, [1.3 * exact[-1], 0, 0, -1.3 * exact[-1]], rtol=1e-5, atol=1e-4)
    _, forward = fxad.jvp(lambda k: last(2.0, times, k), (1.3,), (1.0,))
    assert float(forward) == pytest.approx(float(dk), rel=1e-9)
    second = fxad.grad(fxad.grad(lambda k: last(2.0, times, k)))(1.3)
    assert float(second) == pytest.approx(span**2 * exact[-1], rel=1e-4)


def test_oscillator_of_a_pytree() -> None:
    def swing(state: Any, t: Any) -> Any:
        return {"x": state["v"], "v": -state["x"]}

    times = np.linspace(0, 6, 13)
    out = integrate.odeint(swing, {"x": 1.0, "v": 0.0}, times)
    np.testing.assert_allclose(out["x"], np.cos(times), atol=1e-6)
    np.testing.assert_allclose(out["v"], -np.sin(times), atol=1e-6)
    rows = fxad.vmap(lambda x: integrate.odeint(swing, {"x": x, "v": 0.0}, times)["x"])
    np.testing.assert_allclose(
        rows(np.array([1.0, 2.0])), [np.cos(times), 2 * np.cos(times)], atol=1e-6
    )


def test_steps_run_out_and_wrong_arguments() -> None:
    out = integrate.odeint(decay, 1.0, np.array([0.0, 1.0]), 1.0, mxstep=2)
    assert float(out[0]) == 1 and math.isnan(out[1])
    explosion = integrate.odeint(lambda y, t: y * y, 1.0, np.array([0.0, 0.5, 2.0]), mxstep=300)
    assert float(explosion[1]) == pytest.approx(2, rel=1e-6) and not np.isfinite(explosion[2])
    with pytest.raises(ShapeError, match="vector of times"):
        integrate.odeint(decay, 1.0, 2.0, 1.0)
    with pytest.raises(BadArgument, match="mxstep"):
        integrate.odeint(decay, 1.0, TIMES, 1.0, mxstep=0)


@pytest.mark.peers
def test_like_scipy() -> None:
    peer = pytest.importorskip("scipy.integrate")
    f = lambda y, t, a: -np.sqrt(t) - y + a - np.mean(y**2)  # noqa: E731
    g = lambda y, t, a: -jnp.sqrt(t) - y + a - jnp.mean(y**2)  # noqa: E731
    y0, a, times = np.array([0.1, 0.5, -0.3]), np.array([1.0, 0.2, 0.4]), np.linspace(0.1, 2.2, 6)
    wanted = peer.odeint(f, y0, times, (a,), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(integrate.odeint(g, y0, times, a), wanted, atol=1e-6)
