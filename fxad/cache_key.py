"""The name under which a compiled Program is kept: a hash of all that decides about its code.

    name = key(program, donate, fusion, backend.identity)     # None: it is not kept

That is the Program, the options and settings, this package's sources up to the compiler, and what
the backend says of itself (its own sources, the processor, the compiler's version).
"""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fxad.core.config import config
from fxad.ir.digest import digest
from fxad.ir.program import Program
from fxad.ops import OWN

PACKAGE = Path(__file__).parent
# What plans depend on: whatever `compiler.py`, which makes them, imports.
DECIDING = (
    *("core", "ir", "runtime", "trace", "ops", "transform", "passes", "lower", "plan"),
    "rematerialization",
    *("backend/protocol.py", "cache_key.py", "compiler.py"),
)


def key(
    program: Program, donate: frozenset[int], fusion: bool, identity: Callable[[], str | None]
) -> str | None:
    """None if caching is off, the program is being watched by a setting, it holds something that
    only this process knows, nothing tells our sources, or the backend keeps nothing."""
    if not config.cache or config.check or config.show or config.fuel is not None:
        return None
    own = digest(program, OWN)
    made_by = None if own is None else identity()
    surroundings = None if made_by is None else _surroundings()
    if surroundings is None:
        return None
    # What checkpoints with a budget put on disk has a limit in the plan, at most `offload_memory`.
    settings = f"{sorted(donate)} {fusion} {config.offload_memory}"
    text = f"{own} {settings} {surroundings} {made_by}"
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _surroundings() -> str | None:
    ours = sources(DECIDING)
    return None if ours is None else f"{ours} {platform.python_version()} {np.__version__}"


def sources(parts: tuple[str, ...], package: Path = PACKAGE) -> str | None:
    """A hash of files and folders of a package, this one; None where they cannot be read, as in a
    zip file or where only byte code was installed."""
    found = hashlib.sha256()
    for part in parts:
        where = package / part
        for path in sorted(where.rglob("*.py")) if where.is_dir() else [where]:
            found.update(f"{path.relative_to(package).as_posix()}\n".encode())
            try:
                found.update(path.read_bytes())
            except OSError:
                return None
    return found.hexdigest()
