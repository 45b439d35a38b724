"""Products of few rows (GEMV): B is read once, where it lies, as fast as memory gives it.

    uses_gemv(problem, target)            # up to 8 rows and a large B
    emit_gemv(problem, "matmul0", target)

With few uses for every element of B nothing is packed. Where columns are neighbours in memory,
rows of B go by a few at a time, and the sums of a unit's columns stay in the first-level cache
(gemv_n.py); where k has neighbours, squares of B are transposed in registers (gemv_t.py). Either
way B is prefetched a step ahead, to where the kind of processor has it soonest: every line is used
once.
"""

from __future__ import annotations

from fxad.backend.llvm.base.schedule import ABI, Emitted, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract import pack as packing
from fxad.backend.llvm.contract.arguments import load_arguments
from fxad.backend.llvm.contract.epilogue import Epilogue
from fxad.backend.llvm.contract.gemv_code import Code, Operands, Unit, operands_of, with_packed_a
from fxad.backend.llvm.contract.gemv_n import multiply_rows
from fxad.backend.llvm.contract.gemv_plan import GemvPlan, RowsOfB, uses_gemv
from fxad.backend.llvm.contract.gemv_t import multiply_columns
from fxad.backend.llvm.contract.lanes import Lanes
from fxad.backend.llvm.contract.problem import Problem
from fxad.core.aligned import to_line

__all__ = ["emit_gemv", "uses_gemv"]


def emit_gemv(problem: Problem, name: str, target: Target) -> Emitted:
    """LLVM IR of a product for which `uses_gemv` holds."""
    plan = GemvPlan.of(problem, name, target)
    sizes = _scratch_bytes(plan)
    code = _code(plan, target, sizes)
    f, epilogue = code.f, code.epilogue
    f.loop("%begin", "%end", 1, lambda unit, _: _unit(code, unit))
    f.ret()
    declarations = code.lanes.declarations | code.scope.code.declarations | epilogue.declarations
    _, columns, k = problem.size
    moved = columns * k * plan.source.itemsize / plan.tuning.bytes_per_ns
    computed = problem.flops / target.tuning.gemm.flops_per_ns
    return Emitted(
        name,
        "\n".join([*code.helpers.values(), *epilogue.texts(), str(f)]),
        frozenset(declarations),
        problem.kernel.points // plan.parts * plan.chunks,
        sum(sizes),
        problem.kernel.points * max(moved, computed),
    )


def _scratch_bytes(plan: GemvPlan) -> tuple[int, ...]:
    """Of totals, of packed A, of the sums of a block of K, where they are not the totals, and of
    unpacked columns."""
    rows, _, k = plan.problem.size
    totals = to_line(rows * plan.chunk * plan.size)
    packed = to_line(rows * k * plan.parts * plan.size) if plan.packs_a else 0
    apart = isinstance(plan.layout, RowsOfB) and plan.sum_blocks > 1
    unpacked = plan.staging.bytes if plan.staging else 0
    return totals, packed, totals if apart else 0, unpacked


def _code(plan: GemvPlan, target: Target, scratch_bytes: tuple[int, ...]) -> Code:
    """The function, at its start."""
    problem = plan.problem
    a, (rows, _, k) = problem.a, problem.size
    lanes, f = Lanes(problem.dtype, plan.lanes), Function(plan.name, "void", ABI)
    scope = load_arguments(problem.kernel, f, target)
    epilogue = Epilogue(problem, plan.name, target, lanes, plan.chunk)
    places, start = [], 0
    for size in scratch_bytes:
        places.append(f.offset("%scratch", start) if size else "")
        start += size
    strides = (a.outer if rows > 1 else k, a.inner)
    source = packing.Source(*strides, a.buffer.dtype)
    packed_strides = (1, rows) if packing.is_column_major(source) else (k, 1)
    return Code(plan, f, scope, lanes, epilogue, {}, strides, packed_strides, *places)


def _unit(code: Code, number: str) -> None:
    f, plan, columns = code.f, code.plan, code.plan.problem.size[1]
    first, element, operands = "0", number, None
    if plan.chunks > 1:
        first = f.mul(f.op(f"urem i64 {number}, {plan.chunks}"), plan.chunk)
        element = f.op(f"udiv i64 {number}, {plan.chunks}")
    if plan.parts == 1:
        operands = operands_of(code, element, "0")
        if plan.packs_a:
            operands = _pack_a(code, operands)
    elif plan.packs_a:
        f.loop(
            0,
            plan.parts,
            1,
            lambda part, _: _pack_part(code, element, part),
            at_least_once=True,
        )
    count = str(min(plan.chunk, columns))
    if columns % plan.chunk and plan.chunks > 1:
        count = f.least(f.op(f"sub i64 {columns}, {first}"), plan.chunk)
    unit = Unit(element, first, count)
    if isinstance(plan.layout, RowsOfB):
        assert operands is not None, "rows of B have no parts"
        multiply_rows(code, plan.layout, unit, operands)
    else:
        multiply_columns(code, plan.layout, unit, operands)


def _pack_part(code: Code, element: str, part: str) -> None:
    _pack_a(code, operands_of(code, element, part))


def _pack_a(code: Code, operands: Operands) -> Operands:
    """Convert A once, into scratch."""
    f, plan = code.f, code.plan
    rows, _, k = plan.problem.size
    name = f"{plan.name}.pack_a"
    if name not in code.helpers:
        source = packing.Source(*code.a_strides, plan.problem.a.buffer.dtype)
        stride = max(code.packed_a_strides)
        code.helpers[name] = packing.emit_pack_a(name, source, stride, code.lanes)
    packed = with_packed_a(code, operands)
    f.line(f"call void @{name}(ptr {operands.a}, ptr {packed.a}, i64 {k}, i64 {rows})")
    return packed
