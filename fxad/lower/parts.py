"""Values put together from disjoint parts, each written straight into its place.

concatenate(a, b)                    a into elements 0 .., b behind it
pad(a) + pad(b), nowhere both        the same; the gradient of splitting q, k and v
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial

from fxad.core.record import record
from fxad.ir import heuristics
from fxad.ir.kernel import Const, Expr, Prim
from fxad.ir.program import Atom, Lit, Var
from fxad.lower.expand import zero
from fxad.lower.graph import Def, Graph


@record
class Part:
    """`operand` lies at `offset` along `axis`; `wrap` makes the materialized value from its
    element."""

    operand: Atom
    axis: int
    offset: int
    wrap: Callable[[Expr], Expr]


def parts_of(graph: Graph, materialized: Container[Var], definition: Def) -> list[Part]:
    """The parts of a value to be materialized, or an empty list if it is not made of parts."""
    if definition.outputs[0].type.size < heuristics.PART_ELEMENTS:
        return []
    match definition.eqn.op.name:
        case "concatenate":
            found = _concatenated(definition)
        case "add":
            found = _added(graph, materialized, definition)
        case _:
            return []
    return found if 1 < len(found) <= heuristics.MOST_PARTS else []


def _concatenated(definition: Def) -> list[Part]:
    axis = definition.eqn.params["axis"]
    found: list[Part] = []
    offset = 0
    for operand in definition.operands:
        if operand.type.size:
            found.append(Part(operand, axis, offset, lambda x: x))
        offset += operand.type.shape[axis]
    return found


def _added(graph: Graph, materialized: Container[Var], definition: Def) -> list[Part]:
    """Parts of a sum of arrays padded with zeros along one axis, if they tile the result."""
    pads = _padded(graph, materialized, definition.outputs[0], root=True)
    if not pads:
        return []
    shape = definition.outputs[0].type.shape
    axes = {a for d in pads for a, n in enumerate(d.operands[0].type.shape) if n != shape[a]}
    if len(axes) != 1:
        return []
    (axis,) = axes
    spans = sorted((d.eqn.params["low"][axis], d.operands[0].type.shape[axis]) for d in pads)
    ends = [low + size for low, size in spans]
    if [low for low, _ in spans] != [0, *ends[:-1]] or ends[-1] != shape[axis]:
        return []
    found: list[Part] = []
    for pad in pads:
        wrap = partial(_sum_with, graph, definition, pad)
        found.append(Part(pad.operands[0], axis, pad.eqn.params["low"][axis], wrap))
    return found


def _padded(
    graph: Graph, materialized: Container[Var], atom: Atom, root: bool = False
) -> list[Def]:
    """The operands, all padded with zeros, that a value is the sum of; none for another value."""
    inner = graph.def_of.get(atom) if isinstance(atom, Var) else None
    if inner is None or (not root and (atom in materialized or graph.uses[atom] > 1)):
        return []
    if inner.eqn.op.name == "add" and len(inner.operands) == 2:
        left, right = (_padded(graph, materialized, a) for a in inner.operands)
        return [*left, *right] if left and right else []
    return [inner] if _is_zero_pad(inner) else []


def _is_zero_pad(definition: Def) -> bool:
    params = definition.eqn.params
    if definition.eqn.op.name != "pad" or len(definition.operands) != 2:
        return False
    fill = definition.operands[1]
    plain = not any(params["interior"]) and min((*params["low"], *params["high"]), default=0) >= 0
    return plain and isinstance(fill, Lit) and fill.key()[0] in ("0.0", "0", "0j")


def _sum_with(graph: Graph, root: Def, part: Def, x: Expr) -> Expr:
    """The sum where `part` is `x`: zeros are added as the program says (-0 + 0 is 0)."""
    if root is part:
        return x
    if root.eqn.op.name == "pad":
        return zero(x.dtype)
    left, right = (_sum_with(graph, graph.def_of[a], part, x) for a in root.operands)
    if isinstance(left, Const) and isinstance(right, Const):
        return left
    return Prim("add", (left, right), x.dtype)
