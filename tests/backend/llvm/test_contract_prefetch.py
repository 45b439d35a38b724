"""Products that ask for their operands before they read them: what for, and the same bits."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from contracts import Sketch

from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.tuning import DEFAULT
from fxad.backend.llvm.contract.prefetch import PanelPrefetch
from fxad.backend.llvm.native.engine import compile_module, host_target
from fxad.core.errors import CheckError
from fxad.core.record import replace


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
def test_bits_do_not_depend_on_what_is_prefetched(m, n, k, asking, isa):
    try:
        target = replace(host_target(isa), tuning=DEFAULT)  # what a kind has may not be asked for
    except CheckError:
        pytest.skip(f"this machine cannot run {isa}")
    asks = isa in asking
    random = np.random.default_rng([m, n, k])
    a = random.standard_normal((m, k)).astype(np.float32)
    b = random.standard_normal((k, n)).astype(np.float32)
    results, texts = [], []
    for most in (target.tuning.gemm.few_panels, 0):
        target = target.tuned(gemm={"few_panels": most})
        out = np.full((m, n), np.nan, np.float32)
        texts.append(Sketch(a, b, out).run(target=target, cuts=(1, 3)).text)
        results.append(out)
    assert (texts[0] != texts[1]) == asks
    assert texts[0].count("@llvm.prefetch") - texts[1].count("@llvm.prefetch") in range(asks, 99)
    assert np.array_equal(*results)
    bound = (k + 2) * np.finfo(np.float32).eps * (np.abs(a) @ np.abs(b)) + 1e-30
    assert np.all(np.abs(results[0] - a.astype(float) @ b) <= bound)


@pytest.mark.parametrize(("rows", "lines"), [(128, 12), (48, 48), (48, 49), (1, 3), (96, 12)])
@pytest.mark.parametrize(("calls", "turns"), [(92, 32), (192, 32), (15, 32), (3, 7), (1, 1)])
def test_each_line_of_a_panel_to_come_is_prefetched(rows, lines, calls, turns):
    """In order, the last ones in the last turn."""
    ahead = PanelPrefetch(False, rows, lines * 64, lines, calls, turns)
    f = Function("lines", "void", (("ptr", "out"),))

    def body(turn: str, _: list[str]) -> None:
        f.line(f"store i64 {ahead.line_of(f, turn)}, ptr {f.offset('%out', f.mul(turn, 8))}")

    f.loop(0, calls * turns, 1, body)
    f.ret()
    module = compile_module([str(f)], [], host_target())
    first = np.zeros(calls * turns, np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(module.address("lines"))(first.ctypes.data)
    asked = first[:, None] + np.arange(ahead.pace)
    assert set(range(rows * lines)) <= set(asked.ravel().tolist())
    assert asked.max() < rows * lines + ahead.pace and np.all(np.diff(first) >= 0)
