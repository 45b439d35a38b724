"""The benchmarks' frame: rows, tables, commands of peers, and that every module takes part."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as main
from benchmarks import eager, functions, harness, models, overhead, plots
from benchmarks.__main__ import names

ROOT = Path(__file__).parent.parent


def test_rows_are_fastest_times_and_say_how_far_ahead_we_are():
    row = harness.row("x", {"fxad": [0.2, 0.1], "numpy": [0.3, 0.4], "torch": [0.25]}, "ms")
    assert row == {"what": "x", "unit": "ms", "fxad": 100, "numpy": 300, "torch": 250, "ahead": 2.5}
    assert harness.row("x", {"fxad": [3e-6]}, "us", calls=3)["fxad"] == pytest.approx(1)


def test_tables_have_all_columns():
    lines = harness.table([{"a": 1.234, "b": "x"}, {"a": 12.34, "c": 5}]).splitlines()
    assert lines == ["| a | b | c |", "|---|---|---|", "| 1.23 | x |  |", "| 12.3 |  | 5 |"]


def test_commands_say_milliseconds_last():
    assert harness.command_ms("echo step 3: 12.5 ms") == 12.5
    with pytest.raises(ValueError, match="printed no number"):
        harness.command_ms("echo nothing")
    with pytest.raises(ValueError, match="'echo no data >&2; exit 3' ended with status 3: no data"):
        harness.command_ms("echo no data >&2; exit 3")


def test_a_commands_time_counts_among_the_peers():
    row = {"what": "x", "unit": "ms", "fxad": 10.0, "torch": 30.0, "ahead": 3.0}
    assert harness.beside(row, "command", 20.0) == row | {"command": 20.0, "ahead": 2.0}
    assert harness.beside({"what": "x failed: why"}, "command", 20.0) == {"what": "x failed: why"}


def test_what_is_not_installed_is_left_out():
    given = ["numpy", "numpy-compile", "no_such_package"]
    assert harness.installed(given) == ["numpy", "numpy-compile"]


def test_modules_take_part():
    assert {"train_step", "matmul", "overhead"} <= set(names())
    assert not {"harness", "__main__", "plots"} & set(names())


@pytest.mark.parametrize(
    ("got", "want", "error"),
    [
        (1.0, 1.0, 0.5),
        (1.0 + 2**-23, 1.0, 1.0),
        (1.0, 1.0 + 2**-24, 0.5),
        (0.0, 2.0**-149, 1.0),
        (np.inf, 1e39, 0.5),
        (3e38, np.inf, np.inf),
        (np.inf, 3e38, np.inf),
        (np.inf, -np.inf, np.inf),
        (np.nan, np.nan, 0.5),
        (1.0, np.nan, np.inf),
        (0.0, -0.0, np.inf),
    ],
)
def test_sweeps_see_every_wrong_result(got, want, error):
    found = np.array([2.0, got], np.float32), np.array([2.0, want])
    assert functions.worst_of(*found) == (error, int(error > 0.5))


def test_eager_functions_are_measured(monkeypatch):
    some = {text: eager.CALLS[text] for text in ("x + x", "lib.var(x)", "m @ m")}
    monkeypatch.setattr(eager, "CALLS", some)
    *found, last = eager.rows(True, [])
    assert {row["what"] for row in found} >= {f"eager {text}" for text in some}
    over = [row["over numpy"] for row in found]
    assert over == sorted(over, reverse=True) and "of 5" in last["what"]


def test_small_models_train():
    run = models.training_step(models.MINE, "mlp")
    losses = [run() for _ in range(5)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.7 * losses[0]


@pytest.mark.peers
@pytest.mark.parametrize("name", ["mlp", "gru"])
def test_small_models_are_those_of_jax(name):
    pytest.importorskip("jax")
    runs = [models.training_step(o, name) for o in (models.MINE, models.in_jax())]
    ours, theirs = ([run() for _ in range(3)] for run in runs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


def test_overheads_are_measured():
    rows = [*overhead.calls(2, []), *overhead.eager(2, [])]
    assert {"call, 1 array", "call, 1,000 leaves", "eager x + y"} <= {row["what"] for row in rows}
    assert all(row["fxad"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "none"], "no benchmark named none; there are attention"),
        (["--peers", "torch,tensorflow"], "no peer named tensorflow; there are torch, torch-"),
        (["--peer-cmd", "exit 3"], "--peer-cmd: 'exit 3' ended with status 3: nothing printed"),
        (["--peer-cmd", "echo ready"], "--peer-cmd: 'echo ready' printed no number: 'ready"),
        (["--only", "tape", "--peer-cmd", "echo 1"], "train_step, which --only leaves out"),
    ],
)
def test_mistakes_are_said_before_anything_is_measured(options, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["", "--quick", *options])
    with pytest.raises(SystemExit) as bad:
        main.main()
    assert bad.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert "..." not in error


def test_the_command_line(tmp_path):
    path = tmp_path / "rows.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "tape", "--json", str(path)]
    good = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert good.returncode == 0, good.stderr
    assert json.loads(path.read_text())["rows"][0]["benchmark"] == "tape"
    assert f"command: python -m benchmarks --quick --only tape --json {path}" in good.stdout


def test_a_command_stands_beside_the_training_step(monkeypatch, capsys):
    monkeypatch.setattr(main, "measured", lambda name, args: [{"what": name, "fxad": 10.0}])
    monkeypatch.setattr(sys, "argv", ["", "--only", "tape,train_step", "--peer-cmd", "echo 25 ms"])
    main.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[-12:] == [
        "",
        "tape",
        "",
        "| what | fxad |",
        "|---|---|",
        "| tape | 10.0 |",
        "",
        "train_step",
        "",
        "| what | fxad | command | ahead |",
        "|---|---|---|---|",
    ] + ["| train_step | 10.0 | 25.0 | 2.50 |"]


def test_pictures(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    rows = [
        {"benchmark": "matmul", "what": "qkv", "size": "64x64x64", "ahead": 1.25},
        {"benchmark": "matmul", "what": "head", "size": "64x64x9", "ahead": 0.5},
        {"benchmark": "tape", "what": "push"},
    ]
    (written,) = plots.draw(rows, tmp_path / "new")
    assert written == tmp_path / "new" / "matmul.png"
    assert written.read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(plots, "Figure", None)
    with pytest.raises(SystemExit, match="pip install"):
        plots.draw(rows, tmp_path)
