"""Attention: operands read where they lie, a kernel of one Attend or AttendGrad stage.

The head n of a query is (kv, g): the key head it shares and its number among those that share it.
Forward, a grid point is a batch element and a query head; backward a batch element and a key head,
whose cotangents are sums over g. Where these are few, it is one of several parts of them. Few
queries of many keys take these in parts, too, whose results the graph joins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fxad.ir.block import Launch
from fxad.ir.index import Substitution, flat, is_affine
from fxad.ir.kernel import (
    Attend,
    AttendGrad,
    Axis,
    Cell,
    Expr,
    Get,
    Index,
    Operand,
    at,
)
from fxad.ir.loops import Attention, Point
from fxad.ir.program import Var
from fxad.lower.build import Builder, Scope
from fxad.lower.contraction import Address, candidates, copied
from fxad.lower.expand import Storage
from fxad.lower.graph import Def, Graph
from fxad.lower.nodes import AttendNode
from fxad.lower.refine import collected

AXES = ("later", "some", "part", "batch", "kv", "group", "rows", "keys", "depth", "width")
Q, K, V, LSE, DELTA, D_OUT = range(6)


def operand_addresses(
    graph: Graph, definition: Def, record: Attention, through_views: bool
) -> tuple[Address, ...]:
    """Where q, k, v (and d_out) are read: affine, and contiguous along their last axis."""
    found = []
    for number in (Q, K, V, D_OUT) if record.backward else (Q, K, V):
        atom = definition.operands[number]
        chosen = None
        for candidate in candidates(graph, atom, through_views):
            unit = atom.type.shape[-1] == 1 or candidate.stride(3) == 1
            if unit and is_affine(candidate.index):
                chosen = candidate
        found.append(chosen or copied(graph, definition, atom, (3,), (0, 2)))
    return tuple(found)


def attend_node(
    definition: Def,
    record: Attention,
    addresses: Sequence[Address],
    others: Sequence[Var],
    read: Callable[..., Expr],
    storage: Storage,
) -> AttendNode:
    """The node; others: where lse and delta lie; `read` reads any operand at a point."""
    query, key, value = (definition.operands[i].type.shape for i in (Q, K, V))
    some, later = record.parts
    each = (query[2] // key[2] // some, query[1] // later)
    keys = key[1] // record.key_parts
    outer = (later, some, record.key_parts, query[0], key[2])
    extents = (*outer, *each, keys, query[3], value[3])
    axes = {n: Axis(n, e) for n, e in zip(AXES, extents, strict=True)}
    i = {n: at(a) for n, a in axes.items()}
    i["rows"] = _query(axes["later"], axes["rows"])
    i["keys"] = i["part"] * keys + i["keys"]
    head = _head(axes["kv"], axes["some"], axes["group"])
    point = (i["batch"], head, i["rows"], i["keys"])
    score = Cell("score", definition.operands[Q].type.dtype)
    logit = record.logit(Get(score), point, read)
    slope = record.slope(point, read) if record.backward else None
    body = collected(((a,) for a in axes.values()), [logit] if slope is None else [logit, slope])
    node = AttendNode(
        definition.eqn,
        definition.outputs,
        tuple(axes.values()),
        record.left,
        record.right,
        score,
        logit,
        slope,
        _operands(addresses, others, i, head, query[2], query[1]),
    )
    for var, index in node.operands:
        node.reads.setdefault(var, []).append(index)
    node.collect(storage.values, body)
    return node


def _query(later: Axis, rows: Axis) -> Index:
    """The number of a query. The last parts come first: as a rule they see most keys."""
    return (at(later) * -1 + (later.extent - 1)) * rows.extent + at(rows)


def _head(kv: Axis, some: Axis, group: Axis) -> Index:
    """The number of a query head: those that share a key head lie side by side."""
    return (at(kv) * some.extent + at(some)) * group.extent + at(group)


def _operands(
    addresses: Sequence[Address],
    others: Sequence[Var],
    i: dict[str, Index],
    head: Index,
    heads: int,
    time: int,
) -> list[tuple[Var, Index]]:
    """q, k, v, then d_out, lse and delta, each with the index it is read at."""
    points = (
        (i["batch"], i["rows"], head, i["depth"]),
        (i["batch"], i["keys"], i["kv"], i["depth"]),
        (i["batch"], i["keys"], i["kv"], i["width"]),
        (i["batch"], i["rows"], head, i["width"]),
    )
    found = []
    for address, point in zip(addresses, points, strict=False):
        env = dict(zip(address.axes, point, strict=True))
        found.append((address.base, Substitution(env).index(address.index)))
    row = (i["batch"], head, i["rows"])
    found += [(var, flat(row, (0, heads, time))) for var in others]
    return found


def _seen(node: AttendNode, query: Index, keys: Axis) -> tuple[Index, Index]:
    """The keys low <= j < high that a query sees, which counts from the same key as they."""
    low = query + -node.left if node.left >= 0 else Index()
    return low, query + (node.right + 1) if node.right >= 0 else Index(keys.extent)


def _grid(node: AttendNode) -> list[Axis]:
    """The axes of independent pieces of work."""
    later, some, piece, batch, kv, group = node.axes[:6]
    if node.slope is not None:
        return [later, some, batch, kv]
    return [*([piece] if piece.extent > 1 else []), batch, kv, group]


def emit_attention(node: AttendNode, storage: Storage) -> Launch:
    """The kernel of one attention."""
    builder = Builder(storage, node.outputs)
    later, some, piece, batch, kv, group, rows, keys, depth, width = node.axes
    grid = _grid(node)
    scope = Scope(builder, grid)
    move = scope.substitution(node, {a: at(a) for a in node.axes})

    def operand(var: Var, index: Index) -> Operand:
        return Operand(*builder.place(var, move.index(index), ()))

    def result(number: int, point: Point) -> Operand:
        var = node.outputs[number]
        return operand(var, flat(point, var.type.shape))

    query = _query(later, rows)
    head = _head(kv, some, group)
    by_query = (at(batch), query, head)
    part = (at(later) * some.extent + at(some),) if later.extent * some.extent > 1 else ()
    by_key = (*part, at(batch), at(keys), at(kv))
    q, k, v, *rest = [operand(var, index) for var, index in node.operands]
    if node.slope is not None:
        d_out, lse, delta = rest
    else:
        of = (at(piece),) if piece.extent > 1 else ()
        d_out = result(0, (*of, *by_query, at(width)))
        lse = result(1, (*of, at(batch), head, query))
    axes, logit = (rows, keys, depth, width), move(node.logit)
    seen = _seen(node, query + at(piece) * -keys.extent, keys)
    stage = Attend(*axes, q, k, v, node.score, logit, *seen, d_out, lse)
    if node.slope is None:
        return builder.launch(grid, [stage], [node.eqn])
    into = (
        result(0, (*by_query, at(depth))),
        result(1, (*by_key, at(depth))),
        result(2, (*by_key, at(width))),
    )
    return builder.launch(
        grid, [AttendGrad(stage, group, delta, move(node.slope), *into)], [node.eqn]
    )
