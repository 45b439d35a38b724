"""A checkpoint is what was written, to the bit, or it is refused by name."""

import json
import random
import shutil

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.schema import canonical
from fxad_nn import gpt2, models, optim, store
from fxad_nn.errors import CheckpointError, DamageWarning
from fxad_nn.files import written
from fxad_nn.manifest import MANIFEST, read_manifest, sealed, write_manifest
from fxad_nn.spec import init_params
from fxad_nn.tokenizer import Characters

CONFIG = models.preset("tiny", layers=1)
FILES = (*store.FILES, MANIFEST)


@pytest.fixture(scope="module")
def trained():
    params = init_params(gpt2.spec(CONFIG), fxad.random.key(0))
    return params, optim.adamw(0.1).init(params)


def put(directory, trained, step=7, **more):
    state = {"options": {"seed": 4, "learning_rate": 1e-3, "data": None}, "history": {}}
    return store.save(directory, step, *trained, CONFIG, Characters("abcd "), state, **more)


def refused(path):
    """What `load` says of a checkpoint that it must refuse."""
    with pytest.raises(CheckpointError) as caught:
        store.load(path)
    return str(caught.value)


def flip(file, place, bit):
    """Flip bits of one byte where it lies: truncating a file first is slow."""
    with open(file, "r+b", buffering=0) as opened:
        opened.seek(place)
        [byte] = opened.read(1)
        opened.seek(place)
        opened.write(bytes([byte ^ bit]))


def test_a_flipped_bit_is_never_accepted(tmp_path, trained):
    path = put(tmp_path, trained)
    draw = random.Random(0)
    for number in range(500):
        file = path / FILES[number % len(FILES)]
        place, bit = draw.randrange(file.stat().st_size), 1 << draw.randrange(8)
        flip(file, place, bit)
        assert str(file) in refused(path)
        flip(file, place, bit)
    assert store.load(path).step == 7


@pytest.mark.parametrize("name", [store.STATE, store.TOKENIZER, MANIFEST])
def test_every_byte_of_the_small_files_counts(tmp_path, trained, name):
    path = put(tmp_path, trained)
    manifest = read_manifest(path, store.FILES)
    for place in range((path / name).stat().st_size):
        flip(path / name, place, 1 << place % 8)
        with pytest.raises(CheckpointError):
            read_manifest(path, store.FILES) if name == MANIFEST else manifest.content(name)
        flip(path / name, place, 1 << place % 8)


def test_what_is_missing_cut_or_longer_is_named(tmp_path, trained):
    path = put(tmp_path, trained)
    for name in FILES:
        good = (path / name).read_bytes()
        for damage in (good[:-1], good + b"\n", b""):
            (path / name).write_bytes(damage)
            assert str(path / name) in refused(tmp_path)
        (path / name).unlink()
        assert f"{path / name} is missing" in refused(tmp_path)
        (path / name).mkdir()
        assert str(path / name) in refused(tmp_path)
        (path / name).rmdir()
        (path / name).write_bytes(good)


def test_a_checkpoint_without_a_manifest_is_an_earlier_version_s(tmp_path, trained):
    path = put(tmp_path, trained)
    (path / MANIFEST).unlink()
    assert "saved by an earlier version of fxad_nn" in refused(tmp_path)
    assert store.holds_checkpoint(tmp_path)


def test_facts_that_disagree_are_refused(tmp_path, trained):
    path = put(tmp_path, trained)
    renamed = path.rename(tmp_path / "step-00000008")
    assert "manifest.json is of step 7" in refused(tmp_path)
    path = renamed.rename(tmp_path / "best")  # a name that says nothing
    assert store.load(path).step == 7
    write_manifest(path, 9, {n: written(path / n) for n in store.FILES}, {})
    assert "state.json is of step 7, manifest.json of step 9" in refused(path)
    state = json.loads((path / store.STATE).read_text("utf-8"))
    state["step"] = 9
    state["model"]["context"] = 32
    (path / store.STATE).write_text(canonical(state), "utf-8")
    write_manifest(path, 9, {n: written(path / n) for n in store.FILES}, {})
    assert "embed.position has shape (16, 16), the model needs (32, 16)" in refused(path)


def test_a_manifest_must_be_canonical_and_of_this_format(tmp_path, trained):
    path = put(tmp_path, trained)
    file = path / MANIFEST
    good = file.read_text("utf-8")
    file.write_text(json.dumps(json.loads(good), sort_keys=True), "utf-8")  # the same, but spaces
    assert "are not those that were written" in refused(path)
    write_manifest(path, 7, {store.MODEL: written(path / store.MODEL)}, {})
    assert "does not list optimizer.safetensors, state.json, tokenizer.json" in refused(path)


@pytest.mark.parametrize(
    ("format", "saying"),
    [(4, "has format 4; this version reads 2 and 3"), (True, "must be an integer")],
)
def test_another_format_is_named(tmp_path, trained, format, saying):
    path = put(tmp_path, trained)
    body = json.loads((path / MANIFEST).read_text("utf-8"))
    del body["seal"]
    (path / MANIFEST).write_text(sealed(body | {"format": format}), "utf-8")
    assert saying in refused(path)


def test_the_last_whole_checkpoint_is_offered(tmp_path, trained):
    paths = [put(tmp_path, trained, step, keep=3) for step in (1, 2, 3)]
    for path in paths[1:]:
        (path / store.TOKENIZER).write_text("{}", "utf-8")
    assert f"the last checkpoint that is whole is {paths[0]}: give that" in refused(tmp_path)
    with pytest.raises(CheckpointError, match="the last checkpoint that is whole"):
        (paths[2] / store.STATE).unlink()
        store.read_state(tmp_path)
    assert store.last_whole(tmp_path) == paths[0]
    shutil.rmtree(paths[0])
    assert refused(tmp_path).endswith("state.json is missing")


def test_saving_goes_on_where_the_run_went_back_to(tmp_path, trained):
    """What a save leaves is found by `latest`, not the damaged one that came after it."""
    for step in (2, 4, 6):
        put(tmp_path, trained, step, keep=3)
    put(tmp_path, trained, 5, keep=2)
    assert [p.name for p in store.checkpoints(tmp_path)] == ["step-00000004", "step-00000005"]


def test_facts_come_back(tmp_path, trained):
    put(tmp_path, trained, facts={"isa": "avx512", "größe": "2"})
    assert store.load(tmp_path).facts == {"isa": "avx512", "größe": "2"}


@pytest.mark.parametrize("facts", [{"threads": 2}, {"x": "y" * 20_000}, {3: "x"}])
def test_facts_are_texts(tmp_path, trained, facts):
    with pytest.raises(CheckpointError, match=r"manifest\.json: facts"):
        put(tmp_path, trained, facts=facts)
    assert not list(tmp_path.iterdir())


def test_a_state_that_json_cannot_hold_leaves_the_others_alone(tmp_path, trained):
    put(tmp_path, trained)
    for value in (float("nan"), float("inf"), {1, 2}):
        with pytest.raises(CheckpointError, match="step-00000008: JSON cannot hold this state"):
            store.save(tmp_path, 8, *trained, CONFIG, Characters("a"), {"x": value})
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000007"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_said(tmp_path, trained, value):
    params, state = trained
    scale = np.array(params["norm"]["scale"])
    scale[3] = value
    put(tmp_path, ({**params, "norm": {**params["norm"], "scale": jnp.asarray(scale)}}, state))
    with pytest.warns(DamageWarning, match=r"1 of \d+ leaves hold NaN or infinity: norm\.scale;"):
        found = store.load(tmp_path)
    np.testing.assert_array_equal(found.params["norm"]["scale"], scale)
