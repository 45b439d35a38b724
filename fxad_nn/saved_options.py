"""The options that a run was saved with, some of them changed: how it goes on.

options = changed_options(Path("runs/nano-1"), TrainOptions, FIXED, {"steps": 3000})
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeVar

from fxad_nn import store
from fxad_nn.data_mixture import parsed_source
from fxad_nn.errors import CheckpointError, ConfigError
from fxad_nn.options import EMPTY, build
from fxad_nn.precision import is_scaled


class RunLike(Protocol):
    """Options of a run: of which command, and what they say of the loss's scale."""

    command: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def dtype(self) -> str | None:
        """What factors of products are rounded to."""


Options = TypeVar("Options", bound=RunLike)

STATE_KEYS = {"options", "source", "data_size", "history"}
"""What a run needs to find in a checkpoint's state to go on."""


def changed_options(
    directory: str | Path,
    cls: type[Options],
    fixed: tuple[str, ...],
    changes: dict[str, Any],
    before: Mapping[str, Any] = MappingProxyType({}),
    movable: tuple[str, ...] = (),
) -> Options:
    """The options a run of any task was saved with, some of them changed; the `fixed` ones may be
    given, as a file of options does, but only as they were.

    before: what runs did that were saved before these options were. movable: fixed paths that may
    become others, since whoever resumes compares what lies there with the checkpoint's digests.
    """
    if directory == "":  # Path("") would be the working directory
        raise ConfigError(f"resume must be a path: {EMPTY}")
    path, record = store.read_state(directory)
    missing = (
        STATE_KEYS - record["state"].keys() if isinstance(record["state"], dict) else STATE_KEYS
    )
    if missing:
        raise CheckpointError(f"{path} is damaged: it does not hold {', '.join(sorted(missing))}")
    saved = {**before, **record["state"]["options"], "out": None}
    if (command := command_of(saved)) != cls.command:
        make = "finetune_recipe" if command == "finetune" else "recipe"
        run = str(store.run_of(path.parent))
        raise ConfigError(
            f"{path} is of a run of {command}: continue it with `{make}(resume={run!r})`"
        )
    were = build(cls, {**saved, "resume": None}, str(path))
    saved |= {
        option.name: located(value, record["state"])
        for option in fields(were)
        if isinstance(value := getattr(were, option.name), Path)
    }
    if mixture := getattr(were, "mixture", ()):
        sources = map(parsed_source, mixture)
        saved["mixture"] = [f"{located(p, record['state'])}:{weight}" for p, weight in sources]
    were = build(cls, {**saved, "resume": directory}, str(path))
    options = build(cls, {**saved, **changes, "resume": directory}, str(path))
    digests = record["state"].get("digests")
    for name in fixed:
        now, then = getattr(options, name), getattr(were, name)
        moved = name in movable and digests and isinstance(now, Path) and isinstance(then, Path)
        if not (moved or is_same(now, then)):
            raise ConfigError(
                f"`{name}` cannot change when a run is resumed: the checkpoint depends on it "
                f"(it was {then}, not {now})"
            )
    if is_scaled(options.dtype) != is_scaled(were.dtype):
        raise ConfigError(
            f"`dtype` cannot change from {were.dtype} to {options.dtype} when a run is resumed: "
            "only with float16 does the checkpoint hold the scale of the loss"
        )
    return options


def command_of(options: Mapping[str, Any]) -> str:
    """The command whose run was saved with these options."""
    return "finetune" if "lora" in options else "train"


def located(path: Path, state: Mapping[str, Any]) -> Path:
    """A path of a saved run as it is found from here: a relative one is meant against the working
    directory that the run was started in, or, where all has moved together, against this one."""
    home = state.get("started_in")
    if not isinstance(home, str) or home in ("", working_directory()):
        return path
    there = home / path
    return path if path.exists() and not there.exists() else there


def is_same(now: Any, then: Any) -> bool:
    """Whether two values of an option are the same, or paths of one place."""
    if isinstance(now, Path) and isinstance(then, Path):
        return now.resolve() == then.resolve()
    return bool(now == then)


def working_directory() -> str:
    """Empty where it is gone, which a run by absolute paths need not mind."""
    try:
        return os.getcwd()
    except OSError:
        return ""
