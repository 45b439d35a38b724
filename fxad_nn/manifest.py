"""What a checkpoint holds: the size and SHA-256 of every file, in a file that is sealed itself.

    files = {"model.safetensors": write(path / "model.safetensors", parts)}
    write_manifest(path, step=2000, files=files, facts={"fxad": "0.1.0"})
    manifest = read_manifest(path, ["model.safetensors"])
    manifest.check("model.safetensors")             # its path; CheckpointError if it was changed

manifest.json is the canonical text of an object (keys in order, one form of every number), and its
`seal` the SHA-256 of the same text without the seal: a changed byte anywhere is found. This is a
guard against damage. Whoever can write the directory can write a manifest that fits, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fxad.core.schema import (
    Limits,
    anything,
    canonical,
    check,
    integer,
    mapping,
    parse,
    read_bytes,
    record,
    string,
)
from fxad_nn.errors import CheckpointError
from fxad_nn.files import Written, written

FORMAT = 3
"""1 had no manifest; nothing reads it any more."""

PUBLISHED_LAYOUT = 3
"""Since when linear layers are stored as they are published, [out, in]; in 2 they were [in, out],
and only GPT-2's still are."""

READABLE = (2, 3)

MANIFEST = "manifest.json"
LIMITS = Limits(size=4 << 20, values=100_000, depth=8)
LONGEST_FACT = 10_000
SHA256 = string("[0-9a-f]{64}")
FILE_NAME = string(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
SEALED = record({"seal": SHA256, "format": integer()}, others=anything)
SCHEMA = record(
    {
        "format": integer(),
        "step": integer(),
        "files": mapping(record({"bytes": integer(), "sha256": SHA256}), key=FILE_NAME),
        "facts": mapping(string(most=LONGEST_FACT), key=string(most=LONGEST_FACT)),
    }
)


@dataclass(frozen=True)
class Manifest:
    """A manifest that is whole; its files are still to be checked.

    `facts` are named texts that say what else is worth knowing of a checkpoint, such as what its
    bits depend on. `format`: that of the directory, one of `READABLE`.
    """

    directory: Path
    format: int
    step: int
    files: Mapping[str, Mapping[str, Any]]
    facts: dict[str, str]

    def check(self, name: str) -> Path:
        """The path of a file that was proved to be what was written; else CheckpointError."""
        path = self.directory / name
        if not path.is_file():
            raise CheckpointError(f"{path} is missing")
        try:
            found = written(path)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
        self._compare(name, found.size, found.sha256)
        return path

    def content(self, name: str) -> bytes:
        """The contents of a file, as `check` proves them."""
        content = read_bytes(self.directory / name, CheckpointError)
        self._compare(name, len(content), hashlib.sha256(content).hexdigest())
        return content

    def _compare(self, name: str, size: int, digest: str) -> None:
        """CheckpointError where a file is not the one that was written."""
        path, wanted = self.directory / name, self.files[name]
        if size != wanted["bytes"]:
            raise CheckpointError(
                f"{path} is damaged: it holds {size} bytes, {wanted['bytes']} were written"
            )
        if digest != wanted["sha256"]:
            raise CheckpointError(f"{path} is damaged: its bytes are not those that were written")


def write_manifest(
    directory: Path, step: int, files: Mapping[str, Written], facts: Mapping[str, str]
) -> None:
    """Seal a directory in which these files were written.

    Raises OSError where it cannot be written, CheckpointError for facts that are no texts.
    """
    listed = {name: {"bytes": one.size, "sha256": one.sha256} for name, one in files.items()}
    body = {"format": FORMAT, "step": step, "files": listed, "facts": dict(facts)}
    check(body, SCHEMA, str(directory / MANIFEST), CheckpointError)
    (directory / MANIFEST).write_text(sealed(body), "utf-8")


def read_manifest(directory: Path, files: Iterable[str]) -> Manifest:
    """The manifest of a directory, which lists `files`; CheckpointError where it does not."""
    path = directory / MANIFEST
    if directory.is_dir() and not path.exists():
        raise CheckpointError(
            f"{path} is missing, so nothing shows that this checkpoint is whole: it was damaged, "
            "or saved by an earlier version of fxad_nn, which alone can read it"
        )
    content = read_bytes(path, CheckpointError, LIMITS.size)
    body = parse(content, SEALED, str(path), CheckpointError, LIMITS)
    body.pop("seal")
    if content != sealed(body).encode():
        raise CheckpointError(f"{path} is damaged: its bytes are not those that were written")
    if body["format"] not in READABLE:
        known = " and ".join(map(str, READABLE))
        raise CheckpointError(f"{path} has format {body['format']}; this version reads {known}")
    found = parse(canonical(body), SCHEMA, str(path), CheckpointError, LIMITS)
    missing = sorted(set(files) - found["files"].keys())
    if missing:
        raise CheckpointError(f"{path} does not list {', '.join(missing)}")
    return Manifest(directory, found["format"], found["step"], found["files"], found["facts"])


def sealed(body: Mapping[str, Any]) -> str:
    """The text of a manifest that says `body`."""
    seal = hashlib.sha256(canonical(body).encode()).hexdigest()
    return canonical({**body, "seal": seal})
