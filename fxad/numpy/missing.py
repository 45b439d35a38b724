"""Names of `jax.numpy` and NumPy that are not here, and what to do without them.

fxad.numpy.polyfit      AttributeError, which says that `linalg.lstsq` fits polynomials
"""

_OUTSIDE = "call NumPy's, or fxad.pure_callback inside traced functions"
_COUNTS = "`bincount` of indices from `searchsorted` counts along several axes"
_NUMBERS = "arrays hold numbers only"
NOT_HERE = {
    "fromfile": _OUTSIDE,
    "fromiter": _OUTSIDE,
    "fromstring": _OUTSIDE,
    "frompyfunc": "`vectorize` maps a function of scalars",
    "histogram2d": _COUNTS,
    "histogramdd": _COUNTS,
    "i0": "it is fxad.scipy.special.i0",
    "ldexp": "`x * exp2(n)`",
    "load": _OUTSIDE,
    "object_": _NUMBERS,
    "polyfit": "`linalg.lstsq(vander(x, degree + 1), y)[0]` fits a polynomial",
    "roots": "`linalg.eigvals` of the companion matrix",
    "save": _OUTSIDE,
    "savez": _OUTSIDE,
    "str_": _NUMBERS,
}
