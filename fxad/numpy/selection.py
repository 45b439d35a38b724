"""Elements chosen, or replaced, by index arrays, masks and flat positions.

take_along_axis(x, argsort(x, 1), 1)          nonzero(x > 0, size=8)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxad.api.indices import check_indices, reaching
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, DtypeError, ShapeError, UnsupportedError
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.numpy.core import (
    asarray,
    axes_tuple,
    axis_index,
    cast,
    full_of,
    index_value,
    known_values,
    no_inplace,
    no_out,
    promoted,
    result_shape,
    spread_to,
    value_of,
)
from fxad.numpy.cumulative import cumsum
from fxad.numpy.elementwise import clip, maximum, where
from fxad.numpy.indexing import READS, WRITES, chosen_mode, getitem, index_array
from fxad.numpy.manipulation import moveaxis, reshape
from fxad.numpy.updates import setitem, update_for
from fxad.numpy.weak import gives_strong
from fxad.trace.array import Array, Concrete
from fxad.trace.replay import replayed
from fxad.trace.tracer import type_of

__all__ = [
    "argwhere", "choose", "compress", "extract", "flatnonzero", "nonzero", "place", "put",
    "put_along_axis", "select", "take", "take_along_axis", "trim_zeros",
]  # fmt: skip

_KNOWN = "use where, or nonzero with its size="


def take(
    a: Any,
    indices: Any,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: Any = None,
) -> Array:
    """Elements at positions along an axis. Out of range, mode "fill" (the default) gives
    fill_value (None: NaN, or the lowest integer), "clip" the nearest element, "wrap" counts on
    from the start. Negative positions count from the end, but not in mode "clip", as in NumPy.
    The two hints are accepted for ported code.

    >>> jnp.take(jnp.array([10, 20, 30]), jnp.array([2, 0]))
    Array([30, 10], dtype=int32)
    >>> jnp.take(jnp.array([10, 20, 30]), 7, mode="clip")
    Array(30, dtype=int32)
    """
    no_out("take", out)
    value = value_of(a)
    if axis is None:
        value, axis = value if value.ndim == 1 else reshape(value, (-1,)), 0
    at = axis_index(axis, value.ndim, "take")
    index = index_value(indices, "take")
    if mode == "wrap":
        size = value.shape[at]
        index = (reaching(index, size) if dt.is_integer(index.dtype) else index) % size
    elif mode == "clip" and index.dtype.kind == "i":
        index = maximum(index, 0)
    elif mode is None:
        check_indices("take", index, value.shape, at)
    elif mode == "raise":
        raise UnsupportedError("take: mode='raise' is not there; see fxad.debug.indices")
    how = "clamp" if mode == "wrap" else _read_mode(mode, "take")
    return getitem(value, (slice(None),) * at + (index,), how, fill_value, strict=False)


def _read_mode(mode: str | None, what: str) -> str:
    """As `chosen_mode`, and "fill" without a mode: a wrong index then shows as NaN."""
    return chosen_mode(READS, "fill" if mode is None else mode, what)


@replayed
def take_along_axis(
    arr: Any,
    indices: Any,
    axis: int | None = -1,
    mode: str | None = None,
    fill_value: Any = None,
    *,
    wrap_negative_indices: bool | None = None,
) -> Array:
    """For every position along the other axes, elements at its own indices along `axis`.

    Out of range, mode "fill" (the default) gives fill_value (None: NaN, or the lowest integer),
    "clip" the nearest element.

    >>> x = jnp.array([[3, 1, 2], [9, 8, 7]])
    >>> jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1)
    Array([[1, 2, 3],
           [7, 8, 9]], dtype=int32)
    """
    if wrap_negative_indices not in (None, True):
        raise BadArgument(
            "take_along_axis: negative indices count from the end; pass "
            "wrap_negative_indices=None and other numbers"
        )
    value, index = value_of(arr), value_of(indices, "take_along_axis")
    if axis is None:
        value, axis = reshape(value, (-1,)), 0
    at = axis_index(axis, value.ndim, "take_along_axis")
    if index.ndim != value.ndim:
        raise ShapeError(f"take_along_axis: indices {index.type} need as many axes as {value.type}")
    if mode is None:
        check_indices("take_along_axis", index, value.shape, at)
    value, index = moveaxis(value, at, -1), moveaxis(index, at, -1)
    lead = result_shape("take_along_axis", [value.shape[:-1], index.shape[:-1]])
    value = spread_to(value, (*lead, value.shape[-1]))
    index = spread_to(index_array(index, value.shape[-1]), (*lead, index.shape[-1]))
    out = OPS["gather"](
        value,
        index,
        axes=(len(lead),),
        batch=len(lead),
        mode=_read_mode(mode, "take_along_axis"),
        fill=fill_value,
        unique=False,
    )
    return moveaxis(out, -1, at)


@replayed
def put_along_axis(
    arr: Any,
    indices: Any,
    values: Any,
    axis: int | None,
    inplace: bool = True,
    *,
    mode: str | None = None,
) -> Array:
    """arr with `values` at each lane's own indices; returns the new array. What is out of range is
    dropped, or with mode "clip" goes to the nearest place. Along other axes one index serves all
    lanes; axis=None: indices into the flattened array. Needs inplace=False, as in JAX.

    >>> x = jnp.zeros((2, 2))
    >>> jnp.put_along_axis(x, jnp.array([[1], [0]]), 5.0, axis=1, inplace=False)
    Array([[0., 5.],
           [5., 0.]], dtype=float32)
    """
    no_inplace("put_along_axis", inplace)
    value, index = value_of(arr), value_of(indices, "put_along_axis")
    if axis is None:
        flat = put_along_axis(reshape(value, (-1,)), index, values, 0, inplace, mode=mode)
        return reshape(flat, value.shape)
    at = axis_index(axis, value.ndim, "put_along_axis")
    if index.ndim != value.ndim:
        raise ShapeError(f"put_along_axis: indices {index.type} need as many axes as {value.type}")
    if mode is None:
        check_indices("put_along_axis", index, value.shape, at)
    lanes = (*value.shape[:at], index.shape[at], *value.shape[at + 1 :])
    if result_shape("put_along_axis", [index.shape, lanes]) != lanes:
        raise ShapeError(f"put_along_axis: indices {index.type} have more lanes than {value.type}")
    given = update_for(values, value.dtype)
    if result_shape("put_along_axis", [given.shape, index.shape]) != index.shape:
        raise ShapeError(
            f"put_along_axis: values {given.type} do not broadcast to indices {index.type}"
        )
    update, index = spread_to(spread_to(given, index.shape), lanes), spread_to(index, lanes)
    value, index, update = (moveaxis(v, at, -1) for v in (value, index, update))
    lead = value.ndim - 1
    out = OPS["scatter"](
        value,
        update,
        index_array(index, value.shape[-1]),
        axes=(lead,),
        batch=lead,
        monoid="set",
        unique=False,
        mode=chosen_mode(WRITES, mode, "put_along_axis"),
    )
    return moveaxis(out, -1, at)


def compress(
    condition: Any,
    a: Any,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: Any = 0,
    out: None = None,
) -> Array:
    """Elements (slices along an axis) where a vector of bools holds. A traced condition needs
    `size`: so many elements, the last ones `fill_value` where fewer hold.

    >>> jnp.compress(jnp.array([True, False, True]), jnp.array([1, 2, 3]))
    Array([1, 3], dtype=int32)
    """
    no_out("compress", out)
    flags, value = asarray(condition), value_of(a)
    if flags.ndim != 1:
        raise ShapeError(f"compress: the condition must be a vector, not {flags.type}")
    if axis is None:
        value, axis = reshape(value, (-1,)), 0
    at = axis_index(axis, value.ndim, "compress")
    if size is None:
        kept = np.nonzero(known_values(flags, "compress", _KNOWN))[0]
        if kept.size and kept[-1] >= value.shape[at]:
            raise BadArgument(
                f"compress: element {kept[-1]} of the condition is true, and axis {at} of "
                f"{value.type} has only {value.shape[at]}"
            )
        kept = kept.astype(dt.index_dtype(flags.size))
        return getitem(value, (slice(None),) * at + (kept,))
    length = value.shape[at]
    (places,) = nonzero(flags[:length], size=size, fill_value=length)
    found = getitem(value, (slice(None),) * at + (places,), strict=False)
    shape = tuple(-1 if i == at else 1 for i in range(value.ndim))
    return where(reshape(places, shape) < length, found, fill_value)


def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Array:
    """Elements where a condition of the array's shape holds, as a vector; see `compress`.

    >>> x = jnp.arange(5)
    >>> jnp.extract(x % 2 == 0, x)
    Array([0, 2, 4], dtype=int32)
    """
    flags, value = asarray(condition), value_of(arr)
    return compress(reshape(flags, (-1,)), reshape(value, (-1,)), size=size, fill_value=fill_value)


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> tuple[Array, ...]:
    """Positions of non-zero elements; traced input needs a fixed `size`, to which they are cut or
    filled up. fill_value: a number (None: 0), or a tuple of one for each axis.

    >>> jnp.nonzero(jnp.array([0, 3, 0, 4]))
    (Array([1, 3], dtype=int32),)
    >>> jnp.nonzero(jnp.array([0, 3, 0, 4]), size=3, fill_value=-1)  # under jit
    (Array([ 1,  3, -1], dtype=int32),)
    """
    value = value_of(a)
    if value.ndim == 0:
        raise ShapeError("nonzero: a 0-d array has no axes to count positions along; reshape it")
    if size is None:
        return where(value)
    flat = reshape(value, (-1,)) != 0
    fills = fill_value if isinstance(fill_value, tuple) else (fill_value,) * value.ndim
    if len(fills) != value.ndim or any(np.ndim(fill) for fill in fills):
        raise ShapeError(
            f"nonzero: fill_value is a number or a tuple of {value.ndim}, not {fill_value!r}"
        )
    count, dtype = flat.size, dt.index_dtype(flat.size)
    order = OPS["cumsum"](cast(flat, dtype), axis=0, reverse=False) - 1
    slots = where(flat, order, size)
    numbers = OPS["iota"](dtype=dtype, shape=flat.shape, axis=0)
    found = setitem(full_of(count, ArrayType(dtype, (size,))), slots, numbers, "set", mode="drop")
    out = []
    for axis, fill in enumerate(fills):
        stride = math.prod(value.shape[axis + 1 :])
        place = cast((found // stride) % value.shape[axis], dt.index_dtype(value.shape[axis]))
        out.append(where(found == count, 0 if fill is None else fill, place))
    return tuple(out)


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Positions of non-zero elements as rows; see `nonzero`.

    >>> jnp.argwhere(jnp.array([[0, 3], [4, 0]]))
    Array([[0, 1],
           [1, 0]], dtype=int32)
    """
    value = value_of(a)
    if value.ndim == 0:  # one row or none, without a column
        return argwhere(reshape(value, (1,)), size=size)[:, :0]
    columns = nonzero(a, size=size, fill_value=fill_value)
    return OPS["concatenate"](*[reshape(c, (-1, 1)) for c in columns], axis=1)


@replayed
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Array:
    """For each element the first choice whose condition holds.

    >>> x = jnp.arange(5)
    >>> jnp.select([x < 2, x > 3], [-x, 10 * x], default=7)
    Array([ 0, -1,  7,  7, 40], dtype=int32)
    """
    if len(condlist) != len(choicelist):
        raise BadArgument(f"select: {len(condlist)} conditions for {len(choicelist)} choices")
    if not len(condlist):  # an array of conditions has no truth of its own
        raise BadArgument("select: needs at least one condition")
    values = promoted("select", *choicelist, default, numbers=False)
    out = values[-1]
    for condition, choice in zip(reversed(condlist), reversed(values[:-1]), strict=True):
        out = where(condition, choice, out)
    return out


def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Array:
    """choices[a] element by element; numbers outside raise BadArgument ("raise": a must not be
    traced), go to the nearest ("clip") or count round ("wrap").

    >>> jnp.choose(jnp.array([0, 1, 0]), [jnp.array([1, 2, 3]), jnp.array([10, 20, 30])])
    Array([ 1, 20,  3], dtype=int32)
    """
    no_out("choose", out)
    if mode not in ("raise", "clip", "wrap"):
        raise BadArgument(f"choose: mode must be 'clip', 'wrap' or 'raise', not {mode!r}")
    index = value_of(a, "choose")
    if index.dtype.kind not in "iu":
        raise DtypeError(f"choose: a must be integers, not {index.type}; convert it")
    if mode == "raise":
        hint = "pass mode='clip' or 'wrap'"
        known = known_values(index, "choose", hint, why="mode='raise' looks at")
        outside = known[(known < 0) | (known >= len(choices))]
        if outside.size:
            raise BadArgument(
                f"choose: {outside[0]} goes beyond the {len(choices)} choices; {hint}"
            )
    return _chosen(index, choices, mode == "wrap")


@replayed
@gives_strong
def _chosen(index: Array, choices: Any, wrap: bool) -> Array:
    index = index % len(choices) if wrap else index
    rows = promoted("choose", *choices, numbers=False)
    shape = result_shape("choose", [index.shape, type_of(rows[0]).shape])
    result = spread_to(rows[-1], shape)
    for number in reversed(range(len(rows) - 1)):
        result = where(spread_to(index, shape) <= number, spread_to(rows[number], shape), result)
    return result


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = True) -> Array:
    """A copy of a with elements at flat positions replaced by v, repeated as often as needed.

    mode: what happens to positions out of range: "clip", "wrap", or None to drop them. Needs
    inplace=False, as in JAX.

    >>> jnp.put(jnp.zeros(4), jnp.array([0, 2]), jnp.array([5.0, 6.0]), inplace=False)
    Array([5., 0., 6., 0.], dtype=float32)
    """
    no_inplace("put", inplace)
    value, places = value_of(a, "put"), value_of(ind, "put: ind").ravel()
    new = value_of(v, "put: v").ravel()
    if mode not in (None, "clip", "wrap"):
        raise BadArgument(f"put: mode must be 'clip', 'wrap' or None, not {mode!r}")
    if not places.size:
        return value
    if not new.size:
        raise ShapeError("put: no values to put")
    if mode == "clip":
        places = clip(places, 0, value.size - 1)
    elif mode == "wrap":
        places = places % value.size
    repeated = take(new, np.arange(places.size) % new.size)
    flat = value.ravel().at[places].set(repeated, mode="drop")
    return OPS["reshape"](flat, shape=value.shape)


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Array:
    """A copy of arr where the elements under the mask are vals in order, repeated as needed.

    Needs inplace=False, as in JAX. Raises ShapeError if the mask has another size than arr.

    >>> x = jnp.arange(4)
    >>> jnp.place(x, x > 1, jnp.array([9, 8]), inplace=False)
    Array([0, 1, 9, 8], dtype=int32)
    """
    no_inplace("place", inplace)
    value, flags = value_of(arr, "place"), value_of(mask, "place: mask").ravel() != 0
    new = value_of(vals, "place: vals").ravel()
    if flags.size != value.size:
        raise ShapeError(f"place: a mask of {flags.size} elements for {value.type}")
    if not value.size:
        return value
    if not new.size:
        raise ShapeError("place: no values to place")
    order = (cumsum(cast(flags, dt.index_dtype(flags.size))) - 1) % new.size
    chosen = cast(take(new, order, mode="clip"), value.dtype)
    return OPS["reshape"](where(flags, chosen, value.ravel()), shape=value.shape)


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Positions of non-zero elements, counted in C order; traced input needs a fixed `size`.

    >>> jnp.flatnonzero(jnp.array([[0, 3], [4, 0]]))
    Array([1, 2], dtype=int32)
    """
    if size is not None:
        return nonzero(reshape(value_of(a), (-1,)), size=size, fill_value=fill_value)[0]
    values = known_values(a, "flatnonzero", "pass size=")
    return Concrete(np.flatnonzero(values).astype(dt.default_int()))


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Array:
    """The array without the zeros at its ends: along each axis, or each of `axis`, the slices from
    the first to the last that hold another number.

    trim: "f" cuts at the front, "b" at the back, "fb" at both. The values decide the shape of the
    result, so they cannot be traced.

    >>> jnp.trim_zeros(jnp.array([0, 0, 2, 0, 1, 0]))
    Array([2, 0, 1], dtype=int32)
    >>> jnp.trim_zeros(jnp.array([[0, 1, 2], [0, 0, 0]]), "b", axis=0)
    Array([[0, 1, 2]], dtype=int32)
    """
    value = value_of(filt, "trim_zeros")
    ends = trim.lower()
    if set(ends) - {"f", "b"}:
        raise BadArgument(f"trim_zeros: trim is 'f', 'b' or 'fb', not {trim!r}")
    kept = known_values(value, "trim_zeros", "put zeros where they end with where") != 0
    cut = [slice(None)] * value.ndim
    for at in axes_tuple(axis, value.ndim, "trim_zeros") if ends else ():
        places = np.flatnonzero(kept.any(tuple(i for i in range(value.ndim) if i != at)))
        first, last = (int(places[0]), int(places[-1])) if places.size else (0, -1)
        front, back = "f" in ends or not places.size, "b" in ends or not places.size
        cut[at] = slice(first if front else 0, last + 1 if back else value.shape[at])
    return getitem(value, tuple(cut))
