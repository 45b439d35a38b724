"""Whatever a file holds, reading it gives what it says or one of the library's own errors.

10,000 files of every kind that the library reads, each damaged at random (`tests/damage.py`). Every
kind starts from files that are whole, and is read as a user would.
"""

import contextlib
import hashlib
import json
import random
import resource
import shutil
import warnings
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
from damage import damaged, damaged_value
from tokenizer_directories import tiktoken_lines, write_json, write_sentencepiece

import fxad
from fxad.core.schema import anything, read, record
from fxad_nn import chat_template, decoder, gpt2, manifest, models, optim, store, tensors
from fxad_nn.adapters import load_adapters, save_adapters
from fxad_nn.chat_data import read_conversations
from fxad_nn.errors import DamageWarning, DataError, UserError
from fxad_nn.families import family_of
from fxad_nn.lora import Lora, add_lora
from fxad_nn.model import Model, load, save
from fxad_nn.options import build
from fxad_nn.recipe import TrainOptions
from fxad_nn.rotary import RopeScaling
from fxad_nn.run import resumed_options
from fxad_nn.shards import read_shard, write_shard
from fxad_nn.spec import init_params, named_leaves
from fxad_nn.token_cache import read_tokens, write_tokens
from fxad_nn.tokenizer import Characters, from_directory, from_json

pytest.importorskip("tokenizers")

FILES = 10_000
GPT2 = models.preset("tiny", layers=1)
LLAMA = models.preset("llama-tiny", layers=1, dtype="float16")
FAMILY_CONFIGS = {
    "gemma3": replace(
        models.preset("gemma3-1b"), vocab=65, layers=2, width=16, hidden=32, head_dim=6,
        local=(False, True),
    ),
    "phi3": replace(
        LLAMA, family="phi3", fused=True, head_dim=8, rotated=4, rope_scaling=RopeScaling(
            kind="longrope", short=(1.0, 1.5), long=(2.0, 4.5), factor=2.0, original_context=8
        ),
    ),
    "olmoe": replace(
        LLAMA, family="olmoe", experts=3, chosen=2, query_norms="whole",
        rope_scaling=RopeScaling(kind="yarn", original_context=8),
    ),
}  # fmt: skip
OPTIONS = {"preset": "tiny", "data": "t.txt", "steps": 9, "learning_rate": 1e-3, "bias": True}


def overwrite(path, content):
    """Write in place: to truncate a file to nothing first is slow on some file systems."""
    with open(path, "r+b" if path.exists() else "wb", buffering=0) as file:
        file.write(content)
        file.truncate(len(content))


# The kinds of files -------------------------------------------------------------------------------


class Kind:
    """Some files that are whole, and how they are read. `files` are damaged in turn."""

    def __init__(self, files, reading):
        self.files = {path: path.read_bytes() for path in files}
        self.reading = reading

    def damage(self, draw):
        path, content = draw.choice(list(self.files.items()))
        overwrite(path, self.damaged(draw, content))
        try:
            self.reading()
        finally:
            overwrite(path, content)

    def damaged(self, draw, content):
        return damaged(draw, content)


class Tensors(Kind):
    """safetensors files: half of the damage is to the header, whose length then fits again."""

    def damaged(self, draw, content):
        if draw.random() < 0.5:
            return super().damaged(draw, content)
        length = int.from_bytes(content[:8], "little")
        header = damaged(draw, content[8 : 8 + length])
        return len(header).to_bytes(8, "little") + header + content[8 + length :]


class Sealed(Kind):
    """A checkpoint whose manifest fits its damaged files, as if a program had written them so."""

    def __init__(self, path, reading):
        self.path, self.body = path, json.loads((path / manifest.MANIFEST).read_bytes())
        self.body.pop("seal")
        super().__init__([path / store.STATE, path / store.TOKENIZER], reading)

    def damage(self, draw):
        path, content = draw.choice(list(self.files.items()))
        changed = self.damaged(draw, content)
        overwrite(path, changed)
        listed = {"bytes": len(changed), "sha256": hashlib.sha256(changed).hexdigest()}
        files = {**self.body["files"], path.name: listed}
        body = {**self.body, "files": files}
        if draw.random() < 0.2:
            with contextlib.suppress(ValueError):
                body = json.loads(damaged_value(draw, body))
        try:
            overwrite(self.path / manifest.MANIFEST, manifest.sealed(body).encode())
            self.reading()
        finally:
            overwrite(path, content)


def small_bpe():
    letters = [*"abehlo", "\u0120"]
    return {piece: i for i, piece in enumerate([*letters, "he", "ll", "hell", "<|endoftext|>"])}


def use(tokenizer):
    """What is done with a tokenizer that could be read."""
    ids = tokenizer.encode("hello")
    tokenizer.decode(ids)
    from_json(tokenizer.to_json())


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def kinds(home):
    params = init_params(gpt2.spec(GPT2), fxad.random.key(0))
    state = {"options": {**OPTIONS, "out": None}, "source": "t.txt", "data_size": 12}
    state["history"] = {"train": [[2, 3.5], [4, 3.25]], "val": []}
    moments = optim.adamw(0.1).init(params)
    run = store.save(home / "run", 4, params, moments, GPT2, Characters("abc"), state)
    sealed = store.save(home / "sealed", 4, params, moments, GPT2, Characters("abc"), state)

    def reading_sealed():
        store.load(sealed)
        resumed_options(sealed, steps=12)

    for name in ("gpt2", "llama", "sharded", "bpe", "pairs"):
        (home / name).mkdir()
    gpt2_files = hugging_face(home / "gpt2", GPT2, params)
    llama_files = hugging_face(
        home / "llama", LLAMA, init_params(decoder.spec(LLAMA), fxad.random.key(0))
    )
    sharded = split(home / "sharded", gpt2_files)
    fields = [home / name / "config.json" for name in FAMILY_CONFIGS]
    for path in fields:
        config = FAMILY_CONFIGS[path.parent.name]
        params = init_params(decoder.spec(config), fxad.random.key(0))
        save(Model(params, config), path.parent)
    vocab, merges = home / "pairs" / "vocab.json", home / "pairs" / "merges.txt"
    vocab.write_text(json.dumps(small_bpe()), "utf-8")
    merges.write_text("#version: 0.2\nh e\nl l\nhe ll\n", "utf-8")
    pairs = from_directory(home / "pairs")
    own, theirs = home / "own.json", home / "bpe" / "tokenizer.json"
    own.write_text(pairs.to_json(), "utf-8")
    theirs.write_text(json.dumps(json.loads(pairs.to_json())["tokenizer"]), "utf-8")
    write_shard(home / "x.bin", np.arange(300) % 50)
    write_tokens(home / "t.ids", np.arange(300, dtype="<u2") % 50)
    (home / "options.json").write_text(json.dumps(OPTIONS), "utf-8")
    (home / "model.json").write_text(json.dumps(models.to_dict(models.preset("llama3.2-1b"))))

    tokenizers, tuning = tokenizer_files(home), tuning_files(home)

    def json_of(name):
        return read(home / name, record({}, others=anything), DataError)

    return {
        "checkpoint": Kind(run.iterdir(), lambda: store.load(run)),
        "sealed": Sealed(sealed, reading_sealed),
        "gpt2": Tensors(gpt2_files[1:], lambda: load(home / "gpt2")),
        "llama": Tensors(llama_files[1:], lambda: load(home / "llama")),
        "gpt2 config": Kind(gpt2_files[:1], lambda: load(home / "gpt2")),
        "llama config": Kind(llama_files[:1], lambda: load(home / "llama")),
        "family configs": Kind(fields, lambda: [load(path.parent) for path in fields]),
        "index": Kind(sharded, lambda: load(home / "sharded")),
        "tokenizer": Kind([theirs], lambda: use(from_directory(home / "bpe"))),
        "own tokenizer": Kind([own], lambda: use(from_json(own.read_bytes()))),
        "pairs": Kind([vocab, merges], lambda: use(from_directory(home / "pairs"))),
        **tokenizers,
        **tuning,
        "shard": Kind([home / "x.bin"], lambda: read_shard(home / "x.bin", 50)),
        "tokens": Kind([home / "t.ids"], lambda: read_tokens(home / "t.ids", "<u2", 50)),
        "options": Kind(
            [home / "options.json"], lambda: build(TrainOptions, json_of("options.json"), "o")
        ),
        "model": Kind(
            [home / "model.json"], lambda: models.from_dict(json_of("model.json"), "model.json")
        ),
    }


def tokenizer_files(home):
    """The other kinds of tokenizers, and what stands beside them."""
    for name in ("unigram", "wordpiece", "tiktoken", "settings"):
        (home / name).mkdir()
    pieces = [["<unk>", 0.0], ["h", -2.5], ["e", -1.5], ["l", -1.25], ["o", -2.0], ["hell", -3.0]]
    unigram = {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": False}
    words = {"[UNK]": 0, "h": 1, "##e": 2, "##l": 3, "##o": 4, "hell": 5}
    wordpiece = {"type": "WordPiece", "unk_token": "[UNK]", "vocab": words}
    wordpiece |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    for name, model in [("unigram", unigram), ("wordpiece", wordpiece)]:
        write_json(home / name / "tokenizer.json", {"added_tokens": [], "model": model})
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"he": 256, b"ll": 257, b"hell": 258}
    (home / "tiktoken" / "some.tiktoken").write_bytes(tiktoken_lines(ranks))
    write_sentencepiece(home / "pieces")
    shutil.copy(home / "bpe" / "tokenizer.json", home / "settings")
    end = {"content": "<|endoftext|>", "special": True, "normalized": False}
    settings = {"added_tokens_decoder": {"10": end}, "eos_token": "<|endoftext|>"}
    settings |= {"add_bos_token": False, "legacy": None, "bos_token": end, "extra": ["<a>"]}
    write_json(home / "settings" / "tokenizer_config.json", settings)
    write_json(home / "settings" / "generation_config.json", {"eos_token_id": [10, 3]})
    (home / "templates").mkdir()
    named = [{"name": "default", "template": "{{ messages }}"}, {"name": "rag", "template": "x"}]
    write_json(home / "templates" / "tokenizer_config.json", {"chat_template": named})
    config = [home / "templates" / "tokenizer_config.json"]
    files = {
        "unigram": ["tokenizer.json"],
        "wordpiece": ["tokenizer.json"],
        "tiktoken": ["some.tiktoken"],
        "pieces": ["tokenizer.model"],
        "settings": ["tokenizer_config.json", "generation_config.json"],
    }

    def kind(name):
        paths = [home / name / file for file in files[name]]
        return Kind(paths, lambda: use(from_directory(home / name)))

    templates = Kind(config, lambda: chat_template.templates(home / "templates"))
    return {"templates": templates, **{name: kind(name) for name in files}}


def tuning_files(home):
    """Conversations of every format, as lines and as arrays, and adapters."""
    call = {"name": "f", "arguments": '{"x": [1, 2]}'}
    question, answer = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}
    turns = [{"from": "human", "value": "Hi"}, {"from": "function_call", "value": json.dumps(call)}]
    called = {"role": "assistant", "tool_calls": [{"type": "function", "function": call}]}
    records = {
        "messages": {"messages": [question, called, answer], "tools": [{"name": "f"}]},
        "sharegpt": {"conversations": turns, "system": "Be kind.", "tools": '[{"name": "f"}]'},
        "alpaca": {"instruction": "Add.", "input": "1, 2", "output": "3", "history": [["a", "b"]]},
        "preference": {"prompt": [question], "chosen": [answer], "rejected": [called]},
    }
    chats = []
    for name, value in records.items():
        chats += [home / f"{name}.jsonl", home / f"{name}.json"]
        chats[-2].write_text(f"{json.dumps(value)}\n" * 3, "utf-8")
        chats[-1].write_text(json.dumps([value] * 3, indent=1), "utf-8")
    params = init_params(decoder.spec(LLAMA), fxad.random.key(0))
    adapted = add_lora(params, LLAMA, 2, 4.0, ("q_proj", "up_proj"), fxad.random.key(1))
    save_adapters(home / "adapter", adapted, LLAMA, Lora(2, 4.0, ("q_proj", "up_proj")), "x")

    def read_adapters():
        load_adapters(home / "adapter", params, LLAMA)

    def read_chats():
        for path in chats:
            for _ in read_conversations(path):
                pass

    return {
        "chats": Kind(chats, read_chats),
        "adapter": Tensors([home / "adapter" / "adapter_model.safetensors"], read_adapters),
        "adapter config": Kind([home / "adapter" / "adapter_config.json"], read_adapters),
    }


def hugging_face(directory, config, params):
    """config.json and model.safetensors of a model of ours, the fields chosen by hand."""
    if isinstance(config, gpt2.Config):
        values = {"model_type": "gpt2", "n_layer": 1, "n_head": 2}
        values |= {"vocab_size": 65, "n_positions": 16, "n_embd": 16, "n_inner": None}
        values |= {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
    else:
        values = {"model_type": "llama", "vocab_size": 65}
        values |= {"max_position_embeddings": 16, "num_hidden_layers": 1, "hidden_size": 16}
        values |= {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32}
        values |= {"head_dim": None, "rope_theta": 1e4, "rms_norm_eps": 1e-5}
        values["rope_scaling"] = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1}
        values["rope_scaling"] |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8}
    family, leaves = family_of(config), named_leaves(params)
    theirs = {family.published(name): np.asarray(leaf) for name, leaf in leaves}
    (directory / "config.json").write_text(json.dumps(values), "utf-8")
    safetensors.numpy.save_file(theirs, directory / "model.safetensors")
    return [directory / "config.json", directory / "model.safetensors"]


def split(directory, files):
    """A directory's weights in two files with an index; returns the index."""
    config, weights = files
    shutil.copy(config, directory)
    found = {tensor.name: np.asarray(tensor.read()) for tensor in tensors.stored([weights])}
    places = {name: f"part-{i % 2}.safetensors" for i, name in enumerate(found)}
    for file in set(places.values()):
        part = {name: leaf for name, leaf in found.items() if places[name] == file}
        safetensors.numpy.save_file(part, directory / file)
    index = directory / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}), "utf-8")
    return [index]


NAMES = ["checkpoint", "sealed", "gpt2", "llama", "gpt2 config", "llama config", "index"]
NAMES += ["family configs"]
NAMES += ["tokenizer", "own tokenizer", "pairs", "shard", "tokens", "options", "model"]
NAMES += ["chats", "adapter", "adapter config"]
NAMES += ["templates", "unigram", "wordpiece", "tiktoken", "pieces", "settings"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_damaged_files_raise_nothing_but_the_library_s_errors(kinds, name):
    kind, refused, count = kinds[name], 0, -(-FILES // len(NAMES))
    draw = random.Random(name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        kind.reading()  # whole: nothing is raised
        for _ in range(count):
            try:
                kind.damage(draw)
            except UserError as error:
                refused += 1
                assert 10 < len(str(error)) < 3000
    assert refused > count // 4 or name == "tokens"  # which are made again
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100 << 10  # KiB
