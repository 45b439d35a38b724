"""Data sets: token arrays on disk, random training batches, evaluation over a whole split.

data = open_data(Path("input.txt"), "char")
tokens, targets = random_batch(data.train, size=12, context=64, seed=1, index=0)
for tokens, targets in windows(data.val, size=12, context=64): ...
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fxad_nn.errors import ConfigError, DataError, did_you_mean
from fxad_nn.files import cache_directory
from fxad_nn.loss import IGNORE
from fxad_nn.shards import read_shard
from fxad_nn.text import Text, find_text
from fxad_nn.token_cache import read_tokens, write_tokens
from fxad_nn.token_file import TokenSequence
from fxad_nn.tokenizer import Bytes, Characters, Ids, Tokenizer, from_directory

TRAIN_SHARE = 0.9
TOKENIZERS = ("char", "byte", "gpt2", "ids")

Tokens = tuple[TokenSequence, ...]
"""A split: one or more parts, integers [length]; no window crosses from one into the next."""
Batch = tuple[np.ndarray, np.ndarray]
"""Tokens and targets, both int32 [size, context]."""
Shares = tuple[tuple[int, int], ...]
"""Of each source of a mixture, how many parts it has, and how many rows of each block."""


@dataclass(frozen=True)
class Dataset:
    """Two splits, the tokenizer they were made with, and in words where they come from; of a
    mixture (`fxad_nn.data_mixture`) the shares of its sources. digest: SHA-256 of the text, by
    which a resumed run knows it again; "" of shards, which may be too large to read, and of texts
    that were read `marked`, as those of older runs, which have no digest.
    """

    train: Tokens
    val: Tokens
    tokenizer: Tokenizer
    source: str
    shares: Shares = ()
    digest: str = ""


def open_data(
    path: str | Path | None,
    tokenizer: str = "char",
    vocabulary: str | Path | None = None,
    vocab: int = 50257,
    known: Tokenizer | None = None,
    marked: bool = False,
) -> Dataset:
    """A text file, or llm.c shards where `path` is a .bin file or a directory of them.

    `tokenizer` is one of `TOKENIZERS`; "gpt2" reads its files from the directory `vocabulary`;
    `known` is used instead where a model already has its tokenizer. For shards `vocab` bounds
    the ids. marked: as in `fxad_nn.text.read_text`. Text is tokenized once and kept in the cache
    directory.
    """
    if path is not None and is_sharded(path):
        encoder = known or shard_tokenizer(tokenizer, vocabulary, vocab)
        return _open_shards(Path(path), encoder, vocab)
    text = find_text(path, marked=marked)
    encoder = known or make_tokenizer(tokenizer, vocabulary, text.content)
    train, val = (tokenized(part, encoder) for part in _split(text))
    digest = "" if marked else hashlib.sha256(text.content.encode()).hexdigest()
    return Dataset((train,), (val,), encoder, text.source, digest=digest)


def is_sharded(path: str | Path) -> bool:
    """Whether a path is read as token shards, not as a text."""
    path = Path(path)
    return path.is_dir() or path.suffix == ".bin"


def make_tokenizer(name: str, vocabulary: str | Path | None, text: str) -> Tokenizer:
    """The tokenizer of that name; characters are learned from `text`."""
    if name == "char":
        return Characters.of(text)
    if name == "byte":
        return Bytes()
    if name == "gpt2":
        if vocabulary is None:
            raise ConfigError("the gpt2 tokenizer needs `vocabulary=DIR`, a model's directory")
        return from_directory(vocabulary)
    raise ConfigError(
        f"text cannot be read with tokenizer {name!r}{did_you_mean(name, TOKENIZERS)}"
    )


def tokenized(text: str, tokenizer: Tokenizer) -> TokenSequence:
    """The ids of `text`, from the cache; made and put there the first time, and again, with a
    DamageWarning, where what is there is not what was written."""
    name = hashlib.sha256(tokenizer.to_json().encode() + b"\0" + text.encode()).hexdigest()[:32]
    path = cache_directory() / "tokens" / f"{name}.ids"
    dtype = "<u2" if tokenizer.size <= 1 << 16 else "<u4"
    if (cached := read_tokens(path, dtype, tokenizer.size)) is not None:
        return cached
    ids = tokenizer.encode(text).astype(dtype)
    with contextlib.suppress(OSError):  # a full or read-only cache costs the next run some time
        write_tokens(path, ids)
        cached = read_tokens(path, dtype, tokenizer.size)
    return ids if cached is None else cached


def _split(text: Text) -> tuple[str, str]:
    """The first nine tenths for training, the rest for validation, as nanoGPT does."""
    cut = int(len(text.content) * TRAIN_SHARE)
    if not 0 < cut < len(text.content):
        raise DataError(f"{text.source} holds {len(text.content)} characters: too few to split")
    return text.content[:cut], text.content[cut:]


def shard_tokenizer(name: str, vocabulary: str | Path | None, vocab: int) -> Tokenizer:
    """The tokenizer of shards, which do not say theirs: ids, where none is named."""
    if vocabulary is not None and name in ("gpt2", "ids"):
        return from_directory(vocabulary)
    if name == "byte":
        return Bytes()
    return Ids(vocab)


def _open_shards(path: Path, tokenizer: Tokenizer, vocab: int) -> Dataset:
    """One shard split in ten; a directory's `*val*.bin` for validation and the rest to train."""
    if not path.exists():
        raise DataError(f"there is no file {path}")
    paths = sorted(path.glob("*.bin")) if path.is_dir() else [path]
    if not paths:
        raise DataError(f"{path} holds no .bin token shards")
    shards = [(shard, read_shard(shard, vocab)) for shard in paths]
    source = f"{path} ({len(paths)} token shard{'s' if len(paths) > 1 else ''})"
    val = tuple(tokens for shard, tokens in shards if "val" in shard.name)
    train = tuple(tokens for shard, tokens in shards if "val" not in shard.name)
    if train and val:
        return Dataset(train, val, tokenizer, source)
    *rest, last = (tokens for _, tokens in shards)
    cut = int(len(last) * TRAIN_SHARE)
    early, late = last.between(0, cut), last.between(cut, len(last))
    return Dataset((*rest, early), (late,), tokenizer, source)


def require_length(tokens: Tokens, context: int, what: str) -> None:
    """DataError where no part of a split holds a whole window and its last target."""
    longest = max(len(part) for part in tokens)
    if longest <= context:
        raise DataError(
            f"{what} has {longest} tokens, and one window of context {context} needs "
            f"{context + 1}; give more text or a smaller `context`"
        )


def random_batch(tokens: Tokens, size: int, context: int, seed: int, index: int) -> Batch:
    """Batch number `index` of an endless shuffled reading of a split.

    Every epoch cuts each part into windows at a new random phase and visits all of them once in
    random order: on small texts that sees more of the text than independent draws do. A pure
    function of its arguments, so resuming needs nothing but the number of the batch.
    """
    rows = np.empty((size, context + 1), np.int32)
    for row, drawn in zip(rows, range(index * size, (index + 1) * size), strict=True):
        row[:] = window_rows(tokens, context, (seed, 0), drawn)
    return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])


def window_rows(tokens: Tokens, context: int, seed: tuple[int, int], number: int) -> np.ndarray:
    """Window `number` of an endless shuffled reading, [context + 1]; seed: and which source of a
    mixture these tokens are."""
    lengths = tuple(len(part) for part in tokens)
    total = windows_per_epoch(lengths, context)
    epoch, position = divmod(number, total)
    if total <= MOST_AT_ONCE:
        part, start = _epoch(lengths, context, seed, epoch)[position]
    else:
        part, start = _in_groups(lengths, context, seed, epoch, position)
    window: np.ndarray = tokens[part][start : start + context + 1]
    return window


def _window_counts(lengths: tuple[int, ...], context: int) -> list[int]:
    """Windows per part, one fewer than fit where that leaves at least one, so phases can vary."""
    whole = [(length - 1) // context for length in lengths]
    return [max(count - 1, min(count, 1)) for count in whole]


def windows_per_epoch(lengths: tuple[int, ...], context: int) -> int:
    """How many windows an epoch has; DataError for none."""
    total = sum(_window_counts(lengths, context))
    if total < 1:
        raise DataError(f"no part of the split holds a window of context {context}")
    return total


@functools.lru_cache(maxsize=8)
def _epoch(lengths: tuple[int, ...], context: int, seed: tuple[int, int], epoch: int) -> np.ndarray:
    """The shuffled (part, start) of every window of one epoch, int64 [windows, 2]."""
    random = _philox(seed, epoch, 0)
    order = []
    for part, count in enumerate(_window_counts(lengths, context)):
        phase = random.integers(max(lengths[part] - count * context, 1))
        starts = phase + context * np.arange(count)
        order.append(np.stack([np.full(count, part), starts], axis=1))
    return random.permutation(np.concatenate(order))


MOST_AT_ONCE = 1 << 24
"""Windows that are shuffled all together, with 16 bytes for each. More are in two levels."""

RUN = 1 << 10
"""Neighbouring windows that stay in one group."""

GROUP = 1 << 10
"""Runs of windows, from anywhere, that are shuffled together."""


def _in_groups(
    lengths: tuple[int, ...], context: int, seed: tuple[int, int], epoch: int, position: int
) -> tuple[int, int]:
    """(part, start) of the window at a position of an epoch, shuffled in two levels: runs of
    windows among each other, then the windows of each group of runs.

    In memory are the runs, and the windows of one group: of 100 billion tokens in windows of 1024
    about 20 MB.
    """
    _, ends = _runs(lengths, context, seed, epoch)
    group = int(np.searchsorted(ends, position, side="right"))
    before = int(ends[group - 1]) if group else 0
    part, start = _group(lengths, context, seed, epoch, group)[position - before]
    return int(part), int(start)


@functools.lru_cache(maxsize=8)
def _runs(
    lengths: tuple[int, ...], context: int, seed: tuple[int, int], epoch: int
) -> tuple[np.ndarray, np.ndarray]:
    """The shuffled (part, start, windows) of every run, int64 [runs, 3], and where groups of them
    end in the order of windows."""
    random = _philox(seed, epoch, 0)
    found = []
    for part, count in enumerate(_window_counts(lengths, context)):
        phase = random.integers(max(lengths[part] - count * context, 1))
        first = np.arange(0, count, RUN)
        sizes = np.minimum(count - first, RUN)
        found.append(np.stack([np.full(len(first), part), phase + context * first, sizes], axis=1))
    runs = random.permutation(np.concatenate(found))
    return runs, np.cumsum(np.add.reduceat(runs[:, 2], np.arange(0, len(runs), GROUP)))


@functools.lru_cache(maxsize=4)
def _group(
    lengths: tuple[int, ...], context: int, seed: tuple[int, int], epoch: int, group: int
) -> np.ndarray:
    """The shuffled (part, start) of every window of a group, int64 [windows, 2]."""
    runs = _runs(lengths, context, seed, epoch)[0][group * GROUP : (group + 1) * GROUP]
    starts = [start + context * np.arange(size) for _, start, size in runs]
    parts = np.repeat(runs[:, 0], runs[:, 2])
    windows = np.stack([parts, np.concatenate(starts)], axis=1)
    return _philox(seed, epoch, group + 1).permutation(windows)


def _philox(seed: tuple[int, int], epoch: int, part: int) -> np.random.Generator:
    """A generator for a part of an epoch's order; each has 2^128 numbers of its own."""
    number, source = seed
    key = [number, epoch + (source << 40)]
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, part, 0]))


def windows(
    tokens: Tokens, size: int, context: int, keep: Callable[[int], bool] = lambda index: True
) -> Iterator[Batch]:
    """Every target of a split once, in order, as batches of whole shape [size, context].

    Windows do not overlap; what is missing at the end has token 0 and target `IGNORE`. `keep`
    chooses windows by number, to evaluate on a sample of them.
    """
    rows: list[tuple[np.ndarray, np.ndarray]] = []
    starts = ((part, at) for part in tokens for at in range(0, len(part) - 1, context))
    for index, (part, at) in enumerate(starts):
        if keep(index):
            rows.append((part[at : at + context], part[at + 1 : at + context + 1]))
        if len(rows) == size:
            yield _stacked(rows, size, context)
            rows = []
    if rows:
        yield _stacked(rows, size, context)


def _stacked(rows: list[tuple[np.ndarray, np.ndarray]], size: int, context: int) -> Batch:
    tokens = np.zeros((size, context), np.int32)
    targets = np.full((size, context), IGNORE, np.int32)
    for i, (row, wanted) in enumerate(rows):
        tokens[i, : len(wanted)] = row[: len(wanted)]
        targets[i, : len(wanted)] = wanted
    return tokens, targets


def count_windows(tokens: Tokens, context: int) -> int:
    """How many windows `windows` cuts a split into."""
    return sum(-(-(len(part) - 1) // context) for part in tokens if len(part) > 1)
