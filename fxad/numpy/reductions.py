"""Sums, products, means, variances, extremes and truth over axes.

sum(x, axis=-1, keepdims=True)      argmax(x)      logsumexp(x, axis=0)
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from fxad.api.custom import custom_jvp
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.ir.rewrite import literal
from fxad.numpy.core import (
    axes_tuple,
    axis_index,
    cast,
    full_of,
    no_out,
    promoted,
    result_shape,
    shape_items,
    spread_to,
    sum_dtype,
    value_of,
)
from fxad.numpy.elementwise import (
    abs,
    equal,
    exp,
    imag,
    isinf,
    isnan,
    log,
    not_equal,
    real,
    sqrt,
    where,
)
from fxad.numpy.manipulation import reshape, transpose
from fxad.numpy.weak import gives_strong
from fxad.trace.array import Array
from fxad.trace.replay import by_numpy, replayed
from fxad.trace.tracer import bind

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "average", "count_nonzero", "logsumexp",
    "max", "mean", "min", "prod", "ptp", "std", "sum", "var",
]  # fmt: skip

_choose = where  # for functions with a parameter `where`


def _keep(out: Array, axes: tuple[int, ...], source: ArrayType, keepdims: bool) -> Array:
    if not keepdims:
        return out
    return reshape(out, tuple(1 if i in axes else s for i, s in enumerate(source.shape)))


def flags_of(condition: Any) -> Array:
    """The bools of a `where=`. Raises TypeMismatch for numbers: weights are another thing."""
    flags = value_of(condition, "where=")
    if flags.dtype != dt.bool_:
        raise TypeMismatch(f"where= takes bools, not {flags.type}; say which: where=m != 0")
    return flags


def _masked(value: Array, condition: Any, filler: Any) -> Array:
    """Elements outside `where=` replaced by the identity."""
    return value if condition is None else where(flags_of(condition), value, filler)


def _start(initial: Any, dtype: np.dtype) -> Any:
    """`initial=` in a dtype: a number of its kind stays a number, which programs show."""
    if dt.is_float(dtype) and isinstance(initial, int | float):
        return float(initial)
    return cast(value_of(initial), dtype)


@replayed
@gives_strong
def sum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    promote_integers: bool = True,
) -> Array:
    """Sum over axes (all by default). Small integers add up in the default integer, or without
    promote_integers in their own dtype; with dtype=bool it says whether any element is not 0.

    >>> x = jnp.array([[1, 2], [3, 4]])
    >>> jnp.sum(x), jnp.sum(x, axis=0)
    (Array(10, dtype=int32), Array([4, 6], dtype=int32))
    >>> jnp.sum(x, axis=1, keepdims=True)
    Array([[3],
           [7]], dtype=int32)
    """
    no_out("sum", out)
    value = value_of(a, "sum")
    own = value.type.dtype
    wide = _summed_in(own, dtype, promote_integers)
    value = value if wide is own else cast(value, wide)
    axes = axes_tuple(axis, len(value.type.shape), "sum")
    if dt.is_bool(wide):
        found = any(value, axes, keepdims=keepdims, where=where)
        return found if initial is None else found | _start(initial, wide)
    result = _added(_masked(value, where, 0), axes, keepdims)
    return result if initial is None else result + _start(initial, result.dtype)


def _summed_in(own: np.dtype, dtype: Any, promote_integers: bool) -> np.dtype:
    """What elements are added or multiplied in: bools only where it is asked for."""
    keep = dtype is None and not promote_integers and not dt.is_bool(own)
    return sum_dtype(own, own if keep else dtype)


def _added(value: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    return _keep(bind(OPS["sum"], value, axes=axes) if axes else value, axes, value.type, keepdims)


@replayed
@gives_strong
def prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    promote_integers: bool = True,
) -> Array:
    """Product over axes. Integers as in `sum`.

    >>> jnp.prod(jnp.array([[1, 2], [3, 4]]), axis=1)
    Array([ 2, 12], dtype=int32)
    """
    no_out("prod", out)
    value = value_of(a, "prod")
    wide = _summed_in(value.dtype, dtype, promote_integers)
    value = cast(value, wide)
    axes = axes_tuple(axis, value.ndim, "prod")
    if dt.is_bool(wide):
        found = all(value, axes, keepdims=keepdims, where=where)
        return found if initial is None else found & _start(initial, wide)
    value = _masked(value, where, 1)
    result = _keep(OPS["prod"](value, axes=axes) if axes else value, axes, value.type, keepdims)
    return result if initial is None else result * _start(initial, result.dtype)


def _extreme(
    op: str, a: Any, axis: Any, keepdims: bool, initial: Any, mask: Any, pick: Any
) -> Array:
    name = "max" if op == "max_reduce" else "min"
    value = value_of(a, name)
    axes = axes_tuple(axis, value.ndim, name)
    if initial is None and mask is not None:
        raise BadArgument(f"{name}: where= needs initial=")
    if initial is not None:
        initial = _start(initial, value.dtype)
    value = _masked(value, mask, initial)
    if initial is None and 0 in [value.shape[i] for i in axes]:
        raise ShapeError(f"{name}: no elements along axes {axes} of {value.type}; give initial=")
    if initial is not None and 0 in [value.shape[i] for i in axes]:
        shape = tuple(s for i, s in enumerate(value.shape) if i not in axes)
        out = spread_to(cast(value_of(initial), value.dtype), shape)
        return _keep(out, axes, value.type, keepdims)
    if value.dtype == dt.bool_:
        out = OPS["any" if op == "max_reduce" else "all"](value, axes=axes)
    elif dt.is_complex(value.dtype) and axes:
        out = lexicographic(op, value, axes)
    else:
        out = OPS[op](value, axes=axes) if axes else value
    out = _keep(out, axes, value.type, keepdims)
    return out if initial is None else pick(out, initial)


@replayed
@gives_strong
def max(
    a: Any,
    axis: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Largest element; NaN wins. Complex numbers compare by real part first.

    At ties the gradient is split evenly.

    >>> jnp.max(jnp.array([[1, 5], [3, 4]]), axis=0)
    Array([3, 5], dtype=int32)
    >>> jnp.max(jnp.array([]), initial=-1.0)
    Array(-1., dtype=float32)
    """
    no_out("max", out)
    from_pair = lambda x, y: OPS["max"](*promoted("max", x, y))  # noqa: E731
    return _extreme("max_reduce", a, axis, keepdims, initial, where, from_pair)


@replayed
@gives_strong
def min(
    a: Any,
    axis: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Smallest element; NaN wins. Complex numbers compare by real part first.

    At ties the gradient is split evenly.

    >>> jnp.min(jnp.array([[1, 5], [3, 4]]), axis=1)
    Array([1, 3], dtype=int32)
    """
    no_out("min", out)
    from_pair = lambda x, y: OPS["min"](*promoted("min", x, y))  # noqa: E731
    return _extreme("min_reduce", a, axis, keepdims, initial, where, from_pair)


amax, amin = max, min


@replayed
@gives_strong
def ptp(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Array:
    """max - min.

    >>> jnp.ptp(jnp.array([[1, 5], [3, 4]]), axis=0)
    Array([2, 1], dtype=int32)
    """
    no_out("ptp", out)
    return max(a, axis, keepdims=keepdims) - min(a, axis, keepdims=keepdims)


def _logical(a: Any) -> Array:
    value = value_of(a)
    return value if value.dtype == dt.bool_ else not_equal(value, 0)


@replayed
@gives_strong
def all(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None
) -> Array:
    """Whether every element is non-zero.

    >>> jnp.all(jnp.array([[True, False], [True, True]]), axis=1)
    Array([False,  True], dtype=bool)
    """
    no_out("all", out)
    value = _masked(_logical(a), where, True)
    axes = axes_tuple(axis, value.ndim, "all")
    return _keep(OPS["all"](value, axes=axes) if axes else value, axes, value.type, keepdims)


@replayed
@gives_strong
def any(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None
) -> Array:
    """Whether some element is non-zero.

    >>> jnp.any(jnp.array([[True, False], [False, False]]), axis=1)
    Array([ True, False], dtype=bool)
    """
    no_out("any", out)
    value = _masked(_logical(a), where, False)
    axes = axes_tuple(axis, value.ndim, "any")
    return _keep(OPS["any"](value, axes=axes) if axes else value, axes, value.type, keepdims)


@replayed
def count_nonzero(a: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """Number of non-zero elements.

    >>> jnp.count_nonzero(jnp.array([[0, 1], [2, 0]]))
    Array(2, dtype=int32)
    """
    return sum(_logical(a), axis, keepdims=keepdims)


def _count(type_: ArrayType, axes: tuple[int, ...]) -> int:
    return math.prod(type_.shape[i] for i in axes)


def widened(value: Array) -> Array:
    """Half-width floats as float32, in which their moments are computed."""
    narrow = dt.is_float(value.dtype) and value.dtype.itemsize < 4
    return cast(value, dt.float32) if narrow else value


@replayed
@gives_strong
def mean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = None,
) -> Array:
    """Arithmetic mean; integers give floats, half-width floats accumulate in float32.

    >>> x = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    >>> jnp.mean(x), jnp.mean(x, axis=0)
    (Array(2.5, dtype=float32), Array([2., 3.], dtype=float32))
    >>> jnp.mean(x, where=x > 1)
    Array(3., dtype=float32)
    """
    no_out("mean", out)
    value = in_dtype("mean", a, dtype)
    axes = axes_tuple(axis, value.ndim, "mean")
    own = value.dtype
    wide = widened(value)
    if where is None and not axes:
        return value
    if where is None:
        count = literal(_count(value.type, axes) or math.nan, wide.dtype)
        return cast(bind(OPS["div"], _added(wide, axes, keepdims), count), own)
    number = sum(spread_to(flags_of(where), value.shape), axes, keepdims=keepdims)
    return cast(sum(wide, axes, keepdims=keepdims, where=where) / cast(number, wide.dtype), own)


_mean = mean  # for functions with a parameter `mean`


@replayed
@gives_strong
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False
) -> Any:
    """Weighted mean. weights: of the shape of `a`, or of that of its axes `axis`, in their order.

    >>> jnp.average(jnp.array([1.0, 2.0, 4.0]), weights=jnp.array([2, 1, 1]))
    Array(2., dtype=float32)
    """
    if weights is None:
        out = mean(a, axis, keepdims=keepdims)
        value = value_of(a)
        total = full_of(_count(value.type, axes_tuple(axis, value.ndim, "average")), out.type)
        return (out, total) if returned else out
    value, weight = promoted("average", a, weights, inexact=True, numbers=False, broadcast=False)
    if weight.shape != value.shape:
        given = () if axis is None else shape_items(axis)
        axes = [axis_index(i, value.ndim, "average") for i in given]
        if not axes or weight.shape != tuple(value.shape[i] for i in axes):
            raise ShapeError(
                f"average: weights {weight.type} match neither {value.type} nor its axes {given}"
            )
        weight = transpose(weight, np.argsort(axes).tolist())
        weight = reshape(weight, tuple(s if i in axes else 1 for i, s in enumerate(value.shape)))
    weight = spread_to(weight, result_shape("average", [value.shape, weight.shape]))
    total = sum(weight, axis, keepdims=keepdims)
    out = sum(value * weight, axis, keepdims=keepdims) / total
    return (out, total) if returned else out


def in_dtype(name: str, a: Any, dtype: Any) -> Array:
    """What a mean or variance is of: floats or complex numbers, of a dtype if one is asked for."""
    (value,) = promoted(name, a, inexact=True, numbers=False)
    return value if dtype is None else cast(value, dt.canonicalize(dtype, explicit=True))


def squared_size(value: Array) -> Array:
    """The square of each element, of a complex one that of its absolute value."""
    return real(value * value.conj()) if dt.is_complex(value.dtype) else OPS["square"](value)


@replayed
@gives_strong
def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    correction: float | None = None,
    mean: Any = None,
) -> Array:
    """Variance; the divisor is the count minus ddof, which may be traced; NaN if that is not
    above 0.

    mean: the means, with the axes kept, where they are known already.

    >>> jnp.var(jnp.array([1.0, 2.0, 3.0, 4.0]))
    Array(1.25, dtype=float32)
    >>> jnp.var(jnp.array([1.0, 2.0, 3.0, 4.0]), ddof=1).round(3)
    Array(1.667, dtype=float32)
    """
    no_out("var", out)
    value = in_dtype("var", a, dtype)
    own = value.dtype
    wide = widened(value)
    axes = axes_tuple(axis, value.ndim, "var")
    gap = wide - (_mean(wide, axes, keepdims=True, where=where) if mean is None else mean)
    squared = squared_size(gap)
    less = ddof if correction is None else correction
    total = sum(squared, axes, keepdims=keepdims, where=where)
    number: Any = _count(value.type, axes)
    if where is not None:
        number = sum(spread_to(flags_of(where), value.shape), axes, keepdims=keepdims)
        number = cast(number, total.dtype)
    left = number - less
    if isinstance(left, int | float):
        result = total / (left if left > 0 else math.nan)
    else:
        left = cast(value_of(left), total.dtype)
        result = total / _choose(left > 0, left, math.nan)
    return cast(result, dt.real_of(own) if dt.is_complex(own) else own)


@replayed
@gives_strong
def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    correction: float | None = None,
    mean: Any = None,
) -> Array:
    """Standard deviation; its gradient at 0 is 0.

    >>> jnp.std(jnp.array([1.0, 2.0, 3.0, 4.0])).round(3)
    Array(1.118, dtype=float32)
    """
    no_out("std", out)
    more: dict[str, Any] = {"where": where, "correction": correction, "mean": mean}
    return safe_sqrt(var(a, axis, dtype, None, ddof, keepdims, **more))


def _sqrt_numpy(value: np.ndarray) -> np.ndarray:
    return np.sqrt(value + value.dtype.type(0))  # no -0


def safe_sqrt(value: Array) -> Array:
    """sqrt whose gradient at 0 is 0."""
    return _root(value)


@by_numpy(type=lambda value: value, numpy=_sqrt_numpy)
def _root(value: Array) -> Array:
    zero = value == 0
    return where(zero, 0.0, sqrt(where(zero, 1.0, value)))


def _arg(op: str, a: Any, axis: Any, keepdims: bool) -> Array:
    value = value_of(a, op)
    if axis is None:
        out = _arg(op, reshape(value, (-1,)), 0, False)
        return reshape(out, (1,) * value.ndim) if keepdims else out
    at = axis_index(axis, value.ndim, op)
    if value.shape[at] == 0:
        raise ShapeError(f"{op}: no elements along axis {at} of {value.type}")
    if dt.is_complex(value.dtype):  # the first that is the extreme one
        peak = _extreme(f"{op[3:]}_reduce", value, at, True, None, None, None)
        value, op = equal(value, peak) | isnan(value), "argmax"
    if value.dtype == dt.bool_:
        value = cast(value, dt.int8)
    dtype = dt.index_dtype(value.shape[at], dt.default_int())
    return _keep(OPS[op](value, axis=at, dtype=dtype), (at,), value.type, keepdims)


@replayed
@gives_strong
def argmax(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Array:
    """Position of the first largest element (of the first NaN, if any).

    >>> jnp.argmax(jnp.array([[1, 5, 5], [7, 4, 0]]), axis=1)  # the first of equals
    Array([1, 0], dtype=int32)
    """
    no_out("argmax", out)
    return _arg("argmax", a, axis, keepdims)


@replayed
@gives_strong
def argmin(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Array:
    """Position of the first smallest element (of the first NaN, if any).

    >>> jnp.argmin(jnp.array([[1, 5, 1], [7, 4, 0]]), axis=1)
    Array([0, 2], dtype=int32)
    """
    no_out("argmin", out)
    return _arg("argmin", a, axis, keepdims)


@replayed
@gives_strong
def logsumexp(
    a: Any,
    axis: Any = None,
    b: Any = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: Any = None,
) -> Any:
    """log(sum(exp(a))) without overflow; b scales the terms; where: bools, which terms count.
    All -inf gives -inf, gradient 0. A sum below 0 gives NaN, or with return_sign the logarithm of
    its size, and its sign; of complex numbers it is the principal value.

    >>> (fxad.nn.logsumexp(jnp.array([1000.0, 1000.0])) - 1000).round(3)
    Array(0.693, dtype=float32)
    """
    given = (a,) if b is None else (a, b)
    value, *scales = promoted("logsumexp", *given, inexact=True, numbers=False)
    value = _masked(value, where, -math.inf)
    for scale in scales:  # infinity times 0 is NaN
        value = _choose(scale != 0, value, -math.inf)
    axes = axes_tuple(axis, value.ndim, "logsumexp")
    sizes = real(value) if dt.is_complex(value.dtype) else value
    peak = OPS["stop_gradient"](max(sizes, axes, keepdims=True, initial=-math.inf))
    peak = _choose(isinf(peak), 0.0, peak)
    terms = exp(value - peak)
    for scale in scales:
        terms = terms * scale
    total = sum(terms, axes, keepdims=True)
    sign: Any = OPS["sign"](total) if return_sign else None
    size = abs(total) if return_sign else total
    zero = size == 0
    out = _choose(zero, -math.inf, log(_choose(zero, 1.0, size)) + peak)
    kept = out if keepdims else reshape(out, _dropped(out.shape, axes))
    if return_sign:
        return kept, (sign if keepdims else reshape(sign, _dropped(sign.shape, axes)))
    return kept


def _dropped(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(s for i, s in enumerate(shape) if i not in axes)


@partial(custom_jvp, nondiff_argnums=(0, 2))
def lexicographic(op: str, value: Array, axes: tuple[int, ...]) -> Array:
    """`op` ("max_reduce" or "min_reduce") of complex numbers: by real part, then by imaginary
    part. NaN wins, as in NumPy; equals share the gradient."""
    re, im = real(value), imag(value)
    nothing = -math.inf if op == "max_reduce" else math.inf
    first = OPS[op](re, axes=axes)
    second = OPS[op](where(re == _back(first, axes, value), im, nothing), axes=axes)
    broken = isnan(first) | OPS["any"](isnan(im), axes=axes)
    # complex(nan, nan) wherever either part of any element is NaN
    first, second = (where(broken, math.nan, part) for part in (first, second))
    return OPS["complex"](first, second)


def _back(reduced: Array, axes: tuple[int, ...], like: Array) -> Array:
    """A reduced array at every element that went into it."""
    kept = tuple(1 if i in axes else n for i, n in enumerate(like.shape))
    return spread_to(OPS["reshape"](reduced, shape=kept), like.shape)


@lexicographic.defjvp
def _lexicographic_jvp(op: str, axes: Any, primals: Any, tangents: Any) -> tuple[Array, Array]:
    (value,) = primals
    out = lexicographic(op, value, axes)
    chosen = value == _back(out, axes, value)
    count = OPS["sum"](where(chosen, 1.0, 0.0).astype(real(value).dtype), axes=axes)
    return out, OPS["sum"](where(chosen, tangents[0], 0), axes=axes) / count
