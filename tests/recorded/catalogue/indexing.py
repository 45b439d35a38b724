"""Gathers, scatters, slices at places only known when they run, sorts, running sums."""

from __future__ import annotations

import fxad
import fxad.numpy as jnp
from fxad import lax
from tests.recorded.catalogue.case import Cases, bf16, bool_, f32, f64, i8, i32, i64, u8, u32

cases = Cases("indexing")

cases.add("embedding", lambda table, ids: table[ids], f32(50257, 768), i32(4, 64))
cases.add("embedding-bf16", lambda table, ids: table[ids], bf16(1000, 64), i32(128))
cases.add(
    "embedding-grad",
    fxad.grad(lambda table, ids, y: (table[ids] * y).sum()),
    *(f32(5000, 64), i32(256), f32(256, 64)),
)
cases.add(
    "take-along-axis", lambda x, i: jnp.take_along_axis(x, i, axis=1), f32(64, 100), i32(64, 3)
)
cases.add("gather-elements", lambda x, i: x[i], f32(10_000), i64(777))
cases.add("gather-two-axes", lambda x, i, j: x[i, :, j], f32(20, 30, 40), i32(9), i32(9))
cases.add("gather-bytes", lambda x, i: x[i], u8(256), u8(9999))
cases.add("dynamic-slice", lambda x, i: lax.dynamic_slice(x, (i, 3), (10, 20)), f32(100, 50), i32())
cases.add(
    "dynamic-update-in-place",
    lambda x, y, i: lax.dynamic_update_slice(x, y, (i, 0)),
    *(f32(100, 50), f32(4, 50), i32()),
    donate=(0,),
)
cases.add("scatter-set", lambda x, i, y: x.at[i].set(y), f32(100, 8), i32(12), f32(12, 8))
cases.add("scatter-add", lambda x, i, y: x.at[i].add(y), f32(1000), i32(500), f32(500))
cases.add("scatter-add-bf16", lambda x, i, y: x.at[i].add(y), bf16(100, 16), i32(50), bf16(50, 16))
cases.add("scatter-max", lambda x, i, y: x.at[i].max(y), i32(64), i32(99), i32(99))
cases.add("update-rows", lambda x, y: x.at[3:7].multiply(y), f32(10, 10), f32(4, 10))
cases.add(
    "segment-sum",
    lambda x, i: jnp.zeros((40, 8)).at[i].add(x),
    *(f32(300, 8), i32(300)),
)
cases.add("one-hot", lambda i: fxad.nn.one_hot(i, 10), i32(100))
cases.add("bincount", lambda i: jnp.bincount(i, length=32), i32(1000))
cases.add("searchsorted", lambda a, v: jnp.searchsorted(a, v), f32(1000), f32(77))
cases.add("nonzero", lambda x: jnp.nonzero(x, size=50), bool_(400))
cases.add("roll", lambda x: jnp.roll(x, 7), f32(100))

for length in (3, 8, 30, 200, 3000, 100_000):
    cases.add(f"sort-{length}", lambda x: jnp.sort(x), f32(length))
    cases.add(f"sort-rows-{length}", lambda x: jnp.sort(x, axis=-1), f32(16, length))
for name, kind in (("i8", i8), ("bf16", bf16), ("i64", i64), ("f64", f64), ("u32", u32)):
    cases.add(f"sort-{name}", lambda x: jnp.sort(x), kind(1000))
cases.add("sort-columns", lambda x: jnp.sort(x, axis=0), f32(100, 64))
cases.add("argsort", lambda x: jnp.argsort(x), f32(5000))
cases.add("argsort-rows", lambda x: jnp.argsort(x, axis=-1), f32(64, 20))
cases.add("sort-by-two-keys", lambda a, b: lax.sort((a, b), num_keys=2), i32(500), f32(500))
cases.add("sort-grad", fxad.grad(lambda x, y: (jnp.sort(x) * y).sum()), f32(300), f32(300))
for length, count in ((50257, 200), (50257, 1), (1000, 40), (64, 5), (128_256, 50)):
    cases.add(f"top-{count}-of-{length}", lambda x, count=count: lax.top_k(x, count), f32(length))
cases.add("top-rows", lambda x: lax.top_k(x, 8), f32(64, 512))
cases.add("median", lambda x: jnp.median(x, axis=-1), f32(20, 101))
cases.add("unique", lambda x: jnp.unique(x, size=20), i32(100))

for length in (16, 1000, 100_000):
    cases.add(f"cumsum-{length}", lambda x: jnp.cumsum(x), f32(length))
cases.add("cumsum-rows", lambda x: jnp.cumsum(x, axis=-1), f32(64, 300))
cases.add("cumsum-columns", lambda x: jnp.cumsum(x, axis=0), f32(300, 64))
cases.add("cumsum-i64", lambda x: jnp.cumsum(x), i64(999))
cases.add("cumprod-grad", fxad.grad(lambda x: jnp.cumprod(x).sum()), f32(50))
cases.add("cummax", lambda x: lax.cummax(x, axis=0), f32(200, 3))
cases.add("cumlogsumexp", lambda x: lax.cumlogsumexp(x, axis=-1), f32(8, 200))
cases.add(
    "nucleus",
    lambda x: jnp.cumsum(fxad.nn.softmax(-jnp.sort(-x))) < 0.9,
    f32(5000),
)
