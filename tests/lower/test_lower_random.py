"""Random programs: the fused and the unfused plan give the same bits, and the oracle's values.

Plans run on the reference interpreter in real memory (see plan_walker), so wrong lifetimes,
overlaps and donations show as wrong numbers.
"""

from __future__ import annotations

import numpy as np
import pytest
from attempts import plan
from plan_walker import run_plan

import fxad  # noqa: F401 - fills the table of ops
from fxad.core import dtypes as dt
from fxad.core.types import ArrayType
from fxad.ir.program import OPS, Eqn, Program, Var
from fxad.ir.rewrite import evaluate, literal

F32 = np.dtype("float32")
SHAPES = [(4, 6), (3, 4, 2), (24,), (1, 6), (2, 70), (5, 1, 4)]


class Maker:
    """Grows a program by equations over values that exist already."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.inputs = [Var(ArrayType(F32, self.pick(SHAPES))) for _ in range(4)]
        self.values = list(self.inputs)
        self.eqns: list[Eqn] = []

    def pick(self, items):
        return items[int(self.random.integers(len(items)))]

    def value(self) -> Var:
        # Recent values more often: chains fuse, and old ones are read far away.
        recent = self.values[-6:]
        return self.pick(recent) if self.random.random() < 0.7 else self.pick(self.values)

    def add(self, name: str, *operands, **params) -> Var:
        op = OPS[name]
        types = op.type(*[a.type for a in operands], **params)
        outs = tuple(Var(t) for t in (types if isinstance(types, tuple) else (types,)))
        self.eqns.append(Eqn(op, operands, params, outs))
        self.values += outs
        return outs[0]

    def like(self, shape: tuple[int, ...]) -> Var:
        """A value of a given shape: one there is, or some value made to fit."""
        same = [v for v in self.values if v.type.shape == shape]
        if same and self.random.random() < 0.8:
            return self.pick(same)
        x = self.value()
        total = self.add("sum", x, axes=tuple(range(x.type.ndim))) if x.type.ndim else x
        return self.add("broadcast", total, shape=shape, axes=())

    def step(self) -> None:
        getattr(self, self.pick(STEPS))(self.value())

    def unary(self, x: Var) -> None:
        self.add(self.pick(["exp", "neg", "tanh", "abs", "sin", "square"]), self.tame(x))

    def tame(self, x: Var) -> Var:
        return self.add("mul", x, literal(self.pick([0.5, 0.25, 0.125]), F32))

    def binary(self, x: Var) -> None:
        self.add(self.pick(["add", "sub", "mul", "max"]), x, self.like(x.type.shape))

    def reduce(self, x: Var) -> None:
        if x.type.ndim:
            axes = [a for a in range(x.type.ndim) if self.random.random() < 0.5]
            axes = tuple(axes or [x.type.ndim - 1])
            self.add(self.pick(["sum", "max_reduce"]), x, axes=axes)

    def softmax(self, x: Var) -> None:
        if not x.type.ndim:
            return
        last, shape = x.type.ndim - 1, x.type.shape
        kept = tuple(range(last))

        def spread(v: Var) -> Var:
            return self.add("broadcast", v, shape=shape, axes=kept)

        shifted = self.add("sub", x, spread(self.add("max_reduce", x, axes=(last,))))
        e = self.add("exp", shifted)
        self.add("div", e, spread(self.add("sum", e, axes=(last,))))

    def broadcast(self, x: Var) -> None:
        if x.type.size <= 80:
            self.add(
                "broadcast", x, shape=(3, *x.type.shape), axes=tuple(range(1, x.type.ndim + 1))
            )

    def transpose(self, x: Var) -> None:
        order = tuple(int(a) for a in self.random.permutation(x.type.ndim))
        self.add("transpose", x, permutation=order)

    def reshape(self, x: Var) -> None:
        size = x.type.size
        shape = self.pick([(size,), (size, 1), (1, size)])
        for divisor in (2, 3, 4):
            if size % divisor == 0 and self.random.random() < 0.6:
                shape = (size // divisor, divisor)
        self.add("reshape", x, shape=shape)

    def cut(self, x: Var) -> None:
        start = tuple(int(self.random.integers(n)) for n in x.type.shape)
        step = tuple(int(self.random.integers(1, 3)) for _ in start)
        self.add("slice", x, start=start, stop=x.type.shape, step=step)

    def pad(self, x: Var) -> None:
        if x.type.size <= 100:
            low = tuple(int(self.random.integers(0, 3)) for _ in x.type.shape)
            zeros = (0,) * len(low)
            self.add("pad", x, literal(1.5, F32), low=low, high=low[::-1], interior=zeros)

    def join(self, x: Var) -> None:
        if x.type.ndim and x.type.size <= 200:
            axis = int(self.random.integers(x.type.ndim))
            self.add("concatenate", x, self.like(x.type.shape), axis=axis)

    def dot(self, x: Var) -> None:
        if not x.type.ndim or x.type.size > 300:
            return
        axis = int(self.random.integers(x.type.ndim))
        width = x.type.shape[axis]
        y = self.like(self.pick([(width, 5), (3, width)]))
        other = y.type.shape.index(width)
        none: tuple[int, ...] = ()
        product = self.add(
            "dot", self.tame(x), y, contract=((axis,), (other,)), batch=(none, none), dtype=F32
        )
        if self.random.random() < 0.5:
            self.add("tanh", product)

    def batched_dot(self, x: Var) -> None:
        if x.type.ndim == 3:
            self.add("dot", x, x, contract=((2,), (2,)), batch=((0,), (0,)), dtype=F32)

    def running(self, x: Var) -> None:
        if x.type.ndim:
            axis = int(self.random.integers(x.type.ndim))
            self.add("cumsum", x, axis=axis, reverse=bool(self.random.integers(2)))

    def program(self, count: int) -> Program:
        for _ in range(count):
            self.step()
        # Some results twice, some inputs passed through, some views of others.
        outputs = [self.value() for _ in range(5)]
        return Program(self.inputs, self.eqns, outputs)


STEPS = [
    *["unary"] * 4, *["binary"] * 4, *["reduce"] * 2, "softmax", "broadcast", "transpose",
    "reshape", "cut", "pad", "join", *["dot"] * 2, "batched_dot", "running",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    program = Maker(seed).program(14)
    random = np.random.default_rng(seed)
    args = [random.standard_normal(v.type.shape).astype(np.float32) for v in program.inputs]
    wanted = evaluate(program, args)
    everything = frozenset(range(len(args)))
    runs = [
        run_plan(plan(program, fusion=fusion, donate=donate), [a.copy() for a in args])
        for fusion, donate in ((True, frozenset()), (False, frozenset()), (True, everything))
    ]
    for want, fused, plain, donated in zip(wanted, *runs, strict=True):
        assert fused.shape == want.shape
        np.testing.assert_array_equal(fused, plain)
        np.testing.assert_array_equal(fused, donated)
        scale = max(1.0, float(np.abs(want).max(initial=0.0)))
        if np.isfinite(want).all() and dt.is_float(want.dtype):
            np.testing.assert_allclose(fused, want, rtol=1e-3, atol=1e-4 * scale)
