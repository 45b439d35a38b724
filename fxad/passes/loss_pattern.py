"""Cross-entropy of a linear head as people write it, found in a Program.

    -mean(take_along_axis(log_softmax(x @ table.T), targets)), or of logsumexp(z) - z[target]

Logits must be a product of x and a matrix and be read by the loss alone. The place of a target may
be taken by a gather or by a one-hot row; losses may be weighted before they are summed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.record import replace, valued
from fxad.core.types import ArrayType
from fxad.ir.program import OPS, Atom, Eqn
from fxad.ops.base import all_params, full, op, zeros
from fxad.passes.inserted import inserted
from fxad.passes.patterns import Graph
from fxad.passes.softmax_pattern import log_softmax, log_sum_exp, unshifted
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Value

STEPS = 12  # ops between the end of a loss and its rows, at most


@valued
class Picked:
    """values[..., target]: outside of the range `beyond` says what: "fill" NaN, "clamp" the
    nearest, "zero" 0."""

    values: Atom
    targets: Atom  # integers, with the values' leading axes but for some of length 1
    beyond: str


@valued
class Rows:
    """sign * (log-sum-exp of logits - logits at targets), row by row."""

    logits: Atom
    picked: Picked
    sign: float
    normalised: bool  # values were log-probabilities: a row with no target adds nothing


@valued
class Loss:
    """factor * sum(rows * weights): `weights` multiply, or choose where bool."""

    rows: Rows
    factor: float
    weights: tuple[Atom, ...]


def loss(graph: Graph, last: Eqn) -> tuple[list[Eqn], Atom] | None:
    """Equations that compute by `linear_cross_entropy` what an equation that ends a loss does,
    and which value that is."""
    if not _ends(last):
        return None
    out = last.outputs[0]
    found = _summed(graph, out, ())
    if found is None or out.type.dtype not in (dt.float32, dt.float64):
        return None
    reader = graph.uses.only_reader(out)
    if reader is not None and _ends(reader) and _summed(graph, reader.outputs[0], ()) is not None:
        return None  # which takes the number it multiplies with along
    product = graph.op(_narrow(graph, _flat(graph, found.rows.logits)), "dot")
    head = None if product is None else _head(graph, product)
    if product is None or head is None:
        return None
    stops = [*product.inputs, found.rows.picked.targets, *found.weights]
    if not all(graph.closed(last, a, stops) for a in last.inputs):
        return None
    return _written(found, last, product.inputs[0], *head)


def _ends(eqn: Eqn) -> bool:
    """Whether an equation may be the last of a loss: a sum, or a number times one."""
    return eqn.op.name in ("sum", "neg", "mul", "div") and not eqn.outputs[0].type.shape


# ---------------------------------------------------------------- finding


def _summed(
    graph: Graph, x: Atom, weights: tuple[Atom, ...], summed: bool = False, steps: int = STEPS
) -> Loss | None:
    """What x is a sum of losses of, or losses themselves once `summed`; `steps` ops at most."""
    if steps == 0:
        return None
    if summed and (rows := _rows(graph, x, not weights)) is not None:
        return Loss(rows, 1.0, weights)
    eqn = graph.defined.get(x)
    if eqn is None:
        return None
    match eqn.op.name:
        case "sum" if not weights:
            return _summed(graph, eqn.inputs[0], (), True, steps - 1)
        case "reshape" if graph.same_order(x) is not x:
            return _summed(graph, graph.same_order(x), weights, summed, steps - 1)
        case "neg":
            found = _summed(graph, eqn.inputs[0], weights, summed, steps - 1)
            return None if found is None else replace(found, factor=-found.factor)
        case "div" if number := graph.number(eqn.inputs[1]):
            found = _summed(graph, eqn.inputs[0], weights, summed, steps - 1)
            return None if found is None else replace(found, factor=found.factor / number)
        case "mul":
            return _weighted(graph, eqn, weights, summed, steps - 1)
        case "select" if summed and _zero(graph, eqn.inputs[2]) and eqn.inputs[0].type.shape:
            return _summed(graph, eqn.inputs[1], (*weights, eqn.inputs[0]), True, steps - 1)
    return None


def _weighted(
    graph: Graph, eqn: Eqn, weights: tuple[Atom, ...], summed: bool, steps: int
) -> Loss | None:
    for inner, factor in (eqn.inputs, eqn.inputs[::-1]):
        number = graph.number(factor)
        if number is None and not (summed and factor.type == eqn.outputs[0].type):
            continue
        more = weights if number is not None else (*weights, factor)
        found = _summed(graph, inner, more, summed, steps)
        if found is not None:
            return replace(found, factor=found.factor * (1.0 if number is None else number))
    return None


def _zero(graph: Graph, atom: Atom) -> bool:
    return graph.number(atom) == 0


def _rows(graph: Graph, x: Atom, whole: bool) -> Rows | None:
    """Losses of rows: log-probabilities at targets, or the difference of a log-sum-exp and logits
    at targets; if `whole` also log-probabilities times one-hot rows, still to be summed."""
    x = graph.same_order(x)
    picked = _picked(graph, x)
    if picked is None and whole:
        picked = _times_hot(graph, x)
    if picked is not None:
        found = log_softmax(graph, picked.values, picked.values.type.ndim - 1)
        return None if found is None else Rows(found.logits, picked, -1.0, True)
    eqn = graph.op(x, "sub")
    if eqn is None:
        return None
    for sign, (lse, at) in ((1.0, eqn.inputs), (-1.0, eqn.inputs[::-1])):
        picked = _picked(graph, graph.same_order(at))
        if picked is None:
            continue
        axis = picked.values.type.ndim - 1
        found = log_sum_exp(graph, lse, axis)
        if found is not None and found.logits is picked.values:
            return Rows(unshifted(graph, found, axis).logits, picked, sign, False)
    return None


def _picked(graph: Graph, x: Atom) -> Picked | None:
    """What x takes one element of from every row."""
    eqn = graph.defined.get(x)
    if eqn is None:
        return None
    if eqn.op.name == "gather":
        return _gathered(graph, eqn)
    if eqn.op.name != "sum" or eqn.params["axes"] != (eqn.inputs[0].type.ndim - 1,):
        return None
    return _times_hot(graph, eqn.inputs[0])


def _times_hot(graph: Graph, x: Atom) -> Picked | None:
    """What x is at the targets; elsewhere it is 0."""
    inner = graph.defined.get(x)
    if inner is not None and inner.op.name == "select" and _zero(graph, inner.inputs[2]):
        return _hot(graph, inner.inputs[1], inner.inputs[0])
    if inner is not None and inner.op.name == "mul":
        for values, hot in (inner.inputs, inner.inputs[::-1]):
            converted = graph.op(hot, "convert")
            found = None if converted is None else _hot(graph, values, converted.inputs[0])
            if found is not None:
                return found
    return None


def _gathered(graph: Graph, eqn: Eqn) -> Picked | None:
    values, *places = eqn.inputs
    last, p = values.type.ndim - 1, all_params(eqn)
    if p["mode"] not in ("fill", "clamp") or (p["mode"] == "fill" and p["fill"] is not None):
        return None
    if p["axes"] == (last,) and p["batch"] == last:
        shape = values.type.shape[:-1]
        long = [n for n in shape if n != 1]
        if [n for n in places[0].type.shape if n != 1] == long:  # one element of every row
            return Picked(values, places[0], p["mode"])
    pairs = values.type.ndim == 2 and p["axes"] == (0, 1) and p["batch"] == 0
    if pairs and _counts(graph, places[0], values.type.shape[0]):
        return Picked(values, places[1], p["mode"])
    return None


def _counts(graph: Graph, atom: Atom, size: int) -> bool:
    """Whether an atom is 0, 1, ... size - 1."""
    if atom.type.shape != (size,):
        return False
    value = graph.constant(atom)
    return value is not None and value.tolist() == [*range(size)]


def _hot(graph: Graph, values: Atom, hot: Atom) -> Picked | None:
    """values where their place in the row is a target."""
    eqn, axis = graph.op(hot, "eq"), values.type.ndim - 1
    if eqn is None:
        return None
    for places, targets in (eqn.inputs, eqn.inputs[::-1]):
        counted = graph.view(places)
        converted = graph.op(counted.source, "convert")
        iota = graph.op(converted.inputs[0] if converted else counted.source, "iota")
        row = graph.row(targets, axis)
        if iota is None or row is None or not dt.is_integer(row.type.dtype):
            continue
        holds = np.iinfo(row.type.dtype).max >= values.type.shape[axis] - 1
        if holds and counted.axes[axis] == iota.params["axis"]:
            return Picked(values, row, "zero")
    return None


def _flat(graph: Graph, logits: Atom) -> Atom:
    """Logits before their rows were put into other axes."""
    while (eqn := graph.op(logits, "reshape")) is not None:
        if eqn.inputs[0].type.shape[-1:] != logits.type.shape[-1:]:
            break
        logits = eqn.inputs[0]
    return logits


def _narrow(graph: Graph, logits: Atom) -> Atom:
    """Logits before they were made wider."""
    eqn = graph.op(logits, "convert")
    wider = eqn is not None and eqn.inputs[0].type.dtype.itemsize < logits.type.dtype.itemsize
    return _flat(graph, eqn.inputs[0]) if eqn is not None and wider else logits


def _head(graph: Graph, product: Eqn) -> tuple[Atom, int] | None:
    """The matrix that every row is multiplied with and which of its axes is summed over."""
    x, table = product.inputs
    (mine, of_table), batch = product.params["contract"], product.params["batch"]
    types = {a.type.dtype for a in (*product.inputs, *product.outputs)}
    good = x.type.ndim > 1 and table.type.ndim == 2 and len(mine) == 1 and not batch[0]
    if not good or mine != (x.type.ndim - 1,) or len(types) != 1 or not x.type.size:
        return None
    view = graph.view(table)
    if sorted(a for a in view.axes if a is not None) != [0, 1] or view.source.type.ndim != 2:
        return table, of_table[0]
    return view.source, view.axes[of_table[0]] or 0


# ---------------------------------------------------------------- writing


def _written(found: Loss, last: Eqn, x: Atom, table: Atom, width: int) -> tuple[list[Eqn], Atom]:
    atoms = [x, table, found.rows.picked.targets, *found.weights]

    def compute(x: Value, table: Value, targets: Value, *weights: Value) -> list[Value]:
        return [_loss(found, last.outputs[0].type.dtype, x, table, width, targets, weights)]

    eqns, (result,) = inserted(compute, atoms, last.where, last.tag)
    return eqns, result


def _loss(
    found: Loss,
    dtype: np.dtype,
    x: Value,
    table: Value,
    width: int,
    targets: Value,
    weights: Sequence[Value],
) -> Value:
    """The loss of rows x [..., D], by `linear_cross_entropy`."""
    shape = type_of(x).shape
    count, classes = math.prod(shape[:-1]), type_of(table).shape[1 - width]
    rows = ArrayType(dtype, (count,))
    x = op("reshape", x, shape=(count, shape[-1]))
    targets = _within(op("reshape", targets, shape=(count,)), classes)
    inside = op("and", op("ge", targets, 0), op("lt", targets, classes))
    beyond = found.rows.picked.beyond
    weight, poisoned = full(found.factor * found.rows.sign, rows), op("not", inside)
    for factor in (op("reshape", w, shape=(count,)) for w in weights):
        if type_of(factor).dtype == dt.bool_:
            weight = op("select", factor, weight, zeros(rows))
            poisoned = op("and", poisoned, factor)
        else:
            weight = op("mul", weight, factor)
    if beyond == "clamp":
        targets = op("min", op("max", targets, 0), classes - 1)
    elif found.rows.normalised:
        weight = op("select", inside, weight, zeros(rows))
    factors = type_of(x).dtype
    total: Value
    (total,) = OPS["linear_cross_entropy"](x, table, targets, weight, width=width, factors=factors)
    if beyond != "fill":
        return total
    poison = op("select", poisoned, full(math.nan, rows), zeros(rows))
    return op("add", total, op("sum", poison, axes=(0,)))


def _within(targets: Value, classes: int) -> Value:
    """Targets as i32; those that do not fit are still out of range."""
    dtype = type_of(targets).dtype
    if dtype.itemsize >= 4 and dtype != dt.int32:
        targets = op("min", targets, classes)
        if dt.is_signed(dtype):
            targets = op("max", targets, -1)
    return op("convert", targets, dtype=dt.int32)
