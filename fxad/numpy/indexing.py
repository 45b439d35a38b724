"""x[...] with ints, slices, None, Ellipsis, int and bool arrays: how an index is taken apart.

    x[1:3, None, idx]

Python integers out of range raise IndexError. Index arrays never touch memory outside the array:
reads clamp (or fill, by mode). Writes are in `fxad.numpy.updates`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxad.api.indices import check_indices, reaching
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import (
    BadArgument,
    IndexOutOfRange,
    TracedIndexError,
    TypeMismatch,
)
from fxad.core.promotion import is_python_scalar
from fxad.core.record import replace, valued
from fxad.core.semantics import semantics
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.numpy.core import (
    asarray,
    index_value,
    known_values,
    result_shape,
    spread_to,
    value_of,
)
from fxad.numpy.dynamic_slices import Window, without_slice
from fxad.trace.array import Array, Concrete, as_numpy
from fxad.trace.tracer import Tracer, staging, type_of

__all__ = [
    "READS",
    "WRITES",
    "Plan",
    "axis_of",
    "chosen_mode",
    "getitem",
    "index_array",
    "masks_as_axes",
    "plain_items",
    "planned",
    "window_axes",
]  # fmt: skip


@valued
class Plan:
    """An index taken apart: basic slices first, then one gather.

    starts, stops, steps: a slice per axis of x (negative steps through `reversed_axes`). arrays:
    {axis of x: index array}, of common shape `index_shape`. layout: for every axis of the result
    what it is: ("slice", axis), ("array", number of the index axis), or ("new", 0).
    """

    starts: list[int]
    stops: list[int]
    steps: list[int]
    reversed_axes: list[int]
    arrays: dict[int, Any]
    index_shape: tuple[int, ...]
    layout: list[tuple[str, int]]


_GAP = object()  # an Ellipsis for no axes: it still separates index arrays


def planned(type_: ArrayType, index: Any, strict: bool = True, wrap: bool = True) -> Plan:
    """The plan of an index. Python integers out of range are an error, or where not `strict`
    index arrays, which then obey the mode of the gather or scatter. Without `wrap`, integers
    below zero are out of range."""
    checked, strict = strict, strict and semantics.known_indices_are_checked
    items = _expanded(type_, index if isinstance(index, tuple) else (index,))
    plan = Plan([0] * type_.ndim, list(type_.shape), [1] * type_.ndim, [], {}, (), [])
    layout: list[tuple[str, int]] = []
    places: list[int] = []
    axis = 0
    for item in items:
        if item is None or item is _GAP:
            layout.append(("gap" if item is _GAP else "new", 0))
            continue
        size = type_.shape[axis]
        if isinstance(item, slice):
            _slice_axis(plan, axis, item, size)
            layout.append(("slice", axis))
        elif _is_int(item) and (strict or (-size if wrap else 0) <= int(item) < size):
            number = _checked(int(item), size, axis, type_, wrap)
            plan.starts[axis], plan.stops[axis] = number, number + 1
            layout.append(("drop", axis))
        else:
            position = np.asarray(item, dt.index_dtype(abs(int(item)))) if _is_int(item) else item
            if checked:
                check_indices("indexing", position, type_.shape, axis, wrap)
            plan.arrays[axis] = index_array(position, size, wrap)
            places.append(len(layout))
            layout.append(("array", axis))
        axis += 1
    return _arranged(plan, layout, places, type_)


def _arranged(plan: Plan, layout: list, places: list[int], type_: ArrayType) -> Plan:
    """NumPy's rule: index axes stand where the index arrays stood if those were adjacent, else
    first. Integers beside arrays count as arrays."""
    if not places:
        return replace(plan, layout=[e for e in layout if e[0] not in ("drop", "gap")])
    advanced = [i for i, (kind, _) in enumerate(layout) if kind in ("array", "drop")]
    together = advanced == list(range(advanced[0], advanced[-1] + 1))
    shapes = [type_of(a).shape for a in plan.arrays.values()]
    shape = result_shape("index arrays", shapes)
    entries = [("index", i) for i in range(len(shape))]
    kept: list[tuple[str, int]] = []
    for i, (kind, axis) in enumerate(layout):
        if i == (advanced[0] if together else 0):
            kept += entries
        if kind in ("slice", "new"):
            kept.append((kind, axis))
    return replace(plan, index_shape=shape, layout=kept)


def _expanded(type_: ArrayType, items: tuple) -> list[Any]:
    """Ellipsis and missing axes written out; boolean masks turned into positions."""
    flat: list[Any] = []
    for at, item in enumerate(items):
        if isinstance(item, bool | np.bool_):
            item = np.asarray(item)
        if _is_mask(item):
            _check_mask(item, type_, axis_of(items, at, type_.ndim))
            flat += _mask_positions(item)
        else:
            flat.append(item)
    used = sum(1 for i in flat if i is not None and i is not Ellipsis)
    dots = sum(1 for i in flat if i is Ellipsis)
    if dots > 1:
        raise IndexOutOfRange("an index can only have one Ellipsis (...)")
    if used > type_.ndim:
        raise IndexOutOfRange(
            f"Too many indices: array is {type_.ndim}-dimensional, but {used} were indexed; it is "
            f"{type_}"
        )
    fill: list[Any] = [slice(None)] * (type_.ndim - used)
    if not dots:
        flat.append(Ellipsis)
    elif not fill:
        fill = [_GAP]
    at = next(i for i, item in enumerate(flat) if item is Ellipsis)
    return [*flat[:at], *fill, *flat[at + 1 :]]


def axis_of(items: Sequence[Any], at: int, ndim: int) -> int:
    """The first axis that an index item stands for."""
    if any(item is Ellipsis for item in items[:at]):
        return ndim - _consumed(items[at:])
    return _consumed(items[:at])


def _consumed(items: Sequence[Any]) -> int:
    """Axes that index items stand for, without an Ellipsis."""
    given = [i for i in items if i is not None and i is not Ellipsis]
    return sum(np.ndim(i) if _is_mask(i) else 1 for i in given)


def _check_mask(mask: Any, type_: ArrayType, axis: int) -> None:
    """A mask has the shape of the axes it stands for (or no elements)."""
    shape, covered = np.shape(mask), type_.shape[axis:]
    if len(shape) <= len(covered) and any(
        m not in (size, 0) for m, size in zip(shape, covered, strict=False)
    ):
        raise IndexOutOfRange(
            f"boolean index did not match shape: a mask of shape {shape} stands for axes {axis} "
            f"and up of {type_}"
        )


def _is_mask(item: Any) -> bool:
    if isinstance(item, bool | np.bool_):
        return True
    return isinstance(item, Array | np.ndarray) and item.dtype == np.bool_


def _mask_positions(mask: Any) -> list[Any]:
    found = known_values(
        mask,
        "indexing with a boolean mask",
        "use fxad.numpy.where(mask, x, fill) and reductions with where=",
        TracedIndexError,
    )
    if found.ndim == 0:
        raise IndexOutOfRange("a 0-d boolean mask can only read: use fxad.numpy.where(mask, ...)")
    pairs = zip(np.nonzero(found), found.shape, strict=True)
    return [positions.astype(dt.index_dtype(size)) for positions, size in pairs]


def _is_int(item: Any) -> bool:
    if isinstance(item, Tracer):
        return False
    if isinstance(item, int | np.integer):
        return True
    return isinstance(item, Concrete | np.ndarray) and item.ndim == 0 and item.dtype.kind in "iu"


def _checked(number: int, size: int, axis: int, type_: ArrayType, wrap: bool) -> int:
    if not (-size if wrap else 0) <= number < size:
        raise IndexOutOfRange(
            f"index {number} out of bounds for axis {axis} with size {size} of the array {type_}"
        )
    return number % size


def _slice_axis(plan: Plan, axis: int, item: slice, size: int) -> None:
    for bound in (item.start, item.stop, item.step):
        if isinstance(bound, Tracer):
            made = TracedIndexError(
                "slice bounds are traced, so the result's shape would depend on values; use "
                "fxad.lax.dynamic_slice, whose size is fixed"
            )
            made.value = bound
            raise made
    start, stop, step = item.indices(size)
    count = len(range(start, stop, step))
    if step < 0:
        last = start + (count - 1) * step
        start, step = last, -step
        plan.reversed_axes.append(axis)
    plan.starts[axis] = start if count else 0
    plan.stops[axis] = start + (count - 1) * step + 1 if count else 0
    plan.steps[axis] = step


def index_array(item: Any, size: int, wrap: bool = True) -> Any:
    """An index as an array of integers; with `wrap`, those below zero count from the end."""
    if isinstance(item, str):
        raise TypeMismatch(f"arrays do not support string indexing; got {item!r}")
    value = index_value(item, "index")
    if is_python_scalar(item) or not dt.is_integer(value.dtype):
        seen = repr(item) if is_python_scalar(item) else str(value.type)
        raise TypeMismatch(
            f"Indexer must have integer or boolean type, got indexer with type {seen}; round it "
            "and convert it with .astype(int)"
        )
    if wrap and dt.is_signed(value.dtype):
        value = reaching(value, size)
        value = OPS["select"](OPS["lt"](value, 0), OPS["add"](value, size), value)
    return value


def _basic(value: Any, plan: Plan) -> Any:
    type_ = type_of(value)
    whole = (
        not any(plan.starts)
        and all(s == 1 for s in plan.steps)
        and tuple(plan.stops) == type_.shape
    )
    if not whole:
        value = OPS["slice"](
            value, start=tuple(plan.starts), stop=tuple(plan.stops), step=tuple(plan.steps)
        )
    if plan.reversed_axes:
        value = OPS["reverse"](value, axes=tuple(sorted(plan.reversed_axes)))
    return value


READS = {None: "clamp", "clip": "clamp", "promise_in_bounds": "clamp", "fill": "fill"}
READS |= {"clamp": "clamp", "drop": "fill"}
WRITES = {None: "drop", "drop": "drop", "promise_in_bounds": "drop", "fill": "drop"}
WRITES |= {"clip": "clamp", "clamp": "clamp"}
"""What a mode means for indices out of range: `clamp` takes the nearest place."""


def chosen_mode(known: dict[str | None, str], mode: str | None, what: str) -> str:
    """The mode of the op for a user's mode; BadArgument for one that is not known."""
    if mode not in known:
        names = "'clip', 'fill', 'drop' and 'promise_in_bounds'"
        raise BadArgument(f"{what}: unknown mode {mode!r}; known are {names}")
    return known[mode]


def getitem(
    x: Any,
    index: Any,
    mode: str = "clamp",
    fill: Any = None,
    strict: bool = True,
    wrap: bool = True,
) -> Array:
    """x[index]; Python integers out of range are an error where `strict`. `wrap`: see `planned`."""
    if wrap and type(x) is Concrete and (found := _from_memory(x, index)) is not None:
        return found
    value, index = masks_as_axes(value_of(x), index)
    if (sliced := without_slice(index)) is not None:
        at, item, rest = sliced
        window = Window(value, axis_of(rest, at, value.ndim), item, strict, wrap)
        return getitem(window.read(mode, fill), rest, mode, fill, strict, wrap)
    plan = planned(value.type, index, strict, wrap)
    cut = _basic(value, plan)
    if not plan.arrays:
        shape = tuple(type_of(cut).shape[a] if kind == "slice" else 1 for kind, a in plan.layout)
        return cut if shape == type_of(cut).shape else OPS["reshape"](cut, shape=shape)
    axes = tuple(sorted(plan.arrays))
    indices = [spread_to(plan.arrays[a], plan.index_shape) for a in axes]
    empty = [a for a in axes if not value.shape[a]]
    if empty and mode == "clamp" and type_of(indices[0]).size:
        raise IndexOutOfRange(
            f"index {type_of(indices[0])} out of bounds for axis {empty[0]} with size 0 of the "
            f"array {value.type}"
        )
    gathered = OPS["gather"](cut, *indices, axes=axes, batch=0, mode=mode, fill=fill, unique=False)
    return _to_layout(gathered, plan, axes, value.ndim)


_SINGLE = frozenset((int, type(None), type(Ellipsis)))
_ARRAYS = (Array, np.ndarray)


def _from_memory(x: Concrete, index: Any) -> Array | None:
    """x[index] as NumPy reads it, many times cheaper than by ops: for integers, slices, None,
    Ellipsis and index arrays that are known. None for others and those out of range.

    While a program is recorded only for integers: what others read may be large, and would be a
    constant of the program beside x."""
    items = plain_items(index)
    if items is None or (staging() and {type(i) for i in items} & {int, np.ndarray} != {int}):
        return None
    try:
        found = x._data[items]
    except (AttributeError, IndexError, ValueError):  # donated; out of range; an odd index
        return None
    return Concrete(found.copy() if type(found) is np.ndarray else np.array(found), x.weak)


def plain_items(index: Any) -> tuple[Any, ...] | None:
    """The parts of an index in a form that NumPy takes for what we do: integers, slices, None,
    Ellipsis and index arrays that are known. None if there are others."""
    items = index if type(index) is tuple else (index,)
    plain = []
    for item in items:
        kind = type(item)
        if kind is slice:
            for bound in (item.start, item.stop, item.step):
                if bound is not None and type(bound) is not int:
                    return None
        elif kind not in _SINGLE:
            item = _known(item) if isinstance(item, _ARRAYS) else item
            if type(item) is not int and type(item) is not np.ndarray:
                return None
        plain.append(item)
    return tuple(plain)


def _known(item: Any) -> Any:
    """The positions that an index array names, if they are known."""
    if not isinstance(item, Concrete | np.ndarray) or item.dtype.kind not in "iu":
        return item
    return as_numpy(item) if item.ndim else int(as_numpy(item))


def masks_as_axes(value: Array, index: Any) -> tuple[Array, Any]:
    """Sequences as arrays; and x[..., True] indexes a new axis of length 1 with as many zeros as
    the mask holds truths."""
    items = [_listed(i) for i in (index if isinstance(index, tuple) else (index,))]
    for at in range(len(items)):
        mask = items[at]
        if not _is_mask(mask) or np.ndim(mask):
            continue
        axis = axis_of(items, at, value.ndim)
        value = OPS["reshape"](value, shape=(*value.shape[:axis], 1, *value.shape[axis:]))
        what, hint = "indexing with a boolean mask", "use fxad.numpy.where"
        count = int(known_values(mask, what, hint, TracedIndexError))
        items[at] = np.zeros(count, np.int32)
    return value, tuple(items)


def _listed(item: Any) -> Any:
    """A list or tuple in an index as an array."""
    if not isinstance(item, list | tuple):
        return item
    if any(isinstance(leaf, Array) for leaf in pytree.leaves(item)):
        return asarray(item)
    try:
        found = np.asarray(item)
    except ValueError:  # ragged
        found = np.asarray(None)
    if found.dtype == object:
        raise TypeMismatch(
            "Using a non-tuple sequence for multidimensional indexing is not allowed; use "
            f"`arr[tuple(seq)]` instead of `arr[seq]`, or arr[array(seq)]; seq is {item!r}"
        )
    # Python's integers choose no width: int32 is enough unless one of them says otherwise.
    whole = found.size and found.dtype == np.int64
    fits = whole and found.min() >= -(2**31) and found.max() < 2**31
    return found.astype(np.int32) if fits or not found.size else found


def window_axes(plan: Plan, axes: tuple[int, ...], ndim: int) -> list[int]:
    return [a for a in range(ndim) if a not in axes]


def _to_layout(gathered: Any, plan: Plan, axes: tuple[int, ...], ndim: int) -> Array:
    """From (index axes, window axes) to the order NumPy gives."""
    window = window_axes(plan, axes, ndim)
    rank = len(plan.index_shape)
    order, shape = [], []
    for kind, number in plan.layout:
        if kind == "index":
            order.append(number)
        elif kind == "slice":
            order.append(rank + window.index(number))
    # Axes fixed by an integer have length 1 and are dropped by the final reshape.
    rest = [i for i in range(type_of(gathered).ndim) if i not in order]
    moved = OPS["transpose"](gathered, permutation=(*order, *rest))
    sizes = iter(type_of(moved).shape)
    for kind, _ in plan.layout:
        shape.append(1 if kind == "new" else next(sizes))
    return OPS["reshape"](moved, shape=tuple(shape))
