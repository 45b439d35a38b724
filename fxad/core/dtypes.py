"""Element types: plain `numpy.dtype` objects, with ml_dtypes' bfloat16 and 8-bit floats.

>>> short_name(bfloat16), from_short_name("i32") == int32
('bf16', True)
>>> canonicalize(np.float64, explicit=True)  # an explicit dtype always wins
dtype('float64')
>>> canonicalize(float, explicit=True)  # a Python type names a kind, not a width
dtype('float32')
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from typing import Any, Self

import ml_dtypes
import numpy as np

from fxad.core.errors import DtypeError, NarrowingWarning, TypeMismatch
from fxad.core.semantics import semantics
from fxad.core.source import PACKAGE

bool_ = np.dtype(np.bool_)
int8, int16, int32, int64 = map(np.dtype, (np.int8, np.int16, np.int32, np.int64))
uint8, uint16, uint32, uint64 = map(np.dtype, (np.uint8, np.uint16, np.uint32, np.uint64))
float16, float32, float64 = map(np.dtype, (np.float16, np.float32, np.float64))
bfloat16 = np.dtype(ml_dtypes.bfloat16)
float8_e4m3fn = np.dtype(ml_dtypes.float8_e4m3fn)
float8_e5m2 = np.dtype(ml_dtypes.float8_e5m2)
complex64, complex128 = map(np.dtype, (np.complex64, np.complex128))
float0 = np.dtype([("float0", np.void, 0)])  # of tangents of integers and bools: no bytes at all


class extended(np.generic):
    """The kind of dtypes that NumPy has nothing like: only `prng_key`. Never called."""


class prng_key(np.void, extended):  # type: ignore[misc]  # final in NumPy's stubs alone
    """The kind of typed random keys, which packages know by its name. Never called."""


# A typed random key: its two u32 words, for moving only.
key = np.dtype((prng_key, [("key<fry>", np.uint64)]))

_SHORT: dict[np.dtype, str] = {
    bool_: "bool",
    int8: "i8",
    int16: "i16",
    int32: "i32",
    int64: "i64",
    uint8: "u8",
    uint16: "u16",
    uint32: "u32",
    uint64: "u64",
    float8_e4m3fn: "f8e4m3fn",
    float8_e5m2: "f8e5m2",
    float16: "f16",
    bfloat16: "bf16",
    float32: "f32",
    float64: "f64",
    complex64: "c64",
    complex128: "c128",
}

all_dtypes: tuple[np.dtype, ...] = tuple(_SHORT)  # of numbers
_SHORT[key] = "key<fry>"
_FROM_SHORT = {short: dtype for dtype, short in _SHORT.items()}

_SIGNED = frozenset({int8, int16, int32, int64})
_INTEGER = _SIGNED | {uint8, uint16, uint32, uint64}
_FLOAT8 = frozenset({float8_e4m3fn, float8_e5m2})
_FLOAT = _FLOAT8 | {float16, bfloat16, float32, float64}
_COMPLEX = frozenset({complex64, complex128})
_INEXACT = _FLOAT | _COMPLEX
_NARROW = {int64: int32, uint64: uint32, float64: float32, complex128: complex64}


def is_float0(value: Any) -> bool:
    """Whether a value is a NumPy array of `float0`."""
    return isinstance(value, np.ndarray) and value.dtype == float0


def short_name(dtype: np.dtype) -> str:
    """The name printed in IR text: `f32`, `bf16`, `i32`, `u8`, `bool`, `c64`, `f8e4m3fn`..."""
    try:
        return _SHORT[dtype]
    except KeyError:
        raise _unsupported(dtype) from None


def long_name(dtype: np.dtype) -> str:
    """NumPy's name of it, or JAX's where NumPy has none: `float32`, `key<fry>`, `float0`."""
    return dtype.names[0] if dtype.names else dtype.name


def from_short_name(name: str) -> np.dtype:
    """The inverse of `short_name`. (NumPy's codes differ: its `i8` has 8 bytes, ours 8 bits.)"""
    try:
        return _FROM_SHORT[name]
    except KeyError:
        raise TypeMismatch(
            f"unknown dtype name {name!r}; known: {', '.join(_FROM_SHORT)}"
        ) from None


def is_bool(dtype: np.dtype) -> bool:
    return dtype == bool_


def is_integer(dtype: np.dtype) -> bool:
    """Signed or unsigned integer; bool is not an integer."""
    return dtype in _INTEGER


def is_signed(dtype: np.dtype) -> bool:
    """Can it hold -1: signed integers, floats and complex."""
    return dtype in _SIGNED or dtype in _INEXACT


def is_float(dtype: np.dtype) -> bool:
    """Real floating point, 8-bit floats and bfloat16 included."""
    return dtype in _FLOAT


def is_complex(dtype: np.dtype) -> bool:
    return dtype in _COMPLEX


def is_inexact(dtype: np.dtype) -> bool:
    """Float or complex."""
    return dtype in _INEXACT


is_differentiable = is_inexact


def finfo(dtype: np.dtype) -> Any:
    """Machine limits of a float dtype, or of the parts of a complex one (`eps`, `max`, ...)."""
    if dtype not in _INEXACT:
        raise DtypeError(f"finfo needs a float or complex dtype, got {dtype}; try iinfo")
    return ml_dtypes.finfo(real_of(dtype))  # type: ignore[no-untyped-call]  # as its stubs have it


@functools.cache
def iinfo(dtype: np.dtype) -> Any:
    """Range of an integer dtype (`min`, `max`, `bits`)."""
    if dtype not in _INTEGER:
        raise DtypeError(f"iinfo needs an integer dtype, got {dtype}; try finfo")
    return np.iinfo(dtype)


@functools.cache
def kind_of(dtype: np.dtype) -> str:
    """bool, int, float or complex; key, of which arithmetic takes none."""
    if dtype == key:
        return "key"
    if is_bool(dtype):
        return "bool"
    if is_integer(dtype):
        return "int"
    return "complex" if is_complex(dtype) else "float"


def real_of(dtype: np.dtype) -> np.dtype:
    """The dtype of `x.real`: the part of a complex dtype, any other dtype unchanged."""
    if dtype == complex64:
        return float32
    return float64 if dtype == complex128 else dtype


def complex_of(dtype: np.dtype) -> np.dtype:
    """The complex dtype that holds `dtype` as a part: complex128 for float64, else complex64.

    Integers and bools give the default complex dtype.
    """
    if dtype in _COMPLEX:
        return dtype
    if dtype not in _FLOAT:
        return default_complex()
    return complex128 if dtype == float64 else complex64


# Defaults and x64


_Key = tuple[bool, int | None, str, str, Any]


class Numerics(threading.local):
    """What this thread's numbers default to: whether they are 64-bit, how float32 products are
    computed (`core.precision`), which dtypes and ranks may meet (`core.promotion`), and the mesh
    that code asks for (`api.placement`). key: all of it, the same object for the same values, so
    that what was compiled or recorded under them asks one question."""

    on = False
    terms: int | None = None
    dtype_promotion = "standard"
    rank_promotion = "allow"
    mesh: Any = None
    key: _Key = (False, None, "standard", "allow", None)

    def set(self, **changes: Any) -> None:
        """Change some of them, and the key with them."""
        for name, value in changes.items():
            setattr(self, name, value)
        key = self.on, self.terms, self.dtype_promotion, self.rank_promotion, self.mesh
        self.key = _keys.setdefault(key, key)


_keys: dict[_Key, _Key] = {Numerics.key: Numerics.key}
numerics = Numerics()


class enable_x64:
    """Let defaults and implicit inputs be 64-bit in this thread.

    Takes effect at once; used in a `with` statement, the old setting returns at its end.

    >>> with enable_x64():
    ...     default_float()
    dtype('float64')
    """

    def __init__(self, new_val: bool = True) -> None:
        self._before, self._on = numerics.on, bool(new_val)
        numerics.set(on=self._on)

    def __enter__(self) -> Self:
        numerics.set(on=self._on)
        return self

    def __exit__(self, *_: object) -> None:
        numerics.set(on=self._before)


def x64_enabled() -> bool:
    """Whether this thread is inside `enable_x64`. Part of every compiled function's cache key."""
    return numerics.on


def default_float() -> np.dtype:
    """float32, or float64 under x64."""
    return float64 if numerics.on else float32


def default_int() -> np.dtype:
    """int32, or int64 under x64."""
    return int64 if numerics.on else int32


_MOST_INT32 = 2**31 - 1


def index_dtype(size: int, least: np.dtype = int32) -> np.dtype:
    """The dtype of positions along an axis: `least`, or int64 where int32 cannot hold its length.

    >>> index_dtype(1 << 31)
    dtype('int64')
    """
    return int64 if size > _MOST_INT32 else least


def default_complex() -> np.dtype:
    """complex64, or complex128 under x64."""
    return complex128 if numerics.on else complex64


def inexact_for(dtype: np.dtype) -> np.dtype:
    """The dtype in which `sin` of a `dtype` array is computed: itself, or the default float."""
    return dtype if dtype in _INEXACT else default_float()


_KINDS = {
    float: default_float,
    "float": default_float,
    int: default_int,
    "int": default_int,
    complex: default_complex,
    "complex": default_complex,
}


def native(dtype_like: Any) -> np.dtype:
    """The dtype meant by anything NumPy accepts as one, in native byte order; `float`, `int` and
    `complex` are the default dtype of their kind. Raises TypeMismatch as `canonicalize`."""
    if type(dtype_like) in (type, str) and dtype_like in _KINDS:
        return _KINDS[dtype_like]()
    dtype = dtype_like if isinstance(dtype_like, np.dtype) else _numpy_dtype(dtype_like)
    if dtype not in _SHORT:
        dtype = dtype.newbyteorder("=")
        if dtype not in _SHORT:
            raise _unsupported(dtype)
    return dtype


def canonicalize(dtype_like: Any, *, explicit: bool) -> np.dtype:
    """The dtype meant by anything NumPy accepts as one, in native byte order.

    `explicit` says that the user wrote the dtype: then it wins, 64-bit included. Otherwise it
    came with an input: 64-bit becomes 32-bit, with one warning per process, unless x64 is on.
    Python's `float`, `int` and `complex` name a kind and give the default dtype of that kind.

    Raises TypeMismatch (a TypeError) for dtypes without an fxad counterpart (object, str...).
    """
    dtype = native(dtype_like)
    if numerics.on or dtype not in _NARROW or (explicit and semantics.explicit_dtypes_win):
        return dtype
    if semantics.explicit_dtypes_win:
        _warn_narrowing(dtype)
    elif explicit:
        warnings.warn(
            f"the requested dtype {dtype} becomes {_NARROW[dtype]}, since 64-bit is off, as in "
            "JAX; to keep it, set jax_enable_x64",
            NarrowingWarning,
            stacklevel=_user_stacklevel(),
        )
    return _NARROW[dtype]


def narrow(dtype_like: Any) -> np.dtype:
    """The dtype that an input of this one has: 64-bit becomes 32-bit unless x64 is on."""
    if type(dtype_like) in (type, str) and dtype_like in _KINDS:
        return _KINDS[dtype_like]()
    dtype = _numpy_dtype(dtype_like)
    dtype = dtype if dtype.isnative else dtype.newbyteorder("=")
    return dtype if numerics.on else _NARROW.get(dtype, dtype)


def of_number(dtype: np.dtype) -> np.dtype:
    """The dtype that a number of NumPy's takes, as `np.float64(3)`: 32-bit unless x64 is on."""
    return dtype if numerics.on else _NARROW.get(dtype, dtype)


def _numpy_dtype(dtype_like: Any) -> np.dtype:
    if getattr(type(dtype_like), "stands_for_dtype", False):  # ours: NumPy looks for long
        own: np.dtype = dtype_like.dtype
        return own
    if dtype_like is None:  # NumPy reads None as float64: a default nobody asked for
        raise TypeMismatch("expected a dtype, got None")
    if hasattr(dtype_like, "__array_priority__") and not isinstance(dtype_like, type | np.generic):
        raise TypeMismatch(  # NumPy would take the dtype of ours, though not of its own
            f"expected a dtype, got an array of {dtype_like.dtype}: give its dtype, `x.dtype`"
        )
    try:
        found: np.dtype = np.dtype(dtype_like)
    except TypeError:
        number = isinstance(dtype_like, int)  # ones(2, 3)
        advice = "a shape goes in one tuple" if number else "try a name like 'float32'"
        raise TypeMismatch(f"{dtype_like!r} is not a dtype; {advice}") from None
    return found


def _unsupported(dtype: Any) -> TypeMismatch:
    names = ", ".join(str(d) for d in all_dtypes)
    return TypeMismatch(f"dtype {dtype} is not supported; supported: {names}")


_warned = threading.Event()


def _warn_narrowing(dtype: np.dtype) -> None:
    if _warned.is_set():
        return
    _warned.set()
    warnings.warn(
        f"{'an' if dtype.kind == 'i' else 'a'} {dtype} input becomes {_NARROW[dtype]}, since "
        "64-bit is off by default. To keep it, give an explicit dtype or work under "
        f"fxad.enable_x64(); to silence this, convert the input to {_NARROW[dtype]} first. (Said "
        "once per process.)",
        NarrowingWarning,
        stacklevel=_user_stacklevel(),
    )


def _user_stacklevel() -> int:
    """The `stacklevel` with which `_warn_narrowing` blames the first frame outside fxad."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    return level
