"""Running sums and products along an axis.

cumsum(x)[-1] == sum(x)      cumulative_sum(x, include_initial=True)
"""

from __future__ import annotations

from typing import Any

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument
from fxad.ir.program import OPS
from fxad.numpy.core import axis_index, cast, full_of, no_out, sum_dtype, value_of
from fxad.numpy.manipulation import reshape
from fxad.numpy.weak import gives_strong
from fxad.trace.array import Array
from fxad.trace.replay import replayed

__all__ = ["cumprod", "cumsum", "cumulative_prod", "cumulative_sum"]


def _cumulative(op: str, a: Any, axis: Any, dtype: Any) -> Array:
    value = value_of(a, op)
    if dtype is not None or value.dtype == dt.bool_:
        value = cast(value, sum_dtype(value.dtype, dtype))
    if axis is None:
        value, axis = reshape(value, (-1,)), 0
    at = axis_index(axis, value.ndim, op)
    if dt.is_bool(value.dtype):  # whether any, or all, elements so far are true
        whole = cast(value, dt.index_dtype(value.size))
        return cast(OPS[op](whole, axis=at, reverse=False), dt.bool_)
    return OPS[op](value, axis=at, reverse=False)


@replayed
@gives_strong
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Array:
    """Running sum, of small integers in their own dtype (`cumulative_sum` widens them).

    >>> jnp.cumsum(jnp.array([[1, 2], [3, 4]]))
    Array([ 1,  3,  6, 10], dtype=int32)
    >>> jnp.cumsum(jnp.array([[1, 2], [3, 4]]), axis=0)
    Array([[1, 2],
           [4, 6]], dtype=int32)
    """
    no_out("cumsum", out)
    return _cumulative("cumsum", a, axis, dtype)


@replayed
@gives_strong
def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Array:
    """Running product, of small integers in their own dtype (`cumulative_prod` widens them).

    >>> jnp.cumprod(jnp.array([1, 2, 3, 4]))
    Array([ 1,  2,  6, 24], dtype=int32)
    """
    no_out("cumprod", out)
    return _cumulative("cumprod", a, axis, dtype)


def _running(name: str, op: Any, start: int, doc: str) -> Any:
    def function(
        x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
    ) -> Array:
        value = value_of(x, name)
        if axis is None and value.ndim != 1:
            raise BadArgument(f"{name}: {value.type} has {value.ndim} axes: say which with axis=")
        out = op(value, axis, sum_dtype(value.dtype, dtype))
        if not include_initial:
            return out
        at = axis_index(axis or 0, out.ndim, name)
        shape = tuple(1 if i == at else s for i, s in enumerate(out.shape))
        return OPS["concatenate"](full_of(start, out.type.with_shape(shape)), out, axis=at)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


cumulative_sum = _running(
    "cumulative_sum",
    cumsum,
    0,
    """Running sum. Arrays of more axes than one need `axis`; `include_initial` puts 0 before.

    >>> jnp.cumulative_sum(jnp.array([1, 2, 3]), include_initial=True)
    Array([0, 1, 3, 6], dtype=int32)
    """,
)


cumulative_prod = _running(
    "cumulative_prod",
    cumprod,
    1,
    """Running product. Arrays of more axes than one need `axis`; `include_initial` puts 1 before.

    >>> jnp.cumulative_prod(jnp.array([1, 2, 3]), include_initial=True)
    Array([1, 1, 2, 6], dtype=int32)
    """,
)
