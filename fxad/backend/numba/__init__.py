"""Kernels as Python source for numba: an oracle on the CPU, and CUDA.

    from fxad.backend.numba.execute import compile_kernel, execute_plan

Importing this package does not import numba; compiling for "cpu" or "cuda" does.
"""
