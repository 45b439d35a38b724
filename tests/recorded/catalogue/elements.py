"""Chains of elementwise functions, casts and layouts."""

from __future__ import annotations

import fxad
import fxad.numpy as jnp
from tests.recorded.catalogue.case import Cases, bf16, c64, f16, f32, f64, i8, i32, u8, u32

cases = Cases("elements")

cases.add("add-one", lambda x: x + 1, f32(1000))
cases.add("add-one-scalar", lambda x: x + 1, f32())
cases.add("axpy-2048x2048", lambda a, x, y: a * x + y, f32(), f32(2048, 2048), f32(2048, 2048))
cases.add("axpy-in-place", lambda a, x, y: a * x + y, f32(), f32(4096), f32(4096), donate=(2,))
cases.add("polynomial-f64", lambda x: ((x * 3 + 2) * x - 1) * x + 0.5, f64(10_000))
cases.add("chain-f16", lambda x, y: jnp.tanh(x * y) + x, f16(33, 65), f16(33, 65))
cases.add("chain-bf16", lambda x, y: jnp.tanh(x * y) + x, bf16(128, 768), bf16(128, 768))
cases.add("chain-i8", lambda x, y: (x + y) * x - y, i8(999), i8(999))
cases.add("chain-u8-shifts", lambda x: (x >> 2) ^ (x << 3) | 1, u8(4096))
cases.add("chain-u32", lambda x, y: (x * y + 7) // 3 % 11, u32(513), u32(513))
cases.add("chain-c64", lambda x, y: x * y / (x + 1) + jnp.conj(y), c64(257), c64(257))
cases.add("bias-relu", lambda x, b: jnp.maximum(x + b, 0), f32(64, 512), f32(512))
cases.add("bias-of-columns", lambda x, b: x * b[:, None], f32(512, 64), f32(512))
cases.add("gelu", lambda x: fxad.nn.gelu(x, approximate=True), f32(256, 3072))
cases.add("gelu-exact", lambda x: fxad.nn.gelu(x, approximate=False), f32(256, 512))
cases.add("gelu-grad", fxad.grad(lambda x: fxad.nn.gelu(x, approximate=True).sum()), f32(256, 768))
cases.add("silu-gate", lambda a, b: fxad.nn.silu(a) * b, bf16(64, 8192), bf16(64, 8192))
cases.add("sigmoid-f64", lambda x: fxad.nn.sigmoid(x), f64(1000))
cases.add("sin-cos", lambda x: jnp.sin(x) * jnp.cos(x), f32(100_000))
cases.add("exp-log-pow", lambda x, y: jnp.exp(x) + jnp.log(y) + x**y, f32(777), f32(777))
cases.add("many-functions-f64", lambda x: jnp.expm1(x) + jnp.log1p(x) + jnp.cbrt(x), f64(777))
cases.add("hyperbolic", lambda x: jnp.sinh(x) + jnp.arcsinh(x) + jnp.arctan(x), f32(50, 50))
cases.add("where-clip", lambda x, y: jnp.where(x > y, jnp.clip(x, -1, 1), y), f32(99), f32(99))
cases.add("compare-to-bool", lambda x, y: (x < y) & (x != 0), f32(1001), f32(1001))
cases.add("is-finite", lambda x: jnp.isfinite(x) | jnp.isnan(x), f32(1001))
cases.add("round-f32-to-bf16", lambda x: x.astype("bfloat16"), f32(64, 1024))
cases.add("widen-bf16", lambda x: x.astype("float32") * 2, bf16(64, 1024))
cases.add("f32-to-i32", lambda x: jnp.round(x).astype("int32"), f32(4096))
cases.add("i8-to-f32", lambda x, s: x.astype("float32") * s, i8(64, 256), f32(64, 1))
cases.add("i32-division", lambda x, y: jnp.floor_divide(x, y) + x % y, i32(300), i32(300))
cases.add("transpose-64x128", lambda x: x.T + 0, f32(64, 128))
cases.add("transpose-bytes", lambda x: x.T + 0, u8(300, 200))
cases.add("transpose-heads", lambda x: jnp.transpose(x, (0, 2, 1, 3)) * 2, f32(2, 128, 4, 64))
cases.add("add-transposed", lambda x, y: x + y.T, f32(200, 100), f32(100, 200))
cases.add("reverse", lambda x: x[::-1] * 2, f32(100))
cases.add("strided", lambda x: x[::2] - x[1::2], f32(1000))
cases.add("concatenate", lambda x, y: jnp.concatenate([x, y], axis=1), f32(64, 3), f32(64, 70))
cases.add("stack-last", lambda x, y: jnp.stack([x, y], axis=-1), f32(500), f32(500))
cases.add("pad", lambda x: jnp.pad(x, ((1, 2), (3, 0))), f32(30, 40))
cases.add("outer", lambda x, y: x[:, None] * y, f32(300), f32(200))
cases.add("rotate-halves", lambda x: jnp.concatenate([-x[..., 32:], x[..., :32]], -1), f32(8, 64))
cases.add("iota", lambda x: x + jnp.arange(1000), f32(1000))
cases.add("two-results", lambda x: (jnp.exp(x), jnp.exp(x) + 1), f32(64, 64))
cases.add("nothing", lambda x: x * 2, f32(0, 3))
cases.add("derivative-chain", fxad.grad(lambda x: (jnp.tanh(x) * jnp.exp(-x * x)).sum()), f32(5000))
cases.add(
    "second-derivative",
    fxad.vmap(fxad.grad(fxad.grad(lambda x: jnp.sin(x) * x**3))),
    f32(100),
)
