"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest

import fxad
import fxad.numpy as jnp

MODULES = (
    "fxad.api.autodiff",
    "fxad.api.checkpoint",
    "fxad.api.closures",
    "fxad.api.custom",
    "fxad.api.custom_rules",
    "fxad.api.custom_vjp",
    "fxad.api.jit",
    "fxad.api.vectorise",
    "fxad.numpy.dynamic_slices",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    names = {"fxad": fxad, "jnp": jnp, "ds": fxad.ds}
    found = doctest.testmod(module, extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0
