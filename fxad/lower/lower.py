"""`lower`: a Program becomes a Block of kernel launches, control flow and host calls.

block = lower(program)                  # fused
block = lower(program, fusion=False)    # one kernel per equation, the same bits
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fxad.ir.block import Block, LoweredStep
from fxad.ir.program import Program, Var
from fxad.lower.build_nodes import NodeBuilder
from fxad.lower.deduplicate import UniqueKernels
from fxad.lower.expand import Storage
from fxad.lower.fusion import grouped
from fxad.lower.graph import Graph
from fxad.lower.groups import Group
from fxad.lower.materialize import materialize


def lower(program: Program, fusion: bool = True) -> Block:
    """Lower a closed Program without calls, sums of tapes, or ops that have no loops.

    fusion: put equations together into kernels.
    """
    graph = Graph(program)
    storage = Storage()
    builder = NodeBuilder(graph, materialize(graph, fusion), storage, partial(lower, fusion=fusion))
    nodes = builder.build()
    eqn = program.eqns[-1] if program.eqns else None
    outputs = tuple([builder.bytes_of(a, eqn) for a in graph.outputs])
    groups = grouped(nodes, fusion)
    kernels = UniqueKernels(storage, _wanted(groups, outputs))
    steps = tuple([_step(g, kernels) for g in groups])
    return Block(graph.inputs, steps, outputs)


def _wanted(groups: Sequence[Group], outputs: Sequence[Var]) -> set[Var]:
    """Values read outside the group that computes them."""
    wanted = set(outputs)
    for group in groups:
        for node in group.nodes:
            wanted.update(v for v in node.reads if v not in group.members)
    return wanted


def _step(group: Group, kernels: UniqueKernels) -> LoweredStep:
    stage = group.nodes[0].stage
    return stage if isinstance(stage, LoweredStep) else kernels.launch(group)
