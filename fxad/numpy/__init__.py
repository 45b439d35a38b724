"""`fxad.numpy`: NumPy's functions on arrays and traced values, under NumPy's names.

import fxad.numpy as jnp
jnp.einsum("ij,jk->ik", a, b)
"""

# ruff: noqa: F401, F403 - the names are the module's public face; those of late modules in `_LATE`

import math as _math
import typing as _typing

import numpy as _np

from fxad.core.late import late as _late
from fxad.core.promotion import promote_types, result_type
from fxad.numpy import methods as _methods
from fxad.numpy.comparing import allclose, array_equal, array_equiv, isclose
from fxad.numpy.complexes import angle, iscomplex, iscomplexobj, isreal, isrealobj, real_if_close
from fxad.numpy.composed import (
    copysign,
    deg2rad,
    degrees,
    fmax,
    fmin,
    heaviside,
    hypot,
    log10,
    logaddexp,
    logaddexp2,
    nan_to_num,
    rad2deg,
    radians,
    sinc,
)
from fxad.numpy.contracting import einsum, einsum_path
from fxad.numpy.core import array, asarray
from fxad.numpy.creation import (
    arange,
    astype,
    copy,
    diag,
    diagonal,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    identity,
    indices,
    linspace,
    logspace,
    meshgrid,
    ones,
    ones_like,
    tri,
    tril,
    tril_indices,
    triu,
    triu_indices,
    vander,
    zeros,
    zeros_like,
)
from fxad.numpy.division import (
    divmod,
    float_power,
    floor_divide,
    fmod,
    gcd,
    lcm,
    mod,
    pow,
    power,
    remainder,
)
from fxad.numpy.elementwise import (
    abs,
    absolute,
    acos,
    acosh,
    add,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_count,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    cbrt,
    clip,
    conj,
    conjugate,
    cos,
    cosh,
    divide,
    equal,
    exp,
    exp2,
    expm1,
    fabs,
    greater,
    greater_equal,
    imag,
    invert,
    isfinite,
    isinf,
    isnan,
    isneginf,
    isposinf,
    left_shift,
    less,
    less_equal,
    log,
    log1p,
    log2,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    not_equal,
    positive,
    real,
    reciprocal,
    right_shift,
    rsqrt,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    true_divide,
    where,
)
from fxad.numpy.interchange import VERSION as __array_api_version__
from fxad.numpy.interchange import can_cast, from_dlpack
from fxad.numpy.interchange import namespace_info as __array_namespace_info__
from fxad.numpy.joining import (
    append,
    array_split,
    column_stack,
    concat,
    concatenate,
    delete,
    dsplit,
    dstack,
    hsplit,
    hstack,
    insert,
    resize,
    split,
    stack,
    unstack,
    vsplit,
    vstack,
)
from fxad.numpy.linear import (
    convolve,
    correlate,
    cross,
    dot,
    inner,
    kron,
    matmul,
    outer,
    tensordot,
    trace,
    vdot,
    vecdot,
)
from fxad.numpy.missing import NOT_HERE as _NOT_HERE
from fxad.numpy.picking import (
    argwhere,
    choose,
    compress,
    extract,
    nonzero,
    put_along_axis,
    ravel_multi_index,
    select,
    take,
    take_along_axis,
    unravel_index,
)
from fxad.numpy.reductions import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    average,
    count_nonzero,
    logsumexp,
    max,
    mean,
    min,
    prod,
    ptp,
    std,
    sum,
    var,
)
from fxad.numpy.rounding import around, ceil, fix, floor, rint, round, trunc
from fxad.numpy.running import cumprod, cumsum, cumulative_prod, cumulative_sum, diff, trapezoid
from fxad.numpy.scalars import (
    bfloat16,
    bool_,
    complex64,
    complex128,
    finfo,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    isscalar,
    issubdtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from fxad.numpy.shaping import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    expand_dims,
    flip,
    fliplr,
    flipud,
    matrix_transpose,
    moveaxis,
    ndim,
    permute_dims,
    ravel,
    repeat,
    reshape,
    roll,
    rollaxis,
    rot90,
    shape,
    size,
    squeeze,
    swapaxes,
    tile,
    transpose,
)
from fxad.numpy.sorting import (
    argpartition,
    argsort,
    bincount,
    digitize,
    flatnonzero,
    histogram,
    histogram_bin_edges,
    interp,
    lexsort,
    partition,
    searchsorted,
    sort,
)
from fxad.trace.array import Array as ndarray

if _typing.TYPE_CHECKING:
    from fxad.numpy import fft, linalg
    from fxad.numpy.grids import *
    from fxad.numpy.mapping import *
    from fxad.numpy.padding import *
    from fxad.numpy.placing import *
    from fxad.numpy.quantiles import *
    from fxad.numpy.sets import *
    from fxad.numpy.statistics import *
    from fxad.numpy.without_nan import (
        nanargmax,
        nanargmin,
        nancumprod,
        nancumsum,
        nanmax,
        nanmean,
        nanmin,
        nanprod,
        nanstd,
        nansum,
        nanvar,
    )

# What few programs use is loaded when it is first asked for.
_LATE = {
    "grids": (
        "block c_ diag_indices diag_indices_from diagflat fill_diagonal frombuffer "
        "fromfunction geomspace index_exp ix_ mgrid ogrid r_ s_"
    ),
    "mapping": "apply_along_axis vectorize",
    "padding": "pad",
    "placing": "mask_indices piecewise place put tril_indices_from triu_indices_from",
    "quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
    "sets": (
        "intersect1d isin setdiff1d setxor1d union1d unique unique_all unique_counts "
        "unique_inverse unique_values"
    ),
    "statistics": (
        "bartlett blackman corrcoef cov ediff1d gradient hamming hanning kaiser matvec modf "
        "polyadd polyder polyint polymul polysub polyval unwrap vecmat"
    ),
    "without_nan": (
        "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod nanstd nansum "
        "nanvar"
    ),
}
__getattr__, __dir__ = _late(
    globals(),
    {name: f"fxad.numpy.{home}" for home, names in _LATE.items() for name in names.split()},
    modules=("fft", "linalg"),
    missing=_NOT_HERE,
)

pi, e, inf, nan, newaxis = _math.pi, _math.e, _math.inf, _math.nan, None
euler_gamma = float(_np.euler_gamma)
dtype = _np.dtype
get_printoptions, set_printoptions = _np.get_printoptions, _np.set_printoptions
printoptions = _np.printoptions
float_, int_, uint, complex_ = float32, int32, uint32, complex64
single, double, csingle, cdouble = float32, float64, complex64, complex128
integer, floating, inexact, signedinteger = (
    _np.integer,
    _np.floating,
    _np.inexact,
    _np.signedinteger,
)
unsignedinteger, number, generic, complexfloating = (
    _np.unsignedinteger,
    _np.number,
    _np.generic,
    _np.complexfloating,
)
bool = bool_

__all__ = [name for name in __dir__() if not name.startswith("_")]  # `import *` takes late ones too
