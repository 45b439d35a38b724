"""Attention of few queries in parts of its keys is the same attention."""

from __future__ import annotations

import numpy as np
import pytest

from fxad.ir.check import check
from fxad.ir.program import OPS, Program
from fxad.ir.rewrite import evaluate
from fxad.passes.split_keys import split_keys
from fxad.trace.tracer import stage, type_of

R = np.random.default_rng(0)


def attention(time: int, keys: int, heads: int = 1, **params: int) -> tuple[Program, list]:
    args = [R.standard_normal((1, n, heads, 16), np.float32) for n in (time, keys, keys)]
    given = {"scale": 0.25, "left": -1, "right": -1, "bias": False, "mask": False, **params}
    program, _ = stage(lambda *xs: OPS["flash_attention"](*xs, **given), [type_of(x) for x in args])
    return program, args


@pytest.mark.parametrize("right", [-1, 0, 700])
def test_parts_together_are_the_whole(right):
    """With right=0 most parts have no key that a query sees."""
    program, args = attention(4, 2048, right=right)
    made = check(split_keys(program))
    assert made.eqns[0].params["key_parts"] == 4
    for part, whole in zip(evaluate(made, args), evaluate(program, args), strict=True):
        np.testing.assert_allclose(part, whole, rtol=1e-5, atol=1e-6)  # sums in another order


@pytest.mark.parametrize(
    "case",
    [
        {"time": 64, "keys": 2048},  # queries enough to keep several threads busy
        {"time": 1, "keys": 1000},  # keys are too few for two parts
        {"time": 1, "keys": 8192, "heads": 8},  # heads are enough
        {"time": 4, "keys": 2048, "left": 2},  # most keys are seen by no query
    ],
    ids=str,
)
def test_what_stays_whole(case):
    program, _ = attention(**case)
    assert split_keys(program) is program
