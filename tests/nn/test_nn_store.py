"""Checkpoints survive full disks and crashes, and damage is named."""

import errno
import hashlib
import json
import os
import shutil
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import fxad
import fxad.numpy as jnp
from fxad_nn import files, gpt2, models, optim, store, tensors
from fxad_nn.errors import CheckpointError, DamageWarning
from fxad_nn.files import written
from fxad_nn.manifest import write_manifest
from fxad_nn.model import load
from fxad_nn.spec import init_params, named_leaves
from fxad_nn.tokenizer import Bytes

CONFIG = models.preset("tiny", layers=1)


@pytest.fixture(scope="module")
def trained():
    params = init_params(gpt2.spec(CONFIG), fxad.random.key(0))
    state = optim.adamw(0.1).init(params)
    state["step"] = state["step"] + 7
    return params, state


def put(directory, trained, step=7, keep=1):
    params, state = trained
    return store.save(directory, step, params, state, CONFIG, Bytes(), {"note": 1}, keep)


def assert_same(left, right):
    left, right = dict(named_leaves(left)), dict(named_leaves(right))
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name])


def test_what_is_saved_comes_back(tmp_path, trained):
    path = put(tmp_path / "run", trained)
    found = store.load(tmp_path / "run")
    assert (found.path, found.step, found.config) == (path, 7, CONFIG)
    assert found.state == {"note": 1}
    assert found.tokenizer == Bytes()
    assert_same(found.params, trained[0])
    assert_same(found.optimizer, trained[1])
    assert store.load(path, optimizer=None).optimizer is None


def test_only_the_newest_are_kept(tmp_path, trained):
    for step in (1, 2, 10):
        put(tmp_path, trained, step, keep=2)
    assert [p.name for p in store.checkpoints(tmp_path)] == ["step-00000002", "step-00000010"]
    put(tmp_path, trained, 10)
    assert [p.name for p in store.checkpoints(tmp_path)] == ["step-00000010.1"]
    (tmp_path / ".step-00000011.99.tmp").mkdir()  # left by a killed process
    put(tmp_path, trained, 12)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000012"]


def test_a_process_killed_while_it_removes_leaves_nothing_for_good(tmp_path, trained, monkeypatch):
    put(tmp_path, trained, 1)

    def killed(path, **_):
        (path / store.STATE).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            put(tmp_path, trained, 2)
    assert store.load(tmp_path).step == 2
    put(tmp_path, trained, 3)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000003"]


def test_what_another_process_is_writing_is_left_alone(tmp_path, trained):
    writing = tmp_path / f".step-00000011.{os.getppid()}.tmp"
    writing.mkdir()
    put(tmp_path, trained, 12)
    assert {p.name for p in tmp_path.iterdir()} == {writing.name, "step-00000012"}


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_full_disk_loses_nothing(tmp_path, trained, monkeypatch, name):
    before = put(tmp_path, trained, 1)
    original, calls = getattr(os, name), []

    def full(*arguments):
        calls.append(arguments)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, name, full)
    with pytest.raises(CheckpointError, match="No space left") as caught:
        put(tmp_path, trained, 2)
    assert calls
    assert str(before) in str(caught.value)
    monkeypatch.setattr(os, name, original)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]
    assert_same(store.load(tmp_path).params, trained[0])


def test_a_failing_write_loses_nothing(tmp_path, trained, monkeypatch):
    put(tmp_path, trained, 1)

    def full(path, contents):
        path.write_bytes(b"a part of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tensors, "write", full)
    with pytest.raises(CheckpointError, match="No space left"):
        put(tmp_path, trained, 2)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


@pytest.mark.parametrize("name", [store.MODEL, store.OPTIMIZER, store.STATE, store.TOKENIZER])
def test_damage_is_named(tmp_path, trained, name):
    path = put(tmp_path, trained) / name
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 4
    damages = [good[: len(good) // 2], b""]
    if name in (store.MODEL, store.OPTIMIZER):
        damages.append(bytes(flipped))
    for damage in damages:
        path.write_bytes(damage)
        with pytest.raises(ValueError, match=name):
            store.load(tmp_path)
    path.unlink()
    with pytest.raises(CheckpointError):
        store.load(tmp_path)


def test_a_wrong_configuration_is_named(tmp_path, trained):
    path = put(tmp_path, trained) / store.STATE
    record = json.loads(path.read_text("utf-8"))

    def writing(**changes):
        path.write_text(json.dumps({**record, **changes}), "utf-8")
        write_manifest(path.parent, 7, {n: written(path.parent / n) for n in store.FILES}, {})

    writing(model={**record["model"], "head": 2})
    with pytest.raises(
        CheckpointError, match=r"state\.json: unknown key 'head'; did you mean 'heads'"
    ):
        store.load(tmp_path)
    writing(model={**record["model"], "width": 32, "hidden": 128})
    with pytest.raises(CheckpointError, match=r"has shape .* the model needs"):
        store.load(tmp_path)
    writing(model={**record["model"], "layers": 2})
    with pytest.raises(CheckpointError, match=r"parameters are missing: blocks\.1"):
        store.load(tmp_path)
    writing(model={**record["model"], "bias": False})
    with pytest.raises(CheckpointError, match="is no parameter of this model"):
        store.load(tmp_path)
    writing(model={**record["model"], "dtype": "bfloat16"})
    with pytest.raises(CheckpointError, match="is float32, the model needs bfloat16"):
        store.load(tmp_path)
    with pytest.raises(CheckpointError, match="does not exist"):
        store.load(tmp_path / "nowhere")
    # since Python 3.14 a path that cannot be asked about is one that is not there
    with pytest.raises(CheckpointError, match="cannot be read: File name too long|does not exist"):
        store.load(tmp_path / ("x" * 300))


def test_arrays_that_lie_otherwise_are_copied_one_at_a_time(tmp_path):
    """Such as experts, whose matrices are published transposed."""
    matrices = np.arange(32 << 16, dtype=np.float32).reshape(32, 256, 256)  # 32 of 256 KiB
    tracemalloc.start()
    try:
        tensors.write_tree(tmp_path / "t", {f"e{i:02d}": m.T for i, m in enumerate(matrices)})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * matrices[0].nbytes
    read = {tensor.name: tensor.read() for tensor in tensors.stored([tmp_path / "t"])}
    assert all((read[f"e{i:02d}"] == m.T).all() for i, m in enumerate(matrices))


def test_trees_with_numbers_come_back_and_files_are_replaced_when_asked(tmp_path):
    tree, path = {"w": jnp.ones(3), "rate": 0.5, "step": 7}, tmp_path / "run.safetensors"
    tensors.write_tree(path, tree)
    back = tensors.read_tree(path, tree)
    assert (str(back["rate"].dtype), str(back["step"].dtype)) == ("float32", "int32")
    assert (back["rate"], back["step"]) == (0.5, 7)
    with pytest.raises(FileExistsError, match="overwrite=True replaces it"):
        tensors.write_tree(path, tree)
    tensors.write_tree(path, {**tree, "step": 8}, overwrite=True)
    assert tensors.read_tree(path, tree)["step"] == 8
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]


def test_strided_scalar_and_bfloat16_arrays_survive(tmp_path):
    tree = {
        "t": np.arange(12, dtype=np.float32).reshape(3, 4).T,
        "r": np.arange(6, dtype=np.int32)[::-2],
        "s": np.float32(3.5).reshape(()),
        "h": np.array([1.5, -2.0], ml_dtypes.bfloat16),
    }
    tensors.write_tree(tmp_path / "t.safetensors", tree)
    back = {tensor.name: tensor.read() for tensor in tensors.stored([tmp_path / "t.safetensors"])}
    assert {n: (a.shape, str(a.dtype)) for n, a in back.items()} == {
        n: (a.shape, str(a.dtype)) for n, a in tree.items()
    }
    theirs = safetensors.numpy.load_file(tmp_path / "t.safetensors")
    for name, array in tree.items():
        np.testing.assert_array_equal(back[name], array)
        np.testing.assert_array_equal(theirs[name], array)
        assert theirs[name].dtype == array.dtype


def test_what_is_written_is_hashed_and_forced_to_the_disk_meanwhile(tmp_path, monkeypatch):
    """Once over, not read again: the digest is of what was given."""
    real, synced = os.fsync, []
    monkeypatch.setattr(files, "_PART", 1000)
    monkeypatch.setattr(files, "_UNSYNCED", 3000)
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle)) or real(handle))
    parts = [np.arange(n, dtype=np.int64) for n in (1000, 0, 3, 2000)]
    monkeypatch.setattr(Path, "read_bytes", None)
    found = files.write(tmp_path / "x", [part.data for part in parts])
    monkeypatch.undo()
    content = b"".join(part.tobytes() for part in parts)
    assert (tmp_path / "x").read_bytes() == content
    assert found == files.Written(len(content), hashlib.sha256(content).hexdigest())
    assert found == files.written(tmp_path / "x") and synced


def test_a_disk_that_fails_while_more_is_written_is_an_error(tmp_path, monkeypatch):
    def failing(handle):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "_PART", 1000)
    monkeypatch.setattr(files, "_UNSYNCED", 3000)
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="Input/output"):
        files.write(tmp_path / "x", [bytes(100_000)])


def hugging_face(directory, **changes):
    """A GPT-2 directory of width 4 written by hand, all weights numbered."""
    config = {"model_type": "gpt2", "vocab_size": 5, "n_positions": 6, "n_layer": 1}
    config |= {"n_head": 2, "n_embd": 4} | changes
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config), "utf-8")
    shapes = {"wte.weight": (5, 4), "wpe.weight": (6, 4)}
    for name, shape in {
        "ln_1": (4,),
        "attn.c_attn": (4, 12),
        "attn.c_proj": (4, 4),
        "ln_2": (4,),
        "mlp.c_fc": (4, 16),
        "mlp.c_proj": (16, 4),
    }.items():
        shapes |= {f"h.0.{name}.weight": shape, f"h.0.{name}.bias": shape[-1:]}
    shapes |= {"ln_f.weight": (4,), "ln_f.bias": (4,), "h.0.attn.bias": (1, 1, 6, 6)}
    r = np.random.default_rng(0)
    return {name: r.normal(size=shape).astype(np.float16) for name, shape in shapes.items()}


def test_hugging_face_names_prefixes_shards_and_dtypes(tmp_path):
    weights = hugging_face(tmp_path / "m")
    prefixed = {"transformer." + name: array for name, array in weights.items()}
    safetensors.numpy.save_file(prefixed, tmp_path / "m" / "model.safetensors")
    found = load(tmp_path / "m", "float32")
    config, whole = found.config, found.params
    assert (config.context, config.hidden, config.dtype) == (6, 16, "float32")
    qkv = np.asarray(whole["blocks"][0]["attention"]["qkv"]["weight"])
    np.testing.assert_array_equal(qkv, weights["h.0.attn.c_attn.weight"].astype(np.float32))
    assert str(load(str(tmp_path / "m")).params["embed"]["token"].dtype) == "float16"

    hugging_face(tmp_path / "s")
    names = sorted(weights)
    files = {"a.safetensors": names[:7], "b.safetensors": names[7:]}
    for file, part in files.items():
        safetensors.numpy.save_file({n: weights[n] for n in part}, tmp_path / "s" / file)
    index = {"weight_map": {name: file for file, part in files.items() for name in part}}
    path = tmp_path / "s" / "model.safetensors.index.json"
    path.write_text(json.dumps(index), "utf-8")
    assert_same(load(tmp_path / "s", "float32").params, whole)
    (tmp_path / "s" / "b.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"b\.safetensors is missing"):
        load(tmp_path / "s")
    path.write_text(json.dumps({"weight_map": {"x": "../m/model.safetensors"}}), "utf-8")
    with pytest.raises(CheckpointError, match="beside it"):
        load(tmp_path / "s")
    path.write_text(json.dumps({"weight_map": {}}), "utf-8")
    with pytest.raises(CheckpointError, match="names no files"):
        load(tmp_path / "s")


def test_hugging_face_directories_that_cannot_be_used(tmp_path):
    def refused(saying, **changes):
        hugging_face(tmp_path / "m", **changes)
        with pytest.raises(CheckpointError, match=saying):
            load(tmp_path / "m")

    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        load(tmp_path)
    refused(r"model\.safetensors is missing")
    (tmp_path / "m" / "pytorch_model.bin").write_bytes(b"\x80")
    refused("a pickle")
    (tmp_path / "m" / "model.safetensors").write_bytes(b"\x80" * 20)
    refused("truncated or no safetensors file")
    refused("the family 'gpt3' .* is not supported; these are: gpt2", model_type="gpt3")
    refused(
        "activation_function must be .*; did you mean 'relu'",
        activation_function="rela",
    )
    weights = hugging_face(tmp_path / "m")
    weights["h.0.attn.extra.weight"] = weights.pop("ln_f.bias")
    safetensors.numpy.save_file(weights, tmp_path / "m" / "model.safetensors")
    refused(r"the tensor 'h\.0\.attn\.extra\.weight' has no place")
    del weights["h.0.attn.extra.weight"]
    safetensors.numpy.save_file(weights, tmp_path / "m" / "model.safetensors")
    refused(r"1 parameters are missing: transformer\.ln_f\.bias")
    (tmp_path / "m" / "config.json").write_text('{"model_type": "gpt2"}', "utf-8")
    with pytest.raises(CheckpointError, match="does not hold n_embd"):
        load(tmp_path / "m")


def test_loaded_arrays_are_fxad_arrays(tmp_path, trained):
    put(tmp_path, trained)
    params = store.load(tmp_path).params
    assert type(params["embed"]["token"]) is type(jnp.zeros(1))


def test_a_file_is_named_by_a_string_or_a_path(tmp_path, trained):
    params = trained[0]
    name = str(tmp_path / "tree.safetensors")
    tensors.write_tree(name, params)
    for given in (name, tmp_path / "tree.safetensors", [name]):
        back = tensors.read_tree(given, params)
        assert fxad.tree.all(fxad.tree.map(np.array_equal, back, params))


def test_two_tensors_for_one_leaf_are_refused(tmp_path, trained):
    weights = hugging_face(tmp_path / "m")
    weights["transformer.wte.weight"] = weights["wte.weight"] + 1
    safetensors.numpy.save_file(weights, tmp_path / "m" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"is the second one for transformer\.wte\.weight"):
        load(tmp_path / "m")
    tree = tmp_path / "tree.safetensors"
    tensors.write_tree(tree, trained[0])
    with pytest.raises(CheckpointError, match="is there twice"):
        tensors.read_tree([tree, tree], gpt2.spec(CONFIG))


@pytest.mark.parametrize("dtype", [np.int8, np.bool_, ml_dtypes.float8_e4m3fn])
def test_weights_that_are_no_plain_floats_are_refused(tmp_path, dtype):
    weights = hugging_face(tmp_path / "m")
    weights["h.0.mlp.c_fc.weight"] = weights["h.0.mlp.c_fc.weight"].astype(dtype)
    safetensors.numpy.save_file(weights, tmp_path / "m" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"h\.0\.mlp\.c_fc\.weight"):
        load(tmp_path / "m")


def test_weights_of_a_directory_that_are_no_numbers_are_said(tmp_path):
    weights = hugging_face(tmp_path / "m")
    weights["ln_f.bias"][1] = np.inf
    safetensors.numpy.save_file(weights, tmp_path / "m" / "model.safetensors")
    with pytest.warns(DamageWarning, match=r"leaves hold NaN or infinity: norm\.bias;"):
        load(tmp_path / "m")


def test_a_file_that_is_cut_while_it_is_read_is_an_error(tmp_path, trained):
    """It was mapped, and touching the part that is gone ended the process with SIGBUS."""
    path = tmp_path / "t.safetensors"
    tensors.write_tree(path, trained[0])
    found = list(tensors.stored([path]))
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(CheckpointError, match="was cut while it was read"):
        for tensor in found:
            tensor.read()
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot be read: No such file"):
        found[0].read()
