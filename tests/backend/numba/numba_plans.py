"""A plan with every kind of step, and what it should give, for the numba backend's executor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fxad.core.types import ArrayType
from fxad.ir.kernel import Axis, Buffer, Kernel, Load, Map, Param, Prim, Scalar, Store, at
from fxad.ir.plan import Branch, Copy, Host, Loop, Plan, Run, Slot, View, While

BOOL, F32, I32 = np.dtype(bool), np.dtype("float32"), np.dtype("int32")


def binary(name: str, dtype: np.dtype, size: int, result: np.dtype | None = None) -> Kernel:
    """out[i] = name(x[i], y[i])."""
    i, result = Axis("i", size), result or dtype
    x, y = Buffer("x", dtype, size, "in"), Buffer("y", dtype, size, "in")
    out = Buffer("out", result, size, "out")
    value = Prim(name, (Load(x, at(i)), Load(y, at(i))), result)
    return Kernel(name, (x, y, out), (), (i,), (Map((), (Store(out, at(i), value),)),))


def shift(dtype: np.dtype, size: int) -> Kernel:
    """x[i] = x[i] + s, in place."""
    i, s = Axis("i", size), Scalar("s", dtype)
    x = Buffer("x", dtype, size, "inout")
    value = Prim("add", (Load(x, at(i)), Param(s)), dtype)
    return Kernel("shift", (x,), (s,), (i,), (Map((), (Store(x, at(i), value),)),))


@dataclass(frozen=True)
class Sketch:
    plan: Plan
    arguments: list[np.ndarray]
    wanted: list[np.ndarray]


def loop_sketch(reverse: bool) -> Sketch:
    """A running sum of rows: views of the argument and the result move, the carry swaps."""
    row, rows = ArrayType(F32, (3,)), ArrayType(F32, (5, 3))
    x, start = Slot(0, rows, "argument", 0), Slot(1, row, "argument", 1)
    carry, following = Slot(2, row, "arena", offset=0), Slot(3, row, "arena", offset=64)
    sums, last = Slot(4, rows, "result", 0), Slot(5, row, "result", 1)
    x_row, sum_row = Slot(6, row, "view"), Slot(7, row, "view")
    body = (Run(binary("add", F32, 3), (carry, x_row, following)), Copy(sum_row, following))
    views = (View(x_row, x), View(sum_row, sums))
    steps = (
        Copy(carry, start),
        Loop(5, reverse, views, body, ((carry, following),)),
        Copy(last, carry),
    )
    slots = (x, start, carry, following, sums, last, x_row, sum_row)
    values, first = np.arange(15, dtype=F32).reshape(5, 3), np.full(3, 0.5, F32)
    order = values[::-1] if reverse else values
    wanted = np.cumsum(np.vstack([first, order]), axis=0, dtype=F32)[1:]
    final = wanted[-1]
    plan = Plan(slots, steps, (), (sums, last), 128, {})
    return Sketch(plan, [values, first], [wanted[::-1] if reverse else wanted, final])


def _flipped(x: np.ndarray) -> list[np.ndarray]:
    assert not x.flags.writeable
    return [x[::-1].copy()]


def control_sketch(index: int) -> Sketch:
    """Count to a limit, choose a branch, call Python, shift a donated argument in place."""
    number, vector = ArrayType(I32, ()), ArrayType(F32, (4,))
    limit, chosen = Slot(0, number, "argument", 0), Slot(1, number, "argument", 1)
    given, one = Slot(2, vector, "argument", 2), Slot(3, number, "constant", 0)
    count, following = Slot(4, number, "arena", offset=0), Slot(5, number, "arena", offset=64)
    going = Slot(6, ArrayType(BOOL, ()), "arena", offset=128)
    counted, shifted = Slot(7, number, "result", 0), Slot(8, vector, "result", 1)
    turned = Slot(9, vector, "result", 2)
    test = (Run(binary("lt", I32, 1, BOOL), (count, limit, going)),)
    advance = (Run(binary("add", I32, 1), (count, one, following)),)
    branches = tuple((Run(shift(F32, 4), (shifted,), (s,)),) for s in (10.0, 20.0))
    steps = (
        Copy(count, one),
        While(test, going, advance, ((count, following),)),
        Copy(counted, count),
        Branch(chosen, branches),
        Host(_flipped, (shifted,), (turned,), "flip"),
    )
    slots = (limit, chosen, given, one, count, following, going, counted, shifted, turned)
    results = (counted, shifted, turned, limit)
    plan = Plan(slots, steps, (np.asarray(1, I32),), results, 192, {1: 2})
    values = np.arange(4, dtype=F32)
    moved = values + np.float32(20 if index >= 1 else 10)
    arguments = [np.asarray(7, I32), np.asarray(index, I32), values]
    return Sketch(plan, arguments, [np.asarray(7, I32), moved, moved[::-1], np.asarray(7, I32)])


def sketches() -> list[Sketch]:
    return [loop_sketch(False), loop_sketch(True), *(control_sketch(i) for i in (-3, 1, 9))]
