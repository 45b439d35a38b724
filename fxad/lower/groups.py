"""Groups of nodes that will be one kernel, and when a node may join one (target-free legality).

map        one space; every value is read only at the point it is computed at
rows       a space split into grid x row; reductions over the row, values per point, per row
contract   a matrix product and what is computed from its elements, in registers
alone      everything else
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

from fxad.ir import heuristics
from fxad.ir.index import Substitution, is_affine, unflat
from fxad.ir.kernel import Axis, Contract, Index, Map, Reduce
from fxad.ir.program import Var
from fxad.lower.build_kernel import is_chain
from fxad.lower.expand import flat_identity
from fxad.lower.nodes import Node, boundaries, grid_of

DEPTH_LIMIT = 150  # operations in a row: the compiler's functions call themselves for each


@dataclass(eq=False, slots=True)
class Group:
    """members: what each value is: "full" (per point), "outer" (per row), "cell", "product".

    size: points of the space; inner: points of a row (1 in a map group); chain: strides of the
    space at which some axis must end. envs: in a contract group, axes of a node in terms of the
    kernel's axes.
    """

    kind: str
    nodes: list[Node]
    size: int = 1
    inner: int = 1
    space: Hashable = None
    chain: frozenset[int] = frozenset()
    members: dict[Var, str] = field(default_factory=dict)
    parts: set[Var] = field(default_factory=set)
    envs: dict[Node, dict[Axis, Index]] = field(default_factory=dict)
    positions: dict[Var, Index] = field(default_factory=dict)
    depths: dict[Var, int] = field(default_factory=dict)

    def depth_of(self, node: Node) -> int:
        """Operations in a row from what the kernel loads to the node's value."""
        return node.depth + max((self.depths.get(v, 0) for v in node.reads), default=0)


def group_of(node: Node) -> Group:
    """A new group holding one node."""
    match node.stage:
        case Map():
            group = Group("map", [node], node.points)
            group.chain = boundaries(node)
            _enter(group, node, "full")
        case Reduce():
            inner = _row(node)
            group = Group("rows", [node], node.points, inner, node.space)
            group.chain = _outer_chain(node, inner)
            group.members[node.outputs[0]] = "cell"
        case Contract():
            var = node.outputs[0]
            group = Group("contract", [node], var.type.size)
            group.members[var] = "product"
            group.positions[var] = node.store.index
        case _:
            group = Group("alone", [node])
            group.members.update(dict.fromkeys(node.outputs, "full"))
    group.depths.update(dict.fromkeys(node.outputs, node.depth))
    return group


def join(group: Group, node: Node, sole_reader: bool = False) -> bool:
    """Add the node to the group if it fits. sole_reader: no other node reads what the group
    computes."""
    if len(group.nodes) >= heuristics.KERNEL_NODES or not group.parts.isdisjoint(node.reads):
        return False
    if not _between_same_barriers(group, node):
        return False
    depth = group.depth_of(node)
    if depth > DEPTH_LIMIT or not _fits(group, node, sole_reader):
        return False
    group.depths.update(dict.fromkeys(node.outputs, depth))
    return True


def _between_same_barriers(group: Group, node: Node) -> bool:
    """Whether no barrier parts the two: both are behind the same ones, or the node reads what the
    group computes, and no barrier in front of the node comes after something in the group."""
    if all(member.barriers.before == node.barriers.before for member in group.nodes):
        return True
    if group.members.keys().isdisjoint(node.reads):
        return False
    before = node.barriers.before
    return all(
        not member.before & ~before and not before & ~member.before & member.after
        for member in [n.barriers for n in group.nodes]
    )


def _fits(group: Group, node: Node, sole_reader: bool) -> bool:
    """Whether the group's kind takes the node, which then is in it."""
    match group.kind, node.stage:
        case "map", Map():
            return _map_to_map(group, node)
        case "map", Reduce():
            return _reduce_to_map(group, node)
        case "rows", Map() if not node.is_part:
            if group.space is None and node.points == group.size:
                return _full_to_rows(group, node)
            return _outer_to_rows(group, node)
        case "rows", Reduce():
            return _reduce_to_rows(group, node)
        case "contract", Map():
            return _map_to_contract(group, node, sole_reader)
    return False


# ---------------------------------------------------------------- map and rows


def _enter(group: Group, node: Node, role: str) -> None:
    if node.is_part:
        group.parts.add(node.outputs[0])
    else:
        group.members[node.outputs[0]] = role


def _map_to_map(group: Group, node: Node) -> bool:
    if node.points != group.size:
        return False
    for var in node.reads:
        if var in group.members and not _all_identity(node, var):
            return False
    if not _joined(group, node, group.chain | boundaries(node)):
        return False
    _enter(group, node, "full")
    return True


def _reduce_to_map(group: Group, node: Node) -> bool:
    inner = _row(node)
    rows = group.size // inner
    if node.space is not None or node.points != group.size or group.parts:
        return False
    if rows < heuristics.FEW_ROWS and group.size >= heuristics.LONG_ROWS:
        return False
    for var, indices in node.reads.items():
        if var in group.members and not all(_in_row(i, node, inner) for i in indices):
            return False
    if not _joined(group, node, group.chain | _outer_chain(node, inner)):
        return False
    group.kind, group.inner = "rows", inner
    group.members[node.outputs[0]] = "cell"
    return True


def _full_to_rows(group: Group, node: Node) -> bool:
    if not any(v in group.members for v in node.reads) or not _reads_fit(group, node):
        return False
    if not _joined(group, node, group.chain | boundaries(node)):
        return False
    group.members[node.outputs[0]] = "full"
    return True


def _outer_to_rows(group: Group, node: Node) -> bool:
    if node.points * group.inner != group.size:
        return False
    mine = [v for v in node.reads if v in group.members]
    if not mine:
        return False
    for var in mine:
        if group.members[var] == "full" or not _all_identity(node, var):
            return False
    if not _joined(group, node, group.chain | {b * group.inner for b in boundaries(node)}):
        return False
    group.members[node.outputs[0]] = "outer"
    return True


def _reduce_to_rows(group: Group, node: Node) -> bool:
    inner = _row(node)
    if inner != group.inner or node.points != group.size:
        return False
    if node.space != group.space or not _reads_fit(group, node):
        return False
    if not _joined(group, node, group.chain | _outer_chain(node, inner)):
        return False
    group.members[node.outputs[0]] = "cell"
    return True


def _joined(group: Group, node: Node, chain: frozenset[int]) -> bool:
    """Add the node if the strides at which axes would then have to end form a chain."""
    if not is_chain(chain):
        return False
    group.chain = chain
    group.nodes.append(node)
    return True


def _reads_fit(group: Group, node: Node) -> bool:
    """Per-row values are read by their own row, per-point values within their own row."""
    for var, indices in node.reads.items():
        role = group.members.get(var)
        if role == "full":
            if not all(_in_row(i, node, group.inner) for i in indices):
                return False
        elif role is not None and not all(_of_row(i, node, group.inner) for i in indices):
            return False
    return True


def _row(node: Node) -> int:
    """The points that a reduction combines into one."""
    return node.points // math.prod(a.extent for a in grid_of(node))


def _outer_chain(node: Node, inner: int) -> frozenset[int]:
    return frozenset({b for b in boundaries(node) if b > inner} | {inner})


def _all_identity(node: Node, var: Var) -> bool:
    return all(flat_identity(i, node.axes, node.strides) for i in node.reads[var])


def _of_row(index: Index, node: Node, inner: int) -> bool:
    """Whether a per-row value is read at exactly the row of the point."""
    wanted = {}
    for axis, stride in zip(node.axes, node.strides, strict=True):
        if axis.extent == 1:
            continue
        if stride >= inner:
            wanted[axis] = stride // inner
        elif stride * axis.extent > inner:
            return False
    return not index.const and dict(index.terms) == wanted


def _in_row(index: Index, node: Node, inner: int) -> bool:
    """Whether a per-point value is read somewhere in the row of the point."""
    if flat_identity(index, node.axes, node.strides):
        return True
    terms = dict(index.terms)
    for axis, stride in zip(node.axes, node.strides, strict=True):
        if axis.extent == 1:
            continue
        if stride >= inner:
            if terms.pop(axis, 0) != stride:
                return False
        elif stride * axis.extent > inner:
            return False
    low, high = Index(index.const, tuple(terms.items())).bounds()
    return low >= 0 and high < inner


# ---------------------------------------------------------------- epilogues


def _map_to_contract(group: Group, node: Node, sole_reader: bool) -> bool:
    """The node's axes are a permutation of the product's, read element by element."""
    if node.points != group.size:
        return False
    mine = [v for v in node.reads if v in group.members]
    # What is added to a product that nobody else reads: apart, it would be written and read again.
    limit = heuristics.EPILOGUE_BYTES if _is_wide(group) else heuristics.NARROW_EPILOGUE_BYTES
    limit += group.nodes[0].outputs[0].type.nbytes if sole_reader else 0
    if not mine or (_epilogue_bytes(group, node) > limit and not _is_swept(group)):
        return False
    env = _matched(node, node.reads[mine[0]][0], group.positions[mine[0]], group.size)
    if env is None:
        return False
    position = Substitution(env).index(node.store.index)
    if not is_affine(position) or not _reads_at_own_point(node, env, group.positions):
        return False
    group.nodes.append(node)
    group.envs[node] = env
    _enter(group, node, "full")
    if not node.is_part:
        group.positions[node.outputs[0]] = position
    return True


def fuse_into_epilogue(product: Group, group: Group, node: Node) -> bool:
    """Take a map group into the epilogue of a product, where `node` reads its values: element by
    element they are computed there, instead of being written first and read back."""
    if product.kind != "contract" or group.kind != "map" or group.parts:
        return False
    if group.size != product.size:
        return False
    if len(product.nodes) + len(group.nodes) > heuristics.KERNEL_NODES:
        return False
    depths = product.depths | group.depths
    depth = node.depth + max(depths.get(v, 0) for v in node.reads)
    if depth > DEPTH_LIMIT or not all(_may_run_at(n, group) for n in product.nodes):
        return False
    read = next(v for v in node.reads if v in group.members)
    position = Substitution(product.envs[node]).index(node.reads[read][0])
    positions = product.positions | dict.fromkeys(group.members, position)
    envs = product.envs | {n: _env_at(n, position, group.size) for n in group.nodes}
    first, *after = product.nodes
    if not group.members.keys().isdisjoint(first.reads):
        return False
    if not all(_reads_at_own_point(n, envs[n], positions) for n in (*after, *group.nodes)):
        return False
    product.nodes += group.nodes
    product.members |= group.members
    product.envs = envs
    product.positions = positions
    product.depths = depths | {node.outputs[0]: depth}
    return True


def _may_run_at(node: Node, group: Group) -> bool:
    """Whether no barrier keeps a node from running at a group's place: it is behind none (they are
    numbered in program order) that the group is not, and none in front comes after it."""
    own, before = node.barriers, group.nodes[0].barriers.before
    return own.before.bit_length() <= before.bit_length() and not (before & ~own.before & own.after)


def _env_at(node: Node, position: Index, size: int) -> dict[Axis, Index]:
    """The axes of a node of a map group whose value is wanted at a position of the space."""
    env = _matched(node, node.store.index, position, size)
    assert env is not None  # it has one value for every position
    return env


def _reads_at_own_point(node: Node, env: dict[Axis, Index], positions: dict[Var, Index]) -> bool:
    """Whether a node in an epilogue reads the product's own values at its point, and all others at
    affine places."""
    move = Substitution(env)
    return all(map(is_affine, map(move.index, node.indices))) and all(
        _equal(move.index(index), positions[var])
        for var, indices in node.reads.items()
        if var in positions
        for index in indices
    )


def _is_swept(group: Group) -> bool:
    """Whether a large epilogue runs over whole rows of the product, so that it costs no more than
    in a kernel of its own and the product itself never goes to memory."""
    product = group.nodes[0].stage
    assert isinstance(product, Contract)
    extent = min(product.m.extent, product.n.extent)
    return _is_wide(group) and extent >= heuristics.ROW_EPILOGUE_EXTENT


def _is_wide(group: Group) -> bool:
    """Whether the product's factors are float32 or wider."""
    return all(v.type.dtype.itemsize >= 4 for v in group.nodes[0].reads)


def _epilogue_bytes(group: Group, node: Node) -> int:
    """Bytes the epilogue reads with the node in it, beside the product's own operands."""
    found = {v for n in (*group.nodes[1:], node) for v in n.reads if v not in group.members}
    return sum(v.type.nbytes for v in found)


def _matched(node: Node, index: Index, position: Index, size: int) -> dict[Axis, Index] | None:
    """Axes of a node that reads every element of a value once, given the value's position."""
    env = {a: Index() for a in node.axes}
    order: list[Axis] = []
    stride = 1
    for atom, coefficient in sorted(index.terms, key=lambda t: t[1]):
        if not isinstance(atom, Axis) or coefficient != stride:
            return None
        order.insert(0, atom)
        stride *= atom.extent
    if index.const or stride != size:
        return None
    env.update(zip(order, unflat(position, [a.extent for a in order]), strict=True))
    return env


def _equal(one: Index, other: Index) -> bool:
    return one.const == other.const and dict(one.terms) == dict(other.terms)
