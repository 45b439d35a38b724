"""`fxad.scipy`: parts of SciPy on arrays and traced values, under SciPy's names."""

from fxad.scipy import special as special
