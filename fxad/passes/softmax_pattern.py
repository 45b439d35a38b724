"""Softmax and log-sum-exp as people write them.

    exp(x - m) / sum(exp(x - m))     m: the maximum of each row, or absent
    exp(x - logsumexp(x))            or exp(log_softmax(x))

A row's maximum may be stopped from differentiation and replaced where it is infinite: the result
does not depend on it. Sums of an empty row (all terms 0) may be replaced by 1.
"""

from __future__ import annotations

from fxad.core.record import replace, valued
from fxad.ir.program import Atom, Eqn, Lit
from fxad.passes.patterns import Graph

INF = float("inf")


@valued
class Softmax:
    """p = softmax(logits); a row of minus infinities gives 0 if `zero`, else NaN."""

    logits: Atom
    zero: bool


def softmax(graph: Graph, p: Atom, axis: int) -> Softmax | None:
    """What `p` is the softmax of along an axis."""
    eqn = graph.defined.get(p)
    if eqn is None:
        return None
    match eqn.op.name:
        case "div":
            return _quotient(graph, eqn.inputs[0], eqn.inputs[1], axis)
        case "mul":
            for e, factor in (eqn.inputs, eqn.inputs[::-1]):
                row = graph.row(factor, axis)
                total = None if row is None else _inverted(graph, row)
                found = None if total is None else _from_total(graph, e, total, axis)
                if found is not None:
                    return found
        case "exp":
            return log_softmax(graph, eqn.inputs[0], axis)
    return None


def log_softmax(graph: Graph, x: Atom, axis: int) -> Softmax | None:
    """The logits, if x is them less their log-sum-exp along an axis."""
    eqn = graph.op(x, "sub")
    row = None if eqn is None else graph.row(eqn.inputs[1], axis)
    found = None if row is None else log_sum_exp(graph, row, axis)
    if eqn is None or found is None or found.logits is not eqn.inputs[0]:
        return None
    return unshifted(graph, found, axis)


def log_sum_exp(graph: Graph, row: Atom, axis: int) -> Softmax | None:
    """The logits whose log-sum-exp along an axis a row-valued atom is; `zero`: exp(logits less
    it) is 0 in an empty row."""
    row = graph.same_order(row)
    guard = graph.op(row, "select")
    if guard is not None and _is(graph, guard.inputs[1], -INF):
        row = graph.same_order(guard.inputs[2])
    for logged, peak in _sums(graph, row):
        eqn = graph.op(graph.same_order(logged), "log")
        terms = None if eqn is None else _terms(graph, eqn.inputs[0], axis)
        if terms is None or (guard is not None and not _is_empty(graph, guard, terms, axis)):
            continue
        found = Softmax(terms.x, terms.guarded and guard is None)
        if peak is None:
            return found
        shift = _shift(graph, terms.x, axis)
        if shift is not None and shift.row is graph.same_order(peak):
            return Softmax(shift.x, found.zero and shift.safe)
    return None


def unshifted(graph: Graph, found: Softmax, axis: int) -> Softmax:
    """The same softmax of logits from which no maxima of rows have been taken off."""
    while (shift := _shift(graph, found.logits, axis)) is not None:
        found = Softmax(shift.x, found.zero and shift.safe)
    return found


@valued
class _Terms:
    """A row-valued atom is the sum of terms = exp(x); guarded: 1 where that sum is 0."""

    x: Atom
    terms: Atom
    guarded: bool


@valued
class _Shift:
    """x less the maximum of each row; safe: rows without a finite maximum are left alone."""

    x: Atom
    row: Atom
    safe: bool


def _is_empty(graph: Graph, guard: Eqn, terms: _Terms, axis: int) -> bool:
    """Whether a select's condition is that the sum of these terms is 0."""
    equal = graph.op(graph.same_order(guard.inputs[0]), "eq")
    if equal is None or not _is(graph, equal.inputs[1], 0):
        return False
    tested = _terms(graph, equal.inputs[0], axis)
    return tested is not None and not tested.guarded and tested.terms is terms.terms


def _sums(graph: Graph, row: Atom) -> list[tuple[Atom, Atom | None]]:
    """The ways to read a row as (logarithm, maximum)."""
    eqn = graph.op(row, "add")
    if eqn is None:
        return [(row, None)]
    a, b = eqn.inputs
    return [(a, b), (b, a)]


def _quotient(graph: Graph, e: Atom, divisor: Atom, axis: int) -> Softmax | None:
    row = graph.row(divisor, axis)
    return None if row is None else _from_total(graph, e, row, axis)


def _from_total(graph: Graph, e: Atom, total: Atom, axis: int) -> Softmax | None:
    found = _terms(graph, total, axis)
    if found is None or found.terms is not e:
        return None
    return unshifted(graph, Softmax(found.x, found.guarded), axis)


def _terms(graph: Graph, total: Atom, axis: int) -> _Terms | None:
    """What a row-valued atom is the sum of."""
    total = graph.same_order(total)
    guard = graph.op(total, "select")
    if guard is not None:
        found = _terms(graph, guard.inputs[2], axis)
        good = found is not None and not found.guarded and _is(graph, guard.inputs[1], 1)
        if found is None or not good or not _is_empty(graph, guard, found, axis):
            return None
        return replace(found, guarded=True)
    eqn = graph.op(total, "sum")
    if eqn is None or eqn.params["axes"] != (axis,):
        return None
    exp = graph.op(eqn.inputs[0], "exp")
    return None if exp is None else _Terms(exp.inputs[0], eqn.inputs[0], False)


def _inverted(graph: Graph, row: Atom) -> Atom | None:
    """t, if the row is 1 / t."""
    eqn = graph.defined.get(graph.same_order(row))
    if eqn is None:
        return None
    if eqn.op.name == "reciprocal" or (eqn.op.name == "integer_pow" and eqn.params["n"] == -1):
        return eqn.inputs[0]
    return eqn.inputs[1] if eqn.op.name == "div" and _is(graph, eqn.inputs[0], 1) else None


def _shift(graph: Graph, x: Atom, axis: int) -> _Shift | None:
    """What x is less the maximum of each row."""
    eqn = graph.op(x, "sub")
    row = None if eqn is None else graph.row(eqn.inputs[1], axis)
    if eqn is None or row is None:
        return None
    row = graph.same_order(row)
    safe = _peak(graph, row, eqn.inputs[0], axis)
    return None if safe is None else _Shift(eqn.inputs[0], row, safe)


def _peak(graph: Graph, row: Atom, x: Atom, axis: int) -> bool | None:
    """Whether a row-valued atom, the maximum of x along an axis, is replaced where infinite; None
    if it is not that maximum."""
    safe = False
    while (eqn := graph.defined.get(row := graph.same_order(row))) is not None:
        match eqn.op.name:
            case "stop_gradient":
                row = eqn.inputs[0]
            case "max" if _is(graph, eqn.inputs[1], -INF):
                row = eqn.inputs[0]
            case "select" if (kept := _finite_only(graph, eqn)) is not None:
                row, safe = kept, True
            case "max_reduce":
                source = graph.op(eqn.inputs[0], "stop_gradient")
                read = eqn.inputs[0] if source is None else source.inputs[0]
                return safe if eqn.params["axes"] == (axis,) and read is x else None
            case _:
                return None
    return None


def _finite_only(graph: Graph, eqn: Eqn) -> Atom | None:
    """m, if the equation is m with 0 where m is infinite."""
    test = graph.defined.get(graph.same_order(eqn.inputs[0]))
    if test is None or test.op.name not in ("eq", "lt", "ne", "gt"):
        return None
    inverse = test.op.name in ("lt", "ne", "gt")
    zero, kept = eqn.inputs[1:][:: -1 if inverse else 1]
    absolute = graph.op(graph.same_order(test.inputs[0]), "abs")
    tested = test.inputs[0] if absolute is None else absolute.inputs[0]
    limit = test.inputs[1]
    infinite = _is(graph, limit, INF) if absolute is not None else _is(graph, limit, -INF)
    sensible = test.op.name != "lt" if absolute is None else test.op.name != "gt"
    same = graph.same_order(tested) is graph.same_order(kept)
    return kept if infinite and sensible and same and _is(graph, zero, 0) else None


def _is(graph: Graph, atom: Atom, value: float) -> bool:
    source = graph.scalar(atom)
    return isinstance(source, Lit) and source.value == value
