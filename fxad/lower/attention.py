"""Attention: a stage Attention or AttentionGrad whose operands are read where they lie.

The head n of a query is (kv, g): the key head it shares and its number among those that share it.
Forward, a grid point is a batch element and a query head; backward a batch element and a key head,
whose cotangents are sums over g. Where these are few, it is one of several parts of them. Few
queries of many keys were divided into parts by the pass `split_keys`, which joins their results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fxad.ir import loops
from fxad.ir.index import Point, Substitution, flat, is_affine
from fxad.ir.kernel import (
    INDEX,
    Attention,
    AttentionGrad,
    Axis,
    Cell,
    Data,
    Expr,
    Get,
    Index,
    IndexValue,
    Operand,
    Prim,
    at,
)
from fxad.ir.program import Var
from fxad.lower.contraction import Address, candidates, copied
from fxad.lower.expand import Storage
from fxad.lower.graph import Def, Graph
from fxad.lower.split_axes import Body, collected

AXES = ("later", "some", "part", "batch", "kv", "group", "rows", "keys", "depth", "width")
Q, K, V, LSE, DELTA, D_OUT = range(6)


def operand_addresses(
    graph: Graph, definition: Def, record: loops.Attention, through_views: bool
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


def attention_stage(
    definition: Def,
    record: loops.Attention,
    addresses: Sequence[Address],
    others: Sequence[Var],
    read: Callable[..., Expr],
    storage: Storage,
) -> tuple[Attention | AttentionGrad, Body]:
    """The stage, and what its expressions are made of, over all axes of the node.

    others: where lse and delta lie. read: any operand at a point.
    """
    query, key, value = (definition.operands[i].type.shape for i in (Q, K, V))
    some, later = record.parts
    each = (query[2] // key[2] // some, query[1] // later)
    count = key[1] // record.key_parts
    outer = (later, some, record.key_parts, query[0], key[2])
    extents = (*outer, *each, count, query[3], value[3])
    axes = {n: Axis(n, e) for n, e in zip(AXES, extents, strict=True)}
    i = {n: at(a) for n, a in axes.items()}
    # The last parts of the queries come first: as a rule they see most keys.
    row = (i["later"] * -1 + (later - 1)) * each[1] + i["rows"]
    head = (i["kv"] * some + i["some"]) * each[0] + i["group"]
    column = i["part"] * count + i["keys"]
    score = Cell("score", definition.operands[Q].type.dtype)
    point = (i["batch"], head, row, column)
    logit = record.logit(Get(score), point, read)
    slope = record.slope(point, read) if record.backward else None
    # The keys low <= j < high of the part that a query sees.
    low, high = _visible(record, (i["part"] * count, count, key[1]), (i["batch"], row), read)
    roots = [logit] if slope is None else [logit, slope]
    roots += [IndexValue(bound, INDEX) for bound in (low, high) if not is_affine(bound)]
    body = collected(((a,) for a in axes.values()), roots)

    def operand(var: Var, index: Index) -> Operand:
        return Operand(storage.buffer(var), index)

    def result(number: int, *where: Index) -> Operand:
        var = definition.outputs[number]
        return operand(var, flat(where, var.type.shape))

    q, k, v, *rest = [
        operand(x.base, Substitution(dict(zip(x.axes, where, strict=True))).index(x.index))
        for x, where in zip(
            addresses,
            (
                (i["batch"], row, head, i["depth"]),
                (i["batch"], column, i["kv"], i["depth"]),
                (i["batch"], column, i["kv"], i["width"]),
                (i["batch"], row, head, i["width"]),
            ),
            strict=False,
        )
    ]
    by_row = flat((i["batch"], head, row), (query[0], query[2], query[1]))
    rest += [operand(var, by_row) for var in others]
    if slope is None:
        part = (i["part"],) if record.key_parts > 1 else ()
        out = result(0, *part, i["batch"], row, head, i["width"])
        lse = result(1, *part, i["batch"], head, row)
    else:
        out, lse, delta = rest
    inner = (axes["rows"], axes["keys"], axes["depth"], axes["width"])
    forward = Attention(*inner, q, k, v, score, logit, low, high, out, lse)
    if slope is None:
        return forward, body
    part = (i["later"] * some + i["some"],) if later * some > 1 else ()
    dq = result(0, i["batch"], row, head, i["depth"])
    dk = result(1, *part, i["batch"], i["keys"], i["kv"], i["depth"])
    dv = result(2, *part, i["batch"], i["keys"], i["kv"], i["width"])
    return AttentionGrad(forward, axes["group"], delta, slope, dq, dk, dv), body


def _visible(
    record: loops.Attention,
    part: tuple[Index, int, int],
    point: Point,
    read: Callable[..., Expr],
) -> tuple[Index, Index]:
    """The keys low <= j < high of a part that the query at (batch, row) sees.

    part: the first of its keys, how many they are, and how many there are in all.
    """
    first, count, keys = part
    seen = point[1] + first * -1
    low = seen + -record.left if record.left >= 0 else Index()
    high = seen + (record.right + 1) if record.right >= 0 else Index(count)
    if record.start is not None:
        low = _read_bound("max", record.start(point, read), low + first, keys) + first * -1
    if record.end is not None:
        high = _read_bound("min", record.end(point, read), high + first, keys) + first * -1
    return low, high


def _read_bound(nearer: str, number: Expr, bound: Index, keys: int) -> Index:
    """A bound read from an array, or the other bound where that is nearer."""
    value = Prim(nearer, (number, IndexValue(bound, number.dtype)), number.dtype)
    return Index(0, ((Data(value, keys + 1), 1),))
