"""Every op's samples through lowering and planning, on the reference interpreter.

Fused and unfused plans must give the same bits; both must agree with the ops' own reference.
"""

from __future__ import annotations

import numpy as np
import pytest
from attempts import plan
from plan_walker import run_plan

import fxad  # noqa: F401 - fills the table of ops
from fxad.core import dtypes as dt
from fxad.core.types import ArrayType
from fxad.ir.kernel import Prim, exprs_of, walk
from fxad.ir.plan import Plan, Run
from fxad.ir.plan import walk as walk_steps
from fxad.ir.prims import meaning
from fxad.ir.program import OPS, Eqn, Lit, Program, Var
from fxad.ir.rewrite import evaluate, literal

NAMES = sorted(n for n, op in OPS.items() if op.samples is not None and not op.higher)


class Draws:
    """Operands of one dtype, as the ops' samples ask for them."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        self.random = np.random.default_rng(0)

    def x(self, *shape: int, low: float = 0.1, high: float = 0.9) -> np.ndarray:
        if dt.is_bool(self.dtype):
            return self.random.random(shape) < 0.5
        if dt.is_integer(self.dtype):
            return self.random.integers(1, 5, shape).astype(self.dtype)
        return self.random.uniform(low, high, shape).astype(self.dtype)

    def lit(self, value: float) -> Lit:
        return literal(value, self.dtype)

    def i32(self, *shape: int, **limits: int) -> np.ndarray:
        return self.random.integers(0, 3, shape).astype(np.int32)

    def u32(self, *shape: int, **limits: int) -> np.ndarray:
        return self.random.integers(0, 2**32, shape).astype(np.uint32)

    def bool(self, *shape: int) -> np.ndarray:
        return self.random.random(shape) < 0.5


def program_of(op, args, params) -> tuple[Program, list[np.ndarray]]:
    atoms, arrays, inputs = [], [], []
    for arg in args:
        if isinstance(arg, Lit):
            atoms.append(arg)
        elif isinstance(arg, bool | int | float | complex):
            atoms.append(literal(arg, np.asarray(arrays[0]).dtype if arrays else dt.float32))
        else:
            array = np.ascontiguousarray(arg)
            array = array.reshape(np.shape(arg))
            var = Var(ArrayType(array.dtype, array.shape))
            atoms.append(var)
            inputs.append(var)
            arrays.append(array)
    types = op.type(*[a.type for a in atoms], **params)
    types = types if isinstance(types, tuple) else (types,)
    outs = [Var(t) for t in types]
    return Program(inputs, [Eqn(op, tuple(atoms), params, tuple(outs))], outs), arrays


DTYPES = {
    "float": ["f32", "f64", "bf16"],
    "int": ["i32", "i8", "u32"],
    "bool": ["bool"],
    "complex": ["c64"],
}
TOLERANCES = {"bf16": 2e-2, "f64": 1e-12}


@pytest.mark.parametrize("name", NAMES)
def test_samples_agree_with_the_reference(name: str) -> None:
    op = OPS[name]
    kinds = op.dtypes.split() or ["float"]
    ran = 0
    for dtype in [d for kind in kinds for d in DTYPES[kind]]:
        tolerance = TOLERANCES.get(dtype, 3e-5)
        for sample in op.samples(Draws(dt.from_short_name(dtype))):
            if not sample.saying:
                check(op, sample.args, sample.params, tolerance)
                ran += 1
    assert ran


def check(op, args, params, tolerance: float) -> None:
    program, arrays = program_of(op, args, params)
    expected = evaluate(program, arrays)
    plain = run_plan(plan(program, fusion=False), [a.copy() for a in arrays])
    planned = plan(program)
    check_prims(planned)
    fused = run_plan(planned, [a.copy() for a in arrays])
    for want, one, other in zip(expected, plain, fused, strict=True):
        assert one.dtype == want.dtype
        assert one.shape == want.shape
        np.testing.assert_array_equal(one, other)
        wide = np.complex128 if dt.is_complex(want.dtype) else np.float64
        np.testing.assert_allclose(
            one.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance / 10
        )


def check_prims(planned: Plan) -> None:
    """Scalar functions are used as their records say."""
    stages = [
        s for step in walk_steps(planned.steps) if isinstance(step, Run) for s in step.kernel.body
    ]
    for e in walk(*[e for stage in stages for e in exprs_of(stage)]):
        if isinstance(e, Prim):
            function = meaning(e.name, e.args[-1].dtype)
            assert len(e.args) == function.arity
            assert function.result is None or e.dtype == function.result(e.args[-1].dtype)
