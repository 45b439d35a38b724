"""Token shards of texts of any size: one piece is in memory at a time, whatever there is of them.

    options = PrepareOptions(out=Path("data"), vocabulary=Path("gpt2"))
    made = prepare([Path("books.jsonl"), Path("wiki.txt")], options)
    print(made.documents, made.tokens, made.train)      # ... [data/train_000000.bin, ...]

A .jsonl file holds a document on each line, under a field; any other file is one document, UTF-8.
Before each document stands the token that starts a text, or the one that ends it, where the
tokenizer has one, as llm.c has it.
"""

# ruff: noqa: RUF009 - option() makes dataclass fields, not shared default objects
from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fxad.core.schema import Limits, anything, record, string
from fxad_nn.data import make_tokenizer
from fxad_nn.errors import ConfigError, DataError
from fxad_nn.files import abandoned, require_writable
from fxad_nn.json_records import records
from fxad_nn.options import option, require_types
from fxad_nn.shards import ShardWriter
from fxad_nn.tokenizer import Tokenizer, start_of

PIECE = 4 << 20
"""Bytes of a text that are encoded at once, more or less."""

MOST = 64 << 20
"""Bytes of a document in a .jsonl, or of a text between two places where it can be cut."""

TOKENIZERS = ("gpt2", "byte")

DOCUMENTS = (".jsonl", ".json")
"""Files that hold documents, as the ends of their names; any other is one text."""


@dataclass(frozen=True)
class PrepareOptions:
    """How to make shards."""

    out: Path | None = option(None, "directory for the shards")
    tokenizer: str = option("gpt2", "how text becomes tokens", TOKENIZERS)
    vocabulary: Path | None = option(None, "a model's directory with the tokenizer to use")
    field: str = option("text", "what a document is called in .jsonl")
    shard_tokens: int = option(100_000_000, "tokens of a shard")
    val_share: float = option(0.0, "share of the documents that are for validation")
    seed: int = option(0, "seed of that choice")

    def __post_init__(self) -> None:
        require_types(self)
        if not 0 <= self.val_share < 1:
            raise ConfigError(f"`val_share` must be in [0, 1), got {self.val_share}")
        if not 1 <= self.shard_tokens < 1 << 31:
            raise ConfigError(
                f"`shard_tokens` must be from 1 to {(1 << 31) - 1}, got {self.shard_tokens}"
            )
        if self.tokenizer == "byte" and self.vocabulary is not None:
            raise ConfigError("`vocabulary` has no meaning beside `tokenizer='byte'`")


@dataclass(frozen=True)
class Prepared:
    """What was read, and the shards that were written."""

    documents: int
    tokens: int
    train: list[Path]
    val: list[Path]


def prepare(
    paths: Sequence[str | Path],
    options: PrepareOptions,
    went_on: Callable[[int, int], None] = lambda done, total: None,
) -> Prepared:
    """Encode all documents in their order and write them as shards; went_on(done, total) hears how
    many bytes were read.

    With `val_share` documents are drawn for validation, each by its number alone. Shards of a
    process that ended early are whole; a directory that has some is not written to. Raises
    ConfigError, and DataError for a file, with its line, that cannot be read or encoded.
    """
    files, out = [Path(path) for path in paths], options.out
    if out is None:
        raise ConfigError("prepare needs `out=DIR`")
    if any(out.glob("*.bin")):
        raise ConfigError(f"{out} holds shards already: choose another `out`, or remove them")
    require_writable(out)
    for path in abandoned(out, "*.bin"):
        path.unlink(missing_ok=True)
    for path in files:
        if not path.is_file():
            raise DataError(f"{path} {'is no file' if path.exists() else 'is missing'}")
        if not path.stat().st_size and path.suffix not in DOCUMENTS:
            raise DataError(f"{path} is empty")  # before the others are read, for hours perhaps
    encoder = make_tokenizer(options.tokenizer, options.vocabulary, "")
    before = np.array(start_of(encoder) or encoder.ids.eos[:1], np.int32)
    total, done, documents = sum(path.stat().st_size for path in files), 0, 0
    shape = options.shard_tokens, encoder.size > 1 << 16
    with ShardWriter(out, "train", *shape) as train, ShardWriter(out, "val", *shape) as val:
        writer = train
        for path in files:
            for text, first, where, size in pieces(path, options.field):
                if first:
                    drawn = options.val_share and _drawn(options.seed, documents)
                    writer = val if drawn < options.val_share else train
                    writer.add(before)
                    documents += 1
                writer.add(_encoded(encoder, text, where))
                done += size
                went_on(min(done, total), total)
    return Prepared(documents, train.tokens + val.tokens, train.shards, val.shards)


def _encoded(encoder: Tokenizer, text: str, where: str) -> np.ndarray:
    try:
        return encoder.encode(text)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error


def _drawn(seed: int, document: int) -> float:
    """A number in [0, 1) that follows from the number of a document."""
    digest = hashlib.sha256(f"{seed} {document}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / (1 << 48)


def pieces(path: str | Path, field: str) -> Iterator[tuple[str, bool, str, int]]:
    """(a piece of text, whether it begins a document, where it is, bytes read for it)."""
    path = Path(path)
    if path.suffix in DOCUMENTS:
        schema = record({field: string(most=MOST)}, others=anything)
        limits = Limits(size=MOST, values=1_000_000, depth=32)
        for one in records(path, MOST):
            found = one.parse(schema, path, limits)
            yield found[field], True, f"{path}, line {one.line}", len(one.text)
        return
    first = True
    for start, content in _cut(path):
        try:
            text = content.decode("utf-8-sig" if first else "utf-8")
        except UnicodeDecodeError as error:
            at = start + error.start
            raise DataError(f"{path} is not UTF-8 text (byte {at}: {error.reason})") from error
        yield text, first, f"{path}, from byte {start}", len(content)
        first = False
    if first:
        raise DataError(f"{path} is empty")


# Before a line break after a letter or digit tokens end in all tokenizers of bytes.
_BETWEEN = re.compile(rb"(?<=[0-9A-Za-z])\r?\n")
_BREAK = re.compile(rb"\r\n|(?<!\r)\n")


def _cut(path: Path) -> Iterator[tuple[int, bytes]]:
    """A file in parts of about `PIECE` bytes, each from the byte where it begins; where that is
    possible they end before a line break that follows a letter or a digit."""
    held, start = b"", 0
    try:
        with open(path, "rb") as file:
            following = file.read(PIECE)
            while following:
                held, following = held + following, file.read(PIECE)
                if not following:
                    break
                for pattern in (_BETWEEN, _BREAK):
                    places = [m.start() for m in pattern.finditer(held, 1)]
                    if places:
                        yield start, held[: places[-1]]
                        start, held = start + places[-1], held[places[-1] :]
                        break
                if len(held) > MOST:
                    raise DataError(f"{path} has no line break in {MOST} bytes from byte {start}")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    if held:
        yield start, held
