"""Attention as one kernel: against plain ops in double precision; derivatives, vmap, backends."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.backend.reference import run_kernel
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.ir.plan import Run
from fxad.ops.fused.attention import flash_attention, flash_attention_grad, grad_parts, parts

PLAIN = {"left": -1, "right": -1, "bias": False, "mask": False}

# batch, queries, keys, heads, key heads, depth, width, window
SHAPES = [
    (2, 64, 64, 4, 4, 64, 64, {"right": 0}),
    (1, 5, 7, 2, 1, 3, 5, {}),
    (2, 100, 100, 4, 2, 32, 32, {"right": 0}),
    (1, 130, 200, 4, 2, 16, 48, {"left": 10, "right": 5}),
    (1, 700, 700, 2, 1, 8, 80, {"right": 0}),
    (1, 60, 2100, 1, 1, 16, 16, {"left": 3}),
    (1, 60, 30, 2, 1, 8, 8, {"left": 4, "right": 0}),  # later queries see nothing
    (2, 50, 49, 4, 4, 32, 32, {"right": 0, "bias": True, "mask": True}),
    (3, 1, 40, 2, 2, 16, 16, {"mask": True}),
    (1, 9, 1, 1, 1, 1, 1, {}),
]


def _draw(case, dtype):
    batch, time, length, heads, groups, depth, width, more = case
    r = np.random.default_rng(0)
    q = r.standard_normal((batch, time, heads, depth)).astype(dtype)
    k = r.standard_normal((batch, length, groups, depth)).astype(dtype)
    v = r.standard_normal((batch, length, groups, width)).astype(dtype)
    extras = []
    if more.get("bias"):
        extras.append(r.standard_normal((1, heads, time, length)).astype(dtype))
    if more.get("mask"):
        extras.append(r.random((batch, 1, 1, length)) < 0.7)
    d_out = r.standard_normal((batch, time, heads, width)).astype(dtype)
    params = {"scale": 1 / math.sqrt(depth), **PLAIN, **more}
    return (q, k, v), extras, d_out, params


def _wide(x):
    return x.astype(np.float64) if x.dtype == np.float32 else x


# Single precision of many more shapes: tests/backend/llvm/test_attention_kernels.py.
NATIVE = [(s, "float64") for s in SHAPES] + [(s, "float32") for s in SHAPES[1::3]]


@pytest.mark.parametrize(("case", "dtype"), NATIVE, ids=[f"{s[:7]}-{d}" for s, d in NATIVE])
def test_native_attention_equals_plain_ops_in_double_precision(case, dtype):
    tolerance = 3e-6 if dtype == "float32" else 1e-13
    with fxad.enable_x64():
        qkv, extras, d_out, params = _draw(case, dtype)
        out, lse = fxad.jit(lambda *a: flash_attention(*a, **params))(*qkv, *extras)
        wanted = [np.asarray(x) for x in parts(*map(_wide, (*qkv, *extras)), **params)]
        np.testing.assert_allclose(out, wanted[0], rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(lse, wanted[1], rtol=tolerance, atol=tolerance)
        delta = np.sum(np.asarray(out) * d_out, -1).transpose(0, 2, 1).copy()
        args = (*qkv, np.asarray(lse), delta, d_out, *extras)
        found = fxad.jit(lambda *a: flash_attention_grad(*a, **params))(*args)
        wanted = grad_parts(*map(_wide, args), **params)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=3 * tolerance, atol=3 * tolerance)


@pytest.mark.parametrize("case", [SHAPES[1], SHAPES[6], SHAPES[8]], ids=["small", "unseen", "mask"])
def test_the_stages_mean_what_the_reference_walker_computes(case):
    with fxad.enable_x64():
        qkv, extras, d_out, params = _draw(case, np.float64)
        out, lse = parts(*qkv, *extras, **params)
        delta = np.sum(np.asarray(out) * d_out, -1).transpose(0, 2, 1).copy()
        for op, args, wanted in (
            (flash_attention, (*qkv, *extras), (out, lse)),
            (
                flash_attention_grad,
                (*qkv, np.asarray(lse), delta, d_out, *extras),
                grad_parts(*qkv, lse, delta, d_out, *extras, **params),
            ),
        ):
            lowered = fxad.jit(lambda *a, op=op: op(*a, **params)).lower(*args)
            (step,) = [s for s in lowered.plan.steps if isinstance(s, Run)]
            kernel = step.kernel
            named = dict(zip(kernel.buffers, step.slots, strict=True))
            arrays = [
                np.array(args[named[b].number]).ravel()
                if b.role == "in"
                else np.full(b.size, np.nan, b.dtype)
                for b in kernel.buffers
            ]
            run_kernel(kernel, arrays)
            results = [a for b, a in zip(kernel.buffers, arrays, strict=True) if b.role == "out"]
            for a, b in zip(results, wanted, strict=True):
                np.testing.assert_allclose(a, np.asarray(b).ravel(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", SHAPES, ids=[str(s[:7]) for s in SHAPES])
def test_the_numpy_reference_equals_plain_ops(case):
    with fxad.enable_x64():
        qkv, extras, d_out, params = _draw(case, np.float64)
        found = flash_attention(*qkv, *extras, **params)
        wanted = parts(*qkv, *extras, **params)
        delta = np.sum(np.asarray(wanted[0]) * d_out, -1).transpose(0, 2, 1).copy()
        args = (*qkv, np.asarray(wanted[1]), delta, d_out, *extras)
        found = (*found, *flash_attention_grad(*args, **params))
        for a, b in zip(found, (*wanted, *grad_parts(*args, **params)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def _loss(q, k, v, bias=None):
    out = fxad.nn.dot_product_attention(q, k, v, bias, is_causal=True)
    return jnp.sum(jnp.sin(out))


@pytest.mark.parametrize("with_bias", [False, True])
def test_gradients_against_finite_differences(with_bias):
    r = np.random.default_rng(1)
    with fxad.enable_x64():
        args = [r.standard_normal((2, 5, 4, 3)), *(r.standard_normal((2, 5, 2, 3)) for _ in "kv")]
        if with_bias:
            args.append(r.standard_normal((1, 4, 5, 5)))
        numbers = tuple(range(len(args)))
        found = fxad.jit(fxad.grad(_loss, argnums=numbers))(*args)
        eager = fxad.grad(_loss, argnums=numbers)(*args)
        for n, gradient in enumerate(found):
            np.testing.assert_allclose(gradient, eager[n], rtol=1e-9, atol=1e-11)
            direction = r.standard_normal(args[n].shape)
            step = 1e-6
            moved = [
                float(_loss(*args[:n], args[n] + s * step * direction, *args[n + 1 :]))
                for s in (1, -1)
            ]
            expected = (moved[0] - moved[1]) / (2 * step)
            np.testing.assert_allclose(
                np.sum(np.asarray(gradient) * direction), expected, rtol=1e-6
            )


def test_forward_mode_and_second_order_agree_with_plain_ops():
    r = np.random.default_rng(2)
    params = {"scale": 0.5, **PLAIN, "right": 0}
    with fxad.enable_x64():
        q, k, v, dq, dk, dv = (r.standard_normal((1, 4, 2, 3)) for _ in range(6))

        def fused(*a):
            return jnp.sum(jnp.sin(flash_attention(*a, **params)[0]))

        def plain(*a):
            return jnp.sum(jnp.sin(parts(*a, **params)[0]))

        for wrap in (lambda f: f, fxad.jit):
            one, two = (fxad.jvp(wrap(f), (q, k, v), (dq, dk, dv))[1] for f in (fused, plain))
            np.testing.assert_allclose(one, two, rtol=1e-10)
            hessians = [
                wrap(lambda *a, f=f: fxad.jvp(fxad.grad(f, argnums=(0, 1, 2)), a, (dq, dk, dv))[1])(
                    q, k, v
                )
                for f in (fused, plain)
            ]
            twice = [
                wrap(fxad.grad(lambda *a, f=f: jnp.sum(fxad.grad(f)(*a) ** 2), argnums=(0, 1, 2)))(
                    q, k, v
                )
                for f in (fused, plain)
            ]
            for a, b in [*zip(*hessians, strict=True), *zip(*twice, strict=True)]:
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_vmap_equals_a_loop_with_any_operand_shared():
    r = np.random.default_rng(3)
    q, k, v = (r.standard_normal((3, 2, 6, 2, 4)).astype(np.float32) for _ in range(3))
    mask = r.random((3, 1, 1, 6, 6)) < 0.8

    def f(q, k, v, mask):
        return fxad.nn.dot_product_attention(q, k, v, mask=mask)

    for axes in ((0, 0, 0, 0), (0, None, None, 0), (None, 0, 0, None)):
        args = [x if a == 0 else x[0] for x, a in zip((q, k, v, mask), axes, strict=True)]
        found = fxad.jit(fxad.vmap(f, in_axes=axes))(*args)
        for i in range(3):
            lane = [x[i] if a == 0 else x for x, a in zip(args, axes, strict=True)]
            np.testing.assert_allclose(found[i], f(*lane), rtol=2e-6, atol=2e-6)


def test_bits_do_not_depend_on_threads_and_scores_are_not_stored():
    r = np.random.default_rng(4)
    q, k, v = (r.standard_normal((2, 500, 2, 16)).astype(np.float32) for _ in range(3))
    step = fxad.jit(fxad.grad(_loss, argnums=(0, 1, 2)))
    before = fxad.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            fxad.set_num_threads(threads)
            results.append([np.asarray(x).tobytes() for x in step(q, k, v)])
    finally:
        fxad.set_num_threads(before)
    assert results[0] == results[1] == results[2]
    one_head = 500 * 500 * 4
    assert step.lower(q, k, v).plan.arena_bytes < one_head


def test_other_backends_use_the_ops_attention_is_made_of():
    r = np.random.default_rng(5)
    q, k, v = (r.standard_normal((1, 5, 2, 4)).astype(np.float32) for _ in range(3))
    step = fxad.jit(fxad.grad(_loss, argnums=(0, 1, 2)))
    for a, b in zip(step.on("python")(q, k, v), step(q, k, v), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_windows_lengths_and_half_precision():
    r = np.random.default_rng(6)
    q, k, v = (r.standard_normal((2, 8, 2, 4)).astype(np.float32) for _ in range(3))
    lengths = np.array([3, 8], np.int32)
    out = fxad.nn.dot_product_attention(q, k, v, key_value_seq_lengths=lengths)
    short = fxad.nn.dot_product_attention(q[:1], k[:1, :3], v[:1, :3])
    np.testing.assert_allclose(out[:1], short, rtol=2e-6, atol=2e-6)
    out = fxad.nn.dot_product_attention(q, k, v, query_seq_lengths=lengths)
    assert not np.asarray(out)[0, 3:].any()
    narrow = fxad.nn.dot_product_attention(q, k, v, local_window_size=(0, 0))
    np.testing.assert_allclose(narrow, v, rtol=1e-6)
    half = fxad.nn.dot_product_attention(*(jnp.asarray(x, jnp.bfloat16) for x in (q, k, v)))
    full = fxad.nn.dot_product_attention(q, k, v)
    assert half.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(half, np.float32), full, rtol=0.05, atol=0.05)


def test_bad_operands_are_named():
    x = jnp.zeros((1, 4, 2, 3))
    with pytest.raises(ShapeError, match=r"mask \(5, 4\) does not broadcast to \(1, 2, 4, 4\)"):
        fxad.nn.dot_product_attention(x, x, x, mask=jnp.ones((5, 4), bool))
    with pytest.raises(TypeMismatch, match="mask must be bool"):
        fxad.nn.dot_product_attention(x, x, x, mask=jnp.ones((4, 4)))
    with pytest.raises(ShapeError, match="do not go together"):
        fxad.nn.dot_product_attention(x, x[:, :, :1], x)
    with pytest.raises(ShapeError, match="must not be negative"):
        fxad.nn.dot_product_attention(x, x, x, local_window_size=-2)
    with pytest.raises(ShapeError, match="key_value_seq_lengths must be integers"):
        fxad.nn.dot_product_attention(x, x, x, key_value_seq_lengths=jnp.zeros((3,), jnp.int32))


def test_gradients_of_one_query_and_of_a_query_whose_keys_are_all_excluded():
    r = np.random.default_rng(0)
    with fxad.enable_x64():
        for time, keys, mask in ((1, 6, None), (4, 5, np.arange(4)[:, None] != 1)):
            q, k, v = (r.standard_normal((2, n, 4, 8)) for n in (time, keys, keys))
            if mask is not None:
                mask = np.broadcast_to(mask, (1, 1, 4, 5))

            def loss(q, k, v, mask=mask):
                out = fxad.nn.dot_product_attention(q, k, v, mask=mask, is_causal=mask is not None)
                return jnp.sum(jnp.sin(out))

            grads = fxad.jit(fxad.grad(loss, argnums=(0, 1, 2)))(q, k, v)
            ways = [r.standard_normal(x.shape) for x in (q, k, v)]
            slope = sum(np.sum(np.asarray(g) * w) for g, w in zip(grads, ways, strict=True))
            h = 1e-5
            ahead, behind = (
                float(loss(*(x + s * w for x, w in zip((q, k, v), ways, strict=True))))
                for s in (h, -h)
            )
            assert abs(slope - (ahead - behind) / (2 * h)) < 1e-7


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit])
def test_no_keys_no_queries_no_lanes(wrap):
    attention = fxad.nn.dot_product_attention
    q, none = jnp.ones((1, 3, 2, 4)), jnp.ones((1, 0, 2, 4))
    value, pull = fxad.vjp(wrap(attention), q, none, none)
    found = pull(value)
    assert [g.shape for g in found] == [q.shape, none.shape, none.shape]
    assert not np.any(value)
    assert not np.any(found[0])
    grads = wrap(fxad.grad(lambda q, k: attention(q, k, k).sum(), (0, 1)))(none, q)
    assert not np.any(grads[1])
    lanes = wrap(fxad.vmap(fxad.grad(lambda q: attention(q, q, q).sum())))
    assert lanes(q[:0, None]).shape == (0, 1, 3, 2, 4)
