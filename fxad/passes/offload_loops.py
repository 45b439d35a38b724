"""Marked values that go from a loop's iterations to those of the loop back over them.

before   ys = scan(...; body: y = f(c))             b = scan(ys, ...; body: d = offload(y); g(d))
after    scan(...; body: y = f(c); put(y; key=0))   b = scan(...; body: d = take(; key=0); g(d))

What one key holds is a stack, so the loop back, which runs in the opposite direction, finds what it
needs on top, and the stacked values never exist.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.ir.program import Atom, Eqn, Program, Var
from fxad.passes.aside import large, put_of, take_of


def linked(program: Program, key: Callable[[], int]) -> Program:
    """Replace large stacked values that only a loop's marks read."""
    eqns = list(program.eqns)
    made = {v: n for n, eqn in enumerate(eqns) if eqn.op.name == "scan" for v in eqn.outputs}
    readers: dict[Atom, int] = {}
    for atom in (*program.outputs, *(a for eqn in eqns for a in eqn.inputs)):
        readers[atom] = readers.get(atom, 0) + 1
    for number, back in enumerate(eqns):
        if back.op.name != "scan":
            continue
        first = back.params["consts"] + back.params["carry"]
        for stacked in back.inputs[first:]:
            if not isinstance(stacked, Var) or stacked not in made or readers[stacked] != 1:
                continue
            source = made[stacked]
            pair = _pair(eqns[source], eqns[number], stacked, key)
            if pair is not None:
                eqns[source], eqns[number] = pair
    return Program(program.inputs, eqns, program.outputs, program.name, program.consts)


def _pair(forth: Eqn, back: Eqn, stacked: Var, key: Callable[[], int]) -> tuple[Eqn, Eqn] | None:
    """Both loops without the stacked value, or None where it has to stay."""
    position, number = back.inputs.index(stacked), forth.outputs.index(stacked)
    body = back.params["body"]
    mark, copies = marked(body, body.inputs[position])
    value = forth.params["body"].outputs[number]
    opposite = forth.params["reverse"] != back.params["reverse"]
    if mark is None or not opposite or number < forth.params["carry"]:
        return None
    if not isinstance(value, Var) or not large(value):
        return None
    aside = key()
    put, take = put_of(value, aside, mark), take_of(Var(value.type), aside, mark)
    return _putting(forth, number, put), _taking(back, position, take, copies)


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


def _putting(forth: Eqn, number: int, put: Eqn) -> Eqn:
    body, value = forth.params["body"], put.inputs[0]
    at = next((n + 1 for n, e in enumerate(body.eqns) if value in e.outputs), 0)
    eqns = [*body.eqns[:at], put, *body.eqns[at:]]
    outputs = [a for n, a in enumerate(body.outputs) if n != number]
    params = {**forth.params, "body": Program(body.inputs, eqns, outputs, body.name)}
    kept = tuple([v for n, v in enumerate(forth.outputs) if n != number])
    return Eqn(forth.op, forth.inputs, params, kept, forth.where, forth.tag)


def _taking(back: Eqn, position: int, take: Eqn, copies: set[Atom]) -> Eqn:
    body, read = back.params["body"], take.outputs[0]
    swap: dict[Atom, Atom] = {}
    eqns: list[Eqn] = []
    for eqn in body.eqns:
        if eqn.op.name == "offload" and eqn.inputs[0] in copies:
            swap[eqn.outputs[0]] = read
            continue
        if eqn.op.name == "barrier":
            pairs = [p for p in zip(eqn.inputs, eqn.outputs, strict=True) if p[1] not in copies]
            made = tuple([v for _, v in pairs])
            eqn = Eqn(eqn.op, tuple([a for a, _ in pairs]), eqn.params, made, eqn.where, eqn.tag)
        inputs = tuple([swap.get(a, a) for a in eqn.inputs])
        if read in inputs and take not in eqns:
            eqns.append(take)
        eqns.append(eqn.with_inputs(inputs))
    outputs = [swap.get(a, a) for a in body.outputs]
    if take not in eqns:
        eqns.append(take)
    left = [v for n, v in enumerate(body.inputs) if n != position]
    params = {**back.params, "body": Program(left, eqns, outputs, body.name)}
    given = tuple([a for n, a in enumerate(back.inputs) if n != position])
    return Eqn(back.op, given, params, back.outputs, back.where, back.tag)
