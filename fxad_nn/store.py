"""Checkpoints: a directory that is either complete or not there.

    path = save(Path("runs/nano-1"), 2000, params, optimizer_state, config, tokenizer, state)
    checkpoint = load(Path("runs/nano-1"))          # the newest one, or one named exactly

`runs/nano-1/step-00002000/` holds model.safetensors, optimizer.safetensors, tokenizer.json and
state.json. It is written under a temporary name, forced to the disk and renamed, and only then
are older ones removed; a crash or a full disk at any moment leaves the previous one.
"""

from __future__ import annotations

import json
import re
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fxad_nn import models, tokenizer
from fxad_nn.errors import CheckpointError
from fxad_nn.files import abandoned, discard, replacing
from fxad_nn.optim import state_spec
from fxad_nn.tensors import read_tree, write_tree

FORMAT = 1
MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
TOKENIZER, STATE = "tokenizer.json", "state.json"


@dataclass(frozen=True)
class Checkpoint:
    """What `load` found. `optimizer` is None where it was not asked for."""

    path: Path
    step: int
    config: models.Config
    params: Any
    optimizer: Any
    tokenizer: tokenizer.Tokenizer
    state: dict[str, Any]


def save(
    directory: Path,
    step: int,
    params: Any,
    optimizer: Any,
    config: models.Config,
    encoder: tokenizer.Tokenizer,
    state: dict[str, Any],
    keep: int = 1,
) -> Path:
    """Write one checkpoint and remove all but the newest `keep`; returns its path.

    `state` is anything JSON can hold. Raises CheckpointError where the disk is full or fails;
    the checkpoints that were there before are then untouched.
    """
    target = _free_name(directory, step)
    try:
        _remove_leftovers(directory)
        with replacing(target) as temporary:
            temporary.mkdir()
            write_tree(temporary / MODEL, params)
            write_tree(temporary / OPTIMIZER, optimizer)
            (temporary / TOKENIZER).write_text(encoder.to_json(), "utf-8")
            checksums = {name: _checksum(temporary / name) for name in (MODEL, OPTIMIZER)}
            record = {
                "format": FORMAT,
                "step": step,
                "model": models.to_dict(config),
                "checksums": checksums,
                "state": state,
            }
            (temporary / STATE).write_text(json.dumps(record, indent=1), "utf-8")
    except OSError as error:
        before = checkpoints(directory)
        kept = f"; {before[-1]} is still whole" if before else ""
        raise CheckpointError(
            f"could not save the checkpoint {target}: {error}{kept}; "
            "free some space, or choose another directory with --out"
        ) from error
    for old in [path for path in checkpoints(directory) if path != target][: -keep + 1 or None]:
        discard(old)
    return target


def latest(directory: Path) -> Path:
    """`directory` itself if it is a checkpoint, else the newest one in it."""
    if (directory / STATE).is_file():
        return directory
    found = checkpoints(directory)
    if not found:
        state = "holds no checkpoint" if directory.is_dir() else "does not exist"
        raise CheckpointError(f"{directory} {state}; give a directory that training has written")
    return found[-1]


def holds_checkpoint(directory: Path) -> bool:
    """Whether a directory is, or holds, a checkpoint."""
    return (directory / STATE).is_file() or bool(checkpoints(directory))


def load(directory: Path, with_optimizer: bool = True) -> Checkpoint:
    """Read and check a checkpoint: names, shapes, dtypes, checksums and configuration."""
    state_path, record = read_state(directory)
    path = state_path.parent
    config = models.from_dict(record["model"], str(state_path))
    spec = models.family(config).spec(config)
    _verify(path / MODEL, record["checksums"])
    params = read_tree([path / MODEL], spec)
    optimizer = None
    if with_optimizer:
        _verify(path / OPTIMIZER, record["checksums"])
        optimizer = read_tree([path / OPTIMIZER], state_spec(spec))
    if not (path / TOKENIZER).is_file():
        raise CheckpointError(f"{path / TOKENIZER} is missing")
    encoder = tokenizer.from_json((path / TOKENIZER).read_text("utf-8"), str(path / TOKENIZER))
    return Checkpoint(path, record["step"], config, params, optimizer, encoder, record["state"])


def read_state(directory: Path) -> tuple[Path, dict[str, Any]]:
    """The path and contents of the newest checkpoint's state.json."""
    path = latest(directory) / STATE
    try:
        record = json.loads(path.read_text("utf-8"))
        missing = {"format", "step", "model", "checksums", "state"} - record.keys()
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    if missing:
        raise CheckpointError(f"{path} is damaged: {', '.join(sorted(missing))} missing")
    if record["format"] != FORMAT:
        raise CheckpointError(f"{path} has format {record['format']}; this version reads {FORMAT}")
    return path, record


def _verify(path: Path, checksums: dict[str, int]) -> None:
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    if _checksum(path) != checksums.get(path.name):
        raise CheckpointError(
            f"{path} is truncated or corrupt: its bytes are not those that were saved; "
            "resume from another checkpoint"
        )


def _checksum(path: Path) -> int:
    total = 0
    with open(path, "rb") as file:
        while chunk := file.read(1 << 22):
            total = zlib.crc32(chunk, total)
    return total


_NAME = re.compile(r"step-(\d{8,})(?:\.(\d+))?")


def checkpoints(directory: Path) -> list[Path]:
    """The checkpoints in a directory, oldest first."""
    found = []
    for path in directory.iterdir() if directory.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match and (path / STATE).is_file():
            found.append((int(match[1]), int(match[2] or 0), path))
    return [path for *_, path in sorted(found)]


def _free_name(directory: Path, step: int) -> Path:
    """A name no checkpoint has yet: a directory cannot be renamed onto a full one."""
    path, copy = directory / f"step-{step:08d}", 0
    while path.exists():
        copy += 1
        path = directory / f"step-{step:08d}.{copy}"
    return path


def _remove_leftovers(directory: Path) -> None:
    """Delete what a killed process left half written or half removed."""
    for path in abandoned(directory, "step-*"):
        shutil.rmtree(path, ignore_errors=True)
