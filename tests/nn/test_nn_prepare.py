"""Shards of texts: the tokens of the whole, piece by piece, and what is refused."""

import json
import tracemalloc

import numpy as np
import pytest
from tokenizer_directories import OWN, corpora, write_gpt2, write_trained

from fxad_nn import prepare as module
from fxad_nn.cli import main
from fxad_nn.data import open_data
from fxad_nn.errors import ConfigError, DataError
from fxad_nn.prepare import PrepareOptions, pieces, prepare
from fxad_nn.shards import ShardWriter, read_shard, write_shard
from fxad_nn.tokenizer import from_directory


def ids_of(shards, vocab=1 << 31):
    return np.concatenate([np.asarray(read_shard(path, vocab)) for path in shards])


def write_lines(path, texts, field="text"):
    path.write_text("".join(json.dumps({field: text, "id": 1}) + "\n" for text in texts), "utf-8")
    return path


@pytest.fixture
def vocabulary(tmp_path):
    pytest.importorskip("tokenizers")
    return write_gpt2(tmp_path / "gpt2", OWN * 40)


@pytest.mark.parametrize("most", [7, 100, 10_000_000])
def test_shards_hold_every_document_after_the_end_of_the_one_before(tmp_path, vocabulary, most):
    texts = ["First Citizen: we are", "", "accounted poor\ncitizens.", "naïve café"]
    lines = write_lines(tmp_path / "a.jsonl", texts)
    (tmp_path / "b.txt").write_text("the patricians good\n")
    out, heard = tmp_path / "out", []
    options = PrepareOptions(out=out, vocabulary=vocabulary, shard_tokens=most)
    made = prepare([lines, tmp_path / "b.txt"], options, lambda *of: heard.append(of))
    encoder = from_directory(vocabulary)
    [end] = encoder.ids.eos
    wanted = [i for t in [*texts, "the patricians good\n"] for i in [end, *encoder.encode(t)]]
    assert ids_of(made.train).tolist() == wanted
    assert (made.documents, made.tokens, made.val) == (5, len(wanted), [])
    assert [len(read_shard(p, 9999)) for p in made.train[:-1]] == [most] * (len(made.train) - 1)
    assert made.train == sorted(out.iterdir())
    total = sum(p.stat().st_size for p in (lines, tmp_path / "b.txt"))
    assert heard[-1] == (total, total) and heard == sorted(heard)


@pytest.mark.parametrize("kind", sorted(corpora()))
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_tokens_of_pieces_are_those_of_the_whole(tmp_path, vocabulary, kind, ending, monkeypatch):
    text, encoder = corpora()[kind].replace("\n", ending), from_directory(vocabulary)
    path = tmp_path / "t.txt"
    path.write_bytes(text.encode())
    for size in (1000, 1 << 22):
        monkeypatch.setattr(module, "PIECE", size)
        found = list(pieces(path, "text"))
        assert "".join(piece for piece, *_ in found) == text
        assert [first for _, first, *_ in found] == [True] + [False] * (len(found) - 1)
        assert sum(size for *_, size in found) == path.stat().st_size
        # Newer vocabularies than this one have a token for both characters of a line's end.
        assert not any(piece.endswith("\r") for piece, *_ in found)
        ids = np.concatenate([encoder.encode(piece) for piece, *_ in found])
        np.testing.assert_array_equal(ids, encoder.encode(text))
    assert len(found) == 1


def test_memory_does_not_grow_with_the_text(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PIECE", 1 << 16)
    path = tmp_path / "long.txt"
    path.write_text("to be or not to be, that is the question\n" * 100_000)
    options = PrepareOptions(out=tmp_path / "out", tokenizer="byte", shard_tokens=1_000_000)
    tracemalloc.start()
    made = prepare([path], options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert made.tokens == path.stat().st_size == 4_100_000
    assert len(made.train) == 5
    assert peak < 2_000_000
    assert bytes(ids_of(made.train).astype(np.uint8)) == path.read_bytes()


def test_documents_for_validation_are_drawn_by_their_numbers(tmp_path):
    texts = [f"<{i}>" for i in range(400)]
    data = write_lines(tmp_path / "a.jsonl", texts, field="content")
    more = {"tokenizer": "byte", "field": "content", "val_share": 0.25}
    splits = []
    for number, chosen in enumerate((texts, texts[:200])):
        write_lines(data, chosen, field="content")
        made = prepare([data], PrepareOptions(out=tmp_path / str(number), **more))
        splits.append([bytes(ids_of(s).astype(np.uint8)).decode() for s in (made.train, made.val)])
        train, val = (set(part.replace("><", "> <").split()) for part in splits[-1])
        assert train | val == set(chosen) and not train & val
        # Binomial: within five standard deviations.
        assert abs(len(val) - len(chosen) / 4) < 5 * np.sqrt(len(chosen) * 3 / 16)
    assert all(whole.startswith(part) for whole, part in zip(*splits, strict=True))
    other = prepare([data], PrepareOptions(out=tmp_path / "seed", **more, seed=1))
    assert bytes(ids_of(other.val).astype(np.uint8)).decode() != splits[1][1]


def test_ids_beyond_16_bits_are_written_as_for_llama_3(tmp_path):
    ids = np.array([0, 65536, 128255, 7], np.int64)
    with ShardWriter(tmp_path, "train", most=3, wide=True) as writer:
        writer.add(ids)
    first = writer.shards[0].read_bytes()
    assert np.frombuffer(first[:12], "<i4").tolist() == [20240801, 7, 3]
    assert len(first) == 1024 + 12
    np.testing.assert_array_equal(ids_of(writer.shards), ids)
    with pytest.raises(DataError, match="token 2 is id 128255, outside the vocabulary of 128000"):
        read_shard(writer.shards[0], 128000)
    with (
        pytest.raises(DataError, match="holds ids from 0 to 65535, got up to 128255"),
        ShardWriter(tmp_path, "narrow", most=3, wide=False) as writer,
    ):
        writer.add(ids)
    assert not list(tmp_path.glob("*narrow*"))


def test_one_token_is_one(tmp_path, capsys):
    data = tmp_path / "a.jsonl"
    data.write_text('{"text": ""}\n{"text": "x"}\n', "utf-8")
    assert main(["prepare", str(data), "--out", str(tmp_path / "o"), "--tokenizer", "byte"]) == 0
    assert "2 documents, 1 token in " in capsys.readouterr().out


def test_the_command_makes_what_train_reads(tmp_path, vocabulary, capsys):
    data = write_lines(tmp_path / "a.jsonl", [OWN] * 60)
    out = tmp_path / "data"
    flags = ["--out", str(out), "--vocabulary", str(vocabulary), "--val-share", "0.2"]
    assert main(["prepare", str(data), *flags]) == 0
    shown = capsys.readouterr().out
    assert "60 documents" in shown and "train: 1 shard" in shown and "validation: 1" in shown
    found = open_data(out, "gpt2", vocabulary, from_directory(vocabulary).size)
    assert len(found.train[0]) > 3 * len(found.val[0]) > 0
    flags = ["--preset", "tiny", "--data", str(out), "--tokenizer", "gpt2", "--steps", "2"]
    flags += ["--vocabulary", str(vocabulary), "--out", str(tmp_path / "run"), "--peak", "100"]
    assert main(["train", *flags]) == 0
    capsys.readouterr()
    assert main(["prepare", str(data), "--out", str(out), "--tokenizer", "byte"]) == 2
    assert "holds shards already" in capsys.readouterr().err


def test_paths_may_be_texts(tmp_path, vocabulary):
    lines, out = write_lines(tmp_path / "a.jsonl", ["First Citizen", "we are"]), tmp_path / "out"
    made = prepare([str(lines)], PrepareOptions(out=str(out), vocabulary=str(vocabulary)))
    ids = np.asarray(read_shard(str(made.train[0]), 1 << 31))
    (whole,) = open_data(str(out), "gpt2", str(vocabulary)).train
    assert np.asarray(whole).tolist() == ids[: len(whole)].tolist()
    with ShardWriter(str(tmp_path), "copy", most=100, wide=False) as writer:
        writer.add(ids)
    write_shard(f"{tmp_path}/whole.bin", ids)
    assert (tmp_path / "whole.bin").read_bytes() == writer.shards[0].read_bytes()
    (tmp_path / "b.txt").write_text("the patricians good\n" * 9)
    assert len(open_data(f"{tmp_path}/b.txt", "byte").train[0]) == 162


def test_a_start_token_stands_before_each_document(tmp_path):
    pytest.importorskip("tokenizers")
    directory = write_trained(tmp_path / "model", "BPE", OWN * 40)
    settings = directory / "tokenizer.json"
    found = json.loads(settings.read_text())
    start = next(t["id"] for t in found["added_tokens"] if t["content"] == "<s>")
    found["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [
            {"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [start], "tokens": ["<s>"]}},
    }
    settings.write_text(json.dumps(found))
    data = write_lines(tmp_path / "a.jsonl", ["we are", "good"])
    made = prepare([data], PrepareOptions(out=tmp_path / "out", vocabulary=directory))
    encoder = from_directory(directory)
    wanted = [start, *encoder.encode("we are"), start, *encoder.encode("good")]
    assert ids_of(made.train).tolist() == wanted


@pytest.mark.parametrize(
    ("name", "content", "saying"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"txt": "y"}\n', "line 2"),
        ("a.jsonl", b'{"text": 3}\n', "line 1"),
        ("a.jsonl", b'{"text": "x"\n', "line 1"),
        ("a.txt", b"abc\xff", r"is not UTF-8 text \(byte 3"),
        ("a.txt", b"", "a.txt is empty"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path, name, content, saying):
    path, out = tmp_path / name, tmp_path / "out"
    path.write_bytes(content)
    with pytest.raises(DataError, match=saying) as caught:
        prepare([path], PrepareOptions(out=out, tokenizer="byte"))
    assert str(path) in str(caught.value)
    assert not list(out.glob("*")) and not list(out.glob(".*"))


def test_an_empty_text_is_named_before_others_are_read(tmp_path, vocabulary):
    (tmp_path / "a.txt").write_text("to be")
    (tmp_path / "b.txt").touch()
    done = []
    with pytest.raises(DataError, match=r"b\.txt is empty"):
        prepare(
            [tmp_path / "a.txt", tmp_path / "b.txt"],
            PrepareOptions(out=tmp_path / "out", vocabulary=vocabulary),
            lambda *so_far: done.append(so_far),
        )
    assert not done


def test_a_full_disk_names_the_shard(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    data = write_lines(tmp_path / "a.jsonl", ["one"])
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=r"left on device; choose .* `out`: '.*/train_000000.bin"):
        prepare([data], PrepareOptions(out=tmp_path / "out", tokenizer="byte"))


def test_options_that_cannot_be_are_refused(tmp_path, monkeypatch):
    for wrong, saying in [
        ({"val_share": 1.0}, "`val_share` must be in"),
        ({"shard_tokens": 0}, "`shard_tokens` must be from 1"),
        ({"tokenizer": "byte", "vocabulary": tmp_path}, "`vocabulary` has no meaning"),
    ]:
        with pytest.raises(ConfigError, match=saying):
            PrepareOptions(out=tmp_path, **wrong)
    with pytest.raises(ConfigError, match="prepare needs `out=DIR`"):
        prepare([], PrepareOptions())
    with pytest.raises(ConfigError, match="needs `vocabulary=DIR`"):
        prepare([], PrepareOptions(out=tmp_path / "out"))
    with pytest.raises(DataError, match="none.txt is missing"):
        prepare([tmp_path / "none.txt"], PrepareOptions(out=tmp_path / "out", tokenizer="byte"))
    monkeypatch.setattr(module, "PIECE", 4)
    monkeypatch.setattr(module, "MOST", 16)
    (tmp_path / "long.txt").write_text("x" * 40)
    with pytest.raises(DataError, match="has no line break in 16 bytes from byte 0"):
        list(pieces(tmp_path / "long.txt", "text"))
