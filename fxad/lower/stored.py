"""Which values get memory of their own, and which are recomputed by whoever reads them.

Results, and operands of control flow and of matrix products, must be stored. Of the rest a value
is stored where computing it again costs more than a store and a load: costs are rough hundredths
of a nanosecond per element of SIMD code whose data is in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fxad.ir.loops import (
    Contraction,
    Generate,
    HostCall,
    Indexed,
    Pointwise,
    Scattering,
    Structured,
    View,
)
from fxad.ir.program import Lit, Var
from fxad.lower.contraction import SOFT, Address, addresses
from fxad.lower.graph import Def, Graph

LOAD = 10.0
STORE_AND_LOAD = 32.0
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


@dataclass(eq=False, slots=True)
class Choice:
    """stored: values in memory (the program's inputs included); addresses: products' operands."""

    stored: dict[Var, None]
    addresses: dict[Def, tuple[Address, Address]] = field(default_factory=dict)


def choose(graph: Graph, fusion: bool) -> Choice:
    choice = Choice(dict.fromkeys(graph.inputs))
    _demanded(graph, choice, fusion)
    if not fusion:
        for definition in graph.defs:
            choice.stored.update(dict.fromkeys(definition.outputs))
        return choice
    costs: dict[Var, tuple[float, int]] = {}
    for definition in graph.defs:
        if not isinstance(definition.record, SOFT):
            choice.stored.update(dict.fromkeys(definition.outputs))
            continue
        _spread_operands(definition, choice, costs)
        var = definition.outputs[0]
        cost, size = _cost(definition, choice, costs)
        costs[var] = (cost, size)
        again = graph.uses.get(var, 0) - 1
        if (again > 0 and again * cost > STORE_AND_LOAD) or size > SIZE_LIMIT:
            choice.stored[var] = None
    return choice


def _demanded(graph: Graph, choice: Choice, fusion: bool) -> None:
    """Values that something reads as bytes."""
    for atom in graph.outputs:
        if isinstance(atom, Var):
            choice.stored[atom] = None
    for definition in list(graph.defs):
        match definition.record:
            case Contraction():
                found = addresses(graph, definition, fusion)
                choice.addresses[definition] = found
                for address in found:
                    choice.stored[address.base] = None
            case Structured() | HostCall():
                for atom in definition.operands:
                    if isinstance(atom, Var):
                        choice.stored[atom] = None
            case Scattering() if isinstance(definition.operands[0], Var):
                choice.stored[definition.operands[0]] = None


def _cost(
    definition: Def, choice: Choice, costs: dict[Var, tuple[float, int]]
) -> tuple[float, int]:
    """Cost per element and number of operations of a value computed from stored ones."""
    match definition.record:
        case Pointwise():
            cost, size = COSTS.get(definition.eqn.op.name, SIMPLE), 1
        case View() | Generate():
            cost, size = 0.0, 0
        case Indexed():
            cost, size = 4.0 * len(definition.operands), 2 * len(definition.operands)
    out = max(definition.outputs[0].type.size, 1)
    for atom in dict.fromkeys(definition.operands):
        if isinstance(atom, Lit):
            continue
        share = min(1.0, atom.type.size / out)
        if atom in choice.stored:
            cost += LOAD * share
        else:
            below, operations = costs[atom]
            cost += below
            size += operations
    return cost, size


def _spread_operands(definition: Def, choice: Choice, costs: dict[Var, tuple[float, int]]) -> None:
    """Store what would be computed again for every element it is repeated over."""
    out = definition.outputs[0].type.size
    for atom in definition.operands:
        if isinstance(atom, Lit) or atom in choice.stored:
            continue
        repeated = atom.type.size * 2 <= out and not isinstance(definition.record, Pointwise)
        if repeated and costs[atom][0] > SPREAD_LIMIT + LOAD:
            choice.stored[atom] = None
