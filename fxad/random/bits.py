"""Uniform bits, floats and integers, from which every other distribution is made.

x = uniform(key, (3,))          # [0, 1)
n = randint(key, (3,), 0, 10)   # 0 to 9
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import DtypeError, NumberOverflow, ShapeError, TypeMismatch
from fxad.core.promotion import is_python_scalar
from fxad.ir.program import OPS
from fxad.ir.rewrite import literal
from fxad.numpy.core import cast, result_shape, shape_tuple, spread_to, value_of
from fxad.numpy.elementwise import clip
from fxad.random.keys import checked, split, whole
from fxad.random.large import compiled_if_large
from fxad.trace.array import Array
from fxad.trace.tracer import type_of


def float_dtype(name: str, dtype: Any) -> np.dtype:
    """A float dtype; the default one for None. Raises DtypeError for others."""
    wanted = dt.default_float() if dtype is None else dt.canonicalize(dtype, explicit=True)
    if not dt.is_float(wanted):
        raise DtypeError(f"{name}: the dtype must be a float, not {wanted}")
    return wanted


def int_dtype(name: str, dtype: Any) -> np.dtype:
    """An integer dtype; the default one for None. Raises DtypeError for others."""
    wanted = dt.default_int() if dtype is None else dt.canonicalize(dtype, explicit=True)
    if not dt.is_integer(wanted):
        raise DtypeError(f"{name}: the dtype must be an integer, not {wanted}")
    return wanted


def shape_for(name: str, shape: Any, *parameters: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a draw: as given, or what the parameters broadcast to.

    Raises ShapeError if the parameters do not broadcast to it.
    """
    common = result_shape(name, list(parameters))
    if shape is None:
        return common
    wanted = shape_tuple(shape, name)
    tail = wanted[len(wanted) - len(common) :]
    if len(common) > len(wanted) or any(c not in (1, w) for c, w in zip(common, tail, strict=True)):
        raise ShapeError(f"{name}: parameters of shape {common} do not fit the shape {wanted}")
    return wanted


@compiled_if_large
def bits(key: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Random bits as unsigned integers of 8, 16, 32 (the default) or 64 bits.

    >>> key = fxad.random.key(0)
    >>> fxad.random.bits(key, (3,))
    Array([4070199207, 4202968722, 1427181096], dtype=uint32)
    >>> fxad.random.bits(key, (3,), "uint8")
    Array([167, 146,  40], dtype=uint8)
    """
    wanted = dt.uint32 if dtype is None else dt.canonicalize(dtype, explicit=True)
    if not dt.is_integer(wanted) or dt.is_signed(wanted):
        raise DtypeError(f"bits: the dtype must be an unsigned integer, not {wanted}")
    return OPS["random_bits"](checked(key, "bits"), shape=shape_tuple(shape, "bits"), dtype=wanted)


def unit(key: Any, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Floats in [0, 1): random mantissas under the exponent of 1, minus 1."""
    width, mantissa = dtype.itemsize * 8, dt.finfo(dtype).nmant
    drawn = 8 if mantissa < 8 else width
    own = np.dtype(f"uint{width}")
    words = bits(key, shape, np.dtype(f"uint{drawn}"))
    if drawn != width:
        words = OPS["convert"](words, dtype=own)
    one = int(np.ones((), dtype).view(own))
    words = OPS["or"](OPS["shr_logical"](words, drawn - mantissa), one)
    return OPS["sub"](OPS["bitcast"](words, dtype=dtype), 1.0)


@compiled_if_large
def uniform(
    key: Any, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0
) -> Array:
    """Floats in [minval, maxval), which broadcast to `shape`.

    >>> key = fxad.random.key(0)
    >>> fxad.random.uniform(key, (4,)).round(3)
    Array([0.948, 0.979, 0.332, 0.469], dtype=float32)
    >>> fxad.random.uniform(key, (2, 3), minval=-1.0).shape
    (2, 3)
    """
    wanted = float_dtype("uniform", dtype)
    shape = shape_for("uniform", shape, value_of(minval).shape, value_of(maxval).shape)
    floats = unit(checked(key, "uniform"), shape, wanted)
    if is_python_scalar(minval) and is_python_scalar(maxval):
        low, high = wanted.type(minval), wanted.type(maxval)
        if low == 0 and high == 1:
            return floats
        span = literal(high - low, wanted)
        return OPS["max"](OPS["add"](OPS["mul"](floats, span), float(low)), float(low))
    low, high = (cast(value_of(v, "uniform"), wanted) for v in (minval, maxval))
    span = spread_to(high, shape) - spread_to(low, shape)
    low = spread_to(low, shape)
    return OPS["max"](OPS["add"](OPS["mul"](floats, span), low), low)


@compiled_if_large
def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None) -> Array:
    """Integers in [minval, maxval), which broadcast to `shape`.

    Twice as many random bits as the dtype has (32 at least) are reduced modulo the range, so that
    the bias of ranges that are no power of 2 is small. An empty range gives minval. Bounds that
    are no integers lose their fraction. Raises NumberOverflow for a Python number that neither
    the dtype nor int32 has (one above the dtype's largest is good as maxval).

    >>> key = fxad.random.key(0)
    >>> fxad.random.randint(key, (6,), 0, 10)
    Array([9, 0, 2, 3, 1, 7], dtype=int32)
    """
    wanted = int_dtype("randint", dtype)
    key = checked(key, "randint")
    minval, maxval = (_whole(bound) for bound in (minval, maxval))
    if wanted.itemsize < 4:
        info = dt.iinfo(wanted)
        low = _limited(minval, int(info.min), int(info.max))
        high = _limited(maxval, int(info.min), int(info.max) + 1)
        return cast(_randint(key, shape, low, high, dt.int32), wanted)
    return _randint(key, shape, minval, maxval, wanted)


def _whole(bound: Any) -> Any:
    """A bound without its fraction: a Python int, or integers of the dtype that they have."""
    if isinstance(bound, bool | float | np.bool | np.floating):
        return whole(bound, "randint: a bound")
    if isinstance(bound, int):
        return bound
    value = value_of(bound, "randint")
    if dt.is_integer(value.dtype):
        return value
    if not dt.is_float(value.dtype) and not dt.is_bool(value.dtype):
        raise TypeMismatch(f"randint: bounds must be real numbers, not {value.type}")
    return cast(value, dt.default_int())


def _limited(bound: Any, low: int, high: int) -> Any:
    """A bound moved into [low, high]."""
    if isinstance(bound, int):
        return min(max(bound, low), high)
    value = value_of(bound, "randint")
    wide = value if value.dtype.itemsize >= 4 else cast(value, dt.int32)
    return clip(wide, max(low, int(dt.iinfo(type_of(wide).dtype).min)), high)


def _randint(key: Array, shape: Any, minval: Any, maxval: Any, dtype: np.dtype) -> Array:
    parameters = [() if isinstance(v, int) else value_of(v).shape for v in (minval, maxval)]
    shape = shape_for("randint", shape, *parameters)
    unsigned = np.dtype(f"uint{dtype.itemsize * 8}")
    first, second = (bits(k, shape, unsigned) for k in _pair(split(key, 2)))
    half = 2 ** (dtype.itemsize * 4)
    if isinstance(minval, int) and isinstance(maxval, int):
        low, span = _fixed_range(minval, maxval, dtype)
        offset = second
        if span:
            multiplier = (half % span) ** 2 % half**2 % span
            offset = _modulo(first, second, span, multiplier)
        return OPS["add"](OPS["convert"](offset, dtype=dtype), low)
    low, span = _computed_range(minval, maxval, dtype, unsigned)
    low, span = spread_to(low, shape), spread_to(span, shape)
    rest = OPS["rem"](literal(half, unsigned), span)
    offset = _modulo(first, second, span, OPS["rem"](OPS["mul"](rest, rest), span))
    offset = OPS["select"](OPS["eq"](span, 0), second, offset)
    return OPS["add"](OPS["convert"](offset, dtype=dtype), low)


def _pair(keys: Array) -> list[Any]:
    """The two keys of a split."""
    rows = (OPS["slice"](keys, start=(i, 0), stop=(i + 1, 2), step=(1, 1)) for i in range(2))
    return [OPS["reshape"](row, shape=(2,)) for row in rows]


def _modulo(first: Any, second: Any, span: Any, multiplier: Any) -> Any:
    """(first * 2**bits + second) % span in one word; multiplier: 2**bits % span."""
    upper = OPS["mul"](OPS["rem"](first, span), multiplier)
    return OPS["rem"](OPS["add"](upper, OPS["rem"](second, span)), span)


def _fixed_range(minval: int, maxval: int, dtype: np.dtype) -> tuple[int, int]:
    """The lowest integer and how many there are; 0 stands for all the dtype has."""
    info = dt.iinfo(dtype)
    for bound in (minval, maxval):
        if not min(int(info.min), -(2**31)) <= bound <= int(info.max) + 1:
            raise NumberOverflow(
                f"randint: the bound {bound} does not fit {dtype}, whose range is "
                f"[{info.min}, {info.max}]; draw integers of another dtype"
            )
    low = min(max(minval, int(info.min)), int(info.max))
    high = min(max(maxval, int(info.min)), int(info.max))
    span = max(high - low, 1)
    if maxval > info.max and high > low:
        span += 1
    return low, span % 2 ** (dtype.itemsize * 8)


def _computed_range(minval: Any, maxval: Any, dtype: np.dtype, unsigned: np.dtype) -> tuple:
    """`_fixed_range` for arrays."""
    lower, upper = value_of(minval, "randint"), value_of(maxval, "randint")
    low, high = _clipped(lower, dtype), _clipped(upper, dtype)
    shape = result_shape("randint", [low.shape, high.shape])
    low, high = spread_to(low, shape), spread_to(high, shape)
    empty = OPS["le"](high, low)
    span = OPS["convert"](OPS["sub"](high, low), dtype=unsigned)
    beyond = spread_to(OPS["gt"](upper, _largest(upper.dtype, dtype)), shape)
    extra = OPS["and"](beyond, OPS["not"](empty))
    span = OPS["add"](span, OPS["convert"](extra, dtype=unsigned))
    return low, OPS["select"](empty, spread_to(value_of(np.ones((), unsigned)), shape), span)


def _largest(own: np.dtype, dtype: np.dtype) -> int:
    return min(int(dt.iinfo(own).max), int(dt.iinfo(dtype).max))


def _clipped(value: Any, dtype: np.dtype) -> Any:
    """The integer nearest to value that the dtype has."""
    own = type_of(value).dtype
    smallest = max(int(dt.iinfo(own).min), int(dt.iinfo(dtype).min))
    limited = OPS["max"](value, literal(smallest, own))
    return cast(OPS["min"](limited, literal(_largest(own, dtype), own)), dtype)
