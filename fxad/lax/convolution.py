"""Convolutions: conv_general_dilated and its patches, conv, conv_with_general_padding,
conv_transpose.

y = conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

The windows of the padded input become axes of their own, made of slices (of which each spatial
axis needs as many as the kernel is long), and one product contracts them with the kernel.
Where each feature of the input gives one of the result, so that a product would have one row, large
ones that are compiled multiply slices by their elements of the kernel and add them in fused loops.
Outside jit these windows would be copied, so that large convolutions run compiled there too, as in
JAX: no single op of theirs is slow, but a compiled product reads the input in place.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxad.api.compiled import interpreting
from fxad.api.jit import jit
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.core.precision import default_terms
from fxad.ir.program import OPS
from fxad.lax.loops import fori_loop
from fxad.lax.shapes import dynamic_slice_in_dim
from fxad.lax.shapes import pad as padded
from fxad.lax.windows import padtype_to_pads
from fxad.numpy.core import cast, promoted, stack_values, value_of
from fxad.numpy.creation import zeros
from fxad.numpy.manipulation import slice_axis
from fxad.numpy.products import product
from fxad.ops.matrices.product import accumulator, check_result
from fxad.trace.array import Array
from fxad.trace.replay import replaying
from fxad.trace.tracer import staging

_MOST_SLICES = 32  # longer kernels gather their windows; where they are added, a loop takes
_SLICES = 16  # so many elements at a time (docs/log.md)
_FUSED = 1 << 12  # elements of windows from which one loop is faster than few ops
_LARGE = 1 << 16  # elements of windows; to copy fewer is cheaper than to compile (docs/log.md)


class ConvDimensionNumbers(NamedTuple):
    """Axes of batch, features, spatial...; of output features, input features, spatial...; of
    batch, features, spatial... in the result.

    >>> fxad.lax.conv_dimension_numbers((8, 28, 3), (5, 3, 16), ("NWC", "WIO", "NWC")).rhs_spec
    (2, 1, 0)
    """

    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """Axis numbers from letters such as ("NHWC", "HWIO", "NHWC"); None means ("NCHW", "OIHW", ...).

    N and C are batch and features, O and I output and input features; the other letters are
    spatial axes, in the order of the kernel's. Raises ShapeError or BadArgument.

    >>> fxad.lax.conv_dimension_numbers((8, 28, 28, 3), (5, 5, 3, 16), ("NHWC", "HWIO", "NHWC"))
    ConvDimensionNumbers(lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2))
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    rank = len(lhs_shape)
    if len(rhs_shape) != rank or rank < 2:
        raise ShapeError(
            f"convolution: input {tuple(lhs_shape)} and kernel {tuple(rhs_shape)} must have "
            "equally many axes, two and the spatial ones"
        )
    if dimension_numbers is None:
        order = tuple(range(rank))
        return ConvDimensionNumbers(order, order, order)
    lhs, rhs, out = dimension_numbers
    spatial = [c for c in rhs if c not in "OI"]
    for text, letters in ((lhs, "NC"), (rhs, "OI"), (out, "NC")):
        if sorted(text) != sorted([*letters, *spatial]) or len(text) != rank:
            raise BadArgument(
                f"convolution: dimension_numbers {tuple(dimension_numbers)} do not name the {rank} "
                'axes of both operands; they look like ("NHWC", "HWIO", "NHWC")'
            )
    return ConvDimensionNumbers(
        tuple(lhs.index(c) for c in ("N", "C", *spatial)),
        tuple(rhs.index(c) for c in ("O", "I", *spatial)),
        tuple(out.index(c) for c in ("N", "C", *spatial)),
    )


def _dilated(size: int, factor: int) -> int:
    """Length with factor - 1 holes between neighbours."""
    return builtins.max((size - 1) * factor + 1, 0)


def _windows(x: Array, axis: int, length: int, stride: int, dilation: int) -> Array:
    """Windows along one axis, whose elements become the last axis but one."""
    count = builtins.max((x.shape[axis] - _dilated(length, dilation)) // stride + 1, 0)
    if not length:
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 : -1], 0, x.shape[-1])
        return zeros(shape, x.dtype)
    if length > _MOST_SLICES:
        starts = np.arange(count, dtype=np.int32)[:, None] * stride
        rows = x[(slice(None),) * axis + (starts + np.arange(length, dtype=np.int32) * dilation,)]
        order = [i for i in range(rows.ndim) if i != axis + 1]
        return OPS["transpose"](rows, permutation=(*order[:-1], axis + 1, order[-1]))
    firsts = [k * dilation if count else 0 for k in range(length)]
    last = (count - 1) * stride + 1 if count else 0
    parts = [slice_axis(x, axis, start, start + last, stride) for start in firsts]
    return stack_values(parts, x.ndim - 1)


def _grouped(value: Array, axis: int, groups: int) -> Array:
    """One axis cut in groups, which come first."""
    shape = value.shape
    cut = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    order = (axis, *(i for i in range(len(cut)) if i != axis))
    return OPS["transpose"](OPS["reshape"](value, shape=cut), permutation=order)


def _per_axis(name: str, given: Any, count: int) -> tuple[int, ...]:
    values = (1,) * count if given is None else given
    if isinstance(given, int) or len(values) != count or builtins.any(v < 1 for v in values):
        raise BadArgument(
            f"convolution: {name} must be {count} positive ints, one per spatial axis, got {given}"
        )
    return tuple(values)


def _check_groups(x: tuple[int, int], w: tuple[int, int], features: int, batches: int) -> None:
    """x: batch and features of the input; w: output and input features of the kernel."""
    if features > 1 and batches > 1:
        raise BadArgument("convolution: feature groups and batch groups exclude each other")
    if x[1] != w[1] * features or w[0] % (features * batches):
        raise ShapeError(
            f"convolution: an input of {x[1]} features in {features} groups does not fit a "
            f"kernel from {w[1]} to {w[0]} features"
        )
    if x[0] % batches:
        raise ShapeError(f"convolution: a batch of {x[0]} has no {batches} equal groups")


def _pads(
    padding: Any, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int]
) -> list:
    if isinstance(padding, str):
        return padtype_to_pads(sizes, kernel, strides, padding)
    try:
        pads = [(operator.index(low), operator.index(high)) for low, high in padding]
    except TypeError:
        pads = []
    if len(pads) != len(sizes):
        raise BadArgument(
            f"convolution: padding must be {len(sizes)} pairs, one per spatial axis, got {padding}"
        )
    return pads


class _Placed(NamedTuple):
    """Where windows lie along each spatial axis. config: (low, high, holes), as `pad` takes them;
    spread: from an element of a window to the next. windows: how many, along all axes."""

    strides: tuple[int, ...]
    config: tuple[tuple[int, int, int], ...]
    spread: tuple[int, ...]
    windows: int


def _placed(
    sizes: Sequence[int],
    lengths: Sequence[int],
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any,
    rhs_dilation: Any,
) -> _Placed:
    """Of windows of so many elements; the rest is what a convolution is given."""
    strides = _per_axis("window_strides", window_strides, len(sizes))
    holes = _per_axis("lhs_dilation", lhs_dilation, len(sizes))
    spread = _per_axis("rhs_dilation", rhs_dilation, len(sizes))
    sizes = [_dilated(n, d) for n, d in zip(sizes, holes, strict=True)]
    kernel = [_dilated(n, d) for n, d in zip(lengths, spread, strict=True)]
    pads = _pads(padding, sizes, kernel, strides)
    config = tuple((low, high, d - 1) for (low, high), d in zip(pads, holes, strict=True))
    windows = math.prod(
        builtins.max((n + low + high - k) // stride + 1, 0)
        for n, (low, high), k, stride in zip(sizes, pads, kernel, strides, strict=True)
    )
    return _Placed(strides, config, spread, windows)


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """Cross-correlation of lhs [batch, features, spatial...] with the kernel rhs [out, in, ...].

    padding: "SAME", "VALID", "SAME_LOWER" or pairs (low, high), which may be negative.
    Dilations put holes into the input (a transposed convolution) or the kernel; groups split the
    features or the batch. Any number of spatial axes, in the order `dimension_numbers` says.

    Raises ShapeError or BadArgument where the arguments do not fit each other.

    >>> x, edge = jnp.array([0.0, 0.0, 1.0, 1.0, 1.0]), jnp.array([-1.0, 1.0])
    >>> fxad.lax.conv_general_dilated(x[None, None], edge[None, None], (1,), "VALID")[0, 0]
    Array([0., 1., 0., 0.], dtype=float32)
    >>> images, kernel = jnp.ones((8, 28, 28, 3)), jnp.ones((5, 5, 3, 16))
    >>> axes = ("NHWC", "HWIO", "NHWC")
    >>> fxad.lax.conv_general_dilated(images, kernel, (2, 2), "SAME", dimension_numbers=axes).shape
    (8, 14, 14, 16)
    """
    x, w = promoted("convolution", lhs, rhs, numbers=False, broadcast=False)
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    batch, features, *spatial = numbers.lhs_spec
    outputs, inputs, *window = numbers.rhs_spec
    _check_groups(
        (x.shape[batch], x.shape[features]),
        (w.shape[outputs], w.shape[inputs]),
        feature_group_count,
        batch_group_count,
    )
    lengths = [w.shape[i] for i in window]
    placed = _placed(
        [x.shape[i] for i in spatial], lengths, window_strides, padding, lhs_dilation, rhs_dilation
    )
    run: Callable[..., Array] = _convolve
    size = placed.windows * math.prod(lengths) * x.shape[batch] * x.shape[features]
    fused = staging() and not replaying() and size >= _FUSED
    if size >= _LARGE and not (staging() or interpreting()):
        run, fused = _compiled(), True
    return run(
        x,
        w,
        numbers=numbers,
        placed=placed,
        groups=(feature_group_count, batch_group_count),
        wide=preferred_element_type,
        precision=precision,
        fused=fused,
    )


def _convolve(
    x: Array,
    w: Array,
    *,
    numbers: ConvDimensionNumbers,
    placed: _Placed,
    groups: tuple[int, int],
    wide: Any,
    precision: Any,
    fused: bool,
) -> Array:
    """The convolution of what `conv_general_dilated` has checked. groups: of features, of
    batches. fused: whether it is compiled, so that many ops may be one loop."""
    batch, features, *spatial = numbers.lhs_spec
    x = OPS["transpose"](x, permutation=(batch, *spatial, features))
    outputs, inputs, *window = numbers.rhs_spec
    w = OPS["transpose"](w, permutation=(*window, inputs, outputs))
    apart = w.shape[-2] == 1 and w.shape[-1] == x.shape[-1] and groups[1] == 1
    plain = precision is None and default_terms() is None and not dt.is_bool(x.dtype)
    if apart and plain and fused:
        out = _added(x, w[..., 0, :], placed, wide)
    else:
        x = _all_windows(x, w.shape[: len(spatial)], placed)
        out = _contract(x, w, *groups, wide, precision)
    return _in_order(out, numbers.out_spec)


def _added(x: Array, w: Array, placed: _Placed, wide: Any) -> Array:
    """[batch, spatial..., features] with [kernel..., features] -> [batch, out..., features]: slices
    of x, each times an element of every feature's kernel."""
    wanted = x.dtype if wide is None else dt.canonicalize(wide, explicit=True)
    check_result(x.type, w.type, wanted)
    sums = accumulator(x.dtype, wanted)
    x, w = cast(_padded(x, placed), sums), cast(w, sums)
    lengths = w.shape[:-1]
    counts = [
        builtins.max((size - _dilated(length, spread)) // stride + 1, 0)
        for size, length, stride, spread in zip(
            x.shape[1:-1], lengths, placed.strides, placed.spread, strict=True
        )
    ]
    if 0 in counts:
        return zeros((x.shape[0], *counts, x.shape[-1]), wanted)
    return cast(_sum_of_slices(x, w, placed, counts, 0), wanted)


def _sum_of_slices(x: Array, w: Array, placed: _Placed, counts: Sequence[int], axis: int) -> Array:
    """`_added`, where the kernel has been taken apart along the first `axis` of its axes."""
    if axis == len(counts):
        return x * w
    length, stride, spread = w.shape[0], placed.strides[axis], placed.spread[axis]
    extent = (counts[axis] - 1) * stride + 1

    def one(x: Array, w: Array, k: int) -> Array:
        taken = slice_axis(x, axis + 1, k * spread, k * spread + extent, stride)
        return _sum_of_slices(taken, w[k], placed, counts, axis + 1)

    def some(x: Array, w: Array) -> Array:
        return functools.reduce(operator.add, [one(x, w, k) for k in range(w.shape[0])])

    rest = math.prod(w.shape[1:-1])
    if length * rest <= _MOST_SLICES:
        return some(x, w)
    step = builtins.max(_SLICES // rest, 1)
    last = length % step

    def more(i: Array, total: Array) -> Array:
        part = dynamic_slice_in_dim(x, i * (step * spread), extent + (step - 1) * spread, axis + 1)
        return total + some(part, dynamic_slice_in_dim(w, i * step, step, 0))

    first = zeros((x.shape[0], *counts, x.shape[-1]), x.dtype)
    if last:
        begun = slice_axis(x, axis + 1, (length - last) * spread, x.shape[axis + 1], 1)
        first = some(begun, w[length - last :])
    return fori_loop(0, length // step, more, first)


def _padded(x: Array, placed: _Placed) -> Array:
    if any(entry != (0, 0, 0) for entry in placed.config):
        return padded(x, 0, [(0, 0, 0), *placed.config, (0, 0, 0)])
    return x


def _all_windows(x: Array, lengths: Sequence[int], placed: _Placed) -> Array:
    """[batch, spatial..., features] -> [batch, out..., kernel..., features]."""
    x = _padded(x, placed)
    for axis, length in enumerate(lengths):
        x = _windows(x, axis + 1, length, placed.strides[axis], placed.spread[axis])
    return x


@functools.cache
def _compiled() -> Callable[..., Array]:
    settings = ("numbers", "placed", "groups", "wide", "precision", "fused")
    return jit(_convolve, static_argnames=settings)


def _in_order(out: Array, spec: Sequence[int]) -> Array:
    """[batch, spatial..., features] with batch, features, spatial... at the axes of `spec`."""
    order = [0] * out.ndim
    for source, target in zip([0, out.ndim - 1, *range(1, out.ndim - 1)], spec, strict=True):
        order[target] = source
    return OPS["transpose"](out, permutation=tuple(order))


def _contract(x: Array, w: Array, features: int, batches: int, wide: Any, precision: Any) -> Array:
    """[batch, out..., kernel..., in] with [kernel..., in, out] -> [batch, out..., out]."""
    count = w.ndim - 2
    inner = tuple(range(count + 1)), tuple(range(count + 1))
    window = tuple(range(count + 1, 2 * count + 2))
    groups = features * batches
    if groups == 1:
        return product(x, w, (window, inner[1]), wide=wide, precision=precision)
    x = _grouped(x, x.ndim - 1 if features > 1 else 0, groups)
    w = _grouped(w, w.ndim - 1, groups)
    shifted = tuple(i + 1 for i in window), tuple(i + 1 for i in inner[1])
    out = product(x, w, shifted, ((0,), (0,)), wide, precision)  # [group, batch, out..., features]
    order = (*range(1, out.ndim - 1), 0, out.ndim - 1)
    out = OPS["transpose"](out, permutation=order)
    return OPS["reshape"](out, shape=(*out.shape[:-2], out.shape[-2] * out.shape[-1]))


def conv_general_dilated_patches(
    lhs: Any,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """The windows that a kernel of `filter_shape` meets in `conv_general_dilated`, one after the
    other along the axis of features: of each feature all elements of the window, in the order of
    the kernel's axes.

    `precision` changes nothing, for nothing is multiplied. Raises ShapeError or BadArgument.

    >>> x = jnp.arange(5.0)[None, None]
    >>> fxad.lax.conv_general_dilated_patches(x, (3,), (1,), "VALID")[0]
    Array([[0., 1., 2.],
           [1., 2., 3.],
           [2., 3., 4.]], dtype=float32)
    """
    x = value_of(lhs, "conv_general_dilated_patches")
    count = builtins.max(x.ndim - 2, 0)
    sizes = _per_axis("filter_shape", filter_shape, count)
    shape = _kernel_shape(sizes, dimension_numbers)
    numbers = conv_dimension_numbers(x.shape, shape, dimension_numbers)
    batch, features, *spatial = numbers.lhs_spec
    window = numbers.rhs_spec[2:]
    lengths = [shape[i] for i in window]
    placed = _placed(
        [x.shape[i] for i in spatial], lengths, window_strides, padding, lhs_dilation, rhs_dilation
    )
    x = OPS["transpose"](x, permutation=(batch, *spatial, features))
    x = _all_windows(x, lengths, placed)
    kernels = sorted(range(count), key=window.__getitem__)
    order = (*range(count + 1), 2 * count + 1, *(count + 1 + i for i in kernels))
    out = OPS["transpose"](x, permutation=order)
    out = OPS["reshape"](out, shape=(*out.shape[: count + 1], math.prod(out.shape[count + 1 :])))
    if preferred_element_type is not None:
        out = out.astype(preferred_element_type)
    return _in_order(out, numbers.out_spec)


def _kernel_shape(filter_shape: Sequence[int], dimension_numbers: Any) -> tuple[int, ...]:
    """Of a kernel with a single input and output feature, its axes as `dimension_numbers` has
    them."""
    sizes, rank = iter(filter_shape), len(filter_shape) + 2
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        single = {*dimension_numbers.rhs_spec[:2]}
    else:
        spec = "OI" if dimension_numbers is None else dimension_numbers[1]
        single = {i for i, letter in enumerate(spec) if letter in "OI"}
    return tuple(1 if i in single else next(sizes, 1) for i in range(rank))


def conv(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """conv_general_dilated of [batch, features, spatial...] without dilation.

    >>> # sums of 3 neighbours
    >>> fxad.lax.conv(jnp.ones((1, 1, 4)), jnp.ones((1, 1, 3)), (1,), "SAME")
    Array([[[2., 3., 3., 2.]]], dtype=float32)
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_with_general_padding(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """conv_general_dilated of [batch, features, spatial...].

    >>> x, kernel = jnp.arange(1.0, 5.0)[None, None], jnp.ones((1, 1, 2))
    >>> # x[i-2] + x[i]
    >>> fxad.lax.conv_with_general_padding(x, kernel, (1,), [(1, 0)], rhs_dilation=(2,))
    Array([[[2., 4., 6.]]], dtype=float32)
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_transpose(
    lhs: Any,
    rhs: Any,
    strides: Sequence[int],
    padding: Any,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """Transposed ("fractionally strided") convolution: the input gets strides - 1 holes.

    padding: "SAME" (length times stride), "VALID" or pairs. dimension_numbers: channels last by
    default, ("NHWC", "HWIO", "NHWC"). `transpose_kernel` flips the kernel and swaps its features,
    which makes it the gradient of a convolution.

    >>> x, kernel = jnp.array([1.0, 2.0])[None, :, None], jnp.ones((2, 1, 1))
    >>> fxad.lax.conv_transpose(x, kernel, (2,), "SAME")[0, :, 0]  # upsampled
    Array([1., 1., 2., 2.], dtype=float32)
    """
    x, w = promoted("conv_transpose", lhs, rhs, numbers=False, broadcast=False)
    count = x.ndim - 2
    if dimension_numbers is None:
        letters = "".join(map(chr, range(97, 97 + count)))
        dimension_numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    strides = _per_axis("strides", strides, count)
    spread = _per_axis("rhs_dilation", rhs_dilation, count)
    spatial = numbers.rhs_spec[2:]
    if isinstance(padding, str):
        lengths = [_dilated(w.shape[i], d) for i, d in zip(spatial, spread, strict=True)]
        padding = [transposed_pads(k, s, padding) for k, s in zip(lengths, strides, strict=True)]
    if transpose_kernel:
        w = OPS["reverse"](w, axes=tuple(spatial))
        outputs, inputs = numbers.rhs_spec[:2]
        numbers = numbers._replace(rhs_spec=(inputs, outputs, *spatial))
    how = {"precision": precision, "preferred_element_type": preferred_element_type}
    return conv_general_dilated(x, w, (1,) * count, padding, strides, spread, numbers, **how)


def transposed_pads(kernel: int, stride: int, padding: str) -> tuple[int, int]:
    """Padding around the dilated input so that SAME multiplies lengths by the stride."""
    if padding == "SAME":
        total = kernel + stride - 2
        low = kernel - 1 if stride > kernel - 1 else -(-total // 2)
    elif padding == "VALID":
        total = kernel + stride - 2 + builtins.max(kernel - stride, 0)
        low = kernel - 1
    else:
        raise BadArgument(f"conv_transpose: padding must be SAME or VALID, got {padding!r}")
    return low, total - low
