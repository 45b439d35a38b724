"""Which values get memory of their own, and which are recomputed by whoever reads them.

Results, and operands of control flow and of matrix products, must be stored. Of the rest a value
is stored where computing it again costs more than a store and a load: costs are rough hundredths
of a nanosecond per element of SIMD code whose data is in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fxad.core.record import record
from fxad.ir.loops import (
    Attention,
    Contraction,
    HostCall,
    Indexed,
    Pointwise,
    Reduction,
    Scattering,
    Structured,
    View,
)
from fxad.ir.program import Atom, Lit, Var
from fxad.lower.attention import D_OUT, LSE, operand_addresses
from fxad.lower.contraction import SOFT, Address, addresses
from fxad.lower.graph import Def, Graph

LOAD = 10.0
STORE_AND_LOAD = 32.0
CHEAP = 14.0  # arithmetic on one stored array that is never worth a store of its own
SPREAD_LIMIT = 6.0  # a value repeated along an axis is stored if it costs more than this
SIZE_LIMIT = 150  # operations one value may bring along, so that kernels stay small

# Operations that are not one or two instructions per vector.
COSTS: dict[str, float] = {
    name: cost
    for cost, names in {
        8.0: "div sqrt rsqrt reciprocal rem",
        25.0: "exp exp2 log log2 logistic cbrt",
        40.0: "expm1 log1p tanh sin cos erf sinh cosh atan asin acos atan2",
        60.0: "tan erfc erfinv asinh acosh atanh pow",
        100.0: "lgamma",
    }.items()
    for name in names.split()
}
SIMPLE = 2.0
LARGE = 8 << 20  # bytes of a value whose memory counts


@dataclass(eq=False, slots=True)
class Choice:
    """stored: values in memory (the program's inputs included); addresses: products' operands."""

    stored: dict[Var, None]
    addresses: dict[Def, tuple[Address, ...]] = field(default_factory=dict)


@record
class Cost:
    """Computing one element from stored values: arithmetic, number of operations, and the stored
    values read that are about as large as the result."""

    work: float
    size: int
    leaves: frozenset[Var]

    @property
    def total(self) -> float:
        return self.work + LOAD * len(self.leaves)


def choose(graph: Graph, fusion: bool) -> Choice:
    """Decide for all values of a graph; without fusion all of them are stored."""
    choice = Choice(dict.fromkeys(graph.inputs))
    _demanded(graph, choice, fusion)
    if not fusion:
        for definition in graph.defs:
            choice.stored.update(dict.fromkeys(definition.outputs))
        return choice
    bases = {x.base for pair in choice.addresses.values() for x in pair}
    costs: dict[Var, Cost] = {}
    for definition in graph.defs:
        if not isinstance(definition.record, SOFT):
            choice.stored.update(dict.fromkeys(definition.outputs))
            continue
        _store_repeated(definition, choice, costs)
        var = definition.outputs[0]
        cost = costs[var] = _cost(definition, choice, costs)
        again = graph.uses.get(var, 0) - 1
        cheap = cost.work <= CHEAP and len(cost.leaves) <= 1
        if (
            _turned_product(graph, definition, bases)
            or _growing_product(graph, definition)
            or _grown_product(graph, definition, choice, bases)
            or _narrowed(graph, definition)
            or cost.size > SIZE_LIMIT
            or (not cheap and again * cost.total > STORE_AND_LOAD)
        ):
            choice.stored[var] = None
    return choice


def _demanded(graph: Graph, choice: Choice, fusion: bool) -> None:
    """Values that something reads as bytes."""
    for atom in graph.outputs:
        if isinstance(atom, Var):
            choice.stored[atom] = None
    for definition in list(graph.defs):
        match definition.record:
            case Contraction() as record:
                found = addresses(graph, definition, record, fusion)
                choice.addresses[definition] = found
                for address in found:
                    choice.stored[address.base] = None
            case Attention() as record:
                places = operand_addresses(graph, definition, record, fusion)
                choice.addresses[definition] = places
                rows = definition.operands[LSE:D_OUT] if record.backward else ()
                for atom in (*(p.base for p in places), *rows):
                    if isinstance(atom, Var):
                        choice.stored[atom] = None
            case Structured() | HostCall():
                for atom in definition.operands:
                    if isinstance(atom, Var):
                        choice.stored[atom] = None
            case Scattering() if isinstance(definition.operands[0], Var):
                choice.stored[definition.operands[0]] = None
                choice.stored.update(dict.fromkeys(_read_before(graph, definition)))


def _read_before(graph: Graph, update: Def) -> list[Var]:
    """Values to store so that an update of a few elements may happen in its operand's memory.

    A kernel that writes an array cannot read it elsewhere as well: an update computed from the
    array it changes is stored. What reads an older state of the array is stored too, so that it is
    read before the next state takes its place. So is what was held at a barrier.
    """
    base, *others = update.operands
    older: set[Atom] = set()
    before = graph.def_of.get(base)
    while before is not None and isinstance(before.record, Scattering):
        older.add(before.operands[0])
        before = graph.def_of.get(before.operands[0])
    small = [a for a in others if isinstance(a, Var) and 4 * a.type.size <= base.type.size]
    found: list[Var] = [a for a in small if a in graph.barred or base in _computed_from(graph, a)]
    if older and small:
        readers = [d for d in graph.defs if not older.isdisjoint(d.operands)]
        fused = [v for d in readers if isinstance(d.record, View | Indexed) for v in d.outputs]
        found += [v for v in fused if 4 * v.type.size <= base.type.size]
    return found


def _computed_from(graph: Graph, atom: Atom) -> set[Atom]:
    """What a value is computed from where it is read."""
    pending, seen = [atom], set[Atom]()
    while pending:
        current = pending.pop()
        definition = graph.def_of.get(current)
        fusable = definition is not None and isinstance(
            definition.record, Pointwise | View | Indexed | Reduction
        )
        if definition is not None and fusable and current not in seen:
            pending += definition.operands
        seen.add(current)
    return seen


def _turned_product(graph: Graph, definition: Def, bases: set[Var]) -> bool:
    """A transposed matrix product that nobody reads otherwise: it can be stored transposed at
    once, while readers would walk it against its rows."""
    if definition.eqn.op.name != "transpose" or not isinstance(definition.record, View):
        return False
    (operand,) = definition.operands
    return _is_product(graph, operand) and graph.uses[operand] == 1 and operand not in bases


def _grown_product(graph: Graph, definition: Def, choice: Choice, bases: set[Var]) -> bool:
    """A stored array plus a matrix product that nobody reads otherwise, read several times: it is
    the product's epilogue, and the product needs no memory of its own."""
    var = definition.outputs[0]
    if definition.eqn.op.name != "add" or graph.uses.get(var, 0) < 2:
        return False
    for product, other in (definition.operands, definition.operands[::-1]):
        if isinstance(product, Lit) or isinstance(other, Lit) or product.type != other.type:
            continue
        last = graph.def_of.get(product)
        turned = last is not None and _turned_product(graph, last, bases)
        if (turned or _is_product(graph, product)) and other in choice.stored:
            return graph.uses[product] == 1 and product not in bases
    return False


def _is_product(graph: Graph, atom: Atom) -> bool:
    source = graph.def_of.get(atom)
    return source is not None and isinstance(source.record, Contraction)


def _growing_product(graph: Graph, definition: Def) -> bool:
    """A large product added to something, which nobody reads otherwise: stored as one sum, in the
    product's epilogue, it takes one array's memory where the summands would take two."""
    if definition.eqn.op.name != "add" or definition.outputs[0].type.nbytes < LARGE:
        return False
    for atom in definition.operands:
        source = graph.def_of.get(atom)
        if source and isinstance(source.record, Contraction) and graph.uses[atom] == 1:
            return True
    return False


def _narrowed(graph: Graph, definition: Def) -> bool:
    """A value rounded to fewer bytes in front of a barrier: those are what waits behind it."""
    var = definition.outputs[0]
    if definition.eqn.op.name != "convert" or var not in graph.barred:
        return False
    return var.type.nbytes < definition.operands[0].type.nbytes


def _cost(definition: Def, choice: Choice, costs: dict[Var, Cost]) -> Cost:
    """What it takes to compute a value where it is read."""
    operands = definition.operands
    match definition.record:
        case Pointwise():
            work, size = COSTS.get(definition.eqn.op.name, SIMPLE), 1
        case Indexed():
            work, size = 4.0 * len(operands), 2 * len(operands)
        case _:
            work, size = 0.0, 0
    leaves: frozenset[Var] = frozenset()
    out = definition.outputs[0].type.size
    for atom in dict.fromkeys(operands):
        if isinstance(atom, Lit):
            continue
        large = atom.type.size * 2 > out
        if atom in choice.stored:
            leaves |= {atom} if large else frozenset()
            continue
        below = costs[atom]
        work += below.work
        size += below.size
        if large:
            leaves |= below.leaves
    return Cost(work, size, leaves)


def _store_repeated(definition: Def, choice: Choice, costs: dict[Var, Cost]) -> None:
    """Store what would be computed again for every element it is repeated over."""
    if isinstance(definition.record, Pointwise):
        return
    out = definition.outputs[0].type.size
    for atom in definition.operands:
        if isinstance(atom, Lit) or atom in choice.stored:
            continue
        if atom.type.size * 2 <= out and costs[atom].work > SPREAD_LIMIT:
            choice.stored[atom] = None
