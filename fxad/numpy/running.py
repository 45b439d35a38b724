"""Along an axis, element after element: running sums, differences, the trapezoidal rule.

cumsum(x)[-1] == sum(x)      diff(cumsum(x), prepend=0) == x
"""

from __future__ import annotations

from typing import Any

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.ir.program import OPS
from fxad.numpy.core import axis_index, cast, full_of, promoted, spread_to, sum_dtype, value_of
from fxad.numpy.reductions import sum
from fxad.numpy.shaping import moveaxis, reshape, slice_axis
from fxad.trace.array import Array
from fxad.trace.replay import replayed


def _cumulative(op: str, a: Any, axis: Any, dtype: Any) -> Array:
    value = value_of(a, op)
    if op in ("cumsum", "cumprod"):
        value = cast(value, sum_dtype(value.dtype, dtype))
    if axis is None:
        value, axis = reshape(value, (-1,)), 0
    return OPS[op](value, axis=axis_index(axis, value.ndim, op), reverse=False)


@replayed
def cumsum(a: Any, axis: Any = None, dtype: Any = None) -> Array:
    """Running sum."""
    return _cumulative("cumsum", a, axis, dtype)


@replayed
def cumprod(a: Any, axis: Any = None, dtype: Any = None) -> Array:
    """Running product."""
    return _cumulative("cumprod", a, axis, dtype)


def _running(name: str, op: Any, start: int) -> Any:
    def function(
        x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
    ) -> Array:
        value = value_of(x, name)
        if axis is None and value.ndim != 1:
            raise BadArgument(f"{name}: {value.type} has {value.ndim} axes: say which with axis=")
        out = op(value, axis, dtype)
        if not include_initial:
            return out
        at = axis_index(axis or 0, out.ndim, name)
        shape = tuple(1 if i == at else s for i, s in enumerate(out.shape))
        return OPS["concatenate"](full_of(start, out.type.with_shape(shape)), out, axis=at)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{op.__doc__} Arrays of more axes than one need `axis`; `include_initial` puts {start} "
        "before."
    )
    return function


cumulative_sum = _running("cumulative_sum", cumsum, 0)


cumulative_prod = _running("cumulative_prod", cumprod, 1)


@replayed
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
    """Differences of neighbours, n times. `prepend` and `append` lengthen the axis first; numbers
    count as one element of it."""
    value = value_of(a)
    if value.ndim == 0:
        raise ShapeError("diff: expects an array with at least one axis, got a 0-d one")
    if n < 0:
        raise BadArgument(f"diff: n must not be negative, got {n}")
    at = axis_index(axis, value.ndim, "diff")
    ends = [_edge(edge, value, at) for edge in (prepend, append)]
    parts = [p for p in (ends[0], value, ends[1]) if p is not None]
    if len(parts) > 1:
        parts = promoted("diff", *parts, numbers=False, broadcast=False)
        value = OPS["concatenate"](*parts, axis=at)
    for _ in range(n):
        length = value.shape[at]
        upper, lower = (
            slice_axis(value, at, 1 if length else 0, length),
            slice_axis(value, at, 0, length - 1 if length else 0),
        )
        value = upper != lower if value.dtype == dt.bool_ else upper - lower
    return value


def _edge(edge: Any, value: Array, axis: int) -> Array | None:
    if edge is None:
        return None
    given = value_of(edge, "diff")
    if given.ndim:
        return given
    shape = tuple(1 if i == axis else size for i, size in enumerate(value.shape))
    return spread_to(given, shape)


@replayed
def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Array:
    """Integral by the trapezoidal rule."""
    value = moveaxis(promoted("trapezoid", y, inexact=True, numbers=False)[0], axis, -1)
    step = dx if x is None else diff(value_of(x))
    return sum((value[..., 1:] + value[..., :-1]) * 0.5 * step, -1)
