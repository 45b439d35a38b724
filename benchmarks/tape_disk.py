"""A gradient whose tape is ten times its memory budget, beside the same gradient all in memory.

    python -m benchmarks.tape_disk [rounds] [layers] [width]

The tape goes to a file through `checkpoint(layer, offload="disk")`. The disk's bandwidth is
measured in the same run: a file as large as the tape is written, synced, dropped from the page
cache and read back. Memory is the most that is resident while a gradient runs, page cache and
other mapped files left out, beyond what was before its first call.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fxad
import fxad.numpy as jnp
from benchmarks.harness import alternate, report

ROWS = 1024


def layer(x: Any, w: Any) -> Any:
    return x + jnp.tanh(x @ w[0]) @ w[1]


def gradient(wrap: Callable[..., Any]) -> Any:
    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = wrap(layer)(x, w)
        return jnp.mean(x * x)

    return fxad.jit(fxad.value_and_grad(loss))


def tape_bytes(program: Any) -> int:
    return sum(e.inputs[0].type.nbytes for e in program.eqns if e.op.name == "put")


def bandwidth(nbytes: int) -> float:
    """Bytes per second of writing and reading a file once each: the slower of the two."""
    data = np.random.default_rng(0).integers(0, 255, 1 << 24, np.uint8)
    count = max(nbytes // data.nbytes, 8)
    with tempfile.TemporaryFile(dir=fxad.config.offload_directory, buffering=0) as file:
        start = time.perf_counter()
        for _ in range(count):
            file.write(data.data)
        os.fsync(file.fileno())
        written = time.perf_counter() - start
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        start = time.perf_counter()
        for _ in range(count):
            file.readinto(data.data)
        read = time.perf_counter() - start
    return count * data.nbytes / max(written, read)


def resident() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")


class Watch:
    """The largest resident set inside a `with` block, looked at every 2 ms."""

    def __enter__(self) -> Watch:
        self.most = self.start = resident()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()
        return self

    def _look(self) -> None:
        while not self.done.wait(0.002):
            self.most = max(self.most, resident())

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, usual in (("rounds", 3), ("layers", 40), ("width", 512)):
        parser.add_argument(name, type=int, nargs="?", default=usual)
    args = parser.parse_args()
    rounds, layers, width = args.rounds, args.layers, args.width
    r = np.random.default_rng(0)
    x = r.standard_normal((ROWS, width), np.float32)
    ws = [
        [r.standard_normal((width, 2 * width), np.float32) / width,
         r.standard_normal((2 * width, width), np.float32) / width]
        for _ in range(layers)
    ]  # fmt: skip
    memory = gradient(lambda f: f)
    disk = gradient(lambda f: fxad.checkpoint(f, offload="disk"))
    ready = disk.lower(ws, x).compile()
    memory.lower(ws, x).compile()
    tape = tape_bytes(ready.program)
    fxad.config.offload_memory = budget = tape // 10
    with Watch() as watch:
        got = disk(ws, x)
    grown = watch.most - watch.start
    results = ready.cost()["result_bytes"]
    expected = ready.executable.peak_bytes + budget
    want = memory(ws, x)
    same = all(
        np.array_equal(a, b)
        for a, b in zip(fxad.tree.leaves(got), fxad.tree.leaves(want), strict=True)
    )
    del got, want
    times = alternate({"memory": lambda: memory(ws, x), "disk": lambda: disk(ws, x)}, rounds)
    speed = bandwidth(tape)
    base = min(times["memory"])
    row = {
        "tape, MB": tape / 1e6,
        "budget, MB": budget / 1e6,
        "in memory, s": f"{base:.2f}",
        "on disk, s": f"{min(times['disk']):.2f}",
        "ratio": f"{min(times['disk']) / base:.2f}",
        "disk, MB/s": speed / 1e6,
        "needed, MB/s": tape / base / 1e6,
        "memory grown, MB": grown / 1e6,
        "arena + results + budget, MB": expected / 1e6,
        "results, MB": results / 1e6,
        "same bits": same,
    }
    report("tape_disk", [row])


if __name__ == "__main__":
    main()
