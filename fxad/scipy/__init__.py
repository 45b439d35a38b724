"""`fxad.scipy`: parts of SciPy on arrays and traced values, under SciPy's names."""

from fxad.scipy import cluster as cluster
from fxad.scipy import fft as fft
from fxad.scipy import integrate as integrate
from fxad.scipy import interpolate as interpolate
from fxad.scipy import linalg as linalg
from fxad.scipy import ndimage as ndimage
from fxad.scipy import optimize as optimize
from fxad.scipy import signal as signal
from fxad.scipy import sparse as sparse
from fxad.scipy import spatial as spatial
from fxad.scipy import special as special
from fxad.scipy import stats as stats
