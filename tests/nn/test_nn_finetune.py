"""Fine-tuning from files to files: what is learned, kept, resumed and saved, and bad input."""

import io
import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from short_run import At
from tiny_chat_model import chat, write_chats, write_model

import fxad
import fxad_nn
import fxad_nn.train
from fxad_nn import chat_template, hf, samples, store
from fxad_nn.adapters import load_adapters, save_adapters
from fxad_nn.chat import Chat, spelled
from fxad_nn.chat_data import read_conversations
from fxad_nn.cli import main
from fxad_nn.epochs import Epochs
from fxad_nn.errors import CheckpointError, ConfigError, DataError, TrainingError
from fxad_nn.finetune import begin, copy_tokenizer, finetune, preview
from fxad_nn.finetune_recipe import finetune_recipe, resumed_finetune
from fxad_nn.generate import generate
from fxad_nn.lora import ALL_LINEAR, add_lora, merge_lora
from fxad_nn.loss_scale import loss_scale
from fxad_nn.losses import read_losses, write_table
from fxad_nn.plot import draw
from fxad_nn.recipe import recipe
from fxad_nn.run import best_loss
from fxad_nn.samples import Prompt
from fxad_nn.spec import named_leaves
from fxad_nn.tokenizer import from_directory
from fxad_nn.tuning import Tuning

pytest.importorskip("jinja2")
pytest.importorskip("tokenizers")
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("base") / "model", layers=1)


@pytest.fixture
def chats(tmp_path):
    return write_chats(tmp_path / "chat.jsonl", 40)


def options(tmp_path, base, data, **more):
    given = {"out": tmp_path / "run", "lora": 4, "learning_rate": 1e-2, "steps": 8, "batch": 4}
    given |= {"eval_every": 4, "log_every": 2, "peak": 100.0}
    given |= {} if "eval_data" in more else {"eval_share": 0.1}
    return finetune_recipe(model=base, data=data, **{**given, **more})


@pytest.fixture(scope="module")
def brief(tmp_path_factory):
    """The directory of a model, conversations and a run of two steps in `run`."""
    path = tmp_path_factory.mktemp("brief")
    model, data = write_model(path / "model", layers=1), write_chats(path / "chat.jsonl", 40)
    (model / "generation_config.json").write_text('{"temperature": 0.6}', "utf-8")
    finetune(options(path, model, data, steps=2, eval_every=0))
    return path


@contextmanager
def changed(path, content):
    """With other bytes in a file that tests share."""
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(before)


def leaves(tree):
    return dict(named_leaves(tree))


def same(left, right):
    left, right = leaves(left), leaves(right)
    assert left.keys() == right.keys()
    for name, leaf in left.items():
        np.testing.assert_array_equal(leaf, right[name], err_msg=name)


# What comes out


def test_adapters_learn_and_what_is_saved_computes_the_same(tmp_path, base, chats):
    tuned = finetune(options(tmp_path, base, chats, steps=60))
    history = [loss for _, loss in tuned.result.run.history["train"]]
    assert history[-1] < 0.6 * history[0]
    assert [path.name for path in tuned.saved] == ["adapter", "merged"]
    with pytest.raises(CheckpointError, match="missing; there is a model in .*merged"):
        fxad_nn.load(tmp_path / "run")
    merged = fxad_nn.load(tmp_path / "run" / "merged")
    assert merged.config.dtype == "bfloat16"
    model = fxad_nn.load(base)
    params, lora = load_adapters(tmp_path / "run" / "adapter", model.params, model.config)
    assert (lora.rank, lora.alpha, lora.dropout) == (4, 8.0, 0.0)
    again, rounding = merge_lora(params, model.config)
    same(again, merged.params)
    assert tuned.rounding == rounding
    for name in ("tokenizer.json", "tokenizer_config.json"):
        copied = tmp_path / "run" / "merged" / name
        assert copied.read_bytes() == (base / name).read_bytes()


def test_all_parameters_learn_in_float32_and_are_saved_as_stored(tmp_path, base, chats):
    tuned = finetune(options(tmp_path, base, chats, lora=None, learning_rate=1e-3, steps=30))
    run = tuned.result.run
    assert all(str(leaf.dtype) == "float32" for leaf in leaves(run.params).values())
    assert run.config.products == "bfloat16"
    history = [loss for _, loss in run.history["train"]]
    assert history[-1] < 0.9 * history[0]
    assert [path.name for path in tuned.saved] == ["merged"]
    assert tuned.rounding is None
    merged = fxad_nn.load(tmp_path / "run" / "merged")
    assert merged.config == fxad_nn.load(base).config


def test_a_preference_is_learned(tmp_path, base):
    path, records = tmp_path / "pairs.jsonl", []
    for i in range(20):
        question, answer = chat(i)
        worse = {"role": "assistant", "content": "I do not know what comes after that."}
        records.append({"prompt": [question], "chosen": [answer], "rejected": [worse]})
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    more = {"dpo": True, "steps": 30, "beta": 0.5, "accumulate": 2, "batch": 2}
    history = finetune(options(tmp_path, base, path, **more)).result.run.history["train"]
    assert history[0][1] < np.log(2) * 1.01
    assert history[-1][1] < 0.3
    with pytest.raises(ConfigError, match="give `dpo=True` to learn from pairs"):
        finetune(options(tmp_path, base, path, out=tmp_path / "other"))


def test_the_best_checkpoint_is_kept_and_saved(tmp_path, chats):
    """Of a run whose rate soon spoils what it learned."""
    base = write_model(tmp_path / "deeper")
    more = {"steps": 24, "learning_rate": 0.3, "schedule": "constant", "eval_every": 2}
    tuned = finetune(options(tmp_path, base, chats, save="adapter", **more))
    history = tuned.result.run.history["val"]
    best_step, _ = min(history, key=lambda point: point[1])
    assert best_step < 24
    [best] = store.checkpoints(tmp_path / "run" / "best")
    assert best.name == f"step-{int(best_step):08d}"
    model = fxad_nn.load(base)
    params, _ = load_adapters(tmp_path / "run" / "adapter", model.params, model.config)
    last = leaves(tuned.result.run.params)
    assert any(not np.array_equal(last[name], leaves(params)[name]) for name in last)


def test_validation_has_a_file_of_its_own_or_a_share(tmp_path, base, chats):
    corpus = begin(options(tmp_path, base, chats, eval_share=0.5, eval_examples=3)).task.lines()
    assert corpus[2].startswith("examples: 37 to train, 3 to validate")
    other = write_chats(tmp_path / "other.jsonl", 10)
    task = begin(options(tmp_path, base, chats, eval_data=other, eval_examples=4)).task
    assert task.lines()[2].startswith("examples: 40 to train, 4 to validate")
    assert "other.jsonl" in task.source


def test_a_run_may_be_without_validation(tmp_path, base, capsys):
    path = write_chats(tmp_path / "one.jsonl", 1)
    flags = ["--model", str(base), "--data", str(path), "--out", str(tmp_path / "run")]
    flags += ["--lora", "4", "--steps", "2", "--peak", "100", "--eval-share", "0"]
    assert main(["finetune", *flags, "--eval-every", "1", "--sample-every", "1"]) == 0
    out = capsys.readouterr().out
    assert "1 to train, 0 to validate" in out and "validation loss" not in out
    assert not (tmp_path / "run" / "best").exists()
    assert (tmp_path / "run" / "merged").is_dir()
    tuned = finetune(resumed_finetune(tmp_path / "run", steps=3))
    assert tuned.result.run.step == 3 and tuned.result.val_loss is None


def asked_alike(path):
    """Conversations for validation whose questions have one length, and so take one program."""
    return write_chats(path, 0, *({"messages": chat(i)} for i in (12, 20, 31, 35)))


class Heard(fxad_nn.train.Listener):
    """Remembers what was sampled."""

    def __init__(self):
        self.samples = []

    def sampled(self, step, samples):
        self.samples += [(step, sample) for sample in samples]


def test_samples_show_what_is_learned(tmp_path, base, chats):
    heard = Heard()
    more = {"steps": 81, "sample_every": 40, "sample_tokens": 12, "eval_every": 0}
    more["eval_data"] = asked_alike(tmp_path / "asked.jsonl")
    finetune(options(tmp_path, base, chats, **more), heard)
    assert [step for step, _ in heard.samples] == [40] * 3 + [80] * 3
    first, last = heard.samples[0][1], heard.samples[-3][1]
    assert first.prompt == last.prompt
    assert first.prompt.startswith("<|im_start|>user\nWhat comes after ")
    assert first.prompt.endswith("<|im_start|>assistant\n")
    assert first.wanted.endswith(".<|im_end|>")
    assert last.text.startswith(("It is", "That would be"))
    lines = (tmp_path / "run" / "samples.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"step": step, "prompt": x.prompt, "text": x.text, "wanted": x.wanted}
        for step, x in heard.samples
    ]


def test_samples_end_where_the_tokenizer_says(tmp_path, base):
    """As a chat does: many a base model's configuration knows the end of a document alone."""
    model, known = fxad_nn.load(base), from_directory(base)
    assert not model.config.ends
    prompt = known.encode("What comes after 3?").tolist()
    said = list(generate(model.params, model.config, prompt, 12, temperature=0.0))
    known.ids = replace(known.ids, eos=(said[5],))
    [sample] = samples.continued(model.params, model.config, [Prompt(prompt)], known, 12)
    before = said[: said.index(said[5])]
    assert sample.text == known.decode([*prompt, *before])[len(sample.prompt) :]


def test_a_step_is_sampled_once_whether_or_not_the_run_was_resumed(tmp_path, base, chats):
    more = {"steps": 6, "sample_every": 2, "sample_tokens": 12, "eval_every": 0, "save_every": 2}
    more["eval_data"] = asked_alike(tmp_path / "asked.jsonl")

    class Stopping(Heard):
        """Asks to stop before the samples of step 2, or after those of step 4."""

        def __init__(self, after):
            super().__init__()
            self.after = after
            self.asks = 0

        def should_stop(self):
            self.asks += 1
            return self.asks > self.after

    taken = []
    for after in (2, 3):  # steps are asked about before they are done: 0, 1 | 2, 3
        heard = Stopping(after)
        run = tmp_path / "run"
        chosen = resumed_finetune(run) if run.is_dir() else options(tmp_path, base, chats, **more)
        assert finetune(chosen, heard).result.interrupted
        taken += sorted({step for step, _ in heard.samples})
    heard = Heard()
    finetune(resumed_finetune(run), heard)
    taken += sorted({step for step, _ in heard.samples})
    assert taken == [2, 4]
    lines = (run / "samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2] * 3 + [4] * 3


def test_prompts_may_be_given(tmp_path, base, chats, capsys):
    path = tmp_path / "prompts.txt"
    path.write_text("What comes after 30?\n\nSay of course, Hello\n")
    flags = ["--model", str(base), "--data", str(chats), "--out", str(tmp_path / "run")]
    flags += ["--lora", "4", "--steps", "3", "--batch", "4", "--peak", "100", "--eval-share", "0.1"]
    flags += ["--sample-every", "2", "--sample-prompts", str(path), "--sample-tokens", "12"]
    assert main(["finetune", *flags]) == 0
    out = capsys.readouterr().out
    assert out.count("step 2: ") == 2
    assert 'Hello<|im_end|>\\n<|im_start|>assistant\\n" is continued by "' in out
    path.write_text(" \n")
    with pytest.raises(DataError, match="holds no prompts"):
        begin(options(tmp_path, base, chats, out=None, sample_every=1, sample_prompts=path))
    with pytest.raises(ConfigError, match="has no meaning without `sample_every`"):
        options(tmp_path, base, chats, sample_prompts=path)


def test_penalties_change_what_is_trained_and_not_how_it_is_judged(tmp_path, base, chats):
    more = {"steps": 2, "log_every": 1, "eval_every": 1, "label_smoothing": 0.2, "z_loss": 1e-3}
    plain = finetune(options(tmp_path, base, chats, steps=2, log_every=1, eval_every=1))
    other = finetune(options(tmp_path, base, chats, out=tmp_path / "other", **more))
    first, second = (tuned.result.run.history["train"][0][1] for tuned in (plain, other))
    assert abs(second - first) > 0.01
    # After one step the two models differ by little.
    first, second = (tuned.result.run.history["val"][0][1] for tuned in (plain, other))
    assert second == pytest.approx(first, rel=0.05)


# How it goes on


def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path, base, chats):
    more = {"dropout": 0.05, "residual_dropout": 0.2, "accumulate": 2}
    whole = finetune(options(tmp_path, base, chats, out=tmp_path / "whole", **more))
    stop = At(4, lambda: signal.raise_signal(signal.SIGINT))
    halted = finetune(options(tmp_path, base, chats, **more), stop)
    assert halted.result.interrupted
    assert (halted.saved, halted.result.run.step) == ([], 4)
    ended = finetune(resumed_finetune(tmp_path / "run"))
    assert ended.result.run.history == whole.result.run.history
    same(ended.result.run.params, whole.result.run.params)
    same(ended.result.run.state, whole.result.run.state)
    losses = [loss for _, loss in whole.result.run.history["train"]]
    assert losses[-1] < 0.97 * losses[0]
    model = fxad_nn.load(base)
    assert load_adapters(whole.saved[0], model.params, model.config)[1].dropout == 0.05


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, base, chats):
    more = {"save_every": 1, "steps": 12, "save": "adapter", "log_every": 1}
    whole = finetune(options(tmp_path, base, chats, out=tmp_path / "whole", **more))
    run = tmp_path / "run"
    flags = ["--lora", "4", "--learning-rate", "0.01", "--steps", "12", "--batch", "4"]
    flags += ["--eval-every", "4", "--log-every", "1", "--peak", "100", "--eval-share", "0.1"]
    flags += ["--save-every", "1", "--save", "adapter"]
    command = [sys.executable, "-m", "fxad_nn", "finetune", "--model", str(base)]
    command += ["--data", str(chats), "--out", str(run), *flags]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not store.checkpoints(run) and time.monotonic() < deadline:
            assert child.poll() is None
            time.sleep(0.01)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    ended = finetune(resumed_finetune(run))
    same(ended.result.run.params, whole.result.run.params)
    assert ended.result.run.history == whole.result.run.history


def test_what_made_the_run_cannot_change_when_it_goes_on(brief):
    run, data = brief / "run", brief / "chat.jsonl"
    with pytest.raises(ConfigError, match="`lora` cannot change"):
        resumed_finetune(run, lora=8)
    with pytest.raises(ConfigError, match="already holds a checkpoint"):
        finetune(options(brief, brief / "model", data))
    with pytest.raises(ConfigError, match="run is a run: the model that it made is .*run/merged"):
        finetune(options(brief, run, data, out=brief / "other"))
    more = data.read_bytes() + data.read_bytes().splitlines(keepends=True)[0]
    said = r"was trained on .*chat.jsonl \([0-9a-f]{12}\); now"
    with changed(data, more), pytest.raises(DataError, match=said):
        finetune(resumed_finetune(run, steps=4))


def test_a_run_goes_on_from_another_directory_and_where_its_files_have_moved(
    tmp_path, brief, monkeypatch
):
    home, away = tmp_path / "home", tmp_path / "away"
    shutil.copytree(brief / "model", home / "model")
    shutil.copy(brief / "chat.jsonl", home)
    away.mkdir()
    monkeypatch.chdir(home)
    given = {"base": Path("model"), "data": Path("chat.jsonl"), "steps": 1, "eval_every": 0}
    finetune(options(Path(), **given))
    home.rename(tmp_path / "new")
    monkeypatch.chdir(tmp_path / "new")
    assert resumed_finetune("run").model == Path("model")
    (tmp_path / "new").rename(home)
    monkeypatch.chdir(away)
    run = Path("../home/run")
    assert finetune(resumed_finetune(run, steps=2)).result.run.step == 2
    again = resumed_finetune(run, model=home / "model", data=Path("../home/chat.jsonl"))
    assert (again.model, again.seed) == (home / "model", 4)
    (home / "model").rename(away / "base")
    with pytest.raises(CheckpointError, match="home/model does not exist"):
        finetune(resumed_finetune(run, steps=3))
    moved = resumed_finetune(run, model="base", steps=3)
    assert finetune(moved).result.run.step == 3
    write_chats(away / "others.jsonl", 39)
    with pytest.raises(DataError, match=r"was trained on .*; now that is others.jsonl"):
        finetune(resumed_finetune(run, data="others.jsonl", steps=4))
    settings = away / "base" / "tokenizer_config.json"
    settings.write_bytes(settings.read_bytes().replace(b"role", b"content"))
    with pytest.raises(CheckpointError, match="the chat template of base changed since"):
        finetune(resumed_finetune(run, steps=4))


def test_a_base_that_changed_is_refused_when_its_run_goes_on(tmp_path, brief):
    run, model = shutil.copytree(brief / "run", tmp_path / "run"), brief / "model"
    weights = (model / "model.safetensors").read_bytes()
    spelled = (model / "tokenizer.json").read_bytes().replace(b"im_end", b"im_over")
    settings = (model / "tokenizer_config.json").read_bytes().replace(b"role", b"content")
    for what, name, content in [
        ("weights", "model.safetensors", weights[:-1] + bytes([weights[-1] ^ 1])),
        ("tokenizer", "tokenizer.json", spelled),
        ("chat template", "tokenizer_config.json", settings),
    ]:
        said = rf"the .*{what} of .*model changed since"
        with changed(model / name, content), pytest.raises(CheckpointError, match=said):
            finetune(resumed_finetune(run, steps=4))
    assert finetune(resumed_finetune(run, steps=4)).result.run.step == 4


def test_each_example_comes_once_an_epoch_with_others_of_its_length():
    lengths = np.random.default_rng(0).integers(1, 100, 50)
    order = Epochs(lengths, per_step=4, seed=1)
    assert order.steps == 13
    epochs = [[order.rows(e * 13 + i) for i in range(13)] for e in range(3)]
    for epoch in epochs:
        assert sorted(np.concatenate(epoch)) == list(range(50))
    assert any(not np.array_equal(a, b) for a, b in zip(epochs[0], epochs[1], strict=True))
    again = Epochs(lengths, per_step=4, seed=1)
    np.testing.assert_array_equal(again.rows(30), order.rows(30))
    spread = np.mean([np.ptp(lengths[rows]) for rows in epochs[0]])
    assert spread < 20  # of 100: all sorted together, but for the last step of an epoch


# What is shown


def test_a_preview_shows_what_is_trained(tmp_path, base, chats, capsys):
    [pieces] = preview(options(tmp_path, base, chats), 1)
    assert [text for text, trained in pieces if trained] == [
        "That would be 1, of course.<|im_end|>"
    ]
    assert main(["finetune", "--model", str(base), "--data", str(chats), "--preview", "2"]) == 0
    out = capsys.readouterr().out
    assert out.count("What comes after") == 2
    assert "⟦That would be 1, of course.<|im_end|>⟧" in out  # no terminal, no colours
    assert not (tmp_path / "runs").exists()


def test_a_preview_of_nothing_says_what_was_read(tmp_path, base, capsys):
    unanswered, long = chat(1)[:1], [*chat(1)[:1], {"role": "assistant", "content": "very " * 200}]
    path = write_chats(tmp_path / "chat.jsonl", 0, {"messages": unanswered}, {"messages": long})
    flags = ["--model", str(base), "--data", str(path), "--too-long", "drop", "--preview", "2"]
    assert main(["finetune", *flags]) == 2
    err = capsys.readouterr().err
    assert "2 read, 0 used" in err and "1 empty, 1 dropped: there is nothing to train on" in err
    path.write_text("")
    assert main(["finetune", *flags]) == 2
    assert "0 read, 0 used" in capsys.readouterr().err


def test_the_command_says_what_it_read_and_saved(tmp_path, base, capsys):
    empty = {"messages": [chat(1)[0]]}
    path = write_chats(tmp_path / "chat.jsonl", 40, empty)
    flags = ["--model", str(base), "--data", str(path), "--out", str(tmp_path / "run")]
    flags += ["--lora", "4", "--steps", "4", "--batch", "4", "--peak", "100", "--eval-share", "0.1"]
    assert main(["finetune", *flags]) == 0
    out = capsys.readouterr().out
    assert "41 read, 40 used" in out
    assert "0 truncated, 1 empty, 0 dropped" in out
    assert "trained: 2,048 parameters" in out
    assert "the largest rounding is" in out
    assert f"saved: {tmp_path}/run/merged" in out
    assert (tmp_path / "run" / "losses.csv").is_file()
    assert main(["sample", str(tmp_path / "run"), "--prompt", "It is", "--tokens", "4"]) == 0
    assert capsys.readouterr().out.startswith("It is")


@pytest.mark.filterwarnings("default:.*of several dtypes")
def test_a_base_of_several_dtypes_is_trained_and_sampled(tmp_path, base, chats, capsys):
    mixed, path = tmp_path / "mixed", tmp_path / "mixed" / "model.safetensors"
    shutil.copytree(base, mixed)
    found = safetensors.numpy.load_file(path)
    found["model.norm.weight"] = found["model.norm.weight"].astype(np.float16)
    safetensors.numpy.save_file(found, path)
    flags = ["--model", str(mixed), "--data", str(chats), "--out", str(tmp_path / "run")]
    flags += ["--lora", "4", "--steps", "1", "--batch", "4", "--peak", "100"]
    for command in (["finetune", *flags], ["sample", str(mixed), "--tokens", "2"]):
        assert main(command) == 0
        assert "'model.norm.weight' float16; all become bfloat16" in capsys.readouterr().err
    assert fxad_nn.load(tmp_path / "run" / "merged").config.dtype == "bfloat16"


def test_a_model_answers_in_a_conversation(base, tmp_path, capsys, monkeypatch):
    model, tokenizer = fxad_nn.load(base), from_directory(base)
    template = chat_template.from_directory(base)
    limits = {"tokens": 6, "temperature": 0.0}
    talk = Chat(model.params, model.config, tokenizer, template, system="Be brief.", **limits)
    answers = ["".join(talk.ask(question)) for question in ("What comes after 1?", "And then?")]
    said = [(m["role"], m["content"]) for m in talk.messages]
    assert said[0] == ("system", "Be brief.") and [role for role, _ in said[1:]] == [
        *("user", "assistant", "user", "assistant")
    ]
    assert [content for role, content in said if role == "assistant"] == answers
    text = template.render(talk.messages[:-1], add_generation_prompt=True)
    prompt = [int(i) for i in tokenizer.encode(text)]
    drawn = generate(model.params, model.config, prompt, 6, temperature=0.0, vocab=tokenizer.size)
    assert tokenizer.decode([*prompt, *drawn])[len(tokenizer.decode(prompt)) :] == answers[1]

    flags = ["sample", str(base), "--chat", "--system", "Be brief.", "--tokens", "6"]
    flags += ["--temperature", "0"]
    assert main([*flags, "--prompt", "What comes after 1?"]) == 0
    assert capsys.readouterr().out == answers[0] + "\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO("What comes after 1?\n\nAnd then?\n"))
    assert main(flags) == 0
    assert capsys.readouterr().out == "".join(f"{answer}\n" for answer in answers)


def test_sampling_takes_the_seeds_that_training_takes(base, capsys):
    assert main(["sample", str(base), "--seed", "-1"]) == 2
    assert "--seed must be 0 or more, got -1" in capsys.readouterr().err
    assert main(["sample", str(base), "--seed", str(1 << 70)]) == 2
    assert f"--seed must be at most {1 << 53}, got {1 << 70}" in capsys.readouterr().err


def test_answers_end_and_long_conversations_lose_their_oldest_turns(base, monkeypatch):
    model, tokenizer = fxad_nn.load(base), from_directory(base)
    template = chat_template.from_directory(base)
    said = [int(i) for i in tokenizer.encode("It is 2.<|im_end|>more")]
    prompts = []

    def drawn(params, config, prompt, count, vocab, ends):
        prompts.append(tokenizer.decode(prompt))
        return itertools.takewhile(lambda token: token not in ends, said)

    monkeypatch.setattr("fxad_nn.chat.generate", drawn)
    talk = Chat(model.params, model.config, tokenizer, template, system="Be brief.", tokens=20)
    for number in range(12):
        assert "".join(talk.ask(f"What comes after {number}?")) == "It is 2."
    assert "after 0?" in prompts[1] and "after 0?" not in prompts[-1]
    assert all("Be brief." in prompt for prompt in prompts)
    assert all(len(tokenizer.encode(prompt)) + 20 <= model.config.context for prompt in prompts)
    assert "".join(spelled(tokenizer, [], [*tokenizer.encode("a")])) == "a"


def test_a_question_beyond_the_context_is_refused_and_the_chat_goes_on(base, capsys, monkeypatch):
    model, tokenizer = fxad_nn.load(base), from_directory(base)
    given = model.params, model.config, tokenizer, chat_template.from_directory(base)
    counts = []

    def drawn(params, config, prompt, count, **limits):
        counts.append((len(prompt), count))
        return iter(())

    monkeypatch.setattr("fxad_nn.chat.generate", drawn)
    talk = Chat(*given, system="Be brief.", tokens=100)
    list(talk.ask("What comes after 1? " * 3))
    ((prompt, count),) = counts
    assert prompt + count == model.config.context and count < 100
    said = talk.messages
    with pytest.raises(DataError, match=r"the question takes \d+ tokens with what the system says"):
        talk.ask("What comes after 1? " * 100)
    assert talk.messages == said and len(counts) == 1

    flags = ["sample", str(base), "--chat", "--tokens", "6"]
    assert main([*flags, "--prompt", "What? " * 200]) == 2
    assert "the model's context holds 128" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.StringIO("What? " * 200 + "\nAnd then?\n"))
    assert main(flags) == 2
    out, err = capsys.readouterr()
    assert out == "\n" and "try a shorter question" in err
    assert len(counts) == 2


def test_adapters_alone_are_sampled_beside_their_base(tmp_path, brief, capsys, monkeypatch):
    run = shutil.copytree(brief / "run", tmp_path / "run")
    flags = ["sample", str(run), "--chat", "--prompt", "After 3?", "--tokens", "8"]
    assert main(flags) == 0
    merged = capsys.readouterr().out
    settings = json.loads((run / "merged" / "generation_config.json").read_text("utf-8"))
    assert settings["temperature"] == 0.6
    shutil.rmtree(run / "merged")
    for where in (run, run / "adapter"):
        assert main([*flags[:1], str(where), *flags[2:]]) == 0
        assert capsys.readouterr().out == merged
    assert main([*flags, "--averaged"]) == 2
    assert "--averaged is for a run of train" in capsys.readouterr().err
    (brief / "model").rename(brief / "away")
    assert main(flags) == 2
    (brief / "away").rename(brief / "model")
    assert "holds adapters alone, and the model that they were made for" in capsys.readouterr().err
    settings = json.loads((run / "adapter" / "adapter_config.json").read_text("utf-8"))
    for name in (None, ""):  # which is not the working directory
        unnamed = json.dumps(settings | {"base_model_name_or_path": name})
        (run / "adapter" / "adapter_config.json").write_text(unnamed, "utf-8")
        with monkeypatch.context() as patched:
            patched.chdir(brief / "model")
            assert main(flags) == 2
        assert "does not say which model the adapters" in capsys.readouterr().err
    [checkpoint] = store.checkpoints(run)[-1:]
    assert store.holds_checkpoint(run / "best")
    for where in (checkpoint, run / "best"):
        assert main(["sample", str(where)]) == 2  # of a run that is done
        assert f"sample what it made, {run / 'adapter'}\n" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="is missing; in .*/adapter there are adapters"):
        fxad_nn.load(run)
    shutil.rmtree(run / "adapter")
    with pytest.raises(CheckpointError, match="this is a run, which goes on with `resume='"):
        fxad_nn.load(run)
    for more in ([], ["--chat"]):
        assert main(["sample", str(run / "best"), *more]) == 2
        assert f"finetune --resume {run} ends it" in capsys.readouterr().err
    assert main(["train", "--resume", str(run / "best")]) == 2
    assert f"python -m fxad_nn finetune --resume {run}\n" in capsys.readouterr().err
    for more in ([], ["--chat"]):
        assert main(["sample", str(run), *more]) == 2
        assert f"finetune --resume {run} ends it" in capsys.readouterr().err


def test_only_chat_models_talk(base, tmp_path, capsys):
    assert main(["sample", str(base), "--system", "Be brief."]) == 2
    assert "give --chat too" in capsys.readouterr().err
    plain = write_model(tmp_path / "plain", template=None)
    assert main(["sample", str(plain), "--chat"]) == 2
    assert "has no chat template" in capsys.readouterr().err
    assert main(["sample", str(tmp_path), "--chat"]) == 2
    assert f"--chat needs the directory of a chat model, and {tmp_path} is none" in (
        capsys.readouterr().err
    )
    assert main(["sample", str(tmp_path / "missing"), "--chat"]) == 2
    assert "missing does not exist" in capsys.readouterr().err
    assert main(["sample", str(plain / "config.json")]) == 2
    assert "is a file: give the directory of a run, a checkpoint or" in capsys.readouterr().err


def test_paths_may_be_texts(brief, tmp_path):
    run, model = str(brief / "run"), str(brief / "model")
    config, params = hf.read_model(model)
    assert hf.read_config(model) == config and hf.weight_files(model)
    _, lora = load_adapters(f"{run}/adapter", params, config)
    assert lora.rank == 4
    adapted = add_lora(params, config, 4, 8.0, ALL_LINEAR, fxad.random.key(0))
    save_adapters(f"{tmp_path}/adapter", adapted, config, lora, model)
    hf.write_model(f"{tmp_path}/model", config, params)
    copy_tokenizer(model, f"{tmp_path}/model")
    assert chat_template.templates(f"{tmp_path}/model") == chat_template.templates(model)
    assert len(list(read_conversations(f"{brief}/chat.jsonl"))) == 40
    assert store.latest(run) == store.read_state(run)[0].parent
    assert store.holds_checkpoint(run) and best_loss(run) < math.inf
    history = read_losses(f"{run}/losses.jsonl")
    write_table(history, f"{tmp_path}/losses.csv")
    draw(history, f"{tmp_path}/loss.png", samples.latest(run))
    assert resumed_finetune(run, steps=3).steps == 3


# Bad input


@pytest.mark.parametrize(
    ("given", "saying"),
    [
        ({"lora": None, "dropout": 0.1}, "`dropout` must be left out without `lora`"),
        ({"lora": None, "save": "adapter"}, "`save` must be merged without `lora`"),
        ({"lora": 0}, "the rank of an adapter must be at least 1"),
        ({"targets": "q_proj,w_proj"}, "called 'w_proj'"),
        ({"context": 500}, "`context=500` exceeds the model's 128"),
        ({"max_shard_size": "x"}, r"^`max_shard_size` must be a size such as 5GB .*, got x$"),
        ({"dpo": True}, "`dpo` needs pairs"),
        ({"eval_share": 1.0}, "`eval_share` must be 0 or more, and below 1"),
        ({"base": None}, "fine-tuning needs `model`"),
        ({"data": None}, "fine-tuning needs `data`"),
        ({"format": "alpacca"}, "did you mean 'alpaca'"),
    ],
)
def test_options_that_cannot_be(tmp_path, base, chats, given, saying):
    with pytest.raises(ConfigError, match=saying):
        finetune(options(tmp_path, **{"base": base, "data": chats, **given}))


def test_data_that_cannot_be(tmp_path, base, chats):
    chats.write_text(chats.read_text() + "{nonsense\n")
    with pytest.raises(DataError, match="line 41 is damaged: no JSON"):
        finetune(options(tmp_path, base, chats))
    write_chats(chats, 1, {"messages": chat(1)[:1] + [{"role": "assistant", "content": "\ud800"}]})
    with pytest.raises(DataError, match=r"line 2: character \d+ of the text is a lone surrogate"):
        finetune(options(tmp_path, base, chats))
    write_chats(chats, 1)
    with pytest.raises(DataError, match="1 read, 1 used .* 0 of them to train and 1 to validate"):
        finetune(options(tmp_path, base, chats))
    shutil.copy(chats, tmp_path / "one.jsonl")
    write_chats(chats, 0, {"messages": [chat(1)[0]]})
    with pytest.raises(DataError, match="1 read, 0 used .* 1 empty, .* nothing to train on"):
        finetune(options(tmp_path, base, chats))
    with pytest.raises(
        DataError, match="1 .* to train and 0 to validate on, .* another `eval_data`"
    ):
        finetune(options(tmp_path, base, tmp_path / "one.jsonl", eval_data=chats))
    long = {"messages": [chat(1)[0], {"role": "assistant", "content": "very " * 200}]}
    write_chats(chats, 40, long)
    with pytest.raises(DataError, match=r"line 41 takes \d+ tokens, the context holds 128"):
        finetune(options(tmp_path, base, chats, too_long="error"))
    tuned = finetune(options(tmp_path, base, chats, too_long="drop", steps=2))
    assert "1 dropped" in tuned.result.run.task.lines()[1]


def test_ids_outside_the_vocabulary_name_the_line(tmp_path, chats):
    small = write_model(tmp_path / "small")
    model = fxad_nn.load(small)
    params = model.params
    params["embed"]["token"] = params["embed"]["token"][:40]
    fxad_nn.save(fxad_nn.Model(params, replace(model.config, vocab=40)), small)
    with pytest.raises(DataError, match=r"line 1 holds id \d+ at position \d+, outside the vocab"):
        finetune(options(tmp_path, small, chats))


def test_a_loss_that_is_no_number_names_step_and_tensor(tmp_path, base, chats):
    more = {"learning_rate": 1e38, "clip": 1e30, "schedule": "constant", "warmup": 0, "steps": 6}
    with pytest.raises(TrainingError, match=r"the loss is nan at step 2; now blocks\.0") as caught:
        finetune(options(tmp_path, base, chats, eval_every=0, **more))
    assert caught.value.__notes__ == ["no checkpoint was saved"]


def test_a_checkpoint_of_another_model_is_refused(tmp_path, brief):
    other = write_model(tmp_path / "other", hidden=32)
    chosen = resumed_finetune(brief / "run", steps=4)
    with pytest.raises(CheckpointError, match="is of another model than"):
        finetune(replace(chosen, model=other))


# What was found by reading


def test_the_best_checkpoint_gives_way_to_a_better_one_alone(tmp_path, base, chats, monkeypatch):
    """Also where the run is resumed, and its history ends before its last validation."""
    run = tmp_path / "run"
    first = finetune(options(tmp_path, base, chats, steps=4, eval_every=0))
    assert best_loss(run) == first.result.val_loss
    monkeypatch.setattr(Tuning, "evaluate", lambda *_, **__: 99.0)
    finetune(resumed_finetune(run, steps=5))
    assert [p.name for p in store.checkpoints(run / "best")] == ["step-00000004"]
    with pytest.raises(ConfigError, match="is the best of its run: give `out=DIR`"):
        finetune(resumed_finetune(run / "best", steps=12))
    for old in store.checkpoints(run):
        shutil.rmtree(old)
    with pytest.raises(ConfigError, match="already holds a checkpoint"):
        begin(options(tmp_path, base, chats))


@pytest.mark.parametrize("dtype", ["float32", "bf16", "fp16", "mixed"])
def test_products_may_have_another_dtype_than_a_narrow_base(tmp_path, base, chats, dtype):
    assert fxad_nn.load(base).config.dtype == "bfloat16"
    more = {"eval_every": 0, "sample_every": 1, "sample_tokens": 2}
    tuned = finetune(options(tmp_path, base, chats, steps=2, dtype=dtype, **more))
    assert np.isfinite(tuned.result.val_loss)
    assert (tmp_path / "run" / "samples.jsonl").is_file()
    assert (loss_scale(tuned.result.run.state) is not None) == (dtype == "fp16")


@pytest.mark.parametrize("lora", [4, None])
@pytest.mark.slow
def test_mixed_precision_learns_and_goes_on(tmp_path, base, chats, lora):
    """In full and with adapters, about as well as by products in bfloat16, also when resumed."""
    more = {"lora": lora, "learning_rate": 1e-2 if lora else 1e-3, "eval_every": 0}
    more |= {"schedule": "constant", "warmup": 0}  # the same whether or not it is known to go on
    losses = {}
    for dtype, steps in (("bfloat16", 16), ("mixed", 8)):
        out = tmp_path / dtype
        given = options(tmp_path, base, chats, out=out, dtype=dtype, steps=steps, **more)
        run = finetune(given).result.run
        if dtype == "mixed":
            run = finetune(resumed_finetune(out, steps=16)).result.run
        losses[dtype] = [loss for _, loss in run.history["train"]]
        assert run.options.dtype == dtype
        assert loss_scale(run.state) is None
        assert run.config.activations is None  # of a training step alone
    assert losses["mixed"][-1] < 0.9 * losses["mixed"][0]
    np.testing.assert_allclose(losses["mixed"], losses["bfloat16"], rtol=0.05)


@pytest.mark.parametrize("lora", [4, None])
def test_a_base_in_float16_is_trained_with_a_scaled_loss(tmp_path, base, chats, lora):
    half = shutil.copytree(base, tmp_path / "half")
    fxad_nn.save(fxad_nn.load(base, dtype="float16"), half)
    tuned = finetune(options(tmp_path, half, chats, lora=lora, steps=30, save="merged"))
    history = tuned.result.run.history["train"]
    assert history[-1][1] < 0.7 * history[0][1]
    state = tuned.result.run.state
    assert int(state["good"]) + int(state["skipped"]) == 30
    assert fxad_nn.load(tuned.saved[0]).config.dtype == "float16"
    assert resumed_finetune(tmp_path / "run").dtype == "float16"


@pytest.mark.parametrize(
    ("given", "saying"),
    [
        ({"epochs": 2.0, "steps": 4}, "`epochs` has no meaning beside `steps`"),
        ({"eval_data": "x", "eval_share": 0.1}, "`eval_share` has no meaning beside `eval_data`"),
        ({"beta": 0.2}, "`beta` has no meaning without `dpo`"),
        ({"dpo": True, "z_loss": 1e-4}, "`z_loss` must be left out with `dpo`"),
        ({"dpo": True, "label_smoothing": 0.5}, "`label_smoothing` must be below 0.5 with `dpo`"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given, saying):
    with pytest.raises(ConfigError, match=saying):
        finetune_recipe(model="m", data="d", **given)


def test_a_resumed_run_has_steps_of_its_own(brief):
    for name, value in {"steps": 0, "warmup": -1}.items():
        with pytest.raises(ConfigError, match=f"`{name}` of a resumed run must be at least"):
            resumed_finetune(brief / "run", **{name: value})
    with pytest.raises(ConfigError, match="`epochs` cannot change"):
        resumed_finetune(brief / "run", epochs=3.0)
    with pytest.raises(ConfigError, match="of a run of finetune: .* `finetune_recipe.resume="):
        recipe(resume=brief / "run")
    with pytest.raises(ConfigError, match="`epochs` cannot change"):
        finetune_recipe(resume=brief / "run", epochs=3.0)
    assert finetune_recipe(resume=brief / "run", steps=4) == resumed_finetune(
        brief / "run", steps=4
    )


def test_a_quantised_base_recomputes_blocks_unless_it_offloads_them():
    small = {"lora": 4, "quantize": "nf4"}
    assert finetune_recipe(**small).recompute
    offloaded = finetune_recipe(**small, offload=True)
    assert (offloaded.offload, offloaded.recompute) == (True, False)
    assert not finetune_recipe(**small, recompute=False).recompute
    with pytest.raises(ConfigError, match="`offload` must be left out with `recompute`"):
        finetune_recipe(**small, offload=True, recompute=True)


def test_fewer_than_no_examples_cannot_be_shown(tmp_path, base, chats):
    with pytest.raises(ConfigError, match="count must be 0 or more"):
        list(preview(options(tmp_path, base, chats), -1))
