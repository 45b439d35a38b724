"""Drawing a token from logits: temperature, top-k and top-p (Holtzman et al., 2020).

token = draw(logits, key, temperature=0.8, top_k=200, top_p=0.95)

Nothing is sorted: the smallest logit to keep is found two bits at a time, in 16 turns, or fewer
where as many are kept as are wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fxad
import fxad.numpy as jnp

_BLOCK = 1024
_PAIRS = 16  # of bits of a rank


def draw(
    logits: Any, key: Any, temperature: Any = 1.0, top_k: Any = None, top_p: Any = None
) -> Any:
    """An id, int32, drawn from softmax(logits / temperature); temperature 0 takes the likeliest.

    logits: [vocab]. top_k: only the so many likeliest can be drawn (and those as likely as the
    last of them). top_p: of these only the likeliest, as many as it takes for their probabilities
    to reach top_p. All may be traced scalars; None keeps every id.
    """
    # Sums over whole blocks are several times as fast.
    spare = -logits.shape[0] % _BLOCK
    logits = jnp.pad(logits.astype(jnp.float32), (0, spare), constant_values=-jnp.inf)
    best = jnp.argmax(logits).astype(jnp.int32)
    warm = logits / jnp.maximum(temperature, 1e-6)
    ranks = _ranks(logits)
    if top_k is not None:
        warm = _kept(warm, ranks, lambda kept: jnp.sum(kept, dtype=jnp.int32), top_k)
    if top_p is not None:
        weights = fxad.nn.softmax(warm)
        warm = _kept(warm, ranks, lambda kept: jnp.sum(jnp.where(kept, weights, 0.0)), top_p)
    drawn = fxad.random.categorical(key, warm).astype(jnp.int32)
    return jnp.where(temperature > 0, drawn, best)


def _ranks(x: Any) -> Any:
    """int32 numbers in the order of the float32 `x`."""
    bits = fxad.lax.bitcast_convert_type(x, jnp.int32)
    return jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


def _kept(x: Any, ranks: Any, measure: Callable[[Any], Any], wanted: Any) -> Any:
    """`x` where its rank is at least the largest one from which on `measure` reaches `wanted`, or a
    smaller one from which on it is `wanted`; -inf elsewhere.

    measure: of a mask, grows with it. The search is for two bits of that rank at a time.
    """

    def goes_on(state: Any) -> Any:
        number, _, reached = state
        return (number < _PAIRS) & (reached != wanted)

    def pair_of_bits(state: Any) -> Any:
        number, least, reached = state
        unit, more = jnp.int32(1) << (2 * (_PAIRS - 1 - number)), least
        for _ in range(3):
            more = more + unit
            measured = measure(ranks >= more)
            enough = measured >= wanted
            least = jnp.where(enough, more, least)
            reached = jnp.where(enough, measured, reached)
        return number + 1, least, reached

    start = jnp.int32(0), jnp.int32(-(1 << 31)), measure(ranks >= -(1 << 31))
    least = fxad.lax.while_loop(goes_on, pair_of_bits, start)[1]
    return jnp.where(ranks >= least, x, -jnp.inf)
