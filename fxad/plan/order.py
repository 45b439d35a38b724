"""The order in which a block's steps run: the program's, but for steps that only make results.

    dW = x dy;  dx = dy w;  ...;  w' = w - dW     becomes     dW = x dy;  dx = dy w;  w' = w - dW

An update runs as soon as its operands exist, so that gradients die early, but after the last
other reader of the donated weight, so that w' may be written over w.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeGuard

from fxad.ir import heuristics
from fxad.ir.block import Block, Launch, LoweredStep, reads_of, writes_of
from fxad.ir.program import Eqn, Program, Var
from fxad.plan.overlap import Accesses
from fxad.plan.reuse import AccessesOf, may_reuse


def ordered(block: Block, donate: frozenset[int], accesses: AccessesOf) -> Block:
    """The block in the order in which it runs."""
    return delay_products(hoist_updates(block, donate), accesses)


def as_run(program: Program, block: Block, donate: frozenset[int]) -> Program:
    """The same program, which `block` is lowered from, with its equations in the order in which a
    plan runs them.

    A program whose effects would change places stays as it is.
    """
    steps = ordered(block, donate, functools.cache(Accesses)).steps
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


def delay_products(block: Block, accesses: AccessesOf) -> Block:
    """Move products whose result is larger than what they read to their first reader, one after
    the other, where the peak of memory in use does not grow; others where it shrinks.

        table' = dy x;  ...;  sum = table' + other      becomes     ...;  table' = dy x;  sum = ...

    They read no inputs, so that no update of a donated one waits for them.
    """
    order = _Order(block, accesses)
    for product in [s for s in block.steps if _is_large_product(s, block)]:
        order.delay(product)
    return Block(block.inputs, tuple(order.steps), block.outputs)


def _is_large_product(step: LoweredStep, block: Block) -> TypeGuard[Launch]:
    """Whether it is a product whose result takes much memory, and that is made of no inputs."""
    if not isinstance(step, Launch) or step.kernel.kind != "contract" or len(step.writes) > 1:
        return False
    large = step.writes[0].type.nbytes > heuristics.DELAYED_BYTES
    return large and set(reads_of(step)).isdisjoint(block.inputs)


class _Order:
    """Steps of a block in some order, and the bytes of the values between them.

    during, after: while and after each step runs; inputs and outputs do not count.
    """

    def __init__(self, block: Block, accesses: AccessesOf) -> None:
        self.steps = list(block.steps)
        self.last = {v: s for s in self.steps for v in (*reads_of(s), *writes_of(s))}
        self.elsewhere = {*block.inputs, *block.outputs}
        self.during: list[int] = []
        self.after: list[int] = []
        self._measure(accesses)

    def _measure(self, accesses: AccessesOf) -> None:
        live: set[Var] = set()
        size = 0
        for step in self.steps:
            writes = dict.fromkeys(writes_of(step))
            made = [v for v in writes if v not in live and v not in self.elsewhere]
            live.update(made)
            dead = self.dying(step)
            size += sum(v.type.nbytes for v in made)
            self.during.append(size - _reused_bytes(step, made, dead, accesses))
            dead += [v for v in made if self.last[v] is step]
            live.difference_update(dead)
            size -= sum(v.type.nbytes for v in dead)
            self.after.append(size)

    def dying(self, step: LoweredStep) -> list[Var]:
        """Values that this step is the last to read."""
        reads = dict.fromkeys(reads_of(step))
        return [v for v in reads if self.last[v] is step and v not in self.elsewhere]

    def delay(self, product: Launch) -> None:
        """Move a product to where its result is needed, if the peak of memory in use does not grow;
        one that takes no more memory than what it reads, if the peak shrinks."""
        (result,) = product.writes
        start = next(n for n, s in enumerate(self.steps) if s is product)
        peak = max(self.during)
        larger = result.type.nbytes > sum(v.type.nbytes for v in set(reads_of(product)))
        if not larger and self.during[start] < peak:
            return
        end = next((n for n, s in enumerate(self.steps) if result in reads_of(s)), start) - 1
        if end <= start:
            return
        kept = sum(v.type.nbytes for v in self.dying(product))
        change, moved = kept - result.type.nbytes, slice(start + 1, end + 1)
        held = self._held(product, self.steps[moved])
        during = [size + change + h for size, h in zip(self.during[moved], held, strict=False)]
        during.append(self.after[end] + kept + held[-1])
        others = max([*self.during[:start], *self.during[end + 1 :]], default=0)
        if max(*during, others) > peak - (not larger):
            return
        after = [size + change + h for size, h in zip(self.after[moved], held[1:], strict=True)]
        after.append(self.after[end])
        here = slice(start, end + 1)
        self.steps[here] = [*self.steps[moved], product]
        self.during[here], self.after[here] = during, after
        passed = {id(s) for s in self.steps[start:end]}
        self.last.update({v: product for v in reads_of(product) if id(self.last[v]) in passed})

    def _held(self, product: Launch, passed: Sequence[LoweredStep]) -> list[int]:
        """Bytes of the product's operands that have died before each of the steps that it is moved
        past, and before the product, and now wait for it."""
        operands = [v for v in dict.fromkeys(reads_of(product)) if v not in self.elsewhere]
        held = [0]
        for step in passed:
            held.append(held[-1] + sum(v.type.nbytes for v in operands if self.last[v] is step))
        return held


def _reused_bytes(
    step: LoweredStep, made: Sequence[Var], dead: Sequence[Var], accesses: AccessesOf
) -> int:
    """Bytes of the values made that may lie where others die."""
    left, total = list(dead), 0
    for result in made:
        operand = next((v for v in left if may_reuse(step, result, v, accesses)), None)
        if operand is not None:
            left.remove(operand)
            total += result.type.nbytes
    return total


def hoist_updates(block: Block, donate: frozenset[int]) -> Block:
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
