"""Attention forward, backward, with windows and caches; the head and its cross-entropy."""

from __future__ import annotations

import fxad
import fxad.numpy as jnp
from tests.recorded.catalogue.case import Cases, bf16, bool_, f32, f64, i32

cases = Cases("attention")


def attention(q, k, v, bias=None, **options):
    return fxad.nn.dot_product_attention(q, k, v, bias, **options)


def causal(q, k, v):
    return attention(q, k, v, is_causal=True)


def gradient(function):
    return fxad.grad(lambda q, k, v: function(q, k, v).sum(), argnums=(0, 1, 2))


def heads(kind, time=128, heads=4, depth=64, batch=2):
    return kind(batch, time, heads, depth)


for name, function in (("full", attention), ("causal", causal)):
    for dtype, kind in (("f32", f32), ("bf16", bf16)):
        given = [heads(kind)] * 3
        cases.add(f"{name}-{dtype}", function, *given)
        cases.add(f"{name}-{dtype}-grad", gradient(function), *given)
cases.add("full-f64", attention, *[heads(f64, 32, 2, 16)] * 3)
cases.add("long-f32", causal, *[heads(f32, 1024, 12, 64, 1)] * 3)
cases.add("long-f32-grad", gradient(causal), *[heads(f32, 1024, 12, 64, 1)] * 3)
cases.add("long-bf16-grad", gradient(causal), *[heads(bf16, 1024, 12, 64, 1)] * 3)
cases.add("small", causal, *[heads(f32, 16, 2, 8)] * 3)
cases.add("odd-sizes", causal, *[heads(f32, 37, 3, 20, 1)] * 3)
cases.add("grouped", causal, heads(f32, 64, 8), heads(f32, 64, 2), heads(f32, 64, 2))
cases.add("grouped-grad", gradient(causal), heads(f32, 64, 8), heads(f32, 64, 2), heads(f32, 64, 2))
cases.add("cross", attention, heads(f32, 10), heads(f32, 300), heads(f32, 300))
cases.add(
    "window", lambda q, k, v: attention(q, k, v, local_window_size=(16, 0)), *[heads(f32)] * 3
)
cases.add(
    "window-grad",
    gradient(lambda q, k, v: attention(q, k, v, local_window_size=(16, 0))),
    *[heads(f32)] * 3,
)
cases.add(
    "bias", lambda q, k, v, b: attention(q, k, v, b), *[heads(f32, 32)] * 3, f32(1, 4, 32, 32)
)
cases.add(
    "mask-bf16",
    lambda q, k, v, m: attention(q, k, v, mask=m),
    *[heads(bf16, 32)] * 3,
    bool_(2, 1, 32, 32),
)
cases.add(
    "lengths",
    lambda q, k, v, n: attention(q, k, v, query_seq_lengths=n, key_value_seq_lengths=n),
    *[heads(f32, 32)] * 3,
    i32(2),
)


def packed(q, k, v, ids):
    return attention(q, k, v, is_causal=True, segment_ids=ids)


def packed_gradient(q, k, v, ids):
    return gradient(lambda q, k, v: packed(q, k, v, ids))(q, k, v)


cases.add("segments", packed, *[heads(f32)] * 3, i32(2, 128))
cases.add("segments-grad", packed_gradient, *[heads(f32)] * 3, i32(2, 128))
cases.add(
    "segments-both-sides",
    lambda q, k, v, ids: attention(q, k, v, segment_ids=ids),
    *[heads(f32)] * 3,
    i32(2, 128),
)
cases.add("vmapped", fxad.vmap(causal), *[f32(3, 2, 16, 2, 8)] * 3)


def plain(q, k, v):
    """Written with plain ops, heads first; `recognise` finds it."""
    scores = q @ jnp.swapaxes(k, -1, -2) / 8.0
    there = jnp.tril(jnp.ones((q.shape[-2], k.shape[-2]), bool))
    return fxad.nn.softmax(jnp.where(there, scores, -jnp.inf)) @ v


cases.add("recognised", plain, *[f32(2, 4, 64, 64)] * 3)
cases.add("recognised-grad", gradient(plain), *[f32(2, 4, 64, 64)] * 3)


def decoding(q, keys, values, k, v, position):
    """One query at a position, its key and value written into the caches."""
    at = (0, 0, position, 0)
    keys = fxad.lax.dynamic_update_slice(keys, k, at)
    values = fxad.lax.dynamic_update_slice(values, v, at)
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, keys, preferred_element_type=jnp.float32) / 8
    there = jnp.arange(keys.shape[2]) <= position
    weights = fxad.nn.softmax(jnp.where(there, scores, -jnp.inf)).astype(values.dtype)
    return weights @ values, keys, values


for dtype, kind in (("f32", f32), ("bf16", bf16)):
    one, cache = kind(1, 12, 1, 64), kind(1, 12, 256, 64)
    given = (one, cache, cache, one, one, i32())
    cases.add(f"decoding-{dtype}", decoding, *given, donate=(1, 2))


def head(x, table, targets, dtype=None):
    return fxad.nn.linear_cross_entropy(x, table, targets, dtype=dtype)


def rounded_head(x, table, targets):
    return head(x, table, targets, "bfloat16")


def plain_head(x, table, targets):
    logits = fxad.nn.log_softmax(x @ table.T)
    return -jnp.mean(jnp.take_along_axis(logits, targets[:, None], axis=1))


tokens = (f32(256, 768), f32(50257, 768), i32(256))
cases.add("head-loss", head, *tokens)
cases.add("head-loss-grad", fxad.value_and_grad(head, argnums=(0, 1)), *tokens)
cases.add("head-loss-rounded-grad", fxad.value_and_grad(rounded_head, argnums=(0, 1)), *tokens)
cases.add("head-loss-bf16-grad", fxad.grad(head), bf16(64, 256), bf16(1000, 256), i32(64))
cases.add("head-recognised", plain_head, f32(64, 128), f32(5000, 128), i32(64))
cases.add(
    "head-recognised-grad",
    fxad.grad(plain_head, argnums=(0, 1)),
    f32(64, 128),
    f32(5000, 128),
    i32(64),
)
