"""Equations that a pass inserts, written as a function of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from fxad.ir.program import Atom, Eqn
from fxad.ir.rewrite import inline_into
from fxad.trace.tracer import stage

if TYPE_CHECKING:
    from fxad.ir.rules import Value


def inserted(
    function: Callable[..., Iterable[Value]],
    atoms: Sequence[Atom],
    where: str,
    tag: str | None = None,
) -> tuple[list[Eqn], tuple[Atom, ...]]:
    """The equations that compute function(*atoms), as from line `where` of the user's, and its
    results."""
    program, consts = stage(lambda *xs: list(function(*xs)), [a.type for a in atoms])
    assert not consts
    eqns, results = inline_into(program, atoms)
    return [Eqn(e.op, e.inputs, e.params, e.outputs, where, tag) for e in eqns], results
