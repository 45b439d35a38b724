"""The Program as lowering sees it: who defines each value, by which loop record, who reads it.

Large reductions are done in two steps here (see `chunking`), and so are the gradient of attention
with few key heads (see `attention_parts`) and small products of long sums (`contraction_parts`),
because how they are divided is part of their result's bits and must not depend on fusion.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.record import record, replace
from fxad.core.types import ArrayType, array_type, array_types
from fxad.ir.loops import (
    Alias,
    Attention,
    Contract,
    Loops,
    Reduce,
    Scatter,
    Structured,
    View,
)
from fxad.ir.program import Atom, Eqn, Lit, Program, Var, params_key
from fxad.ir.rewrite import holds_programs
from fxad.lower.reduction import (
    Partial,
    accumulator,
    attention_parts,
    chunking,
    contraction_parts,
)
from fxad.lower.scatter import selected, summed

Record = Loops | Partial


class Def:
    """One or several values defined by one loop record over operands."""

    __slots__ = ("eqn", "operands", "outputs", "record")

    def __init__(
        self,
        outputs: tuple[Var, ...],
        record: Record,
        operands: tuple[Atom, ...],
        eqn: Eqn,
    ) -> None:
        self.outputs = outputs
        self.record = record
        self.operands = operands
        self.eqn = eqn


@record
class Barriers:
    """Barriers beside an equation, a bit for each: those that its operands come from behind, and
    those between its results and one of their readers.

    Work is not moved across a barrier: what recomputes a value must not join what computed it.
    """

    before: int = 0
    after: int = 0


NO_BARRIERS = Barriers()


class Graph:
    """Definitions in program order, with aliases resolved; `uses` counts reading definitions.

    barrier_operands: values that a barrier is given.
    """

    def __init__(self, program: Program) -> None:
        self.inputs: tuple[Var, ...] = (*program.consts, *program.inputs)
        self.defs: list[Def] = []
        self.def_of: dict[Atom, Def] = {}
        self.uses: dict[Atom, int] = {}
        self._same: dict[Var, Atom] = {}
        self._records: dict[tuple[object, ...] | None, Sequence[Record]] = {}
        self._scattered: dict[Atom, tuple[Scatter, tuple[Atom, ...]]] = {}  # into zeros
        self.barrier_operands: set[Atom] = set()
        for eqn in program.eqns:
            self._enter(eqn)
        self._barriers = self._find_barriers(program.eqns) if self.barrier_operands else {}
        self.outputs: tuple[Atom, ...] = tuple([self.resolve(a) for a in program.outputs])
        for atom in self.outputs:
            if isinstance(atom, Var):
                self.uses[atom] = self.uses.get(atom, 0) + 1

    def resolve(self, atom: Atom) -> Atom:
        return self._same.get(atom, atom) if isinstance(atom, Var) else atom

    def _enter(self, eqn: Eqn) -> None:
        records = self._records_of(eqn)
        operands = tuple([self.resolve(a) for a in eqn.inputs])
        if eqn.op.name == "barrier":
            self.barrier_operands.update(operands)
        if len(records) == len(eqn.outputs) and not isinstance(records[0], Structured):
            for i, (var, record) in enumerate(zip(eqn.outputs, records, strict=True)):
                if isinstance(record, Alias):
                    number = record.operand if len(records) == 1 else i
                    self._same[var] = operands[number]
                else:
                    self._define((var,), record, operands, eqn)
        else:
            self._define(eqn.outputs, records[0], operands, eqn)

    def _records_of(self, eqn: Eqn) -> Sequence[Record]:
        """What an equation's op says about its loops: the same objects for equal equations."""
        types = [a.type for a in eqn.inputs]
        key = None if holds_programs(eqn) else (eqn.op.name, *types, params_key(eqn.params))
        known = self._records.get(key)
        if known is None:
            assert eqn.op.loops is not None  # others have been decomposed
            found = eqn.op.loops(types, **eqn.params)
            known = found if isinstance(found, Sequence) else (found,)
            if key is not None:
                self._records[key] = known
        return known

    def _define(
        self,
        outputs: tuple[Var, ...],
        record: Record,
        operands: tuple[Atom, ...],
        eqn: Eqn,
    ) -> None:
        if isinstance(record, Scatter) and (constant := self._constant(operands[0])):
            if constant.value == 0:
                self._scattered[outputs[0]] = (record, operands)
            record = selected(record, operands, outputs[0].type.shape) or record
        if isinstance(record, Reduce):
            record, operands = self._picked(record, operands) or (record, operands)
        if isinstance(record, Reduce):
            first = chunking(array_type(operands[0].type), record)
            while first is not None:
                partial = Var(ArrayType(first.dtype, first.shape))
                self._append(Def((partial,), first, operands, eqn))
                operands = (partial,)
                record = first.rest
                first = chunking(array_type(partial.type), record)
        if isinstance(record, Attention) and record.backward:
            self._attention_grad(outputs, record, operands, eqn)
            return
        if isinstance(record, Contract):
            found = self._product_in_parts(record, operands, eqn)
            record, operands = found or (record, operands)
        self._append(Def(outputs, record, operands, eqn))

    def _product_in_parts(
        self, record: Contract, operands: tuple[Atom, ...], eqn: Eqn
    ) -> tuple[Record, tuple[Atom, ...]] | None:
        """Parts of a product's sums; what is left to do is to add them."""
        x, y, out = array_types(v.type for v in (*operands[:2], eqn.outputs[0]))
        parts = contraction_parts(x, y, out, record)
        if parts == 1:
            return None
        partial = Var(ArrayType(accumulator(out.dtype, "add"), (parts, *out.shape)))
        self._append(Def((partial,), replace(record, parts=parts), operands, eqn))
        return Reduce("add", (0,)), (partial,)

    def _attention_grad(
        self,
        outputs: tuple[Var, ...],
        record: Attention,
        operands: tuple[Atom, ...],
        eqn: Eqn,
    ) -> None:
        """In parts where key heads are few: each has cotangents of k and v, which are added."""
        parts = attention_parts(*array_types(a.type for a in operands[:2]))
        count = parts[0] * parts[1]
        if count == 1:
            self._append(Def(outputs, record, operands, eqn))
            return
        types = [ArrayType(v.type.dtype, (count, *v.type.shape)) for v in outputs[1:]]
        partials = [Var(t) for t in types]
        made = (outputs[0], *partials)
        self._append(Def(made, replace(record, parts=parts), operands, eqn))
        for var, partial in zip(outputs[1:], partials, strict=True):
            self._append(Def((var,), Reduce("add", (0,)), (partial,), eqn))

    def barriers(self, eqn: Eqn) -> Barriers:
        """The barriers before and after an equation."""
        return self._barriers.get(eqn, NO_BARRIERS)

    @staticmethod
    def _find_barriers(eqns: Sequence[Eqn]) -> dict[Eqn, Barriers]:
        own = {eqn: 1 << n for n, eqn in enumerate(e for e in eqns if e.op.name == "barrier")}
        before: dict[Eqn | Atom, int] = {}
        for eqn in eqns:
            bits = own.get(eqn, 0)
            for atom in eqn.inputs:
                bits |= before.get(atom, 0)
            before.update(dict.fromkeys((eqn, *eqn.outputs), bits))
        found: dict[Eqn, Barriers] = {}
        after: dict[Atom, int] = {}
        for eqn in reversed(eqns):
            bits = 0
            for var in eqn.outputs:
                bits |= after.get(var, 0)
            found[eqn] = Barriers(before[eqn], bits)
            for atom in eqn.inputs:
                after[atom] = after.get(atom, 0) | bits | own.get(eqn, 0)
        return found

    def _constant(self, atom: Atom) -> Lit | None:
        """The number that an atom is, or repeats."""
        definition = self.def_of.get(atom) if isinstance(atom, Var) else None
        if definition is not None and isinstance(definition.record, View):
            (atom, *others) = definition.operands
            return None if others else self._constant(atom)
        return atom if isinstance(atom, Lit) else None

    def _picked(
        self, record: Reduce, operands: tuple[Atom, ...]
    ) -> tuple[Record, tuple[Atom, ...]] | None:
        """A sum over the one element in each row that a scatter into zeros wrote."""
        (atom,) = operands
        definition = self.def_of.get(atom)
        negative = definition is not None and definition.eqn.op.name == "neg"
        source = definition.operands[0] if definition is not None and negative else atom
        scattered = self._scattered.get(source)
        if record.monoid != "add" or scattered is None:
            return None
        picked = summed(*scattered, atom.type.shape, record.axes, negative)
        return None if picked is None else (picked, scattered[1])

    def insert(self, definition: Def, before: Def) -> None:
        """Enter a definition that `before` needs."""
        self.defs.insert(self.defs.index(before), definition)
        self._register(definition)

    def _append(self, definition: Def) -> None:
        self.defs.append(definition)
        self._register(definition)

    def _register(self, definition: Def) -> None:
        for var in definition.outputs:
            self.def_of[var] = definition
        for atom in dict.fromkeys(definition.operands):
            if not isinstance(atom, Lit):
                self.uses[atom] = self.uses.get(atom, 0) + 1
