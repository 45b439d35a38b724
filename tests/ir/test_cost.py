"""Operations and bytes of compiled functions, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp


def _cost(function, *args) -> dict[str, int]:
    return fxad.jit(function).lower(*args).compile().cost_analysis()


def _ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def test_an_elementwise_kernel_reads_and_writes_every_element_once() -> None:
    cost = _cost(lambda x, y: jnp.sin(x) * y + x, _ones(10, 20), _ones(10, 20))
    assert (cost["flops"], cost["bytes"]) == (3 * 200, 3 * 200 * 4)


@pytest.mark.parametrize(("m", "k", "n"), [(8, 16, 32), (33, 65, 17)])
def test_a_product(m: int, k: int, n: int) -> None:
    cost = _cost(jnp.matmul, _ones(m, k), _ones(k, n))
    assert (cost["flops"], cost["bytes"]) == (2 * m * n * k, 4 * (m * k + k * n + m * n))


def test_a_gather_counts_the_rows_that_it_takes() -> None:
    rows = np.array([3, 900, 7], np.int32)
    cost = _cost(lambda table, i: table[i], _ones(1000, 64), rows)
    assert 2 * 3 * 64 * 4 <= cost["bytes"] <= 2 * 3 * 64 * 4 + 3 * 64 * 8


def test_a_slice_counts_what_it_takes() -> None:
    cost = _cost(lambda x: x[2:5] + 1, _ones(1000, 64))
    assert cost["bytes"] == 2 * 3 * 64 * 4


def test_attention_reads_its_operands_once() -> None:
    q = _ones(1, 256, 2, 64)
    cost = _cost(lambda q, k, v: fxad.nn.dot_product_attention(q, k, v, is_causal=True), q, q, q)
    assert 4 * q.nbytes <= cost["bytes"] <= 4.1 * q.nbytes
