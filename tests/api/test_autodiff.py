"""Derivatives over pytrees and in every nesting, in float64, against closed forms, finite
differences and (for nestings) truncated Taylor series."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import ShapeError, TypeMismatch

X = 0.7


@pytest.fixture(autouse=True)
def _x64():
    with fxad.enable_x64():
        yield


# ---------------------------------------------------------------- nestings
#
# Every wrapper has a twin on truncated Taylor series, an oracle that shares nothing with fxad.

ORDER = 8


class Series:
    """A function near a point: coefficients c[k] of h^k."""

    def __init__(self, c):
        self.c = np.zeros(ORDER)
        self.c[: len(c)] = c[:ORDER]

    def __add__(self, other):
        other = other if isinstance(other, Series) else Series([other])
        return Series(self.c + other.c)

    def __mul__(self, other):
        if not isinstance(other, Series):
            return Series(self.c * other)
        return Series(np.convolve(self.c, other.c)[:ORDER])

    def slope(self):
        return Series(self.c[1:] * np.arange(1, ORDER))

    def exp(self):
        out = np.zeros(ORDER)
        out[0] = np.exp(self.c[0])
        d = self.c * np.arange(ORDER)
        for k in range(1, ORDER):
            out[k] = sum(d[j] * out[k - j] for j in range(1, k + 1)) / k
        return Series(out)


def _base(x):
    return jnp.exp(x * x * -0.5) * x + x * x * x * 0.3


def _base_series(x):
    return (x * x * -0.5).exp() * x + x * x * x * 0.3


SCALES = (1.0, 0.5, 1.25)
STEPS = (1.0, 0.9)


def _twice_scan(f):
    def run(x):
        for s in STEPS:
            x = f(x * s) * 0.5
        return x

    return run


WRAPPERS = {
    "grad": fxad.grad,
    "jvp": lambda f: lambda x: fxad.jvp(f, (x,), (jnp.ones_like(x),))[1],
    "vmap": lambda f: lambda x: jnp.sum(fxad.vmap(lambda s: f(x * s))(jnp.asarray(SCALES))),
    "jit": fxad.jit,
    "checkpoint": fxad.checkpoint,
    "scan": lambda f: (
        lambda x: lax.scan(lambda c, s: (f(c * s) * 0.5, None), x, jnp.asarray(STEPS))[0]
    ),
    "cond": lambda f: lambda x: lax.cond(x > -9.0, f, lambda y: y * y, x),
}


def _derivative(f):
    # The argument's own series is x0 + h only at the top, so the chain rule is divided out.
    def run(x):
        point = Series([x.c[0], 1.0])
        outer = f(point).slope()
        return _substitute(outer, x)

    return run


def _substitute(outer: Series, x: Series) -> Series:
    """outer(h) at h = x - x0."""
    shift = Series([0.0, *x.c[1:]])
    total, power = Series([outer.c[0]]), Series([1.0])
    for k in range(1, ORDER):
        power = power * shift
        total = total + power * outer.c[k]
    return total


TWINS = {
    "grad": _derivative,
    "jvp": _derivative,
    "vmap": lambda f: lambda x: f(x * SCALES[0]) + f(x * SCALES[1]) + f(x * SCALES[2]),
    "jit": lambda f: f,
    "checkpoint": lambda f: f,
    "scan": _twice_scan,
    "cond": lambda f: f,
}


def _agree(names) -> str | None:
    function, twin = _base, _base_series
    for name in names:
        function, twin = WRAPPERS[name](function), TWINS[name](twin)
    got, want = float(function(np.float64(X))), twin(Series([X, 1.0])).c[0]
    return None if np.isclose(got, want, rtol=1e-9, atol=1e-11) else f"{names}: {got} != {want}"


@pytest.mark.parametrize("depth", [1, 2])
def test_every_nesting(depth):
    failures = [_agree(names) for names in itertools.product(WRAPPERS, repeat=depth)]
    assert not [f for f in failures if f]


@pytest.mark.parametrize("outermost", WRAPPERS)
def test_nestings_three_deep(outermost):
    pairs = [p for p in itertools.product(WRAPPERS, repeat=2) if "jit" not in p]
    failures = [_agree((*names, outermost)) for names in pairs]
    assert not [f for f in failures if f]


# ---------------------------------------------------------------- pytrees and options


def _loss(params, x):
    hidden = jnp.tanh(x @ params["w"] + params["b"][0])
    return jnp.sum(hidden**2)


def _params(seed: int = 0):
    r = np.random.default_rng(seed)
    return {"w": r.standard_normal((3, 2)), "b": [r.standard_normal(2)]}


def _loss_numbers(params, x):
    return float(np.sum(np.tanh(x @ params["w"] + params["b"][0]) ** 2))


def _difference(f, leaf: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Central differences, moving a leaf in place."""
    out = np.zeros_like(leaf)
    for index in np.ndindex(leaf.shape):
        kept = leaf[index]
        leaf[index] = kept + step
        high = f()
        leaf[index] = kept - step
        out[index] = (high - f()) / (2 * step)
        leaf[index] = kept
    return out


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit], ids=["eager", "jit"])
def test_gradient_of_a_pytree(wrap):
    params, x = _params(), np.random.default_rng(1).standard_normal((4, 3))
    value, grads = wrap(fxad.value_and_grad(_loss))(params, x)
    assert float(value) == pytest.approx(_loss_numbers(params, x), rel=1e-14)
    for got, leaf in ((grads["w"], params["w"]), (grads["b"][0], params["b"][0])):
        want = _difference(lambda: _loss_numbers(params, x), leaf)
        np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-8)
    both = wrap(fxad.grad(_loss, argnums=(0, 1)))(params, x)
    assert isinstance(both, tuple)
    np.testing.assert_allclose(both[1], _difference(lambda: _loss_numbers(params, x), x), rtol=1e-6)
    last = wrap(fxad.grad(_loss, argnums=-1))(params, x)
    np.testing.assert_array_equal(last, both[1])


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit], ids=["eager", "jit"])
def test_aux(wrap):
    def function(x):
        return jnp.sum(x**3), {"seen": x * 2, "count": 3}

    x = np.arange(3.0)
    grads, aux = wrap(fxad.grad(function, has_aux=True))(x)
    np.testing.assert_allclose(grads, 3 * x**2)
    np.testing.assert_array_equal(aux["seen"], 2 * x)
    (value, aux), grads = wrap(fxad.value_and_grad(function, has_aux=True))(x)
    assert float(value) == 9.0
    assert int(aux["count"]) == 3
    _, back, aux = fxad.vjp(function, x, has_aux=True)
    np.testing.assert_allclose(back(np.float64(2.0))[0], 6 * x**2)
    _, pushed, aux = fxad.jvp(function, (x,), (np.ones(3),), has_aux=True)
    assert float(pushed) == pytest.approx(15.0)
    assert int(aux["count"]) == 3


def test_keyword_arguments_pass_through():
    grads = fxad.grad(lambda x, *, scale: jnp.sum(x * scale))(np.ones(3), scale=np.arange(3.0))
    np.testing.assert_array_equal(grads, np.arange(3.0))


def test_integers():
    tree = {"w": np.ones(2), "n": np.int64(3)}

    def function(t):
        return jnp.sum(t["w"]) * t["n"]

    with pytest.raises(TypeMismatch, match=r"\['n'\].*allow_int"):
        fxad.grad(function)(tree)
    grads = fxad.grad(function, allow_int=True)(tree)
    np.testing.assert_array_equal(grads["w"], [3.0, 3.0])
    assert not np.any(np.asarray(grads["n"]))


def test_holomorphic_and_complex():
    z = np.complex128(0.3 + 0.4j)
    got = fxad.grad(lambda z: jnp.sin(z) * z, holomorphic=True)(z)
    assert complex(got) == pytest.approx(np.cos(z) * z + np.sin(z), rel=1e-14)
    got = fxad.grad(lambda z: jnp.real(z * jnp.conj(z)))(z)
    assert complex(got) == pytest.approx(2 * np.conj(z), rel=1e-14)  # JAX's convention
    with pytest.raises(TypeMismatch, match="holomorphic"):
        fxad.grad(lambda z: z * z)(z)
    with pytest.raises(TypeMismatch, match="complex"):
        fxad.grad(lambda x: x * x, holomorphic=True)(0.5)
    with pytest.raises(TypeMismatch, match="the result must be complex"):
        fxad.grad(lambda z: jnp.abs(z), holomorphic=True)(1 + 1j)


# ---------------------------------------------------------------- vjp, jvp, linearize, jacobians


def _map(t):
    return {"a": jnp.sin(t["x"]) * t["y"], "b": jnp.sum(t["x"] ** 2)}


def _jacobian_numbers(x, y):
    """d a / d x, d a / d y, d b / d x, d b / d y."""
    return np.diag(np.cos(x) * y), np.sin(x), 2 * x, np.float64(0)


@pytest.mark.parametrize("jacobian", [fxad.jacfwd, fxad.jacrev])
@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit], ids=["eager", "jit"])
def test_jacobians_of_pytrees(jacobian, wrap):
    x, y = np.array([0.1, 0.5, -0.3]), np.float64(1.5)
    got = wrap(jacobian(_map))({"x": x, "y": y})
    ax, ay, bx, by = _jacobian_numbers(x, y)
    np.testing.assert_allclose(got["a"]["x"], ax, rtol=1e-14)
    np.testing.assert_allclose(got["a"]["y"], ay, rtol=1e-14)
    np.testing.assert_allclose(got["b"]["x"], bx, rtol=1e-14)
    np.testing.assert_allclose(got["b"]["y"], by, atol=1e-15)


@pytest.mark.parametrize("jacobian", [fxad.jacfwd, fxad.jacrev])
def test_jacobians_of_several_arguments(jacobian):
    x, y = np.array([0.1, 0.5]), np.array([1.0, 2.0, 3.0])
    first, second = jacobian(lambda a, b: jnp.outer(a, b), argnums=(0, 1))(x, y)
    assert first.shape == (2, 3, 2)
    assert second.shape == (2, 3, 3)
    np.testing.assert_allclose(first, np.einsum("ik,j->ijk", np.eye(2), y))
    np.testing.assert_allclose(second, np.einsum("i,jk->ijk", x, np.eye(3)))
    tree = jacobian(lambda a, b: {"o": jnp.outer(a, b)}, argnums=(0, 1))(x, y)
    np.testing.assert_allclose(tree["o"][1], second)
    for other in (lambda b: {"b": b}, lambda b: (b, b)):
        of_trees = jacobian(
            lambda a, b: {"o": jnp.outer(a["b"], fxad.tree.leaves(b)[0])}, argnums=(0, 1)
        )({"b": x}, other(y))
        assert fxad.tree.structure(of_trees) == fxad.tree.structure({"o": ({"b": 0}, other(0))})
        np.testing.assert_allclose(of_trees["o"][0]["b"], first)
        np.testing.assert_allclose(fxad.tree.leaves(of_trees["o"][1])[0], second)
    got, aux = jacobian(lambda a: (a * a, a + 1), has_aux=True)(x)
    np.testing.assert_allclose(got, np.diag(2 * x))
    np.testing.assert_allclose(aux, x + 1)


def test_hessian():
    x = np.array([0.3, -0.2, 0.9])
    for wrap in (lambda f: f, fxad.jit):
        got = wrap(fxad.hessian(lambda v: jnp.sum(jnp.exp(v)) * v[0]))(x)
        e, total = np.exp(x), np.sum(np.exp(x))
        want = np.diag(e) * x[0]
        want[0, :] += e
        want[:, 0] += e
        np.testing.assert_allclose(got, want, rtol=1e-13)
        assert total > 0
    tree = fxad.hessian(lambda t: t["a"] ** 2 * jnp.sum(t["b"]))({"a": 2.0, "b": x})
    np.testing.assert_allclose(tree["a"]["b"], np.full(3, 4.0))
    np.testing.assert_allclose(tree["b"]["a"], np.full(3, 4.0))
    assert tree["b"]["b"].shape == (3, 3)


def test_linearize_and_transpose_agree():
    r = np.random.default_rng(3)
    x, dx, ct = r.standard_normal((3, 3, 4))

    def function(v):
        return jnp.tanh(v) @ jnp.ones((4, 4)) + v**2

    _, push = fxad.linearize(function, x)
    _, pull = fxad.vjp(function, x)
    _, pushed = fxad.jvp(function, (x,), (dx,))
    np.testing.assert_allclose(push(dx), pushed, rtol=1e-13)
    np.testing.assert_allclose(push(2 * dx), 2 * np.asarray(pushed), rtol=1e-13)
    assert float(np.vdot(ct, push(dx))) == pytest.approx(float(np.vdot(pull(ct)[0], dx)))
    back = fxad.linear_transpose(lambda v: v @ np.ones((4, 2)), x)
    np.testing.assert_allclose(back(np.ones((3, 2)))[0], np.full((3, 4), 2.0))


def test_outputs_that_do_not_depend_on_the_input_have_zero_derivatives():
    _, tangent = fxad.jvp(lambda x: (x * 2, jnp.ones(2)), (np.ones(3),), (np.ones(3),))
    np.testing.assert_array_equal(tangent[1], np.zeros(2))
    np.testing.assert_array_equal(fxad.grad(lambda x: 3.0)(np.ones(3)), np.zeros(3))
    np.testing.assert_array_equal(fxad.jit(fxad.grad(lambda x: 3.0))(np.ones(3)), np.zeros(3))
    stopped = fxad.grad(lambda x: jnp.sum(fxad.stop_gradient(x) * x))(np.arange(3.0))
    np.testing.assert_array_equal(stopped, np.arange(3.0))


# ---------------------------------------------------------------- Python control flow


def test_python_branches_and_loops_outside_jit():
    def power(x, n):
        total = 1.0
        while n > 0:
            total, n = total * x, n - 1
        return total if total > 1 else total * 2

    assert float(fxad.grad(power)(2.0, 3)) == pytest.approx(12.0)
    assert float(fxad.grad(power)(0.5, 3)) == pytest.approx(1.5)
    assert float(fxad.grad(fxad.grad(power))(2.0, 3)) == pytest.approx(12.0)
    assert float(fxad.jvp(lambda x: power(x, 2), (3.0,), (1.0,))[1]) == pytest.approx(6.0)

    def halve(x):
        while x > 1:
            x = x / 2
        return x**2

    assert float(fxad.grad(halve)(5.0)) == pytest.approx(2 * 0.625 / 8)
    assert float(fxad.grad(fxad.checkpoint(halve))(5.0)) == pytest.approx(2 * 0.625 / 8)


def test_the_function_runs_once_per_derivative():
    runs = []

    def function(x):
        runs.append(float(x))
        return jnp.sin(x)

    for use in (
        lambda: fxad.grad(function)(1.0),
        lambda: fxad.value_and_grad(function)(1.0),
        lambda: fxad.jvp(function, (1.0,), (1.0,)),
        lambda: fxad.linearize(function, 1.0)[1](1.0),
        lambda: fxad.grad(fxad.grad(function))(1.0),
        lambda: fxad.vjp(function, 1.0)[1](1.0),
    ):
        runs.clear()
        use()
        assert runs == [1.0]


def test_pullback_may_be_called_many_times():
    _, pull = fxad.vjp(lambda x: x**3, np.arange(3.0))
    for scale in (1.0, 2.0):
        np.testing.assert_allclose(pull(np.full(3, scale))[0], scale * 3 * np.arange(3.0) ** 2)


def test_wrong_use_is_explained():
    with pytest.raises(ShapeError, match=r"scalar.*f64\[3\].*jacrev"):
        fxad.grad(lambda x: x)(np.ones(3))
    with pytest.raises(TypeMismatch, match="one scalar"):
        fxad.grad(lambda x: (x, x))(1.0)
    with pytest.raises(ValueError, match="argnums"):
        fxad.grad(lambda x: x, argnums=2)(1.0)
