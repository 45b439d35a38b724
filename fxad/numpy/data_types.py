"""Element types as users write them: dtypes that can also be called.

float32(1)                 # Array(1., dtype=float32)
x.astype(float32).dtype == float32
finfo(float32).eps
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, DtypeError
from fxad.numpy.core import asarray
from fxad.trace.array import Array
from fxad.trace.replay import by_value

__all__ = [
    "bfloat16",
    "bool_",
    "complex64",
    "complex128",
    "finfo",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "float32",
    "float64",
    "iinfo",
    "int8",
    "int16",
    "int32",
    "int64",
    "isdtype",
    "isscalar",
    "issubdtype",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]  # fmt: skip


@by_value
class ScalarType(type):
    """The class of `float32` and its like: a dtype that makes arrays when called. NumPy and fxad
    take it wherever they take a dtype.

    It equals NumPy's class of the same numbers, whose hash it has, and the dtype of both (whose
    hash is another, as for NumPy's class).

    >>> jnp.float32(1), jnp.zeros(2, jnp.int8)
    (Array(1., dtype=float32), Array([0, 0], dtype=int8))
    >>> jnp.float32 == jnp.zeros(2).dtype, {np.float32: 4}[jnp.float32]
    (True, 4)
    """

    dtype: np.dtype
    stands_for_dtype = True  # see `core.dtypes.canonicalize`

    def __call__(cls, x: Any = 0) -> Array:
        """The value as an array of this dtype; also for traced values, and for a number's text."""
        return asarray(_number(cls, x) if isinstance(x, str) else x, cls.dtype)

    def __eq__(cls, other: object) -> bool:
        if isinstance(other, np.dtype):
            return bool(cls.dtype == other)
        return other is cls or other is cls.dtype.type

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __instancecheck__(cls, instance: Any) -> bool:
        """Whether it is a number of NumPy's class; an array is none."""
        return isinstance(instance, cls.dtype.type)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or name in ("ndim", "shape"):  # which an array has
            raise AttributeError(f"{cls!r} has no attribute {name!r}")
        return getattr(cls.dtype, name)

    def __repr__(cls) -> str:
        return f"{cls.__module__}.{cls.__name__}"


def _number(kind: ScalarType, text: str) -> int | float | complex:
    dtype = kind.dtype
    read = int if dt.is_integer(dtype) else complex if dt.is_complex(dtype) else float
    try:
        return read(text)
    except ValueError:
        raise BadArgument(f"{kind.__name__}: {text!r} is no {read.__name__}") from None


def _scalar_type(dtype: np.dtype) -> ScalarType:
    doc = f"""The dtype {dtype.name}; called with a value, an array of it.

    >>> jnp.{dtype.name}(1).dtype == jnp.{dtype.name}
    True
    """
    made = {"dtype": dtype, "__module__": __package__, "__doc__": doc}
    return ScalarType(dtype.name, (), made)


bool_ = _scalar_type(dt.bool_)
int8, int16, int32, int64 = map(_scalar_type, (dt.int8, dt.int16, dt.int32, dt.int64))
uint8, uint16, uint32, uint64 = map(_scalar_type, (dt.uint8, dt.uint16, dt.uint32, dt.uint64))
float16, float32, float64 = map(_scalar_type, (dt.float16, dt.float32, dt.float64))
bfloat16 = _scalar_type(dt.bfloat16)
float8_e4m3fn, float8_e5m2 = map(_scalar_type, (dt.float8_e4m3fn, dt.float8_e5m2))
complex64, complex128 = map(_scalar_type, (dt.complex64, dt.complex128))


def _dtype_of(given: Any) -> np.dtype:
    own = getattr(given, "dtype", None)
    return dt.canonicalize(own if isinstance(own, np.dtype) else given, explicit=True)


class FloatInfo:
    """Machine limits of a float dtype: `bits`, `eps`, `max`, `min`, `smallest_normal`, ...

    Numbers are Python's, so that arithmetic with them keeps an array's dtype.
    """

    __slots__ = ("_limits", "dtype")

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dt.real_of(dtype)
        self._limits = dt.finfo(dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._limits, name)
        return float(value) if isinstance(value, np.generic) else value

    def __repr__(self) -> str:
        return f"finfo(dtype={self.dtype.name}, eps={self.eps}, min={self.min}, max={self.max})"


def finfo(dtype: Any) -> FloatInfo:
    """Machine limits of a float dtype (or of an array's, or of a complex one's parts).

    >>> jnp.finfo(jnp.bfloat16).max
    3.3895313892515355e+38
    >>> jnp.finfo(jnp.float32).eps
    1.1920928955078125e-07
    """
    return FloatInfo(_dtype_of(dtype))


def iinfo(int_type: Any) -> Any:
    """Range of an integer int_type (or of an array's): min, max, bits.

    >>> jnp.iinfo(jnp.int8).min, jnp.iinfo(jnp.int8).max
    (-128, 127)
    """
    return dt.iinfo(_dtype_of(int_type))


def isscalar(element: Any) -> bool:
    """A Python number or a 0-d array.

    >>> jnp.isscalar(1.5), jnp.isscalar(jnp.array(1.5)), jnp.isscalar(jnp.ones(1))
    (True, True, False)
    """
    return getattr(element, "ndim", 0 if isinstance(element, int | float | complex) else 1) == 0


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """NumPy's `issubdtype`, for which bfloat16 and 8-bit floats are floating, and the dtype of
    typed random keys is of the kinds `dtypes.prng_key` and `dtypes.extended`.

    >>> jnp.issubdtype(jnp.bfloat16, jnp.floating)
    True
    """
    if arg2 in (dt.extended, dt.prng_key):
        return bool(arg1 == dt.key) or arg1 is arg2 or arg1 is dt.prng_key
    first = np.dtype(arg1)
    kind = getattr(arg2, "dtype", arg2) if isinstance(arg2, ScalarType) else arg2
    if dt.is_float(first) and kind in (np.floating, np.inexact, np.number, np.generic):
        return True
    return bool(np.issubdtype(first, kind))


_KINDS = {
    "bool": dt.is_bool,
    "signed integer": lambda d: dt.is_integer(d) and dt.is_signed(d),
    "unsigned integer": lambda d: dt.is_integer(d) and not dt.is_signed(d),
    "integral": dt.is_integer,
    "real floating": dt.is_float,
    "complex floating": dt.is_complex,
    "numeric": lambda d: not dt.is_bool(d),
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind (array API): a dtype, a name like "real floating", a tuple.

    >>> jnp.isdtype(jnp.int8, "integral"), jnp.isdtype(jnp.int8, ("real floating", "bool"))
    (True, False)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    own = np.dtype(dtype)
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind](own)
    try:
        return own == np.dtype(kind)
    except TypeError:
        raise DtypeError(f"isdtype: {kind!r} is no dtype and none of {', '.join(_KINDS)}") from None
