"""fxad.numpy.fft against numpy.fft, finite differences and Python loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, ShapeError

F = jnp.fft
R = np.random.default_rng(5)
X = R.standard_normal((3, 5, 6))
Z = X + 1j * R.standard_normal((3, 5, 6))

ONE_AXIS = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY_AXES = ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"]
OF_REALS = ("rfft", "rfftn", "rfft2", "ihfft")


@pytest.fixture(autouse=True)
def wide():
    with fxad.enable_x64():
        yield


def operand(name: str) -> np.ndarray:
    return X if name in OF_REALS else Z


def near(got: Any, wanted: Any) -> None:
    got = np.asarray(got)
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("n", [None, 1, 4, 9])
@pytest.mark.parametrize("name", ONE_AXIS)
def test_one_axis(name, n, norm):
    x = operand(name)
    for axis in (-1, 0):
        got = getattr(F, name)(x, n, axis, norm)
        near(got, getattr(np.fft, name)(x, n, axis, norm))


SIZES_AND_AXES: list[tuple[Any, Any]] = [
    (None, None),
    (None, (1,)),
    (None, (2, 0)),
    ((4, 8), (0, -1)),
    ((4, -1), (-1, 0)),
]


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize(("s", "axes"), SIZES_AND_AXES)
@pytest.mark.parametrize("name", MANY_AXES)
def test_many_axes(name, s, axes, norm):
    x = operand(name)
    given: dict[str, Any] = {} if axes is None else {"axes": axes}
    got = getattr(F, name)(x, s=s, norm=norm, **given)
    near(got, getattr(np.fft, name)(x, s=s, norm=norm, **given))


@pytest.mark.parametrize("n", [-1, 0])
def test_an_axis_has_at_least_one_element(n):
    for name in ONE_AXIS:
        with pytest.raises(
            ValueError, match=f"{name}: an axis must have at least one element, got n={n}"
        ):
            getattr(F, name)(np.ones(4), n)


@pytest.mark.parametrize("name", [*ONE_AXIS, *MANY_AXES])
def test_float32_and_compiled(name):
    x = operand(name)
    narrow = x.astype(np.complex64 if np.iscomplexobj(x) else np.float32)
    function = getattr(F, name)
    eager, compiled = function(narrow), fxad.jit(function)(narrow)
    wanted = getattr(np.fft, name)(x)
    assert (
        eager.dtype == compiled.dtype == (np.complex64 if wanted.dtype.kind == "c" else np.float32)
    )
    for got in (eager, compiled):  # NumPy's code and native code: other roundings
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [*ONE_AXIS, *MANY_AXES])
def test_derivatives(name):
    x = operand(name)[0]
    fxad.check_grads(lambda x: jnp.sin(getattr(F, name)(x)), (x,), order=2)


@pytest.mark.parametrize("name", ["fft", "ifftn", "rfft", "irfft", "hfft", "ihfft"])
def test_transposes(name):
    """<c, A x> = <A^T c, x>, without conjugation, real parts for maps to or from reals."""
    x = operand(name)[0]
    out, pull = fxad.vjp(getattr(F, name), jnp.asarray(x))
    c = R.standard_normal(out.shape)
    c = c + 1j * R.standard_normal(out.shape) if np.iscomplexobj(np.asarray(out)) else c
    (back,) = pull(jnp.asarray(c))
    left, right = np.sum(c * np.asarray(out)), np.sum(np.asarray(back) * x)
    np.testing.assert_allclose(left.real, right.real, rtol=1e-10)


@pytest.mark.parametrize("name", [*ONE_AXIS, *MANY_AXES])
def test_lanes(name):
    x, function = operand(name), getattr(F, name)
    near(fxad.vmap(function)(x), np.stack([np.asarray(function(lane)) for lane in x]))
    near(
        fxad.jit(fxad.vmap(function, in_axes=1, out_axes=1))(x),
        np.stack([np.asarray(function(x[:, i])) for i in range(5)], axis=1),
    )


def test_training_a_filter_through_its_spectrum():
    signal = jnp.asarray(R.standard_normal(32))
    wanted = F.irfft(F.rfft(signal) * jnp.exp(-F.rfftfreq(32) * 3), n=32)

    @fxad.jit
    def step(mask):
        loss = lambda m: jnp.sum((F.irfft(F.rfft(signal) * m, n=32) - wanted) ** 2)  # noqa: E731
        value, slope = fxad.value_and_grad(loss)(mask)
        return value, mask - 0.01 * slope

    mask = jnp.ones(17)
    first, _ = step(mask)
    for _ in range(200):
        last, mask = step(mask)
    assert last < 1e-2 * first


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies(n):
    near(F.fftfreq(n, 0.5), np.fft.fftfreq(n, 0.5))
    near(F.rfftfreq(n, d=0.1), np.fft.rfftfreq(n, d=0.1))
    assert F.fftfreq(n, dtype=jnp.float32, device="cpu").dtype == np.float32
    for axes in (None, 0, (0, -1)):
        x = X[:, :n]
        near(F.fftshift(x, axes), np.fft.fftshift(x, axes))
        near(F.ifftshift(x, axes), np.fft.ifftshift(x, axes))


def test_empty_lanes_and_narrow_floats():
    assert F.fft(jnp.ones((0, 4))).shape == (0, 4)
    assert F.rfft(jnp.ones((0, 4))).shape == (0, 3)
    assert F.irfft(jnp.ones((0, 4))).shape == (0, 6)
    assert F.rfft(jnp.ones(4, jnp.bfloat16)).dtype == np.complex64
    assert F.fft(jnp.arange(4)).dtype == np.complex128


def test_errors():
    with pytest.raises(BadArgument, match="expects real numbers"):
        F.rfft(Z)
    with pytest.raises(BadArgument, match="norm must be"):
        F.fft(X, norm="both")
    with pytest.raises(BadArgument, match="norm must be"):
        F.hfft(Z, norm="both")
    with pytest.raises(BadArgument, match="at least one element"):
        F.fft(X, n=0)
    with pytest.raises(BadArgument, match="at least one element"):
        F.irfft(jnp.ones(1))
    with pytest.raises(ShapeError, match="one axis twice"):
        F.fftn(X, axes=(0, 0))
    with pytest.raises(ShapeError, match="2 sizes for 1 axes"):
        F.fftn(X, s=(2, 2), axes=(0,))
    with pytest.raises(BadArgument, match="at least one axis"):
        F.rfftn(X, axes=())
    with pytest.raises(BadArgument, match="at least one sample"):
        F.fftfreq(0)
    with pytest.raises(IndexError):
        F.fft(X, axis=3)


def test_lax_fft():
    rng = np.random.default_rng(7)
    x = rng.standard_normal((2, 4, 6)).astype(np.float32)
    z = (x + 1j * x[::-1]).astype(np.complex64)
    kinds = fxad.lax.FftType
    for kind, value, lengths, expected in [
        (kinds.FFT, z, (4, 6), np.fft.fftn(z, axes=(1, 2))),
        ("ifft", z, (6,), np.fft.ifft(z)),
        (2, x, (4, 6), np.fft.rfftn(x, axes=(1, 2))),
        ("IRFFT", z, (4, 10), np.fft.irfftn(z, (4, 10), axes=(1, 2))),
        (kinds.FFT, z, (), z),
    ]:
        run = lambda v, k=kind, n=lengths: fxad.lax.fft(v, k, n)  # noqa: E731
        np.testing.assert_allclose(run(value), expected, atol=1e-5)
        np.testing.assert_allclose(fxad.jit(fxad.vmap(run))(value), expected, atol=1e-5)
    with pytest.raises(ShapeError, match=r"FFT of lengths \(5,\) needs \(5,\), got c64"):
        fxad.lax.fft(z, "fft", (5,))
    with pytest.raises(BadArgument, match="FFT, IFFT, RFFT, IRFFT"):
        fxad.lax.fft(z, "dct", (6,))


@pytest.mark.parametrize("axes", [(0,), (1,), (2, 0), (0, 1, 2)])
def test_transforms_are_the_bits_of_numpys(axes):
    for x in (Z, Z.astype(np.complex64)):
        np.testing.assert_array_equal(F.fftn(x, axes=axes), np.fft.fftn(x, axes=axes), strict=True)
        # NumPy's inverse without a factor, which here is multiplied with afterwards
        got = F.ifftn(x, axes=axes, norm="forward")
        np.testing.assert_array_equal(got, np.fft.ifftn(x, axes=axes, norm="forward"), strict=True)
