"""Attention as people write it: what it is of, and how its axes correspond.

    p = softmax(where(mask, q . k * scale + bias, -inf)); out = p . v

The axes of p are the *roles* 0 ... n-1; DEPTH and WIDTH stand for the axes of q and k, and of v,
that p does not have. Roles of both products' batches are batch or heads; other roles of q are time
and group: a group of query heads shares a key head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.record import replace, valued
from fxad.ir.program import Atom, Eqn, Lit
from fxad.passes.patterns import Graph, band, completed
from fxad.passes.scores_pattern import EXCLUDES, Extra, Factor, Scores, logits
from fxad.passes.softmax_pattern import softmax

DEPTH, WIDTH = -1, -2

Place = dict[int, int | None]  # role -> axis of a source; None: stretched, or of length 1


@valued
class Operand:
    """A product's operand as moved and stretched from `source`."""

    source: Atom
    place: Place


@valued
class Attention:
    """`flash_attention` and how to read its operands; `sizes` of all roles."""

    q: Operand
    k: Operand
    v: Operand
    sizes: dict[int, int]
    batch: tuple[int, ...]
    heads: tuple[int, ...]  # of keys: one role or none
    group: tuple[int, ...]
    time: tuple[int, ...]  # one role or none
    key: int
    shared: int  # query heads in a row for which `heads` of k and v hold one
    result: tuple[int, ...]  # the roles of the second product's axes
    factors: tuple[Factor, ...]
    masks: tuple[Extra, ...] = ()
    biases: tuple[Extra, ...] = ()
    window: tuple[int, int] = (-1, -1)
    empty: float | None = None  # what queries give that see no key; None: there are none


def attention(graph: Graph, second: Eqn, side: int) -> Attention | None:
    """The attention of which `second` is the last product and operand `side` the weights."""
    weights, keys = second.inputs[side], second.params["contract"][side]
    if not _plain(second) or weights.type.shape[keys[0]] < 2:
        return None
    view = graph.view(weights)
    axes = completed(view.axes, weights.type.shape, view.source.type.ndim)
    found = None if axes is None else softmax(graph, view.source, axes[keys[0]])
    scores = None if found is None else logits(graph, found.logits, axes or (), keys[0])
    if found is None or scores is None or not _plain(scores.product):
        return None
    stops = [*scores.product.inputs, *(f.number for f in scores.factors)]
    stops += [extra.source for extra in (*scores.masks, *scores.biases)]
    if not graph.closed(second, weights, stops):
        return None
    made = _assembled(graph, second, side, scores)
    return None if made is None else _seen(graph, made, scores, 0.0 if found.zero else math.nan)


def _plain(product: Eqn) -> bool:
    """Whether `flash_attention` takes it: one dtype, nothing empty, one axis summed over."""
    types = [a.type for a in (*product.inputs, *product.outputs)]
    alike = {t.dtype for t in types} in ({dt.float32}, {dt.float64})
    return alike and len(product.params["contract"][0]) == 1 and all(t.size for t in types)


def _free(product: Eqn, side: int) -> list[int]:
    taken = {*product.params["batch"][side], *product.params["contract"][side]}
    return [i for i in range(product.inputs[side].type.ndim) if i not in taken]


# ---------------------------------------------------------------- roles


def _assembled(graph: Graph, second: Eqn, side: int, scores: Scores) -> Attention | None:
    """The two products as one, if they go together."""
    first, key = scores.product, second.params["contract"][side][0]
    role_of = {axis: role for role, axis in enumerate(scores.axes)}
    order = [role_of[i] for i in range(len(scores.axes))]
    count, left = len(first.params["batch"][0]), len(_free(first, 0))
    batch, own = order[:count], (order[count : count + left], order[count + left :])
    of_keys = 0 if key in own[0] else 1
    pairs, width = second.params["batch"][side], _free(second, 1 - side)
    if own[of_keys] != [key] or set(pairs) != set(batch) or len(width) != 1:
        return None
    q, k = (_operand(graph, first, s, batch, DEPTH, own[s]) for s in (1 - of_keys, of_keys))
    v = _operand(graph, second, 1 - side, pairs, key, [WIDTH])
    sizes = dict(enumerate(second.inputs[side].type.shape))
    sizes[DEPTH] = first.inputs[0].type.shape[first.params["contract"][0][0]]
    sizes[WIDTH] = second.inputs[1 - side].type.shape[width[0]]
    q, factors_q = _unscaled(graph, q)
    k, factors_k = _unscaled(graph, k)
    alone = {r for r in batch if k.place[r] is v.place[r] is None and sizes[r] > 1}
    paired = sorted(set(batch) - alone)
    k, v, shared = _unrepeated(graph, k, v, paired[-1:])
    time = _time(own[1 - of_keys], scores, sizes)
    rest = _free(second, side)
    return Attention(
        q=q,
        k=k,
        v=v,
        sizes=sizes,
        batch=tuple(paired[:-1]),
        heads=tuple(paired[-1:]),
        group=tuple(sorted({*own[1 - of_keys], *alone} - {*time})),
        time=time,
        key=key,
        shared=shared,
        result=(*pairs, *((*rest, WIDTH) if side == 0 else (WIDTH, *rest))),
        factors=(*scores.factors, *factors_q, *factors_k),
    )


def _operand(
    graph: Graph, product: Eqn, side: int, batch: Sequence[int], summed: int, free: Sequence[int]
) -> Operand:
    """An operand, given the roles of its batch axes, the axis summed over, and the others."""
    roles = dict(zip(product.params["batch"][side], batch, strict=True))
    roles |= dict(zip(_free(product, side), free, strict=True))
    roles[product.params["contract"][side][0]] = summed
    view = graph.view(product.inputs[side])
    return Operand(view.source, {role: view.axes[axis] for axis, role in roles.items()})


def _unscaled(graph: Graph, operand: Operand) -> tuple[Operand, list[Factor]]:
    """An operand without the numbers that all of it is multiplied with or divided by."""
    factors = []
    while (eqn := graph.defined.get(operand.source)) is not None:
        divides = eqn.op.name == "div"
        if not divides and eqn.op.name != "mul":
            break
        a, b = eqn.inputs
        pairs = ((a, b),) if divides else ((a, b), (b, a))
        found = [(x, n) for x, y in pairs if (n := graph.scalar(y)) is not None]
        if not found or found[0][0].type != eqn.outputs[0].type:
            break
        factors.append(Factor(found[0][1], divides))
        view = graph.view(found[0][0])
        moved = {r: None if a is None else view.axes[a] for r, a in operand.place.items()}
        operand = Operand(view.source, moved)
    return operand, factors


def _unrepeated(
    graph: Graph, k: Operand, v: Operand, heads: Sequence[int]
) -> tuple[Operand, Operand, int]:
    """k and v before each of their heads was repeated, if both were, and how often."""
    for head in heads:
        before = [_repeated(graph, x, head) for x in (k, v)]
        if before[0] is not None and before[1] is not None and before[0][1] == before[1][1]:
            return before[0][0], before[1][0], before[0][1]
    return k, v, 1


def _repeated(graph: Graph, x: Operand, head: int) -> tuple[Operand, int] | None:
    """(y, n) if every element of y along `head` stands n times in a row in x."""
    eqn, axis = graph.op(x.source, "reshape"), x.place[head]
    if eqn is None or axis is None:
        return None
    old, new = eqn.inputs[0].type.shape, x.source.type.shape
    split = [i for i, n in enumerate(old) if n != 1]
    merged = [i for i, n in enumerate(new) if n != 1]
    at = merged.index(axis) if axis in merged else -1
    sizes = [old[i] for i in split]
    if at < 0 or len(split) != len(merged) + 1:
        return None
    joined = [*sizes[:at], sizes[at] * sizes[at + 1], *sizes[at + 2 :]]
    view = graph.view(eqn.inputs[0])
    if joined != [new[i] for i in merged] or view.axes[split[at + 1]] is not None:
        return None
    source = {m: split[i + (i > at)] for i, m in enumerate(merged)}
    place = {r: view.axes[source[a]] if a in source else None for r, a in x.place.items()}
    return Operand(view.source, place), sizes[at + 1]


def _time(candidates: Sequence[int], scores: Scores, sizes: dict[int, int]) -> tuple[int, ...]:
    """Which role of q is time: one that masks look at, else the longest."""
    if not candidates:
        return ()
    looked = [r for r in candidates if any(m.axes[r] is not None for m in scores.masks)]
    return (max(looked or candidates, key=lambda r: sizes[r]),)


# ---------------------------------------------------------------- who sees whom


def _seen(graph: Graph, made: Attention, scores: Scores, empty: float) -> Attention:
    """With masks and biases; those that only positions decide become a window."""
    unknown = [m for m in scores.masks if _by_position(graph, made, m) is None]
    if all(m.fill == -np.inf for m in unknown):
        extras = [(m, _by_position(graph, made, m)) for m in scores.masks]
        extras += [(b, _excluding(graph, made, b)) for b in scores.biases]
        allowed = [a for _, a in extras if a is not None]
        window = band(np.logical_and.reduce(allowed)) if allowed else (-1, -1)
        if window is not None:
            kept = [extra for extra, a in extras if a is None]
            made = replace(
                made,
                window=window,
                masks=tuple(m for m in scores.masks if m in kept),
                biases=tuple(b for b in scores.biases if b in kept),
            )
        else:
            made = replace(made, masks=scores.masks, biases=scores.biases)
    else:
        made = replace(made, masks=scores.masks, biases=scores.biases)
    lonely = any(m.fill == -np.inf for m in made.masks)
    lonely = lonely or not all(_finite(graph, b.source) for b in made.biases)
    return replace(made, empty=empty if lonely else None)


def _by_position(graph: Graph, made: Attention, extra: Extra) -> np.ndarray | None:
    """A constant mask that depends on query and key position alone, as bools [T, S]."""
    value = _positions(graph, made, extra)
    return None if value is None else value != extra.negated


def _excluding(graph: Graph, made: Attention, bias: Extra) -> np.ndarray | None:
    """The same of a constant bias of zeros and numbers that exclude."""
    value = _positions(graph, made, bias)
    if value is None:
        return None
    value = -value if bias.negated else value
    allowed = value == 0
    return allowed if np.all(allowed | (value <= EXCLUDES)) else None


def _positions(graph: Graph, made: Attention, extra: Extra) -> np.ndarray | None:
    """A constant that depends on query and key position alone, as an array [T, S]."""
    roles = (*made.time, made.key)
    if any(a is not None for r, a in enumerate(extra.axes) if r not in roles):
        return None
    value = graph.constant(extra.source)
    if value is None:
        return None
    places = [extra.axes[r] for r in roles]
    used = [a for a in places if a is not None]
    value = value.reshape([n for n in value.shape if n != 1])
    long = [i for i, n in enumerate(extra.source.type.shape) if n != 1]
    value = value.transpose([long.index(a) for a in used if a in long])
    aligned = [made.sizes[r] if a in long else 1 for r, a in zip(roles, places, strict=True)]
    shape = tuple(made.sizes[r] for r in roles)
    full = np.broadcast_to(value.reshape(aligned), shape)
    return full if made.time else full[None]


def _finite(graph: Graph, bias: Atom) -> bool:
    """Whether a bias is known not to be minus infinity anywhere."""
    eqn = graph.op(bias, "select")
    if eqn is not None and all(isinstance(graph.scalar(a), Lit) for a in eqn.inputs[1:]):
        numbers = [graph.number(a) for a in eqn.inputs[1:]]
        return all(n is not None and math.isfinite(n) for n in numbers)
    value = graph.constant(bias)
    return value is not None and bool(np.isfinite(value).all())
