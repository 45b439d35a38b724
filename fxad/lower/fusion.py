"""Which nodes share a kernel.

Nodes come in program order; one joins the group that last defines something it reads, or a later
group that reads the same data, or starts a group. A product that nobody reads yet may be
postponed, so that what needs its elements joins it instead of reading them back.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from fxad.ir import heuristics
from fxad.ir.kernel import Map
from fxad.ir.program import Var
from fxad.lower.groups import Group, fuse_into_epilogue, group_of, join
from fxad.lower.nodes import Node


def grouped(nodes: Sequence[Node], fusion: bool) -> list[Group]:
    """Groups in an order in which they can run."""
    if not fusion:
        return [group_of(n) for n in nodes]
    return _Grouping().run(_tiny_first(nodes))


def _tiny_first(nodes: Sequence[Node]) -> list[Node]:
    """Numbers computed from the inputs alone (learning rates) come before everything else, so
    that nothing has to wait for them."""
    pending = {v for n in nodes for v in n.outputs}
    first: list[Node] = []
    rest: list[Node] = []
    for node in nodes:
        whole = isinstance(node.stage, Map) and not node.is_part
        tiny = whole and node.outputs[0].type.size <= heuristics.TINY_ELEMENTS
        if tiny and pending.isdisjoint(node.reads):
            first.append(node)
            pending.difference_update(node.outputs)
        else:
            rest.append(node)
    return first + rest


class _Grouping:
    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.order: dict[Group, int] = {}
        self.numbers = itertools.count()  # of the order: the next one is after all given before
        self.groups_of: dict[Var, list[Group]] = {}
        self.groups_read: set[Group] = set()  # groups whose values another group reads
        self.readers: dict[Var, dict[Group, None]] = {}
        self.uses: dict[Var, int] = {}  # nodes that read each value

    def run(self, nodes: Sequence[Node]) -> list[Group]:
        for var in (v for node in nodes for v in node.reads):
            self.uses[var] = self.uses.get(var, 0) + 1
        for node in nodes:
            group = self._group_for(node)
            if group is None:
                group = group_of(node)
                self.groups.append(group)
                self.order[group] = next(self.numbers)
            for var in node.outputs:
                groups_of = self.groups_of.setdefault(var, [])
                if group not in groups_of:
                    groups_of.append(group)
            for var in node.reads:
                self.groups_read.update(g for g in self.groups_of.get(var, ()) if g is not group)
                if var.type.size >= heuristics.SHARED_ELEMENTS:
                    self.readers.setdefault(var, {})[group] = None
        return sorted(self.groups, key=self.order.__getitem__)

    def _group_for(self, node: Node) -> Group | None:
        sources = {g: None for v in node.reads for g in self.groups_of.get(v, ())}
        last = max(sources, key=self.order.__getitem__, default=None)
        if last is not None and join(last, node, self._has_sole_reader(last)):
            self._fuse_into_epilogue(last, node, sources)
            return last
        for group in sources:
            if group.kind == "contract" and self._may_run_later(group, node):
                if not join(group, node, self._has_sole_reader(group)):
                    continue
                self.order[group] = next(self.numbers)  # the group now runs last
                return group
        least = -1 if last is None else self.order[last]
        for group in self._siblings(node):
            if self.order[group] > least and join(group, node):
                return group
        return None

    def _fuse_into_epilogue(self, product: Group, node: Node, sources: Iterable[Group]) -> None:
        """Compute in a product's epilogue what `node` in it reads of a map group, where the product
        can run at that group's place: others may wait for the group's values."""
        for group in sources:
            inputs = {v for n in product.nodes for v in n.reads}
            needed = {g for v in inputs for g in self.groups_of.get(v, ())} - {product, group}
            early = all(self.order[g] < self.order[group] for g in needed)
            if early and fuse_into_epilogue(product, group, node):
                self._replace(group, product)

    def _replace(self, group: Group, by: Group) -> None:
        """Put a group in the place of another, whose nodes it has taken."""
        self.groups.remove(group)
        self.order[by] = self.order.pop(group)
        for var in group.members:
            self.groups_of[var] = [by]
        for var in {v for node in group.nodes for v in node.reads}:
            readers = self.readers.get(var, {})
            if group in readers:
                readers[by] = readers.pop(group)
        if group in self.groups_read:
            self.groups_read.add(by)

    def _has_sole_reader(self, group: Group) -> bool:
        """Whether one node reads what the group computes, and no other."""
        inside = sum(v in group.members for node in group.nodes for v in node.reads)
        return sum(self.uses.get(v, 0) for v in group.members) - inside == 1

    def _siblings(self, node: Node) -> list[Group]:
        """The latest groups that read something the node reads."""
        most = heuristics.SIBLING_GROUPS
        found: dict[Group, None] = {}
        for var in node.reads:
            found.update(dict.fromkeys(list(self.readers.get(var, ()))[-most:]))
        return sorted(found, key=self.order.__getitem__, reverse=True)[:most]

    def _may_run_later(self, group: Group, node: Node) -> bool:
        """Whether a product may run later than its place: nobody reads it yet, and its operands,
        which must be kept for it, are smaller than its result."""
        if group in self.groups_read:
            return False
        product = group.nodes[0]
        kept = sum(v.type.nbytes for v in product.reads)
        return kept <= product.outputs[0].type.nbytes
