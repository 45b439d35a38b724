"""Matrix products of every class: layouts, numbers of rows, dtypes, batches, what follows them."""

from __future__ import annotations

import fxad
import fxad.numpy as jnp
from tests.recorded.catalogue.case import Cases, bf16, c64, f16, f32, f64, i8, i32, u8

cases = Cases("products")


def nn(a, b):
    return a @ b


def nt(a, b):
    return a @ b.T


def tn(a, b):
    return a.T @ b


def tt(a, b):
    return a.T @ b.T


for n in (2, 8, 64, 512):
    cases.add(f"nn-{n}", nn, f32(n, n), f32(n, n))
cases.add("nt-512", nt, f32(512, 512), f32(512, 512))
cases.add("tn-512", tn, f32(512, 512), f32(512, 512))
cases.add("tt-100", tt, f32(100, 100), f32(100, 100))
for rows in (1, 2, 4, 8, 16, 33, 256, 2048):
    cases.add(f"nn-rows-{rows}", nn, f32(rows, 768), f32(768, 2304))
for rows in (1, 4, 17, 256):
    cases.add(f"nt-rows-{rows}", nt, f32(rows, 768), f32(3072, 768))
cases.add("head-nt-one-row", nt, f32(1, 768), f32(50257, 768))
cases.add("odd-k-37", nn, f32(65, 37), f32(37, 129))
cases.add("odd-k-1001", nn, f32(33, 1001), f32(1001, 17))
cases.add("k-1", nn, f32(100, 1), f32(1, 100))
cases.add("narrow-n-10", nn, f32(128, 512), f32(512, 10))
cases.add("n-1", lambda a, x: a @ x, f32(1000, 300), f32(300))
cases.add("tall-k-gradient", tn, f32(4096, 64), f32(4096, 64))
cases.add("pages-apart", nn, f32(512, 1024), f32(1024, 1024))
cases.add("strided", lambda a, b: a[:, ::2] @ b, f32(64, 256), f32(128, 96))
cases.add("batched-nn", nn, f32(12, 128, 64), f32(12, 64, 128))
cases.add(
    "batched-nt", lambda a, b: jnp.einsum("bik,bjk->bij", a, b), f32(8, 64, 64), f32(8, 64, 64)
)
cases.add("batched-small", nn, f32(1000, 4, 4), f32(1000, 4, 4))
cases.add(
    "batched-vectors", lambda a, x: jnp.einsum("bij,bj->bi", a, x), f32(64, 32, 32), f32(64, 32)
)
cases.add(
    "einsum-middle", lambda a, b: jnp.einsum("iaj,ajk->aik", a, b), f32(40, 6, 30), f32(6, 30, 20)
)
for name, rows in (("one-row", 1), ("few-rows", 5), ("rows", 256), ("many-rows", 1024)):
    cases.add(f"bf16-{name}", nn, bf16(rows, 768), bf16(768, 768))
    cases.add(f"bf16-nt-{name}", nt, bf16(rows, 768), bf16(3072, 768))
cases.add("bf16-tn", tn, bf16(1024, 768), bf16(1024, 768))
cases.add("bf16-odd-k", nn, bf16(128, 333), bf16(333, 200))
cases.add("bf16-batched", nn, bf16(12, 128, 64), bf16(12, 64, 128))


def rounded(a, b):
    return jnp.matmul(
        a.astype("bfloat16"), b.astype("bfloat16"), preferred_element_type=jnp.float32
    )


cases.add("rounded-factors", rounded, f32(256, 768), f32(768, 2304))
cases.add("rounded-one-factor", lambda a, b: rounded(a, b), bf16(256, 768), f32(768, 768))


def packed(x, codes, scales):
    return x @ fxad.nn.dequantize(codes, scales, 768, "nf4", x.dtype).T


def packed_gradient(x, codes, scales):
    return x @ fxad.nn.dequantize(codes, scales, 768, "int8", x.dtype)


for rows in (1, 64, 2048):
    cases.add(f"nf4-rows-{rows}", packed, bf16(rows, 768), u8(512, 384), f32(512, 12))
    cases.add(f"int8-rows-{rows}", packed_gradient, bf16(rows, 512), i8(512, 768), f32(512, 12))
cases.add("nf4-f32", packed, f32(64, 768), u8(512, 384), f32(512, 12))
cases.add("f16", nn, f16(64, 128), f16(128, 96))
for rows in (1, 7, 200):
    cases.add(f"f64-rows-{rows}", nn, f64(rows, 300), f64(300, 200))
cases.add("f64-nt", nt, f64(64, 128), f64(96, 128))
cases.add("c64", nn, c64(32, 48), c64(48, 24))
cases.add("i32", nn, i32(30, 40), i32(40, 50))
cases.add(
    "i8-to-i32",
    lambda a, b: jnp.matmul(a, b, preferred_element_type=jnp.int32),
    i8(64, 64),
    i8(64, 64),
)
cases.add(
    "i8-weights", lambda a, b, s: (a @ b.astype("float32")) * s, f32(4, 512), i8(512, 512), f32(512)
)

# What follows a product, or goes before it.
cases.add("bias", lambda a, b, c: a @ b + c, f32(256, 768), f32(768, 768), f32(768))
cases.add(
    "bias-gelu", lambda a, b, c: fxad.nn.gelu(a @ b + c), f32(64, 768), f32(768, 3072), f32(3072)
)
cases.add(
    "bias-relu-small", lambda a, b, c: jnp.maximum(a @ b + c, 0), f32(8, 16), f32(16, 8), f32(8)
)
cases.add("residual", lambda a, b, x: x + a @ b, f32(64, 256), f32(256, 256), f32(64, 256))
cases.add(
    "residual-in-place",
    lambda a, b, x: x + a @ b,
    f32(64, 256),
    f32(256, 256),
    f32(64, 256),
    donate=(2,),
)
cases.add("row-sums-after", lambda a, b: (a @ b).sum(-1), f32(64, 256), f32(256, 512))
cases.add("softmax-after", lambda a, b: fxad.nn.softmax(a @ b), f32(64, 64), f32(64, 128))
cases.add(
    "norm-before",
    lambda x, b: (x / jnp.sqrt((x * x).mean(-1, keepdims=True))) @ b,
    f32(64, 512),
    f32(512, 512),
)
cases.add(
    "bf16-bias-gelu",
    lambda a, b, c: fxad.nn.gelu(a @ b + c),
    bf16(256, 768),
    bf16(768, 3072),
    bf16(3072),
)
cases.add(
    "gate",
    lambda x, a, b: fxad.nn.silu(x @ a) * (x @ b),
    bf16(64, 512),
    bf16(512, 1024),
    bf16(512, 1024),
)
cases.add("three-in-one", lambda x, w: jnp.split(x @ w, 3, axis=-1), f32(128, 256), f32(256, 768))
cases.add(
    "update-of-weights",
    lambda w, a, g: w - 0.1 * (a.T @ g),
    f32(512, 512),
    f32(128, 512),
    f32(128, 512),
    donate=(0,),
)
cases.add(
    "gradient-of-both",
    fxad.grad(lambda a, b: jnp.tanh(a @ b).sum(), argnums=(0, 1)),
    *(f32(64, 128), f32(128, 96)),
)
cases.add("chain-of-three", lambda a, b, c: a @ b @ c, f32(50, 60), f32(60, 70), f32(70, 80))
cases.add("square-symmetric", lambda a: a @ a.T, f32(128, 64))
cases.add("empty-k", nn, f32(5, 0), f32(0, 7))
