"""Eager ops that need no promotion go straight to their op: only where that gives the same."""

from __future__ import annotations

import numpy as np
import pytest

import fxad.numpy as jnp
from fxad.core import dtypes as dt
from fxad.core.promotion import entry_of, promote
from fxad.ir.program import Lit
from fxad.numpy.core import matched

NUMBERS = [2, 0, -1, 127, 128, 300, 2.5, True, 1j, np.float32(3), np.int8(3)]


@pytest.mark.parametrize("dtype", dt.all_dtypes, ids=str)
def test_what_is_matched_is_what_promotion_gives(dtype: np.dtype) -> None:
    x, other, weak = jnp.ones(3, dtype), jnp.full(3, 2, dtype), jnp.asarray(2)
    found = 0
    for y in [other, weak, jnp.ones((2, 3), dtype), *NUMBERS]:
        for pair in ((x, y), (y, x), (weak, y)):
            for kinds in ("fiu", "f"):
                ready = matched(*pair, kinds)
                if ready is None:
                    continue
                found += 1
                assert promote(*map(entry_of, pair)) == (dtype, False)
                assert dtype.kind in kinds
                for value, given in zip(ready, pair, strict=True):
                    assert value is given or (isinstance(value, Lit) and value.value == given)
                    assert value.type.dtype == dtype
    assert bool(found) == (dtype.kind in "fiu")


@pytest.mark.parametrize("number", [1, 127, 128, -1, 255, 256])
def test_small_numbers_fit_every_integer_and_others_are_looked_at(number: int) -> None:
    for dtype in (np.int8, np.uint8, np.int32):
        x, info = jnp.ones(2, dtype), np.iinfo(dtype)
        if not info.min <= number <= info.max:
            with pytest.raises(OverflowError, match="does not fit"):
                x + number
            continue
        assert (x + number).dtype == dtype
        assert (x + number).tolist() == (np.ones(2, dtype) + dtype(number)).tolist()
        assert (number * x).tolist() == (np.ones(2, dtype) * dtype(number)).tolist()
        assert x.astype(jnp.float32).astype(dtype).tolist() == [1, 1]


@pytest.mark.parametrize(
    "values", [[0.5, -0.5, 3.99], [-1.5, 300.0], [np.nan, 1.0], [np.inf, -9.0]]
)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_conversions_to_integers_saturate(values: list[float], dtype: type) -> None:
    info = np.iinfo(dtype)
    wanted = [0 if np.isnan(v) else int(max(min(v, info.max), info.min)) for v in values]
    for kind in (np.float32, np.float64):
        found = jnp.asarray(np.asarray(values, kind), dtype=kind).astype(np.dtype(dtype))
        assert found.tolist() == wanted
