"""The part of a program in which attention and losses are looked for.

Of a training step's thousands of equations few have to do with a softmax. What is looked for ends
in a product, or in a number, made of an exponential of a product. What the operands of that product
are made of decides only how what was found is written, unless there are several such products,
which may be one after all.
"""

from __future__ import annotations

from fxad.core.types import ArrayType
from fxad.ir.program import Atom, Eqn, Program
from fxad.ir.uses import makers, values_read


def around_softmax(program: Program) -> Program:
    """The equations from such ends back to the products they are made of (and, where there are
    several, from there to the products before), as a program of all that they read from elsewhere.

    before   d = dot(a, b); e = dot(d, c); f = exp(e); g = sum(f); h = tanh(d)
    after    e = dot(d, c); f = exp(e); g = sum(f)
    """
    after_exp, ends = _ends(program)
    near: set[Atom] = set()  # what ends are made of
    beyond: set[Atom] = set()  # what operands of products among that are made of
    products = 0
    kept: list[tuple[Eqn, bool]] = []  # and whether it is beyond a product
    for eqn in reversed(program.eqns) if ends else ():
        is_near = not near.isdisjoint(eqn.outputs)
        product = eqn.op.name == "dot"
        products += is_near and product
        if eqn in ends:
            kept.append((eqn, False))
            near.update(after_exp.intersection(eqn.inputs) if product else eqn.inputs)
        elif is_near:
            kept.append((eqn, False))
            (beyond if product else near).update(eqn.inputs)
        elif not product and not beyond.isdisjoint(eqn.outputs):
            kept.append((eqn, True))
            beyond.update(eqn.inputs)
    eqns = [eqn for eqn, further in reversed(kept) if products > 1 or not further]
    if not products:
        eqns = []
    made = makers(eqns)
    inputs = [v for v in values_read(eqns) if v not in made]
    return Program(inputs, eqns, [v for e in eqns if e in ends for v in e.outputs], program.name)


def _ends(program: Program) -> tuple[set[Atom], set[Eqn]]:
    """Values made of an exponential with no product between, and the products and numbers made of
    such values."""
    after_exp: set[Atom] = set()
    ends: set[Eqn] = set()
    for eqn in program.eqns:
        name = eqn.op.name
        if after_exp and not after_exp.isdisjoint(eqn.inputs):
            if name == "dot" or any(map(_is_number, eqn.outputs)):
                ends.add(eqn)
            if name != "dot":
                after_exp.update(eqn.outputs)
        elif name == "exp":
            after_exp.update(eqn.outputs)
    return after_exp, ends


def _is_number(atom: Atom) -> bool:
    return isinstance(atom.type, ArrayType) and atom.type.size == 1
