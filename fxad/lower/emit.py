"""Groups to kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeGuard

from fxad.ir.block import Launch
from fxad.ir.index import flat
from fxad.ir.kernel import (
    Axis,
    Contract,
    Expr,
    Get,
    Index,
    Map,
    Operand,
    Reduce,
    Scan,
    Scatter,
    Sort,
    Stage,
    Store,
    at,
)
from fxad.ir.program import Var
from fxad.lower.attention import emit_attention
from fxad.lower.build import Builder, Scope, env_over
from fxad.lower.expand import Storage
from fxad.lower.groups import Group
from fxad.lower.nodes import (
    AttendNode,
    ContractNode,
    MapNode,
    Node,
    ReduceNode,
    ScanNode,
    ScatterNode,
    SortNode,
    boundaries,
)
from fxad.lower.reduction import last_axis

SCRATCH_BYTES = 1 << 19  # longest row kept in private memory


def emit(group: Group, storage: Storage, wanted: set[Var]) -> Launch:
    """The kernel of a group; `wanted`: values read outside of it, which must be stored."""
    match group.kind:
        case "map":
            return _emit_map(group, storage, wanted)
        case "rows":
            return Rows(group, storage, wanted).emit()
        case "contract":
            return _emit_contract(group, storage, wanted)
    (node,) = group.nodes
    match node:
        case AttendNode():
            return emit_attention(node, storage)
        case ScanNode():
            return _emit_scan(node, storage)
        case SortNode():
            return _emit_sort(node, storage)
        case ScatterNode():
            return _emit_scatter(node, storage)
    raise TypeError(f"no kernel for {node!r}")


def _written(group: Group, wanted: set[Var]) -> list[Var]:
    """Values the kernel stores, in program order; at least the last one."""
    found = dict.fromkeys(v for n in group.nodes for v in n.outputs if v in wanted)
    return list(found) or [group.nodes[-1].outputs[0]]


def _store(scope: Scope, node: MapNode, env: dict[Axis, Index]) -> Store:
    move = scope.substitution(node, env)
    var = node.outputs[0]
    index = node.target
    if index is None:
        index = flat(tuple([at(a) for a in node.axes]), node.extents)
        value = scope.value(var)
    else:
        value = move(node.value)
    buffer, index = scope.builder.place(var, move.index(index), scope.grid)
    return Store(buffer, index, value)


def _emit_map(group: Group, storage: Storage, wanted: set[Var]) -> Launch:
    written = _written(group, wanted)
    builder = Builder(storage, written)
    targets = builder.targets(group.chain, 1, group.size)
    grid = [a for a, _ in targets]
    scope = Scope(builder, grid)
    nodes = [n for n in group.nodes if isinstance(n, MapNode)]
    envs = {n: env_over(n.axes, n.strides, targets) for n in nodes}
    for node in nodes:
        if node.target is None:
            scope.local[node.outputs[0]] = node, envs[node]
    stored = set(written)
    stores = [_store(scope, n, envs[n]) for n in nodes if n.outputs[0] in stored]
    return builder.launch(grid, [Map((), tuple(stores))], [n.eqn for n in nodes])


# ---------------------------------------------------------------- rows


class Rows:
    """Stages of a row kernel: by level, what can be computed per point, then the reductions over
    it, then what follows from those per row.

    A value has the level of the last reduction it depends on, plus one.
    """

    def __init__(self, group: Group, storage: Storage, wanted: set[Var]) -> None:
        self.group = group
        self.levels: dict[Node, int] = {}
        self._of = {n.outputs[0]: n for n in group.nodes}
        read_back = self._find_levels()
        written = _written(group, wanted)
        stored = set(written)
        kept = [v for v in self._of if v in read_back and v not in stored]
        written += [v for v in kept if group.inner * v.type.dtype.itemsize > SCRATCH_BYTES]
        self.builder = Builder(storage, written, read_back)
        for var in self._of:
            if var in read_back and var not in written:
                self.builder.scratch(var, group.inner)
        self.kept = set(written) | read_back
        self.targets = self.builder.targets(group.chain, group.inner, group.size)
        self.grid = [a for a, _ in self.targets]

    def _find_levels(self) -> set[Var]:
        """Levels of all nodes; answers the per-point values that are read after their own stage."""
        members = self.group.members
        back: set[Var] = set()
        for node in self.group.nodes:
            level = 0
            for var, indices in node.reads.items():
                if var not in members:
                    continue
                source = self._of[var]
                below = self.levels[source]
                if members[var] != "full":
                    below += not self._is_outer(node)
                elif isinstance(node, MapNode):
                    below += not self._is_identity(node, indices)
                level = max(level, below)
            self.levels[node] = level
            for var in node.reads:
                if members.get(var) == "full" and (
                    isinstance(node, ReduceNode) or self.levels[self._of[var]] < level
                ):
                    back.add(var)
        return back

    def _is_outer(self, node: Node) -> TypeGuard[MapNode]:
        return self.group.members.get(node.outputs[0]) == "outer"

    def _is_identity(self, node: Node, indices: Sequence[Index]) -> bool:
        point = flat(tuple([at(a) for a in node.axes]), node.extents)
        return all(i.const == 0 and dict(i.terms) == dict(point.terms) for i in indices)

    def emit(self) -> Launch:
        stages: list[Stage] = []
        for level in range(max(self.levels.values()) + 1):
            here = [n for n in self.group.nodes if self.levels[n] == level]
            maps = [n for n in here if isinstance(n, MapNode) and not self._is_outer(n)]
            stages += self._points(maps)
            stages += self._reductions([n for n in here if isinstance(n, ReduceNode)])
            stages += self._per_row([n for n in here if self._is_outer(n)])
        return self.builder.launch(self.grid, stages, [n.eqn for n in self.group.nodes])

    def _scope(self) -> Scope:
        """A stage's scope; unstored per-row values are computed where they are needed."""
        scope = Scope(self.builder, self.grid)
        for node in self.group.nodes:
            if self._is_outer(node):
                strides = [s * self.group.inner for s in node.strides]
                scope.local[node.outputs[0]] = node, env_over(node.axes, strides, self.targets)
        return scope

    def _points(self, nodes: list[MapNode]) -> list[Stage]:
        stored = [n for n in nodes if n.outputs[0] in self.kept]
        if not stored:
            return []
        inner = self.builder.targets(self.group.chain, 1, self.group.inner)
        targets = [*self.targets, *inner]
        scope = self._scope()
        envs = {n: env_over(n.axes, n.strides, targets) for n in nodes}
        for node in nodes:
            scope.local[node.outputs[0]] = node, envs[node]
        stores = [_store(scope, n, envs[n]) for n in stored]
        return [Map(tuple([a for a, _ in inner]), tuple(stores))]

    def _per_row(self, nodes: list[MapNode]) -> list[Stage]:
        stored = [n for n in nodes if n.outputs[0] in self.kept]
        if not stored:
            return []
        scope = self._scope()
        inner = self.group.inner
        stores = [
            _store(scope, n, env_over(n.axes, [s * inner for s in n.strides], self.targets))
            for n in stored
        ]
        return [Map((), tuple(stores))]

    def _reductions(self, nodes: list[ReduceNode]) -> list[Stage]:
        """Reductions alike in all but their values share a stage; then stored results."""
        stages: list[Stage] = []
        alike: dict[tuple, list[ReduceNode]] = {}
        for node in nodes:
            shape = tuple([a.extent for a in node.over if a.extent != 1])
            single = id(node) if len(node.cell_dtypes) > 1 else 0
            alike.setdefault((node.monoid, node.order, shape, single), []).append(node)
        for same in alike.values():
            stages.append(self._reduction(same))
        scope = self._scope()
        stores = []
        for node in nodes:
            var = node.outputs[0]
            if var in self.kept:
                strides = node.strides[: len(node.grid)]
                move = scope.substitution(node, env_over(node.grid, strides, self.targets))
                extents = node.extents[: len(node.grid)]
                index = flat(tuple([at(a) for a in node.grid]), extents)
                buffer, index = self.builder.place(var, move.index(index), self.grid)
                stores.append(Store(buffer, index, self.builder.cells[var]))
        return [*stages, Map((), tuple(stores))] if stores else stages

    def _reduction(self, nodes: list[ReduceNode]) -> Stage:
        chain: set[int] = set()
        for node in nodes:
            chain |= {b for b in boundaries(node) if b < self.group.inner}
            if node.order == "lanes":
                chain.add(node.over[last_axis(node.over)].extent)
        over = self.builder.targets(chain, 1, self.group.inner)
        targets = [*self.targets, *over]
        scope = self._scope()
        envs = [env_over(n.axes, n.strides, targets) for n in nodes]
        values = [scope.substitution(n, env)(n.value) for n, env in zip(nodes, envs, strict=True)]
        cells = [c for n in nodes for c in self.builder.cell(n.outputs[0], n.cell_dtypes)]
        first = nodes[0]
        axes = tuple([a for a, _ in over])
        return Reduce(axes, first.monoid, tuple(values), tuple(cells), first.order)


# ---------------------------------------------------------------- products


def _emit_contract(group: Group, storage: Storage, wanted: set[Var]) -> Launch:
    node = group.nodes[0]
    assert isinstance(node, ContractNode)
    after = [n for n in group.nodes if isinstance(n, MapNode)]
    written = _written(group, wanted)
    builder = Builder(storage, written)
    grid = [builder.axis(a.extent) for a in node.grid]
    m, n, k = (Axis(x, a.extent) for x, a in zip("mnk", (node.m, node.n, node.k), strict=True))
    named = dict(zip((*node.grid, node.m, node.n, node.k), map(at, (*grid, m, n, k)), strict=True))
    scope = Scope(builder, grid)
    move = scope.substitution(node, named)
    operands = []
    for var, index in ((node.a, node.a_index), (node.b, node.b_index)):
        buffer, place = builder.place(var, move.index(index), ())
        operands.append(Operand(buffer, place))
    (cell,) = builder.cell(node.outputs[0], (node.cell.dtype,))
    envs = {x: {a: move.index(i) for a, i in group.envs[x].items()} for x in group.nodes}
    for member in after:
        if member.target is None:
            scope.local[member.outputs[0]] = member, envs[member]
    stores = [_store(scope, x, envs[x]) for x in after if x.outputs[0] in written]
    if node.outputs[0] in written:
        stores.insert(0, _store_product(scope, node, envs[node]))
    a, b = operands
    if _strides(stores, m).count(1) > _strides(stores, n).count(1):
        a, b, m, n = b, a, n, m  # the transposed problem stores along rows
    stage = Contract(m, n, k, a, b, cell, tuple(stores), node.few)
    return builder.launch(grid, [stage], [x.eqn for x in group.nodes])


def _store_product(scope: Scope, node: ContractNode, env: dict[Axis, Index]) -> Store:
    var = node.outputs[0]
    index = scope.substitution(node, env).index(
        flat(tuple([at(a) for a in node.axes]), node.extents)
    )
    buffer, index = scope.builder.place(var, index, ())
    return Store(buffer, index, scope.builder.cells[var])


def _strides(stores: Sequence[Store], axis: Axis) -> list[int]:
    return [s.index.coefficient(axis) or 0 for s in stores]


# ---------------------------------------------------------------- scans, sorts, scatters


def _renamed(builder: Builder, axes: Sequence[Axis]) -> tuple[dict[Axis, Index], dict[Axis, Axis]]:
    new = {a: builder.axis(a.extent) for a in axes}
    return {a: at(n) for a, n in new.items()}, new


def _stores(
    builder: Builder,
    index: Index,
    values: Iterable[tuple[Var, Expr]],
) -> tuple[Store, ...]:
    return tuple([Store(*builder.place(var, index, ()), value) for var, value in values])


def _emit_scan(node: ScanNode, storage: Storage) -> Launch:
    builder = Builder(storage, node.outputs)
    env, new = _renamed(builder, node.axes)
    grid = [new[a] for a in node.axes if a is not node.axis]
    scope = Scope(builder, grid)
    move = scope.substitution(node, env)
    value = move(node.value)
    index = move.index(flat(tuple([at(a) for a in node.axes]), node.extents))
    (cell,) = builder.cell(node.outputs[0], (node.cell_dtype,))
    stores = _stores(builder, index, [(node.outputs[0], builder.cells[node.outputs[0]])])
    stage = Scan(new[node.axis], node.monoid, value, cell, stores, node.reverse)
    return builder.launch(grid, [stage], [node.eqn])


def _emit_sort(node: SortNode, storage: Storage) -> Launch:
    written = list(node.outputs)
    builder = Builder(storage, written)
    env, new = _renamed(builder, node.axes)
    grid = [new[a] for a in node.axes if a is not node.axis]
    scope = Scope(builder, grid)
    move = scope.substitution(node, env)
    operands = tuple([move(x) for x in node.operands])
    largest = None if node.largest is None else builder.axis(node.largest)
    stored = new if largest is None else {**new, node.axis: largest}
    axes = [stored[a] for a in node.axes]
    index = flat(tuple(map(at, axes)), tuple([a.extent for a in axes]))
    cells = [builder.cell(v, (v.type.dtype,))[0] for v in written]
    stores = _stores(builder, index, zip(written, map(Get, cells), strict=True))
    stage = Sort(new[node.axis], node.keys, operands, tuple(cells), stores, largest)
    return builder.launch(grid, [stage], [node.eqn])


def _emit_scatter(node: ScatterNode, storage: Storage) -> Launch:
    var = node.outputs[0]
    builder = Builder(storage, [var], [var])
    env, new = _renamed(builder, node.axes)
    over = tuple([new[a] for a in node.over])
    grid = [a for a in new.values() if a not in over]
    scope = Scope(builder, grid)
    move = scope.substitution(node, env)
    value = move(node.value)
    guard = None if node.guard is None else move(node.guard)
    buffer, index = builder.place(var, move.index(node.target), ())
    stage = Scatter(over, node.monoid, Store(buffer, index, value, guard))
    return builder.launch(grid, [stage], [node.eqn], ((var, node.base),))
