"""A product that is only needed in fewer bytes is written in those."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.api.compiled import fusion
from fxad.core import dtypes
from fxad.ir.plan import Run, walk

R = np.random.default_rng(0)
X = R.standard_normal((64, 48)).astype(np.float32)
W = R.standard_normal((48, 80)).astype(np.float32)


def stored(function, *args) -> list[np.dtype]:
    """Dtypes of what products write, once fused and unfused were found to have the same bits."""
    fused = fxad.jit(function)(*args)
    with fusion(False):
        plain = fxad.jit(lambda *xs: function(*xs))(*args)
    for one, other in zip(fxad.tree.leaves(fused), fxad.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    steps = list(walk(fxad.jit(function).lower(*args).plan.steps))
    kernels = [step.kernel for step in steps if isinstance(step, Run)]
    return [b.dtype for k in kernels if k.kind == "contract" for b in k.buffers if b.name[0] == "o"]


@pytest.mark.parametrize("narrow", [jnp.bfloat16, jnp.float16])
def test_product_rounds_what_is_read_once(narrow) -> None:
    def rows(x, w):
        return (x @ w).astype(narrow).astype(jnp.float32).sum(axis=1)

    def products(x, w, v):
        return (x @ w).astype(narrow) @ v

    assert stored(rows, X, W) == [narrow]
    assert stored(products, X, W, W.T.astype(narrow))[0] == narrow


def test_product_that_is_read_in_full_too_stays_wide() -> None:
    def both(x, w):
        y = x @ w
        return y.astype(jnp.bfloat16).astype(jnp.float32).sum(1), (y * 2).sum(0)

    assert stored(both, X, W) == [dtypes.float32]


def test_nothing_is_stored_for_what_the_epilogue_reads_itself() -> None:
    def scaled(x, w):
        return (x @ w).astype(jnp.bfloat16).astype(jnp.float32) * 3.0

    assert stored(scaled, X, W) == [dtypes.float32]


@pytest.mark.parametrize("narrow", [jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn, jnp.float8_e5m2])
def test_widening_and_back_has_the_bits_of_the_oracle(narrow) -> None:
    size = np.dtype(narrow).itemsize
    bits = np.arange(256**size, dtype=f"u{size}").view(narrow)

    def there_and_back(x):
        return [y.astype(jnp.float32).astype(narrow) for y in (x, x + x, -x, x[::-1], x * x)]

    with np.errstate(all="ignore"):
        eager = [np.asarray(y) for y in there_and_back(jnp.asarray(bits))]
    for one, other in zip(fxad.jit(there_and_back)(bits), eager, strict=True):
        numbers = ~np.isnan(other.astype(np.float32))
        found = np.asarray(one)
        np.testing.assert_array_equal(
            found[numbers].view(f"u{size}"), other[numbers].view(f"u{size}")
        )
        assert np.isnan(found[~numbers].astype(np.float32)).all()
