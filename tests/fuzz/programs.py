"""A hypothesis strategy for small, well-typed, well-conditioned Programs.

    program, seed = draw(programs())

Every step draws an operand among the values so far and a step that takes its type. Steps that are
not continuous (comparisons, sorting by index, conversions to integers) read only values that every
backend computes to the same bits: inputs, and what movement and + - * make of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import fxad.numpy as jnp
from fxad import lax
from fxad.core.types import ArrayType
from fxad.ir.program import Program
from fxad.trace.tracer import stage

SIZES = st.sampled_from([3, 2, 1, 4, 5, 7, 17])
MOST = 4000  # elements of any value


class Value:
    """A value of the program under construction; `exact` if all backends agree on its bits."""

    def __init__(self, array: Any, exact: bool) -> None:
        self.array, self.exact = array, exact

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def floating(self) -> bool:
        return self.array.dtype.kind == "f"


Draw = Callable[[Any], Any]


def _axis(draw: Draw, v: Value) -> int:
    return draw(st.integers(0, len(v.shape) - 1))


def _partner(draw: Draw, v: Value, values: list[Value], exact: bool = False) -> Value:
    """Another value of the same shape and kind, or the value itself."""
    fits = [
        w
        for w in values
        if w.shape == v.shape and w.array.dtype == v.array.dtype and (w.exact or not exact)
    ]
    return draw(st.sampled_from(fits)) if fits else v


# Every step: (draw, value, all values) -> (result, exact). Results stay of moderate size.

SMOOTH = [
    jnp.sin, jnp.cos, jnp.tanh, jnp.exp, jnp.log1p, jnp.sqrt, jnp.arctan, lax.logistic, lax.erf,
    jnp.square, jnp.expm1, jnp.reciprocal, lax.rsqrt, jnp.cbrt, jnp.sinh,
]  # fmt: skip
POSITIVE = {jnp.log1p, jnp.sqrt, jnp.reciprocal, lax.rsqrt, jnp.cbrt}
BOUNDED = {jnp.exp, jnp.expm1, jnp.sinh, jnp.square}


def unary(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    function = draw(st.sampled_from(SMOOTH))
    x = v.array
    if function in POSITIVE:
        x = x * x + 0.5
    elif function in BOUNDED:
        x = jnp.tanh(x)
    return function(x), False


def binary(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    w = _partner(draw, v, values)
    function = draw(
        st.sampled_from([jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum])
    )
    return function(v.array, w.array) * 0.5, v.exact and w.exact


def divide(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    w = _partner(draw, v, values)
    return v.array / (w.array * w.array + 1.0), False


def scalar(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    number = draw(st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0]))
    kind = draw(st.integers(0, 3))
    x = v.array
    return [lambda: x * number, lambda: x + number, lambda: number - x, lambda: -x][kind](), v.exact


def reduction(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    axes = draw(st.sets(st.integers(0, len(v.shape) - 1), min_size=1))
    kind = draw(st.sampled_from([jnp.sum, jnp.mean, jnp.max, jnp.min]))
    keep = draw(st.booleans())
    exact = v.exact and kind in (jnp.max, jnp.min)
    return kind(v.array, tuple(axes), keepdims=keep), exact


def normalise(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    axis, x = _axis(draw, v), v.array
    centred = x - jnp.mean(x, axis, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred * centred, axis, keepdims=True) + 1.0), False


def softmax(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    axis, x = _axis(draw, v), v.array
    e = jnp.exp(x - jnp.max(x, axis, keepdims=True))
    return e / jnp.sum(e, axis, keepdims=True), False


def cumulative(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    axis = _axis(draw, v)
    if draw(st.booleans()):
        return lax.cummax(v.array, axis=axis, reverse=draw(st.booleans())), v.exact
    return jnp.cumsum(v.array, axis) * 0.1, False


def move(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    x, axis = v.array, _axis(draw, v)
    kind = draw(st.sampled_from(["transpose", "reshape", "flip", "roll", "pad", "tile", "none"]))
    if kind == "transpose":
        x = jnp.transpose(x, draw(st.permutations(range(x.ndim))))
    elif kind == "reshape":
        x = jnp.reshape(x, draw(st.sampled_from([(-1,), (1, -1), (*x.shape[::-1],)])))
    elif kind == "flip":
        x = jnp.flip(x, axis)
    elif kind == "roll":
        x = jnp.roll(x, draw(st.integers(-3, 3)), axis)
    elif kind == "pad":
        x = jnp.pad(x, [(i == axis, 2 * (i == axis)) for i in range(x.ndim)], constant_values=0.5)
    elif kind == "tile":
        x = jnp.repeat(x, 2, axis)
    else:
        x = jnp.expand_dims(x, axis)
    return x, v.exact


def cut(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    axis = _axis(draw, v)
    size = v.shape[axis]
    start, step = draw(st.integers(0, size - 1)), draw(st.sampled_from([1, 2, -1]))
    index = (slice(None),) * axis + (slice(start, None, step),)
    return v.array[index], v.exact


def join(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    w = _partner(draw, v, values)
    return jnp.concatenate([v.array, w.array], _axis(draw, v)), v.exact and w.exact


def product(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    x = v.array
    if x.ndim == 1:
        return jnp.outer(x, x) if draw(st.booleans()) else jnp.dot(x, x), False
    rows = jnp.swapaxes(x, -1, -2)
    return (x @ rows if draw(st.booleans()) else rows @ x) * 0.3, False


def choose(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    decider = _partner(draw, v, values, exact=True)
    w = _partner(draw, v, values)
    limit = decider.array if decider.exact else jnp.zeros(v.shape, v.array.dtype)
    return jnp.where(limit > 0.25, v.array, w.array), v.exact and w.exact


def gather(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    axis = _axis(draw, v)
    rows = draw(st.lists(st.integers(-v.shape[axis], v.shape[axis] - 1), min_size=1, max_size=4))
    return jnp.take(v.array, np.array(rows, np.int32) % v.shape[axis], axis), v.exact


def scatter(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    size = v.shape[0]
    rows = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=4))
    place = v.array.at[np.array(rows, np.int32)]
    method = draw(st.sampled_from(["add", "multiply", "max", "set"]))
    return getattr(place, method)(draw(st.sampled_from([0.5, 0.25, -1.0]))), v.exact


def order(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    return jnp.sort(v.array, _axis(draw, v)), v.exact


def loop(draw: Draw, v: Value, values: list[Value]) -> tuple[Any, bool]:
    w = _partner(draw, v, values)
    if draw(st.booleans()):
        out = lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c + w.array) * 0.5, v.array)
        return out, False
    return lax.scan(lambda c, x: (c * 0.5 + x, c), jnp.zeros(v.shape[1:]), v.array)[1], False


ANY_RANK = [unary, binary, divide, scalar, choose]
STEPS = [
    *ANY_RANK, reduction, normalise, softmax, cumulative, move, cut, join, product, gather, scatter,
    order, loop,
]  # fmt: skip


@st.composite
def programs(draw: Draw, steps: int = 12) -> tuple[Program, int]:
    """A Program from float32 arrays to one to three results, and a seed for its inputs."""
    ranks = draw(st.lists(st.sampled_from([2, 1, 3, 0]), min_size=1, max_size=3))
    shapes = [[draw(SIZES) for _ in range(rank)] for rank in ranks]
    shapes = [shape for shape in shapes if np.prod(shape, dtype=int) <= MOST // 8] or [[3]]
    count = draw(st.integers(min(4, steps), steps))

    def build(*inputs: Any) -> list[Any]:
        values = [Value(x, True) for x in inputs]
        for _ in range(count):
            v = values[-1 - draw(st.integers(0, min(2, len(values) - 1)))]
            step = draw(st.sampled_from(STEPS if v.shape and 0 not in v.shape else ANY_RANK))
            result, exact = step(draw, v, values)
            if result.size <= MOST:
                values.append(Value(result, exact))
        wanted = draw(st.lists(st.sampled_from(values), min_size=0, max_size=2))
        return [v.array for v in (*wanted, values[-1])]

    types = [ArrayType(np.dtype(np.float32), tuple(shape)) for shape in shapes]
    program, captured = stage(build, types, "fuzz")
    return _with_constants(program, captured), draw(st.integers(0, 2**16))


def _with_constants(program: Program, captured: list[Any]) -> Program:
    """Index tables that were captured become further inputs; see `arguments`."""
    closed = program.closed()
    TABLES[closed] = [np.asarray(c) for c in captured]
    return closed


TABLES: dict[Program, list[np.ndarray]] = {}


def arguments(program: Program, seed: int, dtype: type = np.float32) -> list[np.ndarray]:
    """Values for a Program's inputs: its tables, then random numbers."""
    tables = TABLES[program]
    r = np.random.default_rng(seed)
    types = program.in_types[len(tables) :]
    return [*tables, *(np.asarray(r.uniform(-1.5, 1.5, t.shape), dtype) for t in types)]
