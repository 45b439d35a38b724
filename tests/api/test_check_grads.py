"""check_grads accepts right derivatives and finds wrong ones, naming where."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.api.check_grads import check_jvp, check_vjp
from fxad.core.errors import BadArgument, GradientError, TypeMismatch


def wide(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape)


RIGHT = [
    ("tanh", lambda x: jnp.tanh(x), (3,)),
    ("product", lambda x: x @ x.T, (3, 4)),
    ("tree", lambda x: {"a": jnp.sin(x).sum(), "b": (x**3, x[0])}, (4,)),
    ("scan", lambda x: lax.scan(lambda c, v: (c * jnp.sin(v), c), 1.0, x), (3,)),
    ("integers", lambda x: (x * 2, jnp.argmax(x)), (4,)),
    ("empty", lambda x: x[:0], (4,)),
]


@pytest.mark.parametrize(("name", "f", "shape"), RIGHT)
def test_right_derivatives_pass_to_third_order(name: str, f, shape) -> None:
    with fxad.enable_x64():
        fxad.check_grads(f, (wide(*shape),), order=3)
        fxad.check_grads(fxad.jit(f), (wide(*shape),), order=2)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_narrow_dtypes_pass_with_their_default_steps(dtype: str) -> None:
    x = jnp.asarray(wide(4), dtype)
    fxad.check_grads(lambda x: jnp.tanh(x) * x, (x,))


def test_complex_functions_holomorphic_or_not() -> None:
    with fxad.enable_x64():
        z = wide(3) + 1j * wide(3)[::-1]
        fxad.check_grads(lambda z: jnp.exp(z) * z, (z,), order=2)
        fxad.check_grads(lambda z: (jnp.abs(z) ** 2, jnp.real(z) * z, jnp.conj(z)), (z,), order=2)


def wrong_jvp():
    @fxad.custom_jvp
    def f(x):
        return jnp.sin(x)

    f.defjvp(lambda p, t: (f(p[0]), 1.001 * jnp.cos(p[0]) * t[0]))
    return f


def wrong_vjp():
    @fxad.custom_vjp
    def f(x):
        return jnp.sin(x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (1.001 * jnp.cos(x) * ct,))
    return f


def test_wrong_rules_are_found_in_the_mode_that_uses_them() -> None:
    with fxad.enable_x64():
        x = wide(3)
        for mode in ("fwd", "rev"):
            with pytest.raises(GradientError, match=r"(jvp|vjp)\(f\) is wrong"):
                fxad.check_grads(wrong_jvp(), (x,), modes=mode)
        fxad.check_grads(wrong_vjp(), (x,), modes="fwd")
        with pytest.raises(GradientError, match=r"vjp\(f\) is wrong"):
            fxad.check_grads(wrong_vjp(), (x,), modes="rev")


def test_a_rule_right_to_first_order_only_is_found_at_the_second() -> None:
    @fxad.custom_jvp
    def f(x):
        return x**3

    # The derivative is right, but it hides that it depends on x.
    f.defjvp(lambda p, t: (f(p[0]), 3 * fxad.stop_gradient(p[0]) ** 2 * t[0]))
    with fxad.enable_x64():
        fxad.check_grads(f, (wide(3),), order=1)
        with pytest.raises(GradientError, match=r"jvp\(jvp\(f\)\) is wrong"):
            fxad.check_grads(f, (wide(3),), order=2, modes="fwd")


def test_the_error_names_the_argument() -> None:
    bad = wrong_vjp()
    with fxad.enable_x64():
        params = {"w": wide(3), "v": wide(3), "n": 2}
        with pytest.raises(GradientError, match=r"argument\[0\]\['v'\] alone"):
            fxad.check_grads(lambda p: jnp.sum(p["w"] ** 2 * bad(p["v"])), (params,), modes="rev")


def test_a_derivative_of_nan_is_wrong() -> None:
    @fxad.custom_jvp
    def f(x):
        return x * 2

    f.defjvp(lambda p, t: (f(p[0]), t[0] * np.nan))
    with pytest.raises(GradientError):
        fxad.check_grads(f, (1.0,))


def test_bad_requests_are_refused() -> None:
    with pytest.raises(BadArgument, match="modes"):
        fxad.check_grads(jnp.sin, (1.0,), modes="forward")
    with pytest.raises(BadArgument, match="order"):
        fxad.check_grads(jnp.sin, (1.0,), order=0)
    with pytest.raises(TypeMismatch, match="no argument"):
        fxad.check_grads(lambda x: x + 1, (np.arange(3),))
    with pytest.raises(TypeMismatch, match="tuple"):
        fxad.check_grads(jnp.sin, 1.0)


def test_many_elements_move_a_little_each() -> None:
    w = np.random.default_rng(0).normal(0, 0.02, (300, 300)).astype(np.float32)

    def f(w):
        return jnp.mean(jnp.tanh(w @ w) ** 2) * 100

    fxad.check_grads(f, (w,))

    @fxad.custom_vjp
    def wrong(w):
        return f(w)

    wrong.defvjp(lambda w: (f(w), w), lambda w, ct: (ct * 1.1 * fxad.grad(f)(w),))
    with pytest.raises(GradientError, match="vjp"):
        fxad.check_grads(wrong, (w,), modes="rev")


def test_infinities_that_stay_have_no_slope() -> None:
    """A maximum over nothing is -inf wherever the rest moves."""
    x = np.array([1.0, 3.0, 2.0])
    with fxad.enable_x64():
        fxad.check_grads(lambda x: jnp.stack([jnp.max(x), -jnp.inf + 0 * x[0]]), (x,), order=2)


def test_mixed_derivatives_of_pow_at_exponent_zero() -> None:
    """d/dy (y x**(y - 1)) is 1/x at y = 0, and the one after that 2 log(x) / x."""
    with fxad.enable_x64():
        x, y = 4.0, 0.0
        want = np.array([[0, 1 / x], [1 / x, np.log(x) ** 2]])
        for one in (fxad.jacfwd, fxad.jacrev):
            for two in (fxad.jacfwd, fxad.jacrev):
                found = fxad.jit(one(two(jnp.power, (0, 1)), (0, 1)))(x, y)
                np.testing.assert_allclose(np.array(found), want, rtol=1e-12)
        mixed = fxad.grad(fxad.grad(fxad.grad(jnp.power, 0), 1), 1)
        np.testing.assert_allclose(mixed(x, y), 2 * np.log(x) / x, rtol=1e-12)
        assert fxad.grad(jnp.power)(0.0, 0.0) == 0


def test_rules_by_hand():
    def f(x, y):
        return jnp.sin(x) * y

    def by_hand(primals, tangents, wrong=0.0):
        (x, y), (dx, dy) = primals, tangents
        return f(x, y), jnp.cos(x) * y * dx + jnp.sin(x) * dy + wrong

    def pullback(x, y, wrong=1.0):
        return f(x, y), lambda ct: (jnp.cos(x) * y * ct * wrong, (jnp.sin(x) * ct).sum())

    args = (np.linspace(0.1, 1, 3), 2.0)
    with fxad.enable_x64():
        check_jvp(f, by_hand, args)
        check_vjp(f, pullback, args)
        check_vjp(f, lambda *args: fxad.vjp(f, *args), args)
        with pytest.raises(GradientError, match=r"^mine: check_grads: jvp\(f\) is wrong"):
            check_jvp(f, lambda p, t: by_hand(p, t, 0.1), args, err_msg="mine")
        with pytest.raises(GradientError, match=r"^check_grads: vjp\(f\) is wrong"):
            check_vjp(f, lambda *args: pullback(*args, wrong=1.1), args)
        check_jvp(f, lambda p, t: by_hand(p, t, 0.1), args, atol=0.2)


@pytest.mark.parametrize("seed", range(5))
def test_a_backward_rule_that_clips_is_found(seed):
    """It is right for small cotangents: those that are drawn are not small."""

    @fxad.custom_vjp
    def clipped(x):
        return x

    clipped.defvjp(lambda x: (x, None), lambda _, ct: (jnp.clip(ct, -1.0, 1.0),))
    x = jnp.array([0.3, 0.5, 2.0])
    with pytest.raises(GradientError, match="is wrong"):
        fxad.check_grads(lambda x: jnp.sum(5 * clipped(x)), (x,), modes="rev", seed=seed)


def test_an_integer_cotangent_of_a_float_is_refused():
    @fxad.custom_vjp
    def square(x):
        return x * x

    square.defvjp(lambda x: (x * x, x), lambda x, ct: (jnp.ones(x.shape, jnp.int32),))
    with pytest.raises(TypeMismatch, match=r"bwd's cotangent 0 is i32\[\] for an argument f32"):
        fxad.grad(square)(2.0)
