"""The matrix product, factorisations, eigenvalues and Fourier transforms."""

from fxad.ops.matrices import (
    eigen,
    factor,
    fft,
    lu,
    product,
    product_by_parts,
    spectral,
)

__all__ = ["eigen", "factor", "fft", "lu", "product", "product_by_parts", "spectral"]
