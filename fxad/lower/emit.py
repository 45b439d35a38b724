"""The last step of lowering: each group of nodes becomes one Kernel, and a Launch of it.

By the group's kind:

    map        one stage, a store for each value that is read outside
    rows       a stage for each level of values and reductions, over the rows of a grid
    contract   a product's stage, whose stores are what follows it: its epilogue
    any other  the stage of its only node
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fxad.core.record import replace
from fxad.ir import heuristics
from fxad.ir.block import Launch
from fxad.ir.index import Substitution, flat
from fxad.ir.kernel import Axis, Cell, Contract, Expr, Index, Map, Reduce, Stage, Store, at
from fxad.ir.program import Var
from fxad.lower.build_kernel import KernelBuilder, Scope, env_over
from fxad.lower.expand import Storage
from fxad.lower.groups import Group
from fxad.lower.nodes import Node, boundaries, grid_of
from fxad.lower.reduction import last_axis


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
    return _emit_alone(node, storage)


def _written(group: Group, wanted: set[Var]) -> list[Var]:
    """Values the kernel stores, in program order; at least the last one."""
    found = dict.fromkeys(v for n in group.nodes for v in n.outputs if v in wanted)
    return list(found) or [group.nodes[-1].outputs[0]]


def _store(scope: Scope, node: Node, env: Mapping[Axis, Index]) -> Store:
    """What a map stores."""
    move, var = scope.substitution(node, env), node.outputs[0]
    value = move(node.store.value) if node.is_part else scope.value(var)
    return Store(*scope.builder.place(var, move.index(node.store.index), scope.grid), value)


def _emit_map(group: Group, storage: Storage, wanted: set[Var]) -> Launch:
    written = _written(group, wanted)
    builder = KernelBuilder(storage, written)
    targets = builder.targets(group.chain, 1, group.size)
    grid = [a for a, _ in targets]
    scope = Scope(builder, grid)
    envs = {n: env_over(n.axes, n.strides, targets) for n in group.nodes}
    for node in group.nodes:
        if not node.is_part:
            scope.local[node.outputs[0]] = node, envs[node]
    stored = set(written)
    stores = [_store(scope, n, envs[n]) for n in group.nodes if n.outputs[0] in stored]
    return builder.launch(grid, [Map((), tuple(stores))], [n.eqn for n in group.nodes])


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
        written += [
            v for v in kept if group.inner * v.type.dtype.itemsize > heuristics.SCRATCH_BYTES
        ]
        self.builder = KernelBuilder(storage, written, read_back)
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
                elif isinstance(node.stage, Map):
                    below += not _is_identity(node, indices)
                level = max(level, below)
            self.levels[node] = level
            for var in node.reads:
                if members.get(var) == "full" and (
                    isinstance(node.stage, Reduce) or self.levels[self._of[var]] < level
                ):
                    back.add(var)
        return back

    def _is_outer(self, node: Node) -> bool:
        return self.group.members.get(node.outputs[0]) == "outer"

    def emit(self) -> Launch:
        stages: list[Stage] = []
        for level in range(max(self.levels.values()) + 1):
            here = [n for n in self.group.nodes if self.levels[n] == level]
            maps = [n for n in here if isinstance(n.stage, Map) and not self._is_outer(n)]
            stages += self._points(maps)
            stages += self._reductions([n for n in here if isinstance(n.stage, Reduce)])
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

    def _points(self, nodes: list[Node]) -> list[Stage]:
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

    def _per_row(self, nodes: list[Node]) -> list[Stage]:
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

    def _reductions(self, nodes: list[Node]) -> list[Stage]:
        """Reductions alike in all but their values share a stage; then stored results."""
        alike: dict[tuple[object, ...], list[Node]] = {}
        for node in nodes:
            stage = _reduce(node)
            shape = tuple([a.extent for a in stage.over if a.extent != 1])
            single = id(node) if len(stage.cells) > 1 else 0
            alike.setdefault((stage.monoid, stage.order, shape, single), []).append(node)
        stages: list[Stage] = [self._reduction(same) for same in alike.values()]
        scope = self._scope()
        stores = []
        for node in nodes:
            var, kept = node.outputs[0], grid_of(node)
            if var in self.kept:
                env = env_over(kept, node.strides[: len(kept)], self.targets)
                index = flat(tuple([at(a) for a in kept]), tuple([a.extent for a in kept]))
                index = scope.substitution(node, env).index(index)
                place = self.builder.place(var, index, self.grid)
                stores.append(Store(*place, self.builder.cells[var]))
        return [*stages, Map((), tuple(stores))] if stores else stages

    def _reduction(self, nodes: list[Node]) -> Reduce:
        first = _reduce(nodes[0])
        chain: set[int] = set()
        for node in nodes:
            chain |= {b for b in boundaries(node) if b < self.group.inner}
            if first.order == "lanes":
                over = _reduce(node).over
                chain.add(over[last_axis(over)].extent)
        inner = self.builder.targets(chain, 1, self.group.inner)
        targets = [*self.targets, *inner]
        scope = self._scope()
        values: list[Expr] = []
        cells: list[Cell] = []
        for node in nodes:
            env = env_over(node.axes, node.strides, targets)
            values += map(scope.substitution(node, env), _reduce(node).values)
        for node in nodes:
            dtypes = [c.dtype for c in _reduce(node).cells]
            cells += self.builder.cell(node.outputs[0], dtypes)
        axes = tuple([a for a, _ in inner])
        return Reduce(axes, first.monoid, tuple(values), tuple(cells), first.order)


def _reduce(node: Node) -> Reduce:
    assert isinstance(node.stage, Reduce)
    return node.stage


def _is_identity(node: Node, indices: Sequence[Index]) -> bool:
    """Whether a map reads a value at its own point."""
    point = node.store.index
    return all(i.const == 0 and dict(i.terms) == dict(point.terms) for i in indices)


# ---------------------------------------------------------------- products


def _emit_contract(group: Group, storage: Storage, wanted: set[Var]) -> Launch:
    product, *after = group.nodes
    written = _written(group, wanted)
    builder = KernelBuilder(storage, written)
    axes, grid = _renamed(builder, product)
    scope = Scope(builder, grid)
    stage = scope.stage(product, axes, without_stores=True)
    assert isinstance(stage, Contract)
    point = {old: at(new) for old, new in axes.items()}
    move = Substitution(point)
    envs = {x: {a: move.index(i) for a, i in group.envs[x].items()} for x in after}
    envs[product] = point
    for node in group.nodes:
        if not node.is_part:
            scope.local[node.outputs[0]] = node, envs[node]
    stores = tuple([_store(scope, x, envs[x]) for x in group.nodes if x.outputs[0] in written])
    a, b, m, n = stage.a, stage.b, stage.m, stage.n
    if _strides(stores, m).count(1) > _strides(stores, n).count(1):
        a, b, m, n = b, a, n, m  # the transposed problem stores along rows
    stage = replace(stage, a=a, b=b, m=m, n=n, stores=stores)
    return builder.launch(grid, [stage], [x.eqn for x in group.nodes])


def _strides(stores: Sequence[Store], axis: Axis) -> list[int]:
    return [s.index.coefficient(axis) or 0 for s in stores]


# ---------------------------------------------------------------- one stage


def _emit_alone(node: Node, storage: Storage) -> Launch:
    """A kernel of one node's stage."""
    builder = KernelBuilder(storage, node.outputs, [result for result, _ in node.replaces])
    axes, grid = _renamed(builder, node)
    scope = Scope(builder, grid)
    return builder.launch(grid, [scope.stage(node, axes)], [node.eqn], node.replaces)


def _renamed(builder: KernelBuilder, node: Node) -> tuple[dict[Axis, Axis], list[Axis]]:
    """The kernel's axes for a node's, and those of the kernel's grid."""
    axes = {a: builder.axis(a.extent, a.name) for a in node.axes}
    return axes, [axes[a] for a in grid_of(node)]
