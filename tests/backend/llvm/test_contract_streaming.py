"""Products that write their results by streaming stores: the bits of ordinary stores."""

from __future__ import annotations

import numpy as np
import pytest
from contracts import Sketch

from fxad.backend.llvm.base.traffic import STREAMING
from fxad.backend.llvm.native.engine import host_target

STREAMS = [host_target(isa) for isa in STREAMING if host_target().isa in (isa, "avx512")]
LINE = 64

pytestmark = pytest.mark.skipif(not STREAMS, reason="no streaming stores on this machine")


def placed(shape: tuple[int, ...], offset: int) -> np.ndarray:
    """NaNs that begin `offset` bytes after a line does."""
    size = 4 * int(np.prod(shape))
    raw = np.full(size + 2 * LINE, 0xFF, np.uint8)
    start = -raw.__array_interface__["data"][0] % LINE + offset
    return raw[start : start + size].view(np.float32).reshape(shape)


def product(a, b, offset, target, streaming):
    """(the product, what was emitted)."""
    out = placed((*a.shape[:-1], b.shape[-1]), offset)
    emitted = Sketch(a, b, out, streaming=streaming).run(target=target, cuts=(1, 3))
    return out, emitted.text


@pytest.mark.parametrize("target", STREAMS, ids=lambda t: t.isa)
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(64, 64, 64), (97, 192, 50), (33, 112, 17), (200, 784, 250), (5, 48, 1), (130, 96, 256)],
)
def test_bits_do_not_depend_on_where_results_go(m, n, k, target):
    random = np.random.default_rng([m, n, k])
    a = random.standard_normal((m, k)).astype(np.float32)
    b = random.standard_normal((k, n)).astype(np.float32)
    kept, plain = product(a, b, 0, target, streaming=False)
    gone, text = product(a, b, 0, target, streaming=True)
    inside, _ = product(a, b, 20, target, streaming=True)  # decided as it runs: not at a line
    assert "nontemporal" not in plain
    if n > 48:  # few columns are a product of few rows, turned round
        assert "nontemporal" in text and "sfence" in text
    assert np.array_equal(kept, gone) and np.array_equal(kept, inside)
    bound = (k + 2) * np.finfo(np.float32).eps * (np.abs(a) @ np.abs(b)) + 1e-30
    assert np.all(np.abs(gone - a.astype(float) @ b) <= bound)


@pytest.mark.parametrize("target", STREAMS, ids=lambda t: t.isa)
def test_batches_begin_where_they_begin(target):
    """Every element of a batch decides by its own address."""
    random = np.random.default_rng(0)
    a = random.standard_normal((3, 31, 40)).astype(np.float32)
    b = random.standard_normal((3, 40, 64)).astype(np.float32)
    base = placed((3, 31 * 64 + 5), 0)
    out = base[:, : 31 * 64].reshape(3, 31, 64)
    assert np.shares_memory(out, base)
    Sketch(a, b, (out, base), streaming=True).run(target=target)
    np.testing.assert_allclose(out, a @ b, rtol=0, atol=1e-4)
    assert np.isnan(base[:, 31 * 64 :]).all()


@pytest.mark.parametrize("target", STREAMS, ids=lambda t: t.isa)
@pytest.mark.parametrize(
    ("n", "k", "why"),
    [
        (63, 64, "rows share lines"),
        (64, 1000, "blocks of K add up"),
        (64, 300, "arithmetic hides stores"),
    ],
)
def test_sums_that_are_stored_again_stay(n, k, why, target):
    a, b = np.ones((64, k), np.float32), np.ones((k, n), np.float32)
    out, text = product(a, b, 0, target, streaming=True)
    assert "nontemporal" not in text, why
    assert np.array_equal(out, a @ b)
