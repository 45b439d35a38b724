"""Every public function under jit: its values, gradients and batches are the eager ones."""

from __future__ import annotations

import types
import warnings
from typing import Any

import jit_cases_lax  # noqa: F401 (these fill CASES)
import jit_cases_nn_special_random  # noqa: F401
import jit_cases_numpy
import jit_cases_scipy  # noqa: F401
import numpy as np
import pytest
from jit_cases import CASES, Case

import fxad
import fxad.numpy as jnp
from fxad.core.config import config
from fxad.core.errors import ConcretizationError, TypeMismatch
from fxad.tree import leaves

BATCH = 40
NO_ARRAYS = (
    "get_printoptions",
    "set_printoptions",
    "printoptions",
    "fromfile",
    "load",
    "save",
    "savez",
)
LONG = (
    "fxad.scipy.special.",
    *(f"fxad.lax.{n}" for n in ("betainc", "igamma", "polygamma", "zeta", "bessel")),
    *(f"fxad.random.{n}" for n in ("ball", "beta", "binomial", "chisq", "dirichlet", "f")),
    *(f"fxad.random.{n}" for n in ("generalized", "loggamma", "poisson", "t", "double")),
)
OTHER_DERIVATIVE = {  # by definition not the limit of differences, or computed in less than float64
    "fxad.lax.nextafter",
    "fxad.lax.reduce_precision",
    "fxad.lax.stop_gradient",
    "fxad.nn.dequantize",
    "fxad.nn.quantize",
    "fxad.nn.quantized_ragged_dot",
    "fxad.nn.linear_cross_entropy",
    "fxad.numpy.nextafter",
    *(f"fxad.numpy.{name}" for name in jit_cases_numpy.SCALARS.split()),
}
COMPARED_ELSEWHERE = {  # compile for long; other tests compare their derivatives in float64
    *(f"fxad.scipy.special.{name}" for name in "hyp1f1 hyp2f1 gammainc gammaincc".split()),
    *(f"fxad.lax.{name}" for name in "igamma igammac igamma_grad_a random_gamma_grad".split()),
    "fxad.scipy.optimize.minimize",
}
ALL = [
    (f"{c.module.__name__}.{name}", case)
    for c in CASES.values()
    for name in c.calls
    for case in c.calls[name]
]


def batches(cases: list[tuple[str, Case]]) -> list[list[tuple[str, Case]]]:
    return [cases[i : i + BATCH] for i in range(0, len(cases), BATCH)]


def public(module: types.ModuleType) -> list[str]:
    """The functions a module offers: its __all__, what a package names, or what is defined."""
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
    known = {*cases.calls, *cases.refused, *NO_ARRAYS}
    missing = [n for n in public(cases.module) if n not in known]
    assert not missing, f"add a call of each to tests/api/jit_cases*.py: {missing}"


@pytest.fixture(autouse=True)
def _quiet_and_unchecked():
    """The checker has tests of its own; domain warnings of the eager functions are no news here."""
    with warnings.catch_warnings(), config.override(check=False):
        warnings.simplefilter("ignore")
        yield


def together(cases: list[tuple[str, Case]], arrays: list[tuple[Any, ...]]) -> list[Any]:
    return [case.apply(*given) for (_, case), given in zip(cases, arrays, strict=True)]


def same(name: str, got: Any, wanted: Any, slack: float = 1, types: bool = True) -> str | None:
    """What differs, leaf by leaf: type, shape or value; or None."""
    if len(leaves(got)) != len(leaves(wanted)):
        return f"{name}: {len(leaves(got))} results, not {len(leaves(wanted))}"
    for mine, theirs in zip(leaves(got), leaves(wanted), strict=True):
        a, b = np.asarray(mine), np.asarray(theirs)
        if a.shape != b.shape or (types and hasattr(theirs, "dtype") and a.dtype != b.dtype):
            return f"{name}: {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        wide = np.complex128 if b.dtype.kind == "c" else np.float64
        if b.dtype.kind not in "biu":
            a, b = a.astype(wide), b.astype(wide)
            size = np.max(np.abs(b), initial=1e-3, where=np.isfinite(b))
            close = np.allclose(a, b, 3e-5 * slack, 2e-6 * slack * size, equal_nan=True)
        else:
            close = np.array_equal(a, b)
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


OF_ARRAYS = [(name, case) for name, case in ALL if case.arrays]
DIRECT = [(name, case) for name, case in ALL if case.numpy is not None]


def test_values_are_those_of_numpy() -> None:
    wrong = [
        same(name, case.apply(*case.arrays), case.numpy(*case.arrays), 10, types=False)
        for name, case in DIRECT
    ]
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.parametrize(
    ("name", "case"), [(n, case) for c in CASES.values() for n, case in c.refused.items()]
)
def test_shapes_that_depend_on_values_are_refused(name: str, case: Case) -> None:
    with pytest.raises((ConcretizationError, TypeMismatch), match="depend|must have"):
        fxad.jit(case.apply)(*case.arrays)


def weighted(results: Any) -> Any:
    """A number that depends on every element of the results that are real or complex."""
    total = 0.0
    for leaf in map(jnp.asarray, leaves(results)):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            value = (jnp.real(leaf) + 0.7 * jnp.imag(leaf)).astype(jnp.result_type(float))
            total = total + jnp.sum(value * np.cos(np.arange(value.size)).reshape(value.shape))
    return total


def gradients(cases: list[tuple[str, Case]], arrays: list[tuple[Any, ...]]) -> list[Any]:
    """Per case, the gradients in its floating arrays."""
    found = []
    for (_, case), given in zip(cases, arrays, strict=True):
        at = tuple(i for i, a in enumerate(given) if a.dtype.kind == "f")
        found.append(fxad.grad(lambda *a, f=case.apply: weighted(f(*a)), argnums=at)(*given))
    return found


def is_differentiable(case: Case) -> bool:
    """Known without computing anything, since every process that collects tests asks."""
    if not any(a.dtype.kind == "f" for a in case.arrays):
        return False
    results = leaves(fxad.eval_shape(case.apply, *case.arrays))
    return any(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in results)


DIFFERENTIABLE = [(name, case) for name, case in ALL if is_differentiable(case)]


def short(cases: list[tuple[str, Case]]) -> list[tuple[str, Case]]:
    """Without what compiles for long: other tests differentiate and batch those."""
    return [(name, case) for name, case in cases if not name.startswith(LONG)]


@pytest.mark.parametrize("batch", batches(short(DIFFERENTIABLE)), ids=lambda b: b[0][0])
def test_gradients(batch: list[tuple[str, Case]]) -> None:
    arrays = [case.arrays for _, case in batch]
    eager = gradients(batch, arrays)
    compiled = fxad.jit(lambda given: gradients(batch, given))(arrays)
    wrong = [same(name, a, b, 4) for (name, _), a, b in zip(batch, compiled, eager, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.slow
def test_gradients_are_limits_of_differences() -> None:
    """Eager, in float64: along one direction, with a step of 1e-6."""
    for name, case in DIFFERENTIABLE:
        if name in OTHER_DERIVATIVE | COMPARED_ELSEWHERE or name.startswith("fxad.random."):
            continue
        way = np.random.default_rng(1)
        with fxad.enable_x64():
            floats = [a.dtype.kind == "f" for a in case.arrays]
            at = [a.astype(float) if f else a for a, f in zip(case.arrays, floats, strict=True)]
            ways = [
                way.standard_normal(a.shape) if f else 0 for a, f in zip(at, floats, strict=True)
            ]

            def moved(step: float, at: Any = at, ways: Any = ways, case: Case = case) -> float:
                there = [np.asarray(a + step * w, a.dtype) for a, w in zip(at, ways, strict=True)]
                return float(weighted(case.apply(*there)))

            found = gradients([(name, case)], [tuple(at)])[0]
            ways = [w for w, f in zip(ways, floats, strict=True) if f]
            slope = sum(np.vdot(g, w) for g, w in zip(found, ways, strict=True))
            wanted = (moved(1e-6) - moved(-1e-6)) / 2e-6
        assert slope == pytest.approx(wanted, rel=1e-4, abs=1e-4), name


def lanes(case: Case) -> tuple[Any, ...]:
    """Two lanes of each array: the second scaled, or turned around where it holds integers."""

    def other(a: np.ndarray) -> np.ndarray:
        return (a * 1.05).astype(a.dtype) if a.dtype.kind in "fc" else np.flip(a, range(a.ndim)[:1])

    return tuple(np.stack([a, other(a)]) for a in case.arrays)


def loop(case: Case, given: tuple[Any, ...]) -> list[np.ndarray]:
    results = [leaves(case.apply(*(a[lane] for a in given))) for lane in range(2)]
    return [np.stack([np.asarray(v) for v in both]) for both in zip(*results, strict=True)]


@pytest.mark.parametrize("batch", batches(short(OF_ARRAYS)), ids=lambda b: b[0][0])
def test_batches(batch: list[tuple[str, Case]]) -> None:
    arrays = [lanes(case) for _, case in batch]
    compiled = fxad.jit(
        lambda given: [fxad.vmap(case.apply)(*a) for (_, case), a in zip(batch, given, strict=True)]
    )(arrays)
    for (name, case), got, given in zip(batch, compiled, arrays, strict=True):
        assert not (wrong := same(name, got, loop(case, given), 4, types=False)), wrong
