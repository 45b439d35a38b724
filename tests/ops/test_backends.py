"""Compiled code against the reference: every sample of every op, many in one compiled function.

Exact ops give the reference's bits (any NaN for a NaN). The others stay within their `ulp`, units
in the last place of the result computed in f64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from contract import KINDS, contracts, exact, listed, reference, samples

import fxad
from fxad.core import dtypes as dt
from fxad.ir.program import OPS, Lit, Op
from fxad.ops.base import Sample
from fxad.ops.elements.pointwise import Elementwise
from fxad.trace.execute import concrete
from fxad.trace.tracer import type_of

GROUP = 16  # ops compiled together
TYPED = ("nextafter", "bitcast", "convert")  # mean something else on wider operands
DTYPES = [d for dtypes in KINDS.values() for d in dtypes]


class Use(NamedTuple):
    op: Op
    sample: Sample

    def arrays(self) -> list[np.ndarray]:
        return [concrete(a) for a in self.sample.args if not isinstance(a, Lit)]

    def call(self, arrays: Iterator[Any]) -> tuple[Any, ...]:
        args = [a if isinstance(a, Lit) else next(arrays) for a in self.sample.args]
        return listed(self.op(*args, **self.sample.params))

    def __str__(self) -> str:
        return f"{self.op.name} {self.sample}"


def _groups() -> list[Any]:
    found = []
    for dtype in DTYPES:
        names = [name for name, _ in contracts(dtype)]
        for first in range(0, len(names), GROUP):
            group = names[first : first + GROUP]
            found.append(pytest.param(dtype, group, id=f"{dtype}-{group[0]}-{group[-1]}"))
    return found


def run_compiled(uses: Sequence[Use]) -> list[tuple[Any, ...]]:
    """All uses in one compiled function."""

    def everything(arrays: list[Any]) -> list[tuple[Any, ...]]:
        given = iter(arrays)
        return [use.call(given) for use in uses]

    with fxad.enable_x64():
        return fxad.jit(everything)([a for use in uses for a in use.arrays()])


@pytest.mark.parametrize(("dtype", "names"), _groups())
def test_compiled_code_matches_the_reference(dtype: np.dtype, names: list[str]) -> None:
    uses = [Use(OPS[n], s) for n in names for s in samples(OPS[n], dtype)]
    for use, results in zip(uses, run_compiled(uses), strict=True):
        wanted = reference(use.op, use.sample.args, use.sample.params)
        precise = _precise(use, dtype)
        for got, value, near in zip(results, wanted, precise, strict=True):
            assert type_of(got) == type_of(value), f"{use}"
            if use.op.exact or not dt.is_inexact(value.dtype):
                np.testing.assert_array_equal(exact(got), exact(value), f"{use}")
            else:
                _within(use, concrete(got), near, use.op.ulp[dt.short_name(dtype)])


def _precise(use: Use, dtype: np.dtype) -> Sequence[np.ndarray]:
    """The reference on f64 or c128 operands, where that means the same."""
    if not isinstance(use.op, Elementwise) or use.op.name in TYPED or not dt.is_inexact(dtype):
        return reference(use.op, use.sample.args, use.sample.params)
    args = [exact(a) if type_of(a).dtype == dtype else a for a in use.sample.args]
    return reference(use.op, args, use.sample.params)


def _within(use: Use, got: np.ndarray, wanted: np.ndarray, allowed: float) -> None:
    """At most `allowed` units apart; beside the largest operand for a reduction."""
    got, wanted, limits = exact(got), exact(wanted), dt.finfo(got.dtype)
    size = np.abs(wanted)
    if not isinstance(use.op, Elementwise):
        largest = max((np.abs(exact(a)).max(initial=0) for a in use.sample.args), default=0)
        size = np.maximum(size, largest)
    unit = float(limits.eps) * np.maximum(size, float(limits.smallest_normal))
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(got[~finite], wanted[~finite], f"{use}")
    error = np.abs(got[finite] - wanted[finite]) / unit[finite]
    # the wide result rounds to the nearest number, hence the half; f64 has no wider reference
    slack = 1 if limits.bits == 64 else 0.5
    assert error.max(initial=0) <= allowed + slack, f"{use}: {error.max()} > {allowed} ulp"


# ---------------------------------------------------------------- corners


def _corners(dtype: np.dtype) -> np.ndarray:
    if dt.is_integer(dtype):
        low, high = int(dt.iinfo(dtype).min), int(dt.iinfo(dtype).max)
        return np.array([0, 1, 2, 3, 7, high, high - 1, low, low + 1], dtype)
    limits = dt.finfo(dtype)
    sizes = [0.0, 1.0, 0.5, 1.5, 2.5, 20.0, float(limits.smallest_normal), float(limits.max)]
    values = [s for size in sizes for s in (size, -size)]
    return np.array([*values, np.inf, -np.inf, np.nan]).astype(dtype)


def _corner_uses(dtype: np.dtype, kind: str) -> Iterator[Use]:
    """Every elementwise op of one operand on all corners, of two on all pairs of them."""
    values = _corners(dtype)
    pairs = [np.ascontiguousarray(a).ravel() for a in np.meshgrid(values, values)]
    for op in OPS.values():
        if not isinstance(op, Elementwise) or kind not in op.dtypes.split() or op.name in SKIPPED:
            continue
        arity = len(samples(op, dtype)[0].args) if samples(op, dtype) else 0
        params = {"n": 3} if op.name == "integer_pow" else {}
        if arity in (1, 2):
            yield Use(op, Sample(tuple([values] if arity == 1 else pairs), params))


SKIPPED = ("bitcast", "convert", "complex")  # need parameters, or take no such dtype


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16, dt.float32, dt.float64], ids=str)
def test_compiled_floats_at_the_corners(dtype: np.dtype) -> None:
    """Zeros with signs, infinities, NaN, the smallest and the largest number."""
    uses = list(_corner_uses(dtype, "float"))
    assert len(uses) > 50
    for use, (got,) in zip(uses, run_compiled(uses), strict=True):
        (wanted,) = reference(use.op, use.sample.args, use.sample.params)
        columns = [exact(a) for a in use.sample.args]
        for place in np.ndindex(wanted.shape):
            at = [float(c[place]) for c in columns]
            found, value = concrete(got)[place], wanted[place]
            what = f"{use.op.name}{at}: {found}, not {value}"
            if not dt.is_inexact(wanted.dtype) or use.op.exact:
                assert found == value or (found != found and value != value), what
                continue
            unit = float(dt.finfo(dtype).eps) * max(abs(float(value)), float(dt.finfo(dtype).tiny))
            near = abs(float(found) - float(value)) <= (use.op.ulp[dt.short_name(dtype)] + 8) * unit
            same = float(found) == float(value) or (found != found and value != value)
            assert same or near, what


@pytest.mark.parametrize("dtype", KINDS["int"], ids=str)
def test_compiled_integers_at_the_corners(dtype: np.dtype) -> None:
    """Division by zero, the smallest integer by -1, shifts by too much, powers that wrap."""
    uses = list(_corner_uses(dtype, "int"))
    assert len(uses) > 20
    for use, (got,) in zip(uses, run_compiled(uses), strict=True):
        (wanted,) = reference(use.op, use.sample.args, use.sample.params)
        np.testing.assert_array_equal(concrete(got), wanted, f"{use}")


@pytest.mark.parametrize("source", [d for k in KINDS.values() for d in k], ids=str)
def test_compiled_conversions_at_the_corners(source: np.dtype) -> None:
    """Saturation, NaN to integer, wrapping, overflow to infinity: from everything to everything."""
    if dt.is_bool(source):
        values = np.array([False, True])
    elif dt.is_complex(source):
        values = _corners(dt.real_of(source)).astype(source)
    else:
        values = _corners(source)
        if dt.is_float(source) and source.itemsize >= 4:
            values = np.append(values, np.array([1e-39, -9e-40, 1e-45], source))
    uses = [Use(OPS["convert"], Sample((values,), {"dtype": dtype})) for dtype in DTYPES]
    for use, (got,) in zip(uses, run_compiled(uses), strict=True):
        (wanted,) = reference(use.op, use.sample.args, use.sample.params)
        np.testing.assert_array_equal(exact(got), exact(wanted), f"{source} {use.sample.params}")
