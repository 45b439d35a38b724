"""Loops and branches: those that become one function, those that are interpreted, tapes."""

from __future__ import annotations

import fxad
import fxad.numpy as jnp
from benchmarks import loops as benchmarked
from fxad import lax
from tests.recorded.catalogue.case import Cases, bf16, bool_, f32, f64, i32

cases = Cases("loops")


def scanned(n, function):
    """f(f(...f(x))) with weights w."""
    return lambda x, w: lax.scan(lambda c, _: (function(c, w), None), x, None, length=n)[0]


small = scanned(1000, lambda c, w: jnp.sin(c) * w + 0.1 * c)
cases.add("scan-scalar", small, f32(), f32())
cases.add("scan-scalar-f64", small, f64(), f64())
cases.add("scan-scalar-grad", fxad.grad(small), f32(), f32())
cases.add("scan-few-trips", scanned(5, lambda c, w: jnp.tanh(c * w)), f32(), f32())
cases.add("scan-vectors", scanned(100, lambda c, w: jnp.tanh(w @ c)), f32(16), f32(16, 16))
cases.add(
    "scan-vectors-grad",
    fxad.grad(lambda x, w: scanned(100, lambda c, w: jnp.tanh(w @ c))(x, w).sum(), argnums=(0, 1)),
    *(f32(16), f32(16, 16)),
)
cases.add("scan-large", scanned(20, lambda c, w: jnp.tanh(c @ w)), f32(64, 256), f32(256, 256))
cases.add(
    "scan-large-grad",
    fxad.grad(lambda x, w: scanned(20, lambda c, w: jnp.tanh(c @ w))(x, w).sum(), argnums=(0, 1)),
    *(f32(64, 256), f32(256, 256)),
)
cases.add(
    "scan-of-rows",
    lambda xs: lax.scan(lambda c, x: (0.9 * c + x, c), jnp.zeros(8, jnp.float32), xs),
    f32(500, 8),
)
cases.add(
    "scan-reverse",
    lambda xs: lax.scan(lambda c, x: (c * x, c), jnp.float32(1), xs, reverse=True),
    f32(100),
)
cases.add("scan-unrolled", lambda xs: lax.scan(lambda c, x: (c + x, c), 0.0, xs, unroll=4), f32(40))
cases.add("map", lambda xs: lax.map(lambda x: jnp.sin(x).sum(), xs), f32(50, 20))
cases.add("associative-scan", lambda x: lax.associative_scan(jnp.multiply, x), f32(100))
cases.add("fori", lambda x: lax.fori_loop(0, 50, lambda i, c: c + i * x, x), f32())
cases.add(
    "fori-in-fori",
    lambda x: lax.fori_loop(0, 30, lambda i, c: lax.fori_loop(0, 4, lambda j, d: d * x + i, c), x),
    f32(),
)
cases.add(
    "fori-updates-rows",
    lambda x: lax.fori_loop(0, 32, lambda i, x: x.at[i].set(x[i - 1] * 2), x),
    f32(32, 64),
    donate=(0,),
)


def newton(x):
    """The square root of x, by a while loop."""
    return lax.while_loop(lambda y: jnp.abs(y * y - x) > 1e-4, lambda y: 0.5 * (y + x / y), x)


cases.add("while", newton, f32())
cases.add("while-grad", fxad.grad(newton), f32())
cases.add("while-of-vectors", fxad.vmap(newton), f32(100))
cases.add(
    "while-large",
    lambda x, w: lax.while_loop(lambda x: jnp.abs(x).max() > 1, lambda x: x @ w, x),
    *(f32(128, 128), f32(128, 128)),
)
cases.add(
    "while-in-scan-grad",
    fxad.grad(lambda xs: lax.map(newton, xs).sum()),
    f32(20),
)
cases.add("cond", lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x), bool_(), f32(100))
cases.add("cond-scalar-grad", fxad.grad(lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x)), f32())
cases.add(
    "cond-of-vectors", fxad.vmap(lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x)), bool_(9), f32(9)
)
cases.add(
    "switch",
    lambda i, x: lax.switch(i, [jnp.sin, lambda x: x @ x, lambda x: x * 2], x),
    *(i32(), f32(32, 32)),
)
cases.add(
    "cond-in-scan",
    lambda xs: lax.scan(
        lambda c, x: (lax.cond(x > c, lambda a, b: a + b, lambda a, b: a * b, c, x), c), 0.5, xs
    ),
    f32(200),
)

# As they are timed in `benchmarks/loops.py`.
cases.add("ode", benchmarked.ode(jnp, lax, 1000), f32(3), f32())
cases.add("ode-grad", fxad.grad(benchmarked.ode(jnp, lax, 1000)), f32(3), f32())
cases.add("kalman", benchmarked.kalman(jnp, lax, 1000), f32(4, 4), f32(2, 4), f32(1000, 2))
cases.add(
    "kalman-grad", fxad.grad(benchmarked.kalman(jnp, lax, 100)), f32(4, 4), f32(2, 4), f32(100, 2)
)
cases.add("nbody", benchmarked.nbody(jnp, lax, 500), f32(16, 3), f32(16, 3))
cases.add("while-timed", benchmarked.while_small(jnp, lax, 1000), f32(), f32())


def cell(w, h, x):
    """A gated recurrent unit's step."""
    r, z = jnp.split(fxad.nn.sigmoid(x @ w["in"][:, :64] + h @ w["state"][:, :64]), 2, axis=-1)
    new = jnp.tanh(x @ w["in"][:, 64:] + r * (h @ w["state"][:, 64:]))
    return (1 - z) * new + z * h


def recurrent(w, xs):
    first = jnp.zeros((xs.shape[1], 32), xs.dtype)
    return lax.scan(lambda h, x: (cell(w, h, x), None), first, xs)[0].sum()


for dtype, kind in (("f32", f32), ("bf16", bf16)):
    given = ({"in": kind(16, 96), "state": kind(32, 96)}, kind(50, 4, 16))
    cases.add(f"recurrent-{dtype}", recurrent, *given)
    cases.add(f"recurrent-{dtype}-grad", fxad.grad(recurrent), *given)


@fxad.checkpoint
def checkpointed_step(c, w):
    return jnp.tanh(jnp.sin(c @ w) @ w)


cases.add(
    "scan-checkpointed-grad",
    fxad.grad(lambda x, w: scanned(10, checkpointed_step)(x, w).sum(), argnums=(0, 1)),
    *(f32(32, 64), f32(64, 64)),
)
