"""Attention of few queries and many keys in equal parts of the keys, so that all threads have work.

before   out, lse = flash_attention(q, k, v)
after    outs, lses = flash_attention(q, k, v; key_parts=8)     # [8, B, T, N, H], [8, B, N, T]
         out, lse = the parts' mean by the weights exp(lses)

The number of parts is part of the result's bits: it depends on shapes and parameters alone.
"""

from __future__ import annotations

from fxad.core.types import ArrayType
from fxad.ir.orders import KEYS_FROM, KEYS_QUERIES, KEYS_ROWS, KEYS_STEP, KEYS_UNITS
from fxad.ir.program import Atom, Eqn, Program, Var
from fxad.ir.rewrite import everywhere, has_op, replaced
from fxad.ops.fused.attention_parts import joined_parts
from fxad.passes.inserted import inserted


def split_keys(program: Program) -> Program:
    """The program with such attention in parts, inside loops and branches too."""
    return everywhere(_split, program) if has_op(program, "flash_attention") else program


def _split(program: Program) -> Program:
    env: dict[Atom, Atom] = {}
    eqns: list[Eqn] = []
    for eqn in program.eqns:
        eqn = eqn.with_inputs(replaced(eqn.inputs, env))
        count = key_parts(eqn) if eqn.op.name == "flash_attention" else 1
        if count == 1:
            eqns.append(eqn)
            continue
        types = [ArrayType(v.type.dtype, (count, *v.type.shape)) for v in eqn.outputs]
        parts = tuple(map(Var, types))
        params = {**eqn.params, "key_parts": count}
        eqns.append(Eqn(eqn.op, eqn.inputs, params, parts, eqn.where, eqn.tag))
        joins, results = inserted(joined_parts, parts, eqn.where, eqn.tag)
        eqns += joins
        env.update(zip(eqn.outputs, results, strict=True))
    if not env:
        return program
    outputs = replaced(program.outputs, env)
    return Program(program.inputs, eqns, outputs, program.name, program.consts)


def key_parts(eqn: Eqn) -> int:
    """In how many parts a `flash_attention` takes the keys: in several where so few queries meet
    many that memory decides, and heads are too few to keep several threads busy.

    q [1, 1, 2, 64], k [1, 8192, 1, 64]  ->  8
    """
    (batch, time, heads, _), (_, keys, groups, _) = (x.type.shape for x in eqn.inputs[:2])
    if 0 <= eqn.params["left"] < time - 1 or len(eqn.inputs) > 3:
        return 1
    if time > KEYS_QUERIES or time * heads > KEYS_ROWS * groups:
        return 1
    wanted = min(-(-KEYS_UNITS // max(1, batch * groups)), keys // KEYS_FROM)
    return max(n for n in range(1, max(1, wanted) + 1) if keys % (n * KEYS_STEP) == 0 or n == 1)
