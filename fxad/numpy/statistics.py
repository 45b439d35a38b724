"""Statistics: quantiles, covariances, histograms.

quantile(x, [0.25, 0.75], axis=0)      cov(x)      counts, edges = histogram(x, 20)
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import (
    BadArgument,
    DtypeError,
    ShapeError,
    TypeMismatch,
    UnsupportedError,
)
from fxad.ir.program import OPS
from fxad.numpy.core import (
    asarray,
    axes_tuple,
    cast,
    known_values,
    no_out,
    promoted,
    spread_to,
    value_of,
    vector_of,
)
from fxad.numpy.creation import linspace
from fxad.numpy.elementwise import clip, isnan, maximum, sqrt, where
from fxad.numpy.joining import concatenate, stack
from fxad.numpy.manipulation import flip, moveaxis, reshape
from fxad.numpy.products import outer
from fxad.numpy.reductions import mean, sum
from fxad.numpy.selection import take_along_axis
from fxad.numpy.sorting import searchsorted
from fxad.numpy.updates import setitem
from fxad.numpy.weak import gives_strong
from fxad.trace.array import Array, Concrete
from fxad.trace.replay import replayed
from fxad.trace.tracer import type_of

__all__ = [
    "bincount", "corrcoef", "cov", "digitize", "histogram", "histogram2d", "histogram_bin_edges",
    "histogramdd", "median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile",
]  # fmt: skip

# ---------------------------------------------------------------- covariance, differences


@replayed
@gives_strong
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    dtype: Any = None,
) -> Array:
    """Covariance matrix of the variables in the rows (columns if not rowvar).

    fweights: how often each observation counts (integers); aweights: how much; their signs do not
    count. dtype: what to compute in.

    >>> jnp.cov(jnp.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    value = value_of(m)
    if value.ndim > 2:
        raise ShapeError(f"cov: needs one or two axes, not {value.type}")
    value = cast(value, dt.inexact_for(value.dtype))
    wanted = None if dtype is None else dt.canonicalize(dtype, explicit=True)
    if wanted is not None and not dt.is_inexact(wanted):
        raise DtypeError(f"cov: dtype must be a float or complex one, not {wanted}")
    rows = reshape(value, (1, -1)) if value.ndim < 2 else value if rowvar else value.T
    if y is not None:
        other = value_of(y)
        more = reshape(other, (1, -1)) if other.ndim < 2 else other if rowvar else other.T
        rows = concatenate([rows, more])
    rows = rows if wanted is None else rows.astype(wanted)
    less = (0 if bias else 1) if ddof is None else ddof
    if fweights is None and aweights is None:
        centred = rows - mean(rows, 1, keepdims=True)
        count = rows.shape[1]
        # without observations nothing is known: 0 / 0 is NaN, as NumPy and JAX have it
        out = (centred @ centred.conj().T) / (count and count - less)
    else:
        out = _weighted_covariance(rows, fweights, aweights, less)
    return out[0, 0] if out.shape == (1, 1) else out


def _weighted_covariance(rows: Array, fweights: Any, aweights: Any, less: Any) -> Array:
    """NumPy's: the weights' sum, lessened by `less` times their mean share of reliability."""
    if fweights is not None and asarray(fweights).dtype.kind not in "iu":
        raise TypeMismatch(f"cov: fweights must be integers, not {asarray(fweights).type}")
    given = [abs(asarray(w)).astype(rows.dtype) for w in (fweights, aweights) if w is not None]
    for weights in given:
        if weights.shape != rows.shape[1:]:
            raise ShapeError(f"cov: weights {weights.type} for {rows.shape[1]} observations")
    weights = given[0] * given[1] if len(given) == 2 else given[0]
    total = sum(weights)
    lost = less if aweights is None else less * sum(weights * given[-1]) / total
    centred = rows - sum(rows * weights, 1, keepdims=True) / total
    return ((centred * weights) @ centred.conj().T) / (total - lost)


@replayed
@gives_strong
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, dtype: Any = None) -> Array:
    """Correlation coefficients of the variables in the rows.

    >>> jnp.corrcoef(jnp.array([1.0, 2.0, 3.0]), jnp.array([3.0, 2.0, 1.0])).round(3)
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    matrix = cov(x, y, rowvar, dtype=dtype)
    if matrix.ndim == 0:
        return matrix / matrix
    spread = sqrt(matrix.diagonal().real)
    shares = matrix / outer(spread, spread)
    if dt.is_complex(shares.dtype):  # rounding may lead beyond 1
        return OPS["complex"](clip(shares.real, -1, 1), clip(shares.imag, -1, 1))
    return clip(shares, -1, 1)


@replayed
@gives_strong
def median(
    a: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """Middle of the sorted elements.

    >>> jnp.median(jnp.array([3.0, 1.0, 2.0, 10.0]))
    Array(2.5, dtype=float32)
    """
    no_out("median", out)
    return quantile(a, 0.5, axis, keepdims=keepdims)


def _no_weights(name: str, weights: Any) -> None:
    if weights is not None:
        raise UnsupportedError(f"{name}: every element counts once; weights must be None")


@replayed
@gives_strong
def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: None = None,
) -> Array:
    """Quantile by linear interpolation; q is a number or a vector. Below 0 it counts as 0, above 1
    as 1.

    >>> jnp.quantile(jnp.arange(5.0), jnp.array([0.0, 0.5, 0.9]))
    Array([0. , 2. , 3.6], dtype=float32)
    >>> jnp.quantile(jnp.arange(5.0), 0.9, method="nearest")
    Array(4., dtype=float32)
    """
    _no_weights("quantile", weights)
    no_out("quantile", out)
    (value,) = promoted("quantile", a, inexact=True, numbers=False)
    axes = axes_tuple(axis, value.ndim, "quantile")
    ordered = _ordered(value, axes)
    if not ordered.shape[-1]:
        raise ShapeError(f"quantile: {value.type} has no elements over axes {axes}")
    position = _fractions("quantile", q, value.dtype) * (ordered.shape[-1] - 1)
    found = _between("quantile", position, method, lambda place: ordered[..., place])
    found = where(
        spread_to(
            isnan(ordered[..., -1:]) if found.ndim == ordered.ndim else isnan(ordered[..., -1]),
            found.shape,
        ),
        math.nan,
        found,
    )
    if type_of(position).ndim:
        found = moveaxis(found, -1, 0)
    if keepdims:
        kept = tuple(1 if i in axes else s for i, s in enumerate(value.shape))
        found = reshape(found, (*type_of(position).shape, *kept))
    return found


def _ordered(value: Array, axes: tuple[int, ...]) -> Array:
    """[the other axes, sorted elements of the given ones]; NaN last."""
    rest = [i for i in range(value.ndim) if i not in axes]
    flat = OPS["transpose"](value, permutation=(*rest, *axes))
    size = math.prod(value.shape[i] for i in axes)
    flat = reshape(flat, (*(value.shape[i] for i in rest), size))
    return OPS["sort"](flat, axis=flat.ndim - 1, keys=1)[0]


def _fractions(name: str, q: Any, dtype: np.dtype) -> Array:
    """q between 0 and 1."""
    if isinstance(q, int | float):
        return cast(asarray(float(np.clip(q, 0, 1))), dtype)
    fractions = asarray(q)
    if fractions.ndim > 1:
        raise ShapeError(f"{name}: q must be a number or a vector, not {fractions.type}")
    return clip(cast(fractions, dtype), 0, 1)


_PICKS = {"lower": "floor", "higher": "ceil", "nearest": "round"}  # methods that read one element


_MIXES = ("linear", "midpoint")


def _between(name: str, position: Array, method: str, at: Callable[[Array], Array]) -> Array:
    """What lies at a position between two elements, which `at` reads."""
    if method in _PICKS:
        return at(cast(OPS[_PICKS[method]](position), dt.int32))
    if method not in _MIXES:
        known = ", ".join((*_MIXES, *_PICKS))
        raise BadArgument(f"{name}: unknown method {method!r}, not one of {known}")
    low, high = OPS["floor"](position), OPS["ceil"](position)
    share = position - low if method == "linear" else (high - low) * 0.5
    below, above = (at(cast(p, dt.int32)) for p in (low, high))
    mixed = below * (1 - share) + above * share
    return where(share == 0, below, mixed)  # infinity times 0 is NaN


@replayed
@gives_strong
def nanquantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: None = None,
) -> Array:
    """Quantile of the elements that are not NaN (NaN if all are).

    >>> jnp.nanquantile(jnp.array([1.0, jnp.nan, 3.0]), 0.25)
    Array(1.5, dtype=float32)
    """
    _no_weights("nanquantile", weights)
    no_out("nanquantile", out)
    (value,) = promoted("nanquantile", a, inexact=True, numbers=False)
    axes = axes_tuple(axis, value.ndim, "nanquantile")
    ordered = _ordered(value, axes)
    fractions = _fractions("nanquantile", q, value.dtype)
    last = sum(cast(~isnan(ordered), value.dtype), -1, keepdims=True) - 1
    position = maximum(last, 0) * reshape(fractions, (-1,))
    result = _between("nanquantile", position, method, lambda i: take_along_axis(ordered, i, -1))
    result = moveaxis(where(last < 0, math.nan, result), -1, 0)  # [q, the other axes]
    kept = tuple(1 if i in axes else s for i, s in enumerate(value.shape))
    rest = kept if keepdims else result.shape[1:]
    return reshape(result, (*fractions.shape, *rest))


@replayed
@gives_strong
def nanpercentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: None = None,
) -> Array:
    """nanquantile with q in percent.

    >>> jnp.nanpercentile(jnp.array([1.0, jnp.nan, 3.0]), 25)
    Array(1.5, dtype=float32)
    """
    _no_weights("nanpercentile", weights)
    no_out("nanpercentile", out)
    return nanquantile(a, asarray(q) / 100, axis, method=method, keepdims=keepdims)


@replayed
@gives_strong
def nanmedian(
    a: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """Median of the elements that are not NaN.

    >>> jnp.nanmedian(jnp.array([1.0, jnp.nan, 3.0]))
    Array(2., dtype=float32)
    """
    no_out("nanmedian", out)
    return nanquantile(a, 0.5, axis, keepdims=keepdims)


@replayed
@gives_strong
def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: None = None,
) -> Array:
    """Quantile with q in percent.

    >>> jnp.percentile(jnp.arange(5.0), jnp.array([25, 50]))
    Array([1., 2.], dtype=float32)
    """
    _no_weights("percentile", weights)
    no_out("percentile", out)
    return quantile(a, asarray(q) / 100, axis, method=method, keepdims=keepdims)


@replayed
@gives_strong
def digitize(x: Any, bins: Any, right: bool = False, *, method: str | None = None) -> Array:
    """Which bin each element falls into; bins may fall as well as rise.

    >>> jnp.digitize(jnp.array([0.5, 1.0, 7.0]), jnp.array([0.0, 1.0, 5.0]))
    Array([1, 2, 3], dtype=int32)
    """
    edges, side = value_of(bins, "digitize"), "left" if right else "right"
    rising = searchsorted(edges, x, side)
    if edges.ndim != 1 or edges.shape[0] < 2:
        return rising
    falling = edges.shape[0] - searchsorted(flip(edges), x, side)
    return where(edges[-1] >= edges[0], rising, falling)


def bincount(
    x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None
) -> Array:
    """How often each value of a vector of integers or bools occurs; negative ones count as 0, those
    beyond `length` not at all. Traced input needs `length`.

    >>> jnp.bincount(jnp.array([0, 2, 2]))
    Array([1, 0, 2], dtype=int32)
    >>> jnp.bincount(jnp.array([0, 2, 2]), weights=jnp.array([1.0, 0.5, 0.5]), length=4)
    Array([1., 0., 1., 0.], dtype=float32)
    """
    value = vector_of(x, "bincount")
    if value.dtype.kind not in "iub":
        raise TypeMismatch(f"bincount: x must be integers or bools, not {value.type}")
    value = value.astype(dt.int32) if value.dtype.kind == "b" else maximum(value, 0)
    if length is None:
        seen = known_values(value, "bincount", "pass length=")
        length = max(minlength, int(seen.max()) + 1 if seen.size else 0)
    amount = _one(dt.int32) if weights is None else value_of(weights)
    if weights is not None and amount.shape != value.shape:
        raise ShapeError(f"bincount: weights {amount.type} for x {value.type}: one each is needed")
    return _counted(value, amount, length)


def _counted(value: Array, amount: Array, length: int) -> Array:
    """How much falls on each number below `length`; `amount` is one for all values or one each."""
    start = OPS["broadcast"](Concrete(np.zeros((), amount.dtype)), shape=(length,), axes=())
    return setitem(start, value, amount, "add", mode="drop")


def _one(dtype: np.dtype) -> Array:
    return Concrete(np.ones((), dtype))


def histogram(
    a: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool = False
):
    """Counts per bin and the bin edges, both in floats as in JAX.

    >>> jnp.histogram(jnp.array([0.0, 1.0, 1.0, 4.0]), bins=2)
    (Array([3., 1.], dtype=float32), Array([0., 2., 4.], dtype=float32))
    """
    amounts = [] if weights is None else [reshape(value_of(weights), (-1,))]
    apart = bool(amounts) and dt.is_complex(amounts[0].dtype)
    parts = [a] if apart else [a, *amounts]
    value, *alike = promoted("histogram", *parts, inexact=True, numbers=False, broadcast=False)
    value = reshape(value, (-1,))
    dtype = amounts[0].dtype if apart else value.dtype
    wide = dt.float32 if dtype.itemsize < 4 else dtype  # bfloat16 counts to 256
    weights = cast(amounts[0] if apart else alike[0], wide) if amounts else _one(wide)
    edges = histogram_bin_edges(value, bins, range)
    place = searchsorted(edges, value, "right") - 1
    last = edges.shape[0] - 2
    place = where(value == edges[-1], last, place)
    place = where((place < 0) | (place > last), last + 1, place)
    counts = _counted(place, weights, last + 1)
    if density:
        counts = counts / (counts.sum() * (edges[1:] - edges[:-1]))
    return cast(counts, dtype), edges


@gives_strong
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Array:
    """Edges of equal bins over the data's range (0 ... 1 of no data; at least 1 wide if it is one
    value). The outer edges are the range's ends exactly.

    >>> jnp.histogram_bin_edges(jnp.array([0.0, 1.0, 4.0]), bins=4)
    Array([0., 1., 2., 3., 4.], dtype=float32)
    """
    data = value_of(a)
    dtype = dt.inexact_for(data.dtype)
    if not isinstance(bins, int):
        return cast(value_of(bins), dtype)
    value = cast(data, dt.float32) if dtype.itemsize < 4 else cast(data, dtype)
    if range is None:
        range = (value.min(), value.max()) if value.size else (0.0, 1.0)
    low, high = (cast(value_of(end), value.dtype) for end in range)
    flat = low == high
    ends = where(flat, low - 0.5, low), where(flat, high + 0.5, high)
    return cast(linspace(*ends, bins + 1), dtype)


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Array, list[Array]]:
    """Counts in a grid of bins, and the edges along each axis.

    sample: [n, d], or a sequence of d vectors. bins: how many along every axis, or a sequence of
    d numbers or vectors of edges. range: (low, high) or None for each axis.

    >>> counts, edges = jnp.histogramdd(jnp.array([[0.0, 0.0], [1.0, 4.0]]), bins=2)
    >>> counts
    Array([[1, 0],
           [0, 1]], dtype=int32)
    """
    points = stack(sample, 1) if isinstance(sample, list | tuple) else value_of(sample)
    if points.ndim != 2:
        raise ShapeError(f"histogramdd: the sample must be [n, d], not {points.type}")
    count = points.shape[1]
    every = [bins] * count if isinstance(bins, int) else list(bins)
    ranges = [None] * count if range is None else list(range)
    if len(every) != count or len(ranges) != count:
        raise BadArgument(
            f"histogramdd: {len(every)} bins and {len(ranges)} ranges for {count} axes"
        )
    edges = [
        histogram_bin_edges(points[:, i], b, r)
        for i, (b, r) in enumerate(zip(every, ranges, strict=True))
    ]
    place: Any = 0
    outside: Any = False
    for i, ends in enumerate(edges):
        size = ends.shape[0] - 1
        at = searchsorted(ends, points[:, i], "right") - 1
        at = where(points[:, i] == ends[-1], size - 1, at)
        outside = outside | (at < 0) | (at >= size)
        place = place * size + at
    shape = tuple(ends.shape[0] - 1 for ends in edges)
    total = math.prod(shape)
    amount = _one(dt.int32) if weights is None else value_of(weights)
    counts = reshape(_counted(where(outside, total, place), amount, total), shape)
    if density:
        volume: Any = 1.0
        for i, ends in enumerate(edges):
            widths = ends[1:] - ends[:-1]
            volume = volume * reshape(
                widths, tuple(-1 if i == j else 1 for j in builtins.range(count))
            )
        counts = counts / (counts.sum() * volume)
    return counts, edges


@gives_strong
def histogram2d(
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Any = None,
    weights: Any = None,
    density: bool | None = None,
) -> tuple[Array, Array, Array]:
    """Counts in a grid of bins of x and y, and the edges along both; see `histogramdd`.

    One vector of edges stands for both axes.

    >>> x = jnp.array([0.0, 1.0, 4.0])
    >>> counts, x_edges, y_edges = jnp.histogram2d(x, x, bins=2)
    >>> counts
    Array([[2, 0],
           [0, 1]], dtype=int32)
    """
    if not isinstance(bins, int) and len(bins) != 2:
        bins = [bins, bins]
    counts, (first, second) = histogramdd([x, y], bins, range, weights, density)
    return counts, first, second
