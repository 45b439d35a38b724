"""`fxad_nn.load`, `Model` and `fxad_nn.save`: what is kept, what is refused, and by which error."""

import errno
import gc
import json
import mmap
import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import children
import numpy as np
import pytest
import safetensors.numpy
from ended import save_and_end_at

import fxad
import fxad.numpy as jnp
import fxad_nn
from fxad.backend.llvm.native.memory import blocks
from fxad_nn import decoder, files, gpt2, hf, manifest, models, optim, store, tensors
from fxad_nn.cache import init_cache
from fxad_nn.errors import CheckpointError, ConfigError, DamageWarning, DataError
from fxad_nn.families import FAMILIES, family_of
from fxad_nn.layers import conv1d, linear
from fxad_nn.loss import IGNORE
from fxad_nn.mixture import balance_loss, mixture, route, z_loss
from fxad_nn.optim import adamw
from fxad_nn.rotary import RopeScaling
from fxad_nn.spec import from_named, init_params, named_leaves
from fxad_nn.step import train_step
from fxad_nn.tokenizer import Bytes

GPT2 = models.preset("tiny")
LLAMA = models.preset("llama-tiny", start=1, ends=(2, 5), pad=0)


def made(config, seed=0):
    params = init_params(models.family(config).spec(config), fxad.random.key(seed))
    return fxad_nn.Model(params, config)


def same_tree(one, other):
    for (name, leaf), (_, wanted) in zip(named_leaves(one), named_leaves(other), strict=True):
        np.testing.assert_array_equal(leaf, wanted, err_msg=name)


def rewrite(directory, **changes):
    """Change fields of config.json; those that are None are removed."""
    path = directory / "config.json"
    values = {**json.loads(path.read_text("utf-8")), **changes}
    kept = {name: value for name, value in values.items() if value is not None}
    path.write_text(json.dumps(kept), "utf-8")


def retensor(directory, change):
    """Change the tensors of model.safetensors, a dict of arrays."""
    path = directory / "model.safetensors"
    found = safetensors.numpy.load_file(path)
    change(found)
    safetensors.numpy.save_file(found, path)


def test_importing_the_package_loads_no_model():
    code = (
        "import sys, fxad_nn; print('fxad' in sys.modules, 'load' in dir(fxad_nn), "
        "hasattr(fxad_nn, 'no_such_name'), fxad_nn.load is fxad_nn.load)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False True False True", done.stderr


def test_a_model_is_a_pytree_with_static_configuration():
    model = made(LLAMA)
    leaves, structure = fxad.tree.flatten(model)
    assert len(leaves) == len(list(named_leaves(model.params)))
    hash(model.config)
    again = fxad.tree.unflatten(structure, leaves)
    assert again.config is model.config
    doubled = fxad.tree.map(lambda x: 2 * x, model)
    np.testing.assert_array_equal(
        doubled.params["norm"]["scale"], 2 * np.asarray(model.params["norm"]["scale"])
    )
    tokens = np.random.default_rng(0).integers(0, 65, (2, 9)).astype(np.int32)
    logits = model(tokens)
    assert logits.shape == (2, 9, 65)
    inside = fxad.jit(lambda model, tokens: model(tokens))(model, tokens)
    np.testing.assert_array_equal(inside, logits)
    grads = fxad.grad(lambda model: jnp.sum(model(tokens) ** 2))(model)
    assert type(grads) is fxad_nn.Model and float(jnp.abs(grads.params["norm"]["scale"]).max()) > 0
    np.testing.assert_array_equal(model([[1, 2]]), model(np.array([[1, 2]], np.int32)))
    with pytest.raises(DataError, match="outside the vocabulary of 65"):
        model(tokens + 60)
    with pytest.raises(ConfigError, match="17 tokens do not fit"):
        model(np.zeros((1, 17), np.int32))


SAVED = {
    "llama": LLAMA,
    "llama tied": replace(LLAMA, tied=True, head_dim=6),
    "llama biases": replace(LLAMA, qkv_bias=True, out_bias=True, mlp_bias=True),
    "llama bf16": replace(LLAMA, dtype="bfloat16"),
    "qwen2": replace(LLAMA, family="qwen2", qkv_bias=True),
    "qwen3": replace(LLAMA, family="qwen3", query_norms="head", window=8, local=(False, True)),
    "mistral": replace(LLAMA, family="mistral", window=3),
    "gemma2": replace(
        models.preset("gemma2-2b"),
        vocab=65,
        layers=2,
        width=16,
        hidden=32,
        head_dim=6,
        local=(True, False),
        context=32,
    ),
    "gemma3": replace(
        models.preset("gemma3-1b"),
        vocab=65,
        layers=2,
        width=16,
        hidden=32,
        head_dim=6,
        local=(False, True),
        context=32,
        dtype="bfloat16",
    ),
    "phi3": replace(
        LLAMA,
        family="phi3",
        fused=True,
        head_dim=8,
        rotated=4,
        rope_scaling=RopeScaling(
            kind="longrope", short=(1.0, 1.5), long=(2.0, 4.5), factor=2.0, original_context=8
        ),
    ),
    "mixtral": replace(LLAMA, family="mixtral", experts=3, chosen=2, balance_loss=0.5),
    "olmoe bf16": replace(
        LLAMA,
        family="olmoe",
        experts=4,
        chosen=3,
        renormalised=False,
        query_norms="whole",
        clip=0.5,
        router_losses=True,
        dtype="bfloat16",
    ),
    "gpt2": models.preset("tiny", ends=(3,)),
    "gpt2 options": models.preset(
        "tiny", activation="relu", scaled=False, scaled_by_layer=True, tied=False
    ),
}


def test_a_model_says_what_it_is_and_what_it_takes():
    model = made(LLAMA)
    count = sum(leaf.size for leaf in fxad.tree.leaves(model.params))
    assert repr(model).startswith(f"Model({count:,} parameters, float32; Config(vocab=65")
    assert repr(fxad.tree.map(lambda _: None, model)).startswith("Model(0 parameters")
    for shape in ((1, 0), (0, 3)):
        with pytest.raises(DataError, match=r"tokens \[\d, \d\] hold none: a text needs at least"):
            model(np.zeros(shape, int))
    with pytest.raises(
        DataError, match=r"must be \[batch, time\], got \[3\]: one text is \[tokens\]"
    ):
        model([1, 2, 3])
    for tokens, saying in [
        ("hello", "tokens must be integers .*, such as ids of tokens; got str"),
        ([[1, 2], [3]], "tokens must be rows of one length"),
        (jnp.zeros((1, 2)), "tokens must be integers .* got float32"),
    ]:
        with pytest.raises(DataError, match=saying):
            model(tokens)
    for segments in ([[0.0, 1.0]], jnp.zeros((1, 2)), "ab"):
        with pytest.raises(DataError, match="segments must (be|hold) integers"):
            model([[1, 2]], segments)
    with pytest.raises(DataError, match="segments number documents from 0 to 2147483647, got -1"):
        model([[1, 2]], [[0, -1]])
    with pytest.raises(
        AttributeError, match="has no attribute 'laod'; known: Model, load, read_tr"
    ):
        fxad_nn.laod  # noqa: B018


@pytest.mark.parametrize("config", [LLAMA, models.preset("tiny")], ids=["llama", "gpt2"])
def test_functions_of_models_name_what_are_no_tokens(config):
    model, family = made(config), models.family(config)
    cache = init_cache(config, 1, 8)
    for tokens, saying in [
        ("hello", "tokens must be integers .*; got str; a tokenizer's encode"),
        ([[1, 2]], r"tokens must be integers .*; got list; numpy.array\(...\) makes"),
        (np.zeros((1, 2), np.float32), "tokens must be integers .*; got float32"),
        (np.zeros(2, np.int32), r"tokens must be \[batch, time\], got \[2\]"),
    ]:
        with pytest.raises(DataError, match=saying):
            family.forward(model.params, tokens, config)
        with pytest.raises(DataError, match=saying):
            models.decode(model.params, cache, tokens, 0, config)
    optimizer, ids = adamw(1e-3), np.zeros((1, 2), np.int32)
    step = train_step(config, optimizer, clip=1.0)
    for name in ("tokens", "targets"):
        batch = {"tokens": ids, "targets": ids} | {name: ids.astype(np.float32)}
        with pytest.raises(DataError, match=f"{name} must be integers .*; got float32"):
            step(model.params, optimizer.init(model.params), *batch.values())


def test_what_is_no_model_is_neither_made_nor_saved(tmp_path):
    model = made(LLAMA)
    with pytest.raises(ConfigError, match=r"save\(Model\(params, config\), 'out'\); .* is a dict"):
        fxad_nn.save(model.params, LLAMA, "out")
    with pytest.raises(ConfigError, match="settings of generation must be .* left out: .*None"):
        fxad_nn.Model(model.params, LLAMA, None)
    with pytest.raises(ConfigError, match="such as fxad_nn.models.preset.'tiny'.; got 'tiny'"):
        fxad_nn.Model(model.params, "tiny")


@pytest.mark.parametrize("name", SAVED)
def test_what_is_saved_comes_back_bit_for_bit(tmp_path, name):
    model = made(SAVED[name])
    fxad_nn.save(model, str(tmp_path))
    again = fxad_nn.load(str(tmp_path))
    assert again.config == model.config
    before, after = dict(named_leaves(model.params)), dict(named_leaves(again.params))
    assert before.keys() == after.keys()
    for leaf, kept in before.items():
        assert str(after[leaf].dtype) == model.config.dtype
        np.testing.assert_array_equal(
            np.asarray(after[leaf], np.float32), np.asarray(kept, np.float32)
        )
    tensors = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    family, published = family_of(model.config), {}
    for leaf, x in before.items():
        parts = family.tensors(leaf, x)
        shape = x.shape if len(parts) == 1 else x.shape[:0:-1]  # of experts [out, in] each
        published |= dict.fromkeys(parts, shape)
    assert {n: t.shape for n, t in tensors.items()} == published


SCALINGS = [
    RopeScaling(kind="linear", factor=2.0, original_context=16),
    RopeScaling(kind="dynamic", factor=4.0, original_context=4),
    RopeScaling(kind="llama3", factor=4.0, original_context=4),
    RopeScaling(kind="yarn", factor=2.0, original_context=8, attention_factor=1.2, truncate=False),
]


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: s.kind)
def test_rotary_scaling_comes_back(tmp_path, scaling):
    model = made(replace(LLAMA, rope_scaling=scaling))
    fxad_nn.save(model, tmp_path)
    assert fxad_nn.load(tmp_path).config == model.config
    assert (
        models.from_dict(json.loads(json.dumps(models.to_dict(model.config))), "x") == model.config
    )


@pytest.mark.parametrize("config", [LLAMA, models.preset("tiny")], ids=["llama", "gpt2"])
def test_documents_that_share_a_row_are_as_they_are_alone(config):
    model, rng = made(config), np.random.default_rng(0)
    tokens = rng.integers(0, config.vocab, (2, 12))
    segments = [[3] * 5 + [1] * 2 + [0] * 5, [0] * 2 + [1] * 5 + [2] * 5]
    found = np.asarray(model(tokens, segments=segments))
    for row, numbers in enumerate(segments):
        for number in set(numbers):
            places = [i for i, n in enumerate(numbers) if n == number]
            alone = np.asarray(model(tokens[row : row + 1, places]))[0]
            np.testing.assert_allclose(found[row, places], alone, atol=1e-5)
    assert np.abs(found - np.asarray(model(tokens))).max() > 1e-3
    with pytest.raises(DataError, match=r"one for each token \[2, 12\], got \[12\]"):
        model(tokens, segments[0])


def test_fresh_parameters_take_their_own_memory_and_that_of_a_leaf():
    """Of compiled code's allocator and of NumPy's: float32 numbers that narrower ones are made of
    would be twice the largest leaf, and all leaves at once twice the model."""
    config = models.preset("llama-tiny", vocab=8192, width=128, hidden=384, tied=True)
    spec = models.family(replace(config, dtype="bfloat16")).spec(replace(config, dtype="bfloat16"))
    sizes = [2 * leaf.size for _, leaf in named_leaves(spec)]
    init_params(spec, fxad.random.key(0))  # compiles
    gc.collect()
    blocks.trim(blocks.idle_bytes)
    before = blocks.high_water = blocks.in_use
    tracemalloc.start()
    params = init_params(spec, fxad.random.key(1))
    seen = blocks.high_water - before + tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(leaf.nbytes for leaf in fxad.tree.leaves(params)) == sum(sizes)
    assert seen <= 1.1 * sum(sizes) + max(sizes)


def test_impossible_options_are_refused():
    for changes, saying in [
        ({"rope_scaling": RopeScaling(kind="linear"), "rotated": 3}, "cannot be rotated"),
        ({"activation": "silo"}, "unknown activation 'silo'; did you mean 'silu'"),
        ({"local": (True,), "window": 3}, "one flag for each of 2 layers"),
        ({"local": (True, False)}, "need a window"),
        ({"window": 0}, "at least one token"),
        ({"query_norms": "heads"}, "not 'heads'"),
        ({"experts": 10**8, "chosen": 1}, "are too many"),
        ({"rope_theta": 1.0, "rope_scaling": SCALINGS[3]}, "yarn cannot stretch"),
        ({"rotated": 2, "rope_scaling": SCALINGS[1]}, "dynamic cannot stretch"),
        ({"experts": 4}, "cannot choose 0 of 4"),
        ({"experts": 4, "chosen": 5}, "cannot choose 5 of 4"),
        ({"experts": 4, "chosen": 2, "fused": True}, "no fused matrices"),
    ]:
        with pytest.raises(ConfigError, match=saying):
            replace(LLAMA, **changes)
    for changes, saying in [
        ({"kind": "lama3"}, "is one of linear, .* not 'lama3'"),
        ({"factor": 0.0}, "a positive factor"),
        ({"kind": "longrope"}, "as many short as long"),
        ({"kind": "linear", "short": (1.0,), "long": (1.0,)}, "other kinds none"),
        ({"high_frequency": 1.0}, "two different frequencies"),
    ]:
        with pytest.raises(ConfigError, match=saying):
            RopeScaling(**changes)
    with pytest.raises(ConfigError, match="has 1 factors for 2 pairs"):
        made(replace(LLAMA, rope_scaling=RopeScaling(kind="longrope", short=(1.0,), long=(1.0,))))(
            np.zeros((1, 3), np.int32)
        )


def test_every_preset_has_a_published_form():
    for name, config in models.PRESETS.items():
        if name == "nano":  # without biases
            continue
        family = family_of(config)
        values = {"model_type": family.name, **json.loads(json.dumps(family.write(config)))}
        assert family.read(family.schema(values), config.dtype) == replace(
            config, **({"position_std": 0.01} if family.name == "gpt2" else {})
        ), name


def test_saving_leaves_other_files_and_refuses_what_has_no_place(tmp_path):
    model = made(LLAMA)
    (tmp_path / "tokenizer.json").write_text("{}")
    fxad_nn.save(model, tmp_path)
    fxad_nn.save(model, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    adapter = {"a": jnp.zeros((2, 16)), "b": jnp.zeros((16, 2)), "scale": jnp.ones(())}
    params = from_named(model.params, dict(named_leaves(model.params)))
    params["blocks"][0]["attention"]["q"]["lora"] = adapter
    with pytest.raises(CheckpointError, match=r"lora\.a' is no parameter .* merge adapters"):
        fxad_nn.save(fxad_nn.Model(params, LLAMA), tmp_path)
    del params["blocks"][0]["attention"]["q"]
    with pytest.raises(CheckpointError, match=r"missing: blocks\.0\.attention\.q\.weight"):
        fxad_nn.save(fxad_nn.Model(params, LLAMA), tmp_path)
    with pytest.raises(CheckpointError, match="has shape"):
        fxad_nn.save(fxad_nn.Model(model.params, replace(LLAMA, hidden=33)), tmp_path)
    with pytest.raises(CheckpointError, match="published with biases"):
        fxad_nn.save(made(models.preset("nano")), tmp_path)
    assert fxad_nn.load(tmp_path).config == LLAMA  # as it was


def test_large_weights_are_split_over_files_with_an_index(tmp_path):
    model = made(SAVED["mixtral"])
    fxad_nn.save(model, tmp_path)
    whole = (tmp_path / "model.safetensors").stat().st_size

    def there():
        return sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("model"))

    for size in (whole // 3, f"{whole // 3 / 1000} KB", 1, "1GB"):
        fxad_nn.save(model, str(tmp_path), max_shard_size=size)
        again = fxad_nn.load(tmp_path)
        for leaf, other in zip(*(fxad.tree.leaves(m.params) for m in (model, again)), strict=True):
            np.testing.assert_array_equal(leaf, other)
        if size == "1GB":
            assert there() == ["model.safetensors"]
            continue
        index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
        shards = sorted(set(index["weight_map"].values()))
        assert there() == [*shards, "model.safetensors.index.json"]
        assert shards[-1].endswith(f"-of-{len(shards):05d}.safetensors")
        nbytes = sum(leaf.nbytes for leaf in fxad.tree.leaves(model.params))
        assert index["metadata"]["total_size"] == nbytes
        tensors_of = [list(tensors.stored([tmp_path / name])) for name in shards]
        assert len(shards) == 3 if size != 1 else all(len(some) == 1 for some in tensors_of)
    for size in ("5 apples", 0, "-1GB"):
        with pytest.raises(
            ConfigError, match=r"max_shard_size must be a number of bytes .* got \S+( apples')?$"
        ):
            fxad_nn.save(model, tmp_path, max_shard_size=size)
    assert fxad_nn.load(tmp_path).config == model.config


def test_a_disk_that_fills_up_leaves_the_shards_that_were_there(tmp_path, monkeypatch):
    model = made(LLAMA)
    fxad_nn.save(model, tmp_path, max_shard_size=8_000)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(before) > 6
    real, written = hf.write_tree, []

    def filling(path, *rest):
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(real(path, *rest))

    monkeypatch.setattr(hf, "write_tree", filling)
    other = replace(model, params=fxad.tree.map(lambda leaf: leaf + 1, model.params))
    with pytest.raises(CheckpointError, match="No space left"):
        fxad_nn.save(other, tmp_path, max_shard_size=8_000)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"), [(12_000, 12_000), ("1GB", 12_000), (12_000, "1GB"), (12_000, 8_000)]
)
def test_a_save_that_is_killed_leaves_the_old_weights_or_the_new(tmp_path, before, after):
    old = made(LLAMA)
    new = replace(old, params=fxad.tree.map(lambda leaf: leaf + 1, old.params))
    context = children.context()
    found, status, last = [], None, 0
    while status != 0:
        directory = tmp_path / str(last)
        fxad_nn.save(old, directory, max_shard_size=before)
        process = context.Process(target=save_and_end_at, args=(directory, new, after, last))
        process.start()
        process.join()
        status, last = process.exitcode, last + 1
        assert status in (0, 9)
        leaf = fxad.tree.leaves(old.params)[0]
        there = fxad_nn.load(directory)
        changed = not np.array_equal(fxad.tree.leaves(there.params)[0], leaf)
        for mine, wanted in zip(
            *(fxad.tree.leaves(m.params) for m in (there, new if changed else old)), strict=True
        ):
            np.testing.assert_array_equal(mine, wanted)
        found.append(changed)
        fxad_nn.save(new, directory, max_shard_size=after)  # and leaves nothing of the killed one
        files = {p.name for p in directory.iterdir() if p.name.strip(".").startswith("model")}
        assert files == {p.name for p in hf.weight_files(directory)} | (
            set() if after == "1GB" else {hf.INDEX_FILE}
        )
    assert found == sorted(found) and not found[0] and found[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"), [("1GB", "1GB"), (12_000, 12_000), ("1GB", 12_000), (12_000, "1GB")]
)
def test_a_save_that_is_killed_leaves_no_weights_with_the_configuration_of_others(
    tmp_path, before, after
):
    old = made(LLAMA)
    config = replace(LLAMA, rope_theta=2.0 * LLAMA.rope_theta)  # the shapes are the same
    new = fxad_nn.Model(fxad.tree.map(lambda leaf: leaf + 1, old.params), config)
    context = children.context()
    found, status, last = [], None, 0
    while status != 0:
        directory = tmp_path / str(last)
        fxad_nn.save(old, directory, max_shard_size=before)
        process = context.Process(target=save_and_end_at, args=(directory, new, after, last))
        process.start()
        process.join()
        status, last = process.exitcode, last + 1
        assert status in (0, 9)
        try:
            there = fxad_nn.load(directory)
        except CheckpointError as error:
            assert "config.json" in str(error)
            found.append(1)
        else:
            same = np.array_equal(*(fxad.tree.leaves(m.params)[0] for m in (there, old)))
            assert there.config.rope_theta == (old if same else new).config.rope_theta
            found.append(0 if same else 2)
        fxad_nn.save(new, directory, max_shard_size=after)
        assert fxad_nn.load(directory).config == new.config
        assert not [path.name for path in directory.iterdir() if path.name.startswith(".")]
    assert found == sorted(found) and set(found) == {0, 1, 2}


def test_a_disk_that_fails_leaves_the_configuration_that_was_there(tmp_path, monkeypatch):
    model = made(LLAMA)
    fxad_nn.save(model, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    real = os.replace

    def failing(source, target):
        if Path(target).name == "model.safetensors":
            assert not (tmp_path / "config.json").exists()
            raise OSError(errno.EIO, "Input/output error")
        real(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(CheckpointError, match="Input/output"):
        fxad_nn.save(fxad_nn.Model(model.params, replace(LLAMA, rope_theta=5.0)), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.peers
def test_transformers_loads_shards(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    model, tokens = made(LLAMA), np.arange(6)[None]
    fxad_nn.save(made(LLAMA, seed=1), tmp_path, max_shard_size=8_000)
    fxad_nn.save(model, tmp_path, max_shard_size=8_000)  # whose shards have other names
    assert len(list(tmp_path.glob("model-2-*"))) > 1
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        wanted = theirs(torch.from_numpy(tokens)).logits.numpy()
    np.testing.assert_allclose(model(tokens), wanted, atol=1e-4)


def test_a_disk_that_is_full_leaves_the_model_that_was_there(tmp_path, monkeypatch):
    fxad_nn.save(made(LLAMA), tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()

    def full(path, contents):
        path.write_bytes(b"x")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensors, "write", full)
    with pytest.raises(CheckpointError, match="No space left"):
        fxad_nn.save(made(LLAMA, seed=1), tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert not list(tmp_path.glob(".*"))


def test_stored_dtypes_are_kept_or_converted(tmp_path):
    model = made(replace(LLAMA, dtype="bfloat16"))
    fxad_nn.save(model, tmp_path)
    assert fxad_nn.load(tmp_path).config.dtype == "bfloat16"
    wide = fxad_nn.load(tmp_path, dtype="float32")
    assert wide.config.dtype == "float32" and str(wide.params["norm"]["scale"].dtype) == "float32"
    with pytest.raises(CheckpointError, match="cannot be 'int8'; choose from"):
        fxad_nn.load(tmp_path, dtype="int8")
    for same in (np.float32, jnp.float32, "f32"):
        assert fxad_nn.load(tmp_path, dtype=same).config == wide.config
    whole = replace(wide, params=fxad.tree.map(lambda p: p.astype("int32"), wide.params))
    with pytest.raises(CheckpointError, match="is int32; weights are one of"):
        fxad_nn.save(whole, tmp_path)

    def mixed(found):
        found["model.norm.weight"] = found["model.norm.weight"].astype(np.float32)

    retensor(tmp_path, mixed)
    assert fxad_nn.load(tmp_path, "bfloat16").config == model.config
    said = {"bfloat16": "bfloat16", "float32": "float32", "float16": "bfloat16", None: "bfloat16"}
    for dtype, taken in said.items():  # of config.json, which counts if it is one of them
        rewrite(tmp_path, torch_dtype=dtype)
        telling = rf"several dtypes: .* bfloat16, .*norm\.weight' float32; all become {taken}"
        with pytest.warns(DamageWarning, match=telling):
            found = fxad_nn.load(tmp_path)
        assert {str(leaf.dtype) for _, leaf in named_leaves(found.params)} == {taken}
        assert hf.read_config(tmp_path) == found.config == replace(LLAMA, dtype=taken)


@pytest.mark.parametrize("name", ["llama", "olmoe bf16"])
def test_mapped_weights_borrow_their_files(tmp_path, name):
    fxad_nn.save(made(SAVED[name]), tmp_path)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    whole, mapped = fxad_nn.load(tmp_path), fxad_nn.load(tmp_path, mapped=True)
    assert mapped.config == whole.config
    for leaf, kept in named_leaves(whole.params):
        found = np.asarray(dict(named_leaves(mapped.params))[leaf])
        np.testing.assert_array_equal(
            found.astype(np.float32), np.asarray(kept, np.float32), err_msg=leaf
        )
        base = found
        while isinstance(base, np.ndarray) and base.base is not None:
            base = base.base
        assert isinstance(base, mmap.mmap) == ("experts" not in leaf), leaf
    tokens = np.arange(12, dtype=np.int32)[None]
    np.testing.assert_array_equal(mapped(tokens), whole(tokens))
    doubled = fxad.jit(lambda p: fxad.tree.map(lambda x: 2 * x, p), donate_argnums=(0,))
    twice = doubled(mapped.params)
    np.testing.assert_array_equal(
        np.asarray(twice["embed"]["token"]), 2 * np.asarray(whole.params["embed"]["token"])
    )
    assert path.read_bytes() == content
    wide = fxad_nn.load(tmp_path, "float32", mapped=True)
    assert str(wide.params["embed"]["token"].dtype) == "float32"


def test_weights_that_lie_askew_are_mapped_as_copies(tmp_path):
    fxad_nn.save(made(LLAMA), tmp_path)
    path = tmp_path / "model.safetensors"
    length = int.from_bytes(path.read_bytes()[:8], "little")
    content = path.read_bytes()
    path.write_bytes((length + 1).to_bytes(8, "little") + content[8 : 8 + length] + b" "
                     + content[8 + length :])  # fmt: skip
    whole, mapped = fxad_nn.load(tmp_path), fxad_nn.load(tmp_path, mapped=True)
    tokens = np.arange(12, dtype=np.int32)[None]
    np.testing.assert_array_equal(mapped(tokens), whole(tokens))
    path.write_bytes(content[:-1])
    with pytest.raises(CheckpointError, match="truncated"):
        fxad_nn.load(tmp_path, mapped=True)


def test_settings_of_generation_stay(tmp_path):
    """What was read is written again, elsewhere and in place; ends are the configuration's."""
    fxad_nn.save(made(LLAMA), tmp_path / "a")
    path = tmp_path / "a" / "generation_config.json"
    ids = json.loads(path.read_text("utf-8"))
    settings = {"temperature": 0.6, "do_sample": True, "unk_token_id": 3, "eos_token_id": [4, 2]}
    path.write_text(json.dumps(settings), "utf-8")
    model = fxad_nn.load(tmp_path / "a")
    for name in ("b", "a"):
        fxad_nn.save(model, tmp_path / name)
        found = json.loads((tmp_path / name / "generation_config.json").read_text("utf-8"))
        assert found == ids | settings
    endless = replace(model, config=replace(model.config, ends=()))
    fxad_nn.save(endless, tmp_path / "b")
    assert fxad_nn.load(tmp_path / "b").config.ends == ()
    others = {"forced_bos_token_id": 3, "suppress_tokens": [3], "bad_words_ids": [[3]]}
    path.write_text(json.dumps(settings | others), "utf-8")
    fxad_nn.save(made(LLAMA), tmp_path / "a")  # of another model: but for ids what is there stays
    found = json.loads(path.read_text("utf-8"))
    assert found == ids | {"temperature": 0.6, "do_sample": True}


def test_ids_that_only_the_settings_have_stay(tmp_path):
    fxad_nn.save(made(LLAMA), tmp_path)
    rewrite(tmp_path, pad_token_id=None, bos_token_id=None)
    settings = {"pad_token_id": 5, "bos_token_id": 1, "eos_token_id": [2, 3], "temperature": 0.5}
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps(settings), "utf-8")
    fxad_nn.save(fxad_nn.load(tmp_path), tmp_path)
    assert json.loads(path.read_text("utf-8")) == settings


def test_models_with_other_settings_have_one_structure(tmp_path):
    fxad_nn.save(made(LLAMA), tmp_path)
    first = fxad_nn.load(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.5}', "utf-8")
    second = replace(fxad_nn.load(tmp_path), config=first.config)
    assert second.generation.values == {"temperature": 0.5}
    traces = []
    traced = fxad.jit(lambda model: traces.append(model) or model.params)
    for model in (first, second, made(LLAMA)):
        traced(model)
    assert len(traces) == 1
    half = fxad.tree.map(lambda x, y: (x + y) / 2, first, second)
    assert half.generation.values == first.generation.values


def test_all_end_ids_are_read(tmp_path):
    fxad_nn.save(made(LLAMA), tmp_path)
    rewrite(tmp_path, eos_token_id=7)
    assert fxad_nn.load(tmp_path).config.ends == (2, 5)  # of generation_config.json
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.6}', "utf-8")
    assert fxad_nn.load(tmp_path).config.ends == (7,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, "x"]}', "utf-8")
    with pytest.raises(CheckpointError, match=r"generation_config\.json: eos_token_id\[1\]"):
        fxad_nn.load(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    rewrite(tmp_path, eos_token_id=None)
    assert fxad_nn.load(tmp_path).config.ends == ()


@pytest.mark.parametrize(
    ("changes", "saying"),
    [
        (
            {"quantization_config": {"quant_method": "gptq", "bits": 4}},
            r"quantization_config \('gptq'\): .* quantize='nf4'",
        ),
        ({"rope_scaling": {"type": "mrope", "factor": 2.0}}, "rope_scaling.type must be"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling of type linear does not hold factor"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "x": 1}}, "unknown key 'x'"),
        ({"attention_dropout": 1.5}, "attention_dropout must be a number from 0 to 1"),
        ({"rope_interleaved": True}, "rope_interleaved must be false"),
        ({"pad_token_id": -2}, "pad_token_id must be an integer from -1"),
        ({"hidden_act": "gelu_neu"}, "hidden_act must be .* did you mean 'gelu_new'"),
        ({"hidden_size": -4}, "hidden_size must be an integer from 1"),
        ({"hidden_size": "4"}, "hidden_size must be an integer"),
        ({"num_attention_heads": None}, "does not hold num_attention_heads"),
        ({"num_key_value_heads": 3}, "config.json: heads 4 is not a multiple of groups 3"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers must be an integer from 1 to 10000"),
        ({"rope_scaling": {"type": "linear", "factor": 1e300}}, "factor must be a number"),
        ({"vocab_size": 2**31}, r"tensor '.*' has shape \(65, 16\)"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads must be empty"),
        ({"model_type": "Llama"}, "did you mean 'llama'"),
        (
            {"model_type": "gemma"},
            "'gemma' .* not supported; these are: gpt2, [a-z0-9_, ]*$",
        ),
        ({"model_type": 5}, "model_type must be a text"),
        (
            {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}},
            "'gemma3' .* is not supported.* only the text part .* a gemma3_text, which loads",
        ),
        ({"model_type": "llava", "text_config": {}}, "only the text part may be supported$"),
    ],
)
def test_a_configuration_that_is_not_understood_names_its_field(tmp_path, changes, saying):
    fxad_nn.save(made(LLAMA), tmp_path)
    rewrite(tmp_path, **changes)
    with pytest.raises(CheckpointError, match=saying):
        fxad_nn.load(tmp_path)


def test_a_scaling_that_a_user_adds_counts_before_the_newer_table(tmp_path):
    """The whole table, its base included: as in transformers."""
    fxad_nn.save(made(LLAMA), tmp_path)
    rewrite(
        tmp_path,
        rope_theta=None,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        rope_scaling={"rope_type": "linear", "factor": 2.0},
    )
    found = fxad_nn.load(tmp_path).config
    assert (found.rope_scaling.kind, found.rope_theta) == ("linear", 1e4)


def test_a_factor_that_a_family_does_not_read_changes_nothing(tmp_path):
    fxad_nn.save(made(LLAMA), tmp_path)
    rewrite(tmp_path, partial_rotary_factor=0.5)
    model = fxad_nn.load(tmp_path)
    assert model.config == LLAMA
    fxad_nn.save(model, tmp_path)
    rewrite(
        tmp_path, partial_rotary_factor=0.5, rope_scaling={"rope_type": "linear", "factor": 2.0}
    )
    with pytest.raises(CheckpointError, match="llama rotates whole heads"):
        fxad_nn.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "saying"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "name its kind in rope_type"),
        ({"rope_parameters": {"rope_type": "default"}}, "unknown key 'rope_type'"),
        (
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
            "scales the rotary table of local layers",
        ),
    ],
)
def test_rotary_tables_that_gemma_3_does_not_read(tmp_path, changes, saying):
    fxad_nn.save(made(SAVED["gemma3"]), tmp_path)
    rewrite(tmp_path, **changes)
    with pytest.raises(CheckpointError, match=saying):
        fxad_nn.load(tmp_path)


def test_harmless_fields_change_nothing(tmp_path):
    fxad_nn.save(made(LLAMA), tmp_path)
    rewrite(
        tmp_path, use_cache=True, _name_or_path="x", initializer_range=0.02, pretraining_tp=1,
        transformers_version="4.40", attention_dropout=0.0, is_encoder_decoder=False,
        auto_map={"AutoModel": "m.M"}, unk_token_id=0, rope_parameters=None, dtype="float32",
    )  # fmt: skip
    assert fxad_nn.load(tmp_path).config == LLAMA


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (GPT2, {"n_special": 0, "predict_special_tokens": True}),  # gpt2-medium
        (GPT2, {"output_past": True, "n_ctx": 64}),  # gpt2-xl
        (GPT2, {"_num_labels": 1, "id2label": {"0": "LABEL_0"}}),  # distilgpt2
        (GPT2, {"gradient_checkpointing": False, "attn_pdrop": 0.1, "resid_pdrop": 0.1}),
        (LLAMA, {"is_llama_config": True, "rope_interleaved": False}),  # SmolLM2
        (LLAMA, {"transformers.js_config": {"dtype": "q4"}, "_attn_implementation_autoset": True}),
        (LLAMA, {"max_sequence_length": 2048, "use_bfloat16": True, "attention_dropout": 0.1}),
        (LLAMA, {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "max_length": 4096}),
        (LLAMA, {"num_beams": 1, "bad_words_ids": None, "pruned_heads": {}, "num_labels": 2}),
    ],
)
def test_what_published_files_hold_beside_a_model_changes_nothing(tmp_path, config, changes):
    fxad_nn.save(made(config), tmp_path)
    rewrite(tmp_path, **changes)
    assert fxad_nn.load(tmp_path).config == config


def test_an_id_below_zero_is_none(tmp_path):
    fxad_nn.save(made(LLAMA), tmp_path)
    (tmp_path / "generation_config.json").unlink()
    rewrite(tmp_path, pad_token_id=-1, eos_token_id=-1)
    assert fxad_nn.load(tmp_path).config == replace(LLAMA, pad=None, ends=())


def test_tensors_that_do_not_fit_are_refused(tmp_path):
    def refused(saying, change):
        fxad_nn.save(made(LLAMA), tmp_path)
        retensor(tmp_path, change)
        with pytest.raises(CheckpointError, match=saying):
            fxad_nn.load(tmp_path)

    gate = "model.layers.1.mlp.gate_proj.weight"
    refused(f"1 parameters are missing: {gate}", lambda t: t.pop(gate))
    refused(
        "'model.extra.weight' has no place", lambda t: t.update({"model.extra.weight": t[gate]})
    )
    refused(
        "is the second one for model.norm.weight",
        lambda t: t.update({"norm.weight": t["model.norm.weight"]}),
    )
    refused(
        r"has shape \(16, 32\), the model needs \(32, 16\)",
        lambda t: t.update({gate: t[gate].T.copy()}),
    )
    refused("is int8", lambda t: t.update({gate: t[gate].astype(np.int8)}))
    refused("float64 weights; choose", lambda t: t.update({gate: t[gate].astype(np.float64)}))


def test_a_head_of_its_own_counts_though_the_configuration_ties_it(tmp_path, monkeypatch):
    monkeypatch.setattr(hf, "PART", 100)  # so that the tables are compared in parts
    apart = made(LLAMA)
    fxad_nn.save(apart, tmp_path)
    rewrite(tmp_path, tie_word_embeddings=True)
    found = fxad_nn.load(tmp_path)
    assert found.config == LLAMA
    same_tree(found.params, apart.params)
    fxad_nn.save(found, tmp_path)
    assert not json.loads((tmp_path / "config.json").read_text("utf-8"))["tie_word_embeddings"]


@pytest.mark.parametrize("prefix", ["model.", ""])
def test_a_head_that_is_the_table_stays_tied(tmp_path, prefix):
    """Of files that hold both, and of those that call the one matrix the head."""
    tied = made(replace(LLAMA, tied=True))

    def twice(found):
        table = found.pop("model.embed_tokens.weight")
        found |= {f"{prefix}embed_tokens.weight": table, "lm_head.weight": table.copy()}

    fxad_nn.save(tied, tmp_path)
    for change in (twice, lambda found: found.pop(f"{prefix}embed_tokens.weight")):
        retensor(tmp_path, change)
        found = fxad_nn.load(tmp_path)
        assert found.config == tied.config
        same_tree(found.params, tied.params)


def test_directories_that_are_none(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        fxad_nn.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="is a file"):
        fxad_nn.load(str(tmp_path / "file"))
    with pytest.raises(CheckpointError, match="could not save"):
        fxad_nn.save(made(LLAMA), tmp_path / "file")


def test_files_outside_the_directory_are_not_read(tmp_path):
    fxad_nn.save(made(LLAMA), tmp_path / "m")
    weights = tmp_path / "m" / "model.safetensors"
    weights.rename(tmp_path / "outside.safetensors")
    index = tmp_path / "m" / "model.safetensors.index.json"
    for name in ("../outside.safetensors", "/etc/passwd", "a/b.safetensors", ".hidden", 3, ""):
        index.write_text(json.dumps({"weight_map": {"x": name}}), "utf-8")
        with pytest.raises(CheckpointError, match="must name a file beside it"):
            fxad_nn.load(tmp_path / "m")


def test_links_out_of_the_directory_are_not_followed(tmp_path):
    home = tmp_path / "models--me--tiny"
    fxad_nn.save(made(LLAMA), tmp_path / "elsewhere")
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        fxad_nn.save(made(LLAMA), tmp_path / "m")
        (tmp_path / "m" / name).unlink()
        (tmp_path / "m" / name).symlink_to(tmp_path / "elsewhere" / name)
        with pytest.raises(CheckpointError, match=f"{name} is a link out of its directory"):
            fxad_nn.load(tmp_path / "m")
    # As huggingface_hub lays out its cache.
    snapshot = home / "snapshots" / "0a1b"
    snapshot.mkdir(parents=True)
    (tmp_path / "elsewhere").rename(home / "blobs")
    for path in (home / "blobs").iterdir():
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    (tmp_path / "link").symlink_to(snapshot)
    assert fxad_nn.load(tmp_path / "link").config == LLAMA


def test_a_weight_file_that_was_cut_is_named(tmp_path):
    fxad_nn.save(made(LLAMA), tmp_path)
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    for size in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"model\.safetensors .* is truncated or no safe"):
            fxad_nn.load(tmp_path)


@pytest.mark.parametrize(("layer", "order"), [(linear, -1), (conv1d, 1)])
def test_an_adapter_beside_a_weight_is_applied(layer, order):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 5, 7)), rng.standard_normal((7, 11))
    a, b = rng.standard_normal((3, 7)), rng.standard_normal((11, 3))
    adapter = {"a": a, "b": b, "scale": np.array(0.5)}
    p = {"weight": w[:, :] if order == 1 else w.T, "bias": rng.standard_normal(11), "lora": adapter}
    p = fxad.tree.map(lambda leaf: jnp.asarray(leaf, "float32"), p)
    expected = x @ w + np.asarray(p["bias"]) + 0.5 * x @ a.T @ b.T
    got = np.asarray(layer(p, jnp.asarray(x, "float32")))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4)  # products of up to 11 terms
    narrow = {**p, "weight": p["weight"].astype("bfloat16"), "bias": p["bias"].astype("bfloat16")}
    got = layer(narrow, jnp.asarray(x, "bfloat16"))
    assert str(got.dtype) == "bfloat16"
    np.testing.assert_allclose(np.asarray(got, np.float32), expected, rtol=2**-5, atol=0.2)


def test_checkpoints_of_the_old_layout_are_read(tmp_path, monkeypatch):
    """Format 2 had the transpose of every weight of a Llama, and of its moments."""
    config = LLAMA
    model = made(config)
    state = optim.adamw(0.1).init(model.params)
    numbered = {
        name: jnp.asarray(np.arange(leaf.size, dtype=np.float32).reshape(leaf.shape) + number)
        for number, (name, leaf) in enumerate(named_leaves(state["mean"]))
    }
    state["mean"] = from_named(model.params, numbered)

    def turned(tree):
        leaves = {
            name: leaf.T if name.endswith(".weight") else leaf for name, leaf in named_leaves(tree)
        }
        return from_named(tree, leaves)

    old = {**state, "mean": turned(state["mean"]), "square": turned(state["square"])}
    monkeypatch.setattr(manifest, "FORMAT", 2)
    path = store.save(tmp_path, 3, turned(model.params), old, config, Bytes(), {})
    monkeypatch.undo()
    # What was written before these fields were known.
    found = json.loads((path / "state.json").read_text("utf-8"))
    known = {"family", "vocab", "context", "layers", "heads", "groups", "width", "head_dim"}
    known |= {"hidden", "rope_theta", "rope_scaling", "norm_epsilon", "tied", "dtype", "products"}
    found["model"] = {name: value for name, value in found["model"].items() if name in known}
    (path / "state.json").write_text(json.dumps(found), "utf-8")
    listed = {p.name: files.written(p) for p in path.iterdir() if p.name != "manifest.json"}
    monkeypatch.setattr(manifest, "FORMAT", 2)
    manifest.write_manifest(path, 3, listed, {})
    monkeypatch.undo()

    again = store.load(tmp_path)
    assert again.config == replace(config, start=None, ends=(), pad=None)
    for one, other in ((model.params, again.params), (state, again.optimizer)):
        for (name, leaf), (_, kept) in zip(named_leaves(one), named_leaves(other), strict=True):
            np.testing.assert_array_equal(leaf, kept, err_msg=name)


def test_families_name_every_leaf_of_their_models():
    assert set(FAMILIES) >= {"gpt2", "llama", "qwen2", "qwen3"}
    llama, spec = FAMILIES["llama"], decoder.spec(LLAMA)
    names = [llama.published(name) for name, _ in named_leaves(spec)]
    assert len(set(names)) == len(names)
    assert llama.published("blocks.3.attention.q") == "model.layers.3.self_attn.q_proj"
    assert llama.published("blocks.0.mlp.down.weight") == "model.layers.0.mlp.down_proj.weight"
    assert FAMILIES["gpt2"].published("norm.bias") == "transformer.ln_f.bias"
    assert {family_of(gpt2.Config()).name, family_of(LLAMA).name} == {"gpt2", "llama"}


def test_experts_that_are_missing_or_twice_there_are_named(tmp_path):
    def refused(saying, change):
        fxad_nn.save(made(SAVED["mixtral"]), tmp_path)
        retensor(tmp_path, change)
        with pytest.raises(CheckpointError, match=saying):
            fxad_nn.load(tmp_path)

    one = "model.layers.1.block_sparse_moe.experts.{}.w2.weight"
    refused(f"missing: {one.format(2)}", lambda t: t.pop(one.format(2)))
    refused("has no place", lambda t: t.update({one.format(3): t[one.format(0)]}))
    refused(r"has shape \(32, 16\)", lambda t: t.update({one.format(0): t[one.format(0)].T.copy()}))


def test_a_mixture_is_the_sum_over_the_experts_of_every_token():
    rng = np.random.default_rng(0)
    p = {
        name: {"weight": jnp.asarray(rng.standard_normal((5, *size)), "float32")}
        for name, size in {"gate": (6, 7), "up": (6, 7), "down": (7, 6)}.items()
    }
    x, logits = (jnp.asarray(rng.standard_normal((9, n)), "float32") for n in (6, 5))
    for renormalised in (True, False):
        weights, experts = route(logits, 2, renormalised)
        got = np.asarray(mixture(p, x, weights, experts, jnp.tanh))
        every = np.asarray(fxad.nn.softmax(logits), np.float64)
        expected = np.zeros((9, 6))
        for token in range(9):
            best = np.argsort(-every[token])[:2]
            share = every[token, best] / (every[token, best].sum() if renormalised else 1.0)
            for weight, e in zip(share, best, strict=True):
                gate, up, down = (np.asarray(p[n]["weight"][e], np.float64) for n in p)
                row = np.asarray(x[token], np.float64)
                expected[token] += weight * (np.tanh(row @ gate) * (row @ up)) @ down
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4)  # sums of 7 products of 7
    rounded = np.asarray(mixture(p, x, weights, experts, jnp.tanh, "bfloat16"))
    assert 0 < np.abs(rounded - got).max() < 2**-6 * np.abs(got).max()


def test_losses_of_routers_are_those_of_their_papers():
    even = jnp.zeros((8, 4)) + jnp.asarray(np.eye(4)[np.arange(8) % 4] * 1e-3, "float32")
    assert float(balance_loss(even, 1)) == pytest.approx(1.0, abs=1e-3)
    one = jnp.asarray(np.tile([9.0, 0, 0, 0], (8, 1)), "float32")
    share = float(fxad.nn.softmax(one)[0, 0])
    assert float(balance_loss(one, 1)) == pytest.approx(4 * share, rel=1e-5)
    assert float(z_loss(jnp.zeros((3, 4)))) == pytest.approx(np.log(4) ** 2, rel=1e-6)
    config = replace(SAVED["mixtral"], z_loss=0.25)
    model, tokens = made(config), np.arange(12, dtype=np.int32)[None]
    plain = decoder.loss(model.params, (tokens, tokens), config)
    more = decoder.loss(model.params, (tokens, tokens), replace(config, router_losses=True))
    # Of fresh weights logits are near 0: two of three experts are chosen, each with 1 / 3.
    assert float(more - plain) == pytest.approx(0.5 * 2 + 0.25 * np.log(3) ** 2, abs=0.1)


def test_padding_does_not_count_in_the_losses_of_routers():
    """Rows of padding and what follows the last target change neither loss nor gradient."""
    config = replace(SAVED["mixtral"], z_loss=0.25, router_losses=True)
    model, tokens = made(config), np.arange(12, dtype=np.int32).reshape(2, 6)
    targets = np.where(np.arange(6) >= 2, tokens, IGNORE).astype(np.int32)
    longer = np.pad(tokens, ((0, 1), (0, 3)), constant_values=7)
    wanted = np.pad(targets, ((0, 1), (0, 3)), constant_values=IGNORE)
    value_and_grad = fxad.value_and_grad(lambda p, batch: decoder.loss(p, batch, config))
    value, grads = value_and_grad(model.params, (tokens, targets))
    padded, padded_grads = value_and_grad(model.params, (longer, wanted))
    np.testing.assert_allclose(padded, value, rtol=1e-6)
    for grad, other in zip(*map(fxad.tree.leaves, (grads, padded_grads)), strict=True):
        np.testing.assert_allclose(other, grad, rtol=1e-5, atol=1e-6 * np.abs(grad).max())


@pytest.mark.peers
def test_the_balance_loss_with_padding_is_that_of_transformers():
    torch = pytest.importorskip("torch")
    mixtral = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((2, 12, 5)).astype(np.float32)  # [layers, tokens, experts]
    mask = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]])
    parts = tuple(map(torch.from_numpy, logits))
    for given, counted in ((None, None), (torch.from_numpy(mask), np.tile(mask.reshape(-1), 2))):
        theirs = mixtral.load_balancing_loss_func(parts, 5, 2, given)
        ours = balance_loss(jnp.asarray(logits.reshape(-1, 5)), 2, counted)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize(
    ("option", "value"), [("window", 4), ("score_cap", 1.0), ("embed_scaled", True), ("rotated", 2)]
)
def test_what_a_family_cannot_say_is_not_saved(tmp_path, option, value):
    with pytest.raises(CheckpointError, match=f"a published llama cannot say that {option} is"):
        fxad_nn.save(made(replace(LLAMA, **{option: value})), tmp_path)
