"""Loop bodies of movement and indexing ops, interpreted point by point, against the reference.

Every load and store is checked to be in bounds or guarded, which is what backends rely on.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import fxad.ops  # noqa: F401  (fills the table)
from fxad.ir.kernel import (
    Axis,
    Buffer,
    Cast,
    Const,
    Data,
    Expr,
    Index,
    IndexValue,
    Load,
    Prim,
    Quot,
    Rem,
    at,
)
from fxad.ir.loops import Alias, Generate, Indexed, Pointwise, Scatter, View
from fxad.ir.program import OPS, Lit
from fxad.ir.rewrite import literal
from fxad.ops.arrays.movement import reshape_source
from fxad.trace.execute import concrete
from fxad.trace.tracer import type_of

MOVES = "broadcast reshape transpose reverse slice pad concatenate iota copy barrier name"
NAMES = [*MOVES.split(), "dynamic_slice", "dynamic_update", "gather", "scatter"]
PRIMS = {
    "and": np.logical_and,
    "ge": np.greater_equal,
    "lt": np.less,
    "eq": np.equal,
}


class Draws:
    """Random operands of one dtype, as the ops' samples ask for them."""

    def __init__(self, dtype: str) -> None:
        self.random = np.random.default_rng(0)
        self.dtype = np.dtype(dtype)

    def x(self, *shape: int) -> np.ndarray:
        return self.random.integers(-9, 10, shape).astype(self.dtype)

    def lit(self, value: float) -> Lit:
        return literal(value, self.dtype)


class Machine:
    """Evaluates expressions at one assignment of loop variables."""

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self.arrays = arrays
        self.buffers = [Buffer(str(i), a.dtype, a.size, "in") for i, a in enumerate(arrays)]
        self.values: dict[Axis, int] = {}

    def read(
        self,
        operand: int,
        point: tuple[Index, ...],
        guard: Expr | None = None,
        fill: Expr | None = None,
    ) -> Load:
        shape = self.arrays[operand].shape
        assert len(point) == len(shape)
        linear = Index()
        for index, size in zip(point, shape, strict=True):
            linear = linear * size + index
            if guard is None or self.value(guard):
                assert 0 <= self.index(index) < size
        return Load(self.buffers[operand], linear, guard, fill)

    def index(self, index: Index) -> int:
        return index.const + sum(c * self.atom(a) for a, c in index.terms)

    def atom(self, atom: Axis | Quot | Rem | Data) -> int:
        match atom:
            case Axis():
                return self.values[atom]
            case Quot():
                return self.index(atom.index) // atom.divisor
            case Rem():
                return self.index(atom.index) % atom.divisor
            case Data():
                return min(max(int(self.value(atom.value)), 0), atom.size - 1)
        raise AssertionError(atom)

    def value(self, expr: Expr) -> Any:
        match expr:
            case Const():
                return np.asarray(expr.value, expr.dtype)
            case IndexValue():
                return np.asarray(self.index(expr.index), expr.dtype)
            case Cast():
                return self.value(expr.arg).astype(expr.dtype)
            case Prim():
                return PRIMS[expr.name](*map(self.value, expr.args))
            case Load():
                if expr.guard is not None and not self.value(expr.guard):
                    return self.value(expr.fill)
                return self.arrays[int(expr.buffer.name)].ravel()[self.index(expr.index)]
        raise AssertionError(expr)


def interpret(loops: Any, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    machine = Machine(arrays)
    if isinstance(loops, Scatter):
        return _scatter(loops, machine)
    dtype = arrays[0].dtype if arrays else np.dtype("int64")
    result = np.zeros(shape, dtype)
    axes = [Axis(f"i{n}", size) for n, size in enumerate(shape)]
    point = tuple(map(at, axes))
    for where in itertools.product(*map(range, shape)):
        machine.values = dict(zip(axes, where, strict=True))
        value = machine.value(_body(loops, machine, point))
        result = result.astype(value.dtype) if result.dtype != value.dtype else result
        result[where] = value
    return result


def _body(loops: Any, machine: Machine, point: tuple[Index, ...]) -> Expr:
    match loops:
        case Pointwise():
            return loops.value(*[machine.read(i, point) for i in range(len(machine.arrays))])
        case View():
            guard = loops.guard(point) if loops.guard else None
            fill = machine.read(1, ()) if guard is not None else None
            return machine.read(0, loops.source(point), guard, fill)
        case Generate():
            return loops.value(point)
        case Indexed():
            return loops.value(point, machine.read)
        case Alias():
            return machine.read(loops.operand, point)
    raise AssertionError(loops)


def _scatter(loops: Scatter, machine: Machine) -> np.ndarray:
    """Parallel axes run backwards: their order must not matter."""
    result = machine.arrays[0].copy()
    update = machine.arrays[loops.update]
    axes = [Axis(f"i{n}", size) for n, size in enumerate(update.shape)]
    point = tuple(map(at, axes))
    ranges = [
        range(n) if axis in loops.serial else range(n - 1, -1, -1)
        for axis, n in enumerate(update.shape)
    ]
    combine = {"set": lambda old, new: new, "add": np.add, "mul": np.multiply}
    combine |= {"min": np.minimum, "max": np.maximum}
    for where in itertools.product(*ranges):
        machine.values = dict(zip(axes, where, strict=True))
        target, guard = loops.target(point, machine.read)
        if guard is None or machine.value(guard):
            place = tuple(map(machine.index, target))
            result[place] = combine[loops.monoid](result[place], update[where])
    return result


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_loops_give_the_reference(name: str, dtype: str) -> None:
    op = OPS[name]
    samples = [s for s in op.samples(Draws(dtype)) if not s.saying]
    assert samples
    for sample in samples:
        types = [type_of(a) for a in sample.args]
        arrays = [concrete(a) for a in sample.args]
        bodies = op.loops(types, **sample.params)
        expected = op.numpy(*arrays, **sample.params)
        if not isinstance(bodies, tuple):
            bodies, expected = (bodies,), (expected,)
        for body, wanted in zip(bodies, expected, strict=True):
            got = interpret(body, arrays, wanted.shape)
            np.testing.assert_array_equal(got.astype(wanted.dtype), wanted, f"{sample.params}")


@pytest.mark.parametrize(
    ("old", "new", "atoms"),
    [
        ((6, 4), (2, 3, 4), (Axis,)),  # splitting
        ((4,), (1, 4, 1), (Axis,)),  # inserting
        ((1, 4, 1), (4,), (Axis,)),  # dropping
        ((2, 3, 4), (6, 4), (Axis, Quot, Rem)),  # merging divides that axis alone
    ],
)
def test_simple_reshapes_have_simple_indices(
    old: tuple[int, ...], new: tuple[int, ...], atoms: tuple[type, ...]
) -> None:
    axes = [Axis(f"i{n}", size) for n, size in enumerate(new)]
    source = reshape_source(old, new, tuple(map(at, axes)))
    assert {type(a) for index in source for a, _ in index.terms} <= set(atoms)
    if old[-1] == new[-1] == 4:
        assert source[-1] == at(axes[-1])
