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
from fxad.ops.base import Elementwise, Sample
from fxad.trace.tracer import concrete, type_of

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
