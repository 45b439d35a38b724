"""Every op keeps its promises, for every dtype that it says it accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from contract import (
    Draws,
    check_batch,
    check_jvp,
    check_types,
    close,
    contracts,
    differentiable,
    exact,
    failures,
    inner,
    jointly_linear,
    listed,
    reference,
    samples,
    smooth,
    tangent,
)

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.ir.program import OPS, Eqn, Lit, Op
from fxad.ir.rewrite import evaluate
from fxad.ops.base import Sample, Unknown, define
from fxad.ops.elements.pointwise import Elementwise, unary
from fxad.trace.execute import concrete
from fxad.trace.tracer import bind, stage, type_of
from fxad.transform import rules  # noqa: F401 - hands ops the transforms
from fxad.transform.jvp import jvp as jvp_of
from fxad.transform.transpose import transpose as transpose_of

# Neighbours of x depend on x, but no derivative is meant.
NOT_SMOOTH = ("nextafter",)
WIDE = (dt.float64, dt.complex128)


def each(*dtypes: np.dtype) -> Any:
    return pytest.mark.parametrize(
        ("name", "dtype"),
        list(contracts(*dtypes)),
        ids=lambda v: v if isinstance(v, str) else str(v),
    )


def test_every_op_without_subprograms_has_samples_and_a_body() -> None:
    plain = [op for op in OPS.values() if not op.higher and op.samples]
    assert len(plain) > 100
    for op in plain:
        assert op.loops or op.decompose, f"{op.name} cannot be compiled"
        assert op.exact or op.ulp, f"{op.name} does not say how exact its results are"
        assert (op.doc and op.batch) or op.name == "iota", op.name


def test_elementwise_ops_without_a_scalar_function_are_refused_where_they_are_defined() -> None:
    for wanting in ({}, {"numpy": np.sin}):
        with pytest.raises(ValueError, match="no scalar function of that name"):
            unary("scalarless", doc="x.", **wanting)
    assert "scalarless" not in OPS


def test_an_op_that_could_not_be_compiled_is_refused_where_it_is_defined() -> None:
    with pytest.raises(ValueError, match=r"op 'bodiless' .* neither loops= nor decompose="):
        define("bodiless", type=lambda x: x, numpy=np.sin, doc="x.")
    assert "bodiless" not in OPS


@each(dt.float32)
def test_only_ops_that_say_so_make_nan(name: str, dtype: np.dtype) -> None:
    """Of infinities and zeros too; `checkify` looks for NaN where one may be made."""
    op = OPS[name]
    random = np.random.default_rng(5)
    for sample in samples(op, dtype):
        if Eqn(op, (), sample.params, ()).makes_nan:
            continue
        args = [concrete(a) for a in sample.args]
        for i, value in enumerate(args):
            if value.dtype == dtype:
                edges = random.choice(np.array([np.inf, -np.inf, 0, -0.0], dtype), value.shape)
                args[i] = np.where(random.random(value.shape) < 0.5, edges, value)
        for result in reference(op, args, sample.params):
            assert result.dtype.kind not in "fc" or not np.isnan(result).any(), sample


@each()
def test_result_types_are_those_of_the_reference(name: str, dtype: np.dtype) -> None:
    check_types(OPS[name], dtype)


@each()
def test_wrong_uses_are_refused(name: str, dtype: np.dtype) -> None:
    op = OPS[name]
    for sample in failures(op, dtype):
        with pytest.raises((ShapeError, TypeMismatch)) as caught:
            op.type(*[type_of(a) for a in sample.args], **sample.params)
        assert sample.saying in str(caught.value)
        assert name in str(caught.value)


@each(dt.float16, dt.bfloat16, dt.float32)
def test_narrow_references_are_rounded_wide_ones(name: str, dtype: np.dtype) -> None:
    """Elementwise references in f16, bf16 and f32 are the f64 result, rounded."""
    op = OPS[name]
    if not isinstance(op, Elementwise) or name in ("nextafter", "bitcast", "convert"):
        return
    for sample in samples(op, dtype):
        wide = [exact(a) if type_of(a).dtype == dtype else a for a in sample.args]
        wanted = reference(op, wide, sample.params)
        for got, value in zip(reference(op, sample.args, sample.params), wanted, strict=True):
            limits = dt.finfo(dtype)
            near = 8 if dtype == dt.float32 else 1  # NumPy's own f32 functions may be off by some
            close(got, value.astype(got.dtype), near * float(limits.eps), f"{sample}")


@each(*WIDE)
def test_tangents_are_finite_differences(name: str, dtype: np.dtype) -> None:
    if name not in NOT_SMOOTH:
        check_jvp(OPS[name], dtype)


@each(*WIDE)
def test_transposes_pass_the_dot_test(name: str, dtype: np.dtype) -> None:
    """<ct, J t> = <J^T ct, t> for every operand in which the op is linear."""
    op = OPS[name]
    if op.transpose is None:
        return
    linear = 0
    for number, sample in enumerate(smooth(op, dtype)):
        places = differentiable(sample.args)
        for active in [*([p] for p in places), *([places] if len(places) > 1 else [])]:
            if jointly_linear(op, dtype, number, active) and _claims(op, sample, active):
                linear += 1
                _dot_test(op, sample, active)
    assert linear, f"{name} has a transpose rule, but no operand it is linear in"


def _claims(op: Op, sample: Sample, active: Sequence[int]) -> bool:
    """Scatters by min and max are linear in pieces only; by mul no updates are transposed."""
    monoid = sample.params.get("monoid", "add")
    return monoid in ("set", "add") or (monoid == "mul" and active == [0])


def _dot_test(op: Op, sample: Sample, active: Sequence[int]) -> None:
    draws = Draws(dt.float64, 3)
    tangents = [draws.like(a) if i in active else None for i, a in enumerate(sample.args)]
    out_tangents = tangent(op, sample, tangents)
    cotangents = tuple(draws.like(t) for t in out_tangents)
    args = [Unknown(type_of(a)) if i in active else a for i, a in enumerate(sample.args)]
    single = len(cotangents) == 1
    back = op.transpose(cotangents[0] if single else cotangents, args, **sample.params)
    assert len(back) == len(args)
    for i in active:
        assert back[i] is None or type_of(back[i]) == args[i].type, f"{sample}"
    forward = inner(cotangents, out_tangents)
    backward = inner([back[i] for i in active], [tangents[i] for i in active])
    np.testing.assert_allclose(backward, forward, rtol=1e-9, atol=1e-9, err_msg=f"{sample}")


@each(dt.bool_, dt.int32, dt.uint32, dt.float64, dt.complex64)
@pytest.mark.parametrize("size", [1, 3])
def test_batches_are_loops(name: str, dtype: np.dtype, size: int) -> None:
    op = OPS[name]
    if op.batch is not None:
        check_batch(op, dtype, size)


# ---------------------------------------------------------------- rules under the transforms


def _first_order(op: Op, sample: Sample, places: Sequence[int]) -> Any:
    """Program (operands, tangents) -> tangents of the results, and its arguments."""

    def rule(*values: Any) -> list[Any]:
        given = iter(values)
        args = [a if isinstance(a, Lit) else next(given) for a in sample.args]
        tangents = [next(given) if i in places else None for i in range(len(args))]
        outs = bind(op, *args, **sample.params)
        found = op.jvp(args, tangents, outs, **sample.params)
        return [t for t in listed(found) if t is not None]

    draws = Draws(dt.float64, 4)
    arrays = [concrete(a) for a in sample.args if not isinstance(a, Lit)]
    tangents = [draws.like(sample.args[i]) for i in places]
    program, consts = stage(rule, [type_of(v) for v in (*arrays, *tangents)], op.name)
    assert not consts
    return program, arrays, tangents


@each(*WIDE)
def test_tangents_of_tangents_are_finite_differences(name: str, dtype: np.dtype) -> None:
    op = OPS[name]
    if op.jvp is None or name in NOT_SMOOTH:
        return
    step = 1e-6
    for sample in smooth(op, dtype):
        places = differentiable(sample.args)
        if not places:
            continue
        program, arrays, tangents = _first_order(op, sample, places)
        arguments = [*arrays, *tangents]
        draws = Draws(dtype, 6)
        moving = [dt.is_differentiable(a.dtype) for a in arguments]
        directions = [draws.like(a) if m else None for a, m in zip(arguments, moving, strict=True)]
        second, active = jvp_of(program, tuple(moving))
        given = [d for d in directions if d is not None]
        outs = evaluate(second, [*arguments, *given])
        found = iter(outs[len(active) :])
        high, low = (
            evaluate(
                program,
                [
                    a if d is None else np.asarray(a + sign * step * d)
                    for a, d in zip(arguments, directions, strict=True)
                ],
            )
            for sign in (1, -1)
        )
        for is_active, up, down in zip(active, high, low, strict=True):
            got = next(found) if is_active else np.zeros_like(up)
            close(got, (up - down) / (2 * step), 2e-5, f"{sample}")


@each(*WIDE)
def test_tangent_rules_can_be_transposed(name: str, dtype: np.dtype) -> None:
    op = OPS[name]
    if op.jvp is None:
        return
    for sample in smooth(op, dtype):
        places = differentiable(sample.args)
        if not places:
            continue
        program, arrays, tangents = _first_order(op, sample, places)
        if not program.outputs:
            continue
        linear = (False,) * len(arrays) + (True,) * len(tangents)
        forward = evaluate(program, [*arrays, *tangents])
        draws = Draws(dtype, 7)
        cotangents = [draws.like(f) for f in forward]
        back, reached = transpose_of(program, linear, (True,) * len(forward))
        found = iter(evaluate(back, [*arrays, *cotangents]))
        results = [next(found) if r else None for r in reached]
        for result, t in zip(results, tangents, strict=True):
            assert result is None or type_of(result) == type_of(t), f"{sample}"
        np.testing.assert_allclose(
            inner(results, tangents), inner(cotangents, forward), rtol=1e-9, atol=1e-9
        )
