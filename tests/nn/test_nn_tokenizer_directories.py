"""Tokenizers from models' directories: what is found, the same ids and text as transformers."""

import json
import os
import shutil

import numpy as np
import pytest
from tokenizer_directories import (
    OWN,
    PIECES,
    TEXTS,
    corpora,
    corpus,
    message,
    sentencepiece,
    tiktoken_lines,
    tiktoken_ranks,
    write_config,
    write_gpt2,
    write_json,
    write_sentencepiece,
    write_trained,
)

from fxad_nn.errors import DataError
from fxad_nn.tokenizer import from_directory, from_json
from fxad_nn.vocabulary import SpecialIds

pytest.importorskip("tokenizers")

TRAINED = ("BPE", "fallback", "Unigram", "WordPiece")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A directory of each kind."""
    home = tmp_path_factory.mktemp("tokenizers")
    for kind in TRAINED:
        write_trained(home / kind, kind, corpus())
    added = {"content": "<|tool|>", "special": True, "normalized": False, "lstrip": True}
    plain = {"content": "<think>", "special": False}
    decoder = {"601": {**added, "rstrip": False, "single_word": False}, "602": plain}
    write_gpt2(home / "gpt2", corpus(), add_prefix_space=True)
    write_gpt2(home / "qwen", corpus(), "Qwen2Tokenizer", added_tokens_decoder=decoder)
    write_sentencepiece(home / "pieces", tokenizer_class="PreTrainedTokenizerFast")
    (home / "tiktoken").mkdir()
    (home / "tiktoken" / "tokenizer.model").write_bytes(tiktoken_lines(tiktoken_ranks(corpus())))
    names = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    decoder = {str(456 + i): {"content": name, "special": True} for i, name in enumerate(names)}
    write_json(
        home / "tiktoken" / "tokenizer_config.json",
        {"added_tokens_decoder": decoder, "bos_token": "<s>", "eos_token": "<|im_end|>"}
        | {"add_bos_token": True, "tokenizer_class": "PreTrainedTokenizerFast"},
    )
    return home


KINDS = [*TRAINED, "gpt2", "qwen", "pieces", "tiktoken"]


# Beside transformers and the libraries the files come from ----------------------------------------


def theirs(path):
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(str(path), local_files_only=True)


def same(path, texts=TEXTS):
    mine, peer = from_directory(path), theirs(path)
    for text in [*texts, OWN]:
        ids = mine.encode(text).tolist()
        assert ids == peer.encode(text, add_special_tokens=False), text
        whole = mine.encode(text, add_special_tokens=True).tolist()
        assert whole == peer.encode(text, add_special_tokens=True), text
        assert mine.decode(ids) == peer.decode(ids), text
    assert mine.ids.bos == peer.bos_token_id
    assert mine.ids.eos[:1] == (() if peer.eos_token_id is None else (peer.eos_token_id,))
    assert mine.ids.pad == peer.pad_token_id
    assert mine.ids.unk == peer.unk_token_id
    assert mine.size == len(peer)
    return mine


@pytest.mark.peers
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_ids_and_text_as_transformers(home, kind):
    same(home / kind)


@pytest.mark.peers
def test_the_same_tokens_added_and_named_as_in_transformers(home, tmp_path):
    path = shutil.copytree(home / "BPE", tmp_path / "added")
    size = len(theirs(path))
    token = {"content": "<|call|>", "lstrip": False, "rstrip": True, "single_word": False}
    decoder = {str(size): {**token, "special": False, "normalized": True}}
    write_config(
        path,
        tokenizer_class="PreTrainedTokenizerFast",
        added_tokens_decoder=decoder,
        pad_token={"content": "[PAD]", "__type": "AddedToken"},
        image_token="<image>",
        additional_special_tokens=["<a>", "<b>"],
        add_bos_token=True,
    )
    made = same(path, ["<|call|>  you<image>[PAD]", "a <a><b> b", "<s><|im_end|>"])
    assert made.ids.pad == size + 1


@pytest.mark.peers
def test_the_files_of_older_directories_as_transformers_reads_them(home, tmp_path):
    path = shutil.copytree(home / "BPE", tmp_path / "older")
    size = len(theirs(path))
    write_json(path / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    write_json(path / "added_tokens.json", {"<|end|>": size, "<plain>": size + 1})
    eos = {"content": "<|end|>", "lstrip": False, "normalized": False, "single_word": False}
    write_json(path / "special_tokens_map.json", {"eos_token": eos, "bos_token": "<s>"})
    made = same(path, ["hello<|end|>", "a <plain> one"])
    assert made.ids == SpecialIds(bos=1, eos=(size,))


@pytest.mark.peers
def test_wordpiece_cleans_up_as_in_transformers(home, tmp_path):
    path = shutil.copytree(home / "WordPiece", tmp_path / "clean")
    write_config(path, tokenizer_class="PreTrainedTokenizerFast", clean_up_tokenization_spaces=True)
    made = same(path, ["we are, at last. don't 've !"])
    again = from_json(made.to_json())
    assert again.decode(made.encode("one , two")) == "one, two"


@pytest.mark.peers
@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("kind", ["corpus", "license", "code"])
def test_sentencepiece_models_as_their_library_and_transformers_read_them(
    tmp_path, model_type, legacy, kind
):
    library, content = pytest.importorskip("sentencepiece"), corpora()[kind]
    (tmp_path / "text.txt").write_text(content, "utf-8")
    library.SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"),
        model_prefix=str(tmp_path / "tokenizer"),
        model_type=model_type,
        vocab_size=700,
        byte_fallback=True,
        user_defined_symbols=["<sep>", "++"],
        control_symbols=["<|im_start|>", "<|im_end|>"],
        remove_extra_whitespaces=legacy,
        normalization_rule_name="nmt_nfkc" if legacy else "identity",
        minloglevel=2,
    )
    write_json(
        tmp_path / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "legacy": legacy, "add_bos_token": True},
    )
    paragraphs = content[:20_000].split("\n\n")
    texts = [text for text in TEXTS if legacy or not text.startswith("\u2581")]
    mine = same(tmp_path, [*texts, *paragraphs])
    processor = library.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    for text in [*TEXTS, "a <sep> b++c ++ d", *paragraphs]:
        # Control pieces are text to SentencePiece alone. Without `legacy`, transformers puts no
        # space before a text that begins with one.
        if "<s>" in text or (not legacy and text[:1] in ("", " ", "\u2581")):
            continue
        ids, theirs = mine.encode(text).tolist(), processor.encode(text)
        tied = model_type == "unigram" and equally_likely(processor, ids, theirs)
        assert ids == theirs or tied, text
        assert mine.decode(ids) == processor.decode(ids), text


def equally_likely(processor, ids, theirs):
    """Whether these are two ways to write one text whose scores, summed in float32 as SentencePiece
    does, differ by their rounding alone: it may then choose either. A sum of n terms is off by at
    most n roundings of the largest partial sum."""
    scores = [[processor.get_score(i) for i in some] for some in (ids, theirs)]
    off = (len(ids) + len(theirs)) * np.finfo(np.float32).eps * abs(sum(scores[0]))
    same = processor.decode(ids) == processor.decode(theirs)
    return same and abs(sum(scores[0]) - sum(scores[1])) <= off


@pytest.mark.peers
@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base", "gpt2", "qwen"])
def test_tiktoken_files_as_their_library_reads_them(tmp_path, name):
    tiktoken = pytest.importorskip("tiktoken")
    from fxad_nn.byte_level import CL100K_WORDS, TIKTOKEN_WORDS

    ranks = tiktoken_ranks(corpus(), 400)
    (tmp_path / f"{name}.tiktoken").write_bytes(tiktoken_lines(ranks))
    pattern = TIKTOKEN_WORDS.get(name, CL100K_WORDS)
    encoding = tiktoken.Encoding(
        name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 10_000}
    )
    mine = from_directory(tmp_path)
    for text in [*TEXTS, *corpus()[:50_000].split("\n\n")]:
        ids = mine.encode(text).tolist()
        assert ids == encoding.encode(text), text
        assert mine.decode(ids) == text


# What is found ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_is_the_same_again_from_its_own_text(home, kind):
    made = from_directory(str(home / kind))
    again = from_json(made.to_json())
    assert again.ids == made.ids
    assert again.size == made.size
    for text in TEXTS:
        assert again.encode(text).tolist() == made.encode(text).tolist()
        ids, offsets = made.encode_with_offsets(text)
        assert ids.tolist() == made.encode(text).tolist()
        assert offsets.shape == (len(ids), 2)
        assert offsets.min(initial=0) >= 0
        assert offsets.max(initial=0) <= len(text)


@pytest.mark.parametrize("kind", ["BPE", "qwen", "tiktoken"])
def test_byte_level_texts_round_trip(home, kind):
    made = from_directory(home / kind)
    texts = TEXTS if kind != "qwen" else [text for text in TEXTS if "naïve" not in text]
    for text in texts:
        assert made.decode(made.encode(text)) == text


def test_ids_before_and_after_a_text_only_where_they_are_asked_for(home):
    made = from_directory(home / "tiktoken")
    assert made.encode("hi", add_special_tokens=True).tolist() == [456, *made.encode("hi")]
    assert made.encode("<s>")[0] == made.ids.bos == 456


@pytest.mark.parametrize(
    ("eos", "ids"), [(None, (2,)), (4, (2, 4)), ([3, 2, 4], (2, 3, 4)), ([4, 999_999], (2, 4))]
)
def test_all_end_ids_come_from_the_generation_config(home, tmp_path, eos, ids):
    path = shutil.copytree(home / "BPE", tmp_path / "generation")
    write_json(path / "config.json", {"eos_token_id": 0, "pad_token_id": 0})
    write_json(path / "generation_config.json", {"eos_token_id": eos, "top_p": 0.9})
    assert from_directory(path).ids.eos == ids
    (path / "generation_config.json").unlink()
    assert from_directory(path).ids.eos == (2, 0)


def test_added_tokens_may_leave_gaps(home, tmp_path):
    path = shutil.copytree(home / "qwen", tmp_path / "gaps")
    decoder = {"900": {"content": "<|far|>", "special": True}}
    write_json(
        path / "tokenizer_config.json",
        {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": decoder},
    )
    made = from_directory(path)
    assert made.size == 901
    assert made.encode("<|far|>").tolist() == [900]


# Bad input ----------------------------------------------------------------------------------------


def damaged(path, name, value):
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    (path / name).write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("kind", "name", "value", "saying"),
    [
        ("BPE", "tokenizer_config.json", [], "must be an object"),
        ("BPE", "tokenizer_config.json", {"bos_token": 3}, "bos_token must be an object"),
        ("BPE", "tokenizer_config.json", {"bos_token": ""}, "without a text"),
        ("BPE", "tokenizer_config.json", {"add_bos_token": "yes"}, "true or false"),
        ("BPE", "tokenizer_config.json", {"split_special_tokens": True}, "must be false"),
        ("BPE", "tokenizer_config.json", {"added_tokens_decoder": {"x": {}}}, "ids as keys"),
        ("BPE", "tokenizer_config.json", {"added_tokens_decoder": {"7": {}}}, "hold content"),
        (
            "BPE",
            "tokenizer_config.json",
            {"added_tokens_decoder": {"7": {"content": "<s>"}}},
            "'<s>' the id 7, in .* it is 1",
        ),
        ("BPE", "special_tokens_map.json", {"eos_token": [1]}, "special_tokens_map.json: eos"),
        ("BPE", "added_tokens.json", {"<a>": 5, "<b>": 5}, "the id 5 to"),
        ("BPE", "generation_config.json", {"eos_token_id": "2"}, "eos_token_id must be"),
        ("BPE", "generation_config.json", {"eos_token_id": [2, -1]}, "from 0"),
        ("BPE", "tokenizer.json", {"model": {"type": "LSTM"}}, "BPE"),
        (
            "BPE",
            "tokenizer.json",
            {"model": {"type": "BPE", "dropout": 0.5, "vocab": {"a": 0}, "merges": []}},
            "dropout",
        ),
        ("Unigram", "tokenizer.json", {"model": {"vocab": []}}, "must hold 1 to"),
        ("Unigram", "tokenizer.json", {"model": {"vocab": [["a", "b"]]}}, "must be a number"),
        ("Unigram", "tokenizer.json", {"model": {"vocab": [["a", 0]], "unk_id": 1}}, "from 0 to 0"),
        ("WordPiece", "tokenizer.json", {"model": {"vocab": {"a": 0, "b": 0}}}, "the id 0 to"),
        ("tiktoken", "tokenizer.model", b"YQ== 0\nYQ== 1\n", "appears twice"),
        ("tiktoken", "tokenizer.model", b"YQ== 0\nYg== 0\n", "one id to two"),
        ("tiktoken", "tokenizer.model", b"YQ== 0\n!! 1\n", "line 2"),
        ("tiktoken", "tokenizer.model", b"YQ== 0\n", "no token for the byte"),
        ("tiktoken", "tokenizer.model", b"YQ== 99999999\n", "ids are below"),
        ("pieces", "tokenizer.model", b"", "not one of 0 pieces"),
        ("pieces", "tokenizer.model", b"\xff" * 20, "no SentencePiece model"),
        ("pieces", "tokenizer.model", sentencepiece(PIECES, 3), "type 3"),
        ("pieces", "tokenizer.model", sentencepiece(PIECES)[:-9], "no SentencePiece model"),
        ("pieces", "tokenizer.model", sentencepiece([*PIECES, ("he", 0, 1)]), "the same"),
        ("pieces", "tokenizer.model", sentencepiece([("x" * 300, 0, 1)]), "longer than 256"),
        ("pieces", "tokenizer.model", sentencepiece([("a", float("nan"), 1)]), "no number"),
        ("pieces", "tokenizer.model", message((1, 3)), "where bytes belong"),
        (
            "pieces",
            "tokenizer.model",
            sentencepiece(PIECES, normalizer=[(2, b"\1\2")]),
            "tokenizers library",
        ),
        ("gpt2", "vocab.json", {"a": 0}, "merges.txt"),
    ],
)
def test_damaged_files_are_named(home, tmp_path, kind, name, value, saying):
    path = damaged(shutil.copytree(home / kind, tmp_path / "damaged"), name, value)
    with pytest.raises(DataError, match=f"(?s)damaged.*{saying}"):
        from_directory(path)


def test_a_directory_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(DataError, match="is no directory"):
        from_directory(tmp_path / "none")
    with pytest.raises(DataError, match=r"has no tokenizer: neither tokenizer\.json"):
        from_directory(tmp_path)
    (tmp_path / "merges.txt").touch()
    with pytest.raises(DataError, match=r"vocab\.json is missing"):
        from_directory(tmp_path)


def test_a_tokenizer_s_config_opens_no_other_file(home, tmp_path):
    path = shutil.copytree(home / "BPE", tmp_path / "paths")
    outside = os.path.relpath("/etc/passwd", path)
    write_config(path, vocab_file=outside, tokenizer_file=outside, chat_template=outside)
    assert from_directory(path).size == from_directory(home / "BPE").size
