"""Names of `jax.numpy` and NumPy that are not here, and what to do without them.

fxad.numpy.frompyfunc      AttributeError, which says that `vectorize` maps functions
"""

_OUTSIDE = "call NumPy's, or fxad.pure_callback inside traced functions"
_NUMBERS = "arrays hold numbers only"
NOT_HERE = {
    "fromfile": _OUTSIDE,
    "fromiter": _OUTSIDE,
    "fromstring": _OUTSIDE,
    "frompyfunc": "`vectorize` maps a function of scalars",
    "i0": "it is fxad.scipy.special.i0",
    "load": _OUTSIDE,
    "object_": _NUMBERS,
    "save": _OUTSIDE,
    "savez": _OUTSIDE,
    "str_": _NUMBERS,
}
