"""The programs of docs/cookbook.md against NumPy, SciPy, PyTorch and formulas; and on JAX.

The page shows what they print and `tests/test_docs.py` runs it. Here their functions are called.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from benchmarks import cookbook

ROOT = Path(__file__).parent.parent


@pytest.fixture
def wide():
    with fxad.enable_x64():
        yield


def program(name: str) -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(cookbook.FOLDER / f"{name}.py")))


def slope(f: Callable[[np.ndarray], float], x: np.ndarray, h: float = 1e-5) -> np.ndarray:
    """Central differences in float64: errors of about h^2 and 1e-16 / h."""
    return np.array([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(len(x))])


def log_normal(y: np.ndarray, covariance: np.ndarray) -> float:
    """log density of N(0, covariance) at y."""
    _, log_det = np.linalg.slogdet(2 * np.pi * covariance)
    return -0.5 * (log_det + y @ np.linalg.solve(covariance, y))


def test_the_kalman_filter_is_the_joint_density(wide):
    p = program("kalman_filter")
    y = np.random.default_rng(0).normal(size=30)

    def joint(logs):
        """Observations are linear in the first state and all accelerations: M z + error."""
        f, g = np.array([[1, p.STEP], [0, 1]]), np.array([p.STEP**2 / 2, p.STEP])
        state, rows = np.eye(2, 2 + len(y)), []
        for i in range(len(y)):
            state = f @ state
            state[:, 2 + i] += g * np.exp(logs[0])
            rows.append(state[0])
        m = np.array(rows)
        return log_normal(y, m @ m.T + np.exp(2 * logs[1]) * np.eye(len(y)))

    logs = np.array([-0.4, -1.1])
    value, gradient = fxad.value_and_grad(p.log_likelihood)(logs, y)
    np.testing.assert_allclose(value, joint(logs), rtol=1e-12)
    np.testing.assert_allclose(gradient, slope(joint, logs), rtol=1e-7)


def _turning(y):
    return y @ jnp.array([[-0.2, -1.0], [1.0, -0.2]])


def test_the_ode_solver_and_its_gradients_are_the_matrix_exponential(wide):
    """Turning at rate 1 and shrinking at rate 0.2, whose exponential is a rotation times a number;
    errors are a few times the tolerance."""
    p, y, end = program("neural_ode"), np.array([1.0, 0.5]), 3.0
    rotation = np.array([[np.cos(end), -np.sin(end)], [np.sin(end), np.cos(end)]])
    turned, counts = np.exp(-0.2 * end) * rotation, []
    for tolerance in (1e-5, 1e-8):
        found, count = p.integrate(_turning, y, end, tolerance)
        np.testing.assert_allclose(found, y @ turned, atol=10 * tolerance)
        by_y, by_end = fxad.jacobian(
            lambda y, end: p.integrate(_turning, y, end, tolerance)[0], argnums=(0, 1)
        )(y, end)
        np.testing.assert_allclose(by_y, turned.T, atol=10 * tolerance)
        np.testing.assert_allclose(by_end, _turning(y @ turned), atol=10 * tolerance)
        counts.append(int(count))
    assert 2.5 < counts[1] / counts[0] < 5.5  # order 5: 1000^(1/5) = 4.0


def test_the_gradient_of_the_neural_ode_is_that_of_differences(wide):
    """Up to the tolerance: the derivative takes the steps as given, differences move them too."""
    p, r = program("neural_ode"), np.random.default_rng(0)
    start, target = r.normal(size=(2, 3, 2))
    flat, tree = fxad.flatten_util.ravel_pytree(
        {"in": r.normal(size=(2, 4)), "bias": np.zeros(4), "out": 0.3 * r.normal(size=(4, 2))}
    )

    def loss(flat):
        return p.loss(tree(flat), start, 2.0, target)[0]

    gradient = fxad.grad(loss)(flat)
    differences = slope(fxad.jit(loss), np.asarray(flat), 1e-4)
    np.testing.assert_allclose(gradient, differences, atol=2e-4 * np.abs(gradient).max())


@pytest.mark.peers
def test_the_ode_solver_follows_scipy(wide):
    peer = pytest.importorskip("scipy.integrate")
    p, start = program("neural_ode"), np.array([[1.2, -0.4], [0.3, 0.9]])
    found, _ = p.pendulum(start, 2.0)
    for y, end in zip(start, found, strict=True):
        right = peer.solve_ivp(
            lambda t, y: [y[1], -np.sin(y[0]) - 0.2 * y[1]], (0, 2), y, rtol=1e-10, atol=1e-12
        )
        np.testing.assert_allclose(end, right.y[:, -1], atol=1e-5)  # its tolerance is 1e-6


def test_monte_carlo_finds_a_known_gaussian(wide):
    p = program("hamiltonian_monte_carlo")
    mean, covariance = np.array([1.0, -2.0]), np.array([[1.0, 1.2], [1.2, 4.0]])
    precision = np.linalg.inv(covariance)

    def log_density(x):
        return -0.5 * (x - mean) @ precision @ (x - mean)

    @fxad.jit
    def chain(key):  # of long steps: some proposals must be refused
        scale = jnp.array([1.0, 2.0])
        return p.sample(log_density, key, jnp.zeros(2), 20_000, scale, leaps=3, size=0.9)

    draws, accepted = chain(fxad.random.key(0))
    assert 0.6 < float(accepted) < 0.95
    # 20,000 draws that are hardly correlated: standard errors of 0.01 deviations, here five of them
    deviations = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / deviations, 0, atol=0.05)
    np.testing.assert_allclose(np.cov(np.asarray(draws).T), covariance, rtol=0.05)


def test_monte_carlo_finds_the_posterior_that_sums_over_a_grid_give(wide):
    p = program("hamiltonian_monte_carlo")
    a, b = np.meshgrid(np.linspace(-6, 8, 500), np.linspace(-30, 50, 800), indexing="ij")
    log = -0.5 * ((a / 2) ** 2 + ((b - 10) / 10) ** 2)
    for dose, animals, deaths in zip(p.DOSES, p.ANIMALS, p.DEATHS, strict=True):
        chance = 1 / (1 + np.exp(-(a + b * dose)))
        with np.errstate(divide="ignore"):
            log += np.log(chance**deaths * (1 - chance) ** (animals - deaths))
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    starts = jnp.array([[-2.0, 0.0], [2.0, 0.0], [-2.0, 20.0], [2.0, 20.0]])
    draws, _ = p.chains(fxad.random.split(fxad.random.key(1), 4), starts)
    draws = np.asarray(draws[:, 500:]).reshape(-1, 2)
    for x, found in zip((a, b), draws.T, strict=True):
        mean = np.sum(weights * x)
        deviation = np.sqrt(np.sum(weights * (x - mean) ** 2))
        assert abs(found.mean() - mean) < 0.1 * deviation  # of 8,000 correlated draws
        assert abs(found.std() / deviation - 1) < 0.1


@pytest.mark.peers
def test_the_recurrent_network_is_that_of_pytorch():
    torch = pytest.importorskip("torch")
    p = program("recurrent_network")
    params, (xs, sums) = p.init(fxad.random.key(2)), p.sequences(fxad.random.key(3))
    value, gradient = fxad.jit(fxad.value_and_grad(p.loss))(params, xs, sums)
    net = torch.nn.GRU(2, p.WIDTH, bias=False, batch_first=True)
    out = torch.tensor(np.asarray(params["out"]), requires_grad=True)
    with torch.no_grad():
        net.weight_ih_l0.copy_(torch.tensor(np.asarray(params["input"])))
        net.weight_hh_l0.copy_(torch.tensor(np.asarray(params["state"])))
    last = net(torch.tensor(np.asarray(xs)))[1][0]
    loss = ((last @ out - torch.tensor(np.asarray(sums))) ** 2).mean()
    loss.backward()
    np.testing.assert_allclose(value, loss.item(), rtol=1e-5)
    for ours, theirs in (
        (gradient["input"], net.weight_ih_l0.grad),
        (gradient["state"], net.weight_hh_l0.grad),
        (gradient["out"], out.grad),
    ):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4, atol=1e-5)


def test_the_recurrent_network_is_a_loop_in_numpy():
    p = program("recurrent_network")
    params = {name: np.asarray(x) for name, x in p.init(fxad.random.key(2)).items()}
    x, h = np.random.default_rng(0).random((p.LENGTH, 2)), np.zeros(p.WIDTH)
    for each in x:
        a, b = params["input"] @ each, params["state"] @ h
        r, u, _ = 1 / (1 + np.exp(-(a + b).reshape(3, -1)))
        h = u * h + (1 - u) * np.tanh(a[2 * p.WIDTH :] + r * b[2 * p.WIDTH :])
    np.testing.assert_allclose(p.gru(params, x.astype(np.float32)), h, atol=1e-5)


def test_the_three_bodies_move_as_published_and_as_in_numpy(wide):
    p = program("three_bodies")
    published = np.array([0.93240737, 0.86473146]) / 2  # Chenciner and Montgomery (2000)
    square, drift = p.gap(published)
    assert float(square) ** 0.5 < 1e-4  # the error of the leapfrog's 2,000 steps
    assert abs(float(drift)) < 1e-9

    def gap(w):
        x = np.array([[0.97000436, -0.24308753], [-0.97000436, 0.24308753], [0, 0]])
        v, h = np.stack([w, w, -2 * w]), p.PERIOD / (p.SEGMENTS * p.STEPS)
        first = x, v

        def pulls(x):
            total = np.zeros_like(x)
            for i in range(3):
                for j in {0, 1, 2} - {i}:
                    total[i] += (x[j] - x[i]) / np.linalg.norm(x[j] - x[i]) ** 3
            return total

        for _ in range(p.SEGMENTS * p.STEPS):
            v = v + h / 2 * pulls(x)
            x = x + h * v
            v = v + h / 2 * pulls(x)
        return np.sum((x - first[0]) ** 2) + np.sum((v - first[1]) ** 2)

    w = np.array([0.46, 0.43])
    gradient = fxad.grad(lambda w: p.gap(w)[0])(w)
    np.testing.assert_allclose(p.gap(w)[0], gap(w), rtol=1e-9)
    np.testing.assert_allclose(gradient, slope(gap, w), rtol=1e-6)


def test_checkpoints_bound_the_memory_of_the_three_bodies_gradient(wide):
    text = (cookbook.FOLDER / "three_bodies.py").read_text()
    plain: dict[str, Any] = {"__name__": "plain"}
    exec(text.replace("@fxad.checkpoint", ""), plain)
    w, found, taken = np.array([0.46, 0.43]), [], []
    for gap in (program("three_bodies").gap, plain["gap"]):
        gradient = fxad.jit(fxad.grad(lambda w: gap(w)[0]))
        taken.append(gradient.lower(w).memory()["arena_bytes"])
        found.append(gradient(w))
    assert taken[0] < 100_000 and taken[1] > 1_500_000  # 12 numbers, 40 + 50 times or 2,000 times
    np.testing.assert_allclose(*found, rtol=1e-9)


@pytest.mark.peers
def test_the_soap_film_is_a_catenoid(monkeypatch):
    pytest.importorskip("scipy")
    p = program("soap_film")
    shown = _printed(p.main)
    page = (ROOT / "docs" / "cookbook.md").read_text()
    assert f"```py\nmain()\n```\n\n```text\n{shown}```" in page
    waist = 0.5  # of radius a cosh(z / a) through both rings: a fixed point of its equation
    for _ in range(200):
        waist = p.RADIUS / np.cosh(p.HEIGHT / 2 / waist)
    area = np.pi * (waist**2 * np.sinh(p.HEIGHT / waist) + waist * p.HEIGHT)
    # frustums of 100 equal heights are off by about 1e-4 / 12 of either
    np.testing.assert_allclose(cookbook.figures(shown)[::2], [area, waist], atol=1e-4)


def test_the_heat_equation_backwards_is_wieners_filter(wide):
    p = program("heat_equation")
    seen = np.random.default_rng(0).normal(size=(p.SIZE, p.SIZE))
    k = 2 * np.pi * np.fft.fftfreq(p.SIZE, 1 / p.SIZE)
    decay = np.exp(-p.TIME * (k[:, None] ** 2 + k**2))
    filtered = np.fft.ifft2(decay / (decay**2 + p.WEIGHT) * np.fft.fft2(seen)).real
    found = np.asarray(p.invert(seen))
    # residuals of CG are 1e-5, and eigenvalues of the Hessian at least WEIGHT
    assert np.linalg.norm(found - filtered) < 1e-3 * np.linalg.norm(filtered)
    sine = np.sin(2 * np.pi * np.arange(p.SIZE) / p.SIZE) * np.ones((p.SIZE, 1))
    decayed = np.exp(-4 * np.pi**2 * p.TIME) * sine
    np.testing.assert_allclose(p.diffuse(sine), decayed, atol=1e-12)


def test_the_gaussian_process_is_the_density_of_its_data(wide):
    p, r = program("gaussian_process"), np.random.default_rng(0)
    x, y, logs, new = r.random(25), r.normal(size=25), np.array([0.2, -1.0, -0.7]), r.random(4)

    def covariance(a, b, logs):
        return np.exp(2 * logs[0] - (a[:, None] - b) ** 2 / (2 * np.exp(2 * logs[1])))

    def noisy(logs):
        return covariance(x, x, logs) + np.exp(2 * logs[2]) * np.eye(25)

    value, gradient = fxad.value_and_grad(p.log_likelihood)(logs, x, y)
    np.testing.assert_allclose(value, log_normal(y, noisy(logs)), rtol=1e-11)
    np.testing.assert_allclose(gradient, slope(lambda v: log_normal(y, noisy(v)), logs), rtol=1e-7)
    across = covariance(x, new, logs)
    mean, deviation = p.predict(logs, x, y, new)
    np.testing.assert_allclose(mean, across.T @ np.linalg.solve(noisy(logs), y), rtol=1e-9)
    left = covariance(new, new, logs) - across.T @ np.linalg.solve(noisy(logs), across)
    np.testing.assert_allclose(deviation**2, np.diag(left), rtol=1e-9)


# ---------------------------------------------------------------- on JAX


def _printed(main: Callable[[], None]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main()
    return out.getvalue()


@pytest.mark.peers
@pytest.mark.parametrize("name", cookbook.PROGRAMS)
def test_programs_print_the_same_figures_on_jax(name):
    """The figures of the page, from JAX: the same but for the last digit shown."""
    pytest.importorskip("jax")
    space: dict[str, Any] = {"__name__": name}
    exec(compile(cookbook.source(name, "jax"), name, "exec"), space)
    printed = _printed(space["main"])
    page = (ROOT / "docs" / "cookbook.md").read_text()
    after = page.split(f"<!-- generated: program {name}")[1]
    shown = re.search(r"```text\n(.*?)```", after, re.DOTALL)[1]
    assert len(cookbook.figures(shown)) >= 3
    np.testing.assert_allclose(
        cookbook.figures(printed), cookbook.figures(shown), rtol=1e-3, atol=1e-3
    )


def test_programs_are_short():
    for name in cookbook.PROGRAMS:
        shown = (cookbook.FOLDER / f"{name}.py").read_text().split("if __name__ ==")[0]
        assert sum(bool(line.strip()) for line in shown.splitlines()) <= 60, name


def test_the_benchmark_measures_a_program(monkeypatch):
    monkeypatch.setattr(cookbook, "CALLS", 2)
    first, again = cookbook.rows(True, [], ["gaussian_process"])
    assert first["what"] == "gaussian_process, first run" and again["unit"] == "ms"
    assert 1e3 * first["fxad"] > again["fxad"] > 0
