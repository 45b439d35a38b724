"""Native Fourier transforms against NumPy's, computed in double precision."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import pytest
from guarded import MARK, around, guarded

import fxad
import fxad.numpy as jnp
from fxad.backend.llvm.factors import calls
from fxad.backend.llvm.native.engine import host_target
from fxad.core.config import config
from fxad.ir.loops import Fourier
from fxad.ir.plan import Host

TARGET = host_target()
LOWER = ["generic"] if TARGET.isa in ("generic", "neon") else ["avx2", "generic"]
DTYPES = ["float32", "float64"]
LENGTHS = [*range(1, 65), 96, 128, 143, 250, 256, 1000, 1024, 4096, 6006]
NATIVE_PRIMES = {2, 3, 5, 7, 11, 13}


def _numbers(shape: tuple[int, ...], dtype: str, real: bool = False) -> np.ndarray:
    rng = np.random.default_rng(math.prod(shape))
    x = rng.normal(size=shape)
    x = x if real else x + 1j * rng.normal(size=shape)
    return x.astype(np.dtype(dtype) if real else np.result_type(dtype, np.complex64))


def _near(got: Any, wanted: np.ndarray, x: np.ndarray, n: int) -> None:
    """The error in the 2-norm is at most eps log2 n (Higham, 24.1), of the whole transform."""
    got = np.asarray(got)
    eps = np.finfo(x.dtype).eps
    assert got.dtype.itemsize == wanted.dtype.itemsize * (1 if eps < 1e-10 else 0.5)
    error = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
    assert error <= eps * (1 + math.log2(n)), error / eps


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _calls(what: Fourier) -> tuple[calls.Call, ...]:
    def function() -> None:
        """Stands for the Python function of a step."""

    function.factoring = what  # type: ignore[attr-defined]
    return calls.native_calls(Host(function, (), ()), TARGET)


def _factors(n: int) -> set[int]:
    return {p for p in range(2, n + 1) if n % p == 0 and all(p % q for q in range(2, p))}


# ---------------------------------------------------------------- against NumPy


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize("inner", [1, 5])
def test_every_length_equals_numpys(name, dtype, inner):
    """Rows and columns, more of them than lanes and fewer. Inverses are scaled by a loop that is
    compiled for every shape: those of some lengths only, others have a norm that scales nothing."""
    with fxad.enable_x64(dtype == "float64"):
        for n in LENGTHS:
            size = n // 2 + 1 if name == "irfft" else n
            # Both numbers of rows for every length, each with one dtype of either layout: by the
            # bits of n, so that even and odd lengths meet both in either dtype.
            odd = (n.bit_count() + inner // 5 + (dtype == "float64")) % 2
            for outer in ((1, 19)[odd],) if n < 100 else (5,):
                x = _numbers((outer, size, inner), dtype, real=name == "rfft")
                given = {"n": n} if name == "irfft" else {}
                given["norm"] = "forward" if name[0] == "i" and n % 16 else "backward"
                x = x[..., 0] if inner == 1 else x
                run = fxad.jit(lambda x, given=given: getattr(jnp.fft, name)(x, axis=1, **given))
                _near(run(x), getattr(np.fft, name)(_wide(x), axis=1, **given), x, n)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn"])
def test_several_axes_equal_numpys(name, dtype):
    with fxad.enable_x64(dtype == "float64"):
        for shape, axes in (((12, 10), None), ((3, 16, 33), (0, 2)), ((64, 48), (1, 0))):
            x = _numbers(shape, dtype, real=name == "rfftn")
            got = fxad.jit(lambda x, axes=axes: getattr(jnp.fft, name)(x, axes=axes))(x)
            _near(got, getattr(np.fft, name)(_wide(x), axes=axes), x, math.prod(shape))


def test_arrays_that_are_not_contiguous():
    x = _numbers((40, 33), "float32").T[::2]
    _near(fxad.jit(jnp.fft.fft)(x), np.fft.fft(_wide(x)), x, 40)


def test_half_spectra_whose_ends_are_not_real():
    """NumPy ignores the imaginary parts of the first term, and of the last of an even number."""
    for n in (8, 9):
        y = _numbers((20, n // 2 + 1), "float32") + np.complex64(3j)
        got = fxad.jit(lambda y, n=n: jnp.fft.irfft(y, n))(y)
        _near(got, np.fft.irfft(_wide(y), n), y, n)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_number_that_is_none_spoils_its_own_transform_only(wrong):
    x = _numbers((20, 48), "float32")
    x[3, 7] = wrong
    finite = np.isfinite(fxad.jit(jnp.fft.fft)(x))
    assert not finite[3].any() and np.delete(finite, 3, 0).all()
    assert np.isfinite(fxad.jit(lambda x: jnp.fft.fft(x, axis=0))(x)).all(axis=0).sum() == 47


# ---------------------------------------------------------------- what is called


def test_lengths_with_large_prime_factors_are_left_to_numpy():
    for n in range(1, 200):
        native = bool(_calls(Fourier("fft", np.dtype("float32"), (20, n), (-1,))))
        assert native == (_factors(n) <= NATIVE_PRIMES), n
    assert not _calls(Fourier("fft", np.dtype("float32"), (17, 20), (-2, -1)))
    assert not _calls(Fourier("rfft", np.dtype("float32"), (3, 6561), (-1,), n=6561))
    assert _calls(Fourier("fft", np.dtype("float32"), (3, 6561), (-1,)))  # in two steps
    assert _calls(Fourier("rfft", np.dtype("float32"), (3, 8192), (-1,), n=8192))
    assert not _calls(Fourier("fft", np.dtype("float32"), (0, 20), (-1,)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [None, 0])
@pytest.mark.parametrize("kind", ["fft", "rfft", "irfft"])
def test_nothing_outside_of_the_arrays_is_touched(kind, dtype, offset):
    for n, outer, inner in ((12, 1, 1), (13, 19, 1), (16, 5, 3), (15, 2, 17), (144, 2, 1)):
        half = n // 2 + 1
        taken, given = half if kind == "irfft" else n, half if kind == "rfft" else n
        x = guarded(_numbers((outer, taken, inner), dtype, real=kind == "rfft"), offset)
        out = _numbers((outer, given, inner), dtype, real=kind == "irfft")
        y = guarded(np.full_like(out, np.nan), offset)
        what = Fourier(kind, np.dtype(dtype), x.shape, (-2,), kind == "irfft", n)
        (call,) = _calls(what)
        scratch = guarded(np.full(call.scratch, 7, np.uint8), 0)
        words = (ctypes.c_int64 * 99)(x.ctypes.data, y.ctypes.data, *call.numbers)
        types = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        ctypes.CFUNCTYPE(None, *types)(call.address)(words, 0, call.units, scratch.ctypes.data)
        for before, after in map(around, (x, y, scratch)):
            assert (before == MARK).all() and (after == MARK).all()
        extra = {"n": n, "norm": "forward"} if kind == "irfft" else {}
        _near(y, getattr(np.fft, kind)(_wide(x), axis=1, **extra), x, n)


# ---------------------------------------------------------------- the same bits


def _results(dtype: str) -> list[np.ndarray]:
    x = _numbers((37, 36), dtype)
    functions = (
        jnp.fft.fft2,
        lambda x: jnp.fft.irfft2(x, (37, 70)),
        lambda x: jnp.fft.rfft(x.real),
        lambda x: jnp.fft.fft(jnp.concatenate([x.ravel()] * 4)),
    )
    with fxad.enable_x64(dtype == "float64"):
        return [np.asarray(fxad.jit(function)(x[:36])) for function in functions]


@pytest.mark.slow
@pytest.mark.parametrize("isa", LOWER)
@pytest.mark.parametrize("dtype", DTYPES)
def test_other_instruction_sets_compute_the_same_bits(isa, dtype):
    best = _results(dtype)
    with config.override(isa=isa):
        for one, other in zip(best, _results(dtype), strict=True):
            np.testing.assert_array_equal(one, other)


def test_any_number_of_threads_computes_the_same_bits():
    x = _numbers((300, 144), "float32")
    before, results = fxad.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            fxad.set_num_threads(threads)
            results.append(np.asarray(fxad.jit(jnp.fft.fft2)(x)))
    finally:
        fxad.set_num_threads(before)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


# ---------------------------------------------------------------- transformed


def test_gradients_and_batches_are_native_too():
    x = _numbers((6, 24), "float32")

    def energy(x):
        return jnp.sum(jnp.abs(jnp.fft.fft(x)) ** 2)

    # Parseval: the energy is 24 |x|^2; the cotangent of a complex number is the conjugate's.
    slope = fxad.jit(fxad.vmap(fxad.grad(energy)))(x)
    np.testing.assert_allclose(slope, 48 * x.conj(), rtol=1e-5, atol=1e-4)
