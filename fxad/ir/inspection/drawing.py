"""Programs as drawings: equations as boxes in layers, values as curves between them.

    to_svg(program)      one <svg>, programs inside loops and branches left out
    to_html(program)     a page that also draws those, each under a heading that folds

The layout is Sugiyama's: a layer per longest path from the inputs, chains of empty places where an
edge passes a layer, and a few sweeps that put each box near the middle of its neighbours.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass, field

from fxad.ir import loops
from fxad.ir.program import Atom, Eqn, Naming, Program, equation, subprograms

_CHARACTER, _HEIGHT, _GAP, _LAYER = 7, 38, 18, 84  # pixels
_SWEEPS = 8
_COLOURS = {
    "input": "#e8e8ee",
    "output": "#d8d8e2",
    "product": "#f6c9a4",
    "reduction": "#f7e3a0",
    "view": "#eeeeee",
    "program": "#d9c8f0",
    "elementwise": "#c6e2c9",
    "other": "#cfe0f3",
}


@dataclass(eq=False)
class _Node:
    """A box, or (without a label) a place where an edge passes a layer."""

    label: str = ""
    detail: str = ""
    note: str = ""
    kind: str = ""
    layer: int = 0
    x: float = 0.0
    above: list[_Node] = field(default_factory=list)
    below: list[_Node] = field(default_factory=list)

    @property
    def width(self) -> float:
        longest = max(len(self.label), len(self.note))
        return _CHARACTER * longest + 20 if self.label else 2


def to_svg(program: Program) -> str:
    """The program's graph as one <svg> element; hovering over a box shows its equation."""
    nodes = _nodes(program)
    layers = _layered(nodes)
    _place(layers)
    width = max((n.x + n.width for layer in layers for n in layer), default=0) + _GAP
    height = len(layers) * _LAYER + _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}" font-family="monospace" font-size="12">'
    ]
    parts += [_curve(a, b) for layer in layers for a in layer for b in a.below]
    parts += [_box(n) for layer in layers for n in layer if n.label]
    return "\n".join([*parts, "</svg>"])


def to_html(program: Program) -> str:
    """A page with the graphs of the program and of all programs inside it."""
    sections = []
    for number, (title, inner) in enumerate(_all(program, program.name)):
        opened = "" if number else " open"
        sections.append(
            f"<details{opened}><summary>{html.escape(title)}: {len(inner.eqns)} equations"
            f"</summary>\n{to_svg(inner)}\n</details>"
        )
    style = "body{font-family:sans-serif}summary{font-size:110%;padding:6px;cursor:pointer}"
    head = f'<meta charset="utf-8"><title>{html.escape(program.name)}</title>'
    return "\n".join(
        ["<!DOCTYPE html>", f"<html><head>{head}<style>{style}</style></head><body>", *sections]
        + ["</body></html>\n"]
    )


def _all(program: Program, title: str) -> Iterator[tuple[str, Program]]:
    yield title, program
    for eqn in program.eqns:
        for key, inner in subprograms(eqn):
            yield from _all(inner, f"{title} / {eqn.op.name} {key} {inner.name}")


# ---------------------------------------------------------------- nodes


def _nodes(program: Program) -> list[_Node]:
    """Boxes in an order in which each comes after those it reads."""
    names = Naming(program)
    made: dict[Atom, _Node] = {}
    nodes = []
    for var in (*program.consts, *program.inputs):
        text = f"{names[var]}: {var.type}"
        made[var] = _Node(text, text, kind="input")
        nodes.append(made[var])
    for eqn in program.eqns:
        nodes.append(_equation_node(eqn, names, made))
    for number, atom in enumerate(program.outputs):
        node = _Node(f"result {number}: {atom.type}", kind="output")
        _link(made.get(atom), node)
        nodes.append(node)
    return nodes


def _equation_node(eqn: Eqn, names: Naming, made: dict[Atom, _Node]) -> _Node:
    detail = equation(eqn, names).split("\n")[0]
    inner = sum(len(p.eqns) for _, p in subprograms(eqn))
    types = ", ".join(str(v.type) for v in eqn.outputs)
    note = f"{inner} equations" if inner else types
    where = f"  ({eqn.where})" if eqn.where else ""
    node = _Node(eqn.op.name, detail + where, note[:40], _kind(eqn))
    for atom in dict.fromkeys(eqn.inputs):
        _link(made.get(atom), node)
    made.update(dict.fromkeys(eqn.outputs, node))
    return node


def _link(above: _Node | None, below: _Node) -> None:
    if above is not None and below not in above.below:
        above.below.append(below)
        below.above.append(above)
        below.layer = max(below.layer, above.layer + 1)


def _kind(eqn: Eqn) -> str:
    if any(subprograms(eqn)):
        return "program"
    match loops.loops_of(eqn):
        case loops.Contract():
            return "product"
        case loops.Reduce() | loops.Scan():
            return "reduction"
        case loops.View() | loops.Alias() | loops.Generate():
            return "view"
        case loops.Pointwise():
            return "elementwise"
    return "other"


# ---------------------------------------------------------------- layout


def _layered(nodes: list[_Node]) -> list[list[_Node]]:
    """Nodes by layer, results last, with empty places where an edge passes a layer."""
    depth = max((n.layer for n in nodes), default=0)
    for node in nodes:
        if node.kind == "output":
            node.layer = depth
        elif not node.above and node.below:  # as near to its readers as it can be
            node.layer = min(b.layer for b in node.below) - 1
    layers: list[list[_Node]] = [[] for _ in range(depth + 1)]
    for node in nodes:
        layers[node.layer].append(node)
    for node in nodes:
        for below in list(node.below):
            _stretch(node, below, layers)
    return layers


def _stretch(above: _Node, below: _Node, layers: list[list[_Node]]) -> None:
    last = above
    above.below.remove(below)
    below.above.remove(above)
    for layer in range(above.layer + 1, below.layer):
        place = _Node(layer=layer)
        layers[layer].append(place)
        last.below.append(place)
        place.above.append(last)
        last = place
    last.below.append(below)
    below.above.append(last)


def _place(layers: list[list[_Node]]) -> None:
    for layer in layers:
        _spread(layer)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        for layer in layers if downwards else reversed(layers):
            for node in layer:
                near = node.above if downwards else node.below
                if near:
                    middle = sum(n.x + n.width / 2 for n in near) / len(near)
                    node.x = middle - node.width / 2
            layer.sort(key=lambda n: n.x + n.width / 2)
            _spread(layer)
    left = min((n.x for layer in layers for n in layer), default=0)
    for layer in layers:
        for node in layer:
            node.x += _GAP - left


def _spread(layer: list[_Node]) -> None:
    """Push nodes apart where they overlap, keeping their order and their middle."""
    if not layer:
        return
    wanted = sum(n.x for n in layer) / len(layer)
    edge = float("-inf")
    for node in layer:
        node.x = max(node.x, edge)
        edge = node.x + node.width + _GAP
    shift = wanted - sum(n.x for n in layer) / len(layer)
    for node in layer:
        node.x += shift


# ---------------------------------------------------------------- drawing


def _top(node: _Node) -> float:
    return _GAP + node.layer * _LAYER


def _curve(above: _Node, below: _Node) -> str:
    x1, y1 = above.x + above.width / 2, _top(above) + _HEIGHT
    x2, y2 = below.x + below.width / 2, _top(below)
    middle = (y1 + y2) / 2
    lines = "" if above.label else f"M{x1:.0f},{_top(above):.0f} V{y1:.0f} "
    return (
        f'<path d="{lines}M{x1:.0f},{y1:.0f} C{x1:.0f},{middle:.0f} {x2:.0f},{middle:.0f} '
        f'{x2:.0f},{y2:.0f}" fill="none" stroke="#889"/>'
    )


def _box(node: _Node) -> str:
    x, y, middle = node.x, _top(node), node.x + node.width / 2
    label, note = html.escape(node.label), html.escape(node.note)
    low = f'<text x="{middle:.0f}" y="{y + 31:.0f}" text-anchor="middle" fill="#667">{note}</text>'
    return (
        f"<g><title>{html.escape(node.detail)}</title>"
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{node.width:.0f}" height="{_HEIGHT}" rx="6" '
        f'fill="{_COLOURS[node.kind]}" stroke="#99a"/>'
        f'<text x="{middle:.0f}" y="{y + (16 if note else 23):.0f}" text-anchor="middle">{label}'
        f"</text>{low if note else ''}</g>"
    )
