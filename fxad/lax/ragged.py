"""Products of consecutive rows with a matrix for each group of them (mixtures of experts).

ragged_dot(x, w, sizes)   # f32[m, k], f32[g, k, n], i32[g] -> f32[m, n]
"""

from __future__ import annotations

from typing import Any

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.lax.loops import scan
from fxad.lax.reductions import dot
from fxad.numpy.core import full_of, promoted, value_of
from fxad.numpy.creation import arange
from fxad.numpy.elementwise import where
from fxad.numpy.running import cumsum
from fxad.trace.array import Array


def ragged_dot(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
) -> Array:
    """The first group_sizes[0] rows of lhs times rhs[0], the next group_sizes[1] times rhs[1], ...

    lhs: [m, k], rhs: [g, k, n], group_sizes: integers [g]; the result is [m, n], with zeros in
    rows beyond all groups. `precision` is ignored. All rows are multiplied with every matrix, one
    after the other, and those of its group are taken: sizes may be traced, memory is that of one
    product, time that of g. Raises ShapeError and TypeMismatch for operands that do not fit
    together, BadArgument for a `group_offset`.
    """
    if group_offset is not None:
        raise BadArgument("ragged_dot: group_offset is not supported; slice rhs and group_sizes")
    a, b = promoted("ragged_dot", lhs, rhs, numbers=False, broadcast=False)
    sizes = value_of(group_sizes)
    if a.ndim != 2 or b.ndim != 3 or a.shape[1] != b.shape[1] or sizes.shape != b.shape[:1]:
        raise ShapeError(
            "ragged_dot: takes [m, k], [g, k, n] and sizes [g], not "
            f"{a.type}, {b.type} and {sizes.type}"
        )
    if not dt.is_integer(sizes.dtype):
        raise TypeMismatch(f"ragged_dot: group_sizes must be integers, not {sizes.type}")
    rows, ends = arange(a.shape[0])[:, None], cumsum(sizes)

    def one_group(total: Array, group: Any) -> tuple[Array, None]:
        matrix, first, end = group
        made = dot(a, matrix, preferred_element_type=preferred_element_type)
        return where((first <= rows) & (rows < end), made, total), None

    dtype = a.dtype if preferred_element_type is None else preferred_element_type
    whole = ArrayType(dt.canonicalize(dtype, explicit=True), (a.shape[0], b.shape[2]))
    nothing = full_of(0, whole)
    return scan(one_group, nothing, (b, ends - sizes, ends))[0]
