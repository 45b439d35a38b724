"""Matrix products against NumPy in float64, and bit for bit against themselves."""

from __future__ import annotations

import itertools
import math
import re

import ml_dtypes
import numpy as np
import pytest
from contracts import F32, Sketch, assert_product, pair, random, targets

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.tuning import DEFAULT
from fxad.backend.llvm.contract.gemm import emit_gemm
from fxad.backend.llvm.contract.gemv import emit_gemv, uses_gemv
from fxad.backend.llvm.contract.kernel import emit_contract
from fxad.backend.llvm.contract.problem import Problem
from fxad.backend.llvm.native.engine import compile_module, host_target
from fxad.core.errors import CheckError
from fxad.ir.kernel import (
    Axis,
    Cast,
    Get,
    Index,
    Operand,
    Quot,
    at,
)

SIZES = [
    (1, 1, 1), (3, 4, 0), (0, 4, 3), (4, 0, 3), (1, 40, 100), (40, 1, 100), (7, 5, 3),
    (8, 48, 16), (13, 100, 37), (9, 49, 769), (64, 64, 64), (97, 145, 50), (30, 33, 1601),
]  # fmt: skip
# Blocks of K are as long with every instruction set, and the other sizes have rests of any tile: of
# those below the host's, they are enough.
REPEATING = [(13, 100, 37), (9, 49, 769), (64, 64, 64)]
SIZED = [(t, s) for t in targets() for s in SIZES if t == host_target() or s not in REPEATING]


def layouts(m: int, n: int, k: int, seed: int):
    """(a, b) pairs: row-major and transposed in every combination."""
    for ta in (False, True):
        for tb in (False, True):
            a = random(k, m, seed=seed) if ta else random(m, k, seed=seed)
            b = random(n, k, seed=seed + 1) if tb else random(k, n, seed=seed + 1)
            yield (a.T, a) if ta else (a, a), (b.T, b) if tb else (b, b)


@pytest.mark.parametrize(("target", "size"), SIZED, ids=[f"{t.isa}-{s}" for t, s in SIZED])
def test_sizes_and_transposes(size, target):
    """With B in place and packed, where that makes two programs of it."""
    m, n, k = size
    pairs = list(layouts(m, n, k, seed=1))
    if target != host_target():  # both alike or one transposed, in turns
        first = SIZES.index(size) % 2
        pairs = [pairs[n] for n in ((0, 3), (1, 2))[first]]
    for a, b in pairs:
        seen = set()
        for nearest in (DEFAULT.gemm.l1_b_bytes, 0):
            tuned = target.tuned(gemm={"l1_b_bytes": nearest})
            out = np.full((m, n), np.nan, F32)
            sketch = Sketch(a, b, out)
            text = emit_contract(sketch.kernel(), "product", tuned).text
            if text not in seen:
                sketch.run(target=tuned)
                assert_product(out, a[0], b[0])
            seen.add(text)


def test_same_bits_on_every_path():
    """An element does not depend on the tile, panel, unit or target that computes it."""
    a, b = random(257, 1601), random(1601, 101)
    whole = np.empty((257, 101), F32)
    units = Sketch(a, b, whole).run(cuts=range(1000)).units
    assert units > 1
    for target in targets():
        for rows in (slice(0, 1), slice(3, 10), slice(250, 257), slice(0, 16)):
            part = np.empty((rows.stop - rows.start, 101), F32)
            view = a[rows]
            Sketch((view, a), b, part).run(target=target)
            np.testing.assert_array_equal(part, whole[rows])
        for columns in (slice(0, 1), slice(100, 101), slice(40, 90), slice(0, 48)):
            part = np.empty((257, columns.stop - columns.start), F32)
            Sketch(a, (b[:, columns], b), part).run(target=target)
            np.testing.assert_array_equal(part, whole[:, columns])
    packed = np.empty((257, 101), F32)
    at_, bt = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)
    Sketch((at_.T, at_), (bt.T, bt), packed).run()
    np.testing.assert_array_equal(packed, whole)
    transposed = np.empty((101, 257), F32)
    Sketch(a, b, (transposed.T, transposed)).run()
    np.testing.assert_array_equal(transposed.T, whole)


@pytest.mark.parametrize("transposed", [False, True])
def test_units_that_are_taken_together_give_the_bits_of_each_alone(transposed):
    """Runs that begin and end anywhere, within a chunk of rows and beyond it, over two elements."""
    a, b = random(2, 389, 790), random(2, 790, 500)
    if transposed:
        whole = np.ascontiguousarray(b.transpose(0, 2, 1))
        b = whole.transpose(0, 2, 1), whole
    alone, out = np.empty((2, 389, 500), F32), np.empty((2, 389, 500), F32)
    units = Sketch(a, b, alone).run(cuts=range(1000)).units
    assert units > 8
    for step in (3, 5, units):
        out[:] = np.nan
        Sketch(a, b, out).run(cuts=range(0, units, step))
        np.testing.assert_array_equal(out, alone)
    assert_product(out[1], a[1], (b[0] if transposed else b)[1])


def test_k_order_is_the_specified_one():
    """Blocks of K from 0 by FMA, added in order: emulated in float64, exact for f32 products."""
    k = 1000  # two blocks: 512 and 488
    a, b = random(2, k), random(k, 3)
    out = np.empty((2, 3), F32)
    Sketch(a, b, out).run()
    for i in range(2):
        for j in range(3):
            sums = []
            for low, high in ((0, 512), (512, k)):
                total = np.float32(0)
                for x, y in zip(a[i, low:high], b[low:high, j], strict=True):
                    total = _fma(x, y, total)
                sums.append(total)
            assert out[i, j] == np.float32(sums[0] + sums[1])


def _fma(x: np.float32, y: np.float32, z: np.float32) -> np.float32:
    """x * y + z rounded once, through exact rationals."""
    exact = math.fsum([float(x) * float(y), float(z)])  # the product is exact; one rounding to f64
    low = np.float32(exact)
    if float(low) == exact:
        return low
    # Rounding twice goes wrong only at ties: settle those by what fsum dropped.
    near = np.nextafter(low, np.float32(math.copysign(math.inf, exact - float(low))))
    middle = (float(low) + float(near)) / 2
    if exact != middle:
        return low
    rest = math.fsum([float(x) * float(y), float(z), -exact])
    if rest == 0:
        return low
    return max(low, near) if rest > 0 else min(low, near)


def test_strides_views_and_batches():
    """Batches of heads inside [batch, time, head, channel], negative and zero strides."""
    x, y = random(2, 20, 3, 16), random(2, 24, 3, 16, seed=1)
    q, k = x.transpose(0, 2, 1, 3), y.transpose(0, 2, 3, 1)
    scores = np.empty((2, 3, 20, 24), F32)
    Sketch((q, x), (k, y), scores).run(cuts=(1, 2))
    assert_product(scores, q, k)
    mixed = np.full((2, 20, 3, 16), np.nan, F32)
    v = y.transpose(0, 2, 1, 3)
    Sketch(scores, (v, y), (mixed.transpose(0, 2, 1, 3), mixed)).run()
    assert_product(mixed.transpose(0, 2, 1, 3), scores, v)
    wide = random(50, 60)
    odd_a = wide[::-3, ::2]
    odd_b = np.broadcast_to(wide[:30, :1], (30, 21))
    out = np.empty((17, 21), F32)
    Sketch((odd_a, wide), (odd_b, wide), out).run()
    assert_product(out, odd_a, odd_b)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_width_operands(name):
    """Products of half-width floats are exact in float32: only the sum rounds."""
    dtype = _dtype(name)
    # The large one cuts the rows into several units, each packing its part of A, and K in two.
    cases = [(37, 53, 129), (301, 50, 900)]
    for a, b in itertools.chain(*(layouts(*size, seed=5) for size in reversed(cases))):
        (a, a_base), (b, b_base) = (tuple(x.astype(dtype) for x in pair) for pair in (a, b))
        a, b = (x if x.flags.c_contiguous else y.T for x, y in ((a, a_base), (b, b_base)))
        out = np.full((a.shape[0], b.shape[1]), np.nan, F32)
        Sketch(pair(a), pair(b), out).run(cuts=(1, 2, 3))
        assert_product(out, a, b)
    rounded = np.empty(out.shape, dtype)
    s = Sketch(pair(a), pair(b), rounded, accumulator=F32)
    s.run([s.store(Cast(Get(s.cell), dtype))])
    np.testing.assert_array_equal(rounded, out.astype(dtype))


@pytest.mark.parametrize(
    "size",
    [
        (1, 48, 2),
        (5, 33, 1),
        (9, 16, 30),
        (67, 100, 257),
        (261, 83, 1602),
        (8, 50, 1603),
    ],
    ids=str,
)
def test_bf16_pairs_add_in_the_same_order(size):
    """Two steps of k in one instruction give the bits of the same products widened to float32."""
    host = host_target()
    if "avx512_bf16" not in host.features:
        pytest.skip("needs vdpbf16ps")
    target = Target(host.isa, frozenset({"bf16_pairs"}))
    # Small ones: both operands as they lie, and both transposed.
    for left, right in list(layouts(*size, seed=8))[:: 1 if size[2] > 100 else 3]:
        a, b = (tuple(x.astype(ml_dtypes.bfloat16) for x in pair) for pair in (left, right))
        a, b = (pair(x if x.flags.c_contiguous else y.T) for x, y in (a, b))
        out, wide = (np.full((size[0], size[1]), np.nan, F32) for _ in range(2))
        Sketch(a, b, out).run(target=target, cuts=(1, 2, 3))
        Sketch(a, b, wide).run(target=Target(host.isa))
        np.testing.assert_array_equal(out, wide)
        assert_product(out, a[0], b[0])
    kernel = Sketch(a, b, out).kernel()
    assert "dpbf16ps" in emit_contract(kernel, "product", target).text
    assert "dpbf16ps" not in emit_contract(kernel, "product", Target(host.isa)).text


@pytest.mark.parametrize(
    "name", ["float64", "complex64", "complex128", "int32", "uint8", "int64", "bool"]
)
def test_other_dtypes(name):
    dtype = np.dtype(name)
    rng = np.random.default_rng(3)
    for m, n, k in [(11, 21, 40), (5, 1, 900), (3, 4, 0)]:
        if dtype.kind in "fc":
            a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype)
            if dtype.kind == "c":
                a, b = a + 1j * random(m, k, seed=7), b - 2j * random(k, n, seed=8)
                a, b = a.astype(dtype), b.astype(dtype)
        else:
            high = 2 if dtype.kind == "b" else 200
            a, b = (rng.integers(0, high, s).astype(dtype) for s in ((m, k), (k, n)))
        out = np.zeros((m, n), dtype)
        Sketch(a, b, out).run(cuts=(1,))
        if dtype.kind in "fc":
            assert_product(out, a, b, np.finfo(dtype).eps)
        else:
            np.testing.assert_array_equal(out, a @ b)


WIDENING = [
    ("int8", "int32"), ("uint16", "int64"), ("float32", "float64"), ("bfloat16", "float64"),
    ("float8_e4m3fn", "float32"),
]  # fmt: skip
WIDENING_TOO = [
    ("uint8", "int32"), ("int8", "uint16"), ("int32", "int64"), ("float16", "float64"),
    ("float8_e5m2", "float32"), ("float8_e5m2", "float64"),
]  # fmt: skip


def _dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _drawn(dtype: np.dtype, *shape: int, seed: int) -> np.ndarray:
    if dtype.kind not in "iu":
        return random(*shape, seed=seed).astype(dtype)
    limits, rng = np.iinfo(dtype), np.random.default_rng([seed, *shape])
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("few", [False, True], ids=["gemm", "gemv"])
@pytest.mark.parametrize(
    "names",
    [*WIDENING, *[pytest.param(names, marks=pytest.mark.slow) for names in WIDENING_TOO]],
    ids="-".join,
)
def test_narrower_operands_are_widened_as_they_are_read(names, few):
    """With the bits of a product of operands that were converted before."""
    source, wide = map(_dtype, names)
    sizes = [(2, 70, 300), (1, 16, 801)] if few else [(37, 53, 129), (5, 1, 900)]
    gemv = {"far_bytes": 1 << 8 if few else 1 << 40}
    for target, (m, n, k) in itertools.product(targets(), sizes):
        tuned = target.tuned(gemv=gemv)
        a, b = _drawn(source, m, k, seed=1), _drawn(source, k, n, seed=2)
        wanted = np.full((m, n), 3, wide)
        Sketch(a.astype(wide), b.astype(wide), wanted).run(target=tuned)
        if wide.kind == "f":
            assert_product(wanted, a, b)
        else:
            np.testing.assert_array_equal(wanted, a.astype(wide) @ b.astype(wide))
        for x in ((a, a), (a, np.ascontiguousarray(a.T))):
            for y in ((b, b), (b, np.ascontiguousarray(b.T))):
                left, right = ((v, w) if v is w else (w.T, w) for v, w in (x, y))
                out = np.full((m, n), 3, wide)
                sketch = Sketch(left, right, out)
                problem = Problem.of(sketch.kernel())
                chosen = emit_gemv if uses_gemv(problem, tuned) else emit_gemm
                assert few == (chosen is emit_gemv) or wide.kind != "f" or n == 1
                assert emit_contract(sketch.kernel(), "p", tuned) == chosen(problem, "p", tuned)
                sketch.run(target=tuned, cuts=(1, 2))
                np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_all_8_bit_floats_are_read_as_they_are(name):
    """NaN and infinities, which reach sums, and denormal numbers, by products with 1."""
    a = np.arange(256, dtype=np.uint8).reshape(256, 1).view(_dtype(name))
    out = np.zeros((256, 21), F32)
    Sketch(a, np.ones((1, 21), a.dtype), out).run()
    np.testing.assert_array_equal(out, np.broadcast_to(a.astype(F32), out.shape))


@pytest.mark.parametrize("k", [64, 1600], ids=["one piece of K", "several"])
def test_main_loop_keeps_its_accumulators_in_registers(k):
    target = host_target()
    if target.isa not in ("avx512", "avx2"):
        pytest.skip("the expected instructions are those of x86")
    rows, columns = (8, 48) if target.isa == "avx512" else (6, 16)
    tile = rows * columns // target.lanes(F32)
    a, b = random(8 * rows, k), random(k, 4 * columns)
    sketch = Sketch(a, b, np.empty((8 * rows, 4 * columns), F32))
    emitted = emit_contract(sketch.kernel(), "product", target)
    text = compile_module([emitted.text], emitted.declarations, target).assembly()
    body = text.split(f"product.{rows}x{columns}:")[1].split(".cfi_endproc")[0]
    blocks = re.split(r"\n(?=\.LBB)", body)
    loop = max(blocks, key=lambda block: block.count("vfmadd"))
    assert loop.count("vfmadd") == 4 * tile
    assert not re.findall(r"[xyz]mm.*\(%[re]sp|\(%[re]sp.*[xyz]mm", loop)


def test_an_operand_must_be_affine():
    s = Sketch(random(4, 4), random(4, 4), np.empty((4, 4), F32))
    inner = Axis("other", 2)
    s.a = Operand(s.a.buffer, Index(0, ((Quot(at(s.m), 2), 1),)) + at(inner) * 0)
    with pytest.raises(CheckError, match="not affine"):
        emit_contract(s.kernel(), "product", host_target())
