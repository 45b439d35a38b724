"""The library where it lies otherwise than as a folder of sources by its plain name."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fxad import cache_key

ROOT = Path(__file__).parent.parent
PACKAGES = ("fxad", "fxad_nn")
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import fxad
import fxad.numpy as jnp
print(fxad.__file__)
print(fxad.jit(fxad.grad(lambda x: jnp.sum(jnp.sin(x) * x)))(jnp.zeros(3)))
try:
    jnp.ones(3) + jnp.ones(4)
except fxad.errors.ShapeError as error:
    print(str(error).split()[-1])
"""
TEMPLATE = """
from fxad_nn.template_process import TemplateProcess
print(TemplateProcess("{{ a }}!", "here").render({"a": "Hello"})[0])
"""


def _run(where: Path | str, folder: Path, program: str = PROGRAM) -> list[str]:
    """What the program prints that imports the library from there, its cache in the folder."""
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py", str(where)],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=folder,
        env=dict(os.environ, FXAD_CACHE="1", FXAD_CACHE_DIR=str(folder / "cache")),
    )
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


def test_a_path_that_is_not_the_shortest(tmp_path: Path) -> None:
    """As after `sys.path.insert(0, "..")`: frames have the file's name as the path spells it."""
    where = os.path.relpath(ROOT / "tests" / "..", tmp_path) + "/docs/.."
    file, gradient, line = _run(where, tmp_path)
    assert ".." in file and gradient == "[0. 0. 0.]" and line == "(program.py:9)"


@pytest.mark.slow
def test_in_a_zip_file(tmp_path: Path) -> None:
    place = tmp_path / "library.zip"
    with zipfile.ZipFile(place, "w") as archive:
        for file in sorted(file for name in PACKAGES for file in (ROOT / name).rglob("*.*")):
            if "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(ROOT))
    file, gradient, line, rendered = _run(place, tmp_path, PROGRAM + TEMPLATE)
    assert file.startswith(str(place)) and gradient == "[0. 0. 0.]" and line == "(program.py:9)"
    assert rendered == "Hello!"


@pytest.mark.slow
def test_as_byte_code_alone(tmp_path: Path) -> None:
    place = tmp_path / "library"
    shutil.copytree(ROOT / "fxad", place / "fxad", ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(place, quiet=1, legacy=True, stripdir=str(place))
    for source in place.rglob("*.py"):
        source.unlink()
    file, gradient, line = _run(place, tmp_path)
    assert file.endswith(".pyc") and gradient == "[0. 0. 0.]" and line == "(program.py:9)"


def test_nothing_is_kept_without_sources(tmp_path: Path) -> None:
    (tmp_path / "there.py").touch()
    assert cache_key.sources(("there.py",), tmp_path)
    assert cache_key.sources(("there.py", "missing.py"), tmp_path) is None
