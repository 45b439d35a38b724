"""The two trees and their workers.

    with checked_out("HEAD~3") as (base, tree):
        worker = Worker(base)
        worker.ask(do="prepare", case="exp, float32")

Both are copies in a temporary directory, so that neither edits nor commits meanwhile change what is
timed; nothing is written to the repository. Both are run by the same code of this tree, which lies
before theirs on the path. Their names are equally long, for a process's stack begins where its
environment ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("fxad", "fxad_nn")


class UnknownRevision(ValueError):
    """A revision that the repository does not have."""


class Failed(RuntimeError):
    """A side could not do what it was told."""


class Ended(Failed):
    """Nor can its process do anything else."""


@dataclass(frozen=True)
class Side:
    """A tree, where its compiled programs are kept, and the code that runs it."""

    name: str
    folder: Path

    @property
    def cache(self) -> Path:
        return self.folder.with_suffix(".cache")

    @property
    def environment(self) -> dict[str, str]:
        """As the user's, but for where modules and compiled programs are."""
        path = os.pathsep.join([str(self.folder.parent / "runs"), str(self.folder)])
        dropped = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        return kept | {"PYTHONPATH": path, "FXAD_CACHE": "1", "FXAD_CACHE_DIR": str(self.cache)}

    def command(self, *arguments: str) -> list[str]:
        """Python with nothing but this side's modules: not those of the current directory."""
        return [sys.executable, "-P", *arguments]


def git(*arguments: str) -> str:
    """What git says. Raises subprocess.CalledProcessError."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit_of(revision: str) -> str:
    """The full name of a commit. Raises UnknownRevision."""
    try:
        return git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except subprocess.CalledProcessError:
        raise UnknownRevision(
            f"--base {revision}: no such commit here; try a branch, a tag, HEAD~1, or fetch more "
            "of the history"
        ) from None


@contextlib.contextmanager
def checked_out(revision: str) -> Iterator[tuple[Side, Side]]:
    """(that commit, this tree as it is), gone when the block ends. Raises UnknownRevision."""
    commit = commit_of(revision)
    with tempfile.TemporaryDirectory(prefix="guard-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        base, tree = Side("base", folder / "base"), Side("tree", folder / "tree")
        base.folder.mkdir()
        archive = ["git", "archive", "--format=tar", commit, *PACKAGES]
        packed = subprocess.run(archive, cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(base.folder)], input=packed, check=True)
        ignored = shutil.ignore_patterns("__pycache__")
        for package in PACKAGES:
            shutil.copytree(ROOT / package, tree.folder / package, ignore=ignored)
        shutil.copytree(ROOT / "benchmarks", folder / "runs" / "benchmarks", ignore=ignored)
        for side in (base, tree):
            side.cache.mkdir(mode=0o700)
        yield base, tree


class Worker:
    """A process of a side. It has its own session: Ctrl-C reaches this process alone, which ends
    it; should this process be killed, the end of its input ends it too."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self._said = side.folder.with_suffix(".log")
        with self._said.open("w") as said:
            self._process = subprocess.Popen(
                side.command("-m", "benchmarks.guard.worker"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env=side.environment,
                cwd=side.folder,
                start_new_session=True,
            )

    def tell(self, **order: Any) -> None:
        """Give an order; `hear` waits for its answer."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `hear` says that it has ended
            print(json.dumps(order), file=self._process.stdin, flush=True)

    def hear(self) -> dict[str, Any]:
        """The answer to the oldest order without one. Raises Failed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            last = (self._said.read_text().strip().splitlines() or ["nothing said"])[-1]
            raise Ended(f"{self.side.name}: its process ended, {self._process.wait()}: {last}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(f"{self.side.name}: {answer['error']}")
        return answer

    def ask(self, **order: Any) -> dict[str, Any]:
        """Give an order and wait for its answer. Raises Failed."""
        self.tell(**order)
        return self.hear()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Kill the process, close its pipes and wait."""
        assert self._process.stdin is not None
        self._process.kill()
        with self._process, contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()  # an order it did not live to read is still in the buffer


def heard(waited_for: Sequence[Worker]) -> list[dict[str, Any]]:
    """What all answer. Raises the first one's Failed, when no answer is left to be read."""
    answers: list[dict[str, Any]] = []
    errors: list[Failed] = []
    for worker in waited_for:
        try:
            answers.append(worker.hear())
        except Failed as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return answers


@contextlib.contextmanager
def workers(*sides: Side) -> Iterator[list[Worker]]:
    """A fresh process of each side, all ended with the block."""
    with contextlib.ExitStack() as stack:
        started = []
        for side in sides:
            started.append(Worker(side))
            stack.callback(started[-1].end)
        yield started
