"""Offsets found when all lifetimes are known, and the order that keeps the arena small."""

from __future__ import annotations

import numpy as np
import pytest
from attempts import plan
from plan_walker import run_plan

from fxad.compiler import simplified
from fxad.core.aligned import LINE
from fxad.core.types import ArrayType
from fxad.ir import heuristics
from fxad.ir.plan import Run
from fxad.ir.program import OPS
from fxad.plan.layout import RecordingArena, packed
from fxad.trace.tracer import stage

F32 = np.dtype("float32")


@pytest.mark.parametrize("seed", range(20))
def test_values_that_live_together_never_overlap(seed: int) -> None:
    random = np.random.default_rng(seed)
    arena, held = RecordingArena(), []
    for _ in range(300):
        if held and random.random() < 0.45:
            arena.give(held.pop(int(random.integers(len(held)))))
        else:
            held.append(arena.take(int(random.integers(0, 5000))))
    found = packed(arena.live_ranges)
    offsets = [found.take(s.nbytes) for s in arena.live_ranges]
    live = np.zeros(found.peak // LINE, int)
    live_peak = 0
    changes = [(s.start, 1, s, o) for s, o in zip(arena.live_ranges, offsets, strict=True)]
    changes += [(s.end, -1, s, o) for _, _, s, o in changes if s.end is not None]
    for _, change, lived, offset in sorted(changes, key=lambda c: c[0]):
        assert offset % LINE == 0 and offset + lived.nbytes <= found.peak
        live[offset // LINE : (offset + lived.nbytes) // LINE] += change
        assert live.max() <= 1
        live_peak = max(live_peak, int(live.sum()) * LINE)
    assert arena.live_peak == live_peak <= found.peak


def test_no_value_needs_no_bytes() -> None:
    assert RecordingArena().live_peak == 0 and packed([]).peak == 0


def _holes(*xs):
    """Values of growing size, each made while the one before still lives."""
    total = OPS["sum"](xs[0], axes=(0, 1))
    value = xs[0]
    for x in xs[1:]:
        value = OPS["dot"](x, value, contract=((1,), (0,)), batch=((), ()), dtype=F32)
        total = OPS["add"](total, OPS["sum"](value, axes=(0, 1)))
    return [total]


def test_a_plan_with_large_holes_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [(64, 64), (96, 64), (160, 96), (224, 160), (300, 224)]
    program, _ = stage(_holes, [ArrayType(F32, s) for s in shapes])
    program = simplified(program)
    monkeypatch.setattr(heuristics, "HOLE_BYTES", 1 << 40)
    as_it_goes = plan(program)
    monkeypatch.setattr(heuristics, "HOLE_BYTES", 0)
    found = plan(program)
    largest = max(a + b for a, b in ((224, 300), (160, 224), (96, 160))) * 64 * 4
    assert found.arena_bytes < 1.01 * largest < 0.9 * as_it_goes.arena_bytes
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(F32) / 8 for s in shapes]
    (value,) = run_plan(found, arrays)
    expected, exact = arrays[0].astype(float), arrays[0].astype(float).sum()
    for x in arrays[1:]:
        expected = x @ expected
        exact += expected.sum()
    np.testing.assert_allclose(value, exact, rtol=1e-4)


def _table(chunks: int):
    """A table's gradient from chunks of rows, each of which needs large logits."""

    def function(x, table):
        total = None
        for start in range(0, 64 * chunks, 64):
            rows = OPS["slice"](x, start=(start, 0), stop=(start + 64, 512), step=(1, 1))
            rows = OPS["tanh"](rows)
            table_rows = {"contract": ((1,), (1,)), "batch": ((), ()), "dtype": F32}
            logits = OPS["tanh"](OPS["dot"](rows, table, **table_rows))
            part = OPS["dot"](logits, rows, contract=((0,), (0,)), batch=((), ()), dtype=F32)
            total = part if total is None else OPS["add"](total, part)
        return [OPS["mul"](total, total)]

    return function


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_a_large_product_waits_only_where_its_factors_are_smaller(chunks: int) -> None:
    types = [ArrayType(F32, (64 * chunks, 512)), ArrayType(F32, (4096, 512))]
    program, _ = stage(_table(chunks), types)
    steps = [s for s in plan(simplified(program)).steps if isinstance(s, Run)]
    products = [s.kernel.kind == "contract" and s.slots[-1].type.shape for s in steps]
    kinds = [p for p in products if p]
    assert kinds == [(64, 4096), (4096, 512)] * chunks
