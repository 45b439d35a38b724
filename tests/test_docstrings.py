"""Examples in the docstrings of public functions and classes give what they say."""

from __future__ import annotations

import doctest
import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import fxad
import fxad.numpy as jnp

MODULES = (
    "fxad",
    "fxad.lax",
    "fxad.nn",
    "fxad.numpy",
    "fxad.random",
    "fxad.scipy.cluster.vq",
    "fxad.scipy.interpolate",
    "fxad.scipy.ndimage",
    "fxad.scipy.spatial.transform",
    "fxad.scipy.special",
    "fxad.scipy.stats",
    "fxad.tree",
)
COMPLETE = (
    "fxad.random",
    "fxad.scipy.cluster.vq",
    "fxad.scipy.interpolate",
    "fxad.scipy.ndimage",
    "fxad.scipy.spatial.transform",
)
FINDER = doctest.DocTestFinder(recurse=False)


def described() -> Iterator[Any]:
    seen = set()
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            value = getattr(module, name)
            own = getattr(value, "__module__", "").startswith("fxad.")
            known = id(value) in seen or not own
            if not known and ">>> " in (getattr(value, "__doc__", None) or ""):
                seen.add(id(value))
                yield pytest.param(value, id=f"{module.__name__}.{name}")


@pytest.mark.parametrize("value", [*described()])
def test_examples(value: Any) -> None:
    names = {**vars(sys.modules[value.__module__]), "fxad": fxad, "jnp": jnp}
    (test,) = FINDER.find(value, "example", globs=names)
    lines: list[str] = []
    found = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=lines.append)
    assert found.attempted > 0
    assert found.failed == 0, "".join(lines)


@pytest.mark.parametrize("module", COMPLETE)
def test_every_function_has_an_example(module: str) -> None:
    found = importlib.import_module(module)
    assert not [n for n in found.__all__ if ">>> " not in (getattr(found, n).__doc__ or "")]


def test_the_first_functions_have_examples() -> None:
    for name in ("grad", "value_and_grad", "jit", "vmap", "jvp", "vjp", "checkpoint"):
        assert ">>> " in getattr(fxad, name).__doc__, name
