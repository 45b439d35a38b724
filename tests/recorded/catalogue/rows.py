"""Reductions, and what is computed of whole rows: softmax and norms with their gradients."""

from __future__ import annotations

import fxad
import fxad.numpy as jnp
from fxad_nn.layers import layer_norm, rms_norm
from tests.recorded.catalogue.case import Cases, bf16, bool_, c64, f16, f32, f64, i32, u8

cases = Cases("rows")

cases.add("sum-all", lambda x: x.sum(), f32(1 << 20))
cases.add("sum-all-f64", lambda x: x.sum(), f64(1000, 1000))
cases.add("sum-bf16", lambda x: x.sum(), bf16(5000))
cases.add("sum-f16-rows", lambda x: x.sum(-1), f16(64, 300))
cases.add("sum-rows", lambda x: x.sum(-1), f32(128, 768))
cases.add("sum-rows-of-3", lambda x: x.sum(-1), f32(4000, 3))
cases.add("sum-columns", lambda x: x.sum(0), f32(768, 128))
cases.add("sum-columns-tall", lambda x: x.sum(0), f32(100_000, 8))
cases.add("sum-middle", lambda x: x.sum(1), f32(16, 100, 32))
cases.add("sum-c64", lambda x: x.sum(-1), c64(10, 333))
cases.add("sum-of-i32", lambda x: x.sum(), i32(9999))
cases.add("sum-of-bytes", lambda x: x.sum(dtype="int32"), u8(9999))
cases.add("max-rows", lambda x: x.max(-1), f32(100, 1000))
cases.add("min-columns", lambda x: x.min(0), f32(1000, 100))
cases.add("prod", lambda x: x.prod(-1), f32(10, 77))
cases.add("any-all", lambda x: (x.any(-1), x.all(0)), bool_(64, 100))
cases.add("argmax-rows", lambda x: x.argmax(-1), f32(64, 50257))
cases.add("argmin-columns", lambda x: x.argmin(0), f64(100, 64))
cases.add("mean-variance", lambda x: (x.mean(-1), x.var(-1)), f32(64, 500))
cases.add("norm-all", lambda x: jnp.sqrt(jnp.sum(x * x)), f32(1 << 18))
cases.add("dot-of-vectors", lambda x, y: jnp.sum(x * y), f32(10_000), f32(10_000))
cases.add("logsumexp", lambda x: fxad.nn.logsumexp(x, axis=-1), f32(64, 1000))
cases.add("logsumexp-columns", lambda x: fxad.nn.logsumexp(x, axis=0), f32(1000, 64))
cases.add("softmax", lambda x: fxad.nn.softmax(x), f32(128, 1024))
cases.add("softmax-long", lambda x: fxad.nn.softmax(x), f32(4, 128_256))
cases.add("softmax-short", lambda x: fxad.nn.softmax(x), f32(4096, 10))
cases.add("softmax-bf16", lambda x: fxad.nn.softmax(x), bf16(128, 1024))
cases.add("log-softmax-f64", lambda x: fxad.nn.log_softmax(x), f64(32, 100))
cases.add(
    "softmax-grad",
    fxad.grad(lambda x, y: (fxad.nn.softmax(x) * y).sum()),
    f32(64, 512),
    f32(64, 512),
)


def _norm(width: int) -> dict[str, object]:
    return {"scale": f32(width), "bias": f32(width)}


def _layer_norm(p, x):
    return layer_norm(p, x, 1e-5)


def _rms_norm(p, x):
    return rms_norm(p, x, 1e-5)


for width, count in ((768, 256), (2048, 4), (100, 33)):
    cases.add(f"layer-norm-{width}", _layer_norm, _norm(width), f32(count, width))
cases.add("layer-norm-bf16", _layer_norm, _norm(768), bf16(64, 768))
cases.add("rms-norm", _rms_norm, {"scale": f32(2048)}, f32(64, 2048))
cases.add("rms-norm-bf16", _rms_norm, {"scale": bf16(2048)}, bf16(1, 2048))
cases.add(
    "layer-norm-grad",
    fxad.grad(lambda p, x, y: (_layer_norm(p, x) * y).sum(), argnums=(0, 1)),
    *(_norm(768), f32(256, 768), f32(256, 768)),
)
cases.add(
    "rms-norm-grad",
    fxad.grad(lambda p, x, y: (_rms_norm(p, x) * y).sum(), argnums=(0, 1)),
    *({"scale": f32(512)}, f32(64, 512), f32(64, 512)),
)
cases.add(
    "residual-norm", lambda p, x, y: _layer_norm(p, x + y), _norm(256), f32(8, 256), f32(8, 256)
)
cases.add("normalise-columns", lambda x: (x - x.mean(0)) / x.std(0), f32(1000, 20))
