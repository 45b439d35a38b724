"""A Map done in the loop of the reduction that reads its results: where, and the bits stay."""

import numpy as np
import pytest
from native_kernels import Case, call, compile_cases

import fxad
import fxad.numpy as jnp
from fxad.backend.llvm import emit
from fxad.backend.llvm.native.engine import host_target


def softmax(x):
    return fxad.nn.softmax(x, -1)


def sums_of_results(x):
    total = x * 2 + 1
    return total, total.sum(-1)


def steps_of_norm(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred * centred / (centred * centred).sum(-1, keepdims=True)


FUNCTIONS = [softmax, sums_of_results, steps_of_norm, fxad.grad(lambda x: (softmax(x) ** 2).sum())]
WIDTHS = [1, 5, 64, 100, 1027]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_bits_are_those_of_two_loops(width, dtype, monkeypatch):
    with fxad.enable_x64():
        lowered = [fxad.jit(f).lower(np.ones((3, width), dtype)) for f in FUNCTIONS]
        kernels = [kernel for one in lowered for kernel in one.kernels]
    together = [results(kernel) for kernel in kernels]
    monkeypatch.setattr(emit, "fused_into", lambda *_: None)
    for kernel, fused in zip(kernels, together, strict=True):
        for a, b in zip(fused, results(kernel), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=str(kernel))


def results(kernel):
    """What a kernel leaves in its buffers, given numbers from 0.5 to 1.5."""
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.5, 1.5, b.size).astype(b.dtype) for b in kernel.buffers]
    (emitted,), module = compile_cases([Case(kernel, arrays)], host_target())
    call(module, emitted, kernel, arrays, [1.5] * len(kernel.scalars))
    return arrays


def test_softmax_reads_its_row_one_time_less():
    x = np.zeros((3, 1024), np.float32)
    (kernel,) = fxad.jit(softmax).lower(x).kernels
    text = emit.emit(kernel, "k", host_target()).text
    assert text.count("phi i64") == 2 + 3  # units, rows; maximum, exponentials with sum, quotients


def test_a_sum_near_its_float64_value():
    x = np.random.default_rng(0).uniform(-1, 1, (3, 5000)).astype(np.float32)
    total, sums = fxad.jit(sums_of_results)(jnp.asarray(x))
    np.testing.assert_array_equal(total, x * 2 + 1)
    want = (x * 2 + 1).astype(np.float64).sum(-1)
    np.testing.assert_allclose(sums, want, rtol=1e-6)
