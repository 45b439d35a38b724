"""Dtypes: names, predicates, limits, canonicalization and x64."""

from __future__ import annotations

import threading
import warnings

import ml_dtypes
import numpy as np
import pytest

import fxad.numpy as jnp
from fxad.core import dtypes as dt
from fxad.core.errors import (
    ConcretizationError,
    FxadError,
    NarrowingWarning,
    ShapeError,
    TypeMismatch,
    at,
)


def test_short_names_are_a_bijection():
    shorts = [dt.short_name(d) for d in dt.all_dtypes]
    assert len(set(shorts)) == len(dt.all_dtypes) == 17
    assert [dt.from_short_name(s) for s in shorts] == list(dt.all_dtypes)
    assert dt.short_name(dt.bfloat16) == "bf16" and dt.short_name(dt.float8_e5m2) == "f8e5m2"
    assert dt.from_short_name("i8") == np.int8
    for bad in (np.dtype(object), np.dtype(">f4")):
        with pytest.raises(TypeError, match="not supported"):
            dt.short_name(bad)
    with pytest.raises(TypeError, match="known: bool, i8"):
        dt.from_short_name("f31")


def test_predicates_partition_the_dtypes():
    for d in dt.all_dtypes:
        assert dt.is_bool(d) + dt.is_integer(d) + dt.is_float(d) + dt.is_complex(d) == 1
        assert dt.is_inexact(d) == dt.is_differentiable(d) == dt.is_float(d) | dt.is_complex(d)
        if dt.is_integer(d):
            assert dt.is_signed(d) == (np.array(0, d) - np.array(1, d) < 0)
            assert dt.iinfo(d).max == np.iinfo(d).max
        elif dt.is_inexact(d):
            assert dt.finfo(d).bits == dt.real_of(d).itemsize * 8
    assert not dt.is_signed(dt.bool_)
    assert float(dt.finfo(dt.bfloat16).eps) == 2**-7
    assert float(dt.finfo(dt.float8_e4m3fn).max) == 448
    with pytest.raises(TypeError, match="iinfo"):
        dt.finfo(dt.int32)
    with pytest.raises(TypeError, match="finfo"):
        dt.iinfo(dt.float32)


def test_real_and_complex_parts():
    assert dt.real_of(dt.complex128) == dt.float64 and dt.real_of(dt.int8) == dt.int8
    assert dt.complex_of(dt.float64) == dt.complex128 and dt.complex_of(dt.int32) == dt.complex64
    assert dt.complex_of(dt.bfloat16) == dt.complex_of(dt.complex64) == dt.complex64
    assert dt.inexact_for(dt.int8) == dt.float32 and dt.inexact_for(dt.float16) == dt.float16


def test_explicit_dtypes_win():
    for like, meant in [
        (np.float64, dt.float64),
        ("int64", dt.int64),
        ("bfloat16", dt.bfloat16),
        (ml_dtypes.float8_e5m2, dt.float8_e5m2),
        (np.dtype(">i8"), dt.int64),
        (float, dt.float32),
        ("int", dt.int32),
        (complex, dt.complex64),
        (bool, dt.bool_),
    ]:
        got = dt.canonicalize(like, explicit=True)
        assert got == meant and got.isnative
    for bad in (object, "U3", np.longdouble, "datetime64[s]", [("a", "f4")], None, "flaot32", 3):
        with pytest.raises(TypeError):
            dt.canonicalize(bad, explicit=True)


@pytest.mark.parametrize("array", [np.arange(2, dtype=np.int16), np.zeros((), np.float64)])
def test_an_array_is_no_dtype(array):
    for given in (array, jnp.asarray(array)):
        with pytest.raises(TypeMismatch, match=r"an array of .*`x.dtype`"):
            dt.canonicalize(given, explicit=True)
    assert dt.canonicalize(array.dtype.type(1), explicit=True) == array.dtype


def test_implicit_narrowing_warns_once(monkeypatch):
    monkeypatch.setattr(dt, "_warned", threading.Event())
    with pytest.warns(NarrowingWarning, match="float64 input becomes float32") as caught:
        assert dt.canonicalize(np.dtype(np.float64), explicit=False) == dt.float32
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dt.canonicalize(np.dtype(">i8"), explicit=False) == dt.int32
        assert dt.canonicalize(np.dtype(np.uint64), explicit=False) == dt.uint32
        assert dt.canonicalize(np.dtype(np.complex128), explicit=False) == dt.complex64
        with dt.enable_x64():
            assert dt.canonicalize(np.dtype(np.float64), explicit=False) == dt.float64


def test_x64_is_scoped_and_per_thread():
    seen = []
    with dt.enable_x64():
        assert (dt.default_float(), dt.default_int()) == (dt.float64, dt.int64)
        assert dt.default_complex() == dt.complex128
        with dt.enable_x64(False):
            assert not dt.x64_enabled()
        thread = threading.Thread(target=lambda: seen.append(dt.x64_enabled()))
        thread.start()
        thread.join()
        assert dt.x64_enabled()
    assert seen == [False] and not dt.x64_enabled()
    dt.enable_x64(True)
    assert dt.default_float() == dt.float64
    dt.enable_x64(False)
    assert dt.default_float() == dt.float32
    with pytest.raises(RuntimeError), dt.enable_x64():
        raise RuntimeError
    assert not dt.x64_enabled()


def test_error_classes_are_what_callers_expect():
    assert issubclass(ShapeError, ValueError) and issubclass(ShapeError, TypeError)
    error = ConcretizationError.during("bool()", "f32[3]", "train.py:12")
    assert isinstance(error, FxadError) and isinstance(error, TypeError)
    for word in ("bool()", "f32[3]", "(train.py:12)", "cond", "while_loop", "scan"):
        assert word in str(error)
    assert at("") == ""
