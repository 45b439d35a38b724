"""The benchmarks' frame: rows, tables, commands of peers, and that every module takes part."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import harness, overhead, plots
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
    with pytest.raises(subprocess.CalledProcessError):
        harness.command_ms("exit 3")


def test_what_is_not_installed_is_left_out():
    assert harness.installed(["numpy", "no_such_package"]) == ["numpy"]


def test_modules_take_part():
    assert {"train_step", "matmul", "overhead"} <= set(names())
    assert not {"harness", "__main__", "plots"} & set(names())


def test_overheads_are_measured():
    rows = [*overhead.calls(2, []), *overhead.eager(2, [])]
    assert {"call, 1 array", "call, 1,000 leaves", "eager x + y"} <= {row["what"] for row in rows}
    assert all(row["fxad"] > 0 for row in rows)


def test_the_command_line(tmp_path):
    command = [sys.executable, "-m", "benchmarks"]
    bad = subprocess.run([*command, "--only", "none"], capture_output=True, text=True, cwd=ROOT)
    assert bad.returncode == 2
    assert "there are" in bad.stderr
    path = tmp_path / "rows.json"
    good = subprocess.run(
        [*command, "--quick", "--only", "tape", "--json", str(path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert good.returncode == 0, good.stderr
    assert json.loads(path.read_text())["rows"][0]["benchmark"] == "tape"


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
