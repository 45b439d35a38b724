"""`fxad.numpy`: NumPy's functions on arrays and traced values, under NumPy's names.

import fxad.numpy as jnp
jnp.einsum("ij,jk->ik", a, b)
"""

# ruff: noqa: F401, F403, F405 - the names are the module's public face

import math as _math
import typing as _typing

import numpy as _np

from fxad.core.lazy import lazy as _lazy
from fxad.core.promotion import promote_types as promote_types
from fxad.core.promotion import result_type as result_type
from fxad.numpy import folds as _folds
from fxad.numpy import methods as _methods
from fxad.numpy.array_api import VERSION as __array_api_version__
from fxad.numpy.array_api import can_cast as can_cast
from fxad.numpy.array_api import from_dlpack as from_dlpack
from fxad.numpy.array_api import namespace_info as __array_namespace_info__
from fxad.numpy.choosing import *
from fxad.numpy.contraction import *
from fxad.numpy.core import *
from fxad.numpy.creation import *
from fxad.numpy.cumulative import *
from fxad.numpy.data_types import *
from fxad.numpy.division import *
from fxad.numpy.elementwise import *
from fxad.numpy.joining import *
from fxad.numpy.logic import *
from fxad.numpy.manipulation import *
from fxad.numpy.missing import NOT_HERE as _NOT_HERE
from fxad.numpy.products import *
from fxad.numpy.reductions import *
from fxad.numpy.repetition import *
from fxad.numpy.rounding import *
from fxad.numpy.selection import *
from fxad.numpy.sorting import *
from fxad.trace.array import Array as _Array

if _typing.TYPE_CHECKING:
    from fxad.numpy import fft, linalg
    from fxad.numpy.convolutions import *
    from fxad.numpy.differences import *
    from fxad.numpy.files import *
    from fxad.numpy.float_parts import *
    from fxad.numpy.functional import *
    from fxad.numpy.index_tricks import *
    from fxad.numpy.nan_functions import *
    from fxad.numpy.padding import *
    from fxad.numpy.polynomials import *
    from fxad.numpy.sets import *
    from fxad.numpy.statistics import *
    from fxad.numpy.ufuncs import *
    from fxad.numpy.windows import *

# What few programs use is loaded when it is first asked for.
_LAZY = {
    "convolutions": "convolve correlate",
    "differences": "diff ediff1d gradient trapezoid unwrap",
    "files": "fromfile load save savez",
    "float_parts": "frexp ldexp packbits spacing unpackbits",
    "functional": "apply_along_axis apply_over_axes piecewise vectorize",
    "index_tricks": (
        "c_ diag_indices diag_indices_from fill_diagonal index_exp ix_ mask_indices mgrid ogrid "
        "r_ ravel_multi_index s_ tril_indices tril_indices_from triu_indices triu_indices_from "
        "unravel_index"
    ),
    "nan_functions": (
        "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod nanstd nansum "
        "nanvar"
    ),
    "padding": "pad",
    "polynomials": "poly polyadd polyder polydiv polyfit polyint polymul polysub polyval roots",
    "sets": (
        "intersect1d isin setdiff1d setxor1d union1d unique unique_all unique_counts "
        "unique_inverse unique_values"
    ),
    "statistics": (
        "bincount corrcoef cov digitize histogram histogram2d histogram_bin_edges histogramdd "
        "median nanmedian nanpercentile nanquantile percentile quantile"
    ),
    "ufuncs": "frompyfunc ufunc",
    "windows": "bartlett blackman hamming hanning kaiser",
}
if not _typing.TYPE_CHECKING:  # to a checker, what is not imported above is not there
    __getattr__, __dir__ = _lazy(
        globals(),
        {name: f"fxad.numpy.{home}" for home, names in _LAZY.items() for name in names.split()},
        modules=("fft", "linalg"),
        missing=_NOT_HERE,
    )

pi, e, inf, nan, newaxis = _math.pi, _math.e, _math.inf, _math.nan, None
euler_gamma = float(_np.euler_gamma)
dtype = _np.dtype
ndarray = _Array
get_printoptions, set_printoptions = _np.get_printoptions, _np.set_printoptions
printoptions = _np.printoptions
array_repr, array_str, iterable = _np.array_repr, _np.array_str, _np.iterable
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

# Not the modules these names are in.
if not _typing.TYPE_CHECKING:
    __all__ = [
        name
        for name in __dir__()
        if not name.startswith("_") and not isinstance(globals().get(name), type(_np))
    ]
