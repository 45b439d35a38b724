"""Examples in the docstrings of public functions and classes give what they say."""

from __future__ import annotations

import doctest
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import fxad
import fxad.numpy as jnp

MODULES = (
    "fxad",
    "fxad.debug",
    "fxad.errors",
    "fxad.image",
    "fxad.lax",
    "fxad.nn",
    "fxad.numpy",
    "fxad.profiler",
    "fxad.random",
    "fxad.scipy.cluster.vq",
    "fxad.scipy.interpolate",
    "fxad.scipy.ndimage",
    "fxad.scipy.spatial.transform",
    "fxad.scipy.special",
    "fxad.scipy.stats",
    "fxad.tree",
    "fxad_nn",
)
FINDER = doctest.DocTestFinder(recurse=False)


def own(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The functions and classes of a module that are ours."""
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value) and getattr(value, "__module__", "").startswith("fxad"):
            yield name, value


def described() -> Iterator[Any]:
    seen = set()
    for module in map(importlib.import_module, MODULES):
        for name, value in own(module):
            if id(value) not in seen and ">>> " in (getattr(value, "__doc__", None) or ""):
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


@pytest.mark.parametrize("module", MODULES)
def test_every_function_has_an_example(module: str) -> None:
    found = own(importlib.import_module(module))
    assert not [name for name, value in found if ">>> " not in (value.__doc__ or "")]
