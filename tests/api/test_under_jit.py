"""Every public function under jit: its values, gradients and batches are the eager ones."""

from __future__ import annotations

import types
import warnings
from typing import Any

import jit_cases_lax  # noqa: F401 (these three fill CASES)
import jit_cases_numpy  # noqa: F401
import jit_cases_rest  # noqa: F401
import numpy as np
import pytest
from jit_cases import CASES, Case

import fxad
import fxad.numpy as jnp
from fxad.core.config import config
from fxad.tree import leaves

BATCH = 40
ALL = [(f"{c.module.__name__}.{name}", case) for c in CASES.values() for name in c.calls for case in c.calls[name]]


def batches(cases: list[tuple[str, Case]]) -> list[list[tuple[str, Case]]]:
    return [cases[i : i + BATCH] for i in range(0, len(cases), BATCH)]


def public(module: types.ModuleType) -> list[str]:
    """The functions a module offers: its __all__, or what a package names, or what is defined there."""
    listed = getattr(module, "__all__", None)
    names = listed or [n for n in vars(module) if not n.startswith("_")]
    everything = listed is not None or hasattr(module, "__path__")

    def offered(name: str) -> bool:
        value = getattr(module, name)
        if isinstance(value, type | types.ModuleType) or not callable(value):
            return False
        return everything or value.__module__ == module.__name__ or hasattr(np.linalg, name)

    return [n for n in names if offered(n)]


@pytest.mark.parametrize("module", list(CASES))
def test_every_function_has_a_case(module: str) -> None:
    cases = CASES[module]
    missing = [n for n in public(cases.module) if n not in cases.calls and n not in cases.refused]
    assert not missing, f"add a call of each to tests/api/jit_cases*.py: {missing}"


@pytest.fixture(autouse=True)
def _quiet_and_unchecked():
    """The checker has tests of its own; domain warnings of the eager functions are no news here."""
    with warnings.catch_warnings(), config.override(check=False):
        warnings.simplefilter("ignore")
        yield


def together(cases: list[tuple[str, Case]], arrays: list[tuple[Any, ...]]) -> list[Any]:
    return [case.apply(*given) for (_, case), given in zip(cases, arrays, strict=True)]


def same(name: str, got: Any, wanted: Any, slack: float = 1) -> str | None:
    """What differs, leaf by leaf: type, shape or value; or None."""
    pairs = [leaves(got), leaves(wanted)]
    if len(pairs[0]) != len(pairs[1]):
        return f"{name}: {len(pairs[0])} results, not {len(pairs[1])}"
    for a, b in zip(*map(lambda p: [np.asarray(v) for v in p], pairs), strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{name}: {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        if a.dtype.kind in "biuUO":
            close = np.array_equal(a, b)
        else:
            wide = np.complex128 if a.dtype.kind == "c" else np.float64
            a, b = a.astype(wide), b.astype(wide)
            size = np.max(np.abs(b), initial=1e-3, where=np.isfinite(b))
            close = np.allclose(a, b, 3e-5 * slack, 2e-6 * slack * size, equal_nan=True)
        if not close:
            return f"{name}: {a} is not {b}"
    return None


@pytest.mark.parametrize("batch", batches(ALL), ids=lambda b: b[0][0])
def test_values(batch: list[tuple[str, Case]]) -> None:
    arrays = [case.arrays for _, case in batch]
    eager = together(batch, arrays)
    compiled = fxad.jit(lambda given: together(batch, given))(arrays)
    wrong = [same(name, a, b) for (name, _), a, b in zip(batch, compiled, eager, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
