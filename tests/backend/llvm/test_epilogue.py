"""Epilogues of matrix products, beside NumPy on the sums of the product alone."""

from __future__ import annotations

import numpy as np
import pytest
from contracts import Sketch

from fxad.backend.llvm.native.engine import host_target
from fxad.ir.kernel import Get, Load, Prim, Store, at

F32 = np.dtype("float32")


@pytest.mark.parametrize("isa", ["", "generic"])
@pytest.mark.parametrize("size", [(13, 50, 20), (21, 101, 900), (1, 3, 0), (64, 96, 64)], ids=str)
def test_sums_that_are_a_result_themselves(size: tuple[int, int, int], isa: str) -> None:
    """They are stored once, also where blocks of K add up in them, and read for the rest."""
    m, n, k = size
    rng = np.random.default_rng(size)
    a, b = rng.normal(size=(m, k)).astype(F32), rng.normal(size=(k, n)).astype(F32)
    bias, target = rng.normal(size=n).astype(F32), host_target(isa) if isa else host_target()
    alone, sums, other = (np.full((m, n), np.nan, F32) for _ in range(3))
    plain = Sketch(a, b, alone)
    plain.run([plain.store()], target)
    s = Sketch(a, b, sums)
    biased = Prim("add", (Get(s.cell), Load(s.buffer(bias), at(s.n))), F32)
    second = Store(s.buffer(other, "out"), s.out_index, Prim("abs", (biased,), F32))
    emitted = s.run([s.store(), second], target)
    np.testing.assert_array_equal(sums, alone)
    np.testing.assert_array_equal(other, np.abs(alone + bias))
    np.testing.assert_allclose(sums, a.astype(np.float64) @ b, rtol=0, atol=(k + 1) * 4e-6)
    finish = [part for part in emitted.text.split("define") if ".finish" in part.split("(")[0]]
    assert all(part.count("store") == part.count("abs") for part in finish)
