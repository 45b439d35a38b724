"""The programs of docs/cookbook.md beside JAX: a first run, with imports and compilation, and more.

    python -m benchmarks.cookbook --peers jax
    python -m benchmarks.cookbook --peers jax --only kalman_filter,soap_film --rounds 3

Every run is a process of its own: fxad's and JAX's take turns. For JAX the source in
examples/cookbook is the same, with `jax` for `fxad`, and must print the same figures. `first run`
is from the first import to the end of `main()`; `again` is the median of five more calls of it.
Figures are medians over processes. Neither library finds a compiled program on disk.

JAX cannot differentiate `while_loop` in reverse mode. In the neural ODE it runs what its users
write instead: a scan of as many steps as the loop may ever take (`bounded_while_loop`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import harness
from benchmarks.harness import Row

FOLDER = Path(__file__).parent.parent / "examples" / "cookbook"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))
QUICK = ["heat_equation", "kalman_filter", "neural_ode"]
CALLS = 5  # of main() after the first
BOUND = 16  # steps: the solver tries up to 10, and a user would not know

BOUNDED = f'''

def bounded_while_loop(going, body, state):
    """`lax.while_loop` for up to {BOUND} trips, differentiable in reverse mode."""

    def step(state, _):
        return lax.cond(going(state), body, lambda state: state, state), None

    return lax.scan(step, state, None, length={BOUND})[0]
'''

CHILD = """
import contextlib, io, json, sys, time
source, name = sys.stdin.read(), sys.argv[1]
times, printed = [], io.StringIO()
start = time.perf_counter()
program = {"__name__": name}
exec(compile(source, name, "exec"), program)
with contextlib.redirect_stdout(printed):
    program["main"]()
times.append(time.perf_counter() - start)
with contextlib.redirect_stdout(io.StringIO()):
    for _ in range(int(sys.argv[2])):
        start = time.perf_counter()
        program["main"]()
        times.append(time.perf_counter() - start)
print(json.dumps({"first": times[0], "again": times[1:], "printed": printed.getvalue()}))
"""


def source(name: str, library: str) -> str:
    """A program's text for fxad or JAX."""
    text = (FOLDER / f"{name}.py").read_text()
    if library == "jax":
        text = re.sub(r"\bfxad\b", "jax", text)
        if "lax.while_loop" in text:
            text = text.replace("lax.while_loop", "bounded_while_loop") + BOUNDED
    return text


def figures(printed: str) -> list[float]:
    """The numbers in what a program prints."""
    return [float(x) for x in re.findall(r"-?\d+\.?\d*(?:e[-+]?\d+)?", printed)]


def _run(name: str, library: str) -> dict:
    """One process. RuntimeError with the end of its traceback if it fails."""
    environment = os.environ | {"FXAD_CACHE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, name, str(CALLS)],
        input=source(name, library),
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode:
        raise RuntimeError(f"{name} on {library}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measured(name: str, libraries: Sequence[str], rounds: int) -> list[Row]:
    """Two rows for a program: its first run, and its later ones.

    Raises AssertionError where libraries print different figures.
    """
    turns = [{library: _run(name, library) for library in libraries} for _ in range(rounds)]
    for library in libraries[1:]:
        shown = [figures(turns[0][who]["printed"]) for who in (libraries[0], library)]
        np.testing.assert_allclose(shown[1], shown[0], rtol=0.01, atol=0.01, err_msg=name)
    found = []
    for kind, unit, scale in (("first", "s", 1.0), ("again", "ms", 1e3)):
        row: Row = {"what": f"{name}, {'first run' if kind == 'first' else 'again'}", "unit": unit}
        for library in libraries:
            times = [statistics.median(np.atleast_1d(turn[library][kind])) for turn in turns]
            row[library] = float(scale * statistics.median(times))
        if len(libraries) > 1:
            row["ahead"] = min(row[library] for library in libraries[1:]) / row["fxad"]
        found.append(row)
    return found


def rows(
    quick: bool, peers: Sequence[str], only: Sequence[str] = (), rounds: int | None = None
) -> list[Row]:
    """Two rows for every program, or if quick for three. The soap film needs SciPy, and is left out
    where there is none."""
    libraries = ["fxad", *(peer for peer in peers if peer == "jax")]
    wanted = only or (QUICK if quick else PROGRAMS)
    wanted = [name for name in wanted if name != "soap_film" or _has_scipy()]
    rounds = rounds or (1 if quick else 5)
    return [row for name in wanted for row in measured(name, libraries, rounds)]


def _has_scipy() -> bool:
    return bool(harness.installed(["scipy"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three programs, one process each")
    parser.add_argument("--peers", default="", help="jax, or nothing")
    parser.add_argument("--only", default="", help=f"comma-separated: {', '.join(PROGRAMS)}")
    parser.add_argument("--rounds", type=int, default=None, help="processes of each library")
    parser.add_argument("--json", default=None, help="write the table here")
    args = parser.parse_args()
    only = [name for name in args.only.split(",") if name]
    unknown = [name for name in only if name not in PROGRAMS]
    if unknown:
        parser.error(f"no program named {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    peers = harness.installed([peer for peer in args.peers.split(",") if peer])
    harness.report("cookbook", rows(args.quick, peers, only, args.rounds), args.json)


if __name__ == "__main__":
    main()
