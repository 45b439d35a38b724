"""Initial values of parameters: functions of (key, shape, dtype).

w = fxad.nn.initializers.he_normal()(key, (784, 256))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fxad import numpy, random
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.core.types import ArrayType
from fxad.numpy.core import axis_index, cast, full_of, shape_tuple, value_of
from fxad.numpy.manipulation import broadcast_to
from fxad.trace.array import Array

Initializer = Callable[..., Array]


def _dtype(given: Any, default: Any) -> Any:
    chosen = default if given is None else given
    return dt.default_float() if chosen is None else dt.canonicalize(chosen, explicit=True)


def zeros(key: Any, shape: Sequence[int], dtype: Any = None) -> Array:
    """All 0; the key is ignored."""
    return full_of(0, ArrayType(_dtype(dtype, None), shape_tuple(shape, "zeros")))


def ones(key: Any, shape: Sequence[int], dtype: Any = None) -> Array:
    """All 1; the key is ignored."""
    return full_of(1, ArrayType(_dtype(dtype, None), shape_tuple(shape, "ones")))


def constant(value: Any, dtype: Any = None) -> Initializer:
    """All `value`, which broadcasts."""

    def init(key: Any, shape: Sequence[int], own: Any = dtype) -> Array:
        return broadcast_to(cast(value_of(value), _dtype(own, dtype)), shape)

    return init


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Uniform in [0, scale)."""

    def init(key: Any, shape: Sequence[int], own: Any = dtype) -> Array:
        return random.uniform(key, shape, _dtype(own, dtype)) * scale

    return init


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Normal with mean 0."""

    def init(key: Any, shape: Sequence[int], own: Any = dtype) -> Array:
        return random.normal(key, shape, _dtype(own, dtype)) * stddev

    return init


def truncated_normal(
    stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0
) -> Initializer:
    """Standard normal limited to [lower, upper], times stddev."""

    def init(key: Any, shape: Sequence[int], own: Any = dtype) -> Array:
        return random.truncated_normal(key, lower, upper, shape, _dtype(own, dtype)) * stddev

    return init


# Standard deviation of the standard normal distribution limited to [-2, 2].
_TRUNCATED = 0.87962566103423978


def variance_scaling(
    scale: float,
    mode: str,
    distribution: str,
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (),
    dtype: Any = None,
) -> Initializer:
    """Variance scale / n, where n counts inputs ("fan_in"), outputs ("fan_out") or their mean
    ("fan_avg"), and the distribution is "truncated_normal", "normal" or "uniform".

    Axes that are neither in, out nor batch (a convolution's window) multiply both counts.
    """
    if mode not in ("fan_in", "fan_out", "fan_avg"):
        raise BadArgument(f"variance_scaling: unknown mode {mode!r}")
    if distribution not in ("truncated_normal", "normal", "uniform"):
        raise BadArgument(f"variance_scaling: unknown distribution {distribution!r}")

    def init(key: Any, shape: Sequence[int], own: Any = dtype) -> Array:
        wanted, sizes = _dtype(own, dtype), shape_tuple(shape, "variance_scaling")
        fan_in, fan_out = _fans(sizes, in_axis, out_axis, batch_axis)
        count = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[mode]
        variance = scale / max(1.0, count)
        if distribution == "uniform":
            return random.uniform(key, sizes, wanted, -1.0, 1.0) * math.sqrt(3 * variance)
        if distribution == "normal":
            return random.normal(key, sizes, wanted) * math.sqrt(variance)
        drawn = random.truncated_normal(key, -2.0, 2.0, sizes, wanted)
        return drawn * (math.sqrt(variance) / _TRUNCATED)

    return init


def _fans(shape: tuple[int, ...], in_axis: Any, out_axis: Any, batch_axis: Any) -> tuple:
    """How many inputs an output depends on, and the reverse."""
    if len(shape) < 2:
        raise ShapeError(f"variance_scaling: needs a shape with input and output axes, got {shape}")

    def size(axes: Any) -> int:
        listed = (axes,) if isinstance(axes, int) else tuple(axes)
        return math.prod(shape[axis_index(a, len(shape), "variance_scaling")] for a in listed)

    inputs, outputs, batch = size(in_axis), size(out_axis), size(batch_axis)
    window = math.prod(shape) / max(1, inputs * outputs * batch)
    return inputs * window, outputs * window


def _scaled(
    name: str, scale: float, mode: str, distribution: str, doc: str
) -> Callable[..., Initializer]:
    def make(
        in_axis: int | Sequence[int] = -2,
        out_axis: int | Sequence[int] = -1,
        batch_axis: int | Sequence[int] = (),
        dtype: Any = None,
    ) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = doc
    return make


glorot_uniform = xavier_uniform = _scaled(
    "glorot_uniform", 1.0, "fan_avg", "uniform", "Glorot and Bengio 2010, uniform."
)
glorot_normal = xavier_normal = _scaled(
    "glorot_normal", 1.0, "fan_avg", "truncated_normal", "Glorot and Bengio 2010, normal."
)
lecun_uniform = _scaled("lecun_uniform", 1.0, "fan_in", "uniform", "LeCun et al. 1998, uniform.")
lecun_normal = _scaled(
    "lecun_normal", 1.0, "fan_in", "truncated_normal", "LeCun et al. 1998, normal."
)
he_uniform = kaiming_uniform = _scaled(
    "he_uniform", 2.0, "fan_in", "uniform", "He et al. 2015, uniform."
)
he_normal = kaiming_normal = _scaled(
    "he_normal", 2.0, "fan_in", "truncated_normal", "He et al. 2015, normal."
)


def orthogonal(scale: float = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Orthonormal rows or columns, uniformly distributed, times scale (Saxe et al. 2014).

    The shape is seen as a matrix with column_axis as columns and all other axes as rows.
    """

    def init(key: Any, shape: Sequence[int], own: Any = dtype) -> Array:
        wanted, sizes = _dtype(own, dtype), shape_tuple(shape, "orthogonal")
        if len(sizes) < 2:
            raise ShapeError(f"orthogonal: needs a shape of at least two axes, got {sizes}")
        if 0 in sizes:
            return numpy.zeros(sizes, wanted)
        at = axis_index(column_axis, len(sizes), "orthogonal")
        rest = (*sizes[:at], *sizes[at + 1 :])
        drawn = random.orthogonal(key, math.prod(rest), (), wanted, sizes[at])
        return numpy.moveaxis(numpy.reshape(drawn, (*rest, sizes[at])), -1, at) * scale

    return init


def delta_orthogonal(scale: float = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Kernels of convolutions (window axes, in, out) that are an orthogonal matrix in the middle
    of the window and 0 elsewhere (Xiao et al. 2018). Needs out >= in."""

    def init(key: Any, shape: Sequence[int], own: Any = dtype) -> Array:
        wanted, sizes = _dtype(own, dtype), shape_tuple(shape, "delta_orthogonal")
        if len(sizes) not in (3, 4, 5) or sizes[-1] < sizes[-2]:
            raise ShapeError(
                f"delta_orthogonal: needs 3 to 5 axes, and at least as many outputs as inputs, "
                f"got {sizes}"
            )
        matrix = orthogonal(scale, column_axis, wanted)(key, sizes[-2:])
        middle = tuple((n - 1) // 2 for n in sizes[:-2])
        return numpy.zeros(sizes, wanted).at[middle].set(matrix)

    return init
