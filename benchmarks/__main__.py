"""Every benchmark in one table.

    python -m benchmarks --quick --peers torch,jax,numpy
    python -m benchmarks --peers torch --plots pictures
    python -m benchmarks --only train_step --peer-cmd "./train_gpt2 | tail -1"

A benchmark is a module of this folder with `rows(quick, peers) -> list of harness.row(...)`; each
runs in a process of its own. `--peer-cmd` is any command whose last printed number is milliseconds
per step; it runs three times, and its least has a column beside the training step.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import benchmarks
from benchmarks import harness, plots
from benchmarks.harness import Row

STEP = "train_step"  # what --peer-cmd is compared with


def names() -> list[str]:
    """Modules of this folder that define `rows`, without importing any."""
    folder = Path(benchmarks.__file__).parent
    found = sorted(m.name for m in pkgutil.iter_modules([str(folder)]) if m.name != "__main__")
    return [n for n in found if "\ndef rows(" in (folder / f"{n}.py").read_text()]


def measured(name: str, args: argparse.Namespace) -> list[Row]:
    """A module's rows, from a process of its own; one row that says so if it fails."""
    command = [sys.executable, "-m", "benchmarks", "--module", name, "--peers", args.peers]
    command += ["--quick"] if args.quick else []
    environment = os.environ | {"OPENBLAS_CORETYPE": os.environ.get("OPENBLAS_CORETYPE", _cores())}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return [{"what": f"{name} failed: {last}"}]
    return json.loads(done.stdout.strip().splitlines()[-1])


def _cores() -> str:
    """OpenBLAS knows only some processors by name; on others it would not use AVX-512."""
    cpuinfo = Path("/proc/cpuinfo")
    wide = cpuinfo.exists() and "avx512f" in cpuinfo.read_text()
    return "SKYLAKEX" if wide else ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Every benchmark.")
    parser.add_argument("--peers", default="numpy", help="comma-separated: torch, jax, numpy")
    parser.add_argument("--quick", action="store_true", help="under three minutes")
    parser.add_argument("--only", default="", help="comma-separated modules")
    parser.add_argument("--peer-cmd", default="", help="prints milliseconds per training step")
    parser.add_argument("--json", default=None, help="write the table here")
    parser.add_argument("--plots", default="", help="folder for a picture per benchmark (PNG)")
    parser.add_argument("--module", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.module:
        peers = harness.installed([p for p in args.peers.split(",") if p])
        module = importlib.import_module(f"benchmarks.{args.module}")
        print(json.dumps(module.rows(args.quick, peers)))
        return
    wanted = [n for n in args.only.split(",") if n] or names()
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(names())}")
    found: list[Row] = []
    for name in wanted:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows = measured(name, args)
        if name == STEP and args.peer_cmd:
            rows[0]["command"] = min(harness.command_ms(args.peer_cmd) for _ in range(3))
        found += [{"benchmark": name} | row for row in rows]
    harness.report("__main__", found, args.json)
    if args.plots:
        plots.draw(found, Path(args.plots))


if __name__ == "__main__":
    main()
