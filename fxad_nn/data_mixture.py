"""Data mixtures: sources that are read each in its own order, in shares that are chosen.

    data = open_mixture(("books:0.7", "code.txt:0.3"), "gpt2", Path("gpt2"))
    tokens, targets = mixed_batch(data.train, data.shares, 12, 1024, seed=1, index=0)

Seven of ten rows are windows of `books`, whatever its size: a source that is read to its end is
read again, in another order. Which row is of which source, and which of its windows, follows from
the seed and the number of the batch alone, so that a resumed run reads what an unbroken one does.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fxad_nn.data import (
    Batch,
    Dataset,
    Shares,
    Tokens,
    is_sharded,
    make_tokenizer,
    open_data,
    shard_tokenizer,
    window_rows,
)
from fxad_nn.errors import ConfigError, DataError
from fxad_nn.text import read_text
from fxad_nn.tokenizer import Tokenizer

BLOCK = 4096
"""Rows after which every source has had its share exactly; shares are multiples of 1 / BLOCK."""


def open_mixture(
    sources: Sequence[str],
    tokenizer: str = "char",
    vocabulary: str | Path | None = None,
    vocab: int = 50257,
    known: Tokenizer | None = None,
    marked: bool = False,
) -> Dataset:
    """The sources "PATH:WEIGHT" (without a weight 1), each what `open_data` takes, as one data set.

    Weights are relative. All have one tokenizer; characters are learned from all the texts.
    Validation reads all sources one after another. marked: as in `open_data`. Raises
    ConfigError for a source that is none, or of too small a weight, and as `open_data`.
    """
    paths, weights = zip(*map(parsed_source, sources), strict=True)
    if len(set(paths)) != len(paths):
        raise ConfigError(f"a mixture names each source once, got {', '.join(map(str, paths))}")
    texts = [read_text(path, marked) for path in paths if not is_sharded(path)]
    encoder = known
    if encoder is None and texts:
        encoder = make_tokenizer(tokenizer, vocabulary, "".join(texts))
    elif encoder is None:
        encoder = shard_tokenizer(tokenizer, vocabulary, vocab)
    bound = min(vocab, encoder.size)
    parts = [open_data(path, tokenizer, vocabulary, bound, encoder, marked) for path in paths]
    counts = _apportioned(weights)
    for path, count in zip(paths, counts, strict=True):
        if not count:
            raise ConfigError(f"{path} has less than 1 / {BLOCK} of the weights: leave it out")
    named = [f"{p.source} {n / BLOCK:.1%}" for p, n in zip(parts, counts, strict=True)]
    digests = "".join(part.digest for part in parts)
    return Dataset(
        tuple(tokens for part in parts for tokens in part.train),
        tuple(tokens for part in parts for tokens in part.val),
        encoder,
        ", ".join(named),
        tuple((len(part.train), count) for part, count in zip(parts, counts, strict=True)),
        hashlib.sha256(digests.encode()).hexdigest() if digests else "",
    )


def parsed_source(source: str) -> tuple[Path, float]:
    """The path and the weight of "PATH:WEIGHT"; ConfigError where it is no such text."""
    name, colon, text = source.rpartition(":")
    if not colon:
        name, text = source, "1"
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not (name and math.isfinite(weight) and weight > 0):
        raise ConfigError(
            f"a source of a mixture is PATH:WEIGHT, such as a.txt:0.7, got {source!r}"
        )
    if name.endswith((".jsonl", ".json")):
        raise ConfigError(f"{name} holds documents: make shards of it first (fxad_nn prepare)")
    return Path(name), weight


def _apportioned(weights: Sequence[float]) -> list[int]:
    """`BLOCK` rows in the proportion of the weights, by largest remainders (Hamilton's method)."""
    exact = [BLOCK * weight / math.fsum(weights) for weight in weights]
    counts = [math.floor(x) for x in exact]
    left = sorted(range(len(exact)), key=lambda i: (counts[i] - exact[i], i))
    for i in left[: BLOCK - sum(counts)]:
        counts[i] += 1
    return counts


def split_sources(tokens: Tokens, shares: Shares) -> list[Tokens]:
    """The parts of each source."""
    ends = np.cumsum([count for count, _ in shares])
    return [tokens[end - count : end] for end, (count, _) in zip(ends, shares, strict=True)]


def mixed_batch(
    tokens: Tokens, shares: Shares, size: int, context: int, seed: int, index: int
) -> Batch:
    """Batch number `index` of an endless shuffled reading of a mixture, as `data.random_batch`.

    Of each `BLOCK` rows every source has its share, in random order.
    """
    rows = np.empty((size, context + 1), np.int32)
    sources = split_sources(tokens, shares)
    for row, drawn in zip(rows, range(index * size, (index + 1) * size), strict=True):
        source, number = drawn_from(shares, seed, drawn)
        row[:] = window_rows(sources[source], context, (seed, source), number)
    return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])


def drawn_from(shares: Shares, seed: int, drawn: int) -> tuple[int, int]:
    """The source of a row by the row's number, and how many rows of that source came before."""
    block, place = divmod(drawn, BLOCK)
    order, before = _block(shares, seed, block)
    source = int(order[place])
    return source, block * shares[source][1] + int(before[place])


@functools.lru_cache(maxsize=4)
def _block(shares: Shares, seed: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """The source of each row of a block, and how many rows of it the block has before."""
    counts = [count for _, count in shares]
    if sum(counts) != BLOCK:
        raise DataError(f"the shares of a mixture must sum to {BLOCK}, got {counts}")
    random = np.random.Generator(np.random.Philox(key=[seed, block]))
    order = random.permutation(np.repeat(np.arange(len(counts)), counts))
    before = np.empty(BLOCK, np.int64)
    for source, count in enumerate(counts):
        before[order == source] = np.arange(count)
    return order, before
