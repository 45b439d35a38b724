"""One small call of every public function, by module: what test_under_jit.py sweeps.

CASES["fxad.nn"].calls["relu"]    # [Case(the function applied, the arrays to trace)]
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import fxad.image
import fxad.lax
import fxad.nn
import fxad.nn.initializers
import fxad.numpy
import fxad.numpy.fft
import fxad.numpy.linalg
import fxad.random
import fxad.scipy.fft
import fxad.scipy.optimize
import fxad.scipy.signal
import fxad.scipy.special
from fxad.tree import flatten, unflatten


class Case(NamedTuple):
    """`apply(*arrays)` calls the function; `numpy` does the same with NumPy's, if there is one."""

    apply: Callable[..., Any]
    arrays: tuple[Any, ...]
    numpy: Callable[..., Any] | None = None


class Cases:
    """The calls of one module's functions."""

    def __init__(self, module: ModuleType, peer: Any = None) -> None:
        self.module, self.peer = module, peer
        self.calls: dict[str, list[Case]] = {}
        self.refused: dict[str, Case] = {}

    def call(self, names: str, *args: Any, **static: Any) -> None:
        """Each named function of `args`: arrays in them are traced, the rest is static."""
        leaves, tree = flatten(args)
        traced = [isinstance(leaf, np.ndarray) for leaf in leaves]
        arrays = tuple(leaf for leaf, is_traced in zip(leaves, traced, strict=True) if is_traced)

        def applied(function: Callable[..., Any]) -> Callable[..., Any]:
            def apply(*given: Any) -> Any:
                rest = iter(given)
                mixed = [next(rest) if t else leaf for leaf, t in zip(leaves, traced, strict=True)]
                return function(*unflatten(tree, mixed), **static)

            return apply

        for name in names.split():
            peer = getattr(self.peer, name, None)
            case = Case(applied(getattr(self.module, name)), arrays, peer and applied(peer))
            self.calls.setdefault(name, []).append(case)

    def use(self, name: str, apply: Callable[..., Any], *arrays: Any) -> None:
        """A call of `name` that its arguments alone do not describe."""
        self.calls.setdefault(name, []).append(Case(apply, arrays))

    def refuse(self, names: str, *arrays: Any) -> None:
        """Functions whose results' shapes depend on values: not to be traced like this."""
        for name in names.split():
            self.refused[name] = Case(getattr(self.module, name), arrays)


R = np.random.default_rng(5)
X = (R.uniform(0.1, 2, (3, 4)) * R.choice([-1, 1], (3, 4))).astype(np.float32)
Y = (R.uniform(0.1, 2, (3, 4)) * R.choice([-1, 1], (3, 4))).astype(np.float32)
V = R.permutation(np.linspace(-2, 2.1, 7)).astype(np.float32)
POSITIVE = R.uniform(0.3, 3, (3, 4)).astype(np.float32)
UNIT = R.uniform(0.1, 0.9, (3, 4)).astype(np.float32)
ABOVE = R.uniform(1.1, 3, (3, 4)).astype(np.float32)
SQUARE = (R.uniform(-1, 1, (4, 4)) + 3 * np.eye(4)).astype(np.float32)
SPD = (SQUARE @ SQUARE.T).astype(np.float32)
INT = R.integers(-9, 9, (3, 4)).astype(np.int32)
COUNT = R.integers(1, 6, (3, 4)).astype(np.int32)
BOOL = R.integers(0, 2, (3, 4)).astype(bool)
NAN = np.where(BOOL, X, np.float32(np.nan))
NAN[0] = X[0]
Z = (X + 1j * Y).astype(np.complex64)
ORDERED = np.linspace(-1.5, 1.5, 5).astype(np.float32)
PLACES = np.array([2, 0, 1, 2], np.int32)
CUBE = R.standard_normal((2, 3, 4)).astype(np.float32)

numpy = Cases(fxad.numpy, np)
linalg = Cases(fxad.numpy.linalg, np.linalg)
fft = Cases(fxad.numpy.fft, np.fft)
lax = Cases(fxad.lax)
nn = Cases(fxad.nn)
initializers = Cases(fxad.nn.initializers)
special = Cases(fxad.scipy.special)
random = Cases(fxad.random)
scipy_fft = Cases(fxad.scipy.fft)
optimize = Cases(fxad.scipy.optimize)
signal = Cases(fxad.scipy.signal)
image = Cases(fxad.image)
_ALL = (
    *(numpy, linalg, fft, lax, nn, initializers, special, random),
    *(scipy_fft, optimize, signal, image),
)
CASES = {c.module.__name__: c for c in _ALL}
