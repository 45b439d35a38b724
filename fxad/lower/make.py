"""Stored values to nodes: the expression each is computed by, and the axes it runs over."""

from __future__ import annotations

from fxad.ir.index import Point, Substitution, axes_for, flat, strides_of
from fxad.ir.kernel import INDEX, Cast, Expr, IndexValue, Load, Prim, at
from fxad.ir.loops import (
    Attention,
    Contraction,
    Cumulative,
    HostCall,
    Reduction,
    Scattering,
    Sorting,
    Structured,
)
from fxad.ir.program import Atom, Eqn, Var
from fxad.lower import attention
from fxad.lower.contraction import Address, contract_node
from fxad.lower.expand import Expander, Storage, flat_identity, zero
from fxad.lower.forms import Form, Nodes
from fxad.lower.graph import Def, Graph
from fxad.lower.nodes import (
    MapNode,
    Node,
    OpaqueNode,
    ReduceNode,
    ScanNode,
    ScatterNode,
    SortNode,
)
from fxad.lower.parts import Part, parts_of
from fxad.lower.reduction import Partial, accumulator, identity, last_axis, loops_of, order_of
from fxad.lower.refine import collected, refined
from fxad.lower.stored import Choice


class Maker:
    """Makes the nodes of one Block; `choice` says which values are stored."""

    def __init__(self, graph: Graph, choice: Choice, storage: Storage) -> None:
        self.graph = graph
        self.stored = choice.stored
        self.addresses = choice.addresses
        self.storage = storage
        self.nodes: list[Node] = []
        self._literals: dict[tuple, Var] = {}
        self._nodes = Nodes()

    def make(self) -> list[Node]:
        """Nodes of all stored values, and of what has effects, in program order. Values that are
        another stored value's bytes get no node but an entry in `storage.alias`."""
        for definition in self.graph.defs:
            needed = any(v in self.stored and v.type.size for v in definition.outputs)
            if needed or definition.eqn.effects:
                made = self._make(definition)
                for node in made:
                    node.passed = definition.passed
                    node.awaited = self.graph.awaited_by(definition.eqn)
                self.nodes += made
        return self.nodes

    def bytes_of(self, atom: Atom, eqn: Eqn | None) -> Var:
        """The stored value that holds an atom's bytes; numbers get memory here."""
        if isinstance(atom, Var):
            return self.storage.alias.get(atom, atom)
        found = self._literals.get(atom.key())
        if found is None:
            found = self._literals[atom.key()] = Var(atom.type)
            self.stored[found] = None
            self.nodes.append(self._filled(found, self.storage.literal(atom), eqn))
        return found

    def _expander(self) -> Expander:
        return Expander(self.graph, self.stored, self.storage)

    def _form(self) -> Form:
        return Form(self.graph.def_of, self.stored, self.storage.alias)

    def _make(self, definition: Def) -> list[Node]:
        match definition.record:
            case Contraction() as record:
                return [self._contract(definition, record)]
            case Reduction() | Partial() as record:
                return [self._reduce(definition, record)]
            case Attention() as record:
                return [self._attend(definition, record)]
            case Cumulative() as record:
                return [self._scan(definition, record)]
            case Sorting() as record:
                return [self._sort(definition, record)]
            case Scattering() as record:
                return [self._scatter(definition, record)]
            case Structured() | HostCall() as record:
                eqn = definition.eqn
                operands = tuple([self.bytes_of(a, eqn) for a in definition.operands])
                node = OpaqueNode(eqn, definition.outputs, (), operands, record)
                node.reads.update((v, []) for v in operands)
                return [node]
            case _:
                return self._map(definition)

    def _filled(self, var: Var, value: Expr, eqn: Eqn | None) -> MapNode:
        """Every element is `value`."""
        return MapNode(eqn, (var,), axes_for(var.type.shape), value)

    # ------------------------------------------------------------ elementwise values

    def _map(self, definition: Def) -> list[Node]:
        var = definition.outputs[0]
        parts = parts_of(self.graph, self.stored, definition)
        if parts:
            return [self._part(definition, part) for part in parts]

        def build(point: Point) -> list[Expr]:
            return [self._expander().define(definition, point)]

        def make() -> MapNode:
            body = refined(axes_for(var.type.shape), build)
            node = MapNode(definition.eqn, (var,), body.axes, body.values[0])
            node.collect(self.storage.values, body)
            return node

        form = self._form()
        form.define(definition)
        node = self._nodes.node(definition, form, make)
        return [] if self._is_alias(node, node.value) else [node]

    def _is_alias(self, node: MapNode, value: Expr) -> bool:
        """Whether the value is another one's bytes; then no kernel is needed."""
        var = node.outputs[0]
        if type(value) is not Load or value.guard is not None:
            return False
        source = node.sources[value.buffer]
        same = source.type.size == var.type.size and source.type.dtype == var.type.dtype
        if not same or not flat_identity(value.index, node.axes, node.strides):
            return False
        self.storage.alias[var] = source
        return True

    def _part(self, definition: Def, part: Part) -> Node:
        """A part of a value, written into its place."""
        var, axis = definition.outputs[0], part.axis

        def build(point: Point) -> list[Expr]:
            place = (*point[:axis], point[axis] + part.offset, *point[axis + 1 :])
            position = IndexValue(flat(place, var.type.shape), INDEX)
            return [part.wrap(self._expander().at(part.operand, point)), position]

        def make() -> MapNode:
            body = refined(axes_for(part.operand.type.shape), build)
            value, target = body.values
            assert isinstance(target, IndexValue)
            node = MapNode(definition.eqn, (var,), body.axes, value, target.index)
            node.collect(self.storage.values, body)
            return node

        form = self._form()
        form.define(definition)
        form.part(part)
        return self._nodes.node(definition, form, make)

    # ------------------------------------------------------------ reductions and products

    def _contract(self, definition: Def, record: Contraction) -> Node:
        a, b = (
            Address(self.bytes_of(x.base, definition.eqn), x.index, x.axes)
            for x in self.addresses[definition]
        )
        if 0 in [a.axes[i].extent for i in record.contract[0]]:
            var = definition.outputs[0]
            return self._filled(var, zero(var.type.dtype), definition.eqn)
        form = self._form()
        form.address(record, a)
        form.address(record, b)
        return self._nodes.node(definition, form, lambda: contract_node(definition, record, a, b))

    def _reduce(self, definition: Def, record: Reduction | Partial) -> Node:
        form = self._form()
        form.define(definition)
        return self._nodes.node(definition, form, lambda: self._reduced(definition, record))

    def _reduced(self, definition: Def, record: Reduction | Partial) -> Node:
        operand = definition.operands[0]
        var, shape = definition.outputs[0], operand.type.shape
        dtype = accumulator(operand.type.dtype, record.monoid)
        if not record.axes or 0 in [shape[a] for a in record.axes]:
            return self._nothing_to_reduce(definition, record)
        loops = loops_of(shape, record)
        order = order_of(shape, record.axes)
        old = (*loops.grid, *loops.over)

        def build(point: Point) -> list[Expr]:
            move = Substitution(dict(zip(old, point, strict=True)))
            guard = None if loops.guard is None else move(loops.guard)
            where = tuple([move.index(i) for i in loops.point])
            value = self._expander().at(operand, where, guard)
            value = value if value.dtype == dtype else Cast(value, dtype)
            if guard is not None:
                value = Prim("select", (guard, value, identity(record.monoid, dtype)), dtype)
            return [value]

        body = refined(old, build, last_axis(old) if order == "lanes" else None)
        count = sum(len(part) for part in body.parts[: len(loops.grid)])
        strides = strides_of(tuple([a.extent for a in old]))
        natural = loops.guard is None and flat_identity(flat(loops.point, shape), old, strides)
        node = ReduceNode(
            definition.eqn,
            (var,),
            body.axes,
            body.axes[count:],
            record.monoid,
            body.values[0],
            order,
            (dtype, INDEX) if record.monoid.startswith("arg") else (dtype,),
            natural,
            (shape, tuple(record.axes), type(record)),
        )
        node.collect(self.storage.values, body)
        return node

    def _nothing_to_reduce(self, definition: Def, record: Reduction | Partial) -> Node:
        """No axes: the operand itself. Axes of length 0: the identity."""
        operand, var = definition.operands[0], definition.outputs[0]

        def build(point: Point) -> list[Expr]:
            if record.axes:
                return [identity(record.monoid, var.type.dtype)]
            value = self._expander().at(operand, point)
            return [value if value.dtype == var.type.dtype else Cast(value, var.type.dtype)]

        body = refined(axes_for(var.type.shape), build)
        node = MapNode(definition.eqn, (var,), body.axes, body.values[0])
        node.collect(self.storage.values, body)
        return node

    def _attend(self, definition: Def, record: Attention) -> Node:
        eqn = definition.eqn
        found = [
            Address(self.bytes_of(x.base, eqn), x.index, x.axes) for x in self.addresses[definition]
        ]
        rows = definition.operands[attention.LSE : attention.D_OUT] if record.backward else ()
        others = [self.bytes_of(x, eqn) for x in rows]

        def make() -> Node:
            read = self._expander().reader(definition.operands)
            return attention.attend_node(definition, record, found, others, read, self.storage)

        form = self._form()
        form.define(definition)
        for address in found:
            form.address(record, address)
        for other in others:
            form.value(other)
        return self._nodes.node(definition, form, make)

    # ------------------------------------------------------------ scans, sorts, scatters

    def _scan(self, definition: Def, record: Cumulative) -> Node:
        operand = definition.operands[0]
        axes = axes_for(operand.type.shape)
        dtype = accumulator(operand.type.dtype, record.monoid)
        body = refined(axes, lambda p: [self._expander().at(operand, p)], record.axis)
        value = body.values[0]
        value = value if value.dtype == dtype else Cast(value, dtype)
        ((axis,),) = [body.parts[record.axis]]
        node = ScanNode(
            definition.eqn,
            definition.outputs,
            body.axes,
            axis,
            record.monoid,
            value,
            record.reverse,
            dtype,
        )
        node.collect(self.storage.values, body)
        return node

    def _sort(self, definition: Def, record: Sorting) -> Node:
        axes = axes_for(definition.operands[0].type.shape)

        def build(point: Point) -> list[Expr]:
            expander = self._expander()
            return [expander.at(x, point) for x in definition.operands]

        body = refined(axes, build, record.axis)
        ((axis,),) = [body.parts[record.axis]]
        node = SortNode(
            definition.eqn,
            definition.outputs,
            body.axes,
            axis,
            record.keys,
            tuple(body.values),
            record.largest,
        )
        node.collect(self.storage.values, body)
        return node

    def _scatter(self, definition: Def, record: Scattering) -> Node:
        var = definition.outputs[0]
        update = definition.operands[record.update]
        axes = axes_for(update.type.shape)
        point = tuple([at(a) for a in axes])
        expander = self._expander()
        target, guard = record.target(point, expander.reader(definition.operands))
        value = expander.at(update, point)
        index = flat(target, var.type.shape)
        roots = [value, IndexValue(index, INDEX)]
        body = collected(((a,) for a in axes), roots if guard is None else [*roots, guard])
        serial = tuple([axes[a] for a in record.serial])
        parallel = tuple([a for a in axes if a not in serial])
        base = self.bytes_of(definition.operands[0], definition.eqn)
        node = ScatterNode(
            definition.eqn,
            (var,),
            (*parallel, *serial),
            base,
            serial,
            record.monoid,
            index,
            value,
            guard,
        )
        node.collect(self.storage.values, body)
        node.reads.setdefault(base, [])
        return node
