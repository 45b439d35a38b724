"""Conversion, promotion and broadcasting: what every function of `fxad.numpy` starts with.

x, y = promoted("add", a, b)      # one dtype, one shape; numbers stay numbers
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.aligned import copied
from fxad.core.errors import (
    AxisError,
    BadArgument,
    ConcretizationError,
    FxadError,
    ShapeError,
    TypeMismatch,
    UnsupportedError,
)
from fxad.core.promotion import check_int_fits, entry_of, is_python_scalar, promote
from fxad.core.quiet import restore, silence
from fxad.core.types import ArrayType
from fxad.ir.program import OPS, Lit
from fxad.ir.rewrite import literal
from fxad.numpy.weak import entry, strong
from fxad.trace.array import Array, Borrowed, Concrete, as_numpy, kept
from fxad.trace.convert import is_array_like, native, to_value
from fxad.trace.tracer import Tracer, type_of

__all__ = ["array", "asarray"]

DEVICE = "cpu"
_KEY_WORDS = ArrayType(dt.uint32, (2,))  # what a random key is


def no_out(name: str, out: Any) -> None:
    """Raise UnsupportedError unless `out` is None."""
    if out is not None:
        raise UnsupportedError(f"{name}: arrays are immutable, so out= must be None")


def no_inplace(name: str, inplace: bool) -> None:
    """Raise UnsupportedError if a result is to go into the argument."""
    if inplace:
        raise UnsupportedError(
            f"{name}: arrays are immutable; pass inplace=False and use the result"
        )


def check_order(name: str, order: str | None) -> None:
    """Raise UnsupportedError for an order in memory that arrays do not have."""
    if order not in (None, "C", "K", "A"):
        raise UnsupportedError(
            f"{name}: arrays lie row by row: order must be 'C' or 'K', not {order!r}"
        )


def check_device(device: Any, name: str) -> None:
    """Raise BadArgument unless a device is None or the one there is: by name, as `fxad.devices()`
    gives it, or a sharding, of which none has another."""
    if device is None or hasattr(device, "device_set"):
        return
    if getattr(device, "platform", device) != DEVICE:
        raise BadArgument(f"{name}: there is no device {device!r}; the only one is {DEVICE!r}")


def array(
    object: Any,
    dtype: Any = None,
    copy: bool | None = True,
    order: str | None = None,
    ndmin: int = 0,
    *,
    device: Any = None,
) -> Array:
    """An Array of nested sequences, numbers or arrays; `dtype` converts.

    Python numbers alone give weakly typed 0-d arrays; NumPy input narrows to 32 bits by default.

    >>> jnp.array([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    >>> jnp.array([1, 2], dtype="bfloat16")
    Array([1, 2], dtype=bfloat16)
    """
    check_device(device, "array")
    check_order("array", order)
    value = _as_array(object, dtype)
    # memory that another Array has, or that the caller may still write to
    of_another = isinstance(value, Borrowed) or isinstance(object, Concrete)
    if copy and of_another and isinstance(value, Concrete):
        value = Concrete(copied(value.data), value.weak)
    elif copy is None:
        value = kept(value)
    if value.ndim < ndmin:
        value = OPS["reshape"](value, shape=(1,) * (ndmin - value.ndim) + value.shape)
    return value


def asarray(
    a: Any,
    dtype: Any = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: Any = None,
) -> Array:
    """Like `array`, without a copy of what is an Array already.

    NumPy arrays are copied, since others may write to them; copy=False shares their memory.

    >>> x = jnp.arange(3)
    >>> jnp.asarray(x) is x
    True
    >>> jnp.asarray([1.5, 2], jnp.int32)
    Array([1, 2], dtype=int32)
    """
    check_device(device, "asarray")
    check_order("asarray", order)
    return array(a, dtype, copy=copy)


_SEQUENCES = (list, tuple, range)
ANOTHER_DTYPE = "pass a dtype that holds it (dtype=), or wrap the number yourself"


def _as_array(object: Any, dtype: Any) -> Array:
    wanted = None if dtype is None else dt.canonicalize(dtype, explicit=True)
    if isinstance(object, _SEQUENCES):
        value = _sequence(object, wanted)
    elif hasattr(object, "__jax_array__"):
        value = to_value(object)
    elif is_array_like(object) or hasattr(object, "__array__"):
        if isinstance(object, np.ndarray | np.generic) and wanted is not None:
            return Borrowed(_cast_numpy(np.asarray(object), wanted))
        if is_python_scalar(object) and wanted is not None:
            if isinstance(object, int):
                check_int_fits(int(object), wanted, ANOTHER_DTYPE)
            return Concrete(np.asarray(object).astype(wanted))
        value = to_value(object)
    else:
        plain = np.asarray(object)  # buffers, and what else NumPy reads elements from
        if plain.dtype.kind in "OUS":
            raise TypeMismatch(
                f"cannot make an array of {type(object).__name__}: expected numbers, arrays or "
                "sequences of them"
            )
        return Borrowed(native(plain) if wanted is None else _cast_numpy(plain, wanted))
    return value if wanted is None else converted(value, wanted)


def _cast_numpy(data: np.ndarray, wanted: np.dtype) -> np.ndarray:
    if data.dtype.kind in "OUSMm":
        return native(data)
    if data.dtype.kind == "f" and wanted.kind in "iu":  # saturates, which NumPy leaves open
        whole: Any = OPS["convert"].numpy(data, dtype=wanted)
        return whole
    before = silence()
    try:
        return data.astype(wanted) if data.dtype != wanted else data
    finally:
        restore(before)


def _sequence(object: Sequence[Any], wanted: np.dtype | None) -> Array:
    leaves = list(_flat(object))
    if not any(isinstance(v, Array) for v in leaves):
        try:
            plain = np.asarray(object)
        except ValueError as error:
            raise ShapeError(f"cannot make an array of this sequence: {error}") from None
        if plain.dtype.kind == "O" and all(isinstance(v, int) for v in leaves):
            wanted = dt.default_int() if wanted is None else wanted  # some have over 64 bits
            return Concrete(_fitting(plain, leaves, wanted))
        if plain.dtype.kind in "OUS":
            raise TypeMismatch(
                "cannot make an array of this sequence: it holds things that are not numbers"
            )
        if wanted is not None:
            return Concrete(_fitting(plain, leaves, wanted))
        if set(map(type, leaves)) == {float}:
            return Concrete(_cast_numpy(plain, dt.default_float()))
        if leaves and all(is_python_scalar(v) for v in leaves):
            entry, _ = promote(*map(entry_of, leaves))
            return Concrete(_fitting(plain, leaves, entry))
        if not leaves:
            return Concrete(plain.astype(dt.default_float()))
        return Concrete(native(plain))
    return strong(stack_values([_as_array(v, wanted) for v in object]))


def _fitting(plain: np.ndarray, leaves: Sequence[Any], wanted: np.dtype) -> np.ndarray:
    """A sequence's numbers in a dtype. Raises NumberOverflow for Python ints outside its range."""
    if dt.is_integer(wanted) and plain.size:
        info = dt.iinfo(wanted)
        # Floats, among ints or in their place, do not tell 2**63 from the number before it.
        exact = plain.dtype.kind in "iu"
        if not exact or plain.min() < info.min or plain.max() > info.max:
            for number in leaves:
                if isinstance(number, int):
                    check_int_fits(number, wanted, ANOTHER_DTYPE)
    return _cast_numpy(plain.astype(np.float64) if plain.dtype.kind == "O" else plain, wanted)


def _flat(object: Any):
    if isinstance(object, _SEQUENCES):
        for item in object:
            yield from _flat(item)
    else:
        yield object


def stack_values(values: Sequence[Any], axis: int = 0) -> Array:
    """Arrays joined along a new axis after promotion."""
    values = promoted("stack", *values, numbers=False)
    rows = []
    for value in values:
        shape = list(type_of(value).shape)
        at = axis_index(axis, len(shape) + 1, "stack")
        shape.insert(at, 1)
        rows.append(OPS["reshape"](value, shape=tuple(shape)))
    return OPS["concatenate"](*rows, axis=axis_index(axis, type_of(rows[0]).ndim, "stack"))


def cast(value: Any, dtype: np.dtype) -> Array:
    """Convert to a dtype (nothing happens if it has it already)."""
    if type_of(value).dtype == dtype:
        return value
    return OPS["convert"](value, dtype=dtype)


def converted(value: Array, dtype: np.dtype) -> Array:
    """In the dtype that a user asked for, which makes it strong: no later promotion changes it."""
    if value.type.dtype == dtype and not value.weak:
        return value
    return OPS["convert"](value, dtype=dtype)


def promoted(
    name: str, *args: Any, inexact: bool = False, numbers: bool = True, broadcast: bool = True
) -> list[Any]:
    """Arguments in one dtype and one shape.

    Python numbers become literals of that dtype (with `numbers`), arrays are converted and
    broadcast. `inexact` moves integers and bools to a float dtype. Raises ShapeError naming the
    shapes, OverflowError for a Python int that does not fit.
    """
    values = _ready(args, inexact, numbers)
    if values is None:
        values = _in_one_dtype(name, args, inexact, numbers)
    if not broadcast:
        return values
    shapes = [type_of(v).shape for v in values if not isinstance(v, Lit)]
    shape = result_shape(name, shapes)
    return [v if isinstance(v, Lit) else spread_to(v, shape) for v in values]


def _in_one_dtype(name: str, args: Sequence[Any], inexact: bool, numbers: bool) -> list[Any]:
    args = tuple(to_value(a) if hasattr(a, "__jax_array__") else a for a in args)
    for arg in args:
        if not (is_array_like(arg) or isinstance(arg, Lit)):
            _not_an_array(name, arg)
    dtype, weak = promote(*[entry(a) for a in args])
    if inexact:
        dtype = dt.inexact_for(dtype)
    values = [_converted(a, dtype, numbers) for a in args]
    if weak:
        for arg, value in zip(args, values, strict=True):
            if value is not arg and isinstance(value, Array):
                value.weak = True  # as what comes of them: all of them are
    return values


def _ready(args: Sequence[Any], inexact: bool, numbers: bool) -> list[Any] | None:
    """The frequent case of `promoted`: arrays of one dtype, beside strong ones perhaps numbers
    that it takes in. None where there is something to convert."""
    like: np.dtype | None = None
    plain = weak = False
    for arg in args:
        if isinstance(arg, Array):
            if like is not None and arg.type.dtype is not like:
                return None
            like, weak = arg.type.dtype, weak or arg.weak
        elif type(arg) in (int, float):
            plain = True
        else:
            return None
    if like is None or (inexact and like.kind != "f"):
        return None
    if not plain:
        return list(args)
    if weak or not numbers or like.kind != "f":
        return None
    return [a if isinstance(a, Array) else Lit(float(a), like) for a in args]


def matched(x: Any, y: Any, kinds: str = "fiu") -> tuple[Any, Any] | None:
    """The frequent case of `promoted` with two operands of dtypes of these kinds: strong arrays of
    one type, or one beside a number that its float dtype takes in. What comes of them is strong.
    None where more is to be done."""
    if isinstance(x, Array):
        if x.weak:
            return None
        like = x.type
        if isinstance(y, Array):
            return (x, y) if y.type is like and not y.weak and like.dtype.kind in kinds else None
        if type(y) in _NUMBERS and like.dtype.kind == "f":
            return x, Lit(float(y), like.dtype)
        if type(y) is int and 0 <= y < 128 and like.dtype.kind in kinds:  # fits every integer
            return x, Lit(y, like.dtype)
    elif type(x) in _NUMBERS and isinstance(y, Array) and not y.weak and y.type.dtype.kind == "f":
        return Lit(float(x), y.type.dtype), y
    return None


_NUMBERS = (int, float)


def _not_an_array(name: str, arg: Any) -> None:
    hint = "; wrap it with fxad.numpy.asarray" if isinstance(arg, list | tuple) else ""
    raise TypeMismatch(f"{name}: expected an array or a number, got {type(arg).__name__}{hint}")


def _converted(arg: Any, dtype: np.dtype, numbers: bool) -> Any:
    if is_python_scalar(arg):
        if type(arg) is int:
            check_int_fits(arg, dtype)
        if numbers:
            return literal(arg, dtype)
        return Concrete(np.asarray(arg).astype(dtype))
    return cast(to_value(arg) if not isinstance(arg, Array | Lit) else arg, dtype)


def result_shape(name: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape arrays broadcast to. Raises ShapeError naming them all."""
    if not shapes:
        return ()
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    if dt.numerics.rank_promotion != "allow":
        _check_ranks(name, shapes)
    try:
        return _broadcast_shapes(*shapes)
    except ValueError:
        seen = ", ".join(map(str, shapes))
        raise ShapeError(
            f"{name}: shapes {seen} do not broadcast: sizes must be equal or 1, axes lined up "
            "from the last"
        ) from None


def _check_ranks(name: str, shapes: Sequence[tuple[int, ...]]) -> None:
    """Warn, or raise ShapeError, where arrays of several ranks meet (`core.promotion`)."""
    if len({len(shape) for shape in shapes if shape}) < 2:
        return
    rule = dt.numerics.rank_promotion
    message = (
        f"{name}: shapes {', '.join(map(str, shapes))} have different ranks, and rank promotion is "
        f"{rule!r}: add axes of length 1, for instance x[None]"
    )
    if rule == "raise":
        raise ShapeError(message)
    warnings.warn(message, stacklevel=4)


_broadcast_shapes = functools.lru_cache(maxsize=4096)(np.broadcast_shapes)


def spread_to(value: Any, shape: tuple[int, ...]) -> Any:
    """NumPy broadcasting of one array to a shape it is compatible with."""
    own = type_of(value).shape
    if own == shape:
        return value
    offset = len(shape) - len(own)
    kept = [i for i, size in enumerate(own) if size == shape[offset + i]]
    if len(kept) != len(own):
        value = OPS["reshape"](value, shape=tuple(own[i] for i in kept))
    return OPS["broadcast"](value, shape=shape, axes=tuple(offset + i for i in kept))


def axis_index(axis: int, ndim: int, name: str) -> int:
    """A non-negative axis number. Raises AxisError where it is out of range."""
    try:
        number = axis.__index__()
    except AttributeError:
        raise TypeMismatch(f"{name}: an axis must be an int, not {axis!r}") from None
    if not -ndim <= number < ndim:
        raise AxisError(f"{name}: axis {number} is out of range for an array with {ndim} axes")
    return number % ndim


def axes_tuple(axis: Any, ndim: int, name: str) -> tuple[int, ...]:
    """Sorted, unique, non-negative axes; None means all of them."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple | list) else shape_items(axis)
    found = [axis_index(a, ndim, name) for a in given]
    if len(set(found)) != len(found):
        raise AxisError(f"{name}: axes {tuple(given)} name one axis twice")
    return tuple(sorted(found))


def shape_items(shape: Any) -> tuple[Any, ...]:
    """The parts of a shape, or of what is given like one (axes): of a sequence, of whatever class,
    or of a vector of known elements. Anything else is the one part; so is a vector of a random
    key's type, which is a key in the place of a shape."""
    if isinstance(shape, int):
        return (shape,)
    if isinstance(shape, tuple | list):
        return tuple(shape)
    if isinstance(shape, np.ndarray | Array):
        known = not isinstance(shape, Tracer) and shape.ndim > 0
        if known and getattr(shape, "type", None) != _KEY_WORDS:
            return tuple(as_numpy(shape).tolist())
        return (shape,)
    return tuple(shape) if _is_sequence(shape) else (shape,)


def _is_sequence(given: Any) -> bool:
    """Whether an object is a sequence of numbers by what its class has, as other libraries' classes
    of shapes, which are no `collections.abc.Sequence`."""
    has = map(functools.partial(hasattr, type(given)), ("__len__", "__getitem__", "__iter__"))
    return all(has) and not isinstance(given, str | bytes | dict)


def shape_tuple(shape: Any, name: str) -> tuple[int, ...]:
    """A static shape from an int, or from several (`shape_items`)."""
    items = shape_items(shape)
    try:
        sizes = tuple([s.__index__() for s in items])
    except ConcretizationError as error:
        raise error.of_a_shape(f"{name}: a shape") from None
    except (AttributeError, TypeError) as error:
        if isinstance(error, FxadError):  # such as of a value that has outlived its trace
            raise
        seen = next((s.type for s in (shape, *items) if isinstance(s, Array)), None)
        key = "; a random key comes first, the shape after it" if seen == _KEY_WORDS else ""
        raise TypeMismatch(
            f"{name}: a shape must be ints, not {shape if seen is None else seen!r}{key}"
        ) from None
    if sizes and min(sizes) < 0:
        raise ShapeError(f"{name}: negative size in shape {sizes}")
    if (n := math.prod(sizes)) >= 2**48:
        raise ShapeError(f"{name}: shape {sizes} has {n:.3g} elements, more than memory can hold")
    if 0 in sizes and math.prod(filter(None, sizes)) >= 2**48:  # NumPy's limit, and strides'
        raise ShapeError(f"{name}: the lengths of shape {sizes} are too large, though one is 0")
    return sizes


def index_value(x: Any, name: str) -> Array:
    """An index as an Array. Positions that int32 cannot hold stay 64 bits wide: narrowed, they
    would be others, in range."""
    wide = isinstance(x, np.ndarray) and x.dtype.kind in "iu" and x.dtype.itemsize == 8 and x.size
    if wide and (x.min() < -(2**31) or x.max() >= 2**31):
        return Concrete(np.minimum(x, 2**63 - 1).astype(np.int64))
    return value_of(x, name)


def value_of(x: Any, name: str = "argument") -> Array:
    """Any array-like as an Array (numbers become 0-d arrays)."""
    if isinstance(x, Array):
        return x
    if not is_array_like(x):
        if isinstance(x, list | tuple):
            raise TypeMismatch(
                f"{name}: expected an array, got a {type(x).__name__}; wrap it with "
                "fxad.numpy.asarray"
            )
        return to_value(x, name)
    return to_value(x, name)


def vector_of(x: Any, name: str) -> Array:
    """Any array-like with one axis as an Array. Raises ShapeError for others."""
    value = value_of(x, name)
    if value.ndim != 1:
        raise ShapeError(f"{name}: takes vectors, not {value.type}; pass x.ravel()")
    return value


def known_values(
    x: Any,
    what: str,
    hint: str,
    error: type[ConcretizationError] = ConcretizationError,
    why: str = "the shape of the result would depend on",
) -> np.ndarray:
    """The elements of an array whose values decide a shape, or what else `why` says.

    Inside an eager derivative they are known. Raises the error with the hint elsewhere.
    """
    value = value_of(x, what)
    while isinstance(value, Tracer) and hasattr(value, "primal"):
        value = value.primal
    if isinstance(value, Tracer):
        made = error(f"{what}: {why} the values of {value.type}, which are traced; {hint}")
        made.value = value
        raise made
    return as_numpy(value)


def sum_dtype(dtype: np.dtype, wanted: Any) -> np.dtype:
    """Bools and integers narrower than the default one add up in that."""
    if wanted is not None:
        return dt.canonicalize(wanted, explicit=True)
    if dtype.kind == "f":
        return dtype
    if dt.is_bool(dtype):
        return dt.default_int()
    if dt.is_integer(dtype) and dtype.itemsize < dt.default_int().itemsize:
        return dt.default_int() if dt.is_signed(dtype) else np.dtype(f"u{dt.default_int().name}")
    return dtype


def within(offset: int, rows: int, columns: int) -> int:
    """A diagonal's number, an integer; of one outside a matrix, the nearest one outside."""
    try:
        number = offset.__index__()
    except AttributeError:
        raise TypeMismatch(f"a diagonal's number must be an int, not {offset!r}") from None
    return max(-rows, min(number, columns))


def full_of(value: Any, type_: ArrayType) -> Array:
    """An array of one number."""
    return OPS["broadcast"](literal(value, type_.dtype), shape=type_.shape, axes=())
