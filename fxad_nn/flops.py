"""How much arithmetic a model needs, and how much a machine can do.

flops = training_flops_per_token(config, context=64)
utilisation = flops * tokens_per_second / measured_peak()
"""

from __future__ import annotations

import fxad
from fxad import machine
from fxad_nn import decoder, models
from fxad_nn.precision import products_of
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


def unit_of(precision: str | None) -> str:
    """What of the processor computes large products in a precision (`fxad_nn.precision`): their
    factors are float32 unless they are rounded to bfloat16."""
    narrow = products_of(precision) == "bfloat16"
    return machine.unit_for("bfloat16" if narrow else "float32")


_seen: dict[tuple[str, int], float] = {}


def measured_peak(unit: str = "float32", tries: int = 3) -> float:
    """Floating-point operations per second of a unit of the processor, on all threads that fxad
    uses: multiply-adds on registers alone.

    The best of a few short runs, which take a tenth of a second together, and measured once for
    each number of threads: a busy machine shows less than it can do.
    """
    key = unit, fxad.get_num_threads()
    if key not in _seen:
        _seen[key] = 1e9 * max(machine.peak(*key) for _ in range(tries))
    return _seen[key]
