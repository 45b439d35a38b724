"""Which measured choice a matrix product takes: products of one class share it.

choice_of(problem, target)      # a Choice; MODEL where nothing was measured
"""

from __future__ import annotations

from fxad.backend.llvm.base.choices import Choice
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.contract.amx_blocking import uses_amx
from fxad.backend.llvm.contract.bf16_dot import uses_bf16_dot
from fxad.backend.llvm.contract.blocking import ALIAS_BYTES
from fxad.backend.llvm.contract.problem import Matrix, Problem


def table_of(problem: Problem, target: Target) -> str:
    """The name of the product's table of choices: an instruction set."""
    if uses_amx(problem, target):
        return "amx"
    return "avx512_bf16" if uses_bf16_dot(problem, target) else target.isa


def class_of(problem: Problem, target: Target) -> str:
    """Products of one class run alike: table, dtypes, which axis of A and B lies side by side,
    powers of two of rows, columns and K; whether there are several, whether rows lie pages apart,
    whether an epilogue follows, and whether B is unpacked first."""
    a, b, stage = problem.a, problem.b, problem.stage
    operands = {m.buffer.dtype.name: None for m in (a, b)}
    sides = [_side(a, "m"), _side(b, "n")]
    sizes = ".".join(str(size.bit_length()) for size in problem.size)
    words = [table_of(problem, target), *operands, *sides, sizes]
    apart = [max(m.outer, m.inner) * m.buffer.dtype.itemsize for m in (a, b)]
    plain = len(stage.stores) == 1 and problem.is_identity(stage.stores[0])
    words += ["batch"] * (problem.kernel.points > 1)
    words += ["pages"] * any(step and step % ALIAS_BYTES == 0 for step in apart)
    words += ["epilogue"] * (not plain)
    words += ["packed"] * (problem.packed is not None)
    return " ".join(words)


def _side(matrix: Matrix, outer: str) -> str:
    """The axis whose elements lie side by side; - for none."""
    return "k" if matrix.inner == 1 else outer if matrix.outer == 1 else "-"


def choice_of(problem: Problem, target: Target) -> Choice:
    return target.choices.of(class_of(problem, target))
