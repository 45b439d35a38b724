"""Names of `jax.numpy` and NumPy that are not here, and what to do without them.

fxad.numpy.fromiter      AttributeError, which says that NumPy's is called
"""

_OUTSIDE = "call NumPy's, or fxad.pure_callback inside traced functions"
_NUMBERS = "arrays hold numbers only"
NOT_HERE = {
    "fromiter": _OUTSIDE,
    "fromstring": _OUTSIDE,
    "i0": "it is fxad.scipy.special.i0",
    "object_": _NUMBERS,
    "str_": _NUMBERS,
}
