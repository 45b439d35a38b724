"""Subword tokenizers, run by the `tokenizers` library: BPE, Unigram, WordPiece, whole words.

    description = read(path, DESCRIPTION, DataError)    # a tokenizer.json
    tokenizer = Subwords(load(description, str(path)))
    ids, offsets = tokenizer.encode_with_offsets("to be")

Whatever files a tokenizer comes in (`byte_level`, `sentencepiece_file`), it becomes a description
in the form of the library's `tokenizer.json` first, and is checked here in this one form.
"""

from __future__ import annotations

import contextlib
import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np

from fxad.core.schema import (
    Mismatch,
    Schema,
    anything,
    array,
    boolean,
    integer,
    mapping,
    nullable,
    number,
    one_of,
    record,
    row,
    shown,
    string,
)
from fxad_nn.errors import DataError
from fxad_nn.vocabulary import NO_IDS, SpecialIds, checked_ids

try:
    import tokenizers as _tokenizers
except ImportError:
    _tokenizers = None  # type: ignore[assignment]


@dataclass(frozen=True)
class AddedToken:
    """A token that is found in a text before the model sees it. The library's fields: `lstrip` and
    `rstrip` swallow spaces beside it, `single_word` wants no letter there, `normalized` looks for
    it in the normalised text, `special` ones are left out of decoded text if one asks for that."""

    content: str
    special: bool = True
    normalized: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


class Subwords:
    """A tokenizer of the `tokenizers` library; ids may have gaps, `size` is one more than the
    largest. `clean_up` takes out the spaces that WordPiece's decoder leaves before punctuation."""

    kind: ClassVar[str] = "subwords"

    def __init__(self, tokenizer: Any, ids: SpecialIds = NO_IDS, clean_up: bool = False) -> None:
        self._tokenizer = tokenizer
        self.ids = ids
        # In BPE a space before punctuation is part of the text, as in transformers 5.
        self.clean_up = clean_up and type(tokenizer.model).__name__ != "BPE"
        self.size = vocabulary_size(tokenizer)
        added = tokenizer.get_added_tokens_decoder()
        self.special = frozenset(i for i, token in added.items() if token.special)

    @classmethod
    def of_state(cls, state: dict[str, Any], where: str) -> Subwords:
        """From what `to_json` wrote, as `STATE` allows it; `where` names the file in errors."""
        library = load(state["tokenizer"], where)
        found = state.get("ids", {})
        ids = SpecialIds(**{**found, "eos": tuple(found.get("eos", ()))})
        known = [i for i in (ids.bos, *ids.eos, ids.pad, ids.unk) if i is not None]
        if outside := [i for i in known if i >= vocabulary_size(library)]:
            size = vocabulary_size(library)
            raise DataError(f"{where}: the special id {outside[0]} is outside its {size} ids")
        return cls(library, ids, state.get("clean_up", False))

    def id_of(self, token: str) -> int | None:
        """The id of a token by its text, or None."""
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def with_special(self, tokens: Sequence[str]) -> Subwords:
        """The tokenizer that also knows these special tokens; this one stays as it is.

        A token that it knows keeps its id, others take the next ids. DataError for one that would
        not be found in a text.
        """
        library = require_library()
        with library_errors("these tokens"):
            made = library.Tokenizer.from_str(self._tokenizer.to_str())
            made.add_special_tokens([library.AddedToken(t, normalized=False) for t in tokens])
        grown = Subwords(made, self.ids, self.clean_up)
        for token in tokens:
            if grown.encode(token).tolist() != [grown.id_of(token)]:
                raise DataError(
                    f"the tokenizer does not find the token {shown(token)} in a text: does it "
                    "hold another special token?"
                )
        return grown

    def added(self) -> dict[str, dict[str, Any]]:
        """The tokens that were added, by their ids, as tokenizer_config.json says it."""
        found = self._tokenizer.get_added_tokens_decoder()
        names = [field.name for field in fields(AddedToken)]
        return {str(i): {name: getattr(found[i], name) for name in names} for i in sorted(found)}

    def describe(self) -> str:
        """The tokenizer as a `tokenizer.json`."""
        text: str = self._tokenizer.to_str(pretty=True)
        return text

    def encode(self, text: str, add_special_tokens: bool = False) -> np.ndarray:
        """Token ids, int32 [length]; special tokens within the text become their ids.

        With `add_special_tokens`, also those that the tokenizer puts around a text, such as a
        start token. A chat template writes them itself.
        """
        return np.array(self._encoding(text, add_special_tokens).ids, np.int32)

    def encode_with_offsets(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Token ids, int32 [length], and where in the text each came from: the first character
        and the one after the last, int64 [length, 2]."""
        encoding = self._encoding(text, False)
        offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        return np.array(encoding.ids, np.int32), offsets

    def decode(self, ids: Any) -> str:
        """The text of a sequence of ids, special tokens included."""
        with library_errors("these ids"):
            text = self._tokenizer.decode(checked_ids(ids, self.size), skip_special_tokens=False)
        return _without_stray_spaces(text) if self.clean_up else text

    def to_json(self) -> str:
        whole = {"kind": self.kind, "tokenizer": json.loads(self._tokenizer.to_str())}
        whole |= {"ids": asdict(self.ids), "clean_up": self.clean_up}
        return json.dumps(whole, ensure_ascii=False)  # escaped it might outgrow what is read

    def _encoding(self, text: str, add_special_tokens: bool) -> Any:
        if isinstance(text, str):  # the library names what is none
            _require_characters(text)
        with library_errors("this text"):
            return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)


def _require_characters(text: str) -> None:
    """DataError for half of a pair of surrogates, which the library takes or refuses by version,
    and in the latter case does not name."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"character {error.start} of the text is a lone surrogate, "
            f"U+{ord(text[error.start]):04X}, half of a pair and no character: try to put the "
            "whole pair there, or to leave it out"
        ) from None


def load(description: dict[str, Any], where: str, added: Iterable[AddedToken] = ()) -> Any:
    """The library's tokenizer of a description, as `DESCRIPTION` allows it; `where` names it in
    errors.

    `added` are added to the description's own tokens, in this order: one that the vocabulary lacks
    takes the next id. Texts are never truncated or padded, whatever the description says of that.
    """
    library = require_library()
    whole = {**description, "truncation": None, "padding": None}
    with library_errors(where):
        tokenizer = library.Tokenizer.from_str(json.dumps(whole))
        tokenizer.add_tokens([library.AddedToken(**asdict(token)) for token in added])
        return tokenizer


def vocabulary_size(tokenizer: Any) -> int:
    """One more than the largest id of a tokenizer of the library."""
    return 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)


def put_around(tokenizer: Any, start: int | None, end: int | None) -> None:
    """Make a tokenizer of the library put these ids around texts, where it is asked to."""
    ids = {"start": start, "end": end}
    named = [
        {"id": name, "ids": [i], "tokens": [tokenizer.id_to_token(i)]}
        for name, i in ids.items()
        if i is not None
    ]
    single = [name + ":0" for name in ids if ids[name] is not None]
    single.insert(len(single) if end is None else len(single) - 1, "$A:0")
    with library_errors("the tokens around a text"):
        tokenizer.post_processor = require_library().processors.TemplateProcessing(
            single=single, pair=[*single, "$B:1"], special_tokens=named
        )


def require_library() -> Any:
    """The `tokenizers` module; DataError naming the extra where it is not installed."""
    if _tokenizers is None:
        raise DataError(
            "byte-pair encoding needs the tokenizers library: pip install 'fxad[nn]', "
            "or train on characters (`tokenizer='char'`) or bytes (`tokenizer='byte'`)"
        )
    return _tokenizers


@contextlib.contextmanager
def library_errors(what: str) -> Iterator[None]:
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
        said = textwrap.shorten(str(error).replace("`", "'"), 500)  # backticks are for options
        raise DataError(f"{what} cannot be used by the tokenizers library: {said}") from error


_STRAY = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


def _without_stray_spaces(text: str) -> str:
    """What `clean_up_tokenization_spaces` does in transformers, in its order."""
    for stray in _STRAY:
        text = text.replace(stray, stray.strip())
    return text


# What descriptions may hold -----------------------------------------------------------------------

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


def _bpe(value: Any) -> dict[str, Any]:
    """Byte-pair encoding: vocabulary and merges must fit each other, and no merge is left out at
    random."""
    found = _BPE(value)
    merges_within(found["vocab"], found.get("continuing_subword_prefix") or "")(found["merges"])
    return found


def _unigram(value: Any) -> dict[str, Any]:
    """A unigram language model: pieces with scores; `unk_id` is one of them."""
    found = _UNIGRAM(value)
    nullable(integer(0, len(found["vocab"]) - 1))(found.get("unk_id"))
    return found


def _model(value: Any) -> dict[str, Any]:
    """The model of a `tokenizer.json`. Old files do not name its type: their fields tell it."""
    fields = record({}, others=anything)(value)
    guessed = "BPE" if "vocab" not in fields or "merges" in fields else "WordLevel"
    if type(fields.get("vocab")) is list:
        guessed = "Unigram"
    elif "max_input_chars_per_word" in fields:
        guessed = "WordPiece"
    kind = one_of(*_MODELS)(fields.get("type", guessed))
    return _MODELS[kind](value)


_VOCABULARY = {"vocab": distinct_ids}
_BPE = record(
    {**_VOCABULARY, "merges": array(anything)},
    {
        "type": anything,
        "dropout": nullable(number(0, 0)),
        "continuing_subword_prefix": nullable(string(most=100)),
    },
    others=anything,
)
_UNIGRAM = record(
    {"vocab": array(row(string(), number()), 1, MOST_IDS)},
    {"type": anything, "byte_fallback": boolean},
    others=anything,
)
_MODELS: dict[str, Schema] = {
    "BPE": _bpe,
    "Unigram": _unigram,
    "WordPiece": record(_VOCABULARY, {"type": anything}, others=anything),
    "WordLevel": record(_VOCABULARY, {"type": anything}, others=anything),
}

DESCRIPTION = record(
    {"model": _model},
    {"added_tokens": array(record({"id": ID, "content": string()}, others=anything))},
    others=anything,
)
"""A `tokenizer.json` of the `tokenizers` library, which checks the rest itself."""

_SPECIAL_IDS = record(
    {}, {"bos": nullable(ID), "eos": array(ID), "pad": nullable(ID), "unk": nullable(ID)}
)
STATE = record(
    {"kind": anything, "tokenizer": DESCRIPTION}, {"ids": _SPECIAL_IDS, "clean_up": boolean}
)
"""What `Subwords.to_json` writes."""
