"""Products of consecutive rows with a matrix for each group of them (mixtures of experts).

ragged_dot(x, w, sizes)   # f32[m, k], f32[g, k, n], i32[g] -> f32[m, n]

Groups are cut into blocks of at most T rows, and a loop multiplies one block after the other with
its group's matrix. Of p groups with rows there are at most p + (m - p) // T blocks, whatever the
sizes: time is that of the rows, not of all rows with every matrix. The gradient for the matrices
of few rows alone multiplies all rows for each group: there storing the matrices takes the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxad.api.closures import linear_call
from fxad.api.custom import custom_jvp
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.lax.loops import scan
from fxad.lax.reductions import dot
from fxad.lax.shapes import dynamic_slice, dynamic_update_slice
from fxad.numpy.core import cast, full_of, promoted, value_of
from fxad.numpy.creation import arange
from fxad.numpy.cumulative import cumsum
from fxad.numpy.elementwise import maximum, minimum, where
from fxad.numpy.products import matmul
from fxad.numpy.sorting import searchsorted
from fxad.trace.array import Array

LEAST, MOST = 8, 128  # rows of a block
FEW = 32  # rows that may all be multiplied for each group in the time that storing a matrix takes


def ragged_dot(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
) -> Array:
    """The first group_sizes[0] rows of lhs times rhs[0], the next group_sizes[1] times rhs[1], ...

    lhs: [m, k], rhs: [g, k, n], group_sizes: integers [g], 0 or more; the result is [m, n], with
    zeros in rows beyond all groups. `precision` is ignored. Sizes may be traced; time is that of m
    rows and a block more for each group, and what a matrix holds reaches its group's rows alone,
    in derivatives too. Raises ShapeError and TypeMismatch for operands that do not fit together,
    BadArgument for a `group_offset`.

    >>> tokens = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])  # sorted by expert
    >>> experts = jnp.stack([jnp.eye(2), 10 * jnp.eye(2)])
    >>> # one row for the first, two for the next
    >>> fxad.lax.ragged_dot(tokens, experts, jnp.array([1, 2]))
    Array([[ 1.,  0.],
           [ 0., 10.],
           [10., 10.]], dtype=float32)
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
    wanted = a.dtype if preferred_element_type is None else preferred_element_type
    if 0 in (*a.shape, *b.shape):
        return full_of(0, ArrayType(dt.canonicalize(wanted, explicit=True), (len(a), b.shape[2])))
    sizes = cast(sizes, dt.int32)
    return _product(dt.canonicalize(wanted, explicit=True))(a, b, sizes)


def _product(dtype: Any) -> Callable[[Array, Array, Array], Array]:
    """ragged_dot with results of a dtype; linear in each operand, with transposes of their own."""

    @custom_jvp
    def product(a: Array, b: Array, sizes: Array) -> Array:
        return _rows_times(a, b, sizes, dtype)

    @product.defjvp
    def rule(primals: Any, tangents: Any) -> tuple[Array, Array]:
        (a, b, sizes), (da, db, _) = primals, tangents

        def by_matrices(fixed: Any, x: Array) -> Array:
            return _product(dtype)(x, *fixed)

        def to_rows(fixed: Any, ct: Array) -> Array:
            matrices, sizes = fixed
            return cast(_product(dtype)(ct, matrices.swapaxes(1, 2), sizes), a.dtype)

        def by_rows(fixed: Any, matrices: Array) -> Array:
            x, sizes = fixed
            return _product(dtype)(x, matrices, sizes)

        def to_matrices(fixed: Any, ct: Array) -> Array:
            x, sizes = fixed
            return _outer(x, ct, sizes, b.dtype)

        first = linear_call(by_matrices, to_rows, (b, sizes), da)
        return product(a, b, sizes), first + linear_call(by_rows, to_matrices, (a, sizes), db)

    return product


class _Blocks:
    """Blocks of rows: their number, and a scan's values for each - its group, first row and end."""

    def __init__(self, m: int, sizes: Array) -> None:
        groups = sizes.shape[0]
        ends = _ends(m, sizes)
        self.rows = min(m, max(LEAST, min(MOST, 1 << (m // groups).bit_length())))
        used = min(groups, m)
        counted = used + (m - used) // self.rows
        starts = _starts(ends)
        blocks = cumsum((ends - starts + self.rows - 1) // self.rows)
        number = arange(counted)
        group = minimum(searchsorted(blocks, number, side="right"), groups - 1)
        skipped = where(group == 0, 0, blocks[maximum(group - 1, 0)])
        first = minimum(starts[group] + (number - skipped) * self.rows, ends[group])
        end = minimum(first + self.rows, ends[group])
        self.m, self.each = m, (group, first, end)

    def inside(self, first: Array, end: Array) -> tuple[Array, Array]:
        """Where a window of rows begins that holds a block, and which of its rows are it."""
        begin = minimum(first, self.m - self.rows)
        rows = begin + arange(self.rows)[:, None]
        return begin, (first <= rows) & (rows < end)


def _ends(m: int, sizes: Array) -> Array:
    """The row behind each group's last, of m rows."""
    sizes = minimum(maximum(sizes, 0), m)  # a sum of larger ones might wrap
    return minimum(cumsum(sizes), m)


def _starts(ends: Array) -> Array:
    """The first row of each group."""
    number = arange(ends.shape[0])
    return where(number == 0, 0, ends[maximum(number - 1, 0)])


def _rows_times(a: Array, b: Array, sizes: Array, dtype: Any) -> Array:
    _, k, n = b.shape

    def times(rows: Array, group: Array) -> Array:
        matrix = dynamic_slice(b, (group, 0, 0), (1, k, n))[0]
        return dot(rows, matrix, preferred_element_type=dtype)

    return by_groups(times, a, n, sizes, dtype)


def by_groups(
    times: Callable[[Array, Array], Array], a: Array, n: int, sizes: Array, dtype: Any
) -> Array:
    """Rows of `a` [m, k] by times(rows, their group): [m, n] of a dtype, zeros beyond all groups.

    times is handed so many rows at once, [rows, k], of which those of other groups are not used,
    and gives [rows, n]; sizes: int32[g], as many as there are groups.
    """
    blocks, k = _Blocks(a.shape[0], sizes), a.shape[1]

    def one_block(total: Array, block: Any) -> tuple[Array, None]:
        group, first, end = block
        begin, inside = blocks.inside(first, end)
        rows = dynamic_slice(a, (begin, 0), (blocks.rows, k))
        made = cast(times(rows, group), dtype)
        there = dynamic_slice(total, (begin, 0), (blocks.rows, n))
        return dynamic_update_slice(total, where(inside, made, there), (begin, 0)), None

    nothing = full_of(0, ArrayType(dtype, (a.shape[0], n)))
    return scan(one_block, nothing, blocks.each)[0]


def _outer(a: Array, ct: Array, sizes: Array, dtype: Any) -> Array:
    """For each group the sum of a[i]^T ct[i] over its rows, [g, k, n]; ct is no narrower than a."""
    if a.shape[0] <= FEW:
        return _outer_of_few(a, ct, sizes, dtype)
    blocks = _Blocks(a.shape[0], sizes)
    k, n = a.shape[1], ct.shape[1]

    def one_block(total: Array, block: Any) -> tuple[Array, None]:
        group, first, end = block
        begin, inside = blocks.inside(first, end)
        x, y = (
            where(inside, dynamic_slice(v, (begin, 0), (blocks.rows, v.shape[1])), 0)
            for v in (a, ct)
        )
        place = (group, 0, 0)
        there = dynamic_slice(total, place, (1, k, n))
        made = dot(x.T, y, preferred_element_type=total.dtype)
        return dynamic_update_slice(total, there + made[None], place), None

    wide = dt.float32 if ct.dtype in (dt.float16, dt.bfloat16) else ct.dtype
    nothing = full_of(0, ArrayType(wide, (sizes.shape[0], k, n)))
    return cast(scan(one_block, nothing, blocks.each)[0], dtype)


def _outer_of_few(a: Array, ct: Array, sizes: Array, dtype: Any) -> Array:
    """_outer as one product of all rows for each group, others' rows zero: every matrix is written
    once, which takes longer than to compute it."""
    ends = _ends(a.shape[0], sizes)
    row = arange(a.shape[0])
    inside = (_starts(ends)[:, None] <= row) & (row < ends[:, None])
    x, y = (where(inside[:, :, None], v, 0) for v in (a, ct))
    wide = dt.float32 if ct.dtype in (dt.float16, dt.bfloat16) else ct.dtype
    return cast(matmul(x.swapaxes(1, 2), y, preferred_element_type=wide), dtype)
