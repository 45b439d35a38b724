"""Promotion: the stated rules, lattice laws, and agreement with JAX."""

from __future__ import annotations

import enum
import itertools

import numpy as np
import pytest

from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.core.promotion import (
    check_int_fits,
    entry_of,
    promote,
    promote_types,
    result_type,
    scalar_entry,
)

WIDE = {dt.int64, dt.uint64, dt.float64, dt.complex128}


def join(a, b):
    """The promoted dtype, or None where there is none."""
    try:
        return promote_types(a, b)
    except TypeMismatch:
        return None


def test_stated_rules():
    rules = """
    i32 f32 f32 | i32 f16 f16 | bf16 f16 f32 | i32 u32 i32 | u8 i8 i16 | bool u8 u8 | i64 f16 f16
    f64 f32 f64 | f32 f64 f64 | c64 f64 c128 | i64 i32 i64 | u32 i64 i64 | u64 u32 u64 | f16 c64 c64
    f8e5m2 i32 f8e5m2 | u64 i64 f32 | bool bool bool | u32 i8 i32 | f64 c64 c128
    """
    for rule in rules.replace("\n", "|").split("|"):
        if rule.strip():
            a, b, out = map(dt.from_short_name, rule.split())
            assert promote_types(a, b) == promote_types(b, a) == out, rule
    with dt.enable_x64():
        assert promote_types(dt.int32, dt.uint32) == dt.int64
        assert promote_types(dt.uint64, dt.int64) == dt.float64
    assert promote_types(dt.int32, dt.uint32) == dt.int32


def test_float8_meets_no_other_float():
    for f8 in (dt.float8_e4m3fn, dt.float8_e5m2):
        for other in dt.all_dtypes:
            if dt.is_inexact(other) and other != f8:
                with pytest.raises(TypeMismatch, match="no implicit promotion") as caught:
                    promote_types(f8, other)
                assert str(f8) in str(caught.value) and str(other) in str(caught.value)
    assert result_type(dt.float8_e5m2, 1.5) == dt.float8_e5m2


def test_lattice_laws():
    with dt.enable_x64():
        for a, b in itertools.product(dt.all_dtypes, repeat=2):
            both = join(a, b)
            assert both == join(b, a)
            assert both is None or join(both, a) == both
        for a, b, c in itertools.product(dt.all_dtypes, repeat=3):
            ab, bc = join(a, b), join(b, c)
            if None not in (ab, bc) and {dt.int64, dt.uint64} - {a, b, c}:
                assert join(ab, c) == join(a, bc), (a, b, c)


def test_python_scalars_are_weak():
    assert scalar_entry(1) == (dt.int32, True) and scalar_entry(1.0) == (dt.float32, True)
    assert scalar_entry(1j) == (dt.complex64, True) and scalar_entry(True) == (dt.bool_, False)
    assert scalar_entry(enum.IntEnum("E", "a").a) == (dt.int32, True)
    for scalar, dtype, out in [
        (1, dt.int8, dt.int8),
        (1, dt.bool_, dt.int32),
        (1.0, dt.bfloat16, dt.bfloat16),
        (1.0, dt.int8, dt.float32),
        (1.0, dt.float64, dt.float64),
        (1j, dt.float16, dt.complex64),
        (1j, dt.float64, dt.complex128),
        (True, dt.uint8, dt.uint8),
    ]:
        assert result_type(scalar, dtype) == result_type(dtype, scalar) == out
    assert promote(scalar_entry(1), scalar_entry(2.0)) == (dt.float32, True)
    assert promote((dt.int32, False), scalar_entry(2.0)) == (dt.float32, True)
    assert promote((dt.float32, False), scalar_entry(2.0)) == (dt.float32, False)
    with dt.enable_x64():
        assert scalar_entry(1) == (dt.int64, True) and scalar_entry(1.0) == (dt.float64, True)
        assert result_type(dt.int32, 1.0) == dt.float64
        assert result_type(dt.float32, 1.0) == dt.float32


@pytest.mark.filterwarnings("ignore::fxad.core.errors.NarrowingWarning")
def test_numpy_scalars_are_arrays():
    assert isinstance(np.float64(1), float)  # the trap
    for value in (np.float64(1), np.bool_(True), np.float32(1), np.int64(1)):
        with pytest.raises(TypeMismatch, match="0-d array"):
            scalar_entry(value)
    assert entry_of(np.float64(1)) == (dt.float32, False)
    assert result_type(np.float64(1), dt.bfloat16) == dt.float32
    assert result_type(np.zeros(3, np.float16), np.float64) == dt.float64
    with pytest.raises(TypeError):
        scalar_entry("1")


def test_integers_that_do_not_fit():
    for dtype in (dt.int8, dt.uint8, dt.int32, dt.uint64, dt.int64):
        info = np.iinfo(dtype)
        low, high = int(info.min), int(info.max)
        for value in (low, high, 0):
            check_int_fits(value, dtype)
        for value in (low - 1, high + 1, 10**50):
            with pytest.raises(OverflowError, match=f"{dtype}.*{high}.*astype"):
                check_int_fits(value, dtype)
    check_int_fits(10**30, dt.float16)
    with pytest.raises(OverflowError, match="300 does not fit uint8"):
        check_int_fits(300, dt.uint8)


def test_nothing_to_promote():
    with pytest.raises(TypeMismatch, match="at least one"):
        promote()


@pytest.mark.peers
@pytest.mark.parametrize("x64", [False, True])
def test_as_jax(x64):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    # Without x64 JAX has no 64-bit dtypes, so there those are ours alone (see test_stated_rules).
    compared = [d for d in dt.all_dtypes if x64 or d not in WIDE]
    scalars = [True, 2, 2.0, 2j]

    def theirs(*args):
        try:
            return np.dtype(jnp.result_type(*args))
        except ValueError as error:  # JAX's TypePromotionError, which has no public name
            assert "promotion" in str(error)
            return None

    def ours(*args):
        try:
            return result_type(*args)
        except TypeMismatch:
            return None

    with jax.enable_x64(x64), dt.enable_x64(x64):
        for a, b in itertools.product(compared, [*compared, *scalars]):
            assert ours(a, b) == theirs(a, b), (a, b)
        for a, b in itertools.product(scalars, repeat=2):
            assert ours(a, b) == theirs(a, b), (a, b)
        for args in itertools.product([dt.int8, dt.uint32, dt.bfloat16, 2.0], repeat=3):
            assert ours(*args) == theirs(*args), args
