"""`jax.lax`'s elementwise functions, which convert and broadcast nothing.

>>> add(1, 2.5)
Traceback (most recent call last):
    ...
fxad.errors.TypeMismatch: lax.add: arguments of dtypes int32 and float32; lax converts ...

fxad's own `lax` has the functions of `fxad.numpy` under these names. These only refuse what JAX
refuses; others of `jax.lax`, such as `pow`, `select` and `clamp`, still convert.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fxad.lax
from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.promotion import entry_of
from fxad.trace.array import Array

_ALIKE = (
    "add atan2 bitwise_and bitwise_or bitwise_xor div eq ge gt le lt max min mul ne nextafter rem "
    "shift_left shift_right_arithmetic shift_right_logical sub"
).split()
_OF_FLOATS = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil cos cosh digamma erf erf_inv erfc exp exp2 "
    "expm1 floor is_finite lgamma log log1p logistic nextafter rsqrt sin sinh sqrt tan tanh"
).split()


def _strict(name: str) -> Callable[..., Any]:
    function = getattr(fxad.lax, name)
    alike, of_floats = name in _ALIKE, name in _OF_FLOATS

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 2 and not kwargs and alike and not of_floats:
            x, y = args
            if isinstance(x, Array) and isinstance(y, Array) and x.type == y.type:
                return function(x, y)
        given = (*args[: 1 + alike], *[v for k, v in kwargs.items() if k in ("x", "y")])
        dtypes = [entry_of(value)[0] for value in given]
        if alike:
            _check_alike(name, dtypes, [np.shape(value) for value in given])
        if of_floats and not all(map(dt.is_inexact, dtypes)):
            raise TypeMismatch(
                f"lax.{name}: takes floats, not {dtypes[0]}; lax converts nothing: "
                "x.astype('float32') first"
            )
        return function(*args, **kwargs)

    wrapped.__module__, wrapped.__qualname__ = __name__, name  # so that it can be pickled
    return wrapped


def _check_alike(name: str, dtypes: Sequence[np.dtype], shapes: Sequence[tuple[int, ...]]) -> None:
    if len(set(dtypes)) > 1:
        raise TypeMismatch(
            f"lax.{name}: arguments of dtypes {' and '.join(map(str, dtypes))}; lax converts "
            "nothing, the function of jax.numpy does"
        )
    if len({len(shape) for shape in shapes if shape}) > 1:
        raise ShapeError(
            f"lax.{name}: arguments of shapes {' and '.join(map(str, shapes))}; lax adds no axes, "
            "the function of jax.numpy does"
        )


for _name in sorted({*_ALIKE, *_OF_FLOATS}):
    globals()[_name] = _strict(_name)
