"""Factors and linear systems in native code: Cholesky, triangles, LU with partial pivoting,
orthogonal factors.

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
| `calls` | which of them a step of a plan calls, and their compiled functions |
"""
