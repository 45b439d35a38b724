"""`fxad.scipy.linalg`: factorisations, solvers and functions of matrices under SciPy's names.

x = cho_solve(cho_factor(a), b)     expm(a)     t, q = schur(a)

Leading axes are batches unless said otherwise. A matrix that cannot be factored gives NaN.

SciPy's hints (`overwrite_a`, `check_finite`, `debug`, `lwork`, `turbo`, `lapack_driver`) are
accepted, as in JAX, and change nothing.
"""

from fxad.numpy.linalg import pinv
from fxad.scipy.linalg.factors import (
    cho_factor,
    cho_solve,
    cholesky,
    det,
    eigh,
    eigh_tridiagonal,
    inv,
    lu,
    lu_factor,
    lu_solve,
    polar,
    qr,
    qr_multiply,
    solve,
    solve_banded,
    solve_triangular,
    svd,
    svdvals,
)
from fxad.scipy.linalg.functions import expm, expm_frechet, funm, solve_sylvester, sqrtm
from fxad.scipy.linalg.schur_forms import hessenberg, rsf2csf, schur
from fxad.scipy.linalg.special_matrices import (
    block_diag,
    circulant,
    companion,
    convolution_matrix,
    dft,
    fiedler,
    fiedler_companion,
    hadamard,
    hankel,
    helmert,
    hilbert,
    invhilbert,
    invpascal,
    leslie,
    pascal,
    toeplitz,
)

__all__ = [
    "block_diag",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "circulant",
    "companion",
    "convolution_matrix",
    "det",
    "dft",
    "eigh",
    "eigh_tridiagonal",
    "expm",
    "expm_frechet",
    "fiedler",
    "fiedler_companion",
    "funm",
    "hadamard",
    "hankel",
    "helmert",
    "hessenberg",
    "hilbert",
    "inv",
    "invhilbert",
    "invpascal",
    "leslie",
    "lu",
    "lu_factor",
    "lu_solve",
    "pascal",
    "pinv",
    "polar",
    "qr",
    "qr_multiply",
    "rsf2csf",
    "schur",
    "solve",
    "solve_banded",
    "solve_sylvester",
    "solve_triangular",
    "sqrtm",
    "svd",
    "svdvals",
    "toeplitz",
]
