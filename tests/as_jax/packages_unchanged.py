"""Equinox, lineax, optimistix, diffrax, flax, haiku and numpyro as published, with fxad as JAX.

    python -m pytest -p fxad.as_jax tests/as_jax/packages_unchanged.py

in an environment with these packages and without JAX (`.ci/run` makes one). With JAX and without
the plugin the same tests are of JAX. Wanted values are SciPy's, NumPy's or known in closed form.
"""

import diffrax
import equinox as eqx
import equinox.internal as eqxi
import flax.linen as nn
import flax.nnx as nnx
import haiku as hk
import jax
import jax.numpy as jnp
import jax.random as jr
import lineax
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import optimistix
import pytest
from jaxtyping import Key, UInt32
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO, autoguide

KEY = jr.PRNGKey(0)
A = np.random.default_rng(0).standard_normal((4, 4)).astype("f4") + 4 * np.eye(4, dtype="f4")
S = A @ A.T
B = np.arange(1.0, 5.0, dtype="f4")


def close(found, wanted, tol=1e-4):
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=tol, atol=tol)


# ---------------------------------------------------------------- equinox


def test_a_network_trains():
    model = eqx.nn.MLP(2, 1, 32, 2, key=KEY)
    x = jr.normal(jr.PRNGKey(1), (64, 2))
    y = jnp.sin(x[:, :1])
    optimiser = optax.adam(1e-2)
    state = optimiser.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_value_and_grad
    def loss_of(model):
        return jnp.mean((jax.vmap(model)(x) - y) ** 2)

    @eqx.filter_jit
    def step(model, state):
        loss, grads = loss_of(model)
        updates, state = optimiser.update(grads, state, eqx.filter(model, eqx.is_array))
        return eqx.apply_updates(model, updates), state, loss

    for _ in range(150):
        model, state, loss = step(model, state)
    assert float(loss) < 2e-3


def test_layers():
    """Outputs of other people's layers against what they are by definition."""
    x = jr.normal(KEY, (5, 8))
    norm = jax.vmap(eqx.nn.LayerNorm(8))(x)
    close(norm.mean(-1), np.zeros(5))
    close(norm.std(-1), np.ones(5), 1e-2)
    attention = eqx.nn.MultiheadAttention(2, 8, key=KEY)
    assert eqx.filter_jit(lambda a, x: a(x, x, x))(attention, x).shape == (5, 8)
    conv = eqx.nn.Conv1d(1, 1, 3, padding="SAME", key=KEY)
    signal = np.arange(6.0, dtype="f4")
    weight, bias = np.asarray(conv.weight)[0, 0], float(conv.bias[0, 0])
    close(conv(signal[None])[0], np.correlate(signal, weight, "same") + bias)
    assert eqx.nn.AdaptiveAvgPool2d(2)(jnp.ones((1, 6, 6))).shape == (1, 2, 2)
    stateful, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, "batch", mode="batch")
    lanes = jax.vmap(stateful, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
    found, state = lanes(jnp.arange(12.0).reshape(4, 3), state)
    close(found[:, 0], (np.arange(4) - 1.5) / np.sqrt(1.25))


def test_filtered_transformations():
    close(eqx.filter_jvp(lambda x, n: x**n, (jnp.array(3.0), 2), (jnp.array(1.0), None))[1], 6.0)
    close(eqx.filter_hessian(lambda x: (x**3).sum())(jnp.arange(3.0)), np.diag([0.0, 6, 12]))
    make = eqx.filter_vmap(lambda key: eqx.nn.Linear(2, 3, key=key))
    ensemble = make(jr.split(KEY, 4))
    found = eqx.filter_vmap(lambda m, x: m(x), in_axes=(eqx.if_array(0), None))(
        ensemble, jnp.ones(2)
    )
    close(found, ensemble.weight.sum(-1) + ensemble.bias)
    compiled = eqx.filter_jit(lambda x, n: x * n).lower(jnp.ones(2), 3).compile()
    close(compiled(jnp.ones(2), 3), [3.0, 3.0])


def test_custom_rules():
    @eqx.filter_custom_vjp
    def product(x, y):
        return x * y

    product.def_fwd(lambda perturbed, x, y: (product(x, y), (x, y)))
    product.def_bwd(lambda res, ct, perturbed, x, y: ct * 7 if perturbed else None)
    close(jax.grad(lambda x: product(x, jnp.array(3.0)))(jnp.array(2.0)), 7.0)


@pytest.mark.parametrize("kind", ["lax", "checkpointed", "bounded"])
def test_loops(kind):
    def f(x):
        body = lambda state: (state[0] + 1, state[1] * 1.1)  # noqa: E731
        options = {} if kind == "lax" else {"max_steps": 16}
        return eqxi.while_loop(lambda s: s[0] < 10, body, (0, x), kind=kind, **options)[1]

    close(eqx.filter_jit(f)(2.0), 2 * 1.1**10)
    if kind != "lax":
        close(eqx.filter_jit(jax.grad(f))(2.0), 1.1**10)


def test_errors_of_values_are_raised():
    f = eqx.filter_jit(lambda x: eqx.error_if(x, x < 0, "is negative"))
    close(f(jnp.array(1.0)), 1.0)
    with pytest.raises(RuntimeError, match="is negative"):
        f(jnp.array(-1.0))


def test_annotations_of_typed_keys():
    """By jaxtyping, which asks for the name of the dtype's class."""
    typed, words = jr.split(jr.key(0), 3), jr.split(KEY, 3)
    assert isinstance(typed, Key[jax.Array, "3"]) and isinstance(typed[0], Key[jax.Array, ""])
    assert not isinstance(words, Key[jax.Array, "..."])
    assert not isinstance(typed, UInt32[jax.Array, "..."])
    assert isinstance(words, UInt32[jax.Array, "3 2"])


# ---------------------------------------------------------------- lineax


@pytest.mark.parametrize("solver", ["LU", "QR", "SVD", "GMRES", "CG", "Cholesky", "Triangular"])
def test_linear_solvers(solver):
    matrix, tags = A, ()
    if solver in ("CG", "Cholesky"):
        matrix, tags = S, lineax.positive_semidefinite_tag
    elif solver == "Triangular":
        matrix, tags = np.tril(A), lineax.lower_triangular_tag
    options = {"rtol": 1e-6, "atol": 1e-6} if solver in ("CG", "GMRES") else {}
    operator = lineax.MatrixLinearOperator(jnp.asarray(matrix), tags)
    solve = lambda b: lineax.linear_solve(operator, b, getattr(lineax, solver)(**options)).value  # noqa: E731
    close(solve(B), np.linalg.solve(matrix, B))
    close(jax.jit(jax.jacrev(solve))(B), np.linalg.inv(matrix))
    close(jax.vmap(solve)(np.stack([B, 2 * B])), np.linalg.solve(matrix, np.stack([B, 2 * B]).T).T)


def test_least_squares_and_operators():
    tall = np.random.default_rng(1).standard_normal((5, 3)).astype("f4")
    b = np.arange(5.0, dtype="f4")
    operator = lineax.MatrixLinearOperator(jnp.asarray(tall))
    found = lineax.linear_solve(operator, b, lineax.AutoLinearSolver(well_posed=None)).value
    close(found, np.linalg.lstsq(tall, b)[0])
    jacobian = lineax.JacobianLinearOperator(lambda x, args: x**3, jnp.asarray(B))
    close(lineax.linear_solve(jacobian, B).value, 1 / (3 * B))
    by_matrix = jax.grad(lambda m: lineax.linear_solve(lineax.MatrixLinearOperator(m), B).value[0])
    inverse = np.linalg.inv(A)
    close(by_matrix(jnp.asarray(A)), -np.outer(inverse[0], inverse @ B))


# ---------------------------------------------------------------- optimistix


def banana(y, args):
    return (1 - y[0]) ** 2 + 100 * (y[1] - y[0] ** 2) ** 2


@pytest.mark.parametrize("solver", ["BFGS", "DFP", "LBFGS", "NelderMead"])
def test_minimisers(solver):
    made = getattr(optimistix, solver)(rtol=1e-6, atol=1e-6)
    found = optimistix.minimise(banana, made, jnp.array([0.0, 0.5]), max_steps=1000)
    close(found.value, [1.0, 1.0], 1e-3)


@pytest.mark.parametrize("solver", ["GaussNewton", "LevenbergMarquardt", "Dogleg"])
def test_least_squares(solver):
    residuals = lambda y, args: jnp.array([1 - y[0], 10 * (y[1] - y[0] ** 2)])  # noqa: E731
    made = getattr(optimistix, solver)(rtol=1e-6, atol=1e-6)
    found = optimistix.least_squares(residuals, made, jnp.array([0.0, 0.5]), max_steps=500)
    close(found.value, [1.0, 1.0])


def test_roots_and_their_derivatives():
    """y = a cos(y), and dy/da = cos(y) / (1 + a sin(y))."""

    def root(a):
        solver = optimistix.Newton(rtol=1e-6, atol=1e-6)
        return optimistix.root_find(
            lambda y, a: y - a * jnp.cos(y), solver, jnp.array(0.5), a
        ).value

    y, slope = eqx.filter_jit(jax.value_and_grad(root))(jnp.array(1.0))
    close(y, 0.7390851)
    close(slope, np.cos(0.7390851) / (1 + np.sin(0.7390851)))


# ---------------------------------------------------------------- diffrax

DECAY = diffrax.ODETerm(lambda t, y, args: -y)
ADAPTIVE = diffrax.PIDController(rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "solver", ["Heun", "Bosh3", "Tsit5", "Dopri8", "Kvaerno5", "ImplicitEuler"]
)
def test_solvers(solver):
    tol = 1e-2 if solver == "ImplicitEuler" else 1e-4
    made = getattr(diffrax, solver)()
    found = diffrax.diffeqsolve(
        DECAY, made, 0.0, 1.0, 0.01, jnp.array(1.0), stepsize_controller=ADAPTIVE, max_steps=1 << 14
    )
    close(found.ys, [np.exp(-1)], tol)


@pytest.mark.parametrize(
    "adjoint", ["RecursiveCheckpointAdjoint", "DirectAdjoint", "BacksolveAdjoint", "ForwardMode"]
)
def test_adjoints(adjoint):
    def end(y):
        made = getattr(diffrax, adjoint)()
        solved = diffrax.diffeqsolve(
            DECAY, diffrax.Tsit5(), 0.0, 1.0, 0.1, y, adjoint=made, max_steps=64
        )
        return solved.ys[0]

    derivative = jax.jacfwd if adjoint == "ForwardMode" else jax.grad
    close(jax.jit(derivative(end))(jnp.array(1.0)), np.exp(-1))


def test_where_and_when_a_solution_is_saved():
    ts = jnp.linspace(0, 1, 5)
    save = diffrax.SaveAt(ts=ts, dense=True)
    found = diffrax.diffeqsolve(
        DECAY, diffrax.Tsit5(), 0.0, 1.0, 0.1, jnp.array(1.0), saveat=save,
        stepsize_controller=ADAPTIVE,
    )  # fmt: skip
    close(found.ys, np.exp(-ts))
    close(found.evaluate(0.37), np.exp(-0.37))
    event = diffrax.Event(
        lambda t, y, args, **kwargs: y - 0.5, optimistix.Newton(rtol=1e-6, atol=1e-6)
    )
    halved = diffrax.diffeqsolve(
        DECAY, diffrax.Tsit5(), 0.0, 5.0, 0.1, jnp.array(1.0), event=event,
        stepsize_controller=ADAPTIVE,
    )  # fmt: skip
    close(halved.ts, [np.log(2)], 1e-3)


def test_stochastic_equations():
    """The mean of an Ornstein-Uhlenbeck process over 400 paths."""

    def end(key):
        path = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-2, shape=(), key=key)
        noise = diffrax.ControlTerm(lambda t, y, args: 0.3, path)
        terms = diffrax.MultiTerm(DECAY, noise)
        return diffrax.diffeqsolve(terms, diffrax.Heun(), 0.0, 1.0, 0.05, jnp.array(1.0)).ys[0]

    ends = jax.jit(jax.vmap(end))(jr.split(KEY, 400))
    close(ends.mean(), np.exp(-1), 0.05)
    close(ends.std(), 0.3 * np.sqrt((1 - np.exp(-2)) / 2), 0.03)


def test_a_neural_ode_trains():
    class Field(eqx.Module):
        mlp: eqx.nn.MLP

        def __call__(self, t, y, args):
            return self.mlp(y)

    model = Field(eqx.nn.MLP(2, 2, 16, 2, activation=jax.nn.softplus, key=KEY))
    ts, starts = jnp.linspace(0, 1, 8), jr.normal(jr.PRNGKey(1), (5, 2))
    turn = jnp.stack([jnp.cos(ts), -jnp.sin(ts), jnp.sin(ts), jnp.cos(ts)], -1).reshape(-1, 2, 2)
    wanted = jnp.einsum("tij,bj->bti", turn, starts)

    def solved(model, y):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(model), diffrax.Tsit5(), 0.0, 1.0, 0.1, y,
            saveat=diffrax.SaveAt(ts=ts),
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-6),
        ).ys  # fmt: skip

    optimiser = optax.adam(1e-2)
    state = optimiser.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit
    def step(model, state):
        def loss_of(model):
            return jnp.mean((jax.vmap(solved, (None, 0))(model, starts) - wanted) ** 2)

        loss, grads = eqx.filter_value_and_grad(loss_of)(model)
        updates, state = optimiser.update(grads, state)
        return eqx.apply_updates(model, updates), state, loss

    model, state, first = step(model, state)
    for _ in range(60):
        model, state, loss = step(model, state)
    assert float(loss) < float(first) / 20


# ---------------------------------------------------------------- flax, haiku


class ConvNet(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.BatchNorm(use_running_average=not train)(nn.Conv(8, (3, 3))(x))
        x = nn.avg_pool(nn.relu(x), (2, 2), strides=(2, 2))
        x = nn.Dropout(0.1, deterministic=not train)(x.reshape((x.shape[0], -1)))
        return nn.Dense(10)(x)


def test_a_convolutional_network_of_flax_trains():
    x, y = jr.normal(KEY, (16, 8, 8, 1)), jnp.arange(16) % 10
    model, optimiser = ConvNet(), optax.adam(1e-2)
    variables = model.init(KEY, x, False)
    params, stats = variables["params"], variables["batch_stats"]
    state = optimiser.init(params)

    @jax.jit
    def step(params, stats, state, key):
        def loss_of(params):
            given = {"params": params, "batch_stats": stats}
            logits, changed = model.apply(
                given, x, True, mutable=["batch_stats"], rngs={"dropout": key}
            )
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, y)
            return losses.mean(), changed["batch_stats"]

        (loss, stats_after), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
        updates, after = optimiser.update(grads, state)
        return optax.apply_updates(params, updates), stats_after, after, loss

    for key in jr.split(KEY, 60):
        params, stats, state, loss = step(params, stats, state, key)
    assert float(loss) < 0.1


def test_lifted_transformations_of_flax():
    """A scan over three dense layers, each recomputed in the backward pass, against a loop."""

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, carry, _):
            return jnp.tanh(nn.Dense(3)(carry)), None

    class Stack(nn.Module):
        @nn.compact
        def __call__(self, x):
            scanned = nn.scan(
                nn.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=3
            )
            return scanned()(x, None)[0]

    model, x = Stack(), jr.normal(KEY, (2, 3))
    params = model.init(KEY, x)
    kernels, biases = (
        next(
            leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params) if name in str(path)
        )
        for name in ("kernel", "bias")
    )

    def looped(x):
        for kernel, bias in zip(kernels, biases, strict=True):
            x = jnp.tanh(x @ kernel + bias)
        return x

    close(jax.jit(model.apply)(params, x), looped(x))
    close(
        jax.grad(lambda x: model.apply(params, x).sum())(x), jax.grad(lambda x: looped(x).sum())(x)
    )
    recurrent = nn.RNN(nn.LSTMCell(4))
    variables = recurrent.init(KEY, jnp.ones((2, 6, 3)))
    assert recurrent.apply(variables, jnp.ones((2, 6, 3))).shape == (2, 6, 4)
    lazily = nn.Dense(3).lazy_init(KEY, jax.ShapeDtypeStruct((1, 2), jnp.float32))
    close(lazily["params"]["kernel"], nn.Dense(3).init(KEY, jnp.ones((1, 2)))["params"]["kernel"])


class Perceptron(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(2, 32, rngs=rngs)
        self.norm = nnx.BatchNorm(32, rngs=rngs)
        self.dropout = nnx.Dropout(0.05, rngs=rngs)
        self.last = nnx.Linear(32, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(self.dropout(nnx.relu(self.norm(self.first(x)))))


def test_a_module_of_nnx_trains():
    model = Perceptron(nnx.Rngs(0))
    optimiser = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    x = jr.normal(KEY, (64, 2))
    y = jnp.sin(x[:, :1])

    def loss_of(model):
        return jnp.mean((model(x) - y) ** 2)

    @nnx.jit
    def step(model, optimiser):
        loss, grads = nnx.value_and_grad(loss_of)(model)
        optimiser.update(model, grads)
        return loss

    first = float(step(model, optimiser))
    for _ in range(150):
        loss = step(model, optimiser)
    assert float(loss) < first / 10
    assert int(optimiser.step[...]) == 151
    # Where the mean of what the norm saw is known: 0 of the inputs, then linear.
    close(model.norm.mean[...], model.first(x).mean(0), 0.1)

    model.eval()  # statistics as they are, no dropout
    close(model(x), model(x), 0)
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    assert {path[0] for path, _ in nnx.to_flat_state(params)} == {"first", "norm", "last"}
    close(nnx.merge(graph, params, rest)(x), model(x), 1e-6)
    halved = jax.tree.map(lambda p: p / 2, params)
    close(nnx.merge(graph, halved, rest).last.bias[...], model.last.bias[...] / 2, 1e-6)
    pure = jax.jit(lambda params, x: nnx.merge(graph, params, rest)(x))
    close(pure(params, x), model(x), 1e-5)


def test_lifted_transformations_of_nnx():
    """A vmap that makes three layers, and a scan over them, against a loop."""

    @nnx.vmap(in_axes=0, out_axes=0)
    def make(key):
        return nnx.Linear(3, 3, rngs=nnx.Rngs(key))

    @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
    def forward(layer, x):
        return jnp.tanh(layer(x))

    layers, x = make(jr.split(KEY, 3)), jr.normal(KEY, (2, 3))
    assert layers.kernel.shape == (3, 3, 3)

    def looped(kernels, x):
        for kernel in kernels:
            x = jnp.tanh(x @ kernel)
        return x

    kernels = layers.kernel[...]
    close(nnx.jit(forward)(layers, x), looped(kernels, x))
    slopes = nnx.grad(lambda layers, x: forward(layers, x).sum())(layers, x)
    close(slopes.kernel[...], jax.grad(lambda k, x: looped(k, x).sum())(kernels, x))


def test_a_network_of_haiku_trains():
    network = hk.transform_with_state(
        lambda x: hk.Linear(1)(jnp.tanh(hk.BatchNorm(True, True, 0.9)(hk.Linear(16)(x), True)))
    )
    x = jr.normal(KEY, (32, 2))
    y = jnp.sin(x[:, :1])
    optimiser = optax.adam(1e-2)
    params, stats = network.init(KEY, x)
    state = optimiser.init(params)

    @jax.jit
    def step(params, stats, state):
        def loss_of(params):
            found, after = network.apply(params, stats, None, x)
            return jnp.mean((found - y) ** 2), after

        (loss, stats), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
        updates, state = optimiser.update(grads, state)
        return optax.apply_updates(params, updates), stats, state, loss

    for _ in range(200):
        params, stats, state, loss = step(params, stats, state)
    assert float(loss) < 0.01


# ---------------------------------------------------------------- numpyro


def model_of_numpyro(y=None):
    mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
    with numpyro.plate("data", 20):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def test_numpyro_samples_and_fits():
    """A normal mean, whose posterior is known: precision 1/4 + 20, mean sum(y) over it."""
    y = jnp.asarray(np.random.default_rng(0).standard_normal(20) + 1, jnp.float32)
    wanted, spread = float(y.sum()) / 20.25, 20.25**-0.5
    sampler = MCMC(NUTS(model_of_numpyro), num_warmup=300, num_samples=1000, progress_bar=False)
    sampler.run(KEY, y=y)
    means = sampler.get_samples()["mean"]
    close(means.mean(), wanted, 0.04)
    close(means.std(), spread, 0.04)
    guide = autoguide.AutoNormal(model_of_numpyro)
    fit = SVI(model_of_numpyro, guide, numpyro.optim.Adam(0.02), Trace_ELBO())
    found = fit.run(KEY, 1000, y=y, progress_bar=False)
    close(guide.median(found.params)["mean"], wanted, 0.1)
