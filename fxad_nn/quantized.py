"""Frozen weights in 4 or 8 bits (QLoRA: Dettmers et al., 2023).

    weight = quantized(w, "nf4")                    # w [out, in] in bfloat16: 4.5 bits a number
    y = quantized_product(x, weight, 1, None)       # x [..., in] -> [..., out], in x's dtype

Blocks of 64 neighbours in a row share a scale (`fxad.nn.quantize`). A product unpacks a panel of
the weight at a time, forward and backward: neither the weight nor its gradient is ever in memory.
So do the products of mixtures of experts (`fxad.nn.quantized_ragged_dot`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import fxad
import fxad.numpy as jnp
from fxad_nn.arrays import from_rows

KINDS = ("nf4", "int8")
PART = 1 << 21  # elements that are quantised at once


@partial(
    fxad.tree.register_dataclass,
    data_fields=["codes", "scales"],
    meta_fields=["format", "columns", "dtype"],
)
@dataclass(frozen=True)
class Quantized:
    """A matrix [rows, columns] of `dtype`, which has the published layout, in few bits; or one of
    each of several experts, [experts, rows, columns]."""

    codes: Any
    scales: Any
    format: str
    columns: int
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.codes.shape[:-1], self.columns)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def dequantized(self, dtype: str | None = None) -> Any:
        """The numbers, in their own dtype unless another is given."""
        wanted = self.dtype if dtype is None else dtype
        codes, scales = (a.reshape(-1, a.shape[-1]) for a in (self.codes, self.scales))
        found = fxad.nn.dequantize(codes, scales, self.columns, self.format, wanted)
        return found.reshape(self.shape)


def is_quantized(value: Any) -> bool:
    """Whether a part of a tree is one matrix in few bits: an `is_leaf` for functions of trees."""
    return isinstance(value, Quantized)


def quantized(weight: Any, format: str) -> Quantized:
    """A matrix [rows, columns] of floats in few bits; raises as `fxad.nn.quantize`."""
    matrix = np.asarray(weight)
    rows, columns = len(matrix), matrix.shape[-1]
    return quantized_by_rows(lambda start, stop: matrix[start:stop], rows, columns, format)


def quantized_by_rows(
    read: Callable[[int, int], Any], rows: int, columns: int, format: str
) -> Quantized:
    """`quantized` of a matrix [rows, columns] of which read(start, stop) gives rows.

    About `PART` elements are read at a time and go straight to their place in the result: beside it
    there is never more than those in memory, whatever the size of the matrix.
    """
    dtypes = set()

    def part(start: int, stop: int) -> Any:
        some = read(start, stop)
        dtypes.add(str(some.dtype))
        return _quantize(format)(some)

    codes, scales = from_rows(part, rows, max(PART // max(columns, 1), 1))
    [dtype] = dtypes
    return Quantized(codes, scales, format, columns, dtype)


def stacked(rows: Quantized, experts: int) -> Quantized:
    """The matrices of experts, [experts, rows, columns], that lie one below the other."""
    codes, scales = (a.reshape(experts, -1, a.shape[1]) for a in (rows.codes, rows.scales))
    return replace(rows, codes=codes, scales=scales)


def _quantize(format: str) -> Any:
    return _QUANTIZE.setdefault(format, fxad.jit(partial(fxad.nn.quantize, format=format)))


_QUANTIZE: dict[str, Any] = {}


@partial(fxad.custom_vjp, nondiff_argnums=(2, 3, 4))
def quantized_product(
    x: Any, weight: Quantized, axis: int, products: str | None = None, unrounded: bool = False
) -> Any:
    """The product of the last axis of x with axis 0 or 1 of a frozen matrix: as
    `fxad_nn.layers.product`, but the matrix has no gradient. Both factors are of the dtype
    `products`, or of x's."""
    factors = _factors(x, products)
    wide = products is not None or (unrounded and x.dtype.itemsize < 4)
    return fxad.lax.dot_general(
        x.astype(factors),
        weight.dequantized(factors),
        (((x.ndim - 1,), (axis,)), ((), ())),
        preferred_element_type=jnp.float32 if wide else None,
    )


def _factors(x: Any, products: str | None) -> str:
    return str(x.dtype) if products is None else products


def _forward(
    x: Any, weight: Quantized, axis: int, products: str | None, unrounded: bool
) -> tuple[Any, tuple[Any, Quantized]]:
    y = quantized_product(x, weight, axis, products, unrounded)
    return y, (jnp.zeros(0, x.dtype), weight)  # of x, backward, the dtype alone is needed


def _backward(
    axis: int, products: str | None, unrounded: bool, saved: tuple[Any, Quantized], d_y: Any
) -> tuple[Any, None]:
    like_x, weight = saved
    factors = _factors(like_x, products)
    d_y = d_y.astype(factors)
    d_x = fxad.lax.dot_general(
        d_y,
        weight.dequantized(factors),
        (((d_y.ndim - 1,), (1 - axis,)), ((), ())),
        preferred_element_type=None if products is None else jnp.float32,
    )
    return d_x.astype(like_x.dtype), None


quantized_product.defvjp(_forward, _backward)


def quantized_ragged_product(
    rows: Any, weight: Quantized, sizes: Any, products: str | None = None
) -> Any:
    """rows [n, in] times the transposes of the experts' frozen matrices [experts, out, in]: the
    first sizes[0] rows with the first expert's, and so on. [n, out], in the dtype of rows; of
    factors rounded to `products` in float32."""
    return fxad.nn.quantized_ragged_dot(
        rows if products is None else rows.astype(products),
        weight.codes,
        weight.scales,
        sizes,
        weight.columns,
        weight.format,
        preferred_element_type=None if products is None else jnp.float32,
    )
