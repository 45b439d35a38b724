"""Tokenizers: round trips, sizes, and what they refuse."""

import json

import numpy as np
import pytest

from fxad_nn import tokenizer
from fxad_nn.errors import DataError
from fxad_nn.tokenizer import BytePairs, Bytes, Characters, Ids, from_json

SENTENCE = "naïve café: 3 < 5 \N{GRINNING FACE}\n"


@pytest.mark.parametrize(
    "made", [Characters.of(SENTENCE), Characters("".join(sorted(set(SENTENCE))[::-1])), Bytes()]
)
def test_round_trip_also_through_json(made):
    again = from_json(made.to_json())
    ids = made.encode(SENTENCE)
    assert ids.dtype == np.int32
    assert ids.max() < made.size
    assert made.decode(ids) == again.decode(again.encode(SENTENCE)) == SENTENCE
    np.testing.assert_array_equal(ids, again.encode(SENTENCE))


def test_characters_number_the_sorted_alphabet():
    assert Characters.of("hello").alphabet == "ehlo"
    np.testing.assert_array_equal(Characters.of("hello").encode("hole"), [1, 3, 2, 0])


@pytest.mark.parametrize("text", ["heLlo", "\x00", "zz"])
def test_an_unknown_character_is_named(text):
    with pytest.raises(DataError, match=r"not among the 4 characters"):
        Characters.of("hello").encode(text)


def test_ids_outside_the_vocabulary_are_refused():
    for made in (Characters.of("ab"), Bytes(), Ids(7)):
        with pytest.raises(DataError, match=f"outside the vocabulary of {made.size}"):
            made.decode([0, made.size])
        with pytest.raises(DataError, match="token id -1 at position 0"):
            made.decode([-1])


def test_ids_read_and_write_numbers():
    assert Ids(50).decode(Ids(50).encode("3 49")) == "3 49"
    with pytest.raises(DataError, match="write token ids"):
        Ids(50).encode("three")


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        ("{", "damaged"),
        ("{}", "does not hold kind"),
        ('{"kind": "chars"}', "did you mean 'char'"),
        ('{"kind": "char", "alphabet": ""}', "alphabet"),
    ],
)
def test_a_damaged_file_is_named(text, saying):
    with pytest.raises(DataError, match=saying):
        from_json(text, "t.json")


@pytest.fixture
def small_bpe(tmp_path):
    """A byte-level encoding of a few letters with two merges, in GPT-2's files."""
    letters = list("abehlo") + ["\u0120"]
    vocab = {piece: i for i, piece in enumerate([*letters, "he", "ll", "<|endoftext|>"])}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab), "utf-8")
    (tmp_path / "merges.txt").write_text("#version: 0.2\nh e\nl l\n", "utf-8")
    return tmp_path


def test_byte_pairs_merge_and_round_trip(small_bpe):
    pytest.importorskip("tokenizers")
    made = BytePairs.gpt2(small_bpe)
    assert made.size == 10
    np.testing.assert_array_equal(made.encode("hello<|endoftext|> b"), [7, 8, 5, 9, 6, 1])
    again = from_json(made.to_json())
    assert again.decode(again.encode("hello hob")) == "hello hob"


def test_byte_pairs_name_missing_and_damaged_files(small_bpe):
    pytest.importorskip("tokenizers")
    (small_bpe / "vocab.json").write_text("{", "utf-8")
    with pytest.raises(DataError, match=r"vocab\.json"):
        BytePairs.gpt2(small_bpe)
    (small_bpe / "merges.txt").unlink()
    with pytest.raises(DataError, match=r"merges\.txt is missing"):
        BytePairs.gpt2(small_bpe)


def test_without_the_library_the_error_names_the_extra(small_bpe, monkeypatch):
    monkeypatch.setattr(tokenizer, "_tokenizers", None)
    with pytest.raises(DataError, match=r"fxad\[nn\]"):
        BytePairs.gpt2(small_bpe)
