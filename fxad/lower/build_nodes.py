"""Materialized values to nodes: the expression each is computed by, and the axes it runs over."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from fxad.ir import loops
from fxad.ir.block import Block
from fxad.ir.index import Point, Substitution, axes_for, flat, strides_of
from fxad.ir.kernel import (
    INDEX,
    Axis,
    Cast,
    Expr,
    Get,
    Index,
    IndexValue,
    Load,
    Map,
    Operand,
    Packed,
    Prim,
    Reduce,
    Scan,
    Scatter,
    Sort,
    Stage,
    Store,
    Unpack,
    at,
    operands_of,
    stores_of,
)
from fxad.ir.program import Atom, Eqn, Program, Var
from fxad.lower import attention
from fxad.lower.contraction import Address, contract_stage
from fxad.lower.control import step_of
from fxad.lower.deduplicate import Structure, UniqueNodes
from fxad.lower.expand import Expander, Storage, flat_identity, zero
from fxad.lower.graph import Def, Graph
from fxad.lower.materialize import Materialization
from fxad.lower.nodes import Node, cells
from fxad.lower.parts import Part, parts_of
from fxad.lower.reduction import Partial, accumulator, identity, last_axis, loops_of, order_of
from fxad.lower.split_axes import Body, collected, over_split_axes

NOTHING = Body((), [], [], [], 0)  # what no expressions are made of


class NodeBuilder:
    """Builds the nodes of one Block; `chosen` says which values are materialized. lower: what
    control flow holds."""

    def __init__(
        self,
        graph: Graph,
        chosen: Materialization,
        storage: Storage,
        lower: Callable[[Program], Block],
    ) -> None:
        self.graph = graph
        self.materialized = chosen.values
        self.addresses = chosen.addresses
        self.storage = storage
        self.lower = lower
        self.nodes: list[Node] = []
        self._literals: dict[tuple[object, ...], Var] = {}
        self._nodes = UniqueNodes()

    def build(self) -> list[Node]:
        """Nodes of all materialized values, and of what has effects, in program order. Values that
        are another materialized value's bytes get no node but an entry in `storage.alias`."""
        for definition in self.graph.defs:
            needed = any(v in self.materialized and v.type.size for v in definition.outputs)
            if needed or definition.eqn.effects:
                self.nodes += self._build(definition)
        return self.nodes

    def bytes_of(self, atom: Atom, eqn: Eqn | None) -> Var:
        """The materialized value that holds an atom's bytes; numbers get memory here."""
        if isinstance(atom, Var):
            return self.storage.alias.get(atom, atom)
        found = self._literals.get(atom.key())
        if found is None:
            found = self._literals[atom.key()] = Var(atom.type)
            self.materialized[found] = None
            self.nodes.append(self._filled(found, self.storage.literal(atom), eqn))
        return found

    def _expander(self) -> Expander:
        return Expander(self.graph, self.materialized, self.storage)

    def _structure(self) -> Structure:
        return Structure(self.graph.def_of, self.materialized, self.storage.alias)

    def _build(self, definition: Def) -> list[Node]:
        match definition.record:
            case loops.Contract() as record:
                return [self._contract(definition, record)]
            case loops.Reduce() | Partial() as record:
                return [self._reduce(definition, record)]
            case loops.Unpack() as record:
                return [self._unpack(definition, record)]
            case loops.Attention() as record:
                return [self._attention(definition, record)]
            case loops.Scan() as record:
                return [self._scan(definition, record)]
            case loops.Sort() as record:
                return [self._sort(definition, record)]
            case loops.Scatter() as record:
                return [self._scatter(definition, record)]
            case loops.Structured() | loops.HostCall():
                return [self._step(definition)]
            case _:
                return self._map(definition)

    def _node(
        self,
        definition: Def,
        stage: Stage,
        axes: tuple[Axis, ...],
        body: Body,
        space: Hashable = None,
        replaces: tuple[tuple[Var, Var], ...] = (),
    ) -> Node:
        """A node of a stage; body: what its expressions are made of."""
        values = self.storage.values
        matrices = [(values[x.buffer], x) for x in operands_of(stage)]
        reads: dict[Var, list[Index]] = {}
        for var, operand in matrices:
            if var not in definition.outputs:
                reads.setdefault(var, []).append(operand.index)
        for load in body.loads:
            reads.setdefault(values[load.buffer], []).append(load.index)
        for _, base in replaces:
            reads.setdefault(base, [])
        buffers = [operand.buffer for operand in operands_of(stage)]
        buffers += [store.buffer for store in stores_of(stage)]
        buffers += [load.buffer for load in body.loads]
        return Node(
            definition.eqn,
            definition.outputs,
            stage,
            axes,
            {buffer: values[buffer] for buffer in buffers},
            reads,
            body.indices,
            body.depth,
            space,
            replaces,
            self.graph.barriers(definition.eqn),
        )

    def _deduplicated(
        self, definition: Def, structure: Structure, build: Callable[[], Node]
    ) -> Node:
        return self._nodes.node(definition, structure, self.graph.barriers(definition.eqn), build)

    def _store(self, var: Var, axes: Sequence[Axis], value: Expr) -> Store:
        """A value's element at the point of the axes, which together are its own."""
        index = flat(tuple([at(a) for a in axes]), tuple([a.extent for a in axes]))
        return Store(self.storage.buffer(var), index, value)

    def _filled(self, var: Var, value: Expr, eqn: Eqn | None) -> Node:
        """Every element is `value`."""
        axes = axes_for(var.type.shape)
        store = self._store(var, axes, value)
        return Node(eqn, (var,), Map(axes, (store,)), axes, {store.buffer: var}, {})

    def _step(self, definition: Def) -> Node:
        """Control flow or a host call."""
        eqn, outputs = definition.eqn, definition.outputs
        operands = tuple([self.bytes_of(a, eqn) for a in definition.operands])
        step = step_of(definition, operands, self.lower)
        reads: dict[Var, list[Index]] = {v: [] for v in operands}
        return Node(eqn, outputs, step, (), {}, reads, barriers=self.graph.barriers(eqn))

    # ------------------------------------------------------------ elementwise values

    def _map(self, definition: Def) -> list[Node]:
        var = definition.outputs[0]
        parts = parts_of(self.graph, self.materialized, definition)
        if parts:
            return [self._part(definition, part) for part in parts]

        def build(point: Point) -> list[Expr]:
            return [self._expander().define(definition, point)]

        def node() -> Node:
            return self._whole(definition, over_split_axes(axes_for(var.type.shape), build))

        structure = self._structure()
        structure.define(definition)
        found = self._deduplicated(definition, structure, node)
        return [] if self._is_alias(found) else [found]

    def _whole(self, definition: Def, body: Body) -> Node:
        """A map of all elements of a value."""
        store = self._store(definition.outputs[0], body.axes, body.values[0])
        return self._node(definition, Map(body.axes, (store,)), body.axes, body)

    def _is_alias(self, node: Node) -> bool:
        """Whether the value is another one's bytes; then no kernel is needed."""
        var, value = node.outputs[0], node.store.value
        if type(value) is not Load or value.guard is not None:
            return False
        source = node.values[value.buffer]
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

        def node() -> Node:
            body = over_split_axes(axes_for(part.operand.type.shape), build)
            value, target = body.values
            assert isinstance(target, IndexValue)
            store = Store(self.storage.buffer(var), target.index, value)
            return self._node(definition, Map(body.axes, (store,)), body.axes, body)

        structure = self._structure()
        structure.define(definition)
        structure.part(part)
        return self._deduplicated(definition, structure, node)

    # ------------------------------------------------------------ reductions and products

    def _contract(self, definition: Def, record: loops.Contract) -> Node:
        a, b = (
            Address(self.bytes_of(x.base, definition.eqn), x.index, x.axes)
            for x in self.addresses[definition]
        )
        if 0 in [a.axes[i].extent for i in record.contract[0]]:
            var = definition.outputs[0]
            return self._filled(var, zero(var.type.dtype), definition.eqn)
        structure = self._structure()
        structure.address(record, a)
        structure.address(record, b)

        def node() -> Node:
            return self._node(
                definition, *contract_stage(definition, record, a, b, self.storage), NOTHING
            )

        return self._deduplicated(definition, structure, node)

    def _reduce(self, definition: Def, record: loops.Reduce | Partial) -> Node:
        structure = self._structure()
        structure.define(definition)
        return self._deduplicated(definition, structure, lambda: self._reduced(definition, record))

    def _reduced(self, definition: Def, record: loops.Reduce | Partial) -> Node:
        operand = definition.operands[0]
        shape = operand.type.shape
        dtype = accumulator(operand.type.dtype, record.monoid)
        if not record.axes or 0 in [shape[a] for a in record.axes]:
            return self._nothing_to_reduce(definition, record)
        nest = loops_of(shape, record)
        order = order_of(shape, record.axes)
        old = (*nest.grid, *nest.over)

        def build(point: Point) -> list[Expr]:
            move = Substitution(dict(zip(old, point, strict=True)))
            guard = None if nest.guard is None else move(nest.guard)
            where = tuple([move.index(i) for i in nest.point])
            value = self._expander().at(operand, where, guard)
            value = _cast(value, dtype)
            if guard is not None:
                value = Prim("select", (guard, value, identity(record.monoid, dtype)), dtype)
            return [value]

        body = over_split_axes(old, build, last_axis(old) if order == "lanes" else None)
        count = sum(len(part) for part in body.parts[: len(nest.grid)])
        strides = strides_of(tuple([a.extent for a in old]))
        natural = nest.guard is None and flat_identity(flat(nest.point, shape), old, strides)
        dtypes = [dtype, INDEX] if record.monoid.startswith("arg") else [dtype]
        over, values = body.axes[count:], tuple(body.values)
        stage = Reduce(over, record.monoid, values, cells(0, dtypes), order)
        space = None if natural else (shape, tuple(record.axes), type(record))
        return self._node(definition, stage, body.axes, body, space)

    def _nothing_to_reduce(self, definition: Def, record: loops.Reduce | Partial) -> Node:
        """No axes: the operand itself. Axes of length 0: the identity."""
        operand, var = definition.operands[0], definition.outputs[0]

        def build(point: Point) -> list[Expr]:
            if record.axes:
                return [identity(record.monoid, var.type.dtype)]
            return [_cast(self._expander().at(operand, point), var.type.dtype)]

        return self._whole(definition, over_split_axes(axes_for(var.type.shape), build))

    def _unpack(self, definition: Def, record: loops.Unpack) -> Node:
        operands = [self.bytes_of(a, definition.eqn) for a in definition.operands]

        def node() -> Node:
            (var,) = definition.outputs
            axes = axes_for(var.type.shape)
            codes, scales = map(self.storage.buffer, operands)
            packed = Packed(record.format, record.columns, var.type.dtype, scales)
            index = flat(tuple([at(a) for a in axes]), var.type.shape)
            source = Operand(codes, index, packed=packed)
            stage = Unpack(axes[1], source, Operand(self.storage.buffer(var), index))
            return self._node(definition, stage, axes, NOTHING)

        structure = self._structure()
        structure.rows.append((record, *map(structure.leaf, operands)))
        return self._deduplicated(definition, structure, node)

    def _attention(self, definition: Def, record: loops.Attention) -> Node:
        eqn = definition.eqn
        found = [
            Address(self.bytes_of(x.base, eqn), x.index, x.axes) for x in self.addresses[definition]
        ]
        rows = definition.operands[attention.LSE : attention.D_OUT] if record.backward else ()
        others = [self.bytes_of(x, eqn) for x in rows]

        def node() -> Node:
            read = self._expander().reader(definition.operands)
            stage, body = attention.attention_stage(
                definition, record, found, others, read, self.storage
            )
            return self._node(definition, stage, body.axes, body)

        structure = self._structure()
        structure.define(definition)
        for address in found:
            structure.address(record, address)
        for other in others:
            structure.leaf(other)
        return self._deduplicated(definition, structure, node)

    # ------------------------------------------------------------ scans, sorts, scatters

    def _scan(self, definition: Def, record: loops.Scan) -> Node:
        operand, var = definition.operands[0], definition.outputs[0]
        axes = axes_for(operand.type.shape)
        dtype = accumulator(operand.type.dtype, record.monoid)
        body = over_split_axes(axes, lambda p: [self._expander().at(operand, p)], record.axis)
        value = _cast(body.values[0], dtype)
        ((axis,),) = [body.parts[record.axis]]
        (cell,) = cells(0, [dtype])
        store = self._store(var, body.axes, _cast(Get(cell), var.type.dtype))
        stage = Scan(axis, record.monoid, value, cell, (store,), record.reverse)
        return self._node(definition, stage, body.axes, body)

    def _sort(self, definition: Def, record: loops.Sort) -> Node:
        def build(point: Point) -> list[Expr]:
            expander = self._expander()
            return [expander.at(x, point) for x in definition.operands]

        body = over_split_axes(axes_for(definition.operands[0].type.shape), build, record.axis)
        ((axis,),) = [body.parts[record.axis]]
        axes = body.axes
        largest, stored = None, axes
        if record.largest is not None:
            largest = Axis("", record.largest)
            stored = tuple([largest if a is axis else a for a in axes])
            axes = (*axes, largest)
        found = [cells(n, [v.type.dtype])[0] for n, v in enumerate(definition.outputs)]
        stores = [
            self._store(v, stored, Get(c)) for v, c in zip(definition.outputs, found, strict=True)
        ]
        operands = tuple(body.values)
        stage = Sort(axis, record.keys, operands, tuple(found), tuple(stores), largest)
        return self._node(definition, stage, axes, body)

    def _scatter(self, definition: Def, record: loops.Scatter) -> Node:
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
        store = Store(self.storage.buffer(var), index, value, guard)
        stage = Scatter(serial, record.monoid, store)
        replaces = ((var, base),)
        return self._node(definition, stage, (*parallel, *serial), body, replaces=replaces)


def _cast(value: Expr, dtype: np.dtype) -> Expr:
    return value if value.dtype == dtype else Cast(value, dtype)
