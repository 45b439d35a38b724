"""Which nodes share a kernel.

Nodes come in program order; one joins the last group that defines something it reads, or a
recent later group that reads the same data, or starts a group. So the groups' order is always a
valid order to run them in.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.ir.program import Var
from fxad.lower.groups import Group, group_of, join, shares_reads
from fxad.lower.nodes import Node

WINDOW = 6  # how many groups back a sibling is looked for


def grouped(nodes: Sequence[Node], fusion: bool) -> list[Group]:
    """Groups in an order in which they can run."""
    groups: list[Group] = []
    home: dict[Var, int] = {}
    for node in nodes:
        number = _home_of(node, groups, home) if fusion else None
        if number is None:
            number = len(groups)
            groups.append(group_of(node))
        for var in node.outputs:
            home[var] = max(home.get(var, 0), number)
    return groups


def _home_of(node: Node, groups: list[Group], home: dict[Var, int]) -> int | None:
    last = max((home[v] for v in node.reads if v in home), default=-1)
    if last >= 0 and join(groups[last], node):
        return last
    for number in range(len(groups) - 1, max(last, len(groups) - 1 - WINDOW), -1):
        if shares_reads(groups[number], node) and join(groups[number], node):
            return number
    return None
