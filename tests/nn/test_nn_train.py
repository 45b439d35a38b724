"""Training end to end on a tiny model: learning, resuming, stopping, sampling, the command line."""

import ast
import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from short_run import options

import fxad
import fxad_nn
from fxad.__main__ import main as fxad_main
from fxad_nn import cli, models, store
from fxad_nn.data import random_batch
from fxad_nn.errors import CheckpointError, ConfigError, DataError, TrainingError
from fxad_nn.evaluate import Evaluator
from fxad_nn.files import written
from fxad_nn.finetune import finetune
from fxad_nn.finetune_recipe import finetune_recipe
from fxad_nn.flags import in_flags
from fxad_nn.generate import generate
from fxad_nn.manifest import write_manifest
from fxad_nn.optim import adamw
from fxad_nn.recipe import TrainOptions, recipe
from fxad_nn.run import resumed_options
from fxad_nn.samples import Sample
from fxad_nn.screen import Output, Screen, console_on
from fxad_nn.spec import init_params, named_leaves
from fxad_nn.step import train_step
from fxad_nn.train import Listener, train


class Diary(Listener):
    """Remembers what it heard, and may raise a signal at a step."""

    def __init__(self, stop_at=None):
        self.heard, self.stop_at = [], stop_at

    def started(self, run, parameters, peak):
        self.heard.append("started")

    def progressed(self, progress):
        self.heard.append(f"step {progress.step}")
        if progress.step == self.stop_at:
            signal.raise_signal(signal.SIGINT)

    def evaluated(self, step, loss):
        self.heard.append(f"evaluated {step}")

    def saved(self, path):
        self.heard.append(f"saved {path.name}")


def test_training_learns_reports_and_saves(tmp_path, text):
    diary = Diary()
    result = train(options(tmp_path, text, steps=60, log_every=30, eval_every=30), diary)
    losses = [loss for _, loss in result.run.history["train"]]
    assert losses[-1] < 0.8 * losses[0]
    assert result.val_loss < np.log(29)
    assert diary.heard == ["started", "step 30", "evaluated 30", "step 60", "saved step-00000060"]
    assert result.run.config.vocab == len(set(text.read_text("utf-8")))
    said = (
        r"Result\(run=Run\(step 60 of 60, train loss \d\.\d+, val loss .*, \d+,\d+ parameters in "
    )
    assert re.match(said, repr(result)) and len(repr(result)) < 1000


def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path, text):
    whole = train(options(tmp_path, text, out=tmp_path / "whole"))
    before = signal.getsignal(signal.SIGINT)
    first = train(options(tmp_path, text), Diary(stop_at=4))
    assert first.interrupted
    assert first.val_loss is None
    assert first.run.step == 4
    assert signal.getsignal(signal.SIGINT) is before
    second = train(resumed_options(tmp_path / "run"))
    assert not second.interrupted
    assert second.val_loss == whole.val_loss
    assert second.run.history == whole.run.history
    for (name, left), (_, right) in zip(
        named_leaves(whole.run.params), named_leaves(second.run.params), strict=True
    ):
        np.testing.assert_array_equal(left, right, err_msg=name)


def test_a_run_is_resumed_from_another_directory(tmp_path, text, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(options(tmp_path, Path(text.name), steps=1, out=Path("run")))
    (tmp_path / "away").mkdir()
    monkeypatch.chdir("away")
    assert resumed_options("../run").data == text
    assert recipe("tiny", resume=Path("../run"), steps=2) == resumed_options("../run", steps=2)
    assert train(resumed_options("../run", steps=2)).run.step == 2
    text.write_text("the quick brown fox" * 50, "utf-8")
    with pytest.raises(DataError, match="give the right text"):
        train(resumed_options("../run", steps=3))


def test_resuming_refuses_what_does_not_fit(tmp_path, text):
    train(options(tmp_path, text, steps=1, out=tmp_path / "run"))
    with pytest.raises(ConfigError, match="already holds a checkpoint"):
        train(options(tmp_path, text))
    with pytest.raises(ConfigError, match="`bias` cannot change"):
        resumed_options(tmp_path / "run", bias=True)
    assert resumed_options(tmp_path / "run", bias=None, preset="tiny").preset == "tiny"
    for made in (recipe, finetune_recipe):
        with pytest.raises(ConfigError, match="resume must be a path: it is empty"):
            made(resume="")
    with pytest.raises(ConfigError, match="of a run of train: .* `recipe.resume="):
        finetune_recipe(resume=tmp_path / "run")
    content = text.read_text("utf-8")
    text.write_text(content[::-1], "utf-8")  # as many tokens
    with pytest.raises(DataError, match="has changed since .* give the right text"):
        train(resumed_options(tmp_path / "run"))
    text.write_text("the quick brown fox" * 50, "utf-8")
    with pytest.raises(DataError, match="give the right text"):
        train(resumed_options(tmp_path / "run"))
    reads = re.escape(f"fxad_nn.store.load('{tmp_path / 'run'}', optimizer=None) reads")
    with pytest.raises(CheckpointError, match=f"is missing; this is a run, .*{reads}"):
        fxad_nn.load(tmp_path / "run")
    assert store.load(str(tmp_path / "run"), optimizer=None).step == 1
    other = tmp_path / "other.txt"
    other.write_text("THE QUICK BROWN FOX" * 50, "utf-8")
    with pytest.raises(DataError, match="'T'"):
        train(resumed_options(tmp_path / "run", data=other))
    other.write_text(content, "utf-8")  # the old one, which has moved
    assert train(resumed_options(tmp_path / "run", data=other, steps=2)).run.step == 2


def test_messages_name_options_as_whoever_gave_them_writes_them(
    tmp_path, text, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    given = {"data": text, "out": Path("a run"), "steps": 1, "peak": 100.0}
    train(recipe("tiny", **given))
    with pytest.raises(ConfigError) as raised:
        train(recipe("tiny", **given))
    there = "a run already holds a checkpoint: continue it with "
    assert str(raised.value) == there + "`resume='a run'`, or choose another `out`"
    assert cli.main(["train", "--preset", "tiny", "--data", str(text), "--out", "a run"]) == 2
    said = capsys.readouterr().err
    assert said == f"fxad_nn: {there}--resume 'a run', or choose another --out\n"
    with pytest.raises(ConfigError, match="run of train: continue it with `recipe.resume='a run'"):
        finetune_recipe(resume="a run")
    assert cli.main(["finetune", "--resume", "a run"]) == 2
    assert "with python -m fxad_nn train --resume 'a run'\n" in capsys.readouterr().err
    Path("short.txt").write_text("to be")
    assert cli.main(["train", "--preset", "tiny", "--data", "short.txt"]) == 2
    assert "give more text or a smaller --context\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ("give `dpo=True` or `best=False`", "give --dpo or --no-best"),
        (
            "a lower `learning_rate`, `lora=16`, `out=DIR`",
            "a lower --learning-rate, --lora 16, --out DIR",
        ),
        (f"`resume={chr(96) + ' ' + chr(39)!r}`", "--resume '` '\"'\"''"),
        ("`tool_calls` of `x=1` and ``", "`tool_calls` of `x=1` and ``"),
        ("`steps", "`steps"),
    ],
)
def test_options_in_messages_become_flags(message, wanted):
    assert in_flags(message) == wanted


def test_no_error_names_a_flag_where_there_may_be_no_command_line():
    for path in sorted(Path(fxad_nn.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if path.name == "cli.py" or not isinstance(node, ast.Raise):
                continue
            texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
            flags = [text for text in texts if re.search(r"--[a-z]", str(text))]
            assert not flags, f"{path}:{node.lineno}"


def test_a_directory_is_trained_in_by_one_process(tmp_path, text):
    class Second(Listener):
        def progressed(self, progress):
            with pytest.raises(ConfigError, match="another process is training in .*run: wait"):
                train(options(tmp_path, text))

    first = train(options(tmp_path, text, steps=2), Second())
    assert first.checkpoint.name == "step-00000002"
    with pytest.raises(ConfigError, match="already holds a checkpoint"):  # no lock is left
        train(options(tmp_path, text))


def test_a_loss_that_is_no_number_stops_the_run(tmp_path, text):
    with pytest.raises(TrainingError, match="lower `learning_rate`"):
        train(options(tmp_path, text, learning_rate=1e30, clip=1e30, warmup=0, steps=20))
    assert not (tmp_path / "run").exists()


def test_accumulated_batches_equal_one_large_batch():
    config = models.preset("tiny")
    optimizer = adamw(1e-2, epsilon=1e-3)  # a large epsilon keeps the update smooth near 0
    params = init_params(models.family(config).spec(config), fxad.random.key(0))
    tokens, targets = random_batch((np.arange(1000) % 65,), 6, 16, seed=0, index=0)
    parts = [np.ascontiguousarray(x.reshape(3, 2, 16)) for x in (tokens, targets)]
    copy = fxad.tree.map(lambda x: x + 0, params)
    one = train_step(config, optimizer, 1.0)(params, optimizer.init(params), tokens, targets)
    many = train_step(config, optimizer, 1.0, 3)(copy, optimizer.init(copy), *parts)
    assert float(one[2]) == pytest.approx(float(many[2]), rel=1e-5)
    for (name, left), (_, right) in zip(named_leaves(one[0]), named_leaves(many[0]), strict=True):
        np.testing.assert_allclose(left, right, atol=2e-5, err_msg=name)


@pytest.mark.parametrize(
    ("accumulate", "shapes", "saying"),
    [
        (2, [(3, 2, 16)] * 2, "accumulate=2 tokens must be [2, batch, context], got [3, 2, 16]"),
        (2, [(2, 16)] * 2, "tokens must be [2, batch, context], got [2, 16]"),
        (1, [(1, 2, 16)] * 2, "accumulate=1 tokens must be [batch, context], got [1, 2, 16]"),
        (1, [(16,)] * 2, "tokens must be [batch, context], got [16]"),
        (1, [(2, 16), (2, 15)], "tokens are [2, 16], targets [2, 15]"),
        (0, [], "at least 1, got 0"),
        (1.0, [], "at least 1, got 1.0"),
    ],
)
def test_a_step_names_batches_of_another_shape(accumulate, shapes, saying):
    config, optimizer = models.preset("tiny"), adamw(1e-2)
    params = init_params(models.family(config).spec(config), fxad.random.key(0))
    batch = [np.zeros(shape, np.int32) for shape in shapes]
    with pytest.raises(ConfigError, match=re.escape(saying)):
        train_step(config, optimizer, 1.0, accumulate)(params, optimizer.init(params), *batch)


def test_evaluation_covers_the_split_whatever_the_batch():
    config = models.preset("tiny")
    params = init_params(models.family(config).spec(config), fxad.random.key(0))
    split = (np.random.default_rng(0).integers(0, 65, 100),)
    evaluate = Evaluator(config)
    values = [evaluate(params, split, context=16, size=size) for size in (1, 3, 8)]
    np.testing.assert_allclose(values, values[0], rtol=1e-5)


def test_sampling_is_repeatable_and_obeys_its_limits():
    config = models.preset("llama-tiny")
    params = init_params(models.family(config).spec(config), fxad.random.key(0))

    def draw(**more):
        return list(generate(params, config, [1, 2, 3], 20, **({"vocab": 30} | more)))

    assert draw(seed=1) == draw(seed=1) != draw(seed=2)
    assert len(draw()) == 20
    assert max(draw(temperature=5.0)) < 30
    assert draw(temperature=0.0) == draw(top_k=1) == draw(temperature=1e-6, seed=5)
    with pytest.raises(ConfigError, match="at least one token"):
        list(generate(params, config, [], 3))
    with pytest.raises(ConfigError, match="top_k"):
        list(generate(params, config, [1], 3, top_k=0))


def test_recipes_and_their_limits():
    with pytest.raises(ConfigError, match="options: out must be a path: it is empty"):
        recipe(out="")
    assert recipe("nano") == TrainOptions()
    assert recipe("gpt2").tokenizer == "gpt2"
    assert recipe("gpt2", batch=2).batch == 2
    assert recipe() == recipe("nano") and recipe(weights="x").tokenizer == "gpt2"
    # what was not given follows from what was
    assert recipe("gpt2", steps=20).warmup == 2 and recipe("gpt2", steps=20, warmup=9).warmup == 9
    assert recipe("nano", learning_rate=1e-5).final_rate == pytest.approx(1e-6)
    assert recipe("nano", learning_rate=1e-5, final_rate=0.0).final_rate == 0
    with pytest.raises(ConfigError, match="did you mean 'steps'"):
        recipe("nano", stesp=3)
    with pytest.raises(ConfigError, match="unknown preset 'tinyy'; did you mean 'tiny'"):
        recipe("tinyy", steps=3)
    with pytest.raises(ConfigError, match="`batch` must be at least 1, got 0"):
        recipe("nano", batch=0)
    with pytest.raises(ConfigError, match="did you mean 'cosine'"):
        recipe("nano", schedule="cosin")


def test_what_are_no_options_cannot_be_carried_out():
    with pytest.raises(ConfigError, match=r"recipe makes, train\(recipe\('tiny'\)\); got 'tiny'"):
        train("tiny")
    with pytest.raises(ConfigError, match=r"finetune\(finetune_recipe.*; got a TrainOptions"):
        finetune(recipe("tiny"))


def run(capsys, *arguments):
    """Status, output and errors of one command."""
    try:
        status = cli.main([str(a) for a in arguments])
    except SystemExit as end:
        status = end.code
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_command_line_trains_and_samples(tmp_path, text, capsys):
    pytest.importorskip("matplotlib")
    out = tmp_path / "run"
    common = ("--data", text, "--peak", 100, "--steps", 4, "--no-bias", "--batch", 2)
    status, shown, _ = run(capsys, "train", "--preset", "tiny", "--out", out, *common)
    assert status == 0
    assert "validation loss over the whole split" in shown
    assert str(text) in shown
    assert "loss.png" in shown
    assert "step-00000004" in shown
    assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert store.load(out).config.bias is False
    status, shown, _ = run(capsys, "sample", out, "--prompt", "the ", "--tokens", 5)
    assert status == 0
    assert shown.startswith("the ")
    assert len(shown) == len("the ") + 5 + 1
    limits = ("--tokens", 5, "--top-p", 0.9, "--dtype", "bfloat16")
    status, shown, _ = run(capsys, "sample", out, "--prompt", "the ", *limits)
    assert status == 0
    assert len(shown) == len("the ") + 5 + 1
    status, shown, _ = run(capsys, "train", "--resume", out, "--steps", 6)
    assert status == 0
    assert store.latest(out).name == "step-00000006"


@pytest.mark.parametrize(
    ("arguments", "saying"),
    [
        (["train", "--stpes", "3"], "unknown argument '--stpes'; did you mean '--steps'"),
        (["sample", "d", "--resume", "d"], "unknown argument '--resume'; it is an option of train"),
        (["train", "--lr", "3"], "unknown argument '--lr'; here it is --learning-rate"),
        (["sample", "d", "--max-new-tokens", "3"], "'--max-new-tokens'; here it is --tokens"),
        (["sample", "d", "--new-token", "3"], "'--new-token'; did you mean '--tokens'"),
        (["train", "--steps", "three"], "invalid int value: 'three'"),
        (["train", "--preset", "nanoo"], "unknown preset 'nanoo'; did you mean 'nano'"),
        (["train", "--data", "no/such.txt"], "there is no file no/such.txt"),
        (["train", "--steps", "0"], "--steps must be at least 1"),
        (
            ["train", "--weights", "d", "--preset", "gpt2"],
            "--preset has no meaning beside --weights",
        ),
        (["train", "--weights", "d", "--no-bias"], "--bias has no meaning beside --weights"),
        (
            ["train", "--vocabulary", "d"],
            "--vocabulary is for --tokenizer gpt2 or ids, not for char",
        ),
        (["train", "--schedule", "constant", "--final-rate", "0"], "--final-rate has no meaning"),
        (["train", "--tokenizer", "chars"], "did you mean 'char'"),
        (["train", "--threads", "5000"], "--threads must be at most 1024"),
        (["train", "--out", "/proc/fxad", "--data", "x"], "cannot write to /proc/fxad"),
        (["train", "--resume", "no/run"], "no/run does not exist"),
        (["train", "--out", ""], "argument --out: it is empty"),
        (["train", "--mixture", ""], "argument --mixture: it is empty"),
        (["finetune", "--new-tokens", ","], "argument --new-tokens: , names nothing"),
        (["sample", ""], "argument model: it is empty"),
        (["sample", "no/run"], "no/run does not exist"),
        (["sample", "no/run", "--dtype", "bfloat"], "got bfloat; did you mean 'bfloat16'"),
        (["trian"], "invalid choice: 'trian'"),
    ],
)
def test_the_command_line_names_mistakes(capsys, arguments, saying, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, errors = run(capsys, *arguments)
    assert status == 2
    assert saying in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("terminal", [False, True])
def test_what_a_model_says_commands_no_terminal(terminal, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), "ascii", newline="")
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    cli._show(["a\x1b[2J\x9b", "\r\b\tb\n", "\u00e9"], Output(stream))
    said = b"a\\x1b[2J\\x9b\\r\\x08\tb\n\\xe9\n" if terminal else b"a\x1b[2J\\x9b\r\b\tb\n\\xe9\n"
    assert stream.buffer.getvalue() == said


def test_samples_and_previews_command_no_terminal(monkeypatch, capsys):
    Screen(Output(sys.stdout)).sampled(1, [Sample("\x9b2J\x7f\n", "\x1b[2J", None)])
    monkeypatch.setattr(cli, "preview", lambda *_: [[("\x1b[2J\x9b", False), ("a\tb\n", True)]])
    cli._preview(None, 1, console_on(Output(sys.stdout)))
    out = capsys.readouterr().out
    assert '"\\x9b2J\\x7f\\n" is continued by "\\u001b[2J"' in out
    assert "\\x1b[2J\\x9b⟦a" in out
    assert not {"\x1b", "\x9b", "\x7f"} & set(out)


def test_too_large_a_batch_is_an_error_with_a_way_out(tmp_path, text, capsys):
    sizes = ("--batch", 1 << 40, "--steps", 1, "--peak", 100)
    out = ("--out", tmp_path / "run", "--preset", "tiny", "--data", text)
    status, _, errors = run(capsys, "train", *sizes, *out)
    assert status == 2
    assert "try smaller sizes: --batch" in errors


def test_a_checkpoint_without_its_state_is_damaged(tmp_path, text, capsys):
    train(options(tmp_path, text, steps=1))
    path = store.latest(tmp_path / "run") / store.STATE
    record = json.loads(path.read_text("utf-8"))
    del record["state"]["history"]
    path.write_text(json.dumps(record), "utf-8")
    write_manifest(path.parent, 1, {n: written(path.parent / n) for n in store.FILES}, {})
    status, _, errors = run(capsys, "train", "--resume", tmp_path / "run", "--steps", 3)
    assert status == 2
    assert "state.json is damaged: it does not hold history" in errors


def test_stopping_early_is_told_by_the_exit_status(tmp_path, text, capsys, monkeypatch):
    stopping = Diary(stop_at=2)
    monkeypatch.setattr(cli.Screen, "progressed", lambda screen, told: stopping.progressed(told))
    arguments = ("--preset", "tiny", "--data", text, "--out", tmp_path / "a run", "--peak", 100)
    status, shown, _ = run(capsys, "train", *arguments, "--log-every", 1)
    assert status == 130
    assert "stopped after step 2 of 50" in shown
    assert f"--resume '{tmp_path / 'a run'}'" in shown


def test_help_lists_every_option(capsys):
    status, shown, _ = run(capsys, "train", "--help")
    assert status == 0
    assert "--learning-rate FLOAT" in shown
    assert "--no-bias" in shown
    assert "cosine" in shown
    assert "nano" in shown
    for command in (cli.main, fxad_main):
        with pytest.raises(SystemExit, match="^0$"):
            command(["--version"])
        assert capsys.readouterr().out == f"fxad {fxad.__version__}\n"


SHORT = ("train", "--preset", "tiny", "--steps", "2", "--out", "run", "--data")


def test_a_missing_extra_is_one_line_that_says_what_to_install(tmp_path, text) -> None:
    """Said before the first step."""
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_text("{}")
    vocabulary = ("--vocabulary", str(tmp_path))
    made = _without("tokenizers", tmp_path, *SHORT, str(text), "--tokenizer", "gpt2", *vocabulary)
    assert made.returncode == 2
    assert "needs the tokenizers library: pip install 'fxad[nn]'" in made.stderr
    assert len(made.stderr.splitlines()) == 1 and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_checkpoints_of_characters_need_no_extra(tmp_path, text) -> None:
    made = _without("safetensors tokenizers", tmp_path, *SHORT, str(text))
    assert made.returncode == 0, made.stderr
    assert store.load(tmp_path / "run").step == 2


def test_help_needs_no_extra(tmp_path) -> None:
    made = _without("safetensors tokenizers", tmp_path, "--help")
    assert made.returncode == 0, made.stderr
    assert "train" in made.stdout


def _without(modules: str, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line in `directory`, where these modules cannot be imported."""
    code = f"import runpy, sys; sys.modules |= dict.fromkeys({modules.split()!r})"
    code += "; runpy.run_module('fxad_nn', run_name='__main__')"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True)
