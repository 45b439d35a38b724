"""The order in which a block's steps run: the program's, but for steps that only make results.

    dW = x dy;  dx = dy w;  ...;  w' = w - dW     becomes     dW = x dy;  dx = dy w;  w' = w - dW

An update runs as soon as its operands exist, so that gradients die early, but after the last
other reader of the donated weight, so that w' may be written over w.
"""

from __future__ import annotations

from fxad.ir.program import Eqn, Program, Var
from fxad.lower import LowerConfig, lower
from fxad.lower.steps import Block, Launch, reads_of, writes_of

LARGE = 1 << 20  # bytes; smaller results do not decide how much memory a program needs


def ordered(block: Block, donate: frozenset[int]) -> Block:
    """The block in the order in which it runs."""
    return products_late(updates_early(block, donate))


def as_run(program: Program, donate: frozenset[int], fusion: bool) -> Program:
    """The same program with its equations in the order in which a plan runs them.

    One whose effects would change places stays as it is.
    """
    steps = ordered(lower(program, LowerConfig(fusion)), donate).steps
    stored = {v: number for number, step in enumerate(steps) for v in writes_of(step)}
    first: dict[Var, int] = {}  # the step that needs a value first
    keys: dict[Eqn, int] = {}
    for eqn in reversed(program.eqns):
        places = [first.get(v, len(steps)) for v in eqn.outputs]
        places += [stored[v] for v in eqn.outputs if v in stored]
        keys[eqn] = min(places, default=len(steps))
        for atom in eqn.inputs:
            if isinstance(atom, Var):
                first[atom] = min(first.get(atom, len(steps)), keys[eqn])
    eqns = sorted(program.eqns, key=keys.__getitem__)
    if [e for e in eqns if e.effects] != [e for e in program.eqns if e.effects]:
        return program
    return Program(program.inputs, eqns, program.outputs, program.name, program.consts)


def products_late(block: Block) -> Block:
    """Move products whose result is larger than what they read to their first reader.

        table' = dy x;  ...;  sum = table' + other      becomes     ...;  table' = dy x;  sum = ...

    They read no inputs, so that no update of a donated one waits for them.
    """
    inputs = set(block.inputs)
    first: dict[Var, int] = {}
    for number, step in enumerate(block.steps):
        for var in reads_of(step):
            first.setdefault(var, number)
    keys = [(number, 1) for number in range(len(block.steps))]
    for number, step in enumerate(block.steps):
        if not isinstance(step, Launch) or step.kernel.kind != "contract" or len(step.writes) > 1:
            continue
        (result,), operands = step.writes, set(reads_of(step))
        kept = sum(v.type.nbytes for v in operands)
        if result.type.nbytes > max(kept, LARGE) and operands.isdisjoint(inputs):
            keys[number] = (first.get(result, number), 0)
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return Block(block.inputs, tuple([block.steps[n] for n in order]), block.outputs)


def updates_early(block: Block, donate: frozenset[int]) -> Block:
    """Move launches whose results nothing in the block reads."""
    donated = {block.inputs[n] for n in donate if n < len(block.inputs)}
    readers: dict[Var, list[int]] = {}
    written: dict[Var, int] = {}
    writers: dict[Var, int] = {}
    for number, step in enumerate(block.steps):
        for var in reads_of(step):
            readers.setdefault(var, []).append(number)
        for var in writes_of(step):
            written[var] = number
            writers[var] = writers.get(var, 0) + 1
    keys = [(number, 0, number) for number in range(len(block.steps))]
    updates: list[tuple[int, list[int]]] = []
    for number, step in enumerate(block.steps):
        results = writes_of(step)
        if not isinstance(step, Launch) or any(v in readers or writers[v] > 1 for v in results):
            continue
        needed = [written[v] for v in reads_of(step) if v in written]
        keys[number] = (max(needed, default=number), 1, number)
        types = {v.type for v in results}
        old = [v for v in reads_of(step) if v in donated and v.type in types]
        if old:
            updates.append((number, [n for v in old for n in readers[v] if n != number]))
    places = [key[0] for key in keys]
    for number, others in updates:
        keys[number] = (max([places[number], *(places[n] for n in others)]), 2, number)
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return Block(block.inputs, tuple([block.steps[n] for n in order]), block.outputs)
