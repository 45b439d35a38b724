"""What a run is told by a file, and the record of how each of its starts came about.

    given = read_options(Path("run.toml"), TrainOptions)        # {"steps": 500, "batch": 8}
    given = joined(given, flags, Path("run.toml"))              # ConfigError where they differ
    append(directory / STARTS, [start(run.step, options)])      # a line of starts.jsonl

A file holds options by the names of their flags, with - or _ between words:

    steps = 500
    learning-rate = 1e-3
    data = "input.txt"
"""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import fxad
from fxad.core.schema import read_bytes, shown
from fxad_nn.errors import ConfigError, did_you_mean
from fxad_nn.options import build

LARGEST = 1 << 20
"""Bytes of a file of options."""

STARTS = "starts.jsonl"
"""Where a run's directory says how it was begun and resumed, a line for each time."""

LIBRARIES = ("fxad", "numpy", "llvmlite", "ml_dtypes", "tokenizers", "jinja2")


def read_options(path: str | Path, cls: type) -> dict[str, Any]:
    """The options in a TOML file, each of the type that the dataclass `cls` says.

    ConfigError naming the file, and the key, where one is unknown, of another type or there twice,
    or where the file is missing or no TOML.
    """
    path = Path(path)
    try:
        found = tomllib.loads(read_bytes(path, ConfigError, LARGEST).decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error
    known = {field.name for field in dataclasses.fields(cls)}
    also = {f.name: f.metadata.get("also") for f in dataclasses.fields(cls)}
    others = {flag.lstrip("-"): name for name, flag in also.items() if flag}
    given: dict[str, Any] = {}
    for key, value in found.items():
        name = others.get(key, key.replace("-", "_"))
        if name not in known:
            flags = {field.replace("_", "-") for field in known}
            hint = did_you_mean(key.replace("_", "-"), flags)
            raise ConfigError(f"{path}: unknown key {shown(key)}{hint}")
        if name in given:
            raise ConfigError(f"{path} says {name.replace('_', '-')} twice, in two ways")
        given[name] = value
    made: Any = build(_unjudged(cls), given, str(path))
    return {name: getattr(made, name) for name in given}


def _unjudged(cls: type) -> type:
    """A dataclass with the fields of `cls`, which does not ask whether they go together."""
    fields = [
        (f.name, f.type, dataclasses.field(default=f.default, metadata=f.metadata))
        for f in dataclasses.fields(cls)
    ]
    made = dataclasses.make_dataclass(cls.__name__, fields, frozen=True)
    made.__module__ = cls.__module__  # where the names in its types are known
    return made


def joined(given: Mapping[str, Any], flags: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The options of a file and those of the command line. ConfigError where both say one thing,
    and not the same."""
    for name in given.keys() & flags.keys():
        if given[name] != flags[name]:
            raise ConfigError(
                f"{path} says {name.replace('_', '-')} = {given[name]}, the command line "
                f"{flags[name]}: leave one out"
            )
    return {**given, **flags}


def start(step: int, options: Any) -> dict[str, Any]:
    """How a run is begun, or resumed at `step`: as JSON can hold it."""
    values = dataclasses.asdict(options)
    return {
        "from": step,
        "command": sys.argv,
        "options": {k: str(v) if isinstance(v, Path) else v for k, v in values.items()},
        "versions": {"python": platform.python_version(), **_versions()},
        "machine": {"platform": platform.platform(), **fxad.bits_depend_on()},
        "git": {"here": git_state(Path(".")), "fxad": git_state(Path(__file__).parent)},
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def git_state(directory: Path) -> dict[str, Any] | None:
    """The commit that is checked out in a directory, and whether tracked files differ from it;
    None where git, or a repository, is not there or does not answer."""
    # Nothing is written, and no hook is run; filters of the repository's own settings may be.
    quiet = ["-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}"]
    command = ["git", "--no-optional-locks", *quiet, "-C", str(directory)]
    try:
        said = [
            subprocess.run(
                [*command, *words], capture_output=True, text=True, timeout=5, check=True
            ).stdout.strip()
            for words in (
                ["rev-parse", "HEAD"],
                ["status", "--porcelain", "--untracked-files=no"],
            )
        ]
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return {"commit": said[0], "changed": bool(said[1])}
