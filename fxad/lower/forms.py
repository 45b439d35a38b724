"""What equal parts of a program have in common, so that they are lowered once.

Layers of a model are the same equations on other values. The *form* of a stored value is how it is
computed, with numbers for the stored values it reads. Values of one form share the expressions of
one node, and groups of such nodes share a kernel:

    h = gelu(dot(x, w)); h2 = gelu(dot(h, w2))      one kernel, launched twice

A form holds everything that expressions are made from: loop records by identity (`Graph` has one
for all equations of an op with equal parameters and operand types) and literals by value.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, TypeVar

from fxad.ir.block import Launch
from fxad.ir.program import Atom, Lit, Var
from fxad.lower.contraction import Address
from fxad.lower.emit import emit
from fxad.lower.expand import Storage
from fxad.lower.graph import Def
from fxad.lower.groups import Group
from fxad.lower.nodes import Node
from fxad.lower.parts import Part

N = TypeVar("N", bound=Node)


class Form:
    """Collects the form of one node.

    rows: (record, operands) of every definition that is inlined, operands before readers; an
    operand is the number of a row, ~n for the n-th of `values`, or a literal's key.
    """

    def __init__(
        self, def_of: Mapping[Atom, Def], stored: Container[Atom], alias: Mapping[Var, Var]
    ) -> None:
        self.rows: list[tuple] = []
        self.values: dict[Var, int] = {}
        self._def_of = def_of
        self._stored = stored
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
        self.rows.append((record, self.value(base), base.type.size, address.index.const, terms))

    def part(self, part: Part) -> None:
        """Enter which part of the definition entered last is meant."""
        self.rows.append((self._operand(part.operand), part.axis, part.offset))

    def value(self, var: Var) -> int:
        """Enter a stored value."""
        return self.values.setdefault(var, len(self.values))

    def _operand(self, atom: Atom) -> int | tuple:
        if isinstance(atom, Lit):
            return atom.key()
        found = self._seen.get(atom)
        if found is None:
            if atom in self._stored:
                found = ~self.value(self._alias.get(atom, atom))
            else:
                found = self.define(self._def_of[atom])
            self._seen[atom] = found
        return found


class Nodes:
    """Nodes by their forms: the first of each is made, later ones are copies on other values."""

    def __init__(self) -> None:
        self._first: dict[tuple, Node] = {}

    def node(self, definition: Def, form: Form, make: Callable[[], N]) -> N:
        """`make()`, or what it would answer."""
        key, values = tuple(form.rows), tuple(form.values)
        first: Any = self._first.get(key)
        if first is None:
            number = len(self._first)
            first = self._first[key] = make()
            first.form, first.values = number, values
            return first
        again: N = first.again(definition.eqn, definition.outputs, values)
        return again


class Kernels:
    """Launches of groups; groups of equal nodes that read each other alike share a kernel.

    wanted: values read outside the group that computes them, which must be stored.
    """

    def __init__(self, storage: Storage, wanted: set[Var]) -> None:
        self._storage = storage
        self._wanted = wanted
        self._known: dict[tuple, tuple[Launch, tuple[Var, ...]]] = {}

    def launch(self, group: Group) -> Launch:
        """The launch of a group's kernel."""
        if any(node.form is None for node in group.nodes):
            return emit(group, self._storage, self._wanted)
        numbers: dict[Var, int] = {}
        rows = []
        for node in group.nodes:
            places = [numbers.setdefault(v, len(numbers)) for v in (*node.outputs, *node.values)]
            stored = [v in self._wanted for v in node.outputs]
            rows.append((node.form, *places, *stored, node.eqn.op.name, node.eqn.where))
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
