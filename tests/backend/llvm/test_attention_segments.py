"""Attention of documents that share a row: as each of them alone, in NumPy and double precision."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.backend.llvm.native.engine import host_target
from fxad.core.config import config
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.ops.fused.attention import flash_attention, flash_attention_grad, grad_parts, parts

LOWER = ["generic"] if host_target().isa in ("generic", "neon") else ["avx2", "generic"]
TILES = ["amx"] if "amx_bf16" in host_target().features else []

CAUSAL = {"is_causal": True}
# lengths of the documents in each row; heads, key heads, depth, width of the heads, options
CASES = {
    # Three of one shape, which share a program.
    "equal": ([[50] * 3], 2, 1, 16, CAUSAL),
    "one": ([[150]], 2, 1, 16, CAUSAL),
    "single tokens": ([[1] * 150], 2, 1, 16, CAUSAL),
    "two rows": ([[3, 100, 1, 96], [48, 48, 104]], 4, 2, 40, CAUSAL),
    "long": ([[700, 5, 500, 48]], 2, 1, 64, CAUSAL),
    "window": ([[130, 200, 7, 163]], 2, 2, 24, CAUSAL | {"local_window_size": (60, 0)}),
    "both sides": ([[130, 200, 7, 163], [250, 250]], 2, 1, 16, {}),
    "window of both sides": ([[90, 1, 200, 9]], 2, 2, 16, {"local_window_size": (30, 11)}),
    "one block": ([[20, 5, 40]], 1, 1, 8, CAUSAL),
    "few queries": ([[3, 1, 6]], 4, 2, 16, CAUSAL),
    "few queries, both sides": ([[3, 1, 6], [10]], 4, 2, 16, {}),
    "parts of the queries": ([[1000, 300, 750]], 1, 1, 8, CAUSAL),
    "parts of the heads": ([[312, 200]], 4, 1, 8, CAUSAL),
}
# In double precision: one of each kind. Parts on tiles are of many queries and keys alone.
WIDE = ["two rows", "window of both sides", "both sides", "few queries", "parts of the queries"]
OTHERS = [("few queries", isa) for isa in LOWER]
OTHERS += [("window", LOWER[0]), ("both sides", LOWER[-1]), *(("long", isa) for isa in TILES)]


def _draw(case, dtype=np.float32):
    lengths, heads, groups, depth, options = case
    r = np.random.default_rng(0)
    rows, time = len(lengths), sum(lengths[0])
    q, d_out = (r.standard_normal((rows, time, heads, depth)).astype(dtype) for _ in "qo")
    k, v = (r.standard_normal((rows, time, groups, depth)).astype(dtype) for _ in "kv")
    ids = np.stack([np.repeat(r.permutation(len(row)), row) for row in lengths])
    return (q, k, v), ids.astype(np.int32), d_out, options


def _alone(q, k, v, d_out, options):
    """Attention of one document, [T, N, H] and [T, K, H], and its cotangents, in float64."""
    time, heads, depth = q.shape
    groups = k.shape[1]
    q, k, v, d_out = (x.astype(np.float64) for x in (q, k, v, d_out))
    k, v = (np.repeat(x, heads // groups, axis=1) for x in (k, v))
    q, k, v, d_out = (x.swapaxes(0, 1) for x in (q, k, v, d_out))  # [N, T, H]
    left, right = options.get("local_window_size", (time, time))
    i, j = np.ogrid[:time, :time]
    seen = (j >= i - left) & (j <= i + (0 if options.get("is_causal") else right))
    x = np.where(seen, q @ k.mT / np.sqrt(depth), -np.inf)
    weights = np.exp(x - x.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = weights @ v
    delta = (d_out * out).sum(-1, keepdims=True)
    d_scores = weights * (d_out @ v.mT - delta) / np.sqrt(depth)
    shared = (groups, heads // groups, time, depth)
    dk, dv = ((x.mT @ y).reshape(shared).sum(1) for x, y in ((d_scores, q), (weights, d_out)))
    return [x.swapaxes(0, 1) for x in (out, d_scores @ k, dk, dv)]


def _each_alone(qkv, ids, d_out, options):
    """The same of every document, side by side."""
    rows = []
    for row, names in enumerate(ids):
        ends = [*np.flatnonzero(np.diff(names)) + 1, len(names)]
        found = [
            _alone(*(x[row, start:end] for x in (*qkv, d_out)), options)
            for start, end in zip([0, *ends], ends, strict=False)
        ]
        rows.append([np.concatenate(parts) for parts in zip(*found, strict=True)])
    return [np.stack(parts) for parts in zip(*rows, strict=True)]


def _packed(options):
    @fxad.jit
    def both(q, k, v, ids, d_out):
        def attention(q, k, v):
            return fxad.nn.dot_product_attention(q, k, v, segment_ids=ids, **options)

        out, back = fxad.vjp(attention, q, k, v)
        return out, *back(d_out)

    return both


def _check(case, dtype, tolerance):
    qkv, ids, d_out, options = _draw(case, dtype)
    found = _packed(options)(*qkv, ids, d_out)
    for a, b in zip(found, _each_alone(qkv, ids, d_out, options), strict=True):
        np.testing.assert_allclose(a, b, rtol=3 * tolerance, atol=3 * tolerance)


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_each_document_alone(case):
    _check(CASES[case], "float32", 5e-6)


@pytest.mark.parametrize("case", WIDE)
def test_doubles_are_those_of_each_document_alone(case):
    with fxad.enable_x64():
        _check(CASES[case], "float64", 1e-13)


@pytest.mark.parametrize(("case", "isa"), OTHERS)
def test_other_instruction_sets_compute_the_same(case, isa):
    with config.override(isa=isa):
        _check(CASES[case], "float32", 5e-6)


@pytest.mark.parametrize("seed", range(5))
def test_documents_at_random(seed):
    r = np.random.default_rng(seed)
    time = 331 if seed % 2 else 478
    starts = r.random((2, time)) < r.choice([0.005, 0.05, 0.5])
    ids = np.cumsum(starts, axis=1) % 3
    options = CAUSAL if seed % 2 else {}
    q, d_out = (r.standard_normal((2, time, 4, 12)).astype(np.float32) for _ in "qo")
    k, v = (r.standard_normal((2, time, 2, 12)).astype(np.float32) for _ in "kv")
    found = _packed(options)(q, k, v, ids, d_out)
    for a, b in zip(found, _each_alone((q, k, v), ids, d_out, options), strict=True):
        np.testing.assert_allclose(a, b, rtol=1.5e-5, atol=1.5e-5)


def test_documents_change_nothing_in_each_other():
    """Not by a rounding: other documents of the row may hold anything."""
    (q, k, v), ids, d_out, options = _draw(CASES["two rows"])
    before = [np.asarray(x) for x in _packed(options)(q, k, v, ids, d_out)]
    there = ids[0] != ids[0, 3]  # all but the document at position 3
    for x in (q, k, v, d_out):
        x[0, there] *= 1000
    after = [np.asarray(x) for x in _packed(options)(q, k, v, ids, d_out)]
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a[0, ~there], b[0, ~there])
        np.testing.assert_array_equal(a[1], b[1])


@pytest.mark.parametrize("isa", [None, *TILES])
def test_bits_do_not_depend_on_threads_and_no_mask_is_in_memory(isa):
    (q, k, v), ids, d_out, options = _draw(CASES["long"])
    step, before, results = _packed(options), fxad.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            fxad.set_num_threads(threads)
            with config.override(isa=isa):
                found = step(q, k, v, ids, d_out)
            results.append([np.asarray(x).tobytes() for x in found])
    finally:
        fxad.set_num_threads(before)
    assert results[0] == results[1] == results[2]
    a_bool_for_each_pair = ids.size**2
    assert step.lower(q, k, v, ids, d_out).plan.arena_bytes < a_bool_for_each_pair


# ---------------------------------------------------------------- the ops


MASKS = {  # [2, 1, 70 or 1, 70]
    "nothing": None,
    "pairs": np.random.default_rng(4).random((2, 1, 70, 70)) < 0.6,
    "padded keys": np.arange(70) < np.array([61, 40])[:, None, None, None],
    "a run of keys": (np.arange(70) >= 9)[None, None, None].repeat(2, axis=0),
}


WINDOWS = [{"right": 0}, {"left": 9, "right": 4}, {}]
BESIDE = [  # every two of these three together
    (window, bool((i + j) % 2), mask)
    for i, window in enumerate(WINDOWS)
    for j, mask in enumerate(MASKS)
]


@pytest.mark.parametrize(("window", "bias", "mask"), BESIDE, ids=str)
def test_kernel_reference_and_plain_ops_agree_beside_biases_and_masks(window, bias, mask):
    r = np.random.default_rng(1)
    starts = np.stack([np.repeat([0, 11, 12, 60], [11, 1, 48, 10]), np.zeros(70, int)])
    ends = np.stack([np.repeat([11, 12, 60, 70], [11, 1, 48, 10]), np.full(70, 70)])
    extras = [r.standard_normal((1, 4, 70, 70))] * bias
    extras += [] if MASKS[mask] is None else [MASKS[mask]]
    extras += [x.astype(np.int32) for x in (starts, ends)]
    params = {"scale": 0.3, "left": -1, "right": -1, **window, "bias": bias}
    params["mask"] = MASKS[mask] is not None
    params |= {"starts": True, "ends": True}
    with fxad.enable_x64():
        q, d_out = (r.standard_normal((2, 70, 4, 8)) for _ in "qo")
        k, v = (r.standard_normal((2, 70, 2, 8)) for _ in "kv")
        out, lse = wanted = [np.asarray(x) for x in parts(q, k, v, *extras, **params)]
        delta = np.einsum("btne,btne->bnt", out, d_out)
        args = (q, k, v, lse, delta, d_out, *extras)
        wanted += grad_parts(*args, **params)
        for wrap in (lambda f: f, fxad.jit):
            found = wrap(lambda *a: flash_attention(*a, **params))(q, k, v, *extras)
            found = (*found, *wrap(lambda *a: flash_attention_grad(*a, **params))(*args))
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [CAUSAL, {}], ids=["causal", "both sides"])
def test_derivatives_of_every_kind_are_those_behind_a_mask(options):
    r = np.random.default_rng(2)
    ids = np.repeat([4, 2, 9], [2, 1, 3])[None]
    same = (ids[:, :, None] == ids[:, None, :])[:, None]
    with fxad.enable_x64():
        q, k, v, *tangents = (r.standard_normal((1, 6, 2, 3)) for _ in range(6))

        def packed(*a):
            out = fxad.nn.dot_product_attention(*a, segment_ids=ids, **options)
            return jnp.sum(jnp.sin(out))

        def masked(*a):
            return jnp.sum(jnp.sin(fxad.nn.dot_product_attention(*a, mask=same, **options)))

        kinds = (
            lambda f: fxad.grad(f, argnums=(0, 1, 2))(q, k, v),
            lambda f: fxad.jvp(f, (q, k, v), tuple(tangents)),
            lambda f: fxad.jvp(fxad.grad(f, argnums=(0, 1, 2)), (q, k, v), tuple(tangents)),
        )
        for kind in kinds:
            for wrap in (lambda f: f, fxad.jit):
                pairs = zip(
                    *(fxad.tree.leaves(kind(wrap(f))) for f in (packed, masked)), strict=True
                )
                for a, b in pairs:
                    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_vmap_equals_a_loop():
    r = np.random.default_rng(3)
    q, k, v = (r.standard_normal((3, 2, 40, 2, 4)).astype(np.float32) for _ in range(3))
    ids = np.cumsum(r.random((3, 2, 40)) < 0.1, axis=-1)

    def attention(q, k, v, ids):
        return fxad.nn.dot_product_attention(q, k, v, is_causal=True, segment_ids=ids)

    for axes in ((0, 0, 0, 0), (0, 0, 0, None), (None, None, None, 0)):
        args = [x if a == 0 else x[0] for x, a in zip((q, k, v, ids), axes, strict=True)]
        found = fxad.jit(fxad.vmap(attention, in_axes=axes))(*args)
        for i in range(3):
            lane = [x[i] if a == 0 else x for x, a in zip(args, axes, strict=True)]
            np.testing.assert_allclose(found[i], attention(*lane), rtol=2e-6, atol=2e-6)


def test_other_backends_use_the_ops_attention_is_made_of():
    (q, k, v), ids, d_out, options = _draw(([[2, 1, 2], [5]], 2, 1, 3, {}))
    step = _packed(options)
    wanted = step(q, k, v, ids, d_out)
    for a, b in zip(step.on("python")(q, k, v, ids, d_out), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    # What numba compiles of the plan has the same ops, values alone are enough of it.
    values = fxad.jit(lambda *a: fxad.nn.dot_product_attention(*a[:3], segment_ids=a[3]))
    np.testing.assert_allclose(values.on("cpu")(q, k, v, ids), wanted[0], rtol=1e-5, atol=1e-6)


def test_one_row_without_a_batch_and_no_tokens():
    (q, k, v), ids, *_ = _draw(CASES["one block"])
    single = fxad.nn.dot_product_attention(q[0], k[0], v[0], segment_ids=ids[0])
    whole = fxad.nn.dot_product_attention(q, k, v, segment_ids=ids)
    np.testing.assert_array_equal(single, whole[0])
    none = fxad.jit(fxad.nn.dot_product_attention)(
        q[:, :0], k[:, :0], v[:, :0], segment_ids=ids[:, :0]
    )
    assert none.shape == (1, 0, 1, 8)


def test_bad_ids_are_named():
    x = jnp.zeros((1, 4, 2, 3))
    ids = jnp.zeros((1, 4), jnp.int32)
    with pytest.raises(ShapeError, match=r"segment_ids must be integers \[1, 4\], not f32\[1,4\]"):
        fxad.nn.dot_product_attention(x, x, x, segment_ids=ids.astype("float32"))
    with pytest.raises(ShapeError, match=r"segment_ids must be integers \[1, 4\], not i32\[4\]"):
        fxad.nn.dot_product_attention(x, x, x, segment_ids=ids[0])
    with pytest.raises(ShapeError, match="4 queries and 3 keys"):
        fxad.nn.dot_product_attention(x, x[:, :3], x[:, :3], segment_ids=ids)
    params = {"scale": 1.0, "left": -1, "right": 0, "bias": False, "mask": False, "starts": True}
    with pytest.raises(ShapeError, match=r"starts must be i32\[1,4\], got i32\[1,3\]"):
        flash_attention(x, x, x, ids[:, :3], **params)
    with pytest.raises(TypeMismatch, match="operands must be f32 or f64"):
        flash_attention(x, x, x.astype("bfloat16"), ids, **params)
