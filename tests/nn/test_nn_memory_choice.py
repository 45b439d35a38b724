"""`--memory`: a step is done in the fastest way whose plan fits, and every way gives the same."""

import os
import re
from dataclasses import replace

import numpy as np
import pytest
from short_run import options as training
from tiny_chat_model import chat, write_chats, write_model

import fxad
from fxad.core import system
from fxad_nn import memory_choice
from fxad_nn.cli import main
from fxad_nn.errors import ConfigError
from fxad_nn.finetune import begin as begin_finetune
from fxad_nn.finetune import finetune
from fxad_nn.finetune_recipe import finetune_recipe, resumed_finetune
from fxad_nn.memory_choice import predicted
from fxad_nn.run import begin, resumed_options
from fxad_nn.train import train

WAYS = (
    {},
    {"micro_batches": 2},
    {"recompute": True},
    {"recompute": True, "micro_batches": 2},
    {"offload": True},
)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("to be or not to be, that is the question\n" * 200)
    return path


@pytest.fixture
def chats(tmp_path):
    """Of one width in tokens, so that a step is compiled once."""
    longer = [{"messages": chat(3 * i)} for i in range(24)]
    return write_chats(tmp_path / "chat.jsonl", 0, *longer)


@pytest.fixture
def nothing_held(monkeypatch):
    """The process itself takes nothing, so that the plans of small models decide."""
    monkeypatch.setattr(memory_choice, "COMPILER", 0)
    monkeypatch.setattr(memory_choice, "resident_now", lambda: 0)


def step_bytes(run):
    return predicted(run.options, run.task, run.params, run.state).step


def test_planned_bytes_are_what_a_compiled_program_says():
    x = fxad.ShapeDtypeStruct((512, 512), np.float32)
    low = fxad.jit(fxad.grad(lambda w, x: fxad.numpy.tanh(x @ w).sum())).lower(x, x)
    whole, memory = low.planned_bytes(), low.memory()
    assert whole == memory["predicted_bytes"] - memory["scratch_bytes"]
    assert low.planned_bytes(arguments=False) == whole - memory["argument_bytes"]


def test_resident_memory_grows_and_shrinks():
    before = system.resident_now()
    held = np.ones(1 << 23)
    assert system.resident_now() - before > 32 << 20
    del held
    assert system.resident_now() <= system.resident_bytes()


# Llama's blocks in every way are below.
@pytest.mark.slow
@pytest.mark.parametrize(("preset", "ways"), [("tiny", WAYS), ("llama-tiny", WAYS[::3] + WAYS[4:])])
def test_every_way_to_do_a_step_gives_the_same_losses(tmp_path, text, preset, ways):
    losses = []
    for i, way in enumerate(ways):
        more = {"preset": preset, "out": tmp_path / f"run-{i}", "accumulate": 2, **way}
        result = train(training_of(tmp_path, text, **more))
        losses.append([loss for _, loss in result.run.history["train"]])
    for way, found in zip(ways, losses, strict=True):
        np.testing.assert_allclose(found, losses[0], rtol=2e-4, err_msg=str(way))


def training_of(tmp_path, text, preset="tiny", **more):
    made = training(tmp_path, text, **more)
    return made if preset == "tiny" else replace(made, preset=preset)


@pytest.mark.slow
def test_every_way_to_fine_tune_gives_the_same_losses(tmp_path, chats):
    base = write_model(tmp_path / "model", layers=1)
    losses = []
    for i, way in enumerate(WAYS):
        tuned = finetune(tuning_of(base, chats, tmp_path / f"run-{i}", **way))
        losses.append([loss for _, loss in tuned.result.run.history["train"]])
    for way, found in zip(WAYS, losses, strict=True):
        np.testing.assert_allclose(found, losses[0], rtol=3e-3, err_msg=str(way))  # in bfloat16


def tuning_of(base, chats, out, **more):
    given = {"lora": 4, "learning_rate": 1e-3, "steps": 4, "batch": 4, "pack": False}
    given |= {"log_every": 1, "eval_every": 2, "eval_share": 0.2, "peak": 100.0, "save": "adapter"}
    return finetune_recipe(model=base, data=chats, out=out, **{**given, **more})


def test_the_fastest_way_that_fits_is_taken(tmp_path, text, nothing_held):
    wide = {"batch": 4, "steps": 2, "eval_batch": 1}
    bytes_of = {}
    for way in ({}, {"micro_batches": 4}, {"recompute": True}):
        run = begin(training(tmp_path, text, out=tmp_path / f"run-{len(bytes_of)}", **wide, **way))
        bytes_of[str(way)] = step_bytes(run)
    whole, parts, again = bytes_of.values()
    assert again < whole
    assert parts < whole
    run = begin(training(tmp_path, text, memory=str(whole), **wide))
    assert (run.options.micro_batches, run.options.recompute) == (1, False)
    assert "4 rows at once and what blocks compute kept" in run.notes[0]
    out = tmp_path / "less"
    run = begin(training(tmp_path, text, memory=str(min(parts, again)), out=out, **wide))
    assert run.options.micro_batches > 1 or run.options.recompute
    assert step_bytes(run) <= min(parts, again)
    out = tmp_path / "given"
    run = begin(training(tmp_path, text, memory="1GiB", recompute=True, out=out, **wide))
    assert run.options.recompute


def test_more_than_the_machine_has_is_a_warning(tmp_path, text, monkeypatch):
    monkeypatch.setattr(memory_choice, "physical_bytes", lambda: 8 << 30)
    run = begin(training(tmp_path, text, memory="9GiB"))
    assert run.warnings == ["`memory` allows 9.0 GiB, and this machine has 8.0 GiB"]


@pytest.mark.slow
def test_a_run_goes_on_as_it_began(tmp_path, text, nothing_held):
    wide = {"batch": 8, "eval_batch": 1}
    run = begin(training(tmp_path, text, out=tmp_path / "probe", micro_batches=4, **wide))
    less = str(step_bytes(run))
    result = train(training(tmp_path, text, memory=less, **wide))
    options = resumed_options(tmp_path / "run", steps=10)
    chosen = ("memory", "micro_batches", "recompute", "offload")
    assert [getattr(options, n) for n in chosen] == [getattr(result.run.options, n) for n in chosen]
    assert options.micro_batches > 1 or options.recompute
    again = train(options)
    assert again.run.step == 10
    with pytest.raises(ConfigError, match="`memory` cannot change when a run is resumed"):
        resumed_options(tmp_path / "run", memory="3GiB")


@pytest.mark.slow
def test_a_fine_tuning_run_goes_on_as_it_began(tmp_path, chats):
    base = write_model(tmp_path / "model", layers=1)
    out = tmp_path / "run"
    finetune(tuning_of(base, chats, out, memory="4GiB", recompute=True, pack=True))
    tuned = finetune(resumed_finetune(out, steps=6))
    assert tuned.result.run.step == 6
    assert tuned.result.run.options.recompute


def test_background_copies_count(tmp_path, text, nothing_held):
    run = begin(training(tmp_path, text, background_saves=True))
    found = predicted(run.options, run.task, run.params, run.state)
    leaves = fxad.tree.leaves((run.params, run.state))
    assert found.copies == sum(leaf.nbytes for leaf in leaves)


def test_too_little_memory_is_said_before_anything_is_made(
    tmp_path, text, chats, capsys, nothing_held
):
    out = tmp_path / "run"
    args = ["train", "--preset", "tiny", "--data", str(text), "--out", str(out), "--batch", "2"]
    assert main([*args, "--memory", "100kB"]) == 2
    said = capsys.readouterr().err
    assert re.search(r"--memory 100kB is too little: the least .* is about \d+ [KM]iB", said)
    assert re.search("with (2 rows at once|2 micro-batches of 1 rows) and what blocks", said)
    assert not os.path.exists(out) or not os.listdir(out)
    base = write_model(tmp_path / "model", layers=1)
    with pytest.raises(ConfigError, match="too little: the least that a run takes"):
        begin_finetune(tuning_of(base, chats, out, memory="1kB", batch=1))


@pytest.mark.parametrize(
    ("given", "saying"),
    [
        ({"memory": "12 bananas"}, "`memory` must be a size such as 8GiB or 500MB, got 12 bananas"),
        ({"memory": "0"}, "`memory` must be a size"),
        ({"memory": "-1GiB"}, "`memory` must be a size"),
        ({"micro_batches": 3}, "`micro_batches` must be a divisor of `batch=4`, got 3"),
        ({"micro_batches": 0}, "`micro_batches` must be at least 1"),
        ({"offload": True, "recompute": True}, "`offload` must be left out with `recompute`"),
    ],
)
def test_sizes_and_numbers_that_cannot_be(tmp_path, text, given, saying):
    with pytest.raises(ConfigError, match=re.escape(saying)):
        training(tmp_path, text, **given)
