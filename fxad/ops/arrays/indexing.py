"""scatter: write or combine at computed places. The spec is that of `fxad.ops.arrays.gather`.

    scatter(x: f32[8,3], u: f32[5,3], i: i32[5]; axes=(0,), monoid="add")  -> f32[8,3]

`monoid` is set, add, mul, min or max. Updates out of range are dropped (mode "drop"), or hit the
nearest element ("clamp": the transpose of gather's). Updates that hit one element are applied in
row-major order of the index arrays, so that `set` keeps the last. `unique` promises that none
do, which lets backends run them in parallel.

Derivatives hold with duplicates too: losers of `set` get zero, min and max split evenly between
all that attain the result. Only the tangent of `mul` with respect to updates divides by the
update unless `unique`, and so is NaN where a repeated update is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.kernel import Expr
from fxad.ir.loops import Point, Scatter
from fxad.ir.program import OPS
from fxad.ops.arrays.dynamic import Read, dynamic_slice, dynamic_update
from fxad.ops.arrays.gather import as_rows, check_spec, flat_positions, gather, place
from fxad.ops.arrays.movement import inverse, iota, reshape
from fxad.ops.arrays.slicing import Shape
from fxad.ops.base import (
    ANY,
    Primitive,
    Sample,
    Unknown,
    case,
    check_kind,
    define,
    fails,
    full,
    known,
    operand_type,
    spread,
    value_of,
    values_of,
    zeros,
)
from fxad.trace.tracer import bind, type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Cotangents, Draws, Operands, Tangents, Value, Values
    from fxad.trace.array import Array

__all__ = ["dynamic_slice", "dynamic_update", "gather", "scatter"]

MONOIDS = {
    "set": ANY,
    "add": "int float complex",
    "mul": "int float complex",
    "min": "int float",
    "max": "int float",
}
AT = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _scatter_type(
    x: ArrayType,
    updates: ArrayType,
    *indices: ArrayType,
    axes: Shape,
    batch: int = 0,
    monoid: str = "set",
    mode: str = "drop",
    unique: bool = False,
) -> ArrayType:
    if monoid not in MONOIDS or mode not in ("drop", "clamp"):
        raise TypeMismatch(
            f"scatter: monoid must be one of {', '.join(MONOIDS)} and mode drop or clamp, got "
            f"{monoid!r} and {mode!r}"
        )
    check_kind(f"scatter {monoid}", x, MONOIDS[monoid])
    if updates.dtype != x.dtype:
        raise TypeMismatch(f"scatter: {x} and updates {updates} differ in dtype; convert one side")
    shape = check_spec("scatter", x, indices, axes, batch, mode == "clamp")
    if updates.shape != shape:
        raise ShapeError(f"scatter: updates of {x} must have shape {shape}, got {updates}")
    return x


def _scatter_numpy(
    x: np.ndarray,
    updates: np.ndarray,
    *indices: np.ndarray,
    axes: Shape,
    batch: int = 0,
    monoid: str = "set",
    mode: str = "drop",
    unique: bool = False,
) -> np.ndarray:
    position, valid, order = flat_positions(x, indices, axes, batch, mode == "clamp")
    rows = as_rows(x, order, batch + len(axes))
    values = updates.reshape(position.size, rows.shape[1])[valid]
    if monoid == "set":
        rows[position[valid]] = values
    else:
        AT[monoid].at(rows, position[valid], values)
    result = rows.reshape([x.shape[a] for a in order]).transpose(inverse(order))
    return np.ascontiguousarray(result).reshape(x.shape)


# ---------------------------------------------------------------- derivatives


def _scatter_jvp(
    primals: Values, tangents: Tangents, out: Value, *, monoid: str = "set", **spec: Any
) -> Value | None:
    x, updates, *indices = primals
    dx, du = tangents[:2]
    match monoid:
        case "add" if du is None:
            return dx
        case "set" | "add":
            dx = zeros(type_of(x)) if dx is None else dx
            du = zeros(type_of(updates)) if du is None else du
            return scatter(dx, du, *indices, monoid=monoid, **spec)
        case "mul":
            return _mul_jvp(x, updates, indices, dx, du, out, spec)
        case "min" | "max":
            return _extremum_jvp(x, updates, indices, dx, du, out, spec)
    raise TypeMismatch(f"scatter: no derivative for monoid {monoid!r}")


def _read(x: Value, indices: Values, spec: dict[str, Any]) -> Value:
    """What of x the updates meet; zero where an update is dropped."""
    mode = "clamp" if spec.get("mode", "drop") == "clamp" else "fill"
    return gather(x, *indices, **{**spec, "mode": mode}, fill=0)


def _mul_jvp(
    x: Value,
    updates: Value,
    indices: Values,
    dx: Value | None,
    du: Value | None,
    out: Value,
    spec: dict[str, Any],
) -> Value | None:
    total = None
    if dx is not None:
        total = scatter(dx, updates, *indices, monoid="mul", **spec)
    if du is not None:
        if spec.get("unique"):
            others = _read(x, indices, spec)
        else:
            others = bind(OPS["div"], _read(out, indices, spec), updates)
        term = bind(OPS["mul"], others, du)
        base = zeros(type_of(x)) if total is None else total
        total = scatter(base, term, *indices, monoid="add", **spec)
    return total


def _extremum_jvp(
    x: Value,
    updates: Value,
    indices: Values,
    dx: Value | None,
    du: Value | None,
    out: Value,
    spec: dict[str, Any],
) -> Value | None:
    """Each result's tangent is the mean over those of x and the updates that attain it."""

    def attaining(values: Value, results: Value, tangent: Value | None) -> tuple[Value, Value]:
        type_ = type_of(values)
        none = zeros(type_)
        wins = bind(OPS["eq"], values, results)
        kept = none if tangent is None else bind(OPS["select"], wins, tangent, none)
        return kept, bind(OPS["select"], wins, full(1, type_), none)

    kept_x, count_x = attaining(x, out, dx)
    kept_u, count_u = attaining(updates, _read(out, indices, spec), du)
    tangent = scatter(kept_x, kept_u, *indices, monoid="add", **spec)
    count = scatter(count_x, count_u, *indices, monoid="add", **spec)
    return bind(OPS["div"], tangent, count)


def _distinct(index: ArrayType, batch: int, unique: bool) -> bool:
    """Whether no element can be hit twice."""
    return unique or index.size <= 1 or index.ndim <= batch


def _last_writers(ct: Value, indices: Values, spec: dict[str, Any]) -> Value:
    """Booleans over the index arrays: which update was the last one to hit its element."""
    batch, axes = spec.get("batch", 0), spec["axes"]
    index, shape = type_of(indices[0]), type_of(ct).shape
    dtype = dt.int32 if index.size < 2**31 else dt.int64
    numbers = reshape(iota(dtype=dtype, shape=(index.size,), axis=0), shape=index.shape)
    places = ArrayType(dtype, (*shape[:batch], *(shape[a] for a in axes)))
    spec = {**spec, "axes": tuple(range(batch, batch + len(axes)))}
    written = scatter(zeros(places), numbers, *indices, monoid="set", **spec)
    return bind(OPS["eq"], _read(written, indices, spec), numbers)


def _scatter_transpose(
    ct: Value, args: Operands, *, monoid: str = "set", **spec: Any
) -> Cotangents:
    x, updates = args[:2]
    indices = values_of(args[2:])
    if monoid not in ("set", "add") and not (monoid == "mul" and known(updates)):
        raise TypeMismatch(f"scatter {monoid} is not linear in the updates; it has no transpose")
    shape = operand_type(updates).shape
    type_ = type_of(ct).with_shape(shape)
    dx = du = None
    # What is overwritten is read first, so that it may be overwritten in place.
    if not known(updates):
        du = _read(ct, indices, spec)
        index = type_of(indices[0])
        if monoid == "set" and not _distinct(
            index, spec.get("batch", 0), spec.get("unique", False)
        ):
            last = _last_writers(ct, indices, spec)
            if index.ndim < type_.ndim:
                axes = tuple(range(index.ndim))
                last = bind(OPS["broadcast"], last, shape=shape, axes=axes)
            du = bind(OPS["select"], last, du, zeros(type_))
    if isinstance(x, Unknown):
        if monoid == "add":
            dx = ct
        else:
            kept = value_of(updates) if monoid == "mul" else zeros(type_)
            dx = scatter(ct, kept, *indices, monoid=monoid, **spec)
    return [dx, du, *[None] * len(indices)]


def _scatter_batch(
    size: int, batched: Sequence[bool], args: Values, *, axes: Shape, batch: int = 0, **params: Any
) -> Value:
    lanes = [a if b else spread(a, size) for a, b in zip(args, batched, strict=True)]
    return scatter(*lanes, axes=tuple(a + 1 for a in axes), batch=batch + 1, **params)


def _scatter_loops(
    types: Sequence[ArrayType],
    *,
    axes: Shape,
    batch: int = 0,
    monoid: str = "set",
    mode: str = "drop",
    unique: bool = False,
) -> Scatter:
    x, index = types[0], types[2]
    serial = () if _distinct(index, batch, unique) else tuple(range(batch, index.ndim))

    def target(point: Point, read: Read) -> tuple[Point, Expr | None]:
        where, inside = place(point, x, axes, batch, index.ndim, read, 2)
        return where, None if mode == "clamp" else inside

    return Scatter(monoid, 1, serial, target)


# ---------------------------------------------------------------- the op


def _i32(*values: int | list[int]) -> np.ndarray:
    return np.array(values, np.int32)


def _scatter_samples(r: Draws) -> list[Sample]:
    rows = _i32(4, 0, 4, -1, 5)
    found = [
        case(r.x(5, 3), r.x(5, 3), rows, axes=(0,), monoid="set"),
        case(r.x(5, 3), r.x(5), np.int32(2), axes=(1,), monoid="set"),
        case(r.x(5), r.x(3), _i32(2, 0, 1), axes=(0,), monoid="set", unique=True),
        case(r.x(3, 2), r.x(0, 2), np.zeros(0, np.int32), axes=(0,), monoid="set"),
        fails(r.x(3), r.x(2), _i32(0), axes=(0,), monoid="set", saying="must have shape (1,)"),
        fails(r.x(3), r.x(1), _i32(0), axes=(0,), monoid="sub", saying="one of set"),
    ]
    kind = dt.kind_of(r.x().dtype)
    for monoid in ("add", "mul", "min", "max"):
        if kind not in MONOIDS[monoid].split():
            continue
        lanes = _i32([0, 3, 3], [1, 9, 2])
        found += [
            case(r.x(5, 3), r.x(5, 3), rows, axes=(0,), monoid=monoid),
            case(r.x(5, 3), r.x(5, 3), rows, axes=(0,), monoid=monoid, mode="clamp"),
            case(r.x(2, 4, 3), r.x(2, 3, 3), lanes, axes=(1,), batch=1, monoid=monoid),
            case(r.x(2, 4, 3), r.x(2, 4), _i32(0, 2), _i32(1, 1), axes=(2, 0), monoid=monoid),
        ]
    return found


scatter: Primitive[Array] = define(
    "scatter",
    doc="x with updates written to, or combined with, elements at computed places.",
    type=_scatter_type,
    numpy=_scatter_numpy,
    jvp=_scatter_jvp,
    transpose=_scatter_transpose,
    batch=_scatter_batch,
    loops=_scatter_loops,
    weak=(0,),
    exact=True,
    makes_nan=lambda *, monoid="set", **params: monoid in ("add", "mul"),
    dtypes=ANY,
    samples=_scatter_samples,
)
