"""bf16 products on AMX against NumPy in float64, and bit for bit against the documented order."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from contracts import Sketch

import fxad
import fxad.numpy as jnp
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.tuning import DEFAULT
from fxad.backend.llvm.contract.amx_blocking import TileBlocking
from fxad.backend.llvm.contract.kernel import emit_contract
from fxad.backend.llvm.contract.problem import Problem
from fxad.backend.llvm.native.engine import host_target
from fxad.core.errors import CheckError
from fxad.ir.kernel import Cast, Get, Load, Prim, at

BF16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype("float32")
HOST = host_target()
TARGET = Target(HOST.isa, frozenset({"avx512_bf16", "amx_bf16"}))

pytestmark = pytest.mark.skipif("amx_bf16" not in HOST.features, reason="needs AMX with bf16")


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(BF16)


def layouts(m: int, n: int, k: int):
    """(a, b) as pairs (view, contiguous array): row-major and transposed in every combination."""
    a, b = random(m, k), random(k, n, seed=1)
    at_, bt = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)
    return itertools.product([(a, a), (at_.T, at_)], [(b, b), (bt.T, bt)])


def product(a, b, **how) -> np.ndarray:
    out = np.full((a[0].shape[0], b[0].shape[1]), np.nan, F32)
    emitted = Sketch(a, b, out).run(target=TARGET, **how)
    assert "tdpbf16ps" in emitted.text
    return out


def in_order(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Steps of 32: products of even and of odd k summed apart in float32, then added to the sum.

    A product of two bf16 is exact in float32, so an FMA is an addition.
    """
    pad = -a.shape[1] % 32
    a = np.pad(a.astype(F32), ((0, 0), (0, pad)))
    b = np.pad(b.astype(F32), ((0, pad), (0, 0)))
    total = np.zeros((a.shape[0], b.shape[1]), F32)
    for start in range(0, a.shape[1], 32):
        halves = [np.zeros_like(total), np.zeros_like(total)]
        for k in range(start, start + 32):
            halves[k % 2] += np.outer(a[:, k], b[k])
        total += halves[0] + halves[1]
    return total


SIZES = [
    (32, 32, 64), (48, 64, 96), (16, 200, 33), (33, 50, 100), (2, 900, 65), (130, 7, 320),
    (100, 257, 1601), (256, 96, 768), (70, 64, 2048),
    (160, 96, 1600), (224, 64, 832),  # several L1 blocks of K
    (544, 130, 832), (1070, 96, 64),  # many rows: all panels of a unit packed
    (520, 66, 2100), (96, 70, 20_000),  # several L2 blocks of K
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_order_of_sums(size):
    """Any size, layout and number of units: the bits of the documented order, near the true sum."""
    wanted = None
    for a, b in layouts(*size):
        wanted = in_order(a[0], b[0]) if wanted is None else wanted  # of every layout the same
        found = product(a, b, cuts=(1, 2, 3))
        np.testing.assert_array_equal(found, wanted)
    wide = [x[0].astype(np.float64) for x in (a, b)]
    bound = (size[2] + 2) * np.finfo(F32).eps * (np.abs(wide[0]) @ np.abs(wide[1]))
    assert np.all(np.abs(found - wide[0] @ wide[1]) <= bound)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_factors_are_rounded_as_they_are_packed(size):
    """Float32 factors, either of them or both: the bits of rounded ones."""
    m, n, k = size
    r = np.random.default_rng(0)
    a, b = (r.standard_normal(shape).astype(F32) for shape in ((m, k), (k, n)))
    a[0, :3] = 1e-39, -0.0, 1 + 2**-8  # a denormal, and a tie
    halves = a.astype(BF16), b.astype(BF16)
    wanted = in_order(flushed(halves[0]), halves[1])
    turned = SIZES.index(size) % 2 == 1  # a half is transposed in every second size
    for left, right, transposed in (
        *((a, b, False), (a, b, True)),
        *((halves[0], b, turned), (a, halves[1], not turned)),
    ):
        out = np.full((m, n), np.nan, F32)
        sides = [np.ascontiguousarray(x.T) if transposed else x for x in (left, right)]
        views = [(x.T if transposed else x, x) for x in sides]
        Sketch(*views, out, rounded=BF16).run(target=TARGET, cuts=(1, 2, 3))
        np.testing.assert_array_equal(out, wanted)


def flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x.astype(F32)) < np.finfo(F32).tiny, 0, x).astype(BF16)


def test_only_tiles_round_factors():
    a = np.zeros((64, 64), F32)
    kernel = Sketch(a, a, np.empty((64, 64), F32), rounded=BF16).kernel()
    assert "bf16(in0[" in str(kernel)
    with pytest.raises(CheckError, match="only products on tiles round their factors"):
        emit_contract(kernel, "product", Target("avx512"))


def test_strides_and_batches():
    """Heads inside [batch, time, head, channel], and operands contiguous along no axis."""
    x, y = random(2, 40, 3, 64), random(2, 48, 3, 64, seed=1)
    q, k = x.transpose(0, 2, 1, 3), y.transpose(0, 2, 3, 1)
    scores = np.empty((2, 3, 40, 48), F32)
    assert "tdpbf16ps" in Sketch((q, x), (k, y), scores).run(target=TARGET, cuts=(1, 2)).text
    for i, j in itertools.product(range(2), range(3)):
        np.testing.assert_array_equal(scores[i, j], in_order(q[i, j], k[i, j]))
    wide = random(128, 160)
    odd_a, odd_b = wide[::-3, ::2], wide[:80, ::2]
    np.testing.assert_array_equal(product((odd_a, wide), (odd_b, wide)), in_order(odd_a, odd_b))


def test_ways_of_packing():
    """Many rows keep the panels of a unit, fewer do where columns lie side by side in memory."""
    for m, transposed, stationary in ((96, False, False), (256, True, False), (256, False, True),
                             (544, True, True)):  # fmt: skip
        right = random(96, 768).T if transposed else random(768, 96)
        kernel = Sketch(random(m, 768), (right, right.T if transposed else right),
                        np.empty((m, 96), F32)).kernel()  # fmt: skip
        assert TileBlocking.of(Problem.of(kernel), DEFAULT.amx).b_stationary == stationary


@pytest.mark.parametrize(("k", "units"), [(1024, 8), (3072, 2)])
def test_units_that_pack_their_rows_anew_are_few(k, units):
    """Of a long K a unit's rows have no room at once, so that every unit packs all of them."""
    a, b = np.zeros((256, k), BF16), np.zeros((768, k), BF16)
    kernel = Sketch((a, a), (b.T, b), np.empty((256, 768), F32)).kernel()
    tuning = DEFAULT.with_("two threads", None, amx={"b_stationary_units": 2}).amx
    blocking = TileBlocking.of(Problem.of(kernel), tuning)
    assert (blocking.l2_blocks > 1) == (k == 3072)
    assert blocking.units == units


@pytest.mark.parametrize("size", [(64, 64, 64), (45, 75, 1100), (520, 80, 64)], ids=str)
def test_epilogue(size):
    """A bias and a residual on the sums, results in float32 and bf16."""
    m, n, k = size
    a, b = random(m, k), random(k, n, seed=1)
    bias, rest = random(n).astype(F32), random(m, n, seed=2).astype(F32)
    out, half = np.full((m, n), np.nan, F32), np.zeros((m, n), BF16)
    s = Sketch(a, b, out)
    biased = Prim("add", (Get(s.cell), Load(s.buffer(bias), at(s.n))), F32)
    total = Prim("add", (biased, Load(s.buffer(rest), at(s.m) * n + at(s.n))), F32)
    in_half = s.buffer(half, "out")
    stores = [s.store(total), type(s.store())(in_half, s.out_index, Cast(total, BF16))]
    assert "tdpbf16ps" in s.run(stores, TARGET, cuts=(1,)).text
    np.testing.assert_array_equal(out, in_order(a, b) + bias + rest)
    np.testing.assert_array_equal(half, out.astype(BF16))


def test_special_values():
    """Infinities and NaN travel; what is denormal counts as 0."""
    a, b = random(64, 64), random(64, 64, seed=1)
    a[3, 5], a[7, 9], a[11] = np.inf, np.nan, 1e-39
    found = product((a, a), (b, b))
    assert np.all(np.isinf(found[3])) and np.all(np.isnan(found[7]))
    assert np.all(found[11] == 0)


def test_small_products_take_the_other_path():
    for m, n, k in [(64, 64, 16), (8, 8, 64)]:
        kernel = Sketch(random(m, k), random(k, n), np.empty((m, n), F32)).kernel()
        assert "tdpbf16ps" not in emit_contract(kernel, "product", TARGET).text


def test_rows_are_counted_before_views_move_them():
    """Four heads of four rows are sixteen rows; four rows alone are few, however many heads."""
    w = random(64, 512, seed=1)

    def product(x):
        return jnp.swapaxes(x, 0, 1) @ w

    def heads(x):
        return x @ jnp.broadcast_to(w, (4, 64, 512))

    for f, tiles in ((product, True), (heads, False)):
        x = random(4, 4, 64)
        lowered = fxad.jit(f).lower(x)
        assert ("tdpbf16ps" in lowered.asm) == tiles


def test_threads_do_not_change_the_bits():
    a, b = random(300, 500), random(500, 700, seed=1)
    step = fxad.jit(lambda a, b: jnp.tanh((a @ b).astype(jnp.float32) * 0.01))
    before = fxad.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            fxad.set_num_threads(threads)
            found.append(np.asarray(step(a, b)))
    finally:
        fxad.set_num_threads(before)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_tiles_are_an_instruction_set_of_their_own():
    assert host_target("amx").features == HOST.features | {"amx_float32"}
    assert "amx_bf16" not in host_target("avx512").features
    with fxad.config.override(isa="avx512"):
        a = random(64, 64)
        lowered = fxad.jit(lambda a: a @ a).lower(a)
        assert "tdpbf16ps" not in lowered.asm
