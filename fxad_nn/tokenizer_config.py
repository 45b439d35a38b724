"""What a Hugging Face directory says about its tokenizer beside the vocabulary.

    config = read_config(Path("llama"))
    config.named                                    # {"bos_token": "<s>", "eos_token": "</s>", ...}

Read are `tokenizer_config.json`; `special_tokens_map.json` and `added_tokens.json`, which older
directories have in its place; and the ids in `generation_config.json`, else in `config.json`.
Which file counts where two of them speak is as in transformers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fxad.core.schema import (
    LIMITS,
    Mismatch,
    Schema,
    anything,
    array,
    boolean,
    mapping,
    nullable,
    one_of,
    read,
    record,
    shown,
    string,
)
from fxad_nn.errors import DataError
from fxad_nn.subwords import ID, MOST_IDS, AddedToken, distinct_ids
from fxad_nn.vocabulary import NO_IDS, SpecialIds

NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""The special tokens that every tokenizer may have; others end in `_token` too."""

CONFIG, TOKENIZER_CONFIG = "config.json", "tokenizer_config.json"


@dataclass(frozen=True)
class TokenizerConfig:
    """The settings of a directory's tokenizer; what no file says has its usual value."""

    named: dict[str, str] = field(default_factory=dict)
    """The texts of special tokens by name, in the order of `NAMES`, others after them."""
    added: dict[int, AddedToken] = field(default_factory=dict)
    """The tokens that were added to the vocabulary, by id."""
    special: tuple[AddedToken, ...] = ()
    """Those of `named`, then the special ones without a name."""
    generation: SpecialIds = NO_IDS
    """The ids of generation_config.json, else of config.json."""
    tokenizer_class: str | None = None
    add_bos_token: bool = False
    add_eos_token: bool = False
    add_prefix_space: bool = False
    legacy: bool | None = None
    clean_up: bool = False

    def ids(self, id_of: Any, size: int) -> SpecialIds:
        """The special ids; `id_of` gives the id of a token's text or None.

        Ids of `generation` that the tokenizer has no token for are left out: models that were
        built with another vocabulary in mind keep the defaults of their family there.
        """
        known = {name: id_of(text) for name, text in self.named.items()}
        ends = [known.get("eos_token"), *self.generation.eos]
        within = [end for end in ends if end is not None and end < size]

        def one(name: str, generation: int | None) -> int | None:
            if (found := known.get(name)) is not None:
                return found
            return generation if generation is not None and generation < size else None

        return SpecialIds(
            bos=one("bos_token", self.generation.bos),
            eos=tuple(dict.fromkeys(within)),
            pad=one("pad_token", self.generation.pad),
            unk=one("unk_token", None),
        )


def read_config(directory: Path) -> TokenizerConfig:
    """What the files of `directory` say; DataError for one that is damaged."""
    path = directory / TOKENIZER_CONFIG
    found = read(path, SETTINGS, DataError) if path.exists() else {}
    added = {int(i): token for i, token in found.get("added_tokens_decoder", {}).items()}
    if "added_tokens_decoder" not in found:
        found |= _optional(directory / "special_tokens_map.json", SPECIAL_TOKENS)
    extra = found.get("extra_special_tokens") or found.get("additional_special_tokens") or []
    if type(extra) is dict:
        found, extra = {**found, **extra}, []
    tokens = {name: found[name] for name in NAMES if found.get(name) is not None}
    tokens |= {name: token for name, token in found.items() if isinstance(token, AddedToken)}
    special = (*tokens.values(), *extra)
    if "added_tokens_decoder" not in found:
        texts = {token.content for token in special}
        for text, i in _optional(directory / "added_tokens.json", distinct_ids).items():
            added[i] = AddedToken(text, special=text in texts, normalized=text not in texts)
    return TokenizerConfig(
        named={name: token.content for name, token in tokens.items()},
        added=added,
        special=special,
        generation=_generation(directory),
        tokenizer_class=(found.get("tokenizer_class") or "").removesuffix("Fast") or None,
        add_bos_token=found.get("add_bos_token") or False,
        add_eos_token=found.get("add_eos_token") or False,
        add_prefix_space=found.get("add_prefix_space") or False,
        legacy=found.get("legacy"),
        clean_up=found.get("clean_up_tokenization_spaces") or False,
    )


def _generation(directory: Path) -> SpecialIds:
    for name in ("generation_config.json", CONFIG):
        if (directory / name).exists():
            found = read(directory / name, GENERATION, DataError)
            ends = found.get("eos_token_id")
            eos = ends if type(ends) is list else [] if ends is None else [ends]
            return SpecialIds(found.get("bos_token_id"), tuple(eos), found.get("pad_token_id"))
    return NO_IDS


def _optional(path: Path, schema: Schema) -> dict[str, Any]:
    return read(path, schema, DataError) if path.exists() else {}


def _token(value: Any) -> AddedToken:
    """A special token: its text alone, or a record of the library's fields."""
    if type(value) is str:
        return _not_empty(AddedToken(value))
    fields = _TOKEN(value)
    fields.pop("__type", None)
    special = fields.pop("special", None)
    return _not_empty(AddedToken(**{"special": True if special is None else special, **fields}))


def _decoded(value: Any) -> AddedToken:
    """A token of added_tokens_decoder, where what is not called special is not."""
    fields = {"special": False, **_TOKEN(value)}
    fields.pop("__type", None)
    return _not_empty(AddedToken(**{"normalized": not fields["special"], **fields}))


def _not_empty(token: AddedToken) -> AddedToken:
    if not token.content:
        raise Mismatch("is a token without a text")
    return token


def _id_text(value: Any) -> None:
    """The key of added_tokens_decoder: an id in decimal."""
    if not (value.isascii() and value.isdigit() and len(value) < 9 and int(value) < MOST_IDS):
        raise Mismatch(f"must have ids as keys, got {shown(value)}")


def _either(first: type, one: Schema, other: Schema) -> Schema:
    """What `one` allows for a value of the type `first`, what `other` allows for the rest."""
    return lambda value: one(value) if type(value) is first else other(value)


def _with_own_tokens(schema: Schema) -> Schema:
    """`schema`, and texts under other names that end in `_token` are special tokens, too."""

    def checked(value: Any) -> dict[str, Any]:
        found = schema(value)
        own = {n: v for n, v in found.items() if n.endswith("_token") and type(v) is str}
        return {**found, **{name: _token(text) for name, text in own.items()}}

    return checked


_TOKEN = record(
    {"content": string(most=LIMITS.size)},
    dict.fromkeys(("special", "normalized", "lstrip", "rstrip", "single_word"), boolean)
    | {"__type": anything},
)
_EXTRA = nullable(_either(dict, mapping(_token), array(_token)))
_SPECIAL = {name: nullable(_token) for name in NAMES}
_SPECIAL |= {"additional_special_tokens": _EXTRA, "extra_special_tokens": _EXTRA}
_SWITCHES = "add_bos_token add_eos_token add_prefix_space legacy clean_up_tokenization_spaces"
_ID = nullable(_either(list, lambda value: array(ID, 1)(value)[0], ID))


SPECIAL_TOKENS = _with_own_tokens(record({}, _SPECIAL, others=anything))
SETTINGS = _with_own_tokens(
    record(
        {},
        _SPECIAL
        | {name: nullable(boolean) for name in _SWITCHES.split()}
        | {"added_tokens_decoder": mapping(_decoded, _id_text)}
        | {"tokenizer_class": nullable(string(most=200))}
        | {"split_special_tokens": nullable(one_of(False))},  # they are found in every text
        others=anything,
    )
)
GENERATION = record(
    {},
    {
        "bos_token_id": _ID,
        "pad_token_id": _ID,
        "eos_token_id": nullable(_either(list, array(ID), ID)),
    },
    others=anything,
)
