"""Kernels and a training step on an NVIDIA GPU, beside PyTorch where it is installed.

    python -m benchmarks.cuda [--step]

A kernel's time is the device's, by events, least of ten; bytes and operations are counted. A step
copies its arguments to the device and its results back, which is reported apart.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda

import fxad
import fxad.numpy as jnp
from benchmarks.guard.models import parameters
from fxad import compiler
from fxad.backend.numba.execute import Interpreter
from fxad_nn import models, optim
from fxad_nn.step import train_step

ROUNDS = 10


def device_seconds(call: Callable[[], Any]) -> float:
    """The least time of a call between two events."""
    call()
    least = float("inf")
    for _ in range(ROUNDS):
        begin, end = cuda.event(), cuda.event()
        begin.record()
        call()
        end.record()
        end.synchronize()
        least = min(least, cuda.event_elapsed_time(begin, end) / 1e3)
    return least


def plan_of(function: Callable[..., Any], *args: Any) -> Any:
    """The Plan of a function for CUDA."""
    lowered = fxad.jit(function).lower(*args)
    return compiler.planned(lowered.traced, compiler.Options(), compiler.BACKENDS["cuda"]()).plan


def kernels(function: Callable[..., Any], *args: Any) -> float:
    """Seconds of all kernels of a small program, its arguments on the device."""
    interpreter = Interpreter(plan_of(function, *args), "cuda")
    launches: list[Callable[[], Any]] = []
    found = interpreter.kernel

    def remembered(kernel: Any) -> Callable[..., Any]:
        compiled = found(kernel)
        return lambda arrays, scalars: launches.append(lambda: compiled(arrays, scalars))

    interpreter.kernel = remembered  # type: ignore[method-assign, assignment]
    interpreter.run([np.asarray(a) for a in args])
    return device_seconds(lambda: [launch() for launch in launches])


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def torch_product(a: np.ndarray, b: np.ndarray) -> float | None:
    """PyTorch's seconds for the same product in float32."""
    try:
        import torch
    except ImportError:
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    x, y = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    least = float("inf")
    for _ in range(ROUNDS + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        x @ y
        torch.cuda.synchronize()
        least = min(least, time.perf_counter() - begin)
    return least


def products() -> None:
    for m, k, n in ((4096, 4096, 4096), (1024, 768, 3072), (1024, 3072, 768), (256, 768, 768)):
        a, b = normal(m, k), normal(k, n)
        ours, theirs = kernels(lambda x, y: x @ y, a, b), torch_product(a, b)
        rate, peer = 2e-12 * m * k * n, "-"
        if theirs is not None:
            peer = f"{rate / theirs:.1f}"
        print(f"product {m}x{k}x{n}: {rate / ours:.1f} TFLOP/s, PyTorch {peer}", flush=True)


def loops() -> None:
    x = normal(4096, 8192)
    cases = {
        "x * 2 + 1": (lambda x: x * 2 + 1, 2),
        "tanh": (jnp.tanh, 2),
        "sum of rows": (lambda x: x.sum(axis=1), 1),
        "softmax of rows": (lambda x: fxad.nn.softmax(x, axis=-1), 2),
    }
    for name, (function, passes) in cases.items():
        seconds = kernels(function, x)
        print(f"{name}: {1e-9 * passes * x.nbytes / seconds:.0f} GB/s", flush=True)


def step() -> None:
    """GPT-2 124M on 4 x 256 tokens, float32, AdamW."""
    config = models.preset("gpt2")
    params = parameters(config)
    optimiser = optim.adamw(3e-4)
    made = train_step(config, optimiser, clip=1.0)
    tokens = np.random.default_rng(0).integers(0, config.vocab, (4, 257), np.int32)
    args = params, optimiser.init(params), tokens[:, :-1].copy(), tokens[:, 1:].copy()
    run = made.on("cuda")
    begin = time.perf_counter()
    run(*args)
    print(f"first step, with compiling: {time.perf_counter() - begin:.1f} s", flush=True)
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        run(*args)
        seconds.append(time.perf_counter() - begin)
    print(f"step: {1e3 * min(seconds):.0f} ms", flush=True)
    spent: Counter[str] = Counter()
    _timed(Interpreter, "kernel", spent)
    begin = time.perf_counter()
    run(*args)
    print(f"step, waiting for every kernel: {1e3 * (time.perf_counter() - begin):.0f} ms; of it")
    for name, took in spent.most_common(12):
        print(f"{1e3 * took:8.1f} ms  {name}", flush=True)


def _timed(owner: type, name: str, spent: Counter[str]) -> None:
    """Have every launch waited for and its time added under its kernel's name."""
    found = getattr(owner, name)

    def kernel(self: Any, one: Any) -> Callable[..., Any]:
        compiled = found(self, one)

        def call(arrays: Any, scalars: Any) -> None:
            cuda.synchronize()
            begin = time.perf_counter()
            compiled(arrays, scalars)
            cuda.synchronize()
            spent[one.name] += time.perf_counter() - begin

        return call

    setattr(owner, name, kernel)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", action="store_true", help="and a GPT-2's training step")
    given = parser.parse_args()
    print(cuda.get_current_device().name)
    products()
    loops()
    if given.step:
        step()


if __name__ == "__main__":
    main()
