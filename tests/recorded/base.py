"""What another commit compiles, beside what is compiled now: `python -m tests.recorded diff`.

The commit is checked out into a git worktree of its own and asked by its own `tests/recorded`; a
commit that has none yet gets ours. Cases that only one of the two has are new or gone.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.recorded import stages, store
from tests.recorded.catalogue import CASES
from tests.recorded.store import Change

ROOT = Path(__file__).parents[2]
SEPARATOR = "@"  # between a case and a target


def diff(revision: str, cases: Sequence[str], names: Sequence[str], jobs: int, limit: int) -> int:
    """Print how many cases changed in each stage, and unified diffs of the first `limit`."""
    with tempfile.TemporaryDirectory() as scratch, _worktree(revision, Path(scratch)) as theirs:
        tables = Path(scratch) / "tables"
        asked = cases if len(cases) < len(CASES) else []
        options = ["--to", tables, "--jobs", jobs, "--targets", ",".join(names)]
        _ask(theirs, "write", *options, *asked)
        old, new = store.read(tables), store.computed([CASES[c] for c in cases], names, jobs)
        both = dict.fromkeys([store.RUNTIME, *cases, *(c for table in old.values() for c in table)])
        changes = store.differences(old, new, both, names)
        print(store.report(changes) or f"{len(cases)} cases are compiled as by {revision}")
        _print_diffs(changes, theirs, Path(scratch), limit)
    return 1 if changes else 0


@contextlib.contextmanager
def _worktree(revision: str, scratch: Path) -> Iterator[Path]:
    path = scratch / "base"
    _git("worktree", "add", "--detach", "--quiet", path, revision)
    try:
        if not (path / "tests/recorded/stages.py").exists():
            shutil.copytree(ROOT / "tests/recorded", path / "tests/recorded")
        yield path
    finally:
        _git("worktree", "remove", "--force", path)


def _git(*words: object) -> None:
    done = subprocess.run(["git", "-C", ROOT, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"git {words[0]} {words[1]}: {done.stderr.strip()}")


def _ask(root: Path, *words: object) -> None:
    """Run a command of the other commit's `tests.recorded`."""
    command = [sys.executable, "-m", "tests.recorded", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} in {root} failed:\n{done.stderr}")


def _print_diffs(changes: Sequence[Change], theirs: Path, scratch: Path, limit: int) -> None:
    """Of cases that both have, the first few."""
    pairs: dict[str, list[str]] = {}
    for change in changes:
        if change.stage in stages.STAGES and change.case in CASES:
            pairs.setdefault(f"{change.case}{SEPARATOR}{change.target}", []).append(change.stage)
    chosen = dict(list(pairs.items())[:limit])
    if not chosen:
        return
    _ask(theirs, "texts", "--to", scratch / "old", *chosen)
    write_texts(list(chosen), scratch / "new")
    for pair, changed in chosen.items():
        for stage in changed:
            old, new = (_lines(scratch / side / _file(pair, stage)) for side in ("old", "new"))
            names = f"old/{pair}/{stage}", f"new/{pair}/{stage}"
            print("\n".join(difflib.unified_diff(old, new, *names, lineterm="")))
    if len(pairs) > limit:
        print(f"and {len(pairs) - limit} more: name cases, or give --limit")


def write_texts(pairs: Sequence[str], folder: Path) -> None:
    """All stages of `case@target`s, a file each."""
    for pair in pairs:
        case, target = pair.split(SEPARATOR)
        for stage, text in stages.texts(CASES[case], target).items():
            path = folder / _file(pair, stage)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def _file(pair: str, stage: str) -> str:
    return f"{pair.replace('/', '-')}/{stage}.txt"


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
