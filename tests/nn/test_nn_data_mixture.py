"""Data mixtures: shares, each source's own order, and runs that are resumed."""

import signal
from collections import Counter

import numpy as np
import pytest
from short_run import At, options, same_as_unbroken

from fxad_nn.cli import main
from fxad_nn.data import random_batch
from fxad_nn.data_mixture import BLOCK, drawn_from, mixed_batch, open_mixture, split_sources
from fxad_nn.errors import ConfigError, DataError
from fxad_nn.run import resumed_options
from fxad_nn.shards import write_shard
from fxad_nn.train import train

CONTEXT = 16


@pytest.fixture
def sources(tmp_path):
    """A directory of two shards and a text, of ids that tell them apart."""
    books = tmp_path / "books"
    books.mkdir()
    write_shard(books / "a.bin", 97 + np.arange(3000) % 13)
    write_shard(books / "b.bin", 97 + np.arange(500) % 7)
    (tmp_path / "code.txt").write_text("0123456789" * 70)
    return f"{books}:3", f"{tmp_path}/code.txt:1.0"


def test_every_source_has_its_share_of_each_block(sources):
    data = open_mixture(sources, "byte")
    assert data.shares == ((2, 3072), (1, 1024))
    assert data.source.endswith("code.txt 25.0%") and "75.0%" in data.source
    drawn = [drawn_from(data.shares, 5, i) for i in range(2 * BLOCK)]
    for start in (0, BLOCK):
        counted = Counter(source for source, _ in drawn[start : start + BLOCK])
        assert counted == {0: 3072, 1: 1024}
    # Every source's own rows in their order, none left out.
    for source in (0, 1):
        numbers = [number for s, number in drawn if s == source]
        assert numbers == list(range(len(numbers)))
    # Of the first rows about as many: 200 draws without replacement, within five deviations.
    first = sum(source for source, _ in drawn[:200])
    assert abs(first - 50) < 5 * np.sqrt(200 * 3 / 16)
    assert drawn != [drawn_from(data.shares, 6, i) for i in range(2 * BLOCK)]


def test_rows_are_windows_of_one_source_and_each_comes_once_an_epoch(sources):
    data = open_mixture(sources, "byte")
    books, code = split_sources(data.train, data.shares)
    assert [len(part) for part in (*books, *code)] == [3000, 450, 630]
    rows = []
    for index in range(100):
        tokens, targets = mixed_batch(data.train, data.shares, 12, CONTEXT, 5, index)
        assert tokens.shape == targets.shape == (12, CONTEXT) and tokens.dtype == np.int32
        np.testing.assert_array_equal(tokens[:, 1:], targets[:, :-1])
        rows += list(tokens)
    digits = [row for row in rows if row.max() < 97]
    assert all(row.min() >= 97 for row in rows if row.max() >= 97)
    assert abs(len(digits) - 300) < 5 * np.sqrt(1200 * 3 / 16)
    again = mixed_batch(data.train, data.shares, 12, CONTEXT, 5, 40)[0]
    np.testing.assert_array_equal(again, np.stack(rows[480:492]))
    # The first source's rows are those it would have alone.
    alone = random_batch(books, 100, CONTEXT, 5, 0)[0]
    np.testing.assert_array_equal([row for row in rows if row.min() >= 97][:100], alone)


def test_one_source_is_read_as_it_is_alone(sources):
    data = open_mixture(sources[:1], "byte")
    for index in (0, 7):
        for ours, theirs in zip(
            mixed_batch(data.train, data.shares, 4, CONTEXT, 1, index),
            random_batch(data.train, 4, CONTEXT, 1, index),
            strict=True,
        ):
            np.testing.assert_array_equal(ours, theirs)


def test_weights_are_apportioned_by_largest_remainders(tmp_path):
    names = []
    for i in range(3):
        (tmp_path / f"{i}.txt").write_text("abc" * 20)
        names.append(f"{tmp_path}/{i}.txt")
    counts = [count for _, count in open_mixture(names, "byte").shares]
    assert sorted(counts) == [1365, 1365, 1366]
    with pytest.raises(ConfigError, match=r"1.txt has less than 1 / 4096 of the weights"):
        open_mixture([names[0], f"{names[1]}:1e-6"], "byte")


def test_a_run_on_a_mixture_is_resumed_to_the_same_bits(tmp_path, text):
    other = tmp_path / "other.txt"
    other.write_text("pack my box with five dozen liquor jugs. " * 40)
    more = {"mixture": (f"{text}:0.7", f"{other}:0.3"), "accumulate": 2, "data": None}

    def interrupt():
        signal.raise_signal(signal.SIGINT)

    first = train(options(tmp_path, text, **more), At(4, interrupt))
    assert first.interrupted
    second = train(resumed_options(tmp_path / "run"))
    same_as_unbroken(tmp_path, text, second, **more)
    changed = tmp_path / "changed.txt"
    changed.write_text(other.read_text()[::-1])  # as many tokens
    with pytest.raises(DataError, match="changed.txt .* differs from what .* with `mixture`"):
        train(resumed_options(tmp_path / "run", steps=9, mixture=(f"{text}:0.7", f"{changed}:0.3")))
    other.write_text("pack my box. " * 40)
    with pytest.raises(DataError, match="give the right text with `mixture`"):
        train(resumed_options(tmp_path / "run", steps=9))


def test_a_mixture_of_relative_paths_is_found_from_another_directory(tmp_path, text, monkeypatch):
    monkeypatch.chdir(tmp_path)
    more = {"mixture": (f"{text.name}:0.7", "other.txt"), "data": None, "steps": 1}
    (tmp_path / "other.txt").write_text("pack my box with five dozen liquor jugs. " * 40)
    train(options(tmp_path, text, **more))
    (tmp_path / "away").mkdir()
    monkeypatch.chdir("away")
    resumed = resumed_options("../run", steps=2)
    assert resumed.mixture == (f"{text}:0.7", f"{tmp_path}/other.txt:1.0")
    assert train(resumed).run.step == 2


@pytest.mark.slow
def test_the_command_reads_sources_from_the_line_or_a_file(tmp_path, text, capsys):
    other, listed = tmp_path / "other.txt", tmp_path / "sources.txt"
    other.write_text("pack my box with five dozen liquor jugs. " * 40)
    listed.write_text(f"{text}:3\n{other}\n")
    for number, mixture in enumerate((f"{text}:0.75,{other}:0.25", f"@{listed}")):
        flags = ["--preset", "tiny", "--steps", "2", "--out", str(tmp_path / str(number))]
        assert main(["train", "--mixture", mixture, "--peak", "100", *flags]) == 0
        shown = capsys.readouterr().out
        assert f"{text} 75.0%, {other} 25.0%" in shown.replace("\n", "")


def test_mixtures_that_cannot_be_are_refused(tmp_path, text, sources):
    for wrong, saying in [
        (("a.txt:x",), "is PATH:WEIGHT"),
        ((":1",), "is PATH:WEIGHT"),
        (("a.txt:0",), "is PATH:WEIGHT"),
        (("a.jsonl:1",), "make shards of it first"),
        ((f"{text}:1", f"{text}:2"), "names each source once"),
    ]:
        with pytest.raises(ConfigError, match=saying):
            open_mixture(wrong, "byte")
    with pytest.raises(DataError, match="there is no file"):
        open_mixture((f"{tmp_path}/none.txt",), "byte")
    with pytest.raises(ConfigError, match="`mixture` must be left out beside `data`"):
        options(tmp_path, text, mixture=(f"{text}:1",))
    (tmp_path / "short.txt").write_text("to be or not")
    chosen = options(tmp_path, text, data=None, mixture=(f"{text}:1", f"{tmp_path}/short.txt:1"))
    with pytest.raises(DataError, match="one window of context 16 needs 17"):
        train(chosen)
