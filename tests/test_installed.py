"""The library where it lies otherwise than as a folder of sources by its plain name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
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
