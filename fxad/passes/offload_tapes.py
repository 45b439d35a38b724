"""Marked values that go from the trips of a while loop to those of the loop back over its tape.

before   n, t = while(...; body: tape_write(t, n, y, z))
         while(t, n - 1, ...; body: y, z = tape_read(t, m); d = offload(y); g(d, z))
after    n, t, rows = while(...; body: tape_write(t, n, z); rows[n % k] = y; at times put(rows))
         while(rows, ...; body: at times rows = take(); z = tape_read(t, m); g(rows[m % k], z))

Both loops run in native code and call for Python every k trips only. Values of a trip that alone
are large enough go without rows in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from typing import Any

from fxad.core import dtypes as dt
from fxad.core.record import valued
from fxad.core.types import ArrayType, TapeType
from fxad.ir.program import OPS, Atom, Eqn, Lit, Program, Var
from fxad.ir.rewrite import dce, is_literal, literal
from fxad.passes.aside import SMALLEST, nbytes_of, put_of, take_of
from fxad.passes.inline import inline
from fxad.trace.tracer import stage

CHUNK = 1 << 20  # bytes that are put aside at once
STAGING = 8  # the memory for values on their way holds at least so many chunks


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


@valued
class Kept:
    """A block of the tape that is put aside: its mark, and the key it goes by."""

    block: int
    mark: Eqn
    key: int


def played(program: Program, key: Callable[[], int], early: Set[Var]) -> Program:
    """Put aside, instead of on tapes, what only marks of the loops back over them read.

    early: values of a first program, if this is two one behind the other. Of loops in both nothing
    but single values is put aside: rows not yet full would wait in every trip around them.
    """
    before = program
    for back in program.eqns:
        if back.op.name == "while":
            for atom in back.inputs:
                if isinstance(atom, Var) and isinstance(atom.type, TapeType):
                    program = _without(program, atom, key, early)
    return program if program is before else inline(dce(program))


def _without(program: Program, tape: Var, key: Callable[[], int], early: Set[Var]) -> Program:
    """The program with the marked blocks of one tape put aside."""
    link = link_of(program, tape)
    if link is None:
        return program
    body = link.back.params["body"]
    marks = [marked(body, v)[0] for v in link.read.outputs]
    apart = (tape in early) and link.back.outputs[0] not in early
    rows = 1 if apart else _rows(link, marks)
    kept = [
        Kept(block, mark, key())
        for block, mark in enumerate(marks)
        if mark is not None and rows * nbytes_of(link.read.outputs[block]) >= SMALLEST
    ]
    if not kept:
        return program
    before, forth, rest, buffers = _forth(link, kept, rows)
    back = _back(link, kept, rows, rest, buffers)
    eqns = []
    for eqn in program.eqns:
        if eqn is link.forth:
            eqns += [*before, forth]
        else:
            eqns.append(back if eqn is link.back else eqn)
    return Program(program.inputs, eqns, program.outputs, program.name, program.consts)


def marked(body: Program, slice_: Var) -> tuple[Eqn | None, set[Atom]]:
    """The mark that says where a slice waits (None if it has other readers), and its copies."""
    copies: set[Atom] = {slice_}
    mark = None
    bare = slice_ in body.outputs
    for eqn in body.eqns:
        for given in eqn.inputs:
            if given not in copies:
                continue
            if eqn.op.name == "offload":
                mark = eqn
            elif eqn.op.name == "barrier":
                copies.add(eqn.outputs[eqn.inputs.index(given)])
            else:
                bare = True
    bare = bare or not copies.isdisjoint(body.outputs)
    return (None if bare else mark), copies


def _rows(link: Link, marks: Sequence[Eqn | None]) -> int:
    """How many trips are put aside at once."""
    sizes = [
        nbytes_of(v) for v, mark in zip(link.read.outputs, marks, strict=True) if mark is not None
    ]
    memory = max((mark.params["memory"] for mark in marks if mark is not None), default=0)
    chunk = min(CHUNK, memory // STAGING) if memory else CHUNK
    return max(chunk // max(sum(sizes), 1), 1)


# ---------------------------------------------------------------- which loops


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
        or not is_literal(_from(_started(link.forth, up), "broadcast", made), 0)
    ):
        return False
    last = _from(_started(link.back, down), "max_reduce", made)
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


def _started(loop: Eqn, place: int) -> Atom:
    return loop.inputs[loop.params["cond_consts"] + loop.params["body_consts"] + place]


# ---------------------------------------------------------------- the loops rewritten


def _forth(link: Link, kept: Sequence[Kept], rows: int) -> tuple[list[Eqn], Eqn, Var, list[Var]]:
    """What comes before the first loop, the loop, and its results: the tape of the other blocks,
    and rows that were not put aside."""
    loop, body = link.forth, link.forth.params["body"]
    gone, type_ = {k.block for k in kept}, link.write.inputs[0].type
    assert isinstance(type_, TapeType)
    blocks = [b for n, b in enumerate(link.write.inputs[2:]) if n not in gone]
    stay = [t for n, t in enumerate(type_.blocks) if n not in gone]
    type_ = TapeType(tuple(stay), type_.lanes)
    given, made = Var(type_), Var(type_)
    write = Eqn(link.write.op, (given, link.write.inputs[1], *blocks), {}, (made,))
    values = [link.write.inputs[2 + k.block] for k in kept]
    held = [ArrayType(v.type.dtype, (rows, *v.type.shape)) for v in values] if rows > 1 else []
    olds, news = [*map(Var, held)], [*map(Var, held)]
    count: list[Eqn] = []
    if rows > 1:
        fill = _filling(tuple([v.type for v in values]), rows, kept)
        number = link.written
        if number is None:  # the trip's, beside the lanes'
            number, following = Var(_NUMBER), Var(_NUMBER)
            count = [Eqn(OPS["add"], (number, Lit(1, dt.int32)), {}, (following,))]
            held, olds, news = [_NUMBER, *held], [number, *olds], [following, *news]
        inputs = (number, *values, *olds[-len(values) :])
        away = [Eqn(OPS["call"], inputs, {"program": fill}, tuple(news[-len(values) :])), *count]
    else:
        away = [put_of(v, k.key, k.mark) for v, k in zip(values, kept, strict=True)]
    eqns = []
    for eqn in body.eqns:
        eqns += [write, *away] if eqn is link.write else [eqn]
    swap = {link.write.inputs[0]: given, link.write.outputs[0]: made}
    step = _program(body, eqns, swap, olds, news)
    cond = loop.params["cond"]
    handle = cond.inputs[loop.params["cond_consts"] + link.place]
    test = _program(cond, cond.eqns, {handle: Var(type_)}, [*map(Var, held)], [])
    tape, blank = Var(type_), [*map(Var, held)]
    start = _started(loop, link.place)
    before = [Eqn(OPS["tape_new"], (), {"type": type_}, (tape,))]
    for var in blank:
        shape = {"shape": var.type.shape, "axes": ()}
        before.append(Eqn(OPS["broadcast"], (literal(0, var.type.dtype),), shape, (var,)))
    inputs = tuple([tape if a is start else a for a in loop.inputs])
    rest, left = Var(type_), [*map(Var, held)]
    outputs = tuple([rest if n == link.place else v for n, v in enumerate(loop.outputs)])
    params = {**loop.params, "cond": test, "body": step}
    made_loop = Eqn(loop.op, (*inputs, *blank), params, (*outputs, *left), loop.where, loop.tag)
    return before, made_loop, rest, left[-len(values) :]


def _back(link: Link, kept: Sequence[Kept], rows: int, rest: Var, buffers: Sequence[Var]) -> Eqn:
    """The second loop, which takes what was put aside."""
    loop, body = link.back, link.back.params["body"]
    gone = {k.block for k in kept}
    handle = link.read.inputs[0]
    tape = Var(rest.type)
    outputs = [v for n, v in enumerate(link.read.outputs) if n not in gone]
    values = [link.read.outputs[k.block] for k in kept]
    olds, news = [Var(b.type) for b in buffers], [Var(b.type) for b in buffers]
    if rows > 1:
        found = _finding(tuple([v.type for v in values]), rows, kept)
        inputs, made = (link.number, *olds), (*news, *values)
        back = [Eqn(OPS["call"], inputs, {"program": found}, made)]
    else:
        back = [take_of(v, k.key, k.mark) for v, k in zip(values, kept, strict=True)]
    if outputs:
        back.append(Eqn(link.read.op, (tape, link.read.inputs[1]), {}, tuple(outputs)))
    aside: set[Atom] = set().union(*(marked(body, v)[1] for v in values))
    swap: dict[Atom, Atom] = {handle: tape}
    eqns: list[Eqn] = []
    for eqn in body.eqns:
        if eqn.op.name == "offload" and eqn.inputs[0] in aside:
            swap[eqn.outputs[0]] = swap.get(eqn.inputs[0], eqn.inputs[0])
        else:
            eqns += back if eqn is link.read else [eqn]
    step = _program(body, eqns, swap, olds, news)
    cond = loop.params["cond"]
    test = _program(cond, cond.eqns, {}, [Var(b.type) for b in buffers], [])
    given = [rest if n == link.position else a for n, a in enumerate(loop.inputs)]
    params = {**loop.params, "cond": test, "body": step}
    if not outputs:  # nothing is left on the tape
        del given[link.position]
        left = [v for v in step.inputs if v is not tape]
        params["body"] = Program(left, step.eqns, step.outputs, step.name)
        params["body_consts"] -= 1
    unread = tuple([Var(b.type) for b in buffers])
    return Eqn(loop.op, (*given, *buffers), params, (*loop.outputs, *unread), loop.where, loop.tag)


def _program(
    program: Program,
    eqns: Sequence[Eqn],
    swap: dict[Any, Any],
    inputs: Sequence[Var],
    outputs: Sequence[Var],
) -> Program:
    """A program with other equations, names swapped, and more state."""
    changed = [e.with_inputs(tuple([swap.get(a, a) for a in e.inputs])) for e in eqns]
    given = [swap.get(v, v) for v in program.inputs]
    made = [swap.get(a, a) for a in program.outputs]
    return Program([*given, *inputs], changed, [*made, *outputs], program.name)


# ---------------------------------------------------------------- rows


def _filling(types: tuple[ArrayType, ...], rows: int, kept: Sequence[Kept]) -> Program:
    """(number, *values, *buffers) -> buffers with the values in; full ones are put aside."""
    held = [ArrayType(t.dtype, (rows, *t.shape)) for t in types]
    full = [*map(Var, held)]
    puts = [put_of(v, k.key, k.mark) for v, k in zip(full, kept, strict=True)]
    ways = (Program([*map(Var, held)], [], []), Program(full, puts, []))

    def fill(number: Any, *given: Any) -> list[Any]:
        row = OPS["rem"](number, rows)
        slices = [
            OPS["reshape"](v, shape=(1, *t.shape)) for v, t in zip(given, types, strict=False)
        ]
        buffers = [
            OPS["dynamic_update"](b, s, *_at(row, t))
            for b, s, t in zip(given[len(types) :], slices, types, strict=True)
        ]
        OPS["cond"](OPS["eq"](row, rows - 1), *buffers, branches=ways)
        return buffers

    return _staged(fill, [_NUMBER, *types, *held], "put_rows")


def _finding(types: tuple[ArrayType, ...], rows: int, kept: Sequence[Kept]) -> Program:
    """(number, *buffers) -> (*buffers, *values); rows are taken back where the last is needed."""
    held = [ArrayType(t.dtype, (rows, *t.shape)) for t in types]
    flag = ArrayType(dt.bool_, ())
    due = Var(flag)
    test = Program([due, *map(Var, held)], [], [due])
    taken = [*map(Var, held)]
    takes = [take_of(v, k.key, k.mark) for v, k in zip(taken, kept, strict=True)]
    refill = Program([Var(flag), *map(Var, held)], takes, [Lit(False, dt.bool_), *taken])

    def find(number: Any, *buffers: Any) -> list[Any]:
        row = OPS["rem"](number, rows)
        # A loop of no trip or one: unlike a branch it leaves what it carries where it is.
        params = {"cond": test, "body": refill, "cond_consts": 0, "body_consts": 0}
        _, *buffers = OPS["while"](OPS["eq"](row, rows - 1), *buffers, **params)
        values = [
            OPS["reshape"](
                OPS["dynamic_slice"](b, *_at(row, t), sizes=(1, *t.shape)), shape=t.shape
            )
            for b, t in zip(buffers, types, strict=True)
        ]
        return [*buffers, *values]

    return _staged(find, [_NUMBER, *held], "take_rows")


_NUMBER = ArrayType(dt.int32, ())


def _at(row: Any, type_: ArrayType) -> list[Any]:
    """The starts of a row's window."""
    return [row, *([0] * type_.ndim)]


def _staged(function: Callable[..., Any], types: Sequence[Any], name: str) -> Program:
    program, captured = stage(function, types, name)
    assert not captured
    return program.closed()
