"""The equations of a recognised attention: its operands moved to the op's layout and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fxad.core import dtypes as dt
from fxad.ir.program import OPS, Atom, Eqn
from fxad.ir.rewrite import literal
from fxad.ops.base import full, op
from fxad.ops.fused.attention_parts import LOWEST
from fxad.passes.attention_pattern import DEPTH, WIDTH, Attention
from fxad.passes.inserted import inserted
from fxad.passes.patterns import Graph
from fxad.passes.scores_pattern import Extra, Factor
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Value

Groups = Sequence[Sequence[int]]  # roles that become one axis each


def attention_equations(graph: Graph, found: Attention, second: Eqn) -> tuple[list[Eqn], Atom]:
    """What to put in place of the second product, and its result."""
    scale, factors = _scale(graph, found.factors)
    atoms: list[Atom] = [found.q.source, found.k.source, found.v.source]
    atoms += [extra.source for extra in (*found.masks, *found.biases)]
    atoms += [factor.number for factor in factors]

    def compute(*values: Value) -> list[Value]:
        return [_attention(found, scale, factors, values, second)]

    eqns, (result,) = inserted(compute, atoms, second.where, second.tag)
    return eqns, result


def _scale(graph: Graph, factors: Sequence[Factor]) -> tuple[float, list[Factor]]:
    """The product of the numbers that are known, and the others."""
    scale, rest = 1.0, []
    for factor in factors:
        value = graph.number(factor.number)
        if not value or not math.isfinite(value):  # unknown, or no scale to speak of
            rest.append(factor)
        else:
            scale = scale / value if factor.divides else scale * value
    return scale, rest


def _attention(
    found: Attention, scale: float, factors: Sequence[Factor], values: Sequence[Value], second: Eqn
) -> Value:
    """The second product's result, by `flash_attention`."""
    q, k, v, *rest = values
    masks, rest = rest[: len(found.masks)], rest[len(found.masks) :]
    biases, numbers = rest[: len(found.biases)], rest[len(found.biases) :]
    for factor, number in zip(factors, numbers, strict=True):
        one = op("reshape", number, shape=())
        one = op("broadcast", one, shape=type_of(q).shape, axes=())
        q = op("div" if factor.divides else "mul", q, one)
    of_heads = (*found.heads, *found.group)
    few = {r: n // found.shared if r in found.heads else n for r, n in found.sizes.items()}
    q = arranged(q, found.q.place, found.sizes, (found.batch, found.time, of_heads, (DEPTH,)))
    k = arranged(k, found.k.place, few, (found.batch, (found.key,), found.heads, (DEPTH,)))
    v = arranged(v, found.v.place, few, (found.batch, (found.key,), found.heads, (WIDTH,)))
    over = (found.batch, of_heads, found.time, (found.key,))
    bias = _sum([_extra(found, b, x, over) for b, x in zip(found.biases, biases, strict=True)])
    mask = _both([_extra(found, m, x, over) for m, x in zip(found.masks, masks, strict=True)])
    extras = [x for x in (bias, mask) if x is not None]
    left, right = found.window
    out, lse = OPS["flash_attention"](
        q, k, v, *extras, scale=scale, left=left, right=right,
        bias=bias is not None, mask=mask is not None,
    )  # fmt: skip
    if found.empty is not None:
        out = _emptied(out, lse, found.empty)
    return _result(found, out, second)


def arranged(
    x: Value,
    place: dict[int, int | None],
    sizes: dict[int, int],
    groups: Groups,
    whole: bool = True,
) -> Value:
    """x with one axis for every group of roles; an axis of length 1 for a group that x does not
    depend on, unless `whole`. Role r is axis place[r] of x, None: x is alike along it."""
    shape = type_of(x).shape
    order = [r for group in groups for r in group]
    used = [r for r in order if place[r] is not None and sizes[r] != 1]
    long: list[int | None] = [i for i, n in enumerate(shape) if n != 1]
    x = op("reshape", x, shape=tuple(n for n in shape if n != 1))
    x = op("transpose", x, permutation=tuple(long.index(place[r]) for r in used))
    wide = [r for g in groups if whole or any(r in used for r in g) for r in g]
    at = tuple(i for i, r in enumerate(wide) if r in used)
    x = op("broadcast", x, shape=tuple(sizes[r] for r in wide), axes=at)
    joined = tuple(math.prod(sizes[r] for r in g if r in wide) for g in groups)
    return op("reshape", x, shape=joined)


def _extra(found: Attention, extra: Extra, x: Value, over: Groups) -> Value:
    place = dict(enumerate(extra.axes))
    x = arranged(x, place, found.sizes, over, whole=False)
    if not extra.negated:
        return x
    return op("not" if type_of(x).dtype == dt.bool_ else "neg", x)


def _sum(parts: Sequence[Value]) -> Value | None:
    return _combined("add", parts)


def _both(parts: Sequence[Value]) -> Value | None:
    return _combined("and", parts)


def _combined(name: str, parts: Sequence[Value]) -> Value | None:
    """All parts of rank 4 in one, axes of length 1 stretched; None of none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    shape = np.broadcast_shapes(*(type_of(x).shape for x in parts))
    total, *rest = (_stretched(x, shape) for x in parts)
    for x in rest:
        total = op(name, total, x)
    return total


def _stretched(x: Value, shape: tuple[int, ...]) -> Value:
    axes = tuple(i for i, n in enumerate(type_of(x).shape) if n == shape[i])
    x = op("reshape", x, shape=tuple(shape[i] for i in axes))
    return op("broadcast", x, shape=shape, axes=axes)


def _emptied(out: Value, lse: Value, empty: float) -> Value:
    """The result with `empty` where a query saw no key: its log-sum-exp tells."""
    type_ = type_of(out)
    limit = 0.5 * LOWEST * float(dt.finfo(type_.dtype).max)
    unseen = op("lt", op("transpose", lse, permutation=(0, 2, 1)), literal(limit, type_.dtype))
    unseen = op("broadcast", unseen, shape=type_.shape, axes=(0, 1, 2))
    other = full(empty, type_)
    if not math.isnan(empty):
        return op("select", unseen, other, out)
    # A product, so that derivatives are NaN too, as those of 0 / 0 are.
    return op("mul", out, op("select", unseen, other, full(1.0, type_)))


def _result(found: Attention, out: Value, second: Eqn) -> Value:
    """[B, T, N, E] in the second product's layout."""
    order = (*found.batch, *found.time, *found.heads, *found.group, WIDTH)
    out = op("reshape", out, shape=tuple(found.sizes[r] for r in order))
    return op("transpose", out, permutation=tuple(order.index(r) for r in found.result))
