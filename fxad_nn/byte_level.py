"""Byte-level BPE from the files it is published in: `vocab.json` with `merges.txt`, and tiktoken's.

    description = gpt2_files(Path("gpt2"), "GPT2Tokenizer")
    description = tiktoken_file(Path("qwen/qwen.tiktoken"))

Both return a description that `subwords.load` reads. A byte is written as one printable character
in such a vocabulary: itself where it is printable, else the next character from U+0100 on
(Radford et al. 2019, "Language Models are Unsupervised Multitask Learners").
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Any

from fxad.core.schema import check, read, read_bytes, shown
from fxad_nn.errors import DataError
from fxad_nn.subwords import MOST_IDS, distinct_ids, merges_within

GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _words(digits: str) -> str:
    """How cl100k and its heirs split a text; `digits` says how many digits stay together."""
    return (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


CL100K_WORDS = _words(r"\p{N}{1,3}")  # Llama 3 as well
QWEN_WORDS = _words(r"\p{N}")
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K_WORDS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_ENDING}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_ENDING}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TIKTOKEN_WORDS = {
    "gpt2": GPT2_WORDS,
    "r50k_base": GPT2_WORDS,
    "p50k_base": GPT2_WORDS,
    "o200k_base": O200K_WORDS,
    "qwen": QWEN_WORDS,
}
"""The files do not say how a text is split: by their name, and as cl100k does for other names."""

LONGEST_TOKEN = 256
LARGEST_FILE = 32 << 20
"""Bytes. Every split of every token is looked at: the two bound the time that takes."""


def _printable() -> list[str]:
    """The character of each of the 256 bytes."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in kept else next(others)) for byte in range(256)]


_CHARACTERS = dict(enumerate(_printable()))


def description(
    vocab: dict[str, int],
    merges: list[tuple[str, str]],
    words: str,
    *,
    nfc: bool = False,
    add_prefix_space: bool = False,
    ignore_merges: bool = False,
) -> dict[str, Any]:
    """Byte-level BPE as a `tokenizer.json`; `words` is the regular expression of what is merged.

    `ignore_merges`: a word that is a token needs no merges.
    """
    split = {"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": False}
    first = {"type": "ByteLevel", "use_regex": False, **level}
    # ByteLevel prepends its space before it splits: so for GPT-2 its own expression is used.
    steps = [{**first, "use_regex": True}] if words == GPT2_WORDS else [split, first]
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "NFC"} if nfc else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "decoder": {**first, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": ignore_merges,
            "vocab": vocab,
            "merges": merges,
        },
    }


def gpt2_files(
    directory: str | Path, tokenizer_class: str = "GPT2Tokenizer", add_prefix_space: bool = False
) -> dict[str, Any]:
    """From `vocab.json` and `merges.txt` in a directory, GPT-2's or Qwen 2's."""
    directory = Path(directory)
    paths = vocab_path, merges_path = directory / "vocab.json", directory / "merges.txt"
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path} is missing: GPT-2's encoding needs vocab.json, merges.txt")
    vocab = read(vocab_path, distinct_ids, DataError)
    merges = check(_merges(merges_path), merges_within(vocab), str(merges_path), DataError)
    qwen = tokenizer_class == "Qwen2Tokenizer"
    words = QWEN_WORDS if qwen else GPT2_WORDS
    return description(vocab, merges, words, nfc=qwen, add_prefix_space=add_prefix_space)


def _merges(path: Path) -> list[str]:
    """The lines of a merges.txt but for its first, which is its version."""
    try:
        lines = read_bytes(path, DataError).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no UTF-8 text (byte {error.start})") from error
    stripped = [line.removesuffix("\r") for line in lines]
    return [line for line in stripped if line and not line.startswith("#version")]


def is_tiktoken(content: bytes) -> bool:
    """Whether a file begins as tiktoken's do: some bytes in base64 and an id."""
    words = content[:200].split(b"\n", 1)[0].split()
    return len(words) == 2 and words[1].isdigit() and _unbase64(words[0]) is not None


def tiktoken_file(path: str | Path) -> dict[str, Any]:
    """From a file of tiktoken: on each line a token's bytes in base64 and its id, which is also
    its rank. Two neighbours merge if together they are a token, the lowest rank first."""
    path = Path(path)
    ranks = _ranks(path)
    single = [bytes([byte]) for byte in range(256)]
    if missing := [byte for byte in single if byte not in ranks]:
        raise DataError(f"{path} has no token for the byte {missing[0]!r}")
    names = {token: token.decode("latin-1").translate(_CHARACTERS) for token in ranks}
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        splits = [(token[:at], token[at:]) for at in range(1, len(token))]
        known = [(left, right) for left, right in splits if left in ranks and right in ranks]
        known.sort(key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
        merges += [(names[left], names[right]) for left, right in known]
    vocab = {names[token]: rank for token, rank in ranks.items()}
    words = TIKTOKEN_WORDS.get(path.stem, CL100K_WORDS)
    return description(vocab, merges, words, ignore_merges=True)


def _ranks(path: Path) -> dict[bytes, int]:
    """The tokens of a tiktoken file with their ranks, both without repetition."""
    ranks: dict[bytes, int] = {}
    content = read_bytes(path, DataError, LARGEST_FILE)
    for line, text in enumerate(content.splitlines(), 1):
        if not (words := text.split()):
            continue
        token = _unbase64(words[0]) if len(words) == 2 else None
        if not token or not words[-1].isdigit() or len(words[-1]) > 9:
            raise DataError(f"{path}, line {line}: needs base64 and an id, got {shown(text)}")
        if len(token) > LONGEST_TOKEN:
            raise DataError(f"{path}, line {line}: a token has at most {LONGEST_TOKEN} bytes")
        if token in ranks:
            raise DataError(f"{path}, line {line}: the token {shown(token)} appears twice")
        ranks[token] = int(words[1])
        if ranks[token] >= MOST_IDS:
            raise DataError(f"{path}, line {line}: ids are below {MOST_IDS}, got {ranks[token]}")
    if len(set(ranks.values())) != len(ranks):
        raise DataError(f"{path} gives one id to two tokens")
    return ranks


def _unbase64(text: bytes) -> bytes | None:
    """The bytes written in base64, None if they are not."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
