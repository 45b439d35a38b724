"""Shapes of the results of convolutions and of folds of windows, from shapes alone.

conv_general_shape_tuple((8, 28, 28, 1), (3, 3, 1, 32), (2, 2), "SAME", ("NHWC", "HWIO", "NHWC"))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxad.core.errors import ShapeError
from fxad.lax.convolution import conv_dimension_numbers, transposed_pads
from fxad.lax.windows import padtype_to_pads

Shape = tuple[int, ...]


def _counts(
    sizes: Sequence[int], windows: Sequence[int], strides: Sequence[int], padding: Any
) -> Shape:
    """How many windows fit along each axis."""
    pads = padding
    if isinstance(padding, str):
        pads = padtype_to_pads(sizes, windows, strides, padding)
    if not len(sizes) == len(windows) == len(strides) == len(pads):
        raise ShapeError(
            f"windows {tuple(windows)}, strides {tuple(strides)} and padding {padding} must have "
            f"one entry for each of the sizes {tuple(sizes)}"
        )
    rows = zip(sizes, windows, strides, pads, strict=True)
    return tuple(max(0, (n + low + high - w) // s + 1) for n, w, s, (low, high) in rows)


def _dilated(sizes: Sequence[int], factors: Sequence[int] | None) -> list[int]:
    if factors is None:
        return list(sizes)
    return [max(0, (n - 1) * f + 1) for n, f in zip(sizes, factors, strict=True)]


def conv_general_permutations(dimension_numbers: Any) -> tuple[Shape, Shape, Shape]:
    """Of letters such as ("NHWC", "HWIO", "NHWC"): the axes of batch, features and space of the
    input; output features, input features and space of the kernel; and those of the result.

    >>> fxad.lax.conv_general_permutations(("NHWC", "HWIO", "NHWC"))
    ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    """
    rank = (1,) * len(dimension_numbers[0])
    return tuple(conv_dimension_numbers(rank, rank, dimension_numbers))  # type: ignore[return-value]


def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Sequence[int],
    pads: Any,
    batch_group_count: int = 1,
) -> Shape:
    """The shape of a convolution of batch, features, space... with a kernel of output features,
    input features, space...; its axes are those of the input.

    >>> fxad.lax.conv_shape_tuple((8, 3, 28, 28), (16, 3, 5, 5), (1, 1), [(0, 0), (0, 0)])
    (8, 16, 24, 24)
    """
    if lhs_shape[0] % batch_group_count:
        raise ShapeError(
            f"conv_shape_tuple: a batch of {lhs_shape[0]} has no {batch_group_count} equal groups"
        )
    space = _counts(lhs_shape[2:], rhs_shape[2:], strides, pads)
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *space)


def _arranged(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any
) -> tuple[list[int], list[int], Shape]:
    """Both shapes with batch and features first, and where the result's axes go."""
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    lhs = [lhs_shape[i] for i in numbers.lhs_spec]
    return lhs, [rhs_shape[i] for i in numbers.rhs_spec], numbers.out_spec


def _placed(shape: Sequence[int], axes: Shape) -> Shape:
    return tuple(shape[axes.index(i)] for i in range(len(shape)))


def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    dimension_numbers: Any,
) -> Shape:
    """The shape of `conv_general_dilated` without dilation.

    >>> axes = ("NHWC", "HWIO", "NHWC")
    >>> fxad.lax.conv_general_shape_tuple((8, 28, 28, 3), (5, 5, 3, 16), (2, 2), "SAME", axes)
    (8, 14, 14, 16)
    """
    lhs, rhs, axes = _arranged(lhs_shape, rhs_shape, dimension_numbers)
    return _placed(conv_shape_tuple(lhs, rhs, window_strides, padding), axes)


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    dimension_numbers: Any,
) -> Shape:
    """The shape of `conv_transpose` without dilation of the kernel.

    >>> axes = ("NHWC", "HWIO", "NHWC")
    >>> fxad.lax.conv_transpose_shape_tuple((8, 14, 14, 16), (5, 5, 16, 3), (2, 2), "SAME", axes)
    (8, 28, 28, 3)
    """
    lhs, rhs, axes = _arranged(lhs_shape, rhs_shape, dimension_numbers)
    if isinstance(padding, str):
        rows = zip(rhs[2:], window_strides, strict=True)
        padding = [transposed_pads(k, s, padding) for k, s in rows]
    ones = (1,) * len(window_strides)
    space = _counts(_dilated(lhs[2:], window_strides), rhs[2:], ones, padding)
    return _placed((lhs[0], rhs[0], *space), axes)


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Shape:
    """The shape of `reduce_window`.

    >>> fxad.lax.reduce_window_shape_tuple((8, 8), (2, 2), (2, 2), "VALID")
    (4, 4)
    """
    sizes = _dilated(operand_shape, base_dilation)
    spans = _dilated(window_dimensions, window_dilation)
    return _counts(sizes, spans, window_strides, padding)
