"""Tokenizers: round trips, sizes, and what they refuse."""

import json

import numpy as np
import pytest

from fxad_nn import subwords
from fxad_nn.errors import DataError
from fxad_nn.tokenizer import Bytes, Characters, Ids, from_directory, from_json

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
    made = from_directory(small_bpe)
    assert made.size == 10
    np.testing.assert_array_equal(made.encode("hello<|endoftext|> b"), [7, 8, 5, 9, 6, 1])
    again = from_json(made.to_json())
    assert again.decode(again.encode("hello hob")) == "hello hob"


def test_byte_pairs_name_missing_and_damaged_files(small_bpe):
    pytest.importorskip("tokenizers")
    (small_bpe / "vocab.json").write_text("{", "utf-8")
    with pytest.raises(DataError, match=r"vocab\.json"):
        from_directory(small_bpe)
    (small_bpe / "merges.txt").unlink()
    with pytest.raises(DataError, match=r"merges\.txt is missing"):
        from_directory(small_bpe)


def test_without_the_library_the_error_names_the_extra(small_bpe, monkeypatch):
    monkeypatch.setattr(subwords, "_tokenizers", None)
    with pytest.raises(DataError, match=r"fxad\[nn\]"):
        from_directory(small_bpe)


def gpt2_saying(directory, saying, capfd, vocab=None, merges=None):
    """GPT-2's two files are refused, and no panic of the library is printed."""
    if vocab is not None:
        (directory / "vocab.json").write_text(vocab, "utf-8")
    if merges is not None:
        (directory / "merges.txt").write_text(merges, "utf-8")
    with pytest.raises(DataError, match=saying):
        from_directory(directory)
    assert "panicked" not in capfd.readouterr().err


def test_merges_outside_the_vocabulary_are_named(small_bpe, capfd):
    gpt2_saying(small_bpe, r"merges\.txt: \[1\] needs the token 'el'", capfd, merges="h e\ne l\n")
    gpt2_saying(small_bpe, "needs the token 'z'", capfd, merges="h z\n")
    gpt2_saying(small_bpe, "must be two tokens, got 'hell'", capfd, merges="hell\n")
    gpt2_saying(small_bpe, "must be two tokens, got 'h e l'", capfd, merges="h e l\n")
    gpt2_saying(small_bpe, "the id 0 to 'a' and 'b'", capfd, vocab='{"a": 0, "b": 0}')
    gpt2_saying(small_bpe, "a must be an integer", capfd, vocab='{"a": "0"}')
    gpt2_saying(small_bpe, "a must be an integer from 0", capfd, vocab='{"a": 4294967295}')
    gpt2_saying(small_bpe, "the key 'a' appears twice", capfd, vocab='{"a": 0, "a": 1}')


def described(small_bpe, **changes):
    """The description of a byte-pair tokenizer with changes in its model."""
    whole = json.loads(from_directory(small_bpe).to_json())
    whole["tokenizer"]["model"] |= changes
    return whole


def test_a_continuing_prefix_that_merges_lack_is_named(small_bpe, capfd):
    with pytest.raises(DataError, match="merges 'e', which does not begin with '##'"):
        from_json(json.dumps(described(small_bpe, continuing_subword_prefix="##")))
    assert "panicked" not in capfd.readouterr().err


def test_a_lone_surrogate_is_named(small_bpe):
    tokenizer = from_directory(small_bpe)
    with pytest.raises(DataError, match=r"character 2 of the text is a lone surrogate, U\+D800"):
        tokenizer.encode("he\ud800llo")
    with pytest.raises(DataError, match="this text cannot be used by the tokenizers library"):
        tokenizer.encode(5)


def test_a_panic_of_the_library_is_an_error_of_ours(small_bpe):
    whole = described(small_bpe)
    broken = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    with pytest.raises(DataError, match="cannot be used by the tokenizers library"):
        from_json(json.dumps(whole | {"tokenizer": whole["tokenizer"] | {"normalizer": broken}}))


def test_ids_with_gaps_stay_below_the_size(small_bpe):
    whole = described(small_bpe)
    whole["tokenizer"]["model"]["vocab"]["ll"] = 70
    made = from_json(json.dumps(whole))
    assert made.size == 71
    assert made.encode("ll").tolist() == [70]
    assert made.decode([70]) == "ll"


def test_a_tokenizer_never_cuts_or_fills_up_a_text(small_bpe):
    whole = described(small_bpe)
    length = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    whole["tokenizer"]["truncation"] = length
    assert len(from_json(json.dumps(whole)).encode("hello")) == 3


@pytest.mark.parametrize("made", [Characters.of("ab"), Bytes()])
def test_bytes_of_a_prompt_that_are_no_unicode_are_refused(made):
    with pytest.raises(DataError, match="character"):
        made.encode("a\udcff")


def test_an_alphabet_holds_whole_characters():
    with pytest.raises(DataError, match="an alphabet is a set of characters"):
        from_json('{"kind": "char", "alphabet": "a\\ud800"}')
