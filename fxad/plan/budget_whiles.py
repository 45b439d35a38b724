"""Byte budgets of checkpoints inside loops of unknown length: as `fxad.plan.budget_loops` says of
scans, but what a trip keeps goes to a tape."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.types import TapeType
from fxad.ir.program import OPS, Atom, Eqn, Program, Var
from fxad.passes.offload_tapes import Link, link_of
from fxad.plan.budget_loops import Obey, asks, in_line


def in_whiles(program: Program, obey: Obey) -> Program:
    """Have `obey` replace every `within` in the bodies of loops back over a tape."""
    for back in program.eqns:
        if back.op.name == "while" and asks(back):
            tapes = [a for a in back.inputs if isinstance(a.type, TapeType)]
            link = link_of(program, tapes[0]) if len(tapes) == 1 else None
            if link is not None:
                program = _replaced(program, link, obey)
    return program


def _constants(loop: Eqn) -> list[tuple[Atom, Var]]:
    """The constants of a loop's body: operands, and what they are inside."""
    first, count = loop.params["cond_consts"], loop.params["body_consts"]
    operands = loop.inputs[first : first + count]
    return list(zip(operands, loop.params["body"].inputs, strict=False))


def _replaced(program: Program, link: Link, obey: Obey) -> Program:
    """The program with the values of both loops as `obey` wants them."""
    ahead, behind = link.forth.params["body"], link.back.params["body"]
    known = dict(_constants(link.forth))
    crossing: dict[Atom, Atom] = {v: known[a] for a, v in _constants(link.back) if a in known}
    crossing.update(zip(link.read.outputs, link.write.inputs[2:], strict=True))
    body = Program(
        ahead.inputs,
        [e for e in ahead.eqns if e is not link.write],
        [a for n, a in enumerate(ahead.outputs) if n != link.place],
        ahead.name,
    )
    late = Program(
        behind.inputs, [e for e in behind.eqns if e is not link.read], behind.outputs, behind.name
    )
    line = in_line(body, late, list(body.outputs), crossing, obey)
    fixed = {v: a for a, v in _constants(link.forth)}
    blocks = [v for v in line.wanted if v not in fixed]
    origin, forth, tape = _forth(link, line.early, blocks)
    shared = [(fixed[v], v) for v in line.wanted if v in fixed]
    back = _back(link, line.late, line.results, blocks, shared, tape, crossing)
    eqns: list[Eqn] = []
    for eqn in program.eqns:
        if eqn is link.forth:
            eqns += [origin, forth]
        else:
            eqns.append(back if eqn is link.back else eqn)
    return Program(program.inputs, eqns, program.outputs, program.name, program.consts)


def _forth(link: Link, early: Sequence[Eqn], blocks: Sequence[Var]) -> tuple[Eqn, Eqn, Var]:
    """An empty tape, the first loop, which writes these blocks, and the tape it has written."""
    loop, body, cond = link.forth, link.forth.params["body"], link.forth.params["cond"]
    type_ = TapeType(tuple([v.type for v in blocks]))
    start, given, made, result = (Var(type_) for _ in range(4))
    write = Eqn(link.write.op, (given, link.write.inputs[1], *blocks), {}, (made,))
    inputs = [given if v is link.write.inputs[0] else v for v in body.inputs]
    outputs = [made if n == link.place else a for n, a in enumerate(body.outputs)]
    tested = loop.params["cond_consts"] + link.place
    test = [Var(type_) if n == tested else v for n, v in enumerate(cond.inputs)]
    params = {
        **loop.params,
        "cond": Program(test, cond.eqns, cond.outputs, cond.name),
        "body": Program(inputs, [*early, write], outputs, body.name),
    }
    place = loop.params["cond_consts"] + loop.params["body_consts"] + link.place
    operands = tuple([start if n == place else a for n, a in enumerate(loop.inputs)])
    results = tuple([result if n == link.place else v for n, v in enumerate(loop.outputs)])
    origin = Eqn(OPS["tape_new"], (), {"type": type_}, (start,))
    return origin, Eqn(loop.op, operands, params, results, loop.where, loop.tag), result


def _back(
    link: Link,
    late: Sequence[Eqn],
    results: Sequence[Atom],
    blocks: Sequence[Var],
    shared: Sequence[tuple[Atom, Var]],
    tape: Var,
    crossing: dict[Atom, Atom],
) -> Eqn:
    """The second loop, which reads these blocks and, as constants, what else is shared."""
    loop, body = link.back, link.back.params["body"]
    first, count = loop.params["cond_consts"], loop.params["body_consts"]
    handle = Var(tape.type)
    inside = {v: Var(v.type) for v in [*blocks, *(v for _, v in shared)]}
    read = Eqn(link.read.op, (handle, link.read.inputs[1]), {}, tuple([inside[v] for v in blocks]))
    own = [
        (a, v) for a, v in _constants(loop) if v not in crossing and v is not link.read.inputs[0]
    ]
    fixed = [(tape, handle), *own, *((a, inside[v]) for a, v in shared)]
    swap: dict[Atom, Atom] = dict(inside.items())
    eqns = [e.with_inputs(tuple([swap.get(a, a) for a in e.inputs])) for e in late]
    step = Program(
        [*(v for _, v in fixed), *body.inputs[count:]],
        [read, *eqns],
        [swap.get(a, a) for a in results],
        body.name,
    )
    params = {**loop.params, "body": step, "body_consts": len(fixed)}
    operands = (*loop.inputs[:first], *(a for a, _ in fixed), *loop.inputs[first + count :])
    return Eqn(loop.op, operands, params, loop.outputs, loop.where, loop.tag)
