"""Every benchmark in one table.

    python -m benchmarks --quick --peers torch,jax,numpy
    python -m benchmarks --peers torch --plots pictures
    python -m benchmarks --only train_step --peer-cmd "./train_gpt2 | tail -1"
    python -m benchmarks guard --base HEAD~1     # whether this tree is slower than a commit
    python -m benchmarks report                  # tables of what the guard has kept

A benchmark is a module of this folder with `rows(quick, peers) -> list of harness.row(...)`; each
runs in a process of its own. `--peer-cmd` is any command whose last printed number is milliseconds
per step: of GPT-2 124M on 4 x 64 tokens, with `--quick` of the preset `nano`. It is tried at once,
run three times more beside the training step, and its least time has a column there.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import time
from pathlib import Path

import benchmarks
from benchmarks import harness, plots
from benchmarks.harness import Row

STEP = "train_step"  # what --peer-cmd is compared with
PEERS = ("torch", "torch-compile", "jax", "jax-loop", "numpy")


def names() -> list[str]:
    """Modules of this folder that define `rows`, without importing any."""
    folder = Path(benchmarks.__file__).parent
    modules = [m.name for m in pkgutil.iter_modules([str(folder)]) if not m.ispkg]
    found = sorted(name for name in modules if name != "__main__")
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
    parser.add_argument("--peers", default="numpy", help=f"comma-separated: {', '.join(PEERS)}")
    parser.add_argument("--quick", action="store_true", help="under three minutes")
    parser.add_argument("--only", default="", help="comma-separated modules")
    parser.add_argument("--peer-cmd", default="", help="prints milliseconds per training step")
    parser.add_argument("--json", default=None, help="write the table here")
    parser.add_argument("--plots", default="", help="folder for a picture per benchmark (PNG)")
    parser.add_argument("--module", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    peers = harness.installed(_listed(args.peers))
    if args.module:
        module = importlib.import_module(f"benchmarks.{args.module}")
        print(json.dumps(module.rows(args.quick, peers)))
        return
    wanted = _listed(args.only) or names()
    _check(parser, args, wanted, peers)
    found = [row for name in wanted for row in _timed(name, args)]
    harness.report("", found, args.json)
    if args.plots:
        plots.draw(found, Path(args.plots))


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _check(
    parser: argparse.ArgumentParser, args: argparse.Namespace, wanted: list[str], peers: list[str]
) -> None:
    """Say what is wrong before the first benchmark, not after the last."""
    for what, given, known in (
        ("benchmark", wanted, names()),
        ("peer", _listed(args.peers), list(PEERS)),
    ):
        unknown = [name for name in dict.fromkeys(given) if name not in known]
        if unknown:
            parser.error(f"no {what} named {', '.join(unknown)}; there are {', '.join(known)}")
    missing = [name for name in _listed(args.peers) if name not in peers]
    if missing:
        print(f"not installed, left out: {', '.join(missing)}", file=sys.stderr)
    if args.peer_cmd:
        if STEP not in wanted:
            parser.error(f"--peer-cmd is compared with {STEP}, which --only leaves out")
        try:
            harness.command_ms(args.peer_cmd)
        except ValueError as error:
            parser.error(f"--peer-cmd: {error}")


def _timed(name: str, args: argparse.Namespace) -> list[Row]:
    """The rows of one benchmark, and on the screen how long they took."""
    print(f"{name} ...", end="", file=sys.stderr, flush=True)
    start = time.perf_counter()
    rows = measured(name, args)
    if name == STEP and args.peer_cmd:
        least = min(harness.command_ms(args.peer_cmd) for _ in range(3))
        rows[0] = harness.beside(rows[0], "command", least)
    print(f" {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return [{"benchmark": name} | row for row in rows]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["guard" | "report" as name, *rest]:
            guard = importlib.import_module("benchmarks.guard.command")
            sys.exit(getattr(guard, name)(rest))
        case _:
            main()
