"""Ops, a pass and a backend are added from the docs alone, and counted.

The pages hold changes as `diff` blocks, whose first line names the file, and code to run after
them, as `python changed` blocks: here on a copy of the package, in a process of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CHANGE = re.compile(r"```diff\n\+\+\+ (\S+)\n(.*?)```", re.DOTALL)
CODE = re.compile(r"```python changed\n(.*?)```", re.DOTALL)
PUBLIC = ("fxad/numpy", "fxad/lax")  # namespaces, beside which a definition is counted


def change(text: str, diff: str, path: str) -> str:
    """A file's text (empty if it is new) after a change, whose lines begin with +, - or a blank."""
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if not line.startswith("+"))
    after = "".join(line[1:] for line in lines if not line.startswith("-"))
    assert text.count(before) == 1 if before else not text, f"{path} has changed:\n{before}"
    return text.replace(before, after) if before else after


def added(page: str, copy: Path) -> set[str]:
    """Do what a page says to a copy of the package. Returns the files that it touched."""
    # With the byte code of what does not change, but for what other processes are writing.
    shutil.copytree(ROOT / "fxad", copy / "fxad", ignore=shutil.ignore_patterns("*.pyc.*"))
    touched = set()
    for path, diff in CHANGE.findall((ROOT / "docs" / page).read_text()):
        file = copy / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(change(file.read_text() if file.exists() else "", diff, path))
        touched.add(path)
    return touched


def run(copy: Path, page: str, *then: str) -> None:
    """Run a page's code on the changed copy, and other code in the same process."""
    (code,) = CODE.findall((ROOT / "docs" / page).read_text())
    lines = ["import fxad", f"assert fxad.__file__.startswith({str(copy)!r})", code, *then]
    env = os.environ | {"PYTHONPATH": str(copy), "FXAD_CACHE_DIR": str(copy / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        env=env, cwd=copy, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def house_tests(copy: Path, *args: str) -> str:
    """Code that runs tests of the house on the changed copy."""
    shutil.copytree(ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("*.pyc.*"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    args = ("-q", "-p", "no:cacheprovider", *args)
    return f"import pytest\nraise SystemExit(pytest.main({[*args]}))"


def private(touched: Iterable[str]) -> set[str]:
    return {path for path in touched if not path.startswith(PUBLIC)}


@pytest.mark.slow
def test_an_op_with_native_code_is_four_files(tmp_path):
    touched = added("add-an-op.md", tmp_path)
    assert len(private(touched)) == 4, touched
    assert touched - private(touched) == {"fxad/lax/operators.py", "fxad/lax/__init__.py"}
    files = ("backend/test_prims.py", "backend/llvm/test_math.py", "ops/test_op_contract.py")
    tests = house_tests(
        tmp_path,
        *(f"tests/{file}" for file in files),
        *("-k", "softsign or test_prims or float32_errors or float64_errors"),
    )
    alone = (  # errors of the new function alone
        "import sys; sys.path.insert(0, 'tests/backend/llvm')",
        "import test_math; assert 'softsign' in test_math.NAMES; test_math.NAMES = ['softsign']",
    )
    run(tmp_path, "add-an-op.md", *alone, tests)


@pytest.mark.slow
def test_a_structural_op_with_loops_of_its_own_is_nine_files(tmp_path):
    touched = added("add-a-loop.md", tmp_path)
    assert len(touched) <= 9, touched
    files = ("ops/test_op_contract.py", "lower/test_samples.py")
    tests = house_tests(tmp_path, *(f"tests/{file}" for file in files), "-k", "recurrence")
    run(tmp_path, "add-a-loop.md", tests)


def test_a_pass_is_two_files(tmp_path):
    touched = added("add-a-pass.md", tmp_path)
    assert touched == {"fxad/passes/same_choice.py", "fxad/compiler.py"}
    run(tmp_path, "add-a-pass.md")


@pytest.mark.slow
def test_a_backend_is_a_folder_and_a_line(tmp_path):
    touched = added("add-a-backend.md", tmp_path)
    assert {path for path in touched if "/toy/" not in path} == {"fxad/compiler.py"}
    run(tmp_path, "add-a-backend.md")


def test_a_change_that_no_longer_fits_is_told():
    assert change("a\nb\n", " a\n+c\n b\n", "x") == "a\nc\nb\n"
    assert change("", "+a\n", "x") == "a\n"
    with pytest.raises(AssertionError, match="x has changed"):
        change("a\nb\n", " b\n-c\n", "x")
    with pytest.raises(AssertionError, match="x has changed"):
        change("a\n", "+a\n", "x")
