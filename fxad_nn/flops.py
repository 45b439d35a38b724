"""How much arithmetic a model needs, and how much a machine can do.

flops = training_flops_per_token(config, context=64)
utilisation = flops * tokens_per_second / measured_peak()
"""

from __future__ import annotations

import time

import numpy as np

from fxad.core.system import allowed_cpus
from fxad_nn import decoder, models
from fxad_nn.spec import named_leaves


def product_params(config: models.Config) -> int:
    """How many parameters multiply every token: all matrices of the blocks, and the head.

    Embedding tables are looked up, not multiplied; a tied one counts as the head. Of experts those
    count that a token goes through.
    """
    blocks = models.family(config).spec(config)["blocks"]
    leaves = [leaf for _, leaf in named_leaves(blocks)]
    matrices = sum(leaf.size for leaf in leaves if len(leaf.shape) == 2)
    stacked = sum(leaf.size for leaf in leaves if len(leaf.shape) == 3)
    if isinstance(config, decoder.Config) and config.experts:
        matrices += stacked // config.experts * config.chosen
    return matrices + config.vocab * config.width


def training_flops_per_token(config: models.Config, context: int) -> int:
    """Floating-point operations per token of forward and backward: 6 N + 12 L H Q T.

    The convention of PaLM (Chowdhery et al., 2022, appendix B): recomputation does not count,
    and attention counts in full although the causal half of it suffices.
    """
    attention = 12 * config.layers * config.heads * config.head_dim * context
    return 6 * product_params(config) + attention


def measured_peak(seconds: float = 0.3) -> float:
    """Floating-point operations per second of NumPy's float32 matrix product on all cores.

    The best of many short ones, so that a busy machine still shows what it can do: large products
    on all threads, and small ones, which run on one thread and so wait for no other, times cores.
    """
    cores = len(allowed_cpus())
    return max(_product_rate(512, seconds / 2), cores * _product_rate(64, seconds / 2))


def _product_rate(n: int, seconds: float) -> float:
    """The best rate of square products of size n within so many seconds."""
    a = np.ones((n, n), np.float32)
    out = np.empty_like(a)
    best = 0.0
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop:
        start = time.perf_counter()
        np.matmul(a, a, out=out)
        best = max(best, 2 * n**3 / (time.perf_counter() - start))
    return best
