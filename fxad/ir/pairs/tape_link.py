"""The loop of unknown length that writes a tape and the loop that reads it backwards.

n, t = while(...; body: tape_write(t, n, y))
while(t, n - 1, ...; body: y = tape_read(t, m))
"""

from __future__ import annotations

from collections import Counter

from fxad.core.record import valued
from fxad.ir.program import Atom, Eqn, Program, Var
from fxad.ir.rewrite import is_literal


@valued
class Link:
    """A loop that writes a tape, once a trip in order, and the loop that reads it backwards.

    place: which of the first loop's state the tape is. position: the tape among the second one's
    operands. number: the slot's, in the second one. written: that in the first one, or None where
    lanes have their own: they write until their own trips end, and are read together.
    """

    forth: Eqn
    back: Eqn
    place: int
    position: int
    write: Eqn
    read: Eqn
    written: Atom | None
    number: Atom


def link_of(program: Program, tape: Var) -> Link | None:
    """The loops around a tape, or None if they are not of this kind."""
    made = {v: e for e in program.eqns for v in e.outputs}
    uses = Counter(a for e in program.eqns for a in e.inputs) + Counter(program.outputs)
    forth = made.get(tape)
    readers = [e for e in program.eqns if tape in e.inputs]
    if forth is None or forth.op.name != "while" or uses[tape] != 1:
        return None
    place, (back,) = forth.outputs.index(tape), readers
    first = forth.params["body_consts"]
    start = forth.inputs[forth.params["cond_consts"] + first + place]
    origin = made.get(start) if isinstance(start, Var) else None
    write = _only_reader(forth.params["body"], forth.params["body"].inputs[first + place])
    position = back.inputs.index(tape)
    inner = position - back.params["cond_consts"]
    if not 0 <= inner < back.params["body_consts"] or origin is None or write is None:
        return None
    read = _only_reader(back.params["body"], back.params["body"].inputs[inner])
    if origin.op.name != "tape_new" or uses[start] != 1 or write.op.name != "tape_write":
        return None
    if read is None or read.op.name != "tape_read":
        return None
    if write.outputs[0] is not forth.params["body"].outputs[place]:
        return None
    written = _spread_from(forth.params["body"], write.inputs[1])
    number = _spread_from(back.params["body"], read.inputs[1])
    if number.type.shape:
        return None
    together = None if written.type.shape else written
    link = Link(forth, back, place, position, write, read, together, number)
    return link if _in_order(link, written, made) else None


def _spread_from(program: Program, atom: Atom) -> Atom:
    """What a value is the same as in all lanes."""
    for eqn in reversed(program.eqns):
        if atom in eqn.outputs and eqn.op.name == "broadcast":
            atom = eqn.inputs[0]
    return atom


def _only_reader(body: Program, var: Var) -> Eqn | None:
    """The one equation that reads a variable, if nothing else does."""
    readers = [e for e in body.eqns for a in e.inputs if a is var]
    return readers[0] if len(readers) == 1 and var not in body.outputs else None


def _in_order(link: Link, written: Atom, made: dict[Var, Eqn]) -> bool:
    """Whether slots are written 0, 1, 2, ... and read from the last one down to 0."""
    up = _counter(link.forth, written, "add")
    down = _counter(link.back, link.number, "sub")
    if (
        up is None
        or down is None
        or not is_literal(_from(started(link.forth, up), "broadcast", made), 0)
    ):
        return False
    last = _from(started(link.back, down), "max_reduce", made)
    origin = made.get(last) if isinstance(last, Var) else None
    if origin is None or origin.op.name != "sub" or not is_literal(origin.inputs[1], 1):
        return False
    test = link.back.params["cond"]
    number = test.inputs[link.back.params["cond_consts"] + down]
    ends = [e for e in test.eqns if e.outputs[0] is test.outputs[0]]
    whole = len(ends) == 1 and ends[0].op.name == "ge" and ends[0].inputs[0] is number
    return origin.inputs[0] is link.forth.outputs[up] and whole and is_literal(ends[0].inputs[1], 0)


def _from(atom: Atom, op: str, made: dict[Var, Eqn]) -> Atom:
    """What `op`, once or again, has made a value of."""
    while isinstance(atom, Var) and atom in made and made[atom].op.name == op:
        atom = made[atom].inputs[0]
    return atom


def _counter(loop: Eqn, number: Atom, op: str) -> int | None:
    """Which of the state of a loop `number` is, if every trip adds 1 to it (or subtracts it), in
    those lanes that have not ended."""
    body, first = loop.params["body"], loop.params["body_consts"]
    state = body.inputs[first:]
    if number not in state:
        return None
    place = state.index(number)
    after = body.outputs[place]
    for eqn in reversed(body.eqns):
        if after not in eqn.outputs:
            continue
        if eqn.op.name != "select" or eqn.inputs[2] is not number:
            steps = eqn.op.name == op and eqn.inputs[0] is number and is_literal(eqn.inputs[1], 1)
            return place if steps else None
        after = eqn.inputs[1]
    return None


def started(loop: Eqn, place: int) -> Atom:
    """What a while loop's state number `place` begins with."""
    return loop.inputs[loop.params["cond_consts"] + loop.params["body_consts"] + place]
