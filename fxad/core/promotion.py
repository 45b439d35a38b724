"""Which dtype comes out when dtypes meet: JAX's lattice, with the exceptions named below.

>>> result_type(dtypes.int32, 1.5), result_type(dtypes.int32, dtypes.float16)
(dtype('float32'), dtype('float16'))

An entry is `(dtype, weak)`. Python ints, floats and complex numbers are weak: they choose the
kind of the result and leave its width to the arrays. Where this differs from JAX:

- 64-bit dtypes may be present without x64, and then take part like any other;
- a 64-bit result needs x64 or a 64-bit input: int32 with uint32 is int32, under x64 int64.

8-bit floats meet no other float, as in JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from fxad.core import dtypes
from fxad.core.errors import BadArgument, NumberOverflow, TypeMismatch, TypePromotionError

Entry = tuple[np.dtype, bool]

# Weak kinds are nodes of the lattice: below every strong dtype of their kind.
_WEAK_INT, _WEAK_FLOAT, _WEAK_COMPLEX = "weak int", "weak float", "weak complex"
_Node = np.dtype | str

_ABOVE: dict[_Node, tuple[_Node, ...]] = {
    dtypes.bool_: (_WEAK_INT,),
    _WEAK_INT: (dtypes.uint8, dtypes.int8),
    dtypes.uint8: (dtypes.int16, dtypes.uint16),
    dtypes.uint16: (dtypes.int32, dtypes.uint32),
    dtypes.uint32: (dtypes.int64, dtypes.uint64),
    dtypes.uint64: (_WEAK_FLOAT,),
    dtypes.int8: (dtypes.int16,),
    dtypes.int16: (dtypes.int32,),
    dtypes.int32: (dtypes.int64,),
    dtypes.int64: (_WEAK_FLOAT,),
    _WEAK_FLOAT: (
        dtypes.float8_e4m3fn,
        dtypes.float8_e5m2,
        dtypes.float16,
        dtypes.bfloat16,
        _WEAK_COMPLEX,
    ),
    dtypes.float8_e4m3fn: (),
    dtypes.float8_e5m2: (),
    dtypes.float16: (dtypes.float32,),
    dtypes.bfloat16: (dtypes.float32,),
    dtypes.float32: (dtypes.float64, dtypes.complex64),
    dtypes.float64: (dtypes.complex128,),
    _WEAK_COMPLEX: (dtypes.complex64,),
    dtypes.complex64: (dtypes.complex128,),
    dtypes.complex128: (),
}


@functools.cache
def _reachable(node: _Node) -> frozenset[_Node]:
    return frozenset({node}.union(*map(_reachable, _ABOVE[node])))


_UPPER = {node: _reachable(node) for node in _ABOVE}


def promote(*entries: Entry) -> Entry:
    """The least `(dtype, weak)` that all entries convert to. Bools are never weak.

    Raises TypePromotionError if there is none (an 8-bit float with another float).
    """
    numerics = dtypes.numerics
    return _promote(entries, numerics.on, numerics.dtype_promotion == "strict")


def set_dtype_promotion(rule: Any) -> None:
    """From now on (in this thread) dtypes promote by the "standard" rules, or by the "strict"
    ones: arrays of two dtypes never meet, and a Python number only takes a dtype of its kind or a
    larger one. Raises BadArgument for another rule."""
    rule = getattr(rule, "value", rule)
    if rule not in ("standard", "strict"):
        raise BadArgument(f"dtype promotion is 'standard' or 'strict', not {rule!r}")
    dtypes.numerics.set(dtype_promotion=rule)


def set_rank_promotion(rule: str) -> None:
    """From now on (in this thread) arrays of different ranks, none a scalar, broadcast ("allow"),
    do so with a warning ("warn"), or not at all ("raise"). Raises BadArgument for another rule."""
    if rule not in ("allow", "warn", "raise"):
        raise BadArgument(f"rank promotion is 'allow', 'warn' or 'raise', not {rule!r}")
    dtypes.numerics.set(rank_promotion=rule)


@functools.lru_cache(maxsize=4096)
def _promote(entries: tuple[Entry, ...], x64: bool, strict: bool) -> Entry:
    if not entries:
        raise TypePromotionError("promotion needs at least one value")
    kinds = {dtype for dtype, _ in entries}
    all_weak = all(weak for _, weak in entries)
    if len(kinds) == 1:
        (dtype,) = kinds
        return dtype, all_weak and not dtypes.is_bool(dtype)
    if dtypes.key in kinds:
        names = ", ".join(sorted(map(dtypes.short_name, kinds)))
        raise TypePromotionError(
            f"typed random keys meet no other dtype (here {names}); jax.random.key_data(keys) has "
            "their words as uint32"
        )
    if strict:
        _check_strict(entries)
    if all_weak:  # the widths of weak values mean nothing, only their order does
        return _join(kinds, entries, x64)[0], True
    return _join({_node(*entry) for entry in entries}, entries, x64)


def _check_strict(entries: tuple[Entry, ...]) -> None:
    strong = {dtype for dtype, weak in entries if not weak}
    nodes = {_node(*entry) for entry in entries} - strong
    fits = all(_KIND[node] <= _KIND_OF[dtypes.kind_of(d)] for d in strong for node in nodes)
    if len(strong) > 1 or not fits:
        names = ", ".join(sorted({str(dtype) + " (weak)" * weak for dtype, weak in entries}))
        raise TypePromotionError(
            f"no implicit promotion between {names} under dtype promotion 'strict'; convert one "
            "side first, for instance x.astype('float32')"
        )


_KIND_OF = {"bool": 0, "int": 1, "float": 2, "complex": 3}
_KIND: dict[_Node, int] = {_WEAK_INT: 1, _WEAK_FLOAT: 2, _WEAK_COMPLEX: 3}


def _node(dtype: np.dtype, weak: bool) -> _Node:
    if not weak or dtypes.is_bool(dtype):
        return dtype
    if dtypes.is_integer(dtype):
        return _WEAK_INT
    return _WEAK_FLOAT if dtypes.is_float(dtype) else _WEAK_COMPLEX


def _join(nodes: Iterable[_Node], entries: tuple[Entry, ...], x64: bool) -> Entry:
    common = frozenset.intersection(*(_UPPER[node] for node in nodes))
    least = next((node for node in common if common <= _UPPER[node]), None)
    match least:
        case None:
            names = ", ".join(sorted({str(dtype) for dtype, _ in entries}))
            raise TypePromotionError(
                f"no implicit promotion between {names}; "
                f"convert one side first, for instance x.astype('float32')"
            )
        case str() if least == _WEAK_FLOAT:
            return dtypes.default_float(), True
        case str() if least == _WEAK_COMPLEX:
            return dtypes.default_complex(), True
        case str():
            return dtypes.default_int(), True
    wide_input = any(dtype in _WIDE and not weak for dtype, weak in entries)
    if least == dtypes.int64 and not x64 and not wide_input:
        return dtypes.int32, False
    return least, False


_WIDE = frozenset({dtypes.int64, dtypes.uint64, dtypes.float64, dtypes.complex128})


def scalar_entry(value: Any) -> Entry:
    """The entry of a Python scalar: the default dtype of its kind, weak (a bool is just bool).

    NumPy scalars are not Python scalars, although `isinstance(np.float64(1), float)`: they are
    strong 0-d arrays and raise TypeMismatch here.
    """
    kind = type(value)
    if kind is float:
        return dtypes.default_float(), True
    if kind is int:
        return dtypes.default_int(), True
    if kind is bool:
        return dtypes.bool_, False
    if kind is complex:
        return dtypes.default_complex(), True
    if isinstance(value, np.generic):
        raise TypeMismatch(f"{value!r} is a NumPy scalar: treat it as a 0-d array")
    # A subclass (IntEnum and the like) counts as its base. bool cannot be subclassed.
    for base in (int, float, complex):
        if isinstance(value, base):
            return scalar_entry(base())
    raise TypeMismatch(f"expected a Python number, got {value!r} of type {kind.__name__}")


def is_python_scalar(value: object) -> bool:
    """A Python bool, int, float or complex, and not a NumPy scalar posing as one."""
    return isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)


def entry_of(value: Any) -> Entry:
    """The entry of a Python scalar or its type, a dtype, a NumPy value, or anything with `.dtype`.

    A `.weak` attribute (traced values have one) marks a weakly typed value.
    """
    if is_python_scalar(value):
        return scalar_entry(value)
    if _is_python_type(value):
        return scalar_entry(value())
    if isinstance(value, (np.dtype, type, str)):
        return dtypes.canonicalize(value, explicit=True), False
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return dtypes.canonicalize(np.asarray(value).dtype, explicit=False), False
    if isinstance(value, np.generic):
        dtype = dtypes.of_number(dtype)
    if isinstance(value, (np.ndarray, np.generic)):
        return dtypes.canonicalize(dtype, explicit=False), False
    return dtype, bool(getattr(value, "weak", False))


def _is_python_type(value: Any) -> bool:
    return isinstance(value, type) and value in (bool, int, float, complex)


def result_type(*args: Any) -> np.dtype:
    """The dtype that values, dtypes and Python scalars promote to together. The types int, float
    and complex stand for numbers of theirs, which adapt; their names ("int") are dtypes.

    >>> jnp.result_type(jnp.int8, 1.0), jnp.result_type(jnp.bfloat16, jnp.float16)
    (dtype('float32'), dtype('float32'))
    """
    return promote(*map(entry_of, args))[0]


def promote_types(a: Any, b: Any) -> np.dtype:
    """The dtype that two dtypes promote to; int, float and complex stand for Python's numbers.

    >>> jnp.promote_types(jnp.int32, jnp.float16), jnp.promote_types(jnp.bfloat16, float)
    (dtype('float16'), dtype(bfloat16))
    """
    return promote(
        *(entry_of(d) if _is_python_type(d) else (dtypes.native(d), False) for d in (a, b))
    )[0]


WIDER_ARRAY = (
    "convert the array to a wider dtype first (x.astype(...)), or wrap the number yourself"
)


def check_int_fits(value: int, dtype: np.dtype, advice: str = WIDER_ARRAY) -> None:
    """Raise NumberOverflow if the Python int `value` lies outside the integer dtype's range.

    Floats round or become inf like any other conversion and are not checked; a bool takes any.
    advice: what the error says to do.
    """
    if not dtypes.is_integer(dtype):
        return
    info = dtypes.iinfo(dtype)
    if not info.min <= value <= info.max:
        shown = str(value) if abs(value) < 10**30 else f"of {value.bit_length()} bits"
        raise NumberOverflow(
            f"the Python int {shown} does not fit {dtype}, whose range is "
            f"[{info.min}, {info.max}]; {advice}"
        )
