"""Integers in vectors: known divisors, saturating conversions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp

KINDS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.fixture(autouse=True)
def wide():
    with fxad.enable_x64():
        yield


@pytest.mark.parametrize("kind", KINDS)
def test_quotients_by_known_numbers(kind: str) -> None:
    limits = np.iinfo(kind)
    r = np.random.default_rng(0)
    x = r.integers(limits.min, limits.max, 1001, dtype=kind)
    x[:4] = limits.min, limits.max, 0, 1
    divisors = [1, 2, 3, 7, 10, 97, 0, -1, -2, -7, limits.max, limits.min]
    divisors = [d for d in divisors if limits.min <= d <= limits.max]

    def both(x: Any) -> list[Any]:
        return [(x // d, x % d) for d in divisors]

    for d, (quotient, rest) in zip(divisors, fxad.jit(both)(x), strict=True):
        with np.errstate(all="ignore"):
            wanted = np.floor_divide(x, np.dtype(kind).type(d))
            np.testing.assert_array_equal(quotient, wanted, str(d), strict=True)
            wanted = np.remainder(x, np.dtype(kind).type(d))
            np.testing.assert_array_equal(rest, wanted, str(d), strict=True)


def test_a_known_divisor_is_multiplied_by() -> None:
    x = np.ones(1000, np.int32)
    assert "div" not in fxad.jit(lambda x: x // 7 + x % 12).lower(x).asm


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
def test_conversions_saturate(source: str, kind: str) -> None:
    limits = np.iinfo(kind)
    ends = (limits.min, limits.max)
    edges = [float(e) + d for e in ends for d in (-1.5, -1, -0.5, 0, 0.5, 1, 1.5)]
    around = [v for e in edges for v in (e, np.nextafter(e, -np.inf), np.nextafter(e, np.inf))]
    with np.errstate(over="ignore"):
        x = np.array([np.nan, np.inf, -np.inf, -0.5, 0.99, *around, *range(40)]).astype(source)

    def exactly(v: Any) -> int:
        v = float(v)
        if np.isnan(v):
            return 0
        return limits.max if v > limits.max else limits.min if v < limits.min else int(v)

    got = fxad.jit(lambda x: jnp.astype(x, kind))(x)
    np.testing.assert_array_equal(got, np.array([exactly(v) for v in x], kind), strict=True)
