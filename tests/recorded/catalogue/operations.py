"""Every op by itself: the uses that its own record gives as samples, as one program.

operations/exp holds exp of each dtype that it takes, one equation for each sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import fxad.ops  # noqa: F401 - fills the table of ops
from fxad.core import dtypes as dt
from fxad.core.types import ArrayType
from fxad.ir.program import OPS, Atom, Eqn, Lit, Op, Program, Var
from fxad.ir.rewrite import literal
from fxad.ops import OWN
from tests.recorded.catalogue.case import Cases, Traced

DTYPES = {
    "float": ("f32", "bf16", "f64"),
    "int": ("i32", "u8"),
    "bool": ("bool",),
    "complex": ("c64",),
}
MOST = 4  # samples of a dtype


class Draws:
    """What samples ask for: only the types of what they are given matter."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        self._random = np.random.default_rng(0)

    def x(self, *shape: int, low: float = 0.1, high: float = 0.9) -> np.ndarray:
        return self._random.uniform(low, high, shape).astype(self.dtype)

    def lit(self, value: float) -> Lit:
        return literal(value, self.dtype)

    def i32(self, *shape: int, **limits: int) -> np.ndarray:
        return np.zeros(shape, np.int32)

    def u32(self, *shape: int, **limits: int) -> np.ndarray:
        return np.zeros(shape, np.uint32)

    def bool(self, *shape: int) -> np.ndarray:
        return np.zeros(shape, np.bool_)


def _samples(op: Op) -> Iterator[Any]:
    for kind in op.dtypes.split() or ["float"]:
        for dtype in DTYPES[kind]:
            good = [s for s in op.samples(Draws(dt.from_short_name(dtype))) if not s.saying]
            yield from good[:MOST]


def _program(op: Op) -> Program:
    inputs: list[Var] = []
    equations: list[Eqn] = []
    for sample in _samples(op):
        first = next((a for a in sample.args if isinstance(a, np.ndarray)), np.zeros((), "f4"))
        atoms: list[Atom] = []
        for given in sample.args:
            if isinstance(given, bool | int | float | complex):
                atoms.append(literal(given, first.dtype))
            elif isinstance(given, Lit):
                atoms.append(given)
            else:
                inputs.append(Var(ArrayType(given.dtype, np.shape(given))))
                atoms.append(inputs[-1])
        types = op.type(*[atom.type for atom in atoms], **sample.params)
        outputs = tuple(map(Var, types if isinstance(types, tuple) else (types,)))
        equations.append(Eqn(op, tuple(atoms), sample.params, outputs))
    return Program(inputs, equations, [v for e in equations for v in e.outputs], op.name)


def _traced(op: Op) -> Traced:
    return _program(op), frozenset()


cases = Cases("operations")
for name in sorted(OWN):
    if OPS[name].samples is not None and not OPS[name].higher:
        cases.program(name, lambda op=OPS[name]: _traced(op))
