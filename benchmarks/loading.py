"""Loading a model of a billion weights: mapped and copied, beside a plain read of its file.

    python -m benchmarks.loading
    python -m benchmarks.loading --rounds 5 --peers torch

A directory with the shape of Llama 3.2 1B (bfloat16, 2.5 GB) is made. Then processes, in turn,
load it: `plain` reads the file into memory; `mapped` and `copied` are `fxad_nn.load` with and
without `mapped=True`; `torch` is transformers' `from_pretrained`. Ready: when the call returns and
a product may start. Read: when a byte of every page of every weight has been read, too. First with
the file in the system's cache of pages, then out of it. Imports do not count. Memory is the largest
resident of the process, less what it was before loading.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.finetune import MODELS, random_params

WAYS = ("plain", "mapped", "copied")


def made(directory: Path) -> None:
    """The directory of a model with random weights."""
    from fxad_nn import Model, models, save

    config = MODELS["llama3.2-1b"]
    save(Model(random_params(models.family(config).spec(config), None), config), directory)


def loader(way: str, directory: Path) -> Callable[[], Iterable[np.ndarray]]:
    """What loads the weights: arrays of bytes."""
    if way == "plain":

        def plain() -> Iterable[np.ndarray]:
            path = directory / "model.safetensors"
            memory = np.empty(path.stat().st_size, np.uint8)
            rest = memory.data
            with path.open("rb", buffering=0) as file:
                while rest and (count := file.readinto(rest)):
                    rest = rest[count:]
            return [memory]

        return plain
    if way == "torch":
        import torch
        from transformers import AutoModelForCausalLM

        def in_torch() -> Iterable[np.ndarray]:
            model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16)
            return [p.detach().view(torch.uint8).numpy() for p in model.parameters()]

        return in_torch

    import fxad
    import fxad_nn
    import fxad_nn.hf

    def ours() -> Iterable[np.ndarray]:
        model = fxad_nn.load(directory, mapped=way == "mapped")
        return [np.asarray(leaf).view(np.uint8) for leaf in fxad.tree.leaves(model.params)]

    return ours


def measured(way: str, directory: Path) -> dict[str, float]:
    load, before = loader(way, directory), harness.peak_memory()
    start = time.perf_counter()
    arrays = list(load())
    ready = time.perf_counter() - start
    for array in arrays:
        array.reshape(-1)[::4096].max()
    whole = time.perf_counter() - start
    return {"ready": ready, "read": whole, "memory": harness.peak_memory() - before}


def in_process(way: str, directory: Path, cold: bool) -> dict[str, float]:
    """What a fresh process measures; cold: with the files out of the system's cache, else in it."""
    for path in directory.iterdir():
        with path.open("rb", buffering=0) as file:
            if cold:
                os.fsync(file)
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while not cold and file.read(1 << 24):
                pass
    command = [sys.executable, "-m", "benchmarks.loading", "--one", way, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default="", help="torch")
    parser.add_argument("--one", nargs=2, metavar=("WAY", "DIR"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measured(args.one[0], Path(args.one[1]))))
        return
    ways = (*WAYS, *harness.installed([p for p in args.peers.split(",") if p]))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        made(directory)
        size = sum(path.stat().st_size for path in directory.glob("*.safetensors")) / 2**20
        print(f"{size:.0f} MiB of weights")
        for cold in (False, True):
            runs: dict[str, list[Any]] = {way: [] for way in ways}
            for _ in range(args.rounds):
                for way in ways:
                    runs[way].append(in_process(way, directory, cold))
            print("file on disk" if cold else "file in the cache of pages")
            for way, found in runs.items():
                middle = {k: statistics.median(one[k] for one in found) for k in found[0]}
                ratio = statistics.median(
                    one["read"] / plain["read"]
                    for one, plain in zip(found, runs["plain"], strict=True)
                )
                print(
                    f"  {way:8} ready {middle['ready']:6.2f} s  read {middle['read']:6.2f} s "
                    f"({ratio:.2f} of plain)  memory {middle['memory']:6.0f} MiB "
                    f"({middle['memory'] / size:.2f} of the file)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
