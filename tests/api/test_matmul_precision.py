"""float32 products by bfloat16 parts: errors, ranges, and where the precision is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax

X3, X6, X9 = (f"BF16_BF16_F32_X{n}" for n in (3, 6, 9))
LARGEST = np.finfo(np.float32).max
MATRICES = (((1,), (0,)), ((), ()))


def by(precision: Any) -> Callable[[Any, Any], Any]:
    return lambda a, b: lax.dot_general(a, b, MATRICES, precision=precision)


def both(f: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    """Results at once and compiled."""
    return [np.asarray(f(*args)), np.asarray(fxad.jit(f)(*args))]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def error(got: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """The largest, beside |A||B|."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float((np.abs(got - a @ b) / (np.abs(a) @ np.abs(b))).max())


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 2), (64, 33, 17), (40, 700, 40), (2, 3000, 9)])
@pytest.mark.parametrize("spread", [0, 8])
def test_errors(shape: tuple[int, int, int], spread: int) -> None:
    m, k, n = shape
    rng = np.random.default_rng(1)
    a, b = numbers(m, k), numbers(k, n, seed=2)
    a, b = (np.float32(x * 2.0 ** rng.integers(-spread, spread + 1, x.shape)) for x in (a, b))
    ways = [both(by(p), a, b) for p in (None, X3, X6, X9)]
    for plain, three, six, nine in zip(*ways, strict=True):
        own = error(plain, a, b)
        assert error(three, a, b) <= 3 * 2.0**-16
        assert error(six, a, b) <= 1.25 * own + 2.0**-23
        assert error(nine, a, b) <= 1.25 * own + 2.0**-23


def test_three_terms_are_what_runs() -> None:
    a, b = numbers(8, 64), numbers(64, 8, seed=1)
    for result in both(by(X3), a, b):
        assert error(result, a, b) > 2.0**-22  # float32 would be nearer


@pytest.mark.parametrize("precision", [X3, X6, X9])
def test_large_numbers_that_would_round_to_infinity(precision: str) -> None:
    a = np.array([[LARGEST, -LARGEST, 2.0**127]], np.float32).T
    b = np.array([[0.5, 0.999, 2.0**-10, 0.3]], np.float32)
    for result in both(by(precision), a, b):
        np.testing.assert_allclose(result, a.astype(np.float64) @ b, rtol=3 * 2.0**-16)


@pytest.mark.parametrize("precision", [X3, X6, X9])
def test_infinities_and_nans_are_those_of_the_product(precision: str) -> None:
    odd = np.array([np.inf, -np.inf, np.nan, 0.0, 1.0, 1.2345678, -3.0], np.float32)
    a, b = np.meshgrid(odd, odd)
    a, b = a.reshape(-1, 1, 1), b.reshape(-1, 1, 1)
    with np.errstate(invalid="ignore"):
        wanted = a * b

    def products(x: Any, y: Any) -> Any:
        return lax.batch_matmul(x, y, precision=precision)

    for result in both(products, a, b):
        np.testing.assert_allclose(result, wanted, rtol=3 * 2.0**-16)
    row, column = np.array([[np.inf, 1.1, 2.0]], np.float32), np.full((3, 1), 1.7, np.float32)
    for result in both(by(precision), row, column):
        assert np.isposinf(result).all()


@pytest.mark.parametrize(("precision", "bound"), [(X3, 3 * 2.0**-16), (X6, 2.0**-22)])
def test_small_numbers_lose_their_lower_parts(precision: str, bound: float) -> None:
    """Parts below 2**-126 are 0: a number is off by at most that, beside the usual error."""
    a = np.float32(numbers(6, 20) * 2.0 ** np.linspace(-140, -100, 20))
    b = numbers(20, 6, seed=1)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    sizes = np.abs(b.astype(np.float64)).sum(0)
    allowed = bound * (np.abs(a).astype(np.float64) @ np.abs(b)) + 4 * 2.0**-126 * (sizes + 20)
    for result in both(by(precision), a, b):
        assert (np.abs(result - exact) <= allowed).all()


# ---------------------------------------------------------------- where it is asked for


WAYS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "lax.dot": lambda a, b, p: lax.dot(a, b, precision=p),
    "lax.dot_general": lambda a, b, p: lax.dot_general(a, b, MATRICES, precision=p),
    "lax.batch_matmul": lambda a, b, p: lax.batch_matmul(a[None], b[None], precision=p)[0],
    "dot": lambda a, b, p: jnp.dot(a, b, precision=p),
    "matmul": lambda a, b, p: jnp.matmul(a, b, precision=p),
    "inner": lambda a, b, p: jnp.inner(a, b.T, precision=p),
    "tensordot": lambda a, b, p: jnp.tensordot(a, b, 1, precision=p),
    "einsum": lambda a, b, p: jnp.einsum("ij,jk->ik", a, b, precision=p),
    "vecdot": lambda a, b, p: jnp.vecdot(a[:, None], b.T[None], precision=p),
    "method": lambda a, b, p: jnp.asarray(a).dot(b, precision=p),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_product_takes_a_precision_and_the_default(way: str) -> None:
    a, b = jnp.asarray(numbers(4, 6)), jnp.asarray(numbers(6, 5, seed=1))
    used = lambda p: str(fxad.make_ir(lambda x, y: WAYS[way](x, y, p))(a, b))  # noqa: E731
    assert "dot_by_parts" not in used(None)
    for precision in (X3, lax.DotAlgorithmPreset.BF16_BF16_F32_X3):
        assert "dot_by_parts" in used(precision)
    with fxad.default_matmul_precision(X3):
        assert "dot_by_parts" in used(None)
        assert "dot_by_parts" not in used("highest")
    for _ in range(4):  # at once, and as functions called again are replayed
        plain, parts = (np.asarray(WAYS[way](a, b, p)) for p in (None, X3))
        assert 0 < np.abs(plain - parts).max() < 1e-3
        with fxad.default_matmul_precision(X3):
            np.testing.assert_array_equal(WAYS[way](a, b, None), parts)


def test_vdot_and_convolutions() -> None:
    x, w = jnp.asarray(numbers(1, 2, 9)), jnp.asarray(numbers(3, 2, 3, seed=1))
    conv = lambda x, w: lax.conv(x, w, (1,), "SAME", precision=X3)  # noqa: E731
    assert "dot_by_parts" in str(fxad.make_ir(conv)(x, w))
    vdot = lambda x: jnp.vdot(x, x, precision=X3)  # noqa: E731
    assert "dot_by_parts" in str(fxad.make_ir(vdot)(x))


def test_a_jitted_function_is_traced_anew() -> None:
    a, b = jnp.asarray(numbers(4, 6)), jnp.asarray(numbers(6, 5, seed=1))
    f = fxad.jit(lambda x, y: x @ y)
    before = [np.asarray(f(a, b)) for _ in range(3)][-1]
    for _ in range(2):
        with fxad.default_matmul_precision(X3):
            inside = [np.asarray(f(a, b)) for _ in range(3)]
        np.testing.assert_array_equal(inside[0], inside[-1])
        assert (inside[0] != before).any()
        np.testing.assert_array_equal(f(a, b), before)


def test_the_default_by_name_of_the_setting() -> None:
    a = jnp.asarray(numbers(4, 4))
    try:
        fxad.config.update("jax_default_matmul_precision", X3)
        assert "dot_by_parts" in str(fxad.make_ir(jnp.matmul)(a, a))
        with fxad.default_matmul_precision(None):
            assert "dot_by_parts" not in str(fxad.make_ir(jnp.matmul)(a, a))
    finally:
        fxad.config.update("jax_default_matmul_precision", None)
    assert "dot_by_parts" not in str(fxad.make_ir(jnp.matmul)(a, a))


@pytest.mark.parametrize(
    "precision",
    [
        *("default", "high", "highest", "bfloat16", "bfloat16_3x", "tensorfloat32", "float32"),
        *lax.Precision,
        ("high", lax.Precision.HIGHEST),
        *[p for p in lax.DotAlgorithmPreset if "_X" not in p.name],
        lax.DotAlgorithmPreset.TF32_TF32_F32_X3,
    ],
)
def test_other_names_are_full_precision(precision: Any) -> None:
    a, b = numbers(4, 6), numbers(6, 5, seed=1)
    np.testing.assert_array_equal(by(precision)(a, b), by(None)(a, b))
    with fxad.default_matmul_precision(precision):
        np.testing.assert_array_equal(by(None)(a, b), by("highest")(a, b))


@pytest.mark.parametrize("precision", ["BF16_X3", 3, ("high",), ("high", X3), object()])
def test_unknown_names_are_refused_and_the_known_listed(precision: Any) -> None:
    a = numbers(4, 4)
    with pytest.raises(fxad.errors.BadArgument, match="BF16_BF16_F32_X6.*tensorfloat32"):
        by(precision)(a, a)
    with (
        pytest.raises(fxad.errors.BadArgument, match="BF16_BF16_F32_X6"),
        fxad.default_matmul_precision(precision),
    ):
        pass


def test_other_dtypes() -> None:
    for dtype in (jnp.bfloat16, jnp.float16):  # summed in float32 anyway
        a = jnp.asarray(numbers(4, 4)).astype(dtype)
        np.testing.assert_array_equal(by(X3)(a, a), by(None)(a, a))
    for dtype in (jnp.int32, jnp.complex64):
        a = jnp.ones((4, 4), dtype)
        with pytest.raises(fxad.errors.TypeMismatch, match="for products of float32"):
            by(X3)(a, a)
        with fxad.default_matmul_precision(X3):
            np.testing.assert_array_equal(a @ a, by("highest")(a, a))
    with fxad.enable_x64():
        a = numbers(4, 4).astype(np.float64)
        with pytest.raises(fxad.errors.TypeMismatch, match="float64|f64"):
            by(X3)(a, a)


# ---------------------------------------------------------------- transforms


@pytest.mark.parametrize("precision", [X3, X6, X9])
def test_derivatives_and_lanes_are_those_of_the_product(precision: str) -> None:
    """Of small integers every product of parts is exact, so all must agree to the bit."""
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.integers(-9, 9, s).astype(np.float32)) for s in ((3, 4, 5), (3, 5, 6)))

    def loss(p: Any) -> Callable[..., Any]:
        def f(x: Any, y: Any) -> Any:
            product = lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,))), precision=p)
            turned = lax.dot_general(x, y, (((1, 2), (2, 1)), ((), ())), precision=p)  # [3, 3]
            return (product**2).sum() + (turned**2).sum()

        return f

    b4 = b[:, :, :4]
    for f, plain in (
        [fxad.value_and_grad(loss(p), (0, 1)) for p in (precision, None)],
        [fxad.hessian(loss(p), 1) for p in (precision, None)],
        [fxad.grad(fxad.checkpoint(loss(p))) for p in (precision, None)],
        [fxad.jit(fxad.grad(loss(p), (0, 1))) for p in (precision, None)],
    ):
        got, wanted = (fxad.tree.leaves(g(a, b4)) for g in (f, plain))
        for x, y in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(x, y)
    assert str(fxad.make_ir(fxad.grad(loss(precision), (0, 1)))(a, b4)).count("dot_by_parts") == 6
    for axes in ((0, 0), (0, None), (None, 0)):
        args = [x if axis == 0 else x[0] for x, axis in zip((a, b), axes, strict=True)]
        got, wanted = (fxad.vmap(by(p), axes)(*args) for p in (precision, None))
        np.testing.assert_array_equal(got, wanted)


def test_checkpoints_keep_them_as_products() -> None:
    a = jnp.asarray(numbers(4, 4))

    def f(x: Any) -> Any:
        return jnp.sin(jnp.sin(jnp.matmul(x, a, precision=X3))).sum()

    kept = fxad.checkpoint(f, policy=fxad.checkpoint_policies.dots_saveable)
    assert str(fxad.make_ir(fxad.grad(kept))(a)).count("dot_by_parts") == 2  # not once more


def test_the_loss_of_a_linear_head_follows_the_default() -> None:
    from fxad.nn import linear_cross_entropy

    x, table = jnp.asarray(numbers(6, 8)), jnp.asarray(numbers(11, 8, seed=1))
    targets = np.arange(6, dtype=np.int32)
    f = fxad.value_and_grad(lambda x, t: linear_cross_entropy(x, t, targets), (0, 1))
    plain = fxad.tree.leaves(fxad.jit(f)(x, table))
    with fxad.default_matmul_precision(X3):
        close = fxad.tree.leaves(fxad.jit(f)(x, table)), fxad.tree.leaves(f(x, table))
    for parts in close:
        for got, wanted in zip(parts, plain, strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-4)
    assert any((got != wanted).any() for got, wanted in zip(close[0], plain, strict=True))


def test_six_terms_train_as_near_to_float64_as_float32() -> None:
    """A small network, 20 steps."""
    start = [numbers(16, 64) * 0.3, numbers(64, 10, seed=1) * 0.2]
    batches = [(numbers(32, 16, seed=2 + i), numbers(32, 10, seed=30 + i)) for i in range(20)]

    def losses(dtype: Any, precision: str | None) -> np.ndarray:
        def loss(p: Any, x: Any, y: Any) -> Any:
            return ((jnp.tanh(x @ p[0]) @ p[1] - y) ** 2).mean()

        step = fxad.jit(fxad.value_and_grad(loss))
        params, found = [jnp.asarray(p.astype(dtype)) for p in start], []
        with fxad.default_matmul_precision(precision):
            for x, y in batches:
                value, slopes = step(params, x.astype(dtype), y.astype(dtype))
                params = [p - 0.5 * s for p, s in zip(params, slopes, strict=True)]
                found.append(float(value))
        return np.array(found)

    with fxad.enable_x64():
        true = losses(np.float64, None)
    float32, six, three = (np.abs(losses(np.float32, p) - true) for p in (None, X6, X3))
    assert six.mean() <= 1.25 * float32.mean() + 2.0**-24
    assert three.mean() > float32.mean()  # that the setting reaches the steps
