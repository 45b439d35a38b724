"""Calls of every function of fxad.lax (see jit_cases.py)."""

from __future__ import annotations

import numpy as np
from jit_cases import (
    ABOVE,
    BOOL,
    COUNT,
    CUBE,
    INT,
    PLACES,
    POSITIVE,
    SQUARE,
    UNIT,
    V,
    X,
    Y,
    Z,
    lax,
)

import fxad
from fxad import lax as l
from fxad.numpy.linalg import solve

# Elementwise
lax.call(
    "abs asinh atan bessel_i0e bessel_i1e cbrt ceil cos cosh erf erfc exp exp2 expm1 floor "
    "is_finite logistic neg reciprocal round sign sin sinh square tan tanh stop_gradient "
    "optimization_barrier",
    X,
)
lax.call("acos asin atanh erf_inv", UNIT)
lax.call("acosh digamma lgamma log log1p rsqrt sqrt", ABOVE)
lax.call("conj imag real", Z)
lax.call("add atan2 complex div eq ge gt le lt max min mul ne nextafter rem sub", X, Y)
lax.call("pow igamma igammac igamma_grad_a random_gamma_grad", POSITIVE, ABOVE)
lax.call("betainc", POSITIVE, ABOVE, UNIT)
lax.call("polygamma", 2.0, POSITIVE)
lax.call("zeta", ABOVE, POSITIVE)
lax.call("integer_pow", X, 3)
lax.call("bitwise_and bitwise_or bitwise_xor mulhi div rem", INT, COUNT)
lax.call("shift_left shift_right_arithmetic shift_right_logical", INT, COUNT)
lax.call("bitwise_not clz population_count", INT)
lax.call("clamp", -0.5, X, 0.5)
lax.call("select", BOOL, X, Y)
lax.call("select_n", COUNT % 3, X, Y, POSITIVE)
lax.call("reduce_precision", X, 5, 4)
lax.call("convert_element_type", X, np.int32)
lax.call("bitcast_convert_type", X, np.int32)

# Reductions and order
lax.call("reduce_max reduce_min reduce_prod reduce_sum", X, (1,))
lax.call("reduce_and reduce_or reduce_xor", INT, (1,))
lax.call("argmax argmin", X, 1)
lax.call("cumlogsumexp cummax cummin cumprod cumsum", X, 1)
lax.use("cumsum", lambda x: l.cumsum(x, 0, reverse=True), X)
lax.use("reduce", lambda x: l.reduce(x, np.float32(0), l.add, (0,)), X)
lax.use("reduce_window", lambda x: l.reduce_window(x, -np.inf, l.max, (2, 2), (1, 1), "VALID"), X)
lax.use("associative_scan", lambda x: l.associative_scan(l.mul, x, axis=1), X)
lax.call("sort", X)
lax.call("sort_key_val", V, np.arange(7.0))
lax.call("top_k approx_max_k approx_min_k", X, 2)
lax.call("segment_max segment_min segment_prod segment_sum", V[:4], PLACES, 3)

# Shapes
lax.call("broadcast", X, (2,))
lax.call("broadcast_in_dim", X, (3, 2, 4), (0, 2))
lax.call("broadcast_like", V[:4], X)
lax.call("broadcast_to_rank", X, 3)
lax.call("broadcasted_iota", np.int32, (2, 3), 1)
lax.call("iota", np.int32, 4)
lax.call("collapse", CUBE, 0, 2)
lax.call("concatenate", [X, Y], 0)
lax.call("stack", [X, Y])
lax.call("expand_dims", X, (1,))
lax.call("squeeze", X[None], (0,))
lax.call("full", (2, 3), 1.5)
lax.call("full_like", X, 2.0)
lax.call("pad", X, np.array(0.5, np.float32), [(1, 2, 0), (0, -1, 1)])
lax.call("reshape", X, (2, 6))
lax.call("rev", X, (1,))
lax.call("transpose", X, (1, 0))
lax.call("tile", X, (2, 1))
lax.call("split", X, [1, 3], 1)
lax.call("unstack", X)
lax.use("broadcast_shapes", lambda: l.broadcast_shapes((2, 1), (3,)))
lax.use("padtype_to_pads", lambda: l.padtype_to_pads((5,), (2,), (1,), "SAME"))

# Slices and indices
lax.call("slice", X, (0, 1), (2, 4))
lax.call("slice_in_dim", X, 1, 3, 1, 1)
lax.call("index_in_dim", X, 1)
lax.call("dynamic_index_in_dim", X, PLACES[0, ...])
lax.call("dynamic_slice", X, [PLACES[2, ...], PLACES[1, ...]], (2, 2))
lax.call("dynamic_slice_in_dim", X, PLACES[2, ...], 2)
lax.call("dynamic_update_index_in_dim", X, V[:4], PLACES[2, ...], 0)
lax.call("dynamic_update_slice", X, Y[:2, :2], [PLACES[2, ...], PLACES[1, ...]])
lax.call("dynamic_update_slice_in_dim", X, Y[:2], PLACES[2, ...], 0)
lax.use(
    "gather",
    lambda x, i: l.gather(x, i, l.GatherDimensionNumbers((1,), (0,), (0,)), (1, 4)),
    X,
    PLACES[:, None],
)
ROWS = l.ScatterDimensionNumbers((1,), (0,), (0,))
lax.call("scatter_add scatter_max scatter_min scatter_sub", X, PLACES[:3, None], Y, ROWS)
lax.use("scatter", lambda x, i, y: l.scatter(x, i, y, ROWS), X, PLACES[:3, None], Y)
lax.use(
    "scatter_mul",
    lambda x, i, y: l.scatter_mul(x, i, y, ROWS, unique_indices=True),
    X,
    PLACES[:3, None],
    Y,
)
lax.use(
    "scatter_apply",
    lambda x, i: l.scatter_apply(x, i, l.sin, ROWS, update_shape=(3, 4)),
    X,
    PLACES[:3, None],
)

# Products
lax.call("dot", X, SQUARE)
lax.call("batch_matmul", CUBE, CUBE.transpose(0, 2, 1))
lax.call("dot_general", X, Y, (((1,), (1,)), ((), ())))
SIZES = np.array([1, X.shape[0] - 2], np.int32)
lax.call("ragged_dot", X, np.stack([X.T, Y.T]), SIZES)
IMAGE, FILTER = CUBE[None], CUBE[:1, None, :2, :2].repeat(2, 1)
lax.call("conv conv_general_dilated conv_with_general_padding", IMAGE, FILTER, (1, 1), "SAME")
lax.call("conv_general_dilated_patches", IMAGE, (2, 2), (1, 1), "SAME")
lax.use(
    "conv_transpose",
    lambda x, w: l.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")),
    IMAGE,
    FILTER,
)
lax.use(
    "conv_dimension_numbers",
    lambda: tuple(l.conv_dimension_numbers((1, 2, 3, 4), (1, 2, 2, 2), ("NCHW", "OIHW", "NCHW"))),
)
lax.call("fft", Z, "FFT", (4,))

# Control flow and axes
lax.use("cond", lambda x: l.cond(x[0, 0] > 0, l.sin, l.cos, x), X)
lax.use("switch", lambda i, x: l.switch(i, [l.sin, l.cos, l.neg], x), PLACES[0, ...], X)
lax.use("fori_loop", lambda x: l.fori_loop(0, 3, lambda i, v: l.sin(v) + i, x), X)
lax.use(
    "while_loop", lambda x: l.while_loop(lambda v: v < 50, lambda v: v * 2, x), ABOVE[0, 0, ...]
)
lax.use("scan", lambda x: l.scan(lambda c, v: (c + v, c * v), x[0], x), X)
lax.use("map", lambda x: l.map(l.sin, x), X)
lax.use("platform_dependent", lambda x: l.platform_dependent(x, cpu=l.sin, default=l.cos), X)
lax.use(
    "binomial", lambda x: l.fori_loop(0, 6, lambda i, v: l.sin(v), x, checkpoints=l.binomial(2)), X
)
lax.use("tape", lambda x: l.scan(lambda c, v: (l.sin(c) * v, c), x[0], x, tape=l.tape())[0], X)
lax.use(
    "custom_linear_solve",
    lambda a, b: l.custom_linear_solve(
        lambda v: a @ v, b, lambda _, v: solve(a, v), lambda _, v: solve(a.T, v)
    ),
    SQUARE,
    V[:4],
)
lax.use(
    "custom_root",
    lambda x: l.custom_root(
        lambda y: y * y - x, x, lambda f, y: l.sqrt(x), lambda g, y: y / g(fxad.numpy.ones_like(y))
    ),
    ABOVE,
)


def over_rows(name: str, *args: object, **static: object) -> None:
    function = getattr(l, name)
    lax.use(
        name, fxad.vmap(lambda x: function(x, "rows", *args, **static), axis_name="rows"), SQUARE
    )


for name in ("psum", "pmean", "pmax", "pmin", "all_gather", "psum_scatter"):
    over_rows(name)
over_rows("ppermute", [(0, 1), (1, 0), (2, 3), (3, 2)])
over_rows("pshuffle", [1, 0, 3, 2])
over_rows("pswapaxes", 0)
over_rows("all_to_all", 0, 0)
lax.use("axis_index", fxad.vmap(lambda x: x + l.axis_index("rows"), axis_name="rows"), X)
lax.use("axis_size", fxad.vmap(lambda x: x + l.axis_size("rows"), axis_name="rows"), X)

# Shapes alone
IMAGES, FILTERS, LETTERS = (2, 7, 9, 3), (3, 2, 3, 4), ("NHWC", "HWIO", "NHWC")
for name in ("conv_general_shape_tuple", "conv_transpose_shape_tuple"):
    lax.call(name, IMAGES, FILTERS, (2, 1), "SAME", LETTERS)
lax.call("conv_shape_tuple", (2, 3, 7, 9), (4, 3, 3, 2), (2, 1), "VALID")
lax.call("conv_general_permutations", LETTERS)
lax.call("reduce_window_shape_tuple", IMAGES, (1, 2, 2, 1), (1, 2, 1, 1), [(0, 1)] * 4)
lax.call("index_take", CUBE, [PLACES % 2, PLACES], (0, 2))
