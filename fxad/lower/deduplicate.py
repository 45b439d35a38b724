"""Structural deduplication: equal parts of a program are lowered once.

Layers of a model are the same equations on other values. The *structure* of a materialized value is
how it is computed, with numbers for the materialized values (leaves) it reads. Values of one
structure share the expressions of one node, and groups of such nodes share a kernel:

    h = gelu(dot(x, w)); h2 = gelu(dot(h, w2))      one kernel, launched twice

A structure holds everything that expressions are made from: loop records by identity (`Graph` has
one for all equations of an op with equal parameters and operand types) and literals by value.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from fxad.core.record import replace
from fxad.ir.block import Launch
from fxad.ir.program import Atom, Lit, Var
from fxad.lower.contraction import Address
from fxad.lower.emit import emit
from fxad.lower.expand import Storage
from fxad.lower.graph import Barriers, Def
from fxad.lower.groups import Group
from fxad.lower.nodes import Node
from fxad.lower.parts import Part


class Structure:
    """Collects the structure of one node.

    rows: (record, operands) of every definition that is inlined, operands before readers; an
    operand is the number of a row, ~n for the n-th of `leaves`, or a literal's key.
    """

    def __init__(
        self, def_of: Mapping[Atom, Def], materialized: Container[Atom], alias: Mapping[Var, Var]
    ) -> None:
        self.rows: list[tuple[object, ...]] = []
        self.leaves: dict[Var, int] = {}
        self._def_of = def_of
        self._materialized = materialized
        self._alias = alias
        self._seen: dict[Atom, int] = {}

    def define(self, definition: Def) -> int:
        """Enter a definition and what is inlined into it."""
        operands = tuple([self._operand(a) for a in definition.operands])
        self.rows.append((definition.record, operands))
        return len(self.rows) - 1

    def address(self, record: object, address: Address) -> None:
        """Enter where what `record` describes reads an operand: an affine index."""
        place: dict[object, int] = {axis: n for n, axis in enumerate(address.axes)}
        terms = tuple([(place[axis], c) for axis, c in address.index.terms])
        base = address.base  # of any size: a product reads parts of larger values where they lie
        self.rows.append((record, self.leaf(base), base.type.size, address.index.const, terms))

    def part(self, part: Part) -> None:
        """Enter which part of the definition entered last is meant."""
        self.rows.append((self._operand(part.operand), part.axis, part.offset))

    def leaf(self, var: Var) -> int:
        """Enter a materialized value."""
        return self.leaves.setdefault(var, len(self.leaves))

    def _operand(self, atom: Atom) -> int | tuple[object, ...]:
        if isinstance(atom, Lit):
            return atom.key()
        found = self._seen.get(atom)
        if found is None:
            if atom in self._materialized:
                found = ~self.leaf(self._alias.get(atom, atom))
            else:
                found = self.define(self._def_of[atom])
            self._seen[atom] = found
        return found


class UniqueNodes:
    """Nodes by their structures: the first of each is built, later ones are it on other values."""

    def __init__(self) -> None:
        self._first: dict[tuple[object, ...], Node] = {}

    def node(
        self, definition: Def, structure: Structure, barriers: Barriers, build: Callable[[], Node]
    ) -> Node:
        """`build()`, or what it would answer."""
        key, leaves = tuple(structure.rows), tuple(structure.leaves)
        first = self._first.get(key)
        if first is None:
            first = replace(build(), structure=len(self._first), leaves=leaves)
            self._first[key] = first
            return first
        return first.applied_to(definition.eqn, definition.outputs, leaves, barriers)


class UniqueKernels:
    """Launches of groups; groups of equal nodes that read each other alike share a kernel.

    wanted: values read outside the group that computes them, which must be stored.
    """

    def __init__(self, storage: Storage, wanted: set[Var]) -> None:
        self._storage = storage
        self._wanted = wanted
        self._known: dict[tuple[object, ...], tuple[Launch, tuple[Var, ...]]] = {}

    def launch(self, group: Group) -> Launch:
        """The launch of a group's kernel."""
        if any(node.structure is None for node in group.nodes):
            return emit(group, self._storage, self._wanted)
        numbers: dict[Var, int] = {}
        rows = []
        for node in group.nodes:
            places = [numbers.setdefault(v, len(numbers)) for v in (*node.outputs, *node.leaves)]
            stored = [v in self._wanted for v in node.outputs]
            eqn = node.eqn
            about = () if eqn is None else (eqn.op.name, eqn.where)
            rows.append((node.structure, *places, *stored, *about))
        key = (group.kind, group.size, group.inner, group.chain, *group.members.values(), *rows)
        values = tuple(numbers)
        if key not in self._known:
            self._known[key] = emit(group, self._storage, self._wanted), values
            return self._known[key][0]
        launch, before = self._known[key]
        now = dict(zip(before, values, strict=True))
        return Launch(
            launch.kernel,
            tuple([now[v] for v in launch.args]),
            tuple([now[v] for v in launch.writes]),
            launch.scalars,
            tuple([(now[result], now[operand]) for result, operand in launch.replaces]),
        )
