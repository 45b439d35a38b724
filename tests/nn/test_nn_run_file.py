"""Options from a file, and the record of what a run was begun with."""

import csv
import json
import subprocess
from dataclasses import fields

import pytest
from short_run import options

from fxad_nn import store
from fxad_nn.cli import main
from fxad_nn.errors import ConfigError
from fxad_nn.finetune_recipe import FinetuneOptions
from fxad_nn.recipe import TrainOptions
from fxad_nn.run import resumed_options
from fxad_nn.run_file import STARTS, git_state, joined, read_options
from fxad_nn.train import train


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be, that is the question\n" * 60)
    return path


def written(tmp_path, content):
    path = tmp_path / "run.toml"
    path.write_text(content, "utf-8")
    return path


def test_options_are_read_by_the_names_of_their_flags(tmp_path):
    path = written(tmp_path, 'learning-rate = 1\nmax_shard_size = "1GB"\ndata = "x"\nlora = 4\n')
    found = read_options(path, FinetuneOptions)
    assert found == {
        "learning_rate": 1.0,
        "max_shard_size": "1GB",
        "data": tmp_path.__class__("x"),
        "lora": 4,
    }
    half = written(tmp_path, "\ufeffprecision = 'fp16'\nnew-tokens = ['<a>', '<b,>']\n")
    assert read_options(half, FinetuneOptions) == {"dtype": "fp16", "new_tokens": ("<a>", "<b,>")}
    for cls in (TrainOptions, FinetuneOptions):  # every default that TOML can say
        values = {f.name: f.default for f in fields(cls) if f.default is not None}
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in values.items()]
        assert read_options(written(tmp_path, "".join(lines)), cls) == values


def test_memory_may_be_a_number_of_bytes(tmp_path):
    given = read_options(written(tmp_path, "memory = 1000000000\n"), TrainOptions)
    assert TrainOptions(**given).memory == 1_000_000_000
    with pytest.raises(ConfigError, match="`memory` must be a size such as 8GiB or 500MB, got 0"):
        TrainOptions(memory=0)
    with pytest.raises(ConfigError, match="memory must be str or int or null, got True"):
        read_options(written(tmp_path, "memory = true\n"), TrainOptions)


@pytest.mark.parametrize(
    ("content", "saying"),
    [
        ("stesp = 3", r"run.toml: unknown key 'stesp'; did you mean 'steps'\?"),
        ("learning-rat = 3", "did you mean 'learning-rate'"),
        ("steps = 'many'", "run.toml: steps must be int, got 'many'"),
        ("steps = true", "run.toml: steps must be int, got True"),
        ("[data]\nx = 1", "run.toml: data must be"),
        ("schedule = 'cosin'", "did you mean 'cosine'"),
        ("log-every = 1\nlog_every = 2", "says log-every twice"),
        ("dtype = 'f32'\nprecision = 'fp16'", "says dtype twice"),
        ("'' = 1", "unknown key ''"),
        ("steps = ", "run.toml is no TOML"),
        ("steps = 1\nsteps = 2", "run.toml is no TOML"),
    ],
)
def test_a_file_that_cannot_be_is_named(tmp_path, content, saying):
    with pytest.raises(ConfigError, match=saying):
        read_options(written(tmp_path, content), TrainOptions)


def test_a_missing_file_and_one_that_is_no_text(tmp_path):
    with pytest.raises(ConfigError, match="none.toml is missing"):
        read_options(tmp_path / "none.toml", TrainOptions)
    (tmp_path / "run.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="run.toml is no TOML"):
        read_options(tmp_path / "run.toml", TrainOptions)


def test_file_and_command_line_must_not_contradict_each_other(tmp_path):
    path = tmp_path / "run.toml"
    assert joined({"steps": 3}, {"steps": 3, "seed": 1}, path) == {"steps": 3, "seed": 1}
    with pytest.raises(ConfigError, match="says steps = 3, the command line 4: leave one out"):
        joined({"steps": 3}, {"steps": 4}, path)


def test_a_run_from_a_file_leaves_its_losses_as_a_table(tmp_path, text, capsys):
    lines = 'preset = "tiny"\nsteps = 4\nlog-every = 2\neval-every = 2\npeak = 100\n'
    path = written(tmp_path, lines + f'data = "{text}"\nout = "{tmp_path}/run"\n')
    assert main(["train", "--config", str(path), "--batch", "4"]) == 0
    with open(tmp_path / "run" / "losses.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["2", "4"]
    assert all(float(row["train"]) > 0 and float(row["val"]) > 0 for row in rows)
    capsys.readouterr()
    assert main(["train", "--config", str(path), "--steps", "9"]) == 2
    assert "says steps = 4, the command line 9" in capsys.readouterr().err
    (tmp_path / "run" / "losses.csv").unlink()
    assert main(["plot", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "losses.csv").is_file()


def test_a_run_goes_on_with_the_file_that_began_it(tmp_path, text, capsys):
    lines = 'preset = "tiny"\noptimizer = "muon"\nsteps = 4\nlog-every = 2\npeak = 100\n'
    path = written(tmp_path, lines + f'data = "{text}"\nout = "{tmp_path}/run"\n')
    assert main(["train", "--config", str(path)]) == 0
    path.write_text(path.read_text().replace("steps = 4", "steps = 6"))
    resumed = ["train", "--config", str(path), "--resume", str(tmp_path / "run")]
    assert main(resumed) == 0
    assert store.latest(tmp_path / "run").name == "step-00000006"
    path.write_text(path.read_text().replace("muon", "adamw"))
    capsys.readouterr()
    assert main(resumed) == 2
    said = capsys.readouterr().err
    assert "--optimizer cannot change when a run is resumed" in said
    assert "it was muon, not adamw" in said


def test_every_start_is_recorded(tmp_path, text):
    train(options(tmp_path, text, steps=4))
    train(resumed_options(tmp_path / "run", steps=6))
    lines = (tmp_path / "run" / STARTS).read_text().splitlines()
    first, second = map(json.loads, lines)
    assert (first["from"], second["from"]) == (0, 4)
    assert (first["options"]["steps"], second["options"]["steps"]) == (4, 6)
    assert first["options"]["data"] == str(text)
    assert {"python", "numpy"} <= first["versions"].keys()


def test_the_commit_and_whether_files_differ_from_it(tmp_path):
    assert git_state(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y.z"]
    (tmp_path / "file").write_text("one")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    found = git_state(tmp_path)
    assert found is not None
    assert len(found["commit"]) == 40
    assert not found["changed"]
    (tmp_path / "file").write_text("two")
    assert git_state(tmp_path) == {**found, "changed": True}
