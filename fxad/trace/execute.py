"""An op without a trace: run at once on its NumPy reference.

execute(add, (x, y), {})     # a concrete Array, of memory of its own
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from fxad.core.dtypes import x64_enabled
from fxad.core.limits import check_result
from fxad.core.quiet import restore, silence
from fxad.core.types import ArrayType, TapeType, Type
from fxad.ir.program import Lit, Op
from fxad.trace.array import Array, Borrowed, Concrete

if TYPE_CHECKING:
    from fxad.ir.rules import AnyValue, Value


def execute(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Run an op now, on the NumPy reference. Results are concrete Arrays."""
    arrays, given, borrowed = [], [], False
    before = silence()
    try:
        for arg in args:
            if type(arg) is Concrete:
                given.append(arg.type)
                arrays.append(arg.data)
            else:
                given.append(type_of(arg))
                arrays.append(concrete(arg))
                borrowed = borrowed or type(arg) is not Lit
        types = _result_types(op, given, params)
        results: Any = op.numpy(*arrays, **params)
    finally:
        restore(before)
    if borrowed:
        results = _owned(results, args, arrays)
    if type(types) is tuple:
        return tuple([_result(r, t) for r, t in zip(results, types, strict=True)])
    return _result(results, types)


_new = object.__new__
_BORROWED = (Borrowed, np.ndarray)  # memory that its caller may write to later
_PLAIN = (int, str, tuple, np.dtype, type(None))  # parameters that say all by their value
_types: dict[tuple[object, ...], Any] = {}  # result types of ops on plain parameters
_MOST_TYPES = 1 << 13


def _result_types(op: Op, given: Sequence[Any], params: dict[str, Any]) -> Any:
    """The type rule's answer, checked for size, and remembered."""
    key: tuple[object, ...] | None = None
    if not op.higher:
        for value in params.values():
            if not isinstance(value, _PLAIN):
                break
        else:
            key = (op, x64_enabled(), *given, *params, *params.values())
    try:
        found = None if key is None else _types.get(key)
    except TypeError:  # a tuple may hold what has no hash
        found, key = None, None
    if found is None:
        found = _checked_types(op, given, params)
        if len(_types) >= _MOST_TYPES:
            _types.clear()
        if key is not None:
            _types[key] = found
    return found


def _checked_types(op: Op, given: Sequence[Any], params: dict[str, Any]) -> Any:
    types = op.type(*given, **params)
    for type_ in types if isinstance(types, tuple) else (types,):
        if isinstance(type_, ArrayType):
            check_result(op.name, type_)
    return types


def _result(value: Any, type_: Any) -> Any:
    """What an op's reference returned, as a concrete Array."""
    if (
        type(value) is np.ndarray
        and type(type_) is ArrayType
        and value.dtype is type_.dtype
        and value.shape == type_.shape
    ):
        made = _new(Concrete)  # `Concrete.of`, written out: this is every eager op's last step
        made._data, made.type, made.weak = value, type_, False
        return made
    return wrap(value)


def _owned(results: Any, args: Sequence[Any], arrays: Sequence[np.ndarray]) -> Any:
    """Results that lie in nobody else's memory."""
    for arg, array in zip(args, arrays, strict=True):
        if isinstance(arg, _BORROWED):
            results = _own(results, array)
    return results


def _own(result: Any, borrowed: np.ndarray) -> Any:
    """A result, copied if it lies in memory its caller may write to later."""
    if isinstance(result, tuple):
        return tuple([_own(r, borrowed) for r in result])
    if isinstance(result, np.ndarray) and np.may_share_memory(result, borrowed):
        return result.copy()
    return result


def wrap(result: Any) -> Any:
    """A concrete Array of a reference result (tapes stay as they are)."""
    is_tape = isinstance(getattr(result, "type", None), TapeType)
    return result if is_tape else Concrete(np.asarray(result))


_TYPED = (Array, Lit)


def concrete(value: Any) -> np.ndarray:
    """The NumPy value of a concrete argument of `bind`."""
    if isinstance(value, Concrete):
        return value.data
    if isinstance(value, Lit):
        return np.asarray(value.value, value.type.dtype)
    if isinstance(getattr(value, "type", None), TapeType):
        tape: np.ndarray = value
        return tape
    return np.asarray(value)


@overload
def type_of(x: Value) -> ArrayType: ...
@overload
def type_of(x: AnyValue) -> Type: ...
def type_of(x: Any) -> Any:
    """The type of anything `bind` takes: an ArrayType, of a tape its TapeType.

    >>> fxad.typeof(jnp.ones((2, 3)))
    f32[2,3]
    """
    if isinstance(x, _TYPED):
        return x.type
    if isinstance(getattr(x, "type", None), TapeType):
        return x.type
    array = np.asarray(x)
    return ArrayType(array.dtype, array.shape)
