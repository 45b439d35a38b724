"""What ops do at kinks, poles, ties and ends of range: the table of numeric conventions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fxad
from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.ir.program import Lit
from fxad.ops import elements as el
from fxad.ops.arrays.cumulative import cumlogsumexp, cummax, cumprod, cumsum
from fxad.ops.arrays.reduce import argmax, argmin, max_reduce, min_reduce, prod, sum
from fxad.ops.arrays.sorting import sort, top_k

INTS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
NAN, INF = math.nan, math.inf


def f64(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def slope(function: Any, *at: float) -> list[float]:
    """Derivatives of a function of f64 numbers with respect to each."""
    with fxad.enable_x64():
        gradients = fxad.grad(function, argnums=tuple(range(len(at))))(*map(np.float64, at))
    return [float(g) for g in gradients]


def gradient(function: Any, x: np.ndarray) -> np.ndarray:
    with fxad.enable_x64():
        return np.asarray(fxad.grad(function)(x))


# ---------------------------------------------------------------- integers


@pytest.mark.parametrize("dtype", INTS)
def test_integer_division_is_total_and_truncates(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    numbers = [0, 1, 2, 3, 7, limits.max, limits.min] + ([-1, -2, -7] if limits.min else [])
    pairs = [(a, b) for a in numbers for b in numbers]
    x, y = (np.array([p[i] for p in pairs], dtype) for i in (0, 1))
    quotients, remainders = np.asarray(el.div(x, y)), np.asarray(el.rem(x, y))
    for (a, b), quotient, remainder in zip(pairs, quotients, remainders, strict=True):
        exact = 0 if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
        wrapped = np.array(exact % 2 ** (8 * limits.dtype.itemsize), np.uint64).astype(dtype)
        assert quotient == wrapped, (a, b)
        assert remainder == (0 if b == 0 else a - exact * b), (a, b)


@pytest.mark.parametrize("dtype", INTS)
def test_shifts_and_bit_counts_are_those_of_python(dtype: Any) -> None:
    width = 8 * np.dtype(dtype).itemsize
    signed = np.iinfo(dtype).min < 0
    for value in (0, 1, 5, np.iinfo(dtype).max, np.iinfo(dtype).min):
        value = int(value)
        bits = value % 2**width
        x = np.array([value], dtype)
        assert el.popcount(x)[0] == bits.bit_count()
        assert el.clz(x)[0] == width - bits.bit_length()
        for amount in (0, 1, width - 1, width, 100):
            inside = amount < width
            top = bits - 2**width * (bits >> (width - 1))  # the bits read as a signed number
            wanted = [
                (bits << amount) * inside,
                (bits >> amount) * inside,
                top >> amount,
            ]
            shift = np.array([amount], dtype)
            found = [el.shl(x, shift), el.shr_logical(x, shift), el.shr_arith(x, shift)]
            assert [int(np.asarray(f)[0]) % 2**width for f in found] == [
                w % 2**width for w in wanted
            ]
        if signed:
            assert el.shl(x, np.array([-1], dtype))[0] == 0


def test_upper_halves_of_products() -> None:
    for dtype in INTS:
        width = 8 * np.dtype(dtype).itemsize
        a, b = int(np.iinfo(dtype).max), int(np.iinfo(dtype).min) or 77
        got = el.mul_high(np.array([a, b], dtype), np.array([b, b], dtype))
        assert np.asarray(got).tolist() == [(a * b) >> width, (b * b) >> width]


def test_integer_powers() -> None:
    x = np.array([2, -2, 1, -1, -1, 0, 3, 5], np.int32)
    y = np.array([10, 3, -5, -5, -4, 0, 40, -1], np.int32)
    wrapped = (3**40 + 2**31) % 2**32 - 2**31
    assert np.asarray(el.pow(x, y)).tolist() == [1024, -8, 1, -1, 1, 1, wrapped, 0]
    with pytest.raises(TypeMismatch, match="convert it to float"):
        el.integer_pow(x, n=-1)


# ---------------------------------------------------------------- conversions


def test_float_to_int_saturates() -> None:
    x = f64(1e30, -1e30, INF, -INF, NAN, 2.9, -2.9, -0.5)
    found = {d: np.asarray(el.convert(x, dtype=np.dtype(d))).tolist() for d in INTS}
    for dtype, values in found.items():
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        small = [-2, 0] if low else [0, 0]
        assert values == [high, low, high, low, 0, 2, *small]


def test_other_conversions() -> None:
    def convert(x: Any, dtype: Any) -> list[Any]:
        return np.asarray(el.convert(np.asarray(x), dtype=np.dtype(dtype))).tolist()

    assert convert(np.int32([300, -1]), np.uint8) == [44, 255]
    assert convert(f64(0.0, -0.0, NAN, 0.5), np.bool_) == [False, False, True, True]
    assert convert([1 + 2j, 2j], np.float32) == [1.0, 0.0]
    assert convert([0j, 2j], np.bool_) == [False, True]
    assert convert(np.int32([2**24 + 1]), np.float32) == [2.0**24]
    assert convert(f64(1 + 2**-8), dt.bfloat16) == [1.0]  # halves go to even
    assert convert([True], np.complex64) == [1 + 0j]


# ---------------------------------------------------------------- extrema


def test_extrema_propagate_nan_and_order_zeros() -> None:
    x, y = f64(NAN, 1, -0.0, 0.0), f64(1, NAN, 0.0, -0.0)
    largest, smallest = np.asarray(el.max(x, y)), np.asarray(el.min(x, y))
    assert np.isnan(largest[:2]).all()
    assert np.isnan(smallest[:2]).all()
    assert not np.signbit(largest[2:]).any()
    assert np.signbit(smallest[2:]).all()
    assert np.isnan(el.clamp(f64(0), f64(NAN), f64(1))[0])
    assert np.isnan(max_reduce(f64(3, NAN, 5), axes=(0,)))
    assert np.isnan(min_reduce(f64(3, NAN, 5), axes=(0,)))
    assert int(argmax(f64(3, NAN, 5, NAN), axis=0, dtype=dt.int32)) == 1
    assert int(argmin(f64(3, 1, 1), axis=0, dtype=dt.int32)) == 1


def test_gradients_at_ties_and_bounds() -> None:
    assert slope(el.max, 1.0, 1.0) == [0.5, 0.5]
    assert slope(el.min, 1.0, 1.0) == [0.5, 0.5]
    assert slope(el.max, 2.0, 1.0) == [1.0, 0.0]
    assert slope(lambda x: el.clamp(0.0, x, 1.0), 1.0) == [0.5]
    assert slope(lambda x: el.clamp(0.0, x, 1.0), 0.3) == [1.0]
    assert slope(lambda x: el.clamp(0.0, x, 1.0), 1.3) == [0.0]
    x = f64(1, 3, 3, 2, 3)
    shared = [0, 1 / 3, 1 / 3, 0, 1 / 3]
    assert gradient(lambda v: max_reduce(v, axes=(0,)), x).tolist() == shared
    assert gradient(lambda v: min_reduce(el.neg(v), axes=(0,)), x).tolist() == [-s for s in shared]


# ---------------------------------------------------------------- kinks, poles, zeros


def test_gradients_at_kinks() -> None:
    assert slope(el.abs, 0.0) == [0.0]
    assert slope(el.sqrt, 0.0) == [INF]
    assert slope(el.cbrt, 0.0) == [INF]
    assert slope(el.pow, 0.0, 0.0) == [0.0, 0.0]
    assert slope(lambda x: el.pow(x, 0.0), 0.0) == [0.0]
    assert slope(lambda x: el.pow(x, 1.0), 0.0) == [1.0]
    assert slope(lambda x: el.pow(x, 2.0), -3.0) == [-6.0]
    assert slope(lambda y: el.pow(0.0, y), 2.0) == [0.0]
    assert slope(lambda x: el.integer_pow(x, n=0), 0.0) == [0.0]
    assert slope(el.round, 0.5) == [0.0]


def test_gradient_of_the_size_of_a_complex_number() -> None:
    z = np.array([3 + 4j, 0j], np.complex128)
    with fxad.enable_x64():
        size = np.asarray(fxad.grad(lambda v: sum(el.abs(v), axes=(0,)))(z))
        square = lambda v: sum(el.real(el.mul(v, el.conj(v))), axes=(0,))  # noqa: E731
        squared = np.asarray(fxad.grad(square)(z))
    np.testing.assert_allclose(size, [0.6 - 0.8j, 0], rtol=1e-15)
    np.testing.assert_allclose(squared, 2 * z.conj(), rtol=1e-15)


@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_products_with_zeros_have_exact_derivatives(zeros: int) -> None:
    x = f64(2, 3, -5, 7, 1.5)
    x[:zeros] = 0

    def without(*places: int) -> float:
        return float(np.prod(np.delete(x, places)))

    def product(v: Any) -> Any:
        return prod(v, axes=(0,))

    assert gradient(product, x).tolist() == [without(i) for i in range(5)]
    with fxad.enable_x64():
        second = np.asarray(fxad.hessian(product)(x))
        last = np.asarray(fxad.jacrev(lambda v: cumprod(v, axis=0, reverse=False))(x))
    wanted = [[0.0 if i == j else without(i, j) for j in range(5)] for i in range(5)]
    np.testing.assert_allclose(second, wanted, rtol=1e-14)
    np.testing.assert_allclose(last[-1], [without(i) for i in range(5)], rtol=1e-14)


def test_running_log_sums_of_nothing() -> None:
    x = f64(-INF, -INF, 0.0, 800.0, -INF)
    found = np.asarray(cumlogsumexp(x, axis=0, reverse=False))
    assert found.tolist() == [-INF, -INF, 0.0, 800.0, 800.0]

    def first(v: Any) -> Any:
        return sum(
            el.select(np.arange(5) < 2, 0.0, cumlogsumexp(v, axis=0, reverse=False)), axes=(0,)
        )

    assert gradient(first, x).tolist() == [0.0, 0.0, 1.0, 2.0, 0.0]
    nothing = gradient(lambda v: sum(cumlogsumexp(v, axis=0, reverse=False), axes=(0,)), x[:2])
    assert nothing.tolist() == [0.0, 0.0]


def test_running_combinations() -> None:
    x = np.array([[1, 4, 2], [3, -1, 5]], np.int8)
    assert np.asarray(cumsum(x, axis=1, reverse=True)).tolist() == [[7, 6, 2], [7, 4, 5]]
    assert np.asarray(cummax(x, axis=1, reverse=False)).tolist() == [[1, 4, 4], [3, 3, 5]]
    assert np.asarray(cumsum(np.int8([100, 100]), axis=0, reverse=False)).tolist() == [100, -56]
    halves = np.full(4096, 1, np.float16)
    assert float(cumsum(halves, axis=0, reverse=False)[-1]) == 4096  # in f16 it would stop at 2048
    assert float(sum(halves, axes=(0,))) == 4096


# ---------------------------------------------------------------- special functions

EULER = 0.5772156649015329


def test_gamma_functions() -> None:
    x = f64(1, 0.5, 2, -0.5, 10, 1e-3)
    known = [-EULER, -EULER - 2 * math.log(2), 1 - EULER]
    known += [0.03648997397857652, 2.251752589066721, -1000.5755719318103]
    np.testing.assert_allclose(np.asarray(el.digamma(x)), known, rtol=1e-12)
    assert slope(fxad.grad(el.lgamma), 1.0)[0] == pytest.approx(math.pi**2 / 6, rel=1e-12)
    poles = np.asarray(el.lgamma(f64(0, -1, -2, INF, -INF, 1e308)))
    assert poles.tolist() == [INF] * 6
    assert float(el.digamma(np.float16(1))) == pytest.approx(-EULER, rel=1e-3)


def test_inverse_error_function() -> None:
    y = f64(-0.999999, -0.7, -1e-9, 0.0, 1e-300, 0.3, 0.95, 1 - 2**-53)
    x = np.asarray(el.erfinv(y))
    for before, after in zip(y, x, strict=True):
        assert math.erf(after) == pytest.approx(before, rel=4e-16, abs=0)
    assert np.asarray(el.erfinv(f64(1, -1))).tolist() == [INF, -INF]
    assert np.isnan(el.erfinv(f64(1.5))[0])


def test_logistic_does_not_overflow() -> None:
    x = np.float32([-200, -100, 0, 100, INF, -INF])
    found = np.asarray(el.logistic(x))
    wanted = [math.exp(-200), math.exp(-100), 0.5, 1, 1, 0]
    np.testing.assert_allclose(found, np.float32(wanted), rtol=1e-6)


# ---------------------------------------------------------------- order


def test_sorting_is_stable_and_puts_nan_last() -> None:
    x = f64(3, NAN, -0.0, 0.0, 3, NAN, -INF)
    places = np.arange(7, dtype=np.int32)
    _, order = sort(x, places, axis=0, keys=1)
    assert np.asarray(order).tolist() == [6, 2, 3, 0, 4, 1, 5]
    values, found = top_k(x, k=4)
    assert np.asarray(found).tolist() == [1, 5, 0, 4]
    assert np.isnan(np.asarray(values)[:2]).all()
    assert np.asarray(top_k(np.uint8([0, 255, 255, 7]), k=3)[1]).tolist() == [1, 2, 3]


def test_sorting_by_two_keys_carries_the_rest() -> None:
    first, second = np.int32([1, 0, 1, 0]), f64(2, 5, 1, 4)
    result = sort(first, second, np.arange(4.0), axis=0, keys=2)
    assert np.asarray(result[2]).tolist() == [3.0, 1.0, 2.0, 0.0]


def test_gradients_follow_their_elements() -> None:
    x, weights = f64(3, 1, 2), f64(10, 20, 30)

    def weighed(v: Any) -> Any:
        return sum(el.mul(sort(v, axis=0, keys=1)[0], weights), axes=(0,))

    assert gradient(weighed, x).tolist() == [30, 10, 20]
    assert gradient(lambda v: sum(top_k(v, k=2)[0], axes=(0,)), x).tolist() == [1, 0, 1]


# ---------------------------------------------------------------- numbers among operands


def test_numbers_take_the_arrays_dtype() -> None:
    x = np.float16([1, 2])
    for result in (el.add(x, 1), el.sub(1, x), el.select(np.array([True, False]), x, 0)):
        assert result.dtype == np.float16
        assert result.shape == (2,)
    assert el.mul(x, Lit(2.0, dt.float16)).dtype == np.float16
    assert el.add(np.float32([1, 2]), np.float32(1)).shape == (2,)  # rank 0 is broadcast


def test_operands_must_agree() -> None:
    with pytest.raises(TypeMismatch, match="differ in dtype"):
        el.add(np.float32([1]), np.float64([1]))
    with pytest.raises(ShapeError, match="differ in shape"):
        el.add(np.float32([1, 2]), np.float32([1, 2, 3]))
    with pytest.raises(TypeMismatch, match="does not take"):
        el.lt(np.complex64([1]), np.complex64([1]))
