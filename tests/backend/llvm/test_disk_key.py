"""An entry's name covers every source that its code and plan depend on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fxad import cache_key
from fxad.backend.llvm import disk

ROOT = Path(__file__).parents[3]
DECIDING = cache_key.DECIDING + disk.OWN_SOURCES
MAKES_ENTRIES = "fxad.compiler"
MODULE = re.compile(r"(fxad(?:\.\w+)+)(?::\w+)?")  # as lazy namespaces name them
# Loaded beside what decides; nothing in them reaches an entry.
BESIDE = {
    "fxad/__init__.py": "the user's names",
    "fxad/api/__init__.py": "the user's names",
    "fxad/backend/__init__.py": "a docstring",
    "fxad/backend/numba": "another backend, whose code is not kept",
    "fxad/backend/tapes.py": "tapes of steps that a profile runs one by one",
}


def file_of(module: str) -> Path | None:
    place = ROOT.joinpath(*module.split("."))
    found = (place.with_suffix(".py"), place / "__init__.py")
    return next((path for path in found if path.is_file()), None)


def named(source: str) -> Iterator[str]:
    """Modules, and names in them, that a file imports anywhere, by statement or by a string."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                yield from (name.name for name in names)
            case ast.ImportFrom(str(module), names, 0):
                yield module
                yield from (f"{module}.{name.name}" for name in names)
            case ast.ImportFrom():
                pytest.fail(f"a relative import, line {node.lineno}: which module is that?")
            case ast.Constant(str(text)) if found := MODULE.fullmatch(text):
                yield found[1]


def closure(start: str) -> dict[str, str]:
    """Our files that a module needs, with who asks for each; those of `BESIDE` are not followed."""
    found: dict[str, str] = {}
    waiting = [(start, "")]
    while waiting:
        module, by = waiting.pop()
        path = file_of(module) if module.split(".")[0] == "fxad" else None
        if path is None or (file := path.relative_to(ROOT).as_posix()) in found:
            continue
        found[file] = by
        if not any(file.startswith(part) for part in BESIDE):
            waiting += [(name, file) for name in named(path.read_text())]
        packages = module.split(".")[:-1]
        waiting += [(".".join(packages[:n]), file) for n in range(1, len(packages) + 1)]
    return found


def test_the_key_of_an_entry_covers_all_that_makes_it():
    deciding = tuple(
        f"fxad/{part}" if part.endswith(".py") else f"fxad/{part}/" for part in DECIDING
    )
    found = closure(MAKES_ENTRIES)
    assert len(found) > 200
    missing = {
        file: by
        for file, by in found.items()
        if not file.startswith(deciding) and not any(file.startswith(part) for part in BESIDE)
    }
    assert not missing, "not in what decides, although asked for by " + str(missing)
    for part in deciding:
        assert any(file.startswith(part) for file in found), f"{part} is not needed any more"


def test_late_imports_are_seen():
    source = 'def f():\n    import fxad.a\n    return g("fxad.b.c", {"x": "fxad.d:y"}, "of fxad.e")'
    assert sorted(named(source)) == ["fxad.a", "fxad.b.c", "fxad.d"]


@pytest.mark.parametrize("changed", ["core/config.py", "compiler.py"])
def test_a_change_of_our_sources_is_a_miss(tmp_path, changed):
    for part in DECIDING:
        where = tmp_path / part
        if part.endswith(".py"):
            where.parent.mkdir(parents=True, exist_ok=True)
            where.touch()
        else:
            where.mkdir(parents=True)
    path = tmp_path / changed
    path.write_text("x = 1\n")
    first = cache_key.sources(DECIDING, tmp_path)
    path.write_text("x = 2\n")
    assert cache_key.sources(DECIDING, tmp_path) != first
    path.write_text("x = 1\n")
    assert cache_key.sources(DECIDING, tmp_path) == first
