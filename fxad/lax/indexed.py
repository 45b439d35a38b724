"""gather and scatter with `jax.lax`'s dimension numbers, for code that spells them out.

rows = gather(x, i[:, None], GatherDimensionNumbers((1,), (0,), (0,)), slice_sizes=(1, 3))

New code is better off with x[i] and x.at[i]. For index vector n, a window of slice_sizes of the
operand starts at start_indices[n], whose last axis has one entry per axis in start_index_map.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxad.api.indices import check_indices, reaching
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.numpy.core import axis_index, cast, full_of, shape_tuple, value_of
from fxad.numpy.updates import applied, setitem
from fxad.trace.array import Array, Concrete
from fxad.trace.tracer import type_of


class GatherDimensionNumbers(NamedTuple):
    """offset_dims: axes of the result that run through a window. collapsed_slice_dims: axes of
    the operand left out of it (size 1). start_index_map: axes of the operand that entries of an
    index vector are for. The others pair batch axes of the operand and of the indices.

    >>> rows = fxad.lax.GatherDimensionNumbers(
    ...     (1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> fxad.lax.gather(jnp.eye(3), jnp.array([[1]]), rows, slice_sizes=(1, 3))  # row 1
    Array([[0., 1., 0.]], dtype=float32)
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """The same as GatherDimensionNumbers, under the names that writing has for them.

    >>> rows = fxad.lax.ScatterDimensionNumbers((1,), (0,), (0,))
    >>> fxad.lax.scatter(jnp.zeros((2, 3)), jnp.array([[1]]), jnp.ones((1, 3)), rows)
    Array([[0., 0., 0.],
           [1., 1., 1.]], dtype=float32)
    """

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()


class GatherScatterMode(enum.Enum):
    """What happens where a window does not lie inside the operand.

    >>> fxad.lax.GatherScatterMode.from_any("clip")
    <GatherScatterMode.CLIP: 'clip'>
    """

    CLIP = "clip"
    FILL_OR_DROP = "fill"
    PROMISE_IN_BOUNDS = "promise_in_bounds"

    @staticmethod
    def from_any(mode: GatherScatterMode | str | None) -> GatherScatterMode:
        """The mode of that name; fill or drop for None."""
        if isinstance(mode, GatherScatterMode):
            return mode
        names = {None: "fill", "drop": "fill", "clamp": "clip"}
        try:
            return GatherScatterMode(names.get(mode, mode))
        except ValueError:
            raise BadArgument(f"unknown mode {mode!r} for a gather or scatter") from None


class _Places(NamedTuple):
    """Index arrays for every axis of the operand, of the shape (index axes, window axes); and
    for every axis of the result (or updates) the axis of that shape it is."""

    indices: list[Any]
    inside: Any
    order: list[int]


def _signed(indices: Array, size: int) -> Array:
    """Indices in a dtype with room below zero and to the end of an axis."""
    if not dt.is_signed(indices.dtype):
        indices = cast(indices, dt.int64 if indices.dtype.itemsize >= 4 else dt.int32)
    return reaching(indices, size)


def _places(
    name: str,
    shape: tuple[int, ...],
    indices: Array,
    numbers: GatherDimensionNumbers,
    sizes: tuple[int, ...],
    clip: bool,
    checked: bool,
) -> _Places:
    offset, _, starts_of, own_batch, index_batch = map(tuple, numbers)
    window = _window(name, shape, indices, numbers, sizes)
    lead, index_axes = indices.shape[:-1], tuple(range(indices.ndim - 1))
    full = (*lead, *(sizes[a] for a in window))
    indices = _signed(indices, max(shape, default=0))
    found, inside = [], None
    for axis in range(len(shape)):
        place = OPS["broadcast"](Concrete(np.zeros((), indices.dtype)), shape=full, axes=())
        if axis in starts_of:
            start = _column(indices, starts_of.index(axis))
            last = shape[axis] - sizes[axis]
            if checked:
                check_indices(name, start, shape, axis, wrap=False, window=sizes[axis])
            if clip:
                start = OPS["max"](OPS["min"](start, last), 0)
            else:
                here = OPS["and"](OPS["ge"](start, 0), OPS["le"](start, last))
                inside = here if inside is None else OPS["and"](inside, here)
            place = OPS["broadcast"](start, shape=full, axes=index_axes)
        elif axis in own_batch:
            lane = index_batch[own_batch.index(axis)]
            place = OPS["iota"](dtype=indices.dtype, shape=full, axis=lane)
        if axis in window:
            within = len(lead) + window.index(axis)
            place = OPS["add"](place, OPS["iota"](dtype=indices.dtype, shape=full, axis=within))
        found.append(place)
    if inside is not None:
        inside = OPS["broadcast"](inside, shape=full, axes=index_axes)
    rest = iter(range(len(lead)))
    order = [len(lead) + offset.index(a) if a in offset else next(rest) for a in range(len(full))]
    return _Places(found, inside, order)


def _window(
    name: str,
    shape: tuple[int, ...],
    indices: Array,
    numbers: GatherDimensionNumbers,
    sizes: tuple[int, ...],
) -> list[int]:
    """The operand's axes that windows have; raises ShapeError where something does not fit."""
    offset, collapsed, starts_of, own_batch, _ = map(tuple, numbers)
    if not indices.ndim or indices.shape[-1] != len(starts_of) or not dt.is_integer(indices.dtype):
        raise ShapeError(
            f"{name}: index vectors of {len(starts_of)} integers expected, got {indices.type}"
        )
    fits = len(sizes) == len(shape) and all(n <= s for n, s in zip(sizes, shape, strict=True))
    left_out = {*collapsed, *own_batch}
    window = [a for a in range(len(shape)) if a not in left_out]
    if not fits or len(offset) != len(window) or any(sizes[a] != 1 for a in left_out):
        raise ShapeError(f"{name}: windows of {sizes} and {numbers} do not fit shape {shape}")
    return window


def _column(indices: Array, number: int) -> Any:
    stop = (*indices.shape[:-1], number + 1)
    start = (*([0] * (indices.ndim - 1)), number)
    cut = OPS["slice"](indices, start=start, stop=stop, step=(1,) * indices.ndim)
    return OPS["reshape"](cut, shape=indices.shape[:-1])


def gather(
    operand: Any,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: GatherScatterMode | str | None = None,
    fill_value: Any = None,
) -> Array:
    """Windows of the operand. A window that sticks out is moved inside, or by mode "fill"
    filled with fill_value (None: NaN, the lowest signed or highest unsigned integer, True).

    Raises ShapeError if sizes, numbers and shapes do not go together.

    >>> numbers = fxad.lax.GatherDimensionNumbers((1,), (0,), (0,))
    >>> x = jnp.arange(12).reshape(4, 3)
    >>> fxad.lax.gather(x, jnp.array([[2], [0]]), numbers, (1, 2))  # x[[2, 0], :2]
    Array([[6, 7],
           [0, 1]], dtype=int32)
    >>> fxad.lax.gather(x, jnp.array([[3], [9]]), numbers, (1, 2), mode="fill", fill_value=-1)
    Array([[ 9, 10],
           [-1, -1]], dtype=int32)
    """
    value, indices = value_of(operand, "gather"), value_of(start_indices, "gather: start_indices")
    how = GatherScatterMode.from_any(mode or "promise_in_bounds")
    clip = how is not GatherScatterMode.FILL_OR_DROP
    sizes = shape_tuple(slice_sizes, "gather")
    checked = how is GatherScatterMode.PROMISE_IN_BOUNDS
    found = _places("gather", value.shape, indices, dimension_numbers, sizes, clip, checked)
    places, mode_of_op = found.indices, "clamp"
    if found.inside is not None:
        places = [OPS["select"](found.inside, places[0], -1), *places[1:]]
        mode_of_op = "fill"
    if not places:
        return value
    out = OPS["gather"](
        value,
        *places,
        axes=tuple(range(value.ndim)),
        batch=0,
        mode=mode_of_op,
        fill=fill_value,
        unique=bool(unique_indices),
    )
    return OPS["transpose"](out, permutation=tuple(found.order))


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Array:
    """The elements of src at vectors of indices [n], one for each of `axes`, which are modulo the
    axes' lengths; the result has n rows, each with the other axes.

    >>> rows, columns = jnp.array([0, 2]), jnp.array([1, 2])
    >>> fxad.lax.index_take(jnp.arange(9).reshape(3, 3), [rows, columns], (0, 1))
    Array([1, 8], dtype=int32)
    """
    value = value_of(src, "index_take")
    if len(idxs) != len(axes):
        raise ShapeError(f"index_take: {len(idxs)} vectors of indices for {len(axes)} axes")
    places = [axis_index(axis, value.ndim, "index_take") for axis in axes]
    wrapped = [value_of(i) % value.shape[axis] for i, axis in zip(idxs, places, strict=True)]
    rest = tuple(axis for axis in range(value.ndim) if axis not in places)
    return OPS["transpose"](value, permutation=(*places, *rest))[tuple(wrapped)]


def _scatter(name: str, monoid: str, doc: str, example: str) -> Any:
    """example: what becomes of 2, 2, 2 with 1 at place 0 and 5 at place 2."""

    def function(
        operand: Any,
        scatter_indices: Any,
        updates: Any,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: GatherScatterMode | str | None = None,
    ) -> Array:
        value, indices = value_of(operand, name), value_of(scatter_indices, f"{name}: indices")
        new = value_of(updates, f"{name}: updates")
        if new.dtype != value.dtype:
            raise TypeMismatch(f"{name}: updates {new.type} for an operand {value.type}")
        numbers = GatherDimensionNumbers(*dimension_numbers)
        left_out = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
        windows = iter(numbers.offset_dims)
        sizes = tuple(1 if a in left_out else new.shape[next(windows)] for a in range(value.ndim))
        how = GatherScatterMode.from_any(mode)
        clip = how is GatherScatterMode.CLIP
        checked = mode is None or how is GatherScatterMode.PROMISE_IN_BOUNDS
        found = _places(name, value.shape, indices, numbers, sizes, clip, checked)
        places = found.indices
        if found.inside is not None:
            places = [OPS["select"](found.inside, places[0], value.shape[0]), *places[1:]]
        inverse = tuple(int(i) for i in np.argsort(found.order))
        if len(inverse) != new.ndim:
            raise ShapeError(f"{name}: updates {new.type} do not fit {dimension_numbers}")
        moved = OPS["transpose"](new, permutation=inverse)
        wanted = type_of(places[0]).shape if places else ()
        if type_of(moved).shape != wanted:
            raise ShapeError(f"{name}: updates {new.type} do not fit indices {indices.type}")
        return setitem(
            value, tuple(places), moved, monoid, unique_indices=unique_indices, mode="drop"
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The operand with windows of `updates` {doc}.

    Windows that stick out are moved inside by mode "clip", and dropped otherwise. Raises
    ShapeError if shapes and numbers do not go together.

    >>> numbers = fxad.lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> x, places, updates = jnp.array([2, 2, 2]), jnp.array([[0], [2]]), jnp.array([1, 5])
    >>> fxad.lax.{name}(x, places, updates, numbers)
    Array({example}, dtype=int32)
    """
    return function


scatter = _scatter("scatter", "set", "put into it", "[1, 2, 5]")
scatter_add = _scatter("scatter_add", "add", "added to it", "[3, 2, 7]")
scatter_mul = _scatter("scatter_mul", "mul", "multiplied with it", "[ 2,  2, 10]")
scatter_min = _scatter("scatter_min", "min", "compared to it, the smaller kept", "[1, 2, 2]")
scatter_max = _scatter("scatter_max", "max", "compared to it, the larger kept", "[2, 2, 5]")


def scatter_apply(
    operand: Any,
    scatter_indices: Any,
    func: Callable[[Any], Any],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: GatherScatterMode | str | None = None,
) -> Array:
    """The operand with func applied to its elements in windows, elementwise, again for every
    window that holds an element. update_shape: that of the updates of `scatter`.

    >>> numbers = fxad.lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> places = jnp.array([[1], [3]])
    >>> fxad.lax.scatter_apply(jnp.arange(4.0), places, jnp.negative, numbers, update_shape=(2,))
    Array([ 0., -1.,  2., -3.], dtype=float32)
    """
    value = value_of(operand, "scatter_apply")
    none = full_of(0, value.type.with_dtype(dt.int32))
    ones = full_of(1, ArrayType(dt.int32, shape_tuple(update_shape, "scatter_apply")))
    counts = scatter_add(none, scatter_indices, ones, dimension_numbers, mode=mode)
    return applied(func, value, counts)


def scatter_sub(operand: Any, scatter_indices: Any, updates: Any, *rest: Any, **hints: Any) -> Any:
    """The operand with windows of `updates` subtracted from it (see scatter_add).

    >>> numbers = fxad.lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> places, amounts = jnp.array([[0], [2], [0]]), jnp.array([1.0, 5.0, 2.0])
    >>> fxad.lax.scatter_sub(jnp.full(3, 10.0), places, amounts, numbers)
    Array([ 7., 10.,  5.], dtype=float32)
    """
    return scatter_add(operand, scatter_indices, OPS["neg"](value_of(updates)), *rest, **hints)
