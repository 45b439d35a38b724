"""`lower`: a Program becomes a Block of kernel launches, control flow and host calls.

block = lower(program)            # fused
block = lower(program, LowerConfig(fusion=False))   # one kernel per equation, the same bits
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxad.core.types import ArrayType
from fxad.ir.block import Block, HostStep, LoweredStep
from fxad.ir.loops import HostCall
from fxad.ir.program import Program, Var
from fxad.lower.control import lower_structured
from fxad.lower.expand import Storage
from fxad.lower.forms import Kernels
from fxad.lower.fusion import grouped
from fxad.lower.graph import Graph
from fxad.lower.groups import Group
from fxad.lower.make import Maker
from fxad.lower.nodes import OpaqueNode
from fxad.lower.order import reads_first
from fxad.lower.rounding import Rounds, round_in_products
from fxad.lower.stored import choose
from fxad.passes.inline import inline
from fxad.passes.tapes import tapes


@dataclass(frozen=True, slots=True)
class LowerConfig:
    """fusion: put equations together into kernels; off: one kernel per equation.

    tiles: attention as one kernel; off (for a backend without it): as the ops it is made of.
    rounds: which products round their factors themselves; None: none.
    """

    fusion: bool = True
    tiles: bool = True
    rounds: Rounds | None = None


def lower(program: Program, config: LowerConfig = LowerConfig()) -> Block:
    """Lower a closed Program; call-like equations are inlined first."""
    return _lower_flat(tapes(inline(program.closed(), parts=not config.tiles)), config)


def _lower_flat(program: Program, config: LowerConfig) -> Block:
    graph = Graph(program)
    storage = Storage()
    maker = Maker(graph, choose(graph, config.fusion), storage)
    nodes = maker.make()
    eqn = program.eqns[-1] if program.eqns else None
    outputs = tuple([maker.bytes_of(a, eqn) for a in graph.outputs])
    groups = grouped(nodes, config.fusion)
    kernels = Kernels(storage, _wanted(groups, outputs))
    steps = tuple([_step(g, kernels, config) for g in groups])
    block = Block(graph.inputs, steps, outputs)
    if config.fusion and config.rounds:
        block = round_in_products(block, config.rounds)
    return Block(graph.inputs, reads_first(block.steps), outputs)


def _wanted(groups: Sequence[Group], outputs: Sequence[Var]) -> set[Var]:
    """Values read outside the group that computes them."""
    wanted = set(outputs)
    for group in groups:
        for node in group.nodes:
            wanted.update(v for v in node.reads if v not in group.members)
    return wanted


def _step(group: Group, kernels: Kernels, config: LowerConfig) -> LoweredStep:
    node = group.nodes[0]
    if not isinstance(node, OpaqueNode):
        return kernels.launch(group)
    record = node.record
    if isinstance(record, HostCall):
        function = _shaped(record.function, [a.type for a in node.eqn.inputs])
        return HostStep(function, node.operands, node.outputs, node.eqn.op.name)
    return lower_structured(node, lambda inner: _lower_flat(inner, config))


def _shaped(function: Callable[..., Any], types: Sequence[ArrayType]) -> Callable[..., Any]:
    """The function on arrays of its operands' shapes; their bytes may be a reshaped value's.
    It keeps the function's attributes, which tell executors how to call it."""

    @functools.wraps(function)
    def call(*arrays: np.ndarray) -> Any:
        return function(*(a.reshape(t.shape) for a, t in zip(arrays, types, strict=True)))

    return call
