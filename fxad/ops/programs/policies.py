"""What a checkpoint keeps of the values between its forward and its backward half.

A policy is a tuple of rows (how, kind, *names); the first row that matches a value decides:

    (("keep", "dots"), ("disk", "names", "attention"))

`how`: keep (in memory), host, disk, or a lossy format (bf16) in front of one of them: "bf16",
"bf16 disk". After disk may stand the bytes of memory for values on their way: "disk 1000000". What
no row matches is recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fxad.core.errors import BadArgument
from fxad.core.record import valued
from fxad.ir.program import OPS, Atom, Eqn, Symbol, Var

Row = tuple[Any, ...]  # of strings, but for the Symbol of a row that asks a function
Rows = tuple[Row, ...]

KINDS = {
    "everything": "every value",
    "dots": "results of matrix products",
    "plain_dots": "results of matrix products without batch dimensions",
    "names": "values with one of these names",
    "other_names": "values with a name that is none of these",
    "asked": "what a function (a Symbol) says: f(op, *operand types, **params) -> bool",
    "budget": "no value: the bytes that all kept ones may take, and what may be done with others",
    "inputs": "what the region is given, where its backward half reads it",
    "unless_names": "every value but those with one of these names",
}
PRODUCTS = ("dot", "dot_by_parts")
PLACES = ("keep", "host", "disk")
FORMATS = ("bf16",)


def decide(policy: Rows, eqn: Eqn, names: frozenset[str]) -> str | None:
    """How to keep a result of `eqn` that has these names; None: recompute it."""
    for how, kind, *listed in policy:
        if kind == "asked":
            if _asked(listed[0], eqn, names):
                return how
        elif _matches(kind, frozenset(listed), eqn, names):
            return how
    return None


def _asked(symbol: Symbol, eqn: Eqn, names: frozenset[str]) -> bool:
    """A function's answer for an equation, or for a name that its result has."""
    types = [a.type for a in eqn.inputs]
    result = eqn.outputs[0].type
    return bool(symbol.value(eqn.op, *types, **eqn.params)) or any(
        symbol.value(OPS["name"], result, name=name) for name in sorted(names)
    )


def _matches(kind: str, listed: frozenset[str], eqn: Eqn, names: frozenset[str]) -> bool:
    match kind:
        case "everything":
            return True
        case "inputs" | "budget":
            return False
        case "dots":
            return eqn.op.name in PRODUCTS
        case "plain_dots":
            return eqn.op.name in PRODUCTS and not eqn.params["batch"][0]
        case "names":
            return not names.isdisjoint(listed)
        case "other_names":
            return bool(names - listed)
        case "unless_names":
            return names.isdisjoint(listed)
    raise BadArgument(f"checkpoint: unknown kind {kind!r} in a policy; known: {', '.join(KINDS)}")


@valued
class Budget:
    """Bytes of memory that what is kept may take. `ways`: where else values may go ("disk",
    "host"), or in which lossy format ("bf16"); they may always be recomputed."""

    nbytes: int
    ways: tuple[str, ...]

    @property
    def row(self) -> Row:
        return ("keep", "budget", str(self.nbytes), *self.ways)


def byte_budget(policy: Rows) -> Budget | None:
    """The budget, if the policy has one."""
    for _, kind, *rest in policy:
        if kind == "budget":
            return Budget(int(rest[0]), tuple(rest[1:]))
    return None


def input_how(policy: Rows) -> str:
    """How inputs wait that the backward half reads. They are never rounded: they may be
    parameters, which are in memory in full anyway."""
    return next((how for how, kind, *_ in policy if kind == "inputs"), "keep")


def place(how: str) -> str:
    """Where a kept value lies: keep, host or disk."""
    return next((word for word in how.split() if word in PLACES), "keep")


def memory(how: str) -> int:
    """Bytes for values on their way to the disk; 0: as the settings say."""
    last = how.split()[-1]
    return int(last) if last.isdecimal() else 0


def compressed(how: str) -> str:
    """The lossy format a kept value is stored in, or "" for its own."""
    first = how.split()[0]
    return first if first in FORMATS else ""


def ways_within(what: str, offload: str | None, compress: str | None) -> tuple[str, ...]:
    """The ways that a budget may take, as its options say (`what`: whose); "none": no place."""
    _known(what, "offload", offload, (*PLACES[1:], "none"))
    _known(what, "compress", compress, FORMATS)
    places = () if offload == "none" else (offload or "disk",)
    return (*places, *([compress] if compress else []))


def _known(what: str, option: str, given: str | None, known: Sequence[str]) -> None:
    """Raise BadArgument for places and formats that do not exist."""
    if given is not None and given not in known:
        options = ", ".join(map(repr, known))
        raise BadArgument(f"{what}: {option} must be one of {options}, not {given!r}")


def changed(policy: Rows, offload: str | None, compress: str | None, memory: int = 0) -> Rows:
    """The policy with everything it keeps in memory put elsewhere, or stored in fewer bits.
    memory: bytes for values on their way to the disk (0: as the settings say).

    Raises BadArgument for places and formats that do not exist.
    """
    _known("checkpoint", "offload", offload, PLACES[1:])
    _known("checkpoint", "compress", compress, FORMATS)
    away = f"{offload} {memory}" if memory else offload
    rows = []
    for how, *rest in policy:
        where = away if away and place(how) == "keep" else place(how)
        form = compress or compressed(how)
        rows.append((f"{form} {where}" if form else where, *rest))
    if away:
        rows.append((away, "inputs"))
    return tuple(rows)


def names_of(eqns: Sequence[Eqn], root: Mapping[Var, Atom]) -> dict[Atom, frozenset[str]]:
    """The names of each value; `root` says which values the equations `name` are copies of."""
    found: dict[Atom, frozenset[str]] = {}
    for eqn in eqns:
        if eqn.op.name == "name":
            value = root[eqn.outputs[0]]
            found[value] = found.get(value, frozenset()) | {eqn.params["name"]}
    return found
