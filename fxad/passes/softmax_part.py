"""The part of a program in which attention and losses are looked for.

Of a training step's thousands of equations few have to do with a softmax. What is looked for ends
in a product, or in a number, made of an exponential of a product; it reads the operands of that
product and what they are views and multiples of.
"""

from __future__ import annotations

from fxad.core.types import ArrayType
from fxad.ir.program import Atom, Eqn, Program, Var


def around_softmax(program: Program) -> Program:
    """The equations from such ends back through one product to the products before it, as a
    program of all that they read from elsewhere.

    before   d = dot(a, b); e = dot(d, c); f = exp(e); g = sum(f); h = tanh(d)
    after    e = dot(d, c); f = exp(e); g = sum(f)
    """
    ends = _ends(program)
    needed: dict[Atom, int] = {}  # value -> products between it and an end
    kept: list[Eqn] = []
    for eqn in reversed(program.eqns):
        crossed = 0 if eqn in ends else min([needed.get(v, 2) for v in eqn.outputs], default=2)
        if eqn.op.name == "dot" and eqn not in ends:
            crossed += 1
        if crossed < 2:
            kept.append(eqn)
            for atom in eqn.inputs:
                needed[atom] = min(crossed, needed.get(atom, 2))
    kept.reverse()
    made = {v for eqn in kept for v in eqn.outputs}
    read = dict.fromkeys(a for eqn in kept for a in eqn.inputs if isinstance(a, Var))
    inputs = [v for v in read if v not in made]
    return Program(inputs, kept, [v for e in kept if e in ends for v in e.outputs], program.name)


def _ends(program: Program) -> set[Eqn]:
    """Products and numbers made of an exponential of a product, with no product between."""
    of_product: set[Atom] = set()
    of_softmax: set[Atom] = set()
    ends: set[Eqn] = set()
    for eqn in program.eqns:
        after = not of_softmax.isdisjoint(eqn.inputs)
        if after and (eqn.op.name == "dot" or any(_is_number(v) for v in eqn.outputs)):
            ends.add(eqn)
        if eqn.op.name == "dot":
            of_product.update(eqn.outputs)
        elif after or not of_product.isdisjoint(eqn.inputs):
            of_product.update(eqn.outputs)
            if after or eqn.op.name == "exp":
                of_softmax.update(eqn.outputs)
    return ends


def _is_number(atom: Atom) -> bool:
    return isinstance(atom.type, ArrayType) and atom.type.size == 1
