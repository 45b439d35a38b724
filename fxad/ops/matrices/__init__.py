"""The matrix product, matrices in few bits, factorisations, eigenvalues and Fourier transforms."""

from fxad.ops.matrices import (
    dequantize,
    eigen,
    factor,
    fft,
    lu,
    product,
    product_by_parts,
    spectral,
)

__all__ = ["dequantize", "eigen", "factor", "fft", "lu", "product", "product_by_parts", "spectral"]
