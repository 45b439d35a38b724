"""Random operands for tests beside NumPy, and the comparison of results."""

from __future__ import annotations

import numpy as np

import fxad

R = np.random.default_rng(0)


def draw(*shape: int, dtype: str = "float32") -> np.ndarray:
    if dtype == "bool":
        return R.random(shape) > 0.5
    if dtype.startswith(("int", "uint")):
        return R.integers(0 if dtype[0] == "u" else -9, 9, shape).astype(dtype)
    x = R.standard_normal(shape)
    return (x + 1j * R.standard_normal(shape) if dtype[0] == "c" else x).astype(dtype)


def same(got, want, name="", rtol: float = 2e-6) -> None:
    """Equal shapes and values; dtypes are NumPy's narrowed to 32 bits."""
    pairs = zip(fxad.tree.leaves(got), fxad.tree.leaves(want), strict=True)
    for g, w in pairs:
        w = np.asarray(w)
        assert g.shape == w.shape, name
        narrow = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
        narrow["complex128"] = "complex64"
        assert g.dtype.name == narrow.get(w.dtype.name, w.dtype.name), name
        np.testing.assert_allclose(g, w, rtol=rtol, atol=1e-6, err_msg=str(name))
