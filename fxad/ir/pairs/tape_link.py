"""The loop of unknown trip count that writes a tape, and the backward loop that reads it.

n, t = while(...; body: tape_write(t, n, y))
while(t, n - 1, ...; body: y = tape_read(t, m))
"""

from __future__ import annotations

from fxad.core.record import valued
from fxad.ir.program import Atom, Eqn, Program, Var
from fxad.ir.rewrite import is_literal
from fxad.ir.uses import Uses, uses_of


@valued
class Link:
    """A loop that writes a tape, once a trip in order, and its backward loop.

    place: which of the forward loop's state the tape is. position: the tape among the backward
    one's operands. number: the slot's, there. written: that in the forward loop, or None where
    lanes have their own: they write until their own trips end, and are read together.
    """

    forward: Eqn
    backward: Eqn
    place: int
    position: int
    write: Eqn
    read: Eqn
    written: Atom | None
    number: Atom


def link_of(program: Program, tape: Var) -> Link | None:
    """The loops that write and read a tape, or None if they are not of this kind."""
    uses = uses_of(program)
    forward, backward = uses.maker.get(tape), uses.only_reader(tape)
    if forward is None or forward.op.name != "while" or backward is None:
        return None
    place = forward.outputs.index(tape)
    first = forward.params["body_consts"]
    start = forward.inputs[forward.params["cond_consts"] + first + place]
    origin = uses.maker.get(start)
    write = _only_reader(forward.params["body"], forward.params["body"].inputs[first + place])
    position = backward.inputs.index(tape)
    inner = position - backward.params["cond_consts"]
    if not 0 <= inner < backward.params["body_consts"] or origin is None or write is None:
        return None
    read = _only_reader(backward.params["body"], backward.params["body"].inputs[inner])
    if origin.op.name != "tape_new" or uses.count(start) != 1 or write.op.name != "tape_write":
        return None
    if read is None or read.op.name != "tape_read":
        return None
    if write.outputs[0] is not forward.params["body"].outputs[place]:
        return None
    written = _spread_from(forward.params["body"], write.inputs[1])
    number = _spread_from(backward.params["body"], read.inputs[1])
    if number.type.shape:
        return None
    together = None if written.type.shape else written
    link = Link(forward, backward, place, position, write, read, together, number)
    return link if _in_order(link, written, uses) else None


def _spread_from(program: Program, atom: Atom) -> Atom:
    """What a value is the same as in all lanes."""
    return _from(atom, "broadcast", uses_of(program))


def _only_reader(body: Program, var: Var) -> Eqn | None:
    """The one equation that reads a variable, if nothing else does."""
    return uses_of(body).only_reader(var)


def _in_order(link: Link, written: Atom, uses: Uses) -> bool:
    """Whether slots are written 0, 1, 2, ... and read from the last one down to 0."""
    up = _counter(link.forward, written, "add")
    down = _counter(link.backward, link.number, "sub")
    if (
        up is None
        or down is None
        or not is_literal(_from(started(link.forward, up), "broadcast", uses), 0)
    ):
        return False
    last = _from(started(link.backward, down), "max_reduce", uses)
    origin = uses.maker.get(last)
    if origin is None or origin.op.name != "sub" or not is_literal(origin.inputs[1], 1):
        return False
    test = link.backward.params["cond"]
    number = test.inputs[link.backward.params["cond_consts"] + down]
    ends = [e for e in test.eqns if e.outputs[0] is test.outputs[0]]
    whole = len(ends) == 1 and ends[0].op.name == "ge" and ends[0].inputs[0] is number
    whole = whole and is_literal(ends[0].inputs[1], 0)
    return whole and origin.inputs[0] is link.forward.outputs[up]


def _from(atom: Atom, op: str, uses: Uses) -> Atom:
    """What `op`, once or again, has made a value of."""
    while (eqn := uses.maker.get(atom)) is not None and eqn.op.name == op:
        atom = eqn.inputs[0]
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
    consts: int = loop.params["cond_consts"] + loop.params["body_consts"]
    return loop.inputs[consts + place]
