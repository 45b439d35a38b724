"""Text to token ids and back: characters, bytes, subwords, or ids written out.

tokenizer = Characters.of("to be or not to be")
ids = tokenizer.encode("to be")             # int32 array
tokenizer.decode(ids)                       # "to be"
from_json(tokenizer.to_json())              # the same tokenizer
from_directory("llama").ids.eos             # (128001, 128008, 128009)
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from fxad.core.schema import (
    anything,
    check,
    integer,
    one_of,
    parse,
    read,
    read_bytes,
    record,
    shown,
    string,
)
from fxad_nn.byte_level import gpt2_files, is_tiktoken, tiktoken_file
from fxad_nn.errors import DataError
from fxad_nn.sentencepiece_file import sentencepiece_file
from fxad_nn.subwords import (
    DESCRIPTION,
    STATE,
    AddedToken,
    Subwords,
    load,
    put_around,
    require_library,
    vocabulary_size,
)
from fxad_nn.tokenizer_config import TokenizerConfig, read_config
from fxad_nn.vocabulary import NO_IDS, SpecialIds, checked_ids


class Tokenizer(Protocol):
    """What every tokenizer offers; `size` is the number of different ids."""

    @property
    def size(self) -> int:
        """Ids are 0 ... size - 1."""

    @property
    def ids(self) -> SpecialIds:
        """The ids that start, end, pad and fill in."""

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
    ids: ClassVar[SpecialIds] = NO_IDS

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
    ids: ClassVar[SpecialIds] = NO_IDS
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
    ids: ClassVar[SpecialIds] = NO_IDS

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


KINDS = {
    Characters.kind: record({"kind": anything, "alphabet": string()}),
    Bytes.kind: record({"kind": anything}),
    Ids.kind: record({"kind": anything, "size": integer(1, (1 << 31) - 1)}),
    Subwords.kind: STATE,
    "bpe": STATE,  # what checkpoints from before there were other kinds of subwords say
}
ANY_KIND = record({"kind": one_of(*KINDS)}, others=anything)


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
    return Subwords.of_state(state, where)


# From a model's directory -------------------------------------------------------------------------

END_OF_TEXT = "<|endoftext|>"
CLASSES = {
    "GPT2Tokenizer": ("bos_token", "eos_token", "unk_token"),
    "Qwen2Tokenizer": ("eos_token", "unk_token", "pad_token"),
}
"""The classes that tokenizer_config.json may name for vocab.json with merges.txt, and what their
end of text also is unless the file says otherwise."""


def start_of(tokenizer: Any) -> list[int]:
    """The start token as a list, where a tokenizer puts one before a text; else an empty one."""
    start = tokenizer.ids.bos
    if start is None:
        return []
    framed = tokenizer.encode("a", add_special_tokens=True)
    return [start] if [int(i) for i in framed[:1]] == [start] else []


TOKENIZER = "tokenizer.json"


def from_directory(path: str | Path) -> Subwords:
    """The tokenizer that a Hugging Face model's directory carries, with its special ids.

    The vocabulary is the first of these files that is there: `tokenizer.json`, `tokenizer.model`
    (SentencePiece or tiktoken), `*.tiktoken`, `vocab.json` with `merges.txt` (GPT-2, or Qwen 2 if
    tokenizer_config.json says so). What stands beside it: see `tokenizer_config`.

    DataError for a directory without a tokenizer, a file that is damaged, and files that
    contradict each other.
    """
    directory = Path(path)
    if not directory.is_dir():
        raise DataError(
            f"{directory} is no directory: a tokenizer is read from a model's directory"
        )
    require_library()
    config = read_config(directory)
    where, description, config = _vocabulary(directory, config)
    added = [config.added[i] for i in sorted(config.added)]
    library = load(description, where, [*added, *config.special])
    for i, token in config.added.items():
        if library.token_to_id(token.content) != i:
            raise DataError(
                f"{directory} gives the token {shown(token.content)} the id {i}, in {where} it is "
                f"{library.token_to_id(token.content)}: were they made for different vocabularies?"
            )
    ids = config.ids(library.token_to_id, vocabulary_size(library))
    if "post_processor" not in description:  # only tokenizer.json says what stands around a text
        start = ids.bos if config.add_bos_token else None
        put_around(library, start, ids.eos[0] if config.add_eos_token and ids.eos else None)
    return Subwords(library, ids, config.clean_up)


def _vocabulary(
    directory: Path, config: TokenizerConfig
) -> tuple[str, dict[str, Any], TokenizerConfig]:
    """The file with a directory's vocabulary, its description and the settings that go with it."""
    path = directory / TOKENIZER
    if path.is_file():
        return str(path), {"post_processor": None, **read(path, DESCRIPTION, DataError)}, config
    path = directory / "tokenizer.model"
    if path.is_file() and not is_tiktoken(read_bytes(path, DataError)):
        llama = config.tokenizer_class == "LlamaTokenizer"
        legacy = not llama if config.legacy is None else config.legacy
        description, named = sentencepiece_file(path, legacy)
        special = (*config.special, *(AddedToken(text) for text in named.values()))
        config = replace(config, named={**named, **config.named}, special=special)
        # Found in the text as it is, so that what stands between them gets its space before it.
        added = {i: replace(token, normalized=False) for i, token in config.added.items()}
        config = replace(config, added=added)
    elif files := [path] if path.is_file() else sorted(directory.glob("*.tiktoken")):
        path, description = files[0], tiktoken_file(files[0])
    elif not any((directory / name).exists() for name in ("vocab.json", "merges.txt")):
        raise DataError(
            f"{directory} has no tokenizer: neither tokenizer.json, tokenizer.model, a file of "
            "tiktoken's, nor vocab.json with merges.txt"
        )
    else:
        path = directory / "vocab.json"
        kind = config.tokenizer_class if config.tokenizer_class in CLASSES else "GPT2Tokenizer"
        description = gpt2_files(directory, kind, config.add_prefix_space)
        usual = dict.fromkeys(CLASSES[kind], END_OF_TEXT)
        missing = [AddedToken(END_OF_TEXT)] if usual.keys() - config.named.keys() else []
        special = (*config.special, *missing)
        config = replace(config, named={**usual, **config.named}, special=special)
    return str(path), _with_added(description, config.added), config


def _with_added(description: dict[str, Any], added: dict[int, AddedToken]) -> dict[str, Any]:
    """A description whose vocabulary holds the added tokens at their ids, which may leave gaps;
    a piece that has such an id is a placeholder, and is renamed."""
    vocab = description["model"]["vocab"]
    if type(vocab) is list:
        texts = {i: token.content for i, token in added.items() if i < len(vocab)}
        pieces = [[texts.get(i, text), score] for i, (text, score) in enumerate(vocab)]
        return {**description, "model": {**description["model"], "vocab": pieces}}
    texts = {i: token.content for i, token in added.items()}
    kept = {text: i for text, i in vocab.items() if i not in texts or text in texts.values()}
    whole = {**{text: i for i, text in texts.items()}, **kept}
    return {**description, "model": {**description["model"], "vocab": whole}}
