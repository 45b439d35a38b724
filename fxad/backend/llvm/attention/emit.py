"""Attention's kernels, each in the form that suits its sizes.

emitted = emit_attention(kernel, "attention0", target)
emitted = emit_attention_grad(kernel, "attend_grad0", target)
"""

from __future__ import annotations

from fxad.backend.llvm.attention.backward import emit_backward
from fxad.backend.llvm.attention.decode import emit_decode, uses_decode
from fxad.backend.llvm.attention.forward import emit_forward
from fxad.backend.llvm.attention.problem import Problem
from fxad.backend.llvm.base.schedule import Emitted, Target, emit_nothing
from fxad.ir.kernel import Attention, AttentionGrad, Kernel


def emit_attention(kernel: Kernel, name: str, target: Target) -> Emitted:
    """LLVM IR of a kernel whose body is one Attention stage."""
    (stage,) = kernel.body
    assert isinstance(stage, Attention)
    if not (kernel.points and stage.rows.extent):
        return emit_nothing(name)
    problem = Problem.of(kernel, stage, name, target)
    return emit_decode(problem) if uses_decode(kernel, stage) else emit_forward(problem)


def emit_attention_grad(kernel: Kernel, name: str, target: Target) -> Emitted:
    """LLVM IR of a kernel whose body is one AttentionGrad stage."""
    (stage,) = kernel.body
    assert isinstance(stage, AttentionGrad)
    if not kernel.points:
        return emit_nothing(name)
    return emit_backward(Problem.of(kernel, stage.forward, name, target), stage)
