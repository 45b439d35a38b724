"""Attention as people write it with plain ops, for NumPy and fxad alike."""

from __future__ import annotations

import math

import numpy as np

R = np.random.default_rng(0)
B, T, S, N, H = 2, 6, 6, 4, 8


def draw(*shape):
    return R.standard_normal(shape)


def softmax(np, x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def bqhd():
    return [draw(B, T, N, H) for _ in "qkv"]


def bhqd():
    return [draw(B, N, T, H) for _ in "qkv"]


# Each is written for NumPy and fxad alike; results and gradients must be those of NumPy.
FOUND = {}


def found(*args, **params):
    """params: what `flash_attention` must have been given."""

    def add(function):
        FOUND[function.__name__] = (function, args, params)
        return function

    return add


@found(*bqhd(), right=0, left=-1, mask=False, scale=1 / math.sqrt(H))
def einsum_with_tril(np, q, k, v):
    x = np.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(H)
    x = np.where(np.tril(np.ones((T, S), bool)), x, -math.inf)
    return np.einsum("bhqk,bkhd->bqhd", softmax(np, x), v)


@found(*bhqd(), right=0, left=-1, mask=False)
def heads_first_and_a_large_negative(np, q, k, v):
    x = q @ np.swapaxes(k, -1, -2) * 0.3
    x = np.where(np.arange(T)[:, None] < np.arange(S)[None, :], -1e10, x)
    return softmax(np, x) @ v


@found(*bhqd(), right=0, mask=False, bias=False)
def added_infinities(np, q, k, v):
    bias = np.where(np.arange(T)[:, None] >= np.arange(S), 0.0, -math.inf)
    return softmax(np, q @ np.swapaxes(k, -1, -2) + bias) @ v


@found(*bhqd(), right=0, mask=False, bias=False)
def added_large_numbers(np, q, k, v):
    bias = (1 - np.tri(T, S)) * -1e10
    return softmax(np, q @ np.swapaxes(k, -1, -2) / 3 + bias) @ v


@found(draw(T, H), draw(S, H), draw(S, 5), right=-1)
def one_head_without_batch(np, q, k, v):
    return softmax(np, q @ k.T) @ v


@found(draw(T, N, H), draw(9, N, H), draw(9, N, 5), right=-1)
def no_batch_other_width(np, q, k, v):
    x = np.einsum("thd,shd->hts", q, k)
    return np.einsum("hts,she->the", softmax(np, x), v)


@found(draw(3, 2, T, N, H), draw(3, 2, S, N, H), draw(3, 2, S, N, H))
def two_batch_axes(np, q, k, v):
    x = np.einsum("abqhd,abkhd->abhqk", q, k)
    return np.einsum("abhqk,abkhd->abqhd", softmax(np, x), v)


@found(*bqhd())
def values_first(np, q, k, v):
    x = np.einsum("bkhd,bqhd->bhqk", k, q)
    return np.einsum("bkhd,bhqk->bhdq", v, softmax(np, x))


@found(*bqhd())
def keys_before_queries(np, q, k, v):
    x = np.einsum("bkhd,bqhd->bhkq", k, q)
    return np.einsum("bhkq,bkhd->bqhd", softmax(np, x, axis=-2), v)


@found(draw(B, T, N, H), draw(B, S, H), draw(B, S, H))
def one_key_head(np, q, k, v):
    x = np.einsum("bqhd,bkd->bhqk", q, k)
    return np.einsum("bhqk,bkd->bqhd", softmax(np, x), v)


@found(draw(B, T, 2, 3, H), draw(B, S, 2, H), draw(B, S, 2, H), right=0)
def groups_of_query_heads(np, q, k, v):
    x = np.einsum("bqkgd,bskd->bkgqs", q, k) * H**-0.5
    x = np.where(np.tril(np.ones((T, S))) == 1, x, -1e30)
    return np.einsum("bkgqs,bskd->bqkgd", softmax(np, x), v)


@found(draw(B, T, N, H), draw(B, S, 2, H), draw(B, S, 2, H), right=-1)
def repeated_keys(np, q, k, v):
    k, v = (np.repeat(a, 2, axis=2) for a in (k, v))
    x = np.einsum("bqhd,bkhd->bhqk", q, k)
    return np.einsum("bhqk,bkhd->bqhd", softmax(np, x), v)


@found(draw(B, N, T, H), draw(B, 2, S, H), draw(B, 2, S, H), right=-1)
def stretched_keys(np, q, k, v):
    k, v = (
        np.reshape(np.broadcast_to(a[:, :, None], (B, 2, 2, S, H)), (B, N, S, H)) for a in (k, v)
    )
    return softmax(np, q @ np.swapaxes(k, -1, -2)) @ v


@found(draw(B, T, N, H), draw(B, S, 1, H), draw(B, S, 1, H))
def keys_of_all_heads(np, q, k, v):
    k, v = (np.broadcast_to(a, (B, S, N, H)) for a in (k, v))
    x = np.einsum("bqhd,bkhd->bhqk", q, k)
    return np.einsum("bhqk,bkhd->bqhd", softmax(np, x), v)


@found(*bqhd(), left=2, right=1, mask=False)
def window(np, q, k, v):
    there = np.arange(T)[:, None] - np.arange(S)[None, :]
    x = np.einsum("bqhd,bkhd->bhqk", q, k)
    x = np.where((there <= 2) & (there >= -1), x, -1e9)
    return np.einsum("bhqk,bkhd->bqhd", softmax(np, x), v)


LENGTHS = np.array([6, 3])


@found(*bqhd(), right=0, mask=True)
def padding_and_causal(np, q, k, v):
    x = np.einsum("bqhd,bkhd->bhqk", q, k)
    there = np.arange(S) < np.asarray(LENGTHS)[:, None]
    x = np.where(there[:, None, None, :], x, -math.inf)
    x = np.where(np.tril(np.ones((T, S), bool)), x, -math.inf)
    return np.einsum("bhqk,bkhd->bqhd", softmax(np, x), v)


@found(*bqhd(), draw(B, 1, T, S) > 0, right=-1, mask=True)
def given_mask_of_large_negatives(np, q, k, v, mask):
    x = np.einsum("bqhd,bkhd->bhqk", q, k) * 0.5
    x = np.where(mask & np.tril(np.ones((T, S), bool)), x, -1e9)
    return np.einsum("bhqk,bkhd->bqhd", softmax(np, x), v)


@found(*bhqd(), draw(N, 1, 1), right=0, bias=True)
def slopes(np, q, k, v, slope):
    x = q @ np.swapaxes(k, -1, -2) / math.sqrt(H)
    x = x - slope * np.abs(np.arange(T)[:, None] - np.arange(S)[None, :])
    x = np.where(np.tril(np.ones((T, S), bool)), x, -math.inf)
    return softmax(np, x) @ v


@found(*bhqd(), np.float64(0.7), scale=0.25)
def scales_everywhere(np, q, k, v, temperature):
    x = (q / 2) @ np.swapaxes(k * 0.5, -1, -2)
    return softmax(np, x / temperature) @ v


@found(*bhqd())
def no_maximum(np, q, k, v):
    e = np.exp(q @ np.swapaxes(k, -1, -2))
    return (e / e.sum(-1)[..., None]) @ v


@found(*bhqd())
def twice_the_exponential(np, q, k, v):
    x = q @ np.swapaxes(k, -1, -2)
    return np.matmul(np.exp(x) / np.sum(np.exp(x), axis=-1, keepdims=True), v)


@found(*bhqd())
def reciprocal(np, q, k, v):
    x = q @ np.swapaxes(k, -1, -2)
    e = np.exp(x - x.max(-1, keepdims=True))
    return (e * (1 / e.sum(-1, keepdims=True))) @ v


@found(*bhqd())
def log_sum_exp(np, q, k, v):
    x = q @ np.swapaxes(k, -1, -2)
    top = x.max(-1, keepdims=True)
    total = top + np.log(np.exp(x - top).sum(-1, keepdims=True))
    return np.exp(x - total) @ v


@found(draw(B, N, H), draw(B, S, N, H), draw(B, S, N, H))
def one_query(np, q, k, v):
    x = np.einsum("bhd,bkhd->bhk", q, k)
    return np.einsum("bhk,bkhd->bhd", softmax(np, x), v)


CHECKS = np.array(np.indices((T, S)).sum(0) % 3 != 1)


@found(*bhqd(), mask=True, right=-1)
def constant_mask(np, q, k, v):
    x = np.where(np.asarray(CHECKS), q @ np.swapaxes(k, -1, -2), -1e9)
    return softmax(np, x) @ v
