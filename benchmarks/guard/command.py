"""The command line of the guard.

python -m benchmarks guard --base HEAD~1
python -m benchmarks guard --base v0.1 --cases 'product*' --minutes 2
python -m benchmarks guard --base HEAD --always            # against itself: nothing is flagged
python -m benchmarks report                                # tables from what was kept
"""

from __future__ import annotations

import argparse
import math
import shlex
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import fxad
from benchmarks import harness
from benchmarks.guard import results
from benchmarks.guard.beside import Contenders
from benchmarks.guard.cases import CASES
from benchmarks.guard.peers import PEERS
from benchmarks.guard.probes import Probes
from benchmarks.guard.results import FAILED, SAME, Row
from benchmarks.guard.sides import (
    PACKAGES,
    Failed,
    Side,
    UnknownRevision,
    Worker,
    checked_out,
    commit_of,
    git,
    workers,
)
from benchmarks.guard.turns import Measured, Turns
from benchmarks.guard.verdicts import (
    ENOUGH,
    FASTER,
    SLOWER,
    UNKNOWN,
    Estimate,
    estimate,
    judge,
    noise_floor,
)
from benchmarks.guard.whole import WHOLE, Values, paired
from fxad.backend.llvm.native.engine import host_kind

# Pairs of fresh processes: for all cases, and then, while there is time, for what cannot be told.
# Fewer than two would say nothing of where memory happens to lie.
FEWEST, ROUNDS, FURTHER = 2, 4, 4
SESSION = 0.6  # seconds that a pair takes at least to build a case and to run a few blocks
FIRST, CONFIRMING = 0.6, 0.15  # of the time: for the former, and to confirm what would be flagged
SMALL_ARENA = 1 << 20  # bytes: changes of smaller ones are not worth a row
Say = Callable[[str], None]


class Guard:
    """A run: the cases whose names match, on a base and this tree."""

    def __init__(self, base: Side, tree: Side, names: Sequence[str], say: Say) -> None:
        self.base, self.tree, self.say = base, tree, say
        self.names = [name for name in CASES if name in names]
        self.wholes = [name for name in WHOLE if name in names]
        self.threads = fxad.get_num_threads()
        self.probes = Probes(self.threads)
        self.floor = 0.0
        self.arenas: dict[str, tuple[int | None, int | None]] = {}  # bytes on either side

    def same(self) -> Iterator[str]:
        """The cases whose code is the same on both sides."""
        waiting = list(self.names)
        while waiting:
            with workers(self.base, self.tree) as pair:
                while waiting and all(worker.alive for worker in pair):
                    name = waiting.pop(0)
                    self.say(f"code: {name}")
                    for worker in pair:
                        worker.tell(do="fingerprint", case=name)
                    first, second = (_heard(worker) for worker in pair)
                    self.arenas[name] = (first.get("arena"), second.get("arena"))
                    code = first.get("fingerprint")
                    if code is not None and code == second.get("fingerprint"):
                        yield name

    def rows(self, seconds: float, always: bool, beside: Contenders) -> list[Row]:
        """Everything, in about so many seconds."""
        stop = time.monotonic() + seconds
        wholes = {name: self._whole(name) for name in self.wholes}
        same = [] if always else list(self.same())
        timed = [name for name in self.names if name not in same or beside.peers_of(name)]
        turns = Turns(self.base, self.tree, timed, self.probes, beside=beside)
        left = stop - time.monotonic()
        affordable = int(FIRST * left / (SESSION * max(1, len(timed) + len(turns.itself))))
        turns.run(timed, min(max(FEWEST, affordable), ROUNDS), FIRST * left, self.say)
        self._further(turns, stop - CONFIRMING * left)
        self.floor = self._floor(turns)
        again = self._again(turns, stop - time.monotonic())
        made = [self._row(name, turns, again, same) for name in self.names]
        made += [self._whole_row(name, values) for name, values in wholes.items()]
        return made + [row for name in self.arenas for row in self._arena_rows(name)]

    def _floor(self, turns: Turns) -> float:
        return noise_floor([estimate(made.itself) for made in turns.found.values()])

    def _further(self, turns: Turns, stop: float) -> None:
        """More pairs of processes for what cannot be told yet, until then."""
        for number in range(FURTHER):
            floor = self._floor(turns)
            open_ = [
                name
                for name, made in turns.found.items()
                if not made.failed and judge(made.estimate, floor) == UNKNOWN
            ]
            left = stop - time.monotonic()
            if not open_ or left < 2.0 + 0.5 * len(open_):
                return
            turns.run(open_, 1, left / (FURTHER - number), self.say)

    def _again(self, turns: Turns, seconds: float) -> dict[str, Measured]:
        """What would be flagged, by a second fresh pair."""
        flagged = [
            name
            for name, made in turns.found.items()
            if judge(made.estimate, self.floor) in (SLOWER, FASTER)
        ]
        again = Turns(self.base, self.tree, flagged, self.probes, confirming=True)
        again.run(flagged, 1, max(seconds, 1.0 * len(flagged)), self.say)
        return again.found

    def _row(self, name: str, turns: Turns, again: dict[str, Measured], same: Sequence[str]) -> Row:
        if name not in turns.found:
            return {"case": name, "unit": "s", "verdict": SAME}
        made = turns.found[name]
        if made.failed:
            return {"case": name, "unit": "s", "verdict": FAILED, "failed": made.failed}
        sides = {side: statistics.median(times) for side, times in made.seconds.items()}
        more: Row = {"dropped": made.dropped}
        peers = {who: statistics.median(found) for who, found in made.beside.items()}
        if (share := peers.pop("ceiling", None)) is not None:
            more |= {"share": share, "ceiling": CASES[name].ceiling}
        more |= {"peers": peers} if peers else {}
        row = results.row(name, "s", sides, made.estimate, self.floor, **more)
        if name in same:
            return row | {"verdict": SAME}
        return _confirmed(row, judge(again[name].estimate, self.floor)) if name in again else row

    def _arena_rows(self, name: str) -> list[Row]:
        """A plan's memory, where it changed: known without running it."""
        base, tree = self.arenas[name]
        if base is None or tree is None or base == tree or max(base, tree) < SMALL_ARENA:
            return []
        sides = {"base": base / 1e6, "tree": tree / 1e6}
        change = math.log(max(tree, 1) / max(base, 1))
        found = Estimate(change, change, change, ENOUGH)  # nothing scatters
        return [results.row(f"arena: {name}", "MB", sides, found, 0.0)]

    def _whole(self, name: str) -> Values:
        return paired(WHOLE[name], self.base, self.tree, say=lambda: self.say(f"process: {name}"))

    def _whole_row(self, name: str, values: Values) -> Row:
        unit = WHOLE[name].unit
        if values.failed:
            return {"case": name, "unit": unit, "verdict": FAILED, "failed": values.failed}
        sides = {"base": statistics.median(values.base), "tree": statistics.median(values.tree)}
        # Processes differ from one another, not a pair from the next: no floor but the 2%.
        row = results.row(name, unit, sides, estimate([values.ratios]), 0.0)
        if row["verdict"] not in (SLOWER, FASTER):
            return row
        return _confirmed(row, judge(estimate([self._whole(name).ratios]), 0.0))


def _heard(worker: Worker) -> dict[str, Any]:
    """An answer, empty where there is none; what failed is said when it is timed."""
    try:
        return worker.hear()
    except Failed:
        return {}


def _confirmed(row: Row, second: str) -> Row:
    """A flag stays only if a second fresh pair says the same by itself."""
    if second == row["verdict"]:
        return row
    return row | {"verdict": UNKNOWN, "note": f"{row['verdict']}, but not by a second fresh pair"}


def guard(arguments: Sequence[str]) -> int:
    """The exit status: 1 if something is slower, or failed in this tree alone."""
    args, names, commit = _asked(arguments)
    about = {
        "kind": host_kind().name,
        "commit": git("rev-parse", "HEAD"),
        "uncommitted": bool(git("status", "--porcelain", "--", *PACKAGES)),
        "base": commit,
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "command": shlex.join(["python", "-m", "benchmarks", "guard", *arguments]),
    }
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        about, rows = _run(args, names, about)
    except KeyboardInterrupt:  # processes and trees are gone by now
        print("stopped: nothing is kept", file=sys.stderr)
        return 130
    _progress("")
    print(results.heading(about))
    print(results.table(rows))
    print(_kept(args, about, rows))
    worse = [row["case"] for row in rows if _worse(row)]
    print(f"slower or failed: {'; '.join(worse)}" if worse else "nothing is slower")
    return 1 if worse else 0


def _asked(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str], str]:
    """The options, the names of the cases, and the base's commit; ends with what is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks guard", description="Whether this tree is slower than a commit."
    )
    parser.add_argument("--base", required=True, help="a commit, branch or tag")
    parser.add_argument("--cases", nargs="+", default=["*"], help="patterns: 'product*' 'exp*'")
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--always", action="store_true", help="time what has the same code too")
    parser.add_argument("--peers", action="store_true", help="and NumPy's and PyTorch's times")
    parser.add_argument("--json", type=Path, help="keep the results here")
    args = parser.parse_args(arguments)
    known = (*CASES, *WHOLE)
    names = [name for name in known if any(map(partial(fnmatch, name), args.cases))]
    if not names:
        parser.error(f"no case matches {shlex.join(args.cases)}; there are: {'; '.join(known)}")
    try:
        return args, names, commit_of(args.base)
    except UnknownRevision as error:
        parser.error(str(error))


def _run(
    args: argparse.Namespace, names: Sequence[str], about: dict[str, Any]
) -> tuple[dict[str, Any], list[Row]]:
    """Rows, and what is said of the run with what was found on the way."""
    started = time.monotonic()
    with checked_out(about["base"]) as (base, tree), ExitStack() as stack:
        guard = Guard(base, tree, names, _progress)
        peers = harness.installed(PEERS) if args.peers else []
        beside = Contenders(tree, peers, guard.threads, stack)
        seconds = 60 * args.minutes - (time.monotonic() - started)
        rows = guard.rows(seconds, args.always, beside)
    taken = time.monotonic() - started
    return about | {"cores": guard.threads, "floor": guard.floor, "seconds": taken}, rows


def report(arguments: Sequence[str]) -> int:
    """Print the tables of a kind, by default of this machine's."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks report", description="Tables of what the guard has kept."
    )
    parser.add_argument("kind", nargs="?", default=host_kind().name, help="by default %(default)s")
    args = parser.parse_args(arguments)
    try:
        print(results.report(args.kind))
    except ValueError as error:
        parser.error(str(error))
    return 0


def _kept(args: argparse.Namespace, about: dict[str, Any], rows: Sequence[Row]) -> str:
    """Write the results where they belong, and say where that is."""
    path = args.json
    if path is None and (about["uncommitted"] or args.cases != ["*"]):
        return "not kept: the run was not of all cases and of a commit; --json FILE keeps it"
    path = path or results.FOLDER / about["kind"] / f"{about['commit'][:12]}.json"
    results.write(path, about, rows)
    shown = "; python docs/generate.py puts it on the pages" if args.json is None else ""
    return f"kept in {path}{shown}"


def _worse(row: Row) -> bool:
    return row["verdict"] == SLOWER or row.get("failed", "").startswith("tree: ")


def _progress(text: str) -> None:
    """On a terminal, one line that is written over."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text[:100]}", end="", file=sys.stderr, flush=True)
