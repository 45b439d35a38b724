"""Text to token ids and back: characters, bytes, byte-pair encoding, or ids written out.

tokenizer = Characters.of("to be or not to be")
ids = tokenizer.encode("to be")             # int32 array
tokenizer.decode(ids)                       # "to be"
from_json(tokenizer.to_json())              # the same tokenizer
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from fxad_nn.errors import DataError, did_you_mean

try:
    import tokenizers as _tokenizers
except ImportError:
    _tokenizers = None  # type: ignore[assignment]


class Tokenizer(Protocol):
    """What every tokenizer offers; `size` is the number of different ids."""

    @property
    def size(self) -> int:
        """Ids are 0 ... size - 1."""

    def encode(self, text: str) -> np.ndarray:
        """Token ids, int32 [length]."""

    def decode(self, ids: Any) -> str:
        """The text of a sequence of ids."""

    def to_json(self) -> str:
        """Everything `from_json` needs, in one string."""


@dataclass(frozen=True)
class Characters:
    """One id per character; `alphabet` lists the known ones in order."""

    alphabet: str
    kind: ClassVar[str] = "char"

    def __post_init__(self) -> None:
        if not self.alphabet or len(set(self.alphabet)) != len(self.alphabet):
            raise DataError(f"an alphabet is a set of characters, got {self.alphabet!r}")

    @classmethod
    def of(cls, text: str) -> Characters:
        """The tokenizer whose alphabet is the sorted set of characters of `text`."""
        return cls("".join(sorted(set(text))))

    @property
    def size(self) -> int:
        return len(self.alphabet)

    def encode(self, text: str) -> np.ndarray:
        points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        known = np.frombuffer(self.alphabet.encode("utf-32-le"), np.uint32)
        order = np.argsort(known)
        ids = order[np.searchsorted(known, points, sorter=order).clip(max=len(known) - 1)]
        wrong = np.flatnonzero(known[ids] != points)
        if len(wrong):
            at = int(wrong[0])
            raise DataError(
                f"character {text[at]!r} (U+{int(points[at]):04X}, position {at}) is not among the "
                f"{self.size} characters this tokenizer knows: {self.alphabet!r}"
            )
        return ids.astype(np.int32)

    def decode(self, ids: Any) -> str:
        return "".join(self.alphabet[i] for i in checked_ids(ids, self.size))

    def to_json(self) -> str:
        return json.dumps({"kind": self.kind, "alphabet": self.alphabet})


@dataclass(frozen=True)
class Bytes:
    """One id per byte of the UTF-8 form; bytes that are no valid text decode to U+FFFD."""

    kind: ClassVar[str] = "byte"
    size: ClassVar[int] = 256

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode("utf-8"), np.uint8).astype(np.int32)

    def decode(self, ids: Any) -> str:
        return bytes(checked_ids(ids, self.size)).decode("utf-8", errors="replace")

    def to_json(self) -> str:
        return json.dumps({"kind": self.kind})


@dataclass(frozen=True)
class Ids:
    """No text at all: ids written as decimal numbers, for token files without a vocabulary."""

    size: int
    kind: ClassVar[str] = "ids"

    def encode(self, text: str) -> np.ndarray:
        try:
            ids = [int(word) for word in text.split()]
        except ValueError:
            raise DataError(
                f"this model has no vocabulary: write token ids such as '15 27', got {text!r}"
            ) from None
        return np.array(checked_ids(ids, self.size), np.int32)

    def decode(self, ids: Any) -> str:
        return " ".join(map(str, checked_ids(ids, self.size)))

    def to_json(self) -> str:
        return json.dumps({"kind": self.kind, "size": self.size})


class BytePairs:
    """Byte-pair encoding through the `tokenizers` library."""

    kind: ClassVar[str] = "bpe"

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def gpt2(cls, directory: Path) -> BytePairs:
        """GPT-2's byte-level encoding from `vocab.json` and `merges.txt` in a directory."""
        library = _require_library()
        vocab, merges = directory / "vocab.json", directory / "merges.txt"
        for path in (vocab, merges):
            if not path.is_file():
                raise DataError(f"{path} is missing: GPT-2's encoding needs vocab.json, merges.txt")
        try:
            model = library.models.BPE.from_file(str(vocab), str(merges))
        except Exception as error:
            raise DataError(f"{vocab} and {merges} do not hold an encoding: {error}") from error
        tokenizer = library.Tokenizer(model)
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = library.decoders.ByteLevel()
        tokenizer.add_special_tokens(["<|endoftext|>"])
        return cls(tokenizer)

    @classmethod
    def from_text(cls, text: str, where: str) -> BytePairs:
        """From the contents of a `tokenizer.json`; `where` names it in errors."""
        library = _require_library()
        try:
            return cls(library.Tokenizer.from_str(text))
        except Exception as error:
            raise DataError(f"{where} does not hold a tokenizer: {error}") from error

    @property
    def size(self) -> int:
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> np.ndarray:
        return np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, np.int32)

    def decode(self, ids: Any) -> str:
        return self._tokenizer.decode(checked_ids(ids, self.size), skip_special_tokens=False)

    def to_json(self) -> str:
        return json.dumps({"kind": self.kind, "tokenizer": json.loads(self._tokenizer.to_str())})


def checked_ids(ids: Any, size: int) -> list[int]:
    """A list of ids, each proved to lie in 0 ... size - 1."""
    ids = [int(i) for i in ids]
    for at, i in enumerate(ids):
        if not 0 <= i < size:
            raise DataError(f"token id {i} at position {at} is outside the vocabulary of {size}")
    return ids


def from_json(text: str | bytes, where: str = "tokenizer") -> Tokenizer:
    """The tokenizer that `to_json` described; `where` names the file in errors."""
    try:
        state = json.loads(text)
        kind = state["kind"]
        if kind == Characters.kind:
            return Characters(state["alphabet"])
        if kind == Bytes.kind:
            return Bytes()
        if kind == Ids.kind:
            return Ids(int(state["size"]))
        if kind == BytePairs.kind:
            return BytePairs.from_text(json.dumps(state["tokenizer"]), where)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DataError(f"{where} is damaged: {error}") from error
    known = (Characters.kind, Bytes.kind, Ids.kind, BytePairs.kind)
    raise DataError(f"{where}: unknown tokenizer {kind!r}{did_you_mean(str(kind), known)}")


def from_directory(directory: Path) -> Tokenizer:
    """The tokenizer a Hugging Face directory carries: `tokenizer.json`, else GPT-2's two files."""
    path = directory / "tokenizer.json"
    if path.is_file():
        return BytePairs.from_text(path.read_text("utf-8"), str(path))
    return BytePairs.gpt2(directory)


def _require_library() -> Any:
    if _tokenizers is None:
        raise DataError(
            "byte-pair encoding needs the tokenizers library: pip install 'fxad[nn]', "
            "or train on characters (--tokenizer char) or bytes (--tokenizer byte)"
        )
    return _tokenizers
