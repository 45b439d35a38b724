"""Updates that cannot be fused into the product of their gradient, and why: for reports.

    g = dot(a, b); s = sum(square(g)); p' = p - 0.1 * g / sqrt(s)

A product whose elements only its parameter's update reads has the update as its epilogue
(`fxad.lower`), and is never stored. Here the update reads a number that all of g decides, as it
does where gradients are clipped by a global norm: g is stored, and read again when s is known.

    >>> unfused_updates(program)
    [UnfusedUpdate(why="sum @ optim.py:103", count=12, nbytes=28311552)]
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set

from fxad.core.record import record
from fxad.ir.loops import Alias, Contract, Pointwise, View, loops_of
from fxad.ir.program import Atom, Eqn, Program, Var
from fxad.ir.uses import Uses, uses_of


@record
class UnfusedUpdate:
    """`count` products of `nbytes` together are stored until the equation `why` has read them."""

    why: str
    count: int
    nbytes: int


def unfused_updates(program: Program) -> list[UnfusedUpdate]:
    """Products that an update reads together with a number that depends on the whole product, by
    the equation that made it so. An update: elementwise, of an argument, to a result. Loops and
    branches are not looked into."""
    found: dict[str, list[int]] = {}
    graph = _Graph.of(program)
    for product in program.eqns:
        if isinstance(loops_of(product), Contract):
            why = graph.barrier(product.outputs[0])
            if why is not None:
                found.setdefault(f"{why.op.name} @ {why.where}", []).append(
                    product.outputs[0].type.nbytes
                )
    return [UnfusedUpdate(why, len(sizes), sum(sizes)) for why, sizes in found.items()]


@record
class _Graph:
    """Questions about a program's values."""

    inputs: Set[Var]
    outputs: Set[Atom]
    uses: Uses

    @staticmethod
    def of(program: Program) -> _Graph:
        return _Graph(frozenset(program.inputs), frozenset(program.outputs), uses_of(program))

    def barrier(self, product: Var) -> Eqn | None:
        """The equation that reads all of the product for its update; None if there is none."""
        each, others = self.elementwise(product)
        if self.outputs.isdisjoint(each):
            return None
        beside = self.beside(each)
        if not any(a.type.shape == product.type.shape for a in beside & self.inputs):
            return None
        numbers = {a for a in beside if a.type.size == 1}
        return next((eqn for eqn in others if not numbers.isdisjoint(self.after(eqn))), None)

    def beside(self, each: Collection[Var]) -> set[Atom]:
        """What else those values are made of, back to numbers and to what is not elementwise."""
        open_: list[Atom] = list(each)
        found: set[Atom] = set()
        while open_:
            eqn = self.uses.maker.get(open_.pop())
            if eqn is not None and (_keeps_places(eqn, eqn.outputs[0].type.size) or _spreads(eqn)):
                new = {a for a in eqn.inputs if a not in found and a not in each}
                found |= new
                open_ += [a for a in new if a.type.size > 1]
        return found

    def elementwise(self, product: Var) -> tuple[dict[Var, None], list[Eqn]]:
        """Values made of it element by element, itself among them, and the other readers."""
        each: dict[Var, None] = {product: None}
        others: dict[Eqn, None] = {}
        open_ = [product]
        while open_:
            for eqn in self.uses.readers(open_.pop()):
                if not _keeps_places(eqn, product.type.size):
                    others[eqn] = None
                elif eqn.outputs[0] not in each:
                    each[eqn.outputs[0]] = None
                    open_.append(eqn.outputs[0])
        return each, list(others)

    def after(self, eqn: Eqn) -> Iterator[Var]:
        """All values that depend on an equation."""
        seen, open_ = {eqn}, [eqn]
        while open_:
            for var in open_.pop().outputs:
                yield var
                new = [e for e in self.uses.readers(var) if e not in seen]
                seen.update(new)
                open_ += new


def _keeps_places(eqn: Eqn, size: int) -> bool:
    """Whether every element of the one result is made of one element of each large operand."""
    if len(eqn.outputs) != 1 or eqn.outputs[0].type.size != size:
        return False
    return isinstance(loops_of(eqn), Pointwise | View | Alias)


def _spreads(eqn: Eqn) -> bool:
    """Whether one number is repeated."""
    return eqn.op.name == "broadcast" and eqn.inputs[0].type.size == 1
