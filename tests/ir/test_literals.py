"""Numbers as text: the shortest form that reads back to the same bits, for every dtype."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from fxad.core import dtypes as dt
from fxad.ir.literals import number, rounded
from fxad.ir.program import Lit, Program
from fxad.ir.text import parse

REAL = [d for d in dt.all_dtypes if dt.is_float(d)]


def returned(value: bool | int | float | complex, dtype: np.dtype) -> Lit:
    """The literal that the text of a program returning it is parsed to."""
    atom = parse(str(Program((), (), (Lit(value, dtype),)))).outputs[0]
    assert isinstance(atom, Lit)
    return atom


def bits(value: float, dtype: np.dtype) -> bytes:
    with np.errstate(over="ignore"):
        return np.asarray(value, dtype).tobytes()


@pytest.mark.parametrize("dtype", [d for d in REAL if d.itemsize <= 2], ids=str)
def test_every_number_of_a_narrow_dtype_reads_back(dtype: np.dtype) -> None:
    every = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)
    for value in every[~np.isnan(every.astype(np.float32))]:
        text = number(float(value), dtype)
        assert bits(float(text), dtype) == value.tobytes(), text


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
def test_numbers_of_wide_dtypes_read_back_and_are_as_short_as_numpy_writes_them(dtype) -> None:
    whole = f"u{dtype.itemsize}"
    drawn = np.random.default_rng(0).integers(0, np.iinfo(whole).max, 3000, whole).view(dtype)
    for value in drawn[np.isfinite(drawn)]:
        text = number(float(value), dtype)
        assert bits(float(text), dtype) == value.tobytes(), text
        shortest = np.format_float_scientific(value, unique=True, trim="-")
        assert len(digits(text)) <= len(digits(shortest)), (text, shortest)


def digits(text: str) -> str:
    return text.split("e")[0].replace(".", "").strip("-0")


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_zeros_infinities_and_nan(dtype: np.dtype) -> None:
    assert (number(0.0, dtype), number(-0.0, dtype)) == ("0.0", "-0.0")
    assert math.copysign(1, returned(-0.0, dtype).value) == -1
    assert math.isnan(returned(math.nan, dtype).value)
    if dtype != dt.float8_e4m3fn:  # it has no infinities
        assert returned(-math.inf, dtype).value == -math.inf
        assert number(1e300, dt.float32) == "inf"


def test_readable_forms() -> None:
    third = 1 / 3
    assert number(third) == "0.3333333333333333"
    assert [number(third, d) for d in (dt.float32, dt.float16, dt.bfloat16)] == [
        "0.33333334",
        "0.3333",
        "0.334",
    ]
    assert number(float(np.float32(0.1)), dt.float32) == "0.1"
    assert number(1e30) == "1e+30"
    assert returned(1e30, dt.float64).value == 1e30
    assert number(complex(0.1, float(np.float32(0.2))), dt.complex64) == "complex(0.1,0.2)"


@pytest.mark.parametrize("value", [complex(0.1, -0.0), complex(math.inf, 1e-30)])
@pytest.mark.parametrize("dtype", [dt.complex64, dt.complex128], ids=str)
def test_complex_numbers_read_back(value: complex, dtype: np.dtype) -> None:
    assert returned(value, dtype).key() == Lit(value, dtype).key()


def test_integers_and_bools_read_back() -> None:
    for dtype in (d for d in dt.all_dtypes if dt.is_integer(d)):
        for value in (np.iinfo(dtype).min, np.iinfo(dtype).max):
            assert returned(int(value), dtype).key() == Lit(int(value), dtype).key()
    assert returned(True, dt.bool_).value is True


def test_literals_are_equal_where_their_bits_are() -> None:
    tenth = struct.unpack("f", struct.pack("f", 0.1))[0]
    assert Lit(0.1, dt.float32).key() == Lit(tenth, dt.float32).key()
    assert Lit(0.1, dt.float64).key() != Lit(tenth, dt.float64).key()
    assert rounded(1e300, dt.float32) == math.inf


def test_the_hexadecimal_form_is_read_too() -> None:
    program = parse("program f() {\n return 0x1.999999999999ap-4:f64, -0x1.8p+1:f32\n}")
    assert [a.value for a in program.outputs if isinstance(a, Lit)] == [0.1, -3.0]
