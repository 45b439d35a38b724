"""What every op promises, as functions that check one op with operands of one dtype.

    for op, dtype in contracts():
        check_types(op, dtype)

Operands come from the op's own `samples`; the oracles are NumPy's result types, finite
differences in f64, inner products, and Python loops.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import fxad.ops  # noqa: F401 - fills the table of ops
from fxad.core import dtypes as dt
from fxad.ir.program import OPS, Lit, Op
from fxad.ir.rewrite import literal
from fxad.ops.base import Sample
from fxad.trace.execute import concrete
from fxad.trace.tracer import bind, type_of

KINDS: dict[str, tuple[np.dtype, ...]] = {
    "bool": (dt.bool_,),
    "int": (
        *(dt.int8, dt.int16, dt.int32, dt.int64),
        *(dt.uint8, dt.uint16, dt.uint32, dt.uint64),
    ),
    "float": (dt.float16, dt.bfloat16, dt.float32, dt.float64),
    "complex": (dt.complex64, dt.complex128),
}


class Draws:
    """Random operands of one dtype, away from each other and from 0; `seed` fixes them all."""

    def __init__(self, dtype: np.dtype, seed: int = 0) -> None:
        self.dtype = dtype
        self._random = np.random.default_rng(seed)

    def x(self, *shape: int, low: float | None = None, high: float | None = None) -> np.ndarray:
        """Values of the dtype under test in low .. high, by default with |x| in 0.2 .. 2."""
        if dt.is_bool(self.dtype):
            return self.bool(*shape)
        if dt.is_integer(self.dtype):
            first = -9 if low is None else math.ceil(low)
            last = 9 if high is None else math.floor(high)
            if not dt.is_signed(self.dtype):
                first = max(first, 0)
            return self._integers(self.dtype, shape, first, max(last, first))
        values = self._reals(shape, low, high)
        if dt.is_complex(self.dtype):
            values = values + 1j * self._reals(shape, low, high)
        return np.asarray(values).astype(self.dtype)

    def _reals(self, shape: tuple[int, ...], low: float | None, high: float | None) -> np.ndarray:
        if low is not None or high is not None:
            return self._random.uniform(
                0 if low is None else low, 9 if high is None else high, shape
            )
        return self._random.uniform(0.2, 2, shape) * self._random.choice([-1, 1], shape)

    def _integers(
        self, dtype: np.dtype, shape: tuple[int, ...], first: int, last: int
    ) -> np.ndarray:
        drawn = self._random.integers(first, last, shape, dtype=np.int64, endpoint=True)
        return np.asarray(drawn).astype(dtype)

    def lit(self, value: float) -> Lit:
        """A number of the dtype under test, wrapped into its range."""
        if dt.is_integer(self.dtype):
            bits = 8 * self.dtype.itemsize
            value = int(value) % 2**bits
            value -= 2**bits * (dt.is_signed(self.dtype) and value >= 2 ** (bits - 1))
        return literal(value, self.dtype)

    def i32(self, *shape: int, low: int = -9, high: int = 9) -> np.ndarray:
        return self._integers(dt.int32, shape, low, high)

    def u32(self, *shape: int) -> np.ndarray:
        return self._integers(dt.uint32, shape, 0, 2**32 - 1)

    def bool(self, *shape: int) -> np.ndarray:
        return np.asarray(self._random.integers(0, 2, shape).astype(np.bool_))

    def like(self, value: Any) -> np.ndarray:
        """A tangent or cotangent for a value: entries of size 0.2 to 2 of its dtype."""
        type_ = type_of(value)
        return Draws(type_.dtype, int(self._random.integers(2**31))).x(*type_.shape)


def contracts(*dtypes: np.dtype) -> Iterator[tuple[str, np.dtype]]:
    """Every op that has samples, with every dtype it has some of (among `dtypes` if given)."""
    for name, op in sorted(OPS.items()):
        for kind in op.dtypes.split() if op.samples else ():
            for dtype in KINDS[kind]:
                if (not dtypes or dtype in dtypes) and op.samples(Draws(dtype)):
                    yield name, dtype


def samples(op: Op, dtype: np.dtype, seed: int = 0) -> list[Sample]:
    """The op's samples that must work."""
    return [s for s in op.samples(Draws(dtype, seed)) if not s.saying]


def smooth(op: Op, dtype: np.dtype, seed: int = 0) -> list[Sample]:
    """Samples with differentiable results, all wide enough for finite differences."""
    return [s for s in samples(op, dtype, seed) if _is_smooth(op, s)]


def _is_smooth(op: Op, sample: Sample) -> bool:
    types = listed(op.type(*[type_of(a) for a in sample.args], **sample.params))
    inexact = {t.dtype for t in types if dt.is_differentiable(t.dtype)}
    return bool(inexact) and inexact <= {dt.float64, dt.complex128}


def failures(op: Op, dtype: np.dtype) -> list[Sample]:
    """The op's samples that must raise."""
    return [s for s in op.samples(Draws(dtype)) if s.saying]


def listed(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def reference(op: Op, args: Sequence[Any], params: dict[str, Any]) -> tuple[np.ndarray, ...]:
    with np.errstate(all="ignore"):
        results = op.numpy(*[concrete(a) for a in args], **params)
    return tuple(np.asarray(r) for r in listed(results))


def exact(value: Any) -> np.ndarray:
    """As f64 or c128, in which NumPy's own functions work."""
    array = concrete(value)
    return array.astype(np.complex128 if dt.is_complex(array.dtype) else np.float64)


def differentiable(args: Sequence[Any]) -> list[int]:
    """Positions of operands that can carry a tangent."""
    return [
        i
        for i, a in enumerate(args)
        if not isinstance(a, Lit) and dt.is_differentiable(type_of(a).dtype)
    ]


def close(got: Any, wanted: Any, tolerance: float, what: str) -> None:
    np.testing.assert_allclose(
        exact(got), exact(wanted), rtol=tolerance, atol=tolerance, err_msg=what
    )


# ---------------------------------------------------------------- the checks


def check_types(op: Op, dtype: np.dtype) -> None:
    """The type rule says what the reference gives, and operands are left alone."""
    for sample in samples(op, dtype):
        types = op.type(*[type_of(a) for a in sample.args], **sample.params)
        before = [concrete(a).copy() for a in sample.args]
        results = reference(op, sample.args, sample.params)
        assert len(results) == len(listed(types))
        for type_, result in zip(listed(types), results, strict=True):
            assert type_of(result) == type_, f"{sample}"
        for old, arg in zip(before, sample.args, strict=True):
            assert old.tobytes() == concrete(arg).tobytes(), f"{sample}"


def tangent(op: Op, sample: Sample, tangents: Sequence[Any]) -> tuple[Any, ...]:
    """The op's jvp rule on concrete values; zeros where it answers None."""
    outs = bind(op, *sample.args, **sample.params)
    given = None
    if op.jvp is not None and any(t is not None for t in tangents):
        given = op.jvp(sample.args, tangents, outs, **sample.params)
    found = listed(given) if given is not None else (None,) * len(listed(outs))
    return tuple(
        np.zeros(type_of(o).shape, type_of(o).dtype) if d is None else d
        for d, o in zip(found, listed(outs), strict=True)
    )


def check_jvp(op: Op, dtype: np.dtype) -> None:
    """Tangents are central differences, for each operand alone and for all together."""
    draws = Draws(dtype, 1)
    step = 1e-6
    for sample in smooth(op, dtype):
        places = differentiable(sample.args)
        for active in [*([p] for p in places), *([places] if len(places) > 1 else [])]:
            tangents = [draws.like(a) if i in active else None for i, a in enumerate(sample.args)]
            moved = []
            for sign in (1, -1):
                args = [
                    a if t is None else np.asarray(concrete(a) + sign * step * t)
                    for a, t in zip(sample.args, tangents, strict=True)
                ]
                moved.append(reference(op, args, sample.params))
            found = tangent(op, sample, tangents)
            for got, high, low in zip(found, *moved, strict=True):
                if not dt.is_differentiable(high.dtype):
                    continue
                assert type_of(got) == type_of(high), f"{sample}"
                wanted = (high - low) / (2 * step)
                close(got, wanted, 1e-6, f"{sample}: tangents of {active}")


def inner(a: Sequence[Any], b: Sequence[Any]) -> float:
    """Real part of the sum of products, without conjugation: JAX's pairing."""
    total = 0.0
    for x, y in zip(a, b, strict=True):
        if x is not None and y is not None:
            total += float(np.sum(exact(x) * exact(y)).real)
    return total


def jointly_linear(op: Op, dtype: np.dtype, number: int, places: Sequence[int]) -> bool:
    """Whether the op's tangent in these operands does not depend on them."""
    if any(0 in type_of(a).shape for a in smooth(op, dtype)[number].args):
        return False  # of nothing everything is linear
    first, other = smooth(op, dtype)[number], smooth(op, dtype, seed=5)[number]
    mixed = [
        o if i in places else a for i, (a, o) in enumerate(zip(first.args, other.args, strict=True))
    ]
    draws = Draws(dtype, 2)
    tangents = [draws.like(a) if i in places else None for i, a in enumerate(first.args)]
    one = tangent(op, first, tangents)
    two = tangent(op, Sample(tuple(mixed), first.params), tangents)
    return all(np.allclose(exact(a), exact(b)) for a, b in zip(one, two, strict=True))


def check_batch(op: Op, dtype: np.dtype, size: int) -> None:
    """Batched operands give what a Python loop over their first axis gives."""
    lanes = [samples(op, dtype, seed) for seed in range(size)]
    for number, sample in enumerate(lanes[0]):
        arrays = [i for i, a in enumerate(sample.args) if not isinstance(a, Lit)]
        for count in range(1, len(arrays) + 1):
            for batched in itertools.combinations(arrays, count):
                _check_lanes(op, [lane[number] for lane in lanes], batched)


def _check_lanes(op: Op, lanes: Sequence[Sample], batched: Sequence[int]) -> None:
    sample, size = lanes[0], len(lanes)
    flags = [i in batched for i in range(len(sample.args))]
    args = [
        np.stack([concrete(lane.args[i]) for lane in lanes]) if flag else a
        for i, (a, flag) in enumerate(zip(sample.args, flags, strict=True))
    ]
    results = op.batch(size, flags, args, **sample.params)
    out_flags: Sequence[bool] = getattr(results, "flags", (True,) * len(listed(results)))
    results = listed(getattr(results, "values", results))
    for lane, one in enumerate(lanes):
        mixed = [o if flag else a for a, o, flag in zip(sample.args, one.args, flags, strict=True)]
        wanted = reference(op, mixed, sample.params)
        for got, flag, value in zip(results, out_flags, wanted, strict=True):
            found = concrete(got)[lane] if flag else concrete(got)
            assert found.dtype == value.dtype
            assert found.shape == value.shape
            close(found, value, 1e-5, f"{sample}: lanes along {batched}")
