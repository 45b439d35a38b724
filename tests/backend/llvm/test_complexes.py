"""Complex functions at zeros, infinities and NaNs: compiled code and NumPy follow one rule."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax

PARTS = [0.0, -0.0, 1.0, -1.0, 2.5, -0.5, np.inf, -np.inf, np.nan, 1e-30, -1e30, 1e-7]
GRID = np.array([complex(a, b) for a in PARTS for b in PARTS])
FUNCTIONS = {
    "abs angle arccos arccosh arcsin arcsinh arctan arctanh conj cos cosh exp exp2 expm1 isfinite "
    "isinf isnan log log10 log1p log2 negative reciprocal sign sin sinh sqrt tan tanh": jnp,
    "rsqrt": lax,
    "sigmoid": fxad.nn,
}
NAMES = [(module, name) for names, module in FUNCTIONS.items() for name in names.split()]


def same(one: np.ndarray, other: np.ndarray, beside: np.ndarray, smallest: float) -> np.ndarray:
    """Whether parts agree: NaNs and infinities in place, zeros with their signs unless the other
    part is NaN (C99 leaves them open there), numbers nearly."""
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= 1e-5 * np.abs(other) + smallest
    zeros = (one == 0) & (other == 0)
    signs = (np.signbit(one) == np.signbit(other)) | np.isnan(beside)
    return (np.isnan(one) & np.isnan(other)) | (one == other) & (~zeros | signs) | near & ~zeros


def compare(function, *arguments: np.ndarray) -> None:
    with fxad.enable_x64():
        want = np.asarray(function(*map(jnp.asarray, arguments)))
        got = np.asarray(fxad.jit(function)(*arguments))
    assert got.dtype == want.dtype
    if want.dtype.kind != "c":
        np.testing.assert_allclose(got, want, rtol=1e-6)
        return
    smallest = float(np.finfo(want.dtype).tiny)
    fine = same(got.real, want.real, want.imag, smallest)
    fine &= same(got.imag, want.imag, want.real, smallest)
    wrong = [(*(a[i] for a in arguments), want[i], got[i]) for i in np.flatnonzero(~fine)]
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize(("module", "name"), NAMES, ids=[name for _, name in NAMES])
def test_functions_at_special_values(module, name: str, dtype: type) -> None:
    with np.errstate(all="ignore"):
        compare(getattr(module, name), GRID.astype(dtype))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", ["add", "subtract", "divide"])
def test_sums_and_quotients_at_special_values(name: str, dtype: type) -> None:
    parts = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan]
    grid = np.array([complex(a, b) for a in parts for b in parts], dtype)
    x, y = (v.ravel() for v in np.meshgrid(grid, grid))
    compare(getattr(jnp, name), x, y)


def test_powers_of_zero_and_large_exponentials() -> None:
    zero, y = np.zeros(6, np.complex128), np.array([0, 1, 2.5, -1, 1j, 1 + 1j])
    with np.errstate(all="ignore"):
        compare(jnp.power, zero, y)
    # exp(x) overflows, exp(x) cos(y) does not
    z = np.array([710 + 1.5707963j, 1000 + 1j, -1000 + 1j, 709.9 + 1.57j])
    for function in (jnp.exp, jnp.cosh, jnp.sinh):
        compare(function, z)
    compare(jnp.sqrt, np.array([1e308 + 1e308j, -1.5e308 + 0j, 1e308 - 1.7e308j]))
