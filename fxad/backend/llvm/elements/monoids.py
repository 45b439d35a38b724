"""Running combinations: identities, combining steps, argmin and argmax.

    start = identity(values, "add", float32)
    total = combine("add", total, x, float32)

Narrow floats accumulate in float32 and are rounded when the result is read.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.base.formats import Pair, Value, kind_of, rounded
from fxad.backend.llvm.base.vector import Code, Vec
from fxad.backend.llvm.elements import prims
from fxad.backend.llvm.elements.memory import choose
from fxad.core import dtypes

ARGS = ("argmin", "argmax")


def identity(code: Code, monoid: str, dtype: np.dtype, width: int) -> Value:
    """What leaves the other operand unchanged."""
    value: float = {"add": 0, "mul": 1, "or": 0, "and": -1}.get(monoid, 0)
    if monoid in ("min", "argmin", "max", "argmax"):
        value = _extreme(dtype, monoid in ("min", "argmin"))
    number = code.const(kind_of(dtype), value, width)
    return Pair(number, number.like(0)) if dtype.kind == "c" else number


def _extreme(dtype: np.dtype, highest: bool) -> float:
    if dtypes.is_float(dtype):
        return float("inf") if highest else -float("inf")
    if dtype.kind == "b":
        return int(highest)
    limits = dtypes.iinfo(dtype)
    return limits.max if highest else limits.min


def combine(monoid: str, a: Value, b: Value, dtype: np.dtype) -> Value:
    """a monoid b, unrounded for narrow floats."""
    if dtypes.is_float(dtype):
        match monoid:
            case "add":
                return a + b
            case "mul":
                return a * b
            case "min":
                return prims.minimum(a, b)
            case "max":
                return prims.maximum(a, b)
        raise NotImplementedError(f"monoid {monoid!r} has no meaning for {dtype}")
    return prims.apply(monoid, [a, b], dtype, dtype)


def better(monoid: str, new: Vec, old: Vec, dtype: np.dtype) -> Vec:
    """Does a later point's value replace the best so far: greater, or the first NaN."""
    if dtypes.is_float(dtype):
        return new.compare("ugt" if monoid == "argmax" else "ult", old) & old.compare("ord", old)
    sign = "u" if dtype.kind in "ub" else "s"
    return new.compare(sign + ("gt" if monoid == "argmax" else "lt"), old)


def pick(monoid: str, a: tuple[Vec, Vec], b: tuple[Vec, Vec], dtype: np.dtype) -> tuple[Vec, Vec]:
    """The better of two (value, position): ties and NaNs go to the smaller position."""
    earlier = b[1] < a[1]
    if dtypes.is_float(dtype):
        a_nan, b_nan = a[0].is_nan(), b[0].is_nan()
        wins = better(monoid, b[0], a[0], dtype)
        tie = a[0].equals(b[0]) | (a_nan & b_nan)
    else:
        wins = better(monoid, b[0], a[0], dtype)
        tie = a[0].equals(b[0])
    wins = wins | (tie & earlier)
    return wins.where(b[0], a[0]), wins.where(b[1], a[1])


def flatten(values: list[Value]) -> list[Vec]:
    """Registers of values, complex parts one after the other."""
    flat: list[Vec] = []
    for v in values:
        flat += [v.re, v.im] if isinstance(v, Pair) else [v]
    return flat


def unflatten(code: Code, like: list[Value], texts: list[str]) -> list[Value]:
    """Values of the same shapes as `like` from the names of registers."""
    remaining = iter(texts)

    def again(v: Vec) -> Vec:
        return Vec(code, v.kind, v.width, next(remaining))

    return [Pair(again(v.re), again(v.im)) if isinstance(v, Pair) else again(v) for v in like]


def shuffle(value: Value, lanes: list[int]) -> Value:
    if isinstance(value, Pair):
        return Pair(value.re.shuffle(lanes), value.im.shuffle(lanes))
    return value.shuffle(lanes)


def keep(mask: Vec | None, new: list[Value], old: list[Value]) -> list[Value]:
    """new where the mask holds."""
    if mask is None:
        return new
    return [choose(mask, n, o) for n, o in zip(new, old, strict=True)]


def rounded_value(value: Value, dtype: np.dtype) -> Value:
    """An accumulator as a value of its dtype."""
    return rounded(value, dtype) if isinstance(value, Vec) else value
