"""Products that ask for A before they read it: the bits of those that do not."""

from __future__ import annotations

import numpy as np
import pytest
from contracts import Sketch

from fxad.backend.llvm.contract import product
from fxad.backend.llvm.native.engine import host_target
from fxad.core.errors import CheckError


@pytest.mark.parametrize("isa", ["avx512", "avx2", "generic"])
@pytest.mark.parametrize(
    ("m", "n", "k", "asking"),
    [
        (256, 250, 1024, ["avx512"]),  # panels of others are narrower, so more read A
        (1031, 96, 300, ["avx512", "avx2"]),
        (256, 256, 256, []),
        (64, 1024, 512, []),
    ],
)
def test_bits_do_not_depend_on_what_is_asked_for(monkeypatch, m, n, k, asking, isa):
    try:
        target = host_target(isa)
    except CheckError:
        pytest.skip(f"this machine cannot run {isa}")
    asks = isa in asking
    random = np.random.default_rng([m, n, k])
    a = random.standard_normal((m, k)).astype(np.float32)
    b = random.standard_normal((k, n)).astype(np.float32)
    results, texts = [], []
    for most in (product._FEW_PANELS, 0):
        monkeypatch.setattr(product, "_FEW_PANELS", most)
        out = np.full((m, n), np.nan, np.float32)
        texts.append(Sketch(a, b, out).run(target=target, cuts=(1, 3)).text)
        results.append(out)
    assert (texts[0] != texts[1]) == asks
    assert texts[0].count("@llvm.prefetch") - texts[1].count("@llvm.prefetch") in range(asks, 99)
    assert np.array_equal(*results)
    bound = (k + 2) * np.finfo(np.float32).eps * (np.abs(a) @ np.abs(b)) + 1e-30
    assert np.all(np.abs(results[0] - a.astype(float) @ b) <= bound)
