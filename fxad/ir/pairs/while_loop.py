"""Loops that write a tape and their backward loops, with both bodies joined
(`fxad.ir.pairs.joined`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fxad.core.record import record
from fxad.core.types import TapeType
from fxad.ir.pairs.joined import (
    Changed,
    JoinedBodies,
    Split,
    exchanged,
    joined,
    split,
)
from fxad.ir.pairs.tape_link import Link, link_of
from fxad.ir.program import OPS, Atom, Eqn, Program, Var


@record
class WhilePair:
    """Two loops around a tape."""

    program: Program
    link: Link
    bodies: tuple[JoinedBodies]
    length: int = 1  # at least: only the run knows

    def changed(self, number: int, change: Changed) -> Changed:
        parts = split(self.bodies[number], change)
        link, fixed = self.link, {v: a for a, v in _constants(self.link.forward)}
        blocks = [v for v in parts.residuals if v not in fixed]
        shared = [(fixed[v], v) for v in parts.residuals if v in fixed]
        origin, forward, tape = _forward(link, parts, blocks)
        backward = _backward(self, parts, blocks, shared, tape)
        new = {link.forward: [origin, forward], link.backward: [backward]}
        return exchanged(self.program, new.get, {*origin.outputs, *forward.outputs})


def while_pairs(program: Program) -> Iterator[WhilePair]:
    """Every loop that reads a tape which one other wrote."""
    for backward in program.eqns:
        if backward.op.name == "while":
            tapes = [a for a in backward.inputs if isinstance(a.type, TapeType)]
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
    forward_body, backward_body = link.forward.params["body"], link.backward.params["body"]
    known = dict(_constants(link.forward))
    crossing: dict[Var, Atom] = {v: known[a] for a, v in _constants(link.backward) if a in known}
    crossing.update(zip(link.read.outputs, link.write.inputs[2:], strict=True))
    eqns = [e for e in forward_body.eqns if e is not link.write]
    kept = [a for n, a in enumerate(forward_body.outputs) if n != link.place]
    first = Program(forward_body.inputs, eqns, kept, forward_body.name)
    eqns = [e for e in backward_body.eqns if e is not link.read]
    inputs = [*backward_body.inputs, *link.read.outputs]
    second = Program(inputs, eqns, backward_body.outputs, backward_body.name)
    state = forward_body.inputs[link.forward.params["body_consts"] :]
    return WhilePair(program, link, (joined(first, second, kept, crossing, state),))


def _forward(link: Link, parts: Split, blocks: Sequence[Var]) -> tuple[Eqn, Eqn, Var]:
    """An empty tape, the forward loop, which writes these blocks, and the tape it has written."""
    loop, body, cond = link.forward, link.forward.params["body"], link.forward.params["cond"]
    type_ = TapeType(tuple([v.type for v in blocks]))
    start, given, made, result = (Var(type_) for _ in range(4))
    write = Eqn(link.write.op, (given, link.write.inputs[1], *blocks), {}, (made,))
    inputs = [given if v is link.write.inputs[0] else v for v in body.inputs]
    outputs = [*parts.forward_outputs[: link.place], made, *parts.forward_outputs[link.place :]]
    tested = loop.params["cond_consts"] + link.place
    test = [Var(type_) if n == tested else v for n, v in enumerate(cond.inputs)]
    params = {
        **loop.params,
        "cond": Program(test, cond.eqns, cond.outputs, cond.name),
        "body": Program(inputs, [*parts.forward_eqns, write], outputs, body.name),
    }
    place = loop.params["cond_consts"] + loop.params["body_consts"] + link.place
    operands = tuple([start if n == place else a for n, a in enumerate(loop.inputs)])
    results = tuple([result if n == link.place else v for n, v in enumerate(loop.outputs)])
    origin = Eqn(OPS["tape_new"], (), {"type": type_}, (start,))
    return origin, loop.copy(inputs=operands, params=params, outputs=results), result


def _backward(
    pair: WhilePair,
    parts: Split,
    blocks: Sequence[Var],
    shared: Sequence[tuple[Atom, Var]],
    tape: Var,
) -> Eqn:
    """The backward loop, which reads these blocks and, as constants, what else is shared."""
    link, own = pair.link, pair.bodies[0].own
    loop, body = link.backward, link.backward.params["body"]
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
    eqns, outputs = parts.backward_reading(inside)
    state = [own[v] for v in body.inputs[count:]]
    step = Program([*(v for _, v in fixed), *state], [read, *eqns], outputs, body.name)
    params = {**loop.params, "body": step, "body_consts": len(fixed)}
    operands = (*loop.inputs[:first], *(a for a, _ in fixed), *loop.inputs[first + count :])
    return loop.copy(inputs=operands, params=params)
