"""From the logits of a softmax back to the product of queries and keys.

    where(mask, dot(q, k) * scale + bias, -inf)

Scale, bias and mask may be absent or several, in this order from the product on; transposes, axes
of length 1 and a row's maximum taken off may come between.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fxad.core.record import replace, valued
from fxad.ir.program import Atom, Eqn
from fxad.passes.patterns import Graph, completed
from fxad.passes.softmax_pattern import Softmax, unshifted

EXCLUDES = -1e9  # a logit of this, or less, in place of a score, or added to one, means: not seen

STEPS = 12  # ops between a softmax and its product of queries and keys, at most


@valued
class Extra:
    """A mask or bias over scores: axis i of p is axis `axes[i]` of the source, None: all alike."""

    source: Atom
    axes: tuple[int | None, ...]
    negated: bool  # a mask that excludes where it is true, a bias that is subtracted
    fill: float  # what a mask puts in place of a score


@valued
class Factor:
    """A number that scores are multiplied with, or divided by."""

    number: Atom
    divides: bool


@valued
class Scores:
    """How logits are made of one product: `axes[i]` is the product's axis that axis i of p is."""

    product: Eqn
    axes: tuple[int, ...]
    factors: tuple[Factor, ...]
    masks: tuple[Extra, ...]
    biases: tuple[Extra, ...]


def logits(
    graph: Graph, x: Atom, axes: Sequence[int], key: int, steps: int = STEPS
) -> Scores | None:
    """Follow logits back to a product, `steps` ops at most.

    axes: which axis of x each axis of p is; key: p's axis of keys.
    """
    if steps == 0:
        return None
    view = graph.view(x)
    if view.source is not x:
        moved = completed(
            [view.axes[a] for a in axes], [x.type.shape[a] for a in axes], view.source.type.ndim
        )
        return None if moved is None else logits(graph, view.source, moved, key, steps - 1)
    eqn = graph.defined.get(x)
    if eqn is None:
        return None
    shifted = unshifted(graph, Softmax(x, True), axes[key]).logits
    if shifted is not x:
        found = logits(graph, shifted, axes, key, steps - 1)
        return None if found is None or found.masks else found
    match eqn.op.name:
        case "dot":
            return Scores(eqn, tuple(axes), (), (), ())
        case "mul" | "div":
            return _scaled(graph, eqn, axes, key, steps - 1)
        case "add" | "sub":
            return _biased(graph, eqn, axes, key, steps - 1)
        case "select":
            return _masked(graph, eqn, axes, key, steps - 1)
    return None


def _scaled(graph: Graph, eqn: Eqn, axes: Sequence[int], key: int, steps: int) -> Scores | None:
    a, b = eqn.inputs
    divides = eqn.op.name == "div"
    for inner, factor in ((a, b),) if divides else ((a, b), (b, a)):
        number = graph.scalar(factor)
        found = None if number is None else logits(graph, inner, axes, key, steps)
        if number is None or found is None:
            continue
        if found.biases or found.masks:  # what is scaled already holds more than scores
            return None
        return replace(found, factors=(*found.factors, Factor(number, divides)))
    return None


def _extra(graph: Graph, atom: Atom, axes: Sequence[int], negated: bool, fill: float) -> Extra:
    view = graph.view(atom)
    places = tuple(view.axes[a] for a in axes) if view.axes else (None,) * len(axes)
    return Extra(view.source, places, negated, fill)


def _biased(graph: Graph, eqn: Eqn, axes: Sequence[int], key: int, steps: int) -> Scores | None:
    a, b = eqn.inputs
    negated = eqn.op.name == "sub"
    for inner, bias in ((a, b),) if negated else ((a, b), (b, a)):
        found = logits(graph, inner, axes, key, steps)
        if found is not None and all(m.fill == -np.inf for m in found.masks):
            extra = _extra(graph, bias, axes, negated, 0.0)
            return replace(found, biases=(*found.biases, extra))
    return None


def _masked(graph: Graph, eqn: Eqn, axes: Sequence[int], key: int, steps: int) -> Scores | None:
    mask, a, b = eqn.inputs
    for inner, other, negated in ((a, b, False), (b, a, True)):
        fill = graph.number(other)
        if fill is None or not fill <= EXCLUDES:
            continue
        found = logits(graph, inner, axes, key, steps)
        if found is None or any(m.fill != fill for m in found.masks):
            return None
        return replace(found, masks=(*found.masks, _extra(graph, mask, axes, negated, fill)))
    return None
