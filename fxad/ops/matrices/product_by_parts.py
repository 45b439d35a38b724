"""The product of float32 matrices as one of bfloat16 numbers, which are their parts.

    dot_by_parts(a: f32[m,k], b: f32[k,n]; contract=((1,), (0,)), batch=((), ()), terms=3)
        -> f32[m,n]

A float32 number is the sum of its rounding to bfloat16, the rounding of the rest, and the rounding
of what that leaves: x = x0 + x1 + x2. Of the nine products of parts of two numbers, `terms` says
which count:

    3   a0 b0 + a0 b1 + a1 b0                        of two parts; about 2**-16 off
    6   these, and a0 b2 + a1 b1 + a2 b0             as good as float32
    9   all

They are one product of bfloat16 with a contracted axis `terms` times as long, where small terms
come first: [a1 a0 a0] and [b0 b1 b0]. So it has the speed, and the order of sums, that products of
bfloat16 have on a processor.

An infinity or NaN is its own first part, and counts in a0 b0 alone: elsewhere 0 stands for it, as
inf * b1 would be NaN for a b1 of 0. A finite number that would round to infinity has the largest
bfloat16 number as its first part. Parts below 2**-126 are 0, as always in bfloat16.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.ops.base import Primitive, Sample, case, define, fails, narrow, zeros
from fxad.ops.matrices.product import (
    Pair,
    dot,
    dot_numpy,
    product_batch,
    product_jvp,
    product_transpose,
    product_type,
)
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Cotangents, Draws, Operands, Tangents, Value, Values
    from fxad.trace.array import Array

_LARGEST = float(dt.finfo(dt.bfloat16).max)
TERMS = (3, 6, 9)


def _pairs_of_parts(terms: int) -> list[tuple[int, int]]:
    """Which part of a meets which of b, the smallest products first."""
    count = _part_count(terms)
    pairs = [(i, j) for i in range(count) for j in range(count) if i + j < count or terms == 9]
    return sorted(pairs, key=lambda pair: -sum(pair))


def _part_count(terms: int) -> int:
    return 2 if terms == 3 else 3


def _type(a: ArrayType, b: ArrayType, *, contract: Pair, batch: Pair, terms: int) -> ArrayType:
    if terms not in TERMS:
        raise BadArgument(f"dot_by_parts: terms is one of {TERMS}, not {terms!r}")
    for type_ in (a, b):
        if type_.dtype != dt.float32:
            raise TypeMismatch(f"dot_by_parts: takes float32, got {type_}")
    return product_type("dot_by_parts", a, b, contract, batch, dt.float32)


def _numpy(a: np.ndarray, b: np.ndarray, *, contract: Pair, batch: Pair, terms: int) -> np.ndarray:
    lefts, rights = (_arrays(x, _part_count(terms)) for x in (a, b))
    product = functools.partial(dot_numpy, contract=contract, batch=batch, dtype=dt.float32)
    pairs = _pairs_of_parts(terms)[:-1]
    small = [product(lefts[i], rights[j]) for i, j in pairs]
    return functools.reduce(np.add, [*small, product(lefts[-1], rights[-1])])


def _arrays(x: np.ndarray, count: int) -> list[np.ndarray]:
    """The parts of the finite numbers, and last the first part of all; in float32."""
    finite = np.isfinite(x)
    rest, parts = np.where(finite, x, 0), []
    for _ in range(count):
        part = narrow(np.clip(rest, -_LARGEST, _LARGEST), dt.bfloat16).astype(np.float32)
        parts.append(part)
        rest = rest - part
    return [*parts, np.where(finite, parts[0], x)]


def _by_one_product(a: Value, b: Value, *, contract: Pair, batch: Pair, terms: int) -> Value:
    """The same by the ops of products of bfloat16."""
    if not contract[0]:  # parts need an axis to stand along
        contract = (type_of(a).ndim,), (type_of(b).ndim,)
        a, b = (OPS["reshape"](x, shape=(*type_of(x).shape, 1)) for x in (a, b))
    pairs = _pairs_of_parts(terms)[:-1]
    left = _side_by_side(a, [i for i, _ in pairs], contract[0][0], _part_count(terms))
    right = _side_by_side(b, [j for _, j in pairs], contract[1][0], _part_count(terms))
    return dot(left, right, contract=contract, batch=batch, dtype=dt.float32)


def _side_by_side(x: Value, order: Sequence[int], axis: int, count: int) -> Value:
    """The parts of an operand in this order along an axis, and last the first part of all."""
    type_ = type_of(x)
    finite = OPS["is_finite"](x)
    zero = zeros(type_)
    rest, parts = OPS["select"](finite, x, zero), []
    for i in range(count):
        near = OPS["clamp"](-_LARGEST, rest, _LARGEST) if i == 0 else rest
        part = OPS["convert"](near, dtype=dt.bfloat16)
        parts.append(part)
        rest = OPS["sub"](rest, OPS["convert"](part, dtype=dt.float32))
    whole = OPS["select"](finite, parts[0], OPS["convert"](x, dtype=dt.bfloat16))
    return OPS["concatenate"](*[parts[i] for i in order], whole, axis=axis)


def _with(terms: int) -> Callable[..., Any]:
    return functools.partial(dot_by_parts, terms=terms)


def _jvp(
    primals: Values, tangents: Tangents, out: Value, *, contract: Pair, batch: Pair, terms: int
) -> Value:
    return product_jvp(_with(terms), primals, tangents, contract, batch)


def _transpose(ct: Value, args: Operands, *, contract: Pair, batch: Pair, terms: int) -> Cotangents:
    return product_transpose(_with(terms), ct, args, contract, batch)


def _batch(
    size: int, batched: Sequence[bool], args: Values, *, contract: Pair, batch: Pair, terms: int
) -> Value:
    return product_batch(_with(terms), batched, args, contract, batch)


def _samples(r: Draws) -> list[Sample]:
    a, b, t = r.x(3, 4), r.x(4, 5), r.x(2, 3, 4)
    matrix = {"contract": ((1,), (0,)), "batch": ((), ())}
    if r.dtype != dt.float32:
        return []
    return [
        *[case(a, b, **matrix, terms=terms) for terms in TERMS],
        case(r.x(5, 4), a, contract=((1,), (1,)), batch=((), ()), terms=3),
        case(t, r.x(5, 4, 2), contract=((2,), (1,)), batch=((0,), (2,)), terms=6),
        case(t, r.x(4, 3, 5), contract=((1, 2), (1, 0)), batch=((), ()), terms=3),
        case(r.x(4), r.x(4), contract=((0,), (0,)), batch=((), ()), terms=6),
        case(r.x(2), r.x(3), contract=((), ()), batch=((), ()), terms=3),
        case(r.x(2, 0), r.x(0, 3), **matrix, terms=3),
        fails(a, b.astype(np.float64), **matrix, terms=3, saying="takes float32"),
        fails(a, r.x(5, 4), **matrix, terms=3, saying="differ in length"),
    ]


dot_by_parts: Primitive[Array] = define(
    "dot_by_parts",
    doc="Sum of products over contract axes: of bf16 parts of float32 numbers, `terms` a product.",
    type=_type,
    numpy=_numpy,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    decompose=_by_one_product,
    ulp={"f32": 8},
    dtypes="float",
    samples=_samples,
)
