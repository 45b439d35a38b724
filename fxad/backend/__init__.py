"""Backends turn Kernels into running code: `llvm` (native), `numba` (CPU oracle and CUDA)."""
