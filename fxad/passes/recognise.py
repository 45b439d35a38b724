"""Find patterns that have an op of their own, before differentiation takes them apart.

    before   s = dot(q, k); ... p = div(e, t); o = dot(p, v)
    after    o, lse = flash_attention(q, k, v; ...)

    before   z = dot(x, table); ... l = neg(mean of log-softmax of z at targets)
    after    l = linear_cross_entropy(x, table, targets, weights)

Results differ from the plain ops' by rounding. FXAD_RECOGNISE=0 turns it off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fxad.core.config import config, spend_fuel
from fxad.ir.program import Atom, Eqn, Program, Var, subprograms
from fxad.ir.rewrite import dce, flattened, map_subprograms, replaced
from fxad.ir.uses import values_read
from fxad.passes.algebra import algebra
from fxad.passes.attention_pattern import attention
from fxad.passes.cse import cse
from fxad.passes.fold import fold
from fxad.passes.loss_pattern import loss
from fxad.passes.patterns import Graph, numbers
from fxad.passes.softmax_part import around_softmax
from fxad.passes.write_attention import attention_equations

if TYPE_CHECKING:
    from fxad.ir.rules import Value

Known = Mapping[Var, np.ndarray]


def recognise(program: Program, captured: Sequence[Value]) -> Program:
    """The program with what was recognised in it and in the programs inside it replaced; of its
    consts those that are still read.

    captured: values of its consts, so that masks among them can be looked at.
    """
    if not config.recognise or not _promising(program):
        return program
    found = _recognised(program, numbers(program, captured))
    if found is program:
        return program
    read = values_read(found.eqns, found.outputs)
    consts = [v for v in found.consts if v in read]
    return Program(found.inputs, found.eqns, found.outputs, found.name, consts)


def _promising(program: Program) -> bool:
    """Whether there is an exponential and a product at all: most programs have not both."""
    return {"exp", "dot"} <= _names(program)


def _names(program: Program) -> set[str]:
    """Of all ops in a program and the programs inside it."""
    found = {e.op.name for e in program.eqns}
    return found.union(*[_names(inner) for e in _holders(program) for _, inner in subprograms(e)])


def _holders(program: Program) -> list[Eqn]:
    """The equations that may hold programs."""
    return [e for e in program.eqns if e.op.higher]


def _recognised(program: Program, known: Known) -> Program:
    flat = flattened(program)  # a pattern may cross calls
    inner = _inside(flat, known)
    unchanged = program if inner is flat else inner
    part = around_softmax(inner)
    few = 2 * len(part.eqns) < len(inner.eqns)
    if not part.eqns or (few and not _holds_any(_normal(part), known)):
        return unchanged
    plain = _normal(inner)
    graph = Graph(plain, known)
    env: dict[Atom, Atom] = {}
    eqns: list[Eqn] = []
    for eqn in plain.eqns:
        inputs = replaced(eqn.inputs, env)
        answer = _answer(graph, eqn)
        if answer is None:
            eqns.append(eqn if inputs is eqn.inputs else eqn.with_inputs(inputs))
            continue
        made, result = answer
        eqns += [e.with_inputs(replaced(e.inputs, env)) for e in made]
        env[eqn.outputs[0]] = result
    if not env:
        return unchanged
    outputs = replaced(plain.outputs, env)
    return dce(Program(plain.inputs, eqns, outputs, plain.name, plain.consts))


def _normal(program: Program) -> Program:
    """The program as patterns are written for."""
    return dce(cse(algebra(cse(algebra(fold(program))))))


def _holds_any(program: Program, known: Known) -> bool:
    graph = Graph(program, known)
    return any(
        loss(graph, eqn) is not None
        if eqn.op.name != "dot"
        else any(attention(graph, eqn, side) is not None for side in (0, 1))
        for eqn in program.eqns
    )


def _answer(graph: Graph, eqn: Eqn) -> tuple[list[Eqn], Atom] | None:
    """Equations to put in place of one, and which value is its result."""
    if eqn.op.name != "dot":
        answer = loss(graph, eqn)
        return answer if answer is not None and spend_fuel() else None
    for side in (0, 1):
        found = attention(graph, eqn, side)
        if found is not None and spend_fuel():
            return attention_equations(graph, found, eqn)
    return None


def _inside(program: Program, known: Known) -> Program:
    """The program with the programs in its equations rewritten, constants handed down to them."""
    holders = _holders(program)
    worth = {e for e in holders if any(_promising(inner) for _, inner in subprograms(e))}
    if not worth:
        return program
    graph = Graph(program, known)
    eqns = []
    for eqn in program.eqns:
        if eqn not in worth:
            eqns.append(eqn)
            continue
        rewrite = partial(_with_operands, given=_given(graph, eqn))
        eqns += map_subprograms(Program((), [eqn], ()), rewrite).eqns
    if all(a is b for a, b in zip(eqns, program.eqns, strict=True)):
        return program
    return Program(program.inputs, eqns, program.outputs, program.name, program.consts)


def _given(graph: Graph, eqn: Eqn) -> list[np.ndarray | None]:
    """Constants among the operands that are the leading inputs of an equation's program."""
    match eqn.op.name:
        case "scan":
            count = eqn.params["consts"]
        case "checkpoint":
            count = len(eqn.inputs)
        case _:
            count = 0
    return [graph.constant(a) for a in eqn.inputs[:count]]


def _with_operands(program: Program, given: Sequence[np.ndarray | None]) -> Program:
    """The program of an equation, rewritten, given the constants among its leading inputs."""
    pairs = zip(program.inputs, given, strict=False)
    return _recognised(program, {v: x for v, x in pairs if x is not None})
