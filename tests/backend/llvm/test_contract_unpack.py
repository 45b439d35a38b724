"""Products of matrices in few bits: the bits of products of the unpacked matrix, which is nowhere.

On the best instruction set of this machine: AVX-512, pairs of bf16 and AMX where it has them.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.ir.packed import CODES, PER_BLOCK, blocks_of, unpacked
from fxad.ir.plan import Run, walk
from fxad.nn import dequantize

BF16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
# Rows and columns of the matrix, rows of the other factor: whole blocks, ragged ones, less than a
# vector, several blocks of k, one row, many.
SIZES = [
    *((256, 256, 32), (192, 1024, 64), (100, 200, 33), (70, 70, 5), (2, 64, 7), (3, 5, 2)),
    *((300, 1000, 9), (256, 256, 1), (1024, 2048, 2), (520, 2048, 600)),
]


def packed(format, rows, columns, seed=0):
    """Codes of all kinds, -128 of int8 included, and scales."""
    random, blocks = np.random.default_rng([seed, rows, columns]), blocks_of(columns)
    codes = random.integers(0, 256, (rows, blocks * PER_BLOCK[format])).astype(np.uint8)
    return codes.view(CODES[format]), random.uniform(0.01, 0.02, (rows, blocks)).astype(F32)


def factor(rows, columns, dtype, seed=1):
    random = np.random.default_rng([seed, rows, columns])
    return random.standard_normal((rows, columns)).astype(dtype)


def both(x, dy, w):
    """x wᵀ and dy w, summed in float32."""

    def dot(a, axis):
        axes = (((1,), (axis,)), ((), ()))
        return fxad.lax.dot_general(a, w, axes, preferred_element_type=jnp.float32)

    return dot(x, 1), dot(dy, 0)


def bits(found):
    return [np.asarray(x).tobytes() for x in found]


F16 = np.dtype(np.float16)
# bf16 has tiles and pairs of its own; the two others are widened alike and take turns.
PRODUCTS = [
    (format, dtype, size)
    for i, size in enumerate(SIZES)
    for j, format in enumerate(CODES)
    for dtype in (BF16, (F32, F16)[(i + j) % 2])
]


@pytest.mark.parametrize(("format", "dtype", "size"), PRODUCTS, ids=str)
def test_products_have_the_bits_of_the_unpacked_matrix(format, dtype, size):
    rows, columns, others = size
    codes, scales = packed(format, rows, columns)
    x, dy = factor(others, columns, dtype), factor(others, rows, dtype)

    def unpacking(x, dy, codes, scales):
        return both(x, dy, dequantize(codes, scales, columns, format, dtype))

    step = fxad.jit(unpacking).lower(x, dy, codes, scales)
    assert {kernel.kind for kernel in step.kernels} == {"contract"}
    whole = unpacked(codes, scales, format, columns).astype(dtype)
    found = fxad.jit(unpacking)(x, dy, codes, scales)
    assert bits(found) == bits(fxad.jit(both)(x, dy, whole))
    for product, (a, b) in zip(found, ((x, whole.T), (dy, whole)), strict=True):
        wide = a.astype(np.float64) @ b.astype(np.float64)
        size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
        # Sums in float32 of at most 2,048 products, in blocks; tiles of bf16 flush denormals.
        np.testing.assert_array_less(np.abs(product - wide), 64 * 2.0**-24 * size + 1e-30)


WHOLE = [  # every two of the three together
    (format, dtype, size)
    for i, size in enumerate([(33, 128), (17, 70), (1, 3), (40, 1000)])
    for j, format in enumerate(CODES)
    for k, dtype in enumerate([F32, BF16, F16])
    if (i + j + k) % 2 == 0
]


@pytest.mark.parametrize(("format", "dtype", "size"), WHOLE, ids=str)
def test_a_matrix_that_others_read_is_unpacked_as_a_whole(format, dtype, size):
    codes, scales = packed(format, *size)
    step = fxad.jit(lambda c, s: dequantize(c, s, size[1], format, dtype))
    assert [k.kind for k in step.lower(codes, scales).kernels] == ["unpack"]
    expected = unpacked(codes, scales, format, size[1]).astype(dtype)
    assert np.asarray(step(codes, scales)).tobytes() == expected.tobytes()


def test_scratch_is_of_a_panel_alone():
    """Nothing of a plan, and no thread's scratch, has the size of the matrix."""
    rows, columns = 2048, 4096
    codes, scales = packed("nf4", rows, columns)
    x, dy = factor(64, columns, BF16), factor(64, rows, BF16)

    def products(x, dy, codes, scales):
        return both(x, dy, dequantize(codes, scales, columns, "nf4", BF16))

    lowered = fxad.jit(products).lower(x, dy, codes, scales)
    memory = lowered.memory()
    assert memory["arena_bytes"] == 0
    assert memory["scratch_bytes"] < rows * columns / 4  # of all threads, where it has 16 MiB


def test_what_an_epilogue_makes_of_a_product():
    codes, scales = packed("nf4", 256, 512)
    x, bias = factor(40, 512, F32), factor(1, 256, F32)[0]

    def layer(x, bias, w):
        return jnp.tanh(x @ w.T + bias)

    def unpacking(x, bias, codes, scales):
        return layer(x, bias, dequantize(codes, scales, 512))

    (kernel,) = fxad.jit(unpacking).lower(x, bias, codes, scales).kernels
    assert "f32(nf4(" in str(kernel)
    whole = unpacked(codes, scales, "nf4", 512)
    found = fxad.jit(unpacking)(x, bias, codes, scales)
    assert bits([found]) == bits([fxad.jit(layer)(x, bias, whole)])


@pytest.mark.parametrize("read", ["sin", "transposed lanes", "result"])
def test_what_cannot_be_unpacked_in_a_product_is_unpacked_before(read):
    codes, scales = packed("int8", 64, 128)
    x = factor(16, 128, F32)

    def reader(x, codes, scales):
        w = dequantize(codes, scales, 128, "int8")
        if read == "sin":
            return x @ w.T, jnp.sin(w)
        return (w @ x.T).T if read == "transposed lanes" else (x @ w.T, w)

    step = fxad.jit(reader)
    whole = unpacked(codes, scales, "int8", 128)
    found = step(x, codes, scales)
    first = np.asarray(found if read == "transposed lanes" else found[0])
    np.testing.assert_allclose(first, x @ whole.T, rtol=1e-5, atol=1e-4)
    if read != "transposed lanes":
        assert "unpack" in [k.kind for k in step.lower(x, codes, scales).kernels]


def test_a_loop_over_layers_unpacks_its_layer():
    stacks = [packed("nf4", 64, 64, seed) for seed in range(3)]
    codes, scales = (np.stack(part) for part in zip(*stacks, strict=True))
    x = factor(8, 64, F32)

    def network(x, codes, scales):
        def layer(x, packed):
            return jnp.tanh(x @ dequantize(*packed, 64).T), None

        return fxad.lax.scan(layer, x, (codes, scales))[0]

    expected = x
    for one in stacks:
        expected = np.tanh(expected @ unpacked(*one, "nf4", 64).T)
    np.testing.assert_allclose(fxad.jit(network)(x, codes, scales), expected, rtol=2e-5, atol=2e-6)
    plan = fxad.jit(network).lower(x, codes, scales)
    assert "unpack" not in [k.kind for k in plan.kernels]


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_other_backends_compute_the_same(backend):
    if backend == "cpu":
        pytest.importorskip("numba")
    codes, scales = packed("nf4", 6, 70)
    x = factor(3, 70, F32)
    step = fxad.jit(lambda x, c, s: x @ dequantize(c, s, 70).T)
    found = step.on(backend)(x, codes, scales)
    np.testing.assert_allclose(found, step(x, codes, scales), rtol=1e-6, atol=1e-6)


def test_plans_hold_no_unpacked_matrix():
    """Of a gradient too: what is kept for the backward pass are the codes."""
    codes, scales = packed("nf4", 128, 256)
    x = factor(16, 256, BF16)

    def loss(x, codes, scales):
        return jnp.sum(jnp.tanh(x @ dequantize(codes, scales, 256, "nf4", BF16).T))

    plan = fxad.jit(fxad.grad(loss)).lower(x, codes, scales).plan
    sizes = [slot.type.size for slot in plan.slots if slot.type.dtype == BF16]
    assert max(sizes) == x.size
    kernels = [step.kernel for step in walk(plan.steps) if isinstance(step, Run)]
    assert sum("bf16(nf4(" in str(kernel) for kernel in kernels) == 2
