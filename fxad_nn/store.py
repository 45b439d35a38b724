"""Checkpoints: a directory that is whole, or is refused by name.

    path = save(Path("runs/nano-1"), 2000, params, optimizer_state, config, tokenizer, state)
    checkpoint = load(Path("runs/nano-1"))          # the newest one, or one named exactly

`runs/nano-1/step-00002000/` holds model.safetensors, optimizer.safetensors, tokenizer.json,
state.json and manifest.json, which has the size and SHA-256 of each of the others and of itself
(`fxad_nn.manifest`). The directory is written under a temporary name, forced to the disk and
renamed, and only then are older ones removed; a crash or a full disk at any moment leaves the
previous one. What was changed since then is a CheckpointError that names the file and the last
checkpoint that is whole.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fxad.core.schema import (
    anything,
    array,
    canonical,
    integer,
    mapping,
    nullable,
    number,
    parse,
    record,
    string,
)
from fxad_nn import decoder, models, tokenizer
from fxad_nn.errors import CheckpointError, ConfigError
from fxad_nn.files import abandoned, discard, no_directory, replacing, write
from fxad_nn.manifest import (
    MANIFEST,
    PUBLISHED_LAYOUT,
    Manifest,
    read_manifest,
    write_manifest,
)
from fxad_nn.optim import Optimizer, adamw, state_spec
from fxad_nn.spec import from_named, named_leaves
from fxad_nn.tensors import read_tree, write_tree

MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
TOKENIZER, STATE = "tokenizer.json", "state.json"
FILES = (MODEL, OPTIMIZER, TOKENIZER, STATE)

BEST = "best"
"""Where in a run's directory the checkpoint with the lowest validation loss is."""

LOSSES = array(array(number(), least=2, most=2))
RUN_STATE = record(
    {},
    {
        "options": record({"data": nullable(string())}, others=anything),
        "source": string(),
        "data_size": integer(),
        "history": mapping(LOSSES),
        "digests": mapping(string()),
        "sampled": integer(),
    },
    others=anything,
)
"""What `fxad_nn.run` keeps in a checkpoint's state; others may keep anything under other names."""

STATE_SCHEMA = record(
    {"step": integer(), "model": mapping(anything), "state": RUN_STATE},
)


@dataclass(frozen=True)
class Checkpoint:
    """What `load` found. `optimizer` is None where it was not asked for."""

    path: Path
    step: int
    config: models.Config
    params: Any = field(repr=False)
    optimizer: Any = field(repr=False)
    tokenizer: tokenizer.Tokenizer = field(repr=False)
    state: dict[str, Any]
    facts: dict[str, str] = field(default_factory=dict)


def save(
    directory: str | Path,
    step: int,
    params: Any,
    optimizer: Any,
    config: models.Config,
    encoder: tokenizer.Tokenizer,
    state: dict[str, Any],
    keep: int = 1,
    facts: dict[str, str] | None = None,
) -> Path:
    """Write one checkpoint and remove all but the newest `keep`; returns its path.

    `state` is an object that JSON can hold, `facts` what else is to be known of the checkpoint,
    by name; both come back from `load`. Raises CheckpointError where JSON cannot hold the state or
    a fact is no text, and where the disk is full or fails; what was there before is then untouched.
    """
    directory = Path(directory)
    target = _free_name(directory, step)
    found = {"step": step, "model": models.to_dict(config), "state": state}
    texts = {STATE: _state_text(found, target), TOKENIZER: encoder.to_json()}
    try:
        _remove_leftovers(directory)
        with replacing(target) as temporary:
            temporary.mkdir()
            files = {
                MODEL: write_tree(temporary / MODEL, params),
                OPTIMIZER: write_tree(temporary / OPTIMIZER, optimizer),
            }
            for name, content in texts.items():
                files[name] = write(temporary / name, [content.encode()])
            write_manifest(temporary, step, files, facts or {})
    except OSError as error:
        kept = ""
        with contextlib.suppress(OSError):  # a disk that cannot even list the directory
            if before := last_whole(directory):
                kept = f"; {before} is still whole"
        raise CheckpointError(
            f"could not save the checkpoint {target}: {error}{kept}; "
            "free some space, or choose another directory with `out`"
        ) from error
    _remove_others(directory, target, keep)
    return target


def _state_text(found: dict[str, Any], target: Path) -> str:
    """The contents of state.json, proved to be what `load` can read."""
    try:
        text = canonical(found)
        parse(text, STATE_SCHEMA, str(target), CheckpointError)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{target}: JSON cannot hold this state: {error}") from error
    return text


def latest(directory: str | Path) -> Path:
    """`directory` itself if it is a checkpoint, else the newest one in it."""
    directory = Path(directory)
    if _is_checkpoint(directory):
        return directory
    found = checkpoints(directory)
    if not found:
        state = "holds no checkpoint" if directory.is_dir() else no_directory(directory)
        if best := checkpoints(directory / BEST):
            raise CheckpointError(
                f"{directory} {state} but its best, {best[-1]}: give that directory (and `out=DIR` "
                "to go on from it elsewhere)"
            )
        raise CheckpointError(f"{directory} {state}; give a directory that training has written")
    return found[-1]


def run_of(checkpoint: Path) -> Path:
    """The directory of the run that a checkpoint is of."""
    home = checkpoint.parent
    return home.parent if home.name == BEST else home


def holds_checkpoint(directory: str | Path) -> bool:
    """Whether a directory is, or holds, a checkpoint."""
    directory = Path(directory)
    return _is_checkpoint(directory) or bool(checkpoints(directory))


ADAMW = adamw(1e-3)


def load(
    directory: str | Path,
    optimizer: Optimizer | None = ADAMW,
    spec_of: Callable[[models.Config], Any] | None = None,
) -> Checkpoint:
    """Read a checkpoint whose files are those of its manifest and agree with each other.

    optimizer: the one whose state was saved; None: its state is not read. spec_of: the leaves that
    are saved of a model of that configuration (default: all it has).

    Raises CheckpointError naming the file that does not, and the last checkpoint that is whole.
    """
    directory = Path(directory)
    with _reading(directory) as path:
        return _read(path, optimizer, spec_of)


def read_state(directory: str | Path) -> tuple[Path, dict[str, Any]]:
    """The path and contents of the newest checkpoint's state.json: step, model and state."""
    directory = Path(directory)
    with _reading(directory) as path:
        return path / STATE, _state(path, _manifest(path))


def last_whole(directory: str | Path, but: Path | None = None) -> Path | None:
    """The newest checkpoint in a directory, other than `but`, of which every file is whole."""
    directory = Path(directory)
    for path in reversed([path for path in checkpoints(directory) if path != but]):
        try:
            manifest = _manifest(path)
            for name in FILES:
                manifest.check(name)
        except CheckpointError:
            continue
        return path
    return None


def _read(
    path: Path,
    optimizer: Optimizer | None,
    spec_of: Callable[[models.Config], Any] | None,
) -> Checkpoint:
    manifest = _manifest(path)
    found = _state(path, manifest)
    try:
        config = models.from_dict(found["model"], str(path / STATE))
        spec = spec_of(config) if spec_of else models.family(config).spec(config)
    except ConfigError as error:
        raise CheckpointError(str(error)) from error
    for name in (MODEL, TOKENIZER) if optimizer is None else (MODEL, OPTIMIZER, TOKENIZER):
        manifest.check(name)
    transposed = manifest.format < PUBLISHED_LAYOUT and isinstance(config, decoder.Config)
    read = _read_transposed if transposed else read_tree
    params = read([path / MODEL], spec)
    state_of = None
    if optimizer is not None:
        state_of = read([path / OPTIMIZER], state_spec(optimizer, spec))
    encoder = tokenizer.from_json(manifest.content(TOKENIZER), str(path / TOKENIZER))
    state, facts = found["state"], manifest.facts
    return Checkpoint(path, manifest.step, config, params, state_of, encoder, state, facts)


def _read_transposed(paths: list[Path], spec: Any) -> Any:
    """As `read_tree`, of files that hold the transpose of every matrix called weight."""
    leaves = dict(named_leaves(spec))
    matrices = {name for name, leaf in leaves.items() if name.endswith(".weight")}
    for name in matrices:
        leaf = leaves[name]
        leaves[name] = replace(leaf, shape=leaf.shape[::-1], axes=leaf.axes[::-1])
    found = dict(named_leaves(read_tree(paths, from_named(spec, leaves))))
    return from_named(spec, {n: x.T if n in matrices else x for n, x in found.items()})


def _manifest(path: Path) -> Manifest:
    """The manifest of the checkpoint at `path`, which agrees with the directory's name."""
    manifest = read_manifest(path, FILES)
    named = _NAME.fullmatch(path.name)
    if named and int(named[1]) != manifest.step:
        raise CheckpointError(
            f"{path / MANIFEST} is of step {manifest.step}, its directory's name of another: "
            "was it renamed?"
        )
    return manifest


def _state(path: Path, manifest: Manifest) -> dict[str, Any]:
    content = manifest.content(STATE)
    found = parse(content, STATE_SCHEMA, str(path / STATE), CheckpointError)
    if found["step"] != manifest.step:
        raise CheckpointError(
            f"{path / STATE} is of step {found['step']}, {MANIFEST} of step {manifest.step}"
        )
    return found


@contextlib.contextmanager
def _reading(directory: Path) -> Iterator[Path]:
    """Give the newest checkpoint; where it cannot be read, the error names the last whole one."""
    try:
        path = latest(directory)
        try:
            yield path
        except CheckpointError as error:
            if (whole := last_whole(path.parent, but=path)) is None:
                raise
            raise CheckpointError(
                f"{error}; the last checkpoint that is whole is {whole}: give that directory to "
                "go on from it"
            ) from error
    except OSError as error:
        raise CheckpointError(f"{directory} cannot be read: {error.strerror}") from error


_NAME = re.compile(r"step-(\d{8,18})(?:\.(\d{1,18}))?")


def checkpoints(directory: str | Path) -> list[Path]:
    """The checkpoints in a directory, whole or not, oldest first."""
    directory = Path(directory)
    found = []
    for path in directory.iterdir() if directory.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match and path.is_dir():
            found.append((int(match[1]), int(match[2] or 0), path))
    return [path for *_, path in sorted(found)]


def _is_checkpoint(path: Path) -> bool:
    return (path / MANIFEST).is_file() or (path / STATE).is_file()


def _remove_others(directory: Path, newest: Path, keep: int) -> None:
    """Remove all checkpoints but the `keep` newest up to `newest`.

    Those of later steps go too: the run went back behind them, and `latest` must not find them.
    """
    found = checkpoints(directory)
    before = found[: found.index(newest)]
    later = found[found.index(newest) + 1 :]
    for old in [*later, *before[: max(len(before) - keep + 1, 0)]]:
        discard(old)


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
