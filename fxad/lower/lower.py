"""`lower`: a Program becomes a Block of kernel launches, control flow and host calls.

block = lower(program)                  # fused
block = lower(program, fusion=False)    # one kernel per equation, the same bits
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
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
from fxad.lower.stored import choose


def lower(program: Program, fusion: bool = True) -> Block:
    """Lower a closed Program without calls, sums of tapes, or ops that have no loops.

    fusion: put equations together into kernels.
    """
    graph = Graph(program)
    storage = Storage()
    maker = Maker(graph, choose(graph, fusion), storage)
    nodes = maker.make()
    eqn = program.eqns[-1] if program.eqns else None
    outputs = tuple([maker.bytes_of(a, eqn) for a in graph.outputs])
    groups = grouped(nodes, fusion)
    kernels = Kernels(storage, _wanted(groups, outputs))
    steps = tuple([_step(g, kernels, fusion) for g in groups])
    return Block(graph.inputs, steps, outputs)


def _wanted(groups: Sequence[Group], outputs: Sequence[Var]) -> set[Var]:
    """Values read outside the group that computes them."""
    wanted = set(outputs)
    for group in groups:
        for node in group.nodes:
            wanted.update(v for v in node.reads if v not in group.members)
    return wanted


def _step(group: Group, kernels: Kernels, fusion: bool) -> LoweredStep:
    node = group.nodes[0]
    if not isinstance(node, OpaqueNode):
        return kernels.launch(group)
    record = node.record
    if isinstance(record, HostCall):
        function = _shaped(record.function, [a.type for a in node.eqn.inputs])
        return HostStep(function, node.operands, node.outputs, node.eqn.op.name)
    return lower_structured(node, lambda inner: lower(inner, fusion))


def _shaped(function: Callable[..., Any], types: Sequence[ArrayType]) -> Callable[..., Any]:
    """The function on arrays of its operands' shapes; their bytes may be a reshaped value's.
    It keeps the function's attributes, which tell executors how to call it."""

    @functools.wraps(function)
    def call(*arrays: np.ndarray) -> Any:
        return function(*(a.reshape(t.shape) for a, t in zip(arrays, types, strict=True)))

    return call
