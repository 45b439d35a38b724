"""What a unit can do at most: its loop, and that products of this machine stay below it."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.backend.llvm import ceilings
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.ceilings import peak
from fxad.backend.llvm.native.engine import host_target
from fxad.backend.llvm.peaks import loop_of, unit_of

HOST = host_target()
PAIRS = Target("avx512", frozenset({"avx512_bf16", "bf16_pairs"}))
AMX = Target("avx512", frozenset({"avx512_bf16", "bf16_pairs", "amx_bf16"}))


def product(dtype, size: int = 64, sums=jnp.float32):
    """The kernel of a square product."""
    x = fxad.ShapeDtypeStruct((size, size), dtype)
    f = fxad.jit(lambda a, b: jnp.dot(a, b, preferred_element_type=sums))
    (kernel,) = f.lower(x, x).kernels
    return kernel


def test_the_unit_of_a_kernel() -> None:
    low = product(jnp.bfloat16)
    assert unit_of(low, Target("avx2")) == "float32"
    assert unit_of(low, PAIRS) == "bf16 pairs"
    assert unit_of(low, AMX) == "AMX"
    assert unit_of(product(jnp.bfloat16, 16), AMX) == "bf16 pairs"  # too small for tiles
    assert unit_of(product(np.float32), AMX) == "float32"
    assert unit_of(product(np.float64, sums=jnp.float64), AMX) == "float64"


@pytest.mark.parametrize(
    ("unit", "target", "call", "flops"),
    [
        ("float32", Target("avx512"), "@llvm.fma.v16f32(", 2 * 16 * 12),
        ("float64", Target("avx512"), "@llvm.fma.v8f64(", 2 * 8 * 12),
        ("float32", Target("avx2"), "@llvm.fma.v8f32(", 2 * 8 * 12),
        ("bf16 pairs", PAIRS, "@llvm.x86.avx512bf16.dpbf16ps.512(", 4 * 16 * 12),
        ("AMX", AMX, "@llvm.x86.tdpbf16ps(", 4 * 2 * 16 * 16 * 32),
    ],
)
def test_the_loop_of_a_unit(unit, target, call, flops) -> None:
    """On registers alone: one turn has the unit's instructions, and no load or store."""
    text, declarations, counted = loop_of(unit, target)
    assert counted == flops
    assert any(call.rstrip("(") in line for line in declarations)
    inside = text[text.index("\nhead") :]
    inside = inside[: inside.index("br i1")]
    assert inside.count(call) == (4 if unit == "AMX" else 12)
    assert " load " not in inside and "store " not in inside and "tileload" not in inside


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("how", [(1, 0), (2, 3), (2, 2)])
def test_a_reading_loop_reads_every_element_once(how, threads, monkeypatch) -> None:
    """Threads and pieces together add up the whole array, up to what no turn of theirs fits."""
    held = []

    def aligned(*shape):
        held.append(np.zeros(shape, np.float32))
        return held[-1]

    array = np.random.default_rng(0).standard_normal(threads * 1024, np.float32)
    monkeypatch.setattr(ceilings, "aligned", aligned)
    run, size = ceilings._reader(array, threads, *how)
    run()
    assert size == array.nbytes
    np.testing.assert_allclose(sum(x.sum() for x in held), array.sum(), rtol=1e-3, atol=1e-3)


def test_rates_on_this_machine() -> None:
    """Others work beside the tests, which only lowers a rate: the best ones are compared, and
    measured again until they are as they must be."""
    best = {"float32": 0.0, "float64": 0.0}
    if "bf16_pairs" in HOST.features:
        best["bf16 pairs"] = 0.0

    def as_they_must_be() -> bool:
        for unit in best:
            best[unit] = max(best[unit], peak(unit, HOST, 1))
        single, double = best["float32"], best["float64"]
        half_the_lanes = 1 < double < single  # GFLOP/s
        return half_the_lanes and best.get("bf16 pairs", np.inf) > 1.2 * single

    assert any(as_they_must_be() for _ in range(50)), best
