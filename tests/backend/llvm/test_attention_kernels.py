"""Attention's kernels against softmax written out in NumPy, double precision."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
from fxad.backend.llvm.native.engine import host_target
from fxad.core.config import config
from fxad.ir.kernel import Attention, AttentionGrad
from fxad.ops.fused.attention import flash_attention, flash_attention_grad, grad_parts, parts

PLAIN = {"left": -1, "right": -1, "bias": False, "mask": False}
LOWER = ["generic"] if host_target().isa in ("generic", "neon") else ["avx2", "generic"]

# queries, keys, heads, key heads, depth, width, parameters
SIZES = [
    # One block of queries, which sets cotangents of k and v at once; of keys that nobody sees, too.
    (49, 49, 2, 2, 32, 32, {"right": 0}),
    (96, 700, 2, 2, 80, 20, {"right": 5}),
    (97, 1000, 2, 1, 96, 96, {"right": 850}),
    (144, 144, 2, 2, 128, 128, {"right": 0}),
    (61, 1201, 4, 2, 144, 136, {"right": 1140}),
    (50, 450, 2, 2, 160, 40, {"mask": True}),
    (400, 500, 2, 1, 17, 33, {"left": 150, "right": 450, "mask": True}),
    (150, 900, 2, 1, 72, 80, {"bias": True, "mask": True}),
    # One query, whose bounds are constants.
    (1, 50, 2, 1, 8, 40, {"left": 1, "right": 5}),
    # Few queries: keys are read in place, for all heads that share them; several blocks, parts.
    (1, 2000, 8, 1, 128, 128, {"mask": True}),
    (4, 1001, 6, 2, 80, 33, {"right": 900}),
    (12, 700, 2, 2, 144, 144, {"left": 300, "right": 690}),
    (8, 300, 3, 1, 40, 16, {"bias": True, "mask": True, "right": 200}),
    (4, 1, 6, 3, 3, 5, {"bias": True}),
    (1, 2048, 4, 1, 32, 24, {}),
    (2, 1024, 6, 2, 24, 8, {"right": 100}),
    # The gradient in parts: of the queries, of the heads that share keys, with a bias and a mask.
    (2050, 700, 1, 1, 8, 16, {"right": 0}),
    (360, 300, 6, 1, 16, 8, {"left": 200, "right": 40}),
    (1025, 130, 2, 1, 8, 8, {"right": 0, "bias": True, "mask": True}),
]
IDS = [str(s[:6]) for s in SIZES]
# In double precision, and with other instruction sets: one of each kind.
WIDE = [0, 5, 6, 7, 10, 15]
OTHERS = [(0, LOWER[-1]), (6, LOWER[0]), *((10, isa) for isa in LOWER)]
# Numbers in parts: rests of rows, keys, depth and width; several blocks of keys.
IN_PARTS = [
    (130, 600, 2, 1, 64, 64, {"right": 470}),
    (225, 1089, 1, 1, 99, 41, {"bias": True, "left": 90, "right": 860}),
    (128, 600, 1, 1, 160, 160, {}),
]
TILES = ["amx"] if "amx_bf16" in host_target().features else []


def _draw(case, dtype, seed=0):
    queries, keys, heads, groups, depth, width, more = case
    r = np.random.default_rng(seed)
    shapes = [(2, queries, heads, depth), (2, keys, groups, depth), (2, keys, groups, width)]
    qkv = [r.standard_normal(s).astype(dtype) for s in shapes]
    extras = []
    if more.get("bias"):
        extras.append(r.standard_normal((1, heads, queries, keys)).astype(dtype))
    if more.get("mask"):
        extras.append(np.arange(keys) < np.array([keys - 3, keys // 2])[:, None, None, None])
    d_out = r.standard_normal((2, queries, heads, width)).astype(dtype)
    return qkv, extras, d_out, {"scale": depth**-0.5, **PLAIN, **more}


def softmax_attention(qkv, extras, scale, left, right, bias, mask):
    """In float64 and by heads, [B, N, T or S, ...]: q; k and v, repeated over groups; weights, the
    log-sum-exps, and the result as [B, T, N, E]."""
    q, k, v = (x.astype(np.float64).swapaxes(1, 2) for x in qkv)
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    x = q @ k.mT * scale
    if bias:
        x += extras[0]
    i, j = np.ogrid[: q.shape[2], : k.shape[2]]
    seen = (left < 0 or j >= i - left) & (right < 0 or j <= i + right)
    x = np.where(seen & (extras[-1] if mask else True), x, -np.inf)
    most = np.max(x, axis=-1, keepdims=True, initial=np.finfo(np.float64).min)
    weights = np.exp(x - most)
    sums = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (most + np.log(sums))[..., 0]
    weights /= np.where(sums == 0, 1, sums)
    return q, k, v, weights, lse, (weights @ v).swapaxes(1, 2)


def _check(case, dtype, tolerance):
    (qkv, extras, d_out, params) = _draw(case, dtype)
    q, k, v, weights, wanted_lse, wanted = softmax_attention(qkv, extras, **params)
    out, lse = fxad.jit(lambda *a: flash_attention(*a, **params))(*qkv, *extras)
    np.testing.assert_allclose(out, wanted, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(lse, wanted_lse, rtol=tolerance, atol=tolerance)
    delta = np.einsum("btne,btne->bnt", wanted, d_out)
    args = (*qkv, wanted_lse.astype(dtype), delta.astype(dtype), d_out, *extras)
    found = fxad.jit(lambda *a: flash_attention_grad(*a, **params))(*args)
    d_heads = d_out.astype(np.float64).swapaxes(1, 2)
    d_scores = d_heads @ v.mT - delta[..., None]
    d_scores *= weights * params["scale"]
    batch, keys, groups, _ = qkv[1].shape

    def summed(x):
        """[B, N, S, ...] -> [B, S, K, ...]: over the heads that share keys."""
        return x.reshape(batch, groups, -1, keys, x.shape[-1]).sum(2).swapaxes(1, 2)

    cotangents = (
        (d_scores @ k).swapaxes(1, 2),
        summed(d_scores.mT @ q),
        summed(weights.mT @ d_heads),
    )
    for a, b in zip(found, cotangents, strict=True):
        np.testing.assert_allclose(a, b, rtol=3 * tolerance, atol=3 * tolerance)


@pytest.mark.parametrize("case", SIZES, ids=IDS)
def test_both_passes_equal_numpy_in_double_precision(case):
    _check(case, "float32", 5e-6)


@pytest.mark.parametrize("case", [SIZES[i] for i in WIDE], ids=[IDS[i] for i in WIDE])
def test_both_passes_of_doubles_equal_numpy(case):
    with fxad.enable_x64():
        _check(case, "float64", 1e-13)


@pytest.mark.parametrize(("case", "isa"), OTHERS, ids=[f"{IDS[i]}-{isa}" for i, isa in OTHERS])
def test_other_instruction_sets_compute_the_same(case, isa):
    with config.override(isa=isa):
        _check(SIZES[case], "float32", 5e-6)


def test_keys_of_few_queries_are_taken_in_parts_that_no_number_of_threads_decides():
    r = np.random.default_rng(5)
    q = r.standard_normal((1, 1, 2, 16)).astype(np.float32)
    k, v = (r.standard_normal((1, 4096, 1, 16)).astype(np.float32) for _ in "kv")
    run = fxad.jit(lambda *qkv: flash_attention(*qkv, scale=0.25, **PLAIN))
    kernels = run.lower(q, k, v).kernels
    assert [x.points for x in kernels if isinstance(x.body[0], Attention)] == [8 * 2]
    before, found = fxad.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            fxad.set_num_threads(threads)
            found.append(np.append(*map(np.ravel, run(q, k, v))))
    finally:
        fxad.set_num_threads(before)
    np.testing.assert_array_equal(found[1:], found[:1] * 2)


@pytest.mark.parametrize("isa", [host_target().isa, *LOWER])
def test_weights_have_the_exactness_of_float32(isa):
    """Query i sees scores 0 and x[i]: its result is the weight of the second key."""
    x = -np.concatenate([np.linspace(0, 86, 5000), 2.0 ** np.arange(-20, 6)]).astype(np.float32)
    x = np.append(x, np.array([-200.0, -np.inf], np.float32))
    k, v = (np.array([0, 1], np.float32).reshape(1, 2, 1, 1) for _ in "kv")
    with config.override(isa=isa):
        run = fxad.jit(lambda q, k, v: fxad.nn.dot_product_attention(q, k, v, scale=1.0))
        found = np.asarray(run(x.reshape(1, -1, 1, 1), k, v)).ravel()
    wide = np.exp(x.astype(np.float64))
    # The exponent of 2, x log2(e), is rounded: small weights have larger errors.
    bound = (5 + 1.25 * np.abs(x[:-2])) * 2.0**-24
    assert np.all(np.abs(found[:-2] / (wide / (1 + wide))[:-2] - 1) < bound)
    np.testing.assert_array_equal(found[-2:], [0.0, np.nan])


@pytest.mark.parametrize("isa", TILES)
@pytest.mark.parametrize("case", IN_PARTS, ids=[str(s[:6]) for s in IN_PARTS])
def test_products_of_parts_equal_numpy_in_double_precision(case, isa):
    with config.override(isa=isa):
        _check(case, "float32", 5e-6)


@pytest.mark.parametrize("isa", TILES)
@pytest.mark.parametrize("steep", [0.1, 1.0, 5.0])
def test_products_of_parts_are_no_less_exact_than_those_of_vectors(steep, isa):
    """Root mean squares of errors, of what is far from 0 and of what is near."""
    r = np.random.default_rng(8)
    q, k, v = (r.standard_normal((1, 600, 2, 64)).astype(np.float32) for _ in range(3))
    q *= np.float32(steep)
    params = {**PLAIN, "scale": 0.125, "right": 0}
    _, _, _, _, lse, wanted = softmax_attention((q, k, v), [], **params)
    errors = []
    for one in (isa, "avx512"):
        with config.override(isa=one):
            found = fxad.jit(lambda *a: flash_attention(*a, **params))(q, k, v)
        differences = (np.float64(a) - b for a, b in zip(found, (wanted, lse), strict=True))
        errors.append([np.sqrt(np.mean(d**2)) for d in differences])
    assert errors[0] != errors[1]
    assert errors[0][0] <= errors[1][0] and errors[0][1] <= 1.2 * errors[1][1]


@pytest.mark.parametrize("queries", [1, 3, 30])
def test_a_mask_that_lets_other_keys_through_for_each_head(queries):
    """Heads that share keys see runs of them that begin and end elsewhere; the last sees none."""
    r = np.random.default_rng(0)
    q = r.standard_normal((1, queries, 4, 32)).astype(np.float32)
    k, v = (r.standard_normal((1, 500, 2, 32)).astype(np.float32) for _ in range(2))
    begin, end = np.array([[0, 100, 37, 9], [500, 300, 401, 9]])[..., None]
    mask = (np.arange(500) >= begin) & (np.arange(500) < end)
    params = {**PLAIN, "scale": 0.2, "mask": True}
    out, _ = fxad.jit(lambda *a: flash_attention(*a, **params))(q, k, v, mask[None, :, None])
    *_, wanted = softmax_attention((q, k, v), [mask[None, :, None]], **params)
    np.testing.assert_allclose(out[:, :, :3], wanted[:, :, :3], rtol=5e-6, atol=5e-6)
    mean = np.broadcast_to(v[:, :, 1].mean(1, dtype=np.float64), (1, queries, 32))
    np.testing.assert_allclose(out[:, :, 3], mean, rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("queries", [1, 13])
def test_heads_of_no_elements(queries):
    """Without a depth all keys weigh the same; without a width there is nothing but lse."""
    r = np.random.default_rng(0)
    sizes = (2, 0), (1, 0), (1, 3)
    q, k, v = (r.standard_normal((1, 5 if n == 1 else queries, n, w)) for n, w in sizes)
    run = fxad.jit(lambda *a: flash_attention(*a, **PLAIN, scale=1.0))
    out, lse = run(*(x.astype(np.float32) for x in (q, k, v)))
    np.testing.assert_allclose(out, np.broadcast_to(v.mean(1)[:, None], out.shape), rtol=1e-6)
    np.testing.assert_allclose(lse, np.log(5), rtol=1e-6)
    out, lse = run(*(np.ones((1, t, 1, w), np.float32) for t, w in ((queries, 4), (5, 4), (5, 0))))
    assert out.shape == (1, queries, 1, 0)
    np.testing.assert_allclose(lse, 4 + np.log(5), rtol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("steep", [1e-3, 0.3, 40.0])
def test_maxima_that_grow_from_block_to_block(steep, bias):
    """Keys whose scores rise (or fall) by `steep` each: every block scales down what was before."""
    r = np.random.default_rng(0)
    q = np.ones((1, 60, 2, 1), np.float32) * np.array([[1.0], [-1.0]], np.float32)
    k = np.linspace(-600, 600, 1201, dtype=np.float32)[None, :, None, None] * np.float32(steep)
    v = r.standard_normal((1, 1201, 1, 8)).astype(np.float32)
    params = {**PLAIN, "scale": 1.0, "bias": bias}
    extras = [np.zeros((1, 1, 1, 1201), np.float32)] * bias
    _, _, _, _, wanted_lse, wanted = softmax_attention((q, k, v), extras, **params)
    out, lse = fxad.jit(lambda *a: flash_attention(*a, **params))(q, k, v, *extras)
    np.testing.assert_allclose(out, wanted, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(lse, wanted_lse, rtol=2e-6)


def test_scores_beyond_the_exponentials_range_and_infinite_biases():
    r = np.random.default_rng(1)
    q, k, v = (r.standard_normal((1, 500, 1, 16)).astype(np.float32) for _ in range(3))
    params = {**PLAIN, "scale": 1e6, "right": 0}
    _, _, _, _, _, wanted = softmax_attention((q, k, v), [], **params)
    out, _ = fxad.jit(lambda *a: flash_attention(*a, **params))(q, k, v)
    same = np.abs(np.asarray(out) - wanted).max(axis=(0, 2, 3)) < 1e-5
    assert same.mean() > 0.99  # others have two keys within rounding of each other
    assert np.isfinite(out).all()
    bias = np.where(np.arange(500) < 400, -np.inf, 0.0).astype(np.float32)[None, None, None]
    params = {**PLAIN, "scale": 0.25, "bias": True}
    _, _, _, _, wanted_lse, wanted = softmax_attention((q, k, v), [bias], **params)
    out, lse = fxad.jit(lambda *a: flash_attention(*a, **params))(q, k, v, bias)
    np.testing.assert_allclose(out, wanted, rtol=3e-6, atol=3e-6)
    np.testing.assert_allclose(lse, wanted_lse, rtol=3e-6)


@pytest.mark.parametrize("number", [0x7FC00000, 0x7FC00001, 0xFFFFFFFF], ids=hex)
@pytest.mark.parametrize("isa", [None, *TILES])
def test_a_nan_reaches_the_rows_that_see_it_and_no_others(number, isa):
    r = np.random.default_rng(2)
    q, k, v = (r.standard_normal((1, 600, 1, 64)).astype(np.float32) for _ in range(3))
    nan = np.array(number, np.uint32).view(np.float32)
    k[0, 450, 0, 3] = nan
    with config.override(isa=isa):
        causal = {**PLAIN, "scale": 0.25, "right": 0}
        out, lse = fxad.jit(lambda *a: flash_attention(*a, **causal))(q, k, v)
    assert np.isnan(np.asarray(out)[0, 450:]).all() and np.isnan(np.asarray(lse)[0, 0, 450:]).all()
    assert np.isfinite(np.asarray(out)[0, :450]).all()
    assert np.isfinite(np.asarray(lse)[0, 0, :450]).all()


def test_keys_behind_a_mask_have_no_weight_and_no_gradient():
    r = np.random.default_rng(3)
    q, k, v = (r.standard_normal((1, 500, 2, 32)).astype(np.float32) for _ in range(3))
    mask = (np.arange(500) < 333)[None, None, None]
    v[:, 333:] = 1e30

    def loss(q, k, v):
        out = fxad.nn.dot_product_attention(q, k, v, mask=mask)
        return fxad.numpy.sum(out**2)

    value, grads = fxad.jit(fxad.value_and_grad(loss, argnums=(0, 1, 2)))(q, k, v)
    assert np.isfinite(value)
    assert not np.asarray(grads[1])[:, 333:].any()
    assert not np.asarray(grads[2])[:, 333:].any()


KEYS = np.arange(333)
KEY_MASKS = {  # [2 or 1, 4 or 1, 1, 333]
    "the end": np.array([17, 300])[:, None, None, None] > KEYS,
    "the beginning": np.array([17, 300])[:, None, None, None] <= KEYS,
    "all of the first": np.array([0, 200])[:, None, None, None] > KEYS,
    "a gap": (np.array([40, 0])[:, None, None, None] > KEYS) | (KEYS > 217),
    "other keys for each head": np.array([5, 48, 97, 333])[None, :, None, None] > KEYS,
    "nothing": np.ones((1, 1, 1, 1), bool),
}
BANDS = {
    "{}, float32": ({}, "float32"),
    "{'right': 243}, float64": ({"right": 243}, "float64"),
    "{'left': 30, 'right': 260}, float32": ({"left": 30, "right": 260}, "float32"),
}


@pytest.mark.parametrize(("band", "dtype"), BANDS.values(), ids=BANDS)
@pytest.mark.parametrize("excluded", KEY_MASKS)
def test_masks_of_keys(excluded, band, dtype):
    """Against the ops that attention is made of, whose masked scores are a very low number."""
    r, mask = np.random.default_rng(6), KEY_MASKS[excluded]
    params = {**PLAIN, "scale": 0.3, "mask": True, **band}
    with fxad.enable_x64():
        q, d_out = (r.standard_normal((2, 90, 4, 8)).astype(dtype) for _ in "qo")
        k, v = (r.standard_normal((2, 333, 2, 8)).astype(dtype) for _ in "kv")
        out, lse = wanted = [np.asarray(x) for x in parts(q, k, v, mask, **params)]
        delta = np.einsum("btne,btne->bnt", out, d_out)
        args = (q, k, v, lse, delta, d_out, mask)
        found = fxad.jit(lambda *a: flash_attention(*a, **params))(q, k, v, mask)
        found = (*found, *fxad.jit(lambda *a: flash_attention_grad(*a, **params))(*args))
        tolerance = 2e-5 if dtype == "float32" else 1e-13
        for a, b in zip(found, (*wanted, *grad_parts(*args, **params)), strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("causal", [False, True])
def test_padded_keys_are_not_read(causal):
    r = np.random.default_rng(7)
    q, k, v = (r.standard_normal((2, 300, 2, 16)).astype(np.float32) for _ in range(3))
    lengths = np.array([50, 211], np.int32)
    padded = np.arange(300) >= lengths[:, None]

    def both(q, k, v, lengths):
        options = {"is_causal": causal, "key_value_seq_lengths": lengths}
        out, back = fxad.vjp(lambda *a: fxad.nn.dot_product_attention(*a, **options), q, k, v)
        return out, *back(out)

    step = fxad.jit(both)
    wanted = step(q, k, v, lengths)
    for x in (k, v):
        x[padded] = np.nan
    for a, b in zip(step(q, k, v, lengths), wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("isa", [None, *TILES])
def test_bits_do_not_depend_on_threads_with_several_blocks_of_keys(isa):
    r = np.random.default_rng(4)
    q = r.standard_normal((1, 1300, 4, 40)).astype(np.float32)
    k, v = (r.standard_normal((1, 1300, 2, 40)).astype(np.float32) for _ in "kv")

    def both(q, k, v):
        out, back = fxad.vjp(lambda *a: fxad.nn.dot_product_attention(*a, is_causal=True), q, k, v)
        return out, back(out)

    step, before, results = fxad.jit(both), fxad.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            fxad.set_num_threads(threads)
            with config.override(isa=isa):
                found, cotangents = step(q, k, v)
            results.append([np.asarray(x).tobytes() for x in (found, *cotangents)])
    finally:
        fxad.set_num_threads(before)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("shape", "groups", "parts"),
    [
        ((1, 8192, 2, 64), 1, (2, 2)),
        ((1, 2048, 8, 128), 2, (2, 1)),
        ((1, 4096, 3, 64), 3, (1, 2)),
        ((1, 4095, 1, 64), 1, (1, 3)),
        ((1, 4096, 4, 64), 4, (1, 1)),
        ((1, 1024, 1, 64), 1, (1, 1)),
        ((1, 4093, 1, 64), 1, (1, 1)),
    ],
)
def test_few_key_heads_make_several_pieces_of_work(shape, groups, parts):
    """Units of the gradient's kernel; parts of (query heads that share keys, queries)."""
    q, k = (fxad.ShapeDtypeStruct((*shape[:2], n, shape[3]), "float32") for n in (shape[2], groups))
    lse = fxad.ShapeDtypeStruct((1, shape[2], shape[1]), "float32")
    function = fxad.jit(lambda *a: flash_attention_grad(*a, **PLAIN, scale=1.0))
    steps = function.lower(q, k, k, lse, lse, q).plan.steps
    (kernel,) = [s.kernel for s in steps if isinstance(s.kernel.body[0], AttentionGrad)]
    assert kernel.points == groups * parts[0] * parts[1]
    assert kernel.body[0].group.extent * parts[0] * groups == shape[2]


def test_bits_of_a_gradient_in_parts_do_not_depend_on_threads():
    r = np.random.default_rng(5)
    q = r.standard_normal((1, 2050, 2, 16)).astype(np.float32)
    k = r.standard_normal((1, 2050, 1, 16)).astype(np.float32)
    lse = np.full((1, 2, 2050), 4.0, np.float32)
    function = fxad.jit(lambda *a: flash_attention_grad(*a, **{**PLAIN, "scale": 0.25, "right": 0}))
    before, results = fxad.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            fxad.set_num_threads(threads)
            found = function(q, k, k, lse, lse, q)
            results.append([np.asarray(x).tobytes() for x in found])
    finally:
        fxad.set_num_threads(before)
    assert results[0] == results[1] == results[2]


def test_without_keys_results_and_cotangents_are_zero():
    q, k = np.ones((1, 150, 2, 8), np.float32), np.ones((1, 0, 2, 8), np.float32)
    params = {**PLAIN, "scale": 1.0}
    for _ in range(3):
        out, lse = fxad.jit(lambda *a: flash_attention(*a, **params))(q, k, k)
        assert not np.asarray(out).any() and np.isneginf(lse).all()
        args = (q, k, k, np.asarray(lse), np.zeros_like(lse), q)
        dq, dk, dv = fxad.jit(lambda *a: flash_attention_grad(*a, **params))(*args)
        assert not np.asarray(dq).any() and dk.shape == dv.shape == k.shape
