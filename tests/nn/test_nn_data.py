"""Texts, shards, batches: what is read, in which order, and what is refused."""

import hashlib
import io
import os
import re
import tracemalloc

import numpy as np
import pytest

from fxad_nn import data, text
from fxad_nn.data import open_data, random_batch, windows
from fxad_nn.errors import ConfigError, DamageWarning, DataError
from fxad_nn.loss import IGNORE
from fxad_nn.shards import HEADER_BYTES, read_shard, write_shard
from fxad_nn.token_cache import read_tokens, write_tokens
from fxad_nn.token_file import TokenFile
from fxad_nn.tokenizer import Bytes, Characters
from fxad_nn.vocabulary import require_ids


def test_a_text_is_split_nine_to_one_and_cached(tmp_path, private_cache):
    path = tmp_path / "t.txt"
    path.write_text("abcdefghij" * 10, "utf-8")
    first, second = open_data(path), open_data(path)
    assert first.tokenizer.decode(first.train[0][:]) == "abcdefghij" * 9
    assert first.tokenizer.decode(first.val[0][:]) == "abcdefghij"
    assert first.source == str(path)
    assert isinstance(second.train[0], TokenFile)
    assert len(list((private_cache / "tokens").iterdir())) == 2  # no temporary file stays


def damages(good):
    """What may have become of a file of five uint16 ids and their digest."""
    flipped = bytearray(good)
    flipped[4] ^= 1
    floats = io.BytesIO()
    np.save(floats, np.linspace(0, 1, 5))
    ids = np.array([104, 101, 108, 108, 300], "<u2").tobytes()
    cut = (b"", good[:-3], good[:-2], good[2:], good[:20])
    return [*cut, bytes(flipped), bytes(len(good)), floats.getvalue(), ids + good[10:], good * 2]


def test_a_damaged_cache_is_made_again_and_said(private_cache):
    ids = np.array(data.tokenized("hello", Bytes()))
    [cached] = (private_cache / "tokens").iterdir()
    good = cached.read_bytes()
    for damage in damages(good):
        cached.write_bytes(damage)
        with pytest.warns(DamageWarning, match=re.escape(f"{cached} is damaged")):
            np.testing.assert_array_equal(data.tokenized("hello", Bytes()), ids)
        assert cached.read_bytes() == good
        np.testing.assert_array_equal(data.tokenized("hello", Bytes()), ids)


def test_the_cache_of_another_text_is_not_taken(private_cache):
    first = np.array(data.tokenized("hello", Bytes()))
    [one] = (private_cache / "tokens").iterdir()
    content = one.read_bytes()
    data.tokenized("world", Bytes())
    [other] = set((private_cache / "tokens").iterdir()) - {one}
    other.unlink()
    other.write_bytes(content)
    with pytest.warns(DamageWarning, match="made again"):
        assert not np.array_equal(data.tokenized("world", Bytes()), first)


def test_tokens_with_ids_outside_the_vocabulary_are_not_taken(tmp_path):
    write_tokens(tmp_path / "t", np.array([1, 2, 7], "<u2"))
    np.testing.assert_array_equal(read_tokens(tmp_path / "t", "<u2", 8), [1, 2, 7])
    with pytest.warns(DamageWarning):
        assert read_tokens(tmp_path / "t", "<u2", 7) is None
    with pytest.warns(DamageWarning):
        assert read_tokens(tmp_path / "t", "<i2", 8) is None
    assert read_tokens(tmp_path / "absent", "<u2", 8) is None


def test_a_full_disk_does_not_stop_reading(monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    np.testing.assert_array_equal(data.tokenized("hi", Bytes()), [104, 105])


@pytest.mark.parametrize(
    ("content", "saying"), [(b"", "is empty"), (b"ab\xff", "byte 2"), (b"a", "too few")]
)
def test_unusable_text_is_refused(tmp_path, content, saying):
    path = tmp_path / "t.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=saying) as caught:
        open_data(path)
    assert str(path) in str(caught.value)


def test_a_mark_before_a_text_is_no_part_of_it(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes("\ufeff".encode() + b"ab" * 20)
    assert "\ufeff" not in open_data(path).tokenizer.alphabet
    assert open_data(path, "byte").train[0][:1] == ord("a")


def test_a_missing_file_suggests_its_neighbour(tmp_path):
    (tmp_path / "input.txt").write_text("abc", "utf-8")
    with pytest.raises(DataError, match=r"did you mean 'input\.txt'"):
        open_data(tmp_path / "imput.txt")
    with pytest.raises(DataError, match="does not exist"):
        open_data(tmp_path / "nowhere" / "input.txt")
    with pytest.raises(DataError, match="no file"):
        open_data(tmp_path / "gone.bin")
    with pytest.raises(DataError, match="/dev/null is no regular file"):
        open_data("/dev/null")


def test_the_default_text_falls_back_in_order(monkeypatch, private_cache):
    body = b"To be, or not to be"
    monkeypatch.setattr(text, "SHAKESPEARE_SHA256", hashlib.sha256(body).hexdigest())
    monkeypatch.setattr(text, "fetch", lambda url, seconds: b"an error page")
    assert "standard library" in text.find_text(None).source
    monkeypatch.setattr(text, "fetch", lambda url, seconds: None)
    assert "standard library" in text.find_text(None).source
    monkeypatch.setattr(text, "fetch", lambda url, seconds: body)
    assert text.find_text(None) == text.Text(body.decode(), "Tiny Shakespeare (downloaded)")
    monkeypatch.setattr(text, "fetch", lambda url, seconds: pytest.fail("cached: no download"))
    assert "cached" in text.find_text(None).source
    (private_cache / "tinyshakespeare.txt").write_bytes(b"damaged")
    monkeypatch.setattr(text, "fetch", lambda url, seconds: None)
    assert "standard library" in text.find_text(None).source


def test_a_download_that_fails_gives_nothing():
    assert text.fetch("http://127.0.0.1:9/nothing", seconds=2.0) is None
    assert text.fetch("nonsense", seconds=2.0) is None


def test_the_library_text_is_long_ascii_and_the_same_again():
    content = text.library_text()
    assert content.isascii()
    assert 1_000_000 < len(content) < 2_000_000
    assert content == text.library_text()


PARTS = (np.arange(50, dtype=np.uint16), np.arange(100, 103), np.arange(200, 260))


def test_random_batches_depend_on_seed_and_index_only():
    tokens, targets = random_batch(PARTS, size=20, context=8, seed=3, index=5)
    assert tokens.shape == targets.shape == (20, 8)
    assert tokens.dtype == np.int32
    np.testing.assert_array_equal(targets, tokens + 1)  # a window never crosses two parts
    np.testing.assert_array_equal(tokens, random_batch(PARTS, 20, 8, 3, 5)[0])
    assert not np.array_equal(tokens, random_batch(PARTS, 20, 8, 3, 6)[0])
    assert not np.array_equal(tokens, random_batch(PARTS, 20, 8, 4, 5)[0])


def test_an_epoch_visits_every_window_once_and_phases_differ():
    # 49 // 8 - 1 = 5 windows of the first part, 59 // 8 - 1 = 6 of the last
    epochs = [random_batch(PARTS, 11, 8, seed=0, index=i)[0][:, 0] for i in range(200)]
    for starts in epochs:
        first, last = np.sort(starts[starts < 100]), np.sort(starts[starts >= 200])
        assert len(first) == 5
        assert len(last) == 6
        assert np.all(np.diff(first) == 8)
        assert np.all(np.diff(last) == 8)
    seen = np.unique(np.concatenate(epochs))
    assert {0, 41, 200, 251} <= set(seen.tolist())  # the first and last starts there are


def test_a_text_of_one_window_is_read_and_a_shorter_one_refused():
    np.testing.assert_array_equal(random_batch((np.arange(9),), 2, 8, 0, 0)[1], [range(1, 9)] * 2)
    with pytest.raises(DataError, match="context 8"):
        random_batch((np.arange(8),), 2, 8, 0, 0)
    with pytest.raises(DataError, match="needs 9"):
        data.require_length((np.arange(8),), 8, "it")


def test_windows_visit_every_target_once():
    parts = (np.arange(23), np.arange(100, 109), np.arange(300, 301))
    batches = list(windows(parts, size=2, context=5))
    assert all(tokens.shape == targets.shape == (2, 5) for tokens, targets in batches)
    counted = np.concatenate([targets[targets != IGNORE] for _, targets in batches])
    np.testing.assert_array_equal(counted, [*range(1, 23), *range(101, 109)])
    for tokens, targets in batches:
        live = targets != IGNORE
        np.testing.assert_array_equal(tokens[live] + 1, targets[live])
    assert data.count_windows(parts, 5) == 7
    assert len(list(windows(parts, 2, 5, keep=lambda i: i % 3 == 0))) == 2


def test_shards_round_trip_and_split(tmp_path):
    ids = np.arange(1000) % 300
    write_shard(tmp_path / "x_train_0.bin", ids)
    write_shard(tmp_path / "x_train_1.bin", ids[:500])
    write_shard(tmp_path / "x_val_0.bin", ids[:100])
    opened = open_data(tmp_path, vocab=300)
    assert [len(t) for t in opened.train] == [1000, 500]
    assert [len(t) for t in opened.val] == [100]
    np.testing.assert_array_equal(opened.train[0], ids)
    alone = open_data(tmp_path / "x_val_0.bin", vocab=300)
    assert (len(alone.train[0]), len(alone.val[0])) == (90, 10)
    assert alone.tokenizer.decode([7, 299]) == "7 299"


def test_damaged_shards_are_named(tmp_path):
    path = tmp_path / "s.bin"
    write_shard(path, np.arange(100))
    good = path.read_bytes()

    def reading(content, vocab=100):
        path.write_bytes(content)
        with pytest.raises(DataError) as caught:
            read_shard(path, vocab)
        assert str(path) in str(caught.value)
        return str(caught.value)

    assert "outside the vocabulary of 99" in reading(good, vocab=99)
    assert "token 99 is id 99" in reading(good, vocab=99)
    assert "truncated" in reading(good[:-1])
    assert "damaged" in reading(good + b"\0\0")
    assert "no token shard" in reading(b"\1" + good[1:])
    assert "version 2" in reading(good[:4] + b"\2" + good[5:])
    assert "header" in reading(good[: HEADER_BYTES - 1])
    assert "header" in reading(b"")
    negative = good[:8] + np.int32(-5).tobytes() + good[12:]
    assert "damaged" in reading(negative)
    assert "holds no tokens" in reading(good[:8] + bytes(HEADER_BYTES - 8))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no \.bin"):
        open_data(tmp_path / "empty")
    with pytest.raises(DataError, match="65535"):
        write_shard(path, np.array([70000]))


def test_tokenizer_names(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'char'"):
        data.make_tokenizer("chars", None, "abc")
    with pytest.raises(ConfigError, match="`vocabulary=DIR`"):
        data.make_tokenizer("gpt2", None, "abc")
    assert data.make_tokenizer("char", None, "cab") == Characters("abc")
    assert data.make_tokenizer("byte", None, "cab").size == 256


def test_a_token_file_reads_what_is_there_and_says_what_is_not(tmp_path):
    path = tmp_path / "s.bin"
    write_shard(path, np.arange(1000))
    tokens = read_shard(path, 1000)
    np.testing.assert_array_equal(tokens[3:7], [3, 4, 5, 6])
    np.testing.assert_array_equal(tokens[990:2000], np.arange(990, 1000))
    np.testing.assert_array_equal(tokens.between(500, 600)[98:], [598, 599])
    assert len(tokens[7:3]) == 0
    part = tokens.between(0, 400)
    del tokens  # a part reads on its own
    np.testing.assert_array_equal(part[:3], [0, 1, 2])
    with pytest.raises(DataError, match="without a step"):
        part[::2]
    os.truncate(path, HEADER_BYTES + 100)
    np.testing.assert_array_equal(part[:50], np.arange(50))
    with pytest.raises(DataError, match="was cut while it was in use: it ends before byte 1124"):
        part[:51]


@pytest.mark.parametrize("id", [-100, 65])
def test_ids_of_a_batch_are_named_by_their_place(id):
    batch = np.zeros((2, 4), np.int32)
    require_ids(batch, 65, "the batch")
    require_ids(batch - 1, 65, "the targets", ignored=IGNORE)
    batch[1, 3] = id
    saying = rf"the batch holds id {id} at position \[1, 3\], outside the vocabulary of 65"
    for ignored in (None, IGNORE):
        with pytest.raises(DataError, match=saying):
            require_ids(batch, 65, "the batch", ignored)


@pytest.mark.parametrize("lengths", [(5000,), (1700, 4, 900, 2600), (40, 33)])
def test_an_order_of_two_levels_has_every_window_once_an_epoch(monkeypatch, lengths):
    monkeypatch.setattr(data, "MOST_AT_ONCE", 0)
    monkeypatch.setattr(data, "RUN", 8)
    monkeypatch.setattr(data, "GROUP", 4)
    for cached in (data._runs, data._group):
        cached.cache_clear()
    parts = tuple(np.arange(length) + 10_000 * number for number, length in enumerate(lengths))
    total, context = data.windows_per_epoch(lengths, 16), 16
    epochs = []
    for epoch in (0, 1):
        numbers = range(epoch * total, (epoch + 1) * total)
        rows = [data.window_rows(parts, context, (3, 0), number) for number in numbers]
        assert all((np.diff(row) == 1).all() and len(row) == context + 1 for row in rows)
        starts = [int(row[0]) for row in rows]
        assert len(set(starts)) == total
        for number in range(len(lengths)):  # windows of a part are a phase and multiples of context
            mine = sorted(s - 10_000 * number for s in starts if s // 10_000 == number)
            assert set(np.diff(mine)) <= {context}
        epochs.append(starts)
    assert epochs[0] != epochs[1]
    if total > 100:
        # Neighbours in the order are seldom neighbours in the text, and groups hold far runs.
        assert np.mean(np.diff(epochs[0]) == context) < 0.2
        first = np.array(epochs[0][:32])
        assert first.max() - first.min() > 1000
    again = [int(data.window_rows(parts, context, (3, 0), n)[0]) for n in range(total)]
    assert again == epochs[0]
    other = [int(data.window_rows(parts, context, (3, 1), n)[0]) for n in range(total)]
    assert total < 10 or other != epochs[0]
    for cached in (data._runs, data._group):
        cached.cache_clear()


def test_an_order_of_two_levels_takes_little_memory():
    """Of 100 billion tokens; a window is found by its number alone."""

    class Long:
        def __len__(self):
            return 100_000_000_000

        def __getitem__(self, part):
            return part.start

    for cached in (data._runs, data._group):
        cached.cache_clear()
    tracemalloc.start()
    found = [data.window_rows((Long(),), 1024, (1, 0), n) for n in (0, 1, 90_000_000)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len({int(start) for start in found}) == 3
    assert peak < 150_000_000
    for cached in (data._runs, data._group):
        cached.cache_clear()
