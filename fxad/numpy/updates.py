"""x.at[...]: changed copies of an array. Writes drop what is out of range.

x.at[idx].add(1.0)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError
from fxad.core.promotion import is_python_scalar
from fxad.core.quiet import restore, silence
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.ir.rewrite import literal
from fxad.numpy.core import asarray, cast, full_of, known_values, result_shape, spread_to, value_of
from fxad.numpy.division import power
from fxad.numpy.dynamic_slices import Window, without_slice
from fxad.numpy.elementwise import divide
from fxad.numpy.indexing import (
    READS,
    WRITES,
    Plan,
    axis_of,
    chosen_mode,
    getitem,
    masks_as_axes,
    plain_items,
    planned,
    window_axes,
)
from fxad.numpy.weak import finish
from fxad.ops.arrays.indexing import AT
from fxad.trace import tracer
from fxad.trace.array import Array, Concrete, as_numpy
from fxad.trace.tracer import Tracer, stage, staging, type_of

__all__ = ["At", "applied", "setitem", "update_for"]


def may_repeat(index: Any) -> bool:
    """Whether an index may name a place twice: it holds integers in an array that has axes."""
    items = index if isinstance(index, tuple) else (index,)
    return any(
        isinstance(i, list | tuple)
        or (isinstance(i, Array | np.ndarray) and i.ndim > 0 and i.dtype != np.bool_)
        for i in items
    )


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

    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | None = None,
        fill_value: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """The elements there. Out of range, mode "fill" gives fill_value (None: NaN, or the
        lowest integer) and "clip" the nearest element. `wrap_negative_indices=False` takes
        indices below zero as out of range."""
        how = chosen_mode(READS, mode, "at[...].get")
        strict, wrap = mode is None, wrap_negative_indices
        return getitem(self.array, self.index, how, fill_value, strict, wrap)

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
        """With elements there divided by `values`; integers give floats, as in `divide`."""
        type_ = self.array.type
        ones = setitem(full_of(1, type_), self.index, values, "mul", **hints)
        return divide(self.array, ones)

    def power(self, values: Any, **hints: Any) -> Array:
        """With elements there raised to `values`; exponents of repeated indices multiply."""
        type_ = self.array.type
        exponents = setitem(full_of(1, type_), self.index, values, "mul", **hints)
        return power(self.array, exponents)

    def min(self, values: Any, **hints: Any) -> Array:
        """With the smaller of element and value there."""
        return setitem(self.array, self.index, values, "min", **hints)

    def max(self, values: Any, **hints: Any) -> Array:
        """With the larger of element and value there."""
        return setitem(self.array, self.index, values, "max", **hints)

    def apply(self, function: Any, **hints: Any) -> Array:
        """With function(elements) there, applied again for every time an index is repeated."""
        own = {k: v for k, v in hints.items() if k in ("mode", "wrap_negative_indices")}
        found = self.get(**own)
        if hints.get("unique_indices") or not may_repeat(self.index):
            return self.set(function(found), **hints)
        none = full_of(0, self.array.type.with_dtype(dt.int32))
        counts = Place(setitem(none, self.index, 1, "add", **hints), self.index).get(**own)
        return self.set(applied(function, found, counts), **hints)


def setitem(
    x: Any,
    index: Any,
    values: Any,
    monoid: str,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | None = None,
    wrap_negative_indices: bool = True,
) -> Array:
    """x with `values` combined in at x[index]; values broadcast to the place's shape.

    What is out of range is dropped, or with mode "clip" goes to the nearest place. Without a
    mode, a Python integer out of range is an IndexError. `wrap_negative_indices=False` takes
    indices below zero as out of range.
    """
    value = value_of(x)
    how = chosen_mode(WRITES, mode, "at[...]")
    at_once = wrap_negative_indices and not staging() and tracer.ordinary
    if at_once and type(value) is Concrete:
        found = _in_memory(value, index, values, monoid)
        if found is not None:
            return found
    update = update_for(values, value.dtype)
    hints: dict[str, Any] = {
        "unique_indices": unique_indices,
        "mode": mode,
        "wrap_negative_indices": wrap_negative_indices,
    }
    if value.dtype == dt.bool_ and monoid != "set":  # or, and: the larger, the smaller byte
        bytes_, with_ = (cast(v, dt.uint8) for v in (value, update))
        monoid = "max" if monoid in ("add", "max") else "min"
        return OPS["ne"](setitem(bytes_, index, with_, monoid, **hints), 0)
    if isinstance(index, Tracer) and index.dtype == np.bool_:
        return _set_where(value, index, update, monoid)
    whole = value.shape
    value, index = masks_as_axes(value, index)
    if value.shape != whole:
        changed = setitem(value, index, values, monoid, **hints)
        return OPS["reshape"](changed, shape=whole)
    if (sliced := without_slice(index)) is not None:
        at, item, rest = sliced
        axis = axis_of(rest, at, value.ndim)
        window = Window(value, axis, item, mode is None, wrap_negative_indices)
        return window.replaced(setitem(window.read("clamp"), rest, values, monoid, **hints), how)
    plan = planned(value.type, index, mode is None, wrap_negative_indices)
    if not plan.arrays:
        return finish(_set_basic(value, plan, update, monoid), value.weak)
    return finish(_set_planned(value, plan, update, monoid, unique_indices, how), value.weak)


def _set_planned(
    value: Any, plan: Any, update: Any, monoid: str, unique_indices: bool, how: Any
) -> Array:
    """Updates of places that arrays of indices name."""
    axes = tuple(sorted(plan.arrays))
    full = _positions_for_slices(value.type, plan, axes)
    target = _layout_shape(value.type, plan)
    if result_shape("at[...]", [update.shape, target]) != target:
        raise ShapeError(f"at[...]: values {update.type} do not broadcast to shape {target}")
    update = _from_layout(spread_to(update, target), plan, axes, value.ndim, value.type)
    if not full:
        indices = [spread_to(plan.arrays[a], plan.index_shape) for a in axes]
        return _scatter(value, update, indices, axes, monoid, unique_indices, how)
    return _scatter_general(value, plan, update, axes, full, monoid, unique_indices, how)


def _in_memory(x: Concrete, index: Any, values: Any, monoid: str) -> Array | None:
    """The same by NumPy in a copy, many times cheaper than by ops, where the index is known and in
    range. None elsewhere."""
    items, dtype = plain_items(index), x.dtype
    if items is None or (
        monoid != "set" and (dtype == dt.bool_ or np.ndarray not in map(type, items))
    ):
        return None  # what is combined with a block is combined with zeros elsewhere
    if dtype.kind == "c" and monoid in ("min", "max"):
        return None  # an error, which `scatter` raises
    result = np.array(x.data, order="C")
    before = silence()
    try:
        if is_python_scalar(values):
            new = np.asarray(literal(values, dtype).value, dtype)
        elif type(values) is Concrete:
            new = as_numpy(cast(values, dtype))
        else:
            return None
        place = result[items].shape if new.ndim else ()
        if new.ndim > len(place):  # NumPy would drop axes of length 1
            return None
        if monoid == "set":
            result[items] = new
        else:  # of the place's shape: `at` reads beyond the end of fewer values
            AT[monoid].at(result, items, np.broadcast_to(new, place).copy() if new.ndim else new)
    except (IndexError, ValueError, TypeError, OverflowError):  # said better by what follows
        return None
    finally:
        restore(before)
    return Concrete(result, x.weak)


_COMBINE: dict[str, Callable[..., Any]] = {
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
        mode=mode,
    )


def update_for(values: Any, dtype: np.dtype) -> Array:
    if is_python_scalar(values):
        return full_of(values, ArrayType(dtype, ()))
    return cast(value_of(values, "at[...]"), dtype)


def _layout_shape(type_: ArrayType, plan: Plan) -> tuple[int, ...]:
    sizes = []
    for kind, number in plan.layout:
        if kind == "new":
            sizes.append(1)
        elif kind == "index":
            sizes.append(plan.index_shape[number])
        else:
            sizes.append(_length(plan, number))
    return tuple(sizes)


def _length(plan: Plan, axis: int) -> int:
    return len(range(plan.starts[axis], plan.stops[axis], plan.steps[axis]))


def _set_basic(value: Array, plan: Plan, update: Array, monoid: str) -> Array:
    """A block written with pad and select: no gather is needed for basic slices.

    A contiguous one is an op of its own, which changes it in place; but as a choice at every
    element if it is most of the array, which fuses with what gives its elements: an array that
    those are read from would be copied first.
    """
    target = _layout_shape(value.type, plan)
    if result_shape("at[...]", [update.shape, target]) != target:
        raise ShapeError(f"at[...]: values {update.type} do not broadcast to shape {target}")
    block_shape = tuple(_length(plan, a) for a in range(value.ndim))
    update = OPS["reshape"](spread_to(update, target), shape=block_shape)
    if plan.reversed_axes:
        update = OPS["reverse"](update, axes=tuple(sorted(plan.reversed_axes)))
    most = value.size > update.size > value.size // 2
    if monoid == "set" and all(s == 1 for s in plan.steps) and 0 not in block_shape and not most:
        starts = [Concrete(np.asarray(s, dt.index_dtype(s))) for s in plan.starts]
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
    # x + -0.0 is x, also where x is -0.0.
    nothing = complex(-0.0, -0.0) if dt.is_complex(value.dtype) else -0.0
    zero = full_of(nothing if dt.is_inexact(value.dtype) else 0, ArrayType(value.dtype, ()))
    spread = OPS["pad"](update, zero, low=tuple(plan.starts), high=high, interior=interior)
    if monoid == "add":
        return OPS["add"](value, spread)
    marks = full_of(True, ArrayType(dt.bool_, block_shape))
    off = full_of(False, ArrayType(dt.bool_, ()))
    mask = OPS["pad"](marks, off, low=tuple(plan.starts), high=high, interior=interior)
    new = spread if monoid == "set" else OPS[monoid](value, spread)
    return OPS["select"](mask, new, value)


def _positions_for_slices(type_: ArrayType, plan: Plan, axes: tuple[int, ...]) -> list[int]:
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


def _from_layout(update: Any, plan: Plan, axes: tuple[int, ...], ndim: int, type_: ArrayType):
    """From NumPy's order to (index axes, window axes)."""
    shape = [s for s, (kind, _) in zip(update.shape, plan.layout, strict=True) if kind != "new"]
    kinds = [entry for entry in plan.layout if entry[0] != "new"]
    update = OPS["reshape"](update, shape=tuple(shape))
    window = window_axes(plan, axes, ndim)
    order = [kinds.index(("index", i)) for i in range(len(plan.index_shape))]
    order += [kinds.index(("slice", a)) for a in window if ("slice", a) in kinds]
    update = OPS["transpose"](update, permutation=tuple(order))
    sizes = [*plan.index_shape, *(_length(plan, a) for a in window)]
    return OPS["reshape"](update, shape=tuple(sizes))


def _scatter_general(value, plan, update, axes, sliced, monoid, unique, mode) -> Array:
    """Index arrays beside partial slices: the slices become index arrays too."""
    window = window_axes(plan, axes, value.ndim)
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
        dtype = dt.index_dtype(plan.stops[a])
        positions = np.arange(plan.starts[a], plan.stops[a], plan.steps[a], dtype=dtype)
        if a in plan.reversed_axes:
            positions = positions[::-1].copy()
        indices[a] = OPS["broadcast"](Concrete(positions), shape=shape, axes=(rank + number,))
    every = tuple(sorted(indices))
    same = _common_dtype([indices[a] for a in every])
    return _scatter(value, update, same, every, monoid, unique, mode)


def _common_dtype(indices: list[Any]) -> list[Any]:
    wide = max((type_of(i).dtype for i in indices), key=lambda d: d.itemsize)
    return [cast(i, wide) for i in indices]


def applied(function: Callable[[Any], Any], value: Array, counts: Array) -> Array:
    """`value` after as many applications as `counts`, integers of its shape, hold.

    The dtype stays. Known counts make a Python loop, traced ones a while loop.
    """
    if not value.size:
        return value
    most = OPS["max_reduce"](counts, axes=tuple(range(counts.ndim))) if counts.ndim else counts

    def step(number: Any, done: Any, current: Any) -> Any:
        new = cast(asarray(function(current)), value.dtype)
        return OPS["select"](OPS["lt"](done, number), new, current)

    if isinstance(most, Concrete):
        for done in range(int(most.data)):
            value = step(counts, done, value)
        return value

    def test(limit: Any, done: Any, current: Any) -> list[Any]:
        return [OPS["lt"](done, limit)]

    def body(number: Any, done: Any, current: Any) -> list[Any]:
        return [OPS["add"](done, 1), step(number, _spread(done, number), current)]

    start = Concrete(np.zeros((), type_of(counts).dtype))
    state = [type_of(start), type_of(value)]
    cond, _ = stage(test, [type_of(most), *state], "applications_left")
    program, captured = stage(body, [type_of(counts), *state], "apply")
    results = OPS["while"](
        most,
        *captured,
        counts,
        start,
        value,
        cond=cond.closed(),
        body=program.closed(),
        cond_consts=1,
        body_consts=len(captured) + 1,
    )
    return results[1]


def _spread(done: Any, like: Any) -> Any:
    return OPS["broadcast"](done, shape=type_of(like).shape, axes=())
