"""Groups of nodes that will be one kernel, and when a node may join one (target-free legality).

map        one space; every value is read only at the point it is computed at
rows       a space split into grid x row; reductions over the row, values per point, per row
contract   a matrix product and what is computed from its elements, in registers
solo       everything else
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from fxad.ir.index import Substitution, flat, is_affine, unflat
from fxad.ir.kernel import Axis, Index, at
from fxad.ir.program import Var
from fxad.lower.build import is_chain
from fxad.lower.expand import flat_identity
from fxad.lower.nodes import ContractNode, MapNode, Node, ReduceNode, boundaries

FEW_ROWS, LONG_ROWS = 16, 1 << 16  # too little parallelism to pull per-point work into a row kernel
NODE_LIMIT = 32
DEPTH_LIMIT = 150  # operations in a row: the compiler's functions call themselves for each
# An epilogue that walks its operands tile by tile is slow where they come from memory (a product of
# 3072 x 768 over 256 with AdamW's three arrays: 15.6 ms, apart 6.0 + 1.7 ms); from a cache it costs
# nothing. One that reads more than that goes over whole rows of many tiles, where there are so many
# rows and columns, as fast as a kernel of its own.
EPILOGUE_BYTES = 8 << 20
NARROW_EPILOGUE_BYTES = 2 << 20  # products of bf16 take so little time themselves
SWEPT_FROM = 384


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
    natural: bool = True
    space: tuple | None = None
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
    match node:
        case MapNode():
            group = Group("map", [node], math.prod(node.extents))
            group.chain = boundaries(node)
            _enter(group, node, "full")
        case ReduceNode():
            inner = math.prod(a.extent for a in node.over)
            group = Group("rows", [node], math.prod(node.extents), inner)
            group.natural, group.space = node.natural, node.space
            group.chain = _outer_chain(node, inner)
            group.members[node.outputs[0]] = "cell"
        case ContractNode():
            var = node.outputs[0]
            group = Group("contract", [node], var.type.size)
            group.members[var] = "product"
            group.envs[node] = node.place
            group.positions[var] = _position(node, node.place)
        case _:
            group = Group("solo", [node])
            group.members.update(dict.fromkeys(node.outputs, "full"))
    group.depths.update(dict.fromkeys(node.outputs, node.depth))
    return group


def join(group: Group, node: Node, alone: bool = False) -> bool:
    """Add the node to the group if it fits. alone: no other node reads what the group computes."""
    if len(group.nodes) >= NODE_LIMIT or not group.parts.isdisjoint(node.reads):
        return False
    if not _same_side(group, node):
        return False
    depth = group.depth_of(node)
    if depth > DEPTH_LIMIT or not _fits(group, node, alone):
        return False
    group.depths.update(dict.fromkeys(node.outputs, depth))
    return True


def _same_side(group: Group, node: Node) -> bool:
    """Whether no barrier parts the two: both have passed the same ones, or the node reads what the
    group computes, and nothing in the group is what a barrier passed by the node waits for."""
    if all(member.passed == node.passed for member in group.nodes):
        return True
    if group.members.keys().isdisjoint(node.reads):
        return False
    return all(
        not member.passed & ~node.passed and not node.passed & ~member.passed & member.awaited
        for member in group.nodes
    )


def _fits(group: Group, node: Node, alone: bool) -> bool:
    """Whether the group's kind takes the node, which then is in it."""
    match group.kind, node:
        case "map", MapNode():
            return _map_to_map(group, node)
        case "map", ReduceNode():
            return _reduce_to_map(group, node)
        case "rows", MapNode() if node.target is None:
            if group.natural and math.prod(node.extents) == group.size:
                return _full_to_rows(group, node)
            return _outer_to_rows(group, node)
        case "rows", ReduceNode():
            return _reduce_to_rows(group, node)
        case "contract", MapNode():
            return _map_to_contract(group, node, alone)
    return False


# ---------------------------------------------------------------- map and rows


def _enter(group: Group, node: MapNode, role: str) -> None:
    if node.target is None:
        group.members[node.outputs[0]] = role
    else:
        group.parts.add(node.outputs[0])


def _map_to_map(group: Group, node: MapNode) -> bool:
    if math.prod(node.extents) != group.size:
        return False
    for var in node.reads:
        if var in group.members and not _all_identity(node, var):
            return False
    if not _joined(group, node, group.chain | boundaries(node)):
        return False
    _enter(group, node, "full")
    return True


def _reduce_to_map(group: Group, node: ReduceNode) -> bool:
    inner = math.prod(a.extent for a in node.over)
    rows = group.size // inner
    if not node.natural or math.prod(node.extents) != group.size or group.parts:
        return False
    if rows < FEW_ROWS and group.size >= LONG_ROWS:
        return False
    for var, indices in node.reads.items():
        if var in group.members and not all(_in_row(i, node, inner) for i in indices):
            return False
    if not _joined(group, node, group.chain | _outer_chain(node, inner)):
        return False
    group.kind, group.inner, group.space = "rows", inner, node.space
    group.members[node.outputs[0]] = "cell"
    return True


def _full_to_rows(group: Group, node: MapNode) -> bool:
    if not any(v in group.members for v in node.reads) or not _reads_fit(group, node):
        return False
    if not _joined(group, node, group.chain | boundaries(node)):
        return False
    group.members[node.outputs[0]] = "full"
    return True


def _outer_to_rows(group: Group, node: MapNode) -> bool:
    if math.prod(node.extents) * group.inner != group.size:
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


def _reduce_to_rows(group: Group, node: ReduceNode) -> bool:
    inner = math.prod(a.extent for a in node.over)
    if inner != group.inner or math.prod(node.extents) != group.size:
        return False
    alike = node.natural if group.natural else node.space == group.space
    if not alike or not _reads_fit(group, node):
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


def _outer_chain(node: ReduceNode, inner: int) -> frozenset[int]:
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


def _map_to_contract(group: Group, node: MapNode, alone: bool) -> bool:
    """The node's axes are a permutation of the product's, read element by element."""
    if math.prod(node.extents) != group.size:
        return False
    mine = [v for v in node.reads if v in group.members]
    # What is added to a product that nobody else reads: apart, it would be written and read again.
    limit = EPILOGUE_BYTES if _is_wide(group) else NARROW_EPILOGUE_BYTES
    limit += group.nodes[0].outputs[0].type.nbytes if alone else 0
    if not mine or (_epilogue_bytes(group, node) > limit and not _is_swept(group)):
        return False
    env = _matched(node, node.reads[mine[0]][0], group.positions[mine[0]], group.size)
    if env is None:
        return False
    position = _position(node, env)
    if node.target is not None:
        position = Substitution(env).index(node.target)
    if not is_affine(position) or not _lies(node, env, group.positions):
        return False
    group.nodes.append(node)
    group.envs[node] = env
    _enter(group, node, "full")
    if node.target is None:
        group.positions[node.outputs[0]] = position
    return True


def absorb(product: Group, group: Group, node: MapNode) -> bool:
    """Take a map group into the epilogue of a product, where `node` reads its values: element by
    element they are computed there, instead of being written first and read back."""
    if product.kind != "contract" or group.kind != "map" or group.parts:
        return False
    if group.size != product.size or len(product.nodes) + len(group.nodes) > NODE_LIMIT:
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
    if not all(_lies(n, envs[n], positions) for n in (*after, *group.nodes)):
        return False
    product.nodes += group.nodes
    product.members |= group.members
    product.envs = envs
    product.positions = positions
    product.depths = depths | {node.outputs[0]: depth}
    return True


def _may_run_at(node: Node, group: Group) -> bool:
    """Whether no barrier keeps a node from running at a group's place: it has passed none (they are
    numbered in program order) that comes behind the group, and none in front awaits it."""
    passed = group.nodes[0].passed
    return node.passed.bit_length() <= passed.bit_length() and not (
        passed & ~node.passed & node.awaited
    )


def _env_at(node: Node, position: Index, size: int) -> dict[Axis, Index]:
    """The axes of a node of a map group whose value is wanted at a position of the space."""
    env = _matched(node, flat(tuple(map(at, node.axes)), node.extents), position, size)
    assert env is not None  # it has one value for every position
    return env


def _lies(node: Node, env: dict[Axis, Index], positions: dict[Var, Index]) -> bool:
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
    product = group.nodes[0]
    assert isinstance(product, ContractNode)
    return _is_wide(group) and min(product.m.extent, product.n.extent) >= SWEPT_FROM


def _is_wide(group: Group) -> bool:
    """Whether the product's factors are float32 or wider."""
    return all(v.type.dtype.itemsize >= 4 for v in group.nodes[0].reads)


def _epilogue_bytes(group: Group, node: MapNode) -> int:
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


def _position(node: Node, env: dict[Axis, Index]) -> Index:
    """Flat position of a node's result in the kernel's axes."""
    point: Sequence[Index] = [env[a] for a in node.axes]
    return flat(tuple(point), node.extents)


def _equal(one: Index, other: Index) -> bool:
    return one.const == other.const and dict(one.terms) == dict(other.terms)
