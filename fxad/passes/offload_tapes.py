"""Marked values that go from the trips of a while loop to those of its backward loop.

before   n, t = while(...; body: tape_write(t, n, y, z))
         while(t, n - 1, ...; body: y, z = tape_read(t, m); d = offload(y); g(d, z))
after    n, t, rows = while(...; body: tape_write(t, n, z); rows[n % k] = y; at times put(rows))
         while(rows, ...; body: at times rows = take(); z = tape_read(t, m); g(rows[m % k], z))

Both loops run in native code and call for Python every k trips only. Values of a trip that alone
are large enough go without rows in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from fxad.core import dtypes as dt
from fxad.core.record import valued
from fxad.core.types import INT32, ArrayType, TapeType, Type, array_types
from fxad.ir.offload_ops import SMALLEST, nbytes_of, put_of, take_of
from fxad.ir.pairs.tape_link import Link, link_of, started
from fxad.ir.program import OPS, Atom, Eqn, Lit, Program, Var
from fxad.ir.rewrite import dce, literal
from fxad.passes.inline import inline
from fxad.trace.tracer import stage

if TYPE_CHECKING:
    from fxad.ir.rules import Value

CHUNK = 1 << 20  # bytes that are offloaded at once
STAGED_CHUNKS = 8  # the memory for values on their way holds at least so many chunks


@valued
class Block:
    """A block of the tape that is offloaded: its number, its mark, and the key it goes by."""

    number: int
    mark: Eqn
    key: int


def offload_tapes(program: Program, key: Callable[[], int], made_forward: Set[Var]) -> Program:
    """Offload, instead of taping, what only marks of the backward loops read.

    made_forward: values of the forward body, if these are joined bodies. Where one loop is in that
    and its backward loop is not, single values are offloaded: rows not yet full would be residuals
    too.
    """
    before = program
    for backward in program.eqns:
        if backward.op.name == "while":
            for atom in backward.inputs:
                if isinstance(atom, Var) and isinstance(atom.type, TapeType):
                    program = _without(program, atom, key, made_forward)
    return program if program is before else inline(dce(program))


def _without(
    program: Program, tape: Var, key: Callable[[], int], made_forward: Set[Var]
) -> Program:
    """The program with the marked blocks of one tape offloaded."""
    link = link_of(program, tape)
    if link is None:
        return program
    body = link.backward.params["body"]
    marks = [marked(body, v)[0] for v in link.read.outputs]
    apart = (tape in made_forward) and link.backward.outputs[0] not in made_forward
    rows = 1 if apart else _rows(link, marks)
    offloaded = [
        Block(block, mark, key())
        for block, mark in enumerate(marks)
        if mark is not None and rows * nbytes_of(link.read.outputs[block]) >= SMALLEST
    ]
    if not offloaded:
        return program
    before, forward, rest, buffers = _forward(link, offloaded, rows)
    backward = _backward(link, offloaded, rows, rest, buffers)
    eqns = []
    for eqn in program.eqns:
        if eqn is link.forward:
            eqns += [*before, forward]
        else:
            eqns.append(backward if eqn is link.backward else eqn)
    return Program(program.inputs, eqns, program.outputs, program.name, program.consts)


def marked(body: Program, slice_: Var) -> tuple[Eqn | None, set[Atom]]:
    """The mark that says where to a slice is offloaded (None if it has other readers), and its
    copies."""
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
    """How many trips are offloaded at once."""
    sizes = [
        nbytes_of(v) for v, mark in zip(link.read.outputs, marks, strict=True) if mark is not None
    ]
    memory = max((mark.params["memory"] for mark in marks if mark is not None), default=0)
    chunk = min(CHUNK, memory // STAGED_CHUNKS) if memory else CHUNK
    return max(chunk // max(sum(sizes), 1), 1)


# ---------------------------------------------------------------- the loops rewritten


def _forward(
    link: Link, offloaded: Sequence[Block], rows: int
) -> tuple[list[Eqn], Eqn, Var, list[Var]]:
    """What comes before the forward loop, that loop, and its results: the tape of the other blocks,
    and rows that were not offloaded."""
    loop, body = link.forward, link.forward.params["body"]
    gone, type_ = {k.number for k in offloaded}, link.write.inputs[0].type
    assert isinstance(type_, TapeType)
    blocks = [b for n, b in enumerate(link.write.inputs[2:]) if n not in gone]
    stay = [t for n, t in enumerate(type_.blocks) if n not in gone]
    type_ = TapeType(tuple(stay), type_.lanes)
    given, made = Var(type_), Var(type_)
    write = Eqn(link.write.op, (given, link.write.inputs[1], *blocks), {}, (made,))
    values = [link.write.inputs[2 + k.number] for k in offloaded]
    held = [ArrayType(v.type.dtype, (rows, *v.type.shape)) for v in values] if rows > 1 else []
    olds, news = [*map(Var, held)], [*map(Var, held)]
    count: list[Eqn] = []
    if rows > 1:
        fill = _filling(array_types(v.type for v in values), rows, offloaded)
        number = link.written
        if number is None:  # the trip's, beside the lanes'
            number, following = Var(INT32), Var(INT32)
            count = [Eqn(OPS["add"], (number, Lit(1, dt.int32)), {}, (following,))]
            held, olds, news = [INT32, *held], [number, *olds], [following, *news]
        inputs = (number, *values, *olds[-len(values) :])
        away = [Eqn(OPS["call"], inputs, {"program": fill}, tuple(news[-len(values) :])), *count]
    else:
        away = [put_of(v, k.key, k.mark) for v, k in zip(values, offloaded, strict=True)]
    eqns = []
    for eqn in body.eqns:
        eqns += [write, *away] if eqn is link.write else [eqn]
    swap = {link.write.inputs[0]: given, link.write.outputs[0]: made}
    step = _program(body, eqns, swap, olds, news)
    cond = loop.params["cond"]
    handle = cond.inputs[loop.params["cond_consts"] + link.place]
    test = _program(cond, cond.eqns, {handle: Var(type_)}, [*map(Var, held)], [])
    tape, blank = Var(type_), [*map(Var, held)]
    start = started(loop, link.place)
    before = [Eqn(OPS["tape_new"], (), {"type": type_}, (tape,))]
    for var in blank:
        shape = {"shape": var.type.shape, "axes": ()}
        before.append(Eqn(OPS["broadcast"], (literal(0, var.type.dtype),), shape, (var,)))
    inputs = tuple([tape if a is start else a for a in loop.inputs])
    rest, left = Var(type_), [*map(Var, held)]
    outputs = tuple([rest if n == link.place else v for n, v in enumerate(loop.outputs)])
    params = {**loop.params, "cond": test, "body": step}
    made_loop = loop.copy(inputs=(*inputs, *blank), params=params, outputs=(*outputs, *left))
    return before, made_loop, rest, left[-len(values) :]


def _backward(
    link: Link, offloaded: Sequence[Block], rows: int, rest: Var, buffers: Sequence[Var]
) -> Eqn:
    """The backward loop, which brings back what was offloaded."""
    loop, body = link.backward, link.backward.params["body"]
    gone = {k.number for k in offloaded}
    handle = link.read.inputs[0]
    tape = Var(rest.type)
    outputs = [v for n, v in enumerate(link.read.outputs) if n not in gone]
    values = [link.read.outputs[k.number] for k in offloaded]
    olds, news = [Var(b.type) for b in buffers], [Var(b.type) for b in buffers]
    if rows > 1:
        found = _finding(array_types(v.type for v in values), rows, offloaded)
        inputs, made = (link.number, *olds), (*news, *values)
        back = [Eqn(OPS["call"], inputs, {"program": found}, made)]
    else:
        back = [take_of(v, k.key, k.mark) for v, k in zip(values, offloaded, strict=True)]
    if outputs:
        back.append(Eqn(link.read.op, (tape, link.read.inputs[1]), {}, tuple(outputs)))
    copies: set[Atom] = set().union(*(marked(body, v)[1] for v in values))
    swap: dict[Atom, Atom] = {handle: tape}
    eqns: list[Eqn] = []
    for eqn in body.eqns:
        if eqn.op.name == "offload" and eqn.inputs[0] in copies:
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
    return loop.copy(inputs=(*given, *buffers), params=params, outputs=(*loop.outputs, *unread))


def _program(
    program: Program,
    eqns: Sequence[Eqn],
    swap: Mapping[Atom, Atom],
    inputs: Sequence[Var],
    outputs: Sequence[Var],
) -> Program:
    """A program with other equations, names swapped, and more state."""
    changed = [e.with_inputs(tuple([swap.get(a, a) for a in e.inputs])) for e in eqns]
    given: list[Var] = []
    for v in program.inputs:
        new = swap.get(v, v)
        assert isinstance(new, Var)  # a literal takes the place of no input
        given.append(new)
    made = [swap.get(a, a) for a in program.outputs]
    return Program([*given, *inputs], changed, [*made, *outputs], program.name)


# ---------------------------------------------------------------- rows


def _filling(types: tuple[ArrayType, ...], rows: int, offloaded: Sequence[Block]) -> Program:
    """(number, *values, *buffers) -> buffers with the values in; full ones are offloaded."""
    held = [ArrayType(t.dtype, (rows, *t.shape)) for t in types]
    full = [*map(Var, held)]
    puts = [put_of(v, k.key, k.mark) for v, k in zip(full, offloaded, strict=True)]
    ways = (Program([*map(Var, held)], [], []), Program(full, puts, []))

    def fill(number: Value, *given: Value) -> list[Value]:
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

    return _staged(fill, [INT32, *types, *held], "put_rows")


def _finding(types: tuple[ArrayType, ...], rows: int, offloaded: Sequence[Block]) -> Program:
    """(number, *buffers) -> (*buffers, *values); rows are taken back where the last is needed."""
    held = [ArrayType(t.dtype, (rows, *t.shape)) for t in types]
    flag = ArrayType(dt.bool_, ())
    due = Var(flag)
    test = Program([due, *map(Var, held)], [], [due])
    taken = [*map(Var, held)]
    takes = [take_of(v, k.key, k.mark) for v, k in zip(taken, offloaded, strict=True)]
    refill = Program([Var(flag), *map(Var, held)], takes, [Lit(False, dt.bool_), *taken])

    def find(number: Value, *buffers: Value) -> list[Value]:
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

    return _staged(find, [INT32, *held], "take_rows")


def _at(row: Value, type_: ArrayType) -> list[Value]:
    """The starts of a row's window."""
    return [row, *([0] * type_.ndim)]


def _staged(function: Callable[..., Sequence[Value]], types: Sequence[Type], name: str) -> Program:
    program, captured = stage(function, types, name)
    assert not captured
    return program.closed()
