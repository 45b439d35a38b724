"""Which ids are trained, what is cut or left out, and how documents share rows."""

import dataclasses

import numpy as np
import pytest
from chat_stand_ins import START, Letters, Turns
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_directories import write_sentencepiece

from fxad_nn.chat_data import Completion, Conversation, Preference
from fxad_nn.chat_examples import Counts, Encoder, Example, Pair, encoded
from fxad_nn.errors import ConfigError, DataError
from fxad_nn.loss import IGNORE
from fxad_nn.packing import pack, packed, widths
from fxad_nn.tokenizer import from_directory

ENCODER = Encoder(Letters(), Turns(), 128)


def said(*turns, given=0):
    roles = {"s": "system", "u": "user", "a": "assistant"}
    messages = [{"role": roles[who], "content": text} for who, text in turns]
    return Conversation(messages, None, "chat.jsonl, line 3", frozenset(range(given)))


def shown(example):
    """The text, with what is not trained as dots."""
    pairs = zip(example.ids, example.trained, strict=True)
    return "".join(chr(i) if trained else "." for i, trained in pairs)


def test_answers_are_trained_with_the_end_of_their_turn():
    item = said(("u", "Hi"), ("a", "Yo"), ("u", "?"), ("a", "!"))
    example = ENCODER.example(item)
    assert "".join(map(chr, example.ids)) == "^u:Hi$a:Yo$u:?$a:!$"
    assert shown(example) == "........Yo$......!$"
    assert shown(ENCODER.example(dataclasses.replace(item, untrained={0, 1, 2}))) == "." * 17 + "!$"


def test_a_completion_is_trained_with_its_end_and_has_one_start():
    assert shown(ENCODER.example(Completion("2+2=", "4", "x"))) == ".....4$"
    for prompt in ("2+2=", "^2+2="):
        assert ENCODER.example(Completion(prompt, "4$", "x")).ids.tolist() == [*b"^2+2=4$"]
    without = Encoder(Letters(start=None), None, 128).example(Completion("", "4", "x"))
    assert shown(without) == ".$"  # nothing comes before the first token, so it is not predicted


class Pairs(Letters):
    """Every two characters are an id, as SentencePiece's tokens join a space and a word."""

    def encode_with_offsets(self, text):
        ids, offsets = super().encode_with_offsets(text)
        return ids[::2], np.minimum(offsets[::2] + [0, 1], len(text))


@pytest.mark.parametrize(
    ("prompt", "completion", "trained"),
    [("2+2=", "4444", "...44$"), ("2+2= ", "444", "... 4$"), ("2+2", "", "...$"), ("", "4", ".$")],
)
def test_a_token_that_straddles_the_border_is_the_completion_s(prompt, completion, trained):
    encoder = Encoder(Pairs(start=None if not prompt else START), None, 128)
    assert shown(encoder.example(Completion(prompt, completion, "x"))) == trained


@pytest.mark.parametrize("border", [5, 6])
def test_a_completion_of_a_sentencepiece_tokenizer_begins_without_a_space(tmp_path, border):
    """Encoded alone, it would get the space that such tokenizers put before a text."""
    pytest.importorskip("tokenizers")
    path, text = write_sentencepiece(tmp_path, add_bos_token=True), "hello hello"
    tokenizer = from_directory(path)
    item = Completion(text[:border], text[border:], "x")
    example = Encoder(tokenizer, None, tokenizer.size).example(item)
    start, end = tokenizer.ids.bos, tokenizer.ids.eos[0]
    assert example.ids.tolist() == [start, *tokenizer.encode(text).tolist(), end]
    # Its first token is that of " hell", whether the prompt or the completion has the space.
    first = tokenizer.encode("hello").tolist()
    assert example.ids[example.trained].tolist() == [*first, end]


def test_a_prompt_that_ends_a_turn_has_an_empty_answer_after_it():
    assert shown(ENCODER.example(Completion("Hi$", "", "x"))) == "....$"


def test_what_is_cut_or_left_out_is_counted():
    items = [
        said(("u", "Hi"), ("a", "Yo")),  # 10 positions
        said(("u", "Hi"), ("a", "A long answer.")),
        said(("u", "A long question?"), ("a", "Yo")),
        said(("u", "nobody answers")),
        said(),
    ]
    counts = Counts()
    kept = list(encoded(items, ENCODER, 10, "truncate", counts))
    assert [shown(example) for example in kept] == ["........Yo$", "........A l"]
    assert counts == Counts(5, 2, truncated=1, empty=2, dropped=1, tokens=20, trained=6)
    assert str(counts) == ("5 read, 2 used (20 tokens, 6 trained); 1 truncated, 2 empty, 1 dropped")
    counts = Counts()
    assert len(list(encoded(items, ENCODER, 10, "drop", counts))) == 1
    assert counts.dropped == 2
    with pytest.raises(DataError, match="line 3 takes 22 tokens, the context holds 10"):
        list(encoded(items, ENCODER, 10, "error", Counts()))
    with pytest.raises(ConfigError, match="truncate, drop, error"):
        list(encoded(items, ENCODER, 10, "ignore", Counts()))


def test_a_pair_is_trained_if_both_answers_are():
    better, worse = (said(("u", "Hi"), ("a", text), given=1) for text in ("Hello!", "No"))
    counts = Counts()
    [pair] = encoded([Preference(better, worse, "x")], ENCODER, 64, "truncate", counts)
    assert isinstance(pair, Pair)
    assert (shown(pair.chosen), shown(pair.rejected)) == ("........Hello!$", "........No$")
    assert (counts.used, counts.trained, len(pair)) == (1, 10, 14)
    nothing = Preference(better, said(("u", "Hi"), given=1), "x")
    assert list(encoded([nothing], ENCODER, 64, "truncate", counts)) == []
    assert counts.empty == 1


def test_pairs_with_equal_answers_are_counted():
    """They stay: a run that was saved before they were counted goes on with the same data."""
    long, other = (said(("u", "Hi"), ("a", text), given=1) for text in ("Hello!", "Hell"))
    pairs = [Preference(long, long, "x"), Preference(long, other, "x")]
    counts = Counts()
    assert len(list(encoded(pairs, ENCODER, 64, "truncate", counts))) == 2
    assert (counts.equal, counts.empty) == (1, 0)
    assert str(counts).endswith("0 dropped; 1 pair with equal answers, which teach nothing")
    counts = Counts()  # of a context in which they end before they differ
    assert len(list(encoded(pairs, ENCODER, 11, "truncate", counts))) == 2
    assert str(counts).endswith("; 2 pairs with equal answers, which teach nothing")


def test_errors_name_the_line():
    with pytest.raises(DataError, match="line 3: the assistant cannot speak first"):
        ENCODER.example(said(("a", "Yo")))
    with pytest.raises(DataError, match="line 3 holds id 233 at position 3, outside the vocab"):
        ENCODER.example(said(("u", "é"), ("a", "Yo")))
    with pytest.raises(DataError, match="line 3: the model has no chat template"):
        Encoder(Letters(), None, 128).example(said(("u", "Hi")))


# Rows


def document(text, trained_from=1):
    return Example(
        np.frombuffer(text.encode(), np.uint8).astype(np.int32),
        np.arange(len(text)) >= trained_from,
    )


def test_no_target_crosses_a_document():
    batch = packed([[document("abc"), document("defg", 3)], [document("hi")]], 7)
    assert batch.tokens.tolist() == [[*b"abdef", 0, 0], [*b"h", 0, 0, 0, 0, 0, 0]]
    i = IGNORE
    assert batch.targets.tolist() == [[*b"bc", i, i, *b"g", i, i], [*b"i", i, i, i, i, i, i]]
    assert batch.segments.tolist() == [[1, 1, 2, 2, 2, 0, 0], [1, 0, 0, 0, 0, 0, 0]]
    assert all(array.dtype == np.int32 for array in batch)


def test_rows_hold_one_document_or_nothing():
    batch = packed([[document("abc")], []], 4)
    assert batch.tokens.tolist() == [[*b"ab", 0, 0], [0, 0, 0, 0]]
    assert (batch.targets[1] == IGNORE).all()
    assert batch.segments.tolist() == [[1, 1, 0, 0], [0, 0, 0, 0]]
    with pytest.raises(DataError, match="2 tokens do not fit in 1"):
        packed([[document("abc")]], 1)


@given(st.lists(st.integers(1, 20), max_size=60))
def test_rows_are_those_of_best_fit_decreasing(lengths):
    wanted: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        filled = [sum(lengths[j] for j in row) + lengths[i] for row in wanted]
        best = max((n for n in filled if n <= 20), default=None)
        if best is None:
            wanted.append([])
        wanted[-1 if best is None else filled.index(best)].append(i)
    assert pack(lengths, 20) == wanted


def test_a_document_longer_than_a_row_is_an_error():
    with pytest.raises(DataError, match="a document of 21 tokens does not fit in 20"):
        pack([3, 21], 20)


@pytest.mark.parametrize("longest", [1, 15, 16, 100, 2048, 131072])
def test_few_widths_and_the_longest_is_one_of_them(longest):
    found = widths(longest)
    assert len(found) <= 5
    assert found == sorted(set(found))
    assert found[-1] == longest
    assert all(width % 16 == 0 for width in found[:-1])
