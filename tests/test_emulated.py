"""The emulated machines' lists name files and tests that exist."""

from __future__ import annotations

import importlib.util
from pathlib import Path

TESTS = Path(__file__).parent


def _lists(name: str):
    spec = importlib.util.spec_from_file_location(f"emulated_{name}", TESTS / f"emulated/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_listed_exists(monkeypatch):
    monkeypatch.syspath_prepend(str(TESTS / "emulated"))
    machines, part = _lists("__main__"), _lists("part")
    named = [*machines.PART, *machines.ALL, *machines.UNFIT, *part.MORE, *part.SLOW]
    missing = []
    for name in named:
        file, _, test = name.partition("::")
        path = TESTS / file
        if not path.exists() or (test and f"def {test}(" not in path.read_text()):
            missing.append(name)
    assert not missing
