"""The functions of `jax.lax` that convert and broadcast nothing.

>>> add(1, 2.5)
Traceback (most recent call last):
    ...
fxad.errors.TypeMismatch: lax.add: arguments of dtypes int32 and float32; lax converts ...

fxad's own `lax` has functions that convert under these names. These only refuse what JAX refuses.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fxad.lax
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.core.promotion import entry_of
from fxad.trace.array import Array

# Name -> how many of its first arguments have one dtype and, but for numbers, one shape.
_ALIKE = dict.fromkeys(
    "add atan2 bitwise_and bitwise_or bitwise_xor complex div eq ge gt igamma igamma_grad_a "
    "igammac le lt max min mul ne nextafter polygamma rem shift_left "
    "shift_right_arithmetic shift_right_logical sub zeta".split(),
    2,
)
_ALIKE["betainc"] = 3
_OF_FLOATS = (
    "acos acosh asin asinh atan atan2 atanh betainc cbrt ceil complex conj cos cosh digamma erf "
    "erf_inv erfc exp exp2 expm1 floor igamma igamma_grad_a igammac is_finite lgamma log log1p "
    "logistic nextafter polygamma random_gamma_grad rsqrt sin sinh sqrt tan tanh zeta"
).split()
_OF_COMPLEX = ("imag", "real")


def _elementwise(name: str) -> Callable[..., Any]:
    """A function of elements, which checks its first arguments."""
    function = getattr(fxad.lax, name)
    alike, count = name in _ALIKE, _ALIKE.get(name, 1)
    names = [*inspect.signature(function).parameters][:count]
    of_floats, of_complex = name in _OF_FLOATS, name in _OF_COMPLEX

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 2 and not kwargs and alike and not of_floats:
            x, y = args
            if isinstance(x, Array) and isinstance(y, Array) and x.type == y.type:
                return function(x, y)
        given = (*args[:count], *[v for k, v in kwargs.items() if k in names])
        dtypes = [_dtype(value) for value in given]
        others = [d for d in dtypes if not dt.is_inexact(d)] if of_floats else []
        if others:
            raise TypeMismatch(
                f"lax.{name}: takes floats, not {others[0]}; lax converts nothing: "
                "x.astype('float32') first"
            )
        if alike:
            _check_dtypes(name, dtypes)
            _check_shapes(name, [np.shape(value) for value in given])
        if of_complex and not dt.is_complex(dtypes[0]):
            raise TypeMismatch(
                f"lax.{name}: takes complex numbers, not {dtypes[0]}; see jnp.{name}"
            )
        return function(*args, **kwargs)

    return _named(wrapped, name)


def _checked(name: str, check: Callable[..., None]) -> Callable[..., Any]:
    """The function of this name after a look at its arguments, which `check` takes as it does."""
    function = getattr(fxad.lax, name)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return function(*args, **kwargs)

    return _named(wrapped, name)


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    function.__module__, function.__qualname__ = __name__, name  # so that it can be pickled
    return function


def _dtype(value: Any) -> np.dtype:
    found: np.dtype = entry_of(value)[0]
    return found


def _check_dtypes(name: str, dtypes: Sequence[np.dtype]) -> None:
    if len(set(dtypes)) > 1:
        raise TypeMismatch(
            f"lax.{name}: arguments of dtypes {' and '.join(map(str, dtypes))}; lax converts "
            "nothing, the function of jax.numpy does"
        )


def _check_shapes(name: str, shapes: Sequence[tuple[int, ...]]) -> None:
    if len({len(shape) for shape in shapes if shape}) > 1:
        raise ShapeError(
            f"lax.{name}: arguments of shapes {' and '.join(map(str, shapes))}; lax adds no axes, "
            "the function of jax.numpy does"
        )


def _check_pow(x: Any, y: Any) -> None:
    dtypes = _dtype(x), _dtype(y)
    if not dt.is_inexact(dtypes[0]):
        raise TypeMismatch(f"lax.pow: takes a float or complex base, not {dtypes[0]}")
    if dtypes[1] == dt.bool_:
        raise TypeMismatch("lax.pow: takes no bool as exponent")
    if not dt.is_integer(dtypes[1]):
        _check_dtypes("pow", dtypes)
    _check_shapes("pow", [np.shape(x), np.shape(y)])


def _check_cases(name: str, which: Any, cases: Sequence[Any]) -> None:
    _check_dtypes(name, [_dtype(case) for case in cases])
    shapes = [np.shape(case) for case in cases]
    if len({*shapes, np.shape(which) or shapes[0]}) > 1:
        raise ShapeError(
            f"lax.{name}: cases of shapes {' and '.join(map(str, shapes))} chosen by "
            f"{np.shape(which)}; lax broadcasts nothing, jnp.where does"
        )


def _check_select(pred: Any, on_true: Any, on_false: Any) -> None:
    _check_cases("select", pred, (on_true, on_false))


def _check_select_n(which: Any, *cases: Any) -> None:
    if cases:
        _check_cases("select_n", which, cases)


def _check_clamp(min: Any, x: Any, max: Any) -> None:
    _check_dtypes("clamp", [_dtype(value) for value in (min, x, max)])
    _check_shapes("clamp", [np.shape(value) for value in (min, x, max)])


def _check_concatenate(operands: Sequence[Any], dimension: int) -> None:
    if not len(operands):
        raise BadArgument("lax.concatenate: needs at least one array")
    _check_dtypes("concatenate", [_dtype(value) for value in operands])


def _check_pad(operand: Any, padding_value: Any, padding_config: Any) -> None:
    _check_dtypes("pad", [_dtype(operand), _dtype(padding_value)])


def _check_convolved(name: str, lhs: Any, rhs: Any, *args: Any, **kwargs: Any) -> None:
    _check_dtypes(name, [_dtype(lhs), _dtype(rhs)])


for _name in sorted({*_ALIKE, *_OF_FLOATS, *_OF_COMPLEX}):
    globals()[_name] = _elementwise(_name)
_CHECKS: dict[str, Callable[..., None]] = {
    "clamp": _check_clamp,
    "concatenate": _check_concatenate,
    "pad": _check_pad,
    "pow": _check_pow,
    "select": _check_select,
    "select_n": _check_select_n,
}
for _name, _check in _CHECKS.items():
    globals()[_name] = _checked(_name, _check)
for _name in ("conv", "conv_general_dilated", "conv_transpose", "conv_with_general_padding"):
    globals()[_name] = _checked(_name, functools.partial(_check_convolved, _name))
