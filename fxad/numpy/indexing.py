"""x[...] with ints, slices, None, Ellipsis, int and bool arrays; x.at[...]; take and friends.

    x[1:3, None, idx]          x.at[idx].add(1.0)          take_along_axis(x, i, 1)

Python integers out of range raise IndexError. Index arrays never touch memory outside the array:
reads clamp (or fill, by mode), writes drop what is out of range.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import (
    BadArgument,
    ConcretizationError,
    IndexOutOfRange,
    ShapeError,
    TypeMismatch,
)
from fxad.core.promotion import is_python_scalar
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.numpy.core import (
    axis_index,
    cast,
    full_of,
    known_values,
    promoted,
    result_shape,
    spread_to,
    value_of,
)
from fxad.numpy.elementwise import where
from fxad.numpy.shaping import moveaxis, reshape
from fxad.trace.array import Array, Concrete
from fxad.trace.tracer import Tracer, type_of


class _Plan(NamedTuple):
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


def _plan(type_: ArrayType, index: Any) -> _Plan:
    items = _expanded(type_, index if isinstance(index, tuple) else (index,))
    plan = _Plan([0] * type_.ndim, list(type_.shape), [1] * type_.ndim, [], {}, (), [])
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
        elif _is_int(item):
            number = _checked(int(item), size, axis, type_)
            plan.starts[axis], plan.stops[axis] = number, number + 1
            layout.append(("drop", axis))
        else:
            plan.arrays[axis] = _index_array(item, size)
            places.append(len(layout))
            layout.append(("array", axis))
        axis += 1
    return _arranged(plan, layout, places, type_)


def _arranged(plan: _Plan, layout: list, places: list[int], type_: ArrayType) -> _Plan:
    """NumPy's rule: index axes stand where the index arrays stood if those were adjacent, else
    first. Integers beside arrays count as arrays."""
    if not places:
        return plan._replace(layout=[e for e in layout if e[0] not in ("drop", "gap")])
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
    return plan._replace(index_shape=shape, layout=kept)


def _expanded(type_: ArrayType, items: tuple) -> list[Any]:
    """Ellipsis and missing axes written out; boolean masks turned into positions."""
    flat: list[Any] = []
    for item in items:
        if isinstance(item, bool | np.bool_):
            item = np.asarray(item)
        if _is_mask(item):
            flat += _mask_positions(item)
        else:
            flat.append(np.asarray(item) if isinstance(item, list) else item)
    used = sum(1 for i in flat if i is not None and i is not Ellipsis)
    dots = sum(1 for i in flat if i is Ellipsis)
    if dots > 1:
        raise IndexOutOfRange("an index can only have one Ellipsis (...)")
    if used > type_.ndim:
        raise IndexOutOfRange(
            f"too many indices: {used} for an array {type_} with {type_.ndim} axes"
        )
    fill: list[Any] = [slice(None)] * (type_.ndim - used)
    if not dots:
        flat.append(Ellipsis)
    elif not fill:
        fill = [_GAP]
    at = next(i for i, item in enumerate(flat) if item is Ellipsis)
    return [*flat[:at], *fill, *flat[at + 1 :]]


def _is_mask(item: Any) -> bool:
    if isinstance(item, list):
        return bool(item) and np.asarray(item).dtype == np.bool_
    return isinstance(item, Array | np.ndarray) and item.dtype == np.bool_


def _mask_positions(mask: Any) -> list[Any]:
    found = known_values(
        mask,
        "indexing with a boolean mask",
        "use fxad.numpy.where(mask, x, fill) and reductions with where=",
    )
    if found.ndim == 0:
        return [None, np.zeros(int(found), np.int32)]
    return [positions.astype(np.int32) for positions in np.nonzero(found)]


def _is_int(item: Any) -> bool:
    if isinstance(item, Tracer):
        return False
    if isinstance(item, int | np.integer):
        return True
    return isinstance(item, Concrete | np.ndarray) and item.ndim == 0 and item.dtype.kind in "iu"


def _checked(number: int, size: int, axis: int, type_: ArrayType) -> int:
    if not -size <= number < size:
        raise IndexOutOfRange(
            f"index {number} is out of range for axis {axis} of {type_} with length {size}"
        )
    return number % size


def _slice_axis(plan: _Plan, axis: int, item: slice, size: int) -> None:
    for bound in (item.start, item.stop, item.step):
        if isinstance(bound, Tracer):
            raise ConcretizationError(
                "slice bounds are traced, so the result's shape would depend on values; use "
                "fxad.lax.dynamic_slice, whose size is fixed"
            )
    start, stop, step = item.indices(size)
    count = len(range(start, stop, step))
    if step < 0:
        last = start + (count - 1) * step
        start, step = last, -step
        plan.reversed_axes.append(axis)
    plan.starts[axis] = start if count else 0
    plan.stops[axis] = start + (count - 1) * step + 1 if count else 0
    plan.steps[axis] = step


def _index_array(item: Any, size: int) -> Any:
    if is_python_scalar(item):
        raise TypeMismatch(f"an index must be an integer, not {item!r}")
    value = value_of(item, "index")
    if not dt.is_integer(value.dtype):
        raise TypeMismatch(f"an index array must hold integers or bools, not {value.type}")
    if dt.is_signed(value.dtype):
        if value.dtype.itemsize < 4:
            value = cast(value, dt.int32)
        wrapped = OPS["add"](value, size) if size <= np.iinfo(value.dtype).max else value
        value = OPS["select"](OPS["lt"](value, 0), wrapped, value)
    return value


def _basic(value: Any, plan: _Plan) -> Any:
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


def getitem(x: Any, index: Any, mode: str = "clamp", fill: Any = None) -> Array:
    """x[index]."""
    value = value_of(x)
    plan = _plan(value.type, index)
    cut = _basic(value, plan)
    if not plan.arrays:
        shape = tuple(type_of(cut).shape[a] if kind == "slice" else 1 for kind, a in plan.layout)
        return cut if shape == type_of(cut).shape else OPS["reshape"](cut, shape=shape)
    axes = tuple(sorted(plan.arrays))
    indices = [spread_to(plan.arrays[a], plan.index_shape) for a in axes]
    gathered = OPS["gather"](cut, *indices, axes=axes, batch=0, mode=mode, fill=fill, unique=False)
    return _to_layout(gathered, plan, axes, value.ndim)


def _window_axes(plan: _Plan, axes: tuple[int, ...], ndim: int) -> list[int]:
    return [a for a in range(ndim) if a not in axes]


def _to_layout(gathered: Any, plan: _Plan, axes: tuple[int, ...], ndim: int) -> Array:
    """From (index axes, window axes) to the order NumPy gives."""
    window = _window_axes(plan, axes, ndim)
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


class At:
    """x.at: choose places with an index, then say what to do there."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> Place:
        return Place(self.array, index)


class Place:
    """x.at[index]: functional updates. Every method returns a new array."""

    __slots__ = ("array", "index")

    def __init__(self, array: Array, index: Any) -> None:
        self.array = array
        self.index = index

    def get(self, mode: str | None = None, fill_value: Any = None, **hints: Any) -> Array:
        """The elements there; mode "fill" gives fill_value (NaN) out of range, "clip" clamps."""
        return getitem(self.array, self.index, "fill" if mode == "fill" else "clamp", fill_value)

    def set(self, values: Any, **hints: Any) -> Array:
        """With `values` there."""
        return setitem(self.array, self.index, values, "set", **hints)

    def add(self, values: Any, **hints: Any) -> Array:
        """With `values` added there; repeated indices add up."""
        return setitem(self.array, self.index, values, "add", **hints)

    def subtract(self, values: Any, **hints: Any) -> Array:
        """With `values` subtracted there."""
        return setitem(self.array, self.index, OPS["neg"](value_of(values)), "add", **hints)

    def multiply(self, values: Any, **hints: Any) -> Array:
        """With elements there multiplied by `values`."""
        return setitem(self.array, self.index, values, "mul", **hints)

    mul = multiply

    def divide(self, values: Any, **hints: Any) -> Array:
        """With elements there divided by `values`."""
        type_ = self.array.type
        ones = setitem(full_of(1, type_), self.index, values, "mul", **hints)
        return OPS["div"](self.array, ones)

    def power(self, values: Any, **hints: Any) -> Array:
        """With elements there raised to `values`."""
        return self.apply(lambda x: x**values)

    def min(self, values: Any, **hints: Any) -> Array:
        """With the smaller of element and value there."""
        return setitem(self.array, self.index, values, "min", **hints)

    def max(self, values: Any, **hints: Any) -> Array:
        """With the larger of element and value there."""
        return setitem(self.array, self.index, values, "max", **hints)

    def apply(self, function: Any, **hints: Any) -> Array:
        """With function(elements) there."""
        return self.set(function(self.get()), **hints)


def setitem(
    x: Any,
    index: Any,
    values: Any,
    monoid: str,
    unique_indices: bool = False,
    mode: str | None = None,
    **hints: Any,
) -> Array:
    """x with `values` combined in at x[index]; values broadcast to the place's shape."""
    value = value_of(x)
    update = _update_for(values, value.dtype)
    if isinstance(index, Tracer) and index.dtype == np.bool_:
        return _set_where(value, index, update, monoid)
    plan = _plan(value.type, index)
    if not plan.arrays:
        return _set_basic(value, plan, update, monoid)
    axes = tuple(sorted(plan.arrays))
    full = _positions_for_slices(value.type, plan, axes)
    target = _layout_shape(value.type, plan)
    if result_shape("at[...]", [update.shape, target]) != target:
        raise ShapeError(f"at[...]: values {update.type} do not broadcast to shape {target}")
    update = _from_layout(spread_to(update, target), plan, axes, value.ndim, value.type)
    if not full:
        indices = [spread_to(plan.arrays[a], plan.index_shape) for a in axes]
        return _scatter(value, update, indices, axes, monoid, unique_indices, mode)
    return _scatter_general(value, plan, update, axes, full, monoid, unique_indices, mode)


_COMBINE = {
    "set": lambda old, new: new,
    "add": OPS["add"],
    "mul": OPS["mul"],
    "min": OPS["min"],
    "max": OPS["max"],
}


def _set_where(value: Array, mask: Array, update: Array, monoid: str) -> Array:
    """x.at[mask] with a traced mask: no shape depends on it if the update is the same for every
    place. Raises ConcretizationError for updates with one row per place."""
    lead = mask.ndim
    if mask.shape != value.shape[:lead]:
        raise ShapeError(f"at[...]: the mask {mask.type} does not fit {value.type}")
    if update.ndim > value.ndim - lead:
        known_values(mask, "at[...] with a boolean mask", "give one update for all places")
    flags = OPS["broadcast"](mask, shape=value.shape, axes=tuple(range(lead)))
    return OPS["select"](flags, _COMBINE[monoid](value, spread_to(update, value.shape)), value)


def _scatter(value, update, indices, axes, monoid, unique, mode) -> Array:
    return OPS["scatter"](
        value,
        update,
        *indices,
        axes=axes,
        batch=0,
        monoid=monoid,
        unique=bool(unique),
        mode="clamp" if mode in ("clip", "clamp") else "drop",
    )


def _update_for(values: Any, dtype: np.dtype) -> Array:
    if is_python_scalar(values):
        return full_of(values, ArrayType(dtype, ()))
    return cast(value_of(values, "at[...]"), dtype)


def _layout_shape(type_: ArrayType, plan: _Plan) -> tuple[int, ...]:
    sizes = []
    for kind, number in plan.layout:
        if kind == "new":
            sizes.append(1)
        elif kind == "index":
            sizes.append(plan.index_shape[number])
        else:
            sizes.append(_length(plan, number))
    return tuple(sizes)


def _length(plan: _Plan, axis: int) -> int:
    return len(range(plan.starts[axis], plan.stops[axis], plan.steps[axis]))


def _set_basic(value: Array, plan: _Plan, update: Array, monoid: str) -> Array:
    """A block written with pad and select: no gather is needed for basic slices."""
    target = _layout_shape(value.type, plan)
    if result_shape("at[...]", [update.shape, target]) != target:
        raise ShapeError(f"at[...]: values {update.type} do not broadcast to shape {target}")
    block_shape = tuple(_length(plan, a) for a in range(value.ndim))
    update = OPS["reshape"](spread_to(update, target), shape=block_shape)
    if plan.reversed_axes:
        update = OPS["reverse"](update, axes=tuple(sorted(plan.reversed_axes)))
    if all(s == 1 for s in plan.steps) and monoid == "set" and 0 not in block_shape:
        starts = [Concrete(np.asarray(s, np.int32)) for s in plan.starts]
        return OPS["dynamic_update"](value, update, *starts)
    if 0 in block_shape:
        return value
    interior = tuple(s - 1 for s in plan.steps)
    high = tuple(
        size - start - (count - 1) * step - 1
        for size, start, count, step in zip(
            value.shape, plan.starts, block_shape, plan.steps, strict=True
        )
    )
    zero = full_of(0, ArrayType(value.dtype, ()))
    spread = OPS["pad"](update, zero, low=tuple(plan.starts), high=high, interior=interior)
    if monoid == "add":
        return OPS["add"](value, spread) if value.dtype != dt.bool_ else OPS["or"](value, spread)
    marks = full_of(True, ArrayType(dt.bool_, block_shape))
    off = full_of(False, ArrayType(dt.bool_, ()))
    mask = OPS["pad"](marks, off, low=tuple(plan.starts), high=high, interior=interior)
    new = spread if monoid == "set" else OPS[monoid](value, spread)
    return OPS["select"](mask, new, value)


def _positions_for_slices(type_: ArrayType, plan: _Plan, axes: tuple[int, ...]) -> list[int]:
    """Axes that are sliced (not whole) and so need positions beside the index arrays."""
    return [
        a
        for a in range(type_.ndim)
        if a not in axes
        and (
            plan.starts[a]
            or plan.steps[a] != 1
            or plan.stops[a] != type_.shape[a]
            or a in plan.reversed_axes
        )
    ]


def _from_layout(update: Any, plan: _Plan, axes: tuple[int, ...], ndim: int, type_: ArrayType):
    """From NumPy's order to (index axes, window axes)."""
    shape = [s for s, (kind, _) in zip(update.shape, plan.layout, strict=True) if kind != "new"]
    kinds = [entry for entry in plan.layout if entry[0] != "new"]
    update = OPS["reshape"](update, shape=tuple(shape))
    window = _window_axes(plan, axes, ndim)
    order = [kinds.index(("index", i)) for i in range(len(plan.index_shape))]
    order += [kinds.index(("slice", a)) for a in window if ("slice", a) in kinds]
    update = OPS["transpose"](update, permutation=tuple(order))
    sizes = [*plan.index_shape, *(_length(plan, a) for a in window)]
    return OPS["reshape"](update, shape=tuple(sizes))


def _scatter_general(value, plan, update, axes, sliced, monoid, unique, mode) -> Array:
    """Index arrays beside partial slices: the slices become index arrays too."""
    window = _window_axes(plan, axes, value.ndim)
    rank = len(plan.index_shape)
    keep = [a for a in window if a not in sliced]
    order = [*range(rank), *(rank + window.index(a) for a in [*sliced, *keep])]
    update = OPS["transpose"](update, permutation=tuple(order))
    shape = (*plan.index_shape, *(_length(plan, a) for a in sliced))
    indices = {}
    for a in axes:
        own = spread_to(plan.arrays[a], plan.index_shape)
        indices[a] = OPS["broadcast"](own, shape=shape, axes=tuple(range(rank)))
    for number, a in enumerate(sliced):
        positions = np.arange(plan.starts[a], plan.stops[a], plan.steps[a], dtype=np.int32)
        if a in plan.reversed_axes:
            positions = positions[::-1].copy()
        indices[a] = OPS["broadcast"](Concrete(positions), shape=shape, axes=(rank + number,))
    every = tuple(sorted(indices))
    same = _common_dtype([indices[a] for a in every])
    return _scatter(value, update, same, every, monoid, unique, mode)


def _common_dtype(indices: list[Any]) -> list[Any]:
    wide = max((type_of(i).dtype for i in indices), key=lambda d: d.itemsize)
    return [cast(i, wide) for i in indices]


# ---------------------------------------------------------------- functions


def take(
    a: Any, indices: Any, axis: int | None = None, mode: str | None = None, fill_value: Any = None
) -> Array:
    """Elements at positions along an axis; mode "fill", "clip" or "wrap"."""
    value = value_of(a)
    if axis is None:
        value, axis = reshape(value, (-1,)), 0
    at = axis_index(axis, value.ndim, "take")
    index = value_of(indices, "take")
    if mode == "wrap":
        index = index % value.shape[at]
    item = index if index.ndim or isinstance(index, Tracer) else np.asarray(index)
    if isinstance(item, np.ndarray):
        item = Concrete(item.reshape(1))
        out = getitem(
            value, (slice(None),) * at + (item,), "fill" if mode == "fill" else "clamp", fill_value
        )
        return reshape(out, value.shape[:at] + value.shape[at + 1 :])
    return getitem(
        value, (slice(None),) * at + (item,), "fill" if mode == "fill" else "clamp", fill_value
    )


def take_along_axis(
    arr: Any, indices: Any, axis: int | None = -1, mode: str | None = None, fill_value: Any = None
) -> Array:
    """For every position along the other axes, elements at its own indices along `axis`."""
    value, index = value_of(arr), value_of(indices, "take_along_axis")
    if axis is None:
        value, axis = reshape(value, (-1,)), 0
    at = axis_index(axis, value.ndim, "take_along_axis")
    if index.ndim != value.ndim:
        raise ShapeError(f"take_along_axis: indices {index.type} need as many axes as {value.type}")
    value, index = moveaxis(value, at, -1), moveaxis(index, at, -1)
    lead = result_shape("take_along_axis", [value.shape[:-1], index.shape[:-1]])
    value = spread_to(value, (*lead, value.shape[-1]))
    index = spread_to(_index_array(index, value.shape[-1]), (*lead, index.shape[-1]))
    out = OPS["gather"](
        value,
        index,
        axes=(len(lead),),
        batch=len(lead),
        mode="fill" if mode == "fill" else "clamp",
        fill=fill_value,
        unique=False,
    )
    return moveaxis(out, -1, at)


def put_along_axis(arr: Any, indices: Any, values: Any, axis: int, inplace: bool = True) -> Array:
    """arr with `values` at each lane's own indices; returns the new array."""
    value, index = value_of(arr), value_of(indices, "put_along_axis")
    at = axis_index(axis, value.ndim, "put_along_axis")
    update = spread_to(_update_for(values, value.dtype), index.shape)
    value, index, update = (moveaxis(v, at, -1) for v in (value, index, update))
    lead = value.ndim - 1
    out = OPS["scatter"](
        value,
        update,
        _index_array(index, value.shape[-1]),
        axes=(lead,),
        batch=lead,
        monoid="set",
        unique=False,
        mode="drop",
    )
    return moveaxis(out, -1, at)


def compress(condition: Any, a: Any, axis: int | None = None) -> Array:
    """Elements where a concrete condition holds."""
    value = value_of(a)
    if axis is None:
        value, axis = reshape(value, (-1,)), 0
    kept = np.nonzero(np.asarray(condition))[0].astype(np.int32)
    return getitem(value, (slice(None),) * axis_index(axis, value.ndim, "compress") + (kept,))


extract = compress


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = 0) -> tuple[Array, ...]:
    """Positions of non-zero elements; traced input needs a fixed `size`."""
    value = value_of(a)
    if size is None:
        return where(value)
    flat = reshape(value, (-1,)) != 0
    order = OPS["cumsum"](cast(flat, dt.int32), axis=0, reverse=False) - 1
    slots = where(flat, order, size)
    numbers = OPS["iota"](dtype=dt.int32, shape=flat.shape, axis=0)
    count = flat.size
    found = setitem(full_of(count, ArrayType(dt.int32, (size,))), slots, numbers, "set")
    out = []
    for axis in range(value.ndim):
        stride = math.prod(value.shape[axis + 1 :])
        place = (found // stride) % value.shape[axis]
        out.append(where(found == count, fill_value, place))
    return tuple(out)


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = 0) -> Array:
    """Positions of non-zero elements as rows."""
    columns = nonzero(a, size=size, fill_value=fill_value)
    return OPS["concatenate"](*[reshape(c, (-1, 1)) for c in columns], axis=1)


def select(condlist: Any, choicelist: Any, default: Any = 0) -> Array:
    """For each element the first choice whose condition holds."""
    if len(condlist) != len(choicelist):
        raise BadArgument(f"select: {len(condlist)} conditions for {len(choicelist)} choices")
    values = promoted("select", *choicelist, default, numbers=False)
    out = values[-1]
    for condition, choice in zip(reversed(condlist), reversed(values[:-1]), strict=True):
        out = where(condition, choice, out)
    return out


def choose(a: Any, choices: Any) -> Array:
    """choices[a] element by element."""
    index = value_of(a)
    rows = promoted("choose", *choices, numbers=False)
    shape = result_shape("choose", [index.shape, type_of(rows[0]).shape])
    out = spread_to(rows[-1], shape)
    for number in reversed(range(len(rows) - 1)):
        out = where(spread_to(index, shape) <= number, spread_to(rows[number], shape), out)
    return out


def unravel_index(indices: Any, shape: tuple[int, ...]) -> tuple[Array, ...]:
    """Positions along each axis of flat positions."""
    index, out = value_of(indices), []
    for size in reversed(shape):
        out.append(index % size)
        index = index // size
    return tuple(reversed(out))


def ravel_multi_index(multi_index: Any, dims: tuple[int, ...]) -> Array:
    """Flat positions of positions along each axis."""
    out: Any = 0
    for index, size in zip(multi_index, dims, strict=True):
        out = out * size + value_of(index)
    return out
