"""Programs lowered to kernels, with fusion and without, and run beside the oracle."""

from __future__ import annotations

import numpy as np
from attempts import plan
from plan_walker import run_plan

from fxad.compiler import simplified
from fxad.core.types import ArrayType
from fxad.ir.kernel import Kernel
from fxad.ir.plan import Plan, Run, walk
from fxad.ir.rewrite import evaluate
from fxad.trace.tracer import stage

R = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return (R.standard_normal(shape) * 0.2).astype(np.float32)


def program_of(function, *args):
    types = [ArrayType(a.dtype, a.shape) for a in args]
    program, consts = stage(lambda *xs: list(function(*xs)), types)
    return simplified(program.closed()), [*map(np.asarray, consts), *args]


def kernels_of(made: Plan) -> list[Kernel]:
    return [s.kernel for s in walk(made.steps) if isinstance(s, Run)]


def kinds(made: Plan) -> list[str]:
    return [k.kind for k in kernels_of(made)]


def check(function, *args, donate: frozenset[int] = frozenset()) -> Plan:
    """Fused, unfused and oracle agree (the first two in all bits); answers the fused plan."""
    program, args = program_of(function, *args)
    wanted = evaluate(program, args)
    made = plan(program, donate=donate)
    plain = run_plan(plan(program, fusion=False), [a.copy() for a in args])
    fused = run_plan(made, [a.copy() for a in args])
    for want, one, other in zip(wanted, plain, fused, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(other, want, rtol=2e-4, atol=2e-5)
    return made
