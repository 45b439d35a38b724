"""Replace calls by the programs they call, so that everything after sees one flat program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fxad.ir.program import Atom, Eqn, Program, Symbol
from fxad.ir.rewrite import dce, holds_programs, inline_into, replaced
from fxad.trace import location
from fxad.trace.tracer import stage

if TYPE_CHECKING:
    from fxad.ir.rules import Value


def inline(program: Program, parts: bool = False) -> Program:
    """Inline every call-like equation, inside loop bodies and branches too, and replace ops that
    have a `decompose` rule but no loop body (top_k, cumlogsumexp) by the ops they are made of;
    with `parts`, also those that have one (attention).

    before   c = call(a; program=p)        with p(x) = exp(x)
    after    c = exp(a)
    """
    return _inline(program, {}, parts)


def _inline(program: Program, done: dict[Program, Program], parts: bool) -> Program:
    if program in done:
        return done[program]
    env: dict[Atom, Atom] = {}
    kept: list[Eqn] = []
    changed = _expand(program.eqns, env, kept, done, parts)
    outputs = replaced(program.outputs, env)
    result = program
    if changed:
        result = dce(Program(program.inputs, kept, outputs, program.name, program.consts))
    done[program] = result
    return result


def _expand(
    eqns: Sequence[Eqn],
    env: dict[Atom, Atom],
    kept: list[Eqn],
    done: dict[Program, Program],
    parts: bool,
) -> bool:
    changed = False
    for eqn in eqns:
        inputs = replaced(eqn.inputs, env)
        held = eqn.params.get(eqn.op.runs or "")
        if eqn.op.decompose is not None and (parts or eqn.op.loops is None):
            held = _parts(eqn)
        if isinstance(held, Program) and not isinstance(held, Symbol):
            body, outs = inline_into(_inline(held, done, parts), inputs, eqn.where)
            kept += body
            env.update(zip(eqn.outputs, outs, strict=True))
            changed = True
            continue
        if not holds_programs(eqn):
            kept.append(eqn if inputs is eqn.inputs else eqn.with_inputs(inputs))
            continue
        inlined = {k: _inline_param(v, done, parts) for k, v in eqn.params.items()}
        same = all(inlined[k] is eqn.params[k] for k in inlined)
        changed = changed or not same
        params = eqn.params if same else inlined
        kept.append(eqn.copy(inputs=inputs, params=params))
    return changed


def _parts(eqn: Eqn) -> Program:
    """The ops that an equation's op is made of."""

    decompose = eqn.op.decompose
    assert decompose is not None

    def parts(*args: Value) -> tuple[Value, ...]:
        results = decompose(*args, **eqn.params)
        return results if isinstance(results, tuple) else (results,)

    with location.using(eqn.where):
        program, consts = stage(parts, [a.type for a in eqn.inputs], eqn.op.name)
    assert not consts, f"{eqn.op.name} captured an array; it may only use its operands"
    return program


def _inline_param(value: object, done: dict[Program, Program], parts: bool) -> object:
    if isinstance(value, Program):
        return _inline(value, done, parts)
    if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
        found = tuple(_inline_param(v, done, parts) for v in value)
        return value if all(a is b for a, b in zip(found, value, strict=True)) else found
    return value
