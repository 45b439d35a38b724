"""Matrix products: Contract kernels -> LLVM IR, each by the kind of code that suits it.

    emitted = emit_contract(kernel, "matmul0", target)

| code | of |
|---|---|
| `scalar` | dtypes without vectors: complex numbers, bool |
| `amx` | bf16 on tiles |
| `gemv` | few rows and a large B, which is read once, where it lies |
| `gemm` | all others |

(`small` is for products inside loops, which `sequence` asks for itself.)
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.base.schedule import Emitted, Target, emit_nothing
from fxad.backend.llvm.contract.amx import emit_amx_product
from fxad.backend.llvm.contract.amx_blocking import uses_amx
from fxad.backend.llvm.contract.gemm import emit_gemm
from fxad.backend.llvm.contract.gemv import emit_gemv, uses_gemv
from fxad.backend.llvm.contract.lanes import supports
from fxad.backend.llvm.contract.problem import Problem
from fxad.backend.llvm.contract.scalar import emit_scalar_contract
from fxad.core.errors import CheckError
from fxad.ir.kernel import Kernel


def emit_contract(kernel: Kernel, name: str, target: Target) -> Emitted:
    """LLVM IR of a kernel whose body is one Contract stage, for any sizes and strides.

    Raises CheckError where an operand is not affine in the stage's axes.
    """
    problem = Problem.of(kernel)
    return _emitter(problem, target)(problem, name, target)


def has_choices(problem: Problem, target: Target) -> bool:
    """Whether how the product is blocked is a matter of `choices`."""
    return problem.size[2] > 0 and _emitter(problem, target) in (emit_amx_product, emit_gemm)


def _emitter(problem: Problem, target: Target) -> Callable[[Problem, str, Target], Emitted]:
    """What emits the product."""
    if not (problem.kernel.points and problem.size[0] and problem.size[1]):
        return _emit_nothing
    operands = (problem.a.buffer.dtype, problem.b.buffer.dtype)
    if not all(supports(problem.dtype, dtype) for dtype in operands):
        return emit_scalar_contract
    if uses_amx(problem, target):
        return emit_amx_product
    if any(x.rounded for x in (problem.stage.a, problem.stage.b)):
        raise CheckError(f"{problem.kernel.name}: only products on tiles round their factors")
    return emit_gemv if uses_gemv(problem, target) else emit_gemm


def unpacks_factors(kernel: Kernel) -> bool:
    """Whether a product may be given an operand that is packed: the one whose axis has the lanes,
    which panels are packed of, and one that goes along rows or down them."""
    try:
        problem = Problem.of(kernel)
    except CheckError:
        return False
    packed = problem.packed
    if packed is None or packed.packed is None or problem.kernel.points == 0:
        return False
    return (problem.b.outer, problem.b.inner) in (
        (packed.packed.columns, 1),
        (1, packed.packed.columns),
    )


def _emit_nothing(problem: Problem, name: str, target: Target) -> Emitted:
    return emit_nothing(name)
