"""What does not depend on sizes: calls, eager ops, `import fxad`, tracing and compilation.

    python -m benchmarks.overhead --peers jax,torch

Calls and eager ops alternate in one process; figures are the fastest of many short runs, since a
busy machine adds to a call of microseconds more than it takes. Imports and compilations are
measured in fresh processes, with byte code present.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fxad
import fxad.numpy as jnp
from benchmarks import harness
from benchmarks.harness import Row

WIDTH = 8  # elements of every array: nothing but overhead is left
LAYERS = 200  # of the pytree with 1,000 leaves


def rows(quick: bool, peers: Sequence[str]) -> list[Row]:
    """Calls, eager ops, imports and the compilation of GPT-2's training step (nano if quick)."""
    rounds = 60 if quick else 300
    found = [*calls(rounds, peers), *eager(rounds, peers), *imports(5 if quick else 15, peers)]
    found += compilations("nano" if quick else "gpt2", 1 if quick else 3, peers)
    return found


# ---------------------------------------------------------------- calls of compiled functions


def _array() -> np.ndarray:
    return np.linspace(-1, 1, WIDTH, dtype=np.float32)


def _layer() -> Any:
    return {"w": _array(), "b": _array(), "m": [_array(), _array()], "t": (_array(),)}


CALLS: dict[str, tuple[Callable[..., Any], tuple, int]] = {
    "call, 1 array": (lambda x: x + 1, (_array(),), 50),
    "call, 10 arrays": (lambda *xs: [x + 1 for x in xs], tuple(_array() for _ in range(10)), 30),
    "call, 1,000 leaves": (
        lambda layers: [
            {
                "w": p["w"] + 1,
                "b": p["b"] + 1,
                "m": [v + 1 for v in p["m"]],
                "t": (p["t"][0] + 1,),
            }
            for p in layers
        ],
        ([_layer() for _ in range(LAYERS)],),
        1,
    ),
}


def calls(rounds: int, peers: Sequence[str]) -> list[Row]:
    """Jitted calls with arrays of 8 elements in and out."""
    found = []
    for what, (function, args, count) in CALLS.items():
        ours, given = fxad.jit(function), fxad.tree.map(jnp.asarray, args)
        contenders: dict[str, Callable[[], Any]] = {"fxad": lambda f=ours, a=given: f(*a)}
        if "jax" in peers:
            import jax

            theirs, handed = jax.jit(function), jax.tree.map(jax.numpy.asarray, args)
            contenders["jax"] = lambda f=theirs, a=handed: f(*a)
        for contender in contenders.values():
            harness.repeated(contender, 3)()  # trace, compile, and settle
        runs = {name: harness.repeated(run, count) for name, run in contenders.items()}
        found.append(harness.row(what, harness.alternate(runs, rounds), "us", count))
    return found


# ---------------------------------------------------------------- ops outside jit

EAGER: dict[str, Callable[[Any, Any], Any]] = {
    "eager x + y": lambda x, lib: x + x,
    "eager x * 2.0": lambda x, lib: x * 2.0,
    "eager sin(x)": lambda x, lib: lib.sin(x),
    "eager x.sum()": lambda x, lib: x.sum(),
    "eager x.mean()": lambda x, lib: x.mean(),
    "eager x @ x": lambda x, lib: x @ x,
    "eager x.reshape(2, 4)": lambda x, lib: x.reshape(2, 4),
    "eager x[1:3]": lambda x, lib: x[1:3],
}


def eager(rounds: int, peers: Sequence[str]) -> list[Row]:
    """One op on 8 elements, with NumPy's own time beside."""
    x, count = _array(), 50
    libraries: dict[str, tuple[Any, Any]] = {"fxad": (jnp.asarray(x), jnp), "numpy": (x, np)}
    if "jax" in peers:
        import jax

        libraries["jax"] = (jax.numpy.asarray(x), jax.numpy)
    if "torch" in peers:
        import torch

        libraries["torch"] = (torch.from_numpy(x), torch)
    found = []
    for what, op in EAGER.items():
        runs = {
            name: harness.repeated(lambda v=value, lib=lib, f=op: f(v, lib), count)
            for name, (value, lib) in libraries.items()
        }
        times = harness.alternate(runs, rounds)
        found.append(over_numpy(harness.row(what, times, "us", count)))
    return found


def over_numpy(row: Row) -> Row:
    """What ours costs beyond NumPy's, which does the work in both."""
    row.pop("ahead", None)
    return row | {"over numpy": row["fxad"] - row["numpy"]}


# ---------------------------------------------------------------- fresh processes


def imports(rounds: int, peers: Sequence[str]) -> list[Row]:
    """Processor time of whole processes that import a library and end.

    With one thread of BLAS: its others wait spinning while the rest is imported, and that counts.
    """
    names = ["fxad", "numpy", *[p for p in peers if p != "numpy"]]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        environment["OPENBLAS_NUM_THREADS"] = "1"

        def run(name: str) -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-c", f"import {name}"]
            subprocess.run(command, check=True, env=environment)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        for name in names:
            run(name)  # writes byte code
        turns = [{name: run(name) for name in names} for _ in range(rounds)]
    times = {name: [turn[name] for turn in turns] for name in names}
    return [over_numpy(harness.row("import (CPU)", times))]


def compilations(preset: str, rounds: int, peers: Sequence[str] = ()) -> list[Row]:
    """Trace, transform and compile a training step: cold, deeper, and from the disk.

    "CPU" is the processor time of the same work, which a busy machine does not stretch. Peers
    (JAX with its layers scanned, torch.compile) are measured once: they take up to a minute.
    """
    layers, further = _config(preset).layers, 12
    cold, deep, warm = [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(_alone(preset, layers, folder))
            warm.append(_alone(preset, layers, folder))
            deep.append(_alone(preset, layers + further, folder))
    others = {peer: _cold_and_warm(preset, layers, peer) for peer in peers if peer in _PEERS}
    found = []
    for what, runs in (("", cold), (", from the disk", warm), ("", deep)):
        best = min(runs, key=lambda run: run["cpu"])
        name = f"compile {preset} step, {best['layers']} layers, {best['kernels']} kernels{what}"
        times = {"fxad": [run["seconds"] for run in runs]}
        if runs is not deep:
            times |= {_PEERS[p]: [took[runs is warm]] for p, took in others.items()}
        found.append(harness.row(name, times) | {"CPU": 1e3 * best["cpu"]})
    more = (found[2]["CPU"] - found[0]["CPU"]) / further
    return [*found, {"what": "each further layer", "unit": "ms", "CPU": more}]


_PEERS = {"jax": "jax", "torch": "torch-compile"}
_CACHES = ("FXAD_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def _cold_and_warm(preset: str, layers: int, peer: str) -> tuple[float, float]:
    """Seconds without and with what a process before has left on disk."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = (_alone(preset, layers, folder, peer) for _ in range(2))
    return first["seconds"], second["seconds"]


def _alone(preset: str, layers: int, folder: str, who: str = "fxad") -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.overhead", "--compile", preset, str(layers), who]
    environment = os.environ | {"FXAD_CACHE": "1"} | dict.fromkeys(_CACHES, folder)
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.strip().splitlines()[-1])


def _config(preset: str, layers: int | None = None) -> Any:
    from fxad_nn import models

    config = models.preset(preset)
    return config if layers is None else dataclasses.replace(config, layers=layers)


def compile_step(preset: str, layers: int) -> dict[str, Any]:
    """Seconds from shapes to machine code in this process, native runtime included."""
    from fxad_nn import gpt2, optim, spec
    from fxad_nn.step import train_step

    config = _config(preset, layers)
    tree = gpt2.spec(config)
    optimiser = optim.adamw(optim.constant(3e-4), beta2=0.95, weight_decay=0.1)
    params = fxad.eval_shape(lambda k: spec.init_params(tree, k), fxad.random.key(0))
    state = fxad.eval_shape(optimiser.init, params)
    tokens = fxad.ShapeDtypeStruct((4, 64), np.int32)
    step = train_step(config, optimiser, clip=None)
    start, started = time.perf_counter(), time.process_time()
    executable = step.lower(params, state, tokens, tokens).executable
    seconds, cpu = time.perf_counter() - start, time.process_time() - started
    kernels = executable.stats()["kernels"]
    return {"seconds": seconds, "cpu": cpu, "kernels": kernels, "layers": layers}


def compile_peer(peer: str, preset: str, layers: int) -> dict[str, Any]:
    """Seconds of the first step, in a process that has none behind it, beyond those of a later
    one: peers trace and compile as they first run."""
    config = _config(preset, layers)
    tokens: Any = np.zeros((4, 64), np.int32)
    step: Callable[[Any, Any], float]
    if peer == "jax":
        from benchmarks.jax_models import training_step

        step = training_step(config)
    else:
        import torch

        from benchmarks import torch_models

        step = torch_models.training_step(torch_models.model_of(config), compiled=True)
        tokens = torch.zeros((4, 64), dtype=torch.int64)
    runs = []
    for _ in range(4):
        start, started = time.perf_counter(), time.process_time()
        step(tokens, tokens)
        runs.append((time.perf_counter() - start, time.process_time() - started))
    seconds, cpu = (first - min(later) for first, *later in zip(*runs, strict=True))
    return {"seconds": seconds, "cpu": cpu, "layers": layers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="", help="comma-separated: jax, torch")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, a small model")
    parser.add_argument("--json", default=None, help="write the table here")
    parser.add_argument("--compile", nargs="+", help="only this: PRESET LAYERS [jax|torch]")
    args = parser.parse_args()
    if args.compile:
        preset, layers, peer = (*args.compile, "fxad")[:3]
        measure = compile_step if peer == "fxad" else functools.partial(compile_peer, peer)
        print(json.dumps(measure(preset, int(layers))))
        return
    peers = harness.installed([p for p in args.peers.split(",") if p])
    harness.report("overhead", rows(args.quick, peers), args.json)


if __name__ == "__main__":
    main()
