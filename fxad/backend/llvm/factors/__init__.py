"""Factors, linear systems and Fourier transforms in native code: Cholesky, triangles, LU with
partial pivoting, orthogonal factors, FFTs.

| file | what is in it |
|---|---|
| `code` | what all functions are written with |
| `panels` | some rows of a triangular system at a time |
| `triangles`, `cholesky` | triangular systems and Cholesky factors by panels |
| `lu` | LU factors of a matrix, in vectors along its rows |
| `systems` | linear systems and determinants by them |
| `tables` | small matrices, one in each lane of a vector |
| `lu_lanes` | LU factors of such matrices |
| `orthogonal` | their orthogonal factors |
| `fourier` | Fourier transforms: rows, columns, and long ones in two steps |
| `fourier_real` | real numbers as half as many complex ones |
| `fourier_passes` | their butterflies and passes, a transform in each lane |
| `fourier_memory` | what they read and write |
| `fourier_plan` | radices and tables |
| `fourier_calls` | which of their functions a step calls |
| `calls` | which of them a step of a plan calls, and their compiled functions |
"""
