"""A linear head with cross-entropy becomes `linear_cross_entropy`; near misses do not."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax, nn
from fxad.core.dtypes import float64 as F
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.ops.fused.linear_cross_entropy import CHUNK, linear_cross_entropy

R = np.random.default_rng(0)
B, T, D, V = 2, 5, 6, 11
X, TABLE = R.standard_normal((B, T, D)), R.standard_normal((V, D))
TARGETS = R.integers(0, V, (B, T)).astype(np.int32)
WEIGHTS = R.random((B, T))


@pytest.fixture(autouse=True)
def _chunks_of_short_rows(monkeypatch):
    monkeypatch.setattr("fxad.ops.fused.linear_cross_entropy.SHORT", 0)


def log_softmax(np, z):
    z = z - np.max(z, axis=-1, keepdims=True)
    return z - np.log(np.sum(np.exp(z), axis=-1, keepdims=True))


def logsumexp(np, z):
    top = np.max(z, axis=-1, keepdims=True)
    return np.log(np.sum(np.exp(z - top), axis=-1)) + top[..., 0]


def taken(np, z, t):
    return np.take_along_axis(z, t[..., None], axis=-1)


# Each is written for NumPy and fxad alike; results and gradients must be those of NumPy.
FOUND = {
    "mean of log-probabilities": lambda np, x, w, t, u: (
        -np.mean(taken(np, log_softmax(np, x @ w.T), t))
    ),
    "difference": lambda np, x, w, t, u: np.mean(
        logsumexp(np, x @ w.T) - taken(np, x @ w.T, t)[..., 0]
    ),
    "rows joined": lambda np, x, w, t, u: np.sum(
        -log_softmax(np, np.reshape(x @ w.T, (B * T, V)))[np.arange(B * T), np.reshape(t, (-1,))]
    ),
    "rows joined before": lambda np, x, w, t, u: (
        3 * np.mean(taken(np, log_softmax(np, np.reshape(x, (B * T, D)) @ w.T), np.reshape(t, -1)))
    ),
    "one-hot": lambda np, x, w, t, u: (
        -np.mean(np.sum(log_softmax(np, x @ w.T) * (t[..., None] == np.arange(V)), axis=-1))
    ),
    "chosen": lambda np, x, w, t, u: np.mean(
        logsumexp(np, x @ w.T) - np.sum(np.where(t[..., None] == np.arange(V), x @ w.T, 0.0), -1)
    ),
    "weighted": lambda np, x, w, t, u: (
        np.sum((logsumexp(np, x @ w.T) - taken(np, x @ w.T, t)[..., 0]) * u) / np.sum(u)
    ),
    "counted": lambda np, x, w, t, u: (
        -np.sum(np.where(t != 3, taken(np, log_softmax(np, x @ w.T), t)[..., 0], 0.0))
        / np.sum(t != 3)
    ),
    "sum of means": lambda np, x, w, t, u: (
        -0.5 * np.sum(np.mean(taken(np, log_softmax(np, x @ w.T), t)[..., 0], axis=1))
    ),
    "einsum": lambda np, x, w, t, u: (
        -np.mean(taken(np, log_softmax(np, np.einsum("btd,vd->btv", x, w)), t))
    ),
    "matrix the other way": lambda np, x, w, t, u: (
        -np.mean(taken(np, log_softmax(np, x @ np.reshape(w, (D, V))), t))
    ),
}


def names(function, *args):
    program = fxad.jit(function).trace_for(args, {})[1].program
    return [e.op.name for e in program.eqns]


@pytest.mark.parametrize("name", sorted(FOUND))
def test_losses_in_many_forms_are_found_and_are_what_numpy_computes(name):
    function, args = FOUND[name], (X, TABLE, TARGETS, WEIGHTS)
    with fxad.enable_x64():
        ops = names(lambda *a: function(jnp, *a), *args)
        assert ops.count("linear_cross_entropy") == 1
        assert "exp" not in ops
        step = fxad.jit(fxad.value_and_grad(lambda *a: function(jnp, *a), argnums=(0, 1, 3)))
        value, grads = step(*args)
        np.testing.assert_allclose(value, function(np, *args), rtol=1e-13)
        chosen = [X, TABLE, WEIGHTS]
        ways = [R.standard_normal(a.shape) for a in chosen]
        slope = sum(np.sum(np.asarray(g) * w) for g, w in zip(grads, ways, strict=True))

        def moved(step):
            x, w, u = (a + step * way for a, way in zip(chosen, ways, strict=True))
            return function(np, x, w, TARGETS, u)

        h = 1e-3
        fine = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h)
        assert abs(slope - fine) < 1e-8 * (1 + abs(fine))


@pytest.mark.parametrize("name", sorted(FOUND))
def test_a_loss_is_found_at_the_end_of_a_large_program(name):
    def large(x, w, t, u):
        for _ in range(30):
            x = jnp.tanh(jnp.sin(x @ (w.T @ w)) * 2.0 + jnp.sqrt(x * x + 1.0)) - 0.5
        return FOUND[name](jnp, x, w, t, u)

    with fxad.enable_x64():
        assert names(large, X, TABLE, TARGETS, WEIGHTS).count("linear_cross_entropy") == 1


def test_nn_functions_and_half_width_logits():
    x, w = X.astype(np.float32), TABLE.astype(np.float32)

    def loss(x, w, t):
        return -jnp.mean(nn.log_softmax(x @ w.T)[jnp.arange(B * T), t])

    def mixed(x, w, t):
        z = (x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16).T).astype(jnp.float32)
        return jnp.mean(nn.logsumexp(z, axis=-1) - jnp.sum(z * nn.one_hot(t, V), -1))

    x, t = x.reshape(-1, D), TARGETS.ravel()
    for function, tolerance in ((loss, 1e-6), (mixed, 3e-2)):
        assert "linear_cross_entropy" in names(function, x, w, t)
        both = fxad.jit(fxad.value_and_grad(function, argnums=(0, 1)))(x, w, t)
        with fxad.config.override(recognise=False):
            plain = fxad.value_and_grad(lambda *a, f=function: f(*a), argnums=(0, 1))
            wanted = fxad.jit(plain)(x, w, t)
        for a, b in zip(fxad.tree.leaves(both), fxad.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance / 10)


# ---------------------------------------------------------------- what is left alone


def plain(x, w, t):
    return taken(jnp, log_softmax(jnp, x @ w.T), t)


NEAR = {
    "no sum": plain,
    "sum of some": lambda x, w, t: jnp.sum(plain(x, w, t), axis=0),
    "logits returned": lambda x, w, t: (z := x @ w.T, taken(jnp, log_softmax(jnp, z), t).mean()),
    "logits looked at": lambda x, w, t: (
        z := x @ w.T,
        taken(jnp, log_softmax(jnp, z), t).mean() + (z.argmax(-1) == t).mean(),
    )[1],
    "losses returned": lambda x, w, t: (p := plain(x, w, t), p.mean()),
    "squares": lambda x, w, t: jnp.sum(plain(x, w, t) ** 2),
    "exponentials": lambda x, w, t: jnp.sum(jnp.exp(plain(x, w, t))),
    "bias of logits": lambda x, w, t: jnp.mean(taken(jnp, log_softmax(jnp, x @ w.T + w[:, 0]), t)),
    "other axis": lambda x, w, t: jnp.mean(taken(jnp, nn.log_softmax(x @ w.T, axis=1), t)),
    "all axes": lambda x, w, t: jnp.mean(taken(jnp, nn.log_softmax(x @ w.T, axis=(0, 1, 2)), t)),
    "several targets": lambda x, w, t: jnp.mean(
        jnp.take_along_axis(log_softmax(jnp, x @ w.T), jnp.stack([t, t], -1), axis=-1)
    ),
    "soft targets": lambda x, w, t: jnp.mean(
        jnp.sum(log_softmax(jnp, x @ w.T) * (0.9 * nn.one_hot(t, V) + 0.1 / V), -1)
    ),
    "other logits": lambda x, w, t: jnp.mean(
        nn.logsumexp(x @ w.T, axis=-1) - taken(jnp, 2 * x @ w.T, t)[..., 0]
    ),
    "sum of both": lambda x, w, t: jnp.mean(
        nn.logsumexp(x @ w.T, axis=-1) + taken(jnp, x @ w.T, t)[..., 0]
    ),
    "stopped": lambda x, w, t: jnp.mean(
        taken(jnp, log_softmax(jnp, lax.stop_gradient(x @ w.T)), t)
    ),
    "batched matrices": lambda x, w, t: jnp.mean(
        taken(jnp, log_softmax(jnp, x @ jnp.stack([w.T, w.T])), t)
    ),
    "rows repeated": lambda x, w, t: jnp.sum(
        jnp.broadcast_to(plain(x, w, t), (B, T, 3)) * jnp.arange(3.0)
    ),
    "turned rows": lambda x, w, t: jnp.mean(
        log_softmax(jnp, (x @ w.T).reshape(-1, V))[jnp.arange(B * T)[::-1], t.ravel()]
    ),
}


@pytest.mark.parametrize("name", sorted(NEAR))
def test_near_misses_are_left_alone(name):
    x, w = X.astype(np.float32), TABLE.astype(np.float32)
    assert "linear_cross_entropy" not in names(NEAR[name], x, w, TARGETS)


def test_targets_out_of_range_do_what_they_do_in_plain_ops():
    forms = {
        "filled": lambda x, w, t: -jnp.mean(taken(jnp, log_softmax(jnp, x @ w.T), t)),
        "filled difference": lambda x, w, t: jnp.mean(
            logsumexp(jnp, x @ w.T) - taken(jnp, x @ w.T, t)[..., 0]
        ),
        "chosen before": lambda x, w, t: (
            -jnp.sum(jnp.where(t < V, taken(jnp, log_softmax(jnp, x @ w.T), t)[..., 0], 0.0))
        ),
        "clamped": lambda x, w, t: (
            -jnp.mean(log_softmax(jnp, (x @ w.T).reshape(-1, V))[jnp.arange(B * T), t.ravel()])
        ),
        "one-hot": lambda x, w, t: -jnp.sum(log_softmax(jnp, x @ w.T) * nn.one_hot(t, V)),
        "one-hot difference": lambda x, w, t: jnp.sum(
            logsumexp(jnp, x @ w.T) - jnp.sum(x @ w.T * nn.one_hot(t, V), -1)
        ),
    }
    with fxad.enable_x64():
        for dtype in (np.int32, np.int64, np.int8):
            targets = TARGETS.astype(dtype)
            targets[0, 1], targets[1, 2] = V, -2  # numpy's functions count -2 from the end
            if dtype is np.int64:
                targets[0, 2] = 2**33
            for name, form in forms.items():
                args = X, TABLE, targets
                both = fxad.jit(fxad.value_and_grad(form, argnums=(0, 1)))(*args)
                assert "linear_cross_entropy" in names(form, *args)
                with fxad.config.override(recognise=False):
                    plain = fxad.jit(fxad.value_and_grad(lambda *a, f=form: f(*a), argnums=(0, 1)))
                    wanted = plain(*args)
                for a, b in zip(fxad.tree.leaves(both), fxad.tree.leaves(wanted), strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=name)


# ---------------------------------------------------------------- the op


@pytest.mark.parametrize("rows", [0, 3, CHUNK + 5])
@pytest.mark.parametrize("width", [0, 1])
def test_the_op_compiled_is_its_reference(rows, width):
    r = np.random.default_rng(1)
    x, table = r.standard_normal((rows, 4)), r.standard_normal((7, 4) if width else (4, 7))
    targets, weights = r.integers(-1, 8, rows).astype(np.int32), r.random(rows)

    def loss(x, table, weights, n=rows):
        given = x[:n], table, targets[:n], weights[:n]
        return linear_cross_entropy(*given, width=width, factors=F)[0]

    with fxad.enable_x64():
        found = fxad.jit(loss)(x, table, weights)
        z = x @ (table.T if width else table)
        lse = np.log(np.exp(z).sum(-1))
        at = np.where((targets < 0) | (targets > 6), 0, z[np.arange(rows), targets.clip(0, 6)])
        np.testing.assert_allclose(found, np.sum((lse - at) * weights), rtol=1e-13)
        with fxad.disable_jit():
            np.testing.assert_allclose(loss(x, table, weights), found, rtol=1e-13)
        slope = fxad.jit(fxad.grad(loss, argnums=2))(x, table, weights)
        np.testing.assert_allclose(slope, lse - at, rtol=1e-12)
        fxad.check_grads(lambda *a: loss(*a, n=3), (x, table, weights), order=2)


def test_logits_of_all_rows_never_exist():
    x = R.standard_normal((4 * CHUNK, 16)).astype(np.float32)
    table = R.standard_normal((16, 5000)).astype(np.float32)
    targets = R.integers(0, 5000, 4 * CHUNK).astype(np.int32)

    def loss(x, w, t):
        return -jnp.mean(nn.log_softmax(x @ w)[jnp.arange(4 * CHUNK), t])

    step = fxad.jit(fxad.grad(loss, argnums=(0, 1)))
    assert step.lower(x, table, targets).plan.arena_bytes < 1.2 * CHUNK * 5000 * 4


def test_short_rows_are_few_chunks(monkeypatch):
    monkeypatch.setattr("fxad.ops.fused.linear_cross_entropy.SHORT", 1 << 21)
    x, w, t = np.ones((100_000, 4), np.float32), np.ones((3, 4), np.float32), np.ones(100_000, int)
    step = fxad.jit(fxad.grad(lambda x, w, t: -jnp.mean(plain(x, w, t)), argnums=1))
    ops = [e.op.name for e in step.lower(x, w, t.astype(np.int32)).program.eqns]
    assert ops.count("dot") == 2


def test_operands_that_do_not_go_together_are_errors():
    x, w = np.ones((3, 4), np.float32), np.ones((7, 4), np.float32)
    t, u = np.ones(3, np.int32), np.ones(3, np.float32)
    with pytest.raises(ShapeError, match="do not go together"):
        linear_cross_entropy(x, w, t, u, width=0, factors=np.dtype("float32"))
    with pytest.raises(TypeMismatch, match="expected two of one float dtype"):
        linear_cross_entropy(x, w, u, u, width=1, factors=np.dtype("float32"))


@pytest.mark.parametrize("name", ["sort", "top_k"])
def test_derivatives_of_sorted_probabilities_are_no_loss(name):
    """They sum what is taken from rows, but at places that a sort has found."""
    x, w = np.random.default_rng(1).standard_normal((2, 5, 5))
    pick = {"sort": lambda p: jnp.sort(p, -1)[:, 2:], "top_k": lambda p: lax.top_k(p, 3)[0]}[name]

    def slope(x, w):
        return fxad.jvp(lambda x, w: jnp.sum(pick(nn.softmax(x @ w))), (x, w), (w, x))[1]

    def sums(step):
        e = np.exp((x + step * w) @ (w + step * x))
        return np.sum(np.sort(e / e.sum(-1, keepdims=True), -1)[:, 2:])

    with fxad.enable_x64():
        found = fxad.jit(slope)(jnp.asarray(x), jnp.asarray(w))
    np.testing.assert_allclose(found, (sums(1e-6) - sums(-1e-6)) / 2e-6, rtol=1e-7)


def test_equations_without_results_are_no_part_of_a_loss():
    def loss(x, table):
        hidden = x @ table.T
        fxad.debug.callback(lambda value: None, hidden[0, 0])
        return jnp.exp(hidden).sum()

    x = np.float32(X[0])
    np.testing.assert_allclose(
        fxad.jit(loss)(x, np.float32(TABLE)), np.exp(x @ np.float32(TABLE).T).sum(), rtol=1e-4
    )
