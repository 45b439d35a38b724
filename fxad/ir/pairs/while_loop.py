"""Loops of unknown length back over a tape: both bodies as one line (`fxad.ir.pairs.halves`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fxad.core.record import record
from fxad.core.types import TapeType
from fxad.ir.pairs.halves import (
    Changed,
    Halves,
    Line,
    exchanged,
    halved,
    inputs_renamed,
    joined,
)
from fxad.ir.pairs.tape_link import Link, link_of
from fxad.ir.program import OPS, Atom, Eqn, Program, Var


@record
class WhilePair:
    """Two loops around a tape."""

    program: Program
    link: Link
    lines: tuple[Line]
    length: int = 1  # at least: only the run knows

    def changed(self, number: int, line: Changed) -> Changed:
        halves = halved(self.lines[number], line)
        link, fixed = self.link, {v: a for a, v in _constants(self.link.forth)}
        blocks = [v for v in halves.wanted if v not in fixed]
        shared = [(fixed[v], v) for v in halves.wanted if v in fixed]
        origin, forth, tape = _forth(link, halves, blocks)
        back = _back(self, halves, blocks, shared, tape)
        new = {link.forth: [origin, forth], link.back: [back]}
        return exchanged(self.program, new.get, {*origin.outputs, *forth.outputs})


def while_pairs(program: Program) -> Iterator[WhilePair]:
    """Every loop that reads a tape which one other wrote."""
    for back in program.eqns:
        if back.op.name == "while":
            tapes = [a for a in back.inputs if isinstance(a.type, TapeType)]
            link = link_of(program, tapes[0]) if len(tapes) == 1 else None
            if link is not None and not link.write.inputs[0].type.shape:
                yield _pair(program, link)


def _constants(loop: Eqn) -> list[tuple[Atom, Var]]:
    """The constants of a loop's body: operands, and what they are inside."""
    first, count = loop.params["cond_consts"], loop.params["body_consts"]
    operands = loop.inputs[first : first + count]
    return list(zip(operands, loop.params["body"].inputs, strict=False))


def _pair(program: Program, link: Link) -> WhilePair:
    """The bodies without what writes and reads the tape."""
    ahead, behind = link.forth.params["body"], link.back.params["body"]
    known = dict(_constants(link.forth))
    crossing: dict[Var, Atom] = {v: known[a] for a, v in _constants(link.back) if a in known}
    crossing.update(zip(link.read.outputs, link.write.inputs[2:], strict=True))
    eqns = [e for e in ahead.eqns if e is not link.write]
    kept = [a for n, a in enumerate(ahead.outputs) if n != link.place]
    first = Program(ahead.inputs, eqns, kept, ahead.name)
    eqns = [e for e in behind.eqns if e is not link.read]
    inputs = [*behind.inputs, *link.read.outputs]
    second = Program(inputs, eqns, behind.outputs, behind.name)
    state = ahead.inputs[link.forth.params["body_consts"] :]
    return WhilePair(program, link, (joined(first, second, kept, crossing, state),))


def _forth(link: Link, halves: Halves, blocks: Sequence[Var]) -> tuple[Eqn, Eqn, Var]:
    """An empty tape, the first loop, which writes these blocks, and the tape it has written."""
    loop, body, cond = link.forth, link.forth.params["body"], link.forth.params["cond"]
    type_ = TapeType(tuple([v.type for v in blocks]))
    start, given, made, result = (Var(type_) for _ in range(4))
    write = Eqn(link.write.op, (given, link.write.inputs[1], *blocks), {}, (made,))
    inputs = [given if v is link.write.inputs[0] else v for v in body.inputs]
    outputs = [*halves.kept[: link.place], made, *halves.kept[link.place :]]
    tested = loop.params["cond_consts"] + link.place
    test = [Var(type_) if n == tested else v for n, v in enumerate(cond.inputs)]
    params = {
        **loop.params,
        "cond": Program(test, cond.eqns, cond.outputs, cond.name),
        "body": Program(inputs, [*halves.early, write], outputs, body.name),
    }
    place = loop.params["cond_consts"] + loop.params["body_consts"] + link.place
    operands = tuple([start if n == place else a for n, a in enumerate(loop.inputs)])
    results = tuple([result if n == link.place else v for n, v in enumerate(loop.outputs)])
    origin = Eqn(OPS["tape_new"], (), {"type": type_}, (start,))
    return origin, Eqn(loop.op, operands, params, results, loop.where, loop.tag), result


def _back(
    pair: WhilePair,
    halves: Halves,
    blocks: Sequence[Var],
    shared: Sequence[tuple[Atom, Var]],
    tape: Var,
) -> Eqn:
    """The second loop, which reads these blocks and, as constants, what else is shared."""
    link, own = pair.link, pair.lines[0].own
    loop, body = link.back, link.back.params["body"]
    first, count = loop.params["cond_consts"], loop.params["body_consts"]
    handle, number = Var(tape.type), link.read.inputs[1]
    assert isinstance(number, Var)
    inside = {v: Var(v.type) for v in [*blocks, *(v for _, v in shared)]}
    values = tuple([inside[v] for v in blocks])
    read = Eqn(link.read.op, (handle, own[number]), {}, values)
    constants = [
        (a, own[v]) for a, v in _constants(loop) if v in own and v is not link.read.inputs[0]
    ]
    fixed = [(tape, handle), *constants, *((a, inside[v]) for a, v in shared)]
    eqns, outputs = inputs_renamed(halves.late, halves.results, dict(inside.items()))
    state = [own[v] for v in body.inputs[count:]]
    step = Program([*(v for _, v in fixed), *state], [read, *eqns], outputs, body.name)
    params = {**loop.params, "body": step, "body_consts": len(fixed)}
    operands = (*loop.inputs[:first], *(a for a, _ in fixed), *loop.inputs[first + count :])
    return Eqn(loop.op, operands, params, loop.outputs, loop.where, loop.tag)
