"""Directories with tokenizers of every kind, as models are published: what tests read them from.

write_bpe(path, text)          # tokenizer.json, tokenizer_config.json
write_sentencepiece(path)      # tokenizer.model, written here without the library
"""

import argparse
import base64
import itertools
import json
import struct
from pathlib import Path

from fxad_nn.text import library_text

OWN = """First Citizen: We are accounted poor citizens, the patricians good. What authority surfeits
on would relieve us: if they would yield us but the superfluity, while it were wholesome, we might
guess they relieved us humanely; but they think we are too dear. In the year 1623, 36 plays. """


def corpus():
    """Some text to train on: of Shakespeare where it lies beside the project, else library code."""
    beside = Path(__file__).parents[3] / "shared" / "data" / "tinyshakespeare.txt"
    return beside.read_text("utf-8")[:100_000] if beside.is_file() else library_text()[:100_000]


def corpora():
    """Texts of several kinds by name: indented ones and code have what verses lack, paragraphs that
    begin with spaces and long rows of one character."""
    license = Path(__file__).parents[2] / "LICENSE"
    code = Path(argparse.__file__).read_text("utf-8")[:100_000]
    return {"corpus": corpus(), "license": license.read_text("utf-8"), "code": code}


TEXTS = [
    "First Citizen: we are accounted poor citizens",
    "  two  spaces\tand\n\n\nlines \n ",
    "naïve café \N{GRINNING FACE} 12345 don't I'LL",
    "日本語のテキスト и русский",
    "<s> hi</s> there <|im_start|>user\nhello<|im_end|>\n",
    "",
    " ",
    "\u2581under \u2581 score",
]

SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
NAMED = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False), "utf-8")


def write_config(path, **values):
    write_json(path / "tokenizer_config.json", {**NAMED, **values})


def trained(kind, text):
    """A small tokenizer of the library: "BPE" by bytes, "fallback" to bytes, Unigram, WordPiece."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    if kind == "BPE":
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=600, show_progress=False, special_tokens=SPECIAL, initial_alphabet=alphabet
        )
    elif kind == "fallback":
        made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        made.normalizer = normalizers.Sequence(
            [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        )
        made.decoder = decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
            + [decoders.Strip(" ", 1, 0)]
        )
        trainer = trainers.BpeTrainer(
            vocab_size=500, special_tokens=SPECIAL + byte_tokens, show_progress=False
        )
        text = "\n".join(word for word in text.split())  # or a merge would span words
    elif kind == "Unigram":
        made = Tokenizer(models.Unigram())
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        made.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=400, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
        )
    else:
        made = Tokenizer(models.WordPiece(unk_token="<unk>"))
        made.normalizer = normalizers.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(
            vocab_size=400, special_tokens=SPECIAL, show_progress=False
        )
    made.train_from_iterator(text.splitlines(), trainer)
    return made


def write_trained(path, kind, text, **config):
    path.mkdir(parents=True, exist_ok=True)
    trained(kind, text).save(str(path / "tokenizer.json"))
    write_config(path, tokenizer_class="PreTrainedTokenizerFast", **config)
    return path


def write_gpt2(path, text, tokenizer_class="GPT2Tokenizer", **config):
    """vocab.json and merges.txt of a byte-level BPE, whose end of text is <|endoftext|>."""
    path.mkdir(parents=True, exist_ok=True)
    model = json.loads(trained("BPE", text).to_str())["model"]
    vocab = {**model["vocab"], "<|endoftext|>": len(model["vocab"])}
    write_json(path / "vocab.json", vocab)
    lines = [" ".join(merge) for merge in model["merges"]]
    (path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(lines) + "\n", "utf-8")
    write_json(path / "tokenizer_config.json", {"tokenizer_class": tokenizer_class, **config})
    return path


def tiktoken_ranks(text, merges=200):
    """Tokens with their ranks, merged by their frequency in `text` as tiktoken's are."""
    words = [[bytes([byte]) for byte in word] for word in (" " + text).encode().split(b" ")[:4000]]
    ranks = {bytes([byte]): byte for byte in range(256)}
    for _ in range(merges):
        counts = {}
        for word in words:
            for pair in itertools.pairwise(word):
                counts[pair] = counts.get(pair, 0) + 1
        left, right = max(counts, key=lambda pair: (counts[pair], pair))
        ranks[left + right] = len(ranks)
        for word in words:
            at = 0
            while at < len(word) - 1:
                if (word[at], word[at + 1]) == (left, right):
                    word[at : at + 2] = [left + right]
                at += 1
    return ranks


def tiktoken_lines(ranks):
    return b"".join(
        base64.b64encode(token) + b" %d\n" % rank for token, rank in sorted(ranks.items(), key=str)
    )


# SentencePiece models, in the encoding of protocol buffers ----------------------------------------


def varint(value):
    out = b""
    value &= (1 << 64) - 1
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def message(*fields):
    """Pairs of a number and an int, float, text or bytes."""
    out = b""
    for number, value in fields:
        if isinstance(value, float):
            out += varint(number << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(content)) + content
    return out


def sentencepiece(pieces, model_type=2, trainer=(), normalizer=()):
    """A tokenizer.model of (text, score, type) of pieces."""
    fields = [(1, message((1, text), (2, float(score)), (3, kind))) for text, score, kind in pieces]
    fields.append((2, message((3, model_type), *trainer)))
    fields.append((3, message(*normalizer)))
    return message(*fields)


PIECES = [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3), ("<sep>", 0, 4)]
PIECES += [(f"<0x{byte:02X}>", 0, 6) for byte in range(256)]
PIECES += [("he", -1, 1), ("ll", -2, 1), ("hell", -3, 1), ("\u2581hell", -4, 1), ("lo", -5, 1)]
PIECES += [(letter, -6 - i, 1) for i, letter in enumerate("\u2581ehlowrd")]


def write_sentencepiece(path, **config):
    """A small BPE with bytes to fall back on, of the pieces above."""
    path.mkdir(parents=True, exist_ok=True)
    content = sentencepiece(PIECES, trainer=[(35, 1)], normalizer=[(4, 0)])
    (path / "tokenizer.model").write_bytes(content)
    if config:
        write_json(path / "tokenizer_config.json", config)
    return path
