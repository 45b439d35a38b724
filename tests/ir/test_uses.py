"""The use-def index says what looking through all equations says."""

from __future__ import annotations

import fxad.numpy as jnp
from fxad import make_ir
from fxad.ir.uses import makers, uses_of, values_read


def _program():
    def f(a):
        b = jnp.sin(a)
        c = b * b + a
        return c, b, c

    return make_ir(f)(1.0).program


def test_makers_readers_and_counts() -> None:
    program = _program()
    (a,), (sin, mul, add) = program.inputs, program.eqns
    uses = uses_of(program)
    assert uses_of(program) is uses
    (b,), (d,), (c,) = sin.outputs, mul.outputs, add.outputs
    assert [uses.maker.get(v) for v in (a, b, d, c)] == [None, sin, mul, add]
    assert uses.readers(a) == [sin, add] and uses.readers(b) == [mul] and uses.readers(c) == []
    assert [uses.count(v) for v in (a, b, d, c)] == [2, 3, 1, 2]
    assert uses.only_reader(d) is add
    # Read twice by one equation; and by the program alone.
    assert uses.only_reader(b) is None and uses.only_reader(c) is None
    assert [uses.number(eqn) for eqn in program.eqns] == [0, 1, 2]


def test_parts_of_programs() -> None:
    program = _program()
    (a,), (sin, mul, add) = program.inputs, program.eqns
    assert makers(program.eqns[:2]) == {sin.outputs[0]: sin, mul.outputs[0]: mul}
    assert list(values_read([mul, add], [a])) == [sin.outputs[0], mul.outputs[0], a]
