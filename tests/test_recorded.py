"""The records of compiled code hold: all cases for AVX-512, each also for one other instruction set
and for one more kind of processor with AVX-512. `python -m tests.recorded check` compares the rest.

Where they do not hold and that is meant: `python -m tests.recorded write`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.recorded import base, stages, store, targets
from tests.recorded.__main__ import main
from tests.recorded.catalogue import CASES
from tests.recorded.normal import normalised
from tests.recorded.targets import target

ROOT = Path(__file__).parent.parent
PARTS = 24
RECORDED = store.read(store.RECORDS)


def checked(number: int) -> list[str]:
    """The targets for which the case of this number is compared here."""
    first, *others = targets.NAMES
    alike = [name for name in others if name in store.LIKE]
    apart = [name for name in others if name not in store.LIKE]
    return [first, alike[number % len(alike)], apart[number % len(apart)]]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_code_is_as_recorded(part: int) -> None:
    changes = []
    for number, name in list(enumerate(CASES))[part::PARTS]:
        names = checked(number)
        new = store.computed([CASES[name]], names)
        changes += store.differences(RECORDED, new, [store.RUNTIME, name], names)
    assert not changes, f"{store.report(changes)}\n{store.advice(changes)}"


def test_records_are_of_these_cases_and_targets() -> None:
    cases = {store.RUNTIME, *CASES}
    assert set(RECORDED) >= {"plans", *targets.NAMES}
    assert set(RECORDED["plans"]) == set(CASES)
    assert all(set(RECORDED[target]) == cases for target in targets.NAMES)


def test_texts_that_are_recorded_whole() -> None:
    assert not store.stale_texts(), "python -m tests.recorded write"
    folder = store.RECORDS / "texts"
    assert {path for _, _, path in store.shown()} == set(folder.iterdir())


def test_code_does_not_depend_on_this_process_or_machine() -> None:
    """What was recorded elsewhere is found again with other hashes, settings and threads."""
    settings = {"PYTHONHASHSEED": "5", "FXAD_ISA": "generic", "FXAD_NUM_THREADS": "1"}
    environment = {**os.environ, **settings, "FXAD_CHECK": "1", "PYTHONPATH": str(ROOT)}
    names = ["rows/softmax", "loops/scan-*-grad", "models/llama-tiny-step", "products/bf16-rows"]
    command = [sys.executable, "-m", "tests.recorded", "check", "--jobs", "1", *names]
    done = subprocess.run(
        [*command, "--targets", "zen5,amx,neon"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_change_of_code_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    smaller = {"unit_elements": 1024}
    monkeypatch.setattr(stages, "target_named", lambda name: target(name).tuned(rows=smaller))
    names = ["elements/axpy-2048x2048", "products/nn-8"]
    assert main(["check", "--jobs", "1", "--targets", "avx2,neon", *names]) == 1
    said = capsys.readouterr().out
    assert "llvm: 1 case\n    elements/axpy-2048x2048  (avx2, neon)\n" in said
    assert "plan:" not in said
    assert "diff --base HEAD elements/axpy-2048x2048 --targets avx2" in said


def test_cases_are_found_by_pattern() -> None:
    with pytest.raises(SystemExit, match="no case is called 'row/sum'"):
        main(["check", "row/sum"])


def test_diff_shows_the_code_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against a copy of this tree that works in smaller units."""
    for package in ("fxad", "fxad_nn", "benchmarks", "tests/recorded"):
        ignored = shutil.ignore_patterns("__pycache__", "texts", "results")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    path, number = tmp_path / "fxad/backend/llvm/base/tuning.py", "unit_elements: int = number("
    assert number in path.read_text()
    path.write_text(path.read_text().replace(f"{number}16384", f"{number}4096"))

    @contextmanager
    def worktree(revision: str, scratch: Path):
        yield tmp_path

    monkeypatch.setattr(base, "_worktree", worktree)
    # Its two processes share the copy's byte code.
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    names = ["elements/axpy-2048x2048", "products/nn-8"]
    assert main(["diff", "--base", "old", "--jobs", "1", "--targets", "neon", *names]) == 1
    said = capsys.readouterr().out
    assert "calls: 1 case\n    elements/axpy-2048x2048  (neon)\n" in said
    assert "--- old/elements/axpy-2048x2048@neon/llvm\n" in said
    assert "\n-  %" in said
    assert "\n+  %" in said


# ---------------------------------------------------------------- normal form

TEXT = """define void @f(ptr %args, i64 %end) #0 {
entry:
  br label %head1
head1:
  %i2 = phi i64 [ 0, %entry ], [ %v3, %head1 ]
  %v3 = add i64 %i2, 1
  %v4 = icmp slt i64 %v3, %end
  br i1 %v4, label %head1, label %done5
done5:
  ret void
}"""


def test_names_inside_functions_do_not_matter() -> None:
    renamed = TEXT.replace("%v", "%sum").replace("head1", "loop.7").replace("%end", "%high")
    assert renamed != TEXT
    assert normalised(renamed) == normalised(TEXT)
    assert "  %2 = phi i64 [ 0, %b0 ], [ %3, %b1 ]\n" in normalised(TEXT)


@pytest.mark.parametrize(
    ("old", "new"), [("%i2, 1", "%i2, 2"), ("@f", "@g"), ("%v3, %end", "%end, %v3"), ("slt", "ult")]
)
def test_all_else_matters(old: str, new: str) -> None:
    assert old in TEXT
    assert normalised(TEXT.replace(old, new)) != normalised(TEXT)
