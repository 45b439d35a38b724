"""Functions of several ops that, called again like before, run as one line of NumPy calls.

    @replayed
    def var(a, axis=None):
        ...

Outside every trace an op runs at once on its NumPy reference, and what surrounds that (promotion,
type rules, checks, wrapping) costs microseconds, for every op anew. A replayed function is traced
when it is called for the third time with arrays of the same types and other arguments of the same
values. What the trace says is written as a Python function that calls the references one after the
other; everything else was settled by the types. So the bits are those of the ops bound one by one.
Inside traces, under derivatives and for arguments that are not plain nothing changes.

    @by_numpy(type=lambda a, b: a, numpy=np.remainder)
    def _remainder(a, b):
        ...

A part of such functions for which NumPy has a function that gives the same bits is one call of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from fxad.core.dtypes import canonicalize, numerics
from fxad.core.errors import FxadError
from fxad.core.types import ArrayType
from fxad.ir.program import Op
from fxad.trace import tracer
from fxad.trace.array import Borrowed, Concrete, kept
from fxad.trace.convert import as_numpy, native
from fxad.trace.execute import concrete, type_of
from fxad.trace.replay_code import Unwritable, Writer
from fxad.trace.tracer import Staging, Tracer, bind, stage

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
C = TypeVar("C", bound=type)

REPEATS = 3  # calls of a signature before it is worth a trace, which costs as much as many calls
MOST = 1 << 10  # signatures remembered of a function; then it starts anew
_NEVER = -1
_stack = tracer._stack


class _Odd(Exception):
    """An argument that no signature can hold, or a result that no replay can give."""


@overload
def replayed(function: F) -> F: ...
@overload
def replayed(*, numbers: bool) -> Callable[[F], F]: ...
def replayed(function: Any = None, *, numbers: bool = False) -> Any:
    """The function, remembering what it does by the types of arrays and the values of the rest.

    For functions of arrays whose results depend on nothing else, and on the elements of arrays
    through ops only. numbers: Python floats given by position may have any value too, since the
    function does nothing but promote them.
    """
    if function is None:
        return functools.partial(replayed, numbers=numbers)
    runs: dict[tuple[object, ...], Function] = {}
    met: dict[tuple[object, ...], int] = {}
    number = float if numbers else None

    def seldom(
        key: tuple[object, ...], given: list[Any], args: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        count = met.get(key, 0)
        if 0 <= count < REPEATS - 1:
            if len(met) >= MOST:
                met.clear()
            met[key] = count + 1
        elif count != _NEVER:
            run = _recorded(function, args, named, number)
            if run is not None:
                if len(runs) >= MOST:
                    runs.clear()
                runs[key] = run
                return run(*given)
            met[key] = _NEVER
        return _apart(function(*args, **named))

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        if _stack.levels:
            return function(*args, **named)
        if not tracer.ordinary:
            return _apart(function(*args, **named))
        given: list[Any] = []
        parts: list[Any] = [numerics.key]
        key: tuple[Any, ...] | None
        try:
            for arg in args:
                kind = type(arg)
                if kind is Concrete and not arg.weak:
                    parts.append(arg.type)
                    given.append(arg._data)
                elif kind is number:
                    parts.append(number)
                    given.append(arg)
                else:
                    _describe(arg, parts, given)
            for name, arg in named.items():
                parts.append(name)
                _describe(arg, parts, given)
            key = tuple(parts)
            run = runs.get(key)
        except (_Odd, AttributeError, TypeError):  # given away; without a hash
            key = None
        if key is None:  # not above, where it would be what an error of the user's came from
            return _apart(function(*args, **named))
        return run(*given) if run is not None else seldom(key, given, args, named)

    return call


def _apart(result: Any) -> Any:
    """What a function returned, copied where that is memory of its caller: an argument itself."""
    if isinstance(result, Borrowed):
        return result if _stack.levels else kept(result)
    if type(result) in (tuple, list):
        return type(result)([_apart(r) for r in result])
    return result


class _Recording(Staging):
    """The level of what is traced to be replayed."""


def replaying() -> bool:
    """Whether what runs now is recorded to be replayed op by op: the fewer ops the better."""
    levels = _stack.levels
    return bool(levels) and isinstance(levels[-1], _Recording)


def by_numpy(*, type: Callable[..., ArrayType], numpy: Function) -> Callable[[F], F]:
    """A function of float arrays or numbers of one dtype of 32 or 64 bits (and named parameters)
    that, outside traces and in replays, is a call of `numpy`, as if it were one op.

    type: the result's type by those of the arrays, and the parameters. numpy: of NumPy's arrays
    and the parameters; it must give the bits that the function's ops do, whatever the elements (but
    for arguments that the function leaves open, as a table that is not sorted).
    """

    def decorate(function: F) -> F:
        op = Op(function.__name__.strip("_"), type=type, numpy=numpy)

        @functools.wraps(function)
        def call(*values: Any, **params: Any) -> Any:
            if tracer.ordinary and (not _stack.levels or replaying()):
                dtype = type_of(values[0]).dtype
                if dtype.kind == "f" and dtype.itemsize >= 4:
                    return bind(op, *values, **params)
            return function(*values, **params)

        return call  # type: ignore[return-value]

    return decorate


_CONVERTED_ONCE = 1 << 14  # bytes of an array from where on a conversion costs more than ops do
_PLAIN = frozenset((int, bool, str, type(None), type(Ellipsis)))
_BY_VALUE: set[type] = set()


def by_value(cls: C) -> C:
    """Mark a class of immutable objects that are what they equal (a decorator)."""
    _BY_VALUE.add(cls)
    return cls


def _describe(arg: Any, parts: list[Any], given: list[Any]) -> None:
    """Add to `parts` all of an argument but the elements of arrays, which go to `given`.

    No two arguments add the same: every description begins with an ArrayType, a class, a float or
    a float's name. Raises _Odd for what cannot be described.
    """
    kind = type(arg)
    if kind in _PLAIN:
        parts.append(kind)
        parts.append(arg)
    elif kind is Concrete:
        parts.append(arg.type)
        if arg.weak:
            parts.append(Concrete)
        given.append(arg._data)
    elif _is_numpys(arg):
        if arg.nbytes > _CONVERTED_ONCE and canonicalize(arg.dtype, explicit=False) != arg.dtype:
            raise _Odd
        array = native(as_numpy(arg))
        parts.append(kind)
        parts.append(ArrayType(array.dtype, array.shape))
        given.append(array)
    elif kind is float:
        parts.append(arg or repr(arg))  # 0.0 and -0.0 are equal
    elif kind is tuple or kind is list:
        parts.append(kind)
        parts.append(len(arg))
        for item in arg:
            _describe(item, parts, given)
    elif kind is slice:
        parts.append(kind)
        for item in (arg.start, arg.stop, arg.step):
            _describe(item, parts, given)
    elif kind in _BY_VALUE or isinstance(arg, type | np.dtype):
        parts.append(type)
        parts.append(arg)
    else:
        raise _Odd


def _is_numpys(arg: Any) -> bool:
    """Whether an argument is an array or a scalar of NumPy's own."""
    return type(arg) is np.ndarray or isinstance(arg, np.generic)


# ---------------------------------------------------------------- recording


def _recorded(
    function: Function, args: tuple[Any, ...], named: dict[str, Any], number: type | None
) -> Function | None:
    """What a call does, as a function of the arrays and numbers that `_describe` takes out.

    None if that is not a fixed sequence of ops that make all results.
    """
    args = tuple([_stand_in(i) if type(a) is number else a for i, a in enumerate(args)])
    operands = [v for arg in args for v in _operands(arg, number)]
    operands += [v for arg in named.values() for v in _operands(arg, None)]
    arrays = [v for v in operands if isinstance(v, Concrete)]
    made: list[Any] = []  # the class of the result, and which parts of it are weak

    def flat(*tracers: Any) -> Sequence[Any]:
        values = iter(tracers)
        filled = [_filled(a, values) for a in args]
        result = function(*filled, **{k: _filled(a, values) for k, a in named.items()})
        results = result if isinstance(result, tuple | list) else (result,)
        if not all(isinstance(r, Tracer) for r in results):
            raise _Odd
        made.extend((type(result), [r.weak for r in results]))
        return results

    try:
        program, captured = stage(
            flat, [a.type for a in arrays], "replay", [a.weak for a in arrays], _Recording
        )
        writer = Writer(program, [concrete(c) for c in captured], operands)
        return writer.replay(*made)
    except (
        _Odd,
        Unwritable,
        FxadError,
        TypeError,
        ValueError,
        IndexError,
    ):  # it looks at values, which a trace has not
        return None


def _stand_in(position: int) -> float:
    """A number that stands for any, found again in the trace: no function has such a constant."""
    return 0.7310585786 + 2.0**-30 * position


def _operands(arg: Any, number: type | None) -> Iterator[Any]:
    """The arrays in an argument in the order of `_describe`, or the number it is."""
    if type(arg) is Concrete or type(arg) is number:
        yield arg
    elif _is_numpys(arg):
        yield Borrowed(native(as_numpy(arg)))
    elif type(arg) in (tuple, list):
        for item in arg:
            yield from _operands(item, None)
    elif type(arg) is slice:
        yield from _operands((arg.start, arg.stop, arg.step), None)


def _filled(arg: Any, values: Iterator[Any]) -> Any:
    """The argument with other values in the places of its arrays."""
    if type(arg) is Concrete or _is_numpys(arg):
        return next(values)
    if type(arg) in (tuple, list):
        return type(arg)([_filled(item, values) for item in arg])
    if type(arg) is slice:
        return slice(*[_filled(item, values) for item in (arg.start, arg.stop, arg.step)])
    return arg
