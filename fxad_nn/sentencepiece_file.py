"""SentencePiece models, `tokenizer.model`: read without the library, run by `tokenizers`.

    description, named = sentencepiece_file(Path("llama/tokenizer.model"))
    named                                           # {"bos_token": "<s>", "eos_token": "</s>", ...}

The file is one protocol buffer message (sentencepiece_model.proto): pieces with scores and types,
how the model was trained, and how a text is normalised. Its two kinds of models become the same of
a `tokenizer.json`: Unigram with its scores, BPE with every split of a piece into two pieces as a
merge, the best score first, which is the order in which SentencePiece merges.

What comes out is what transformers makes of the file. From the library itself it differs where
several segmentations of a Unigram model have the same score, as those of a row of one character
have: the library sums scores in float32 and takes the one that rounding favours, `tokenizers` sums
in float64. For control pieces and the space before a text, see `sentencepiece_file`.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fxad.core.schema import read_bytes, shown
from fxad_nn.errors import DataError

SPACE = "\u2581"  # what stands for a space within pieces
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # types of pieces
UNIGRAM, BPE = 1, 2  # types of models; the others are words and characters

LONGEST_PIECE = 256
LARGEST_FILE = 32 << 20
"""Characters and bytes. Every split of every piece is looked at: the two bound the time."""


# Protocol buffers ---------------------------------------------------------------------------------


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """The number and the value of each field of a message: an integer, or bytes.

    The encoding: https://protobuf.dev/programming-guides/encoding
    """
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(content, at)
            yield number, value
            continue
        size, at = _varint(content, at) if wire == 2 else ({1: 8, 5: 4}.get(wire, -1), at)
        if size < 0 or at + size > len(content):
            raise ValueError(f"field {number} goes beyond its message")
        yield number, content[at : at + size]
        at += size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """An integer in groups of seven bits, the lowest first, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(content):
            break
        value |= (content[at] & 0x7F) << shift
        at += 1
        if content[at - 1] < 0x80:
            return value, at
    raise ValueError(f"a number at byte {at} has no end")


def _message(content: Any) -> dict[int, Any]:
    """A message whose fields do not repeat: the last of each number counts."""
    return dict(_fields(_bytes(content)))


def _bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise ValueError(f"a number stands where bytes belong: {value}")
    return value


def _text(value: Any) -> str:
    return _bytes(value).decode("utf-8")


def _number(value: Any, default: int) -> int:
    """An int32 or a bool, `default` where the field is missing."""
    if value is None:
        return default
    if type(value) is not int:
        raise ValueError(f"bytes stand where a number belongs: {shown(value)}")
    return value - (1 << 64) if value >= 1 << 63 else value


# The model ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Piece:
    text: str
    score: float
    type: int


@dataclass(frozen=True)
class _Model:
    """What a `tokenizer.model` says, in the names of sentencepiece_model.proto."""

    pieces: list[_Piece]
    trainer: dict[int, Any]
    normalizer: dict[int, Any]

    @property
    def type(self) -> int:
        return _number(self.trainer.get(3), UNIGRAM)

    @property
    def byte_fallback(self) -> bool:
        return bool(_number(self.trainer.get(35), 0))

    @property
    def unk_id(self) -> int:
        return _number(self.trainer.get(40), 0)

    def named(self) -> dict[str, str]:
        """The texts of the special tokens that the model has."""
        fields = {"unk_token": (40, 0), "bos_token": (41, 1), "eos_token": (42, 2)}
        fields["pad_token"] = (43, -1)
        ids = {
            name: _number(self.trainer.get(at), default) for name, (at, default) in fields.items()
        }
        return {name: self.pieces[i].text for name, i in ids.items() if 0 <= i < len(self.pieces)}

    def normalizes(self, field: int) -> bool:
        """A switch of the normalizer; all of them are on unless the file says otherwise."""
        return bool(_number(self.normalizer.get(field), 1))


def _read(path: Path) -> _Model:
    try:
        pieces, trainer, normalizer = [], b"", b""
        for number, value in _fields(read_bytes(path, DataError, LARGEST_FILE)):
            if number == 1:
                pieces.append(_piece(value))
            elif number == 2:
                trainer += _bytes(value)
            elif number == 3:
                normalizer += _bytes(value)
        model = _Model(pieces, _message(trainer), _message(normalizer))
        _check(model)
    except (ValueError, struct.error) as failure:
        if isinstance(failure, DataError):
            raise
        raise DataError(f"{path} is no SentencePiece model: {failure}") from failure
    return model


def _piece(content: Any) -> _Piece:
    fields = _message(content)
    [score] = struct.unpack("<f", _bytes(fields.get(2, bytes(4))))
    if score != score or abs(score) == float("inf"):
        raise ValueError(f"the score {score} of a piece is no number")
    return _Piece(_text(fields.get(1, b"")), score, _number(fields.get(3), NORMAL))


def _check(model: _Model) -> None:
    """ValueError for what cannot be run as a `tokenizer.json`."""
    if model.type not in (UNIGRAM, BPE):
        raise ValueError(f"models of type {model.type} (words or characters) are not supported")
    if _number(model.trainer.get(24), 0):
        raise ValueError(
            "spaces at the end of pieces (treat_whitespace_as_suffix) are not supported"
        )
    texts = [piece.text for piece in model.pieces]
    if not texts or not 0 <= model.unk_id < len(texts):
        raise ValueError(f"unk_id {model.unk_id} is not one of {len(texts)} pieces")
    if longest := max((text for text in texts if len(text) > LONGEST_PIECE), default=None):
        raise ValueError(f"the piece {shown(longest)} is longer than {LONGEST_PIECE} characters")
    if len(set(texts)) != len(texts):
        raise ValueError("two pieces are the same")


# As a tokenizer.json ------------------------------------------------------------------------------


def sentencepiece_file(
    path: str | Path, legacy: bool = True
) -> tuple[dict[str, Any], dict[str, str]]:
    """The description that `subwords.load` reads, and the special tokens that the model names.

    `legacy` is a word of tokenizer_config.json: the space that SentencePiece puts before a text is
    put before every part between special tokens. Otherwise it is put before the first one alone,
    and, unlike in SentencePiece, not where the text begins with a space.

    Control pieces and user-defined ones are found in texts, as transformers does it: SentencePiece
    itself takes the former for plain text.
    """
    path = Path(path)
    model = _read(path)
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": piece.text, "special": True, "normalized": False}
            | {"single_word": False, "lstrip": False, "rstrip": False}
            for i, piece in enumerate(model.pieces)
            if piece.type == CONTROL and piece.text
        ],
        "normalizer": _normalizer(model, legacy),
        "pre_tokenizer": _pre_tokenizer(model, legacy),
        "decoder": _decoder(model),
        "model": _unigram(model) if model.type == UNIGRAM else _bpe(model),
    }, model.named()


def _unigram(model: _Model) -> dict[str, Any]:
    vocab = [[piece.text, piece.score] for piece in model.pieces]
    unknown, fallback = model.unk_id, model.byte_fallback
    return {"type": "Unigram", "unk_id": unknown, "vocab": vocab, "byte_fallback": fallback}


def _bpe(model: _Model) -> dict[str, Any]:
    user_defined = _user_defined(model)
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": model.pieces[model.unk_id].text,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": model.byte_fallback,
        "ignore_merges": bool(user_defined),  # they are whole, and no merge makes them
        "vocab": {piece.text: i for i, piece in enumerate(model.pieces)},
        "merges": _merges(model),
    }


def _merges(model: _Model) -> list[tuple[str, str]]:
    """Every split of a normal piece into two others; the best score first, then the lower id."""
    normal = {p.text: (-p.score, i) for i, p in enumerate(model.pieces) if p.type == NORMAL}
    merges = []
    for text in sorted(normal, key=normal.__getitem__):
        splits = ((text[:at], text[at:]) for at in range(1, len(text)))
        merges += [pair for pair in splits if pair[0] in normal and pair[1] in normal]
    return merges


def _user_defined(model: _Model) -> list[str]:
    """Pieces that are never split nor merged, the longest first: the longest match counts."""
    pieces = [piece.text for piece in model.pieces if piece.type == USER_DEFINED and piece.text]
    return sorted(pieces, key=lambda text: (-len(text), text))


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _normalizer(model: _Model, legacy: bool) -> dict[str, Any]:
    """In SentencePiece's order: characters, spaces at the ends and in rows, the space before."""
    steps: list[dict[str, Any]] = []
    if charsmap := _bytes(model.normalizer.get(2, b"")):
        encoded = base64.b64encode(charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    if model.normalizes(4):  # remove_extra_whitespaces: only spaces count
        steps.append(_replace({"Regex": r"\A +| +\z"}, ""))
        steps.append(_replace({"Regex": " {2,}"}, " "))
    if model.normalizes(5):  # escape_whitespaces
        steps.append(_replace({"String": " "}, SPACE))
    if model.normalizes(3) and legacy:  # add_dummy_prefix
        steps.append({"type": "Prepend", "prepend": SPACE})
    return {"type": "Sequence", "normalizers": steps}


def _pre_tokenizer(model: _Model, legacy: bool) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    if model.normalizes(3) and not legacy:
        prefix = {"prepend_scheme": "first", "replacement": SPACE, "split": False}
        steps.append({"type": "Metaspace", **prefix})
    if user_defined := _user_defined(model):
        pattern = {"Regex": "|".join(map(re.escape, user_defined))}
        steps.append({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False})
    return {"type": "Sequence", "pretokenizers": steps}


def _decoder(model: _Model) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [_replace({"String": SPACE}, " ")]
    if model.byte_fallback:
        steps.append({"type": "ByteFallback"})
    steps.append({"type": "Fuse"})
    if model.normalizes(3):
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}
