"""Loops with small bodies, forward and backward, beside JAX and the same loop in C.

    python -m benchmarks.loops [--quick] [--peers jax] [--cpu] [--json out.json]

scan: 1,000,000 steps of a few flops; ode: Runge-Kutta 4 of the Lorenz system, 100,000 steps;
kalman: a filter of 4 states and 2 observations, 10,000 steps; nbody: 16 bodies, 2,000 leapfrog
steps; while: a loop whose trips are known at run time, 100,000 of them. C is compiled by
`gcc -O3 -march=native` and runs forward only. All are float32.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fxad
import fxad.numpy as fxad_numpy
from benchmarks import harness
from fxad import lax as fxad_lax

C = """
#include <math.h>
#include <string.h>
float scan_(float c, float w, long n) {
  for (long i = 0; i < n; i++) c = sinf(c) * w + 0.1f * c;
  return c;
}
static void slope(const float *s, float *d) {
  d[0] = 10.0f * (s[1] - s[0]);
  d[1] = s[0] * (28.0f - s[2]) - s[1];
  d[2] = s[0] * s[1] - 2.6666667f * s[2];
}
float ode(float *s, float h, long n) {
  for (long i = 0; i < n; i++) {
    float a[3], b[3], c[3], d[3], t[3];
    slope(s, a);
    for (int j = 0; j < 3; j++) t[j] = s[j] + 0.5f * h * a[j];
    slope(t, b);
    for (int j = 0; j < 3; j++) t[j] = s[j] + 0.5f * h * b[j];
    slope(t, c);
    for (int j = 0; j < 3; j++) t[j] = s[j] + h * c[j];
    slope(t, d);
    for (int j = 0; j < 3; j++) s[j] += h / 6 * (a[j] + 2 * b[j] + 2 * c[j] + d[j]);
  }
  return s[0] + s[1] + s[2];
}
float nbody(float *x, float *v, long bodies, long n) {
  float total = 0;
  for (long i = 0; i < n; i++) {
    for (long a = 0; a < bodies; a++) {
      float f[3] = {0, 0, 0};
      for (long b = 0; b < bodies; b++) {
        float d[3], r = 0.01f;
        for (int j = 0; j < 3; j++) { d[j] = x[3 * b + j] - x[3 * a + j]; r += d[j] * d[j]; }
        r = 1.0f / (r * sqrtf(r));
        for (int j = 0; j < 3; j++) f[j] += d[j] * r;
      }
      for (int j = 0; j < 3; j++) v[3 * a + j] += 0.001f * f[j];
    }
    for (long a = 0; a < 3 * bodies; a++) x[a] += 0.001f * v[a];
  }
  for (long a = 0; a < 3 * bodies; a++) total += x[a];
  return total;
}
float kalman(const float *A, const float *H, const float *zs, long n) {
  float m[4] = {0}, P[16] = {0}, total = 0;
  for (int i = 0; i < 4; i++) P[5 * i] = 1;
  for (long step = 0; step < n; step++) {
    float p[4], Q[16], t[16], S[4], G[8], K[8], e[2];
    for (int i = 0; i < 4; i++) {
      p[i] = 0;
      for (int j = 0; j < 4; j++) p[i] += A[4 * i + j] * m[j];
      for (int j = 0; j < 4; j++) {
        t[4 * i + j] = 0;
        for (int k = 0; k < 4; k++) t[4 * i + j] += A[4 * i + k] * P[4 * k + j];
      }
    }
    for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) {
      Q[4 * i + j] = i == j ? 0.01f : 0;
      for (int k = 0; k < 4; k++) Q[4 * i + j] += t[4 * i + k] * A[4 * j + k];
    }
    for (int i = 0; i < 4; i++) for (int j = 0; j < 2; j++) {
      G[2 * i + j] = 0;
      for (int k = 0; k < 4; k++) G[2 * i + j] += Q[4 * i + k] * H[4 * j + k];
    }
    for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) {
      S[2 * i + j] = i == j ? 0.1f : 0;
      for (int k = 0; k < 4; k++) S[2 * i + j] += H[4 * i + k] * G[2 * k + j];
    }
    float det = S[0] * S[3] - S[1] * S[2];
    float I[4] = {S[3] / det, -S[1] / det, -S[2] / det, S[0] / det};
    for (int i = 0; i < 4; i++) for (int j = 0; j < 2; j++)
      K[2 * i + j] = G[2 * i] * I[j] + G[2 * i + 1] * I[2 + j];
    for (int i = 0; i < 2; i++) {
      e[i] = zs[2 * step + i];
      for (int k = 0; k < 4; k++) e[i] -= H[4 * i + k] * p[k];
      total += e[i] * e[i];
    }
    for (int i = 0; i < 4; i++) {
      m[i] = p[i] + K[2 * i] * e[0] + K[2 * i + 1] * e[1];
      for (int j = 0; j < 4; j++)
        P[4 * i + j] = Q[4 * i + j] - K[2 * i] * G[2 * j] - K[2 * i + 1] * G[2 * j + 1];
    }
  }
  return total;
}
"""


def scan_small(np_: Any, lax: Any, n: int) -> Callable:
    def run(c, w):
        return lax.scan(lambda c, _: (np_.sin(c) * w + 0.1 * c, None), c, None, length=n)[0]

    return run


def while_small(np_: Any, lax: Any, n: int) -> Callable:
    def run(c, w):
        def body(s):
            return s[0] + 1, np_.sin(s[1]) * w + 0.1 * s[1]

        return lax.while_loop(lambda s: s[0] < n + (w > 9), body, (0, c))[1]

    return run


def ode(np_: Any, lax: Any, n: int) -> Callable:
    def slope(s):
        x, y, z = s
        return 10.0 * (y - x), x * (28.0 - z) - y, x * y - 2.6666667 * z

    def moved(s, h, d):
        return tuple(a + h * b for a, b in zip(s, d, strict=True))

    def run(s, h):
        def step(s, _):
            a = slope(s)
            b = slope(moved(s, 0.5 * h, a))
            c = slope(moved(s, 0.5 * h, b))
            d = slope(moved(s, h, c))
            parts = zip(s, a, b, c, d, strict=True)
            return tuple(x + h / 6 * (p + 2 * q + 2 * r + t) for x, p, q, r, t in parts), None

        return sum(lax.scan(step, tuple(s), None, length=n)[0])

    return run


def kalman(np_: Any, lax: Any, n: int) -> Callable:
    def run(A, H, zs):
        def step(state, z):
            m, P, total = state
            p, Q = A @ m, A @ P @ A.T + 0.01 * np_.eye(4, dtype=np.float32)
            G = Q @ H.T
            S = H @ G + 0.1 * np_.eye(2, dtype=np.float32)
            det = S[0, 0] * S[1, 1] - S[0, 1] * S[1, 0]
            rows = [np_.stack([S[1, 1], -S[0, 1]]), np_.stack([-S[1, 0], S[0, 0]])]
            K = G @ (np_.stack(rows) / det)
            e = z - H @ p
            return (p + K @ e, Q - K @ G.T, total + (e * e).sum()), None

        first = (np_.zeros(4, np.float32), np_.eye(4, dtype=np.float32), np.float32(0))
        return lax.scan(step, first, zs)[0][2]

    return run


def nbody(np_: Any, lax: Any, n: int) -> Callable:
    def run(x, v):
        def step(state, _):
            x, v = state
            d = x[None, :, :] - x[:, None, :]
            r = (d * d).sum(-1) + 0.01
            v = v + 0.001 * (d * (1.0 / (r * np_.sqrt(r)))[:, :, None]).sum(1)
            return (x + 0.001 * v, v), None

        return lax.scan(step, (x, v), None, length=n)[0][0].sum()

    return run


def cases() -> dict[str, tuple[Callable, int, tuple]]:
    r = np.random.default_rng(0)
    x, v = r.normal(size=(2, 16, 3)).astype(np.float32)
    A = (np.eye(4) + 0.1 * np.eye(4, k=2)).astype(np.float32)
    H, zs = np.eye(2, 4, dtype=np.float32), r.normal(size=(10_000, 2)).astype(np.float32)
    small = (np.float32(0.3), np.float32(0.9))
    return {
        "scan": (scan_small, 1_000_000, small),
        "while": (while_small, 100_000, small),
        "ode": (ode, 100_000, (np.ones(3, np.float32), np.float32(1e-4))),
        "kalman": (kalman, 10_000, (A, H, zs)),
        "nbody": (nbody, 2_000, (x, v)),
    }


def compiled_c() -> ctypes.CDLL | None:
    if shutil.which("gcc") is None:
        return None
    folder = Path(tempfile.mkdtemp())
    (folder / "loops.c").write_text(C)
    flags = ["-O3", "-march=native", "-shared", "-fPIC", "-lm"]
    made = [str(folder / "loops.c"), "-o", str(folder / "loops.so")]
    subprocess.run(["gcc", *flags[:-1], *made, flags[-1]], check=True)
    return ctypes.CDLL(str(folder / "loops.so"))


def run_c(library: ctypes.CDLL, name: str, n: int, args: tuple) -> Callable[[], Any]:
    """The same loop in C, on copies of the arguments."""
    function = getattr(library, {"scan": "scan_", "while": "scan_"}.get(name, name))
    function.restype = ctypes.c_float

    def run() -> float:
        held = [np.array(a) for a in args]
        given: list[Any] = [
            ctypes.c_float(float(a)) if a.ndim == 0 else ctypes.c_void_p(a.ctypes.data)
            for a in held
        ]
        extra = [ctypes.c_long(16)] if name == "nbody" else []
        return function(*given, *extra, ctypes.c_long(n))

    return run


def contenders(
    name: str, peers: Container[str], library: ctypes.CDLL | None
) -> dict[str, dict[str, Callable[[], Any]]]:
    """For every kind of run - forward, gradient, second - who runs it."""
    make, n, args = cases()[name]
    derive = {
        "forward": lambda lib, f: lib.jit(f),
        "gradient": lambda lib, f: lib.jit(lib.grad(f)),
        "second": lambda lib, f: lib.jit(lib.grad(lib.grad(f))),
    }
    if name not in ("scan", "while"):
        del derive["second"]
    found: dict[str, dict[str, Callable[[], Any]]] = {}
    for kind, of in derive.items():
        functions = {"fxad": of(fxad, make(fxad_numpy, fxad_lax, n))}
        if "jax" in peers and (kind == "forward" or name != "while"):
            # JAX has no reverse mode through while_loop.
            jax, jax_numpy = map(importlib.import_module, ("jax", "jax.numpy"))
            functions["jax"] = of(jax, make(jax_numpy, jax.lax, n))
        found[kind] = {who: partial(_finished, f, args) for who, f in functions.items()}
    if library is not None:
        found["forward"]["c"] = run_c(library, name, n, args)
    return found


def _finished(function: Callable[..., Any], args: tuple) -> Any:
    return np.asarray(function(*args))


def rows(quick: bool, peers: Container[str], cpu: bool = False) -> list[harness.Row]:
    """Every loop's forward run and derivatives; in forward runs all must agree.

    cpu: count the processor's time. It leaves out other programs', but may miss what a thread that
    runs elsewhere, as JAX's do, has not yet been charged for.
    """
    library, made = compiled_c(), []
    for name in cases():
        for kind, runs in contenders(name, peers, library).items():
            if kind == "forward":
                values = [float(run()) for run in runs.values()]
                np.testing.assert_allclose(values, values[0], rtol=1e-2)
            clock = time.process_time if cpu else time.perf_counter
            times = harness.alternate(runs, 3 if quick else 9, clock=clock)
            made.append(harness.row(f"{name} {kind}", times))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peers", default="jax")
    parser.add_argument("--cpu", action="store_true", help="the processor's time, not wall time")
    parser.add_argument("--json")
    options = parser.parse_args()
    harness.report(
        "loops", rows(options.quick, options.peers.split(","), options.cpu), options.json
    )


if __name__ == "__main__":
    main()
