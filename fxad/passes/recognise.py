"""Find patterns that have an op of their own, before differentiation takes them apart.

    before   s = dot(q, k); ... p = div(e, t); o = dot(p, v)
    after    o, lse = flash_attention(q, k, v; ...)

    before   z = dot(x, table); ... l = neg(mean of log-softmax of z at targets)
    after    l = linear_cross_entropy(x, table, targets, weights)

Results differ from the plain ops' by rounding. FXAD_RECOGNISE=0 turns it off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
_Given = Sequence[tuple[Atom, np.ndarray | None]]


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
    return {"exp", "dot"} <= _names(program, {})


def _names(program: Program, known: dict[Program, set[str]]) -> set[str]:
    """Of all ops in a program and the programs inside it; `known`: of programs gone through."""
    if program not in known:
        inner = {one for e in _holders(program) for _, one in subprograms(e)}
        found = {e.op.name for e in program.eqns}
        known[program] = found.union(*[_names(one, known) for one in inner])
    return known[program]


def _holders(program: Program) -> list[Eqn]:
    """The equations that may hold programs."""
    return [e for e in program.eqns if e.op.higher]


def _recognised(program: Program, known: Known) -> Program:
    inner = _inside(program, known)
    flat = flattened(inner)  # a pattern may cross calls
    part = around_softmax(flat)
    few = 2 * len(part.eqns) < len(flat.eqns)
    if not part.eqns or (few and not _holds_any(_normal(part), known)):
        return inner
    plain = _normal(flat)
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
        return inner
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
    """The program with the programs in its equations rewritten, constants handed down to them. One
    that is called many times stays one, where the constants are the same."""
    holders = _holders(program)
    worth = {e for e in holders if any(_promising(inner) for _, inner in subprograms(e))}
    if not worth:
        return program
    graph = Graph(program, known)
    done: dict[tuple[Program, tuple[Atom | None, ...]], Program] = {}
    eqns = []
    for eqn in program.eqns:
        if eqn not in worth:
            eqns.append(eqn)
            continue
        given = [(atom, graph.constant(atom)) for atom in _handed_down(eqn)]

        def rewrite(inner: Program, given: _Given = given) -> Program:
            key = inner, tuple([None if x is None else atom for atom, x in given])
            if key not in done:
                done[key] = _with_operands(inner, [x for _, x in given])
            return done[key]

        eqns += map_subprograms(Program((), [eqn], ()), rewrite).eqns
    if all(a is b for a, b in zip(eqns, program.eqns, strict=True)):
        return program
    return Program(program.inputs, eqns, program.outputs, program.name, program.consts)


def _handed_down(eqn: Eqn) -> Sequence[Atom]:
    """The operands that are the leading inputs of an equation's program."""
    match eqn.op.name:
        case "scan":
            return eqn.inputs[: eqn.params["consts"]]
        case "call" | "checkpoint":
            return eqn.inputs
        case _:
            return ()


def _with_operands(program: Program, given: Sequence[np.ndarray | None]) -> Program:
    """The program of an equation, rewritten, given the constants among its leading inputs."""
    pairs = zip(program.inputs, given, strict=False)
    return _recognised(program, {v: x for v, x in pairs if x is not None})
