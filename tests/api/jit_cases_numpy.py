"""Calls of every function of fxad.numpy, its linalg and its fft (see jit_cases.py)."""

from __future__ import annotations

import numpy as np
from jit_cases import (
    ABOVE,
    BOOL,
    COUNT,
    CUBE,
    INT,
    NAN,
    ORDERED,
    PLACES,
    POSITIVE,
    SPD,
    SQUARE,
    UNIT,
    V,
    X,
    Y,
    Z,
    fft,
    linalg,
    numpy,
)

import fxad.numpy as jnp

# Elementwise
numpy.call(
    "abs absolute arcsinh arctan asinh atan cbrt ceil cos cosh deg2rad degrees exp exp2 expm1 "
    "fabs fix floor isfinite isinf isnan isneginf isposinf logical_not negative positive "
    "rad2deg radians reciprocal rint round around sign signbit sin sinc sinh square tan tanh "
    "trunc modf nan_to_num",
    X,
)
numpy.call("arccos acos arcsin asin arctanh atanh", UNIT)
numpy.call("arccosh acosh", ABOVE)
numpy.call("log log10 log1p log2 rsqrt sqrt", POSITIVE)
numpy.call("angle conj conjugate imag real iscomplex isreal iscomplexobj isrealobj", Z)
numpy.call("angle conj real imag iscomplex isreal iscomplexobj isrealobj", X)
numpy.call(
    "add arctan2 atan2 copysign divide divmod equal float_power floor_divide fmax fmin fmod "
    "greater greater_equal heaviside hypot isclose less less_equal logaddexp logaddexp2 "
    "maximum minimum mod multiply nextafter not_equal remainder subtract true_divide allclose "
    "array_equal array_equiv vecdot",
    POSITIVE,
    ABOVE,
)
numpy.call("pow power", POSITIVE, X)
numpy.call(
    "bitwise_and bitwise_or bitwise_xor gcd lcm logical_and logical_or logical_xor add "
    "subtract multiply floor_divide remainder maximum less bitwise_left_shift "
    "bitwise_right_shift left_shift right_shift power pow fmod divmod",
    INT,
    COUNT,
)
numpy.call("bitwise_invert bitwise_not invert bitwise_count abs sign negative square", INT)
numpy.call("clip", X, -0.5, 0.5)
numpy.call("where", BOOL, X, Y)
numpy.call("nan_to_num isnan", NAN)
numpy.call("astype", X, np.int32)
numpy.use("vectorize", lambda x, y: jnp.vectorize(lambda a, b: a * b + 1)(x, y), X, Y)
numpy.use("piecewise", lambda x: jnp.piecewise(x, [x < 0, x > 1], [jnp.sin, 2.0, jnp.cos]), X)
numpy.call("select", [BOOL, ~BOOL], [X, Y], 3.0)
numpy.call("choose", COUNT % 3, [X, Y, POSITIVE], mode="clip")
numpy.call("interp", X, ORDERED, ORDERED**2)
numpy.call("unwrap", CUBE * 9)
numpy.call("gradient", X)

# Reductions, running sums, statistics
numpy.call("amax amin max mean median min prod ptp std sum var average argmax argmin size ndim", X)
numpy.call("amax amin max mean median min prod ptp std sum var average argmax argmin", X, 1)
numpy.call("all any count_nonzero sum mean cumsum", BOOL, 1)
numpy.call("nanargmax nanargmin", NAN)
numpy.call(
    "nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar nancumprod nancumsum", NAN, 0
)
numpy.call("nanpercentile", NAN, 30.0, 0)
numpy.call("nanquantile", NAN, 0.3, 0)
numpy.call("percentile", X, 30.0, 1)
numpy.call("quantile", X, 0.3, 1)
numpy.call("cumprod cumsum", X, 1)
numpy.call("cumulative_prod cumulative_sum", X, axis=1)
numpy.call("logsumexp", X, 1)
numpy.call("diff ediff1d", X)
numpy.call("corrcoef cov", X)
numpy.call("trapezoid", X)
numpy.call("sum prod max min mean", INT, 0)
numpy.call("sum prod mean", Z, 0)

# Sorting, searching, sets
numpy.call("sort argsort", X)
numpy.call("partition argpartition", X, 2)
numpy.call("lexsort", [INT[0], V[:4]])
numpy.call("searchsorted", ORDERED, X)
numpy.call("searchsorted", np.sort(V), X, side="right")
numpy.use("searchsorted", lambda x: jnp.searchsorted(np.linspace(-2, 2, 50), x), X)
numpy.call("digitize", X, ORDERED)
numpy.call("isin", INT, COUNT)
numpy.use("nonzero", lambda x: jnp.nonzero(x, size=8), INT)
numpy.use("flatnonzero", lambda x: jnp.flatnonzero(x, size=14, fill_value=-1), INT)
numpy.use("argwhere", lambda x: jnp.argwhere(x, size=8), INT)
numpy.use("bincount", lambda x: jnp.bincount(x, length=7), COUNT.ravel())
numpy.call("histogram histogram_bin_edges", X, 4, (-2.0, 2.0))

# Shapes
numpy.call("ravel flip fliplr flipud transpose permute_dims matrix_transpose rot90 copy shape", X)
numpy.call("atleast_1d atleast_2d atleast_3d array asarray diagonal trace tril triu squeeze", X)
numpy.call("diag diagflat", V)
numpy.call("broadcast_arrays", X, V[:4])
numpy.call("broadcast_to", X, (2, 3, 4))
numpy.call("expand_dims", X, 1)
numpy.call("moveaxis rollaxis", CUBE, 2, 0)
numpy.call("swapaxes", CUBE, 0, 2)
numpy.call("reshape resize", X, (2, 6))
numpy.call("roll", X, 2)
numpy.call("repeat", X, 2, 1)
numpy.call("tile", X, (2, 2))
numpy.call("pad", X, ((1, 2), (0, 1)))
numpy.call("append", X, Y)
numpy.call("block", [[X, Y], [Y, X]])
numpy.call("column_stack concat concatenate dstack hstack stack vstack", [X, Y])
numpy.call("array_split", X, 3, 1)
numpy.call("split", X, 2, 1)
numpy.call("hsplit", X, 2)
numpy.call("vsplit", X, 3)
numpy.call("dsplit", CUBE, 2)
numpy.call("unstack", X)
numpy.call("delete", X, 1, 0)
numpy.call("insert", X, 1, 2.0, 0)
numpy.call("meshgrid", V, ORDERED)
numpy.call("ix_", PLACES, PLACES)

# Indices
numpy.call("take", X, PLACES, 1)
numpy.call("take_along_axis", X, COUNT % 3, 0)
numpy.call("ravel_multi_index", (COUNT % 3, COUNT % 4), (3, 4))
numpy.call("unravel_index", COUNT, (3, 4))
numpy.call("diag_indices_from tril_indices_from triu_indices_from", SQUARE)
numpy.use("fill_diagonal", lambda a: jnp.fill_diagonal(a, 7.0, inplace=False), SQUARE)
numpy.use("place", lambda a, m: jnp.place(a, m, np.float32([1, 2]), inplace=False), X, BOOL)
numpy.use("put", lambda a, i: jnp.put(a, i, np.float32([1, 2]), inplace=False), X, PLACES[1:3])
numpy.use(
    "put_along_axis",
    lambda a, i: jnp.put_along_axis(a, i, 5.0, axis=1, inplace=False),
    X,
    PLACES[:3, None],
)
numpy.use("apply_over_axes", lambda a: jnp.apply_over_axes(jnp.sum, a, (0, 1)), X)
numpy.call("sort_complex", Z)
numpy.use("apply_along_axis", lambda a: jnp.apply_along_axis(lambda r: r.sum() * r, 1, a), X)

# Products and polynomials
numpy.call("matmul dot", X, X.T)
numpy.call("inner tensordot", X, Y)
numpy.call("outer kron vdot", X, Y)
numpy.call("cross", X[:, :3], Y[:, :3])
numpy.call("matvec", X, V[:4])
numpy.call("vecmat", V[:3], X)
numpy.call("convolve correlate", V, ORDERED)
numpy.call("polyadd polymul polysub", V, ORDERED)
numpy.call("polyder polyint", V)
numpy.call("polyval", V, X)
numpy.call("vander", V)
numpy.call("vander", V, 0)
numpy.use("einsum", lambda a, b: jnp.einsum("ij,kj->ik", a, b), X, Y)
numpy.use("einsum", lambda a: jnp.einsum("ii->i", a), SQUARE)
numpy.use("einsum_path", lambda a: jnp.einsum("ij,jk,kl->il", a, a, a), SQUARE)

# Creation and what is known from types
numpy.call("ones_like zeros_like", X)
numpy.use("empty_like", lambda a: jnp.empty_like(a).shape, X)
numpy.use("empty", lambda: jnp.empty((2, 3)).shape)
numpy.call("full_like", X, 2.5)
numpy.call("full", (2, 3), V[0, ...])
numpy.call("arange", 2, 9, 3)
numpy.call("ones zeros", (2, 3))
numpy.call("eye identity tri bartlett blackman hamming hanning", 4)
numpy.call("kaiser", 4, 3.5)
numpy.call("linspace", V[0, ...], V[1, ...], 5)
numpy.call("geomspace", POSITIVE[0, 0, ...], POSITIVE[0, 1, ...], 5)
numpy.call("logspace", 0.0, 2.0, 5)
numpy.call("indices", (2, 3))
numpy.call("diag_indices tril_indices triu_indices", 3)
numpy.use("fromfunction", lambda: jnp.fromfunction(lambda i, j: i * 2 + j, (2, 3)))
numpy.use("frombuffer", lambda: jnp.frombuffer(b"\1\2\3\4", np.uint8))
numpy.use("mask_indices", lambda: jnp.mask_indices(3, jnp.triu, size=6))
numpy.use("isscalar", lambda x: jnp.isscalar(2.0), X)
numpy.use("result_type", lambda x: jnp.zeros(2, jnp.result_type(x, np.int8)), X)
numpy.use("can_cast", lambda: jnp.can_cast(np.int8, np.float32))
numpy.use("issubdtype", lambda: jnp.issubdtype(np.int8, np.integer))
numpy.use("promote_types", lambda x: jnp.zeros(2, jnp.promote_types(x.dtype, np.int8)), X)

# fxad.numpy.linalg
linalg.call("cholesky", SPD)
linalg.call("tensorinv", SQUARE.reshape(2, 2, 4), 2)
linalg.call("tensorsolve", SQUARE.reshape(2, 2, 4), X[:2, :2])
linalg.call("det inv slogdet eigvals cond matrix_rank pinv qr trace diagonal matrix_norm", SQUARE)
linalg.call("eigvalsh svdvals", SPD)
linalg.use("eigh", lambda a: [jnp.linalg.eigh(a)[0], jnp.abs(jnp.linalg.eigh(a)[1])], SPD)
linalg.use("eig", lambda a: [jnp.linalg.eig(a)[0], jnp.abs(jnp.linalg.eig(a)[1])], SQUARE)
linalg.use("svd", lambda a: [jnp.linalg.svd(a)[1], jnp.abs(jnp.linalg.svd(a)[2])], SQUARE)
linalg.use("svd", lambda a: jnp.linalg.svd(a, compute_uv=False), X)
linalg.call("solve", SQUARE, CUBE[0].T)
linalg.use("lstsq", lambda a, b: jnp.linalg.lstsq(a, b)[0], X.T, V[:4])
linalg.call("matrix_power", SQUARE, 3)
linalg.call("matrix_transpose norm vector_norm", X)
linalg.call("multi_dot", [X, SQUARE, X.T])
linalg.call("matmul", X, SQUARE)
linalg.call("outer", V, ORDERED)
linalg.call("tensordot vecdot", X, Y)
linalg.call("cross", X[:, :3], Y[:, :3])

# fxad.numpy.fft
fft.call("fft ifft fftshift ifftshift fftn ifftn rfft rfft2 rfftn fft2 ifft2 ihfft", X)
fft.call("fft ifft fft2 irfft irfft2 irfftn hfft", Z)
fft.call("fftfreq rfftfreq", 6, 0.5)

# Polynomials, grids of bins, parts of floats, bits
numpy.call("poly", ORDERED)
numpy.use("polydiv", jnp.polydiv, V, np.array([1.5, -0.5, 2.0], np.float32))
numpy.call("polyfit", ORDERED, ORDERED**2 + ORDERED, 2)
numpy.use("roots", lambda p: jnp.prod(1 - jnp.roots(p, strip_zeros=False)), V[:3] + np.float32(3))
numpy.call("frexp spacing", X)
numpy.call("ldexp", X, COUNT)
numpy.call("packbits", BOOL)
numpy.call("unpackbits", np.array([3, 200], np.uint8))
numpy.use("histogram2d", lambda x, y: jnp.histogram2d(x, y, bins=3)[0], V, V[::-1].copy())
numpy.use("histogramdd", lambda s: jnp.histogramdd(s, bins=2)[0], CUBE[0])

# What cannot be traced, and what takes no arrays
SCALARS = (
    "bool bool_ float16 float32 float64 float_ double single bfloat16 float8_e4m3fn "
    "float8_e5m2 int8 int16 int32 int64 int_ cdouble complex128 complex64 complex_ csingle"
)
UNSIGNED = "uint8 uint16 uint32 uint64 uint"
numpy.call(SCALARS, V)
numpy.call(UNSIGNED, POSITIVE)
for name in UNSIGNED.split():  # saturating, where NumPy's result is left open
    numpy.use(name, getattr(jnp, name), V)
numpy.use("broadcast_shapes", lambda: jnp.broadcast_shapes((2, 1), (3,)))
numpy.use("isdtype", lambda x: jnp.isdtype(x.dtype, "real floating"), X)
numpy.use("finfo", lambda x: float(jnp.finfo(x.dtype).eps), X)
numpy.use("iinfo", lambda x: int(jnp.iinfo(x.dtype).max), INT)

numpy.call("iterable", X)
numpy.refuse("array_repr array_str", INT)
numpy.refuse("flatnonzero nonzero argwhere unique unique_all unique_counts unique_inverse", INT)
numpy.refuse("unique_values real_if_close", Z)
numpy.refuse("trim_zeros", INT)
numpy.refuse("compress extract", BOOL[0], V[:4])
numpy.refuse("union1d intersect1d setdiff1d setxor1d", V, V)
numpy.call("from_dlpack", X)

numpy.use("frompyfunc", lambda x: jnp.frompyfunc(lambda a, b: a * 2 + b, 2, 1).reduce(x), X)
