"""Factors and linear systems in native code: Cholesky, triangles, LU with partial pivoting,
orthogonal factors.

| file | what is in it |
|---|---|
| `writer` | what all functions are written with |
| `panels` | some rows of a triangular system at a time; Cholesky factors |
| `rows` | LU factors of a matrix, in vectors along its rows |
| `tables` | small matrices, one in each lane of a vector |
| `lanes` | LU factors of such matrices |
| `orthogonal` | their orthogonal factors |
| `calls` | which of them a step of a plan calls, and their compiled functions |
"""
