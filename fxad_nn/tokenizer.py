"""Text to token ids and back: characters, bytes, byte-pair encoding, or ids written out.

tokenizer = Characters.of("to be or not to be")
ids = tokenizer.encode("to be")             # int32 array
tokenizer.decode(ids)                       # "to be"
from_json(tokenizer.to_json())              # the same tokenizer
"""

from __future__ import annotations

import contextlib
import json
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from fxad.core.schema import (
    Mismatch,
    Schema,
    anything,
    array,
    check,
    integer,
    mapping,
    nullable,
    one_of,
    parse,
    read,
    read_bytes,
    record,
    shown,
    string,
)
from fxad_nn.errors import DataError

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
        whole = not any("\ud800" <= character <= "\udfff" for character in self.alphabet)
        if not self.alphabet or len(set(self.alphabet)) != len(self.alphabet) or not whole:
            raise DataError(f"an alphabet is a set of characters, got {shown(self.alphabet)}")

    @classmethod
    def of(cls, text: str) -> Characters:
        """The tokenizer whose alphabet is the sorted set of characters of `text`."""
        return cls("".join(sorted(set(text))))

    @property
    def size(self) -> int:
        return len(self.alphabet)

    def encode(self, text: str) -> np.ndarray:
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
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
        try:
            return np.frombuffer(text.encode("utf-8"), np.uint8).astype(np.int32)
        except UnicodeEncodeError as error:
            raise DataError(f"character {error.start} of the text is no Unicode: {error}") from None

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
    """Byte-pair encoding through the `tokenizers` library.

    Ids may have gaps; `size` is one more than the largest.
    """

    kind: ClassVar[str] = "bpe"

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    @classmethod
    def gpt2(cls, directory: Path) -> BytePairs:
        """GPT-2's byte-level encoding from `vocab.json` and `merges.txt` in a directory."""
        library = _require_library()
        paths = vocab_path, merges_path = directory / "vocab.json", directory / "merges.txt"
        for path in paths:
            if not path.is_file():
                raise DataError(f"{path} is missing: GPT-2's encoding needs vocab.json, merges.txt")
        vocab = read(vocab_path, VOCABULARY, DataError)
        lines = _read_merges(merges_path)
        merges = check(lines, merges_within(vocab), str(merges_path), DataError)
        with _library(f"{vocab_path} and {merges_path}"):
            tokenizer = library.Tokenizer(library.models.BPE(vocab=vocab, merges=merges))
            tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
            tokenizer.decoder = library.decoders.ByteLevel()
            tokenizer.add_special_tokens(["<|endoftext|>"])
            return cls(tokenizer)

    @classmethod
    def of(cls, description: dict[str, Any], where: str) -> BytePairs:
        """From what a `tokenizer.json` holds, checked; `where` names it in errors.

        Texts are never cut or filled up, whatever the description says of that.
        """
        library = _require_library()
        whole = {**description, "truncation": None, "padding": None}
        with _library(where):
            return cls(library.Tokenizer.from_str(json.dumps(whole)))

    def encode(self, text: str) -> np.ndarray:
        with _library("this text"):
            return np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, np.int32)

    def decode(self, ids: Any) -> str:
        with _library("these ids"):
            return self._tokenizer.decode(checked_ids(ids, self.size), skip_special_tokens=False)

    def to_json(self) -> str:
        whole = {"kind": self.kind, "tokenizer": json.loads(self._tokenizer.to_str())}
        return json.dumps(whole, ensure_ascii=False)  # escaped it might outgrow what is read


@contextlib.contextmanager
def _library(what: str) -> Iterator[None]:
    """Turn whatever the `tokenizers` library raises about `what` into a DataError.

    It is written in Rust: a panic there arrives as an exception that is no `Exception`.
    """
    try:
        yield
    except DataError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        said = textwrap.shorten(str(error), 500)
        raise DataError(f"{what} cannot be used by the tokenizers library: {said}") from error


MOST_IDS = 1 << 24
ID = integer(0, MOST_IDS - 1)


def distinct_ids(value: Any) -> dict[str, int]:
    """A vocabulary: an object of tokens and their ids, of which no two are the same."""
    vocab = mapping(ID)(value)
    if len(set(vocab.values())) != len(vocab):
        [(twice, _)] = Counter(vocab.values()).most_common(1)
        names = [token for token, number in vocab.items() if number == twice]
        raise Mismatch(f"gives the id {twice} to {shown(names[0])} and {shown(names[1])}")
    return vocab


def merges_within(vocab: dict[str, int], prefix: str = "") -> Schema:
    """A list of merges, "a b" or ["a", "b"], of tokens of a vocabulary into one of its tokens.

    `prefix` begins every token that continues a word, and is dropped when it is merged. Checked
    here because the library ends in a panic over some that are not so.
    """

    def merge(value: Any) -> tuple[str, str]:
        pair = tuple(value.split(" ") if type(value) is str else array(string(), 2, 2)(value))
        if len(pair) != 2:
            raise Mismatch(f"must be two tokens, got {shown(value)}")
        left, right = pair
        if not right.startswith(prefix):
            raise Mismatch(f"merges {shown(right)}, which does not begin with {shown(prefix)}")
        for token in (left, right, left + right.removeprefix(prefix)):
            if token not in vocab:
                raise Mismatch(f"needs the token {shown(token)}, which the vocabulary lacks")
        return left, right

    return array(merge)


def _read_merges(path: Path) -> list[str]:
    """The lines of a merges.txt but for its first, which is its version."""
    try:
        lines = read_bytes(path, DataError).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no UTF-8 text (byte {error.start})") from error
    stripped = [line.removesuffix("\r") for line in lines]
    return [line for line in stripped if line and not line.startswith("#version")]


def _bpe_model(value: Any) -> dict[str, Any]:
    """The model of a `tokenizer.json`: vocabulary and merges must fit each other."""
    found = BPE(value)
    merges_within(found["vocab"], found.get("continuing_subword_prefix") or "")(found["merges"])
    return found


VOCABULARY = distinct_ids
BPE = record(
    {"vocab": VOCABULARY, "merges": array(anything)},
    {"type": one_of("BPE"), "continuing_subword_prefix": nullable(string(most=100))},
    others=anything,
)
HUGGING_FACE = record(
    {"model": _bpe_model},
    {"added_tokens": array(record({"id": ID, "content": string()}, others=anything))},
    others=anything,
)
"""A `tokenizer.json` of the `tokenizers` library, which checks the rest itself."""

KINDS = {
    Characters.kind: record({"kind": anything, "alphabet": string()}),
    Bytes.kind: record({"kind": anything}),
    Ids.kind: record({"kind": anything, "size": integer(1, (1 << 31) - 1)}),
    BytePairs.kind: record({"kind": anything, "tokenizer": HUGGING_FACE}),
}
ANY_KIND = record({"kind": one_of(*KINDS)}, others=anything)


def checked_ids(ids: Any, size: int) -> list[int]:
    """A list of ids, each proved to lie in 0 ... size - 1."""
    ids = [int(i) for i in ids]
    for at, i in enumerate(ids):
        if not 0 <= i < size:
            raise DataError(f"token id {i} at position {at} is outside the vocabulary of {size}")
    return ids


def from_json(text: str | bytes, where: str = "tokenizer") -> Tokenizer:
    """The tokenizer that `to_json` described; `where` names the file in errors."""
    kind = (found := parse(text, ANY_KIND, where, DataError))["kind"]
    state = check(found, KINDS[kind], where, DataError)
    if kind == Characters.kind:
        return Characters(state["alphabet"])
    if kind == Bytes.kind:
        return Bytes()
    if kind == Ids.kind:
        return Ids(state["size"])
    return BytePairs.of(state["tokenizer"], where)


def from_directory(directory: Path) -> Tokenizer:
    """The tokenizer a Hugging Face directory carries: `tokenizer.json`, else GPT-2's two files."""
    path = directory / "tokenizer.json"
    if path.is_file():
        return BytePairs.of(read(path, HUGGING_FACE, DataError), str(path))
    return BytePairs.gpt2(directory)


def _require_library() -> Any:
    if _tokenizers is None:
        raise DataError(
            "byte-pair encoding needs the tokenizers library: pip install 'fxad[nn]', "
            "or train on characters (--tokenizer char) or bytes (--tokenizer byte)"
        )
    return _tokenizers
