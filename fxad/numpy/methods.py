"""Operators and methods of Array, installed once; concrete arrays and tracers share them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.numpy import (
    array_api,
    array_places,
    bit_views,
    creation,
    cumulative,
    division,
    indexing,
    manipulation,
    products,
    reductions,
    repetition,
    rounding,
    selection,
    sorting,
    updates,
)
from fxad.numpy import elementwise as e
from fxad.numpy.core import converted
from fxad.trace.array import Array
from fxad.trace.convert import is_array_like
from fxad.trace.replay import replayed

_BINARY: dict[str, Callable[..., Any]] = {
    "add": e.add,
    "sub": e.subtract,
    "mul": e.multiply,
    "truediv": e.divide,
    "floordiv": division.floor_divide,
    "mod": division.remainder,
    "divmod": division.divmod,
    "pow": division.power,
    "matmul": products.matmul,
    "and": e.bitwise_and,
    "or": e.bitwise_or,
    "xor": e.bitwise_xor,
    "lshift": e.left_shift,
    "rshift": e.right_shift,
}
_COMPARE: dict[str, Callable[..., Any]] = {
    "eq": e.equal,
    "ne": e.not_equal,
    "lt": e.less,
    "le": e.less_equal,
    "gt": e.greater,
    "ge": e.greater_equal,
}


def _comparison(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Array, other: Any) -> Any:
        if is_array_like(other):
            return function(self, other)
        if hasattr(type(other), "__jax_array__"):
            return method(self, other.__jax_array__())
        if isinstance(other, _CONTAINERS):  # Python would find == to be False for them
            raise _no_operand(other)
        return NotImplemented

    return method


def _operator(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Array, other: Any) -> Any:
        if is_array_like(other):
            return function(self, other)
        if hasattr(type(other), "__jax_array__"):
            return method(self, other.__jax_array__())
        return _not_an_operand(other)

    return method


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Array, other: Any) -> Any:
        if is_array_like(other):
            return function(other, self)
        if hasattr(type(other), "__jax_array__"):
            return method(self, other.__jax_array__())
        return _not_an_operand(other)

    return method


def _not_an_operand(other: Any) -> Any:
    """Raises TypeMismatch for a list or a tuple, which Python would try to repeat or to join: its
    own error would be about an index. Their subclasses may know what to do."""
    if type(other) in (list, tuple):
        raise _no_operand(other)
    return NotImplemented


_CONTAINERS = (list, tuple, set, dict)


def _no_operand(other: Any) -> TypeMismatch:
    kind = type(other).__name__
    return TypeMismatch(f"arrays take no {kind} as the other operand; make an array of the {kind}")


def _flatten_shape(args: tuple) -> Any:
    return args[0] if len(args) == 1 and hasattr(args[0], "__len__") else args


def reshape(self: Array, *shape: Any, order: str = "C") -> Array:
    """The elements under another shape; one size may be -1."""
    return manipulation.reshape(self, _flatten_shape(shape), order=order)


def transpose(self: Array, *axes: Any) -> Array:
    """Axes permuted (reversed by default)."""
    order = None if not axes or axes == (None,) else _flatten_shape(axes)
    return manipulation.transpose(self, order)


@replayed
def _converted(self: Array, dtype: np.dtype) -> Array:
    return converted(self, dtype)


def astype(self: Array, dtype: Any, copy: bool = False) -> Array:
    """Converted to a dtype."""
    wanted = dt.canonicalize(dtype, explicit=True)
    return self if wanted is self.type.dtype and not self.weak else _converted(self, wanted)


def _iterate(self: Array) -> Iterator[Array]:
    if not self.shape:
        raise TypeError("iteration over a 0-d array")
    return (self[i] for i in range(self.shape[0]))


def _contains(self: Array, item: Any) -> bool:
    return bool(reductions.any(self == item))


def round_(self: Array, decimals: int = 0) -> Array:
    """Rounded half to even."""
    return rounding.round(self, decimals)


def _rounded(self: Array, decimals: int | None = None) -> Array:
    """`round(x)`: integers, as in JAX, of 64 bits for elements of 64; `round(x, 1)`: floats.
    Complex numbers stay what they are."""
    rounded = rounding.round(self, decimals or 0)
    if decimals is not None or dt.is_complex(self.type.dtype):
        return rounded
    return rounded.astype(dt.int64 if self.type.dtype.itemsize == 8 else dt.default_int())


def copy(self: Array) -> Array:
    """The same values."""
    return e.OPS["copy"](self)


def compress(self: Array, condition: Any, axis: int | None = None) -> Array:
    """The parts along an axis for which a vector of bools is true."""
    return selection.compress(condition, self, axis)


def _operators() -> dict[str, Callable[..., Any]]:
    table: dict[str, Callable[..., Any]] = {}
    for name, function in _BINARY.items():
        table[f"__{name}__"] = _operator(function)
        table[f"__r{name}__"] = _reflected(function)
    for name, function in _COMPARE.items():
        table[f"__{name}__"] = _comparison(function)
    return table


_REDUCTIONS = ("sum", "prod", "mean", "var", "std", "max", "min", "any", "all", "argmax", "argmin")

METHODS: dict[str, Callable[..., Any]] = {
    **_operators(),
    "__neg__": e.negative,
    "__pos__": e.positive,
    "__abs__": e.abs,
    "__invert__": e.bitwise_not,
    "__getitem__": indexing.getitem,
    "__iter__": _iterate,
    "__contains__": _contains,
    "__round__": _rounded,
    "__array_namespace__": array_api.array_namespace,
    "__dlpack__": array_api.dlpack,
    "__dlpack_device__": array_api.dlpack_device,
    "to_device": array_api.to_device,
    "reshape": reshape,
    "transpose": transpose,
    "astype": astype,
    "view": bit_views.view,
    "byteswap": bit_views.byteswap,
    "round": round_,
    "copy": copy,
    "flatten": manipulation.ravel,
    "ravel": manipulation.ravel,
    "squeeze": manipulation.squeeze,
    "swapaxes": manipulation.swapaxes,
    "repeat": repetition.repeat,
    "conj": e.conj,
    "conjugate": e.conj,
    "clip": e.clip,
    "dot": products.dot,
    "trace": products.trace,
    "diagonal": creation.diagonal,
    "take": selection.take,
    "nonzero": selection.nonzero,
    "sort": sorting.sort,
    "argsort": sorting.argsort,
    "argpartition": sorting.argpartition,
    "choose": selection.choose,
    "compress": compress,
    "devices": array_places.devices,
    "addressable_data": array_places.addressable_data,
    "on_device_size_in_bytes": array_places.on_device_size_in_bytes,
    "is_ready": array_places.is_ready,
    "copy_to_host_async": array_places.copy_to_host_async,
    "searchsorted": sorting.searchsorted,
    "cumsum": cumulative.cumsum,
    "cumprod": cumulative.cumprod,
    **{name: getattr(reductions, name) for name in (*_REDUCTIONS, "ptp")},
}
PROPERTIES: dict[str, Callable[[Array], Any]] = {
    "T": manipulation.transpose,
    "mT": manipulation.matrix_transpose,
    "real": e.real,
    "imag": e.imag,
    "at": updates.At,
    "flat": manipulation.ravel,
    "device": array_api.device,
    "addressable_shards": array_places.addressable_shards,
    "aval": array_places.aval,
    "committed": array_places.committed,
    "global_shards": array_places.addressable_shards,
    "is_fully_addressable": array_places.is_fully_addressable,
    "is_fully_replicated": array_places.is_fully_replicated,
    "sharding": array_places.sharding,
}


def install() -> None:
    """Give Array its operators and methods; `fxad.trace.array_methods` declares the same ones."""
    for name, function in METHODS.items():
        setattr(Array, name, function)
    for name, function in PROPERTIES.items():
        setattr(Array, name, property(function, doc=function.__doc__))


install()
