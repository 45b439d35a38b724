"""Code of one stage of a Kernel: loops over its axes, with lanes where the schedule says.

    scope = emit_stage(scope, stage)         # at the current grid point, or a vector of them

Inside a vector of grid points every stage loop is sequential; at a single grid point Map and
"lanes" reductions make lanes of their own last axis.
"""

from __future__ import annotations

from fxad.backend.llvm.elements.scope import Scope, inner, with_cells
from fxad.backend.llvm.loops.fused_map import FusedMap
from fxad.backend.llvm.loops.map import emit_map
from fxad.backend.llvm.loops.reduce import emit_reduce
from fxad.backend.llvm.loops.scan import emit_scan
from fxad.backend.llvm.loops.scatter import emit_scatter
from fxad.backend.llvm.loops.sort import emit_sort
from fxad.ir import kernel as ir


def emit_stage(scope: Scope, stage: ir.Stage, fused: FusedMap | None = None) -> Scope:
    """Emit one stage; the scope for those that follow, in which its cells have values.

    fused: a Map that is part of the loop of the stage, a reduction.
    """
    inside = inner(scope)
    match stage:
        case ir.Map():
            emit_map(inside, stage)
        case ir.Reduce():
            return with_cells(scope, emit_reduce(inside, stage, fused))
        case ir.Scan():
            emit_scan(inside, stage)
        case ir.Scatter():
            emit_scatter(inside, stage)
        case ir.Sort():
            emit_sort(inside, stage)
        case _:
            raise NotImplementedError(f"no code for a {type(stage).__name__} stage here")
    return scope
