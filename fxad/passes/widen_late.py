"""Values kept rounded become wide again where they are read, not all at once.

before   b, d = barrier(a, c); e = f32(b); f = f32(d); g = sin(e); h = cos(f)
after    b, d = barrier(a, c); e = f32(b); g = sin(e); f = f32(d); h = cos(f)
"""

from __future__ import annotations

from fxad.ir.program import Atom, Eqn, Program
from fxad.ir.rewrite import map_subprograms


def widen_late(program: Program) -> Program:
    """Move conversions of what comes out of a barrier, to more bytes, to their first readers, in
    all programs inside too."""
    program = map_subprograms(program, widen_late)
    held: set[Atom] = {v for e in program.eqns if e.op.name == "barrier" for v in e.outputs}
    pending: dict[Atom, Eqn] = {e.outputs[0]: e for e in program.eqns if _widens(e, held)}
    if not pending:
        return program
    moved = set(pending.values())
    eqns: list[Eqn] = []
    for eqn in program.eqns:
        if eqn not in moved:
            eqns += [pending.pop(a) for a in dict.fromkeys(eqn.inputs) if a in pending]
            eqns.append(eqn)
    eqns += pending.values()  # results
    return Program(program.inputs, eqns, program.outputs, program.name, program.consts)


def _widens(eqn: Eqn, held: set[Atom]) -> bool:
    if eqn.op.name != "convert" or eqn.inputs[0] not in held:
        return False
    return eqn.outputs[0].type.nbytes > eqn.inputs[0].type.nbytes
