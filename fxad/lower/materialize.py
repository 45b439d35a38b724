"""Which values get memory of their own, and which are recomputed by whoever reads them.

Results, and operands of control flow and of matrix products, must be materialized. Of the rest a
value is where recomputing it costs more than a store and a load: costs are rough hundredths of a
nanosecond per element of SIMD code whose data is in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fxad.core.record import record
from fxad.ir import heuristics
from fxad.ir.loops import (
    Attention,
    Contract,
    HostCall,
    Indexed,
    Pointwise,
    Reduce,
    Scatter,
    Structured,
    Unpack,
    View,
)
from fxad.ir.prims import PRIMS, SIMPLE
from fxad.ir.program import Atom, Lit, Var
from fxad.lower.attention import D_OUT, LSE, operand_addresses
from fxad.lower.contraction import FUSIBLE, Address, addresses
from fxad.lower.graph import Def, Graph


@dataclass(eq=False, slots=True)
class Materialization:
    """values: those in memory (inputs included); addresses: where products read their operands."""

    values: dict[Var, None]
    addresses: dict[Def, tuple[Address, ...]] = field(default_factory=dict)


@record
class Cost:
    """Computing one element from materialized values: arithmetic, number of operations, and those
    read that are about as large as the result."""

    work: float
    size: int
    leaves: frozenset[Var]

    @property
    def total(self) -> float:
        return self.work + heuristics.LOAD_COST * len(self.leaves)


def materialize(graph: Graph, fusion: bool) -> Materialization:
    """Decide for all values of a graph; without fusion all of them are materialized."""
    chosen = Materialization(dict.fromkeys(graph.inputs))
    _materialize_operands(graph, chosen, fusion)
    if not fusion:
        for definition in graph.defs:
            chosen.values.update(dict.fromkeys(definition.outputs))
        return chosen
    bases = {x.base for pair in chosen.addresses.values() for x in pair}
    costs: dict[Var, Cost] = {}
    for definition in graph.defs:
        if not isinstance(definition.record, FUSIBLE):
            chosen.values.update(dict.fromkeys(definition.outputs))
            continue
        _materialize_broadcast(definition, chosen, costs)
        var = definition.outputs[0]
        cost = costs[var] = _cost(definition, chosen, costs)
        more = graph.uses.get(var, 0) - 1
        cheap = cost.work <= heuristics.CHEAP_COST and len(cost.leaves) <= 1
        if (
            _transposed_product(graph, definition, bases)
            or _large_accumulation(graph, definition)
            or _shared_accumulation(graph, definition, chosen, bases)
            or _rounded_at_barrier(graph, definition)
            or _rounded_product(graph, definition, bases)
            or cost.size > heuristics.INLINED_OPERATIONS
            or (not cheap and more * cost.total > heuristics.STORE_AND_LOAD_COST)
        ):
            chosen.values[var] = None
    return chosen


def _materialize_operands(graph: Graph, chosen: Materialization, fusion: bool) -> None:
    """Values that something reads as bytes."""
    for atom in graph.outputs:
        if isinstance(atom, Var):
            chosen.values[atom] = None
    for definition in list(graph.defs):
        match definition.record:
            case Contract() as record:
                found = addresses(graph, definition, record, fusion)
                chosen.addresses[definition] = found
                for address in found:
                    chosen.values[address.base] = None
            case Attention() as record:
                places = operand_addresses(graph, definition, record, fusion)
                chosen.addresses[definition] = places
                rows = definition.operands[LSE:D_OUT] if record.backward else ()
                for atom in (*(p.base for p in places), *rows):
                    if isinstance(atom, Var):
                        chosen.values[atom] = None
            case Structured() | HostCall() | Unpack():
                for atom in definition.operands:
                    if isinstance(atom, Var):
                        chosen.values[atom] = None
            case Scatter() if isinstance(definition.operands[0], Var):
                chosen.values[definition.operands[0]] = None
                chosen.values.update(dict.fromkeys(_read_before(graph, definition)))


def _read_before(graph: Graph, update: Def) -> list[Var]:
    """Values to materialize so that an update of a few elements may happen in its operand's memory.

    A kernel that writes an array cannot read it elsewhere as well: an update computed from the
    array it changes is materialized. What reads an older state of the array is too, so that it is
    read before the next state takes its place. So is what was held at a barrier.
    """
    base, *others = update.operands
    older: set[Atom] = set()
    before = graph.def_of.get(base)
    while before is not None and isinstance(before.record, Scatter):
        older.add(before.operands[0])
        before = graph.def_of.get(before.operands[0])
    small = [a for a in others if isinstance(a, Var) and 4 * a.type.size <= base.type.size]
    found: list[Var] = [
        a for a in small if a in graph.barrier_operands or base in _computed_from(graph, a)
    ]
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
            definition.record, Pointwise | View | Indexed | Reduce
        )
        if definition is not None and fusable and current not in seen:
            pending += definition.operands
        seen.add(current)
    return seen


def _transposed_product(graph: Graph, definition: Def, bases: set[Var]) -> bool:
    """A transposed matrix product that nobody reads otherwise: it can be stored transposed at
    once, while readers would walk it against its rows."""
    if definition.eqn.op.name != "transpose" or not isinstance(definition.record, View):
        return False
    (operand,) = definition.operands
    return _is_product(graph, operand) and graph.uses[operand] == 1 and operand not in bases


def _shared_accumulation(
    graph: Graph, definition: Def, chosen: Materialization, bases: set[Var]
) -> bool:
    """A stored array plus a matrix product that nobody reads otherwise, read several times: it is
    the product's epilogue, and the product needs no memory of its own."""
    var = definition.outputs[0]
    if definition.eqn.op.name != "add" or graph.uses.get(var, 0) < 2:
        return False
    for product, other in (definition.operands, definition.operands[::-1]):
        if isinstance(product, Lit) or isinstance(other, Lit) or product.type != other.type:
            continue
        last = graph.def_of.get(product)
        transposed = last is not None and _transposed_product(graph, last, bases)
        if (transposed or _is_product(graph, product)) and other in chosen.values:
            return graph.uses[product] == 1 and product not in bases
    return False


def _is_product(graph: Graph, atom: Atom) -> bool:
    source = graph.def_of.get(atom)
    return source is not None and isinstance(source.record, Contract)


def _large_accumulation(graph: Graph, definition: Def) -> bool:
    """A large product added to something, which nobody reads otherwise: stored as one sum, in the
    product's epilogue, it takes one array's memory where the summands would take two."""
    nbytes = definition.outputs[0].type.nbytes
    if definition.eqn.op.name != "add" or nbytes < heuristics.ACCUMULATION_BYTES:
        return False
    for atom in definition.operands:
        source = graph.def_of.get(atom)
        if source and isinstance(source.record, Contract) and graph.uses[atom] == 1:
            return True
    return False


def _rounded_product(graph: Graph, definition: Def, bases: set[Var]) -> bool:
    """A product that is read once, to be rounded to fewer bytes: the product rounds it itself,
    so that it is written and read in those."""
    if definition.eqn.op.name != "convert":
        return False
    (operand,) = definition.operands
    fewer = definition.outputs[0].type.nbytes < operand.type.nbytes
    return (
        fewer and _is_product(graph, operand) and graph.uses[operand] == 1 and operand not in bases
    )


def _rounded_at_barrier(graph: Graph, definition: Def) -> bool:
    """A value rounded to fewer bytes in front of a barrier: those are what waits behind it."""
    var = definition.outputs[0]
    if definition.eqn.op.name != "convert" or var not in graph.barrier_operands:
        return False
    return var.type.nbytes < definition.operands[0].type.nbytes


def _cost(definition: Def, chosen: Materialization, costs: dict[Var, Cost]) -> Cost:
    """What it takes to compute a value where it is read."""
    operands = definition.operands
    match definition.record:
        case Pointwise():
            scalar = PRIMS.get(definition.eqn.op.name)
            work, size = scalar.cost if scalar else SIMPLE, 1
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
        if atom in chosen.values:
            leaves |= {atom} if large else frozenset()
            continue
        below = costs[atom]
        work += below.work
        size += below.size
        if large:
            leaves |= below.leaves
    return Cost(work, size, leaves)


def _materialize_broadcast(
    definition: Def, chosen: Materialization, costs: dict[Var, Cost]
) -> None:
    """Store what would be computed again for every element it is repeated over."""
    if isinstance(definition.record, Pointwise):
        return
    out = definition.outputs[0].type.size
    for atom in definition.operands:
        if isinstance(atom, Lit) or atom in chosen.values:
            continue
        if atom.type.size * 2 <= out and costs[atom].work > heuristics.BROADCAST_COST:
            chosen.values[atom] = None
