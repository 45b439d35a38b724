"""Factors of matrices, Fourier transforms, random numbers, convolutions."""

from __future__ import annotations

import fxad
import fxad.numpy as jnp
from fxad import lax
from tests.recorded.catalogue.case import Cases, c64, f32, f64, key

cases = Cases("numerics")

for n in (4, 60, 300):
    cases.add(f"cholesky-{n}", jnp.linalg.cholesky, f32(n, n))
    cases.add(f"solve-{n}", jnp.linalg.solve, f32(n, n), f32(n, 2))
cases.add("cholesky-f64-batch", jnp.linalg.cholesky, f64(100, 8, 8))
cases.add("cholesky-grad", fxad.grad(lambda a: jnp.linalg.cholesky(a).sum()), f64(30, 30))
cases.add("solve-batch", jnp.linalg.solve, f32(1000, 8, 8), f32(1000, 8, 1))
cases.add("solve-large", jnp.linalg.solve, f64(600, 600), f64(600))
cases.add(
    "triangular",
    lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
    f32(50, 50),
    f32(50, 20),
)
cases.add("inverse", jnp.linalg.inv, f64(20, 20))
cases.add("determinant", jnp.linalg.det, f64(20, 20))
cases.add("slogdet-grad", fxad.grad(lambda a: jnp.linalg.slogdet(a)[1]), f64(12, 12))
cases.add("qr", jnp.linalg.qr, f64(20, 8))
cases.add("qr-batch", jnp.linalg.qr, f32(64, 6, 6))
cases.add("eigh", jnp.linalg.eigh, f32(10, 10))
cases.add("svd", jnp.linalg.svd, f64(12, 7))
cases.add("least-squares", lambda a, b: jnp.linalg.lstsq(a, b)[0], f64(40, 5), f64(40))
cases.add("fft", jnp.fft.fft, c64(4, 256))
cases.add("rfft-filter", lambda x, w: jnp.fft.irfft(jnp.fft.rfft(x) * w), f32(512), c64(257))
cases.add("fft2-grad", fxad.grad(lambda x: jnp.abs(jnp.fft.fft2(x)).sum()), f32(16, 16))

cases.add("random-bits", lambda k: fxad.random.bits(k, (1000,)), key)
cases.add("random-uniform", lambda k: fxad.random.uniform(k, (10_000,)), key)
cases.add("random-normal", lambda k: fxad.random.normal(k, (64, 100)), key)
cases.add("random-split", lambda k: fxad.random.split(k, 4), key)
cases.add("random-integers", lambda k: fxad.random.randint(k, (500,), 0, 10), key)
cases.add("random-categorical", lambda k, x: fxad.random.categorical(k, x), key, f32(5000))
cases.add("random-permutation", lambda k: fxad.random.permutation(k, 200), key)
cases.add("random-gamma", lambda k, a: fxad.random.gamma(k, a), key, f32(50))
cases.add(
    "dropout",
    lambda k, x: jnp.where(fxad.random.bernoulli(k, 0.9, x.shape), x / 0.9, 0),
    key,
    f32(64, 256),
)


def convolution(x, w, stride=1, **options):
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=numbers, **options
    )


cases.add("convolution", convolution, f32(8, 32, 32, 3), f32(3, 3, 3, 32))
cases.add(
    "convolution-strided", lambda x, w: convolution(x, w, 2), f32(8, 32, 32, 32), f32(3, 3, 32, 64)
)
cases.add("convolution-1x1", convolution, f32(2, 16, 16, 64), f32(1, 1, 64, 64))
cases.add(
    "convolution-depthwise",
    lambda x, w: convolution(x, w, feature_group_count=16),
    f32(2, 16, 16, 16),
    f32(3, 3, 1, 16),
)
cases.add(
    "convolution-grad",
    fxad.grad(lambda x, w: fxad.nn.relu(convolution(x, w)).sum(), argnums=(0, 1)),
    *(f32(4, 16, 16, 8), f32(3, 3, 8, 16)),
)
cases.add("convolve", lambda x, w: jnp.convolve(x, w), f32(500), f32(9))
cases.add(
    "max-pool",
    lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    f32(4, 16, 16, 8),
)
cases.add(
    "max-pool-grad",
    fxad.grad(
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum()
    ),
    f32(2, 8, 8, 4),
)
cases.add(
    "erf-and-gamma", lambda x: fxad.scipy.special.gammaln(x) + fxad.scipy.special.erf(x), f32(500)
)
cases.add("jacobian", fxad.jacrev(lambda x: jnp.sin(x) * x.sum()), f32(12))
cases.add("hessian", fxad.hessian(lambda x: (jnp.sin(x) * x.sum()).sum()), f32(8))
