"""fxad.nn: values against formulas in float64, gradients at kinks, and everything beside JAX."""

import math

import numpy as np
import pytest

import fxad
from fxad import nn
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch

X = np.array([-100.0, -4.0, -1.5, -0.25, 0.25, 1.0, 3.0, 7.0, 100.0], np.float32)
CLOSE = {"rtol": 3e-6, "atol": 1e-6}  # a few f32 roundings


def check(actual, expected, **tolerance):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), **(tolerance or CLOSE))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.logaddexp(x, 0)


FORMULAS = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "sigmoid": sigmoid,
    "softplus": softplus,
    "log_sigmoid": lambda x: -softplus(-x),
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "celu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "selu": lambda x: (
        1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
    ),
    "leaky_relu": lambda x: np.where(x >= 0, x, 0.01 * x),
    "mish": lambda x: x * np.tanh(softplus(x)),
    "soft_sign": lambda x: x / (1 + np.abs(x)),
    "squareplus": lambda x: 0.5 * (x + np.sqrt(x * x + 4)),
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6,
}
KINKS = {  # points, and the derivative there
    "relu": ([0.0], [0.0]),
    "relu6": ([0.0, 6.0], [0.0, 0.0]),
    "hard_tanh": ([-1.0, 1.0], [0.0, 0.0]),
    "hard_sigmoid": ([-3.0, 3.0], [0.0, 0.0]),
    "softplus": ([0.0], [0.5]),
    "log_sigmoid": ([0.0], [0.5]),
    "elu": ([0.0], [1.0]),
    "silu": ([0.0], [0.5]),
}


def test_activations_and_their_slopes():
    with np.errstate(over="ignore"):
        for name, formula in FORMULAS.items():
            function = getattr(nn, name)
            values, slopes = fxad.jit(
                lambda x, f=function: (f(x), fxad.grad(lambda v: f(v).sum())(x))
            )(X)
            wide = X.astype(np.float64)
            check(values, formula(wide), rtol=5e-6, atol=2e-6)
            smooth = ~np.isin(wide, [-1, 1, -3, 3])
            step = 1e-6
            slope = (formula(wide + step) - formula(wide - step)) / (2 * step)
            check(np.asarray(slopes)[smooth], slope[smooth], rtol=1e-4, atol=1e-5)
            assert np.isnan(np.asarray(function(np.float32("nan"))))


def test_slopes_at_kinks_and_far_out():
    for name, (points, slopes) in KINKS.items():
        function = getattr(nn, name)
        got = fxad.grad(lambda v, f=function: f(v).sum())(np.array(points, np.float32))
        check(got, slopes)
    far = np.array([-1e4, 1e4, -np.inf, np.inf], np.float32)
    for name in ("softplus", "log_sigmoid", "elu", "gelu", "silu", "mish"):
        function = getattr(nn, name)
        slopes = fxad.grad(lambda v, f=function: f(v).sum())(far[:2])
        assert np.isfinite(np.asarray(slopes)).all(), name
    check(nn.softplus(far), [0, 1e4, 0, np.inf])


def test_infinite_cotangents():
    """They stay infinite where a slope is small, and finite ones finite at infinity."""
    x = np.array([30, -30, -np.inf, np.inf], np.float32)
    ct = np.array([np.inf, np.inf, 3, 3], np.float32)
    for function, sign in ((nn.softplus, 1), (nn.log_sigmoid, -1)):
        (found,) = fxad.jit(lambda x, ct, f=function: fxad.vjp(f, x)[1](ct))(sign * x, ct)
        check(found, [np.inf, np.inf, 0, 3])


@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_of_gelu_are_those_of_its_formula(order):
    x = np.concatenate([np.linspace(-9, 9, 301), [-1e9, 1e9, -0.0]])
    slope, cubic = math.sqrt(2 / math.pi), 0.044715 * math.sqrt(2 / math.pi)
    t = np.tanh(x * (slope + cubic * x * x))
    du, slow = slope + 3 * cubic * x * x, 1 - t * t
    expected = {
        1: (1 + t) / 2 + x / 2 * slow * du,
        2: slow * du + x / 2 * slow * (6 * cubic * x - 2 * t * du * du),
    }[order]
    derivative = nn.gelu
    for _ in range(order):
        derivative = fxad.grad(derivative)
    with fxad.enable_x64():
        check(fxad.vmap(derivative)(x), expected, rtol=1e-12, atol=1e-12)
    found = fxad.jit(fxad.vmap(derivative))(x.astype(np.float32))
    check(found, expected, rtol=3e-6, atol=2e-5)


def test_gelu_exact_glu_and_dtypes():
    exact = [0.5 * v * math.erfc(-v / math.sqrt(2)) for v in X.astype(float)]
    check(nn.gelu(X, approximate=False), exact, rtol=3e-6, atol=1e-6)
    pairs = np.stack([X, X[::-1]])
    check(nn.glu(pairs, axis=0), X[None] * sigmoid(X[::-1].astype(np.float64)), atol=1e-4)
    for name in FORMULAS:
        assert getattr(nn, name)(X.astype(np.float16)).dtype == np.float16, name
    assert nn.relu(np.array([-1, 2], np.int8)).tolist() == [0, 2]
    assert nn.gelu(np.arange(3, dtype=np.int32)).dtype == np.float32
    with pytest.raises(ShapeError, match="cannot be halved"):
        nn.glu(X)


def test_softmax_is_stable_and_masks():
    x = np.array([[1000.0, 1001.0, -1000.0], [0.0, 0.0, 0.0]], np.float32)
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    expected = wide / wide.sum(1, keepdims=True)
    check(nn.softmax(x), expected)
    check(nn.log_softmax(x)[0, 2], -2001.3133)
    check(nn.softmax(x.T, axis=0), expected.T)
    check(nn.softmax(x, axis=(0, 1)).sum(), 1)
    mask = np.array([[True, False, True], [False, False, False]])
    masked = fxad.jit(lambda v: nn.softmax(v, where=mask))(x)
    check(masked, [[1, 0, 0], [0, 0, 0]])
    slopes = fxad.grad(lambda v: (nn.softmax(v, where=mask) * X[:3]).sum())(x)
    assert np.isfinite(np.asarray(slopes)).all()
    assert nn.log_softmax(x, where=mask)[0, 1] == -np.inf
    check(nn.logsumexp(x, axis=1), [1001.3132617, math.log(3)])
    check(nn.logsumexp(x, axis=1, b=-1), [np.nan, np.nan])
    value, sign = nn.logsumexp(x, axis=1, b=-1, return_sign=True)
    check(value, [1001.3132617, math.log(3)])
    check(sign, [-1.0, -1.0])
    check(nn.logsumexp(np.float32([np.inf, 1]), b=np.float32([0, 2])), 1 + math.log(2))
    np.testing.assert_allclose(
        nn.logsumexp(np.complex64([1j, 1j]), b=-1j), math.log(2) + 1j - 0.5j * np.pi
    )


def test_softmax_is_near_its_value_in_double_and_bears_any_shift():
    x = np.random.default_rng(3).integers(-200, 200, (50, 77)).astype(np.float32) / 8
    terms = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf).astype(np.float64))
    want = terms / terms.sum(-1, keepdims=True)
    np.testing.assert_allclose(fxad.jit(fxad.nn.softmax)(x), want, rtol=4e-7, atol=1e-44)
    # Shifted by far more than the maximum, the terms and their sum are hardly above 0.
    small = fxad.nn.softmax(np.zeros((2, 4), np.float32), initial=100.0)
    np.testing.assert_allclose(small, np.full((2, 4), 0.25), rtol=0.02)


def test_softmax_gradient_is_its_jacobian():
    x, ct = X[2:6], np.array([1.0, -2.0, 0.5, 3.0])
    p = np.exp(x.astype(np.float64))
    p /= p.sum()
    check(fxad.grad(lambda v: (nn.softmax(v) * ct).sum())(x), p * (ct - (p * ct).sum()))
    check(fxad.grad(lambda v: (nn.log_softmax(v) * ct).sum())(x), ct - p * ct.sum())


def test_standardize_and_one_hot():
    x = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    check(
        nn.standardize(x),
        (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5),
        rtol=1e-5,
        atol=1e-6,
    )
    check(nn.standardize(x, axis=(0, 1), mean=0.0, variance=1.0), x, rtol=1e-5)
    labels = np.array([[0, 2], [-1, 3]], np.int32)
    expected = (labels[..., None] == np.arange(3)).astype(np.float32)
    assert nn.one_hot(labels, 3).tolist() == expected.tolist()
    assert nn.one_hot(labels, 3, axis=0).tolist() == np.moveaxis(expected, -1, 0).tolist()
    assert nn.one_hot(labels, 3, dtype="int8").dtype == np.int8


# ---------------------------------------------------------------- attention


def attention(q, k, v, bias=None, mask=None, scale=None, is_causal=False):
    """The definition, in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    repeat = q.shape[2] // k.shape[2]
    k, v = (np.repeat(x, repeat, axis=2) for x in (k, v))
    logits = np.einsum("btnh,bsnh->bnts", q, k)
    logits = logits * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        logits = logits + bias
    allowed = np.ones(logits.shape, bool)
    if mask is not None:
        allowed &= mask
    if is_causal:
        allowed &= np.tril(np.ones(logits.shape[-2:], bool))
    logits = np.where(allowed, logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("bnts,bsnh->btnh", weights, v)


def test_attention_with_groups_masks_and_bias():
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    bias, mask = draw(1, 4, 5, 5), rng.random((2, 1, 5, 5)) < 0.7
    mask[..., 0] = True
    cases = [
        ({}, 4),
        ({"is_causal": True}, 4),
        ({"is_causal": True, "scale": 0.3}, 2),
        ({"bias": bias, "mask": mask}, 1),
    ]
    for options, groups in cases:
        q, k, v = draw(2, 5, 4, 8), draw(2, 5, groups, 8), draw(2, 5, groups, 8)
        run = fxad.jit(lambda q, k, v, o=options: nn.dot_product_attention(q, k, v, **o))
        check(run(q, k, v), attention(q, k, v, **options), rtol=1e-5, atol=2e-6)
    single = nn.dot_product_attention(q[0], k[0], v[0])
    check(single, attention(q[:1], k[:1], v[:1])[0], rtol=1e-5, atol=2e-6)
    short = nn.dot_product_attention(q[:, :3], k, v)
    check(short, attention(q[:, :3], k, v), rtol=1e-5, atol=2e-6)


def test_attention_slopes_and_half_precision():
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(1, 3, n, 4)).astype(np.float32) for n in (4, 2, 2))

    def loss(q, k, v):
        return (nn.dot_product_attention(q, k, v, is_causal=True) ** 2).sum()

    slopes = fxad.jit(fxad.grad(loss, (0, 1, 2)))(q, k, v)
    arrays = [x.astype(np.float64) for x in (q, k, v)]
    for number, slope in enumerate(slopes):
        place, step = (0, 1, 1, 2), 1e-6
        ends = []
        for sign in (1, -1):
            moved = [x.copy() for x in arrays]
            moved[number][place] += sign * step
            ends.append((attention(*moved, is_causal=True) ** 2).sum())
        check(slope[place], (ends[0] - ends[1]) / (2 * step), rtol=1e-4, atol=1e-5)
    half = [x.astype(np.float16) for x in (q, k, v)]
    out = nn.dot_product_attention(*half)
    assert out.dtype == np.float16
    check(out, attention(*half), rtol=2e-3, atol=1e-3)  # f16 has 11 bits


def test_attention_errors():
    q = np.ones((2, 5, 4, 8), np.float32)
    with pytest.raises(ShapeError, match="N a multiple of K"):
        nn.dot_product_attention(q, q[:, :, :3], q[:, :, :3])
    with pytest.raises(ShapeError, match="do not go together"):
        nn.dot_product_attention(q, q, q[:, :4])
    with pytest.raises(TypeMismatch, match="mask must be bool"):
        nn.dot_product_attention(q, q, q, mask=np.ones((5, 5), np.float32))


# ---------------------------------------------------------------- initializers


def test_initializers_have_their_variance():
    key = fxad.random.key(0)
    make = nn.initializers
    shape = (200, 300)
    wanted = {
        "glorot_uniform": 2 / 500,
        "xavier_normal": 2 / 500,
        "he_normal": 2 / 200,
        "kaiming_uniform": 2 / 200,
        "lecun_normal": 1 / 200,
        "lecun_uniform": 1 / 200,
    }
    for name, variance in wanted.items():
        drawn = np.asarray(getattr(make, name)()(key, shape))
        # The variance of 60000 samples deviates by less than 4% with overwhelming probability.
        assert abs(drawn.var() / variance - 1) < 0.04, name
        assert abs(drawn.mean()) < 4 * math.sqrt(variance / drawn.size), name
    assert make.zeros(key, (2,)).tolist() == [0, 0]
    assert make.ones(key, (2,), "int8").dtype == np.int8
    assert make.constant(3.0)(key, (2, 2), "float16").dtype == np.float16
    assert float(abs(make.truncated_normal(2.0)(key, (1000,))).max()) <= 4
    assert float(make.uniform(0.5)(key, (1000,)).max()) < 0.5
    with pytest.raises(BadArgument, match="unknown mode"):
        make.variance_scaling(1.0, "fan", "normal")
    with pytest.raises(ShapeError, match="input and output axes"):
        make.he_normal()(key, (3,))


@pytest.mark.peers
def test_nn_beside_jax():
    jax = pytest.importorskip("jax")
    shaped = X.reshape(3, 3)
    for name in [*FORMULAS, "softmax", "log_softmax", "standardize"]:
        ours = getattr(nn, name)(shaped)
        check(ours, getattr(jax.nn, name)(shaped), rtol=1e-5, atol=2e-6)
        inner = (np.abs(X) < 50) & (np.abs(X) != 1) & (np.abs(X) != 3)
        mine = fxad.grad(lambda v, n=name: (getattr(nn, n)(v) * X[inner]).sum())(X[inner])
        other = jax.grad(lambda v, n=name: (getattr(jax.nn, n)(v) * X[inner]).sum())(X[inner])
        check(mine, other, rtol=2e-4, atol=2e-5)
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, 6, n, 4)).astype("f") for n in (4, 2, 2))
    check(
        nn.dot_product_attention(q, k, v, is_causal=True),
        jax.nn.dot_product_attention(q, k, v, is_causal=True),
        rtol=1e-5,
        atol=2e-6,
    )
    ours, theirs = nn.initializers, jax.nn.initializers
    for name in ("glorot_uniform", "he_normal", "lecun_normal", "xavier_normal"):
        mine = getattr(ours, name)()(fxad.random.key(7), (3, 4, 5))
        check(mine, getattr(theirs, name)()(jax.random.key(7), (3, 4, 5)), rtol=1e-5, atol=1e-6)
