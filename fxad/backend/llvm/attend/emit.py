"""Attention's kernels, each in the form that suits its sizes.

emitted = emit_attend(kernel, "attend0", target)
emitted = emit_attend_grad(kernel, "attend_grad0", target)
"""

from __future__ import annotations

from fxad.backend.llvm.attend.few import FewQueries, takes_few
from fxad.backend.llvm.attend.forward import Forward, ForwardInParts
from fxad.backend.llvm.attend.grad import Backward
from fxad.backend.llvm.attend.grad_parts import BackwardInParts
from fxad.backend.llvm.attend.parts import takes_parts
from fxad.backend.llvm.base.schedule import Emitted, Target, emit_nothing
from fxad.ir.kernel import Attend, AttendGrad, Kernel


def emit_attend(kernel: Kernel, name: str, target: Target) -> Emitted:
    """LLVM IR of a kernel whose body is one Attend stage."""
    (stage,) = kernel.body
    assert isinstance(stage, Attend)
    if not (kernel.points and stage.rows.extent):
        return emit_nothing(name)
    form = ForwardInParts if takes_parts(stage, target) else Forward
    if takes_few(kernel, stage):
        form = FewQueries
    return form(kernel, stage, name, target).emit()


def emit_attend_grad(kernel: Kernel, name: str, target: Target) -> Emitted:
    """LLVM IR of a kernel whose body is one AttendGrad stage."""
    (stage,) = kernel.body
    assert isinstance(stage, AttendGrad)
    if not kernel.points:
        return emit_nothing(name)
    form = BackwardInParts if takes_parts(stage.attend, target) else Backward
    return form(kernel, stage, name, target).emit()
