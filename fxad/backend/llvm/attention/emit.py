"""Attention's kernels, each in the form that suits its sizes.

emitted = emit_attend(kernel, "attend0", target)
emitted = emit_attend_grad(kernel, "attend_grad0", target)
"""

from __future__ import annotations

from fxad.backend.llvm.attention.backward import Backward
from fxad.backend.llvm.attention.backward_bf16x6 import BackwardBf16x6
from fxad.backend.llvm.attention.bf16x6 import uses_bf16x6
from fxad.backend.llvm.attention.decode import Decode, uses_decode
from fxad.backend.llvm.attention.forward import Forward, ForwardBf16x6
from fxad.backend.llvm.base.schedule import Emitted, Target, emit_nothing
from fxad.ir.kernel import Attention as Attend
from fxad.ir.kernel import AttentionGrad as AttendGrad
from fxad.ir.kernel import Kernel


def emit_attend(kernel: Kernel, name: str, target: Target) -> Emitted:
    """LLVM IR of a kernel whose body is one Attend stage."""
    (stage,) = kernel.body
    assert isinstance(stage, Attend)
    if not (kernel.points and stage.rows.extent):
        return emit_nothing(name)
    form = ForwardBf16x6 if uses_bf16x6(stage, target) else Forward
    if uses_decode(kernel, stage):
        form = Decode
    return form(kernel, stage, name, target).emit()


def emit_attend_grad(kernel: Kernel, name: str, target: Target) -> Emitted:
    """LLVM IR of a kernel whose body is one AttendGrad stage."""
    (stage,) = kernel.body
    assert isinstance(stage, AttendGrad)
    if not kernel.points:
        return emit_nothing(name)
    form = BackwardBf16x6 if uses_bf16x6(stage.attend, target) else Backward
    return form(kernel, stage, name, target).emit()
